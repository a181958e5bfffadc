//! Flows with several receivers: a machine at each branching node copies data downwards and merges
//! acknowledgements upwards.

use std::collections::{BTreeMap, BTreeSet};

use tollway_proto::middle::Branch;
use tollway_proto::{Gate, NodeMachine};
use tollway_sim::{MachineId, RouteEnd};

use super::Built;
use crate::plan::{LinkId, NodeId, Plan, Tree};
use crate::run::engine::{Engine, Joint};

/// Routes for flows to be started, and connections to be made once they exist.
pub(in crate::run) struct Planted<R> {
    /// Routes there and back, by flow of the plan.
    pub(in crate::run) routes: BTreeMap<usize, (R, R)>,
    /// For each gate of a middle: its route, the flow of its packets, and the flow whose sender
    /// makes them.
    pub(in crate::run) outlets: Vec<(MachineId, Gate, R, usize, usize)>,
}

impl<R: Copy> Planted<R> {
    /// Connects the middles with the flows, which must exist.
    pub(in crate::run) fn connect<E: Engine<Route = R>>(self, built: &mut Built<E>) {
        for (machine, gate, route, flow, of) in self.outlets {
            let [flow, of] = [flow, of].map(|flow| built.flows[flow]);
            built.network.join(Joint::Outlet { machine, gate, route, flow, of });
        }
    }
}

/// Lays the routes of every tree of the plan.
pub(in crate::run) fn plant<E: Engine>(plan: &Plan, built: &mut Built<E>) -> Planted<E::Route> {
    let mut planted = Planted { routes: BTreeMap::new(), outlets: Vec::new() };
    for tree in &plan.trees {
        plant_one(plan, tree, built, &mut planted);
    }
    planted
}

/// A stretch of a tree without branches.
struct Stretch {
    /// Its links, downwards.
    links: Vec<LinkId>,
    /// The branching node that it begins at and the number of the branch; `None` at the sender.
    above: Option<(MachineId, Gate)>,
    /// The branching node below, or else the receiver, as a flow of the plan.
    below: Result<MachineId, usize>,
}

fn plant_one<E: Engine>(plan: &Plan, tree: &Tree, built: &mut Built<E>, planted: &mut Planted<E::Route>) {
    let root = tree.first.0 as usize;
    for stretch in stretches(plan, tree, built) {
        let down_end = match stretch.below {
            Ok(middle) => RouteEnd::Middle(middle, Gate(0)),
            Err(_) => RouteEnd::Server,
        };
        let up_end = match stretch.above {
            Some((middle, gate)) => RouteEnd::Middle(middle, gate),
            None => RouteEnd::Client,
        };
        let back: Vec<LinkId> =
            stretch.links.iter().rev().filter_map(|link| plan.links[link.0 as usize].twin).collect();
        let (down, up) = (built.route(&stretch.links, down_end), built.route(&back, up_end));
        let flow = stretch.below.err().unwrap_or(root);
        if let Some((middle, gate)) = stretch.above {
            planted.outlets.push((middle, gate, down, flow, root));
        }
        match stretch.below {
            Ok(middle) => planted.outlets.push((middle, Gate(0), up, root, root)),
            Err(flow) => {
                planted.routes.entry(flow).or_insert((down, up)).1 = up;
            }
        }
        if stretch.above.is_none() {
            // The sender's route begins here, independently of the acknowledgements' route.
            planted.routes.entry(root).or_insert((down, up)).0 = down;
        }
    }
}

/// The stretches of a tree, from the sender down.
fn stretches<E: Engine>(plan: &Plan, tree: &Tree, built: &mut Built<E>) -> Vec<Stretch> {
    let (mut below, mut receivers) = (BTreeMap::<NodeId, BTreeSet<LinkId>>::new(), BTreeMap::new());
    for i in tree.flows() {
        let path = &plan.flows[i].path;
        receivers.insert(path.to, i);
        for &link in &path.route {
            below.entry(plan.links[link.0 as usize].from).or_default().insert(link);
        }
    }
    let from = plan.flows[tree.first.0 as usize].path.from;
    let first = below.get(&from).into_iter().flatten().map(|&link| (link, None));
    let mut open: Vec<(LinkId, Option<(MachineId, Gate)>)> = first.collect();
    let mut all = Vec::new();
    while let Some((link, above)) = open.pop() {
        let mut links = vec![link];
        let mut node = plan.links[link.0 as usize].to;
        while let Some(next) = below.get(&node).filter(|links| links.len() == 1).and_then(BTreeSet::first) {
            links.push(*next);
            node = plan.links[next.0 as usize].to;
        }
        let ways: Vec<LinkId> = below.get(&node).into_iter().flatten().copied().collect();
        let branch = || NodeMachine::middle(Branch::new(ways.len() as u32));
        let middle = (!ways.is_empty()).then(|| built.network.add(node, branch()));
        let below = match (middle, receivers.get(&node)) {
            (Some(middle), _) => {
                let gates = ways.into_iter().zip(1..).map(|(link, k)| (link, Some((middle, Gate(k)))));
                open.extend(gates);
                Ok(middle)
            }
            (None, Some(&flow)) => Err(flow),
            // The resolver has checked that a tree ends at its receivers.
            (None, None) => continue,
        };
        all.push(Stretch { links, above, below });
    }
    all
}
