//! The time over which a link averages.

use crate::price::at_most;

/// The averaging interval, in nanoseconds and seconds. The reciprocal is kept, since a division is
/// the most expensive operation per packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) ns: u64,
    pub(super) seconds: f64,
    /// 1 / seconds.
    pub(super) per_second: f64,
}

impl Span {
    pub(super) fn of(seconds: f64) -> Span {
        Span { ns: (seconds * 1e9) as u64, seconds, per_second: 1.0 / seconds }
    }

    /// The interval of `seconds`, `elapsed` ns later than this one, of which it reaches no further
    /// back: that is forgotten. Otherwise a mean over an interval that has just become longer
    /// would be too low, and the price with it.
    pub(super) fn turned(self, seconds: f64, elapsed: u64) -> Span {
        Span::of(at_most(seconds, self.seconds + elapsed as f64 * 1e-9))
    }
}
