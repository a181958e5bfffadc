//! A thread's part of the network: the sockets, links, timers and machines of its nodes.

#[cfg(target_os = "linux")]
pub(crate) mod carry;
mod cross;
#[cfg(target_os = "linux")]
pub(crate) mod frames;
mod machines;
mod mail;
mod media;
mod residents;
mod sealed;
mod shaped;
mod watch;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use tollway_law::Time;
use tollway_proto::shaper::ShapedSenders;
use tollway_proto::transport::Connection;
use tollway_proto::{Encoding, Gate, Medium, SackRanges};
use tollway_proto::{Lateness, Link};

use crate::buffers::Buffers;
use crate::clock::{Clock, Standstill, thread_cpu};
use crate::emulator;
use crate::error::Error;
#[cfg(target_os = "linux")]
use crate::hosts::wire::Wire;
#[cfg(target_os = "linux")]
use crate::kernel_tcp::Room;
use crate::label::{CARRIED, CROSS, TREE};
use crate::punctual::Sleeper;
use crate::socket::{Inbox, Socket};
#[cfg(target_os = "linux")]
use crate::sys::tun::Tun;
use mail::MOST_BYTES;
use residents::Opening;
pub(crate) use residents::{Hosted, Outlet, Resident};
pub(crate) use watch::Entry;

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) clock: Clock,
    pub(crate) now: Time,
    pub(crate) sleeper: Sleeper,
    /// True if no other thread has nodes: the clock then stops while this thread stands still.
    pub(crate) alone: bool,
    /// True if other processes have nodes: incoming datagrams are then not trusted.
    pub(crate) apart: bool,
    standstill: Standstill,
    /// Packets handled at the last check for a standstill.
    handled: u64,
    /// By local node, like `nodes`; a separate field, so that one thread can wait for all sockets.
    sockets: Arc<[Socket]>,
    nodes: Vec<Node>,
    pub(crate) links: Vec<Hop>,
    pub(crate) ends: Vec<Endpoint>,
    pub(crate) sources: Vec<cross::Source>,
    pub(crate) sinks: Vec<cross::Sink>,
    /// Watched links of other processes.
    pub(crate) entries: Vec<Entry>,
    media: Vec<Medium>,
    pub(crate) residents: Vec<Resident>,
    openings: Vec<Opening>,
    pub(crate) shaped: ShapedSenders,
    /// By shaper, the time at which its timer is due.
    shapers: Vec<Time>,
    /// Nodes' own kernels, and their interfaces in a separate field, like the sockets.
    #[cfg(target_os = "linux")]
    pub(crate) rooms: Vec<Room>,
    #[cfg(target_os = "linux")]
    tuns: Arc<[Tun]>,
    /// Interfaces of nodes that are namespaces, and their other state; separate, like the sockets.
    #[cfg(target_os = "linux")]
    pub(crate) wires: Arc<[Wire]>,
    #[cfg(target_os = "linux")]
    pub(crate) ground: Option<Box<frames::Ground>>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    pub(crate) buffers: Buffers,
    inbox: Inbox,
    /// Packets that leave a link in this turn.
    leaving: Vec<u32>,
    /// Buffer for a train of datagrams that are not contiguous.
    train: Vec<u8>,
    sack: SackRanges,
    pub(crate) counters: Counters,
    /// Lateness of datagrams handed to the kernel after their virtual arrival at the next node.
    pub(crate) departures: Lateness,
    /// Lateness of machines' timers after their deadline.
    pub(crate) timeouts: Lateness,
    /// Waits of datagrams between their arrival in the kernel and their reading here.
    pub(crate) waits: Lateness,
    /// Pauses that the clock left out.
    pub(crate) standstills: Lateness,
    /// The longest pause that the clock counted.
    pub(crate) longest_pause: Time,
    pub(crate) done: Vec<(u32, bool, Time)>,
    /// Processor time of running.
    pub(crate) cpu: Time,
}

#[derive(Debug)]
struct Node {
    name: String,
    /// Next steps of packets, by label of a flow.
    labels: Vec<Next>,
    /// Next steps of cross-traffic, whose labels have [`CROSS`] set.
    crossing: Vec<Next>,
    /// Next steps of middles' packets, whose labels have [`TREE`] set.
    stretches: Vec<Next>,
    /// Addresses from which this socket accepts datagrams, sorted.
    peers: Vec<SocketAddr>,
    /// Those of the peers whose datagrams come over a watched link.
    entries: Vec<(SocketAddr, u32)>,
    seals: Option<Box<sealed::Seals>>,
}

/// The next step at a node of packets with one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// None: this node is not on their path.
    Nowhere,
    /// This link.
    Link(u32),
    /// This machine.
    End(u32),
    /// This sink of cross-traffic.
    Sink(u32),
    /// This gate of a middle at the node.
    Gate(u32),
}

/// A link direction at its node.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) link: Link,
    node: u32,
    pub(crate) out: Out,
    armed: Time,
    /// Size of the longest datagram that left it, in bytes.
    longest: usize,
    /// The shared medium of the link; `None` if it has its own transmitter.
    medium: Option<u32>,
    /// The machine that watches its wire, and the gate.
    pub(crate) watch: Option<(u32, Gate)>,
}

/// The output of a link, towards the node at its far end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Out {
    /// The node's socket, to this address.
    Socket(SocketAddr),
    /// This interface.
    #[cfg(target_os = "linux")]
    Wire(u32),
}

/// A machine at its node.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// `None` only while a caller works on it.
    pub(crate) machine: Option<Connection>,
    pub(crate) flow: u32,
    pub(crate) client: bool,
    /// Label of the packets that it sends.
    pub(crate) label: u32,
    /// Flow number in packets for this machine: the label with which the other end sent the data.
    pub(crate) hears: u32,
    /// The first link of their path.
    pub(crate) first: u32,
    pub(crate) open_at: Time,
    pub(crate) stop_at: Time,
    pub(crate) encoding: Encoding,
    /// Size of a full segment on the wire, in bytes; the unit of some encodings.
    pub(crate) segment: u32,
    /// Bytes of a packet's size that are not payload.
    pub(crate) header: u16,
    /// Round-trip time in the last tolled packet that arrived; a lossy encoding's echo depends on
    /// it.
    pub(crate) heard_rtt: f32,
    /// Times of the opening, once the other end answered, and of the last new data.
    pub(crate) heard: Option<(Time, Time)>,
    pub(crate) live: bool,
    /// Its number among shaped senders; [`UNSHAPED`] without a shaper.
    pub(crate) shaped: u32,
    /// State of the app that owns this end.
    pub(crate) hosted: Option<Box<Hosted>>,
    /// True if an app owns the other end: payload from there has no pattern to check.
    pub(crate) hears_app: bool,
    /// True if data in both directions are frames of a session, whose payload begins with their
    /// key.
    pub(crate) keyed: bool,
    /// State of the node's kernel if it has this end; the machine is then idle.
    #[cfg(target_os = "linux")]
    pub(crate) carried: Option<carry::Carried>,
    pub(crate) done: bool,
    /// The reason for its end here, if another process has the other end.
    pub(crate) fate: Option<Fate>,
    /// Hash of the parameters on which both ends must agree; carried by the opening packet.
    pub(crate) fingerprint: u32,
    /// The flow is retired when neither end has this set.
    pub(crate) awaited: bool,
    pub(crate) armed: Time,
}

/// Counters of a driver since its start. They are never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets created by machines.
    pub created: u64,
    /// Packets delivered to machines.
    pub delivered: u64,
    /// Packets that arrived for a flow that is gone.
    pub absorbed: u64,
    /// Datagrams that a meter dropped on arrival.
    pub metered: u64,
    /// Datagrams handed to the kernel.
    pub sent: u64,
    /// Datagrams that the kernel refused.
    pub unsent: u64,
    /// Of [`unsent`](Counters::unsent), those longer than the interface's limit.
    pub too_long: u64,
    /// Datagrams not sent because there were no keys with the neighbour.
    pub unkeyed: u64,
    /// Datagrams received from nodes of this run.
    pub received: u64,
    /// Of [`received`](Counters::received), those that were malformed or had no route here.
    pub senseless: u64,
    /// Datagrams from addresses outside this run, dropped unread.
    pub strangers: u64,
    /// Datagrams left in sockets after the run.
    pub waiting: u64,
    /// System calls that sent.
    pub sends: u64,
    /// System calls that received a datagram.
    pub receives: u64,
    /// Turns of the event loop.
    pub turns: u64,
}

impl Counters {
    /// Number of packets that took work: received, sent, refused by the kernel, or created.
    fn handled(&self) -> u64 {
        self.received + self.sent + self.unsent + self.created
    }

    /// Adds the counters of another driver.
    pub fn add(&mut self, other: &Counters) {
        self.created += other.created;
        self.delivered += other.delivered;
        self.absorbed += other.absorbed;
        self.metered += other.metered;
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.too_long += other.too_long;
        self.unkeyed += other.unkeyed;
        self.received += other.received;
        self.senseless += other.senseless;
        self.strangers += other.strangers;
        self.waiting += other.waiting;
        self.sends += other.sends;
        self.receives += other.receives;
        self.turns += other.turns;
    }
}

impl Node {
    /// The next step of packets with this label.
    #[inline]
    fn next(&self, label: u32) -> Next {
        let next = match label & (CROSS | TREE) {
            0 => self.labels.get((label & !CARRIED) as usize),
            CROSS => self.crossing.get((label ^ CROSS) as usize),
            _ => self.stretches.get((label ^ TREE) as usize),
        };
        next.copied().unwrap_or(Next::Nowhere)
    }
}

impl Driver {
    pub(crate) fn new(sockets: Vec<Socket>, names: Vec<String>) -> Driver {
        let node = |name| Node {
            name,
            labels: Vec::new(),
            crossing: Vec::new(),
            stretches: Vec::new(),
            peers: Vec::new(),
            entries: Vec::new(),
            seals: None,
        };
        Driver {
            clock: Clock::starting_at(Time::ZERO),
            now: Time::ZERO,
            sleeper: Sleeper::default(),
            alone: false,
            apart: false,
            standstill: Standstill::default(),
            handled: 0,
            sockets: sockets.into(),
            nodes: names.into_iter().map(node).collect(),
            links: Vec::new(),
            ends: Vec::new(),
            sources: Vec::new(),
            sinks: Vec::new(),
            entries: Vec::new(),
            media: Vec::new(),
            residents: Vec::new(),
            openings: Vec::new(),
            shaped: ShapedSenders::default(),
            shapers: Vec::new(),
            #[cfg(target_os = "linux")]
            rooms: Vec::new(),
            #[cfg(target_os = "linux")]
            tuns: Arc::new([]),
            #[cfg(target_os = "linux")]
            wires: Arc::new([]),
            #[cfg(target_os = "linux")]
            ground: None,
            timers: BinaryHeap::new(),
            buffers: Buffers::default(),
            inbox: Inbox::new(),
            leaving: Vec::new(),
            train: Vec::with_capacity(MOST_BYTES),
            sack: SackRanges::EMPTY,
            counters: Counters::default(),
            departures: Lateness::default(),
            timeouts: Lateness::default(),
            waits: Lateness::default(),
            standstills: Lateness::default(),
            longest_pause: Time::ZERO,
            done: Vec::new(),
            cpu: Time::ZERO,
        }
    }

    /// Adds a link direction from `node` to the socket `to`.
    pub(crate) fn add_link(&mut self, link: Link, node: u32, to: SocketAddr) -> u32 {
        self.links.push(Hop {
            link,
            node,
            out: Out::Socket(to),
            armed: Time::NEVER,
            longest: 0,
            medium: None,
            watch: None,
        });
        self.links.len() as u32 - 1
    }

    /// Allows datagrams from `peer` at `node`.
    pub(crate) fn add_peer(&mut self, node: u32, peer: SocketAddr) {
        let peers = &mut self.nodes[node as usize].peers;
        if let Err(at) = peers.binary_search(&peer) {
            peers.insert(at, peer);
        }
    }

    pub(crate) fn addr(&self, node: u32) -> SocketAddr {
        self.sockets[node as usize].addr()
    }

    /// Sets the next step at `node` of packets with this label. A second call for it fails.
    pub(crate) fn set_label(&mut self, node: u32, label: u32, next: Next) -> Result<(), Error> {
        let Node { name, labels, crossing, stretches, .. } = &mut self.nodes[node as usize];
        let (labels, label) = match label & (CROSS | TREE) {
            0 => (labels, label as usize),
            CROSS => (crossing, (label ^ CROSS) as usize),
            _ => (stretches, (label ^ TREE) as usize),
        };
        if labels.len() <= label {
            labels.resize(label + 1, Next::Nowhere);
        }
        if labels[label] != Next::Nowhere {
            return Err(Error::Loop { node: name.clone() });
        }
        labels[label] = next;
        Ok(())
    }

    pub(crate) fn add_end(&mut self, end: Endpoint) -> u32 {
        self.ends.push(end);
        let at = self.ends.len() - 1;
        self.arm_end(at);
        at as u32
    }

    /// Runs until the clock shows `end`.
    pub(crate) fn run_until(&mut self, end: Time) -> Result<(), Error> {
        let before = thread_cpu();
        let done = self.turn_until(end);
        self.cpu += thread_cpu().saturating_sub(before);
        done
    }

    fn turn_until(&mut self, end: Time) -> Result<(), Error> {
        let sockets = Arc::clone(&self.sockets);
        let mut fds: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        #[cfg(target_os = "linux")]
        let tuns = Arc::clone(&self.tuns);
        #[cfg(target_os = "linux")]
        fds.extend(tuns.iter().map(|tun| PollFd::new(tun, PollFlags::IN)));
        #[cfg(target_os = "linux")]
        let wires = Arc::clone(&self.wires);
        #[cfg(target_os = "linux")]
        fds.extend(wires.iter().map(|wire| PollFd::new(wire, PollFlags::IN)));
        let (mut at_once, mut looked) = (true, false);
        loop {
            let now = self.tell_time(end);
            self.counters.turns += 1;
            self.fire(now)?;
            #[cfg(target_os = "linux")]
            self.flush()?;
            // One more look after `end`: a caller that is always late would otherwise receive
            // nothing.
            if now >= end && looked {
                return Ok(());
            }
            looked = true;
            let deadline = self.timers.peek().map_or(end, |next| next.0.0.min(end));
            let until = if at_once { now } else { deadline };
            self.standstill.sleep(until);
            let ready = self.sleeper.wait(&self.clock, &mut fds, until)?;
            at_once = false;
            if ready == 0 {
                continue;
            }
            let (ours, _others) = fds.split_at(sockets.len());
            for (node, fd) in ours.iter().enumerate() {
                if fd.revents().contains(PollFlags::IN) {
                    at_once |= self.receive(node, end)?;
                }
            }
            #[cfg(target_os = "linux")]
            for (i, fd) in _others.iter().enumerate() {
                if fd.revents().contains(PollFlags::IN) {
                    at_once |= match i.checked_sub(tuns.len()) {
                        None => self.read_room(i, end)?,
                        Some(interface) => self.read_wire(interface, end)?,
                    };
                }
            }
        }
    }

    /// Reads the clock, at most `end`, so that packets read afterwards count as of that instant.
    fn tell_time(&mut self, end: Time) -> Time {
        let mut now = self.clock.now();
        let handled = self.counters.handled();
        let span = self.standstill.unaccounted(now, handled - self.handled, self.alone);
        self.handled = handled;
        if self.alone && span > Time::ZERO {
            self.clock.hold(span);
            self.standstills.note(span, 1);
            now -= span;
        } else {
            self.longest_pause = self.longest_pause.max(span);
        }
        self.now = now.clamp(self.now, end);
        self.now
    }

    /// Handles all timers that are due.
    fn fire(&mut self, now: Time) -> Result<(), Error> {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            let index = (id >> KIND_BITS) as usize;
            match id & ((1 << KIND_BITS) - 1) {
                LINK if self.links[index].armed == at => {
                    self.links[index].armed = Time::NEVER;
                    self.forward(index, now)?;
                }
                END if self.ends[index].armed == at => {
                    self.ends[index].armed = Time::NEVER;
                    self.wake(index, now)?;
                }
                SOURCE => self.emit(index, now)?,
                SHAPER => self.tick_shaper(index, at, now)?,
                MEDIUM => self.run_medium(index, now),
                MACHINE => self.tick_resident(index, at, now)?,
                KEYS => self.renew_keys(index, at)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Forwards the packets that reached the far end of a link.
    fn forward(&mut self, link: usize, now: Time) -> Result<(), Error> {
        let mut leaving = std::mem::take(&mut self.leaving);
        let mut first_due = Time::NEVER;
        while let Some((at, handle)) = self.arrive(link, now) {
            first_due = first_due.min(at);
            self.store(handle);
            leaving.push(handle);
        }
        match self.links[link].out {
            Out::Socket(to) => {
                let longest = leaving.iter().map(|&handle| self.buffers.bytes(handle).len()).max();
                let hop = &mut self.links[link];
                hop.longest = hop.longest.max(longest.unwrap_or(0));
                let node = hop.node;
                self.send_trains(node, to, &leaving)?;
            }
            #[cfg(target_os = "linux")]
            Out::Wire(interface) => self.send_frames(interface, &leaving)?,
        }
        if !leaving.is_empty() {
            // The first packet waited longest. Its lateness counts for all that left with it.
            let late = self.clock.now().saturating_sub(first_due);
            self.departures.note(late, leaving.len() as u64);
        }
        leaving.drain(..).for_each(|handle| self.buffers.free(handle));
        self.leaving = leaving;
        self.arm_link(link);
        Ok(())
    }

    /// Sends a packet made here over the link `first`: directly, or through the node's own kernel.
    fn begin(&mut self, first: u32, now: Time, handle: u32) {
        #[cfg(target_os = "linux")]
        if self.launch(handle) {
            return;
        }
        self.offer(first, now, handle);
    }

    fn offer(&mut self, link: u32, now: Time, handle: u32) {
        let link = link as usize;
        if let Some(medium) = self.links[link].medium {
            return self.offer_shared(medium, link, now, handle);
        }
        emulator::offer(&mut self.links[link].link, now, handle, &mut self.buffers);
        self.arm_link(link);
    }

    /// Sets a timer that [`fire`](Driver::fire) handles at `due`.
    fn set_timer(&mut self, due: Time, at: usize, kind: u32) {
        self.timers.push(Reverse((due, (at as u32) << KIND_BITS | kind)));
    }

    pub(crate) fn arm_link(&mut self, at: usize) {
        let hop = &mut self.links[at];
        let due = hop.link.next_arrival();
        if due < hop.armed {
            hop.armed = due;
            self.set_timer(due, at, LINK);
        }
    }

    pub(crate) fn arm_end(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let Some(machine) = end.machine.as_ref().filter(|_| end.live) else { return };
        let due = machine.poll_timeout().min(end.open_at).min(end.stop_at);
        if due < end.armed {
            end.armed = due;
            self.set_timer(due, at, END);
        }
    }

    /// Names of its nodes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }
}

/// The reason why one end of a flow ended here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its data are complete.
    Over,
    /// The other side reset it.
    Reset,
    /// The process at the other end means another flow by this number: it was refused.
    Mistaken,
    /// The other side sent nothing, or nothing of use, for longer than this node waits: it was
    /// aborted.
    Silent,
}

/// Kinds of timers.
const LINK: u32 = 0;
const END: u32 = 1;
const SOURCE: u32 = 2;
const SHAPER: u32 = 3;
const MEDIUM: u32 = 4;
const MACHINE: u32 = 5;
const KEYS: u32 = 6;
const KIND_BITS: u32 = 3;
