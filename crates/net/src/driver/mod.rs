//! A thread's share of the nodes: it owns their sockets, links, timers and machines.

#[cfg(target_os = "linux")]
pub(crate) mod carry;
mod cross;
#[cfg(target_os = "linux")]
pub(crate) mod frames;
mod gates;
mod machines;
mod mail;
mod media;
mod residents;
mod sealed;
mod watch;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use tollway_law::Time;
use tollway_proto::shaper::Gates;
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
    /// No other thread has a share of the nodes: when this one stands still, the clock may.
    pub(crate) alone: bool,
    /// Other nodes are other processes': what comes may be anything.
    pub(crate) apart: bool,
    standstill: Standstill,
    /// Packets handled when the standstill was last asked about.
    handled: u64,
    /// By local node, like `nodes`; apart, so that one thread can wait for all of them.
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
    pub(crate) gates: Gates,
    /// By shaper, when its timer is due.
    shapers: Vec<Time>,
    /// Nodes' own kernels, and their interfaces: apart, as sockets are.
    #[cfg(target_os = "linux")]
    pub(crate) rooms: Vec<Room>,
    #[cfg(target_os = "linux")]
    tuns: Arc<[Tun]>,
    /// Interfaces of nodes that are namespaces, and what there is besides: apart, as sockets are.
    #[cfg(target_os = "linux")]
    pub(crate) wires: Arc<[Wire]>,
    #[cfg(target_os = "linux")]
    pub(crate) ground: Option<Box<frames::Ground>>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    pub(crate) buffers: Buffers,
    inbox: Inbox,
    /// Packets that leave a link now.
    leaving: Vec<u32>,
    /// A train of datagrams that do not lie in one piece.
    train: Vec<u8>,
    sack: SackRanges,
    pub(crate) counters: Counters,
    /// Datagrams handed to the kernel after the virtual instant of their arrival at the next node.
    pub(crate) departures: Lateness,
    /// Machines' timers run after their deadline.
    pub(crate) timeouts: Lateness,
    /// Datagrams read after the kernel had them.
    pub(crate) waits: Lateness,
    /// Spans that the clock left out.
    pub(crate) standstills: Lateness,
    /// The longest one that the clock counted.
    pub(crate) longest_pause: Time,
    pub(crate) done: Vec<(u32, bool, Time)>,
    /// Processor time that running took.
    pub(crate) cpu: Time,
}

#[derive(Debug)]
struct Node {
    name: String,
    /// Where a packet with this label goes next.
    labels: Vec<Next>,
    /// The same for cross-traffic, whose labels have [`CROSS`] in them.
    crossing: Vec<Next>,
    /// And for what middles send, whose labels have [`TREE`] in them.
    stretches: Vec<Next>,
    /// The sockets that may speak to this one, sorted.
    peers: Vec<SocketAddr>,
    /// Those of them whose datagrams come over a watched link.
    entries: Vec<(SocketAddr, u32)>,
    seals: Option<Box<sealed::Seals>>,
}

/// What a node does with packets of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// They have no business here.
    Nowhere,
    /// They go on over this link.
    Link(u32),
    /// They are for this machine.
    End(u32),
    /// They are cross-traffic and end here.
    Sink(u32),
    /// They come to this gate of a middle here.
    Gate(u32),
}

/// A link direction at its node.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) link: Link,
    node: u32,
    pub(crate) out: Out,
    armed: Time,
    /// Bytes of the longest datagram that left it.
    longest: usize,
    /// The medium that it shares with others.
    medium: Option<u32>,
    /// The machine that watches its wire, and the gate.
    pub(crate) watch: Option<(u32, Gate)>,
}

/// How what comes off a link gets to the node at its far end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Out {
    /// From its node's socket to this one.
    Socket(SocketAddr),
    /// Out of this interface.
    #[cfg(target_os = "linux")]
    Wire(u32),
}

/// A machine at its node.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Out only while a caller works on it.
    pub(crate) machine: Option<Connection>,
    pub(crate) flow: u32,
    pub(crate) client: bool,
    /// On the packets it sends.
    pub(crate) label: u32,
    /// The label that data had when they left the other end: what they are made of.
    pub(crate) hears: u32,
    /// The first link of their way.
    pub(crate) first: u32,
    pub(crate) open_at: Time,
    pub(crate) stop_at: Time,
    pub(crate) encoding: Encoding,
    /// A full segment on the wire, bytes: some encodings count in it.
    pub(crate) segment: u32,
    /// What of a packet's size is no payload.
    pub(crate) header: u16,
    /// The round-trip time stated by the last tolled packet that came: a lossy encoding's echo is in its terms.
    pub(crate) heard_rtt: f32,
    /// When it was opened, the other end having been heard, and when the last new data came.
    pub(crate) heard: Option<(Time, Time)>,
    pub(crate) live: bool,
    /// Where it asks before it sends; [`OPEN`] if nowhere.
    pub(crate) gate: u32,
    /// An app owns it.
    pub(crate) hosted: Option<Box<Hosted>>,
    /// An app owns the other end: what comes from there is no pattern.
    pub(crate) hears_app: bool,
    /// Its data, and the other end's, are frames of a session, whose payload begins with their key.
    pub(crate) keyed: bool,
    /// It is the node's kernel that has this end, and the machine is idle.
    #[cfg(target_os = "linux")]
    pub(crate) carried: Option<carry::Carried>,
    pub(crate) done: bool,
    /// What has ended it here, where the other end is another process's.
    pub(crate) fate: Option<Fate>,
    /// Of what both ends must agree on: in the packet that opens.
    pub(crate) fingerprint: u32,
    /// The flow is retired once neither end has this any more.
    pub(crate) awaited: bool,
    pub(crate) armed: Time,
}

/// Plain counters of a driver, never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that machines made.
    pub created: u64,
    /// Packets handed to machines.
    pub delivered: u64,
    /// Packets that ended at a flow that is gone.
    pub absorbed: u64,
    /// Datagrams that a meter dropped where they came in.
    pub metered: u64,
    /// Datagrams handed to the kernel.
    pub sent: u64,
    /// Datagrams that the kernel would not take.
    pub unsent: u64,
    /// Of these, the ones that are longer than the interface takes.
    pub too_long: u64,
    /// Datagrams not sent, there being no keys with the neighbour.
    pub unkeyed: u64,
    /// Datagrams received from nodes of this run.
    pub received: u64,
    /// Of these, the ones that meant nothing.
    pub senseless: u64,
    /// Datagrams from anybody else, thrown away unread.
    pub strangers: u64,
    /// Datagrams found in sockets when the run was over.
    pub waiting: u64,
    /// System calls that sent.
    pub sends: u64,
    /// System calls that received something.
    pub receives: u64,
    /// Turns of the loop.
    pub turns: u64,
}

impl Counters {
    /// Packets that took work: read, handed to the kernel, made.
    fn handled(&self) -> u64 {
        self.received + self.sent + self.unsent + self.created
    }

    /// Adds another driver's.
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
    /// What is done with packets of `label`.
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
            gates: Gates::default(),
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

    /// Adds a link direction from `node` to whoever has the socket `to`.
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

    /// Lets `peer` speak to `node`.
    pub(crate) fn add_peer(&mut self, node: u32, peer: SocketAddr) {
        let peers = &mut self.nodes[node as usize].peers;
        if let Err(at) = peers.binary_search(&peer) {
            peers.insert(at, peer);
        }
    }

    pub(crate) fn addr(&self, node: u32) -> SocketAddr {
        self.sockets[node as usize].addr()
    }

    /// Says where packets of `label` go from `node`; one label leads only one way.
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
            // Who asks for a time that is over already gets what has come meanwhile, too: a caller who is always a little late
            // would hear nothing any more.
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

    /// The present: never past the end of what is being run, so that what is read then is as of that instant.
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

    /// Everything that is due.
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

    /// Sends on what has reached the far end of a link.
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
            // The first has waited longest; it stands for all that left with it.
            let late = self.clock.now().saturating_sub(first_due);
            self.departures.note(late, leaving.len() as u64);
        }
        leaving.drain(..).for_each(|handle| self.buffers.free(handle));
        self.leaving = leaving;
        self.arm_link(link);
        Ok(())
    }

    /// A packet made here begins its way over the link `first`: at once, or through the node's own kernel.
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

    /// Has [`fire`](Driver::fire) see to something at `due`.
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

    /// The names of its nodes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }
}

/// What became of one end of a flow here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its data are through.
    Over,
    /// The other side gave it up.
    Reset,
    /// The process at the other end means something else by the flow's number: it was not let in.
    Mistaken,
    /// The other side has been heard of, or anything it sent been of use, for longer than this node has patience: it was given up.
    Silent,
}

/// What a timer is of.
const LINK: u32 = 0;
const END: u32 = 1;
const SOURCE: u32 = 2;
const SHAPER: u32 = 3;
const MEDIUM: u32 = 4;
const MACHINE: u32 = 5;
const KEYS: u32 = 6;
const KIND_BITS: u32 = 3;
