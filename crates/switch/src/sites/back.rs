//! The back: the end of its peers' ACP connections, each with a TCP connection to the server.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Token};
use slab::Slab;
use tollway_law::Time;
use tollway_net::hop::HopEvent;
use tollway_proto::framing::Framing;
use tollway_proto::{Flags, Packet, SackRanges};
use tollway_session::end::End;
use tollway_session::label::{self, Kind, Label};

use super::config::Answers;
use super::core::{Core, Work};
use super::snapshot::common;
use super::tcp::{Ready, Tcp};
use crate::status::{ClientStatus, MemberStatus, Status};
use crate::stream::Stream;

/// All sessions with the server.
pub(super) struct Back {
    pub(super) server: SocketAddr,
    pub(super) framing: Framing,
    answers: Answers,
    sessions: Slab<Box<BackSession>>,
    /// By neighbour and flow.
    by_flow: HashMap<(usize, u32), usize>,
    pub(super) counts: ServerCounts,
}

/// The counters of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerCounts {
    pub(super) failures: u64,
    pub(super) unanswered: u64,
    pub(super) last_failure: Option<String>,
}

struct BackSession {
    neighbour: usize,
    flow: u32,
    tcp: Tcp,
    stage: Stage,
    /// Requests sent to the server and not answered.
    waiting: VecDeque<(Label, Time)>,
    /// The source of the server's frames, with [`Answers::Stream`].
    source: Label,
    message: Vec<u8>,
    last: Time,
    heard: Time,
    /// True if the server's connection is closed for writing.
    shut: bool,
    over: Option<Time>,
    armed: Time,
}

enum Stage {
    /// Start of the connection attempt to the server; the SYN is answered after it.
    Connecting(Time, Packet),
    Open(Box<End>),
}

/// The reason a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Done,
    /// The server accepted no connection in time.
    NoServer,
    /// The server ended its connection before its client did.
    ServerEnded,
    /// The server's bytes do not follow the framing, or an answer is too long.
    Malformed,
    /// The server did not answer a request in time.
    Unanswered,
    /// The server answered without a request.
    Unrequested,
    /// The peer aborted the session.
    Reset,
    /// The peer is silent.
    NoPeer,
    /// The peer's process was replaced.
    Replaced,
    Idle,
    Closing,
}

impl Why {
    fn word(self) -> &'static str {
        match self {
            Why::Done => "done",
            Why::NoServer => "no-server",
            Why::ServerEnded => "server-ended",
            Why::Malformed => "malformed",
            Why::Unanswered => "unanswered",
            Why::Unrequested => "unrequested",
            Why::Reset => "reset",
            Why::NoPeer => "no-peer",
            Why::Replaced => "peer-replaced",
            Why::Idle => "idle",
            Why::Closing => "closing",
        }
    }

    /// The server's failure, as text.
    fn failure(self) -> Option<&'static str> {
        match self {
            Why::NoServer => Some("it does not accept connections"),
            Why::ServerEnded => Some("it closed a connection"),
            Why::Malformed => Some("its answers do not match the framing"),
            Why::Unanswered => Some("it did not answer a request"),
            Why::Unrequested => Some("it answered without a request"),
            _ => None,
        }
    }
}

impl Back {
    pub(super) fn open(server: SocketAddr, framing: Framing, answers: Answers) -> Back {
        let (sessions, by_flow, counts) = (Slab::new(), HashMap::new(), ServerCounts::default());
        Back { server, framing, answers, sessions, by_flow, counts }
    }

    /// Bytes that sessions hold.
    pub(super) fn memory(&self) -> usize {
        self.sessions.iter().map(|(_, session)| session.bytes()).sum()
    }

    /// Sessions of a neighbour.
    pub(super) fn sessions_of(&self, neighbour: usize) -> usize {
        self.sessions.iter().filter(|(_, session)| session.neighbour == neighbour).count()
    }

    /// Requests that the server has not answered.
    pub(super) fn outstanding(&self) -> u64 {
        self.sessions.iter().map(|(_, session)| session.waiting.len() as u64).sum()
    }

    /// Handles the SYN of a new connection: connects to the server first.
    fn begin(&mut self, core: &mut Core, from: usize, syn: Packet) {
        let full = self.sessions.len() >= core.config.limits.sessions || core.ending.is_some();
        let begun = || Some((TcpStream::connect(self.server).ok()?, tollway_net::random().ok()?));
        let Some((socket, source)) = (!full).then(begun).flatten() else {
            core.counters.refused += 1;
            return core.refuse(from, &syn);
        };
        core.counters.accepted += 1;
        let mut stream = Stream::plain(socket);
        let entry = self.sessions.vacant_entry();
        let key = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if core.registry.register(stream.socket(), Token(key), interest).is_err() {
            return core.refuse(from, &syn);
        }
        let now = core.now;
        entry.insert(Box::new(BackSession {
            neighbour: from,
            flow: syn.flow,
            tcp: Tcp::new(stream, self.framing, core.config.limits.frame),
            stage: Stage::Connecting(now, syn),
            waiting: VecDeque::new(),
            source,
            message: Vec::new(),
            last: now,
            heard: now,
            shut: false,
            over: None,
            armed: Time::NEVER,
        }));
        self.by_flow.insert((from, syn.flow), key);
    }

    fn work(&mut self, core: &mut Core, key: usize) {
        let answers = self.answers;
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Err(why) = session.work(core, key, answers) {
            self.finish(core, key, why);
        }
    }

    fn finish(&mut self, core: &mut Core, key: usize, why: Why) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.over.is_none()) else {
            return;
        };
        core.count_end(why.word());
        core.counters.torn += u64::from(session.tcp.is_torn());
        if let Some(failure) = why.failure() {
            self.counts.failures += 1;
            self.counts.last_failure = Some(failure.into());
        }
        if why == Why::Done {
            session.tcp.stream.finish();
        } else {
            self.counts.unanswered += session.waiting.len() as u64;
            core.counters.abandoned += session.waiting.len() as u64;
            session.tcp.stream.break_off();
            match &mut session.stage {
                Stage::Connecting(_, syn) => core.refuse(session.neighbour, &syn.clone()),
                Stage::Open(end) if why != Why::Reset => end.abort(core.now, &mut core.hops),
                Stage::Open(_) => {}
            }
        }
        let _ = core.registry.deregister(session.tcp.stream.socket());
        if why == Why::Done {
            session.over = Some(core.now + LINGER);
        } else {
            self.by_flow.remove(&(session.neighbour, session.flow));
            self.sessions.remove(key);
        }
    }

    fn finish_those(&mut self, core: &mut Core, why: Why, of: impl Fn(&BackSession) -> bool) {
        for key in self.keys() {
            if self.sessions.get(key).is_some_and(|session| of(session)) {
                self.finish(core, key, why);
            }
        }
    }

    fn keys(&self) -> Vec<usize> {
        self.sessions.iter().map(|(key, _)| key).collect()
    }
}

impl Work for Back {
    fn on_packet(&mut self, core: &mut Core, from: usize, packet: Packet, sack: SackRanges, payload: &[u8]) {
        let opens = packet.flags.has(Flags::SYN) && !packet.flags.has(Flags::ACK);
        if let Some(&key) = self.by_flow.get(&(from, packet.flow))
            && let Some(session) = self.sessions.get_mut(key)
        {
            session.heard = core.now;
            match &mut session.stage {
                Stage::Connecting(_, syn) if opens => *syn = packet,
                Stage::Connecting(..) => {}
                Stage::Open(end) => {
                    let most = 2 * core.config.limits.session_buffer;
                    end.on_packet(core.now, &packet, &sack, payload, most);
                    core.again.push(key);
                }
            }
        } else if opens {
            self.begin(core, from, packet);
        } else {
            core.refuse(from, &packet);
        }
    }

    fn on_socket(&mut self, core: &mut Core, key: usize, ready: Ready) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.tcp.on_ready(ready);
        if let Stage::Connecting(_, syn) = session.stage {
            let socket = session.tcp.stream.socket();
            if !matches!(socket.take_error(), Ok(None)) {
                return self.finish(core, key, Why::NoServer);
            }
            if socket.peer_addr().is_err() {
                return;
            }
            let _ = socket.set_nodelay(true);
            let end = End::server(
                &core.transport,
                core.config.sender(session.neighbour),
                session.neighbour,
                &syn,
                core.now,
            );
            session.stage = Stage::Open(Box::new(end));
        }
        self.work(core, key);
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
        if let HopEvent::Replaced(neighbour) = event {
            self.finish_those(core, Why::Replaced, |session| session.neighbour == neighbour);
        }
    }

    fn sweep(&mut self, core: &mut Core) {
        for key in self.keys() {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            if session.over.is_some_and(|until| core.now >= until) {
                self.by_flow.remove(&(session.neighbour, session.flow));
                self.sessions.remove(key);
            } else if session.over.is_none()
                && let Err(why) = session.check(core)
            {
                self.finish(core, key, why);
            }
        }
    }

    fn on_close(&mut self, core: &mut Core) {
        self.finish_those(core, Why::Closing, |_| true);
    }

    fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The status: the server stands for the member, peers stand for clients.
    fn snapshot(&self, core: &Core) -> Status {
        let server = MemberStatus {
            name: self.server.to_string(),
            address: self.server.to_string(),
            state: if self.counts.last_failure.is_none() || core.counters.answers > 0 {
                "up"
            } else {
                "down"
            },
            connections: self.sessions(),
            bytes: core.counters.bytes,
            answers: core.counters.answers,
            outstanding: self.outstanding(),
            failures: self.counts.failures,
            unanswered: self.counts.unanswered,
            unrequested: core.counters.unrequested,
            last_failure: self.counts.last_failure.clone(),
            ..MemberStatus::default()
        };
        let clients = core.config.peers.iter().enumerate().map(|(at, peer)| ClientStatus {
            name: peer.name.clone(),
            weight: 1.0,
            sessions: self.sessions_of(at),
            ..ClientStatus::default()
        });
        Status {
            frames_are: self.framing.to_string(),
            sessions: self.sessions(),
            memory: self.memory() as u64,
            members: vec![server],
            clients: clients.collect(),
            ..common(core, "back")
        }
    }
}

impl BackSession {
    fn bytes(&self) -> usize {
        let end = if let Stage::Open(end) = &self.stage { end.bytes() } else { 0 };
        self.tcp.bytes() + end
    }

    /// Moves bytes in both directions as far as possible.
    fn work(&mut self, core: &mut Core, key: usize, answers: Answers) -> Result<(), Why> {
        let done = if self.over.is_none() { self.carry(core, key, answers) } else { Ok(()) };
        let Stage::Open(end) = &mut self.stage else { return done };
        let due = end.drive(core.now, &mut core.hops);
        core.arm(&mut self.armed, key, due);
        done
    }

    fn carry(&mut self, core: &mut Core, key: usize, answers: Answers) -> Result<(), Why> {
        let BackSession { stage: Stage::Open(end), tcp, waiting, source, message, last, .. } = self else {
            return Ok(());
        };
        let Core { config, counters, scratch, now, again, .. } = core;
        let buffer = config.limits.session_buffer;
        // Requests, to the server.
        while tcp.out.len() <= buffer && end.take_frame(message) {
            // The server would not answer a frame without bytes.
            let frame = label::request(message).filter(|(_, frame)| !frame.is_empty());
            let Some((label, frame)) = frame else { continue };
            tcp.out.push(frame);
            if matches!(answers, Answers::Any | Answers::InOrder) {
                waiting.push_back((label, *now));
            }
            *last = *now;
            counters.frames += 1;
            counters.bytes += frame.len() as u64;
        }
        tcp.flush();
        end.offer(tcp.out.len(), buffer);
        // Answers, to the peer.
        let mut unasked = false;
        for _ in 0..READS {
            if !tcp.may_read() || end.unacknowledged() > buffer {
                break;
            }
            let read = tcp.read(*now, scratch, |answer| {
                let to = match answers {
                    Answers::Stream => Some((*source, Kind::Free)),
                    _ => waiting.pop_front().map(|(label, _)| (label, Kind::Answer)),
                };
                match to {
                    Some((label, kind)) => {
                        counters.answers += 1;
                        counters.answer_bytes += answer.len() as u64;
                        label::parts(label, kind, answer).for_each(|(head, part)| end.write(&head, part));
                    }
                    None => {
                        counters.unrequested += 1;
                        // The bytes of a one-way server go nowhere.
                        unasked |= answers != Answers::None;
                    }
                }
                true
            });
            *last = *now;
            read.map_err(|_| Why::Malformed)?;
        }
        if tcp.may_read() && end.unacknowledged() <= buffer {
            again.push(key);
        }
        if unasked { Err(Why::Unrequested) } else { self.check_end(answers) }
    }

    fn check_end(&mut self, answers: Answers) -> Result<(), Why> {
        let BackSession { stage: Stage::Open(end), tcp, waiting, .. } = self else { return Ok(()) };
        if end.reset {
            return Err(Why::Reset);
        }
        let asked = end.peer_finished && end.is_read();
        if asked && tcp.out.is_empty() && !self.shut {
            self.shut = true;
            tcp.stream.finish();
        }
        let ended = tcp.ended || tcp.broken;
        let streams = answers == Answers::Stream;
        if ended && (!asked || !waiting.is_empty() || !self.shut) {
            // First, what the server has sent.
            let sent = !streams || tcp.broken || end.unacknowledged() == 0;
            return if sent { Err(Why::ServerEnded) } else { Ok(()) };
        }
        if self.shut && waiting.is_empty() && (ended || !streams) {
            end.finish();
        }
        if end.closed { Err(Why::Done) } else { Ok(()) }
    }

    /// Checks time limits.
    fn check(&mut self, core: &Core) -> Result<(), Why> {
        let (limits, now) = (&core.config.limits, core.now);
        let silent = now > self.heard + limits.answer_time;
        let Stage::Open(end) = &self.stage else {
            let Stage::Connecting(since, _) = self.stage else { return Ok(()) };
            return if now > since + limits.connect_time { Err(Why::NoServer) } else { Ok(()) };
        };
        if silent && (end.unacknowledged() > 0 || end.is_finishing() || !core.hops.is_up(self.neighbour)) {
            return Err(Why::NoPeer);
        }
        if self.waiting.front().is_some_and(|&(_, since)| now > since + limits.answer_time)
            && end.unacknowledged() <= limits.session_buffer
        {
            return Err(Why::Unanswered);
        }
        if now > self.last + limits.idle_time && self.waiting.is_empty() {
            return Err(Why::Idle);
        }
        Ok(())
    }
}

/// Reads of the server in a row.
const READS: usize = 4;
/// The time after the end for which repeated packets are answered.
const LINGER: Time = Time::from_secs(2);
