//! Owners of flows: hosts with budgets, policies with token buckets.

use tollway_law::{budget, words};
use tollway_proto::shaper::PolicyConfig;

use super::*;

/// An owner of a budget: a host whose flows follow the law `fcp`.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetOwner {
    /// Its name.
    pub name: String,
    /// Budget of all its flows together, $/s.
    pub budget: f64,
    /// Strategy by which the budget is divided.
    pub strategy: Strategy,
    /// Its flows.
    pub flows: Vec<FlowId>,
    /// Its workloads, indices into [`Plan::workloads`].
    pub workloads: Vec<usize>,
}

impl Plan {
    /// The source node of each of the host's flows and workload paths; a node may repeat.
    pub fn senders_of<'a>(&'a self, host: &'a BudgetOwner) -> impl Iterator<Item = NodeId> + 'a {
        let flows = host.flows.iter().map(|flow| &self.flows[flow.0 as usize].path);
        let workloads = host.workloads.iter().flat_map(|&workload| &self.workloads[workload].paths);
        flows.chain(workloads).map(|path| path.from)
    }
}

/// A policy for the flows that its filter matches, together (the aggregates paper, § 2 to § 6).
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// Its name.
    pub name: String,
    /// The filter, the rate and the division among flows.
    pub policy: PolicyConfig,
    /// Queue limit of each cross-traffic source, packets.
    pub queue: u32,
    /// Instant at which the policy is installed.
    pub install: Time,
    /// Instant at which the policy is removed; [`Time::NEVER`] if it stays.
    pub remove: Time,
}

/// A host with policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// The host.
    pub node: NodeId,
    /// Period of the host's timer.
    pub timer: Time,
    /// True if each waiting flow has a timer instead.
    pub flow_timers: bool,
    /// For each kind of flow that the policies distinguish, its policies, the most specific first:
    /// indices into [`Plan::aggregates`].
    pub classes: Vec<Vec<usize>>,
}

/// The shaper that a flow's packets pass at their host, and their class there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShaperClass {
    /// Index into [`Plan::shapers`].
    pub shaper: usize,
    /// Index into [`Shaper::classes`].
    pub class: u32,
}

words! {
    /// The division of a budget among a host's flows (the FCP report, § 4.2).
    pub enum Strategy {
        /// The whole budget, in proportion to the flows' weights.
        EqualBudget = "equal-budget",
        /// To each flow the fraction of the budget that its weight states; unused parts stay
        /// unspent.
        Fixed = "fixed",
        /// A ten-thousandth of the budget, in proportion to weights: background traffic.
        Background = "background",
        /// Equal rates for all flows, or rates in proportion to weights.
        EqualThroughput = "equal-throughput",
        /// The largest sum of rates.
        MaxThroughput = "max-throughput",
        /// Constant rates for flows with a target rate; the rest in proportion to weights.
        Stable = "stable",
    }
}

impl Strategy {
    /// Builds the rule.
    pub fn build(self) -> Box<dyn budget::Strategy + Send> {
        match self {
            Strategy::EqualBudget => Box::new(budget::EqualBudget),
            Strategy::Fixed => Box::new(budget::Fixed),
            Strategy::Background => Box::new(budget::Background::default()),
            Strategy::EqualThroughput => Box::new(budget::EqualThroughput::default()),
            Strategy::MaxThroughput => Box::new(budget::MaxThroughput::default()),
            Strategy::Stable => Box::new(budget::Stable),
        }
    }
}
