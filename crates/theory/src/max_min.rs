//! Weighted max–min fairness.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{Network, NetworkError};

/// The weighted max–min fair rates, one a flow, by water-filling (Bertsekas & Gallager, *Data Networks*, § 6.5.2): all
/// rates rise together in proportion to their weights; a flow stops when it has its demand or a link of its route is full.
///
/// Exact up to rounding. The level at which a link fills only rises as flows stop below it, so the links wait in a heap
/// under levels that may be out of date on the low side, and each is brought up to date when it comes up: with routes of
/// bounded length the time is that of sorting links and flows.
///
/// # Errors
/// As [`Network::check`].
pub fn max_min(network: &Network) -> Result<Vec<f64>, NetworkError> {
    network.check()?;
    let flows = &network.flows;
    let mut free = network.capacities.clone();
    let mut weight = vec![0.0; free.len()];
    let mut rising = vec![0_usize; free.len()];
    let mut on_link: Vec<Vec<usize>> = vec![Vec::new(); free.len()];
    for (f, flow) in flows.iter().enumerate() {
        for &l in &flow.links {
            weight[l] += flow.weight;
            rising[l] += 1;
            on_link[l].push(f);
        }
    }
    let mut events: BinaryHeap<Reverse<(Level, Event)>> = (0..free.len())
        .filter(|&l| rising[l] > 0)
        .map(|l| Reverse((Level(free[l] / weight[l]), Event::Full(l))))
        .chain(
            flows
                .iter()
                .enumerate()
                .filter(|(_, flow)| flow.demand.is_finite())
                .map(|(f, flow)| Reverse((Level(flow.demand / flow.weight), Event::Satisfied(f)))),
        )
        .collect();

    let mut rates: Vec<Option<f64>> = vec![None; flows.len()];
    let mut stop = |f: usize, rate: f64, free: &mut [f64], weight: &mut [f64], rising: &mut [usize]| {
        if rates[f].is_none() {
            rates[f] = Some(rate);
            for &l in &flows[f].links {
                free[l] = (free[l] - rate).max(0.0);
                weight[l] -= flows[f].weight;
                rising[l] -= 1;
            }
        }
    };
    while let Some(Reverse((level, event))) = events.pop() {
        match event {
            Event::Satisfied(f) => stop(f, flows[f].demand, &mut free, &mut weight, &mut rising),
            Event::Full(l) if rising[l] == 0 => {}
            Event::Full(l) => {
                // Subtraction leaves the sum of the weights a little off, never the count.
                let now = Level((free[l] / weight[l].max(f64::MIN_POSITIVE)).max(level.0));
                if now > level && now.0 > level.0 * (1.0 + 1e-14) {
                    events.push(Reverse((now, event)));
                    continue;
                }
                for &f in &on_link[l] {
                    stop(f, level.0 * flows[f].weight, &mut free, &mut weight, &mut rising);
                }
            }
        }
    }
    // `check` saw to it that each flow has a link or a demand, and each of those had its event.
    Ok(rates.into_iter().map(Option::unwrap_or_default).collect())
}

/// A rate per unit of weight, ordered.
#[derive(Clone, Copy, PartialEq)]
struct Level(f64);

impl Eq for Level {}

impl Ord for Level {
    fn cmp(&self, other: &Level) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Level) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What stops flows as the level rises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A flow has its demand.
    Satisfied(usize),
    /// A link is full.
    Full(usize),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::network::tests::networks;

    #[test]
    fn parking_lot() {
        let mut n = Network::new();
        let (a, b) = (n.link(10.0), n.link(4.0));
        n.flow([a, b]);
        n.flow([a]);
        n.flow([b]);
        assert_eq!(max_min(&n).unwrap(), [2.0, 8.0, 2.0]);
        n.flows[0].weight = 3.0;
        assert_eq!(max_min(&n).unwrap(), [3.0, 7.0, 1.0]);
        n.flows[1].demand = 5.0;
        assert_eq!(max_min(&n).unwrap(), [3.0, 5.0, 1.0]);
    }

    #[test]
    fn refuses_what_has_no_answer() {
        let mut n = Network::new();
        n.link(1.0);
        n.flow([1]);
        assert_eq!(max_min(&n), Err(NetworkError::NoSuchLink { flow: 0, link: 1, links: 1 }));
        n.flows[0].links.clear();
        assert_eq!(max_min(&n), Err(NetworkError::Unbounded { flow: 0 }));
        n.flows[0].demand = 3.0;
        assert_eq!(max_min(&n).unwrap(), [3.0]);
    }

    #[test]
    fn ten_thousand_flows_over_three_thousand_links_in_a_second() {
        let mut n = Network::new();
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for _ in 0..3000 {
            n.link(10.0 + random(1000) as f64);
        }
        for _ in 0..10_000 {
            let route: Vec<usize> = (0..6).map(|_| random(3000)).collect();
            n.flow(route);
        }
        let start = std::time::Instant::now();
        max_min(&n).unwrap();
        assert!(start.elapsed().as_secs_f64() < 1.0);
    }

    proptest! {
        /// Feasible, and every flow either has its demand or crosses a full link on which no rate per weight is larger:
        /// the bottleneck condition, which characterises max–min fairness.
        #[test]
        fn every_flow_has_its_demand_or_a_bottleneck(n in networks()) {
            let rates = max_min(&n).unwrap();
            let loads = n.loads(&rates);
            for (load, capacity) in loads.iter().zip(&n.capacities) {
                prop_assert!(*load <= capacity * (1.0 + 1e-9));
            }
            let level = |f: usize| rates[f] / n.flows[f].weight;
            for (f, flow) in n.flows.iter().enumerate() {
                prop_assert!(rates[f] <= flow.demand);
                let bottleneck = |l: usize| {
                    loads[l] >= n.capacities[l] * (1.0 - 1e-9)
                        && (0..n.flows.len())
                            .filter(|&g| n.flows[g].links.contains(&l))
                            .all(|g| level(g) <= level(f) * (1.0 + 1e-9))
                };
                prop_assert!(rates[f] == flow.demand || flow.links.iter().any(|&l| bottleneck(l)), "flow {f}: {rates:?}");
            }
        }
    }
}
