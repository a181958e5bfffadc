//! The switch: sessions of peers, spread over the members without termination.

use std::collections::HashMap;
use std::io;

use slab::Slab;
use tollway_law::Time;
use tollway_net::hop::HopEvent;
use tollway_proto::route::{Candidate, Hash, Item, Modules, Policy, Route};
use tollway_proto::switch::{self, FrameStart, Health, Stats, Switch};
use tollway_proto::{Flags, Gate, Middle as _, Packet, Passed, SackRanges};
use tollway_session::{label, link_law};

use super::config::{Neighbour, Part, Sites};
use super::core::{Core, Work};
use super::snapshot::{common, member};
use crate::config::OnFailure;
use crate::config::file::MEMBERS;
use crate::status::{ClientStatus, MemberStatus, Status};

/// All sessions.
pub(super) struct Middle {
    policy: Policy,
    session: switch::Config,
    /// Neighbours from this one on are members.
    first_member: usize,
    /// The members, by their index in every session. Those that have left keep their place until
    /// another takes it.
    members: Vec<Place>,
    /// The hash for numbers of sessions, and the one for keys and names of members.
    hash: Hash,
    keys: Hash,
    /// Sessions of each peer.
    of_peers: Vec<usize>,
    sessions: Slab<Box<MiddleSession>>,
    /// By peer and its flow.
    by_peer: HashMap<(usize, u32), usize>,
    /// By the flow to members.
    by_member: HashMap<u32, usize>,
    next_flow: u32,
    started: u64,
    /// Counters of sessions that are over.
    past: Past,
}

/// The place of a member.
struct Place {
    spec: Neighbour,
    /// True if it is in the present configuration.
    listed: bool,
    /// True if an operator drains it.
    drained: bool,
    /// True while it is a neighbour.
    open: bool,
    /// The last time at which a session had it.
    used: Time,
}

impl Place {
    fn new(spec: &Neighbour, now: Time) -> Place {
        Place { spec: spec.clone(), listed: true, drained: false, open: true, used: now }
    }

    /// True if it gets no new frames.
    fn is_out(&self) -> bool {
        !self.listed || self.drained || self.spec.drain
    }
}

/// The counters of sessions that are over.
#[derive(Clone, Debug, Default)]
struct Past {
    stats: Stats,
    members: Vec<MemberPast>,
}

/// The counters of a member.
#[derive(Clone, Copy, Debug, Default)]
struct MemberPast {
    sessions: usize,
    packets: u64,
    bytes: u64,
    answers: u64,
    outstanding: u64,
}

struct MiddleSession {
    switch: Switch,
    peer: usize,
    /// The flow of the peer's packets, and of those to members.
    flow: u32,
    onward: u32,
    /// The last packet of the peer. Members answer only probes of the switch.
    last: Time,
    /// The end of the session.
    over: Option<Time>,
    armed: Time,
}

/// A routing module for one of many sessions. Each switch has one module, for which its session
/// would always be the first.
struct Numbered {
    session: u64,
    inner: Box<dyn Route + Send>,
}

impl Route for Numbered {
    fn pick(&mut self, item: &Item<'_>, members: &[Candidate]) -> Option<usize> {
        self.inner.pick(&Item { session: self.session, ..*item }, members)
    }
}

impl Middle {
    pub(super) fn open(core: &Core) -> io::Result<Middle> {
        let Part::Middle { policy, on_failure, secret, flow_control, members } = &core.config.part else {
            return Err(io::Error::other("a switch has members"));
        };
        let transport = &core.transport;
        Ok(Middle {
            policy: *policy,
            session: switch::Config {
                header: transport.header,
                ack_size: transport.ack_size,
                handshake: transport.handshake,
                initial_segment: transport.initial_segment,
                flow_control: *flow_control,
                pinned: *on_failure == OnFailure::Error,
                content: core.config.law.descriptor().reads,
                ..switch::Config::default()
            },
            first_member: core.config.peers.len(),
            members: members.iter().map(|spec| Place::new(spec, core.now)).collect(),
            hash: Hash::new(tollway_net::random()?),
            keys: Hash::new(*secret),
            of_peers: vec![0; core.config.peers.len()],
            sessions: Slab::new(),
            by_peer: HashMap::new(),
            by_member: HashMap::new(),
            next_flow: u32::from_be_bytes(tollway_net::random()?),
            started: 0,
            past: Past { members: vec![MemberPast::default(); members.len()], ..Past::default() },
        })
    }

    /// Sessions of a peer.
    fn sessions_of(&self, peer: usize) -> usize {
        self.of_peers[peer]
    }

    /// Counters of all sessions, and of their members.
    fn counts(&self) -> (Stats, Vec<MemberPast>) {
        let Past { mut stats, mut members } = self.past.clone();
        for (_, session) in &self.sessions {
            session.add_to(&mut stats, &mut members);
        }
        (stats, members)
    }

    /// Packets outstanding in all sessions.
    fn outstanding(&self) -> u64 {
        let of = |session: &MiddleSession| session.switch.session(0).outstanding();
        self.sessions.iter().map(|(_, session)| of(session)).map(|(a, b)| u64::from(a) + u64::from(b)).sum()
    }

    /// Handles the SYN of a new session.
    fn begin(&mut self, core: &mut Core, peer: usize, flow: u32) -> Option<usize> {
        let all = self.by_peer.len();
        let limits = &core.config.limits;
        if all >= limits.sessions
            || self.sessions_of(peer) >= limits.sessions_per_client
            || core.ending.is_some()
        {
            return None;
        }
        let is_up = |k: usize| core.hops.is_up(self.first_member + k);
        if (0..self.members.len()).all(|k| !is_up(k) || self.members[k].is_out()) {
            return None;
        }
        let window = limits.member_buffer;
        let candidate = |place: &Place| Candidate { window, ..self.candidate(&place.spec) };
        let candidates = self.members.iter().map(candidate).collect();
        let mut switch = Switch::new();
        let number = self.hash.of(&self.started.to_be_bytes());
        let route = Numbered { session: number, inner: core.config.module(self.policy, self.started) };
        switch.add_session(&self.session, Box::new(route), candidates);
        self.started += 1;
        core.counters.accepted += 1;
        // A member that is not heard is not waited for.
        for (k, place) in self.members.iter().enumerate() {
            if place.is_out() {
                switch.drain_member(core.now, 0, k, true);
            }
            if !is_up(k) {
                switch.set_member(core.now, 0, k, false);
            }
        }
        let onward = self.next_flow;
        self.next_flow = onward.wrapping_add(1);
        let (last, over, armed) = (core.now, None, Time::NEVER);
        let key =
            self.sessions.insert(Box::new(MiddleSession { switch, peer, flow, onward, last, over, armed }));
        self.by_peer.insert((peer, flow), key);
        self.of_peers[peer] += 1;
        self.by_member.insert(onward, key);
        Some(key)
    }

    /// Sends a session's due packets, and records its end.
    fn drive(&mut self, core: &mut Core, key: usize) {
        let first_member = self.first_member;
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.switch.poll_timeout() <= core.now {
            session.switch.handle_timeout(core.now);
        }
        let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
        while let Some(gate) = session.switch.poll_transmit(core.now, &mut packet, &mut sack) {
            session.send(core, first_member, gate, packet, &sack, &[]);
        }
        let state = session.switch.session(0);
        if session.over.is_none() && (state.is_reset() || state.is_closed()) {
            let word = if state.is_reset() { "reset" } else { "done" };
            session.over = Some(core.now);
            core.count_end(word);
        }
        let due = session.switch.poll_timeout();
        core.arm(&mut session.armed, key, due);
    }

    /// Removes a session whose packets are all acknowledged.
    fn remove(&mut self, key: usize) {
        let session = self.sessions.remove(key);
        self.by_peer.remove(&(session.peer, session.flow));
        self.of_peers[session.peer] -= 1;
        self.by_member.remove(&session.onward);
        session.add_to(&mut self.past.stats, &mut self.past.members);
        for member in &mut self.past.members {
            (member.sessions, member.outstanding) = (0, 0);
        }
    }

    /// Ends a session: both sides are reset.
    fn end(&mut self, core: &mut Core, key: usize, word: &'static str) {
        let members = self.members.len();
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.over.is_none()) else {
            return;
        };
        session.over = Some(core.now);
        core.count_end(word);
        (0..members).for_each(|k| session.switch.set_member(core.now, 0, k, false));
        self.drive(core, key);
    }

    fn session_keys(&self) -> Vec<usize> {
        self.sessions.iter().map(|(key, _)| key).collect()
    }

    fn set_member(&mut self, core: &mut Core, k: usize, up: bool) {
        self.in_all(core, |switch, now| switch.set_member(now, 0, k, up));
    }

    /// Changes all open sessions.
    fn in_all(&mut self, core: &mut Core, mut change: impl FnMut(&mut Switch, Time)) {
        for key in self.session_keys() {
            if let Some(session) = self.sessions.get_mut(key).filter(|session| session.over.is_none()) {
                change(&mut session.switch, core.now);
                self.drive(core, key);
            }
        }
    }

    /// A member as routing modules see it.
    fn candidate(&self, spec: &Neighbour) -> Candidate {
        let name = self.keys.of(spec.name.as_bytes());
        Candidate { name, weight: spec.weight, ..Candidate::default() }
    }

    /// Informs all sessions of a member's name, weight and drain.
    fn refresh(&mut self, core: &mut Core, k: usize) {
        let Candidate { name, weight, .. } = self.candidate(&self.members[k].spec);
        let out = self.members[k].is_out();
        self.in_all(core, |switch, now| {
            switch.set_candidate(0, k, name, weight);
            switch.drain_member(now, 0, k, out);
        });
    }

    /// Adds a member, in the place of one that has left if there is one.
    fn add(&mut self, core: &mut Core, config: &Sites, spec: &Neighbour) -> Result<(), String> {
        let added = core.hops.add(core.now, &config.keys, &spec.name, spec.address);
        let at = added.map_err(|error| error.to_string())?;
        if let Some(rate) = spec.rate {
            core.hops.set_link(at, rate, link_law(&*config.law, rate));
        }
        let (k, place) = (at - self.first_member, Place::new(spec, core.now));
        if k < self.members.len() {
            self.members[k] = place;
            self.past.members[k] = MemberPast::default();
            // Until it is heard.
            self.set_member(core, k, false);
        } else {
            self.members.push(place);
            self.past.members.push(MemberPast::default());
            let window = core.config.limits.member_buffer;
            let candidate = Candidate { window, ..self.candidate(spec) };
            self.in_all(core, |switch, _| {
                switch.add_member(0, candidate);
            });
        }
        core.events.info("member-added", format_args!("member {} at {} joins", spec.name, spec.address));
        Ok(())
    }

    /// Removes neighbours that are no longer listed, and that no session has had for some time.
    fn remove_unused(&mut self, core: &mut Core) {
        for k in 0..self.members.len() {
            let place = &mut self.members[k];
            if place.listed || !place.open {
                continue;
            }
            let has = |session: &MiddleSession| {
                let member = session.switch.session(0).members().nth(k);
                session.over.is_none() && member.is_some_and(|member| member.health != Health::Down)
            };
            if self.sessions.iter().any(|(_, session)| has(session)) {
                place.used = core.now;
            } else if core.now > place.used + LINGER {
                place.open = false;
                core.hops.remove(self.first_member + k);
                core.events.info("member-removed", format_args!("member {} has left", place.spec.name));
            }
        }
    }
}

impl Work for Middle {
    fn on_packet(&mut self, core: &mut Core, from: usize, packet: Packet, sack: SackRanges, payload: &[u8]) {
        let member = from.checked_sub(self.first_member);
        let found = match member {
            None => self.by_peer.get(&(from, packet.flow)).copied(),
            Some(_) => self.by_member.get(&packet.flow).copied(),
        };
        let opens = member.is_none() && packet.flags.has(Flags::SYN) && !packet.flags.has(Flags::ACK);
        let found = match found {
            None if opens => self.begin(core, from, packet.flow),
            found => found,
        };
        let first_member = self.first_member;
        let Some((key, session)) = found.and_then(|key| Some((key, self.sessions.get_mut(key)?))) else {
            core.counters.refused += u64::from(opens);
            return core.refuse(from, &packet);
        };
        if member.is_none() {
            session.last = core.now;
        }
        let (mut packet, mut sack) = (packet, sack);
        let gate = Gate(member.map_or(0, |k| k as u32 + 1));
        core.counters.frames += u64::from(member.is_none() && packet.flags.has(Flags::DATA));
        core.counters.answers += u64::from(member.is_some() && packet.flags.has(Flags::DATA));
        let content = label::routed(payload)
            .map(|(key, frame)| FrameStart { key: key.map(|key| self.keys.of(key)), frame });
        let passed = session.switch.pass_with(core.now, gate, &mut packet, &mut sack, content);
        if let Passed::By(gate) = passed {
            session.send(core, first_member, gate, packet, &sack, payload);
        }
        self.drive(core, key);
    }

    fn on_timer(&mut self, core: &mut Core, key: usize, at: Time) {
        if let Some(session) = self.sessions.get_mut(key).filter(|session| session.armed == at) {
            session.armed = Time::NEVER;
            self.drive(core, key);
        }
    }

    fn install(&mut self, core: &mut Core, config: &Sites) -> Result<(), String> {
        let Part::Middle { policy, on_failure, flow_control, members, .. } = &config.part else {
            return Err("this part stays a switch until a restart".to_owned());
        };
        let same = |place: &Place, spec: &Neighbour| {
            let known = &place.spec;
            place.open && (&known.name, known.address, known.rate) == (&spec.name, spec.address, spec.rate)
        };
        let find = |places: &[Place], spec| places.iter().position(|place| same(place, spec));
        for spec in members.iter().filter(|spec| find(&self.members, spec).is_none()) {
            if let Some(at) = core.hops.at(spec.address) {
                let (name, address) = (core.hops.name_of(at), spec.address);
                return Err(format!(
                    "{address} is in use by `{name}`: wait until `status` no longer lists it"
                ));
            }
        }
        if members.len() + self.members.iter().filter(|place| place.open && !place.listed).count() > MEMBERS {
            return Err(format!("with those that finish their work, more than {MEMBERS} members"));
        }
        self.policy = *policy;
        (self.session.flow_control, self.session.pinned) = (*flow_control, *on_failure == OnFailure::Error);
        self.members.iter_mut().for_each(|place| place.listed = false);
        for spec in members {
            match find(&self.members, spec) {
                Some(k) => (self.members[k].spec, self.members[k].listed) = (spec.clone(), true),
                None => self.add(core, config, spec)?,
            }
        }
        (0..self.members.len()).for_each(|k| self.refresh(core, k));
        Ok(())
    }

    fn drain(&mut self, core: &mut Core, member: &str, drain: bool) -> Result<(), Vec<String>> {
        let listed = || self.members.iter().enumerate().filter(|(_, place)| place.listed);
        let Some((k, _)) = listed().find(|(_, place)| place.spec.name == member) else {
            return Err(listed().map(|(_, place)| place.spec.name.clone()).collect());
        };
        self.members[k].drained = drain;
        let what = if drain { "gets no new messages" } else { "gets messages again" };
        core.events.info("drain", format_args!("member {member} {what}"));
        self.refresh(core, k);
        Ok(())
    }

    fn on_neighbour(&mut self, core: &mut Core, event: HopEvent) {
        let (HopEvent::Up(at) | HopEvent::Down(at) | HopEvent::Replaced(at)) = event;
        let Some(k) = at.checked_sub(self.first_member) else {
            if matches!(event, HopEvent::Replaced(_)) {
                for key in self.session_keys() {
                    if self.sessions.get(key).is_some_and(|session| session.peer == at) {
                        self.end(core, key, "peer-replaced");
                    }
                }
            }
            return;
        };
        match event {
            HopEvent::Up(_) => self.set_member(core, k, true),
            HopEvent::Down(_) => self.set_member(core, k, false),
            HopEvent::Replaced(_) => {
                self.set_member(core, k, false);
                self.set_member(core, k, true);
            }
        }
    }

    fn sweep(&mut self, core: &mut Core) {
        let limits = core.config.limits;
        for key in self.session_keys() {
            let Some(session) = self.sessions.get(key) else { continue };
            let (peer, last) = (session.peer, session.last);
            match session.over {
                Some(over) if core.now > over + LINGER => self.remove(key),
                Some(_) => {}
                None if core.now > last + limits.answer_time && !core.hops.is_up(peer) => {
                    self.end(core, key, "no-peer");
                }
                None if core.now > last + limits.idle_time => self.end(core, key, "idle"),
                None => {}
            }
        }
        self.remove_unused(core);
    }

    fn on_close(&mut self, core: &mut Core) {
        for key in self.session_keys() {
            self.end(core, key, "closing");
        }
    }

    fn sessions(&self) -> usize {
        self.sessions.iter().filter(|(_, session)| session.over.is_none()).count()
    }

    /// The status: peers stand for clients.
    fn snapshot(&self, core: &Core) -> Status {
        let (stats, counts) = self.counts();
        let members = self.members.iter().zip(&counts).enumerate().filter(|(_, (place, _))| place.open);
        let members = members.map(|(k, (place, counts))| {
            let known = member(core, self.first_member + k);
            MemberStatus {
                state: match place {
                    _ if !place.listed => "removed",
                    _ if place.is_out() => "draining",
                    _ => known.state,
                },
                connections: counts.sessions,
                bytes: counts.bytes,
                answers: counts.answers,
                outstanding: counts.outstanding,
                ..known
            }
        });
        let clients = core.config.peers.iter().enumerate().map(|(at, peer)| ClientStatus {
            name: peer.name.clone(),
            weight: 1.0,
            sessions: self.sessions_of(at),
            ..ClientStatus::default()
        });
        let mut status = Status {
            frames_are: "acp".into(),
            policy: core.config.modules.as_ref().map_or(self.policy.word(), Modules::name),
            sessions: self.sessions(),
            members: members.collect(),
            clients: clients.collect(),
            ..common(core, "switch")
        };
        if let Some(sites) = &mut status.sites {
            sites.outstanding = self.outstanding();
            sites.duplicates = stats.duplicates;
            sites.out_of_window = stats.refused;
            sites.forged_acks = stats.forged;
            sites.rerouted = stats.rerouted;
            sites.lost = stats.lost;
            sites.failures = stats.failures;
        }
        status
    }
}

impl MiddleSession {
    fn send(
        &self,
        core: &mut Core,
        first_member: usize,
        gate: Gate,
        mut packet: Packet,
        sack: &SackRanges,
        payload: &[u8],
    ) {
        let to = match gate.0.checked_sub(1) {
            None => {
                packet.flow = self.flow;
                self.peer
            }
            Some(k) => {
                packet.flow = self.onward;
                first_member + k as usize
            }
        };
        core.hops.send(core.now, to, &packet, sack, (payload, &[]));
    }

    fn add_to(&self, stats: &mut Stats, members: &mut [MemberPast]) {
        let session = self.switch.session(0);
        let own = session.stats();
        stats.duplicates += own.duplicates;
        stats.refused += own.refused;
        stats.forged += own.forged;
        stats.nulls += own.nulls;
        stats.rerouted += own.rerouted;
        stats.lost += own.lost;
        stats.failures += own.failures;
        for (member, own) in members.iter_mut().zip(session.members()) {
            member.sessions += usize::from(own.health == Health::Up);
            member.packets += own.packets;
            member.bytes += own.bytes;
            member.answers += own.sent_packets;
            member.outstanding += own.outstanding;
        }
    }
}

/// The time after the end for which repeated packets are answered.
const LINGER: Time = Time::from_secs(2);
