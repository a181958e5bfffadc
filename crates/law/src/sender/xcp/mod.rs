//! XCP's sender (draft-falk-xcp-spec-03 § 4.1; the XCP study's and ns-2's variants as options).

mod fallback;

use std::sync::Arc;

pub use fallback::Fallback;

use super::config::not_in_program;
use super::{
    Acked, AnySender, Descriptor, Flight, MIN_SSTHRESH, SenderConfig, SenderLaw, Sending, Unanswered,
    flight_size, window_over_min_rtt,
};
use crate::link::Misfit;
use crate::param::{Kind, PROBABILITY, Tabled, fields};
use crate::toll::Content;
use crate::{Aim, Rate, Time, Toll, config, words};
use fallback::Guard;

/// XCP's window: it changes by the routers' feedback, and otherwise only by loss.
#[derive(Clone, Debug)]
pub struct Xcp {
    window: f64,
    config: XcpConfig,
    /// The next aging of the window, if enabled.
    age_at: Time,
    /// Packets since the last toll, including the one about to leave.
    unspoken: u32,
    guard: Option<Box<Guard>>,
}

config! {
    /// The constants of [`Xcp`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct XcpConfig in "xcp", "The behaviour of XCP's sender where the draft and the experimental study differ." {
        /// The effect of a loss on the window: halved (the draft), or kept (the study).
        on_loss: LossResponse = LossResponse::Halve, Kind::Word(LossResponse::WORDS), from "§ 4.1.4";
        /// States min(cwnd, receive window, buffers) to routers instead of cwnd (the study's fix).
        advertise_limit: bool = true, Kind::Truth;
        /// Spaces packets over the round trip, from a window of eight packets on.
        pacing: bool = true, Kind::Truth;
        /// The increase requested of routers: everything available, or enough to reach this rate in
        /// a round trip (the draft).
        request: RequestedIncrease = RequestedIncrease::Everything, Kind::RateOrAll, from "§ 4.1.2";
        /// States the window in whole packets, rounded down, since that many are in flight; its
        /// fraction is kept. `false` states the fraction, too.
        whole_window: bool = true, Kind::Truth, from "the study's `snd_cwnd` and `cwnd_frac`; ns-2";
        /// Bytes of a packet in the conversion of feedback to packets; ns-2 has 1450 for 1500.
        gain_segment: Option<u16> = None, Kind::Bytes { least: 1, most: 65535 }, else "its size on the wire";
        /// Takes feedback on duplicate acknowledgements too; ns-2 does not.
        duplicate_feedback: bool = true, Kind::Truth;
        /// Fraction of an unused window that is kept each round trip (0.5 in the draft, § 4.1.3.1).
        aging: Option<f64> = None, PROBABILITY, else "no flow is given up";
        /// Puts a toll on every n-th packet only, which speaks for those since the last; at least
        /// two per window. With `encoding = "acp"`.
        every: u32 = 1, Kind::Count { least: 1, most: 65536 };
        /// The TCP whose window bounds XCP's where routers do not speak XCP, and packets are lost
        /// and queued. With `encoding = "acp"`, or `transport = "kernel"`, which changes to it for
        /// good, without this key to the machine's.
        fallback: Fallback = Fallback::None, Kind::Word(Fallback::WORDS);
        fixed {
            /// Window at the start and until the first feedback, segments (ns-2; RFC 5681 allows up
            /// to 4).
            initial_window: f64 = INITIAL_WINDOW as f64;
            /// Requests at most what doubles the window in a round trip, as the program in the
            /// kernel does.
            doubling: bool = false;
        }
    }
}

/// The increase that a sender requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestedIncrease {
    /// Everything available (ns-2): any feedback of a router is smaller.
    Everything,
    /// The change to this rate within a round trip (draft § 4.1.2: desired less actual, over the
    /// packets of one round trip); no increase while the application has too little data.
    Rate(Rate),
}

fields! {
    RequestedIncrease => Rate,
        |demand| match demand { RequestedIncrease::Everything => None, RequestedIncrease::Rate(rate) => Some(rate) },
        |rate: Option<Rate>| Some(rate.map_or(RequestedIncrease::Everything, RequestedIncrease::Rate));
}

words! {
    /// The effect of a loss found by acknowledgements on XCP's window. A timeout always sets it to
    /// one segment.
    pub enum LossResponse {
        /// Halves it, as Reno does (the draft § 4.1.4 and ns-2).
        Halve = "halve",
        /// No effect: routers control congestion (the XCP study's `force_cwnd`).
        Keep = "keep",
    }
}

impl SenderConfig for XcpConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor {
            reads: Some(Content::Feedback),
            unanswered: match self.request {
                RequestedIncrease::Everything => Unanswered::Boundless,
                RequestedIncrease::Rate(_) => Unanswered::Harmless,
            },
            aim: Some(Aim::XcpEquilibrium),
            initial_window: Some(INITIAL_WINDOW),
            program: true,
            fallback: match self.fallback {
                Fallback::None => None,
                Fallback::NewReno => Some("reno"),
                Fallback::Cubic => Some("cubic"),
            },
            ..Descriptor::default()
        }
    }

    /// The study's sender, with its own detection of paths without XCP.
    fn program(&self, given: &dyn Fn(&str) -> bool) -> Result<Option<Arc<dyn SenderConfig>>, Misfit> {
        let on_loss = if given("on_loss") { self.on_loss } else { LossResponse::Keep };
        let defaults = XcpConfig::default();
        let others = [
            ("on_loss", on_loss != LossResponse::Keep),
            ("advertise_limit", self.advertise_limit != defaults.advertise_limit),
            ("pacing", self.pacing != defaults.pacing),
            ("request", self.request != defaults.request),
            ("whole_window", self.whole_window != defaults.whole_window),
            ("gain_segment", self.gain_segment != defaults.gain_segment),
            ("duplicate_feedback", self.duplicate_feedback != defaults.duplicate_feedback),
            ("aging", self.aging != defaults.aging),
            ("every", self.every != defaults.every),
        ];
        not_in_program(&others)?;
        Ok(Some(Arc::new(XcpConfig { on_loss, doubling: true, ..*self })))
    }

    fn check(&self, of: &Sending<'_>) -> Result<(), Misfit> {
        let carried = |fits: bool, field, message: &str| {
            let (label, help) = ("not carried", "leave out `encoding`: `acp` has such a field");
            let misfit = || Misfit { field, message: message.to_owned(), label, help };
            if of.whole_toll || fits { Ok(()) } else { Err(misfit()) }
        };
        let packets = "this encoding has no field for the number of packets that a toll covers";
        carried(self.every <= 1, "every", packets)?;
        let routers = "this encoding has no field for the number of routers that a toll has passed";
        carried(self.fallback == Fallback::None, "fallback", routers)
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        XcpConfig { initial_window: of.initial_window, ..*self }.build().into()
    }
}

impl XcpConfig {
    /// Builds the law.
    pub fn build(&self) -> Xcp {
        Xcp {
            window: self.initial_window.max(MIN_WINDOW),
            config: *self,
            age_at: Time::ZERO,
            unspoken: 0,
            guard: Guard::new(self.fallback).map(Box::new),
        }
    }
}

impl Xcp {
    /// True if it paces packets.
    #[inline]
    pub fn paced(&self) -> bool {
        self.config.pacing
    }

    /// The window stated in packets, segments.
    #[inline]
    fn advertised(&self, flight: &Flight) -> f64 {
        let mut window = self.window();
        if self.config.advertise_limit {
            window = window.min(f64::from(flight.limit));
        }
        if self.config.whole_window {
            // Windows are under 2^32; the cast is exact where `floor` would be a call.
            window = f64::from(window as u32);
        }
        window.max(MIN_WINDOW)
    }

    /// True if the fallback TCP reacts to a loss.
    fn falls_back(&mut self, flight: &Flight, timeout: Option<bool>) -> bool {
        let fallen = self.guard(|guard, _| guard.on_loss(flight, timeout)).unwrap_or(false);
        if let Some(ceiling) = self.guard.as_ref().filter(|_| fallen).and_then(|guard| guard.ceiling()) {
            self.window = self.window.min(ceiling);
        }
        fallen
    }

    /// Calls the guard, if there is one.
    #[inline]
    fn guard<T>(&mut self, tell: impl FnOnce(&mut Guard, f64) -> T) -> Option<T> {
        let guard = self.guard.as_mut()?;
        let before = guard.window();
        let said = tell(guard, self.window);
        if let (Some(window), None) = (before, guard.window()) {
            self.window = self.window.min(window);
        }
        Some(said)
    }

    /// Draft § 4.1.3.1, once a round trip: allowed = allowed·(1 − p) + actual·p.
    fn age(&mut self, flight: &Flight, p: f64) {
        if flight.now < self.age_at {
            return;
        }
        self.age_at = flight.now.saturating_add(flight.srtt);
        let used = f64::from(flight.outstanding);
        if flight.app_limited && used < self.window {
            self.window = (self.window * (1.0 - p) + used * p).max(MIN_WINDOW);
        }
    }
}

impl SenderLaw for Xcp {
    #[inline]
    fn window(&self) -> f64 {
        match self.guard.as_ref().and_then(|guard| guard.window()) {
            Some(window) => self.window.min(window),
            None => self.window,
        }
    }

    #[inline]
    fn pacing_rate(&self, flight: &Flight) -> Option<Rate> {
        let window = self.window();
        if self.config.pacing && window >= PACED { window_over_min_rtt(window, flight) } else { None }
    }

    #[inline]
    fn tolled(&self) -> bool {
        true
    }

    #[inline]
    fn spares_toll(&mut self) -> bool {
        if self.config.every <= 1 {
            return false;
        }
        self.unspoken += 1;
        // A window of few packets would otherwise go round without a word.
        let window = self.window();
        let most = (window * 0.5).max(1.0);
        let spared = self.unspoken < self.config.every && f64::from(self.unspoken) < most;
        // The first packets go before anything is known; all of them may ask.
        spared && window > 2.0
    }

    #[inline(always)]
    fn write_toll(&mut self, flight: &Flight, toll: &mut Toll) {
        if flight.srtt == Time::ZERO {
            // Nothing is known yet: the packet counts as bytes and gets no feedback (draft §
            // 4.1.1).
            toll.due = 0.0;
            toll.rtt = 0.0;
            toll.offer = 0.0;
            self.unspoken = 0;
            if self.guard.is_some() {
                toll.count_routers();
            }
            return;
        }
        let rtt = flight.srtt.as_secs_f64();
        let window = self.advertised(flight);
        toll.rtt = rtt as f32;
        toll.offer = (rtt / window) as f32;
        toll.due = match self.config.request {
            RequestedIncrease::Everything => EVERYTHING,
            RequestedIncrease::Rate(_) if flight.app_limited => 0.0,
            RequestedIncrease::Rate(rate) => {
                (rate.bytes_per_sec() - self.window() * f64::from(flight.segment) / rtt).max(0.0) / window
            }
        };
        if self.config.doubling {
            toll.due = toll.due.min(DOUBLING * f64::from(flight.segment) / rtt);
        }
        let mut room = f64::INFINITY;
        if self.config.advertise_limit {
            // The fraction, which is not stated, has been granted, too.
            room = f64::from(flight.limit) - self.window();
        }
        if let Some(ceiling) = self.guard.as_ref().and_then(|guard| guard.ceiling()) {
            room = room.min(ceiling - self.window);
        }
        if room < f64::INFINITY {
            toll.due = toll.due.min(room.max(0.0) * f64::from(flight.segment) / (rtt * window));
        }
        let spoken_for = std::mem::take(&mut self.unspoken);
        if spoken_for > 1 {
            // The sums of X over an interval, and the grants and requests, must be those of all
            // spoken-for packets. Decreases go by bytes, which the router cannot derive from X, so
            // the number of packets is stated.
            toll.offer *= spoken_for as f32;
            toll.due *= f64::from(spoken_for);
            toll.stake = spoken_for as f32;
        }
        if self.guard.is_some() {
            toll.count_routers();
        }
    }

    #[inline]
    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        if let Some(p) = self.config.aging {
            self.age(flight, p);
        }
        if let Some(echo) = acked.echo
            && (acked.cumulative > 0 || self.config.duplicate_feedback)
        {
            self.guard(|guard, window| guard.on_echo(acked.gap, window));
            let segment = self.config.gain_segment.map_or(flight.segment, u32::from).max(1);
            let change = f64::from(echo) * flight.srtt.as_secs_f64() / f64::from(segment);
            // Words from outside: what is no number changes nothing, and no window exceeds the
            // number space.
            if change.is_finite() {
                let window = (self.window + change).clamp(MIN_WINDOW, MAX_WINDOW);
                // Requests add up to a whole limit less their rounding, which would cost a segment.
                self.window = window.max(f64::from((window + ROUNDING) as u32));
            }
        }
        if self.guard.is_some() {
            self.guard(|guard, window| guard.on_ack(flight, acked, window));
        }
    }

    fn on_loss(&mut self, flight: &Flight) {
        if self.falls_back(flight, None) {
            return;
        }
        if self.config.on_loss == LossResponse::Halve {
            self.window = (flight_size(self.window, flight) / 2.0).max(MIN_SSTHRESH);
        }
    }

    fn on_recovered(&mut self, flight: &Flight) {
        self.guard(|guard, _| guard.on_recovered(flight));
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        if !self.falls_back(flight, Some(first)) {
            self.window = MIN_WINDOW;
        }
    }
}

/// Window at the start, segments (ns-2; RFC 5681 allows up to 4).
const INITIAL_WINDOW: u32 = 2;
/// The least window: less than one segment never leaves (draft § 4.1.3).
const MIN_WINDOW: f64 = 1.0;
/// The least window whose packets are spaced, segments. A whole packet is much of a smaller window:
/// spaced packets would state its last change up to a round trip late, and the flow lose its share.
const PACED: f64 = 8.0;
/// The largest request of a packet where requests double a window, segments: the option's form for
/// requests has 8 bits.
const DOUBLING: f64 = 255.0 / 256.0;
/// A window this close to a whole number counts as whole, segments.
const ROUNDING: f64 = 1e-9;
/// The largest window, beyond any network and within the number space of segments.
const MAX_WINDOW: f64 = 1073741824.0;
/// The request for everything, in bytes/s: larger than any link, and small enough that sums of it
/// stay finite in a float (ns-2's value).
const EVERYTHING: f64 = 1e24;

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, flight};
    use super::*;

    const NOW: Time = Time::from_secs(1);

    #[test]
    fn feedback_in_bytes_a_second_moves_the_window_by_rtt_over_segment() {
        let mut law = XcpConfig::default().build();
        // 45 000 B/s for 0.1 s are three segments of 1500 bytes.
        law.on_ack(&flight(NOW, 2), &Acked { echo: Some(45_000.0), ..acked(1) });
        assert!((law.window() - 5.0).abs() < 1e-12);
        law.on_ack(&flight(NOW, 2), &Acked { echo: Some(-1e9), ..acked(1) });
        assert_eq!(law.window(), 1.0);
        law.on_ack(&flight(NOW, 2), &Acked { echo: Some(f32::NAN), ..acked(1) });
        law.on_ack(&flight(NOW, 2), &Acked { echo: Some(f32::INFINITY), ..acked(1) });
        assert_eq!(law.window(), 1.0);
    }

    #[test]
    fn tolls_state_the_spacing_of_packets() {
        let mut law = XcpConfig { initial_window: 4.0, advertise_limit: false, ..Default::default() }.build();
        let mut toll = Toll::default();
        law.write_toll(&Flight { srtt: Time::ZERO, ..flight(NOW, 4) }, &mut toll);
        assert_eq!(toll, Toll::default());
        law.write_toll(&flight(NOW, 4), &mut toll);
        assert_eq!((toll.rtt, toll.offer, toll.due), (0.1, 0.025, EVERYTHING));
    }

    #[test]
    fn demand_for_a_rate_is_shared_by_the_packets_of_a_round_trip() {
        let demand = RequestedIncrease::Rate(Rate::from_bytes_per_sec(90_000.0));
        let mut law = XcpConfig { initial_window: 4.0, request: demand, ..Default::default() }.build();
        let mut toll = Toll::default();
        // 4 segments in 0.1 s are 60 000 B/s: 30 000 short, over four packets.
        law.write_toll(&flight(NOW, 4), &mut toll);
        assert!((toll.due - 7_500.0).abs() < 1e-9, "{}", toll.due);
        law.write_toll(&Flight { app_limited: true, ..flight(NOW, 4) }, &mut toll);
        assert_eq!(toll.due, 0.0);
    }

    #[test]
    fn the_program_in_the_kernel_requests_a_doubling_at_most() {
        let program = XcpConfig { initial_window: 4.0, doubling: true, ..Default::default() };
        let mut toll = Toll::default();
        program.build().write_toll(&flight(NOW, 4), &mut toll);
        assert!((toll.due - 15_000.0 * 255.0 / 256.0).abs() < 1e-9, "{}", toll.due);
    }

    #[test]
    fn an_advertised_limit_bounds_window_and_demand() {
        let mut law = XcpConfig { initial_window: 80.0, advertise_limit: true, ..Default::default() }.build();
        let mut toll = Toll::default();
        law.write_toll(&Flight { limit: 40, ..flight(NOW, 40) }, &mut toll);
        assert_eq!((toll.offer, toll.due), (0.1 / 40.0, 0.0));
        law.write_toll(&Flight { limit: 160, ..flight(NOW, 40) }, &mut toll);
        assert!((toll.due * 80.0 - 80.0 * 15_000.0).abs() < 1e-3);
    }

    #[test]
    fn a_demand_up_to_a_limit_ends_at_the_whole_limit() {
        for limit in 3..300 {
            let mut law = XcpConfig::default().build();
            let flight = Flight { limit, srtt: Time::from_micros(13_851), ..flight(NOW, 2) };
            for _ in 0..40 * limit {
                let mut toll = Toll::default();
                law.write_toll(&flight, &mut toll);
                law.on_ack(&flight, &Acked { echo: Some(toll.due.min(9_000.0) as f32), ..acked(1) });
            }
            let window = law.window();
            assert!((f64::from(limit)..f64::from(limit) + 1e-3).contains(&window), "{window} of {limit}");
        }
    }

    #[test]
    fn the_stated_window_is_truncated_and_its_fraction_kept() {
        let config = XcpConfig { gain_segment: Some(1450), ..Default::default() };
        let mut law = config.build();
        law.on_ack(&flight(NOW, 2), &Acked { echo: Some(14_500.0 * 0.9), ..acked(1) });
        assert!((law.window() - 2.9).abs() < 1e-6);
        let mut toll = Toll::default();
        law.write_toll(&flight(NOW, 2), &mut toll);
        assert_eq!(toll.offer, 0.05);
        law.on_ack(&flight(NOW, 2), &Acked { echo: Some(14_500.0 * 0.2), ..acked(1) });
        law.write_toll(&flight(NOW, 3), &mut toll);
        assert_eq!(toll.offer, 0.1 / 3.0);
    }

    #[test]
    fn windows_of_eight_packets_and_more_are_spaced_over_the_round_trip() {
        let rate = |initial_window, pacing| {
            let law = XcpConfig { initial_window, pacing, ..Default::default() }.build();
            law.pacing_rate(&flight(NOW, 10)).map(|rate| rate.bytes_per_sec().round())
        };
        assert_eq!((rate(7.9, true), rate(8.0, true), rate(80.0, false)), (None, Some(120_000.0), None));
    }

    #[test]
    fn ns2_takes_no_feedback_on_duplicates() {
        for (duplicate_feedback, left) in [(true, 12.0), (false, 2.0)] {
            let mut law = XcpConfig { duplicate_feedback, ..Default::default() }.build();
            let echo = Some(150_000.0);
            law.on_ack(&flight(NOW, 2), &Acked { echo, ..acked(0) });
            assert_eq!(law.window().round(), left);
        }
    }

    #[test]
    fn loss_is_the_routers_affair_or_halves_and_a_timeout_takes_all() {
        for (on_loss, left) in [(LossResponse::Keep, 30.0), (LossResponse::Halve, 15.0)] {
            let mut law = XcpConfig { initial_window: 30.0, on_loss, ..Default::default() }.build();
            law.on_loss(&flight(NOW, 30));
            assert_eq!(law.window(), left);
            law.on_timeout(&flight(NOW, 30), true);
            assert_eq!(law.window(), 1.0);
        }
    }

    #[test]
    fn a_toll_on_every_fourth_packet_says_what_four_would() {
        let demand = RequestedIncrease::Rate(Rate::from_bytes_per_sec(300_000.0));
        let config = XcpConfig { initial_window: 10.0, request: demand, ..Default::default() };
        let sums = |every: u32| {
            let mut law = XcpConfig { every, ..config }.build();
            let (mut tolls, mut x, mut due, mut packets) = (0, 0.0, 0.0, 0.0);
            for _ in 0..40 {
                if law.spares_toll() {
                    continue;
                }
                let mut toll = Toll::default();
                law.write_toll(&flight(NOW, 10), &mut toll);
                tolls += 1;
                x += f64::from(toll.offer);
                due += toll.due;
                packets += f64::from(toll.stake.max(1.0));
            }
            (tolls, x, due, packets)
        };
        let (all, fourth) = (sums(1), sums(4));
        assert_eq!((all.0, fourth.0, all.3, fourth.3), (40, 10, 40.0, 40.0));
        assert!((all.1 - fourth.1).abs() < 1e-6 && (all.2 - fourth.2).abs() < 1e-6, "{all:?} {fourth:?}");
        // Two a window at least, and all of the smallest.
        assert_eq!(sums(100).0, 8);
        let mut small = XcpConfig { every: 4, initial_window: 2.0, ..config }.build();
        assert!(!small.spares_toll());
    }

    #[test]
    fn an_unused_window_ages_by_halves_once_a_round_trip() {
        let mut law = XcpConfig { initial_window: 40.0, aging: Some(0.5), ..Default::default() }.build();
        let idle = |now| Flight { app_limited: true, ..flight(now, 10) };
        law.on_ack(&idle(NOW), &acked(1));
        law.on_ack(&idle(NOW + Time::from_millis(50)), &acked(1));
        assert_eq!(law.window(), 25.0);
        law.on_ack(&idle(NOW + Time::from_millis(100)), &acked(1));
        assert_eq!(law.window(), 17.5);
    }
}
