//! The state machine (draft-ietf-ccwg-bbr § 5.3).

use super::{Acks, Bbr, Phase};
use crate::Time;
use crate::sender::{Delivery, Flight};

impl Bbr {
    /// § 5.3.1.2, CheckFullBWReached: three rounds in which bandwidth grew by less than a quarter.
    pub(super) fn check_full_bw(&mut self, d: &Delivery) {
        if self.full_bw_now || !self.round_start || d.app_limited {
            return;
        }
        if d.rate >= self.full_bw * 1.25 {
            self.reset_full_bw(d.rate);
            return;
        }
        self.full_bw_rounds += 1;
        self.full_bw_now = self.full_bw_rounds >= 3;
        self.full_bw_reached |= self.full_bw_now;
    }

    fn reset_full_bw(&mut self, rate: f64) {
        self.full_bw = rate;
        self.full_bw_rounds = 0;
        self.full_bw_now = false;
    }

    /// § 5.3.1.3, CheckStartupDone and CheckStartupHighLoss.
    pub(super) fn check_startup_done(&mut self, _: &Flight, d: &Delivery) {
        if self.loss_round_start {
            let lossy = d.recovering && self.loss_events >= 6 && Bbr::too_high(d.lost, d.tx_in_flight);
            self.loss_events = 0;
            if self.phase == Phase::Startup && lossy {
                self.full_bw_reached = true;
                self.inflight_longterm = self.bdp(1.0).max(self.inflight_latest);
            }
        }
        if self.phase == Phase::Startup && self.full_bw_reached {
            self.phase = Phase::Drain;
            self.drain_round = self.round;
        }
    }

    /// § 5.3.2, CheckDrainDone.
    pub(super) fn check_drain_done(&mut self, flight: &Flight, d: &Delivery) {
        let drained = f64::from(flight.in_flight) <= self.inflight_at(self.bw);
        if self.phase == Phase::Drain && (drained || self.round > self.drain_round + 3) {
            self.go_down(flight, d.delivered);
        }
    }

    /// StartProbeBW_DOWN: a cycle begins.
    pub(super) fn go_down(&mut self, flight: &Flight, delivered: u64) {
        self.reset_signals();
        self.probe_up_acked_per_inc = f64::INFINITY;
        // PickProbeWait.
        self.rounds_since_probe = u64::from(self.random.unit() >= 0.5);
        self.probe_wait = Time::from_secs_f64(2.0 + self.random.unit());
        self.cycle_at = flight.now;
        self.acks = Acks::Stopping;
        self.round_end = delivered;
        self.phase = Phase::Down;
    }

    fn refill(&mut self, d: &Delivery) {
        self.reset_shortterm();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0.0;
        self.probe_precautionary = false;
        self.acks = Acks::Refilling;
        self.round_end = d.delivered;
        self.phase = Phase::Refill;
    }

    pub(super) fn go_up(&mut self, d: &Delivery) {
        self.acks = Acks::Starting;
        self.round_end = d.delivered;
        self.reset_full_bw(d.rate);
        self.phase = Phase::Up;
        self.raise_slope();
    }

    /// RaiseInflightLongtermSlope.
    pub(super) fn raise_slope(&mut self) {
        let growth = f64::from(1u32 << self.probe_up_rounds);
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (self.window / growth).max(1.0);
    }

    /// § 5.3.3.9, UpdateProbeBWCyclePhase.
    pub(super) fn advance_cycle(&mut self, flight: &Flight, d: &Delivery) {
        if !self.full_bw_reached || self.adapt_longterm(d) {
            return;
        }
        match self.phase {
            Phase::Down => {
                if !self.probe_if_due(flight, d) && self.time_to_cruise(flight) {
                    self.phase = Phase::Cruise;
                }
            }
            Phase::Cruise => {
                self.probe_if_due(flight, d);
            }
            Phase::Refill => {
                if self.round_start {
                    self.probe_sample = true;
                    self.go_up(d);
                }
            }
            Phase::Up => {
                if self.time_to_go_down(flight, d) {
                    self.probe_too_high = false;
                    self.go_down(flight, d.delivered);
                }
            }
            Phase::Startup | Phase::Drain | Phase::ProbeRtt => {}
        }
    }

    /// IsTimeToProbeBW: by the clock, or as often as NewReno would lose at this rate.
    fn probe_if_due(&mut self, flight: &Flight, d: &Delivery) -> bool {
        let waited = flight.now > self.cycle_at.saturating_add(self.probe_wait);
        let due = waited || self.rounds_since_probe as f64 >= self.target_inflight().min(63.0);
        if due {
            self.refill(d);
        }
        due
    }

    /// IsTimeToCruise.
    fn time_to_cruise(&self, flight: &Flight) -> bool {
        let in_flight = f64::from(flight.in_flight);
        in_flight <= self.inflight_with_headroom() && in_flight <= self.inflight_at(self.path_bw())
    }

    /// IsTimeToGoDown.
    fn time_to_go_down(&mut self, flight: &Flight, d: &Delivery) -> bool {
        if self.probe_too_high && f64::from(flight.in_flight) >= self.inflight_longterm {
            self.probe_precautionary = true;
            return true;
        }
        if self.window_limited() && self.window >= self.inflight_longterm {
            self.reset_full_bw(d.rate);
            return false;
        }
        self.full_bw_now
    }

    /// AdaptLongTermModel. Returns true if it has chosen a phase.
    pub(super) fn adapt_longterm(&mut self, d: &Delivery) -> bool {
        if self.acks == Acks::Starting && self.round_start {
            self.acks = Acks::Feedback;
        }
        if self.acks == Acks::Stopping && self.round_start {
            self.probe_sample = false;
            self.acks = Acks::Init;
            let in_cycle = self.phase.probes_bandwidth_in_cycles();
            if in_cycle && !d.app_limited {
                self.advance_max_bw();
            }
            if in_cycle && self.probe_precautionary && !self.probe_too_high {
                self.refill(d);
                return true;
            }
        }
        if !Bbr::too_high(d.lost, d.tx_in_flight) && self.inflight_longterm < f64::INFINITY {
            self.inflight_longterm = self.inflight_longterm.max(f64::from(d.tx_in_flight));
            if self.phase == Phase::Up {
                self.probe_upward(d);
            }
        }
        false
    }

    /// ProbeInflightLongtermUpward.
    fn probe_upward(&mut self, d: &Delivery) {
        if !self.window_limited() || self.window < self.inflight_longterm {
            return;
        }
        self.probe_up_acked += f64::from(d.newly_acked);
        if self.probe_up_acked >= self.probe_up_acked_per_inc {
            let delta = (self.probe_up_acked / self.probe_up_acked_per_inc).floor();
            self.probe_up_acked -= delta * self.probe_up_acked_per_inc;
            self.inflight_longterm += delta;
        }
        if self.round_start {
            self.raise_slope();
        }
    }

    /// § 5.3.4.3, UpdateMinRTT.
    pub(super) fn update_min_rtt(&mut self, flight: &Flight, d: &Delivery) {
        let now = flight.now;
        self.probe_rtt_due = now > self.probe_rtt_min_at.saturating_add(PROBE_RTT_INTERVAL);
        if let Some(rtt) = d.rtt
            && (rtt < self.probe_rtt_min || self.probe_rtt_due)
        {
            self.probe_rtt_min = rtt;
            self.probe_rtt_min_at = now;
        }
        let expired = now > self.min_rtt_at.saturating_add(MIN_RTT_LENGTH);
        if self.probe_rtt_min < self.min_rtt || expired {
            self.min_rtt = self.probe_rtt_min;
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    /// CheckProbeRTT.
    pub(super) fn check_probe_rtt(&mut self, flight: &Flight, d: &Delivery) {
        if self.phase != Phase::ProbeRtt && self.probe_rtt_due && !self.idle_restart {
            self.save_window();
            self.phase = Phase::ProbeRtt;
            self.probe_rtt_done = None;
            self.acks = Acks::Stopping;
            self.round_end = d.delivered;
        }
        if self.phase == Phase::ProbeRtt {
            self.stay_in_probe_rtt(flight, d);
        }
        if d.over > 0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT. The transport marks samples as limited meanwhile, since the law holds back.
    fn stay_in_probe_rtt(&mut self, flight: &Flight, d: &Delivery) {
        match self.probe_rtt_done {
            None if f64::from(flight.in_flight) <= self.probe_rtt_window() => {
                self.probe_rtt_done = Some(flight.now.saturating_add(PROBE_RTT_DURATION));
                self.probe_rtt_round_done = false;
                self.round_end = d.delivered;
            }
            None => {}
            Some(_) => {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done {
                    self.check_probe_rtt_done(flight, d.delivered);
                }
            }
        }
    }

    /// CheckProbeRTTDone and ExitProbeRTT.
    pub(super) fn check_probe_rtt_done(&mut self, flight: &Flight, delivered: u64) {
        if self.probe_rtt_done.is_none_or(|done| flight.now <= done) {
            return;
        }
        self.probe_rtt_min_at = flight.now;
        self.restore_window();
        self.reset_shortterm();
        if self.full_bw_reached {
            self.go_down(flight, delivered);
            self.phase = Phase::Cruise;
        } else {
            self.phase = Phase::Startup;
        }
    }
}

/// BBR.MinRTTFilterLen.
const MIN_RTT_LENGTH: Time = Time::from_secs(10);
/// BBR.ProbeRTTInterval.
const PROBE_RTT_INTERVAL: Time = Time::from_secs(5);
/// BBR.ProbeRTTDuration.
const PROBE_RTT_DURATION: Time = Time::from_millis(200);
