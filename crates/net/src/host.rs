//! ACP between processes: a UDP socket that listens or connects, and the connections on it.
//!
//! Nothing is emulated here. Packets that the transport sends go to the kernel at once, in trains.
//! The payload is the [pattern](crate) of the live engine: the sender makes it and the receiver
//! checks it.
//!
//! A listener stores no state for a client until the client has proved that it receives at its
//! address. It answers an opening without a valid [cookie] with a cookie. It drops every other
//! datagram from an unknown address.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use tollway_law::Time;
use tollway_law::sender::AnySender;
use tollway_proto::encoding::acp;
use tollway_proto::transport::{Config, Connection, Event, State, Stats};
use tollway_proto::{Flags, Packet, SackRanges};

use crate::clock::Clock;
use crate::cookie::{self, Jar};
use crate::error::Error;
use crate::socket::{Inbox, Socket};
use crate::wire;

/// Parameters of a host and its connections.
pub struct HostConfig {
    /// Parameters of the transport. Packets need room for the IP, UDP and ACP headers: `header` is
    /// at least 80 bytes, `ack_size` at least 112.
    pub transport: Arc<Config>,
    /// Makes the sender law of a connection.
    pub law: Box<dyn Fn() -> AnySender + Send>,
    /// Time without a packet from the peer after which a connection is aborted.
    pub patience: Time,
    /// Limit of simultaneous connections. Further openings get no answer.
    pub most: usize,
    /// Limit of simultaneous connections from one IP address.
    pub most_per_address: usize,
}

/// A change of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// The connection has ended, and all data of both sides have arrived.
    Finished(PeerId),
    /// The peer reset the connection.
    Reset(PeerId),
    /// No packet arrived from the peer for [`HostConfig::patience`].
    TimedOut(PeerId),
}

/// Names a connection of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId {
    /// The peer's address.
    pub addr: SocketAddr,
    /// The connection's number, chosen by the side that opened it.
    pub flow: u32,
}

/// Counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams handed to the kernel.
    pub sent: u64,
    /// Datagrams that the kernel refused.
    pub unsent: u64,
    /// Datagrams dropped: not ACP, of no connection, or with a wrong payload.
    pub refused: u64,
    /// Bytes received from addresses that have not returned a valid cookie.
    pub stranger_bytes: u64,
    /// Bytes of cookies sent to such addresses.
    pub challenge_bytes: u64,
}

/// A UDP socket with ACP connections on it.
pub struct Host {
    config: HostConfig,
    clock: Clock,
    socket: Arc<Socket>,
    /// Makes cookies, if this host listens.
    jar: Option<Jar>,
    peers: BTreeMap<PeerId, Peer>,
    next_flow: u32,
    inbox: Inbox,
    train: Vec<u8>,
    stats: HostStats,
}

struct Peer {
    machine: Connection,
    /// The listener's cookie, once received, and the opening to send again with it.
    cookie: Option<[u8; cookie::LEN]>,
    opening: Option<Packet>,
    heard: Time,
    /// Time of the end. The connection answers repeated FINs for [`LINGER`] afterwards.
    over: Option<Time>,
}

impl Host {
    /// Opens a host on `addr`. With `key`, which must be secret and random, it listens.
    ///
    /// # Errors
    /// The system refuses the socket, or packets have no room for their headers.
    pub fn new(addr: SocketAddr, config: HostConfig, key: Option<[u8; 16]>) -> Result<Host, Error> {
        let least =
            (acp::OVERHEAD + acp::header_len(SackRanges::MAX)).max(acp::OVERHEAD + acp::LEN + cookie::LEN);
        if usize::from(config.transport.ack_size) < least {
            return Err(Error::NoRoom { size: config.transport.ack_size, need: least });
        }
        let need = acp::OVERHEAD + acp::LEN;
        if usize::from(config.transport.header) < need {
            return Err(Error::NoRoom { size: config.transport.header, need });
        }
        let socket = Socket::on(addr).map_err(|source| Error::Socket {
            node: addr.to_string(),
            action: "open a UDP socket",
            source,
        })?;
        Ok(Host {
            config,
            clock: Clock::starting_at(Time::ZERO),
            socket: Arc::new(socket),
            jar: key.map(|key| Jar::new(key, COOKIE_LIFETIME)),
            peers: BTreeMap::new(),
            next_flow: u32::from_be_bytes(crate::random().map_err(Error::Random)?),
            inbox: Inbox::new(),
            train: Vec::with_capacity(MOST_BYTES),
            stats: HostStats::default(),
        })
    }

    /// The socket's address.
    pub fn addr(&self) -> SocketAddr {
        self.socket.addr()
    }

    /// Opens a connection to `addr`, sends `bytes` over it, then finishes.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn connect(&mut self, addr: SocketAddr, bytes: u64) -> Result<PeerId, Error> {
        let id = PeerId { addr, flow: self.next_flow };
        self.next_flow = self.next_flow.wrapping_add(1);
        let now = self.clock.now();
        let config = self.numbered().map_err(Error::Random)?;
        let mut machine = Connection::client(&config, (self.config.law)(), id.flow);
        machine.write_stream(bytes);
        machine.finish();
        machine.open(now);
        self.peers.insert(id, Peer { machine, cookie: None, opening: None, heard: now, over: None });
        Ok(id)
    }

    /// The configuration of a new connection, with a random first segment number (RFC 6528).
    fn numbered(&self) -> io::Result<Arc<Config>> {
        let initial_segment = u32::from_be_bytes(crate::random()?);
        Ok(Arc::new(Config { initial_segment, ..(*self.config.transport).clone() }))
    }

    /// Number of connections, including those that ended less than a second ago.
    pub fn connections(&self) -> usize {
        self.peers.len()
    }

    /// Counters since the start.
    pub fn stats(&self) -> &HostStats {
        &self.stats
    }

    /// A connection's counters; `None` after its removal.
    pub fn transfer(&self, id: PeerId) -> Option<Stats> {
        self.peers.get(&id).map(|peer| peer.machine.stats())
    }

    /// Sends, receives and waits until an event occurs or `span` has passed.
    ///
    /// # Errors
    /// The system refuses to receive or send.
    pub fn run(&mut self, span: Time) -> Result<Option<HostEvent>, Error> {
        let until = self.clock.now().saturating_add(span);
        let socket = Arc::clone(&self.socket);
        loop {
            let now = self.clock.now();
            if let Some(event) = self.turn(now)? {
                return Ok(Some(event));
            }
            if now >= until {
                return Ok(None);
            }
            let next = self.peers.values().map(|peer| peer.due(self.config.patience)).min();
            let wait = next.unwrap_or(Time::NEVER).min(until).saturating_sub(self.clock.now());
            let timeout =
                Timespec { tv_sec: (wait.0 / 1_000_000_000) as i64, tv_nsec: (wait.0 % 1_000_000_000) as _ };
            match rustix::event::poll(&mut [PollFd::new(&*socket, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(Error::Wait(error.into())),
            }
            self.receive()?;
        }
    }

    /// Handles timers, sends, and returns the next event of a connection.
    fn turn(&mut self, now: Time) -> Result<Option<HostEvent>, Error> {
        let mut event = None;
        for (&id, peer) in &mut self.peers {
            if peer.machine.poll_timeout() <= now {
                peer.machine.handle_timeout(now);
            }
            pump(id, peer, now, &self.socket, &mut self.train, &mut self.stats)?;
            while let Some(told) = peer.machine.poll_event() {
                match told {
                    Event::Closed if peer.over.is_none() => {
                        peer.over = Some(now);
                        event = Some(HostEvent::Finished(id));
                    }
                    Event::Reset => event = Some(HostEvent::Reset(id)),
                    _ => {}
                }
            }
            let silent = now.saturating_sub(peer.heard) >= self.config.patience;
            if event.is_none() && silent && peer.over.is_none() {
                event = Some(HostEvent::TimedOut(id));
            }
            if event.is_some() {
                break;
            }
        }
        if let Some(HostEvent::Reset(id) | HostEvent::TimedOut(id)) = event {
            self.peers.remove(&id);
        }
        self.peers.retain(|_, peer| peer.over.is_none_or(|over| now.saturating_sub(over) < LINGER));
        Ok(event)
    }

    fn receive(&mut self) -> Result<(), Error> {
        let socket = Arc::clone(&self.socket);
        let count = socket.receive(&mut self.inbox).map_err(|source| Error::Socket {
            node: self.addr().to_string(),
            action: "receive",
            source,
        })?;
        let now = self.clock.now();
        for i in 0..count {
            let meta = self.inbox.metas[i];
            let bytes = std::mem::take(&mut self.inbox.buffers[i]);
            let handled = bytes[..meta.len]
                .chunks(meta.stride.max(1))
                .try_for_each(|datagram| self.handle(now, meta.addr, datagram));
            self.inbox.buffers[i] = bytes;
            handled?;
        }
        Ok(())
    }

    /// Handles a datagram from `addr`. It is public so that tests and fuzzers can pass any bytes.
    ///
    /// # Errors
    /// The system refuses to send the answer.
    pub fn handle(&mut self, now: Time, addr: SocketAddr, datagram: &[u8]) -> Result<(), Error> {
        self.stats.received += 1;
        let Ok(decoded) = acp::decode(datagram) else {
            self.stats.refused += 1;
            return Ok(());
        };
        let packet = decoded.packet;
        let id = PeerId { addr, flow: packet.flow };
        let Some(peer) = self.peers.get_mut(&id) else {
            self.meet(now, id, &packet, &datagram[decoded.payload..], datagram.len());
            return Ok(());
        };
        if packet.flags == CHALLENGE {
            // Ignored unless this connection waits for the answer to its opening.
            if let (State::SynSent, Some(opening)) = (peer.machine.state(), peer.opening)
                && let Ok(cookie) = <[u8; cookie::LEN]>::try_from(&datagram[decoded.payload..])
            {
                peer.heard = now;
                let fresh = peer.cookie.replace(cookie).is_none();
                if fresh {
                    self.train.clear();
                    write(&mut self.train, &opening, &SackRanges::EMPTY, 0, &peer.cookie)?;
                    send(&self.socket, addr, &self.train, self.train.len(), 1, &mut self.stats)?;
                }
            }
            return Ok(());
        }
        let header = peer.machine.config().header;
        if wire::corrupt(&packet, header, datagram).is_some() {
            // It may be forged. The sender retransmits the segment.
            self.stats.refused += 1;
            return Ok(());
        }
        peer.heard = now;
        peer.machine.handle_packet(now, &packet, &decoded.sack);
        Ok(())
    }

    /// Handles a datagram of an unknown connection.
    ///
    /// A valid cookie opens a connection. An opening without one is answered with a cookie. Other
    /// datagrams are ignored.
    fn meet(&mut self, now: Time, id: PeerId, packet: &Packet, rest: &[u8], len: usize) {
        self.stats.stranger_bytes += len as u64;
        let Some(jar) = self.jar.as_ref().filter(|_| packet.flags == Flags::SYN) else {
            self.stats.refused += 1;
            return;
        };
        if rest.get(..cookie::LEN).is_some_and(|cookie| jar.knows(now, id.addr, id.flow, cookie)) {
            let ip = id.addr.ip();
            let of_address = self.peers.range(PeerId { addr: (ip, 0).into(), flow: 0 }..);
            let of_address = of_address.take_while(|(peer, _)| peer.addr.ip() == ip).count();
            let full = self.peers.len() >= self.config.most || of_address >= self.config.most_per_address;
            let Some(config) = self.numbered().ok().filter(|_| !full) else {
                self.stats.refused += 1;
                return;
            };
            let mut machine = Connection::server(&config, (self.config.law)(), id.flow);
            machine.finish();
            machine.handle_packet(now, packet, &SackRanges::EMPTY);
            self.peers.insert(id, Peer { machine, cookie: None, opening: None, heard: now, over: None });
            return;
        }
        let cookie = jar.bake(now, id.addr, id.flow);
        let challenge = Packet { flow: id.flow, flags: CHALLENGE, ..Packet::default() };
        let mut bytes = [0; acp::LEN + cookie::LEN];
        bytes[acp::LEN..].copy_from_slice(&cookie);
        if acp::encode(&challenge, &SackRanges::EMPTY, &mut bytes).is_ok() && bytes.len() <= 3 * len {
            self.stats.challenge_bytes += bytes.len() as u64;
            // If this send fails, the client sends its opening again.
            let _ = send(&self.socket, id.addr, &bytes, bytes.len(), 1, &mut self.stats);
        }
    }
}

impl Peer {
    /// The next time at which the connection needs attention.
    fn due(&self, patience: Time) -> Time {
        let end = match self.over {
            Some(over) => over.saturating_add(LINGER),
            None => self.heard.saturating_add(patience),
        };
        self.machine.poll_timeout().min(end)
    }
}

/// Sends the packets of a connection, in trains.
fn pump(
    id: PeerId,
    peer: &mut Peer,
    now: Time,
    socket: &Socket,
    train: &mut Vec<u8>,
    stats: &mut HostStats,
) -> Result<(), Error> {
    let header = peer.machine.config().header;
    let longest = socket.longest_train();
    let (mut segment, mut count) = (0, 0);
    train.clear();
    let mut sack = SackRanges::EMPTY;
    loop {
        let mut packet = Packet::default();
        let more = peer.machine.poll_transmit(now, &mut packet, &mut sack);
        let len = usize::from(packet.size).saturating_sub(acp::OVERHEAD);
        // All segments of a train have the size of the first. Only the last may be shorter.
        let broken = count > 0
            && (!more
                || len > segment
                || !train.len().is_multiple_of(segment)
                || count == longest
                || train.len() + len > MOST_BYTES);
        if broken {
            send(socket, id.addr, train, segment, count as u64, stats)?;
            train.clear();
            count = 0;
        }
        if !more {
            return Ok(());
        }
        if packet.flags == Flags::SYN {
            peer.opening = Some(packet);
        }
        if count == 0 {
            segment = len;
        }
        let cookie = peer.cookie.filter(|_| packet.flags == Flags::SYN);
        write(train, &packet, &sack, header, &cookie)?;
        sack.clear();
        count += 1;
    }
}

/// Appends a packet's datagram, with the cookie, if any, behind the header.
fn write(
    train: &mut Vec<u8>,
    packet: &Packet,
    sack: &SackRanges,
    header: u16,
    cookie: &Option<[u8; cookie::LEN]>,
) -> Result<(), Error> {
    let start = train.len();
    train.resize(start + usize::from(packet.size).saturating_sub(acp::OVERHEAD), 0);
    wire::compose(packet, sack, header, &mut train[start..])
        .map_err(|_| Error::NoRoom { size: packet.size, need: acp::OVERHEAD + acp::LEN })?;
    if let Some((cookie, place)) =
        cookie.as_ref().zip(train[start..].get_mut(acp::LEN..acp::LEN + cookie::LEN))
    {
        place.copy_from_slice(cookie);
    }
    Ok(())
}

fn send(
    socket: &Socket,
    to: SocketAddr,
    bytes: &[u8],
    segment: usize,
    count: u64,
    stats: &mut HostStats,
) -> Result<(), Error> {
    match socket.send(to, bytes, segment) {
        Ok(()) => stats.sent += count,
        Err(error) if count > 1 && crate::socket::is_of_trains(&error) => {
            let mut datagrams = bytes.chunks(segment);
            return datagrams.try_for_each(|datagram| send(socket, to, datagram, segment, 1, stats));
        }
        // No room, here or on the path to this peer, or no receiver: the datagram is lost, as any
        // may be. A dead peer is detected by its silence.
        Err(error) if crate::socket::is_loss(&error) || crate::socket::is_too_long(&error) => {
            stats.unsent += count;
        }
        Err(source) => return Err(Error::Socket { node: to.to_string(), action: "send", source }),
    }
    Ok(())
}

/// Flags of a listener's cookie. No machine sends this combination.
const CHALLENGE: Flags = Flags(Flags::SYN.0 | Flags::RST.0);
/// Time within which a client must return its cookie.
const COOKIE_LIFETIME: Time = Time::from_secs(10);
/// Time for which an ended connection answers late packets.
const LINGER: Time = Time::from_secs(1);
/// Limit of one system call, in bytes.
const MOST_BYTES: usize = 65_000;
