//! Maximum throughput, as a linear programme.

use clarabel::algebra::CscMatrix;
use clarabel::solver::SupportedConeT::NonnegativeConeT;

use crate::proportional::classes;
use crate::solver::{Entries, FINE, limits, matrix, solve};
use crate::{Network, SolverError};

/// The rates with the largest sum within the capacities and demands, by Clarabel.
///
/// Where several allocations have that sum, these rates lie in the middle of them. Flows on one
/// route without a demand have rates in proportion to their weights.
///
/// # Errors
/// The network has no allocation, or the solver does not reach the optimum.
pub fn max_throughput(network: &Network) -> Result<Vec<f64>, SolverError> {
    network.check()?;
    let (mut classes, class_of) = classes(network);
    let weights: Vec<f64> = classes.iter().map(|class| class.weight).collect();
    let most = |links: &[usize], demand| links.iter().map(|&l| network.capacities[l]).fold(demand, f64::min);
    // The rate of each class alone is the unit of its rate.
    let alone: Vec<f64> = classes.iter().map(|class| most(&class.links, class.demand)).collect();
    let open: Vec<usize> = (0..classes.len()).filter(|&c| alone[c] > 0.0).collect();
    let mut rates = vec![0.0; classes.len()];
    if let Some(top) = open.iter().map(|&c| alone[c]).reduce(f64::max) {
        let scale: Vec<f64> = open.iter().map(|&c| alone[c]).collect();
        let flows = open.iter().map(|&c| std::mem::take(&mut classes[c])).collect();
        let n = open.len();
        let (mut entries, mut right): (Entries, _) =
            limits(&Network { capacities: network.capacities.clone(), flows }, &scale);
        for f in 0..n {
            entries.push((right.len(), f, -1.0));
            right.push(0.0);
        }
        let cost: Vec<f64> = scale.iter().map(|scale| -scale / top).collect();
        let cones = [NonnegativeConeT(right.len())];
        let linear = CscMatrix::zeros((n, n));
        let found = solve(&linear, &cost, &matrix(&entries, right.len(), n), &right, &cones, FINE)?;
        for ((&c, x), scale) in open.iter().zip(found).zip(scale) {
            rates[c] = x.max(0.0) * scale;
        }
    }
    let part = |(flow, &c): (&crate::Flow, &usize)| rates[c] * flow.weight / weights[c];
    Ok(network.flows.iter().zip(&class_of).map(part).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::network::tests::networks;
    use crate::{Flow, max_min, proportional};

    fn near(found: &[f64], expected: &[f64]) {
        let all = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6 * b.max(1.0));
        assert!(found.len() == expected.len() && all, "{found:?}, not {expected:?}");
    }

    /// The overlay paper's scenario 3: nine tenths and more of ten megabits go to the short flows.
    #[test]
    fn a_flow_over_five_full_links_has_nothing() {
        let mut n = Network::new();
        let links: Vec<usize> = (0..5).map(|_| n.link(2.0)).collect();
        n.flow(links.clone());
        for link in links {
            n.flow([link]);
        }
        near(&max_throughput(&n).unwrap(), &[0.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    }

    /// The overlay paper's scenario 1 (1.977 and 0.992 Mb/s measured), and § VII with 85 % of each
    /// link for user data (1.495, 0.626 and 0.630 in its simulation).
    #[test]
    fn the_optimum_lies_over_the_papers_results() {
        let mut n = Network::new();
        let (wide, f, d) = (n.link(10.0), n.link(2.0), n.link(1.0));
        n.flow([wide, f]);
        n.flow([wide, d]);
        near(&max_throughput(&n).unwrap(), &[2.0, 1.0]);
        let mut n = Network::new();
        let (a, b) = (n.link(0.85 * 1.76), n.link(0.85 * 1.48));
        n.flow([a]);
        n.flow([b]);
        n.flow([b]);
        let found = max_throughput(&n).unwrap();
        near(&found, &[1.496, 0.629, 0.629]);
        assert!((found[0] / 1.495 - 1.0).abs() < 0.01 && (found[1] / 0.63 - 1.0).abs() < 0.01);
    }

    #[test]
    fn demands_and_links_without_capacity_count() {
        let mut n = Network::new();
        let (a, none) = (n.link(10.0), n.link(0.0));
        n.flow([a, none]);
        n.flows.push(Flow { links: vec![a], weight: 1.0, demand: 4.0 });
        n.flows.push(Flow { links: vec![a], weight: 3.0, demand: f64::INFINITY });
        n.flows.push(Flow { links: vec![a, a], weight: 1.0, demand: f64::INFINITY });
        near(&max_throughput(&n).unwrap()[..1], &[0.0]);
        assert!((max_throughput(&n).unwrap().iter().sum::<f64>() - 10.0).abs() < 1e-6);
        near(&max_throughput(&Network::new()).unwrap(), &[]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// No other allocation has more, and no link is over its capacity.
        #[test]
        fn no_allocation_has_a_larger_sum(n in networks()) {
            let rates = max_throughput(&n).unwrap();
            let sum: f64 = rates.iter().sum();
            for (load, capacity) in n.loads(&rates).iter().zip(&n.capacities) {
                prop_assert!(*load <= capacity * (1.0 + 1e-8));
            }
            prop_assert!(rates.iter().zip(&n.flows).all(|(rate, flow)| *rate <= flow.demand * (1.0 + 1e-8)));
            for other in [max_min(&n).unwrap(), proportional(&n).unwrap().rates] {
                prop_assert!(other.iter().sum::<f64>() <= sum * (1.0 + 1e-5));
            }
        }
    }
}
