//! The key `after`: flows that start when others have ended.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::Resolver;
use crate::file::keys;
use crate::file::reader::Reader;
use crate::plan::{Data, FlowId};

impl<'a> Resolver<'a> {
    /// Resolves `after` of every flow.
    pub(super) fn after(&mut self) {
        let mut sections: HashMap<Arc<str>, Range<usize>> = HashMap::new();
        for (i, flow) in self.plan.flows.iter().enumerate() {
            sections.entry(flow.section.clone()).or_insert(i..i).end = i + 1;
        }
        let waiting = self.top.named("flow", &keys::FLOW).filter(|(_, keys)| keys.has("after"));
        for (name, keys) in waiting {
            let Some(flows) = sections.get(name).cloned() else { continue };
            if keys.truth("multicast") || keys.has("session") {
                self.mistakes
                    .add(
                        keys.key_at("after"),
                        "`after` does not work for a flow with several connections",
                        "here",
                    )
                    .help("leave out `after`, and give a `start`");
                continue;
            }
            let Some(others) = self.awaited(&keys, &sections) else { continue };
            if others.len() == flows.len() && sections.values().any(|range| *range == others) {
                for (flow, other) in flows.zip(others) {
                    self.plan.flows[flow].after = Some(Arc::from([FlowId(other as u32)]));
                }
            } else {
                let all: Arc<[FlowId]> = others.map(|other| FlowId(other as u32)).collect();
                for flow in flows {
                    self.plan.flows[flow].after = Some(all.clone());
                }
            }
        }
        self.circles();
    }

    /// The flows that a section's `after` names.
    fn awaited(
        &mut self,
        keys: &Reader<'a>,
        sections: &HashMap<Arc<str>, Range<usize>>,
    ) -> Option<Range<usize>> {
        let name = keys.text("after")?;
        let one = || self.plan.flows.iter().position(|flow| flow.name == name).map(|at| at..at + 1);
        let Some(others) = sections.get(&*name).cloned().or_else(one) else {
            self.unknown("flow", &name, keys.at("after"));
            return None;
        };
        let endless = |i: &usize| {
            let flow = &self.plan.flows[*i];
            matches!(flow.data, Data::Messages) || flow.data.is_endless() && flow.stop >= self.plan.duration
        };
        if let Some(other) = others.clone().find(endless) {
            let other = &self.plan.flows[other].name;
            self.mistakes
                .add(keys.at("after"), format!("`{other}` never ends"), "waits forever")
                .help("give it a `size`, `frames` with a `count`, or a `stop`");
            return None;
        }
        Some(others)
    }

    /// Reports a cycle of flows that wait for each other.
    fn circles(&mut self) {
        let flows = &self.plan.flows;
        let mut left: Vec<usize> =
            flows.iter().map(|flow| flow.after.as_ref().map_or(0, |all| all.len())).collect();
        let mut followers: HashMap<u32, Vec<usize>> = HashMap::new();
        for (i, flow) in flows.iter().enumerate() {
            for other in flow.after.iter().flat_map(|all| all.iter()) {
                followers.entry(other.0).or_default().push(i);
            }
        }
        let mut free: Vec<usize> = (0..flows.len()).filter(|&i| left[i] == 0).collect();
        while let Some(i) = free.pop() {
            for &follower in followers.get(&(i as u32)).into_iter().flatten() {
                left[follower] -= 1;
                if left[follower] == 0 {
                    free.push(follower);
                }
            }
        }
        let Some(stuck) = (0..flows.len()).find(|&i| left[i] > 0) else { return };
        let (name, section) = (flows[stuck].name.clone(), flows[stuck].section.clone());
        let keys = self.top.named("flow", &keys::FLOW).find(|(name, _)| **name == *section);
        let at = keys.map_or_else(|| self.top.place(), |(_, keys)| keys.at("after"));
        self.mistakes.add(at, format!("`{name}` waits for its own end"), "a circle");
    }
}
