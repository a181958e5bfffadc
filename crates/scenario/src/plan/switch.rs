//! Anypoint switches, and the sessions over them.

use std::sync::Arc;

use tollway_law::session::Reading;
use tollway_proto::route::Policy;
use tollway_proto::switch::FlowControl;

use super::*;

/// A switch at a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// `s`, or `s.3` for the switch at the third member of a group of nodes.
    pub name: String,
    /// The section of the file.
    pub section: Arc<str>,
    /// Its node.
    pub node: NodeId,
    /// The policy that chooses a member for each frame.
    pub policy: Policy,
    /// Shares of a session's members, in their order; they replace the policy. Empty if the file
    /// gives none.
    pub shares: Vec<u32>,
    /// The caller's routing module; it replaces the policy and the shares.
    pub own: Option<OwnRoute>,
    /// The translation of windows between members and peer; `None`: soft for sessions with soft
    /// ends, else credit.
    pub flow_control: Option<FlowControl>,
    /// The variant of the paper's formulas.
    pub reading: Reading,
    /// Number of packets over which a receive ratio is computed.
    pub ratio_window: usize,
    /// The longest silence of a member while answers are due.
    pub patience: Time,
}

/// A connection over switches: consecutive flows of one section.
///
/// Flows from one node share one sender, and flows to one node share one receiver: those of the
/// first such flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// The section of its flows.
    pub name: Arc<str>,
    /// The first of the flows.
    pub first: FlowId,
    /// Their number.
    pub count: u32,
    /// Parts of the session's paths between switches.
    pub stretches: Vec<Stretch>,
    /// The switches on the session's paths.
    pub stations: Vec<Station>,
}

/// A part of a session's path with no switch inside.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// The end where data enter.
    pub from: StretchEnd,
    /// The end where data leave.
    pub to: StretchEnd,
    /// Its links, in the direction of data. Acknowledgements take their twins.
    pub links: Vec<LinkId>,
}

/// One end of a [`Stretch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StretchEnd {
    /// The sender of this flow, or its receiver.
    End(FlowId),
    /// A switch, as an index into [`Session::stations`].
    Station(usize),
}

/// A switch on a session's paths. Its stretches are indices into [`Session::stretches`].
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
    /// The flows, as a range of indices into [`Plan::flows`].
    pub fn flows(&self) -> std::ops::Range<usize> {
        self.first.0 as usize..(self.first.0 + self.count) as usize
    }

    /// Returns true if a switch schedules the session's frames over several members.
    pub fn spreads(&self) -> bool {
        let spreads = |(at, station): (usize, &Station)| {
            station.members.len() > 1 && self.stretches[station.peer].to == StretchEnd::Station(at)
        };
        self.stations.iter().enumerate().any(spreads)
    }

    /// The end of `stretch` that is not `station`.
    pub fn across(&self, station: usize, stretch: usize) -> StretchEnd {
        let Stretch { from, to, .. } = self.stretches[stretch];
        if from == StretchEnd::Station(station) { to } else { from }
    }

    /// The node of `place`, which must be an end of `stretch`.
    pub(crate) fn node(&self, plan: &Plan, stretch: usize, place: StretchEnd) -> NodeId {
        let Stretch { from, links, .. } = &self.stretches[stretch];
        let link = |at: Option<&LinkId>| at.map(|link| &plan.links[link.0 as usize]);
        let node = if *from == place { link(links.first()).map(|link| link.from) } else { None };
        node.or(link(links.last()).map(|link| link.to)).unwrap_or(NodeId(0))
    }

    /// The station and the member index of a flow's sender; `None` unless several flows have its
    /// receiver.
    pub(crate) fn share(&self, plan: &Plan, flow: usize) -> Option<(usize, usize)> {
        let sender = StretchEnd::End(FlowId(plan.sender_of(flow) as u32));
        let receiver = plan.receiver_of(flow);
        self.flows().find(|&other| other != flow && plan.receiver_of(other) == receiver)?;
        let stretch = self.stretches.iter().position(|stretch| stretch.from == sender)?;
        let member = |station: &Station| station.members.iter().position(|&member| member == stretch);
        self.stations.iter().enumerate().find_map(|(at, station)| Some((at, member(station)?)))
    }
}

impl Plan {
    /// The flow whose sender supplies the data of `flow`. Differs from `flow` only for receivers of
    /// a [`Tree`] and for flows of a [`Session`].
    pub fn sender_of(&self, flow: usize) -> usize {
        let tree = self.trees.iter().map(Tree::flows).find(|flows| flows.contains(&flow));
        let from = |flow: usize| self.flows[flow].path.from;
        tree.map(|flows| flows.start).unwrap_or_else(|| self.first_like(flow, from))
    }

    /// The flow whose receiver takes the data of `flow`. Differs from `flow` only for flows of a
    /// [`Session`].
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
