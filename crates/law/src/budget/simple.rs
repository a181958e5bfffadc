//! Strategies that need not look at the network.

use super::{Share, Strategy, divide_by};
use crate::{Budget, Time};

/// The same for every flow, or by their weights: how fast each goes is then the path's affair
/// alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct EqualBudget;

impl Strategy for EqualBudget {
    fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
        divide_by(budget, flows, |flow| flow.weight);
    }
}

/// Each flow has the part of the budget that its weight says, whoever else is there; what is not
/// taken up stays unspent. Weights that sum to more than one are scaled to one.
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

/// A marginal part of the budget: such flows fill what is spare and yield to all else (§ 6.2, after
/// TCP Nice).
#[derive(Clone, Copy, Debug)]
pub struct Background {
    /// What all of them together may spend, as a part of the budget. 1/10 000 (§ 6.2).
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
        // More than the budget is nobody's to spend.
        assert_eq!(budgets(&mut Background { part: 1.2 }, &[1.0]), [2.0]);
        assert!(budgets(&mut EqualBudget, &[]).is_empty());
    }
}
