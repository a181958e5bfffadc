//! The front: TCP clients, each with an ACP connection to the peer.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Token};
use slab::Slab;
use tollway_law::Time;
use tollway_net::hop::HopEvent;
use tollway_proto::dispatch::Queue;
use tollway_proto::framing::{Framing, Key};
use tollway_proto::route::Hash;
use tollway_proto::{Packet, SackRanges};
use tollway_session::end::End;
use tollway_session::label::{KeyHash, Tags, key_hash, short};

use super::config::{Answers, Sites};
use super::core::{Core, Work};
use super::ledger::{Ledger, Noted};
use super::snapshot::{common, member};
use super::tcp::{Ready, Tcp};
use crate::redis::sites::{self, Onward};
use crate::status::{ClientStatus, MemberStatus, Status};
use crate::stream::Stream;

/// All clients.
pub(super) struct Front {
    listeners: Vec<(TcpListener, SocketAddr)>,
    pub(super) framing: Framing,
    answers: Answers,
    key: Option<Key>,
    sessions: Slab<Box<FrontSession>>,
    by_flow: HashMap<u32, usize>,
    by_client: HashMap<IpAddr, usize>,
    next_flow: u32,
    /// The hash for the labels of requests.
    hash: Hash,
}

/// A client's connection.
struct FrontSession {
    tcp: Tcp,
    end: End,
    flow: u32,
    client: IpAddr,
    key: Option<Key>,
    /// True if frames are Redis' commands.
    redis: bool,
    ledger: Ledger,
    message: Vec<u8>,
    opened: Time,
    /// The last traffic of any kind, and the last of the peer.
    last: Time,
    heard: Time,
    /// True if the client no longer takes answers; its requests are still sent.
    gone: bool,
    /// The end of the time in which repeated packets are answered, once all is done.
    over: Option<Time>,
    armed: Time,
}

/// The reason a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Both sides had no more to send.
    Done,
    /// The client's bytes do not follow the framing, or a frame or an answer is too long.
    Malformed,
    /// A frame exceeded the time limit for its arrival.
    Dripped,
    /// The session was idle for too long.
    Idle,
    /// Frames were not answered in time, or can no longer be, or too many answers wait for one.
    Unanswered,
    /// The peer did not open the session.
    NoMember,
    /// The peer aborted the session: no member is left.
    Reset,
    /// The peer is silent.
    NoPeer,
    /// The peer's process was replaced.
    Replaced,
    /// The process ends.
    Closing,
}

impl Why {
    fn word(self) -> &'static str {
        match self {
            Why::Done => "done",
            Why::Malformed => "malformed",
            Why::Dripped => "dripped",
            Why::Idle => "idle",
            Why::Unanswered => "unanswered",
            Why::NoMember => "no-member",
            Why::Reset => "reset",
            Why::NoPeer => "no-peer",
            Why::Replaced => "peer-replaced",
            Why::Closing => "closing",
        }
    }
}

impl Front {
    /// Opens the listeners.
    pub(super) fn open(
        core: &mut Core,
        listen: &[SocketAddr],
        framing: Framing,
        answers: Answers,
        key: Option<Key>,
    ) -> io::Result<Front> {
        let mut listeners = Vec::new();
        for &wanted in listen {
            let mut socket = TcpListener::bind(wanted).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen at {wanted}: {error}"))
            })?;
            core.registry.register(&mut socket, Token(listeners.len()), Interest::READABLE)?;
            let at = socket.local_addr()?;
            listeners.push((socket, at));
        }
        Ok(Front {
            listeners,
            framing,
            answers,
            key,
            sessions: Slab::new(),
            by_flow: HashMap::new(),
            by_client: HashMap::new(),
            next_flow: u32::from_be_bytes(tollway_net::random()?),
            hash: Hash::new(tollway_net::random()?),
        })
    }

    /// The addresses for clients.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.1).collect()
    }

    /// Bytes that sessions hold.
    pub(super) fn memory(&self) -> usize {
        self.sessions.iter().map(|(_, session)| session.bytes()).sum()
    }

    /// Clients, and the sessions of each.
    pub(super) fn clients(&self) -> impl Iterator<Item = (&IpAddr, &usize)> {
        self.by_client.iter()
    }

    /// Bytes that the peer has not acknowledged.
    pub(super) fn outstanding(&self) -> u64 {
        self.sessions.iter().map(|(_, session)| session.end.unacknowledged() as u64).sum()
    }

    fn accept(&mut self, core: &mut Core) {
        for at in 0..self.listeners.len() {
            for _ in 0..ACCEPTS {
                match self.listeners[at].0.accept() {
                    Ok((socket, from)) => self.welcome(core, socket, from.ip().to_canonical()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // Without descriptors for more, those that come wait in the kernel until the
                    // next sweep.
                    Err(_) => break,
                }
            }
        }
    }

    fn welcome(&mut self, core: &mut Core, socket: TcpStream, client: IpAddr) {
        core.counters.accepted += 1;
        let mut stream = Stream::plain(socket);
        let limits = &core.config.limits;
        let of_client = self.by_client.get(&client).copied().unwrap_or(0);
        let full = self.by_flow.len() >= limits.sessions || of_client >= limits.sessions_per_client;
        if full || core.ending.is_some() || !core.hops.is_up(PEER) {
            core.counters.refused += 1;
            stream.break_off();
            return;
        }
        let entry = self.sessions.vacant_entry();
        let key = entry.key();
        let _ = stream.socket().set_nodelay(true);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if core.registry.register(stream.socket(), Token(BASE + key), interest).is_err() {
            core.counters.refused += 1;
            return;
        }
        let flow = self.next_flow;
        self.next_flow = flow.wrapping_add(1);
        let now = core.now;
        entry.insert(Box::new(FrontSession {
            tcp: Tcp::new(stream, self.framing, limits.frame),
            end: End::client(&core.transport, core.config.sender(PEER), PEER, flow, now),
            flow,
            client,
            key: self.key,
            redis: self.framing == Framing::Resp,
            ledger: Ledger::new(
                self.answers,
                Tags::new(self.hash, flow),
                limits.frame,
                HELD * most_held(&core.config),
            ),
            message: Vec::new(),
            opened: now,
            last: now,
            heard: now,
            gone: false,
            over: None,
            armed: Time::NEVER,
        }));
        self.by_flow.insert(flow, key);
        *self.by_client.entry(client).or_default() += 1;
        self.go_on(core, key);
    }

    /// Does a session's possible work, and ends the session if that is the result.
    fn work(&mut self, core: &mut Core, key: usize) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Err(why) = session.work(core, key) {
            self.finish(core, key, why);
        }
    }

    fn finish(&mut self, core: &mut Core, key: usize, why: Why) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.over.is_none()) else {
            return;
        };
        core.count_end(why.word());
        core.counters.torn += u64::from(session.tcp.is_torn());
        if why == Why::Done {
            session.tcp.stream.finish();
        } else {
            core.counters.abandoned += u64::from(session.ledger.open());
            session.tcp.stream.break_off();
            if why != Why::Reset {
                session.end.abort(core.now, &mut core.hops);
            }
        }
        if let Some(sessions) = self.by_client.get_mut(&session.client) {
            *sessions -= 1;
            if *sessions == 0 {
                self.by_client.remove(&session.client);
            }
        }
        let _ = core.registry.deregister(session.tcp.stream.socket());
        if why == Why::Done {
            // Its last acknowledgement may be lost, and be asked for again.
            session.over = Some(core.now + LINGER);
        } else {
            self.by_flow.remove(&session.flow);
            self.sessions.remove(key);
        }
    }

    fn finish_all(&mut self, core: &mut Core, why: Why) {
        for key in self.keys() {
            self.finish(core, key, why);
        }
    }

    fn keys(&self) -> Vec<usize> {
        self.sessions.iter().map(|(key, _)| key).collect()
    }
}

impl Work for Front {
    fn on_packet(&mut self, core: &mut Core, from: usize, packet: Packet, sack: SackRanges, payload: &[u8]) {
        let Some(&key) = self.by_flow.get(&packet.flow) else { return core.refuse(from, &packet) };
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.heard = core.now;
        session.end.on_packet(core.now, &packet, &sack, payload, 2 * core.config.limits.session_buffer);
        core.again.push(key);
    }

    fn on_socket(&mut self, core: &mut Core, token: usize, ready: Ready) {
        match token.checked_sub(BASE) {
            None => self.accept(core),
            Some(key) => {
                let Some(session) = self.sessions.get_mut(key) else { return };
                session.tcp.on_ready(ready);
                self.work(core, key);
            }
        }
    }

    fn on_timer(&mut self, core: &mut Core, key: usize, at: Time) {
        if let Some(session) = self.sessions.get_mut(key).filter(|session| session.armed == at) {
            session.armed = Time::NEVER;
            self.work(core, key);
        }
    }

    fn go_on(&mut self, core: &mut Core, key: usize) {
        self.work(core, key);
    }

    fn on_neighbour(&mut self, core: &mut Core, event: HopEvent) {
        match event {
            HopEvent::Replaced(_) => self.finish_all(core, Why::Replaced),
            HopEvent::Up(_) | HopEvent::Down(_) => {}
        }
    }

    fn sweep(&mut self, core: &mut Core) {
        self.accept(core);
        for key in self.keys() {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            if session.over.is_some_and(|until| core.now >= until) {
                self.by_flow.remove(&session.flow);
                self.sessions.remove(key);
            } else if session.over.is_none()
                && let Err(why) = session.check(core)
            {
                self.finish(core, key, why);
            }
        }
    }

    fn on_end(&mut self, core: &mut Core) {
        self.listeners.clear();
        for key in self.keys() {
            if let Some(session) = self.sessions.get_mut(key) {
                // No more frames: those under way are answered.
                session.tcp.ended = true;
                core.again.push(key);
            }
        }
    }

    fn on_close(&mut self, core: &mut Core) {
        self.finish_all(core, Why::Closing);
    }

    fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The status: the peer stands for a member.
    fn snapshot(&self, core: &Core) -> Status {
        let peer = MemberStatus {
            bytes: core.counters.bytes,
            answers: core.counters.answers,
            outstanding: self.outstanding(),
            unanswered: core.counters.abandoned,
            unrequested: core.counters.unrequested,
            ..member(core, PEER)
        };
        let clients = self.clients().map(|(address, &sessions)| ClientStatus {
            name: address.to_string(),
            weight: 1.0,
            sessions,
            ..ClientStatus::default()
        });
        let mut clients: Vec<_> = clients.collect();
        clients.sort_by(|a, b| b.sessions.cmp(&a.sessions).then_with(|| a.name.cmp(&b.name)));
        Status {
            listen: self.addresses().iter().map(ToString::to_string).collect(),
            frames_are: self.framing.to_string(),
            sessions: self.sessions(),
            memory: self.memory() as u64,
            members: vec![peer],
            clients,
            ..common(core, "front")
        }
    }
}

impl FrontSession {
    fn bytes(&self) -> usize {
        self.tcp.bytes() + self.end.bytes() + self.ledger.bytes()
    }

    /// Moves bytes in both directions as far as possible.
    fn work(&mut self, core: &mut Core, key: usize) -> Result<(), Why> {
        let done = if self.over.is_none() { self.carry(core, key) } else { Ok(()) };
        let due = self.end.drive(core.now, &mut core.hops);
        core.arm(&mut self.armed, key, due);
        done
    }

    fn carry(&mut self, core: &mut Core, key: usize) -> Result<(), Why> {
        // First the answers, which make room for requests.
        self.give_answers(core)?;
        self.take_requests(core, key)?;
        self.check_end()
    }

    /// Returns true if no more requests are read for now: earlier ones have not been taken by
    /// members, or the answers that may wait for an earlier one are too many.
    fn is_full(end: &End, ledger: &Ledger, config: &Sites) -> bool {
        end.unacknowledged() > config.limits.session_buffer
            || ledger.len() > REQUESTS
            || ledger.due() > most_held(config)
    }

    /// Reads requests while there is room for them.
    fn take_requests(&mut self, core: &mut Core, key: usize) -> Result<(), Why> {
        let Core { config, scratch, counters, now, again, .. } = core;
        let (end, ledger, by) = (&mut self.end, &mut self.ledger, self.key);
        let redis = self.redis;
        for _ in 0..READS {
            if !self.tcp.may_read() || Self::is_full(end, ledger, config) {
                break;
            }
            let (mut here, mut ends) = (Queue::default(), false);
            let read = self.tcp.read(*now, scratch, |frame| {
                counters.frames += 1;
                counters.bytes += frame.len() as u64;
                match onward(redis, by, frame) {
                    Ok(key) => end.write(&ledger.number(*now, key), frame),
                    Err(None) => {}
                    Err(Some((answer, last))) => {
                        ledger.number(*now, [0; 4]);
                        ledger.answer_last(&answer, &mut here);
                        ends = last;
                    }
                }
                !ends && !Self::is_full(end, ledger, config)
            });
            self.tcp.out.push(here.as_slice());
            read.map_err(|_| Why::Malformed)?;
            if ends {
                (self.tcp.ended, self.tcp.untaken) = (true, false);
            }
            self.last = *now;
        }
        if self.tcp.may_read() && !Self::is_full(end, ledger, config) {
            again.push(key);
        }
        if self.tcp.broken && !self.gone {
            // Requests that have come are carried on.
            (self.gone, self.tcp.ended) = (true, true);
        }
        if self.tcp.ended && !self.tcp.untaken {
            self.end.finish();
        }
        Ok(())
    }

    /// Writes answers to the client while it takes them.
    fn give_answers(&mut self, core: &mut Core) -> Result<(), Why> {
        let buffer = core.config.limits.session_buffer;
        while self.tcp.out.len() <= buffer && self.end.take_frame(&mut self.message) {
            self.last = core.now;
            let before = self.tcp.out.len();
            match self.ledger.note(&self.message, &mut self.tcp.out) {
                Noted::Part => {}
                Noted::Answer => core.counters.answers += 1,
                Noted::Unrequested => core.counters.unrequested += 1,
                Noted::TooLong => return Err(Why::Malformed),
            }
            core.counters.answer_bytes += (self.tcp.out.len() - before) as u64;
        }
        if self.ledger.bytes() > HELD * most_held(&core.config) {
            return Err(Why::Unanswered);
        }
        self.tcp.flush();
        self.end.offer(self.tcp.out.len(), buffer);
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), Why> {
        if self.end.reset {
            return Err(if self.end.connected { Why::Reset } else { Why::NoMember });
        }
        if self.end.peer_finished && self.end.is_read() {
            if self.ledger.open() > 0 && !self.gone {
                return Err(Why::Unanswered);
            }
            self.end.finish();
            if self.end.closed && self.tcp.out.is_empty() {
                return Err(Why::Done);
            }
        }
        Ok(())
    }

    /// Checks time limits.
    fn check(&mut self, core: &Core) -> Result<(), Why> {
        let (limits, now) = (&core.config.limits, core.now);
        let past = |since: Option<Time>, limit: Time| since.is_some_and(|since| now > since + limit);
        if past(self.tcp.since, limits.frame_time) {
            return Err(Why::Dripped);
        }
        if !self.end.connected && now > self.opened + limits.connect_time + OPENING {
            return Err(Why::NoMember);
        }
        if past(Some(self.heard), limits.answer_time)
            && (self.end.unacknowledged() > 0 || !core.hops.is_up(PEER))
        {
            return Err(Why::NoPeer);
        }
        if past(self.ledger.oldest(), limits.answer_time) && self.tcp.out.is_empty() {
            return Err(Why::Unanswered);
        }
        if past(Some(self.last), limits.idle_time) && self.ledger.open() == 0 {
            return Err(Why::Idle);
        }
        Ok(())
    }
}

/// The hash of a frame's key, or the treatment of a command that goes no further: no answer, or an
/// answer and true if it ends the session.
fn onward(redis: bool, by: Option<Key>, frame: &[u8]) -> Result<KeyHash, Option<(Vec<u8>, bool)>> {
    if !redis {
        return Ok(by.map_or([0; 4], |key| key_hash(key.of(frame))));
    }
    match sites::onward(frame) {
        Onward::Nothing => Err(None),
        Onward::Send(hash) => Ok(hash.map_or([0; 4], short)),
        Onward::Answer(answer) => Err(Some((answer, false))),
        Onward::End(answer) => Err(Some((answer, true))),
    }
}

/// Bytes of answers that may wait for others in a session, as far as their length is known before,
/// bytes.
fn most_held(config: &Sites) -> usize {
    config.limits.frame.max(config.limits.session_buffer)
}

/// The only neighbour.
const PEER: usize = 0;
/// Tokens below this are listeners.
const BASE: usize = 1024;
const ACCEPTS: usize = 64;
/// Reads of a client in a row.
const READS: usize = 4;
/// Upper bound on unanswered requests of a session.
const REQUESTS: usize = 1 << 16;
/// Upper bound on the answers that wait for others in a session, in multiples of [`most_held`].
const HELD: usize = 8;
/// Upper bound on a switch's wait for members that do not open, in addition to the time to connect
/// to servers.
const OPENING: Time = Time::from_secs(4);
/// The time after the end for which repeated packets are answered.
const LINGER: Time = Time::from_secs(2);
