//! One direction of an emulated link: port, transmitter, wire.
//!
//! It works in virtual instants: a packet's departure and its arrival at the far end follow from when it came and
//! from the link's rate and delay, to the nanosecond, and the law sees the departure at that instant. What cannot be
//! exact is when the datagram is really sent on; by how much that is late the [driver](crate::network) measures.

use std::collections::VecDeque;

use tollway_law::link::{AnyLink, LinkLaw};
use tollway_law::{Rate, Time};
use tollway_proto::faults::{Faults, Place};
use tollway_proto::port::{AnyQueue, ControlInterval, ControlLog, Limit, Offered};
use tollway_proto::trace::{Cursor, Trace};
use tollway_proto::{Change, Packet, Port, Wire};

use crate::buffers::Buffers;
use crate::lateness::Lateness;

/// What a link direction is made of.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// The node whose output port this is, by its index.
    pub from: u32,
    /// The node at the far end.
    pub to: u32,
    /// Bits on the wire a second, framing included.
    pub rate: Rate,
    /// When it may send, instead of at `rate`.
    pub trace: Option<Trace>,
    /// One-way propagation delay.
    pub delay: Time,
    /// Framing bytes added to each packet on this wire.
    pub overhead: u32,
    /// What the port says to passing packets.
    pub law: AnyLink,
    /// What the port's queue holds.
    pub limit: Limit,
    /// The port's queue.
    pub queue: AnyQueue<AnyLink, u32>,
}

/// What a link direction did since the run's start; queue figures since they were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets whose transmission began.
    pub sent_packets: u64,
    /// Their bytes, framing included.
    pub sent_bytes: u64,
    /// Nanoseconds the transmitter was busy.
    pub busy_ns: u64,
    /// Packets that found the queue full.
    pub full: u64,
    /// Packets that the law dropped.
    pub dropped: u64,
    /// Packets lost before the queue, by chance or in a blackout.
    pub lost_before: u64,
    /// Packets lost on the wire.
    pub lost_after: u64,
    /// Packets that a meter at the far end dropped.
    pub metered: u64,
    /// Packets marked.
    pub marks: u64,
    /// Bytes waiting, integrated over time (bytes · ns), since last read.
    pub queue_byte_ns: u128,
    /// Packets waiting, integrated over time (packets · ns), since last read.
    pub queue_packet_ns: u128,
    /// Most bytes waiting since last read.
    pub queue_max_bytes: u64,
    /// Most packets waiting since last read.
    pub queue_max_packets: u32,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) port: Port<AnyLink, u32>,
    /// When the transmitter is free.
    free_at: Time,
    /// Nanoseconds a byte, in units of 2^-24, and what the last transmission left over: the long-run rate is exact.
    ns_per_byte: u64,
    carry: u64,
    delay: Time,
    overhead: u32,
    /// Packets in the transmitter or on the wire, by arrival at the far end.
    wire: VecDeque<(Time, u32)>,
    faults: Faults,
    /// It awaits its turn on a medium, of which somebody else takes care.
    shared: bool,
    /// A packet may be a train of segments, as many as its number says.
    trains: bool,
    control: Option<ControlLog>,
    /// What it replays instead of having a rate.
    trace: Option<Cursor>,
    /// How long packets waited until their transmission began, if somebody wants to know.
    waits: Option<Lateness>,
    queue_since: Time,
    /// What [`Link::read_stats`] last said of the transmitter.
    told_busy_ns: u64,
    stats: LinkStats,
}

/// How fast a link is, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    ns_per_byte: u64,
    overhead: u32,
    delay: Time,
}

impl Pace {
    /// The times of a packet of `size` bytes on the wire.
    pub(crate) fn wire(self, size: u16) -> Wire {
        let bytes = u64::from(size) + u64::from(self.overhead);
        Wire { time: Time((bytes * self.ns_per_byte) >> FRACTION_BITS), delay: self.delay }
    }
}

impl Link {
    pub(crate) fn new(spec: &LinkSpec, faults: Faults) -> Link {
        Link {
            port: Port::new(spec.law.clone(), spec.limit, spec.queue.clone()),
            free_at: Time::ZERO,
            ns_per_byte: spec.rate.ns_per_byte_fixed(),
            carry: 0,
            delay: spec.delay,
            overhead: spec.overhead,
            wire: VecDeque::new(),
            faults,
            shared: false,
            trains: false,
            control: None,
            trace: spec.trace.clone().map(Cursor::new),
            waits: None,
            queue_since: Time::ZERO,
            told_busy_ns: 0,
            stats: LinkStats::default(),
        }
    }

    /// When the next packet is due at the far end. A link at rest with a queue is never found: its next departure is.
    pub(crate) fn next_arrival(&self) -> Time {
        self.wire.front().map_or(Time::NEVER, |front| front.0)
    }

    /// A packet that is due at the far end by `now`, and when it was; its toll is final.
    pub(crate) fn arrive(&mut self, now: Time, buffers: &mut Buffers) -> Option<(Time, u32)> {
        loop {
            let (at, handle) = self.come_off(now, buffers)?;
            if !self.is_lost(handle, buffers) {
                return Some((at, handle));
            }
        }
    }

    /// The next packet whose last bit is due at the far end by `now`; whether it is a packet still, [`Link::is_lost`] says.
    pub(crate) fn come_off(&mut self, now: Time, buffers: &mut Buffers) -> Option<(Time, u32)> {
        if self.next_arrival() > now {
            return None;
        }
        let arrival = self.wire.pop_front()?;
        if self.wire.is_empty() {
            self.catch_up(now, buffers);
        }
        Some(arrival)
    }

    /// Whether chance has taken a packet on the wire; it is gone then.
    pub(crate) fn is_lost(&mut self, handle: u32, buffers: &mut Buffers) -> bool {
        let lost = self.faults.strike(Place::After, buffers.get(handle));
        if lost {
            self.stats.lost_after += count(self.trains, buffers.get(handle));
            buffers.free(handle);
        }
        lost
    }

    /// The times of a packet of `size` bytes on the wire.
    pub(crate) fn wire(&self, size: u16) -> Wire {
        self.pace().wire(size)
    }

    pub(crate) fn pace(&self) -> Pace {
        Pace { ns_per_byte: self.ns_per_byte, overhead: self.overhead, delay: self.delay }
    }

    /// A meter at the far end has dropped a packet.
    pub(crate) fn note_metered(&mut self) {
        self.stats.metered += 1;
    }

    /// From now on packets may be trains of segments, as many as a packet's number says, and figures are of segments: framing and counts.
    #[cfg(target_os = "linux")]
    pub(crate) fn carry_trains(&mut self) {
        self.trains = true;
    }

    /// From now on somebody else says when it may [`transmit`](Link::transmit).
    pub(crate) fn share(&mut self) {
        self.shared = true;
    }

    /// When what is being transmitted will have been.
    pub(crate) fn free_at(&self) -> Time {
        self.free_at
    }

    /// Runs the departures up to and including `now`, each at its own instant.
    pub(crate) fn catch_up(&mut self, now: Time, buffers: &mut Buffers) {
        while !self.shared && self.free_at <= now && self.port.packets() > 0 {
            if !self.transmit(self.free_at, buffers) {
                return;
            }
        }
    }

    /// Takes the next packet from the queue and puts it on the wire at `start`, when the transmitter is free. Answers whether there was
    /// one.
    pub(crate) fn transmit(&mut self, start: Time, buffers: &mut Buffers) -> bool {
        self.note_queue(start);
        let (trains, dropped) = (self.trains, &mut self.stats.dropped);
        let taken = self.port.dequeue(start, buffers, |buffers, handle| {
            *dropped += count(trains, buffers.get(handle));
            buffers.free(handle);
        });
        let Some((handle, marked)) = taken else { return false };
        let packet = buffers.get(handle);
        let segments = count(self.trains, packet);
        self.stats.marks += if marked { segments } else { 0 };
        if let Some(waits) = &mut self.waits {
            waits.note(packet.entered.elapsed(start), segments);
        }
        self.depart(start, handle, false, buffers);
        true
    }

    /// Puts a packet on the wire at `start`; `idle` if nothing had waited until it came.
    fn depart(&mut self, start: Time, handle: u32, idle: bool, buffers: &mut Buffers) {
        if let Some(log) = &mut self.control {
            log.note(&self.port.law, buffers.get(handle));
        }
        buffers.quantise_link(handle);
        let packet = buffers.get(handle);
        let segments = count(self.trains, packet);
        let bytes = u64::from(packet.size) + u64::from(self.overhead) * segments;
        let span = match &mut self.trace {
            Some(cursor) => {
                if idle {
                    cursor.forgo(start);
                }
                cursor.deliver(bytes).saturating_sub(start)
            }
            None => {
                let scaled = bytes * self.ns_per_byte + self.carry;
                self.carry = scaled & ((1 << FRACTION_BITS) - 1);
                Time(scaled >> FRACTION_BITS)
            }
        };
        self.free_at = start + span;
        self.stats.sent_packets += segments;
        self.stats.sent_bytes += bytes;
        self.stats.busy_ns += span.0;
        // A wire keeps order: if the delay has shrunk, later packets don't overtake.
        let at = self.free_at + self.delay;
        let last = self.wire.back().map_or(at, |last| last.0);
        self.wire.push_back((at.max(last), handle));
    }

    /// A packet arrives at the port.
    pub(crate) fn offer(&mut self, now: Time, handle: u32, buffers: &mut Buffers) {
        let segments = count(self.trains, buffers.get(handle));
        if self.faults.strike(Place::Before, buffers.get(handle)) {
            self.stats.lost_before += segments;
            buffers.free(handle);
            return;
        }
        self.catch_up(now, buffers);
        let idle = self.free_at <= now && !self.shared;
        if idle {
            // It has asked in vain since it is free.
            self.port.dequeue(now, buffers, |_, _| {});
        }
        self.note_queue(now);
        let (trains, full) = (self.trains, &mut self.stats.full);
        let offered = self.port.enqueue(now, handle, buffers, |buffers, handle| {
            *full += count(trains, buffers.get(handle));
            buffers.free(handle);
        });
        let mut marked = offered == Offered::Marked;
        let refused = match offered {
            Offered::Queued | Offered::Marked if idle => {
                let taken = self.port.dequeue(now, buffers, |_, _| {});
                if let Some((handle, late)) = taken {
                    marked |= late;
                    if let Some(waits) = &mut self.waits {
                        waits.note(Time::ZERO, segments);
                    }
                    self.depart(now, handle, true, buffers);
                }
                taken.is_none().then_some(Offered::Dropped)
            }
            Offered::Queued | Offered::Marked => {
                self.stats.queue_max_bytes = self.stats.queue_max_bytes.max(self.port.bytes());
                self.stats.queue_max_packets = self.stats.queue_max_packets.max(self.port.packets());
                None
            }
            refused => Some(refused),
        };
        match refused {
            None => self.stats.marks += if marked { segments } else { 0 },
            Some(refused) => {
                let full = refused == Offered::Full;
                let drops = if full { &mut self.stats.full } else { &mut self.stats.dropped };
                *drops += segments;
                buffers.free(handle);
            }
        }
    }

    /// Adds to the integrals what waited up to `now`, before the queue changes.
    fn note_queue(&mut self, now: Time) {
        let span = u128::from(now.saturating_sub(self.queue_since).0);
        self.stats.queue_byte_ns += u128::from(self.port.bytes()) * span;
        self.stats.queue_packet_ns += u128::from(self.port.packets()) * span;
        self.queue_since = now;
    }

    /// The figures up to `now`; those of the queue start anew.
    pub(crate) fn read_stats(&mut self, now: Time, buffers: &mut Buffers) -> LinkStats {
        self.catch_up(now, buffers);
        self.note_queue(now);
        let mut stats = self.stats;
        // What the packet in transmission has still to go isn't done yet.
        // Whoever reads a moment late may ask for one before that packet began: what was told once stays told.
        let done = stats.busy_ns.saturating_sub(self.free_at.saturating_sub(now).0);
        stats.busy_ns = done.max(self.told_busy_ns);
        self.told_busy_ns = stats.busy_ns;
        self.stats.queue_byte_ns = 0;
        self.stats.queue_packet_ns = 0;
        self.stats.queue_max_bytes = self.port.bytes();
        self.stats.queue_max_packets = self.port.packets();
        stats
    }

    /// Packets in the transmitter or on the wire.
    pub(crate) fn in_flight(&self) -> u64 {
        self.wire.len() as u64
    }

    /// Every packet at the port, in the transmitter or on the wire.
    pub(crate) fn held(&self) -> impl Iterator<Item = u32> + '_ {
        self.port.queued().chain(self.wire.iter().map(|arrival| arrival.1))
    }

    /// Packets that have come off the wire, lost ones left out.
    #[cfg(target_os = "linux")]
    pub(crate) fn handed_on(&self) -> u64 {
        let LinkStats { sent_packets, lost_after, metered, .. } = self.stats;
        sent_packets - lost_after - metered - self.in_flight()
    }

    pub(crate) fn drops(&self) -> u64 {
        let LinkStats { full, dropped, lost_before, lost_after, metered, .. } = self.stats;
        full + dropped + lost_before + lost_after + metered
    }

    /// From now on how long packets wait is kept.
    pub(crate) fn note_waits(&mut self) {
        self.waits = Some(Lateness::default());
    }

    /// How long packets waited, those that did not among them.
    pub(crate) fn waits(&self) -> Option<&Lateness> {
        self.waits.as_ref()
    }

    pub(crate) fn log_control(&mut self) {
        if self.port.law.control().is_some() {
            self.control = Some(ControlLog::default());
        }
    }

    pub(crate) fn take_control(&mut self) -> Vec<ControlInterval> {
        self.control.as_mut().map_or(Vec::new(), ControlLog::take)
    }

    /// From `now` on bits leave at `rate`; what is left of the packet in transmission, too.
    fn set_rate(&mut self, now: Time, rate: Rate) {
        let before = std::mem::replace(&mut self.ns_per_byte, rate.ns_per_byte_fixed());
        if self.trace.take().is_some() {
            return; // What the trace has promised stays.
        }
        if self.free_at > now {
            let left = self.free_at.0 - now.0;
            let scaled = (u128::from(left) * u128::from(self.ns_per_byte) / u128::from(before)) as u64;
            self.free_at = now + Time(scaled);
            self.stats.busy_ns = self.stats.busy_ns - left + scaled;
            if let Some((_, handle)) = self.wire.pop_back() {
                let at = self.free_at + self.delay;
                let last = self.wire.back().map_or(at, |last| last.0);
                self.wire.push_back((at.max(last), handle));
            }
        }
    }

    /// Changes the link at `now`.
    pub(crate) fn change(&mut self, now: Time, change: Change, buffers: &mut Buffers) {
        self.catch_up(now, buffers);
        match change {
            Change::Rate(rate) => self.set_rate(now, rate),
            Change::Delay(delay) => self.delay = delay,
            Change::Capacity(capacity) => self.port.set_capacity(now, capacity),
            Change::Limit(limit) => self.port.set_limit(limit),
            Change::Losses(losses) => self.faults.losses = losses,
            Change::Blackout(on) => self.faults.blackout = on,
            Change::LawError(part) => self.port.law.set_error(part),
        }
    }
}

/// How many packets a packet stands for, where there may be `trains`.
fn count(trains: bool, packet: &Packet) -> u64 {
    if trains { u64::from(packet.seq) } else { 1 }
}

const FRACTION_BITS: u32 = Rate::FRACTION_BITS;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::DropTail;

    use tollway_proto::Flags;
    use tollway_proto::faults::{Loss, Only};

    use super::*;

    fn link(limit: u32) -> (Link, Buffers) {
        let spec = LinkSpec {
            from: 0,
            to: 1,
            rate: Rate::from_mbps(8.0),
            trace: None,
            delay: Time::from_millis(5),
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit: Limit { packets: limit, bytes: u64::MAX },
            queue: Default::default(),
        };
        (Link::new(&spec, Faults::new(7, 0)), Buffers::default())
    }

    fn offer(link: &mut Link, buffers: &mut Buffers, now: Time, size: u16) {
        let handle =
            buffers.alloc(Packet { size, flags: Flags::DATA, ..Packet::default() }, usize::from(size));
        link.offer(now, handle, buffers);
    }

    #[test]
    fn packets_arrive_at_the_instants_that_rate_and_delay_give() {
        let (mut link, mut buffers) = link(2);
        for _ in 0..4 {
            offer(&mut link, &mut buffers, Time::from_millis(1), 1000);
        }
        // 1000 bytes take 1 ms; one in transmission, two queued, one too many.
        let arrivals: Vec<_> = std::iter::from_fn(|| link.arrive(Time::from_secs(1), &mut buffers)).collect();
        let at: Vec<f64> = arrivals.iter().map(|arrival| arrival.0.as_millis_f64()).collect();
        assert_eq!(at, [7.0, 8.0, 9.0]);
        let stats = link.read_stats(Time::from_millis(9), &mut buffers);
        assert_eq!((stats.full, stats.sent_packets, stats.busy_ns), (1, 3, 3_000_000));
        // Two waited 1 ms, then one another.
        assert_eq!(stats.queue_packet_ns, 3_000_000);
        arrivals.iter().for_each(|arrival| buffers.free(arrival.1));
        assert_eq!(buffers.alive(), 0);
    }

    #[test]
    fn a_transmitter_read_late_is_never_less_busy_than_it_was() {
        let (mut link, mut buffers) = link(2);
        // 1 ms each, from 1 and from 10 ms on; read in between, when the second is there already.
        offer(&mut link, &mut buffers, Time::from_millis(1), 1000);
        let busy = |link: &mut Link, buffers: &mut Buffers, ms| {
            link.read_stats(Time::from_millis(ms), buffers).busy_ns
        };
        assert_eq!(busy(&mut link, &mut buffers, 0), 0);
        assert_eq!(busy(&mut link, &mut buffers, 3), 1_000_000);
        offer(&mut link, &mut buffers, Time::from_millis(10), 1000);
        assert_eq!(busy(&mut link, &mut buffers, 5), 1_000_000);
        assert_eq!(busy(&mut link, &mut buffers, 12), 2_000_000);
        while let Some(arrival) = link.arrive(Time::from_secs(1), &mut buffers) {
            buffers.free(arrival.1);
        }
    }

    #[test]
    fn a_trace_delivers_when_it_says() {
        let (mut link, mut buffers) = link(10);
        link.trace = Trace::new(&[2, 4, 4, 10]).ok().map(Cursor::new);
        for _ in 0..4 {
            offer(&mut link, &mut buffers, Time::from_millis(1), 1500);
        }
        // An opportunity each, and 5 ms of way; the fifth is the first of the next period.
        offer(&mut link, &mut buffers, Time::from_millis(11), 100);
        let arrivals: Vec<_> = std::iter::from_fn(|| link.arrive(Time::from_secs(1), &mut buffers)).collect();
        let at: Vec<f64> = arrivals.iter().map(|arrival| arrival.0.as_millis_f64()).collect();
        assert_eq!(at, [7.0, 9.0, 9.0, 15.0, 17.0]);
        arrivals.iter().for_each(|arrival| buffers.free(arrival.1));
    }

    #[test]
    fn a_blackout_takes_everything_and_losses_what_they_are_meant_for() {
        let (mut link, mut buffers) = link(100);
        link.faults.blackout = true;
        offer(&mut link, &mut buffers, Time(1), 1000);
        link.faults.blackout = false;
        link.faults.losses = vec![Loss { place: Place::After, only: Only::Data, probability: 1.0 }];
        offer(&mut link, &mut buffers, Time(2), 1000);
        assert_eq!(link.arrive(Time::from_secs(1), &mut buffers), None);
        let stats = link.read_stats(Time::from_secs(1), &mut buffers);
        assert_eq!((stats.lost_before, stats.lost_after, buffers.alive()), (1, 1, 0));
    }

    proptest! {
        /// However late a link is looked at, packets leave in order at the same instants, and none is lost or doubled.
        #[test]
        fn lateness_changes_no_instant(
            sizes in prop::collection::vec((40u16..1500, 0u64..3_000_000), 1..60),
            looks in prop::collection::vec(0u64..20_000_000, 1..20),
        ) {
            let (mut punctual, mut a) = link(1000);
            let (mut late, mut b) = link(1000);
            let (mut now, mut seen, mut late_seen) = (Time::ZERO, Vec::new(), Vec::new());
            for &(size, gap) in &sizes {
                now += Time(gap);
                while punctual.next_arrival() <= now {
                    let at = punctual.next_arrival();
                    seen.extend(punctual.arrive(at, &mut a).map(|arrival| arrival.0));
                }
                offer(&mut punctual, &mut a, now, size);
                offer(&mut late, &mut b, now, size);
            }
            for look in looks {
                now += Time(look);
                late_seen.extend(std::iter::from_fn(|| late.arrive(now, &mut b)).map(|arrival| arrival.0));
            }
            let end = now + Time::from_secs(10);
            seen.extend(std::iter::from_fn(|| punctual.arrive(end, &mut a)).map(|arrival| arrival.0));
            late_seen.extend(std::iter::from_fn(|| late.arrive(end, &mut b)).map(|arrival| arrival.0));
            prop_assert_eq!(seen.len(), sizes.len());
            prop_assert_eq!(seen, late_seen);
        }
    }
}
