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
    /// The interval d of the report, s: this one, unless d has grown lately.
    pub(super) d: f64,
    /// When it was set, ns; zero at first.
    pub(super) set: u64,
}

impl Span {
    pub(super) fn of(seconds: f64) -> Span {
        Span { ns: (seconds * 1e9) as u64, seconds, per_second: 1.0 / seconds, d: seconds, set: 0 }
    }

    /// The interval at `now` ns, with a new `d`. It reaches no further back than this one: what was
    /// before is forgotten. Otherwise a mean over an interval that has just become longer would be
    /// too low, and the price with it.
    pub(super) fn turned(self, now: u64, d: f64) -> Span {
        let reach = self.seconds + (now - self.set) as f64 * 1e-9;
        Span { d, set: now, ..Span::of(at_most(d, reach)) }
    }
}
