//! The equilibrium of FCP's strategies: the amount each owner spends on each flow.

use crate::{Flow, Network, NetworkError, proportional_with};

/// An owner of a budget and of the flows that share it (the FCP report, CMU-CS-12-125, § 4.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    /// The budget, in any unit that all owners share.
    pub budget: f64,
    /// The strategy that divides the budget.
    pub division: Division,
    /// The owner's flows, as indices into [`Network::flows`]. The weight of a flow there is its
    /// weight among the flows of this owner.
    pub flows: Vec<usize>,
}

/// A strategy that divides a budget over flows.
#[derive(Clone, Debug, PartialEq)]
pub enum Division {
    /// In proportion to the flows' weights.
    ByWeight,
    /// Each flow gets its weight as a fraction of the budget. Weights that sum to more than 1 are
    /// scaled to 1.
    Fixed,
    /// The given fraction of the budget, divided by weight.
    Part(f64),
    /// Rates in proportion to weights.
    EqualThroughput,
    /// The largest sum of rates, given the budgets of the other owners.
    MaxThroughput,
    /// Flows with a target rate spend what that rate costs; the other flows share the rest. One
    /// target per flow of the owner, 0 for none.
    Stable(Vec<f64>),
}

/// `network` with the weight of each flow set to the amount that its owner spends on it.
///
/// FCP's allocation is the weighted proportionally fair one of the result. Flows without an owner
/// keep their weights.
///
/// Strategies that depend on prices or rates are solved for a fixed point of all owners together.
/// For `MaxThroughput` the result is a local optimum, as an owner that adapts step by step would
/// also find.
///
/// # Errors
/// As [`Network::check`]; also if an owner's budget gives a flow an amount that is not positive and
/// finite.
pub fn spend(network: &Network, owners: &[Owner]) -> Result<Network, NetworkError> {
    network.check()?;
    let mut spending = network.clone();
    for owner in owners {
        owner.start(network, &mut spending);
    }
    let looks = |o: &&Owner| !matches!(o.division, Division::ByWeight | Division::Fixed | Division::Part(_));
    let adaptive: Vec<&Owner> = owners.iter().filter(looks).filter(|o| !o.flows.is_empty()).collect();
    if !adaptive.is_empty() {
        for _ in 0..MOST_TURNS {
            let mut moved = 0.0_f64;
            for owner in &adaptive {
                moved = moved.max(owner.turn(network, &mut spending)?);
            }
            if moved < STILL {
                break;
            }
        }
    }
    spending.check()?;
    Ok(spending)
}

impl Owner {
    /// The first division, before rates and prices are known.
    fn start(&self, network: &Network, spending: &mut Network) {
        let weight = |f: usize| network.flows[f].weight;
        let sum: f64 = self.flows.iter().map(|&f| weight(f)).sum();
        let (budget, sum) = match self.division {
            Division::Part(part) => (self.budget * part, sum),
            Division::Fixed => (self.budget, sum.max(1.0)),
            _ => (self.budget, sum),
        };
        for &f in &self.flows {
            spending.flows[f].weight = budget * weight(f) / sum;
        }
    }

    /// One step of the strategy while the other owners stay fixed. Returns the fraction of the
    /// budget that moved.
    fn turn(&self, network: &Network, spending: &mut Network) -> Result<f64, NetworkError> {
        let before: Vec<f64> = self.flows.iter().map(|&f| spending.flows[f].weight).collect();
        let wanted = match &self.division {
            Division::EqualThroughput => {
                let prices = path_prices(spending)?;
                let costs: Vec<f64> =
                    self.flows.iter().map(|&f| prices[f] * network.flows[f].weight).collect();
                let sum: f64 = costs.iter().sum();
                costs.iter().zip(&before).map(|(c, now)| (c / sum * self.budget + now) / 2.0).collect()
            }
            Division::Stable(rates) => {
                let prices = path_prices(spending)?;
                let costs: Vec<f64> = self.flows.iter().zip(rates).map(|(&f, r)| prices[f] * r).collect();
                let cost: f64 = costs.iter().sum();
                let part = (self.budget / cost).min(1.0);
                let rest = (self.budget - cost).max(0.0);
                let free = |(&f, &r): (&usize, &f64)| if r > 0.0 { 0.0 } else { network.flows[f].weight };
                let others: f64 = self.flows.iter().zip(rates).map(free).sum();
                let each = self.flows.iter().zip(rates).zip(&costs).zip(&before);
                each.map(|((who, cost), now)| {
                    let target = match who.1 > &0.0 {
                        true => cost * part,
                        false => rest * free(who) / others,
                    };
                    // Nothing at all cannot be weighed, nor spent: a flow keeps sending a packet
                    // now and then.
                    ((target + now) / 2.0).max(LEAST_PART * self.budget)
                })
                .collect()
            }
            Division::MaxThroughput => self.climb(spending)?,
            Division::ByWeight | Division::Fixed | Division::Part(_) => before.clone(),
        };
        for (&f, weight) in self.flows.iter().zip(&wanted) {
            spending.flows[f].weight = *weight;
        }
        let moved = before.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        Ok(moved / self.budget)
    }

    /// The division with the largest sum of rates near the present one. A flow gets a little more
    /// or less at the cost of the others, in proportion; the step shrinks each time that nothing
    /// gains.
    fn climb(&self, spending: &Network) -> Result<Vec<f64>, NetworkError> {
        let mut network = spending.clone();
        let mut weights: Vec<f64> = self.flows.iter().map(|&f| network.flows[f].weight).collect();
        let total = |network: &mut Network, weights: &[f64]| -> Result<f64, NetworkError> {
            self.flows.iter().zip(weights).for_each(|(&f, w)| network.flows[f].weight = *w);
            let rates = rates(network)?;
            Ok(self.flows.iter().map(|&f| rates[f]).sum())
        };
        let mut best = total(&mut network, &weights)?;
        let mut step = 0.5;
        while step > FINEST_STEP {
            let mut gained = false;
            for one in 0..weights.len() {
                for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                    let least = LEAST_PART * self.budget;
                    let rest = self.budget - least * (weights.len() - 1) as f64;
                    let mine = (weights[one] * factor).clamp(least, rest.max(least));
                    let scale = (self.budget - mine) / (self.budget - weights[one]);
                    let mut trial: Vec<f64> = weights.iter().map(|w| (w * scale).max(least)).collect();
                    trial[one] = mine;
                    let sum = total(&mut network, &trial)?;
                    if sum > best * (1.0 + LEAST_GAIN) {
                        (best, weights, gained) = (sum, trial, true);
                    }
                }
            }
            if !gained {
                step /= 2.0;
            }
        }
        Ok(weights)
    }
}

/// The price of one unit of rate for each flow.
fn path_prices(network: &Network) -> Result<Vec<f64>, NetworkError> {
    let prices = proportional_with(network, RESIDUAL, MOST_ROUNDS)?.prices;
    let of = |flow: &Flow| flow.links.iter().map(|&l| prices[l]).sum();
    Ok(network.flows.iter().map(of).collect())
}

fn rates(network: &Network) -> Result<Vec<f64>, NetworkError> {
    Ok(proportional_with(network, RESIDUAL, MOST_ROUNDS)?.rates)
}

/// An owner has settled when it moves no more than this fraction of its budget.
const STILL: f64 = 1e-6;
/// Upper bound on turns of all owners; after these the result is taken as it stands.
const MOST_TURNS: usize = 200;
/// The least fraction of the budget that a flow keeps, as with the strategies themselves.
const LEAST_PART: f64 = 1e-4;
const LEAST_GAIN: f64 = 1e-9;
const FINEST_STEP: f64 = 1e-4;
/// Residual and rounds of the price iteration.
const RESIDUAL: f64 = 1e-8;
const MOST_ROUNDS: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proportional;

    /// The report's figure 14: links of 250 and 50; S0 on the first, S1 and S2 on both.
    fn figure_14(division: Division) -> (Vec<f64>, Vec<f64>) {
        let mut n = Network::new();
        let (top, bottom) = (n.link(250.0), n.link(50.0));
        for link in [top, top, bottom, top, bottom] {
            n.flow([link]);
        }
        let by_weight =
            |budget: f64, flows: Vec<usize>| Owner { budget, division: Division::ByWeight, flows };
        let s1 = Owner { budget: 2.0, division, flows: vec![1, 2] };
        let spent = spend(&n, &[by_weight(1.0, vec![0]), s1, by_weight(1.0, vec![3, 4])]).unwrap();
        let rates = proportional(&spent).unwrap().rates;
        (spent.flows.iter().map(|f| f.weight).collect(), rates)
    }

    #[test]
    fn the_strategies_of_figures_15_to_17() {
        let (budgets, rates) = figure_14(Division::ByWeight);
        assert_eq!(budgets, [1.0, 1.0, 1.0, 0.5, 0.5]);
        assert!((rates[0] - 100.0).abs() < 1e-6 && (rates[4] - 50.0 / 3.0).abs() < 1e-6);
        let (budgets, rates) = figure_14(Division::EqualThroughput);
        assert!((budgets[1] - 0.27526).abs() < 1e-4 && (budgets[1] + budgets[2] - 2.0).abs() < 1e-9);
        assert!((rates[1] - 38.763).abs() < 1e-2 && (rates[2] - 38.763).abs() < 1e-2, "{rates:?}");
        let (budgets, rates) = figure_14(Division::MaxThroughput);
        assert!((budgets[1] - 1.67915).abs() < 2e-3, "{budgets:?}");
        assert!((rates[1] + rates[2] - 151.588).abs() < 1e-2, "{rates:?}");
    }

    #[test]
    fn a_part_and_a_steady_rate() {
        // Figure 12 with a background flow on the second link, and one of its owner's flows
        // wanting 10.
        let mut n = Network::new();
        let (a, b) = (n.link(50.0), n.link(100.0));
        for links in [vec![a, b], vec![a], vec![b], vec![a]] {
            n.flow(links);
        }
        let steady = Owner { budget: 1.0, division: Division::Stable(vec![10.0, 0.0]), flows: vec![1, 3] };
        let background = Owner { budget: 1.0, division: Division::Part(1e-4), flows: vec![2] };
        let fixed = Owner { budget: 2.0, division: Division::Fixed, flows: vec![0] };
        let spent = spend(&n, &[steady, background, fixed]).unwrap();
        assert_eq!((spent.flows[0].weight, spent.flows[2].weight), (2.0, 1e-4));
        let rates = proportional(&spent).unwrap().rates;
        assert!((rates[1] - 10.0).abs() < 1e-3, "{rates:?}");
        assert!((spent.flows[1].weight + spent.flows[3].weight - 1.0).abs() < 1e-5);
    }

    #[test]
    fn a_budget_of_nothing_is_none() {
        let mut n = Network::new();
        let link = n.link(1.0);
        n.flow([link]);
        let broke = Owner { budget: 0.0, division: Division::ByWeight, flows: vec![0] };
        assert!(matches!(spend(&n, &[broke]), Err(NetworkError::Weight { flow: 0, .. })));
    }
}
