//! Strategies that measure the rates that budgets buy.

use super::{Share, Strategy, divide_by, mean_rtt};
use crate::{Budget, Time};

/// The same rate for every flow, or rates by weight: every two round trips a flow below the mean
/// gets more (§ 6.2).
///
/// With rates r and budgets x, the budgets move towards x·r̄/r, which is proportional to the
/// prices. Prices follow budgets, so each step covers only a part of the distance.
#[derive(Clone, Copy, Debug)]
pub struct EqualThroughput {
    /// The part of the distance per step. 0.5.
    pub gain: f64,
}

impl Default for EqualThroughput {
    fn default() -> EqualThroughput {
        EqualThroughput { gain: 0.5 }
    }
}

impl Strategy for EqualThroughput {
    fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
        let known = |flow: &Share| flow.price.is_some() && flow.budget > Budget::ZERO;
        let present: f64 = flows.iter().filter(|flow| known(flow)).map(|flow| flow.budget.get()).sum();
        let (n, m) = (flows.len() as f64, flows.iter().filter(|flow| known(flow)).count() as f64);
        let cost = |flow: &Share| flow.price.map_or(0.0, |price| price.get()) * flow.weight.max(0.0);
        let costs: f64 = flows.iter().filter(|flow| known(flow)).map(cost).sum();
        let gain = self.gain.clamp(0.0, 1.0);
        divide_by(budget, flows, |flow| {
            // New flows start with an equal part.
            if !known(flow) || present <= 0.0 || costs <= 0.0 {
                return 1.0 / n;
            }
            let (now, aim) = (flow.budget.get() / present, cost(flow) / costs);
            (now + gain * (aim - now)) * m / n
        });
    }

    fn interval(&self, flows: &[Share]) -> Time {
        mean_rtt(flows) * 2
    }
}

/// The largest sum of rates: gradient ascent by trials (§ 6.2).
///
/// In each trial one flow gets a tenth more, and the others that much less in proportion. After two
/// round trips for it to take effect, one more measures the rates. A gain is kept, a loss reverses
/// the direction. When trials of all flows change the total by less than half a per cent, the
/// strategy settles until a price moves, or a flow starts or ends.
#[derive(Clone, Debug)]
pub struct MaxThroughput {
    /// Relative increase of a flow's budget in a trial. 0.1 (§ 6.2).
    pub step: f64,
    /// The strategy settles when the relative gain is below this. 0.005 (§ 6.2).
    pub enough: f64,
    /// A relative price change above this starts trials again. 0.02.
    pub wakes: f64,
    phase: Phase,
    /// The flow of the next trial.
    turn: usize,
    /// Trials in a row without a gain.
    idle: usize,
    /// The total rate before the trial, bytes/s, and the budgets at that time.
    total: f64,
    before: Vec<(u64, Budget)>,
    /// Each flow's price when trials stopped.
    prices: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Flows have started or ended: wait until they settle.
    Fresh,
    /// Measures the rates of the present budgets.
    Measure,
    /// A trial is taking effect; `up` or down.
    Settle {
        up: bool,
    },
    /// Measures the effect of the trial.
    Judge {
        up: bool,
    },
    Rest,
}

impl Default for MaxThroughput {
    fn default() -> MaxThroughput {
        MaxThroughput {
            step: 0.1,
            enough: 0.005,
            wakes: 0.02,
            phase: Phase::Fresh,
            turn: 0,
            idle: 0,
            total: 0.0,
            before: Vec::new(),
            prices: Vec::new(),
        }
    }
}

impl MaxThroughput {
    /// Starts the next flow's trial: it gets more, or less, at the others' cost.
    fn try_one(&mut self, budget: Budget, flows: &mut [Share], up: bool) {
        self.before = flows.iter().map(|flow| (flow.flow, flow.budget)).collect();
        let one = self.turn % flows.len();
        let present = flows[one].budget.get();
        let least = budget.get() * LEAST_PART;
        let step = if up { 1.0 + self.step } else { 1.0 / (1.0 + self.step) };
        let rest = least * (flows.len() - 1) as f64;
        let wanted = (present * step).clamp(least, (budget.get() - rest).max(least));
        let others = (budget.get() - present).max(0.0);
        let factor = if others > 0.0 { (budget.get() - wanted).max(0.0) / others } else { 0.0 };
        for (i, flow) in flows.iter_mut().enumerate() {
            let new = if i == one { wanted } else { flow.budget.get() * factor };
            flow.budget = Budget::per_sec(new);
        }
        self.phase = Phase::Settle { up };
    }

    fn undo(&self, flows: &mut [Share]) {
        for (flow, before) in flows.iter_mut().zip(&self.before) {
            flow.budget = before.1;
        }
    }
}

fn price(flow: &Share) -> f64 {
    flow.price.map_or(0.0, |price| price.get())
}

impl Strategy for MaxThroughput {
    fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
        if flows.len() < 2 {
            divide_by(budget, flows, |_| 1.0);
            self.phase = Phase::Fresh;
            return;
        }
        let same = self.before.len() == flows.len()
            && self.before.iter().zip(flows.iter()).all(|(before, flow)| before.0 == flow.flow);
        let sum: f64 = flows.iter().map(|flow| flow.budget.get()).sum();
        if !same || (sum - budget.get()).abs() > 1e-6 * budget.get() {
            divide_by(budget, flows, |_| 1.0);
            self.before = flows.iter().map(|flow| (flow.flow, flow.budget)).collect();
            (self.phase, self.idle) = (Phase::Fresh, 0);
            return;
        }
        let total: f64 = flows.iter().map(|flow| flow.rate.bytes_per_sec()).sum();
        match self.phase {
            Phase::Fresh => self.phase = Phase::Measure,
            Phase::Measure => {
                self.total = total;
                self.try_one(budget, flows, true);
            }
            Phase::Settle { up } => self.phase = Phase::Judge { up },
            Phase::Judge { up } => {
                let gain = (total - self.total) / self.total.max(1.0);
                if gain > self.enough * GAIN_SHARE {
                    // The same way once more.
                    (self.total, self.idle) = (total, 0);
                    self.try_one(budget, flows, up);
                    return;
                }
                self.undo(flows);
                if up && gain < 0.0 {
                    self.try_one(budget, flows, false);
                    return;
                }
                self.turn += 1;
                self.idle += 1;
                // Back to what was: see it anew, since others change, too.
                self.phase = Phase::Fresh;
                if self.idle >= flows.len() {
                    self.phase = Phase::Rest;
                    self.prices.clear();
                }
            }
            // The last trial is undone, and prices are those of rest again.
            Phase::Rest if self.prices.len() != flows.len() => {
                self.prices = flows.iter().map(price).collect()
            }
            Phase::Rest => {
                let moved = |(flow, then): (&Share, &f64)| (price(flow) / then - 1.0).abs() > self.wakes;
                if flows.iter().zip(&self.prices).any(moved) {
                    (self.phase, self.idle) = (Phase::Fresh, 0);
                }
            }
        }
    }

    /// Two round trips for budgets to take effect, and one to measure.
    fn interval(&self, flows: &[Share]) -> Time {
        let rtt = mean_rtt(flows);
        match self.phase {
            Phase::Fresh | Phase::Settle { .. } => rtt * 4,
            // The last trial's traces have to be gone from the prices that rest is known by.
            Phase::Rest if self.prices.is_empty() => rtt * 8,
            Phase::Measure | Phase::Judge { .. } | Phase::Rest => rtt * 2,
        }
    }
}

/// The least part of the budget of a flow; with less, a rise of its rate would not be visible.
const LEAST_PART: f64 = 1e-4;
/// Near the optimum a trial of a tenth gains less than the threshold. A gain counts from this part
/// of `enough`.
const GAIN_SHARE: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Price, Rate};

    /// Two flows on links of their own, 250 and 50, against budgets of 1.5 and 0.5: figure 14.
    fn settle(strategy: &mut dyn Strategy, rounds: usize) -> Vec<Share> {
        let mut flows = [Share::new(0), Share::new(1)];
        let budget = Budget::per_sec(2.0);
        for round in 0..rounds {
            strategy.divide(Time::from_millis(round as u64 * 100), budget, &mut flows);
            for (flow, (capacity, others)) in flows.iter_mut().zip([(250.0, 1.5), (50.0, 0.5)]) {
                let price = (flow.budget.get() + others) / capacity;
                flow.price = Some(Price::per_byte(price));
                flow.rate = Rate::from_bytes_per_sec(flow.budget.get() / price);
                flow.rtt = Time::from_millis(50);
            }
        }
        flows.to_vec()
    }

    #[test]
    fn equal_throughput_finds_the_fixed_point() {
        // 38.763 each, with X = 0.27526.
        let flows = settle(&mut EqualThroughput::default(), 60);
        for flow in &flows {
            assert!((flow.rate.bytes_per_sec() - 38.763).abs() < 1e-2, "{flow:?}");
        }
        assert!((flows[0].budget.get() - 0.27526).abs() < 1e-4);
    }

    #[test]
    fn max_throughput_climbs_near_the_top() {
        // 151.588 at X = 1.679; the report's own run came to 150.6 at 1.56.
        let flows = settle(&mut MaxThroughput::default(), 300);
        let total: f64 = flows.iter().map(|flow| flow.rate.bytes_per_sec()).sum();
        assert!(total > 150.6, "{total} at {:?}", flows[0].budget);
    }

    #[test]
    fn max_throughput_rests_until_a_price_moves() {
        let mut strategy = MaxThroughput::default();
        let mut flows = settle(&mut strategy, 300);
        assert_eq!(strategy.phase, Phase::Rest);
        flows[0].price = Some(Price::per_byte(1.0));
        strategy.divide(Time::from_secs(100), Budget::per_sec(2.0), &mut flows);
        assert_eq!(strategy.phase, Phase::Fresh);
    }

    #[test]
    fn max_throughput_wakes_when_a_price_falls_as_well() {
        let mut strategy = MaxThroughput::default();
        let mut flows = settle(&mut strategy, 300);
        assert_eq!(strategy.phase, Phase::Rest);
        flows[0].price = flows[0].price.map(|price| Price::per_byte(price.get() / 2.0));
        strategy.divide(Time::from_secs(100), Budget::per_sec(2.0), &mut flows);
        assert_eq!(strategy.phase, Phase::Fresh);
    }

    #[test]
    fn equal_throughput_starts_a_new_flow_with_an_equal_part() {
        let mut strategy = EqualThroughput::default();
        let mut flows = settle(&mut strategy, 60);
        flows.push(Share::new(2));
        strategy.divide(Time::from_secs(100), Budget::per_sec(2.0), &mut flows);
        assert!((flows[2].budget.get() - 2.0 / 3.0).abs() < 1e-9, "{:?}", flows[2].budget);
    }

    /// The result of [`MaxThroughput`] for three flows and 3 $/s, 50 ms away, given the rates that
    /// budgets buy.
    struct Climb {
        strategy: MaxThroughput,
        flows: Vec<Share>,
    }

    impl Climb {
        fn new() -> Climb {
            let share = |flow| Share {
                rtt: Time::from_millis(50),
                price: Some(Price::per_byte(1.0)),
                ..Share::new(flow)
            };
            let mut climb = Climb { strategy: MaxThroughput::default(), flows: (0..3).map(share).collect() };
            climb.step(0.0, [1.0; 3], 200);
            climb
        }

        /// The total rate was so much, bytes/s; then the budgets are those, and the next look is so
        /// many ms away.
        fn step(&mut self, total: f64, budgets: [f64; 3], ms: u64) {
            self.flows[0].rate = Rate::from_bytes_per_sec(total);
            self.strategy.divide(Time::ZERO, Budget::per_sec(3.0), &mut self.flows);
            for (flow, budget) in self.flows.iter().zip(budgets) {
                assert!((flow.budget.get() - budget).abs() < 1e-12, "{:?}, not {budgets:?}", self.flows);
            }
            assert_eq!(self.strategy.interval(&self.flows), Time::from_millis(ms));
        }
    }

    #[test]
    fn a_trial_is_a_tenth_more_that_is_kept_turned_round_or_undone() {
        let mut climb = Climb::new();
        climb.step(1000.0, [1.0; 3], 100);
        climb.step(1000.0, [1.1, 0.95, 0.95], 200);
        climb.step(1500.0, [1.1, 0.95, 0.95], 100);
        // More than a thousandth gained: the same way.
        climb.step(1001.1, [1.21, 0.895, 0.895], 200);
        climb.step(900.0, [1.21, 0.895, 0.895], 100);
        // Lost: undone, and the other way.
        climb.step(1001.0, [1.0, 1.0, 1.0], 200);
        climb.step(1001.0, [1.0, 1.0, 1.0], 100);
        // That does not pay either, not by a thousandth: it stays, and the next one's turn begins
        // with seeing anew.
        climb.step(1002.1, [1.1, 0.95, 0.95], 200);
        climb.step(1001.0, [1.1, 0.95, 0.95], 100);
        let second = [1.1 * 1.955 / 2.05, 1.045, 0.95 * 1.955 / 2.05];
        climb.step(2000.0, second, 200);
        climb.step(2000.0, second, 100);
        // Nothing gained and nothing lost: the other way is not tried.
        climb.step(2000.0, [1.1, 0.95, 0.95], 200);
        climb.step(2000.0, [1.1, 0.95, 0.95], 100);
        let third = [1.1 * 1.955 / 2.05, 0.95 * 1.955 / 2.05, 1.045];
        climb.step(2000.0, third, 200);
        climb.step(2000.0, third, 100);
        // All had their turn: it rests, at the prices that come of it.
        climb.step(2000.0, [1.1, 0.95, 0.95], 400);
        climb.step(2000.0, [1.1, 0.95, 0.95], 100);
        climb.step(1.0, [1.1, 0.95, 0.95], 100);
        // Until a price moves by a fiftieth; then each has its turn again, the first first.
        for (price, ms) in [(1.019, 100), (0.981, 100), (1.021, 200)] {
            climb.flows[2].price = Some(Price::per_byte(price));
            climb.step(2000.0, [1.1, 0.95, 0.95], ms);
        }
        climb.step(2000.0, [1.1, 0.95, 0.95], 100);
        climb.step(2000.0, [1.21, 0.95 * 1.79 / 1.9, 0.95 * 1.79 / 1.9], 200);
        // It comes to rest at the new prices, and stays there.
        let rests = |climb: &mut Climb| {
            climb.strategy.divide(Time::ZERO, Budget::per_sec(3.0), &mut climb.flows);
            climb.strategy.phase == Phase::Rest
        };
        assert!((0..40).any(|_| rests(&mut climb)) && (0..9).all(|_| rests(&mut climb)));
    }

    #[test]
    fn who_comes_or_goes_ends_a_climb() {
        let mut climb = Climb::new();
        let begin = |climb: &mut Climb| {
            climb.step(1000.0, [1.0; 3], 100);
            climb.step(1000.0, [1.1, 0.95, 0.95], 200);
            climb.step(1000.0, [1.1, 0.95, 0.95], 100);
        };
        begin(&mut climb);
        // As many, but others: equal parts.
        climb.flows[1].flow = 7;
        climb.step(1000.0, [1.0; 3], 200);
        begin(&mut climb);
        // Another budget.
        climb.flows[0].budget = Budget::per_sec(1.2);
        climb.step(1000.0, [1.0; 3], 200);
        begin(&mut climb);
        // One alone has all of it.
        climb.flows.truncate(1);
        climb.strategy.divide(Time::ZERO, Budget::per_sec(3.0), &mut climb.flows);
        assert_eq!(climb.flows[0].budget, Budget::per_sec(3.0));
        assert_eq!(climb.strategy.interval(&climb.flows), Time::from_millis(200));
    }

    #[test]
    fn no_flow_is_tried_under_a_ten_thousandth_of_the_budget() {
        for (budgets, up, then) in [
            ([1.99, 0.005, 0.005], true, [2.0 - 4e-4, 2e-4, 2e-4]),
            ([1e-4, 1.0, 0.9999], false, [2e-4, 1.9998 / 1.9999, 0.9999 * 1.9998 / 1.9999]),
        ] {
            let mut strategy = MaxThroughput::default();
            let mut flows: Vec<Share> = (0..)
                .zip(budgets)
                .map(|(i, budget)| Share { budget: Budget::per_sec(budget), ..Share::new(i) })
                .collect();
            strategy.try_one(Budget::per_sec(2.0), &mut flows, up);
            for (flow, then) in flows.iter().zip(then) {
                assert!((flow.budget.get() - then).abs() < 1e-12, "{flow:?}, not {then}");
            }
        }
    }

    #[test]
    fn equal_throughput_goes_half_of_the_way_to_rates_by_weight() {
        // Prices 1 and 3, weights 1 and 2: budgets of 1 to 6 bring rates of 1 to 2.
        let mut flows = [(1.0, 1.0), (3.0, 2.0)].map(|(price, weight)| Share {
            price: Some(Price::per_byte(price)),
            weight,
            budget: Budget::per_sec(0.5),
            rtt: Time::from_millis(50),
            ..Share::new(0)
        });
        let mut strategy = EqualThroughput::default();
        strategy.divide(Time::ZERO, Budget::per_sec(1.0), &mut flows);
        let first = (0.5 + 1.0 / 7.0) / 2.0;
        assert!((flows[0].budget.get() - first).abs() < 1e-12, "{flows:?}");
        assert_eq!(strategy.interval(&flows), Time::from_millis(100));
        // One without a price gets an equal part, whatever it had; so do all if none costs
        // anything.
        flows[1].price = None;
        strategy.divide(Time::ZERO, Budget::per_sec(1.0), &mut flows);
        assert_eq!(flows[1].budget, Budget::per_sec(0.5));
        flows.iter_mut().for_each(|flow| (flow.price, flow.weight) = (Some(Price::per_byte(1.0)), 0.0));
        flows[0].budget = Budget::per_sec(0.9);
        strategy.divide(Time::ZERO, Budget::per_sec(1.0), &mut flows);
        assert_eq!(flows[0].budget, Budget::per_sec(0.5));
    }
}
