//! Fairness among sessions first, then among the flows of each session.

use std::collections::HashMap;

use crate::{Network, NetworkError};

/// The session-fair allocation, and the last change of its iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFair {
    /// One rate per flow.
    pub rates: Vec<f64>,
    /// The largest relative change of an offer in the last round; near 0 if the iteration
    /// converged.
    pub residual: f64,
}

/// Max–min fairness in two levels: sessions share links as single flows do, and the flows of a
/// session share its part by their weights.
///
/// `session[f]` is the session of flow f; any numbers will do.
///
/// It is the aim of a transport that splits one session over many members (the Anypoint-XCP paper,
/// on the fairness of Anypoint connections): the number of members does not change the share of a
/// session on a link that holds all of them. On each link, capacity that a flow cannot use goes to
/// the other flows of its session. Capacity that a whole session cannot use goes to the other
/// sessions. With one flow per session the result is [`max_min`](crate::max_min()) with weights
/// of 1.
///
/// Links cannot be settled one after the other: the rest that a session leaves on one link may
/// depend on links with larger shares. So each link's offers are computed from the offers of the
/// flows' other links, until nothing changes. That takes about as many rounds as there are levels
/// of rates.
///
/// # Errors
/// As [`Network::check`].
///
/// # Panics
/// `session` has not exactly one entry per flow.
pub fn session_fair(network: &Network, session: &[usize]) -> Result<SessionFair, NetworkError> {
    network.check()?;
    assert_eq!(session.len(), network.flows.len(), "a session for each flow");
    let mut links = links(network, session);
    // Each flow's crossings, as (link, session there, place in it).
    let mut crossings = vec![Vec::new(); network.flows.len()];
    for (l, link) in links.iter().enumerate() {
        for (s, part) in link.iter().enumerate() {
            for (m, member) in part.iter().enumerate() {
                crossings[member.flow].push((l, s, m));
            }
        }
    }
    let mut residual = f64::INFINITY;
    for _ in 0..MOST_ROUNDS {
        // The rate that each link may count on: the least offer of the other links, or the demand.
        for (flow, crossings) in network.flows.iter().zip(&crossings) {
            for &here in crossings {
                let others = crossings.iter().filter(|&&other| other != here);
                let offer = |&(l, s, m): &(usize, usize, usize)| links[l][s][m].offer;
                let least = others.map(offer).fold(flow.demand, f64::min);
                let (l, s, m) = here;
                links[l][s][m].elsewhere = least;
            }
        }
        residual = 0.0;
        for (parts, &capacity) in links.iter_mut().zip(&network.capacities) {
            let share = level(capacity, parts.iter().map(|part| (1.0, total(part))));
            for part in parts {
                let each = level(share, part.iter().map(|m| (m.weight, m.times * m.elsewhere)));
                for member in part {
                    let offer = each * member.weight / member.times;
                    // Half way: a link that gives more where others take less would swing between
                    // the two for ever.
                    let offer = if member.offer.is_finite() { 0.5 * (offer + member.offer) } else { offer };
                    let change = (offer - member.offer).abs() / offer.max(f64::MIN_POSITIVE);
                    residual = f64::max(residual, if member.offer == offer { 0.0 } else { change });
                    member.offer = offer;
                }
            }
        }
        if residual < SETTLED {
            break;
        }
    }
    let rate = |(flow, crossings): (&crate::Flow, &Vec<(usize, usize, usize)>)| {
        crossings.iter().map(|&(l, s, m)| links[l][s][m].offer).fold(flow.demand, f64::min)
    };
    Ok(SessionFair { rates: network.flows.iter().zip(&crossings).map(rate).collect(), residual })
}

/// A flow of a session, on one link.
struct SessionFlow {
    flow: usize,
    /// How often it crosses the link, and its weight there.
    times: f64,
    weight: f64,
    /// The rate it can use of this link, from its demand and the offers of its other links.
    elsewhere: f64,
    /// The offer of this link.
    offer: f64,
}

/// For each link, the sessions on it, each with its flows.
fn links(network: &Network, session: &[usize]) -> Vec<Vec<Vec<SessionFlow>>> {
    let mut links: Vec<Vec<Vec<SessionFlow>>> = network.capacities.iter().map(|_| Vec::new()).collect();
    let mut known: HashMap<(usize, usize), usize> = HashMap::new();
    for (f, flow) in network.flows.iter().enumerate() {
        for &l in &flow.links {
            let part = *known.entry((l, session[f])).or_insert_with(|| {
                links[l].push(Vec::new());
                links[l].len() - 1
            });
            let members = &mut links[l][part];
            match members.last_mut().filter(|last| last.flow == f) {
                Some(again) => {
                    again.times += 1.0;
                    again.weight += flow.weight;
                }
                None => members.push(SessionFlow {
                    flow: f,
                    times: 1.0,
                    weight: flow.weight,
                    elsewhere: f64::INFINITY,
                    offer: f64::INFINITY,
                }),
            }
        }
    }
    links
}

fn total(part: &[SessionFlow]) -> f64 {
    part.iter().map(|m| m.times * m.elsewhere).sum()
}

/// The level per weight at which takers of (weight, wanted rate) fill `capacity`. Where they want
/// less in total, the level left to the taker with the largest want per weight.
fn level(capacity: f64, takers: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut takers: Vec<(f64, f64)> = takers.collect();
    takers.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let mut weight: f64 = takers.iter().map(|t| t.0).sum();
    let mut free = capacity;
    for (i, &(w, want)) in takers.iter().enumerate() {
        if i + 1 == takers.len() || want / w >= free / weight {
            // Of the last one, what subtraction left of the sum is not its weight to the last bit.
            return free.max(0.0) / if i + 1 == takers.len() { w } else { weight };
        }
        free -= want;
        weight -= w;
    }
    capacity
}

/// A relative change of an offer below this is rounding.
const SETTLED: f64 = 1e-12;
/// Upper bound on rounds. Rates have few levels; this ends an iteration that never settles.
const MOST_ROUNDS: usize = 10_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::max_min;
    use crate::network::tests::networks;

    fn rates(n: &Network, session: &[usize]) -> Vec<f64> {
        session_fair(n, session).unwrap().rates
    }

    #[test]
    fn members_do_not_count() {
        // A session of nine members against one of one.
        let mut n = Network::new();
        let l = n.link(90.0);
        for _ in 0..10 {
            n.flow([l]);
        }
        let mut session = [0; 10];
        session[9] = 1;
        let rates = rates(&n, &session);
        assert!(
            rates[..9].iter().all(|r| (r - 5.0).abs() < 1e-9) && (rates[9] - 45.0).abs() < 1e-9,
            "{rates:?}"
        );
    }

    #[test]
    fn what_a_member_leaves_goes_to_its_session_first() {
        // Session 0 has two members, one of them behind a slow link; session 1 has one.
        let mut n = Network::new();
        let (shared, slow) = (n.link(60.0), n.link(5.0));
        n.flow([shared, slow]);
        n.flow([shared]);
        n.flow([shared]);
        let check = |n: &Network, expected: [f64; 3]| {
            let found = rates(n, &[0, 0, 1]);
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        };
        check(&n, [5.0, 25.0, 30.0]);
        // Both behind slow links: then the rest is the other session's.
        let slow = n.link(7.0);
        n.flows[1].links.push(slow);
        check(&n, [5.0, 7.0, 48.0]);
        // Weights count within a session.
        n.flows[1].links.pop();
        n.flows[0].links.pop();
        n.flows[0].weight = 2.0;
        check(&n, [20.0, 10.0, 30.0]);
        // A part that a session's only flow cannot use is left over even if the others' rates are
        // lower.
        n.flows[2].demand = 24.0;
        check(&n, [24.0, 12.0, 24.0]);
    }

    proptest! {
        #[test]
        fn a_session_a_flow_is_max_min(mut n in networks()) {
            n.flows.iter_mut().for_each(|f| f.weight = 1.0);
            let session: Vec<usize> = (0..n.flows.len()).collect();
            for (a, b) in rates(&n, &session).iter().zip(max_min(&n).unwrap()) {
                prop_assert!((a - b).abs() <= 1e-9 * b.max(1.0), "{a} {b}");
            }
        }

        /// Feasible; and each flow has its demand, or a full link on which no flow of its session
        /// has more by weight and no session more.
        #[test]
        fn every_flow_has_its_demand_or_a_bottleneck(n in networks(), of in prop::collection::vec(0..4_usize, 12)) {
            let session = &of[..n.flows.len()];
            let found = session_fair(&n, session).unwrap();
            prop_assert!(found.residual < 1e-9, "{}", found.residual);
            let rates = found.rates;
            let loads = n.loads(&rates);
            for (load, capacity) in loads.iter().zip(&n.capacities) {
                prop_assert!(*load <= capacity * (1.0 + 1e-9));
            }
            let on = |f: usize, l: usize| n.flows[f].links.contains(&l);
            let part = |s: usize, l: usize| -> f64 {
                (0..rates.len()).filter(|&g| session[g] == s && on(g, l)).map(|g| rates[g]).sum()
            };
            let level = |f: usize| rates[f] / n.flows[f].weight;
            for (f, flow) in n.flows.iter().enumerate() {
                let bottleneck = |&l: &usize| {
                    let mine = part(session[f], l);
                    loads[l] >= n.capacities[l] * (1.0 - 1e-9)
                        && (0..rates.len()).filter(|&g| on(g, l)).all(|g| {
                            if session[g] == session[f] {
                                level(g) <= level(f) * (1.0 + 1e-9)
                            } else {
                                part(session[g], l) <= mine * (1.0 + 1e-9)
                            }
                        })
                };
                prop_assert!(rates[f] == flow.demand || flow.links.iter().any(bottleneck), "flow {f}: {rates:?}");
            }
        }
    }
}
