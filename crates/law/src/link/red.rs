//! RED: random early detection, after Floyd and Jacobson, "Random Early Detection Gateways for
//! Congestion Avoidance", IEEE/ACM ToN 1(4), 1993.

use super::random::{Pcg32, share};
use super::{AnyLink, Limit, LinkConfig, LinkLaw, Misfit, Passing, Placement, ThresholdUnit, Verdict};
use crate::param::{Kind, Tabled, Threshold};
use crate::{Bytes, Rate, Time, Toll, config, words};

/// Signals congestion at random, with a probability that grows with the average queue between two
/// thresholds.
///
/// The average is an EWMA of the backlog at arrivals, without the packet in transmission. Idle time
/// of the link counts as a number of arrivals of a mean packet at an empty queue. Between the
/// thresholds the gaps between signals follow [`Spacing`]. At and above the upper one every packet
/// is dropped, even if it could be marked (RFC 3168 § 7).
#[derive(Clone, Debug)]
pub struct Red {
    average: f64,
    /// Arrivals since the last signal, or since the average exceeded the lower threshold.
    count: u64,
    /// Start of the link's idle time, in nanoseconds; `None` while it is busy.
    idle_since: Option<u64>,
    random: Pcg32,
    weight: f64,
    min: f64,
    max: f64,
    max_probability: f64,
    gentle: bool,
    unit: ThresholdUnit,
    packet_size: f64,
    in_profile: f64,
    spacing: Spacing,
    /// True if the previous arrival found the average above the lower threshold.
    above: bool,
    least_queue: u32,
    capacity: Rate,
}

config! {
    /// The constants of a RED queue, and the factory of one.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RedConfig in "red", "The constants of RED (Floyd and Jacobson, 1993)." {
        /// Mean queue below which nothing is signalled: a fraction of the limit, or packets or
        /// bytes.
        min_threshold: Threshold = Threshold::Part(0.25), Kind::Threshold;
        /// Mean queue at which `max-probability` is reached.
        max_threshold: Threshold = Threshold::Part(0.75), Kind::Threshold,
            from "§ VI: at least twice the lower one; three times in practice";
        /// Signal probability at `max-threshold`.
        max_probability: f64 = 0.1, Kind::Over { over: 0.0, most: 1.0 },
            from "the XCP study; the simulations of 1993 have 0.02";
        /// Weight of a new sample in the mean queue.
        weight: f64 = 0.002, Kind::Over { over: 0.0, most: 1.0 }, from "§ VI, w_q";
        /// Lets the probability climb to 1 at twice the upper threshold instead of jumping there.
        gentle: bool = false, Kind::Truth, from "Floyd, 2000";
        /// Factor by which the drop probability is lower for packets that their host marked as in
        /// profile (`[aggregate.NAME]`): ERED has 1.5.
        in_profile: f64 = 1.0, Kind::Number { least: 1.0, most: 1e6 }, from "the aggregates paper, § 4.1";
        /// The distribution of gaps between signals.
        spacing: Spacing = Spacing::Uniform, Kind::Word(Spacing::WORDS),
            from "§ VII, method 2; ns-2's default is `wait`";
        /// Packets that must be queued, without the one in transmission, before an arrival is
        /// signalled or dropped, at any mean queue. ns-2 has 2 (`qlen > 1` in its `red.cc`).
        least_queue: u32 = 0, Kind::Count { least: 0, most: 1_000_000 }, from "the paper of 1993 has no such rule";
        /// The mean packet size, which converts idle time of the link to arrivals at an empty queue.
        packet_size: Bytes = Bytes(1000), Kind::Bytes { least: 1, most: 65_535 },
            from "`avpkt` of tc-red(8); ns-2's `mean_pktsize_` is 500 B";
        fixed {
            /// Seed of the private random generator.
            seed: u64 = 1;
        }
    }
}

words! {
    /// The distribution of gaps between two signals, in arrivals. p_b is the probability before
    /// spacing.
    pub enum Spacing {
        /// Uniform on 1 … 1/p_b: a signal every (1/p_b + 1)/2 arrivals in the mean (Floyd and
        /// Jacobson, § VII, method 2).
        Uniform = "uniform",
        /// Uniform on 1/p_b … 2/p_b: a signal every 3/(2·p_b) arrivals in the mean (`wait_` in
        /// ns-2's `red.cc`, true by default there).
        Wait = "wait",
        /// Uniform on 1 … 1/p_b − 1: the count includes the arrival, as in the pseudocode of 1993
        /// (§ IV). As in ns-2 without `wait_`, the first arrival above the lower threshold is never
        /// signalled.
        Counted = "counted",
    }
}

impl LinkConfig for RedConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn check(&self, at: &Placement<'_>) -> Result<(), Misfit> {
        self.min_threshold.check("min_threshold", at.limit)?;
        self.max_threshold.check("max_threshold", at.limit)?;
        let ((min, unit), (max, other)) =
            (self.min_threshold.under(at.limit), self.max_threshold.under(at.limit));
        let message = match unit == other {
            true if min < max => return Ok(()),
            true => "`min-threshold` must be under `max-threshold`",
            false => "`min-threshold` and `max-threshold` must be both in packets or both in bytes",
        };
        Err(Misfit { field: "min_threshold", message: message.into(), label: "here", help: "" })
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        AnyLink::Red(Box::new(RedConfig { seed: at.seed, ..*self }.build(at.capacity, at.limit)))
    }
}

impl RedConfig {
    /// Builds the law for a link of `capacity` whose queue holds `limit`.
    ///
    /// Values out of range are clamped: probabilities and the weight to 0 … 1, thresholds to at
    /// least 0, and the upper threshold to at least the lower one.
    pub fn build(&self, capacity: Rate, limit: Limit) -> Red {
        // `max` answers the other operand for NaN.
        let (min, unit) = self.min_threshold.under(limit);
        let min = min.max(0.0);
        Red {
            average: 0.0,
            count: 0,
            idle_since: Some(0),
            random: Pcg32::new(self.seed),
            weight: share(self.weight),
            min,
            max: self.max_threshold.under(limit).0.max(min),
            max_probability: share(self.max_probability),
            gentle: self.gentle,
            unit,
            packet_size: self.packet_size.0.max(1) as f64,
            in_profile: if self.in_profile > 1.0 { self.in_profile } else { 1.0 },
            spacing: self.spacing,
            above: false,
            least_queue: self.least_queue,
            capacity,
        }
    }
}

impl Red {
    /// The average queue, in the unit of the thresholds.
    pub fn average(&self) -> f64 {
        self.average
    }

    /// Adds an arrival to the average.
    #[inline]
    fn follow(&mut self, now: Time, packet: Passing) {
        if let Some(since) = self.idle_since.take() {
            let idle = Time(now.0.saturating_sub(since)).as_secs_f64();
            let packets = idle * self.capacity.bytes_per_sec() / self.packet_size;
            // An infinite or absurd capacity would make 1^∞ of it.
            if packets >= 1.0 {
                self.average *= libm::pow(1.0 - self.weight, packets.min(1e9));
            }
        }
        let backlog = match self.unit {
            ThresholdUnit::Packets => f64::from(packet.backlog_packets),
            ThresholdUnit::Bytes => packet.backlog_bytes as f64,
        };
        self.average += self.weight * (backlog - self.average);
    }

    /// Restores the idle time after a drop: a dropped packet does not end it. Otherwise the average
    /// would stay above the upper threshold, where every packet is dropped, since no departure
    /// would restart it.
    #[inline]
    fn stay_idle(&mut self, idle_since: Option<u64>, now: Time) {
        self.idle_since = idle_since.map(|since| since.max(now.0));
    }

    /// Draws a signal for the arrival: with p_a, where p_b = `p`.
    #[inline]
    fn signals(&mut self, p: f64) -> bool {
        let drawn = self.random.unit();
        match self.spacing {
            // p_a = p_b / (1 − count · p_b), as a comparison without the division and certain where
            // that is ≤ 0.
            Spacing::Uniform => drawn * (1.0 - self.count as f64 * p) < p,
            // The same, where the count includes the arrival.
            Spacing::Counted => self.above && drawn * (1.0 - (self.count + 1) as f64 * p) < p,
            // p_a = p_b / (2 − count · p_b) from count · p_b = 1 on, where ns-2's count includes
            // the arrival.
            Spacing::Wait => {
                let waited = (self.count + 1) as f64 * p;
                waited >= 1.0 && drawn * (2.0 - waited) < p
            }
        }
    }

    /// p_b: the probability before gaps are made uniform; `None` where every packet is dropped.
    #[inline]
    fn probability(&self) -> Option<f64> {
        if self.average < self.max {
            return Some(self.max_probability * (self.average - self.min) / (self.max - self.min));
        }
        if self.gentle && self.average < 2.0 * self.max {
            return Some(
                self.max_probability + (1.0 - self.max_probability) * (self.average / self.max - 1.0),
            );
        }
        None
    }
}

impl LinkLaw for Red {
    #[inline]
    fn on_arrival(&mut self, now: Time, packet: Passing, _: &Toll) -> Verdict {
        let idle_since = self.idle_since;
        self.follow(now, packet);
        if self.average < self.min || packet.backlog_packets < self.least_queue {
            self.count = 0;
            self.above = false;
            return Verdict::Pass;
        }
        let favoured = packet.in_profile && self.in_profile > 1.0;
        let Some(mut p) = self.probability() else {
            if favoured && self.random.unit() * self.in_profile >= 1.0 {
                return Verdict::Pass;
            }
            self.count = 0;
            self.stay_idle(idle_since, now);
            return Verdict::Drop;
        };
        if favoured {
            p /= self.in_profile;
        }
        let signals = self.signals(p);
        self.above = true;
        if signals {
            self.count = 0;
            if !packet.ect {
                self.stay_idle(idle_since, now);
            }
            return Verdict::Signal;
        }
        self.count += 1;
        Verdict::Pass
    }

    #[inline]
    fn on_departure(&mut self, now: Time, packet: Passing, _: &mut Toll) -> Verdict {
        if packet.backlog_packets <= 1 {
            // The last one: when it has been sent, and nothing else came, the link falls idle.
            self.idle_since = Some(now.saturating_add(self.capacity.time_for(u64::from(packet.size))).0);
        }
        Verdict::Pass
    }

    fn set_capacity(&mut self, _: Time, capacity: Rate) {
        self.capacity = capacity;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    /// Thresholds of 5 and 15 packets.
    const TWENTY: Limit = Limit { packets: 20, bytes: u64::MAX };

    fn passing(backlog_packets: u32) -> Passing {
        Passing {
            ect: true,
            ..Passing::of(Kind::Plain, 1000, backlog_packets, u64::from(backlog_packets) * 1000)
        }
    }

    /// A queue held at `backlog`: verdicts of `n` arrivals, the average having settled first.
    fn held(red: &mut Red, backlog: u32, n: usize) -> Vec<Verdict> {
        red.idle_since = None;
        red.average = f64::from(backlog);
        (0..n).map(|_| red.on_arrival(Time::ZERO, passing(backlog), &Toll::default())).collect()
    }

    #[test]
    fn gaps_between_signals_are_uniform_up_to_one_over_p() {
        // Halfway between the thresholds: p_b = 0.05, gaps uniform on 1..=20, 10.5 in the mean.
        let mut red = RedConfig::default().build(Rate::from_mbps(10.0), TWENTY);
        let verdicts = held(&mut red, 10, 200_000);
        let mut gaps = [0u32; 21];
        let mut gap = 0;
        for verdict in verdicts {
            gap += 1;
            if verdict != Verdict::Pass {
                assert_eq!(verdict, Verdict::Signal);
                gaps[gap] += 1;
                gap = 0;
            }
        }
        let signals: u32 = gaps.iter().sum();
        assert!((f64::from(signals) / 200_000.0 - 1.0 / 10.5).abs() < 0.002, "{signals}");
        for (gap, &n) in gaps.iter().enumerate().skip(1) {
            let share = f64::from(n) / f64::from(signals);
            assert!((share - 0.05).abs() < 0.006, "{gap}: {share}");
        }
    }

    /// The gaps between signals at a mean queue halfway between the thresholds, where p_b = 0.05:
    /// how often each is seen, as a part.
    #[test]
    fn with_wait_gaps_are_uniform_from_one_over_p_to_two_over_p() {
        let config = RedConfig { spacing: Spacing::Wait, ..RedConfig::default() };
        let mut red = config.build(Rate::from_mbps(10.0), TWENTY);
        let mut gaps = vec![];
        let mut gap = 0;
        for verdict in held(&mut red, 10, 2_000_000) {
            gap += 1;
            if verdict != Verdict::Pass {
                gaps.push(gap);
                gap = 0;
            }
        }
        assert!(gaps.iter().all(|gap| (20..=40).contains(gap)), "{:?}", gaps.iter().max());
        // p_b/(2 − count·p_b) for counts of 20 to 39: one in twenty each.
        for gap in 20..40 {
            let share = gaps.iter().filter(|&&g| g == gap).count() as f64 / gaps.len() as f64;
            assert!((share - 0.05).abs() < 0.005, "{gap}: {share}");
        }
        let mean = f64::from(gaps.iter().sum::<i32>()) / gaps.len() as f64;
        assert!((mean - 1.5 / 0.05).abs() < 1.0, "{mean}");
    }

    #[test]
    fn counted_gaps_are_one_shorter_and_the_first_arrival_above_the_threshold_passes() {
        let config = RedConfig { spacing: Spacing::Counted, ..RedConfig::default() };
        let mut red = config.build(Rate::from_mbps(10.0), TWENTY);
        let mut shares = [0.0; 21];
        let (mut gap, mut signals) = (0, 0.0);
        for verdict in held(&mut red, 10, 2_000_000) {
            gap += 1;
            if verdict != Verdict::Pass {
                shares[gap] += 1.0;
                signals += 1.0;
                gap = 0;
            }
        }
        // p_b/(1 − count·p_b) for counts of 1 to 19: one in nineteen each.
        let off = |share: f64| (share / signals - 1.0 / 19.0).abs();
        assert!(shares[1..20].iter().all(|&share| off(share) < 0.005) && shares[20] < 1.0, "{shares:?}");
        let certain = RedConfig { max_probability: 1.0, spacing: Spacing::Counted, ..config };
        let mut red = Red { average: 14.9, idle_since: None, ..certain.build(Rate::from_mbps(10.0), TWENTY) };
        let mut arrive = || red.on_arrival(Time::ZERO, passing(15), &Toll::default());
        assert_eq!((arrive(), arrive()), (Verdict::Pass, Verdict::Signal));
    }

    /// ns-2's rule: with a long mean queue and at most one packet in the queue nothing is dropped,
    /// and the count begins anew.
    #[test]
    fn arrivals_at_a_nearly_empty_queue_can_be_spared() {
        let at = |least_queue, backlog, average| {
            let config = RedConfig { least_queue, ..RedConfig::default() };
            let mut red = config.build(Rate::from_mbps(10.0), TWENTY);
            (red.average, red.idle_since, red.count) = (average, None, 5);
            let drops = (0..500)
                .filter(|_| red.on_arrival(Time::ZERO, passing(backlog), &Toll::default()) != Verdict::Pass);
            (drops.count(), red.count)
        };
        assert!(at(0, 1, 14.0).0 > 10);
        assert_eq!(at(2, 1, 14.0), (0, 0));
        assert_eq!(at(2, 1, 16.0), (0, 0));
        assert!(at(2, 2, 14.0).0 > 10);
    }

    #[test]
    fn under_the_lower_threshold_all_pass_and_over_the_upper_none() {
        let mut red = RedConfig::default().build(Rate::from_mbps(10.0), TWENTY);
        assert!(held(&mut red, 4, 1000).iter().all(|&v| v == Verdict::Pass));
        assert!(held(&mut red, 15, 1000).iter().all(|&v| v == Verdict::Drop));
        let mut gentle =
            RedConfig { gentle: true, ..RedConfig::default() }.build(Rate::from_mbps(10.0), TWENTY);
        // At 1.5 times the upper threshold p_b = 0.55: every gap is 1 or 2.
        let signals = held(&mut gentle, 22, 1000).iter().filter(|&&v| v == Verdict::Signal).count();
        assert!((500..900).contains(&signals), "{signals}");
        assert!(held(&mut gentle, 30, 1000).iter().all(|&v| v == Verdict::Drop));
    }

    #[test]
    fn what_is_in_profile_is_signalled_less() {
        let signals = |in_profile, backlog| {
            let mut red =
                RedConfig { in_profile: 1.5, ..RedConfig::default() }.build(Rate::from_mbps(10.0), TWENTY);
            red.idle_since = None;
            red.average = backlog;
            let packet = Passing { in_profile, ..passing(backlog as u32) };
            let verdicts = (0..60_000).map(|_| red.on_arrival(Time::ZERO, packet, &Toll::default()));
            verdicts.filter(|&v| v != Verdict::Pass).count() as f64 / 60_000.0
        };
        // A signal every (1/p_b + 1)/2 arrivals: p_b = 0.05 is 1 in 10.5, a third less 1 in 15.5.
        assert!((signals(false, 10.0) - 1.0 / 10.5).abs() < 0.004);
        assert!((signals(true, 10.0) - 1.0 / 15.5).abs() < 0.004);
        assert_eq!(signals(false, 15.0), 1.0);
        assert!((signals(true, 15.0) - 1.0 / 1.5).abs() < 0.01);
    }

    #[test]
    fn idle_time_counts_as_packets_at_an_empty_queue() {
        let capacity = Rate::from_bytes_per_sec(1e6);
        let mut red = RedConfig::default().build(capacity, TWENTY);
        held(&mut red, 10, 1);
        // The last packet is sent from 1 s to 1.001 s; the next comes 500 packet times later.
        red.on_departure(Time::from_secs(1), passing(1), &mut Toll::default());
        red.on_arrival(Time::from_millis(1501), passing(0), &Toll::default());
        let right = 10.0 * libm::pow(0.998, 501.0);
        assert!((red.average() - right).abs() < 1e-9, "{} {right}", red.average());
    }

    #[test]
    fn a_larger_mean_packet_makes_the_average_decay_more_slowly() {
        let average = |packet_size| {
            let config = RedConfig { packet_size: Bytes(packet_size), ..RedConfig::default() };
            let mut red = config.build(Rate::from_bytes_per_sec(1.5e6), TWENTY);
            (red.average, red.idle_since) = (10.0, Some(0));
            red.on_arrival(Time::from_millis(500), passing(0), &Toll::default());
            red.average()
        };
        // Half a second at 1.5 MB/s: 1500 packets of 500 B, 750 of 1000 B, 500 of 1500 B; then the one that came.
        for (size, packets) in [(500, 1501.0), (1000, 751.0), (1500, 501.0)] {
            assert!((average(size) - 10.0 * libm::pow(0.998, packets)).abs() < 1e-9, "{size}");
        }
    }

    #[test]
    fn dropping_all_that_comes_ends_when_the_link_has_been_idle() {
        let mut red = RedConfig::default().build(Rate::from_mbps(8.0), TWENTY);
        held(&mut red, 20, 1);
        red.on_departure(Time::ZERO, Passing { ect: false, ..passing(1) }, &mut Toll::default());
        let at = |red: &mut Red, ms| red.on_arrival(Time::from_millis(ms), passing(0), &Toll::default());
        assert_eq!(at(&mut red, 2), Verdict::Drop);
        // A thousand packets' worth of idle time, though nothing has departed since the drop: 20 ·
        // 0.998^1000 = 2.7.
        assert_eq!(at(&mut red, 1002), Verdict::Pass);
    }

    #[test]
    fn the_seed_decides() {
        let verdicts = |seed| {
            let mut red = RedConfig { seed, ..RedConfig::default() }.build(Rate::from_mbps(10.0), TWENTY);
            held(&mut red, 12, 500)
        };
        assert_eq!(verdicts(7), verdicts(7));
        assert_ne!(verdicts(7), verdicts(8));
    }

    proptest! {
        #[test]
        fn the_average_follows_the_queue(from in 0u32..100, to in 0u32..100, weight in 0.001f64..0.1) {
            let mut red = RedConfig { weight, ..RedConfig::default() }.build(Rate::from_mbps(10.0), TWENTY);
            held(&mut red, from, 1);
            let n = (3.0 / weight) as u32;
            (0..n).for_each(|_| { red.on_arrival(Time::ZERO, passing(to), &Toll::default()); });
            // After n arrivals (1−w)^n of the way is left.
            let right = f64::from(to) + (f64::from(from) - f64::from(to)) * libm::pow(1.0 - weight, f64::from(n));
            prop_assert!((red.average() - right).abs() < 1e-6);
        }

        #[test]
        fn nothing_poisons_the_average(
            weight in any::<f64>(), min in any::<f64>(), max in any::<f64>(), p in any::<f64>(), mbps in any::<f64>(),
            steps in prop::collection::vec((any::<u64>(), any::<u32>(), any::<bool>()), 0..50),
        ) {
            let config = RedConfig { weight, min_threshold: Threshold::Packets(min), max_threshold: Threshold::Packets(max), max_probability: p, ..Default::default() };
            let mut red = config.build(Rate::from_mbps(mbps), TWENTY);
            for (now, backlog, leaves) in steps {
                if leaves {
                    red.on_departure(Time(now), passing(backlog), &mut Toll::default());
                } else {
                    red.on_arrival(Time(now), passing(backlog), &Toll::default());
                }
                prop_assert!(red.average().is_finite() && red.average() >= 0.0);
            }
        }
    }

    #[test]
    fn an_idle_link_forgets_at_the_rate_that_it_is_told() {
        let average = |mbps: f64| {
            let mut red = RedConfig::default().build(Rate::from_mbps(8.0), TWENTY);
            red.set_capacity(Time::ZERO, Rate::from_mbps(mbps));
            (red.average, red.idle_since) = (10.0, Some(0));
            red.on_arrival(Time::from_secs(1), passing(0), &Toll::default());
            red.average()
        };
        // A thousand packets' time, or a hundred's; then the one that came.
        assert!((average(8.0) - 10.0 * libm::pow(0.998, 1001.0)).abs() < 1e-9);
        assert!((average(0.8) - 10.0 * libm::pow(0.998, 101.0)).abs() < 1e-9);
    }
}
