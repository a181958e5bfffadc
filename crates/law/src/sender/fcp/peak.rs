//! The window of a rate-based sender.

use super::super::Flight;
use crate::Time;
use crate::price::at_least;

/// Upper bound on data in flight of a rate-based sender: twice the bandwidth–delay product of its
/// highest rate of one to two round trips. Only missing feedback stops the sender.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Peak {
    pub(in super::super) segments: f64,
    now: f64,
    before: f64,
    turns: Time,
    /// A segment's bytes, and 2 divided by them.
    segment: u32,
    twice_per_byte: f64,
}

impl Peak {
    /// The highest rate within the last round trip or two, bytes/s.
    #[inline]
    pub(super) fn highest(&self) -> f64 {
        at_least(self.now, self.before)
    }

    /// Records the present rate, bytes/s.
    #[inline]
    pub(in super::super) fn note(&mut self, flight: &Flight, rate: f64) {
        if flight.now >= self.turns {
            self.before = std::mem::take(&mut self.now);
            self.turns = flight.now.saturating_add(flight.srtt);
        }
        self.now = at_least(rate, self.now);
        let most = self.highest();
        if flight.segment != self.segment {
            self.segment = flight.segment;
            self.twice_per_byte = 2.0 / f64::from(flight.segment.max(1));
        }
        let segments = self.twice_per_byte * most * flight.srtt.as_secs_f64();
        self.segments = at_least(segments, LEAST_WINDOW);
    }
}

/// Segments that may be in flight at any rate.
const LEAST_WINDOW: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::super::super::testing::flight;
    use super::*;

    const RTT: Time = Time::from_millis(100);

    #[test]
    fn a_rate_that_falls_leaves_the_window_for_a_round_trip() {
        let mut peak = Peak::default();
        peak.note(&flight(RTT, 0), 15e6);
        // A new turn begins with the price risen: what is on its way, 1000 segments, must not stop
        // the sender.
        peak.note(&flight(RTT * 2, 0), 15e3);
        assert!((peak.segments - 2000.0).abs() < 1e-6, "{}", peak.segments);
        peak.note(&flight(RTT * 3, 0), 15e3);
        assert_eq!(peak.segments, LEAST_WINDOW);
    }
}
