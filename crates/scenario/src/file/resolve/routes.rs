//! Routes: shortest, or through nodes that a flow names; one route, or several of equal cost.

use tollway_law::sender::Unanswered;
use tollway_proto::Stamp;
use tollway_proto::route::mix;

use super::flows::{RouteRequest, Target, round_trip};
use super::{Group, Resolver};
use crate::file::keys;
use crate::file::reader::Reader;
use crate::file::route::Router;
use crate::plan::{EqualCost, LinkId, NodeId, Plan, Route, Spread};

/// The choice among several equal-cost routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    First,
    Hash,
    All,
}

/// The parts of routes to be searched with one [`Choice`].
#[derive(Default)]
struct Legs {
    ends: Vec<(NodeId, NodeId)>,
    hashes: Vec<u64>,
    found: std::vec::IntoIter<Vec<LinkId>>,
}

/// A pair of nodes and the routes between them.
struct Way {
    ends: (NodeId, NodeId),
    there: Result<Vec<LinkId>, (NodeId, NodeId)>,
    back: Result<Vec<LinkId>, (NodeId, NodeId)>,
    /// True if `there` and `back` hold all equal routes, concatenated.
    all: bool,
}

impl<'a> Resolver<'a> {
    /// Resolves the division of traffic among equal-cost routes.
    pub(super) fn routing(&mut self) {
        let keys = self.top.table("routing", &keys::ROUTING);
        self.plan.equal_cost = match keys.word("equal-cost") {
            "ecmp" => EqualCost::Flow,
            "spray" => EqualCost::Packet,
            "flowlet" => EqualCost::Flowlet(keys.span("flowlet-gap")),
            _ => EqualCost::First,
        };
    }

    /// Finds every route.
    pub(super) fn routes(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        let vias: Vec<Vec<Group>> = requests.iter().map(|request| self.vias(request)).collect();
        let mut legs = [(); 3].map(|()| Legs::default());
        for (request, vias) in requests.iter().zip(&vias) {
            let choice = self.choice(request, vias);
            let lanes = self.lanes(request, choice);
            let seed = request.target.name(&self.plan).bytes();
            let seed = seed.fold(mix(self.plan.seed), |h, b| mix(h ^ u64::from(b)));
            for lane in 0..lanes {
                let stops = stops(request, vias, lane, lanes);
                let hash = mix(seed ^ mix(lane as u64 + 1));
                legs[choice as usize].add(&stops, hash);
            }
        }
        self.find(&mut legs);
        for (request, vias) in requests.iter().zip(&vias) {
            let choice = self.choice(request, vias);
            let lanes = self.lanes(request, choice);
            let mut good = true;
            for lane in 0..lanes {
                // Routes of an abandoned request are taken, too, to reach those of the next
                // request.
                let way =
                    legs[choice as usize].take(&stops(request, vias, lane, lanes), choice == Choice::All);
                good = good && self.give(request, lane, lanes, way);
            }
        }
        // The buffers depend on the routes, and need the requests.
        self.requests = requests;
    }

    /// Searches the routes of all parts.
    fn find(&self, [first, hashed, all]: &mut [Legs; 3]) {
        let (nodes, links) = (self.plan.nodes.len(), &self.plan.links);
        first.found = Router::new(nodes, links).routes(&first.ends).into_iter();
        if hashed.ends.len() + all.ends.len() > 0 {
            let mut router = Router::for_equal_routes(nodes, links);
            hashed.found = router.hashed(&hashed.ends, &hashed.hashes).into_iter();
            all.found = router.equal(&all.ends, MOST_EQUAL, self.plan.seed).into_iter();
        }
    }

    fn choice(&self, request: &RouteRequest<'a>, vias: &[Group]) -> Choice {
        match (self.plan.equal_cost, request.target) {
            (EqualCost::First, _) => Choice::First,
            _ if request.first_only => Choice::First,
            // A source of cross-traffic has one route, and so has a part between named nodes.
            (EqualCost::Flow, Target::Flows { .. }) | (_, Target::Cbrs { .. }) => Choice::Hash,
            _ if !vias.is_empty() => Choice::Hash,
            _ => Choice::All,
        }
    }

    /// The number of routes of a request: one for each pair, or one for each flow if flows of a
    /// pair may differ.
    fn lanes(&self, request: &RouteRequest<'a>, choice: Choice) -> usize {
        let pairs = request.pairs.count() as usize;
        match request.target {
            Target::Flows { each, .. } if choice == Choice::Hash => pairs * each,
            _ => pairs,
        }
    }

    /// The nodes that `via` names, each one node for all pairs or one node for each.
    fn vias(&mut self, request: &RouteRequest<'a>) -> Vec<Group> {
        let mut vias = Vec::new();
        if !matches!(request.target, Target::Flows { .. }) || !request.keys.has("via") {
            return vias;
        }
        for (name, at) in request.keys.patterns("via") {
            let Some(group) = self.group_called(&name, at) else { continue };
            let pairs = request.pairs.count();
            if group.count > 1 && group.count != pairs {
                let message =
                    format!("`{name}` has {} members, and there are {pairs} pairs of nodes", group.count);
                self.mistakes
                    .add(at, message, "on no flow's path")
                    .help("name one member, or a group with one for each pair");
                continue;
            }
            vias.push(group);
        }
        vias
    }

    /// Stores the routes of a lane; returns false, and reports a mistake, if there is no route.
    fn give(&mut self, request: &RouteRequest<'a>, lane: usize, lanes: usize, way: Way) -> bool {
        let Way { ends, there, back, all } = way;
        let one_way = matches!(request.target, Target::Cbrs { .. });
        let back = if one_way { Ok(back.unwrap_or_default()) } else { back };
        let (there, back) = match (there, back) {
            (Ok(there), Ok(back)) => (there, back),
            (Err(ends), _) | (_, Err(ends)) => {
                self.unreachable(&request.keys, ends);
                return false;
            }
        };
        let spread = (all
            && (self.length_of_first(&there) < there.len() || self.length_of_first(&back) < back.len()))
        .then(|| Box::new(Spread { routes: there.clone(), backs: back.clone() }));
        let first = |all: Vec<LinkId>| match all.is_empty() || spread.is_none() {
            true => all,
            false => all[..self.length_of_first(&all)].to_vec(),
        };
        let [route, back] = [there, back].map(first);
        if self.passes_twice(request, &route) || self.unheard(request, &route, ends) {
            return false;
        }
        if !one_way && self.too_far(request, &route, &back, ends) {
            return false;
        }
        let each = match request.target {
            Target::Flows { each, .. } => each * request.pairs.count() as usize / lanes,
            _ => 1,
        };
        request.target.give(&mut self.plan, lane, each, (route, back, spread));
        true
    }

    /// The number of links of the first route; `all` concatenates routes of equal length.
    fn length_of_first(&self, all: &[LinkId]) -> usize {
        let from = |link: &LinkId| self.plan.links[link.0 as usize].from;
        let Some(start) = all.first().map(from) else { return 0 };
        // A shortest route visits its start only once.
        all.iter().skip(1).position(|link| from(link) == start).map_or(all.len(), |at| at + 1)
    }

    /// Returns true, and reports a mistake, if a route through named nodes visits a node twice.
    fn passes_twice(&mut self, request: &RouteRequest<'a>, route: &[LinkId]) -> bool {
        if !request.keys.has("via") {
            return false;
        }
        let links = &self.plan.links;
        let mut nodes: Vec<NodeId> = route.iter().map(|link| links[link.0 as usize].from).collect();
        nodes.extend(route.last().map(|link| links[link.0 as usize].to));
        nodes.sort_unstable();
        let Some(twice) = nodes.windows(2).find(|pair| pair[0] == pair[1]) else { return false };
        let name = &self.plan.nodes[twice[0].0 as usize].name;
        let message = format!("the shortest route over these nodes passes `{name}` twice");
        self.mistakes
            .add(request.keys.at("via"), message, "a loop")
            .help("name the nodes in the order in which data pass them");
        true
    }

    /// Returns true, and reports a mistake, if no link writes the tolls that a flow's law needs.
    fn unheard(
        &mut self,
        request: &RouteRequest<'a>,
        route: &[LinkId],
        (from, to): (NodeId, NodeId),
    ) -> bool {
        let class = match request.target {
            Target::Flows { first, .. } => self.plan.flows[first].transport,
            Target::Workload(w) => self.plan.workloads[w].transport,
            Target::Cbrs { .. } => return false,
        };
        let transport = &self.plan.transports[class.0 as usize];
        let about = transport.law.descriptor();
        let answers = about.reads.is_some_and(|content| self.plan.says(route, transport.class, content));
        if about.unanswered != Unanswered::Mute || answers {
            return false;
        }
        let law = transport.law.word();
        let name = |n: NodeId| &self.plan.nodes[n.0 as usize].name;
        let (from, to) = (name(from), name(to));
        let message = format!("no link from `{from}` to `{to}` has the law `{law}`, which these flows need");
        self.mistakes
            .add(request.keys.at("law"), message, "no feedback")
            .help(format!("give every link that can be the bottleneck `law = \"{law}\"`"));
        true
    }

    /// Returns true, and reports a mistake, if a round trip is too long for a flow to measure.
    fn too_far(
        &mut self,
        request: &RouteRequest<'a>,
        route: &[LinkId],
        back: &[LinkId],
        (from, to): (NodeId, NodeId),
    ) -> bool {
        let rtt = round_trip(&self.plan.links, route, back);
        if rtt < Stamp::REACH {
            return false;
        }
        let name = |n: NodeId| &self.plan.nodes[n.0 as usize].name;
        let message = format!(
            "the round trip between `{}` and `{}` is {rtt}, more than a sender supports: at most {}",
            name(from),
            name(to),
            Stamp::REACH
        );
        self.mistakes
            .add(request.keys.at("to"), message, "too far away")
            .help("shorten the `delay` of the links on the path");
        true
    }

    fn unreachable(&mut self, keys: &Reader<'a>, (from, to): (NodeId, NodeId)) {
        let name = |n: NodeId| &self.plan.nodes[n.0 as usize].name;
        let message = format!("there is no route from `{}` to `{}`", name(from), name(to));
        let links = self.plan.links.iter();
        let lonely = [from, to]
            .into_iter()
            .find(|&n| !links.clone().any(|l| l.from == n || l.to == n))
            .map(|n| format!("no link begins or ends at `{}`", name(n)));
        let found = self.mistakes.add(keys.at("to"), message, "unreachable");
        found
            .help(lonely.unwrap_or_else(|| "a `[link.NAME]` is missing, or one has `duplex = false`".into()));
    }
}

impl Legs {
    /// Adds the parts between consecutive `stops`, there and back.
    fn add(&mut self, stops: &[NodeId], hash: u64) {
        let back = stops.windows(2).rev().map(|leg| (leg[1], leg[0]));
        self.ends.extend(stops.windows(2).map(|leg| (leg[0], leg[1])).chain(back));
        let there = std::iter::repeat_n(hash, stops.len() - 1);
        self.hashes.extend(there.chain(std::iter::repeat_n(!hash, stops.len() - 1)));
    }

    /// Takes the routes of parts, in the order of [`add`](Legs::add).
    fn take(&mut self, stops: &[NodeId], all: bool) -> Way {
        let mut join = |legs: &mut dyn Iterator<Item = (NodeId, NodeId)>| {
            let mut route = Vec::new();
            let mut missing = None;
            for ends in legs {
                let leg = self.found.next().unwrap_or_default();
                if leg.is_empty() {
                    missing = missing.or(Some(ends));
                }
                match route.is_empty() {
                    true => route = leg,
                    false => route.extend(leg),
                }
            }
            missing.map_or(Ok(route), Err)
        };
        let there = join(&mut stops.windows(2).map(|leg| (leg[0], leg[1])));
        let back = join(&mut stops.windows(2).rev().map(|leg| (leg[1], leg[0])));
        Way { ends: (stops[0], stops[stops.len() - 1]), there, back, all }
    }
}

/// The ends of a lane, with its flows' named nodes between them.
fn stops(request: &RouteRequest<'_>, vias: &[Group], lane: usize, lanes: usize) -> Vec<NodeId> {
    let pair = (lane / (lanes / request.pairs.count() as usize)) as u32;
    let (from, to) = request.pairs.of(pair);
    let mut stops = Vec::with_capacity(vias.len() + 2);
    stops.push(from);
    stops.extend(vias.iter().map(|via| via.member(pair)));
    stops.push(to);
    stops
}

impl Target {
    /// The section.
    fn name(self, plan: &Plan) -> &str {
        match self {
            Target::Flows { first, .. } => &plan.flows[first].section,
            Target::Workload(w) => &plan.workloads[w].name,
            Target::Cbrs { first } => &plan.cbrs[first].section,
        }
    }

    /// Stores the routes of lane `k`; a lane of flows has `each` flows.
    fn give(
        self,
        plan: &mut Plan,
        k: usize,
        each: usize,
        (route, back, spread): (Vec<LinkId>, Vec<LinkId>, Option<Box<Spread>>),
    ) {
        let rtt = round_trip(&plan.links, &route, &back);
        match self {
            Target::Flows { first, .. } => {
                for flow in plan.flows.iter_mut().skip(first + k * each).take(each) {
                    flow.path.route = Route::from_slice(&route);
                    flow.path.back = Route::from_slice(&back);
                    flow.path.spread.clone_from(&spread);
                    flow.path.base_rtt = rtt;
                }
            }
            Target::Workload(w) => {
                let path = &mut plan.workloads[w].paths[k];
                (path.route, path.back, path.base_rtt, path.spread) =
                    (route.into(), back.into(), rtt, spread);
            }
            Target::Cbrs { first } => plan.cbrs[first + k].route = route,
        }
    }
}

/// Largest number of equal-cost routes among which packets or flows of a workload are divided.
const MOST_EQUAL: usize = 64;
