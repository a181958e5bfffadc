//! Who flows belong to: hosts with budgets, policies with token buckets.

use tollway_law::words;

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
    /// r.
    pub rate: Rate,
    /// B.
    pub depth: Bytes,
    /// p.
    pub peak: Option<Rate>,
    /// L, bytes.
    pub largest: Option<u32>,
    /// How tokens are shared.
    pub scheme: AggregateScheme,
    /// Partitions have depths by round trip, not equal ones.
    pub by_rtt: bool,
    /// Who goes first.
    pub order: AggregateOrder,
    /// What is done to packets that don't conform.
    pub action: AggregateAction,
    /// Packets of cross-traffic that may wait, of each source.
    pub queue: u32,
    /// How windows grow.
    pub window: WindowIncrease,
    /// In force from this instant.
    pub install: Time,
    /// Until this one; [`Time::NEVER`] for good.
    pub remove: Time,
}

/// How tokens are shared (the aggregates paper, § 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateScheme {
    /// A bucket each.
    Partitioned,
    /// One for whoever comes.
    Common,
    /// One with a partition each.
    Logical,
}

/// Who of those that wait goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateOrder {
    /// Who came first of all.
    Sequential,
    /// Who has waited longest.
    Fcfs,
    /// Whose last packet is longest ago.
    Lru,
}

/// What is done to a packet that doesn't conform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateAction {
    /// It waits.
    Shape,
    /// It goes unmarked.
    Mark,
    /// It is dropped.
    Drop,
}

/// How windows under a policy grow a round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowIncrease {
    /// As their law has it.
    Standard,
    /// By rtt²/rtt_av².
    AggregateFair,
    /// By `k` packets from a round trip on.
    ByK {
        /// Packets.
        k: f64,
        /// From this round trip on.
        long: Time,
    },
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
