//! Strategies that need no measurements of the network.

use super::{Share, Strategy, divide_by};
use crate::{Budget, Time};

/// The same budget for every flow, or budgets by weight. A flow's rate then depends on the price of
/// its path alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct EqualBudget;

impl Strategy for EqualBudget {
    fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
        divide_by(budget, flows, |flow| flow.weight);
    }
}

/// A fixed part of the budget for each flow, its weight. Unused parts stay unspent; weights that
/// sum to more than 1 are scaled to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed;

impl Strategy for Fixed {
    fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
        let sum: f64 = flows.iter().map(|flow| flow.weight.max(0.0)).sum();
        for flow in flows {
            flow.budget = Budget::per_sec(budget.get() * flow.weight.max(0.0) / sum.max(1.0));
        }
    }
}

/// A marginal part of the budget: such flows use spare capacity and yield to all others (§ 6.2,
/// after TCP Nice).
#[derive(Clone, Copy, Debug)]
pub struct Background {
    /// The part of the budget for all of them together. 1/10 000 (§ 6.2).
    pub part: f64,
}

impl Default for Background {
    fn default() -> Background {
        Background { part: 1e-4 }
    }
}

impl Strategy for Background {
    fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
        let budget = Budget::per_sec(budget.get() * self.part.clamp(0.0, 1.0));
        divide_by(budget, flows, |flow| flow.weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets(strategy: &mut dyn Strategy, weights: &[f64]) -> Vec<f64> {
        let share = |(i, &weight): (usize, &f64)| Share { weight, ..Share::new(i as u64) };
        let mut flows: Vec<Share> = weights.iter().enumerate().map(share).collect();
        strategy.divide(Time::ZERO, Budget::per_sec(2.0), &mut flows);
        flows.iter().map(|flow| flow.budget.get()).collect()
    }

    #[test]
    fn divide_by_weight_as_each_says() {
        assert_eq!(budgets(&mut EqualBudget, &[1.0, 1.0]), [1.0, 1.0]);
        assert_eq!(budgets(&mut EqualBudget, &[1.0, 3.0]), [0.5, 1.5]);
        assert_eq!(budgets(&mut Fixed, &[0.25, 0.5]), [0.5, 1.0]);
        assert_eq!(budgets(&mut Fixed, &[1.0, 1.0]), [1.0, 1.0]);
        assert_eq!(budgets(&mut Background::default(), &[1.0]), [2e-4]);
        assert_eq!(budgets(&mut EqualBudget, &[0.0, 0.0]), [1.0, 1.0]);
        // More than the whole budget is not available.
        assert_eq!(budgets(&mut Background { part: 1.2 }, &[1.0]), [2.0]);
        assert!(budgets(&mut EqualBudget, &[]).is_empty());
    }
}
