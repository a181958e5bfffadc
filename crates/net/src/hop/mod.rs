//! Sealed hops: ACP packets with their payloads between neighbours whose keys are pinned.
//!
//! A node has one UDP socket. Every datagram of a hop is [sealed](crate::secure) with the keys of
//! that hop, and holds one of:
//!
//! ```text
//! packet  ACP's header | zeros | payload
//! beat    0x5B | version (1) | instance (4)
//! ```
//!
//! The sizes of packets are those of the transport: the datagram of a packet, its seal and the
//! headers of IP and UDP have [`Packet::size`] + [`secure::OVERHEAD`] bytes. The payload is the
//! last `size - header` bytes of a packet with data.
//!
//! Packets to a neighbour may leave by a [link](Hops::set_link) of a rate, whose law writes into
//! their tolls. Others go to the kernel at once.
//!
//! **Beats** leave each second. A neighbour is *up* if a datagram arrived from it within the last
//! [`SILENCE`]. Its instance is drawn when its process starts. Another instance means that the
//! process was replaced, and that its connections are gone.

mod egress;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tollway_law::link::AnyLink;
use tollway_law::{Rate, Time};
use tollway_proto::encoding::acp;
use tollway_proto::{Packet, SackRanges};
use tracing::debug;

use crate::secure::{self, Heard, KeyFile, Secure, SecureError, SecureStats, Trouble};
use crate::socket::{Inbox, Socket, is_of_trains};
use crate::wire;
use egress::Egress;

/// A node's socket, its keys, and its neighbours.
pub struct Hops {
    socket: Socket,
    secure: Secure,
    neighbours: Vec<Neighbour>,
    /// Addresses in order, each with its neighbour.
    by_addr: Vec<(SocketAddr, usize)>,
    instance: [u8; 4],
    events: VecDeque<HopEvent>,
    /// The next time at which a beat leaves or a neighbour may go down.
    due: Time,
    plain: Vec<u8>,
    egress: Egress,
    /// Neighbours with a train that is not empty.
    boarding: Vec<usize>,
    stats: HopStats,
}

struct Neighbour {
    name: String,
    addr: SocketAddr,
    /// Arrival of the last datagram sealed by it.
    heard: Option<Time>,
    up: bool,
    instance: Option<[u8; 4]>,
    beat_at: Time,
    train: Train,
}

impl Neighbour {
    fn new(name: &str, addr: SocketAddr, now: Time) -> Neighbour {
        let (name, train) = (name.to_owned(), Train::default());
        Neighbour { name, addr, heard: None, up: false, instance: None, beat_at: now, train }
    }
}

/// Sealed datagrams to a neighbour, which leave in one system call.
#[derive(Debug, Default)]
struct Train {
    bytes: Vec<u8>,
    /// Bytes of each datagram; only the last may be shorter.
    segment: usize,
    count: usize,
}

impl Train {
    /// Returns true if a datagram of `len` bytes cannot join; no train has more than `longest`.
    fn is_full(&self, len: usize, longest: usize) -> bool {
        let broken = len > self.segment || !self.bytes.len().is_multiple_of(self.segment);
        self.count > 0 && (broken || self.count == longest || self.bytes.len() + len > MOST_BYTES)
    }
}

/// A change of a neighbour's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopEvent {
    /// A datagram arrived, the first one or the first after a silence.
    Up(usize),
    /// No datagram arrived for [`SILENCE`].
    Down(usize),
    /// A new process has replaced the old one.
    Replaced(usize),
}

/// Counters of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopStats {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams handed to the kernel.
    pub sent: u64,
    /// Datagrams that the kernel did not take.
    pub unsent: u64,
    /// Packets dropped at a link's full queue.
    pub dropped: u64,
    /// Datagrams of neighbours that hold neither a packet nor a beat.
    pub senseless: u64,
}

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Opened {
    /// The neighbour.
    pub from: usize,
    /// The packet.
    pub packet: Packet,
    /// The packet's SACK ranges.
    pub sack: SackRanges,
    /// Offset of the end of the packet in its datagram.
    pub end: usize,
}

/// Datagrams received and not yet [opened](Hops::open).
#[derive(Debug)]
pub struct Batch {
    inbox: Inbox,
    count: usize,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch { inbox: Inbox::new(), count: 0 }
    }

    /// Calls `take` with each datagram and its source address, and empties the batch.
    pub fn for_each(&mut self, mut take: impl FnMut(SocketAddr, &mut [u8])) {
        for at in 0..std::mem::take(&mut self.count) {
            let meta = self.inbox.metas[at];
            for datagram in self.inbox.buffers[at][..meta.len].chunks_mut(meta.stride.max(1)) {
                take(meta.addr, datagram);
            }
        }
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

impl Hops {
    /// Opens a node at `bind`, with the keys of `file`, and its neighbours by name and address.
    /// Handshakes begin.
    ///
    /// # Errors
    /// The system refuses the socket or gives no randomness; the file has no key of a neighbour;
    /// two neighbours have one address.
    pub fn open_at(
        bind: SocketAddr,
        file: &KeyFile,
        neighbours: &[(String, SocketAddr)],
        now: Time,
    ) -> Result<Hops, HopError> {
        let mut by_addr: Vec<_> = neighbours.iter().enumerate().map(|(at, &(_, addr))| (addr, at)).collect();
        by_addr.sort_unstable();
        if let Some(pair) = by_addr.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(HopError::SameAddress { addr: pair[0].0 });
        }
        let named: Vec<(&str, SocketAddr)> =
            neighbours.iter().map(|(name, addr)| (name.as_str(), *addr)).collect();
        let mut secure = Secure::new(file, &named)?;
        let socket = Socket::on(bind).map_err(|source| HopError::Bind { bind, source })?;
        secure.open_all(now);
        Ok(Hops {
            socket,
            secure,
            neighbours: named.iter().map(|&(name, addr)| Neighbour::new(name, addr, now)).collect(),
            by_addr,
            instance: crate::random().map_err(SecureError::Random)?,
            events: VecDeque::new(),
            due: now,
            plain: Vec::new(),
            egress: Egress::default(),
            boarding: Vec::new(),
            stats: HopStats::default(),
        })
    }

    /// Adds a neighbour by name and address, with its key in `file`, at the lowest free index. A
    /// handshake begins.
    ///
    /// # Errors
    /// The file has no key of it, or another neighbour has its address.
    pub fn add(
        &mut self,
        now: Time,
        file: &KeyFile,
        name: &str,
        addr: SocketAddr,
    ) -> Result<usize, HopError> {
        let Err(place) = self.by_addr.binary_search_by_key(&addr, |entry| entry.0) else {
            return Err(HopError::SameAddress { addr });
        };
        self.secure.add(now, file, name, addr)?;
        let taken = |at: &usize| self.by_addr.iter().any(|entry| entry.1 == *at);
        let at = (0..self.neighbours.len()).find(|at| !taken(at)).unwrap_or(self.neighbours.len());
        self.by_addr.insert(place, (addr, at));
        let neighbour = Neighbour::new(name, addr, now);
        if at == self.neighbours.len() {
            self.neighbours.push(neighbour);
        } else {
            self.neighbours[at] = neighbour;
        }
        self.due = now;
        Ok(at)
    }

    /// Removes a neighbour to which no packets were sent for a second. Its index becomes free.
    pub fn remove(&mut self, neighbour: usize) {
        let Neighbour { addr, up, .. } = &mut self.neighbours[neighbour];
        *up = false;
        self.by_addr.retain(|entry| entry.0 != *addr);
        self.secure.remove(*addr);
        self.egress.remove(neighbour);
    }

    /// Indices of all neighbours, in order.
    pub fn neighbours(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.by_addr.iter().map(|entry| entry.1).collect();
        all.sort_unstable();
        all
    }

    /// The neighbour at an address.
    pub fn at(&self, addr: SocketAddr) -> Option<usize> {
        let place = self.by_addr.binary_search_by_key(&addr, |entry| entry.0).ok()?;
        Some(self.by_addr[place].1)
    }

    /// A neighbour's name.
    pub fn name_of(&self, neighbour: usize) -> &str {
        &self.neighbours[neighbour].name
    }

    /// The socket's address.
    pub fn addr(&self) -> SocketAddr {
        self.socket.addr()
    }

    /// A neighbour's address.
    pub fn addr_of(&self, neighbour: usize) -> SocketAddr {
        self.neighbours[neighbour].addr
    }

    /// Counts of datagrams.
    pub fn stats(&self) -> HopStats {
        HopStats { dropped: self.egress.dropped(), ..self.stats }
    }

    /// Sets a link to a neighbour: later packets leave at `rate`, and `law` writes into their
    /// tolls.
    ///
    /// The rate counts packets with their seal and the headers of IP and UDP. The queue holds the
    /// bytes of a tenth of a second.
    pub fn set_link(&mut self, neighbour: usize, rate: Rate, law: AnyLink) {
        self.egress.set(neighbour, rate, law);
    }

    /// Counts of datagrams that were refused before they were opened.
    pub fn refused(&self) -> SecureStats {
        self.secure.stats()
    }

    /// Returns true while a neighbour is up.
    pub fn is_up(&self, neighbour: usize) -> bool {
        self.neighbours[neighbour].up
    }

    /// The reason why there are no keys with a neighbour; `None` if there are keys, or were.
    pub fn trouble(&self, neighbour: usize) -> Option<Trouble> {
        self.secure.trouble(self.neighbours[neighbour].addr)
    }

    /// Receives datagrams that wait in the kernel. Returns true if there may be more.
    ///
    /// # Errors
    /// The system refuses to receive.
    pub fn receive(&mut self, batch: &mut Batch) -> io::Result<bool> {
        batch.count = self.socket.receive(&mut batch.inbox)?;
        Ok(batch.count > 0)
    }

    /// Opens a datagram in place; `None` if it holds no packet.
    pub fn open(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) -> Option<Opened> {
        self.stats.received += 1;
        let end = match self.secure.handle_datagram(now, from, datagram) {
            Heard::Packet(len) => secure::FRONT + len,
            // The handshake may have produced keys.
            Heard::Handshake => {
                self.due = now;
                return None;
            }
            Heard::Refused => return None,
        };
        let at = self.at(from)?;
        let neighbour = &mut self.neighbours[at];
        neighbour.heard = Some(now);
        if !std::mem::replace(&mut neighbour.up, true) {
            debug!(target: "hop", %now, neighbour = at, "neighbour up");
            self.events.push_back(HopEvent::Up(at));
            self.due = now;
        }
        let opened = datagram.get(secure::FRONT..end)?;
        if let &[BEAT, VERSION, a, b, c, d] = opened {
            if neighbour.instance.replace([a, b, c, d]).is_some_and(|old| old != [a, b, c, d]) {
                debug!(target: "hop", %now, neighbour = at, "neighbour is another process");
                self.events.push_back(HopEvent::Replaced(at));
            }
            return None;
        }
        match acp::decode(opened) {
            Ok(acp::Decoded { packet, sack, .. }) => Some(Opened { from: at, packet, sack, end }),
            Err(_) => {
                self.stats.senseless += 1;
                None
            }
        }
    }

    /// Sends a packet with its payload, in two parts, once the train is full or
    /// [flushed](Hops::flush). A packet too short for its header is dropped.
    pub fn send(
        &mut self,
        now: Time,
        to: usize,
        packet: &Packet,
        sack: &SackRanges,
        payload: (&[u8], &[u8]),
    ) {
        let len = usize::from(packet.size).saturating_sub(acp::OVERHEAD);
        let mut plain = std::mem::take(&mut self.plain);
        plain.resize(len, 0);
        let header = packet.size.saturating_sub((payload.0.len() + payload.1.len()) as u16);
        let composed = wire::compose_with(packet, sack, header, &mut plain, |tail| {
            let (front, back) = tail.split_at_mut(payload.0.len().min(tail.len()));
            front.copy_from_slice(&payload.0[..front.len()]);
            back.copy_from_slice(&payload.1[..back.len()]);
        });
        match composed {
            Ok(()) if self.egress.has(to) => {
                self.egress.offer(now, to, *packet, &plain);
                self.due = self.due.min(self.egress.due());
            }
            Ok(()) => self.seal(now, to, &plain),
            Err(_) => self.stats.senseless += 1,
        }
        self.plain = plain;
    }

    fn seal(&mut self, now: Time, to: usize, plain: &[u8]) {
        let len = plain.len() + secure::OVERHEAD;
        if self.neighbours[to].train.is_full(len, self.socket.longest_train()) {
            self.flush_train(to);
        }
        let Neighbour { train, addr, .. } = &mut self.neighbours[to];
        if self.secure.seal(now, *addr, plain, &mut train.bytes) {
            if train.count == 0 {
                train.segment = len;
                self.boarding.push(to);
            }
            train.count += 1;
        }
    }

    /// Sends all waiting packets and handshake datagrams.
    pub fn flush(&mut self) {
        while let Some(to) = self.boarding.pop() {
            self.flush_train(to);
        }
        while let Some((to, datagram)) = self.secure.poll_transmit() {
            self.hand_over(to, &datagram, datagram.len());
        }
    }

    fn flush_train(&mut self, to: usize) {
        let neighbour = &mut self.neighbours[to];
        let mut train = std::mem::take(&mut neighbour.train);
        let addr = neighbour.addr;
        if train.count > 0 {
            self.hand_over(addr, &train.bytes, train.segment);
        }
        train.bytes.clear();
        train.count = 0;
        self.neighbours[to].train = train;
    }

    /// Sends `bytes` as datagrams of `segment` bytes. Datagrams that the kernel refuses count as
    /// lost.
    fn hand_over(&mut self, to: SocketAddr, bytes: &[u8], segment: usize) {
        let count = bytes.len().div_ceil(segment.max(1)) as u64;
        match self.socket.send(to, bytes, segment) {
            Ok(()) => self.stats.sent += count,
            Err(error) if count > 1 && is_of_trains(&error) => {
                bytes.chunks(segment).for_each(|datagram| self.hand_over(to, datagram, datagram.len()));
            }
            Err(_) => self.stats.unsent += count,
        }
    }

    /// Sends beats and hellos that are due, and detects silence.
    pub fn handle_timeout(&mut self, now: Time) {
        self.secure.handle_timeout(now);
        if now >= self.due {
            let mut plain = std::mem::take(&mut self.plain);
            while let Some(to) = self.egress.next(now, &mut plain) {
                self.seal(now, to, &plain);
            }
            self.plain = plain;
            self.due = self.egress.due();
            (0..self.by_addr.len()).for_each(|place| self.attend(now, self.by_addr[place].1));
        }
        self.flush();
    }

    fn attend(&mut self, now: Time, at: usize) {
        if self.trouble(at).is_none() {
            if now >= self.neighbours[at].beat_at {
                self.neighbours[at].beat_at = now.saturating_add(BEAT_EVERY);
                let [a, b, c, d] = self.instance;
                self.seal(now, at, &[BEAT, VERSION, a, b, c, d]);
            }
            self.due = self.due.min(self.neighbours[at].beat_at);
        }
        let neighbour = &mut self.neighbours[at];
        if let Some(heard) = neighbour.heard.filter(|_| neighbour.up) {
            let silent_at = heard.saturating_add(SILENCE);
            if now >= silent_at {
                debug!(target: "hop", %now, neighbour = at, "neighbour silent");
                neighbour.up = false;
                self.events.push_back(HopEvent::Down(at));
            } else {
                self.due = self.due.min(silent_at);
            }
        }
    }

    /// The latest time at which [`handle_timeout`](Hops::handle_timeout) is due. It is also due
    /// after datagrams have arrived.
    pub fn poll_timeout(&self) -> Time {
        self.due.min(self.secure.poll_timeout())
    }

    /// The next change of a neighbour's state.
    pub fn poll_event(&mut self) -> Option<HopEvent> {
        self.events.pop_front()
    }
}

impl AsFd for Hops {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for Hops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.neighbours.iter().map(|neighbour| neighbour.name.as_str()).collect();
        f.debug_struct("Hops").field("neighbours", &names).field("stats", &self.stats).finish_non_exhaustive()
    }
}

/// An error that prevents a node's hops.
#[derive(Debug, thiserror::Error)]
pub enum HopError {
    /// The system refuses the socket.
    #[error("cannot bind {bind}: {source}")]
    Bind {
        /// The address.
        bind: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Two neighbours have one address.
    #[error("two neighbours have the address {addr}")]
    SameAddress {
        /// The address.
        addr: SocketAddr,
    },
    /// The keys are unusable.
    #[error(transparent)]
    Secure(#[from] SecureError),
}

/// Silence after which a neighbour is down.
pub const SILENCE: Time = Time::from_secs(3);
const BEAT_EVERY: Time = Time::from_secs(1);
/// First byte of a beat; that of an ACP packet is [`acp::MAGIC`].
const BEAT: u8 = 0x5b;
const VERSION: u8 = 1;
/// Limit of one train, in bytes: almost the largest UDP payload.
const MOST_BYTES: usize = 65_000;
