//! The model of the path (draft-ietf-ccwg-bbr § 5.5).

use super::{BETA, Bbr, HEADROOM, LOSS_THRESHOLD, MIN_WINDOW, PROBE_RTT_GAIN, Phase};
use crate::sender::{Delivery, Flight, Lost};

impl Bbr {
    /// BBR.max_bw.
    pub(super) fn path_bw(&self) -> f64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// `gain` BDPs, segments.
    pub(super) fn bdp(&self, gain: f64) -> f64 {
        self.volume(self.bw, gain)
    }

    fn volume(&self, bw: f64, gain: f64) -> f64 {
        if self.min_rtt == crate::Time::NEVER {
            return self.config.initial_window;
        }
        gain * bw * self.min_rtt.as_secs_f64()
    }

    /// QuantizationBudget. Without offload here, its budget is that of the least window.
    pub(super) fn floor_volume(&self, volume: f64) -> f64 {
        volume.max(MIN_WINDOW) + if self.phase == Phase::Up { 2.0 } else { 0.0 }
    }

    /// Inflight(bw, 1.0).
    pub(super) fn inflight_at(&self, bw: f64) -> f64 {
        self.floor_volume(self.volume(bw, 1.0))
    }

    pub(super) fn probe_rtt_window(&self) -> f64 {
        self.bdp(PROBE_RTT_GAIN).max(MIN_WINDOW)
    }

    pub(super) fn target_inflight(&self) -> f64 {
        self.bdp(1.0).min(self.window)
    }

    pub(super) fn inflight_with_headroom(&self) -> f64 {
        let headroom = (HEADROOM * self.inflight_longterm).max(1.0);
        if headroom.is_infinite() {
            return f64::INFINITY;
        }
        (self.inflight_longterm - headroom).max(MIN_WINDOW)
    }

    /// § 5.5.10.3, UpdateLatestDeliverySignals and UpdateCongestionSignals.
    pub(super) fn note_signals(&mut self, flight: &Flight, d: &Delivery) {
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(d.rate);
        self.inflight_latest = self.inflight_latest.max(d.over as f64);
        if d.before >= self.loss_round_end {
            self.loss_round_end = d.delivered;
            self.loss_round_start = true;
        }
        self.update_round(flight, d);
        if d.rate > 0.0 && (d.rate >= self.path_bw() || !d.app_limited) {
            self.max_bw[1] = self.max_bw[1].max(d.rate);
        }
        self.loss_events = self.loss_events.saturating_add(u8::from(d.newly_lost > 0));
        if self.loss_round_start {
            self.adapt_lower_bounds();
            self.loss_in_round = false;
        }
    }

    /// § 5.5.1, UpdateRound.
    fn update_round(&mut self, flight: &Flight, d: &Delivery) {
        let full = f64::from(flight.in_flight + d.newly_acked + d.newly_lost) + 1.0 > self.window;
        self.round_start = d.before >= self.round_end;
        if self.round_start {
            self.round_end = d.delivered;
            self.round += 1;
            self.rounds_since_probe += 1;
            self.full_window_before = std::mem::take(&mut self.full_window);
        }
        self.full_window |= full;
    }

    /// C.is_cwnd_limited.
    pub(super) fn window_limited(&self) -> bool {
        self.full_window || self.full_window_before
    }

    pub(super) fn advance_signals(&mut self, d: &Delivery) {
        if self.loss_round_start {
            self.bw_latest = d.rate;
            self.inflight_latest = d.over as f64;
        }
    }

    pub(super) fn reset_signals(&mut self) {
        self.loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0.0;
    }

    pub(super) fn reset_shortterm(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = f64::INFINITY;
    }

    /// § 5.5.10.3: once a round with losses, while not probing.
    pub(super) fn adapt_lower_bounds(&mut self) {
        let probing = matches!(self.phase, Phase::Startup | Phase::Refill | Phase::Up);
        if probing || !self.loss_in_round {
            return;
        }
        if self.bw_shortterm == f64::INFINITY {
            self.bw_shortterm = self.path_bw();
        }
        if self.inflight_shortterm == f64::INFINITY {
            self.inflight_shortterm = self.window;
        }
        self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
        self.inflight_shortterm = self.inflight_latest.max(BETA * self.inflight_shortterm);
    }

    /// § 5.5.6, AdvanceMaxBwFilter. A cycle without measurements leaves the previous one in force.
    pub(super) fn advance_max_bw(&mut self) {
        if self.max_bw[1] > 0.0 {
            self.max_bw = [self.max_bw[1], 0.0];
        }
    }

    /// § 5.5.9, UpdateACKAggregation.
    pub(super) fn note_aggregation(&mut self, flight: &Flight, d: &Delivery) {
        let mut expected = self.bw * flight.now.saturating_sub(self.extra_from).as_secs_f64();
        if self.extra_delivered <= expected {
            self.extra_delivered = 0.0;
            self.extra_from = flight.now;
            expected = 0.0;
        }
        self.extra_delivered += f64::from(d.newly_acked);
        let extra = (self.extra_delivered - expected).min(self.window);
        let rounds = if self.full_bw_reached { 10 } else { 1 };
        self.extra_acked.add(extra, self.round, rounds);
    }

    /// IsInflightTooHigh.
    pub(super) fn too_high(lost: u64, tx_in_flight: u32) -> bool {
        lost as f64 > f64::from(tx_in_flight) * LOSS_THRESHOLD
    }

    /// § 5.5.10.2, HandleLostPacket.
    pub(super) fn note_lost(&mut self, flight: &Flight, lost: &Lost) {
        if !self.loss_in_round {
            self.loss_round_end = lost.delivered;
        }
        self.loss_in_round = true;
        if !self.probe_sample || !Bbr::too_high(lost.lost, lost.tx_in_flight) {
            return;
        }
        // InflightAtLoss: where on the way to this packet did losses cross the threshold?
        let before = f64::from(lost.tx_in_flight) - 1.0;
        let lost_before = lost.lost as f64 - 1.0;
        let prefix = (LOSS_THRESHOLD * before - lost_before) / (1.0 - LOSS_THRESHOLD);
        self.inflight_went_too_high(flight, before + prefix, lost.app_limited, lost.delivered);
    }

    /// HandleInflightTooHigh.
    fn inflight_went_too_high(&mut self, flight: &Flight, at: f64, app_limited: bool, delivered: u64) {
        self.probe_too_high = true;
        self.probe_sample = false;
        if !app_limited {
            self.inflight_longterm = at.max(self.target_inflight() * BETA);
        }
        if self.phase == Phase::Up {
            self.go_down(flight, delivered);
        }
    }
}
