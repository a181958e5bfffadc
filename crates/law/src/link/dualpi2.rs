//! DualPI2: the coupled queue management of a port with two queues (RFC 9332, appendix A).

use super::random::share;
use super::{Passing, Verdict};
use crate::param::{Kind, PROBABILITY, SPAN, TIME};
use crate::{Time, config};

/// One controller for two queues.
///
/// Every `update`, its base probability p′ follows the longer of the two delays and its trend
/// towards the target. Classic packets are signalled with p′². L4S packets are marked with the
/// larger of k·p′ and the marking of a step in their waiting time. A scalable sender's rate is
/// proportional to 1/p and a classic one's to 1/√p, so the square makes them equal.
///
/// The dual queue of `tollway-proto` owns the controller and the two queues. It [catches
/// up](DualPi2::catch_up) on updates, each at its own instant, and requests a
/// [verdict](DualPi2::on_departure) on each departing packet.
#[derive(Clone, Debug)]
pub struct DualPi2 {
    config: DualPi2Config,
    /// Target delay, s.
    target: f64,
    /// p′, 0 to 1.
    base: f64,
    /// The longer of the two delays at the last update, s.
    delay_before: f64,
    next_update: Time,
    /// Sum of probabilities since the last signal (appendix A, `recur`), which spaces signals
    /// evenly.
    classic_sum: f64,
    l4s_sum: f64,
    /// The same for drops in the L4S queue under overload.
    overload_sum: f64,
}

config! {
    /// The constants of [`DualPi2`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct DualPi2Config in "dualpi2", "The constants of DualPI2 (RFC 9332), with a queue for L4S (packets with ECT(1) or CE) and one for all others; \
               `limit` is of both together." {
        /// Target delay of the classic queue.
        target: Time = Time::from_millis(15), SPAN, from "appendix A.1";
        /// Time between updates of the base probability p′.
        update: Time = Time::from_millis(16), SPAN, from "appendix A.1, T_update";
        /// α: weight of the deviation from the target, 1/s.
        alpha: f64 = 0.16, GAIN, from "appendix A.1, for round trips up to 100 ms";
        /// β: weight of the trend, 1/s.
        beta: f64 = 3.2, GAIN, from "appendix A.1";
        /// k: L4S is marked with probability k p′, classic traffic signalled with p′².
        coupling: f64 = 2.0, GAIN, from "§ 2.1, appendix C";
        /// Waiting time above which every packet of L4S is marked, unless it is alone in its queue.
        step: Time = Time::from_millis(1), TIME, from "Linux; the middle of the ramp in appendix A.1";
        /// Guaranteed fraction of the capacity for the classic queue while both are busy; L4S goes
        /// first with the rest.
        classic_share: f64 = 0.1, PROBABILITY;
    }
}

const GAIN: Kind = Kind::Number { least: 0.0, most: 1000.0 };

impl DualPi2Config {
    /// Builds the law. Values out of range are clamped: weights that are NaN count as zero, the
    /// time between updates is at least a microsecond.
    pub fn build(&self) -> DualPi2 {
        let weight = |w: f64| if w > 0.0 { w.min(1e6) } else { 0.0 };
        let config = DualPi2Config {
            update: self.update.max(Time::from_micros(1)),
            alpha: weight(self.alpha),
            beta: weight(self.beta),
            coupling: weight(self.coupling),
            ..*self
        };
        DualPi2 {
            config,
            target: config.target.as_secs_f64(),
            base: 0.0,
            delay_before: 0.0,
            next_update: config.update,
            classic_sum: 0.0,
            l4s_sum: 0.0,
            overload_sum: 0.0,
        }
    }
}

impl DualPi2 {
    /// p′ as of the last update.
    pub fn base_probability(&self) -> f64 {
        self.base
    }

    /// p_C, the probability of a signal to a classic packet.
    pub fn classic_probability(&self) -> f64 {
        self.base * self.base
    }

    /// p_CL, the probability of a mark on an L4S packet; 1 and more is overload.
    pub fn coupled_probability(&self) -> f64 {
        self.config.coupling * self.base
    }

    /// Runs the updates up to `now`. The queues must not have changed since the last call. `oldest`
    /// is the enqueue time of the packet at the head of either queue, [`Time::NEVER`] if both are
    /// empty.
    #[inline]
    pub fn catch_up(&mut self, now: Time, oldest: Time) {
        while self.next_update <= now && self.next_update != Time::NEVER {
            self.update(self.next_update, oldest);
            self.next_update = self.next_update.saturating_add(self.config.update);
            if oldest == Time::NEVER && self.base == 0.0 && self.delay_before == 0.0 {
                // Nothing changes until a packet waits: the rest of the updates is skipped.
                let left = now.0.saturating_sub(self.next_update.0) / self.config.update.0;
                self.next_update = self.next_update.saturating_add(Time(left * self.config.update.0));
            }
        }
    }

    /// `dualpi2_update`, with the longer of the delays (appendix A.2).
    fn update(&mut self, at: Time, oldest: Time) {
        let delay = at.saturating_sub(oldest).as_secs_f64();
        let step = self.config.alpha * (delay - self.target) + self.config.beta * (delay - self.delay_before);
        self.base = share(self.base + step);
        self.delay_before = delay;
    }

    /// The verdict on a departing packet, after all updates are caught up. [`Passing::l4s`] names
    /// the queue, whose backlog the packet carries.
    #[inline]
    pub fn on_departure(&mut self, packet: Passing) -> Verdict {
        if packet.l4s { self.l4s(packet) } else { self.classic() }
    }

    fn classic(&mut self) -> Verdict {
        let probability = self.classic_probability();
        if !recur(&mut self.classic_sum, probability) {
            return Verdict::Pass;
        }
        // In overload ECN is disregarded (appendix A.2, p_Cmax).
        if self.coupled_probability() >= 1.0 { Verdict::Drop } else { Verdict::Signal }
    }

    fn l4s(&mut self, packet: Passing) -> Verdict {
        let coupled = self.coupled_probability();
        let probability = if coupled < 1.0 {
            let native = packet.waited > self.config.step && packet.backlog_packets > 1;
            if native { 1.0 } else { coupled }
        } else {
            // Marks can't say more: now L4S loses what classic traffic does.
            let drop = self.classic_probability();
            if recur(&mut self.overload_sum, drop) {
                return Verdict::Drop;
            }
            1.0
        };
        if recur(&mut self.l4s_sum, probability) { Verdict::Signal } else { Verdict::Pass }
    }
}

/// True for a fraction `likelihood` of the calls, evenly spaced.
fn recur(sum: &mut f64, likelihood: f64) -> bool {
    *sum += likelihood;
    let turn = *sum >= 1.0;
    if turn {
        *sum -= 1.0;
    }
    turn
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    fn packet(l4s: bool, waited: Time, backlog: u32) -> Passing {
        Passing {
            ect: l4s,
            l4s,
            waited,
            ..Passing::of(Kind::Plain, 1000, backlog, u64::from(backlog) * 1000)
        }
    }

    /// The verdicts on a thousand packets that leave at once, with p′ held at `base`.
    fn signalled(base: f64, l4s: bool, waited: Time, backlog: u32) -> (usize, usize) {
        let mut law = DualPi2Config::default().build();
        law.base = base;
        let verdict = |_| law.on_departure(packet(l4s, waited, backlog));
        let verdicts: Vec<_> = (0..1000).map(verdict).collect();
        let count = |want| verdicts.iter().filter(|&&v| v == want).count();
        (count(Verdict::Signal), count(Verdict::Drop))
    }

    #[test]
    fn the_base_probability_takes_the_published_steps() {
        let mut law = DualPi2Config::default().build();
        let ms = Time::from_millis;
        law.catch_up(ms(16), Time::ZERO);
        // The head waits for 16 ms: 0.16 · 1 ms + 3.2 · 16 ms.
        assert!((law.base_probability() - 0.05136).abs() < 1e-12, "{}", law.base_probability());
        // The older head, 20 ms old at 32 ms: 0.16 · 5 ms + 3.2 · 4 ms more.
        law.catch_up(ms(40), ms(12));
        assert!((law.base_probability() - 0.05136 - 0.0136).abs() < 1e-12);
    }

    #[test]
    fn classic_is_signalled_by_the_square_and_l4s_by_twice() {
        assert_eq!(signalled(0.1, false, Time::ZERO, 9), (10, 0));
        assert_eq!(signalled(0.1, true, Time::ZERO, 9), (200, 0));
        assert_eq!(signalled(0.0, true, Time::ZERO, 9), (0, 0));
    }

    #[test]
    fn a_long_wait_is_marked_unless_the_packet_is_alone() {
        let step = Time::from_millis(1);
        assert_eq!(signalled(0.0, true, step, 2), (0, 0));
        assert_eq!(signalled(0.0, true, step + Time(1), 2), (1000, 0));
        assert_eq!(signalled(0.0, true, step + Time(1), 1), (0, 0));
        assert_eq!(signalled(0.0, false, Time::from_millis(100), 2), (0, 0), "classic knows no step");
    }

    #[test]
    fn in_overload_both_lose_alike() {
        assert_eq!(signalled(0.5, false, Time::ZERO, 9), (0, 250));
        assert_eq!(signalled(0.5, true, Time::ZERO, 9), (750, 250));
        assert_eq!(signalled(1.0, true, Time::ZERO, 9), (0, 1000));
    }

    #[test]
    fn long_silence_is_skipped_and_leaves_nothing_behind() {
        let mut law = DualPi2Config { update: Time::from_micros(1), ..Default::default() }.build();
        law.base = 0.3;
        law.catch_up(Time(u64::MAX / 2), Time::NEVER);
        assert_eq!((law.base_probability(), law.next_update.0 % 1000), (0.0, 0));
        assert!(law.next_update.0 > u64::MAX / 2);
    }

    proptest! {
        #[test]
        fn nothing_poisons_the_probability(
            alpha in any::<f64>(), beta in any::<f64>(), coupling in any::<f64>(), target in any::<u64>(),
            steps in prop::collection::vec(
                (0u64..1_000_000_000, 0u64..1_000_000_000, any::<bool>(), any::<u32>()), 0..60),
        ) {
            let config = DualPi2Config { alpha, beta, coupling, target: Time(target), ..Default::default() };
            let mut law = config.build();
            let mut now = 0;
            for (gap, waited, l4s, backlog) in steps {
                now += gap;
                let since = Time(now.saturating_sub(waited));
                law.catch_up(Time(now), since);
                law.on_departure(packet(l4s, Time(waited), backlog));
                prop_assert!((0.0..=1.0).contains(&law.base_probability()));
                prop_assert!(law.l4s_sum < 1.0 + 1e-9 && law.classic_sum < 1.0 + 1e-9);
            }
        }

        /// Updates caught up late are those made in time.
        #[test]
        fn late_updates_are_the_same(since in 0u64..400, steps in 1u64..400) {
            let mut late = DualPi2Config::default().build();
            let since = Time::from_millis(since);
            let mut timely = late.clone();
            for k in 1..=steps {
                timely.catch_up(Time::from_millis(16 * k), since);
            }
            late.catch_up(Time::from_millis(16 * steps), since);
            prop_assert_eq!(late.base_probability(), timely.base_probability());
            prop_assert_eq!(late.next_update, timely.next_update);
        }
    }
}
