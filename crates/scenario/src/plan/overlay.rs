//! The plan of a cost-benefit overlay.

use std::sync::Arc;

use tollway_law::overlay::{AnnounceConfig, Benefit, CostConfig, PurseConfig};
use tollway_proto::overlay::ArrivalProcess;

use super::*;

/// An overlay: daemons, their hops, groups and senders.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// Constants of the cost of hops.
    pub cost: CostConfig,
    /// Constants of salaries and purses.
    pub purse: PurseConfig,
    /// Constants of price announcements.
    pub announce: AnnounceConfig,
    /// Time for which a daemon keeps messages for an unreachable daemon.
    pub patience: Time,
    /// Size of a message on a link, bytes, all headers included.
    pub message: u32,
    /// The nodes with a daemon, ascending.
    pub daemons: Vec<NodeId>,
    /// Connections between daemons.
    pub hops: Vec<Hop>,
    /// Groups of receivers.
    pub groups: Vec<Group>,
    /// Senders.
    pub senders: Vec<Sender>,
}

/// A connection between two daemons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop {
    /// The flow between them, with data both ways.
    pub flow: FlowId,
    /// Length of the hop in the shortest-path computation.
    pub length: u16,
}

/// A group of receivers.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `g`, or `g.3` for the third group of a section.
    pub name: String,
    /// Nodes of the receivers, ascending.
    pub members: Vec<NodeId>,
    /// True if all members deliver all messages in one order. Nodes with senders are then members,
    /// too.
    pub ordered: bool,
}

/// A sender to a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Sender {
    /// `s`, or `s.3` for the third sender of a section.
    pub name: String,
    /// The section of the file.
    pub section: Arc<str>,
    /// The sender's node.
    pub at: NodeId,
    /// Its group, as an index into [`Overlay::groups`].
    pub group: usize,
    /// Start of the messages.
    pub start: Time,
    /// End of the messages; [`Time::NEVER`] if there is no end.
    pub stop: Time,
    /// The process by which messages are generated.
    pub demand: ArrivalProcess,
    /// Lengths of the on and off periods, on first; `None` is always on.
    pub on_off: Option<(Time, Time)>,
    /// The tenant whose purse pays; `None` is a purse for this sender alone.
    pub tenant: Option<String>,
    /// The purse's salary, as a multiple of the other purses'.
    pub salary: f64,
    /// The benefit of its messages.
    pub benefit: Benefit,
}
