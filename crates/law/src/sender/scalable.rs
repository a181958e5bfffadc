//! Scalable TCP (Kelly, *Scalable TCP: improving performance in highspeed wide area networks*,
//! Computer Communication Review 33(2), 2003).

use super::{
    Acked, AnySender, Descriptor, Flight, MIN_SSTHRESH, SenderConfig, SenderLaw, Sending, window_limited,
};
use crate::param::{Kind, Tabled};
use crate::{Time, config};

/// Scalable TCP's window: slow start, then a fraction of a segment per acknowledged segment. The
/// number of round trips that a loss costs does not depend on the window.
#[derive(Clone, Debug)]
pub struct Scalable {
    config: ScalableConfig,
    window: f64,
    ssthresh: f64,
    /// True in fast recovery, during which the window is constant.
    recovering: bool,
    /// Signals up to this instant belong to the congestion already handled (RFC 3168 § 6.1.2).
    reduced_until: Time,
}

config! {
    /// The constants of [`Scalable`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ScalableConfig in "scalable", "The constants of Scalable TCP (Kelly, 2003)." {
        /// a: segments by which the window grows per acknowledged segment. Windows below 1/a grow
        /// by a segment per round trip, as in Linux.
        increase: f64 = 0.01, Kind::Over { over: 0.0, most: 1.0 }, from "§ 3";
        /// b: fraction of the window that a loss or a mark takes.
        decrease: f64 = 0.125, Kind::Over { over: 0.0, most: 1.0 }, from "§ 3";
        fixed {
            /// Window at the start, segments (RFC 6928).
            initial_window: f64 = 10.0;
        }
    }
}

impl ScalableConfig {
    /// Builds the law.
    pub fn build(&self) -> Scalable {
        Scalable {
            config: *self,
            window: self.initial_window.max(1.0),
            ssthresh: f64::INFINITY,
            recovering: false,
            reduced_until: Time::ZERO,
        }
    }
}

impl SenderConfig for ScalableConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor { kernel: Some("scalable"), ..Descriptor::default() }
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        AnySender::custom(ScalableConfig { initial_window: of.initial_window, ..*self }.build())
    }
}

impl Scalable {
    fn reduce(&mut self, flight: &Flight) {
        self.ssthresh = (self.window * (1.0 - self.config.decrease)).max(MIN_SSTHRESH);
        self.window = self.ssthresh;
        self.reduced_until = flight.now.saturating_add(flight.srtt);
    }
}

impl SenderLaw for Scalable {
    fn window(&self) -> f64 {
        self.window
    }

    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        if acked.marked && !self.recovering && flight.now >= self.reduced_until {
            self.reduce(flight);
            return;
        }
        if self.recovering || acked.cumulative == 0 || !window_limited(self.window, flight) {
            return;
        }
        let slow_start = self.window < self.ssthresh;
        let each = if slow_start { 1.0 } else { self.config.increase.max(1.0 / self.window) };
        // After a timeout one acknowledgement may cover much that was received long ago.
        let segments = if acked.recovering { 1 } else { acked.segments };
        self.window += each * f64::from(segments);
    }

    fn on_loss(&mut self, flight: &Flight) {
        if flight.now >= self.reduced_until {
            self.reduce(flight);
        }
        self.recovering = true;
    }

    fn on_recovered(&mut self, _: &Flight) {
        self.recovering = false;
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        if first {
            self.reduce(flight);
        }
        self.window = 1.0;
        self.recovering = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, flight};
    use super::*;

    const NOW: Time = Time::from_secs(1);

    #[test]
    fn a_loss_costs_a_large_window_no_more_round_trips_than_a_small_one() {
        let flight = Flight::of(Time::from_secs(1), Time::from_millis(100), 1_000_000);
        for window in [200.0, 2_000.0, 20_000.0] {
            let mut law = ScalableConfig { initial_window: window, ..Default::default() }.build();
            law.on_loss(&flight);
            law.on_recovered(&flight);
            let mut round_trips = 0;
            while law.window() < window {
                (0..law.window() as u32).for_each(|_| law.on_ack(&flight, &Acked::of(1)));
                round_trips += 1;
            }
            // log(8/7) / log(1.01) = 13.4.
            assert_eq!(round_trips, 14, "{window}");
        }
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let used = flight(NOW, 10);
        for (flight, grown) in [(used, 11.0), (Flight { app_limited: true, ..used }, 10.0)] {
            let mut law = ScalableConfig::default().build();
            law.on_ack(&flight, &acked(1));
            assert_eq!(law.window(), grown);
        }
    }

    #[test]
    fn small_windows_grow_by_a_segment_a_round_trip() {
        let grown = |window: f64| {
            let mut law = ScalableConfig { initial_window: window, ..Default::default() }.build();
            law.ssthresh = MIN_SSTHRESH;
            law.on_ack(&flight(NOW, 1_000), &acked(1));
            law.window() - window
        };
        assert_eq!([grown(8.0), grown(64.0)], [0.125, 1.0 / 64.0]);
        assert!((grown(1_000.0) - 0.01).abs() < 1e-9);
    }

    #[test]
    fn congestion_is_answered_once_a_round_trip() {
        let mut law = ScalableConfig { initial_window: 80.0, ..Default::default() }.build();
        let marked = Acked { marked: true, ..acked(1) };
        law.on_ack(&flight(NOW, 80), &marked);
        law.on_loss(&flight(NOW, 80));
        assert_eq!(law.window(), 70.0);
        law.on_ack(&flight(NOW, 80), &marked);
        assert_eq!(law.window(), 70.0, "it stays while a loss is repaired");
        law.on_recovered(&flight(NOW, 70));
        law.on_loss(&flight(NOW + Time::from_millis(100), 70));
        assert_eq!(law.window(), 61.25);
    }

    #[test]
    fn a_repeated_timeout_keeps_the_threshold() {
        let mut law = ScalableConfig { initial_window: 80.0, ..Default::default() }.build();
        law.on_timeout(&flight(NOW, 80), true);
        law.on_timeout(&flight(NOW, 1), false);
        assert_eq!((law.window(), law.ssthresh), (1.0, 70.0));
        law.on_ack(&flight(NOW, 1), &Acked { recovering: true, ..acked(9) });
        assert_eq!(law.window(), 2.0);
    }
}
