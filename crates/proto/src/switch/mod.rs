//! The Anypoint switch: one connection, spread over the members of a cluster and merged from them,
//! without termination (the Anypoint paper; its reference 8 for the rings).
//!
//! A [`Switch`] is a middle with *sessions*. A session has a gate for the peer and one for each
//! member; to each of them the switch looks like the other end of an ordinary connection.
//!
//! | direction | sequence numbers | acknowledgements |
//! |---|---|---|
//! | inbound, peer → members | per member, by routing | to the peer: up to a member's first gap |
//! | outbound, members → peer | by arrival | to each member: up to its first gap at the peer |
//!
//! **Holes.** A missing packet keeps its place. Inbound, its member is not known before it arrives.
//! So each member that gets later packets holds a number for it. Once the packet goes to one of
//! them, the others get a *null segment* under that number: data without payload and frame flags.
//!
//! **SACK.** A member's ranges become the peer's only as far as the packets before them have
//! arrived or are lost, so that a packet on a longer path does not look lost. The peer's ranges
//! count as received for the members, since receivers here never renege: one member's loss stalls
//! no other.
//!
//! **Tolls** are converted by [`Split`](tollway_law::session::Split) and
//! [`Merge`](tollway_law::session::Merge).
//!
//! **Frames.** Inbound, a frame of several packets goes to one member as a whole. Outbound, frames
//! of several members would mix, so each must fit one packet: a member that sends a longer one is
//! reset.
//!
//! **Failure.** A member without an answer for [`Config::patience`] is down. Packets that it had
//! not acknowledged go to others when the peer retransmits them. Those that it had reported are
//! counted ([`Stats::lost`]). Null segments replace its own packets that the peer lacks. A member
//! that returns starts a new connection. When none is left, the peer is reset.
//!
//! **Membership.** Members join and leave an open session ([`Switch::add_member`],
//! [`Switch::drain_member`]).

mod credit;
mod inbound;
mod members;
mod membership;
mod opening;
mod outbound;
mod ring;
mod sending;
mod session;

pub use members::Health;
pub use session::{MemberStats, Session, Stats};

use std::collections::VecDeque;

use tollway_law::Time;
use tollway_law::session::{Reading, ReceiveRatio};
use tollway_law::toll::Content;

use crate::route::{Candidate, Route};
use crate::{Flags, Gate, Middle, Packet, Passed, SackRanges};

/// The parameters of a session. Those that both its ends must agree on are as in the transport's
/// [`Config`](crate::transport::Config).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Headers of a data packet, bytes.
    pub header: u16,
    /// Size of a packet without data, bytes.
    pub ack_size: u16,
    /// True if connections are opened by SYN.
    pub handshake: bool,
    /// Number of the first segment, in both directions.
    pub initial_segment: u32,
    /// Packets that may be outstanding in each direction; powers of two use memory best.
    /// Default 8192.
    pub ring: u32,
    /// The translation of windows.
    pub flow_control: FlowControl,
    /// The content of tolls; `None` if there are none.
    pub content: Option<Content>,
    /// The reading of the paper's formulas.
    pub reading: Reading,
    /// Length of the receive ratio's window, packets. Default 64.
    pub ratio_window: usize,
    /// True if a frame of a member that is down waits for it, and moves to no other. A member that
    /// fails with packets that it has not acknowledged then ends its session.
    pub pinned: bool,
    /// The longest silence of a member while answers are due. Default 3 s.
    pub patience: Time,
}

impl Default for Config {
    fn default() -> Config {
        let transport = crate::transport::Config::default();
        Config {
            header: transport.header,
            ack_size: transport.ack_size,
            handshake: transport.handshake,
            initial_segment: transport.initial_segment,
            ring: 8192,
            flow_control: FlowControl::Credit,
            content: None,
            reading: Reading::Totals,
            ratio_window: ReceiveRatio::WINDOW,
            pinned: false,
            patience: Time::from_secs(3),
        }
    }
}

/// The translation of windows (§ III-B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowControl {
    /// The peer gets the sum that the members' windows allow at the present receive ratio. Parts of
    /// the peer's window go to the members that use them, and never exceed it together.
    #[default]
    Credit,
    /// As `Credit`, but every member may use the peer's whole window: only for ends with soft flow
    /// control.
    Soft,
    /// The least of the members' windows; the peer's window, divided equally.
    Strict,
}

/// The start of a frame, by which a routing module may choose.
#[derive(Clone, Copy, Debug)]
pub struct FrameStart<'f> {
    /// A keyed hash of the frame's key; `None` if it has no key.
    pub key: Option<u64>,
    /// The frame's bytes in its first packet.
    pub frame: &'f [u8],
}

/// The sessions of a node.
#[derive(Debug)]
pub struct Switch {
    sessions: Vec<Session>,
    /// Session and side of each gate; side 0 is the peer.
    gates: Vec<(u32, u32)>,
    /// Sessions with packets to send.
    busy: VecDeque<u32>,
    /// True for each session in `busy`.
    queued: Vec<bool>,
    /// A lower bound on the sessions' timers.
    alarm: Time,
}

impl Switch {
    /// A switch without sessions.
    pub fn new() -> Switch {
        Switch {
            sessions: Vec::new(),
            gates: Vec::new(),
            busy: VecDeque::new(),
            queued: Vec::new(),
            alarm: Time::NEVER,
        }
    }

    /// Adds a session over `members`, as the routing module sees them. Returns the peer's gate; the
    /// members' follow.
    ///
    /// # Panics
    /// If there are no members, or more than 65 534.
    pub fn add_session(
        &mut self,
        config: &Config,
        route: Box<dyn Route + Send>,
        members: Vec<Candidate>,
    ) -> Gate {
        assert!((1..usize::from(u16::MAX)).contains(&members.len()), "a session has members");
        let (id, first) = (self.sessions.len() as u32, self.gates.len() as u32);
        self.gates.extend((0..=members.len() as u32).map(|side| (id, side)));
        self.sessions.push(Session::new(config.clone(), u64::from(id), route, members));
        self.queued.push(false);
        Gate(first)
    }

    /// The session with this number, in order of addition.
    pub fn session(&self, at: usize) -> &Session {
        &self.sessions[at]
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns true if there is no session.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Removes a member from a session, or admits it again.
    pub fn set_member(&mut self, now: Time, session: usize, member: usize, up: bool) {
        self.sessions[session].set_member(now, member, up);
        self.note(session as u32);
    }

    /// Adds a member to the last session, which may be open; [`set_member`](Switch::set_member)
    /// admits it. Returns the member's index; its gate follows those of the others.
    ///
    /// # Panics
    /// If it is not the last session, since gates of later ones would move.
    pub fn add_member(&mut self, session: usize, candidate: Candidate) -> usize {
        assert_eq!(session + 1, self.sessions.len(), "only the last session grows");
        let k = self.sessions[session].add_member(candidate);
        self.gates.push((session as u32, k as u32 + 1));
        k
    }

    /// Drains a member of a session, or ends its drain. A drained member gets no new frames, and a
    /// FIN after its last one.
    pub fn drain_member(&mut self, now: Time, session: usize, member: usize, drain: bool) {
        self.sessions[session].drain(now, member, drain);
        self.note(session as u32);
    }

    /// Sets the name and the weight by which the routing module of a session sees a member.
    pub fn set_candidate(&mut self, session: usize, member: usize, name: u64, weight: u32) {
        self.sessions[session].set_candidate(member, name, weight);
    }

    /// Replaces the routing module of a session.
    pub fn set_route(&mut self, session: usize, route: Box<dyn Route + Send>) {
        self.sessions[session].set_route(route);
    }

    /// Passes a packet, as [`Middle::pass`]. If a frame begins in it, the routing module of the
    /// session sees `content`.
    pub fn pass_with(
        &mut self,
        now: Time,
        gate: Gate,
        packet: &mut Packet,
        sack: &mut SackRanges,
        content: Option<FrameStart<'_>>,
    ) -> Passed {
        let Some(&(id, side)) = self.gates.get(gate.0 as usize) else { return Passed::Absorbed };
        if !packet.flags.has(Flags::SACK) {
            sack.clear();
        }
        let session = &mut self.sessions[id as usize];
        let to = match side.checked_sub(1) {
            None => session.on_peer(now, packet, sack, content),
            Some(member) => session.on_member(now, member as usize, packet, sack),
        };
        self.note(id);
        // A session's gates are in a row, the peer's first.
        to.map_or(Passed::Absorbed, |to| Passed::By(Gate(gate.0 - side + to)))
    }

    fn note(&mut self, session: u32) {
        let at = &self.sessions[session as usize];
        self.alarm = self.alarm.min(at.alarm());
        if at.has_work() && !std::mem::replace(&mut self.queued[session as usize], true) {
            self.busy.push_back(session);
        }
    }
}

impl Default for Switch {
    fn default() -> Switch {
        Switch::new()
    }
}

impl Middle for Switch {
    fn pass(&mut self, now: Time, gate: Gate, packet: &mut Packet, sack: &mut SackRanges) -> Passed {
        self.pass_with(now, gate, packet, sack, None)
    }

    fn poll_transmit(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> Option<Gate> {
        while let Some(&id) = self.busy.front() {
            if let Some(side) = self.sessions[id as usize].poll_transmit(now, out, sack) {
                let first = self.gates.partition_point(|&(session, _)| session < id) as u32;
                return Some(Gate(first + side));
            }
            self.alarm = self.alarm.min(self.sessions[id as usize].alarm());
            self.busy.pop_front();
            self.queued[id as usize] = false;
        }
        if self.alarm <= now {
            self.alarm = self.sessions.iter().map(Session::alarm).min().unwrap_or(Time::NEVER);
        }
        None
    }

    fn handle_timeout(&mut self, now: Time) {
        if now < self.alarm {
            return;
        }
        for id in 0..self.sessions.len() {
            if self.sessions[id].alarm() <= now {
                self.sessions[id].handle_timeout(now);
                self.note(id as u32);
            }
        }
        self.alarm = self.sessions.iter().map(Session::alarm).min().unwrap_or(Time::NEVER);
    }

    fn poll_timeout(&self) -> Time {
        self.alarm
    }
}
