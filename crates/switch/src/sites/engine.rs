//! The event loop of a part: one thread, a UDP socket for neighbours, and TCP sockets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use tollway_agent::events::Events;
use tollway_law::Time;
use tollway_net::Clock;
use tollway_net::hop::{Batch, HopEvent, Hops};
use tollway_proto::transport::Config as Transport;
use tollway_session::end::payload;
use tollway_session::{link_law, transport};

use super::back::Back;
use super::config::{Part, Sites};
use super::core::{Core, Counters, FIRST_INSTANT, Work};
use super::front::Front;
use super::middle::Middle;
use super::tcp::Ready;
use crate::config::SCRATCH;
use crate::mailbox::{EngineCommand, Mailbox};
use crate::setup::Setup;

/// A part's loop.
struct Engine<W> {
    poll: Poll,
    core: Core,
    work: W,
    batch: Batch,
    mailbox: Arc<Mailbox>,
    swept: Time,
}

/// The event loop of a part, to run in a separate thread.
pub(crate) type Loop = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Opens a part's sockets. Returns its loop, and the addresses for its clients, or without clients
/// for its neighbours.
pub(crate) fn start(
    config: Arc<Sites>,
    mailbox: Arc<Mailbox>,
    events: Events,
) -> io::Result<(Vec<SocketAddr>, Loop)> {
    let poll = Poll::new()?;
    mailbox.attach(mio::Waker::new(poll.registry(), Token(WAKER))?);
    let clock = Clock::starting_at(FIRST_INSTANT);
    let now = clock.now();
    let all = config.peers.iter().chain(config.members());
    let neighbours: Vec<_> = all.map(|neighbour| (neighbour.name.clone(), neighbour.address)).collect();
    let mut hops = Hops::open_at(config.bind, &config.keys, &neighbours, now)
        .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error.to_string()))?;
    for (at, neighbour) in config.peers.iter().chain(config.members()).enumerate() {
        if let Some(rate) = neighbour.rate {
            hops.set_link(at, rate, link_law(&*config.law, rate));
        }
    }
    poll.registry().register(&mut SourceFd(&hops.as_fd().as_raw_fd()), Token(HOPS), Interest::READABLE)?;
    let mut core = Core {
        transport: Arc::new(Transport {
            echo: config.law.descriptor().echo,
            ..transport(config.limits.session_buffer)
        }),
        registry: poll.registry().try_clone()?,
        hops,
        clock,
        now,
        timers: BinaryHeap::new(),
        again: Vec::new(),
        scratch: vec![0; SCRATCH],
        counters: Counters::default(),
        events,
        ending: None,
        config,
    };
    Ok(match core.config.part.clone() {
        Part::Front { listen, framing, answers, key } => {
            let front = Front::open(&mut core, &listen, framing, answers, key)?;
            let at = front.addresses();
            (at, looped(poll, core, front, mailbox))
        }
        Part::Middle { .. } => {
            let middle = Middle::open(&core)?;
            (vec![core.hops.addr()], looped(poll, core, middle, mailbox))
        }
        Part::Back { server, framing, answers } => {
            let back = Back::open(server, framing, answers);
            (vec![core.hops.addr()], looped(poll, core, back, mailbox))
        }
    })
}

fn looped<W: Work + Send + 'static>(
    poll: Poll,
    core: Core,
    work: W,
    mailbox: Arc<Mailbox>,
) -> Box<dyn FnOnce() -> io::Result<()> + Send> {
    let mut engine = Engine { poll, core, work, batch: Batch::new(), mailbox, swept: Time::ZERO };
    Box::new(move || engine.run())
}

impl<W: Work> Engine<W> {
    fn run(&mut self) -> io::Result<()> {
        let mut events = mio::Events::with_capacity(1024);
        while !self.is_over() {
            match self.poll.poll(&mut events, Some(self.patience())) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.tick();
            for event in &events {
                let closed = event.is_read_closed() || event.is_error();
                let ready = Ready {
                    readable: event.is_readable() || closed,
                    writable: event.is_writable() || event.is_write_closed() || event.is_error(),
                };
                match event.token().0 {
                    WAKER | HOPS => {}
                    token => self.work.on_socket(&mut self.core, token, ready),
                }
            }
            self.receive()?;
            self.tick();
            for key in std::mem::take(&mut self.core.again) {
                self.work.go_on(&mut self.core, key);
            }
            while let Some(&Reverse((at, key))) = self.core.timers.peek()
                && at <= self.core.now
            {
                self.core.timers.pop();
                self.work.on_timer(&mut self.core, key, at);
            }
            self.obey();
            if self.core.now >= self.swept + SWEEP_EVERY {
                self.swept = self.core.now;
                self.work.sweep(&mut self.core);
            }
            self.core.hops.handle_timeout(self.core.now);
        }
        self.work.on_close(&mut self.core);
        self.core.hops.flush();
        Ok(())
    }

    fn tick(&mut self) {
        self.core.now = self.core.clock.now();
    }

    fn is_over(&self) -> bool {
        self.core.ending.is_some_and(|until| self.work.sessions() == 0 || self.core.now > until)
    }

    fn patience(&self) -> Duration {
        if !self.core.again.is_empty() {
            return Duration::ZERO;
        }
        let timer = self.core.timers.peek().map_or(Time::NEVER, |&Reverse((at, _))| at);
        let due = timer.min(self.core.hops.poll_timeout()).min(self.swept + SWEEP_EVERY);
        Duration::from_nanos(due.saturating_sub(self.core.clock.now()).0)
    }

    /// Receives waiting datagrams, a few batches at a time.
    fn receive(&mut self) -> io::Result<()> {
        for round in 0..ROUNDS {
            if !self.core.hops.receive(&mut self.batch)? {
                break;
            }
            self.tick();
            let Engine { core, work, batch, .. } = self;
            batch.for_each(|from, datagram| {
                let Some(opened) = core.hops.open(core.now, from, datagram) else { return };
                let payload = payload(&opened.packet, datagram, opened.end);
                work.on_packet(core, opened.from, opened.packet, opened.sack, payload);
            });
            self.meet_neighbours();
            self.core.hops.flush();
            if round + 1 == ROUNDS {
                // The kernel says nothing again of what is left.
                self.core.again.push(usize::MAX);
            }
        }
        self.meet_neighbours();
        Ok(())
    }

    /// Handles neighbours that appeared, disappeared, or were replaced.
    fn meet_neighbours(&mut self) {
        while let Some(event) = self.core.hops.poll_event() {
            let core = &mut self.core;
            let name = |at: usize| core.hops.name_of(at);
            match event {
                HopEvent::Up(at) => core.events.info("hop-up", format_args!("hop to {} is up", name(at))),
                HopEvent::Down(at) => {
                    core.events.warn("hop-down", format_args!("hop to {} is silent", name(at)));
                }
                HopEvent::Replaced(at) => {
                    core.events.info("hop-replaced", format_args!("hop to {} has a new process", name(at)));
                }
            }
            self.work.on_neighbour(core, event);
        }
    }

    fn install(&mut self, setup: Setup) -> Result<(), String> {
        let Setup::Site(config) = setup else {
            return Err("a part between sites becomes a switch at a restart".to_owned());
        };
        if let Some(key) = self.core.config.changed_for_good(&config) {
            return Err(format!("another `{key}` takes effect at a restart"));
        }
        self.work.install(&mut self.core, &config)?;
        self.core.config = config;
        Ok(())
    }

    /// Executes commands from other threads.
    fn obey(&mut self) {
        for command in self.mailbox.take() {
            match command {
                EngineCommand::Install(setup, reply) => {
                    let _ = reply.send(self.install(setup));
                }
                EngineCommand::Drain(name, drain, reply) => {
                    let _ = reply.send(self.work.drain(&mut self.core, &name, drain));
                }
                EngineCommand::Status(reply) => {
                    let _ = reply.send(self.work.snapshot(&self.core));
                }
                EngineCommand::End => {
                    self.core.ending = Some(self.core.now + self.core.config.limits.grace);
                    self.work.on_end(&mut self.core);
                }
            }
        }
    }
}

const WAKER: usize = usize::MAX - 1;
const HOPS: usize = usize::MAX - 2;
const SWEEP_EVERY: Time = Time::from_millis(50);
/// Batches of datagrams received in a row.
const ROUNDS: usize = 32;
