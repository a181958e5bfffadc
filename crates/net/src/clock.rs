//! The monotonic clock, as the laws' time.

use std::time::Instant;

use tollway_law::Time;

/// Counts nanoseconds from an origin: what every law and machine of a run is told.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that is at `at` now.
    pub fn starting_at(at: Time) -> Clock {
        let now = Instant::now();
        Clock { origin: now.checked_sub(std::time::Duration::from_nanos(at.0)).unwrap_or(now) }
    }

    /// The present.
    #[inline]
    pub fn now(&self) -> Time {
        Time(self.origin.elapsed().as_nanos() as u64)
    }
}
