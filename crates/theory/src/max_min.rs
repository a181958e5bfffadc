//! Weighted max–min fairness.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::{Flow, Network, NetworkError, network};

/// The weighted max–min fair rates, one per flow, by water-filling (Bertsekas & Gallager, *Data
/// Networks*, § 6.5.2).
///
/// All rates rise together in proportion to their weights. A flow stops when it has its demand, or
/// when a link of its route is full. The result is exact up to rounding.
///
/// The level at which a link fills only rises as flows stop below it. So the links wait in a heap
/// under levels that may be too low, and a level is brought up to date when its link comes first.
/// With routes of bounded length the cost is that of sorting links and flows.
///
/// # Errors
/// As [`Network::check`].
pub fn max_min(network: &Network) -> Result<Vec<f64>, NetworkError> {
    network.check()?;
    let mut filling = MaxMin::default();
    filling.rates(&network.capacities, &network.flows)?;
    Ok(filling.rates)
}

/// A solver for [`max_min()`] on many networks in turn, such as those of flows that come and go.
///
/// Memory is reused, and a link that no flow crosses costs one look at its capacity.
#[derive(Debug, Default)]
pub struct MaxMin {
    links: Vec<Filling>,
    /// The links that flows cross.
    crossed: Vec<usize>,
    /// The flows over each of those links, link after link.
    flows: Vec<usize>,
    events: BinaryHeap<Reverse<(Level, Event)>>,
    /// One rate per flow, NaN while it rises.
    rates: Vec<f64>,
    /// Number of events processed.
    #[cfg(test)]
    steps: usize,
}

/// A link as it fills.
#[derive(Clone, Debug, Default)]
struct Filling {
    free: f64,
    /// The weight of the rising flows over it, and their number.
    weight: f64,
    rising: usize,
    /// The range of [`MaxMin::flows`] that holds all flows over it.
    flows: Range<usize>,
}

impl MaxMin {
    /// The rates of `flows`, one each, over links of `capacities`.
    ///
    /// # Errors
    /// As [`Network::check`], for the flows and the links that they cross.
    pub fn rates(&mut self, capacities: &[f64], flows: &[impl Borrow<Flow>]) -> Result<&[f64], NetworkError> {
        self.lay_out(capacities, flows)?;
        let MaxMin { links, rates, .. } = self;
        let mut left = flows.len();
        let mut stop = |f: usize, rate: f64, links: &mut [Filling]| {
            if rates[f].is_nan() {
                rates[f] = rate;
                left -= 1;
                let flow = flows[f].borrow();
                for &l in &flow.links {
                    let link = &mut links[l];
                    link.free = (link.free - rate).max(0.0);
                    link.weight -= flow.weight;
                    link.rising -= 1;
                }
            }
            left > 0
        };
        // `lay_out` saw to it that each flow has a link or a demand, and each of those has its
        // event.
        while let Some(Reverse((level, event))) = self.events.pop() {
            #[cfg(test)]
            (self.steps += 1);
            let rise = match event {
                Event::Satisfied(f) => stop(f, flows[f].borrow().demand, links),
                Event::Full(l) if links[l].rising == 0 => continue,
                Event::Full(l) => {
                    // Subtraction leaves the sum of the weights a little off, never the count.
                    let Filling { free, weight, .. } = links[l];
                    let now = Level((free / weight.max(f64::MIN_POSITIVE)).max(level.0));
                    if now > level && now.0 > level.0 * (1.0 + 1e-14) {
                        self.events.push(Reverse((now, event)));
                        continue;
                    }
                    let over = &self.flows[links[l].flows.clone()];
                    over.iter().fold(true, |_, &f| stop(f, level.0 * flows[f].borrow().weight, links))
                }
            };
            if !rise {
                break;
            }
        }
        Ok(&self.rates)
    }

    /// Starts all flows at rate 0, and enqueues the first event of each link and demand.
    fn lay_out(&mut self, capacities: &[f64], flows: &[impl Borrow<Flow>]) -> Result<(), NetworkError> {
        let MaxMin { links, crossed, .. } = self;
        crossed.drain(..).for_each(|l| links[l] = Filling::default());
        links.resize(capacities.len(), Filling::default());
        for (f, flow) in flows.iter().map(Borrow::borrow).enumerate() {
            network::check_flow(capacities, f, flow)?;
            for &l in &flow.links {
                let link = &mut links[l];
                if link.rising == 0 {
                    network::check_link(capacities, l)?;
                    link.free = capacities[l];
                    crossed.push(l);
                }
                link.weight += flow.weight;
                link.rising += 1;
            }
        }
        let mut laid = 0;
        for &l in &*crossed {
            links[l].flows = laid..laid;
            laid += links[l].rising;
        }
        self.flows.clear();
        self.flows.resize(laid, 0);
        for (f, flow) in flows.iter().map(Borrow::borrow).enumerate() {
            for &l in &flow.links {
                let at = &mut links[l].flows.end;
                self.flows[*at] = f;
                *at += 1;
            }
        }
        self.rates.clear();
        self.rates.resize(flows.len(), f64::NAN);
        let mut events = std::mem::take(&mut self.events).into_vec();
        events.clear();
        let full = |&l: &usize| Reverse((Level(links[l].free / links[l].weight), Event::Full(l)));
        events.extend(crossed.iter().map(full));
        let asks = flows.iter().map(Borrow::borrow).enumerate().filter(|(_, flow)| flow.demand.is_finite());
        events.extend(asks.map(|(f, flow)| Reverse((Level(flow.demand / flow.weight), Event::Satisfied(f)))));
        self.events = BinaryHeap::from(events);
        Ok(())
    }
}

/// A rate per unit of weight, ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
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

/// An event that stops flows as the level rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    fn ten_thousand_flows_over_three_thousand_links_take_few_steps() {
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
        let mut filling = MaxMin::default();
        filling.rates(&n.capacities, &n.flows).unwrap();
        // A link comes up once, and once more for each time that its level turns out to have risen.
        assert!((1000..20_000).contains(&filling.steps), "{} steps", filling.steps);
    }

    proptest! {
        /// State of one network does not affect the next.
        #[test]
        fn one_after_another_is_as_each_alone(networks in prop::collection::vec(networks(), 2..5)) {
            let mut filling = MaxMin::default();
            for n in &networks {
                let flows: Vec<&Flow> = n.flows.iter().collect();
                let alone = max_min(n).unwrap();
                prop_assert_eq!(filling.rates(&n.capacities, &flows).unwrap(), &alone[..]);
                // A network with an error between them changes nothing either.
                prop_assert!(filling.rates(&[], &flows).is_err());
            }
        }

        /// Feasible, and every flow either has its demand or crosses a full link on which no rate
        /// per weight is larger: the bottleneck condition, which characterises max–min fairness.
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
