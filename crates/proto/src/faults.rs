//! Faults of a link: random loss, blackouts, jitter, reordering, duplicates, corruption; the same
//! in both engines.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::{Time, words};

use crate::{Flags, Packet};

/// Random loss on a link direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The side of the port.
    pub place: LossPlace,
    /// The packets concerned.
    pub only: Only,
    /// Probability for each packet, independently.
    pub probability: f64,
}

impl Loss {
    /// Loss of any packet on the wire; `None` if it never happens.
    pub fn on_wire(probability: f64) -> Option<Loss> {
        (probability > 0.0).then_some(Loss { place: LossPlace::After, only: Only::All, probability })
    }
}

/// The side of a port where packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPlace {
    /// On arrival, before queue and law.
    Before,
    /// On the wire, after the law has written.
    After,
}

/// The packets that a [`Loss`] concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Every packet.
    All,
    /// Packets that carry data.
    Data,
    /// Packets that carry none.
    Ack,
}

/// Impairments of a wire beside independent [`Loss`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairments {
    /// The scale of an extra delay of each packet.
    pub jitter: Time,
    /// The distribution of the extra delay.
    pub distribution: Distribution,
    /// Correlation of the extra delays of successive packets, as normal scores.
    pub correlation: f64,
    /// A packet whose extra delay is short overtakes those ahead of it; else it waits for them.
    pub overtakes: bool,
    /// Probability that a packet is delayed so that later ones overtake it.
    pub reorder: f64,
    /// The extra delay of a packet that is held back.
    pub reorder_delay: Time,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet is damaged. The far end detects that by its checksum, and drops
    /// the packet.
    pub corrupt: f64,
    /// Loss in bursts.
    pub bursts: Option<Bursts>,
}

impl Impairments {
    /// Returns true if any impairment is set.
    pub fn does_anything(&self) -> bool {
        self.moves_packets() || self.corrupt > 0.0 || self.bursts.is_some()
    }

    /// Returns true if packets may be late, overtake each other, or arrive twice.
    pub fn moves_packets(&self) -> bool {
        self.jitter > Time::ZERO || self.reorder > 0.0 || self.duplicate > 0.0
    }
}

words! {
    /// The distribution of a packet's extra delay. `j` is the scale, [`Impairments::jitter`].
    #[derive(Default)]
    pub enum Distribution {
        /// Uniform from zero to `j`.
        #[default]
        Uniform = "uniform",
        /// Normal, of mean `3 j` and standard deviation `j`; zero where that would be negative.
        Normal = "normal",
        /// Pareto of shape 3 from zero (Lomax), of standard deviation `j` and mean `j ∕ √3`.
        Pareto = "pareto",
    }
}

/// Loss in bursts by the Gilbert–Elliott model (E. O. Elliott, *Estimates of Error Rates for Codes
/// on Burst-Noise Channels*, 1963): a wire is good or bad, and may change at each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Probability that a packet finds a good wire turned bad.
    pub to_bad: f64,
    /// Probability that a packet finds a bad wire turned good.
    pub to_good: f64,
    /// Probability of loss on a good wire.
    pub in_good: f64,
    /// Probability of loss on a bad wire.
    pub in_bad: f64,
}

impl Bursts {
    /// The fraction of packets lost in the long run.
    pub fn mean(&self) -> f64 {
        let bad = self.to_bad / (self.to_bad + self.to_good);
        if bad.is_finite() { bad * self.in_bad + (1.0 - bad) * self.in_good } else { self.in_good }
    }
}

/// A packet's crossing of a wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Crossing {
    /// Delay in addition to the propagation delay.
    pub(crate) extra: Time,
    /// True if it keeps its place among the packets before and after it.
    pub(crate) in_order: bool,
    pub(crate) twice: bool,
}

/// The faults of one link direction, with their random streams.
#[derive(Clone, Debug)]
pub struct Faults {
    rng: Pcg64Mcg,
    /// The stream for draws at departure, in the order of departures.
    departures: Pcg64Mcg,
    /// Impairments beside losses.
    pub impairments: Impairments,
    /// True while the wire is bad ([`Bursts`]).
    bad: bool,
    /// The last packet's extra delay as a normal score.
    score: f64,
    /// Losses in effect.
    pub losses: Vec<Loss>,
    /// True to lose every packet before the queue.
    pub blackout: bool,
}

impl Faults {
    /// No faults yet, on link number `link` of a network with this seed. Losses here do not depend
    /// on traffic elsewhere.
    pub fn new(seed: u64, link: u32) -> Faults {
        let seed = seed ^ (u64::from(link) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Faults {
            rng: Pcg64Mcg::seed_from_u64(seed),
            departures: Pcg64Mcg::seed_from_u64(seed ^ 0x6a09_e667_f3bc_c908),
            impairments: Impairments::default(),
            bad: false,
            score: 0.0,
            losses: Vec::new(),
            blackout: false,
        }
    }

    /// Draws the crossing of the next packet to depart.
    pub(crate) fn crossing(&mut self) -> Crossing {
        let Impairments { jitter, overtakes, reorder, reorder_delay, duplicate, .. } = self.impairments;
        let rng = &mut self.departures;
        let mut chance = |probability: f64| probability > 0.0 && rng.random::<f64>() < probability;
        let (held, twice) = (chance(reorder), chance(duplicate));
        let late = if jitter > Time::ZERO { self.late() } else { Time::ZERO };
        let extra = if held { late + reorder_delay } else { late };
        Crossing { extra, in_order: !(held || overtakes && jitter > Time::ZERO), twice }
    }

    /// Draws an extra delay.
    fn late(&mut self) -> Time {
        let Impairments { jitter, distribution, correlation, .. } = self.impairments;
        let mut draw = || self.departures.random::<f64>();
        if distribution == Distribution::Uniform && correlation == 0.0 {
            return Time((jitter.0 as f64 * draw()) as u64);
        }
        // Box and Muller's normal variate; the correlation keeps the distribution.
        let radius = (-2.0 * libm::log(1.0 - draw())).sqrt();
        let fresh = radius * libm::cos(std::f64::consts::TAU * draw());
        self.score = correlation * self.score + (1.0 - correlation * correlation).sqrt() * fresh;
        let above = libm::erfc(self.score * std::f64::consts::FRAC_1_SQRT_2) / 2.0;
        let part = match distribution {
            Distribution::Uniform => 1.0 - above,
            Distribution::Normal => 3.0 + self.score,
            Distribution::Pareto => (1.0 / libm::cbrt(above) - 1.0) * 2.0 / 3.0_f64.sqrt(),
        };
        Time((jitter.0 as f64 * part) as u64)
    }

    /// Draws damage to a packet that has crossed the wire.
    pub(crate) fn damages(&mut self) -> bool {
        self.impairments.corrupt > 0.0 && self.rng.random::<f64>() < self.impairments.corrupt
    }

    /// Draws a loss in a burst.
    fn burst(&mut self, bursts: Bursts) -> bool {
        let turns = if self.bad { bursts.to_good } else { bursts.to_bad };
        self.bad ^= self.rng.random::<f64>() < turns;
        self.rng.random::<f64>() < if self.bad { bursts.in_bad } else { bursts.in_good }
    }

    /// Draws a loss of `packet` at `place`.
    pub fn strike(&mut self, place: LossPlace, packet: &Packet) -> bool {
        if place == LossPlace::Before && self.blackout {
            return true;
        }
        let data = packet.flags.has(Flags::DATA);
        let mut lost = false;
        for loss in &self.losses {
            let meant = match loss.only {
                Only::All => true,
                Only::Data => data,
                Only::Ack => !data,
            };
            lost |= loss.place == place && meant && self.rng.random::<f64>() < loss.probability;
        }
        match self.impairments.bursts.filter(|_| place == LossPlace::After) {
            Some(bursts) => lost | self.burst(bursts),
            None => lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_lose_what_they_should_and_together() {
        let bursts = Bursts { to_bad: 0.01, to_good: 0.2, in_good: 0.0, in_bad: 0.8 };
        let mut faults = Faults::new(7, 0);
        faults.impairments.bursts = Some(bursts);
        let packet = Packet::default();
        let lost: Vec<bool> = (0..200_000).map(|_| faults.strike(LossPlace::After, &packet)).collect();
        let share = |of: usize| of as f64 / lost.len() as f64;
        let all = share(lost.iter().filter(|lost| **lost).count());
        assert!((all - bursts.mean()).abs() < 0.002, "{all} {}", bursts.mean());
        // Behind a lost packet the wire is bad still with four fifths, and loses as many of these.
        let pairs = share(lost.windows(2).filter(|pair| pair[0] && pair[1]).count());
        assert!((pairs / all - 0.64).abs() < 0.03, "{}", pairs / all);
        assert!(!faults.strike(LossPlace::Before, &packet));
    }

    #[test]
    fn crossings_are_as_likely_and_as_late_as_they_should_be() {
        let mut faults = Faults::new(7, 0);
        let ms = Time::from_millis;
        faults.impairments = Impairments {
            jitter: ms(4),
            reorder: 0.1,
            reorder_delay: ms(10),
            duplicate: 0.02,
            ..Impairments::default()
        };
        let all: Vec<Crossing> = (0..100_000).map(|_| faults.crossing()).collect();
        let share = |of: &dyn Fn(&Crossing) -> bool| all.iter().filter(|c| of(c)).count() as f64 / 1e5;
        assert!((share(&|c| !c.in_order) - 0.1).abs() < 0.005 && (share(&|c| c.twice) - 0.02).abs() < 0.003);
        assert!((share(&|c| c.in_order && c.extra < ms(2)) - 0.45).abs() < 0.01);
        assert!(all.iter().all(|c| c.in_order == (c.extra < ms(10)) && c.extra < ms(14)));
        faults.impairments.overtakes = true;
        assert!((0..100).all(|_| !faults.crossing().in_order));
    }

    /// Mean, standard deviation, and correlation of neighbours, in units of the scale.
    #[test]
    fn extra_delays_have_their_distribution_also_where_they_are_correlated() {
        let uniform = (0.5, 1.0 / 12.0_f64.sqrt());
        // Of scores with 0.8: 6/π·asin(0.4) for their ranks; by integration for the heavy tail.
        let cases = [
            (Distribution::Uniform, uniform, 0.786),
            (Distribution::Normal, (3.0, 1.0), 0.8),
            (Distribution::Pareto, (3.0_f64.sqrt() / 3.0, 1.0), 0.662),
        ];
        for (distribution, (mean, deviation), neighbours) in cases {
            for correlation in [0.0, 0.8] {
                let mut faults = Faults::new(3, 0);
                let jitter = Time::from_millis(1);
                faults.impairments =
                    Impairments { jitter, distribution, correlation, ..Impairments::default() };
                let late: Vec<f64> = (0..400_000).map(|_| faults.crossing().extra.0 as f64 * 1e-6).collect();
                let average = |of: &dyn Fn(usize) -> f64| (1..late.len()).map(of).sum::<f64>() / 399_999.0;
                let m = average(&|i| late[i]);
                let d = average(&|i| (late[i] - m) * (late[i] - m)).sqrt();
                let c = average(&|i| (late[i] - m) * (late[i - 1] - m)) / (d * d);
                assert!((m - mean).abs() < 0.02 && (d - deviation).abs() < 0.1, "{distribution:?}: {m} {d}");
                let wanted = if correlation > 0.0 { neighbours } else { 0.0 };
                assert!((c - wanted).abs() < 0.05, "{distribution:?} {correlation}: {c}");
            }
        }
    }
}
