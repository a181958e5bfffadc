//! Timestamps in packets.

use tollway_law::Time;

/// An instant in 32 bits, in units of 64 ns; wraps every 274.9 s.
///
/// The unit is finer than any law needs (XCP requires a precise RTT). The range covers round trips
/// below [`REACH`](Stamp::REACH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(pub u32);

impl Stamp {
    /// Greatest distance at which the order of two stamps is defined: 137.4 s.
    pub const REACH: Time = Time(1 << 37);

    /// The stamp of the instant `now`.
    #[inline]
    pub fn at(now: Time) -> Stamp {
        Stamp((now.0 >> 6) as u32)
    }

    /// The span from this stamp to `now`, correct below 274.9 s.
    #[inline]
    pub fn waited(self, now: Time) -> Time {
        Time(u64::from(Stamp::at(now).0.wrapping_sub(self.0)) << 6)
    }

    /// [`waited`](Stamp::waited) for a round trip: at least one unit, since zero would mean
    /// "unknown".
    #[inline]
    pub fn elapsed(self, now: Time) -> Time {
        self.waited(now).max(Time(1 << 6))
    }
}
