//! A node: the socket of a program, its neighbours, and the thread that moves packets.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token, Waker};
use tollway_law::sender::{AnySender, NewRenoConfig, SenderConfig, Sending};
use tollway_law::{Rate, Time};
use tollway_net::Clock;
use tollway_net::hop::{Batch, HopError, HopEvent, Hops};
use tollway_net::secure::KeyFile;
use tollway_proto::route::Hash;
use tollway_proto::transport::Config as Transport;
use tollway_proto::{Flags, Packet, SackRanges};

use crate::end::{End, payload, refusal};
use crate::label::Tags;
use crate::notifier::Notifier;
use crate::session::{Limits, Line, Role, Session, SessionError};
use crate::{SEGMENT, link_law, transport};

/// The parameters of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of its UDP socket.
    pub bind: SocketAddr,
    /// Its own key, and those of its neighbours.
    pub keys: KeyFile,
    /// True if it accepts sessions of its neighbours.
    pub listen: bool,
    /// The sender law of its sessions. Default NewReno.
    pub law: Arc<dyn SenderConfig>,
    /// Bytes under way per session and direction. Default 2 MiB.
    pub buffer: usize,
    /// The longest frame, bytes; at most half of `buffer`. Default 1 MiB.
    pub frame: usize,
}

impl Options {
    /// Options of a node that accepts no sessions, with the defaults.
    pub fn new(bind: SocketAddr, keys: KeyFile) -> Options {
        let law = Arc::new(NewRenoConfig::default());
        Options { bind, keys, listen: false, law, buffer: 2 << 20, frame: 1 << 20 }
    }

    /// The same, of a node that accepts sessions.
    pub fn listening(self) -> Options {
        Options { listen: true, ..self }
    }
}

/// An error of a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The system refuses.
    #[error("the system refuses the node: {0}")]
    System(#[from] io::Error),
    /// The socket, a key or an address of a neighbour cannot be used.
    #[error(transparent)]
    Hop(#[from] HopError),
    /// The frame does not fit the buffer.
    #[error("`frame` is {frame} bytes: give at most half of `buffer`, which is {buffer} bytes")]
    Frame {
        /// The longest frame.
        frame: usize,
        /// The buffer.
        buffer: usize,
    },
    /// There is no such neighbour.
    #[error("`{0}` is not a neighbour of this node: add it with its address first")]
    Unknown(String),
    /// The neighbour did not answer in time.
    #[error("`{0}` did not open the session in time")]
    Silent(String),
    /// The neighbour, or all members of its cluster, refused the session.
    #[error("`{name}` refused the session: {why}")]
    Refused {
        /// The neighbour.
        name: String,
        /// The reason.
        why: SessionError,
    },
    /// The node's thread has ended.
    #[error("the node has ended")]
    Ended,
}

/// A program's end of sessions: one UDP socket, and a thread.
///
/// Dropping it aborts its sessions: [`Session::flush`] waits until what was sent has arrived.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

/// The state that the program and the thread share.
#[derive(Debug)]
struct Shared {
    notifier: Arc<Notifier>,
    inbox: Mutex<Inbox>,
    /// Sessions that were not accepted yet; `None` once the thread has ended.
    accepted: Mutex<Option<VecDeque<Session>>>,
    arrived: Condvar,
}

/// Work for the thread.
#[derive(Debug, Default)]
struct Inbox {
    commands: Vec<Command>,
    /// True once the thread has ended.
    over: bool,
}

#[derive(Debug)]
enum Command {
    Add(String, SocketAddr, Option<Rate>, Sender<Result<(), NodeError>>),
    Connect(String, Sender<Result<Session, NodeError>>),
    End,
}

impl Node {
    /// Opens a node without neighbours.
    ///
    /// # Errors
    /// [`NodeError::System`], [`NodeError::Hop`] or [`NodeError::Frame`].
    pub fn open(options: &Options) -> Result<Node, NodeError> {
        let &Options { frame, buffer, .. } = options;
        if frame > buffer / 2 {
            return Err(NodeError::Frame { frame, buffer });
        }
        let poll = Poll::new()?;
        let clock = Clock::starting_at(FIRST_INSTANT);
        let hops = Hops::open_at(options.bind, &options.keys, &[], clock.now())?;
        poll.registry().register(&mut SourceFd(&hops.as_fd().as_raw_fd()), HOPS, Interest::READABLE)?;
        let shared = Arc::new(Shared {
            notifier: Arc::new(Notifier::new(Waker::new(poll.registry(), WAKER)?)),
            inbox: Mutex::default(),
            accepted: Mutex::new(Some(VecDeque::new())),
            arrived: Condvar::new(),
        });
        let address = hops.addr();
        let echo = options.law.descriptor().echo;
        let mut engine = Engine {
            transport: Arc::new(Transport { echo, ..transport(buffer) }),
            options: options.clone(),
            rates: Vec::new(),
            poll,
            hops,
            now: clock.now(),
            clock,
            shared: Arc::clone(&shared),
            lines: HashMap::new(),
            by_flow: HashMap::new(),
            timers: BinaryHeap::new(),
            next_key: 0,
            next_flow: u32::from_be_bytes(tollway_net::random()?),
            hash: Hash::new(tollway_net::random()?),
            swept: Time::ZERO,
            over: false,
        };
        let run = move || {
            // Without its socket, a node's sessions end.
            let _ = engine.run();
            engine.end();
        };
        let thread = std::thread::Builder::new().name("session".into()).spawn(run)?;
        Ok(Node { shared, address, thread: Some(thread) })
    }

    /// The address of its socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a neighbour by the name of its key.
    ///
    /// # Errors
    /// [`NodeError::Hop`] or [`NodeError::Ended`].
    pub fn add(&self, name: &str, address: SocketAddr) -> Result<(), NodeError> {
        self.ask(|reply| Command::Add(name.to_owned(), address, None, reply))
    }

    /// Adds a neighbour behind a link, whose rate XCP and FCP divide over sessions.
    ///
    /// # Errors
    /// As for [`add`](Node::add).
    pub fn add_with_rate(&self, name: &str, address: SocketAddr, rate: Rate) -> Result<(), NodeError> {
        self.ask(|reply| Command::Add(name.to_owned(), address, Some(rate), reply))
    }

    /// Opens a session with a neighbour, waiting for at most `patience`.
    ///
    /// # Errors
    /// [`NodeError::Unknown`], [`NodeError::Silent`], [`NodeError::Refused`] or
    /// [`NodeError::Ended`].
    pub fn connect(&self, name: &str, patience: Duration) -> Result<Session, NodeError> {
        let session = self.ask(|reply| Command::Connect(name.to_owned(), reply))?;
        match session.opened(patience) {
            Ok(()) => Ok(session),
            Err(SessionError::TimedOut) => Err(NodeError::Silent(name.to_owned())),
            Err(why) => Err(NodeError::Refused { name: name.to_owned(), why }),
        }
    }

    /// The next session that a neighbour has opened, waiting for at most `patience`.
    ///
    /// # Errors
    /// [`SessionError::TimedOut`], or [`SessionError::Gone`] once the node has ended.
    pub fn accept(&self, patience: Duration) -> Result<Session, SessionError> {
        let until = Instant::now() + patience;
        let mut accepted = self.shared.accepted();
        loop {
            let Some(waiting) = accepted.as_mut() else { return Err(SessionError::Gone) };
            if let Some(session) = waiting.pop_front() {
                return Ok(session);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(SessionError::TimedOut);
            }
            let woken = self.shared.arrived.wait_timeout(accepted, left);
            accepted = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<Result<T, NodeError>>) -> Command) -> Result<T, NodeError> {
        let (reply, answer) = channel();
        let mut inbox = self.shared.inbox();
        if inbox.over {
            return Err(NodeError::Ended);
        }
        inbox.commands.push(command(reply));
        drop(inbox);
        self.shared.notifier.wake();
        answer.recv().unwrap_or(Err(NodeError::Ended))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.inbox().commands.push(Command::End);
        self.shared.notifier.wake();
        self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted(&self) -> MutexGuard<'_, Option<VecDeque<Session>>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's state.
struct Engine {
    options: Options,
    transport: Arc<Transport>,
    /// The rates of links, by neighbour.
    rates: Vec<Option<Rate>>,
    poll: Poll,
    hops: Hops,
    clock: Clock,
    now: Time,
    shared: Arc<Shared>,
    lines: HashMap<usize, Entry>,
    by_flow: HashMap<(usize, u32), usize>,
    timers: BinaryHeap<Reverse<(Time, usize)>>,
    next_key: usize,
    next_flow: u32,
    hash: Hash,
    swept: Time,
    over: bool,
}

/// A session at the thread.
struct Entry {
    line: Arc<Line>,
    neighbour: usize,
    flow: u32,
    heard: Time,
    armed: Time,
    /// The time at which the program dropped it.
    dropped: Option<Time>,
    /// The end of the time in which repeated packets are answered.
    until: Option<Time>,
}

impl Engine {
    fn run(&mut self) -> io::Result<()> {
        let (mut events, mut batch) = (mio::Events::with_capacity(64), Batch::new());
        while !self.over {
            match self.poll.poll(&mut events, Some(self.patience())) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => self.now = self.clock.now(),
            }
            self.obey();
            while self.hops.receive(&mut batch)? {
                self.now = self.clock.now();
                batch.for_each(|from, datagram| {
                    let Some(opened) = self.hops.open(self.now, from, datagram) else { return };
                    let payload = payload(&opened.packet, datagram, opened.end);
                    self.on_packet(opened.from, &opened.packet, &opened.sack, payload);
                });
                self.meet_neighbours();
                self.hops.flush();
            }
            while let Some(&Reverse((at, key))) = self.timers.peek()
                && at <= self.now
            {
                self.timers.pop();
                if let Some(entry) = self.lines.get_mut(&key).filter(|entry| entry.armed == at) {
                    entry.armed = Time::NEVER;
                    self.work(key);
                }
            }
            if self.now >= self.swept + SWEEP_EVERY {
                self.swept = self.now;
                self.sweep();
            }
            self.hops.handle_timeout(self.now);
            self.meet_neighbours();
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        let timer = self.timers.peek().map_or(Time::NEVER, |&Reverse((at, _))| at);
        let due = timer.min(self.hops.poll_timeout()).min(self.swept + SWEEP_EVERY);
        Duration::from_nanos(due.saturating_sub(self.clock.now()).0)
    }

    fn obey(&mut self) {
        let commands = std::mem::take(&mut self.shared.inbox().commands);
        for command in commands {
            match command {
                Command::Add(name, address, rate, reply) => {
                    let _ = reply.send(self.add(&name, address, rate));
                }
                Command::Connect(name, reply) => {
                    let _ = reply.send(self.connect(name));
                }
                Command::End => self.over = true,
            }
        }
        self.shared.notifier.take().into_iter().for_each(|key| self.work(key));
    }

    fn add(&mut self, name: &str, address: SocketAddr, rate: Option<Rate>) -> Result<(), NodeError> {
        let at = self.hops.add(self.now, &self.options.keys, name, address)?;
        self.rates.resize(self.rates.len().max(at + 1), None);
        self.rates[at] = rate;
        if let Some(rate) = rate {
            self.hops.set_link(at, rate, link_law(&*self.options.law, rate));
        }
        Ok(())
    }

    fn connect(&mut self, name: String) -> Result<Session, NodeError> {
        let found = self.hops.neighbours().into_iter().find(|&at| self.hops.name_of(at) == name);
        let neighbour = found.ok_or(NodeError::Unknown(name))?;
        let flow = self.next_flow;
        self.next_flow = flow.wrapping_add(1);
        let end = End::client(&self.transport, self.sender(neighbour), neighbour, flow, self.now);
        let role = Role::client(Tags::new(self.hash, flow), self.limits());
        Ok(self.enter(neighbour, flow, end, role))
    }

    /// Adds a session.
    fn enter(&mut self, neighbour: usize, flow: u32, end: End, role: Role) -> Session {
        let key = self.next_key;
        self.next_key += 1;
        let line = Arc::new(Line::new(&self.shared.notifier, key, end, role, self.limits()));
        let session = Session::new(Arc::clone(&line));
        let (heard, armed, dropped, until) = (self.now, Time::NEVER, None, None);
        self.lines.insert(key, Entry { line, neighbour, flow, heard, armed, dropped, until });
        self.by_flow.insert((neighbour, flow), key);
        self.work(key);
        session
    }

    fn limits(&self) -> Limits {
        Limits { buffer: self.options.buffer, frame: self.options.frame }
    }

    fn sender(&self, neighbour: usize) -> AnySender {
        let of = Sending::of(10.0);
        let line_rate = self.rates.get(neighbour).copied().flatten().unwrap_or(of.line_rate);
        self.options.law.make(&Sending { segment: SEGMENT, line_rate, ..of })
    }

    fn on_packet(&mut self, from: usize, packet: &Packet, sack: &SackRanges, payload: &[u8]) {
        if let Some(&key) = self.by_flow.get(&(from, packet.flow))
            && let Some(entry) = self.lines.get_mut(&key)
        {
            entry.heard = self.now;
            entry.line.on_packet(self.now, packet, sack, payload);
            return self.work(key);
        }
        let opens = packet.flags.has(Flags::SYN) && !packet.flags.has(Flags::ACK);
        if opens && self.accept(from, packet) {
            return;
        }
        if let Some(reset) = refusal(self.now, packet) {
            self.hops.send(self.now, from, &reset, &SackRanges::EMPTY, (&[], &[]));
        }
    }

    /// Accepts a neighbour's session. Returns false if it is to be refused.
    fn accept(&mut self, from: usize, syn: &Packet) -> bool {
        let waiting = self.shared.accepted().as_ref().map_or(0, VecDeque::len);
        let Ok(source) = tollway_net::random() else { return false };
        if !self.options.listen || waiting >= BACKLOG {
            return false;
        }
        let end = End::server(&self.transport, self.sender(from), from, syn, self.now);
        let session = self.enter(from, syn.flow, end, Role::Server { source });
        if let Some(accepted) = &mut *self.shared.accepted() {
            accepted.push_back(session);
        }
        self.shared.arrived.notify_one();
        true
    }

    fn work(&mut self, key: usize) {
        let Some(entry) = self.lines.get_mut(&key) else { return };
        let (due, over) = entry.line.work(self.now, &mut self.hops);
        if over && entry.until.is_none() {
            entry.until = Some(self.now + LINGER);
        }
        if due < entry.armed {
            entry.armed = due;
            self.timers.push(Reverse((due, key)));
        }
    }

    fn meet_neighbours(&mut self) {
        while let Some(event) = self.hops.poll_event() {
            if let HopEvent::Replaced(neighbour) = event {
                self.end_those(|entry, _| entry.neighbour == neighbour);
            }
        }
    }

    fn end_those(&mut self, of: impl Fn(&Entry, &Hops) -> bool) {
        let those = self.lines.iter().filter(|(_, entry)| of(entry, &self.hops));
        let keys: Vec<usize> = those.map(|(&key, _)| key).collect();
        for key in keys {
            if let Some(entry) = self.lines.get(&key) {
                entry.line.end(SessionError::Gone);
                self.work(key);
            }
        }
    }

    fn sweep(&mut self) {
        let now = self.now;
        for entry in self.lines.values_mut().filter(|entry| entry.line.lock().dropped) {
            entry.dropped.get_or_insert(now);
        }
        self.end_those(|entry, hops| {
            let silent = !hops.is_up(entry.neighbour) && now > entry.heard + SILENT;
            entry.until.is_none() && (silent || entry.dropped.is_some_and(|since| now > since + SILENT))
        });
        let Engine { lines, by_flow, .. } = self;
        lines.retain(|_, entry| {
            let over = entry.until.is_some_and(|until| now >= until);
            if over {
                by_flow.remove(&(entry.neighbour, entry.flow));
            }
            !over
        });
    }

    /// Aborts all sessions.
    fn end(&mut self) {
        self.end_those(|_, _| true);
        self.hops.flush();
        self.shared.accepted().take();
        self.shared.arrived.notify_all();
        let mut inbox = self.shared.inbox();
        inbox.over = true;
        inbox.commands.clear();
    }
}

const HOPS: Token = Token(0);
const WAKER: Token = Token(1);
/// The first instant of the clock: spans before the start stay above zero.
const FIRST_INSTANT: Time = Time::from_secs(60);
const SWEEP_EVERY: Time = Time::from_millis(50);
/// The time after the end for which repeated packets are answered.
const LINGER: Time = Time::from_secs(2);
/// The longest silence of a neighbour that is down, and the longest life of a dropped session.
const SILENT: Time = Time::from_secs(10);
/// Upper bound on sessions that were not accepted yet.
const BACKLOG: usize = 1024;
