//! The event loop: all sockets on one thread, without blocking.
//!
//! Bytes are read into one buffer that all connections share. They are split into frames there, and
//! written to members from there. Bytes that could not be written, or may be needed again, are
//! copied to their session. So a session without problems holds next to no memory.

mod core;
mod health;
mod held;
mod probe;
mod session;
pub(crate) mod snapshot;

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Poll, Token};
use slab::Slab;
use tollway_agent::events::Events;
use tollway_agent::listeners;
use tollway_law::Time;
use tollway_proto::framing::Framing;

use self::core::Core;
use self::session::{End, Session};
use crate::config::{Config, MOVED, SCRATCH};
use crate::mailbox::{EngineCommand, Mailbox};
use crate::setup::Setup;
use crate::stream::Stream;

/// A switch's sockets and sessions.
pub struct Engine {
    poll: Poll,
    core: Core,
    listeners: Slab<Listener>,
    sessions: Slab<Box<Session>>,
    scratch: Vec<u8>,
    mailbox: Arc<Mailbox>,
    sessions_ever: u64,
    swept: Time,
    ending: Option<Time>,
}

/// A readiness event of a connection, one per change.
#[derive(Clone, Copy, Debug)]
struct Ready {
    readable: bool,
    writable: bool,
    /// True if the other end sends no more: a read after the last bytes finds the end.
    closed: bool,
}

struct Listener {
    socket: TcpListener,
    wanted: SocketAddr,
    address: SocketAddr,
    readable: bool,
}

impl Engine {
    /// Opens the listeners.
    ///
    /// # Errors
    /// An address is in use or not local.
    pub fn open(config: Arc<Config>, mailbox: Arc<Mailbox>, events: Events) -> io::Result<Engine> {
        let poll = Poll::new()?;
        mailbox.attach(mio::Waker::new(poll.registry(), Token(WAKER))?);
        let core = Core::new(Arc::clone(&config), poll.registry().try_clone()?, events);
        let scratch = vec![0; SCRATCH + MOVED];
        let mut engine = Engine {
            poll,
            core,
            listeners: Slab::new(),
            sessions: Slab::new(),
            scratch,
            mailbox,
            sessions_ever: 0,
            swept: Time::ZERO,
            ending: None,
        };
        engine.listen(&config)?;
        Ok(engine)
    }

    /// The addresses that clients connect to.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|(_, listener)| listener.address).collect()
    }

    /// Opens new listeners.
    fn listen(&mut self, config: &Config) -> io::Result<()> {
        for &wanted in &config.listen {
            if self.listeners.iter().any(|(_, listener)| listener.is(wanted)) {
                continue;
            }
            let passed = listeners::passed(wanted).map(TcpListener::from_std);
            let mut socket = passed.map_or_else(|| TcpListener::bind(wanted), Ok).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen at {wanted}: {error}"))
            })?;
            let address = socket.local_addr()?;
            let entry = self.listeners.vacant_entry();
            self.poll.registry().register(&mut socket, Token(entry.key()), Interest::READABLE)?;
            entry.insert(Listener { socket, wanted, address, readable: true });
        }
        Ok(())
    }

    /// Serves until the command to end, and then until nothing is left or the grace is over.
    ///
    /// # Errors
    /// The kernel's event queue fails.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = mio::Events::with_capacity(1024);
        while !self.is_over() {
            match self.poll.poll(&mut events, Some(self.patience())) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                let ready = Ready {
                    readable: event.is_readable() || event.is_error(),
                    writable: event.is_writable() || event.is_write_closed() || event.is_error(),
                    closed: event.is_read_closed(),
                };
                match event.token().0 {
                    WAKER => {}
                    at if at < BASE => self.may_accept(at),
                    at => self.notice((at - BASE) / STRIDE, (at - BASE) % STRIDE, ready),
                }
            }
            self.accept();
            self.obey();
            for id in std::mem::take(&mut self.core.again) {
                self.turn(id);
            }
            self.acknowledge();
            self.sweep();
            self.wake_waiting();
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.ending.is_some_and(|_| self.sessions.is_empty())
    }

    /// The time until the next work without an event.
    fn patience(&self) -> Duration {
        if !self.core.again.is_empty() || self.listeners.iter().any(|(_, listener)| listener.readable) {
            Duration::ZERO
        } else if !self.core.unacknowledged.is_empty() {
            ACKNOWLEDGED
        } else {
            SWEEP
        }
    }

    fn tick(&mut self) {
        self.core.now = self.core.clock.now();
    }

    fn may_accept(&mut self, at: usize) {
        if let Some(listener) = self.listeners.get_mut(at) {
            listener.readable = true;
        }
    }

    /// Accepts new connections, a few at a time.
    fn accept(&mut self) {
        self.tick();
        let ids: Vec<usize> = self.listeners.iter().map(|(id, _)| id).collect();
        for id in ids {
            for _ in 0..ACCEPTS {
                let Some(listener) = self.listeners.get_mut(id).filter(|listener| listener.readable) else {
                    break;
                };
                match listener.socket.accept() {
                    Ok((socket, peer)) => self.welcome(socket, peer),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // Without descriptors for more: those that come wait in the kernel until the
                    // next sweep.
                    Err(_) => listener.readable = false,
                }
            }
        }
    }

    fn welcome(&mut self, socket: TcpStream, peer: SocketAddr) {
        let core = &mut self.core;
        core.counters.accepted += 1;
        let refused = |core: &mut Core, socket: TcpStream| {
            core.counters.refused += 1;
            core.events
                .warn("refused", format_args!("the connection of {peer} is refused: too many sessions"));
            let mut stream = Stream::plain(socket);
            if core.config.framing == Framing::Resp && core.config.tls.is_none() {
                // As Redis does. A client that has sent nothing yet reads it before the end.
                let _ = stream.write(&[IoSlice::new(b"-ERR max number of clients reached\r\n")]);
                stream.finish();
            } else {
                stream.break_off();
            }
        };
        if self.sessions.len() >= core.most_sessions || self.ending.is_some() {
            return refused(core, socket);
        }
        let identity = core.identify(peer.ip().to_canonical(), None, None);
        let Some(client) = core.enter(identity) else { return refused(core, socket) };
        let local = socket.local_addr().unwrap_or(peer);
        let _ = socket.set_nodelay(true);
        let mut stream = match &core.config.tls {
            None => Stream::plain(socket),
            Some(config) => match rustls::ServerConnection::new(Arc::clone(config)) {
                Ok(connection) => Stream::tls(socket, connection.into()),
                Err(_) => {
                    core.leave(client);
                    return refused(core, socket);
                }
            },
        };
        let entry = self.sessions.vacant_entry();
        let id = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if core.registry.register(stream.socket(), Token(token(id, 0)), interest).is_err() {
            core.leave(client);
            core.counters.refused += 1;
            return;
        }
        self.sessions_ever += 1;
        let session = Session::new(core, id, self.sessions_ever, stream, (peer, local), client);
        entry.insert(Box::new(session)).go_on(core);
    }

    /// Records an event of a session's connection. The session is handled once all events are
    /// known, so that answers of several members are written together.
    fn notice(&mut self, id: usize, slot: usize, ready: Ready) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        match slot {
            0 => session.is_ready(ready),
            slot => session.lane_is_ready(slot - 1, ready),
        }
        session.go_on(&mut self.core);
    }

    /// Does all work that a session can do now.
    fn turn(&mut self, id: usize) {
        self.tick();
        let Engine { core, sessions, scratch, .. } = self;
        let Some(session) = sessions.get_mut(id) else { return };
        let done = session.turn(core, scratch);
        self.finish(id, done);
    }

    /// Resumes sessions that waited for room at a member.
    fn wake_waiting(&mut self) {
        while let Some(member) = self.core.drained.pop() {
            while let Some(id) = self.core.cluster.wake(self.core.now, member) {
                let id = id as usize;
                let Some(session) = self.sessions.get_mut(id) else { continue };
                if let Some(lane) = session.lanes.get_mut(member).and_then(Option::as_mut) {
                    lane.waiting = false;
                }
                let done =
                    session.flush_lane(&mut self.core, member).and_then(|()| session.after(&mut self.core));
                self.finish(id, done);
            }
        }
    }

    /// Polls the kernel for acknowledgements of frames.
    fn acknowledge(&mut self) {
        let asked = std::mem::take(&mut self.core.unacknowledged);
        if asked.is_empty() {
            return;
        }
        self.tick();
        for id in asked {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            session.polls_acks = false;
            for member in 0..session.lanes.len() {
                session.settle(&mut self.core, member);
            }
            let done = session.after(&mut self.core);
            self.finish(id, done);
        }
    }

    /// Ends a session, if an event led to that.
    fn finish(&mut self, id: usize, done: Result<(), End>) {
        let Err(end) = done else { return };
        let Some(mut session) = self.sessions.try_remove(id) else { return };
        let core = &mut self.core;
        *core.counters.ends.entry(end.word()).or_default() += 1;
        if end != End::Done {
            core.counters.abandoned += session.dispatch.open();
        }
        session.dismiss(core, end == End::Done || session.lingers);
        core.leave(session.client);
    }

    /// Handles everything with a time limit: members that are down or hang, and incomplete frames.
    fn sweep(&mut self) {
        self.tick();
        if self.core.now < self.swept + SWEEP_EVERY {
            return;
        }
        self.swept = self.core.now;
        self.listeners.iter_mut().for_each(|(_, listener)| listener.readable = true);
        let up = self.core.check_members();
        let ids: Vec<usize> = self.sessions.iter().map(|(id, _)| id).collect();
        for id in ids {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            let unparked = if up { session.unpark(&mut self.core) } else { Ok(()) };
            let done = unparked.and_then(|()| session.sweep(&mut self.core));
            self.finish(id, done);
        }
        if self.ending.is_some_and(|until| self.core.now > until) {
            for id in self.sessions.iter().map(|(id, _)| id).collect::<Vec<_>>() {
                self.finish(id, Err(End::Closing));
            }
        }
        let drained: Vec<usize> = (0..self.core.members.len()).collect();
        self.core.drained = drained;
    }

    /// Executes commands from other threads.
    fn obey(&mut self) {
        for command in self.mailbox.take() {
            match command {
                EngineCommand::Install(Setup::Site(_), reply) => {
                    let _ = reply.send(Err("a switch becomes a part between sites at a restart".to_owned()));
                }
                EngineCommand::Install(Setup::Switch(config), reply) => {
                    let done = self.core.accepts(&config).and_then(|()| self.listen(&config)).map(|()| {
                        self.listeners.retain(|_, listener| config.listen.iter().any(|&at| listener.is(at)));
                        self.core.install(config);
                    });
                    let _ = reply.send(done.map_err(|error| error.to_string()));
                }
                EngineCommand::Drain(name, drain, reply) => {
                    let at =
                        self.core.members.iter().position(|member| member.spec.name == name && member.listed);
                    if let Some(at) = at {
                        self.core.members[at].drained = drain;
                        self.core.refresh(at);
                        let what = if drain { "gets no new messages" } else { "gets messages again" };
                        self.core.events.info("drain", format_args!("member {name} {what}"));
                    }
                    let names = || self.core.members.iter().map(|member| member.spec.name.clone()).collect();
                    let _ = reply.send(at.map(|_| ()).ok_or_else(names));
                }
                EngineCommand::Status(reply) => {
                    let _ = reply.send(self.snapshot());
                }
                EngineCommand::End => {
                    self.tick();
                    self.ending = Some(self.core.now + self.core.config.limits.grace);
                    self.listeners.clear();
                    for (_, session) in &mut self.sessions {
                        session.is_ending();
                        session.go_on(&mut self.core);
                    }
                }
            }
        }
    }
}

impl Listener {
    /// True if this listener serves the configured `address`.
    fn is(&self, address: SocketAddr) -> bool {
        address == self.wanted || address == self.address
    }
}

/// The token of a session's connection: its client's, or the one to a member (counted from 1).
fn token(session: usize, slot: usize) -> usize {
    BASE + session * STRIDE + slot
}

/// Tokens below this are listeners; above, each session has a fixed number of tokens.
const BASE: usize = 1024;
const STRIDE: usize = 256;
const WAKER: usize = BASE - 1;
/// Connections accepted in a row.
const ACCEPTS: usize = 64;
/// The interval between sweeps, the longest sleep of the loop, and the sleep while a kernel's
/// acknowledgement is pending.
const SWEEP_EVERY: Time = Time::from_millis(50);
const SWEEP: Duration = Duration::from_millis(50);
const ACKNOWLEDGED: Duration = Duration::from_millis(5);
