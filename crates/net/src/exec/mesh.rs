//! Emulated links that foreign IP packets cross: a machine without I/O.
//!
//! A packet comes from a node's network namespace, is carried over the links of its way, each at its virtual instants, and goes
//! to the namespace of its destination. From link to link it passes at the very instant at which it arrives; only the last
//! step, out to the kernel again, can be late.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::Ipv4Addr;

use tollway_law::link::AnyLink;
use tollway_law::{Rate, Time, Toll};
use tollway_proto::encoding::tcp_option::{self, Feedback};
use tollway_proto::port::Limit;
use tollway_proto::{Encoding, Flags, Packet, Stamp};

use super::ip::{self, FiveTuple, Malformed};
use super::tun;
use crate::buffers::Buffers;
use crate::emulator::{Link, LinkSpec, LinkStats, Loss};
use crate::lateness::Lateness;

/// What a network for foreign packets is made of.
#[derive(Clone, Debug)]
pub struct MeshSpec {
    /// The names of nodes.
    pub nodes: Vec<String>,
    /// Every direction of every link.
    pub links: Vec<LinkSpec>,
    /// What is lost at random on each of them.
    pub losses: Vec<Vec<Loss>>,
    /// What happens to links on the way, by time.
    pub changes: Vec<Change>,
    /// By node and destination, the link that leads there: `next[node * nodes + destination]`.
    pub next: Vec<Option<u32>>,
    /// What chance is drawn from.
    pub seed: u64,
}

/// Something that happens to a link.
#[derive(Clone, Debug)]
pub struct Change {
    /// When, counted from the run's beginning.
    pub at: Time,
    /// To which.
    pub link: u32,
    /// What.
    pub what: LinkChange,
}

/// What happens to a link.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkChange {
    /// Another rate.
    Rate(Rate),
    /// Another delay, for packets that leave from then on.
    Delay(Time),
    /// Its law is told another capacity.
    Capacity(Rate),
    /// Its queue has another limit.
    Limit(Limit),
    /// Whether everything that comes is lost.
    Blackout(bool),
    /// What is lost at random.
    Losses(Vec<Loss>),
    /// Its law is wrong by this part of its price.
    PriceError(f64),
}

/// The address of a node in every network that programs run over: 10.77.0.1 is the first.
pub fn address(node: u32) -> Ipv4Addr {
    let number = node + 1;
    Ipv4Addr::new(10, 77, (number >> 8) as u8, number as u8)
}

/// The node of an address, if it is one of `nodes`.
fn node_of(address: Ipv4Addr, nodes: u32) -> Option<u32> {
    let [10, 77, high, low] = address.octets() else { return None };
    let number = u32::from(high) << 8 | u32::from(low);
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
    next: Vec<Option<u32>>,
    /// What is still to happen, by time.
    changes: VecDeque<Change>,
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
}

impl Mesh {
    /// Length of the intervals in which rates are kept.
    pub const INTERVAL: Time = Time::from_millis(100);

    /// A network at rest; each packet has `prefix` bytes in front that pass unread.
    pub(crate) fn new(spec: &MeshSpec, prefix: usize) -> Mesh {
        let hop = |(i, link): (usize, &LinkSpec)| {
            // A stream of chance of its own for each link.
            let seed = spec.seed ^ (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut emulated = Link::new(link, seed);
            emulated.note_waits();
            if let Some(losses) = spec.losses.get(i) {
                emulated.set_losses(losses.clone());
            }
            Hop { link: emulated, to: link.to, armed: Time::NEVER }
        };
        Mesh {
            hops: spec.links.iter().enumerate().map(hop).collect(),
            nodes: spec.nodes.len() as u32,
            next: spec.next.clone(),
            changes: spec.changes.clone().into(),
            timers: BinaryHeap::new(),
            buffers: Buffers::default(),
            flows: Vec::new(),
            known: HashMap::new(),
            arrived: VecDeque::new(),
            strays: Strays::default(),
            prefix,
            explicit: spec.links.iter().any(|link| link.law.xcp().is_some()),
        }
    }

    /// What was read from the namespace of `node` at `now`, which no call before was later than. With `segment` above zero it is
    /// a train of TCP segments with so much payload each, the last maybe with less, under one header.
    pub(crate) fn handle_frame(&mut self, now: Time, node: u32, frame: &[u8], segment: u16) {
        self.handle_timeout(now);
        let packet = frame.get(self.prefix..).unwrap_or_default();
        let header = match ip::parse(packet) {
            Ok(header) => header,
            Err(Malformed::NotIpv4) => {
                self.strays.not_ipv4 += 1;
                return;
            }
            Err(Malformed::Truncated) => {
                self.strays.malformed += 1;
                return;
            }
        };
        let to = node_of(header.flow.destination, self.nodes);
        let Some(to) = to.filter(|_| header.flow.source == address(node)) else {
            self.strays.no_such_address += 1;
            return;
        };
        let Some(link) = self.next[(node * self.nodes + to) as usize] else {
            self.strays.no_route += 1;
            return;
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
        let handle = self.buffers.alloc(
            Packet {
                toll,
                flow,
                size: size.min(u32::from(u16::MAX)) as u16,
                flags,
                sent: Stamp::at(now),
                // The engine's own fields: nobody else reads them here.
                seq: segments,
                ack: u32::from(header.payload()),
                ..Packet::default()
            },
            frame.len(),
        );
        self.buffers.bytes_mut(handle).copy_from_slice(frame);
        self.offer(now, link, handle);
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

    fn change(&mut self, change: Change) {
        let (now, buffers) = (change.at, &mut self.buffers);
        let link = &mut self.hops[change.link as usize].link;
        match change.what {
            LinkChange::Rate(rate) => link.set_rate(now, rate, buffers),
            LinkChange::Delay(delay) => link.set_delay(now, delay, buffers),
            LinkChange::Capacity(capacity) => link.set_capacity(now, capacity, buffers),
            LinkChange::Limit(limit) => link.set_limit(now, limit, buffers),
            LinkChange::Blackout(on) => link.set_blackout(on),
            LinkChange::Losses(losses) => link.set_losses(losses),
            LinkChange::PriceError(error) => {
                link.catch_up(now, buffers);
                if let AnyLink::Fcp(router) = &mut link.port.law {
                    router.set_price_error(error);
                }
            }
        }
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
        let held = link.in_flight() + u64::from(link.port.packets());
        (link.waits().cloned().unwrap_or_default(), held)
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

    fn flow(&mut self, now: Time, from: u32, to: u32, tuple: FiveTuple) -> u32 {
        let flows = &mut self.flows;
        *self.known.entry(tuple).or_insert_with(|| {
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
        self.hops[link as usize].link.offer(now, handle, &mut self.buffers);
        self.arm(link);
    }

    /// Takes what has reached the far end of a link to its next one, or out.
    fn arrive(&mut self, now: Time, link: u32) {
        while let Some((at, handle)) = self.hops[link as usize].link.arrive(now, &mut self.buffers) {
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

/// How XCP's senders write their feedback.
const FEEDBACK: Feedback = Feedback::Split;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::{DropTail, StepConfig, XcpConfig};
    use tollway_proto::encoding::tcp_option::Forward;
    use tollway_proto::port::Queues;

    use super::super::ip::tests::{packet, xcp_segment};
    use super::*;

    fn link(from: u32, to: u32, delay: u64) -> LinkSpec {
        LinkSpec {
            from,
            to,
            rate: Rate::from_mbps(8.0),
            trace: None,
            delay: Time::from_millis(delay),
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit: Limit { packets: 3, bytes: u64::MAX },
            queues: Queues::One,
        }
    }

    /// Three nodes in a row, 8 Mb/s and 5 and 10 ms apart.
    fn row() -> MeshSpec {
        MeshSpec {
            nodes: ["a", "r", "b"].map(String::from).to_vec(),
            links: vec![link(0, 1, 5), link(1, 2, 10), link(2, 1, 10), link(1, 0, 5)],
            losses: Vec::new(),
            changes: Vec::new(),
            next: vec![None, Some(0), Some(0), Some(3), None, Some(1), Some(2), Some(2), None],
            seed: 1,
        }
    }

    fn from_to(from: u32, to: u32, payload: usize) -> Vec<u8> {
        packet(address(from).octets(), address(to).octets(), 17, 2, payload)
    }

    fn deliveries(mesh: &mut Mesh, until: Time) -> Vec<(f64, u32)> {
        mesh.handle_timeout(until);
        std::iter::from_fn(|| {
            let delivery = mesh.poll_delivery()?;
            mesh.release(delivery, true);
            Some((delivery.at.as_millis_f64(), delivery.node))
        })
        .collect()
    }

    #[test]
    fn packets_cross_hop_by_hop_at_virtual_instants() {
        let mut mesh = Mesh::new(&row(), 0);
        // 1000 bytes take 1 ms on each link; the second one waits for the first.
        mesh.handle_frame(Time::from_millis(1), 0, &from_to(0, 2, 972), 0);
        mesh.handle_frame(Time::from_millis(1), 0, &from_to(0, 2, 972), 0);
        mesh.handle_frame(Time::from_millis(1), 0, &from_to(0, 1, 472), 0);
        let seen = deliveries(&mut mesh, Time::from_secs(1));
        assert_eq!(seen, [(8.5, 1), (18.0, 2), (19.0, 2)]);
        let flow = &mesh.flows()[0];
        assert_eq!(
            (flow.packets, flow.delivered, flow.delivered_bytes, flow.payload_bytes),
            (2, 2, 2000, 1944)
        );
        assert_eq!(
            (flow.delay_min, flow.delay_max),
            (Time(17_000_000 >> 6 << 6), Time(18_000_000 >> 6 << 6))
        );
        assert_eq!(mesh.buffers.alive(), 0);
    }

    #[test]
    fn what_happens_to_links_happens_at_its_instant() {
        let mut spec = row();
        let change = |at, what| Change { at: Time::from_millis(at), link: 0, what };
        spec.changes = vec![
            // Half of the packet in transmission is still to go, at half the rate.
            change(1, LinkChange::Rate(Rate::from_mbps(4.0))),
            change(10, LinkChange::Delay(Time::from_millis(1))),
            change(20, LinkChange::Blackout(true)),
            change(30, LinkChange::Blackout(false)),
        ];
        let mut mesh = Mesh::new(&spec, 0);
        assert_eq!(mesh.poll_timeout(), Time::from_millis(1));
        for sent in [0.5, 10.0, 25.0, 31.0] {
            mesh.handle_frame(Time::from_secs_f64(sent * 1e-3), 0, &from_to(0, 1, 972), 0);
        }
        let seen = deliveries(&mut mesh, Time::from_secs(1));
        assert_eq!(seen, [(7.0, 1), (13.0, 1), (34.0, 1)]);
        assert_eq!(
            (mesh.read_link(Time::from_secs(1), 0).lost_before, mesh.poll_timeout()),
            (1, Time::NEVER)
        );
    }

    #[test]
    fn what_cannot_be_carried_is_counted_by_why() {
        let mut spec = row();
        spec.next[2] = None;
        let mut mesh = Mesh::new(&spec, 4);
        let framed = |bytes: Vec<u8>| [vec![0; 4], bytes].concat();
        mesh.handle_frame(Time(1), 0, &framed(from_to(0, 2, 10)), 0);
        mesh.handle_frame(Time(1), 0, &framed(from_to(0, 3, 10)), 0);
        mesh.handle_frame(Time(1), 0, &framed(from_to(1, 2, 10)), 0);
        mesh.handle_frame(Time(1), 0, &framed(vec![0x60; 40]), 0);
        mesh.handle_frame(Time(1), 0, &[0; 3], 0);
        let strays = Strays { not_ipv4: 1, malformed: 1, no_such_address: 2, no_route: 1 };
        assert_eq!(mesh.strays(), strays);
        assert_eq!(mesh.poll_timeout(), Time::NEVER);
    }

    #[test]
    fn a_mark_is_written_into_the_packet() {
        let mut spec = row();
        spec.links[0].law =
            AnyLink::Step(Box::new(StepConfig { threshold: 1.0, ..Default::default() }.build()));
        let mut mesh = Mesh::new(&spec, 0);
        for _ in 0..4 {
            mesh.handle_frame(Time::from_millis(1), 0, &from_to(0, 1, 972), 0);
        }
        mesh.handle_timeout(Time::from_secs(1));
        let mut marked = 0;
        while let Some(delivery) = mesh.poll_delivery() {
            marked += u32::from(ip::parse(mesh.frame(delivery)).unwrap().ecn == Flags::CE);
            mesh.release(delivery, true);
        }
        assert!(marked > 0);
        assert_eq!(mesh.flows()[0].marks, u64::from(marked));
    }

    #[test]
    fn an_xcp_link_answers_packets_that_carry_its_header_and_no_others() {
        let mut spec = row();
        spec.links[0].law = XcpConfig::default().build(Rate::from_mbps(8.0));
        spec.links[0].limit = Limit { packets: 1000, bytes: u64::MAX };
        let mut mesh = Mesh::new(&spec, 0);
        let asks = Forward { feedback: Feedback::Split.encode(50.0), rtt_ms: 40, cwnd: 10 };
        let (a, b) = (address(0).octets(), address(1).octets());
        let mut got = Vec::new();
        // Half as much again as the link carries, for most of a second: there is nothing to give.
        for i in 0..10_000u64 {
            let now = Time::from_micros(76 * i);
            let bytes = if i % 2 == 0 { xcp_segment(a, b, 0, asks) } else { packet(a, b, 17, 0, 40) };
            mesh.handle_frame(now, 0, &bytes, 0);
            while let Some(delivery) = mesh.poll_delivery() {
                let bytes = mesh.frame(delivery);
                let header = ip::parse(bytes).unwrap();
                got.extend(
                    ip::xcp_option(bytes, &header).map(|found| Feedback::Split.decode(found.1.feedback)),
                );
                mesh.release(delivery, true);
            }
        }
        assert!(got.len() > 500, "{}", got.len());
        assert!(got[400..].iter().all(|&feedback| feedback < 1.0), "{:?}", &got[400..410]);
    }

    proptest! {
        #[test]
        fn every_packet_is_somewhere(
            sent in prop::collection::vec((0u64..3_000, 0u32..3, 0u32..3, 0usize..1400), 1..200),
            loss in 0.0..0.5f64,
        ) {
            let mut spec = row();
            let random = Loss { before: false, only: crate::Only::All, probability: loss };
            spec.losses = vec![vec![random]; 4];
            let mut mesh = Mesh::new(&spec, 0);
            let mut now = Time::ZERO;
            let mut delivered = 0;
            for (gap, from, to, payload) in sent {
                now += Time(gap * 1000);
                mesh.handle_frame(now, from, &from_to(from, to, payload), 0);
                delivered += deliveries(&mut mesh, now).len() as u64;
            }
            let entered: u64 = mesh.flows().iter().map(|flow| flow.packets).sum();
            let dropped: u64 = (0..4)
                .map(|link| {
                    let stats = mesh.read_link(now, link);
                    stats.full + stats.dropped + stats.lost_before + stats.lost_after
                })
                .sum();
            let held: u64 = (0..4).map(|link| mesh.waits(link).1).sum();
            prop_assert_eq!(entered, delivered + dropped + held);
            prop_assert_eq!(mesh.buffers.alive(), held);
            prop_assert_eq!(held, mesh.flows().iter().map(|flow| flow.in_flight).sum::<u64>());
            prop_assert_eq!(delivered, mesh.flows().iter().map(|flow| flow.delivered).sum::<u64>());
        }
    }
}
