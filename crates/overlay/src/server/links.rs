//! Links to other sites: TCP with TLS, with certificates at both ends.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use bytes::{Bytes, BytesMut};
use mio::net::TcpStream;
use mio::{Interest, Token};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use socket2::SockRef;
use tollway_law::{Rate, Time};
use tollway_net::sys::tcp_info::tcp_info;
use tollway_proto::overlay::wire::{Decoder, Encoder};
use tollway_proto::overlay::{DaemonId, LinkConfig, PortId};

use super::channel::Channel;
use super::{FIRST_LINK, Server};
use crate::broker::MessageBytes;
use crate::config::{Link, Site};
use crate::tls::{Names, site_name};

/// A site at the other end of a link, connected or not.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    /// Its connection, once its certificate is verified.
    pub(super) wire: Option<usize>,
    /// A connection attempt in progress.
    dialing: Option<usize>,
    /// The addresses of its host name, once they are resolved.
    resolving: Option<Receiver<io::Result<Vec<SocketAddr>>>>,
    /// Number of attempts: each takes the next address of a name.
    attempts: usize,
    retry_at: Time,
    pause: Time,
    /// The reason why it is not connected; `None` if it is.
    pub(super) trouble: Option<String>,
}

/// A connection between two sites.
#[derive(Debug)]
pub(super) struct SiteConnection {
    channel: Channel,
    /// The other site's name, once known.
    site: Option<String>,
    dialed: bool,
    pub(super) port: Option<PortId>,
    opened_at: Time,
    encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
    out: VecDeque<Bytes>,
    /// Bytes of the first of `out` that are already sent.
    sent: usize,
}

impl Peer {
    pub(super) fn new(link: Link) -> Peer {
        let trouble = Some("not connected yet".to_owned());
        let retry_at = Time::ZERO;
        Peer {
            link,
            wire: None,
            dialing: None,
            resolving: None,
            attempts: 0,
            retry_at,
            pause: PAUSE,
            trouble,
        }
    }
}

impl Server {
    /// Connects to unconnected sites with known addresses.
    pub(super) fn dial_links(&mut self, now: Time) {
        for at in 0..self.peers.len() {
            let peer = &mut self.peers[at];
            let idle = peer.wire.is_none() && peer.dialing.is_none();
            let resolved = peer.resolving.as_ref().and_then(|answer| answer.try_recv().ok());
            let (Some(ends), true) = (&self.ends, idle) else { continue };
            let address = match resolved {
                Some(address) => {
                    peer.resolving = None;
                    peer.attempts += 1;
                    address.map(|all| all[peer.attempts % all.len()])
                }
                None if peer.resolving.is_none() && peer.retry_at <= now => {
                    let Some(address) = &peer.link.address else { continue };
                    match address.parse() {
                        Ok(address) => Ok(address),
                        // Names are resolved in another thread, again before each attempt.
                        Err(_) => {
                            peer.resolving = Some(resolve(address.clone()));
                            continue;
                        }
                    }
                }
                None => continue,
            };
            // The random part keeps sites that lost the same peer from reconnecting together.
            peer.retry_at = now + peer.pause + Time(now.0 % peer.pause.0.max(1) / 2);
            peer.pause = (peer.pause * 2).min(LONGEST_PAUSE);
            let site = peer.link.site.clone();
            let made = address.and_then(TcpStream::connect).and_then(|stream| {
                let name = ServerName::try_from(site_name(&site)).map_err(io::Error::other)?;
                let tls = ClientConnection::new(Arc::clone(&ends.dial), name).map_err(io::Error::other)?;
                Ok((stream, tls.into()))
            });
            match made.and_then(|(stream, tls)| self.add_wire(now, stream, tls, Some(site))) {
                Ok(key) => self.peers[at].dialing = Some(key),
                Err(error) => self.peers[at].trouble = Some(error.to_string()),
            }
        }
        let late: Vec<usize> = self
            .wires
            .iter()
            .filter(|(_, wire)| wire.port.is_none() && wire.opened_at + HANDSHAKE <= now)
            .map(|(key, _)| key)
            .collect();
        for key in late {
            self.close_wire(now, key, "it did not identify itself in time");
        }
    }

    /// Accepts connections from sites.
    pub(super) fn accept_links(&mut self, now: Time) {
        while let Some(Ok((stream, _))) = self.link_listener.as_ref().map(|listener| listener.accept()) {
            let Some(ends) = &self.ends else { return };
            // Unauthenticated connections cannot exceed this limit.
            if self.wires.len() >= MOST_WIRES {
                continue;
            }
            if let Ok(tls) = ServerConnection::new(Arc::clone(&ends.accept)) {
                let _ = self.add_wire(now, stream, tls.into(), None);
            }
        }
    }

    fn add_wire(
        &mut self,
        now: Time,
        stream: TcpStream,
        tls: Connection,
        site: Option<String>,
    ) -> io::Result<usize> {
        let _ = stream.set_nodelay(true);
        let dialed = site.is_some();
        let rate = self.peers.iter().find(|peer| Some(&peer.link.site) == site.as_ref());
        // Unsent data in the kernel's queue has no price, so that queue is limited to two
        // milliseconds.
        let unsent = rate.map_or(Rate::ZERO, |peer| peer.link.rate).bytes_in(Time::from_millis(2)) as u32;
        SockRef::from(&stream).set_tcp_notsent_lowat(unsent.clamp(LEAST_UNSENT, MOST_UNSENT))?;
        let entry = self.wires.vacant_entry();
        let key = entry.key();
        let wire = entry.insert(SiteConnection {
            channel: Channel::new(stream, Some(tls)),
            site,
            dialed,
            port: None,
            opened_at: now,
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            input: BytesMut::new(),
            out: VecDeque::new(),
            sent: 0,
        });
        let both = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) =
            self.poll.registry().register(wire.channel.stream(), Token(FIRST_LINK + key), both)
        {
            self.wires.remove(key);
            return Err(error);
        }
        Ok(key)
    }

    /// Handles readiness of a link's socket.
    pub(super) fn link_ready(&mut self, now: Time, key: usize, readable: bool, writable: bool) {
        if !self.wires.contains(key) {
            return;
        }
        let done = self.wires[key].channel.flush().map(|_| ());
        let done = done.and_then(|()| if readable { self.read_wire(now, key) } else { Ok(()) });
        let done = done.and_then(|()| if writable || readable { self.write_wire(now, key) } else { Ok(()) });
        if let Err(error) = done {
            self.close_wire(now, key, &error.to_string());
        }
    }

    /// Reads what a link has sent, up to a limit: receivers get that before there is more.
    fn read_wire(&mut self, now: Time, key: usize) -> io::Result<()> {
        let mut read = 0;
        while read < TURN {
            let wire = &mut self.wires[key];
            let len = match wire.channel.read(&mut self.buffer) {
                Ok(0) => {
                    return Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "the other site closed the connection",
                    ));
                }
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return if wire.port.is_none() { self.establish(now, key) } else { Ok(()) };
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            read += len;
            wire.input.extend_from_slice(&self.buffer[..len]);
            match (wire.port, self.broker.daemon()) {
                (Some(port), Some(daemon)) => daemon.hear(now, port),
                _ => self.establish(now, key)?,
            }
            self.decode(now, key)?;
        }
        // An event may come for a link that is listed already.
        if !self.unread.contains(&key) {
            self.unread.push(key);
        }
        Ok(())
    }

    fn decode(&mut self, now: Time, key: usize) -> io::Result<()> {
        loop {
            let wire = &mut self.wires[key];
            let (Some(port), Some(daemon)) = (wire.port, self.broker.daemon()) else { return Ok(()) };
            let decoded = wire.decoder.decode(&wire.input);
            let Some((frame, used)) =
                decoded.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?
            else {
                return Ok(());
            };
            let whole = wire.input.split_to(used).freeze();
            let frame = frame.map_body(|range| MessageBytes(whole.slice(range)));
            daemon
                .handle_message(now, port, frame)
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    /// Completes a handshake: verifies the other site, and opens its port at the daemon.
    fn establish(&mut self, now: Time, key: usize) -> io::Result<()> {
        let wire = &mut self.wires[key];
        if wire.channel.is_handshaking() {
            return Ok(());
        }
        let denied = |why: &str| io::Error::new(ErrorKind::PermissionDenied, why.to_owned());
        let certificate = wire.channel.certificate().ok_or_else(|| denied("it has no certificate"))?;
        let known = |peer: &Peer| Names::is_site(certificate, &peer.link.site);
        let at = match &wire.site {
            Some(site) => self.peers.iter().position(|peer| peer.link.site == *site),
            None => self.peers.iter().position(known),
        };
        let at = at.ok_or_else(|| denied("its certificate does not match any `[link.NAME]`"))?;
        let link = self.peers[at].link.clone();
        wire.site = Some(link.site.clone());
        if let Some(old) = self.peers[at].wire {
            // Of two connections, that of the first site by name stays; of two by the same site,
            // the newer.
            let first = self.broker.rules().site < link.site;
            let (old_dialed, new_dialed) = (self.wires[old].dialed, self.wires[key].dialed);
            if old_dialed != new_dialed && new_dialed != first {
                return Err(denied("a connection already exists"));
            }
            self.close_wire(now, old, "a newer connection replaced it");
        }
        let config = LinkConfig { peer: DaemonId(Site::number(&link.site)), weight: 1, rate: link.rate };
        let Some(daemon) = self.broker.daemon() else { return Ok(()) };
        self.wires[key].port = Some(daemon.open(now, config));
        let peer = &mut self.peers[at];
        peer.wire = Some(key);
        peer.dialing = peer.dialing.filter(|&dialing| dialing != key);
        peer.pause = PAUSE;
        peer.trouble = None;
        self.events.info("site-up", format_args!("site {} is connected", link.site));
        Ok(())
    }

    /// Sends the daemon's messages for links, and closes silent links.
    pub(super) fn write_links(&mut self, now: Time) {
        while let Some(port) = self.broker.take_sendable() {
            if let Some(key) = self.wire_of(port)
                && let Err(error) = self.write_wire(now, key)
            {
                self.close_wire(now, key, &error.to_string());
            }
        }
        while let Some(port) = self.broker.take_silent() {
            let Some(key) = self.wire_of(port) else { continue };
            let quiet = tcp_info(&*self.wires[key].channel.stream()).map_or(Time::NEVER, |info| info.quiet);
            match self.broker.daemon() {
                // Behind a lost packet nothing can be read, as long as the queues on the way are
                // deep.
                Some(daemon) if quiet < daemon.silence() => daemon.hear(now, port),
                _ => self.close_wire(now, key, "nothing was received for too long"),
            }
        }
    }

    fn wire_of(&self, port: PortId) -> Option<usize> {
        self.wires.iter().find(|(_, wire)| wire.port == Some(port)).map(|(key, _)| key)
    }

    fn write_wire(&mut self, now: Time, key: usize) -> io::Result<()> {
        let wire = &mut self.wires[key];
        let (Some(port), Some(daemon)) = (wire.port, self.broker.daemon()) else {
            return wire.channel.flush().map(|_| ());
        };
        loop {
            if wire.out.is_empty() {
                // One record and one system call carry many small messages.
                let (mut taken, mut batch) = (0, Vec::with_capacity(2 * BATCH));
                while taken < BATCH
                    && let Some(frame) = daemon.poll_message(now, port)
                {
                    let before = batch.len();
                    wire.encoder.encode(&frame, &mut batch);
                    taken += batch.len() - before;
                    if let Some(MessageBytes(body)) = frame.body() {
                        taken += body.len();
                        if body.len() < LARGE {
                            batch.extend_from_slice(body);
                        } else {
                            wire.out.extend([std::mem::take(&mut batch).into(), body.clone()]);
                        }
                    }
                }
                if !batch.is_empty() {
                    wire.out.push_back(batch.into());
                }
                if taken == 0 {
                    return Ok(());
                }
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = wire.out.len().min(SLICES);
            for (slice, bytes) in slices.iter_mut().zip(&wire.out) {
                *slice = IoSlice::new(bytes);
            }
            slices[0] = IoSlice::new(&wire.out[0][wire.sent..]);
            match wire.channel.write(&slices[..count]) {
                Ok(len) => {
                    wire.sent += len;
                    while let Some(first) = wire.out.front()
                        && wire.sent >= first.len()
                    {
                        wire.sent -= first.len();
                        wire.out.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn close_wire(&mut self, now: Time, key: usize, why: &str) {
        let mut wire = self.wires.remove(key);
        let _ = self.poll.registry().deregister(wire.channel.stream());
        if let (Some(port), Some(daemon)) = (wire.port, self.broker.daemon()) {
            daemon.close(now, port);
        }
        let site = wire.site.as_deref().unwrap_or("that connected").to_owned();
        if let Some(peer) = self.peers.iter_mut().find(|peer| wire.site.as_ref() == Some(&peer.link.site)) {
            let was = peer.wire == Some(key);
            peer.wire = peer.wire.filter(|&other| other != key);
            peer.dialing = peer.dialing.filter(|&other| other != key);
            if peer.wire.is_none() && (was || peer.trouble.as_deref() != Some(why)) {
                peer.trouble = Some(why.to_owned());
                self.events.warn("site-down", format_args!("site {site} is not connected: {why}"));
            }
        } else {
            self.events.warn("refused", format_args!("a site {site} was refused: {why}"));
        }
    }

    /// Replaces the configured links.
    pub(super) fn set_links(&mut self, now: Time, links: &[Link]) {
        let gone = |peer: &Peer| !links.iter().any(|link| link.site == peer.link.site);
        let ended: Vec<usize> = self
            .peers
            .iter()
            .filter(|peer| gone(peer))
            .flat_map(|peer| [peer.wire, peer.dialing])
            .flatten()
            .collect();
        for key in ended {
            self.close_wire(now, key, "the link is no longer configured");
        }
        self.peers.retain(|peer| !gone(peer));
        for link in links {
            match self.peers.iter_mut().find(|peer| peer.link.site == link.site) {
                Some(peer) => peer.link = link.clone(),
                None => self.peers.push(Peer::new(link.clone())),
            }
        }
    }
}

/// Resolves `HOST:PORT` in another thread.
fn resolve(address: String) -> Receiver<io::Result<Vec<SocketAddr>>> {
    let (answer, receiver) = channel();
    let work = move || {
        let found = address.to_socket_addrs().map(Iterator::collect::<Vec<_>>).and_then(|all| {
            if all.is_empty() { Err(io::Error::other("it has no address")) } else { Ok(all) }
        });
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        let _ = answer.send(found.map_err(named));
    };
    let _ = std::thread::Builder::new().name("resolve".into()).spawn(work);
    receiver
}

/// Bytes read from a link in one turn.
const TURN: usize = 1 << 18;
/// Bounds of unsent bytes in a link's kernel buffer.
const LEAST_UNSENT: u32 = 16 << 10;
const MOST_UNSENT: u32 = 1 << 20;
/// Bytes taken from the daemon at a time.
const BATCH: usize = 16 << 10;
/// Smallest body that is not copied into the batch, in bytes.
const LARGE: usize = 4096;
/// Limit of slices per write.
const SLICES: usize = 32;
/// First and longest pause between connection attempts.
const PAUSE: Time = Time::from_millis(200);
const LONGEST_PAUSE: Time = Time::from_secs(5);
/// Time limit of the handshake.
const HANDSHAKE: Time = Time::from_secs(5);
/// Limit of connections between sites, authenticated or not.
const MOST_WIRES: usize = 1024;
