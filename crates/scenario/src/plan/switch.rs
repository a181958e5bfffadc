//! Anypoint switches, and the sessions over them.

use std::sync::Arc;

use tollway_law::session::Reading;
use tollway_proto::route::Policy;
use tollway_proto::switch::FlowControl;

use super::*;

/// A switch at a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// `s`, or `s.3` for that of the third member of a group of nodes.
    pub name: String,
    /// The section of the file it comes from.
    pub section: Arc<str>,
    /// Its node.
    pub node: NodeId,
    /// Its routing module.
    pub policy: Policy,
    /// Shares of a session's members, in their order, in place of the policy; empty without.
    pub shares: Vec<u32>,
    /// A routing module of the caller's, in place of both.
    pub own: Option<OwnRoute>,
    /// How it translates windows.
    pub flow_control: FlowControl,
    /// How it applies the paper's formulas.
    pub reading: Reading,
    /// Packets that a receive ratio looks back on.
    pub ratio_window: usize,
    /// The longest silence of a member while answers are due.
    pub patience: Time,
}

/// A connection over switches: flows of a section, one after the other. Flows from one node have one
/// sender, flows to one node one receiver: those of the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// The section of its flows.
    pub name: Arc<str>,
    /// The first of the flows.
    pub first: FlowId,
    /// Their number.
    pub count: u32,
    /// Its ways, taken apart at switches.
    pub stretches: Vec<Stretch>,
    /// The switches on its ways.
    pub stations: Vec<Station>,
}

/// A part of a session's ways without switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// The end at which data enter.
    pub from: Place,
    /// The end at which they leave.
    pub to: Place,
    /// Its links, in the direction of data. Acknowledgements take their twins.
    pub links: Vec<LinkId>,
}

/// An end of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The sender of this flow, or its receiver.
    End(FlowId),
    /// A switch, as an index into [`Session::stations`].
    Station(usize),
}

/// A switch on a session's ways. Its stretches are indices into [`Session::stretches`].
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// Index into [`Plan::switches`].
    pub switch: usize,
    /// The stretch to the peer.
    pub peer: usize,
    /// The stretches to members.
    pub members: Vec<usize>,
}

impl Session {
    /// Its flows.
    pub fn flows(&self) -> std::ops::Range<usize> {
        self.first.0 as usize..(self.first.0 + self.count) as usize
    }

    /// Returns true if a switch spreads its frames over members, by a schedule of its own.
    pub fn spreads(&self) -> bool {
        let spreads = |(at, station): (usize, &Station)| {
            station.members.len() > 1 && self.stretches[station.peer].to == Place::Station(at)
        };
        self.stations.iter().enumerate().any(spreads)
    }

    /// The other end of a stretch at a station.
    pub fn across(&self, station: usize, stretch: usize) -> Place {
        let Stretch { from, to, .. } = self.stretches[stretch];
        if from == Place::Station(station) { to } else { from }
    }

    /// The node of a place at the end of `stretch`.
    pub(crate) fn node(&self, plan: &Plan, stretch: usize, place: Place) -> NodeId {
        let Stretch { from, links, .. } = &self.stretches[stretch];
        let link = |at: Option<&LinkId>| at.map(|link| &plan.links[link.0 as usize]);
        let node = if *from == place { link(links.first()).map(|link| link.from) } else { None };
        node.or(link(links.last()).map(|link| link.to)).unwrap_or(NodeId(0))
    }

    /// The station and the member there that a flow's sender is, if others send to the same receiver.
    pub(crate) fn share(&self, plan: &Plan, flow: usize) -> Option<(usize, usize)> {
        let sender = Place::End(FlowId(plan.sender_of(flow) as u32));
        let receiver = plan.receiver_of(flow);
        self.flows().find(|&other| other != flow && plan.receiver_of(other) == receiver)?;
        let stretch = self.stretches.iter().position(|stretch| stretch.from == sender)?;
        let member = |station: &Station| station.members.iter().position(|&member| member == stretch);
        self.stations.iter().enumerate().find_map(|(at, station)| Some((at, member(station)?)))
    }
}

impl Plan {
    /// The flow whose sender sends what `flow` receives: itself, but for a receiver of a [`Tree`] and
    /// flows of a [`Session`].
    pub fn sender_of(&self, flow: usize) -> usize {
        let tree = self.trees.iter().map(Tree::flows).find(|flows| flows.contains(&flow));
        let from = |flow: usize| self.flows[flow].path.from;
        tree.map(|flows| flows.start).unwrap_or_else(|| self.first_like(flow, from))
    }

    /// The flow whose receiver receives what `flow` sends: itself, but for flows of a [`Session`].
    pub fn receiver_of(&self, flow: usize) -> usize {
        self.first_like(flow, |flow| self.flows[flow].path.to)
    }

    /// The first flow of a session with the same end as `flow`.
    fn first_like(&self, flow: usize, end: impl Fn(usize) -> NodeId) -> usize {
        let session = self.session_of(flow);
        let first = session.and_then(|session| session.flows().find(|&other| end(other) == end(flow)));
        first.unwrap_or(flow)
    }

    /// The session that a flow is part of.
    pub(crate) fn session_of(&self, flow: usize) -> Option<&Session> {
        self.sessions.iter().find(|session| session.flows().contains(&flow))
    }
}
