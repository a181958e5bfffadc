//! BBR, version 3 (draft-ietf-ccwg-bbr): control by a model of the path instead of by losses.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | state, events, and the window and pacing rate that follow (draft § 5.6) |
//! | `model` | bandwidth, round trip, volume in flight (§ 5.5) |
//! | `cycle` | Startup, Drain, ProbeBW's four phases, ProbeRTT (§ 5.3, § 5.4) |
//!
//! Volumes are in segments, rates in segments per second.

mod cycle;
mod filter;
mod model;
#[cfg(test)]
mod tests;

use super::config::fixed;
use super::{Acked, AnySender, Delivery, Descriptor, Ecn, Flight, Lost, SenderConfig, SenderLaw, Sending};
use crate::link::random::Pcg32;
use crate::param::Entry;
use crate::{Rate, Time};
use filter::WindowedMax;

/// BBR's sender. The transport must measure delivery ([`SenderLaw::samples_delivery`]) and pace.
#[derive(Clone, Debug)]
pub struct Bbr {
    config: BbrConfig,
    random: Pcg32,
    phase: Phase,
    window: f64,
    /// The window before recovery or ProbeRTT.
    prior_window: f64,
    /// Segments/s; 0 before the first sample.
    pacing: f64,
    recovering: bool,

    // Packet-timed round trips (§ 5.5.1).
    round: u64,
    round_start: bool,
    /// C.delivered at which the round ends.
    round_end: u64,
    /// True if the window was full at some time in this round, or in the last.
    full_window: bool,
    full_window_before: bool,

    // Bandwidth (§ 5.5.2–5.5.6), in this cycle and the one before.
    max_bw: [f64; 2],
    bw: f64,
    bw_shortterm: f64,
    full_bw: f64,
    full_bw_rounds: u8,
    /// True if the pipe is full, as far as this probe can tell.
    full_bw_now: bool,
    /// True if it ever was.
    full_bw_reached: bool,

    // Round trips (§ 5.3.4.3).
    min_rtt: Time,
    min_rtt_at: Time,
    probe_rtt_min: Time,
    probe_rtt_min_at: Time,
    probe_rtt_due: bool,
    /// The earliest end of ProbeRTT, once the volume in flight has fallen.
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,

    // Volume.
    inflight_longterm: f64,
    inflight_shortterm: f64,
    extra_acked: WindowedMax,
    extra_from: Time,
    extra_delivered: f64,

    // Signals of this round (§ 5.5.10).
    bw_latest: f64,
    inflight_latest: f64,
    loss_round_end: u64,
    loss_round_start: bool,
    loss_in_round: bool,
    loss_events: u8,

    // Probing (§ 5.3.3).
    acks: Acks,
    probe_sample: bool,
    probe_too_high: bool,
    probe_precautionary: bool,
    probe_up_rounds: u32,
    probe_up_acked: f64,
    probe_up_acked_per_inc: f64,
    rounds_since_probe: u64,
    probe_wait: Time,
    cycle_at: Time,
    drain_round: u64,
    idle_restart: bool,
    begun: bool,
}

/// The state of BBR (§ 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Doubles the rate each round trip.
    Startup,
    /// Drains the queue that Startup built.
    Drain,
    /// ProbeBW_DOWN: a little slower than the path, to drain a queue and leave room to others.
    Down,
    /// ProbeBW_CRUISE: as fast as the path.
    Cruise,
    /// ProbeBW_REFILL: as fast as the path for a round trip, without short-term bounds.
    Refill,
    /// ProbeBW_UP: faster than the estimate, to test for more bandwidth.
    Up,
    /// Half a BDP in flight, to measure the round trip without a queue.
    ProbeRtt,
}

/// The stage of probing that acknowledgements report on (BBR.ack_phase).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acks {
    Init,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// The parameters of [`Bbr`], and its factory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BbrConfig {
    /// Window at the start, segments. Default 10 (RFC 6928).
    pub initial_window: f64,
    /// Seed of the private random generator that spreads probes. Default 1.
    pub seed: u64,
}

impl Default for BbrConfig {
    fn default() -> BbrConfig {
        BbrConfig { initial_window: 10.0, seed: 1 }
    }
}

impl BbrConfig {
    pub(super) const ENTRY: Entry<dyn SenderConfig> = fixed::<BbrConfig>("bbr");
}

impl SenderConfig for BbrConfig {
    fn word(&self) -> &str {
        Self::ENTRY.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor { ecn: Ecn::Refuses, rack: true, kernel: Some("bbr"), ..Descriptor::default() }
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        BbrConfig { initial_window: of.initial_window, seed: of.seed }.build().into()
    }
}

impl BbrConfig {
    /// Builds the law.
    pub fn build(&self) -> Bbr {
        let window = self.initial_window.max(1.0);
        Bbr {
            config: BbrConfig { initial_window: window, ..*self },
            random: Pcg32::new(self.seed),
            phase: Phase::Startup,
            window,
            prior_window: 0.0,
            pacing: 0.0,
            recovering: false,
            round: 0,
            round_start: false,
            round_end: 0,
            full_window: false,
            full_window_before: false,
            max_bw: [0.0; 2],
            bw: 0.0,
            bw_shortterm: f64::INFINITY,
            full_bw: 0.0,
            full_bw_rounds: 0,
            full_bw_now: false,
            full_bw_reached: false,
            min_rtt: Time::NEVER,
            min_rtt_at: Time::ZERO,
            probe_rtt_min: Time::NEVER,
            probe_rtt_min_at: Time::ZERO,
            probe_rtt_due: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            inflight_longterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            extra_acked: WindowedMax::default(),
            extra_from: Time::ZERO,
            extra_delivered: 0.0,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            loss_round_end: 0,
            loss_round_start: false,
            loss_in_round: false,
            loss_events: 0,
            acks: Acks::Init,
            probe_sample: false,
            probe_too_high: false,
            probe_precautionary: false,
            probe_up_rounds: 0,
            probe_up_acked: 0.0,
            probe_up_acked_per_inc: f64::INFINITY,
            rounds_since_probe: 0,
            probe_wait: Time::ZERO,
            cycle_at: Time::ZERO,
            drain_round: 0,
            idle_restart: false,
            begun: false,
        }
    }
}

impl Bbr {
    /// The present phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// BBR.bw, the bandwidth estimate in use, segments/s.
    pub fn bandwidth(&self) -> f64 {
        self.bw
    }

    /// BBR.min_rtt, [`Time::NEVER`] before the first sample.
    pub fn min_rtt(&self) -> Time {
        self.min_rtt
    }

    /// BBR.inflight_longterm, segments; infinite until a probe has exceeded it.
    pub fn inflight_longterm(&self) -> f64 {
        self.inflight_longterm
    }

    fn begin(&mut self, flight: &Flight) {
        self.begun = true;
        self.min_rtt_at = flight.now;
        self.probe_rtt_min_at = flight.now;
        self.extra_from = flight.now;
        self.pacing = self.initial_pacing(flight);
    }

    /// § 5.6.2, InitPacingRate.
    fn initial_pacing(&self, flight: &Flight) -> f64 {
        let rtt = if flight.srtt > Time::ZERO { flight.srtt } else { Time::from_millis(1) };
        STARTUP_PACING_GAIN * self.config.initial_window / rtt.as_secs_f64()
    }

    /// § 5.6.2, SetPacingRateWithGain.
    fn set_pacing(&mut self, gain: f64) {
        let rate = gain * self.bw * PACING_MARGIN;
        if rate > 0.0 && (self.full_bw_reached || rate > self.pacing) {
            self.pacing = rate;
        }
    }

    /// § 5.6.4, SetCwnd.
    fn set_window(&mut self, d: &Delivery) {
        let most = self.floor_volume(self.bdp(self.phase.window_gain()) + self.extra_acked.get());
        let newly = f64::from(d.newly_acked);
        if self.full_bw_reached {
            self.window = (self.window + newly).min(most);
        } else if self.window < most || (d.delivered as f64) < self.config.initial_window {
            self.window += newly;
        }
        self.window = self.window.max(MIN_WINDOW);
        if self.phase == Phase::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        let cap = match self.phase {
            Phase::Down | Phase::Refill | Phase::Up => self.inflight_longterm,
            Phase::ProbeRtt | Phase::Cruise => self.inflight_with_headroom(),
            Phase::Startup | Phase::Drain => f64::INFINITY,
        };
        self.window = self.window.min(cap.min(self.inflight_shortterm).max(MIN_WINDOW));
    }

    /// § 5.6.4.4, SaveCwnd.
    fn save_window(&mut self) {
        self.prior_window = match self.recovering || self.phase == Phase::ProbeRtt {
            true => self.prior_window.max(self.window),
            false => self.window,
        };
    }

    fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }

    fn note_recovery(&mut self, recovering: bool) {
        if self.recovering && !recovering {
            self.recovering = false;
            self.restore_window();
        }
    }
}

impl Phase {
    fn pacing_gain(self) -> f64 {
        match self {
            Phase::Startup => STARTUP_PACING_GAIN,
            Phase::Drain => 0.5,
            Phase::Down => 0.9,
            Phase::Up => 1.25,
            Phase::Cruise | Phase::Refill | Phase::ProbeRtt => 1.0,
        }
    }

    fn window_gain(self) -> f64 {
        match self {
            Phase::Up => 2.25,
            Phase::ProbeRtt => PROBE_RTT_GAIN,
            _ => 2.0,
        }
    }

    fn probes_bandwidth_in_cycles(self) -> bool {
        matches!(self, Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up)
    }
}

impl SenderLaw for Bbr {
    fn window(&self) -> f64 {
        self.window
    }

    fn pacing_rate(&self, flight: &Flight) -> Option<Rate> {
        let pacing = if self.pacing > 0.0 { self.pacing } else { self.initial_pacing(flight) };
        Some(Rate::from_bytes_per_sec(pacing * f64::from(flight.segment)))
    }

    fn samples_delivery(&self) -> bool {
        true
    }

    fn holds_back(&self) -> bool {
        self.phase == Phase::ProbeRtt
    }

    /// § 5.4.1, HandleRestartFromIdle.
    fn on_restart(&mut self, flight: &Flight) {
        self.idle_restart = true;
        self.extra_from = flight.now;
        if self.phase.probes_bandwidth_in_cycles() {
            self.set_pacing(1.0);
        } else if self.phase == Phase::ProbeRtt {
            self.check_probe_rtt_done(flight, self.round_end);
        }
    }

    /// § 5.2.3, UpdateOnACK.
    fn on_delivery(&mut self, flight: &Flight, d: &Delivery) {
        if !self.begun {
            self.begin(flight);
        }
        self.note_recovery(d.recovering);
        self.note_signals(flight, d);
        self.note_aggregation(flight, d);
        self.check_full_bw(d);
        self.check_startup_done(flight, d);
        self.check_drain_done(flight, d);
        self.advance_cycle(flight, d);
        self.update_min_rtt(flight, d);
        self.check_probe_rtt(flight, d);
        self.advance_signals(d);
        self.bw = self.path_bw().min(self.bw_shortterm);
        self.set_pacing(self.phase.pacing_gain());
        self.set_window(d);
    }

    /// § 5.5.10.2, HandleLostPacket.
    fn on_lost(&mut self, flight: &Flight, lost: &Lost) {
        self.note_lost(flight, lost);
    }

    fn on_ack(&mut self, _: &Flight, _: &Acked) {}

    /// § 5.6.4.4, OnEnterFastRecovery.
    fn on_loss(&mut self, _: &Flight) {
        self.save_window();
        self.recovering = true;
    }

    fn on_recovered(&mut self, _: &Flight) {
        self.note_recovery(false);
    }

    /// § 5.6.4.4, OnEnterRTO.
    fn on_timeout(&mut self, _: &Flight, _: bool) {
        self.save_window();
        self.recovering = true;
        self.window = 1.0;
    }
}

/// BBR.StartupPacingGain: 4 ln 2.
const STARTUP_PACING_GAIN: f64 = 2.77;
/// 1 less BBR.PacingMarginPercent.
const PACING_MARGIN: f64 = 0.99;
/// BBR.ProbeRTTCwndGain.
const PROBE_RTT_GAIN: f64 = 0.5;
/// BBR.LossThresh.
const LOSS_THRESHOLD: f64 = 0.02;
/// BBR.Beta.
const BETA: f64 = 0.7;
/// BBR.Headroom.
const HEADROOM: f64 = 0.15;
/// BBR.MinPipeCwnd.
const MIN_WINDOW: f64 = 4.0;
