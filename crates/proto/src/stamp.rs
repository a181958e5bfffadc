//! Timestamps as packets carry them.

use tollway_law::Time;

/// An instant in 32 bits, in units of 64 ns, wrapping every 274.9 s: fine enough that a round-trip
/// sample loses nothing a law could see (XCP wants a precise RTT), long enough for round trips
/// under [`REACH`](Stamp::REACH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(pub u32);

impl Stamp {
    /// Up to so far apart it can be told which of two stamps is the later one: 137.4 s.
    pub const REACH: Time = Time(1 << 37);

    /// The stamp of `now`.
    #[inline]
    pub fn at(now: Time) -> Stamp {
        Stamp((now.0 >> 6) as u32)
    }

    /// The span from this stamp to `now`, right if it is under 274.9 s; at least one unit, since a
    /// round trip of zero would mean "unknown".
    #[inline]
    pub fn elapsed(self, now: Time) -> Time {
        let units = Stamp::at(now).0.wrapping_sub(self.0).max(1);
        Time(u64::from(units) << 6)
    }
}
