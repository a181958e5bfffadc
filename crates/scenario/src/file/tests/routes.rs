//! Routes, compared with those of a simple, slow search.

use std::sync::Arc;

use compact_str::CompactString;
use proptest::prelude::*;
use tollway_law::{Rate, Time};

use super::{BASE, plan};
use crate::file::route::Router;
use crate::plan::*;

fn link(from: u32, to: u32, delay: u64) -> Link {
    let shared = LinkSection {
        section: "".into(),
        direction: Direction::Forward,
        rate: Rate::from_mbps(1.0),
        trace: None,
        overhead: 0,
        capacity: Rate::from_mbps(1.0),
        medium: None,
        loss: 0.0,
        impairments: None,
        meter: None,
        exchange: None,
    };
    Link {
        name: CompactString::default(),
        from: NodeId(from),
        to: NodeId(to),
        twin: None,
        delay: Time(delay),
        law: Arc::new(LinkLaw::none()),
        shared: Arc::new(shared),
    }
}

/// Relaxes every link until no distance to `to` changes, then takes the first best link at each
/// node.
fn naive(nodes: u32, links: &[Link], from: u32, to: u32) -> Vec<LinkId> {
    let mut best = vec![(u64::MAX, 0u64); nodes as usize];
    best[to as usize] = (0, 0);
    loop {
        let mut changed = false;
        for l in links {
            let (hops, delay) = best[l.to.0 as usize];
            if hops != u64::MAX && (hops + 1, delay + l.delay.0) < best[l.from.0 as usize] {
                best[l.from.0 as usize] = (hops + 1, delay + l.delay.0);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let (mut at, mut route) = (from, Vec::new());
    while at != to && best[from as usize].0 != u64::MAX {
        let (hops, delay) = best[at as usize];
        let next = links.iter().position(|l| {
            let (h, d) = best[l.to.0 as usize];
            l.from.0 == at && h != u64::MAX && h + 1 == hops && d + l.delay.0 == delay
        });
        route.push(LinkId(next.unwrap() as u32));
        at = links[next.unwrap()].to.0;
    }
    route
}

proptest! {
    #[test]
    fn routes_equal_the_naive_ones(
        nodes in 2u32..9,
        raw in prop::collection::vec((0u32..9, 0u32..9, 0u64..3, any::<bool>()), 0..24),
        leaves in 0u32..4,
    ) {
        let mut links = Vec::new();
        for (a, b, delay, duplex) in raw {
            let (a, b) = (a % nodes, b % nodes);
            if a != b {
                links.push(link(a, b, delay));
                if duplex {
                    links.push(link(b, a, delay));
                }
            }
        }
        for leaf in 0..leaves {
            links.push(link(nodes + leaf, leaf % nodes, 1));
            links.push(link(leaf % nodes, nodes + leaf, 1));
        }
        let nodes = nodes + leaves;
        let requests: Vec<_> =
            (0..nodes).flat_map(|a| (0..nodes).map(move |b| (NodeId(a), NodeId(b)))).collect();
        let routes = Router::new(nodes as usize, &links).routes(&requests);
        for (&(from, to), route) in requests.iter().zip(&routes) {
            prop_assert_eq!(route, &naive(nodes, &links, from.0, to.0), "{:?} to {:?}", from, to);
        }
    }
}

#[test]
fn parallel_links_go_by_delay_then_order() {
    let links = [link(0, 1, 5), link(0, 1, 3), link(0, 1, 3), link(1, 0, 0)];
    let routes = Router::new(2, &links).routes(&[(NodeId(0), NodeId(1)), (NodeId(1), NodeId(1))]);
    assert_eq!(routes, [vec![LinkId(1)], vec![]]);
}

/// A dumbbell of `n` flows, each between its own two hosts.
fn dumbbell(n: u32) -> String {
    let pairs = BASE.replace("count = 4", &format!("count = {n}"));
    pairs.replace("to = \"d\"\nlaw", "to = \"e\"\nlaw")
        + &format!("[node.e]\ncount = {n}\n[link.exit]\nfrom = \"d\"\nto = \"e\"\nrate = \"1 Gbps\"\n")
}

#[test]
fn large_dumbbells_are_resolved_whole() {
    for n in [1000, 100_000] {
        let p = plan(&dumbbell(n), &["link.bottleneck.limit=1 BDP"]);
        assert_eq!(p.flows.len(), n as usize);
        assert_eq!(p.flows[n as usize - 1].path.route.len(), 3);
    }
}
