//! A site on real sockets: one thread that waits for all of them.

mod channel;
mod clients;
mod links;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Interest, Poll, Token, Waker};
use rustix::time::{ClockId, clock_gettime};
use rustls::ServerConfig;
use slab::Slab;
use tollway_agent::events::Events;
use tollway_agent::listeners;
use tollway_law::Time;
use tollway_net::Clock;

use crate::broker::{self, Broker};
use crate::config::Site;
use crate::spool::Disk;
use crate::status::{LinkStatus, Status};
use crate::tls::Ends;
use clients::Client;
use links::{Peer, SiteConnection};
use tollway_proto::overlay::{Config, DaemonId, Epoch};

/// A running site.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    clock: Clock,
    /// None once the site ends.
    listener: Option<TcpListener>,
    address: SocketAddr,
    link_listener: Option<TcpListener>,
    client_tls: Option<Arc<ServerConfig>>,
    ends: Option<Ends>,
    disk: Option<Disk>,
    broker: Broker,
    /// Clients, by key.
    clients: Vec<Option<Client>>,
    /// Linked sites.
    peers: Vec<Peer>,
    wires: Slab<SiteConnection>,
    /// Clients with input to read.
    ready: VecDeque<usize>,
    /// Links that had more to read in the last turn.
    unread: Vec<usize>,
    /// The input buffer shared by all sockets.
    buffer: Box<[u8]>,
    accept_again: bool,
    events: Events,
}

impl Server {
    /// Listens for clients, and for other sites if `site` has links.
    ///
    /// `epoch` must increase from start to start, and `seed` is for random choices.
    ///
    /// # Errors
    /// An address is taken, or is not an address of this machine.
    pub fn open(site: &Site, ends: Option<Ends>, epoch: u64, seed: u64) -> io::Result<Server> {
        let poll = Poll::new()?;
        let at = |address: SocketAddr| {
            let passed = listeners::passed(address).map(TcpListener::from_std);
            let listener = passed.map_or_else(|| TcpListener::bind(address), Ok);
            listener.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
        };
        let mut listener = at(site.listen)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let mut link_listener = site.link_listen.map(at).transpose()?;
        if let Some(listener) = &mut link_listener {
            poll.registry().register(listener, LINK_LISTENER, Interest::READABLE)?;
        }
        let disk = match &site.spool {
            None => None,
            Some(spool) => {
                let waker = Waker::new(poll.registry(), SPOOL)?;
                let opened = Disk::open(&spool.folder, &site.rules.site, move || drop(waker.wake()));
                Some(opened.map_err(|error| {
                    io::Error::new(error.kind(), format!("spool `{}`: {error}", spool.folder.display()))
                })?)
            }
        };
        let clock = Clock::starting_at(Time::ZERO);
        let mut broker = Broker::new(site.rules.clone(), seed);
        if site.link_listen.is_some() || !site.links.is_empty() {
            let id = DaemonId(Site::number(&site.rules.site));
            let patience = site.rules.patience;
            let config = Config { id, epoch: Epoch(epoch), patience, ack: Some(ACK), ..Config::default() };
            broker.join_sites(clock.now(), config, seed);
        }
        if let Some(url) = &site.advertise {
            broker.advertise(url);
        }
        Ok(Server {
            address: listener.local_addr()?,
            poll,
            clock,
            listener: Some(listener),
            link_listener,
            client_tls: ends.as_ref().and_then(|ends| ends.clients.clone()),
            ends,
            disk,
            broker,
            clients: Vec::new(),
            peers: site.links.iter().cloned().map(Peer::new).collect(),
            wires: Slab::new(),
            ready: VecDeque::new(),
            unread: Vec::new(),
            buffer: vec![0; BUFFER].into(),
            accept_again: false,
            events: Events::default(),
        })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The broker of its clients.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Applies another configuration, as far as it may change ([`Site::fixed`]).
    pub fn set_site(&mut self, site: &Site) {
        let now = self.clock.now();
        self.broker.set_rules(now, site.rules.clone());
        self.set_links(now, &site.links);
    }

    /// Uses other certificates for new connections. Those that stand remain.
    pub fn set_ends(&mut self, ends: Option<Ends>) {
        self.client_tls = ends.as_ref().and_then(|ends| ends.clients.clone());
        self.ends = ends;
    }

    /// Begins the end of the site: it leaves all groups, accepts no client, tells clients to connect
    /// elsewhere, and delivers what is in flight.
    pub fn retire(&mut self) {
        let now = self.clock.now();
        self.listener = None;
        self.broker.retire(now);
        self.hand_on(now);
    }

    /// A snapshot of the site's state.
    pub fn status(&self) -> Status {
        let ports = self.broker.ports();
        let links = self.peers.iter().map(|peer| {
            let port = peer.wire.and_then(|key| self.wires[key].port);
            let port = ports.iter().find(|one| Some(one.port) == port);
            LinkStatus {
                site: peer.link.site.clone(),
                up: port.is_some_and(|port| port.up),
                trouble: peer.trouble.clone(),
                queued: port.map_or(0, |port| port.queued),
                price: port.map_or(0.0, |port| port.price),
                rate_mbps: port.map_or(0.0, |port| port.rate.mbps()),
                data: port.map_or(0, |port| port.data),
                control: port.map_or(0, |port| port.control),
            }
        });
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Status {
            listen: self.address.to_string(),
            up_s: self.clock.now().as_secs_f64(),
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 * 1e-9,
            links: links.collect(),
            trouble: self.broker.spool_trouble().map(|why| format!("the spool: {why}")),
            ..self.broker.status()
        }
    }

    /// Logs what happens to clients and sites in `events`.
    pub fn log_to(&mut self, events: Events) {
        self.events = events;
    }

    /// Runs until `each` returns true. It is called every [`TICK`](broker::TICK).
    ///
    /// # Errors
    /// Polling of the sockets fails.
    pub fn run(&mut self, mut each: impl FnMut(&mut Server, Time) -> bool) -> io::Result<()> {
        let mut events = mio::Events::with_capacity(1024);
        let mut next = self.clock.now();
        loop {
            let now = self.clock.now();
            let due = next.min(self.broker.sites_timeout());
            let wait = match self.ready.is_empty() && self.unread.is_empty() {
                true => Duration::from_nanos(due.saturating_sub(now).0),
                false => Duration::ZERO,
            };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => done?,
            }
            let now = self.clock.now();
            for key in std::mem::take(&mut self.unread) {
                self.link_ready(now, key, true, false);
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept_clients(now),
                    LINK_LISTENER => self.accept_links(now),
                    // The disk's answers are taken in `hand_on`.
                    SPOOL => {}
                    Token(key) => {
                        let readable = event.is_readable() || event.is_read_closed() || event.is_error();
                        if key < FIRST_CLIENT {
                            self.link_ready(now, key - FIRST_LINK, readable, event.is_writable());
                            continue;
                        }
                        self.client_ready(now, key - FIRST_CLIENT, readable, event.is_writable());
                    }
                }
            }
            self.read_clients(now);
            self.hand_on(now);
            self.resume_clients(now);
            self.hand_on(now);
            if now >= next {
                next = now + broker::TICK;
                self.broker.tick(now);
                self.end_clients(now);
                self.dial_links(now);
                if std::mem::take(&mut self.accept_again) {
                    self.accept_clients(now);
                }
                self.hand_on(now);
                if each(self, now) {
                    return Ok(());
                }
            }
        }
    }

    /// Sends pending output to clients, sites and the disk.
    fn hand_on(&mut self, now: Time) {
        self.broker.settle(now);
        self.write_links(now);
        if let Some(disk) = &self.disk {
            while let Some(answer) = disk.answer() {
                self.broker.spool_answered(now, answer);
            }
        }
        self.write_clients(now);
        if let Some(disk) = &self.disk {
            while let Some(command) = self.broker.take_spool_command() {
                disk.command(command);
            }
        }
    }
}

/// Time that acknowledgements may wait. Jobs delivered within it before a site is killed are
/// delivered again.
const ACK: Time = Time::from_millis(100);
const LISTENER: Token = Token(0);
const LINK_LISTENER: Token = Token(1);
const SPOOL: Token = Token(2);
const FIRST_LINK: usize = 16;
const FIRST_CLIENT: usize = 1 << 20;
/// Size of the shared input buffer, in bytes.
const BUFFER: usize = 1 << 18;
