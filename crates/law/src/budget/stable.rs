//! Statistical stability: a steady rate at the cost of the host's other flows (§ 4.2).

use super::{Share, Strategy, mean_rtt};
use crate::{Budget, Time};

/// Flows with a target rate spend what that rate costs as the price varies; the other flows divide
/// the rest by their weights.
///
/// If the targets together cost more than the budget, each gets the same fraction of its target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stable;

impl Strategy for Stable {
    fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
        let cost = |flow: &Share| flow.price.map_or(0.0, |price| price.get() * flow.wants.bytes_per_sec());
        let wanted: f64 = flows.iter().map(cost).sum();
        let part = if wanted > budget.get() { budget.get() / wanted } else { 1.0 };
        let rest = (budget.get() - wanted).max(0.0);
        let weight = |flow: &Share| match flow.wants.bytes_per_sec() > 0.0 && flow.price.is_some() {
            true => 0.0,
            false => flow.weight.max(0.0),
        };
        let weights: f64 = flows.iter().map(weight).sum();
        for flow in flows {
            let others = if weights > 0.0 { rest * weight(flow) / weights } else { 0.0 };
            flow.budget = Budget::per_sec(cost(flow) * part + others);
        }
    }

    /// Two round trips: a flow cannot learn a new price faster.
    fn interval(&self, flows: &[Share]) -> Time {
        Time((mean_rtt(flows).0 / 2).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Price, Rate};

    #[test]
    fn a_steady_rate_is_paid_for_by_the_others() {
        let mut flows = [Share::new(0), Share::new(1), Share::new(2)];
        flows[0].wants = Rate::from_bytes_per_sec(1e6);
        for (price, expected) in
            [(1e-7, [0.1, 0.45, 0.45]), (5e-7, [0.5, 0.25, 0.25]), (2e-6, [1.0, 0.0, 0.0])]
        {
            flows.iter_mut().for_each(|flow| flow.price = Some(Price::per_byte(price)));
            Stable.divide(Time::ZERO, Budget::per_sec(1.0), &mut flows);
            for (flow, expected) in flows.iter().zip(expected) {
                assert!((flow.budget.get() - expected).abs() < 1e-12, "{flow:?}");
            }
        }
    }

    #[test]
    fn who_wants_too_much_gets_its_part_and_who_wants_nothing_the_rest_by_weight() {
        let flow = |wants, price: Option<f64>, weight| Share {
            wants: Rate::from_bytes_per_sec(wants),
            price: price.map(Price::per_byte),
            weight,
            ..Share::new(0)
        };
        for (flows, budgets) in [
            // 1 and 3 $/s wanted of 2.
            (vec![flow(1e6, Some(1e-6), 1.0), flow(1e6, Some(3e-6), 1.0)], vec![0.5, 1.5]),
            // Targets cost a quarter of 2 $/s, and no flow takes the rest.
            (vec![flow(1e6, Some(0.5e-6), 1.0)], vec![0.5]),
            (
                vec![flow(1e6, Some(0.5e-6), 5.0), flow(0.0, Some(1e-6), 1.0), flow(0.0, None, 2.0)],
                vec![0.5, 0.5, 1.0],
            ),
            // The cost of the rate is not known yet: the flow starts like the others.
            (vec![flow(1e6, None, 1.0), flow(0.0, Some(1e-6), 3.0)], vec![0.5, 1.5]),
        ] {
            let mut flows = flows;
            Stable.divide(Time::ZERO, Budget::per_sec(2.0), &mut flows);
            let found: Vec<f64> = flows.iter().map(|flow| flow.budget.get()).collect();
            assert!(
                found.iter().zip(&budgets).all(|(a, b)| (a - b).abs() < 1e-12),
                "{found:?}, not {budgets:?}"
            );
        }
    }

    #[test]
    fn looks_twice_in_a_mean_round_trip() {
        // Of those that are known; until one is, of 100 ms.
        let flow = |ms| Share { rtt: Time::from_millis(ms), ..Share::new(0) };
        assert_eq!(Stable.interval(&[flow(0), flow(30), flow(50)]), Time::from_millis(20));
        assert_eq!(Stable.interval(&[flow(0)]), Time::from_millis(50));
        assert_eq!(Stable.interval(&[Share { rtt: Time(1), ..flow(0) }]), Time(1));
    }
}
