//! Who flows belong to: hosts with budgets, policies with token buckets.

use tollway_law::words;
use tollway_proto::shaper::PolicyConfig;

use super::*;

/// An owner of a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// What its flows may spend together, $/s.
    pub budget: f64,
    /// How it divides that.
    pub strategy: Strategy,
    /// Its flows.
    pub flows: Vec<FlowId>,
    /// Its workloads, indices into [`Plan::workloads`].
    pub workloads: Vec<usize>,
}

impl Plan {
    /// The nodes where the data of a host's flows come from, each as often as it is that of one.
    pub fn senders_of<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = NodeId> + 'a {
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
    /// What flows keep to, and how they share it.
    pub policy: PolicyConfig,
    /// Packets of cross-traffic that may wait, of each source.
    pub queue: u32,
    /// In force from this instant.
    pub install: Time,
    /// Until this one; [`Time::NEVER`] for good.
    pub remove: Time,
}

/// A host with policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// The host.
    pub node: NodeId,
    /// Period of its timer.
    pub timer: Time,
    /// Each flow that waits has one instead.
    pub flow_timers: bool,
    /// For each kind of flow that policies tell apart, those that are for it, indices into [`Plan::aggregates`], the most
    /// specific first.
    pub classes: Vec<Vec<usize>>,
}

/// Where a flow asks before it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Index into [`Plan::shapers`].
    pub shaper: usize,
    /// Index into its classes.
    pub class: u32,
}

words! {
    /// How a budget is divided (the FCP report, § 4.2).
    pub enum Strategy {
        /// By weight.
        EqualBudget = "equal-budget",
        /// Each its weight's part, whoever is there.
        Fixed = "fixed",
        /// A ten-thousandth, by weight.
        Background = "background",
        /// The same rate for all.
        EqualThroughput = "equal-throughput",
        /// The most in all.
        MaxThroughput = "max-throughput",
        /// Steady rates for those that want one.
        Stable = "stable",
    }
}
