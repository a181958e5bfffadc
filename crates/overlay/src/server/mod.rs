//! A site on real sockets: one thread that waits for all of them.

mod channel;
mod clients;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use rustls::ServerConfig;
use tollway_law::Time;
use tollway_net::Clock;

use crate::broker::{self, Broker};
use crate::rules::Rules;
use clients::Client;

/// A site that runs.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    clock: Clock,
    listener: TcpListener,
    address: SocketAddr,
    client_tls: Option<Arc<ServerConfig>>,
    broker: Broker,
    /// Clients by their key.
    clients: Vec<Option<Client>>,
    /// Clients that have something to be read.
    ready: VecDeque<usize>,
    /// What is read by all of them in turn.
    buffer: Box<[u8]>,
    accept_again: bool,
    notes: Vec<String>,
}

impl Server {
    /// Listens for clients at `address`.
    ///
    /// # Errors
    /// The address is taken, or not this machine's.
    pub fn open(rules: Rules, address: SocketAddr, client_tls: Option<Arc<ServerConfig>>, seed: u64) -> io::Result<Server> {
        let poll = Poll::new()?;
        let mut listener = clients::listen(address)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Server {
            address: listener.local_addr()?,
            poll,
            clock: Clock::starting_at(Time::ZERO),
            listener,
            client_tls,
            broker: Broker::new(rules, seed),
            clients: Vec::new(),
            ready: VecDeque::new(),
            buffer: vec![0; BUFFER].into(),
            accept_again: false,
            notes: Vec::new(),
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its clients.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Puts other rules in force.
    pub fn set_rules(&mut self, rules: Rules) {
        self.broker.set_rules(rules);
    }

    /// Takes what has happened that people may want to know.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Runs until `each`, which is called every [`TICK`](broker::TICK), answers that it is over.
    ///
    /// # Errors
    /// The system can't be waited for.
    pub fn run(&mut self, mut each: impl FnMut(&mut Server, Time) -> bool) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut next = self.clock.now();
        loop {
            let now = self.clock.now();
            let wait = match self.ready.is_empty() {
                true => Duration::from_nanos(next.saturating_sub(now).0),
                false => Duration::ZERO,
            };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => done?,
            }
            let now = self.clock.now();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept_clients(now),
                    Token(key) => {
                        let readable = event.is_readable() || event.is_read_closed() || event.is_error();
                        self.client_ready(now, key - FIRST_CLIENT, readable, event.is_writable());
                    }
                }
            }
            self.read_clients(now);
            self.write_clients(now);
            self.resume_clients(now);
            self.write_clients(now);
            if now >= next {
                next = now + broker::TICK;
                self.broker.tick(now);
                self.end_clients(now);
                if std::mem::take(&mut self.accept_again) {
                    self.accept_clients(now);
                }
                self.write_clients(now);
                if each(self, now) {
                    return Ok(());
                }
            }
        }
    }

    /// Notes something for people; of too much the first remains.
    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES {
            self.notes.push(note);
        }
    }
}

const LISTENER: Token = Token(0);
const FIRST_CLIENT: usize = 1 << 20;
/// Bytes that are read at a time.
const BUFFER: usize = 1 << 18;
/// Notes that are kept between two calls.
const NOTES: usize = 100;
