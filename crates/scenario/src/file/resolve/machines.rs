//! Machines at nodes, and the flow ends that apps own.

use tollway_proto::transport::{self as proto, FlowControl};

use super::{Resolver, matches};
use crate::file::keys;
use crate::file::reader::Reader;
use crate::plan::{Data, FlowId, Machine, MachineKind, NodeId};

impl<'a> Resolver<'a> {
    /// Resolves all machines.
    pub(super) fn machines(&mut self) {
        for (name, keys) in self.top.named("machine", &keys::MACHINE) {
            let Some(group) = self.group(&keys, "node") else { continue };
            let Some(kind) = MachineKind::of(keys.word("kind")) else { continue };
            let messages =
                (keys.count("messages").unwrap_or_default(), keys.bytes("size").unwrap_or_default());
            let first = self.plan.machines.len();
            for k in 0..group.count {
                let name = if group.numbered { format!("{name}.{}", k + 1) } else { name.to_owned() };
                let node = NodeId(group.first + k);
                self.plan.machines.push(Machine { name, node, kind, messages, ends: Vec::new() });
            }
            match (kind.is_app, keys.text("flows")) {
                (true, Some(pattern)) => self.app(&keys, first, &pattern),
                (true, None) => {
                    self.mistakes
                        .add(keys.place(), "an app needs `flows`", "no `flows`")
                        .help("name flows that begin or end at its node");
                }
                (false, Some(_)) => {
                    let message = format!("a `{}` sees all packets at its node, and has no flows", kind.word);
                    self.mistakes.add(keys.key_at("flows"), message, "no effect").help("leave it out");
                }
                (false, None) => {}
            }
        }
    }

    /// Assigns flow ends to the apps from `first` on.
    fn app(&mut self, keys: &Reader<'a>, first: usize, pattern: &str) {
        let at = keys.at("flows");
        let mut found = false;
        for (i, flow) in self.plan.flows.iter_mut().enumerate() {
            if !matches(pattern, &flow.name) && !matches(pattern, &flow.section) {
                continue;
            }
            found = true;
            let id = FlowId(i as u32);
            let before = self.plan.machines[..first].iter().flat_map(|machine| &machine.ends);
            let taken: Vec<bool> = before.filter(|end| end.0 == id).map(|end| end.1).collect();
            let (own, name) = (&mut self.plan.machines[first..], &flow.name);
            let nodes = [(flow.path.from, true), (flow.path.to, false)];
            let owner = nodes.into_iter().find_map(|(node, client)| {
                Some((own.iter().position(|machine| machine.node == node)?, client))
            });
            let transport = &self.plan.transports[flow.transport.0 as usize];
            let tree = self.plan.trees.iter().any(|tree| tree.flows().contains(&i));
            let (message, help) = match owner {
                None => (format!("`{name}` neither begins nor ends at this node"), "name the node of an end"),
                Some((_, client)) if taken.contains(&client) => {
                    (format!("this end of `{name}` already has another app"), "give it to only one of them")
                }
                _ if tree => (
                    format!("`{name}` is multicast, and its receivers send nothing"),
                    "give each receiver a flow",
                ),
                _ if transport.kernel => {
                    (format!("`{name}` uses the kernel's TCP"), "leave out `transport = \"kernel\"`")
                }
                _ if transport.reader != proto::Reader::AtOnce
                    || transport.flow_control == FlowControl::Soft =>
                {
                    (
                        format!("an app reads the data of `{name}` at once"),
                        "leave out its `reader` and `flow-control`",
                    )
                }
                _ if !transport.both_ways => {
                    (format!("`{name}` has apps at both ends, and both send"), "give it `both-ways = true`")
                }
                _ if !matches!(flow.data, Data::Endless | Data::Messages) => {
                    (format!("the app sets the data of `{name}`"), "leave out its `size` or `frames`")
                }
                Some((machine, client)) => {
                    flow.data = Data::Messages;
                    own[machine].ends.push((id, client));
                    continue;
                }
            };
            self.mistakes.add(at, message, "not for an app").help(help);
            return;
        }
        if !found {
            self.unknown("flow", pattern, at);
        }
    }

    /// Checks that flows of apps have an app at each end and no policy.
    pub(super) fn owned(&mut self) {
        let machines: Vec<_> = self.top.named("machine", &keys::MACHINE).collect();
        for (i, flow) in self.plan.flows.iter().enumerate().filter(|(_, flow)| flow.data == Data::Messages) {
            let mut owners = self
                .plan
                .machines
                .iter()
                .filter(|machine| machine.ends.iter().any(|end| end.0.0 as usize == i));
            let (Some(owner), other) = (owners.next(), owners.next()) else { continue };
            let section = owner.name.split('.').next().unwrap_or_default();
            let keys = machines.iter().find(|(name, _)| *name == section || *name == owner.name);
            let Some((_, keys)) = keys else { continue };
            let name = &flow.name;
            let (message, help) = match (other, flow.shaped) {
                (None, _) => (
                    format!("`{name}` has an app at one end only"),
                    "put another machine at its other end, with the same `flows`",
                ),
                (_, Some(_)) => (
                    format!("`{name}` matches a policy, and an app's flow cannot have one"),
                    "exclude it with the aggregate's `flows`",
                ),
                _ => continue,
            };
            self.mistakes.add(keys.at("flows"), message, "here").help(help);
        }
    }
}
