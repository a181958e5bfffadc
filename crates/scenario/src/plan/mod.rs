//! The resolved form of a scenario: plain data in law units, names turned into indices, no default left implicit.
//!
//! A [`Plan`] is one run: one variant of one file. Either engine is built from it without looking anything up:
//! routes are lists of link indices, limits are packets and bytes, `"2 BDP"` and `{ first, last }` are worked out.

mod events;
mod links;
mod owners;
mod senders;
mod traffic;

use std::sync::Arc;

use tollway_law::link::ExchangeRate;
use tollway_law::meter::Duty;
use tollway_law::sender::{CheatTimes, FcpTrick};
use tollway_law::{Bytes, Rate, Time};
use tollway_proto::port::{FlowQueuesConfig, Limit};
use tollway_sim::Trace;

pub use events::*;
pub use links::*;
pub use owners::*;
pub use senders::*;
pub use traffic::*;

/// Index into [`Plan::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Index into [`Plan::links`]: one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Index into [`Plan::flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// Index into [`Plan::transports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(pub u32);

/// Index into [`Plan::media`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediumId(pub u32);

/// One run, complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The scenario's name.
    pub name: String,
    /// A line to print over results; the name if the file has none.
    pub title: String,
    /// Where the experiment comes from.
    pub source: Option<String>,
    /// What the scenario is about.
    pub description: Option<String>,
    /// The variant this is; `None` if the file has none.
    pub variant: Option<String>,
    /// How long to run.
    pub duration: Time,
    /// What every random choice of the run is drawn from.
    pub seed: u64,
    /// What is measured.
    pub measure: Measure,
    /// Every node, in the file's order, group members in theirs.
    pub nodes: Vec<Node>,
    /// Every direction of every link; the directions of a duplex link stand side by side, forward first.
    pub links: Vec<Link>,
    /// Half-duplex media.
    pub media: Vec<Medium>,
    /// Classes of traffic: class i + 1 of [`Transport::class`] stands at i.
    pub classes: Vec<Class>,
    /// Settings of transports, shared by the flows of one section.
    pub transports: Vec<Transport>,
    /// Every flow that is known beforehand.
    pub flows: Vec<Flow>,
    /// Flows with several receivers.
    pub trees: Vec<Tree>,
    /// Flows that come by chance.
    pub workloads: Vec<Workload>,
    /// Owners of budgets.
    pub hosts: Vec<Host>,
    /// Policies for aggregates of flows.
    pub aggregates: Vec<Aggregate>,
    /// Hosts that have any.
    pub shapers: Vec<Shaper>,
    /// Constant-rate cross-traffic.
    pub cbrs: Vec<Cbr>,
    /// What happens on the way, by time, in the file's order where times are equal.
    pub changes: Vec<Change>,
    /// Random loss beyond [`Link::loss`].
    pub losses: Vec<Loss>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Length of a row of the interval tables; `None` writes summaries only.
    pub interval: Option<Time>,
    /// What happens before this instant is left out of summaries.
    pub warmup: Time,
}

/// A host or a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `r`, or `s.3` for the third member of the group `s`.
    pub name: String,
}
