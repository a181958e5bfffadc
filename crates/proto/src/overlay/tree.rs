//! Shortest-path trees (§ III: "Routing in Spread is based on shortest-path multicast trees rooted
//! at each daemon").

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::frame::{LinkCost, LinkState};
use super::state::Database;
use super::{DaemonId, Epoch, Incarnation};

/// Daemons and the links between them, as all of them know these once the network is at rest.
#[derive(Debug)]
pub struct Topology(Database);

impl Topology {
    /// The ends and the length of each link.
    pub fn new(links: impl IntoIterator<Item = (DaemonId, DaemonId, u16)>) -> Topology {
        let mut out: BTreeMap<DaemonId, BTreeMap<DaemonId, u16>> = BTreeMap::new();
        for (a, b, weight) in links {
            out.entry(a).or_default().insert(b, weight);
            out.entry(b).or_default().insert(a, weight);
        }
        let mut database = Database::default();
        for (daemon, peers) in out {
            let link = |(peer, weight)| LinkCost { peer, weight, cost: 0.0, lot: 1.0 };
            let links = peers.into_iter().map(link).collect();
            let origin = Incarnation { daemon, epoch: Epoch(1) };
            database.put(Arc::new(LinkState { origin, number: 1, base: 1, links, hops: Vec::new() }));
        }
        Topology(database)
    }

    /// The links of the tree from a daemon to others, each once, as (from, to).
    pub fn tree(&self, root: DaemonId, to: impl IntoIterator<Item = DaemonId>) -> Vec<(DaemonId, DaemonId)> {
        Routes::compute(root, &self.0).tree(to.into_iter())
    }
}

/// The shortest paths from one daemon to all others.
///
/// Each link's length has a tail made of its ends' names. So no two paths are of one length, every
/// part of a shortest path is the shortest between its ends, and all daemons that know the same
/// links agree on every tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    /// Reachable daemons, ascending, with the daemon before each and the first on the way to each.
    nodes: Vec<(DaemonId, DaemonId, DaemonId)>,
}

impl Routes {
    pub(super) fn compute(root: DaemonId, database: &Database) -> Routes {
        let ids: Vec<DaemonId> = database.daemons().collect();
        let index = |daemon: DaemonId| ids.binary_search(&daemon).ok();
        let Some(start) = index(root) else { return Routes::default() };
        let mut distance = vec![u64::MAX; ids.len()];
        let mut before = vec![start; ids.len()];
        let mut first = vec![start; ids.len()];
        let mut done = vec![false; ids.len()];
        let mut heap = BinaryHeap::from([Reverse((0, start))]);
        distance[start] = 0;
        while let Some(Reverse((length, at))) = heap.pop() {
            if std::mem::replace(&mut done[at], true) {
                continue;
            }
            let Some(known) = database.get(ids[at]) else { continue };
            for link in &known.whole.links {
                let Some(to) = index(link.peer) else { continue };
                let longer = length + (u64::from(link.weight) << 32) + tail(ids[at], link.peer);
                if longer < distance[to] && database.link(ids[at], link.peer).is_some() {
                    distance[to] = longer;
                    before[to] = at;
                    first[to] = if at == start { to } else { first[at] };
                    heap.push(Reverse((longer, to)));
                }
            }
        }
        let reached = (0..ids.len()).filter(|&at| done[at]);
        Routes { nodes: reached.map(|at| (ids[at], ids[before[at]], ids[first[at]])).collect() }
    }

    fn node(&self, daemon: DaemonId) -> Option<(DaemonId, DaemonId)> {
        let at = self.nodes.binary_search_by_key(&daemon, |node| node.0).ok()?;
        Some((self.nodes[at].1, self.nodes[at].2))
    }

    pub(super) fn reaches(&self, daemon: DaemonId) -> bool {
        self.node(daemon).is_some()
    }

    /// Reachable daemons, this one with them, ascending.
    pub(super) fn reachable(&self) -> impl Iterator<Item = DaemonId> + '_ {
        self.nodes.iter().map(|node| node.0)
    }

    /// The neighbour on the way to a daemon.
    pub(super) fn next_hop(&self, daemon: DaemonId) -> Option<DaemonId> {
        self.node(daemon).map(|(_, first)| first)
    }

    /// The links of the tree to some daemons, each once, as (from, to).
    pub(super) fn tree(&self, to: impl Iterator<Item = DaemonId>) -> Vec<(DaemonId, DaemonId)> {
        let mut links = Vec::new();
        for mut at in to {
            while let Some((before, _)) = self.node(at).filter(|&(before, _)| before != at) {
                links.push((before, at));
                at = before;
            }
        }
        links.sort_unstable();
        links.dedup();
        links
    }
}

/// 20 bits that the ends of a link agree on: a thousand of them make less than one unit of weight.
fn tail(a: DaemonId, b: DaemonId) -> u64 {
    let mut z = (u64::from(a.0.min(b.0)) << 32 | u64::from(a.0.max(b.0))).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) >> 44
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(links: &[(u32, u32, u16)]) -> Database {
        Topology::new(links.iter().map(|&(a, b, weight)| (DaemonId(a), DaemonId(b), weight))).0
    }

    #[test]
    fn weights_choose_the_path_and_a_tree_has_each_link_once() {
        let database = database(&[(0, 1, 1), (1, 2, 1), (1, 3, 1), (0, 3, 5), (4, 5, 1)]);
        let routes = Routes::compute(DaemonId(0), &database);
        assert_eq!(routes.next_hop(DaemonId(3)), Some(DaemonId(1)));
        assert!(!routes.reaches(DaemonId(4)));
        let tree = routes.tree([2, 3].map(DaemonId).into_iter());
        assert_eq!(tree, [(0, 1), (1, 2), (1, 3)].map(|(a, b)| (DaemonId(a), DaemonId(b))));
    }

    #[test]
    fn a_link_that_one_end_states_is_none() {
        let mut database = database(&[(0, 1, 1), (1, 2, 1)]);
        let state = LinkState {
            links: Vec::new(),
            number: 2,
            base: 2,
            ..(*database.get(DaemonId(2)).unwrap().last).clone()
        };
        database.put(Arc::new(state));
        assert!(!Routes::compute(DaemonId(0), &database).reaches(DaemonId(2)));
    }

    /// On a grid with all weights equal every daemon forwards along the origin's tree.
    #[test]
    fn all_daemons_agree_on_every_tree() {
        let at = |x: u32, y: u32| x * 5 + y;
        let right = (0..4).flat_map(|x| (0..5).map(move |y| (at(x, y), at(x + 1, y), 1)));
        let up = (0..5).flat_map(|x| (0..4).map(move |y| (at(x, y), at(x, y + 1), 1)));
        let database = database(&right.chain(up).collect::<Vec<_>>());
        let routes: Vec<Routes> = (0..25).map(|id| Routes::compute(DaemonId(id), &database)).collect();
        for from in 0..25 {
            for to in (0..25).filter(|&to| to != from) {
                let tree = routes[from].tree([DaemonId(to as u32)].into_iter());
                let mut at = DaemonId(from as u32);
                let mut path = Vec::new();
                while at != DaemonId(to as u32) {
                    let next = routes[at.0 as usize].next_hop(DaemonId(to as u32)).unwrap();
                    path.push((at, next));
                    at = next;
                }
                path.sort_unstable();
                assert_eq!(path, tree, "{from} to {to}");
            }
        }
    }
}
