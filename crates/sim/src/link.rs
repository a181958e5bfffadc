//! One direction of a link: port, transmitter, wire.

mod faults;

use tollway_law::link::{AnyLink, LinkLaw};
use tollway_law::{Rate, Time};
use tollway_proto::faults::Place;
use tollway_proto::port::{AnyQueue, ControlLog, Limit, Offered};
use tollway_proto::trace::{Cursor, Trace};
use tollway_proto::{Change, Faults, Fifo, Gate, Packet, Port};

use crate::network::MachineId;
use crate::slab::Slab;

pub(crate) use faults::Trouble;

/// Names one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// What a link direction is made of.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Bits on the wire a second, framing included.
    pub rate: Rate,
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

/// Packets lost on a link direction, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// The queue was full.
    pub full: u64,
    /// The law wanted it.
    pub law: u64,
    /// Random loss or blackout before the queue.
    pub before: u64,
    /// Random loss on the wire.
    pub after: u64,
    /// The meter at the far end: over the allotment of a flow that is held.
    pub meter: u64,
}

impl Drops {
    /// Drops of the queue and its law: what a router would count.
    pub fn queue(&self) -> u64 {
        self.full + self.law
    }

    /// All packets lost here.
    pub fn total(&self) -> u64 {
        self.full + self.law + self.before + self.after + self.meter
    }
}

/// What a link direction did since the run's start; queue figures since they were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// Packets whose transmission began.
    pub sent_packets: u64,
    /// Their bytes, framing included.
    pub sent_bytes: u64,
    /// Nanoseconds the transmitter was busy.
    pub busy_ns: u64,
    /// Packets lost.
    pub drops: Drops,
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

/// Three cache lines, in the order of use: a large network waits for memory more than for anything else. Of a link that
/// is idle and [`plain`](Link::plain) a packet touches the first line only.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Link {
    /// When the next packet arrives at the far end, [`Time::NEVER`] if none is on its way.
    first_at: Time,
    /// When the transmitter is free. Invariant (without a medium): if the queue holds a packet, this lies after the
    /// last instant the link was caught up to.
    pub(crate) free_at: Time,
    /// Nanoseconds a byte, in units of 2^-24; zero if the link replays a trace.
    ns_per_byte: u64,
    delay: Time,
    sent_bytes: u64,
    sent_packets: u64,
    /// The packet that arrives next.
    first_slot: u32,
    /// What is left over of the last transmission's nanoseconds, in units of 2^-24: the long-run rate is exact.
    carry: u32,
    overhead: u32,
    /// Nothing happens on this link but what its port does and transmission: no faults, medium, trace or log.
    simple: bool,
    /// As `simple`, and a packet that does not wait passes the port unchanged.
    plain: bool,
    /// The queue holds a packet.
    waiting: bool,
    /// There are packets in `behind`.
    trailing: bool,
    /// The delay has shrunk before now, so that a packet may catch up with one ahead of it.
    shrunk: bool,
    pub(crate) port: Port<AnyLink, u32>,
    /// Packets on the wire or in the transmitter behind the first, by arrival at the far end. An idle link's packet
    /// never gets here, and needs no other memory than the link's own.
    behind: Fifo<Arrival>,
    faults: Option<Box<Trouble>>,
    /// Most links of a large network never need it.
    rare: Option<Box<Rare>>,
    /// The shared medium whose turn this direction awaits, [`NO_MEDIUM`] if it has a wire of its own.
    medium: u32,
    /// The queue is watched.
    measured: bool,
    /// What the law says is written down.
    logs_control: bool,
}

const _: () = assert!(size_of::<Link>() == 192);

/// A packet on its way to the far end.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Time,
    slot: u32,
}

impl Default for Arrival {
    fn default() -> Arrival {
        Arrival { at: Time::NEVER, slot: 0 }
    }
}

/// What is counted on measured links only, or seldom.
#[derive(Debug, Default)]
struct Rare {
    rated: Rated,
    drops: Drops,
    marks: u64,
    queue_since: Time,
    queue_byte_ns: u128,
    queue_packet_ns: u128,
    queue_max_bytes: u64,
    queue_max_packets: u32,
    /// Kept while somebody wants it.
    control: Option<Box<ControlLog>>,
    /// What the link replays instead of having a rate.
    trace: Option<Box<Cursor>>,
}

/// How things stood when the rate was last set: what the transmitter has done since follows from the bytes sent, so
/// that no packet has to add to it.
#[derive(Debug, Default)]
struct Rated {
    busy_ns: u64,
    sent_bytes: u64,
    carry: u32,
}

/// What became of a packet offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in the queue or on the wire.
    In,
    /// It is lost; the slot is the caller's to free.
    Lost,
}

impl Link {
    pub(crate) fn new(spec: LinkSpec) -> Link {
        let mut link = Link {
            first_at: Time::NEVER,
            free_at: Time::ZERO,
            ns_per_byte: spec.rate.ns_per_byte_fixed(),
            delay: spec.delay,
            sent_bytes: 0,
            sent_packets: 0,
            first_slot: 0,
            carry: 0,
            overhead: spec.overhead,
            simple: false,
            plain: false,
            waiting: false,
            trailing: false,
            shrunk: false,
            port: Port::new(spec.law, spec.limit, spec.queue),
            behind: Fifo::new(),
            faults: None,
            rare: None,
            medium: NO_MEDIUM,
            measured: false,
            logs_control: false,
        };
        link.settle();
        link
    }

    /// Finds out again what need not be asked for each packet.
    fn settle(&mut self) {
        self.simple =
            self.ns_per_byte != 0 && self.faults.is_none() && self.medium == NO_MEDIUM && !self.logs_control;
        self.plain = self.simple && self.port.is_silent();
    }

    /// Whether a packet that arrives at `now` leaves at once, and nothing but that happens.
    #[inline]
    pub(crate) fn is_free(&self, now: Time) -> bool {
        self.plain && self.free_at <= now && !self.waiting
    }

    /// Whether the link has neither faults nor a medium, and nobody looks at its packets.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.simple
    }

    /// When the next packet arrives at the far end.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Time {
        self.first_at
    }

    /// Whether no packet is on the wire or in the transmitter.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.first_at == Time::NEVER
    }

    /// Packets on the wire or in the transmitter.
    pub(crate) fn in_flight(&self) -> usize {
        usize::from(!self.is_idle()) + self.behind.len() as usize
    }

    /// The medium that the link shares, [`NO_MEDIUM`] if it has a wire of its own.
    #[inline]
    pub(crate) fn medium(&self) -> u32 {
        self.medium
    }

    /// From now on the link awaits its turn on `medium`.
    pub(crate) fn share(&mut self, medium: u32) {
        self.medium = medium;
        self.settle();
    }

    /// The link's faults and meter, to be changed; at first none, with the randomness that `faults` gives.
    pub(crate) fn faults(&mut self, faults: impl FnOnce() -> Faults) -> &mut Trouble {
        (self.simple, self.plain) = (false, false);
        self.faults.get_or_insert_with(|| Box::new(Trouble { watch: None, faults: faults() }))
    }

    /// The packet that arrives at the far end at `now`.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Time, slab: &mut Slab) -> Option<u32> {
        if self.first_at == Time::NEVER {
            return None;
        }
        debug_assert_eq!(self.first_at, now);
        let arrived = self.first_slot;
        if self.trailing {
            self.next_in_line();
        } else {
            self.first_at = Time::NEVER;
            if self.waiting {
                self.resume(now, slab);
            }
        }
        Some(arrived)
    }

    /// The packet behind the first is the first.
    #[inline]
    fn next_in_line(&mut self) {
        if let Some(next) = self.behind.pop_front() {
            (self.first_at, self.first_slot) = (next.at, next.slot);
            self.trailing = !self.behind.is_empty();
        }
    }

    /// Packets wait, and none is on its way any more at `now`.
    fn resume(&mut self, now: Time, slab: &mut Slab) {
        self.catch_up(now, slab);
        if self.first_at < now {
            self.hold_back(now);
        }
    }

    /// What departed with a delay that had shrunk doesn't overtake the packet that arrives at `now`, either.
    #[cold]
    fn hold_back(&mut self, now: Time) {
        self.first_at = now;
        for _ in 0..self.behind.len() {
            if let Some(arrival) = self.behind.pop_front() {
                self.behind.push_back(Arrival { at: arrival.at.max(now), ..arrival });
            }
        }
    }

    /// Whether something may happen to a packet at the far end.
    #[inline]
    pub(crate) fn is_faulty(&self) -> bool {
        self.faults.is_some()
    }

    /// What a meter does at the far end.
    #[inline]
    pub(crate) fn watch(&self) -> Option<(MachineId, Gate)> {
        self.faults.as_ref().and_then(|faults| faults.watch)
    }

    /// How long a packet of `size` bytes takes on the wire, without the way.
    pub(crate) fn wire_time(&self, size: u16) -> Time {
        let bytes = u64::from(size) + u64::from(self.overhead);
        Time((bytes * self.ns_per_byte) >> FRACTION_BITS)
    }

    /// One-way propagation delay.
    pub(crate) fn delay(&self) -> Time {
        self.delay
    }

    /// A meter has dropped a packet at the far end.
    #[cold]
    pub(crate) fn note_metered(&mut self) {
        self.rare().drops.meter += 1;
    }

    /// Whether random loss takes the packet off the wire.
    #[inline]
    pub(crate) fn lost_on_wire(&mut self, packet: &Packet) -> bool {
        match &mut self.faults {
            None => false,
            Some(faults) => {
                let lost = faults.faults.strike(Place::After, packet);
                self.rare.get_or_insert_default().drops.after += u64::from(lost);
                lost
            }
        }
    }

    /// From now on what the law says in each control interval is written down.
    pub(crate) fn log_control(&mut self) {
        self.logs_control = true;
        self.rare().control = Some(Box::default());
        self.settle();
    }

    /// What is written down of that.
    pub(crate) fn control_log(&mut self) -> Option<&mut ControlLog> {
        self.rare.as_mut()?.control.as_deref_mut()
    }

    /// Runs the departures up to and including `now`, each at its own instant.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: Time, slab: &mut Slab) {
        while self.free_at <= now && self.waiting && self.has_transmitter() {
            self.transmit(self.free_at, slab);
        }
    }

    /// Whether the transmitter is the link's own.
    #[inline]
    fn has_transmitter(&self) -> bool {
        self.simple || self.medium == NO_MEDIUM
    }

    /// Takes the next packet from the queue and puts it on the wire at `now`, when the transmitter is free. Answers
    /// whether there was one.
    pub(crate) fn transmit(&mut self, now: Time, slab: &mut Slab) -> bool {
        self.note_queue(now);
        let rare = &mut self.rare;
        let taken = self.port.dequeue(now, slab, |slab, slot| {
            rare.get_or_insert_default().drops.law += 1;
            slab.lose(slot);
        });
        self.waiting = self.port.packets() > 0;
        let Some((slot, marked)) = taken else { return false };
        if marked {
            self.rare().marks += 1;
        }
        self.depart_lawful(now, slot, false, slab);
        true
    }

    /// [`depart`](Link::depart) of a link that need not be plain; `idle` if nothing had waited until the packet came.
    #[inline]
    fn depart_lawful(&mut self, start: Time, slot: u32, idle: bool, slab: &mut Slab) {
        if self.simple {
            let size = slab.get(slot).size;
            self.depart(start, slot, size, slab);
        } else {
            self.depart_watched(start, slot, idle, slab);
        }
    }

    /// [`depart`](Link::depart), first writing down what the law said if somebody wants it, and by the trace if there is one.
    #[inline(never)]
    fn depart_watched(&mut self, start: Time, slot: u32, idle: bool, slab: &mut Slab) {
        if self.logs_control
            && let Some(log) = self.rare.as_mut().and_then(|rare| rare.control.as_mut())
        {
            log.note(&self.port.law, slab.get(slot));
        }
        let size = slab.get(slot).size;
        if self.ns_per_byte == 0 {
            self.replay(start, slot, size, idle, slab);
        } else {
            self.depart(start, slot, size, slab);
        }
    }

    /// [`depart`](Link::depart) by the trace.
    #[cold]
    fn replay(&mut self, start: Time, slot: u32, size: u16, idle: bool, slab: &mut Slab) {
        slab.quantise_link(slot);
        let bytes = u64::from(size) + u64::from(self.overhead);
        let rare = self.rare.get_or_insert_default();
        if let Some(cursor) = &mut rare.trace {
            if idle {
                cursor.forgo(start);
            }
            let span = cursor.deliver(bytes).saturating_sub(start);
            rare.rated.busy_ns += span.0;
            self.free_at = start + span;
        }
        self.sent_packets += 1;
        self.sent_bytes += bytes;
        self.launch(self.free_at + self.delay, slot);
    }

    /// Puts a packet of `size` bytes on the wire at `start`.
    #[inline(always)]
    pub(crate) fn depart(&mut self, start: Time, slot: u32, size: u16, slab: &mut Slab) {
        slab.quantise_link(slot);
        let bytes = u64::from(size) + u64::from(self.overhead);
        let scaled = bytes * self.ns_per_byte + u64::from(self.carry);
        self.carry = (scaled & FRACTION) as u32;
        self.free_at = start + Time(scaled >> FRACTION_BITS);
        self.sent_packets += 1;
        self.sent_bytes += bytes;
        self.launch(self.free_at + self.delay, slot);
    }

    #[inline]
    fn launch(&mut self, at: Time, slot: u32) {
        if self.is_idle() {
            (self.first_at, self.first_slot) = (at, slot);
            return;
        }
        // A wire keeps order: if the delay has shrunk, later packets don't overtake.
        let at =
            if self.shrunk { at.max(self.behind.back().map_or(self.first_at, |last| last.at)) } else { at };
        self.behind.push_back(Arrival { at, slot });
        self.trailing = true;
    }

    /// Nanoseconds of transmission begun so far.
    fn busy_ns(&self) -> u64 {
        let start = Rated::default();
        let rated = self.rare.as_ref().map_or(&start, |rare| &rare.rated);
        let bytes = u128::from(self.sent_bytes - rated.sent_bytes);
        let scaled = bytes * u128::from(self.ns_per_byte) + u128::from(rated.carry) - u128::from(self.carry);
        rated.busy_ns + (scaled >> FRACTION_BITS) as u64
    }

    /// A packet arrives at the port.
    #[inline]
    pub(crate) fn offer(&mut self, now: Time, slot: u32, slab: &mut Slab) -> Outcome {
        if !self.simple
            && let Some(faults) = &mut self.faults
            && faults.faults.strike(Place::Before, slab.get(slot))
        {
            self.rare().drops.before += 1;
            return Outcome::Lost;
        }
        self.catch_up(now, slab);
        let idle = self.free_at <= now && self.has_transmitter();
        if idle {
            // It has asked in vain since it is free.
            self.port.dequeue(now, slab, |_, _| {});
        }
        self.note_queue(now);
        let rare = &mut self.rare;
        let offered = self.port.enqueue(now, slot, slab, |slab, slot| {
            rare.get_or_insert_default().drops.full += 1;
            slab.lose(slot);
        });
        let mut marked = match offered {
            Offered::Queued => false,
            Offered::Marked => true,
            Offered::Full | Offered::Dropped => return self.refuse(offered),
        };
        if idle {
            let Some((slot, late)) = self.port.dequeue(now, slab, |_, _| {}) else {
                return self.refuse(Offered::Dropped);
            };
            marked |= late;
            self.depart_lawful(now, slot, true, slab);
        } else {
            self.waiting = true;
            // Of a medium it is not known yet whether the packet waits at all.
            if self.has_transmitter() {
                self.note_waiting();
            }
        }
        if marked {
            self.rare().marks += 1;
        }
        Outcome::In
    }

    /// The port takes no packet that arrives.
    #[cold]
    fn refuse(&mut self, offered: Offered) -> Outcome {
        let drops = &mut self.rare().drops;
        match offered {
            Offered::Full => drops.full += 1,
            _ => drops.law += 1,
        }
        Outcome::Lost
    }

    /// Adds to the integrals what waited up to `now`, before the queue changes.
    #[inline(always)]
    fn note_queue(&mut self, now: Time) {
        if self.measured {
            let rare = self.rare.get_or_insert_default();
            // Ten megabytes for half an hour are more than 64 bits hold.
            let span = u128::from(now.0 - rare.queue_since.0);
            rare.queue_byte_ns += u128::from(self.port.bytes()) * span;
            rare.queue_packet_ns += u128::from(self.port.packets()) * span;
            rare.queue_since = now;
        }
    }

    /// The queue may have grown.
    #[inline(always)]
    pub(crate) fn note_waiting(&mut self) {
        if self.measured {
            self.note_length();
        }
    }

    /// The queue has grown.
    #[inline]
    fn note_length(&mut self) {
        let rare = self.rare.get_or_insert_default();
        rare.queue_max_bytes = rare.queue_max_bytes.max(self.port.bytes());
        rare.queue_max_packets = rare.queue_max_packets.max(self.port.packets());
    }

    /// The figures up to `now`; those of the queue start anew.
    pub(crate) fn read_stats(&mut self, now: Time, slab: &mut Slab) -> LinkStats {
        self.catch_up(now, slab);
        self.note_queue(now);
        let mut stats = LinkStats {
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            // What the packet in transmission has still to go isn't done yet.
            busy_ns: self.busy_ns() - self.free_at.saturating_sub(now).0,
            ..LinkStats::default()
        };
        if let Some(rare) = &mut self.rare {
            stats.drops = rare.drops;
            stats.marks = rare.marks;
            stats.queue_byte_ns = std::mem::take(&mut rare.queue_byte_ns);
            stats.queue_packet_ns = std::mem::take(&mut rare.queue_packet_ns);
            stats.queue_max_bytes = rare.queue_max_bytes;
            stats.queue_max_packets = rare.queue_max_packets;
        }
        if self.rare.is_some() || self.port.packets() > 0 {
            let (bytes, packets) = (self.port.bytes(), self.port.packets());
            let rare = self.rare();
            (rare.queue_max_bytes, rare.queue_max_packets) = (bytes, packets);
        }
        stats
    }

    /// Packets lost here so far.
    pub(crate) fn drops(&self) -> Drops {
        self.rare.as_ref().map_or(Drops::default(), |rare| rare.drops)
    }

    /// What is counted seldom, to be added to.
    #[cold]
    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Turns measurement of the queue on or off.
    pub(crate) fn measure(&mut self, now: Time, on: bool) {
        self.note_queue(now);
        self.measured = on;
        if on {
            self.rare().queue_since = now;
        }
    }

    /// From `now` on bits leave at `rate`; what is left of the packet in transmission, too.
    fn set_rate(&mut self, now: Time, rate: Rate) {
        let (before, mut busy_ns) = (self.ns_per_byte, self.busy_ns());
        self.ns_per_byte = rate.ns_per_byte_fixed();
        if self.free_at > now && before > 0 {
            let left = self.free_at.0 - now.0;
            let scaled = (u128::from(left) * u128::from(self.ns_per_byte) / u128::from(before)) as u64;
            self.free_at = now + Time(scaled);
            busy_ns = busy_ns - left + scaled;
            if let Some(last) = self.recall() {
                self.launch(self.free_at + self.delay, last);
            }
        }
        self.rare().rated = Rated { busy_ns, sent_bytes: self.sent_bytes, carry: self.carry };
        self.settle();
    }

    /// From the start on packets leave by `trace`, not at a rate.
    pub(crate) fn set_trace(&mut self, trace: Trace) {
        self.ns_per_byte = 0;
        self.rare().trace = Some(Box::new(Cursor::new(trace)));
        self.settle();
    }

    /// Takes the last packet off the wire.
    fn recall(&mut self) -> Option<u32> {
        if let Some(last) = self.behind.pop_back() {
            self.trailing = !self.behind.is_empty();
            return Some(last.slot);
        }
        let only = !self.is_idle();
        self.first_at = Time::NEVER;
        only.then_some(self.first_slot)
    }

    /// Changes the link at `now`; faults are changed by [`faults`](Link::faults).
    pub(crate) fn change(&mut self, now: Time, change: Change, slab: &mut Slab) {
        self.catch_up(now, slab);
        match change {
            Change::Rate(rate) => self.set_rate(now, rate),
            Change::Delay(delay) => {
                self.shrunk |= delay < self.delay;
                self.delay = delay;
            }
            Change::Capacity(capacity) => self.port.set_capacity(now, capacity),
            Change::Limit(limit) => {
                self.port.set_limit(limit);
                self.settle();
            }
            Change::LawError(part) => self.port.law.set_error(part),
            Change::Losses(_) | Change::Blackout(_) => {}
        }
    }
}

/// No shared medium.
pub(crate) const NO_MEDIUM: u32 = u32::MAX;

const FRACTION_BITS: u32 = Rate::FRACTION_BITS;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
