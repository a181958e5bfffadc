//! Routes: fewest hops first, then least delay, then the order of links in the file.
//!
//! Each node of a route takes the link of lowest index among its best links to the destination.
//! This depends on no state, so the order of requests does not matter. Alternatively a hash chooses
//! among a node's best links, as in ECMP.
//!
//! There may be a hundred thousand hosts at a few routers. Hosts with a single neighbour, the
//! leaves, are therefore not searched: the search uses the neighbour instead.

use std::collections::{HashMap, HashSet};

use tollway_law::Time;
use tollway_proto::route::mix;

use crate::plan::{Link, LinkId, NodeId};

/// The graph, prepared for route searches.
#[derive(Debug)]
pub(crate) struct Router<'a> {
    links: &'a [Link],
    /// The leaf at each node, if it is one: its neighbour, the best link there and the best link
    /// back.
    leaves: Vec<Option<Leaf>>,
    /// Links between nodes other than leaves, by source and by destination.
    out: Adjacency,
    into: Adjacency,
    /// Distance of each node from the destination of the current search.
    far: Vec<Far>,
    /// Nodes in the order in which the search reached them.
    reached: Vec<u32>,
    /// Number of the current search; entries of `far` with another number are stale.
    search: u32,
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    neighbour: u32,
    up: LinkId,
    down: LinkId,
}

#[derive(Clone, Copy, Debug, Default)]
struct Far {
    search: u32,
    hops: u32,
    delay: u64,
}

impl<'a> Router<'a> {
    /// Prepares a graph of `nodes` nodes.
    pub(crate) fn new(nodes: usize, links: &'a [Link]) -> Router<'a> {
        Router::with_leaves(nodes, links, find_leaves(nodes, links))
    }

    /// Prepares a graph for [`hashed`](Router::hashed) and [`equal`](Router::equal) routes. A node
    /// with parallel links to its only neighbour is then no leaf, since packets may be divided
    /// among them.
    pub(crate) fn for_equal_routes(nodes: usize, links: &'a [Link]) -> Router<'a> {
        let mut leaves = find_leaves(nodes, links);
        let mut seen = HashSet::new();
        for link in links {
            if !seen.insert((link.from, link.to)) {
                for node in [link.from, link.to] {
                    leaves[node.0 as usize] = None;
                }
            }
        }
        Router::with_leaves(nodes, links, leaves)
    }

    fn with_leaves(nodes: usize, links: &'a [Link], leaves: Vec<Option<Leaf>>) -> Router<'a> {
        let core = |l: &Link| leaves[l.from.0 as usize].is_none() && leaves[l.to.0 as usize].is_none();
        let out = Adjacency::new(nodes, links, core, |l| l.from);
        let into = Adjacency::new(nodes, links, core, |l| l.to);
        let far = vec![Far::default(); nodes];
        Router { links, leaves, out, into, far, reached: Vec::new(), search: 0 }
    }

    /// The route of each request. Empty if no route exists, or from a node to itself.
    pub(crate) fn routes(&mut self, requests: &[(NodeId, NodeId)]) -> Vec<Vec<LinkId>> {
        let mut known: HashMap<u32, Vec<LinkId>> = HashMap::new();
        let mut latest = None;
        self.find(requests, |router, _, (start, end)| {
            if latest.replace(end) != Some(end) {
                known.clear();
            }
            known.entry(start).or_insert_with(|| router.walk(start, end, None)).clone()
        })
    }

    /// The route of each request among those of equal hops and delay, chosen at each node by the
    /// request's hash.
    pub(crate) fn hashed(&mut self, requests: &[(NodeId, NodeId)], hashes: &[u64]) -> Vec<Vec<LinkId>> {
        self.find(requests, |router, i, (start, end)| router.walk(start, end, Some(hashes[i])))
    }

    /// All routes of equal hops and delay of each request, concatenated, in ascending order of
    /// their links. If there are more than `most`, returns `most` routes drawn with `seed`, with
    /// possible repetition.
    pub(crate) fn equal(
        &mut self,
        requests: &[(NodeId, NodeId)],
        most: usize,
        seed: u64,
    ) -> Vec<Vec<LinkId>> {
        self.find(requests, |router, _, (start, end)| {
            let mut routes = Vec::new();
            if router.far[start as usize].search == router.search
                && !router.collect(start, end, &mut Vec::new(), &mut routes, most)
            {
                let draw = |n| router.walk(start, end, Some(mix(seed ^ mix(n + 1))));
                routes = (0..most as u64).flat_map(draw).collect();
            }
            routes
        })
    }

    /// The routes of each request. `between` returns the routes between two core nodes,
    /// concatenated; the search from the second node is then current.
    fn find(
        &mut self,
        requests: &[(NodeId, NodeId)],
        mut between: impl FnMut(&Self, usize, (u32, u32)) -> Vec<LinkId>,
    ) -> Vec<Vec<LinkId>> {
        let mut routes = vec![Vec::new(); requests.len()];
        // Pairs of core nodes, by destination, so that one search serves all requests with one
        // destination.
        let mut left: Vec<(u32, u32, u32)> = Vec::new();
        for (i, &(from, to)) in requests.iter().enumerate() {
            if from == to {
                continue;
            }
            let (start, first) = self.towards(from.0);
            let (end, last) = self.origin(to.0);
            if first.is_some() && start == to.0 {
                routes[i] = first.into_iter().collect();
            } else if last.is_some() && end == from.0 {
                routes[i] = last.into_iter().collect();
            } else if start == end {
                routes[i] = first.into_iter().chain(last).collect();
            } else if self.leaves[start as usize].is_none() && self.leaves[end as usize].is_none() {
                left.push((end, start, i as u32));
            }
        }
        left.sort_unstable();
        let mut searched = None;
        for (end, start, i) in left {
            if searched != Some(end) {
                self.search_from(end);
                searched = Some(end);
            }
            let middles = between(self, i as usize, (start, end));
            let hops = self.far[start as usize].hops as usize;
            let (from, to) = requests[i as usize];
            let (first, last) = (self.towards(from.0).1, self.origin(to.0).1);
            let route = &mut routes[i as usize];
            route.reserve_exact(middles.len() / hops.max(1) * (hops + 2));
            for middle in middles.chunks(hops.max(1)) {
                route.extend(first);
                route.extend_from_slice(middle);
                route.extend(last);
            }
        }
        routes
    }

    /// The first core node on a route from `from`, and the link to it if that is another node.
    fn towards(&self, from: u32) -> (u32, Option<LinkId>) {
        match self.leaves[from as usize] {
            Some(leaf) => (leaf.neighbour, Some(leaf.up)),
            None => (from, None),
        }
    }

    /// The last core node on a route to `to`, and the link from it if that is another node.
    fn origin(&self, to: u32) -> (u32, Option<LinkId>) {
        match self.leaves[to as usize] {
            Some(leaf) => (leaf.neighbour, Some(leaf.down)),
            None => (to, None),
        }
    }

    /// Computes the distance of every core node from `end`, breadth first. All nodes one hop nearer
    /// are visited before a node, so its delay is then final.
    fn search_from(&mut self, end: u32) {
        self.search += 1;
        self.reached.clear();
        self.reached.push(end);
        self.far[end as usize] = Far { search: self.search, hops: 0, delay: 0 };
        let mut next = 0;
        while let Some(&node) = self.reached.get(next) {
            next += 1;
            let here = self.far[node as usize];
            for &link in self.into.of(node) {
                let link = &self.links[link as usize];
                let there = &mut self.far[link.from.0 as usize];
                let delay = here.delay.saturating_add(link.delay.0);
                if there.search != self.search {
                    *there = Far { search: self.search, hops: here.hops + 1, delay };
                    self.reached.push(link.from.0);
                } else if there.hops == here.hops + 1 {
                    there.delay = there.delay.min(delay);
                }
            }
        }
    }

    /// The links out of `node` on best routes to the current destination, lowest index first.
    fn onward(&self, node: u32) -> impl Iterator<Item = u32> + Clone + '_ {
        let here = self.far[node as usize];
        self.out.of(node).iter().copied().filter(move |&l| {
            let link = &self.links[l as usize];
            let there = self.far[link.to.0 as usize];
            there.search == self.search
                && there.hops + 1 == here.hops
                && there.delay.saturating_add(link.delay.0) == here.delay
        })
    }

    /// The route from `start` to `end`, the current destination; empty if there is none. Each node
    /// takes its first best link, or the one that a hash chooses.
    fn walk(&self, start: u32, end: u32, hash: Option<u64>) -> Vec<LinkId> {
        let mut route = Vec::new();
        let mut node = start;
        if self.far[start as usize].search != self.search {
            return route;
        }
        while node != end {
            let mut onward = self.onward(node);
            let next = match hash {
                None => onward.next(),
                Some(hash) => {
                    let links = onward.clone().count() as u64;
                    onward.nth((mix(hash ^ mix(u64::from(node) + 1)) % links.max(1)) as usize)
                }
            };
            let Some(next) = next else { return Vec::new() };
            route.push(LinkId(next));
            node = self.links[next as usize].to.0;
        }
        route
    }

    /// Appends all best routes from `node` to `end`, each after the links of `before`. Returns
    /// false once there are more than `most`.
    fn collect(
        &self,
        node: u32,
        end: u32,
        before: &mut Vec<LinkId>,
        routes: &mut Vec<LinkId>,
        most: usize,
    ) -> bool {
        if node == end {
            routes.extend_from_slice(before);
            return routes.len() <= most * before.len();
        }
        self.onward(node).all(|link| {
            before.push(LinkId(link));
            let goes_on = self.collect(self.links[link as usize].to.0, end, before, routes, most);
            before.pop();
            goes_on
        })
    }
}

/// Propagation delay of a route.
pub(crate) fn delay(links: &[Link], route: &[LinkId]) -> Time {
    route.iter().fold(Time::ZERO, |sum, l| sum.saturating_add(links[l.0 as usize].delay))
}

/// Finds the leaves: nodes with links to and from a single neighbour only.
fn find_leaves(nodes: usize, links: &[Link]) -> Vec<Option<Leaf>> {
    #[derive(Clone, Copy)]
    enum Side {
        None,
        One(u32, u32),
        Many,
    }
    let better = |new: usize, old: u32| links[new].delay < links[old as usize].delay;
    let mut sides = vec![(Side::None, Side::None); nodes];
    let note = |side: &mut Side, neighbour: u32, link: usize| {
        *side = match *side {
            Side::None => Side::One(neighbour, link as u32),
            Side::One(n, old) if n == neighbour => {
                Side::One(n, if better(link, old) { link as u32 } else { old })
            }
            _ => Side::Many,
        }
    };
    for (i, link) in links.iter().enumerate() {
        note(&mut sides[link.from.0 as usize].0, link.to.0, i);
        note(&mut sides[link.to.0 as usize].1, link.from.0, i);
    }
    let leaf = |(out, into)| match (out, into) {
        (Side::One(neighbour, up), Side::One(other, down)) if neighbour == other => {
            Some(Leaf { neighbour, up: LinkId(up), down: LinkId(down) })
        }
        _ => None,
    };
    sides.into_iter().map(leaf).collect()
}

/// Links by node in one allocation, lowest index first.
#[derive(Debug)]
struct Adjacency {
    starts: Vec<u32>,
    links: Vec<u32>,
}

impl Adjacency {
    fn new(
        nodes: usize,
        all: &[Link],
        take: impl Fn(&Link) -> bool,
        node: impl Fn(&Link) -> NodeId,
    ) -> Adjacency {
        let mut starts = vec![0u32; nodes + 1];
        for link in all.iter().filter(|l| take(l)) {
            starts[node(link).0 as usize + 1] += 1;
        }
        for i in 0..nodes {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut links = vec![0; starts[nodes] as usize];
        for (i, link) in all.iter().enumerate().filter(|(_, l)| take(l)) {
            let slot = &mut next[node(link).0 as usize];
            links[*slot as usize] = i as u32;
            *slot += 1;
        }
        Adjacency { starts, links }
    }

    fn of(&self, node: u32) -> &[u32] {
        &self.links[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}
