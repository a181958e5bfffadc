//! The resolved form of a scenario: plain data in law units, with indices for names and no implicit
//! default.
//!
//! A [`Plan`] describes one run: one variant of one file. Both engines are built from it without
//! further lookups. Routes are lists of link indices, limits are packets and bytes, and `"2 BDP"`
//! and `{ first, last }` are computed.

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

use compact_str::CompactString;
use tollway_law::link::ExchangeRate;
use tollway_law::meter::Duty;
use tollway_law::{Bytes, Rate, Time};
use tollway_proto::Change;
use tollway_proto::port::Limit;
use tollway_proto::transport::{FlowControl, Reader};
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

/// The complete description of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The scenario's name.
    pub name: String,
    /// The title of the results; the scenario's name if the file has no title.
    pub title: String,
    /// Origin of the experiment: paper, section, figure.
    pub source: Option<String>,
    /// A description of the scenario.
    pub description: Option<String>,
    /// The variant's name; `None` if the file has no variants.
    pub variant: Option<String>,
    /// Duration of the run.
    pub duration: Time,
    /// Seed of every random choice of the run.
    pub seed: u64,
    /// Settings of the measurement.
    pub measure: Measure,
    /// All nodes, in the file's order; members of a group in the group's order.
    pub nodes: Vec<Node>,
    /// All directions of all links; the two directions of a duplex link are adjacent, forward
    /// first.
    pub links: Vec<Link>,
    /// Division of traffic among equal-cost routes.
    pub equal_cost: EqualCost,
    /// Half-duplex media.
    pub media: Vec<Medium>,
    /// Classes of traffic: class i + 1 of [`Transport::class`] has index i.
    pub classes: Vec<Class>,
    /// Settings of transports; the flows of one section share one entry.
    pub transports: Vec<Transport>,
    /// Flows that the file lists one by one or by number; flows of workloads are not among them.
    pub flows: Vec<Flow>,
    /// Flows with several receivers.
    pub trees: Vec<Tree>,
    /// Generators of flows that arrive at random.
    pub workloads: Vec<Workload>,
    /// Owners of budgets.
    pub hosts: Vec<BudgetOwner>,
    /// Token-bucket policies for aggregates of flows.
    pub aggregates: Vec<Aggregate>,
    /// Hosts with policies.
    pub shapers: Vec<Shaper>,
    /// Constant-rate cross-traffic.
    pub cbrs: Vec<Cbr>,
    /// Machines at nodes; those of one node in the order in which a packet passes them.
    pub machines: Vec<Machine>,
    /// The cost-benefit multicast overlay.
    pub overlay: Option<overlay::Overlay>,
    /// Anypoint switches.
    pub switches: Vec<switch::Switch>,
    /// Sessions over the switches.
    pub sessions: Vec<switch::Session>,
    /// Events during the run, by time; events at one instant keep the file's order.
    pub events: Vec<Event>,
    /// Changes of relayed connections, by time; they take effect in `tollway exec` only.
    pub port_changes: Vec<PortChange>,
    /// Random loss beyond [`LinkSection::loss`].
    pub losses: Vec<Loss>,
}

impl Plan {
    /// The least number of rows in the run's interval tables: rows of shown links and of endless
    /// flows.
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

    /// Returns, for each link, true if it gets rows in the interval tables.
    ///
    /// A network of up to 64 link directions shows all of them. A larger one shows the links that
    /// carry the data of several flows, with their reverse directions. A row for each of a thousand
    /// access links in each interval would cost more than the run.
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

/// The largest number of link directions of which all get rows.
const FEW_LINKS: usize = 64;

/// Settings of the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Length of an interval, one row in the interval tables; `None` writes summaries only.
    pub interval: Option<Time>,
    /// Length of the warm-up; summaries leave out everything before this instant.
    pub warmup: Time,
}

/// A host or a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `r`, or `s.3` for the third member of the group `s`.
    pub name: CompactString,
}
