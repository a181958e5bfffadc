//! A cost-benefit overlay.

use std::sync::Arc;

use tollway_law::overlay::{AnnounceConfig, Benefit, CostConfig, PurseConfig};
use tollway_proto::overlay::Demand;

use super::*;

/// Daemons, their hops, groups and senders.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// The price of hops.
    pub cost: CostConfig,
    /// Salaries.
    pub purse: PurseConfig,
    /// Announcements.
    pub announce: AnnounceConfig,
    /// How long messages are kept for a daemon out of reach.
    pub patience: Time,
    /// Bytes of a message on a link, all headers included.
    pub message: u32,
    /// The nodes with a daemon, ascending.
    pub daemons: Vec<NodeId>,
    /// Connections between daemons.
    pub hops: Vec<Hop>,
    /// Groups.
    pub groups: Vec<Group>,
    /// Senders.
    pub senders: Vec<Sender>,
}

/// A connection between two daemons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop {
    /// The flow between them, with data both ways.
    pub flow: FlowId,
    /// Its length for shortest paths.
    pub length: u16,
}

/// A group of receivers.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `g`, or `g.3`.
    pub name: String,
    /// Where its receivers are, ascending.
    pub members: Vec<NodeId>,
    /// All members take all messages in one order. Nodes with senders are members, too.
    pub ordered: bool,
}

/// A sender to a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Sender {
    /// `s`, or `s.3`.
    pub name: String,
    /// The section of the file it comes from.
    pub section: Arc<str>,
    /// Where it is.
    pub at: NodeId,
    /// Its group, as an index into [`Overlay::groups`].
    pub group: usize,
    /// When it begins.
    pub start: Time,
    /// When it ends; [`Time::NEVER`] if it does not.
    pub stop: Time,
    /// When it has a message.
    pub demand: Demand,
    /// It has messages for the first span, none for the second, and so on.
    pub on_off: Option<(Time, Time)>,
    /// Whose purse it spends from; its own if `None`.
    pub tenant: Option<String>,
    /// That purse's salary, as a multiple of the others'.
    pub salary: f64,
    /// What its messages are worth.
    pub benefit: Benefit,
}
