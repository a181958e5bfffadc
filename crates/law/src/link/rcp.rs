//! RCP's link law (Dukkipati, Kobayashi, Zhang-Shen & McKeown, *Processor sharing flows in the
//! Internet*, IWQoS 2005, § III; details after the authors' ns-2 code, which differs in its gains
//! and in how it averages round-trip times).

use super::{AnyLink, Descriptor, LinkConfig, LinkLaw, Passing, Placement, Verdict};
use crate::param::{self, SPAN, Tabled};
use crate::toll::Content;
use crate::{Aim, Kind, Rate, Time, Toll, config};

config! {
    /// The parameters of [`Rcp`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RcpConfig in "rcp", "The constants of RCP's router (IWQoS 2005; the defaults are those of its authors' ns-2 code)." {
        /// α: fraction of the spare capacity given out per round trip; 0.1 in the authors' later
        /// experiments.
        alpha: f64 = 0.4, param::Kind::Over { over: 0.0, most: 10.0 }, from "IWQoS 2005, and the code";
        /// β: fraction of the queue taken back; 0.226 in the paper, 1 in later experiments.
        beta: f64 = 0.4, param::Kind::Number { least: 0.0, most: 10.0 }, from "the code";
        /// γ: fraction of the capacity to use.
        gamma: f64 = 1.0, param::Kind::Over { over: 0.0, most: 1.0 };
        /// Longest time between updates of the rate; at least 1 us.
        max_interval: Time = Time::from_millis(10), SPAN, from "the code";
        fixed {
            /// The initial rate, as a fraction of the capacity (the code).
            initial_rate: f64 = 0.05;
            /// The mean round-trip time until packets tell one (the code).
            initial_rtt: Time = Time::from_millis(200);
        }
    }
}

impl LinkConfig for RcpConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor {
            gives: Some(Content::Rate),
            aim: Some(Aim::MaxMin),
            share: self.gamma,
            queue_weight: self.beta / self.alpha,
            ..Descriptor::default()
        }
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        AnyLink::Rcp(Box::new(self.build(at.capacity)))
    }
}

impl RcpConfig {
    /// The gains of the authors' later experiments with mixed round-trip times: α 0.1, β 1.
    pub fn gentle() -> RcpConfig {
        RcpConfig { alpha: 0.1, beta: 1.0, ..RcpConfig::default() }
    }

    /// Builds the law for a link of `capacity`.
    pub fn build(&self, capacity: Rate) -> Rcp {
        let capacity = capacity.bytes_per_sec();
        let mut law = Rcp {
            config: *self,
            capacity,
            rate: capacity * self.initial_rate,
            avg_rtt: self.initial_rtt.as_secs_f64().clamp(MIN_RTT, MAX_RTT),
            interval: 0.0,
            ends: Time::ZERO,
            bytes: 0,
            rtt_bytes: 0.0,
            timed_bytes: 0.0,
            backlog: 0,
        };
        law.begin(Time::ZERO);
        law
    }
}

/// RCP's router: one rate for every flow, updated every 10 ms.
#[derive(Clone, Debug)]
pub struct Rcp {
    config: RcpConfig,
    /// Link capacity, bytes/s.
    capacity: f64,
    /// R, the rate of each flow, bytes/s.
    rate: f64,
    /// Mean round-trip time, s.
    avg_rtt: f64,
    /// T, the length of the present interval, s, and its end.
    interval: f64,
    ends: Time,
    /// Bytes that arrived in it.
    bytes: u64,
    /// Over tolled packets that state a round-trip time: bytes times that time, and bytes.
    rtt_bytes: f64,
    timed_bytes: f64,
    /// The queue as the last call left it, bytes.
    backlog: u64,
}

impl Rcp {
    /// The rate of each flow, bytes/s.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The mean round-trip time in use, s.
    pub fn avg_rtt(&self) -> f64 {
        self.avg_rtt
    }

    fn begin(&mut self, now: Time) {
        self.interval = self.avg_rtt.min(self.config.max_interval.as_secs_f64()).max(MIN_RTT);
        self.ends = now.saturating_add(Time::from_secs_f64(self.interval));
        self.bytes = 0;
        self.rtt_bytes = 0.0;
        self.timed_bytes = 0.0;
    }

    /// Ends the intervals that are over. Between two calls nothing arrived, and the queue was as
    /// the last call left it.
    #[inline]
    fn catch_up(&mut self, now: Time) {
        while now >= self.ends {
            let full = self.rate >= self.capacity * self.config.gamma;
            self.update();
            let at = self.ends;
            self.begin(at);
            if full && self.backlog == 0 && now >= self.ends {
                // Idle at the highest rate: nothing changes any more.
                self.begin(now);
            }
        }
    }

    /// Equation 2 of the paper.
    fn update(&mut self) {
        if self.timed_bytes > 0.0 {
            let mean = self.rtt_bytes / self.timed_bytes;
            // Slow downwards: packets of short round trips are many.
            let gain = match mean >= self.avg_rtt {
                true => self.interval / self.avg_rtt,
                false => {
                    self.rate / self.capacity.max(1.0)
                        * (mean / self.avg_rtt)
                        * (self.interval / self.avg_rtt)
                }
            };
            self.avg_rtt += gain.min(1.0) * (mean - self.avg_rtt);
            self.avg_rtt = self.avg_rtt.clamp(MIN_RTT, MAX_RTT);
        }
        let aim = self.capacity * self.config.gamma;
        let load = self.bytes as f64 / self.interval;
        let spare = self.config.alpha * (aim - load) - self.config.beta * self.backlog as f64 / self.avg_rtt;
        let factor = 1.0 + self.interval / self.avg_rtt * spare / aim.max(1.0);
        let least = LEAST_BYTES / self.avg_rtt;
        self.rate = (self.rate * factor).min(aim).max(least);
    }
}

impl LinkLaw for Rcp {
    #[inline]
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        self.catch_up(now);
        self.bytes += u64::from(packet.size);
        let rtt = f64::from(toll.rtt);
        if packet.kind == Kind::Tolled && rtt > 0.0 {
            let size = f64::from(packet.size);
            self.timed_bytes += size;
            self.rtt_bytes += size * rtt.min(MAX_RTT);
        }
        self.backlog = packet.backlog_bytes + u64::from(packet.size);
        Verdict::Pass
    }

    #[inline]
    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        self.catch_up(now);
        self.backlog = packet.backlog_bytes.saturating_sub(u64::from(packet.size));
        // NaN requests no rate in particular.
        if packet.kind == Kind::Tolled && (toll.due.is_nan() || toll.due > self.rate) {
            toll.due = self.rate;
        }
        Verdict::Pass
    }

    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.catch_up(now);
        self.capacity = capacity.bytes_per_sec();
        self.rate = self.rate.min(self.capacity * self.config.gamma);
    }
}

/// The shortest round-trip time, and the shortest interval: while a queue stands, intervals are
/// ended one by one.
const MIN_RTT: f64 = 1e-6;
const MAX_RTT: f64 = 10.0;
/// The least rate, in bytes per round trip: a hundredth of a packet of 1000 bytes (the code).
const LEAST_BYTES: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn passing(size: u32, backlog: u64) -> Passing {
        let kind = Kind::Tolled;
        Passing::of(kind, size, 0, backlog)
    }

    #[test]
    fn an_interval_is_a_microsecond_at_least() {
        let config = RcpConfig { max_interval: Time(1), ..RcpConfig::default() };
        let mut law = config.build(Rate::from_bytes_per_sec(12.5e6));
        law.begin(Time::from_secs(1));
        assert_eq!(law.ends, Time(1_000_001_000));
    }

    /// `flows` senders at the rate told one round trip before; answers the rate after `secs`.
    fn run(config: RcpConfig, flows: f64, rtt: f64, secs: f64) -> (f64, f64) {
        let capacity = 12.5e6;
        let mut law = config.build(Rate::from_bytes_per_sec(capacity));
        let step = 1e-3;
        let lag = (rtt / step) as usize;
        let mut told = vec![law.rate(); lag];
        let mut queue: f64 = 0.0;
        for i in 0..(secs / step) as usize {
            let load = flows * told[i % lag] * step;
            let now = Time::from_secs_f64(i as f64 * step);
            let mut toll = Toll { due: f64::INFINITY, rtt: rtt as f32, ..Toll::default() };
            law.on_arrival(now, passing(load as u32, queue as u64), &toll);
            queue = (queue + load - capacity * step).max(0.0);
            law.on_departure(now, passing(0, queue as u64), &mut toll);
            told[i % lag] = toll.due;
        }
        (law.rate(), queue)
    }

    #[test]
    fn settles_at_an_equal_share_with_an_empty_queue() {
        for config in [RcpConfig::default(), RcpConfig::gentle()] {
            for flows in [1.0, 4.0, 20.0] {
                let (rate, queue) = run(config, flows, 0.1, 60.0);
                assert!((rate * flows / 12.5e6 - 1.0).abs() < 0.02, "{flows}: {}", rate * flows);
                assert!(queue < 12.5e3, "{queue}");
            }
        }
    }

    #[test]
    fn an_interval_changes_the_rate_as_the_equation_says() {
        let config = RcpConfig { initial_rate: 0.2, ..RcpConfig::default() };
        let mut law = config.build(Rate::from_bytes_per_sec(1e6));
        // 10 ms at half load and a queue of 5000 bytes; the round trip is as assumed.
        let toll = Toll { due: 0.0, rtt: 0.2, ..Toll::default() };
        law.on_arrival(Time::from_millis(5), passing(5000, 0), &toll);
        law.catch_up(Time::from_millis(10));
        let expected = 0.2e6 * (1.0 + 0.05 * (0.4 * 0.5e6 - 0.4 * 5000.0 / 0.2) / 1e6);
        assert!((law.rate() - expected).abs() < 1e-3, "{} for {expected}", law.rate());
    }

    #[test]
    fn an_idle_link_gives_all_there_is_and_costs_no_time() {
        let mut law = RcpConfig::default().build(Rate::from_bytes_per_sec(1e6));
        let mut toll = Toll { due: f64::INFINITY, ..Toll::default() };
        law.on_departure(Time::from_secs(1 << 30), passing(0, 0), &mut toll);
        assert_eq!(toll.due, 1e6);
        // A lower request is granted as it is.
        toll.due = 5.0;
        law.on_departure(Time::from_secs(1 << 30), passing(0, 0), &mut toll);
        assert_eq!(toll.due, 5.0);
    }

    #[test]
    fn the_mean_round_trip_falls_more_slowly_than_it_rises() {
        for (rtt, gain) in [(0.4, 0.05), (0.05, 0.2 * 0.25 * 0.05)] {
            let config = RcpConfig { initial_rate: 0.2, ..RcpConfig::default() };
            let mut law = config.build(Rate::from_bytes_per_sec(1e6));
            let toll = Toll { rtt: rtt as f32, ..Toll::default() };
            law.on_arrival(Time::from_millis(5), passing(5000, 0), &toll);
            law.catch_up(Time::from_millis(10));
            assert!((law.avg_rtt() - (0.2 + gain * (rtt - 0.2))).abs() < 1e-8, "{rtt}: {}", law.avg_rtt());
        }
    }
}
