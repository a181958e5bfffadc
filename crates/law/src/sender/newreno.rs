//! NewReno: slow start, congestion avoidance and halving (RFC 5681, RFC 6582).

use std::sync::Arc;

use super::{
    Acked, AnySender, Descriptor, Flight, MIN_SSTHRESH, SenderConfig, SenderLaw, Sending, flight_size,
    window_limited,
};
use crate::param::{Config, Entry, Kind, Tabled};
use crate::{Time, config};

/// TCP NewReno's window. The transport implements the recovery of RFC 6582 or RFC 6675; this law
/// sets the window after a loss.
#[derive(Clone, Debug)]
pub struct NewReno {
    window: f64,
    ssthresh: f64,
    /// True in fast recovery, during which the window is constant.
    in_recovery: bool,
    /// Marks up to this instant belong to the window already reduced (RFC 3168 § 6.1.2).
    reduced_until: Time,
    /// Losses up to this instant belong to the window already reduced for marks.
    eased_until: Time,
    /// Growth in congestion avoidance, segments per round trip.
    increase: f64,
    /// Upper bound on the segments that one acknowledgement counts for.
    counted: u32,
}

config! {
    /// The constants of [`NewReno`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct NewRenoConfig in "", "" {
        /// With the law `newreno`: upper bound on the segments by which one acknowledgement grows
        /// the window. RFC 5681 has 1, RFC 3465 has 2: with delayed acknowledgements windows then
        /// grow more slowly.
        growth_per_ack: Option<u32> = None, Kind::Count { least: 1, most: 1_000_000 },
            else "all that it acknowledges, as in Linux";
        fixed {
            /// Window at the start, segments (RFC 6928).
            initial_window: f64 = 10.0;
            /// Slow-start threshold at the start, segments (RFC 5681, § 3.1).
            initial_ssthresh: f64 = f64::INFINITY;
        }
    }
}

impl NewRenoConfig {
    pub(super) const ENTRY: Entry<dyn SenderConfig> = Entry {
        word: "newreno",
        tables: NewRenoConfig::TABLES,
        read: |tables| Arc::new(NewRenoConfig::read(tables.table(NewRenoConfig::TABLE.word))),
    };
}

impl SenderConfig for NewRenoConfig {
    fn word(&self) -> &str {
        Self::ENTRY.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor { kernel: Some("reno"), increase: true, ..Descriptor::default() }
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        NewRenoConfig { initial_window: of.initial_window, ..*self }.build().into()
    }
}

impl NewRenoConfig {
    /// Builds the law.
    pub fn build(&self) -> NewReno {
        NewReno {
            window: self.initial_window.max(1.0),
            ssthresh: self.initial_ssthresh,
            in_recovery: false,
            reduced_until: Time::ZERO,
            eased_until: Time::ZERO,
            increase: 1.0,
            counted: self.growth_per_ack.unwrap_or(u32::MAX).max(1),
        }
    }
}

impl NewReno {
    /// Sets the growth in congestion avoidance, in segments per round trip, instead of 1: g(rtt) of
    /// the aggregates paper, § 5.
    pub fn set_increase(&mut self, segments: f64) {
        self.increase = segments.max(0.0);
    }

    /// The slow-start threshold, segments.
    pub fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// True in fast recovery.
    pub(super) fn in_recovery(&self) -> bool {
        self.in_recovery
    }

    /// Sets the window after a mark; growth continues from there.
    pub(super) fn settle(&mut self, window: f64) {
        self.window = window;
        self.ssthresh = window;
    }

    fn halve(&mut self, flight: &Flight) {
        self.ssthresh = (flight_size(self.window, flight) / 2.0).max(MIN_SSTHRESH);
        self.reduced_until = flight.now.saturating_add(flight.srtt);
    }
}

/// The rules of ns-2.35's senders (`tcp.cc`), for a transport that recovers as they do: reductions
/// are of the window, not of the flight, and the threshold is a whole number.
impl NewReno {
    /// Grows for an acknowledgement of new data (line 1119).
    pub fn grow_ns2(&mut self) {
        self.window += if self.window < self.ssthresh { 1.0 } else { 1.0 / self.window };
    }

    /// Halves the window at a loss (line 1241).
    pub fn halve_ns2(&mut self) {
        self.window /= 2.0;
        self.ssthresh = self.window.floor().max(MIN_SSTHRESH);
    }

    /// Lowers the window by `segments` at a partial acknowledgement (`tcp-newreno.cc` 61).
    pub fn deflate_ns2(&mut self, segments: u32) {
        self.window = (self.window - f64::from(segments)).max(1.0);
    }

    /// Reduces the window to one segment at a timeout (line 1329).
    pub fn collapse_ns2(&mut self) {
        self.ssthresh = (self.window.max(1.0) / 2.0).floor().max(MIN_SSTHRESH);
        self.window = 1.0;
    }
}

impl SenderLaw for NewReno {
    #[inline]
    fn window(&self) -> f64 {
        self.window
    }

    #[inline(always)]
    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        if acked.marked && !self.in_recovery && flight.now >= self.reduced_until {
            self.halve(flight);
            self.window = self.ssthresh;
            self.eased_until = self.reduced_until;
            return;
        }
        // Segments after a hole do not grow the window (RFC 5681 § 3.1). Otherwise it would grow
        // without use after a timeout whose retransmission is lost as well.
        if self.in_recovery || acked.cumulative == 0 || !window_limited(self.window, flight) {
            return;
        }
        let segments = f64::from(acked.segments.min(self.counted));
        if self.window < self.ssthresh {
            // After a timeout one acknowledgement may cover much that was received long ago: it
            // counts for one segment (RFC 3465 § 2.3).
            let grown = if acked.recovering { 1.0 } else { segments };
            self.window = (self.window + grown).min(self.ssthresh.max(self.window));
        } else {
            // By no more than in slow start: an aggressive increase must not burst (the aggregates
            // paper, § 5).
            self.window += (self.increase * segments / self.window).min(segments);
        }
    }

    fn on_loss(&mut self, flight: &Flight) {
        if flight.now >= self.eased_until {
            self.halve(flight);
            self.window = self.ssthresh;
        }
        self.in_recovery = true;
    }

    fn on_recovered(&mut self, _: &Flight) {
        self.in_recovery = false;
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        if first {
            self.halve(flight);
        }
        self.window = 1.0;
        self.in_recovery = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, flight};
    use super::*;

    const NOW: Time = Time::from_secs(1);

    #[test]
    fn an_acknowledgement_of_two_segments_counts_for_as_many_as_it_may() {
        for (growth_per_ack, expected) in [(Some(1), 15.0), (Some(2), 20.0), (None, 20.0)] {
            let mut law = NewRenoConfig { growth_per_ack, ..NewRenoConfig::default() }.build();
            (0..5).for_each(|_| law.on_ack(&flight(NOW, 10), &acked(2)));
            assert_eq!(law.window(), expected);
        }
    }

    #[test]
    fn doubles_in_slow_start_and_adds_one_a_round_trip_afterwards() {
        let mut law =
            NewRenoConfig { initial_window: 2.0, initial_ssthresh: 8.0, ..NewRenoConfig::default() }.build();
        for round in [4.0, 8.0] {
            for _ in 0..law.window() as u32 {
                law.on_ack(&flight(NOW, 8), &acked(1));
            }
            assert_eq!(law.window(), round);
        }
        for _ in 0..8 {
            law.on_ack(&flight(NOW, 8), &acked(1));
        }
        assert!((law.window() - 9.0).abs() < 0.06, "{}", law.window());
    }

    #[test]
    fn another_increase_is_bounded_by_slow_starts() {
        let config = NewRenoConfig { initial_window: 8.0, initial_ssthresh: 8.0, ..NewRenoConfig::default() };
        let grown = |increase| {
            let mut law = config.build();
            law.set_increase(increase);
            law.on_ack(&flight(NOW, 8), &acked(1));
            law.window()
        };
        assert_eq!([grown(1.0), grown(0.5), grown(4.0), grown(1000.0)], [8.125, 8.0625, 8.5, 9.0]);
    }

    #[test]
    fn halves_once_a_loss_episode_and_rests_meanwhile() {
        let mut law = NewRenoConfig { initial_window: 20.0, ..Default::default() }.build();
        law.on_loss(&flight(NOW, 20));
        assert_eq!((law.window(), law.ssthresh()), (10.0, 10.0));
        law.on_ack(&flight(NOW, 10), &acked(3));
        assert_eq!(law.window(), 10.0);
        law.on_recovered(&flight(NOW, 10));
        law.on_ack(&flight(NOW, 10), &acked(1));
        assert_eq!(law.window(), 10.1);
    }

    #[test]
    fn what_comes_behind_a_hole_grows_nothing() {
        let behind = |segments| Acked { cumulative: 0, ..acked(segments) };
        let mut law = NewRenoConfig { initial_window: 10.0, ..Default::default() }.build();
        (0..10).for_each(|_| law.on_ack(&flight(NOW, 10), &behind(1)));
        assert_eq!(law.window(), 10.0);
        law.on_timeout(&flight(NOW, 10), true);
        (0..10).for_each(|_| law.on_ack(&flight(NOW, 1), &Acked { recovering: true, ..behind(2) }));
        assert_eq!(law.window(), 1.0);
        law.on_ack(&flight(NOW, 1), &Acked { recovering: true, cumulative: 1, ..acked(2) });
        assert_eq!(law.window(), 2.0);
    }

    #[test]
    fn halves_what_flies_not_what_could() {
        let mut law = NewRenoConfig { initial_window: 100.0, ..Default::default() }.build();
        law.on_loss(&flight(NOW, 12));
        assert_eq!(law.window(), 6.0);
    }

    #[test]
    fn a_repeated_timeout_keeps_the_threshold() {
        let mut law = NewRenoConfig { initial_window: 40.0, ..Default::default() }.build();
        law.on_timeout(&flight(NOW, 40), true);
        assert_eq!((law.window(), law.ssthresh()), (1.0, 20.0));
        law.on_timeout(&flight(NOW, 1), false);
        assert_eq!((law.window(), law.ssthresh()), (1.0, 20.0));
        // Slow start goes on although the transport is still repairing.
        law.on_ack(&flight(NOW, 1), &Acked { recovering: true, ..acked(9) });
        assert_eq!(law.window(), 2.0);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut law = NewRenoConfig::default().build();
        law.on_ack(&Flight { app_limited: true, ..flight(NOW, 3) }, &acked(1));
        law.on_ack(&Flight { limit: 5, ..flight(NOW, 5) }, &acked(1));
        assert_eq!(law.window(), 10.0);
    }

    #[test]
    fn marks_count_once_a_round_trip() {
        let mut law = NewRenoConfig { initial_window: 40.0, ..Default::default() }.build();
        let marked = Acked { marked: true, ..acked(1) };
        law.on_ack(&flight(NOW, 40), &marked);
        law.on_ack(&flight(NOW, 40), &marked);
        assert!((20.0..20.1).contains(&law.window()), "{}", law.window());
        law.on_ack(&flight(NOW + Time::from_millis(100), 20), &marked);
        assert_eq!(law.window(), 10.0);
    }

    #[test]
    fn a_loss_in_a_window_halved_for_a_mark_does_not_halve_again() {
        let mut law = NewRenoConfig { initial_window: 40.0, ..Default::default() }.build();
        law.on_ack(&flight(NOW, 40), &Acked { marked: true, ..acked(1) });
        law.on_loss(&flight(NOW + Time::from_millis(50), 20));
        assert_eq!(law.window(), 20.0);
        law.on_recovered(&flight(NOW + Time::from_millis(150), 20));
        law.on_loss(&flight(NOW + Time::from_millis(200), 20));
        assert_eq!(law.window(), 10.0);
    }
}
