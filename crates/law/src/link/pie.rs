//! PIE: proportional integral controller, enhanced (RFC 8033).

use super::random::{Pcg32, share};
use super::{AnyLink, LinkConfig, LinkLaw, Passing, Placement, Verdict};
use crate::config;
use crate::param::{Kind, PROBABILITY, SPAN, TIME, Tabled};
use crate::{Bytes, Time, Toll};

/// Signals arriving packets at random. The probability is updated every `update` from the queueing
/// delay and its trend towards the target.
///
/// The delay is measured by time stamps (§ 4.3 allows it): it is the wait of the last departed
/// packet, zero once the queue is empty. Updates are caught up when a packet passes, each at its
/// own instant.
#[derive(Clone, Debug)]
pub struct Pie {
    config: PieConfig,
    /// Target delay, s.
    target: f64,
    /// Probability of a signal, 0 to 1.
    probability: f64,
    /// Sum of the probabilities of packets since the last signal (§ 5.4).
    accumulated: f64,
    /// The delay now, s.
    delay: f64,
    /// The delay at the last update, s.
    delay_before: f64,
    /// Remaining time without signals.
    burst_left: Time,
    next_update: Time,
    random: Pcg32,
}

config! {
    /// The constants of [`Pie`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct PieConfig in "pie", "The constants of PIE (RFC 8033)." {
        /// Target queueing delay.
        target: Time = Time::from_millis(15), SPAN, from "§ 4.2, QDELAY_REF";
        /// Time between updates of the probability.
        update: Time = Time::from_millis(15), SPAN, from "§ 4.2, T_UPDATE";
        /// Length of a burst without signals after a calm time.
        burst: Time = Time::from_millis(150), TIME, from "§ 4.4, MAX_BURST";
        /// α: weight of the deviation from the target, 1/s.
        alpha: f64 = 0.125, GAIN, from "§ 4.2";
        /// β: weight of the trend, 1/s.
        beta: f64 = 1.25, GAIN, from "§ 4.2";
        /// Probability above which packets are dropped even if they can be marked.
        mark_limit: f64 = 0.1, PROBABILITY, from "§ 5.1";
        fixed {
            /// MEAN_PKTSIZE: a queue of twice this is too short to signal.
            packet_size: Bytes = Bytes(1500);
            /// Seed of the private random generator.
            seed: u64 = 1;
        }
    }
}

const GAIN: Kind = Kind::Number { least: 0.0, most: 1000.0 };

impl LinkConfig for PieConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        AnyLink::Pie(Box::new(PieConfig { seed: at.seed, ..*self }.build()))
    }
}

impl PieConfig {
    /// Builds the law. Values out of range are clamped: weights that are NaN count as zero, and the
    /// time between updates is at least a microsecond.
    pub fn build(&self) -> Pie {
        let weight = |w: f64| if w > 0.0 { w.min(1e6) } else { 0.0 };
        let config = PieConfig {
            update: self.update.max(Time::from_micros(1)),
            alpha: weight(self.alpha),
            beta: weight(self.beta),
            mark_limit: share(self.mark_limit),
            ..*self
        };
        Pie {
            config,
            target: config.target.as_secs_f64(),
            probability: 0.0,
            accumulated: 0.0,
            delay: 0.0,
            delay_before: 0.0,
            burst_left: config.burst,
            next_update: config.update,
            random: Pcg32::new(config.seed),
        }
    }
}

impl Pie {
    /// The probability of a signal as of the last update.
    pub fn probability(&self) -> f64 {
        self.probability
    }

    /// Runs the updates up to `now`.
    #[inline]
    fn catch_up(&mut self, now: Time) {
        while self.next_update <= now && self.next_update != Time::NEVER {
            self.update();
            self.next_update = self.next_update.saturating_add(self.config.update);
            if self.at_rest() {
                // Nothing changes until a packet waits: the rest of the updates is skipped.
                let left = now.0.saturating_sub(self.next_update.0) / self.config.update.0;
                self.next_update = self.next_update.saturating_add(Time(left * self.config.update.0));
            }
        }
    }

    /// True without recent congestion.
    fn at_rest(&self) -> bool {
        self.probability == 0.0
            && self.delay == 0.0
            && self.delay_before == 0.0
            && (self.burst_left == self.config.burst || self.target == 0.0)
    }

    /// True if the delay was below half the target in two updates in a row.
    #[inline]
    fn calm(&self) -> bool {
        self.delay < self.target / 2.0 && self.delay_before < self.target / 2.0
    }

    /// § 4.2: the controller's step, with the scaling of its table and the safeguards of § 5.5.
    fn update(&mut self) {
        let mut step = self.config.alpha * (self.delay - self.target)
            + self.config.beta * (self.delay - self.delay_before);
        // Small probabilities move by small steps, so that the loop stays stable from few flows to
        // many.
        step /= match self.probability {
            p if p < 1e-6 => 2048.0,
            p if p < 1e-5 => 512.0,
            p if p < 1e-4 => 128.0,
            p if p < 1e-3 => 32.0,
            p if p < 1e-2 => 8.0,
            p if p < 1e-1 => 2.0,
            _ => 1.0,
        };
        if self.probability >= 0.1 {
            step = step.min(0.02);
        }
        self.probability += step;
        if self.calm() {
            self.probability *= 0.98;
        }
        self.probability = share(self.probability);
        self.burst_left = self.burst_left.saturating_sub(self.config.update);
        if self.probability == 0.0 && self.calm() {
            self.burst_left = self.config.burst;
        }
        self.delay_before = self.delay;
    }

    /// §§ 4.1 and 5.4: draws a signal at random, with spacing that avoids clusters.
    #[inline]
    fn strikes(&mut self) -> bool {
        if self.probability == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.probability;
        if self.accumulated < 0.85 {
            return false;
        }
        let struck = self.accumulated >= 8.5 || self.random.unit() < self.probability;
        if struck {
            self.accumulated = 0.0;
        }
        struck
    }
}

impl LinkLaw for Pie {
    #[inline]
    fn on_arrival(&mut self, now: Time, packet: Passing, _: &Toll) -> Verdict {
        self.catch_up(now);
        // § 4.1: no signal where there is hardly a queue. § 4.4: nor while a burst is allowed.
        let hardly = self.delay_before < self.target / 2.0 && self.probability < 0.2
            || packet.backlog_bytes <= self.config.packet_size.0.saturating_mul(2);
        if self.burst_left > Time::ZERO || hardly || !self.strikes() {
            return Verdict::Pass;
        }
        if packet.ect && self.probability <= self.config.mark_limit { Verdict::Signal } else { Verdict::Drop }
    }

    #[inline]
    fn on_departure(&mut self, now: Time, packet: Passing, _: &mut Toll) -> Verdict {
        self.catch_up(now);
        self.delay = if packet.backlog_packets <= 1 { 0.0 } else { packet.waited.as_secs_f64() };
        Verdict::Pass
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    fn packet(backlog: u32, waited_ms: f64, ect: bool) -> Passing {
        Passing {
            ect,
            waited: Time::from_secs_f64(waited_ms * 1e-3),
            ..Passing::of(Kind::Plain, 1000, backlog, u64::from(backlog) * 1000)
        }
    }

    fn arrive(law: &mut Pie, ms: u64, ect: bool) -> Verdict {
        law.on_arrival(Time::from_millis(ms), packet(50, 0.0, ect), &Toll::default())
    }

    fn leave(law: &mut Pie, ms: u64, waited: f64) {
        law.on_departure(Time::from_millis(ms), packet(50, waited, true), &mut Toll::default());
    }

    #[test]
    fn the_probability_takes_the_published_steps() {
        let mut law = PieConfig::default().build();
        // 40 ms from 0: 0.125·25 ms + 1.25·40 ms = 0.053125, / 2048.
        leave(&mut law, 1, 40.0);
        leave(&mut law, 15, 40.0);
        let first = 0.053125 / 2048.0;
        assert!((law.probability() - first).abs() < 1e-15, "{}", law.probability());
        // 2.6e-5 is scaled by 128; the delay stands still now.
        leave(&mut law, 30, 40.0);
        let second = first + 0.125 * 0.025 / 128.0;
        assert!((law.probability() - second).abs() < 1e-15);
    }

    #[test]
    fn at_high_probabilities_it_climbs_slowly() {
        let mut law = PieConfig::default().build();
        law.probability = 0.5;
        law.delay = 1.0;
        law.update();
        assert!((law.probability() - 0.52).abs() < 1e-12);
        law.delay = 0.0;
        law.update();
        assert_eq!(law.probability(), 0.0, "down at once");
    }

    #[test]
    fn a_burst_passes_and_a_standing_queue_does_not() {
        let mut law = PieConfig::default().build();
        let mut first = None;
        for ms in 1..5000 {
            leave(&mut law, ms, 100.0);
            if arrive(&mut law, ms, true) != Verdict::Pass && first.is_none() {
                first = Some(ms);
            }
        }
        let first = first.unwrap_or(0);
        // Ten updates of 15 ms use the allowance up.
        assert!((150..1000).contains(&first), "{first}");
    }

    #[test]
    fn marks_up_to_a_tenth_and_drops_beyond() {
        for (probability, want) in [(0.05, Verdict::Signal), (0.15, Verdict::Drop)] {
            let mut law = PieConfig::default().build();
            (law.probability, law.burst_left, law.delay, law.delay_before) =
                (probability, Time::ZERO, 0.1, 0.1);
            let verdicts: Vec<_> = (0..2000).map(|_| arrive(&mut law, 0, true)).collect();
            let struck = verdicts.iter().filter(|&&v| v != Verdict::Pass).count() as f64 / 2000.0;
            assert!(verdicts.iter().all(|&v| v == Verdict::Pass || v == want));
            // 0.85/p packets without a signal, then 1/p in the mean.
            assert!((struck * 1.85 / probability - 1.0).abs() < 0.15, "{struck}");
        }
    }

    #[test]
    fn long_silence_is_skipped_and_leaves_nothing_behind() {
        let mut law = PieConfig { update: Time::from_micros(1), ..Default::default() }.build();
        leave(&mut law, 1, 100.0);
        law.on_departure(Time::from_millis(1), packet(1, 100.0, true), &mut Toll::default());
        arrive(&mut law, u64::MAX / 2_000_000, true);
        assert_eq!(law.probability(), 0.0);
        assert!(law.at_rest());
        // In step with a law that took each update by itself.
        assert_eq!(law.next_update.0 % 1000, 0);
    }

    proptest! {
        #[test]
        fn nothing_poisons_the_probability(
            alpha in any::<f64>(), beta in any::<f64>(), target in 0u64..100_000_000, limit in any::<f64>(),
            steps in prop::collection::vec((0u64..1_000_000_000, any::<u32>(), 0f64..1e4, any::<bool>()), 0..60),
        ) {
            let config = PieConfig { alpha, beta, target: Time(target), mark_limit: limit, ..Default::default() };
            let mut law = config.build();
            let mut now = 0;
            for (gap, backlog, waited, leaves) in steps {
                now += gap;
                if leaves {
                    law.on_departure(Time(now), packet(backlog, waited, true), &mut Toll::default());
                } else {
                    law.on_arrival(Time(now), packet(backlog, 0.0, true), &Toll::default());
                }
                prop_assert!((0.0..=1.0).contains(&law.probability()));
            }
        }

        /// Updates caught up late are those made in time.
        #[test]
        fn late_updates_are_the_same(waited in 0f64..200.0, empty in any::<bool>(), steps in 1u64..400) {
            let mut late = PieConfig::default().build();
            let backlog = if empty { 1 } else { 50 };
            late.on_departure(Time(1), packet(backlog, waited, true), &mut Toll::default());
            let mut timely = late.clone();
            for k in 1..=steps {
                timely.catch_up(Time::from_millis(15 * k));
            }
            late.catch_up(Time::from_millis(15 * steps));
            prop_assert_eq!(late.probability(), timely.probability());
            prop_assert_eq!(late.next_update, timely.next_update);
            prop_assert_eq!(late.burst_left, timely.burst_left);
        }
    }

    #[test]
    fn small_probabilities_move_by_small_steps() {
        for (p, scale) in
            [(5e-7, 2048.0), (5e-6, 512.0), (5e-5, 128.0), (5e-4, 32.0), (5e-3, 8.0), (5e-2, 2.0)]
        {
            let mut law = PieConfig::default().build();
            // Twice the target, and staying there.
            (law.probability, law.delay, law.delay_before) = (p, 0.03, 0.03);
            law.update();
            assert!(((law.probability() - p) * scale / (0.125 * 0.015) - 1.0).abs() < 1e-6, "{p}");
        }
        // Under half of the target it decays besides, by a fiftieth.
        let mut law = PieConfig::default().build();
        (law.probability, law.delay, law.delay_before) = (0.3, 0.005, 0.005);
        law.update();
        assert!((law.probability() - (0.3 - 0.125 * 0.01) * 0.98).abs() < 1e-12, "{}", law.probability());
    }
}
