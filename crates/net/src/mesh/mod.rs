//! Emulated links that foreign IP packets cross: a machine without I/O.
//!
//! A packet comes from a node's network namespace, is carried over the links of its way, each at its virtual instants, and goes
//! to the namespace of its destination. From link to link it passes at the very instant at which it arrives; only the last
//! step, out to the kernel again, can be late.
//!
//! | | |
//! |---|---|
//! | [`Mesh`] | the machine |
//! | [`Emulated`] | network namespaces whose packets a thread carries |
//! | [`run_kernel`] | the kernel's own TCP between nodes, without programs |
//! | [`panel()`] | links seen and changed meanwhile |
//! | [`Record`] | what the emulator saw: links, flows, lateness, every drop by its cause |

mod bridge;
mod capture;
mod emulated;
mod kernel_run;
mod panel;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::Ipv4Addr;

use tollway_law::link::LinkLaw;
use tollway_law::{Rate, Time, Toll};
use tollway_proto::Lateness;
use tollway_proto::encoding::tcp_option::{self, Feedback};
use tollway_proto::faults::{Impairments, Loss};
use tollway_proto::link::{Link, LinkStats};
use tollway_proto::{Change, Encoding, Faults, Flags, Packet, Stamp};

pub use bridge::{LinkRecord, PATIENCE, Record};
pub use capture::Tap;
pub use emulated::{Emulated, KernelDrops, Start};
pub use kernel_run::{KernelFlow, KernelOutcome, Sample, run_kernel};
pub use panel::{FlowMoment, LinkMoment, Moment, Panel, Remote, panel};

use crate::buffers::Buffers;
use crate::emulator::{self, LinkSpec};
use crate::sys::ip::{self, FiveTuple, Malformed};
use crate::sys::tun;

/// What a network for foreign packets is made of.
#[derive(Clone, Debug)]
pub struct MeshSpec {
    /// The names of nodes.
    pub nodes: Vec<String>,
    /// Every direction of every link.
    pub links: Vec<LinkSpec>,
    /// What is lost at random on each of them.
    pub losses: Vec<Vec<Loss>>,
    /// Impairments of each wire beside losses.
    pub impairments: Vec<Option<Impairments>>,
    /// What happens to links on the way, by time.
    pub changes: Vec<MeshChange>,
    /// By node and destination, the link that leads there: `next[node * nodes + destination]`.
    pub next: Vec<Option<u32>>,
    /// What chance is drawn from.
    pub seed: u64,
    /// The node behind which the rest of the world is: what is for no node's address goes there, and may come from there.
    pub outside: Option<u32>,
}

/// Something that happens to a link.
#[derive(Clone, Debug)]
pub struct MeshChange {
    /// When, counted from the run's beginning.
    pub at: Time,
    /// To which.
    pub link: u32,
    /// What.
    pub what: Change,
}

/// How a link is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Its rate; `None` while it replays a recording.
    pub rate: Option<Rate>,
    /// Its delay, one way.
    pub delay: Time,
    /// The probability that a packet is lost at random, all of what is lost taken together.
    pub loss: f64,
}

/// Whether an address is one that a node may have.
fn is_inside(address: Ipv4Addr) -> bool {
    address.octets()[..2] == [10, 77]
}

/// The node of an address, if it is one of `nodes`.
fn node_of(address: Ipv4Addr, nodes: u32) -> Option<u32> {
    let [.., high, low] = address.octets();
    let number = u32::from(high) << 8 | u32::from(low);
    if !is_inside(address) {
        return None;
    }
    number.checked_sub(1).filter(|&node| node < nodes)
}

/// What became of the packets of one flow, one way.
#[derive(Clone, Debug)]
pub struct FlowRecord {
    /// Whose packets.
    pub tuple: FiveTuple,
    /// Where they come from.
    pub from: u32,
    /// Where they go.
    pub to: u32,
    /// When the first came.
    pub first: Time,
    /// When the last one came or was delivered.
    pub last: Time,
    /// Packets that came.
    pub packets: u64,
    /// Their bytes, from IP's header on.
    pub bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Of these, payload.
    pub payload_bytes: u64,
    /// Packets marked on the way.
    pub marks: u64,
    /// Packets still on their way.
    pub in_flight: u64,
    /// Sum of the delivered packets' times on their way.
    pub delay_sum: Time,
    /// The shortest of them.
    pub delay_min: Time,
    /// The longest of them.
    pub delay_max: Time,
    /// Bytes delivered, by interval of [`Mesh::INTERVAL`]; only intervals with any.
    pub rates: Vec<(u32, u64)>,
}

/// Packets that were never on a link, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// Not IPv4: nothing else is carried.
    pub not_ipv4: u64,
    /// Lengths that contradict each other.
    pub malformed: u64,
    /// To an address that no node has, or from one that is not the sender's.
    pub no_such_address: u64,
    /// To a node that no link leads to.
    pub no_route: u64,
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    /// When it arrived, by the links' virtual time.
    pub(crate) at: Time,
    /// Where.
    pub(crate) node: u32,
    handle: u32,
}

/// The links and what is on them.
#[derive(Debug)]
pub struct Mesh {
    hops: Vec<Hop>,
    nodes: u32,
    outside: Option<u32>,
    next: Vec<Option<u32>>,
    /// What is still to happen, by time.
    changes: VecDeque<MeshChange>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    buffers: Buffers,
    flows: Vec<FlowRecord>,
    known: HashMap<FiveTuple, u32>,
    arrived: VecDeque<Delivery>,
    strays: Strays,
    /// Bytes in front of each packet that are none of it.
    prefix: usize,
    /// Some link speaks to packets that carry XCP's header.
    explicit: bool,
}

#[derive(Debug)]
struct Hop {
    link: Link,
    to: u32,
    armed: Time,
    /// What changes have made of it.
    setting: Setting,
    /// From when on it had which rate, if not always the one that its specification says.
    rates: Vec<(Time, Rate)>,
}

impl Mesh {
    /// Length of the intervals in which rates are kept.
    pub const INTERVAL: Time = Time::from_millis(100);

    /// A network at rest; each packet has `prefix` bytes in front that pass unread.
    pub(crate) fn new(spec: &MeshSpec, prefix: usize) -> Mesh {
        let hop = |(i, link): (usize, &LinkSpec)| {
            let losses = spec.losses.get(i).cloned().unwrap_or_default();
            let (loss, mut emulated) = (together(&losses), link.build());
            emulated.faults(|| Faults::new(spec.seed, i as u32)).losses = losses;
            if let Some(impairments) = spec.impairments.get(i).copied().flatten() {
                emulated.impair(impairments);
            }
            emulated.note_waits();
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
            explicit: spec.links.iter().any(|link| link.law.control().is_some()),
        }
    }

    /// What was read from the namespace of `node` at `now`, which no call before was later than. With `segment` above zero it is
    /// a train of TCP segments with so much payload each, the last maybe with less, under one header.
    pub(crate) fn handle_frame(&mut self, now: Time, node: u32, frame: &[u8], segment: u16) {
        if let Some((link, packet)) = self.admit(now, node, frame, segment) {
            let handle = self.buffers.alloc(packet, frame.len());
            self.buffers.bytes_mut(handle).copy_from_slice(frame);
            self.offer(now, link, handle);
        }
    }

    /// The same for a long frame, in what [`spare`](Mesh::spare) gave: it stays where it was read to.
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

    /// Whether and as what a frame goes over which link.
    fn admit(&mut self, now: Time, node: u32, frame: &[u8], segment: u16) -> Option<(u32, Packet)> {
        self.handle_timeout(now);
        let packet = frame.get(self.prefix..).unwrap_or_default();
        let header = match ip::parse(packet) {
            Ok(header) => header,
            Err(Malformed::NotIpv4) => {
                self.strays.not_ipv4 += 1;
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
        // On the wire each segment has a header.
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
            && let Some((_, forward)) = ip::xcp_option(packet, &header)
        {
            flags.set(Flags::TOLLED);
            toll = forward.toll(size, FEEDBACK);
            self.buffers.set_encoding(flow, Encoding::TcpOption { feedback: FEEDBACK });
        }
        let packet = Packet {
            toll,
            flow,
            size: size.min(u32::from(u16::MAX)) as u16,
            flags,
            sent: Stamp::at(now),
            // The engine's own fields: nobody else reads them here.
            seq: segments,
            ack: u32::from(header.payload()),
            ..Packet::default()
        };
        Some((link, packet))
    }

    /// Everything that is due by `now`. What happens to links comes before the packets of its instant.
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

    /// Changes a link at `now`, which no call before was later than; a number that no link has changes nothing.
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
        // What was due may be due at another time now.
        self.hops[change.link as usize].armed = Time::NEVER;
        self.arm(change.link);
    }

    /// When [`handle_timeout`](Mesh::handle_timeout) has something to do next.
    pub(crate) fn poll_timeout(&self) -> Time {
        let change = self.changes.front().map_or(Time::NEVER, |change| change.at);
        self.timers.peek().map_or(Time::NEVER, |next| next.0.0).min(change)
    }

    /// The next packet that has arrived; to be handed to [`release`](Mesh::release) once its bytes are out.
    pub(crate) fn poll_delivery(&mut self) -> Option<Delivery> {
        self.arrived.pop_front()
    }

    /// The bytes of a packet that has arrived, its marks written.
    pub(crate) fn frame(&self, delivery: Delivery) -> &[u8] {
        self.buffers.bytes(delivery.handle)
    }

    /// The packet is out, or, with `taken` false, the kernel did not take it.
    pub(crate) fn release(&mut self, delivery: Delivery, taken: bool) {
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

    /// What a link has done.
    pub(crate) fn read_link(&mut self, now: Time, link: usize) -> LinkStats {
        self.hops[link].link.read_stats(now, &mut self.buffers)
    }

    /// How long packets waited at a link's port, and how many are on the link now.
    pub(crate) fn waits(&self, link: usize) -> (Lateness, u64) {
        let link = &self.hops[link].link;
        let held = link.held().map(|handle| u64::from(self.buffers.get(handle).seq)).sum();
        (link.waits().cloned().unwrap_or_default(), held)
    }

    /// How long packets waited at a link's port together, and how many did.
    pub(crate) fn waited(&self, link: usize) -> (Time, u64) {
        self.hops[link].link.waits().map_or((Time::ZERO, 0), |waits| (waits.total(), waits.count()))
    }

    /// How a link is set now.
    pub(crate) fn setting(&self, link: usize) -> Setting {
        self.hops[link].setting
    }

    /// From when on a link had which rate, if it was changed.
    pub(crate) fn rates(&self, link: usize) -> &[(Time, Rate)] {
        &self.hops[link].rates
    }

    /// Every flow, what is still on its way left out.
    pub(crate) fn records(&self) -> &[FlowRecord] {
        &self.flows
    }

    /// The number of a flow among all.
    pub(crate) fn number_of(&self, tuple: &FiveTuple) -> Option<u32> {
        self.known.get(tuple).copied()
    }

    /// Every flow, in the order of their first packets, as things stand.
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
    fn reaches(&self, address: Ipv4Addr) -> Option<u32> {
        let abroad = self.outside.filter(|_| !is_inside(address) && !address.is_multicast());
        node_of(address, self.nodes).or(abroad.filter(|_| !address.is_broadcast()))
    }

    fn flow(&mut self, now: Time, from: u32, to: u32, tuple: FiveTuple) -> u32 {
        let answers = self.known.contains_key(&tuple.back());
        let (flows, buffers) = (&mut self.flows, &mut self.buffers);
        *self.known.entry(tuple).or_insert_with(|| {
            // Both ways of a connection are of the host that opened it.
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

    /// Takes what has reached the far end of a link to its next one, or out.
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
            if packet.flags.has(Flags::CE) {
                let prefix = self.prefix;
                let bytes = &mut self.buffers.bytes_mut(handle)[prefix..];
                if bytes[1] & 3 != 3 {
                    ip::mark(bytes);
                    self.flows[packet.flow as usize].marks += u64::from(packet.seq);
                }
            }
            if packet.flags.has(Flags::TOLLED) {
                self.store_toll(handle, &packet);
            }
            self.arrived.push_back(Delivery { at, node, handle });
        }
        self.arm(link);
    }

    /// Writes what links said into the packet's option.
    fn store_toll(&mut self, handle: u32, packet: &Packet) {
        let frame = self.buffers.bytes_mut(handle);
        let unfinished = self.prefix > 0 && tun::is_unfinished(frame);
        let bytes = &mut frame[self.prefix..];
        let found = ip::parse(bytes).ok().and_then(|header| ip::xcp_option(bytes, &header));
        if let Some((at, forward)) = found {
            let size = u32::from(packet.size);
            let feedback = tcp_option::encode_due(packet.toll.due, forward.rtt_ms, size, FEEDBACK);
            ip::store_feedback(bytes, at, feedback, unfinished);
        }
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

/// The probability that any of them takes a packet that all are meant for.
fn together(losses: &[Loss]) -> f64 {
    1.0 - losses.iter().map(|loss| 1.0 - loss.probability).product::<f64>()
}

/// How XCP's senders write their feedback.
const FEEDBACK: Feedback = Feedback::Split;

#[cfg(test)]
pub(super) mod tests;
