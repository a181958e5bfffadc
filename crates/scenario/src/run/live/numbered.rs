//! Flows by their numbers on the wire, and the agreement of processes that each have one end of a
//! flow.

use std::fmt::{Debug, Write};

use crate::plan::{Data, Path, Plan, TransportId};
use crate::run::arrivals;

/// A flow of a plan, or of one of its workloads.
pub(super) struct Flow<'a> {
    pub(super) name: String,
    pub(super) path: &'a Path,
    transport: TransportId,
    data: Data,
}

/// The flows in the order of their numbers. Flows of workloads follow those of the file, if all
/// exist from the beginning.
pub(super) fn flows(plan: &Plan) -> impl Iterator<Item = Flow<'_>> {
    let flows = plan.flows.iter().map(|flow| Flow {
        name: flow.name.to_string(),
        path: &flow.path,
        transport: flow.transport,
        data: flow.data,
    });
    let by_chance = plan.workloads.iter().enumerate().flat_map(|(i, workload)| {
        arrivals(plan, i).map(move |drawn| Flow {
            name: format!("{}.{}", workload.name, drawn.number + 1),
            path: &workload.paths[drawn.path],
            transport: workload.transport,
            data: Data::Bytes(drawn.size),
        })
    });
    flows.chain(by_chance)
}

/// A fingerprint of each flow, never 0, by which both its ends check that they mean the same flow.
///
/// It covers name, nodes, packets, data, law, transport, and the machines on the flow's path.
/// Different flows differ except by chance. Flows of one tree or one session have one fingerprint.
pub(super) fn fingerprints(plan: &Plan) -> Vec<u32> {
    let own = |(i, flow): (usize, Flow<'_>)| {
        let [from, to] = [flow.path.from, flow.path.to].map(|node| &plan.nodes[node.0 as usize].name);
        let transport = &plan.transports[flow.transport.0 as usize];
        let own = fingerprint(&(flow.name, from, to, flow.data, transport));
        // Machines on its path, and apps that own one of its ends.
        let links = flow.path.route.iter().chain(&flow.path.back);
        let nodes: Vec<_> = links.map(|link| plan.links[link.0 as usize].to).collect();
        let machines = plan.machines.iter().filter(|machine| match machine.kind.is_app {
            true => machine.ends.iter().any(|end| end.0.0 as usize == i),
            false => nodes.contains(&machine.node),
        });
        let own = machines.fold(own, |own, machine| {
            fingerprint(&(own, &machine.name, machine.node, machine.kind.word, machine.messages))
        });
        // Daemons share their constants and the numbers of senders.
        let overlay = plan.overlay.as_ref();
        let hop = overlay.filter(|overlay| overlay.hops.iter().any(|hop| hop.flow.0 as usize == i));
        hop.map_or(own, |overlay| fingerprint(&(own, overlay)))
    };
    let mut prints: Vec<u32> = flows(plan).enumerate().map(own).collect();
    for tree in &plan.trees {
        let whole = fingerprint(&&prints[tree.flows()]);
        prints[tree.flows()].fill(whole);
    }
    // A switch's process checks the flows through it, too.
    for session in &plan.sessions {
        let switches = session.stations.iter().map(|station| (station, &plan.switches[station.switch]));
        let whole = fingerprint(&(&prints[session.flows()], switches.collect::<Vec<_>>()));
        prints[session.flows()].fill(whole);
    }
    prints
}

/// FNV-1a over the `Debug` text, never 0.
fn fingerprint(what: &impl Debug) -> u32 {
    struct Fnv(u32);
    impl Write for Fnv {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0 =
                text.bytes().fold(self.0, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            Ok(())
        }
    }
    let mut fnv = Fnv(0x811c_9dc5);
    // Writing to a number cannot fail.
    let _ = write!(fnv, "{what:?}");
    fnv.0.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Scenario;

    const FILE: &str = r#"
        name = "tree"
        duration = "1 s"
        node = { a = {}, r = {}, leaf = { count = 2 } }
        link.ar = { from = "a", to = "r", rate = "1 Mbps", law = "fcp" }
        link.down = { from = "r", to = "leaf", rate = "1 Mbps", law = "fcp" }
        flow.f = { from = "a", to = "leaf.1", law = "newreno", size = "1 MB" }
        flow.t = { from = "a", to = "leaf", law = "fcp", multicast = true }
        workload.w = { from = "a", to = "leaf.1", law = "cubic", arrivals = { interval = "500 ms" }, sizes = { exponential = "20 kB" } }
        "#;

    fn of(text: &str, sets: &[&str]) -> Vec<u32> {
        let scenario = Scenario::parse("tree.toml", text, sets).unwrap();
        fingerprints(&scenario.variants()[0].plan)
    }

    #[test]
    fn a_flow_has_the_same_at_both_ends_if_it_is_the_same_there() {
        let here = of(FILE, &[]);
        assert_eq!(here.len(), 5);
        assert!(here[1] == here[2] && here[0] != here[1] && here[3] != here[4] && !here.contains(&0));
        // Settings that do not affect the flows' ends.
        assert_eq!(of(FILE, &["link.ar.rate=2 Mbps", "flow.f.start=100 ms"]), here);
        let changed = |sets: &[&str]| {
            let there = of(FILE, sets);
            assert_eq!(there.len(), here.len(), "{sets:?}");
            (0..here.len()).filter(|&i| there[i] != here[i]).collect::<Vec<_>>()
        };
        for set in [
            "flow.f.to=leaf.2",
            "flow.f.size=2 MB",
            "flow.f.law=cubic",
            "flow.f.packet-size=1000 B",
            "flow.f.delayed-ack=40 ms",
        ] {
            assert_eq!(changed(&[set]), [0], "{set}");
        }
        assert_eq!(changed(&["flow.t.size=1 MB"]), [1, 2]);
        assert_eq!(changed(&["workload.w.packet-size=1000 B"]), [3, 4]);
        assert_eq!(changed(&["seed=7"]), [3, 4], "chance has others send as much");
        assert_eq!(of(&FILE.replace("flow.f", "flow.e"), &[])[1..], here[1..]);
        assert_ne!(of(&FILE.replace("flow.f", "flow.e"), &[])[0], here[0]);
    }
}
