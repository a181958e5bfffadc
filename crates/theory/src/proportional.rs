//! Weighted proportional fairness.

use std::collections::HashMap;

use crate::{Flow, Network, NetworkError, proportional_by_newton, proportional_by_solver};

/// A weighted proportionally fair allocation, and its distance from the optimum.
#[derive(Clone, Debug, PartialEq)]
pub struct Proportional {
    /// One rate per flow.
    pub rates: Vec<f64>,
    /// One price per link, in weight per rate; near 0 where the link is not full.
    pub prices: Vec<f64>,
    /// Distance from the optimum; 0 is exact.
    ///
    /// The larger of two relative violations of the Karush–Kuhn–Tucker conditions: the worst
    /// overload of a link, max(load ∕ capacity − 1, 0), and the unearned price, Σ p·|C − y| ∕ Σ w.
    pub residual: f64,
    /// Number of rounds.
    pub rounds: u32,
}

/// The rates that maximise Σ w·log x within the capacities and demands (Kelly, Maulloo & Tan, *Rate
/// control for communication networks*, J. Oper. Res. Soc. 49, 1998).
///
/// Stops at a residual of 1e-9 or after 200 000 rounds, so check [`Proportional::residual`]. The
/// method is that of [`proportional_with`].
///
/// # Errors
/// As [`Network::check`].
pub fn proportional(network: &Network) -> Result<Proportional, NetworkError> {
    proportional_with(network, 1e-9, 200_000)
}

/// The solver that found proportionally fair rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// [`proportional_by_solver`].
    Clarabel,
    /// [`proportional_by_newton`].
    Newton,
    /// [`proportional_with`].
    Prices,
}

impl Solver {
    /// The solver's name: `clarabel`, `newton` or `prices`.
    pub const fn name(self) -> &'static str {
        match self {
            Solver::Clarabel => "clarabel",
            Solver::Newton => "newton",
            Solver::Prices => "prices",
        }
    }
}

/// The weighted proportionally fair rates, by the fastest solver for the network's size.
///
/// The convex solver serves few flows, and Newton's method many flows on few links. The price
/// iteration serves many flows on many links, and networks where a flow can have no rate. It stops
/// at a residual of 1e-9, or after about a minute.
///
/// # Errors
/// As [`Network::check`].
pub fn proportional_rates(network: &Network) -> Result<(Vec<f64>, Solver), NetworkError> {
    if network.flows.len() <= MOST_SOLVED
        && let Ok(rates) = proportional_by_solver(network)
    {
        return Ok((rates, Solver::Clarabel));
    }
    if network.capacities.len() <= MOST_LINKS
        && let Some(found) = proportional_by_newton(network)?
    {
        return Ok((found.rates, Solver::Newton));
    }
    let hops: usize = network.flows.iter().map(|flow| flow.links.len() + 1).sum();
    let rounds = (MOST_WORK / hops.max(1) as u64).clamp(1000, 200_000);
    Ok((proportional_with(network, 1e-9, rounds as u32)?.rates, Solver::Prices))
}

/// The price iteration, which stops at `residual` or after `rounds`.
///
/// Each flow takes x = min(demand, w ∕ Σ prices of its route); each link multiplies its price by
/// load ∕ capacity. The fixed points are exactly the KKT points: a price is constant only where the
/// link is full, and vanishes elsewhere. On one link without demands the first round is exact.
///
/// # Errors
/// As [`Network::check`].
pub fn proportional_with(
    network: &Network,
    residual: f64,
    rounds: u32,
) -> Result<Proportional, NetworkError> {
    network.check()?;
    let (classes, class_of) = classes(network);
    let mut prices = vec![1.0; network.capacities.len()];
    let mut rates = vec![0.0; classes.len()];
    let mut loads = vec![0.0; network.capacities.len()];
    let mut round = 0;
    loop {
        loads.fill(0.0);
        for (flow, rate) in classes.iter().zip(&mut rates) {
            let price: f64 = flow.links.iter().map(|&l| prices[l]).sum();
            // A link of capacity 0 prices its flows out.
            *rate = if price > 0.0 { (flow.weight / price).min(flow.demand) } else { flow.demand };
            flow.links.iter().for_each(|&l| loads[l] += *rate);
        }
        let found = kkt_residual(network, &loads, &prices);
        if found <= residual || round >= rounds {
            let part = |(flow, &class): (&Flow, &usize)| rates[class] * flow.weight / classes[class].weight;
            let rates = network.flows.iter().zip(&class_of).map(part).collect();
            return Ok(Proportional { rates, prices, residual: found, rounds: round });
        }
        for ((price, load), capacity) in prices.iter_mut().zip(&loads).zip(&network.capacities) {
            let ratio = if *capacity > 0.0 { load / capacity } else { MAX_STEP };
            *price = (*price * ratio.min(MAX_STEP)).clamp(MIN_PRICE, MAX_PRICE);
        }
        round += 1;
    }
}

/// The flows after merging those of one route without a demand, whose weights add up; and the index
/// of the merged flow for each flow.
pub(crate) fn classes(network: &Network) -> (Vec<Flow>, Vec<usize>) {
    let mut classes: Vec<Flow> = Vec::new();
    let mut by_route: HashMap<&[usize], usize> = HashMap::new();
    let class_of = network.flows.iter().map(|flow| {
        let class = match flow.demand.is_finite() {
            true => classes.len(),
            false => *by_route.entry(&flow.links).or_insert(classes.len()),
        };
        match classes.get_mut(class) {
            Some(known) => known.weight += flow.weight,
            None => classes.push(flow.clone()),
        }
        class
    });
    let class_of = class_of.collect();
    (classes, class_of)
}

pub(crate) fn kkt_residual(network: &Network, loads: &[f64], prices: &[f64]) -> f64 {
    let (mut overload, mut unearned) = (0.0_f64, 0.0);
    for ((capacity, load), price) in network.capacities.iter().zip(loads).zip(prices) {
        if *capacity > 0.0 {
            overload = overload.max(load / capacity - 1.0);
            unearned += price * (capacity - load).abs();
        } else {
            overload = overload.max(*load);
        }
    }
    // Not by what the prices add up to: where demands fill no link, that vanishes, and rightly so.
    let budget: f64 = network.flows.iter().map(|f| f.weight).sum();
    if budget > 0.0 { overload.max(unearned / budget) } else { overload }
}

/// The solver is faster up to this number of flows.
const MOST_SOLVED: usize = 500;
/// Newton's method takes less than a minute up to this number of links.
const MOST_LINKS: usize = 1500;
/// Upper bound on link visits over all rounds: about half a minute.
const MOST_WORK: u64 = 10_000_000_000;
/// A price must stay positive, or it could not rise again.
const MIN_PRICE: f64 = 1e-18;
/// A price must stay finite on a link of capacity 0.
const MAX_PRICE: f64 = 1e18;
/// The largest factor by which a price rises in one round.
const MAX_STEP: f64 = 1e6;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::network::tests::networks;

    #[test]
    fn one_long_flow_against_two_short() {
        // FCP's figure 12: links of 50 and 100, one flow over both and one on each.
        let mut n = Network::new();
        let (a, b) = (n.link(50.0), n.link(100.0));
        n.flow([a, b]);
        n.flow([a]);
        n.flow([b]);
        let p = proportional(&n).unwrap();
        for (rate, expected) in p.rates.iter().zip([21.132, 28.868, 78.868]) {
            assert!((rate - expected).abs() < 1e-3, "{p:?}");
        }
        // Budgets are spent entirely.
        let spent: f64 = p.prices.iter().zip(&n.capacities).map(|(p, c)| p * c).sum();
        assert!((spent - 3.0).abs() < 1e-6);
    }

    #[test]
    fn a_link_that_is_never_full_changes_nothing() {
        let mut n = Network::new();
        let a = n.link(9.0);
        n.flow([a]);
        n.flow([a]);
        let before = proportional(&n).unwrap().rates;
        let wide = n.link(1000.0);
        n.flows[0].links.push(wide);
        let after = proportional(&n).unwrap().rates;
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 1e-6), "{before:?} {after:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// The KKT conditions: no link over capacity, prices only on full links, and each flow at w
        /// ∕ price or at its demand.
        #[test]
        fn satisfies_the_kkt_conditions(n in networks()) {
            let p = proportional_with(&n, 1e-6, 200_000).unwrap();
            prop_assert!(p.residual <= 1e-5, "{}", p.residual);
            let loads = n.loads(&p.rates);
            let budget: f64 = n.flows.iter().map(|f| f.weight).sum();
            for ((load, capacity), price) in loads.iter().zip(&n.capacities).zip(&p.prices) {
                prop_assert!(*load <= capacity * (1.0 + 1e-5));
                prop_assert!(price * (capacity - load).abs() <= 1e-4 * budget);
            }
            for (rate, flow) in p.rates.iter().zip(&n.flows) {
                let price: f64 = flow.links.iter().map(|&l| p.prices[l]).sum();
                prop_assert!((rate - (flow.weight / price).min(flow.demand)).abs() <= 1e-9 * rate);
            }
        }

        /// Scaling all weights moves no rate.
        #[test]
        fn only_relative_weights_matter(n in networks()) {
            let mut scaled = n.clone();
            scaled.flows.iter_mut().for_each(|f| f.weight *= 7.0);
            let (a, b) = (proportional(&n).unwrap(), proportional(&scaled).unwrap());
            for (a, b) in a.rates.iter().zip(&b.rates) {
                prop_assert!((a - b).abs() <= 1e-3 * a);
            }
        }
    }
}
