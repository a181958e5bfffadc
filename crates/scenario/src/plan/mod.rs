//! The resolved form of a scenario: plain data in law units, names turned into indices, no default left implicit.
//!
//! A [`Plan`] is one run: one variant of one file. Either engine is built from it without looking anything up:
//! routes are lists of link indices, limits are packets and bytes, `"2 BDP"` and `{ first, last }` are worked out.

mod events;
mod links;
mod machines;
pub mod overlay;
mod own;
mod owners;
mod senders;
pub mod switch;
mod traffic;

use std::sync::Arc;

use tollway_law::link::ExchangeRate;
use tollway_law::meter::Duty;
use tollway_law::{Bytes, Rate, Time};
use tollway_proto::port::Limit;
use tollway_proto::transport::{FlowControl, Reader};
use tollway_proto::{Change, FlowChange};
use tollway_sim::Trace;

pub use events::*;
pub use links::*;
pub use machines::*;
pub use own::*;
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
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// How traffic is divided among equal-cost routes.
    pub equal_cost: EqualCost,
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
    /// Machines at nodes; those of one node in the order in which a packet passes them.
    pub machines: Vec<Machine>,
    /// Daemons that multicast messages at a price.
    pub overlay: Option<overlay::Overlay>,
    /// Anypoint switches.
    pub switches: Vec<switch::Switch>,
    /// Connections over them.
    pub sessions: Vec<switch::Session>,
    /// What happens on the way, by time, in the file's order where times are equal.
    pub events: Vec<Event>,
    /// Random loss beyond [`LinkSection::loss`].
    pub losses: Vec<Loss>,
}

impl Plan {
    /// Rows that the interval tables of the run will have at least: those of links, and of flows that send for as long as they are let.
    pub fn least_rows(&self) -> u64 {
        let Some(interval) = self.measure.interval.filter(|interval| *interval > Time::ZERO) else {
            return 0;
        };
        let rows = |span: Time| span.0.div_ceil(interval.0);
        let links = self.shown_links().into_iter().filter(|shown| *shown).count() as u64;
        let endless = self.flows.iter().filter(|flow| flow.data.is_endless());
        let flows = endless.map(|flow| rows(flow.stop.min(self.duration).saturating_sub(flow.start)));
        flows.fold(rows(self.duration).saturating_mul(links), u64::saturating_add)
    }

    /// Which links get rows in the interval tables: all of a small network; of a large one those that several flows' data share, since
    /// a row for each of a thousand access links an interval would cost more than the run and tell less.
    pub fn shown_links(&self) -> Vec<bool> {
        if self.links.len() <= FEW_LINKS {
            return vec![true; self.links.len()];
        }
        let mut users = vec![0u32; self.links.len()];
        let cbrs = self.cbrs.iter().map(|cbr| &cbr.route[..]);
        for route in self.flows.iter().map(|flow| flow.path.links()).chain(cbrs) {
            for link in route {
                users[link.0 as usize] += 1;
            }
        }
        for workload in &self.workloads {
            for link in workload.paths.iter().flat_map(|path| path.links()) {
                users[link.0 as usize] += 2;
            }
        }
        let shared = |i: usize| users[i] > 1;
        let twin = |i: usize| self.links[i].twin.is_some_and(|twin| users[twin.0 as usize] > 1);
        let reverse = |i: usize| self.links[i].direction == Direction::Reverse;
        (0..self.links.len()).map(|i| shared(i) || reverse(i) && twin(i)).collect()
    }
}

/// Up to how many link directions each gets rows.
const FEW_LINKS: usize = 64;

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
