//! XCP's equilibrium.

mod sessions;

pub use sessions::xcp_session_equilibrium;

use std::collections::HashMap;

use crate::{Network, NetworkError};

/// XCP's equilibrium in the fluid model.
#[derive(Clone, Debug, PartialEq)]
pub struct XcpEquilibrium {
    /// One rate per flow.
    pub rates: Vec<f64>,
    /// The link that limits each flow, the one of its route with the least offer; `None` for a flow
    /// that has its demand.
    pub limiting: Vec<Option<usize>>,
    /// The fastest relative change per control interval at the end: the distance from equilibrium.
    pub residual: f64,
}

/// The constants of one router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct XcpGains {
    /// α, the fraction of the spare capacity handed out per interval.
    pub alpha: f64,
    /// γ, the fraction of the traffic shuffled per interval.
    pub gamma: f64,
    /// Length of the control interval, which is the mean round trip of its flows. Any unit will do,
    /// since only ratios count; a value that is not positive and finite counts as 1.
    pub interval: f64,
}

impl Default for XcpGains {
    /// The constants of the XCP paper, 0.4 and 0.1, and intervals of one length.
    fn default() -> XcpGains {
        XcpGains { alpha: ALPHA, gamma: GAMMA, interval: 1.0 }
    }
}

/// The rates at which XCP's feedback is zero, from a fluid model of its router without the queue.
///
/// A link of capacity C with N flows and load y has F = α(C − y) to hand out and shuffles h =
/// max(0, γy − |F|). It offers a flow of rate x the change (h + F⁺) ∕ N − (h + F⁻)·x ∕ y, and each
/// flow follows the least offer of its route.
///
/// On one bottleneck the equilibrium is max–min fair. Where other links limit some flows of a link,
/// it stalls below its capacity, at a utilisation of at least α ∕ (α + γ) = 0.8 (Low, Andrew &
/// Wydrowski, *Understanding XCP: equilibrium and fairness*, INFOCOM 2005). `gains` has one entry
/// per link; links beyond its end have α = 0.4 and γ = 0.1. Weights are ignored; a demand caps its
/// flow.
///
/// **Cuts by an earlier link.** A packet may arrive with less than this link offers. The router
/// then draws the difference from the pool of decreases (the residue rule of ns-2.35 and of the
/// draft, § 5, which keeps the pools equal). That pool is empty before the control interval ends,
/// after a fraction θ = (h + F⁻) ∕ (h + F⁻ + Σ differences) of it; for the rest every packet is
/// offered (h + F⁺) ∕ N and gives nothing back.
///
/// So a link's offer has two values. The intervals of two links are not in step. So a flow that
/// crosses both gets the mean of the lesser offer, which is below the lesser mean offer. Intervals
/// also differ in length, so offers compare by the second. On a tree with two full links on one
/// route the effect is 10 % of a flow's rate. It is also why a flow gets more if its neighbours are
/// limited *before* the shared link than if they are limited behind it.
///
/// Flows with one route and one demand have one rate, and a link of a single flow acts as a demand.
/// So the cost is that of the *different* routes: a thousand flows over one bottleneck cost as much
/// as one.
///
/// # Errors
/// As [`Network::check`].
pub fn xcp_equilibrium(network: &Network, gains: &[XcpGains]) -> Result<XcpEquilibrium, NetworkError> {
    network.check()?;
    let gains = all_gains(network.capacities.len(), gains);
    let (classes, class_of) = classes(network, &gains);
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
    let mut offers = vec![Offer::default(); network.capacities.len()];
    let mut cut = vec![0.0; network.capacities.len()];
    let mut asks = Asks::default();
    let mut loads = vec![0.0; network.capacities.len()];
    let work = count.len() + classes.iter().map(|c| 1 + c.links.len()).sum::<usize>();
    for _ in 0..MAX_STEPS.min(MOST_WORK / work.max(1)) {
        loads.fill(0.0);
        for (class, rate) in classes.iter().zip(&rates) {
            class.links.iter().for_each(|&l| loads[l] += class.flows * rate);
        }
        for (l, offer) in offers.iter_mut().enumerate() {
            offer.renew(network.capacities[l], loads[l], count[l], gains[l], std::mem::take(&mut cut[l]));
        }
        residual = 0.0;
        for (rate, class) in rates.iter_mut().zip(&classes) {
            asks.begin();
            for (i, &l) in class.links.iter().enumerate() {
                class.caps_at(i).for_each(|cap| asks.cap(cap.offer(*rate)));
                let least = offers[l].gift - offers[l].tax * *rate;
                cut[l] += class.flows * asks.short_of(least);
                asks.meet(offers[l].taking, least, offers[l].gift);
            }
            class.caps_at(class.links.len()).for_each(|cap| asks.cap(cap.offer(*rate)));
            let next = (*rate + STEP * class.interval * asks.mean()).clamp(0.0, class.demand);
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
        let offer = |l: usize| offers[l].gift - offers[l].taking * offers[l].tax * rate;
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

/// The constants of every link; links beyond the end of `gains` have the defaults.
fn all_gains(links: usize, gains: &[XcpGains]) -> Vec<XcpGains> {
    (0..links)
        .map(|l| gains.get(l).copied().unwrap_or_default())
        .map(|gains| XcpGains { interval: sane(gains.interval), ..gains })
        .collect()
}

/// The interval, or 1 if it is not positive and finite.
fn sane(interval: f64) -> f64 {
    if interval > 0.0 && interval.is_finite() { interval } else { 1.0 }
}

/// A link's offer to a flow of rate x, per unit of time: `gift − tax · x` for a fraction `taking`
/// of its interval, and `gift` for the rest.
#[derive(Clone, Copy)]
struct Offer {
    gift: f64,
    tax: f64,
    taking: f64,
}

impl Default for Offer {
    fn default() -> Offer {
        Offer { gift: 0.0, tax: 0.0, taking: 1.0 }
    }
}

impl Offer {
    /// Computes the offer of the next step for a link with `count` flows, whose packets arrived
    /// with `cut` less than the last offer.
    #[inline]
    fn renew(&mut self, capacity: f64, load: f64, count: f64, gains: XcpGains, cut: f64) {
        let XcpGains { alpha, gamma, interval } = gains;
        let spare = alpha * (capacity - load);
        let shuffled = (gamma * load - spare.abs()).max(0.0);
        let taken = shuffled + (-spare).max(0.0);
        self.tax = if load > 0.0 { taken / load / interval } else { 0.0 };
        self.gift = (shuffled + spare.max(0.0)) / count.max(1.0) / interval;
        // Approached slowly, since it hangs on itself.
        let drawn = taken + interval * cut;
        let taking = if drawn > 0.0 { taken / drawn } else { 1.0 };
        self.taking += THETA_STEP * (taking - self.taking);
    }
}

/// The requests of a flow's packets on their way from link to link: values, and the fraction of the
/// packets that have each.
#[derive(Default)]
struct Asks {
    parts: Vec<(f64, f64)>,
}

impl Asks {
    /// Every packet requests the maximum.
    fn begin(&mut self) {
        self.parts.clear();
        self.parts.push((f64::INFINITY, 1.0));
    }

    /// The mean shortfall of the requests against `offer`.
    fn short_of(&self, offer: f64) -> f64 {
        self.parts.iter().map(|&(ask, part)| part * (offer - ask).max(0.0)).sum()
    }

    /// Limits every request to `most` from here on.
    fn cap(&mut self, most: f64) {
        self.meet(1.0, most, most);
    }

    /// A link gives at most `least` for a fraction `taking` of the time, and at most `most` for the
    /// rest.
    fn meet(&mut self, taking: f64, least: f64, most: f64) {
        let (mut at_least, mut at_most) = (0.0, 0.0);
        self.parts.retain_mut(|(ask, part)| {
            if *ask <= least {
                return true;
            }
            at_least += taking * *part;
            *part *= 1.0 - taking;
            if *ask >= most {
                at_most += *part;
                return false;
            }
            true
        });
        self.parts.extend([(least, at_least), (most, at_most)]);
        self.parts.retain(|&(_, part)| part > 0.0);
    }

    fn mean(&self) -> f64 {
        self.parts.iter().map(|&(ask, part)| ask * part).sum()
    }
}

/// Flows that XCP cannot distinguish.
struct Class {
    index: usize,
    /// Links shared with other classes.
    links: Vec<usize>,
    /// The flow's demand, or the rate that its private link admits.
    demand: f64,
    /// The bounds on its route, each lower than those before: private links, or else its demand.
    caps: Vec<Cap>,
    /// The private link of the first member that sets the demand; `None` if the flow itself does.
    private: Option<usize>,
    /// The shortest control interval of its route, which is the unit of its steps. The equilibrium
    /// does not depend on the speed of approach.
    interval: f64,
    /// Number of flows.
    flows: f64,
}

impl Class {
    /// The bounds that follow right after `crossed` of its links.
    fn caps_at(&self, crossed: usize) -> impl Iterator<Item = &Cap> {
        self.caps.iter().filter(move |cap| cap.crossed == crossed)
    }
}

/// The bound of a flow by its own demand or by a private link, which offers α(C − x) per interval.
#[derive(Clone, Copy, Debug)]
struct Cap {
    /// Number of shared links before it.
    crossed: usize,
    capacity: f64,
    /// α over the interval.
    gain: f64,
}

impl Cap {
    fn offer(&self, rate: f64) -> f64 {
        self.gain * (self.capacity - rate)
    }

    fn key(&self) -> (usize, u64, u64) {
        (self.crossed, self.capacity.to_bits(), self.gain.to_bits())
    }
}

/// The classes, and for each flow its class and the private link that limits it, if any. A private
/// link that always offers more than the others makes no class.
fn classes(network: &Network, gains: &[XcpGains]) -> (Vec<Class>, Vec<(usize, Option<usize>)>) {
    let mut users = vec![0_usize; network.capacities.len()];
    for flow in &network.flows {
        flow.links.iter().for_each(|&l| users[l] += 1);
    }
    let mut classes: Vec<Class> = Vec::new();
    let mut known = HashMap::new();
    let class_of = network.flows.iter().map(|flow| {
        let (mut demand, mut private, mut shortest) = (flow.demand, None, f64::INFINITY);
        let mut links = Vec::new();
        let mut caps: Vec<Cap> = Vec::new();
        // The rate that shared links leave it at most, and more than any of them offers.
        let (mut reach, mut most) = (f64::INFINITY, 0.0_f64);
        for &l in flow.links.iter().filter(|&&l| users[l] > 1) {
            let XcpGains { alpha, gamma, interval } = gains[l];
            reach = reach.min(network.capacities[l]);
            most = most.max(alpha.max(gamma) * network.capacities[l] / interval);
            shortest = shortest.min(interval);
        }
        for &l in &flow.links {
            let XcpGains { alpha, interval, .. } = gains[l];
            let gain = alpha / interval;
            if users[l] > 1 {
                links.push(l);
            } else if network.capacities[l] < demand && gain * (network.capacities[l] - reach) < most {
                (demand, private) = (network.capacities[l], Some(l));
                shortest = shortest.min(interval);
                let cap = Cap { crossed: links.len(), capacity: demand, gain };
                // The bounds before this one offer more, and nothing between them depends on them.
                while caps.last().is_some_and(|last| last.crossed == cap.crossed && last.gain >= gain) {
                    caps.pop();
                }
                caps.push(cap);
            }
        }
        let interval = sane(shortest);
        if private.is_none() && demand.is_finite() {
            caps.push(Cap { crossed: 0, capacity: demand, gain: ALPHA / interval });
        }
        let next = classes.len();
        let key = (links.clone(), caps.iter().map(Cap::key).collect::<Vec<_>>(), private.is_some());
        let class = *known.entry(key).or_insert(next);
        if class == next {
            classes.push(Class { index: next, links, demand, caps, private, interval, flows: 0.0 });
        }
        classes[class].flows += 1.0;
        (class, private)
    });
    let class_of = class_of.collect();
    (classes, class_of)
}

/// The queue in bytes that XCP keeps where the router is configured for more than the link's
/// capacity.
///
/// `configured` and `capacity` are in bytes per second, `rtt_s` is the flows' base RTT in seconds.
/// At equilibrium α(C′ − C) = β·Q ∕ d. The mean RTT d = rtt + Q ∕ C grows with the queue up to the
/// longest round trip that the router counts, 1 s (draft-falk-xcp-spec-03; β = 0.226). 0 where
/// `configured` is no more than `capacity`; NaN for a capacity that is not positive.
pub fn xcp_standing_queue(capacity: f64, configured: f64, rtt_s: f64) -> f64 {
    if capacity.is_nan() || capacity <= 0.0 {
        return f64::NAN;
    }
    let excess = ALPHA / BETA * (configured - capacity).max(0.0);
    let growing = if excess < capacity { excess * rtt_s / (1.0 - excess / capacity) } else { f64::INFINITY };
    growing.min(excess * MAX_INTERVAL_S)
}

/// Fraction of the spare capacity handed out per interval.
const ALPHA: f64 = 0.4;
/// Fraction of the persistent queue drained per interval.
const BETA: f64 = 0.226;
/// Fraction of the traffic shuffled per interval.
const GAMMA: f64 = 0.1;
/// The router's longest control interval in seconds; a longer round trip counts as this.
const MAX_INTERVAL_S: f64 = 1.0;
/// Integration step in control intervals.
const STEP: f64 = 0.02;
/// Fraction of the distance to its new value that θ moves in a step.
const THETA_STEP: f64 = 0.1;
/// A relative change per interval below this counts as equilibrium.
const STILL: f64 = 1e-9;
/// Upper bound on steps. An equilibrium takes thousands; this ends a model that never settles.
const MAX_STEPS: usize = 2_000_000;
/// Upper bound on link visits over all steps: a second or two.
const MOST_WORK: usize = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::max_min;

    #[test]
    fn stalls_where_others_are_held_later() {
        // One free flow and nine held by a later link of 10 on a link of 100: 71.87, not
        // max–min's 90.
        let mut n = Network::new();
        let (big, small) = (n.link(100.0), n.link(10.0));
        n.flow([big]);
        for _ in 0..9 {
            n.flow([big, small]);
        }
        let x = xcp_equilibrium(&n, &[]).unwrap();
        assert!((x.rates[0] - 71.87).abs() < 0.01, "{x:?}");
        assert!((max_min(&n).unwrap()[0] - 90.0).abs() < 1e-9);
        // The closed form: x = γy² ∕ (N(γy − α(C − y))).
        for (alpha, gamma) in [(0.4, 0.1), (0.4, 0.4), (0.1, 0.1)] {
            let x = xcp_equilibrium(&n, &[XcpGains { alpha, gamma, ..XcpGains::default() }]).unwrap();
            let y: f64 = x.rates.iter().sum();
            let closed = gamma * y * y / (10.0 * (gamma * y - alpha * (100.0 - y)));
            assert!((x.rates[0] - closed).abs() < 1e-4, "{alpha} {gamma}: {x:?}");
            // Simulated, the others have 71.67, 43.42 and 43.11.
            assert!((gamma / alpha < 0.9) || (x.rates[0] - 43.3).abs() < 0.5, "{x:?}");
        }
    }

    /// ns-2.35 has 75.9 here, where without the residue rule it would be 71.87 as above.
    #[test]
    fn stalls_less_where_others_are_held_before() {
        let mut n = Network::new();
        let (small, big) = (n.link(10.0), n.link(100.0));
        n.flow([big]);
        for _ in 0..9 {
            n.flow([small, big]);
        }
        let x = xcp_equilibrium(&n, &[]).unwrap();
        assert!((x.rates[0] / 75.9 - 1.0).abs() < 0.01, "{x:?}");
        // The same if a private link limits each.
        let mut n = Network::new();
        let big = n.link(100.0);
        n.flow([big]);
        for _ in 0..9 {
            let own = n.link(10.0 / 9.0);
            n.flow([own, big]);
        }
        let own = xcp_equilibrium(&n, &[]).unwrap();
        assert!((own.rates[0] / x.rates[0] - 1.0).abs() < 1e-3, "{own:?} {x:?}");
    }

    /// A tree whose middle flow crosses two full links: as measured in 150 s of simulation, 8.95 of
    /// 49.6 Mb/s, where the others of that link have 10.0 and the least offer, if it were steady,
    /// would leave it 9.95.
    #[test]
    fn a_flow_over_two_full_links_has_less() {
        let mut n = Network::new();
        let up = [49.6, 14.7, 21.6].map(|c| n.link(c));
        n.flow([up[2]]);
        n.flow([up[2], up[0]]);
        for _ in 0..3 {
            n.flow([up[0]]);
        }
        n.flow([up[1]]);
        n.flow([up[1], up[0]]);
        n.flow([up[1], up[0]]);
        let x = xcp_equilibrium(&n, &[]).unwrap();
        for (flow, rate) in [(0, 11.97), (1, 8.95), (2, 10.02), (5, 4.86), (6, 4.86)] {
            assert!((x.rates[flow] / rate - 1.0).abs() < 0.02, "{flow} {x:?}");
        }
    }

    /// A private link cuts requests even if a later private link limits the flow: network 700560 of
    /// `tollway verify`. In two minutes of simulation the free flow has 78.1 Mb/s.
    #[test]
    fn a_link_that_nearly_holds_a_flow_counts() {
        let free = |before: f64| {
            let mut n = Network::new();
            let (first, shared, last) = (n.link(before), n.link(99.8), n.link(17.9));
            n.flow([shared]);
            n.flow([first, shared, last]);
            let x = xcp_equilibrium(&n, &[]).unwrap();
            assert!((x.rates[1] - 17.9).abs() < 1e-6 && x.limiting[1] == Some(last), "{x:?}");
            x.rates[0]
        };
        assert!((free(18.3) / 78.1 - 1.0).abs() < 0.005, "{}", free(18.3));
        // One with room to spare leaves the flow to ask for all it is offered.
        assert!((free(50.0) - 73.29).abs() < 0.01, "{}", free(50.0));
        // Its own router's α is what it offers by.
        let mut n = Network::new();
        let (first, shared, last) = (n.link(18.3), n.link(99.8), n.link(17.9));
        n.flow([shared]);
        n.flow([first, shared, last]);
        let eager = XcpGains { alpha: 40.0, ..XcpGains::default() };
        let x = xcp_equilibrium(&n, &[eager]).unwrap();
        assert!((x.rates[0] - 73.29).abs() < 0.01, "{x:?}");
    }

    /// Network 870 of `tollway verify`, whose links have intervals of 113, 50.5 and 40.2 ms. In 120
    /// s of simulation with packets of 150 B the flow over two full links has 16.08 Mb/s; with
    /// intervals of one length it would be 17.2.
    #[test]
    fn offers_compare_by_the_second() {
        let mut n = Network::new();
        let up = [71.8, 70.7, 20.7].map(|c| n.link(c));
        for _ in 0..2 {
            n.flow([up[1]]);
            n.flow([up[0]]);
            n.flow([up[2]]);
        }
        for _ in 0..3 {
            n.flow([up[2], up[1]]);
        }
        let over_two = n.flow([up[1], up[0]]);
        let with = |intervals: [f64; 3]| {
            let gains = intervals.map(|interval| XcpGains { interval, ..XcpGains::default() });
            xcp_equilibrium(&n, &gains).unwrap().rates
        };
        let rates = with([113.0, 50.5, 40.2]);
        for (flow, rate) in [(over_two, 16.08), (0, 19.58), (1, 27.585), (2, 4.136)] {
            assert!((rates[flow] / rate - 1.0).abs() < 0.003, "{flow} {rates:?}");
        }
        // The unit does not matter, and an invalid length counts as 1.
        let other = with([0.113, 0.0505, 0.0402]);
        assert!(rates.iter().zip(&other).all(|(a, b)| (a / b - 1.0).abs() < 1e-6), "{rates:?} {other:?}");
        assert_eq!(with([1.0; 3]), with([f64::NAN, 0.0, f64::INFINITY]));
        assert!((with([1.0; 3])[over_two] - 17.22).abs() < 0.01);
    }

    #[test]
    fn says_what_holds_each_flow() {
        let mut n = Network::new();
        let (own, shared) = (n.link(1.0), n.link(10.0));
        n.flow([own, shared]);
        n.flow([shared]);
        let limited = n.flow([shared]);
        n.flows[limited].demand = 2.0;
        let x = xcp_equilibrium(&n, &[]).unwrap();
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
        let x = xcp_equilibrium(&n, &[]).unwrap();
        let mut few = Network::new();
        let (shared, far) = (few.link(0.2), few.link(0.06));
        few.flow([shared]);
        few.flow([shared, far]);
        let few_rates = xcp_equilibrium(&few, &[]).unwrap().rates;
        assert!(
            (x.rates[0] / few_rates[0] - 1.0).abs() < 1e-6 && (x.rates[1] / few_rates[1] - 1.0).abs() < 1e-6
        );
    }

    /// However different their round trips, over wide links of their own.
    #[test]
    fn wide_links_make_no_classes() {
        let (mut n, mut gains) = (Network::new(), Vec::new());
        let shared = n.link(100.0);
        gains.push(XcpGains { interval: 0.1, ..XcpGains::default() });
        for i in 0..100 {
            let own = n.link(1000.0);
            gains.push(XcpGains { interval: 0.05 + 0.001 * f64::from(i), ..XcpGains::default() });
            n.flow([own, shared]);
        }
        assert_eq!(classes(&n, &gains).0.len(), 1);
        let x = xcp_equilibrium(&n, &gains).unwrap();
        assert!((x.rates[7] - 1.0).abs() < 1e-4 && x.limiting[7] == Some(shared), "{x:?}");
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
        // A round trip of 1.5 s counts as 1 s: simulated, 219 to 225 kB.
        assert!((xcp_standing_queue(1.25e6, 1.375e6, 1.5) - 221_239.0).abs() < 1.0);
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
            for rate in xcp_equilibrium(&n, &[]).unwrap().rates {
                prop_assert!((rate * flows as f64 / capacity - 1.0).abs() < 1e-4);
            }
        }
    }
}
