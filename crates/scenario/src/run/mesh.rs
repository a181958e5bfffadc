//! The network of a plan for packets of the kernel: those of programs and of its TCP. Other flows
//! of the plan do not run in it.

use std::sync::LazyLock;

use tollway_law::Time;

pub use tollway_net::mesh::{
    KernelFlow, KernelOutcome, KernelSample, MeshChange, MeshSpec, Record, run_kernel,
};

use super::Unsupported;
use super::live::link_specs;
use crate::file::Router;
use crate::plan::laws_that;
use crate::plan::{Event, NodeId, Plan, What};

/// Returns the network of `plan`, for programs.
///
/// # Errors
/// [`Unsupported`] names the first key that cannot apply to packets of programs.
pub fn mesh(plan: &Plan) -> Result<MeshSpec, Unsupported> {
    let unsupported = |key: String, why: &str| {
        Err(Unsupported { key, why: why.into(), remedy: "leave it out, or run the file with `tollway run`" })
    };
    if let Some(medium) = plan.media.first() {
        return unsupported(format!("medium.{}", medium.name), "does not support shared media");
    }
    if let Some(cbr) = plan.cbrs.first() {
        return unsupported(format!("cbr.{}", cbr.section), "carries only the traffic of programs");
    }
    if let Some(link) = plan.links.iter().find(|link| link.meter.is_some()) {
        return unsupported(format!("link.{}.meter", link.section), "does not support meters");
    }
    if plan.nodes.len() > MOST_NODES {
        return unsupported("node".into(), "supports at most 200 nodes, each a network namespace");
    }
    let nodes = plan.nodes.len() as u32;
    let pairs: Vec<(NodeId, NodeId)> =
        (0..nodes).flat_map(|from| (0..nodes).map(move |to| (NodeId(from), NodeId(to)))).collect();
    let routes = Router::new(plan.nodes.len(), &plan.links).routes(&pairs);
    Ok(MeshSpec {
        nodes: plan.nodes.iter().map(|node| node.name.to_string()).collect(),
        links: link_specs(plan),
        losses: plan.own_losses().collect(),
        impairments: plan.links.iter().map(|link| link.impairments.as_deref().copied()).collect(),
        changes: plan.timeline().into_iter().filter_map(of_link).collect(),
        next: routes.iter().map(|route| route.first().map(|link| link.0)).collect(),
        seed: plan.seed,
        outside: None,
    })
}

/// The change of a link, if an event is one; there are no flows and hosts here.
fn of_link(event: Event) -> Option<MeshChange> {
    match event.what {
        What::Link(link, what) => Some(MeshChange { at: event.at, link: link.0, what }),
        _ => None,
    }
}

static REMEDY: LazyLock<String> =
    LazyLock::new(|| format!("use a law that Linux has: {}", laws_that(|law| law.kernel.is_some())));

/// Returns the flows of `plan`, for the kernel's TCP over [`mesh`].
///
/// # Errors
/// [`Unsupported`] names the first flow that the kernel's TCP cannot run.
pub fn kernel_flows(plan: &Plan) -> Result<Vec<KernelFlow>, Unsupported> {
    let flow = |flow: &crate::plan::Flow| {
        let unsupported = |key: &str, remedy| Unsupported {
            key: format!("flow.{}.{key}", flow.section),
            why: "is not supported by the kernel's TCP".into(),
            remedy,
        };
        let Some(law) = plan.transports[flow.transport.0 as usize].law.descriptor().kernel else {
            return Err(unsupported("law", &REMEDY));
        };
        if !flow.data.is_endless() || flow.stop < Time::NEVER {
            return Err(unsupported("data", "let it send until the end of the run"));
        }
        if flow.after.is_some() {
            return Err(unsupported("after", "give a `start` instead"));
        }
        Ok(KernelFlow { from: flow.path.from.0, to: flow.path.to.0, start: flow.start, law: law.into() })
    };
    plan.flows.iter().map(flow).collect()
}

/// The links from one node to another, by index; empty if there is no route.
pub fn route(mesh: &MeshSpec, from: u32, to: u32) -> Vec<usize> {
    let mut links = Vec::new();
    let mut at = from;
    while at != to {
        let Some(link) = mesh.next[at as usize * mesh.nodes.len() + to as usize] else { return Vec::new() };
        links.push(link as usize);
        at = mesh.links[link as usize].to;
    }
    links
}

/// Largest number of namespaces in a run.
const MOST_NODES: usize = 200;
