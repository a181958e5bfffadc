//! The machines of a plan at the nodes of an engine.

use tollway_proto::Gate;
use tollway_sim::{End, LinkId, MachineId};

use super::Built;
use crate::plan::Plan;
use crate::run::engine::{Engine, Joint};
use crate::tables::SystemTables;

/// Adds every machine, and directs packets that arrive at a middle's node to the middle. Must
/// precede the routes.
pub(in crate::run) fn place<E: Engine>(plan: &Plan, built: &mut Built<E>) -> Vec<MachineId> {
    let add = |machine: &crate::plan::Machine| {
        let id = built.network.add(machine.node, (machine.kind.build)(machine));
        if !machine.kind.is_app {
            let links = plan.links.iter().zip((0..).map(LinkId)).filter(|(link, _)| link.to == machine.node);
            for (gate, (_, link)) in links.enumerate() {
                built.network.join(Joint::PassBy(link, id, Gate(gate as u32)));
            }
        }
        id
    };
    plan.machines.iter().map(add).collect()
}

/// Assigns flow ends to apps. The flows must exist.
pub(in crate::run) fn attach<E: Engine>(plan: &Plan, built: &mut Built<E>) {
    for (machine, &id) in plan.machines.iter().zip(&built.machines) {
        for &(flow, client) in &machine.ends {
            let end = if client { End::Client } else { End::Server };
            built.network.join(Joint::App(id, built.flows[flow.0 as usize], end));
        }
    }
}

/// Reports the counters of the machines that this process runs.
pub(in crate::run) fn report<E: Engine>(plan: &Plan, built: &Built<E>, tables: &mut SystemTables) {
    for (machine, &id) in plan.machines.iter().zip(&built.machines) {
        let counts = built.network.machine(id).map(machine.kind.counts).unwrap_or_default();
        for (column, count) in counts {
            tables.set("machines", &[("machine", &machine.name)], column, count as f64);
        }
    }
}
