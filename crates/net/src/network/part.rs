//! A network of which this process has one node.

use std::cmp::Ordering;
use std::net::SocketAddr;

use tollway_law::Time;
use tollway_proto::transport::{Connection, Event, State};

use super::{Network, Place};
use crate::driver::Driver;
use crate::emulator::LinkSpec;
use crate::error::Error;
use crate::socket::Socket;

/// This process has one node, in its first driver; the second has all others, and never runs.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) at: Vec<SocketAddr>,
    pub(super) patience: Time,
    pub(super) ends: Vec<Watched>,
    /// Links that lead here past a meter, and the meter's entry.
    pub(super) entries: Vec<(u32, u32)>,
    /// When the last of them was over, or heard something after.
    pub(super) over: Time,
    /// Packets that flows' ends here had heard by then.
    heard: u64,
}

impl Network {
    /// The node `here` of a network whose nodes, each a process of its own, are `at` these addresses. What is elsewhere is
    /// known here, and at rest: flows' other ends, others' links. An end of a flow of which nothing new has come for as long as this
    /// node has `patience` is given up.
    ///
    /// # Errors
    /// The system refuses a socket at this node's address.
    pub fn part(
        names: &[String],
        links: &[LinkSpec],
        seed: u64,
        here: usize,
        at: &[SocketAddr],
        patience: Time,
    ) -> Result<Network, Error> {
        let socket = Socket::on(at[here]).map_err(|source| Error::Socket {
            node: names[here].clone(),
            action: "open a UDP socket at its address",
            source,
        })?;
        let others = (0..names.len()).filter(|&node| node != here).map(|node| names[node].clone()).collect();
        let drivers =
            vec![Driver::new(vec![socket], vec![names[here].clone()]), Driver::new(Vec::new(), others)];
        let place = |node: usize| match node.cmp(&here) {
            Ordering::Less => Place { driver: 1, at: node as u32 },
            Ordering::Equal => Place { driver: 0, at: 0 },
            Ordering::Greater => Place { driver: 1, at: node as u32 - 1 },
        };
        let mut network = Network::lay(drivers, (0..names.len()).map(place).collect(), at, links, seed);
        network.part = Some(Part {
            at: at.to_vec(),
            patience,
            ends: Vec::new(),
            entries: Vec::new(),
            over: Time::ZERO,
            heard: 0,
        });
        Ok(network)
    }

    /// Gives up what has waited too long for another process.
    pub(super) fn look_at_ends(&mut self) -> Result<(), Error> {
        let now = self.now;
        let Some(part) = &mut self.part else { return Ok(()) };
        let mut given_up = Vec::new();
        // Cross-traffic needs no answer.
        let crossed: u64 = self.drivers[0].sinks.iter().map(|sink| sink.packets).sum();
        let heard = self.drivers[0].counters.delivered - crossed;
        if std::mem::replace(&mut part.heard, heard) != heard {
            part.over = now;
        }
        for end in &mut part.ends {
            let place = self.flows[end.flow as usize][usize::from(!end.client)];
            let Some(machine) = &mut self.drivers[0].ends[place.at as usize].machine else { continue };
            let before = end.fate;
            if end.look(now, machine, part.patience) {
                // It may be there again by now, and should know.
                machine.abort();
                given_up.push(place.at);
            }
            if end.fate != before {
                part.over = now;
            }
        }
        given_up.into_iter().try_for_each(|at| self.drivers[0].pump(at as usize, now))
    }

    /// What became of the ends of flows at this node, where it is the only one of this process: the flow, whether it is the client.
    pub fn fates(&self) -> Vec<(u32, bool, Fate)> {
        let ends = self.part.iter().flat_map(|part| &part.ends);
        ends.filter_map(|end| Some((end.flow, end.client, end.fate?))).collect()
    }

    /// Whether nothing is left to be done at this node: its flows' ends are over, and for a while nothing has come late that they
    /// had to answer.
    pub fn is_over(&self) -> bool {
        self.part.as_ref().is_some_and(|part| {
            let over = !part.ends.is_empty() && part.ends.iter().all(|end| end.fate.is_some());
            over && self.now.saturating_sub(part.over) >= LINGER
        })
    }

    pub(super) fn is_here(&self, place: Place) -> bool {
        self.part.is_none() || place.driver == 0
    }

    /// Whether this process runs the port of a link.
    pub fn has_link(&self, link: u32) -> bool {
        self.is_here(self.links[link as usize])
    }

    /// Whether this process runs the client of a flow, or its server.
    pub fn has_end(&self, flow: u32, client: bool) -> bool {
        self.is_here(self.flows[flow as usize][usize::from(!client)])
    }
}

/// What became of one end of a flow here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its data are through.
    Over,
    /// The other side gave it up.
    Reset,
    /// The other side has been heard of, or anything it sent been of use, for longer than this node has patience: it was given up.
    Silent,
}

/// An end of a flow at this node, and how it fares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) flow: u32,
    pub(super) client: bool,
    /// What was last seen of it, and since when it has been so.
    seen: Option<(State, u32, u32)>,
    since: Time,
    peer_finished: bool,
    pub(super) fate: Option<Fate>,
}

impl Watched {
    pub(super) fn new(flow: u32, client: bool) -> Watched {
        Watched { flow, client, seen: None, since: Time::ZERO, peer_finished: false, fate: None }
    }

    /// Looks at the machine; answers whether it is to be given up.
    pub(super) fn look(&mut self, now: Time, machine: &mut Connection, patience: Time) -> bool {
        if self.fate.is_some() {
            return false;
        }
        while let Some(event) = machine.poll_event() {
            match event {
                Event::Reset => self.fate = Some(Fate::Reset),
                Event::PeerFinished => self.peer_finished = true,
                _ => {}
            }
        }
        let through = match self.client {
            true => machine.is_acknowledged(),
            false => self.peer_finished && machine.outstanding() == 0,
        };
        if through {
            self.fate.get_or_insert(Fate::Over);
        }
        let seen = (machine.state(), machine.una(), machine.expected());
        // Who has not been opened waits for as long as it takes.
        if self.seen != Some(seen) || seen.0 == State::Idle {
            (self.seen, self.since) = (Some(seen), now);
        }
        if self.fate.is_none() && now.saturating_sub(self.since) >= patience {
            // Whose data are through misses no more than a word of farewell.
            self.fate = Some(if self.client && machine.is_finished() { Fate::Over } else { Fate::Silent });
            return true;
        }
        false
    }
}

/// How long a node whose flows are over and that hears nothing waits for what comes late, to answer it.
const LINGER: Time = Time::from_secs(1);
