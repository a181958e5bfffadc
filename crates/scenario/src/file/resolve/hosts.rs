//! Owners of budgets.

use super::{Resolver, matches};
use crate::file::keys;
use crate::plan::{BudgetOwner, FlowId, Strategy, TransportId};

impl Resolver<'_> {
    /// Resolves all hosts, with their flows and workloads.
    pub(super) fn hosts(&mut self) {
        for (name, keys) in self.top.named("host", &keys::HOST) {
            let Some(pattern) = keys.text("flows") else { continue };
            let at = keys.at("flows");
            let (mut flows, mut workloads) = (Vec::new(), Vec::new());
            let mut wrong = None;
            let mut check = |plan: &crate::plan::Plan, name: &str, transport: TransportId| {
                if plan.transports[transport.0 as usize].law.descriptor().spends.is_none() {
                    wrong.get_or_insert_with(|| name.to_owned());
                }
            };
            for (i, flow) in self.plan.flows.iter().enumerate() {
                if matches(&pattern, &flow.name) || matches(&pattern, &flow.section) {
                    check(&self.plan, &flow.name, flow.transport);
                    flows.push(FlowId(i as u32));
                }
            }
            for (i, workload) in self.plan.workloads.iter().enumerate() {
                if matches(&pattern, &workload.name) {
                    check(&self.plan, &workload.name, workload.transport);
                    workloads.push(i);
                }
            }
            if flows.is_empty() && workloads.is_empty() {
                let names = self.top.named("flow", &keys::FLOW).map(|(name, _)| name);
                let names: Vec<&str> =
                    names.chain(self.top.named("workload", &keys::WORKLOAD).map(|(name, _)| name)).collect();
                self.mistakes
                    .add(at, format!("there is no flow `{pattern}`"), "unknown flow")
                    .suggest(&pattern, names.into_iter());
            } else if let Some(flow) = wrong {
                self.mistakes
                    .add(at, format!("`{flow}` has no budget: its law is not `fcp`"), "not of the law `fcp`")
                    .help("a host can only have flows of the law `fcp`");
            }
            if let Some(flow) = flows.iter().find(|flow| self.plan.flows[flow.0 as usize].after.is_some()) {
                let name = &self.plan.flows[flow.0 as usize].name;
                let message = format!(
                    "`{name}` starts after another flow, and a host needs the start times of its flows"
                );
                self.mistakes
                    .add(at, message, "here")
                    .help("leave out its `after`, or give it a budget without a host");
            }
            let taken = self.plan.hosts.iter().find(|other| {
                other.flows.iter().any(|flow| flows.contains(flow))
                    || other.workloads.iter().any(|workload| workloads.contains(workload))
            });
            if let Some(other) = taken {
                let message = format!("a flow of `{pattern}` already belongs to host `{}`", other.name);
                self.mistakes.add(at, message, "owned twice");
            }
            self.plan.hosts.push(BudgetOwner {
                name: name.to_owned(),
                budget: keys.number("budget"),
                strategy: keys.one_of("strategy").unwrap_or(Strategy::EqualBudget),
                flows,
                workloads,
            });
        }
    }
}
