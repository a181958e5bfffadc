//! Where XCP comes to rest.

use std::collections::HashMap;

use crate::{Network, NetworkError};

/// XCP's resting point in the fluid model.
#[derive(Clone, Debug, PartialEq)]
pub struct XcpEquilibrium {
    /// A rate a flow.
    pub rates: Vec<f64>,
    /// The link that holds each flow back, the one of its route that offers it least; `None` for a flow at its demand.
    pub limiting: Vec<Option<usize>>,
    /// The fastest relative change still going on, per control interval: how far from rest the model was when it stopped.
    pub residual: f64,
}

/// The rates at which XCP's feedback comes to nothing, from a fluid model of its router with the queue left out.
///
/// A link of capacity C with N flows and load y has F = α(C − y) to hand out and shuffles h = max(0, γy − |F|). It offers
/// a flow of rate x the change (h + F⁺) ∕ N − (h + F⁻)·x ∕ y, and each flow follows the least offer of its route. On one
/// bottleneck the resting point is max–min; where other flows of a link are held elsewhere the link stalls short of its
/// capacity, at a utilisation of no less than α ∕ (α + γ) = 0.8 (the phenomenon is Low, Andrew & Wydrowski's,
/// *Understanding XCP: equilibrium and fairness*, INFOCOM 2005; α = 0.4 and γ = 0.1 are XCP's own). Weights have no
/// meaning here and are ignored; a demand caps its flow.
///
/// Flows of one route and one demand have one rate, and a link of a single flow is a demand by another name, so that the
/// time taken is that of the *different* routes: a thousand flows over one bottleneck are one.
///
/// # Errors
/// As [`Network::check`].
pub fn xcp_equilibrium(network: &Network) -> Result<XcpEquilibrium, NetworkError> {
    network.check()?;
    let (classes, class_of) = classes(network);
    let mut count = vec![0.0; network.capacities.len()];
    for class in &classes {
        class.links.iter().for_each(|&l| count[l] += class.flows);
    }
    // Half of an equal share: below every resting point on one link, and positive.
    let mut rates: Vec<f64> = classes
        .iter()
        .map(|c| c.links.iter().map(|&l| 0.5 * network.capacities[l] / count[l]).fold(c.demand, f64::min))
        .collect();
    let mut residual = f64::INFINITY;
    // What a link offers a flow of rate x is `gift − tax · x`.
    let mut offers = vec![(0.0, 0.0); network.capacities.len()];
    let mut loads = vec![0.0; network.capacities.len()];
    let work = count.len() + classes.iter().map(|c| 1 + c.links.len()).sum::<usize>();
    for _ in 0..MAX_STEPS.min(MOST_WORK / work.max(1)) {
        loads.fill(0.0);
        for (class, rate) in classes.iter().zip(&rates) {
            class.links.iter().for_each(|&l| loads[l] += class.flows * rate);
        }
        for (l, offer) in offers.iter_mut().enumerate() {
            let (capacity, load) = (network.capacities[l], loads[l]);
            let spare = ALPHA * (capacity - load);
            let shuffled = (GAMMA * load - spare.abs()).max(0.0);
            let tax = if load > 0.0 { (shuffled + (-spare).max(0.0)) / load } else { 0.0 };
            *offer = ((shuffled + spare.max(0.0)) / count[l].max(1.0), tax);
        }
        residual = 0.0;
        for (rate, class) in rates.iter_mut().zip(&classes) {
            let least = |least: f64, &l: &usize| least.min(offers[l].0 - offers[l].1 * *rate);
            let change = class.links.iter().fold(f64::INFINITY, least);
            let next = (*rate + STEP * change).clamp(0.0, class.demand);
            if next > 0.0 {
                residual = f64::max(residual, (next - *rate).abs() / (STEP * next));
            }
            *rate = next;
        }
        if residual < STILL {
            break;
        }
    }
    let limiting = |class: &Class| {
        let rate = rates[class.index];
        if rate >= class.demand * (1.0 - 1e-6) {
            return class.private;
        }
        let offer = |l: usize| offers[l].0 - offers[l].1 * rate;
        class.links.iter().copied().min_by(|&a, &b| offer(a).total_cmp(&offer(b)))
    };
    let limits: Vec<Option<usize>> = classes.iter().map(limiting).collect();
    Ok(XcpEquilibrium {
        rates: class_of.iter().map(|&(class, _)| rates[class]).collect(),
        limiting: class_of
            .iter()
            .map(
                |&(class, private)| {
                    if limits[class] == classes[class].private { private } else { limits[class] }
                },
            )
            .collect(),
        residual,
    })
}

/// Flows that XCP cannot tell apart.
struct Class {
    index: usize,
    /// Links that others use too.
    links: Vec<usize>,
    /// What the flow asks for, or what a link of its own lets through.
    demand: f64,
    /// The link of the first member that the demand comes from; `None` if it is the flow's.
    private: Option<usize>,
    /// How many they are.
    flows: f64,
}

/// The classes, and for each flow its class and the link of its own that bounds it, if any does.
fn classes(network: &Network) -> (Vec<Class>, Vec<(usize, Option<usize>)>) {
    let mut users = vec![0_usize; network.capacities.len()];
    for flow in &network.flows {
        flow.links.iter().for_each(|&l| users[l] += 1);
    }
    let mut classes: Vec<Class> = Vec::new();
    let mut known: HashMap<(Vec<usize>, u64, bool), usize> = HashMap::new();
    let class_of = network.flows.iter().map(|flow| {
        let own = flow.links.iter().copied().filter(|&l| users[l] == 1);
        let tightest = own.min_by(|&a, &b| network.capacities[a].total_cmp(&network.capacities[b]));
        let private = tightest.filter(|&l| network.capacities[l] < flow.demand);
        let demand = private.map_or(flow.demand, |l| network.capacities[l]);
        let links: Vec<usize> = flow.links.iter().copied().filter(|&l| users[l] > 1).collect();
        let next = classes.len();
        let class = *known.entry((links.clone(), demand.to_bits(), private.is_some())).or_insert(next);
        if class == next {
            classes.push(Class { index: next, links, demand, private, flows: 0.0 });
        }
        classes[class].flows += 1.0;
        (class, private)
    });
    let class_of = class_of.collect();
    (classes, class_of)
}

/// The queue in bytes that XCP keeps where the router believes in `configured` but the link moves `capacity`, both in
/// bytes a second, with the flows' base RTT of `rtt_s` seconds.
///
/// At rest α(C′ − C) = β·Q ∕ d, where the mean RTT d = rtt + Q ∕ C grows with the queue until the router's longest
/// interval, 1 s in the draft, bounds it (draft-falk-xcp-spec-03; β = 0.226). 0 where nothing is overstated; NaN for
/// a capacity that is not positive.
pub fn xcp_standing_queue(capacity: f64, configured: f64, rtt_s: f64) -> f64 {
    if capacity.is_nan() || capacity <= 0.0 {
        return f64::NAN;
    }
    let excess = ALPHA / BETA * (configured - capacity).max(0.0);
    let growing = if excess < capacity { excess * rtt_s / (1.0 - excess / capacity) } else { f64::INFINITY };
    growing.min(excess * MAX_INTERVAL_S.max(rtt_s))
}

/// Part of the spare capacity handed out an interval.
const ALPHA: f64 = 0.4;
/// Part of the persistent queue drained an interval.
const BETA: f64 = 0.226;
/// Part of the traffic shuffled an interval.
const GAMMA: f64 = 0.1;
/// The router's longest control interval in seconds.
const MAX_INTERVAL_S: f64 = 1.0;
/// Integration step in control intervals.
const STEP: f64 = 0.02;
/// Change per interval that counts as rest.
const STILL: f64 = 1e-9;
/// Rest is reached in thousands of steps; this bounds what never rests.
const MAX_STEPS: usize = 2_000_000;
/// Links and crossings looked at, all steps together: a second or two.
const MOST_WORK: usize = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::max_min;

    #[test]
    fn stalls_where_others_are_held_later() {
        // One free flow and nine held by a later link of 10 on a link of 100: 71.87, not max–min's 90.
        let mut n = Network::new();
        let (big, small) = (n.link(100.0), n.link(10.0));
        n.flow([big]);
        for _ in 0..9 {
            n.flow([big, small]);
        }
        let x = xcp_equilibrium(&n).unwrap();
        assert!((x.rates[0] - 71.87).abs() < 0.01, "{x:?}");
        assert!((max_min(&n).unwrap()[0] - 90.0).abs() < 1e-9);
        // The closed form: x = γy² ∕ (N(γy − α(C − y))).
        let y: f64 = x.rates.iter().sum();
        assert!((x.rates[0] - 0.1 * y * y / (10.0 * (0.1 * y - 0.4 * (100.0 - y)))).abs() < 1e-4);
    }

    #[test]
    fn says_what_holds_each_flow() {
        let mut n = Network::new();
        let (own, shared) = (n.link(1.0), n.link(10.0));
        n.flow([own, shared]);
        n.flow([shared]);
        let limited = n.flow([shared]);
        n.flows[limited].demand = 2.0;
        let x = xcp_equilibrium(&n).unwrap();
        assert_eq!(x.limiting, [Some(own), Some(shared), None]);
        assert!((x.rates[0] - 1.0).abs() < 1e-6 && (x.rates[2] - 2.0).abs() < 1e-6, "{x:?}");
    }

    /// Flows in classes give what flows one by one give.
    #[test]
    fn a_thousand_flows_at_once() {
        let mut n = Network::new();
        let (shared, far) = (n.link(100.0), n.link(30.0));
        for i in 0..1000 {
            let own = n.link(1.0);
            n.flow(if i % 2 == 0 { vec![own, shared] } else { vec![own, shared, far] });
        }
        let start = std::time::Instant::now();
        let x = xcp_equilibrium(&n).unwrap();
        assert!(start.elapsed().as_secs_f64() < 1.0);
        let mut few = Network::new();
        let (shared, far) = (few.link(0.2), few.link(0.06));
        few.flow([shared]);
        few.flow([shared, far]);
        let few_rates = xcp_equilibrium(&few).unwrap().rates;
        assert!(
            (x.rates[0] / few_rates[0] - 1.0).abs() < 1e-6 && (x.rates[1] / few_rates[1] - 1.0).abs() < 1e-6
        );
    }

    #[test]
    fn standing_queues_of_a_misstated_capacity() {
        // As measured with ns-2.35 to 0.2 %: 10 Mb/s, 500 ms, believed to be 11, 12, 14, 18.
        for (configured, bytes) in
            [(11.0, 134_409.0), (12.0, 342_466.0), (14.0, 884_956.0), (18.0, 1_769_912.0)]
        {
            let queue = xcp_standing_queue(1.25e6, configured * 1.25e5, 0.5);
            assert!((queue / bytes - 1.0).abs() < 1e-5, "{configured}: {queue}");
        }
        assert_eq!(xcp_standing_queue(1.25e6, 1e6, 0.5), 0.0);
        assert!(xcp_standing_queue(0.0, 1e6, 0.5).is_nan());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn one_bottleneck_is_shared_equally(capacity in 1.0..1000.0, flows in 1..20_usize) {
            let mut n = Network::new();
            let l = n.link(capacity);
            for _ in 0..flows {
                n.flow([l]);
            }
            for rate in xcp_equilibrium(&n).unwrap().rates {
                prop_assert!((rate * flows as f64 / capacity - 1.0).abs() < 1e-4);
            }
        }
    }
}
