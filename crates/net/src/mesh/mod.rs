//! Emulated links for IP packets of other programs: a machine without I/O.
//!
//! A packet comes from a node's network namespace. It crosses the links of its path, each at its
//! virtual instants, and goes to the namespace of its destination. It enters each link at the very
//! instant at which it leaves the link before. Only the last step, out to the kernel, can be late.
//!
//! | item | contents |
//! |---|---|
//! | [`Mesh`] | the machine |
//! | [`Emulated`] | network namespaces whose packets a thread carries |
//! | [`run_kernel`] | the kernel's own TCP between nodes, without programs |
//! | [`panel()`] | a view of the links during a run, and changes to them |
//! | [`Record`] | measurements: links, flows, lateness, every drop by its cause |

mod bridge;
mod capture;
mod emulated;
mod kernel_run;
mod panel;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;

use tollway_law::link::{AnyLink, LinkLaw};
use tollway_law::{Rate, Time, Toll};
use tollway_proto::Lateness;
use tollway_proto::encoding::tcp_option::{Feedback, Tolled};
use tollway_proto::faults::{Impairments, Loss};
use tollway_proto::link::{Link, LinkStats};
use tollway_proto::{Change, Encoding, Faults, Flags, Packet, Stamp};

pub use bridge::{LinkRecord, PATIENCE, Record};
pub use capture::Tap;
pub use emulated::{Emulated, NodeDrops, Start};
pub use kernel_run::{KernelFlow, KernelOutcome, KernelSample, run_kernel};
pub use panel::{FlowMoment, LinkMoment, Moment, Panel, Remote, panel};

use crate::buffers::Buffers;
use crate::emulator::{self, LinkSpec};
use crate::sys::ip::{self, FiveTuple, Malformed};
use crate::sys::{addresses, tun};

/// A network for IP packets of other programs.
#[derive(Clone, Debug)]
pub struct MeshSpec {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Every direction of every link.
    pub links: Vec<LinkSpec>,
    /// Random losses on each link.
    pub losses: Vec<Vec<Loss>>,
    /// Impairments of each wire other than losses.
    pub impairments: Vec<Option<Impairments>>,
    /// Changes of links during the run, by time.
    pub changes: Vec<MeshChange>,
    /// By node and destination, the link that leads there: `next[node * nodes + destination]`.
    pub next: Vec<Option<u32>>,
    /// Seed of the random draws.
    pub seed: u64,
    /// The node that leads outside: packets from and to foreign addresses enter and leave there.
    pub outside: Option<u32>,
}

/// A change of a link.
#[derive(Clone, Debug)]
pub struct MeshChange {
    /// Time of the change, from the run's start.
    pub at: Time,
    /// Number of the link.
    pub link: u32,
    /// The change.
    pub what: Change,
}

/// The current parameters of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Its rate; `None` while it replays a recording.
    pub rate: Option<Rate>,
    /// One-way propagation delay.
    pub delay: Time,
    /// Probability that a packet is lost at random, over all losses together.
    pub loss: f64,
}

/// The node of an address; `None` if it is none of `nodes`.
fn node_of(address: IpAddr, nodes: u32) -> Option<u32> {
    let number = match address {
        IpAddr::V4(address) => address.to_bits() & 0xffff,
        IpAddr::V6(address) => u32::from(address.segments()[7]),
    };
    let node = number.checked_sub(1).filter(|&node| node < nodes)?;
    addresses(node).contains(&address).then_some(node)
}

/// The packets of one flow in one direction.
#[derive(Clone, Debug)]
pub struct FlowRecord {
    /// Addresses and ports of the flow.
    pub tuple: FiveTuple,
    /// The source node.
    pub from: u32,
    /// The destination node.
    pub to: u32,
    /// Time of the first packet.
    pub first: Time,
    /// Time of the last packet or delivery.
    pub last: Time,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, IP headers included.
    pub bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Bytes delivered, IP headers included.
    pub delivered_bytes: u64,
    /// Payload bytes delivered.
    pub payload_bytes: u64,
    /// Packets marked on their path.
    pub marks: u64,
    /// Packets still on their path.
    pub in_flight: u64,
    /// Sum of the delivered packets' delays.
    pub delay_sum: Time,
    /// Smallest delay of a delivered packet.
    pub delay_min: Time,
    /// Largest delay of a delivered packet.
    pub delay_max: Time,
    /// Bytes delivered, by number of the interval of [`Mesh::INTERVAL`]; empty intervals are left
    /// out.
    pub rates: Vec<(u32, u64)>,
}

/// Packets that entered no link, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// Not IP.
    pub not_ip: u64,
    /// Lengths that contradict each other.
    pub malformed: u64,
    /// A destination that no node has, or a source that is not the sender's address.
    pub no_such_address: u64,
    /// A destination node to which no link leads.
    pub no_route: u64,
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivedFrame {
    /// Arrival in the links' virtual time.
    pub(crate) at: Time,
    /// The destination node.
    pub(crate) node: u32,
    handle: u32,
}

/// The links of a network, and the packets on them.
#[derive(Debug)]
pub struct Mesh {
    hops: Vec<Hop>,
    nodes: u32,
    outside: Option<u32>,
    next: Vec<Option<u32>>,
    /// Changes still to come, by time.
    changes: VecDeque<MeshChange>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    buffers: Buffers,
    flows: Vec<FlowRecord>,
    known: HashMap<FiveTuple, u32>,
    arrived: VecDeque<ArrivedFrame>,
    strays: Strays,
    /// Bytes in front of each packet.
    prefix: usize,
    /// True if some link's law writes into XCP's header.
    explicit: bool,
}

#[derive(Debug)]
struct Hop {
    link: Link,
    to: u32,
    armed: Time,
    /// The current parameters, changes included.
    setting: Setting,
    /// Rates and the times from which they applied; empty if the rate never changed.
    rates: Vec<(Time, Rate)>,
}

impl Mesh {
    /// Length of the intervals in which rates are recorded.
    pub const INTERVAL: Time = Time::from_millis(100);

    /// Makes an idle network; each packet has `prefix` bytes in front that pass unread.
    pub(crate) fn new(spec: &MeshSpec, prefix: usize) -> Mesh {
        let hop = |(i, link): (usize, &LinkSpec)| {
            let losses = spec.losses.get(i).cloned().unwrap_or_default();
            let (loss, mut emulated) = (together(&losses), link.build());
            emulated.faults(|| Faults::new(spec.seed, i as u32)).losses = losses;
            if let Some(impairments) = spec.impairments.get(i).copied().flatten() {
                emulated.impair(impairments);
            }
            let rate = link.trace.is_none().then_some(link.rate);
            let setting = Setting { rate, delay: link.delay, loss };
            Hop { link: emulated, to: link.to, armed: Time::NEVER, setting, rates: Vec::new() }
        };
        Mesh {
            hops: spec.links.iter().enumerate().map(hop).collect(),
            nodes: spec.nodes.len() as u32,
            outside: spec.outside,
            next: spec.next.clone(),
            changes: spec.changes.clone().into(),
            timers: BinaryHeap::new(),
            buffers: Buffers::of_trains(),
            flows: Vec::new(),
            known: HashMap::new(),
            arrived: VecDeque::new(),
            strays: Strays::default(),
            prefix,
            explicit: spec.links.iter().map(|link| &link.law).any(is_explicit),
        }
    }

    /// Handles a frame from the namespace of `node`. `now` must not decrease between calls.
    ///
    /// With `segment` above zero, the frame is a train of TCP segments under one header. Each has
    /// `segment` bytes of payload, the last maybe less.
    pub(crate) fn handle_frame(&mut self, now: Time, node: u32, frame: &[u8], segment: u16) {
        if let Some((link, packet)) = self.admit(now, node, frame, segment) {
            let handle = self.buffers.alloc(packet, frame.len());
            self.buffers.bytes_mut(handle).copy_from_slice(frame);
            self.offer(now, link, handle);
        }
    }

    /// Handles a long frame like [`handle_frame`](Mesh::handle_frame), without a copy.
    ///
    /// `bytes` comes from [`spare`](Mesh::spare), and the frame stays in it.
    pub(crate) fn handle_train(&mut self, now: Time, node: u32, bytes: Box<[u8]>, len: usize, segment: u16) {
        let admitted = self.admit(now, node, &bytes[..len], segment);
        let chunk = self.buffers.reserve();
        let handle = admitted.map(|(link, packet)| (link, self.buffers.share(packet, chunk, 0, len)));
        self.buffers.settle(chunk, bytes);
        if let Some((link, handle)) = handle {
            self.offer(now, link, handle);
        }
    }

    /// Room for any frame.
    pub(crate) fn spare(&mut self) -> Box<[u8]> {
        self.buffers.spare()
    }

    /// The link that a frame takes, and its form there; `None` if it enters no link.
    fn admit(&mut self, now: Time, node: u32, frame: &[u8], segment: u16) -> Option<(u32, Packet)> {
        self.handle_timeout(now);
        let packet = frame.get(self.prefix..).unwrap_or_default();
        let header = match ip::parse_any(packet) {
            Ok(header) => header,
            Err(Malformed::NotIpv4) => {
                self.strays.not_ip += 1;
                return None;
            }
            Err(Malformed::Truncated) => {
                self.strays.malformed += 1;
                return None;
            }
        };
        let sent_by = self.reaches(header.flow.source);
        let Some(to) = self.reaches(header.flow.destination).filter(|_| sent_by == Some(node)) else {
            self.strays.no_such_address += 1;
            return None;
        };
        let Some(link) = self.next[(node * self.nodes + to) as usize] else {
            self.strays.no_route += 1;
            return None;
        };
        // Each segment has its own header on the wire.
        let segments = if segment > 0 { u32::from(header.payload().div_ceil(segment)).max(1) } else { 1 };
        let size = u32::from(header.len) + (segments - 1) * u32::from(header.header_len);
        let flow = self.flow(now, node, to, header.flow);
        let record = &mut self.flows[flow as usize];
        record.packets += u64::from(segments);
        record.bytes += u64::from(size);
        record.last = now;
        let data = if header.payload() > 0 { Flags::DATA } else { Flags::NONE };
        let mut flags = header.ecn.with(data);
        let mut toll = Toll::default();
        if self.explicit
            && let Some((_, tolled)) = ip::toll_option(packet, &header)
        {
            flags.set(Flags::TOLLED);
            toll = tolled.toll(size);
            if let Tolled::Xcp(_) = tolled {
                self.buffers.set_encoding(flow, Encoding::TcpOption { feedback: FEEDBACK });
            }
        }
        let packet = Packet {
            toll,
            flow,
            size: size.min(u32::from(u16::MAX)) as u16,
            flags,
            sent: Stamp::at(now),
            // These fields are free for the engine's use here.
            seq: segments,
            ack: u32::from(header.payload()),
            ..Packet::default()
        };
        Some((link, packet))
    }

    /// Handles everything due by `now`. A change of a link precedes the packets of its instant.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        loop {
            let arrival = self.timers.peek().map_or(Time::NEVER, |next| next.0.0);
            let due = self.changes.front().is_some_and(|change| change.at <= arrival.min(now));
            if let Some(change) = due.then(|| self.changes.pop_front()).flatten() {
                self.change(change);
                continue;
            }
            if arrival > now {
                return;
            }
            let Some(Reverse((at, link))) = self.timers.pop() else { return };
            if self.hops[link as usize].armed == at {
                self.hops[link as usize].armed = Time::NEVER;
                self.arrive(at, link);
            }
        }
    }

    /// Changes a link at `now`, which must not decrease between calls. An unknown number is
    /// ignored.
    pub(crate) fn change_now(&mut self, now: Time, link: u32, what: Change) {
        self.handle_timeout(now);
        if (link as usize) < self.hops.len() {
            self.change(MeshChange { at: now, link, what });
        }
    }

    fn change(&mut self, change: MeshChange) {
        let (now, buffers) = (change.at, &mut self.buffers);
        let Hop { link, setting, rates, .. } = &mut self.hops[change.link as usize];
        match &change.what {
            Change::Rate(rate) => {
                setting.rate = Some(*rate);
                rates.push((now, *rate));
            }
            Change::Delay(delay) => setting.delay = *delay,
            Change::Losses(losses) => setting.loss = together(losses),
            _ => {}
        }
        link.change(now, change.what, buffers, || {
            unreachable!("a link of the mesh has faults from the start")
        });
        // The change may move arrivals that were scheduled.
        self.hops[change.link as usize].armed = Time::NEVER;
        self.arm(change.link);
    }

    /// The next time at which [`handle_timeout`](Mesh::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Time {
        let change = self.changes.front().map_or(Time::NEVER, |change| change.at);
        self.timers.peek().map_or(Time::NEVER, |next| next.0.0).min(change)
    }

    /// The next packet that has arrived. The caller must pass it to [`release`](Mesh::release)
    /// afterwards.
    pub(crate) fn poll_delivery(&mut self) -> Option<ArrivedFrame> {
        self.arrived.pop_front()
    }

    /// The bytes of an arrived packet, with marks and toll written.
    pub(crate) fn frame(&self, delivery: ArrivedFrame) -> &[u8] {
        self.buffers.bytes(delivery.handle)
    }

    /// Frees a delivered packet, and counts it if `taken`: the kernel accepted it.
    pub(crate) fn release(&mut self, delivery: ArrivedFrame, taken: bool) {
        let packet = *self.buffers.get(delivery.handle);
        let record = &mut self.flows[packet.flow as usize];
        let count = u64::from(packet.seq);
        if taken {
            let bytes = u64::from(packet.size);
            let delay = packet.sent.elapsed(delivery.at);
            record.delivered += count;
            record.delivered_bytes += bytes;
            record.payload_bytes += u64::from(packet.ack);
            record.last = record.last.max(delivery.at);
            record.delay_sum += Time(delay.0 * count);
            record.delay_min = record.delay_min.min(delay);
            record.delay_max = record.delay_max.max(delay);
            let interval = (delivery.at.0 / Mesh::INTERVAL.0) as u32;
            match record.rates.last_mut() {
                Some(last) if last.0 == interval => last.1 += bytes,
                _ => record.rates.push((interval, bytes)),
            }
        }
        self.buffers.free(delivery.handle);
    }

    /// Counters of a link.
    pub(crate) fn read_link(&mut self, now: Time, link: usize) -> LinkStats {
        self.hops[link].link.read_stats(now, &mut self.buffers)
    }

    /// Waiting times at a link's port, and the number of packets on the link now.
    pub(crate) fn waits(&self, link: usize) -> (Lateness, u64) {
        let link = &self.hops[link].link;
        let held = link.held().map(|handle| u64::from(self.buffers.get(handle).seq)).sum();
        (link.waits(), held)
    }

    /// Total waiting time at a link's port, and the number of packets that waited.
    pub(crate) fn waited(&self, link: usize) -> (Time, u64) {
        self.hops[link].link.waited()
    }

    /// Current parameters of a link.
    pub(crate) fn setting(&self, link: usize) -> Setting {
        self.hops[link].setting
    }

    /// Rates of a link and the times from which they applied; empty if the rate never changed.
    pub(crate) fn rates(&self, link: usize) -> &[(Time, Rate)] {
        &self.hops[link].rates
    }

    /// All flows, without packets still on their path.
    pub(crate) fn records(&self) -> &[FlowRecord] {
        &self.flows
    }

    /// Number of a flow, if known.
    pub(crate) fn number_of(&self, tuple: &FiveTuple) -> Option<u32> {
        self.known.get(tuple).copied()
    }

    /// All flows, in the order of their first packets, with packets still on their path.
    pub(crate) fn flows(&self) -> Vec<FlowRecord> {
        let mut flows = self.flows.clone();
        for handle in self.hops.iter().flat_map(|hop| hop.link.held()) {
            let packet = self.buffers.get(handle);
            flows[packet.flow as usize].in_flight += u64::from(packet.seq);
        }
        flows
    }

    pub(crate) fn strays(&self) -> Strays {
        self.strays
    }

    /// The node at which packets for an address leave the network.
    fn reaches(&self, address: IpAddr) -> Option<u32> {
        let abroad = |address: IpAddr| match address {
            // The nodes' network is 10.77.0.0/16.
            IpAddr::V4(v4) => v4.octets()[..2] != [10, 77] && !v4.is_multicast() && !v4.is_broadcast(),
            // That of IPv6 is fd77::/64.
            IpAddr::V6(v6) => {
                v6.segments()[..4] != [0xfd77, 0, 0, 0] && !v6.is_multicast() && !v6.is_unicast_link_local()
            }
        };
        node_of(address, self.nodes).or(self.outside.filter(|_| abroad(address)))
    }

    fn flow(&mut self, now: Time, from: u32, to: u32, tuple: FiveTuple) -> u32 {
        let answers = self.known.contains_key(&tuple.back());
        let (flows, buffers) = (&mut self.flows, &mut self.buffers);
        *self.known.entry(tuple).or_insert_with(|| {
            // Packets in both directions belong to the host that opened the connection.
            buffers.set_hosts(flows.len() as u32, if answers { [to, from] } else { [from, to] });
            flows.push(FlowRecord {
                tuple,
                from,
                to,
                first: now,
                last: now,
                packets: 0,
                bytes: 0,
                delivered: 0,
                delivered_bytes: 0,
                payload_bytes: 0,
                marks: 0,
                in_flight: 0,
                delay_sum: Time::ZERO,
                delay_min: Time::NEVER,
                delay_max: Time::ZERO,
                rates: Vec::new(),
            });
            flows.len() as u32 - 1
        })
    }

    fn offer(&mut self, now: Time, link: u32, handle: u32) {
        emulator::offer(&mut self.hops[link as usize].link, now, handle, &mut self.buffers);
        self.arm(link);
    }

    /// Forwards the packets at the far end of a link to their next link, or out.
    fn arrive(&mut self, now: Time, link: u32) {
        while let Some((at, handle)) =
            emulator::arrive(&mut self.hops[link as usize].link, now, &mut self.buffers)
        {
            let node = self.hops[link as usize].to;
            let packet = *self.buffers.get(handle);
            let to = self.flows[packet.flow as usize].to;
            if node != to {
                match self.next[(node * self.nodes + to) as usize] {
                    Some(next) => self.offer(at, next, handle),
                    None => self.buffers.free(handle), // Ways are whole: whoever leads to a node leads on from it.
                }
                continue;
            }
            let frame = self.buffers.bytes_mut(handle);
            let unfinished = self.prefix > 0 && tun::is_unfinished(frame);
            if ip::store(&mut frame[self.prefix..], &packet, unfinished) {
                self.flows[packet.flow as usize].marks += u64::from(packet.seq);
            }
            self.arrived.push_back(ArrivedFrame { at, node, handle });
        }
        self.arm(link);
    }

    fn arm(&mut self, link: u32) {
        let hop = &mut self.hops[link as usize];
        let due = hop.link.next_arrival();
        if due < hop.armed {
            hop.armed = due;
            self.timers.push(Reverse((due, link)));
        }
    }
}

/// True if the law, or that of a class, reads and writes tolls: XCP's or FCP's.
pub(crate) fn is_explicit(law: &AnyLink) -> bool {
    match law {
        AnyLink::Shared(shared) => shared.laws().any(is_explicit),
        _ => law.control().is_some() || law.stated_price().is_some(),
    }
}

/// Probability that at least one of the losses drops a packet to which all apply.
fn together(losses: &[Loss]) -> f64 {
    1.0 - losses.iter().map(|loss| 1.0 - loss.probability).product::<f64>()
}

/// The format of feedback from XCP senders.
pub(crate) const FEEDBACK: Feedback = Feedback::Split;

#[cfg(test)]
pub(super) mod tests;
