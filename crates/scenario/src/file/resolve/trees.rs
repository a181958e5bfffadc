//! Flows with several receivers.

use std::collections::{BTreeMap, BTreeSet};

use tollway_law::toll::Content;

use super::Resolver;
use crate::file::reader::Reader;
use crate::plan::{Detection, FlowId, TransportId, Tree};

impl<'a> Resolver<'a> {
    /// Makes one multicast flow of a section's flows, `n` from `first` on.
    pub(super) fn tree(&mut self, keys: &Reader<'a>, transport: TransportId, first: usize, n: u64) {
        let at = keys.at("multicast");
        let transport = &mut self.plan.transports[transport.0 as usize];
        let senders: BTreeSet<_> = self.plan.flows[first..].iter().map(|flow| flow.path.from).collect();
        let (wrong, message, help) = if transport.law.descriptor().reads != Some(Content::Price) {
            (
                true,
                "multicast needs the law `fcp`: only prices can be added up over a tree",
                "use `law = \"fcp\"`",
            )
        } else if senders.len() > 1 {
            (true, "a multicast flow has one sender", "name one node in `from`, and a group in `to`")
        } else if n < 2 || keys.has("count") {
            (
                true,
                "a multicast flow has a receiver for each member of the group `to`",
                "name a group in `to`, and leave out `count`",
            )
        } else if transport.both_ways {
            (true, "receivers of a multicast flow send nothing", "leave out `both-ways`")
        } else {
            (
                keys.has("sack") && keys.truth("sack"),
                "multicast does not support SACK: its receivers lose different packets",
                "leave out `sack`",
            )
        };
        if wrong {
            self.mistakes.add(at, message, "here").help(help);
            return;
        }
        transport.sack_blocks = 0;
        transport.loss_detection = Detection::NewReno;
        self.plan.trees.push(Tree { first: FlowId(first as u32), count: n as u32 });
        self.trees.push(at);
    }

    /// Checks that the routes of each multicast flow form a tree: data are copied downwards,
    /// acknowledgements merge upwards.
    pub(super) fn trees(&mut self) {
        for (tree, at) in self.plan.trees.iter().zip(std::mem::take(&mut self.trees)) {
            let routes = || self.plan.flows[tree.flows()].iter().map(|flow| &flow.path.route);
            let links: BTreeSet<_> = routes().flatten().collect();
            let link = |id: &crate::plan::LinkId| &self.plan.links[id.0 as usize];
            let mut into = BTreeMap::new();
            let name = |node: crate::plan::NodeId| self.plan.nodes[node.0 as usize].name.as_str();
            let mut wrong = None;
            for id in &links {
                *into.entry(link(id).to).or_insert(0) += 1;
                if link(id).twin.is_none() {
                    wrong = Some(format!(
                        "acknowledgements cannot return over `{}`, which has no reverse direction",
                        link(id).name
                    ));
                }
            }
            if let Some((node, _)) = into.iter().find(|(_, ways)| **ways > 1) {
                wrong = Some(format!("the routes to its receivers meet again at `{}`", name(*node)));
            }
            if let Some(flow) = self.plan.flows[tree.flows()]
                .iter()
                .find(|flow| links.iter().any(|id| link(id).from == flow.path.to))
            {
                wrong =
                    Some(format!("`{}` is a receiver on the route to another receiver", name(flow.path.to)));
            }
            let firsts: BTreeSet<_> = routes().filter_map(|route| route.first()).collect();
            if firsts.len() > 1 {
                wrong = Some(
                    "its sender has several links to its receivers, and only routers make copies".to_owned(),
                );
            }
            if let Some(message) = wrong {
                self.mistakes.add(at, message, "this tree").help("put a router and a link between");
            }
        }
    }
}
