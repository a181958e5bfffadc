//! XCP's sender (draft-falk-xcp-spec-03 § 4.1; the XCP study's and ns-2's variants as options).

mod fallback;

pub use fallback::Fallback;

use super::{Acked, Flight, MIN_SSTHRESH, SenderLaw, flight_size, window_over_min_rtt};
use crate::{Rate, Time, Toll};
use fallback::Guard;

/// XCP's window: it moves by what the routers wrote into its packets, and by nothing else but loss.
#[derive(Clone, Debug)]
pub struct Xcp {
    window: f64,
    config: XcpConfig,
    /// When the window is next aged, if that is wanted.
    age_at: Time,
    /// Packets since the last toll, that about to leave included.
    unspoken: u32,
    guard: Option<Box<Guard>>,
}

/// The parameters of [`Xcp`], and its factory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct XcpConfig {
    /// Window at the start and until the first feedback, segments. Default 2 (ns-2; RFC 5681 allows up to 4).
    pub initial_window: f64,
    /// What a packet asks for.
    pub demand: Demand,
    /// The study's cure for windows that cannot be used (§ "Sensitivity Study", receive buffers): the window
    /// advertised is no more than other limits allow, and the lowest limit bounds what is asked for. Default off.
    pub advertise_limit: bool,
    /// Advertise the window as it is used: whole segments, rounded down. ns-2 does. Default off.
    pub whole_window: bool,
    /// Bytes a segment counts for when feedback is made segments; `None` is its size on the wire. ns-2 leaves out
    /// 50 bytes of headers, which makes its windows react by 1500/1450 more.
    pub gain_segment: Option<u32>,
    /// What a loss does to the window.
    pub on_loss: LossResponse,
    /// What an application that does not use its window keeps of the unused part each round trip (draft
    /// § 4.1.3.1 gives p = 0.5); `None` lets it keep all.
    pub aging: Option<f64>,
    /// Whether packets leave evenly spaced, a window a least round trip, instead of on acknowledgements. Default off.
    pub paced: bool,
    /// A toll on every so manyth packet only, which speaks for those since the last one (the study's open question, § XCP in the
    /// Internet architecture); at least two a window have one. Default 1. Over one it takes an encoding that carries `stake`.
    pub every: u32,
    /// The TCP to fall back on where routers that don't speak XCP are the bottleneck; `None` obeys XCP whatever happens, as all texts do.
    /// Over none it takes an encoding that carries `stake`. Default none.
    pub fallback: Option<Fallback>,
}

/// How much more a sender asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// Whatever there is (ns-2): routers find any feedback smaller.
    Everything,
    /// To reach this rate within a round trip (draft § 4.1.2: desired less actual, over the packets of one round
    /// trip), and no more at all while the application has too little to send.
    Rate(Rate),
}

/// What a loss that acknowledgements tell of does to XCP's window. A timeout always takes it to one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossResponse {
    /// Nothing: the routers know about congestion (the XCP study's `force_cwnd`).
    Keep,
    /// Halve it, as Reno would (the draft § 4.1.4 and ns-2).
    Halve,
}

impl Default for XcpConfig {
    fn default() -> XcpConfig {
        XcpConfig {
            initial_window: 2.0,
            demand: Demand::Everything,
            advertise_limit: false,
            whole_window: false,
            gain_segment: None,
            on_loss: LossResponse::Keep,
            aging: None,
            paced: false,
            every: 1,
            fallback: None,
        }
    }
}

impl XcpConfig {
    /// What ns-2.35's `Agent/TCP/Reno/XCP` does with `packetSize_` + 50 bytes on the wire.
    pub fn ns2(packet_size: u32) -> XcpConfig {
        XcpConfig {
            whole_window: true,
            gain_segment: Some(packet_size),
            on_loss: LossResponse::Halve,
            ..XcpConfig::default()
        }
    }

    /// A law with these parameters.
    pub fn build(&self) -> Xcp {
        Xcp {
            window: self.initial_window.max(MIN_WINDOW),
            config: *self,
            age_at: Time::ZERO,
            unspoken: 0,
            guard: self.fallback.map(|which| Box::new(Guard::new(which))),
        }
    }
}

impl Xcp {
    /// Whether it spaces its packets.
    #[inline]
    pub fn paced(&self) -> bool {
        self.config.paced
    }

    /// The window that packets state, segments.
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

    /// Whether a loss is the affair of the TCP fallen back on.
    fn falls_back(&mut self, flight: &Flight, timeout: Option<bool>) -> bool {
        let fallen = self.guard(|guard, _| guard.on_loss(flight, timeout)).unwrap_or(false);
        if let Some(ceiling) = self.guard.as_ref().filter(|_| fallen).and_then(|guard| guard.ceiling()) {
            self.window = self.window.min(ceiling);
        }
        fallen
    }

    /// Tells the guard, if there is one, of something. XCP alone begins where TCP ends.
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
        if self.config.paced { window_over_min_rtt(self.window(), flight) } else { None }
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
            // Nothing is known yet: the packet counts as bytes and gets no feedback (draft § 4.1.1).
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
        toll.due = match self.config.demand {
            Demand::Everything => EVERYTHING,
            Demand::Rate(_) if flight.app_limited => 0.0,
            Demand::Rate(rate) => {
                (rate.bytes_per_sec() - window * f64::from(flight.segment) / rtt).max(0.0) / window
            }
        };
        let mut room = f64::INFINITY;
        if self.config.advertise_limit {
            room = f64::from(flight.limit) - window;
        }
        if let Some(ceiling) = self.guard.as_ref().and_then(|guard| guard.ceiling()) {
            room = room.min(ceiling - self.window);
        }
        if room < f64::INFINITY {
            toll.due = toll.due.min(room.max(0.0) * f64::from(flight.segment) / (rtt * window));
        }
        let spoken_for = std::mem::take(&mut self.unspoken);
        if spoken_for > 1 {
            // The sums of X over an interval, and what the packet is given and may ask for, are to be those of all of them. What is taken
            // back goes by bytes, which the router can't tell from X: it is told how many packets.
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
        if let Some(echo) = acked.echo {
            self.guard(|guard, window| guard.on_echo(acked.gap, window));
            let segment = self.config.gain_segment.unwrap_or(flight.segment).max(1);
            let change = f64::from(echo) * flight.srtt.as_secs_f64() / f64::from(segment);
            // Words from outside: what is no number changes nothing, and no window exceeds the number space.
            if change.is_finite() {
                self.window = (self.window + change).clamp(MIN_WINDOW, MAX_WINDOW);
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

/// Less than one segment never leaves (draft § 4.1.3).
const MIN_WINDOW: f64 = 1.0;
/// Far beyond any network, and inside the number space of segments.
const MAX_WINDOW: f64 = 1073741824.0;
/// "All there is" in bytes/s: larger than any link, small enough that sums of it stay finite in a float (ns-2's value).
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
        let mut law = XcpConfig { initial_window: 4.0, ..Default::default() }.build();
        let mut toll = Toll::default();
        law.write_toll(&Flight { srtt: Time::ZERO, ..flight(NOW, 4) }, &mut toll);
        assert_eq!(toll, Toll::default());
        law.write_toll(&flight(NOW, 4), &mut toll);
        assert_eq!((toll.rtt, toll.offer, toll.due), (0.1, 0.025, EVERYTHING));
    }

    #[test]
    fn demand_for_a_rate_is_shared_by_the_packets_of_a_round_trip() {
        let demand = Demand::Rate(Rate::from_bytes_per_sec(90_000.0));
        let mut law = XcpConfig { initial_window: 4.0, demand, ..Default::default() }.build();
        let mut toll = Toll::default();
        // 4 segments in 0.1 s are 60 000 B/s: 30 000 short, over four packets.
        law.write_toll(&flight(NOW, 4), &mut toll);
        assert!((toll.due - 7_500.0).abs() < 1e-9, "{}", toll.due);
        law.write_toll(&Flight { app_limited: true, ..flight(NOW, 4) }, &mut toll);
        assert_eq!(toll.due, 0.0);
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
    fn ns2_rounds_the_window_and_leaves_headers_out_of_the_gain() {
        let mut law = XcpConfig::ns2(1450).build();
        law.on_ack(&flight(NOW, 2), &Acked { echo: Some(14_500.0 * 0.9), ..acked(1) });
        assert!((law.window() - 2.9).abs() < 1e-6);
        let mut toll = Toll::default();
        law.write_toll(&flight(NOW, 2), &mut toll);
        assert_eq!(toll.offer, 0.05);
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
        let demand = Demand::Rate(Rate::from_bytes_per_sec(300_000.0));
        let config = XcpConfig { initial_window: 10.0, demand, ..Default::default() };
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
