//! One direction of a link, in both engines: port, transmitter, wire.
//!
//! A link computes with exact instants. A packet's departure and arrival follow from its own
//! arrival and the link's rate and delay, to the nanosecond. The law sees the departure at that
//! instant, however late the engine calls the link.

mod change;
mod flight;
mod simply;
mod stats;

pub use stats::{Drops, LinkStats};

use std::mem::offset_of;

use tollway_law::link::AnyLink;
use tollway_law::{Rate, Time};

use crate::faults::LossPlace;
use crate::port::{AnyQueue, Limit, Offered};
use flight::Flight;
use stats::Rare;

use crate::{Faults, Fifo, Gate, Packet, Pool, Port, WireTimes};

/// An engine's packet store, as links use it.
pub trait Store: Pool<Handle = u32> {
    /// Frees a packet that a link lost after it had accepted it.
    fn lose(&mut self, handle: u32);

    /// Applies the packet's encoding after a link wrote into its toll.
    fn quantise_link(&mut self, handle: u32);

    /// Copies the packet `handle`.
    fn copy(&mut self, handle: u32) -> u32;

    /// The number of packets that `handle` stands for: more than one for a train of segments, each
    /// framed separately.
    #[inline]
    fn segments(&self, _handle: u32) -> u64 {
        1
    }
}

/// The parameters of a link direction.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Rate in bits on the wire, framing included.
    pub rate: Rate,
    /// One-way propagation delay.
    pub delay: Time,
    /// Framing bytes added to each packet on this wire.
    pub overhead: u32,
    /// The port's law.
    pub law: AnyLink,
    /// The limit of the port's queue.
    pub limit: Limit,
    /// The port's queue.
    pub queue: AnyQueue<AnyLink, u32>,
}

/// One link direction.
///
/// Its fields are in three cache lines, in the order of use, since a large network is limited by
/// memory access. A packet on an idle, plain link (without faults or medium) touches the first line
/// only; behind other packets on the wire, the first two.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Link {
    /// Arrival of the next packet at the far end, [`Time::NEVER`] if none is in flight.
    first_at: Time,
    /// The time at which the transmitter is free. Invariant (without a medium): if the queue holds
    /// a packet, this is later than the last instant the link was caught up to.
    free_at: Time,
    /// Nanoseconds per byte, in units of 2^-24; zero if the link replays a trace.
    ns_per_byte: u64,
    delay: Time,
    sent_bytes: u64,
    sent_packets: u64,
    /// The packet that arrives next.
    first_slot: u32,
    /// The fraction of a nanosecond carried over from the last transmission, in units of 2^-24,
    /// which makes the long-run rate exact.
    carry: u32,
    overhead: u32,
    /// True if `simple`, and the port's law is silent: the fast path applies.
    plain: bool,
    /// True if the queue holds a packet.
    waiting: bool,
    /// True if `behind` holds packets.
    trailing: bool,
    /// True if the delay was reduced before, so that a packet may catch up with one ahead of it.
    shrunk: bool,
    /// Packets on the wire or in the transmitter after the first, by arrival at the far end. A
    /// packet on an idle link never enters, and needs no memory outside the link.
    behind: Fifo<Arrival>,
    /// The queue with its law.
    pub port: Port<AnyLink, u32>,
    faults: Option<Box<Trouble>>,
    /// Rarely used state; most links of a large network never allocate it.
    rare: Option<Box<Rare>>,
    /// The shared medium of this direction, [`NO_MEDIUM`] if it has a separate wire.
    medium: u32,
    /// True if the queue is measured.
    measured: bool,
    /// True if a control log is kept.
    recorded: bool,
    /// True if only the port and the transmission act on packets: no faults, medium, trace or
    /// record.
    simple: bool,
    /// True if `simple`, except that the law reads and writes tolls.
    gentle: bool,
}

const _: () = assert!(size_of::<Link>() == 192 && offset_of!(Link, behind) == 64);

/// A packet on its way to the far end. Without padding: a large network has several for each flow.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct Arrival {
    at: Time,
    slot: u32,
}

const _: () = assert!(size_of::<Arrival>() == 12);

impl Default for Arrival {
    fn default() -> Arrival {
        Arrival { at: Time::NEVER, slot: 0 }
    }
}

/// The faults of a link, and the machine that watches its wire.
#[derive(Debug)]
struct Trouble {
    watch: Option<(u32, Gate)>,
    faults: Faults,
    /// Packets on the wire, instead of `behind`, where they may overtake each other.
    flight: Option<Flight>,
}

/// The fate of a packet offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It is in the queue or on the wire.
    In,
    /// It is lost; the caller must free the packet.
    Lost,
}

impl Link {
    /// An idle link.
    pub fn new(spec: LinkSpec) -> Link {
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
            recorded: false,
            simple: false,
            gentle: false,
        };
        link.settle();
        link
    }

    /// Recomputes the flags that shorten the path of each packet.
    fn settle(&mut self) {
        self.simple =
            self.ns_per_byte != 0 && self.faults.is_none() && self.medium == NO_MEDIUM && !self.recorded;
        self.plain = self.simple && self.port.is_silent();
        self.gentle = self.simple && self.port.is_gentle();
    }

    /// True if [`offer_simply::<false>`](Link::offer_simply) applies.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// True if [`offer_simply::<true>`](Link::offer_simply), which calls the law, applies.
    #[inline]
    pub fn is_gentle(&self) -> bool {
        self.gentle
    }

    /// True if the link has neither faults nor a medium, and its packets are not recorded.
    #[inline]
    pub fn is_simple(&self) -> bool {
        // `plain` implies `simple`, and is in the first cache line.
        self.plain || self.simple
    }

    /// Arrival of the next packet at the far end.
    #[inline]
    pub fn next_arrival(&self) -> Time {
        self.first_at
    }

    /// The packet that arrives next, if there is one.
    #[inline]
    pub fn first_slot(&self) -> u32 {
        self.first_slot
    }

    /// True if several packets are on the wire or in the transmitter.
    #[inline]
    pub fn is_trailing(&self) -> bool {
        self.trailing
    }

    /// The `i`-th packet that arrives after that.
    #[inline]
    pub fn behind(&self, i: u32) -> Option<u32> {
        self.behind.get(i).map(|arrival| arrival.slot)
    }

    /// The memory of the packet that arrives after that, to be loaded early.
    #[inline]
    pub fn next_place(&self) -> *const u8 {
        self.behind.first_place().cast()
    }

    /// The time at which the transmitter is free.
    #[inline]
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// True if no packet is on the wire or in the transmitter.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.first_at == Time::NEVER
    }

    /// Packets on the wire or in the transmitter.
    pub fn in_flight(&self) -> usize {
        self.flight().map_or(usize::from(!self.is_idle()) + self.behind.len() as usize, Flight::len)
    }

    /// The medium that the link shares, [`NO_MEDIUM`] if it has a separate wire.
    #[inline]
    pub fn medium(&self) -> u32 {
        self.medium
    }

    /// Makes the link wait for its turn on `medium` from now on.
    pub fn share(&mut self, medium: u32) {
        self.medium = medium;
        self.settle();
    }

    /// The link's faults, mutable. Created without any at the first call, with random streams from
    /// `faults`.
    pub fn faults(&mut self, faults: impl FnOnce() -> Faults) -> &mut Faults {
        (self.simple, self.plain, self.gentle) = (false, false, false);
        &mut self
            .faults
            .get_or_insert_with(|| Box::new(Trouble { watch: None, faults: faults(), flight: None }))
            .faults
    }

    /// Makes `machine` watch the wire by `gate` from now on. `faults` as in
    /// [`faults`](Link::faults).
    pub fn set_watch(&mut self, machine: u32, gate: Gate, faults: impl FnOnce() -> Faults) {
        self.faults(faults);
        self.faults.iter_mut().for_each(|trouble| trouble.watch = Some((machine, gate)));
    }

    /// The packet that arrives at the far end at `now`, when the link was
    /// [due](Link::next_arrival). `None` is possible on a wire where packets overtake each other.
    #[inline]
    pub fn arrive(&mut self, now: Time, store: &mut impl Store) -> Option<u32> {
        if self.first_at == Time::NEVER {
            return None;
        }
        debug_assert!(self.first_at == now || self.is_shaken());
        let arrived = self.first_slot;
        if self.trailing {
            let Some(next) = self.behind.pop_front() else { return self.arrive_shaken(now, store) };
            (self.first_at, self.first_slot) = (next.at, next.slot);
            self.trailing = !self.behind.is_empty();
        } else {
            self.first_at = Time::NEVER;
            if self.waiting {
                self.resume(now, store);
            }
        }
        Some(arrived)
    }

    /// The next packet that has arrived at the far end by `now`, and the instant of its arrival.
    pub fn arrive_by(&mut self, now: Time, store: &mut impl Store) -> Option<(Time, u32)> {
        loop {
            let at = self.first_at;
            if at > now || at == Time::NEVER {
                return None;
            }
            if let Some(arrived) = self.arrive(at, store) {
                return Some((at, arrived));
            }
        }
    }

    /// Restarts transmission: packets wait, and none is in flight at `now`.
    fn resume(&mut self, now: Time, store: &mut impl Store) {
        self.catch_up(now, store);
        if self.first_at < now {
            self.hold_back(now);
        }
    }

    /// Keeps packets that departed with a reduced delay from overtaking the packet that arrives at
    /// `now`.
    #[cold]
    fn hold_back(&mut self, now: Time) {
        self.first_at = now;
        for _ in 0..self.behind.len() {
            if let Some(arrival) = self.behind.pop_front() {
                self.behind.push_back(Arrival { at: arrival.at.max(now), ..arrival });
            }
        }
    }

    /// True if something may happen to a packet at the far end.
    #[inline]
    pub fn is_faulty(&self) -> bool {
        self.faults.is_some()
    }

    /// The machine that watches the wire at the far end, and its gate.
    #[inline]
    pub fn watch(&self) -> Option<(u32, Gate)> {
        self.faults.as_ref().and_then(|faults| faults.watch)
    }

    /// The rate and the delay of the link.
    pub fn pace(&self) -> Pace {
        Pace { ns_per_byte: self.ns_per_byte, overhead: self.overhead, delay: self.delay }
    }

    /// Counts a packet that a meter dropped at the far end.
    #[cold]
    pub fn note_metered(&mut self) {
        self.rare().drops.meter += 1;
    }

    /// Draws random loss for a packet on the wire that stands for `segments`. Returns true if it is
    /// lost.
    #[inline]
    pub fn lost_on_wire(&mut self, packet: &Packet, segments: u64) -> bool {
        match &mut self.faults {
            None => false,
            Some(faults) => {
                let lost = faults.faults.strike(LossPlace::After, packet);
                let damaged = !lost && faults.faults.damages();
                let drops = &mut self.rare.get_or_insert_default().drops;
                drops.after += if lost { segments } else { 0 };
                drops.corrupt += if damaged { segments } else { 0 };
                lost | damaged
            }
        }
    }

    /// Runs the departures up to and including `now`, each at its own instant.
    #[inline]
    pub fn catch_up(&mut self, now: Time, store: &mut impl Store) {
        while self.free_at <= now && self.waiting && self.has_transmitter() {
            if self.plain {
                self.transmit_simply::<false>(store);
            } else if self.gentle {
                self.transmit_simply::<true>(store);
            } else {
                self.transmit(self.free_at, store);
            }
        }
    }

    /// True if the link has a separate transmitter.
    #[inline]
    fn has_transmitter(&self) -> bool {
        self.simple || self.medium == NO_MEDIUM
    }

    /// Takes the next packet from the queue and puts it on the wire at `now`, when the transmitter
    /// is free. Returns true if there was one.
    pub fn transmit(&mut self, now: Time, store: &mut impl Store) -> bool {
        self.note_queue(now);
        let rare = &mut self.rare;
        let taken = self.port.dequeue(now, store, |store, slot| {
            rare.get_or_insert_default().drops.law += store.segments(slot);
            store.lose(slot);
        });
        self.waiting = self.port.packets() > 0;
        let Some((slot, marked)) = taken else { return false };
        if marked {
            self.rare().marks += store.segments(slot);
        }
        let waited = store.packet(slot).entered.waited(now);
        if self.measured {
            self.rare.get_or_insert_default().waits.note(waited, store.segments(slot));
        }
        self.depart_lawful(now, slot, Some(waited), store);
        true
    }

    /// [`depart`](Link::depart) for a link that need not be plain; `waited` is `None` if the packet
    /// found the link idle.
    #[inline]
    fn depart_lawful(&mut self, start: Time, slot: u32, waited: Option<Time>, store: &mut impl Store) {
        if self.simple {
            let size = store.packet(slot).size;
            self.depart(start, slot, size, store);
        } else {
            self.depart_watched(start, slot, waited, store);
        }
    }

    /// [`depart`](Link::depart) with records, and by the trace if there is one.
    #[inline(never)]
    fn depart_watched(&mut self, start: Time, slot: u32, waited: Option<Time>, store: &mut impl Store) {
        if self.recorded
            && let Some(log) = self.rare.as_mut().and_then(|rare| rare.control.as_mut())
        {
            log.note(&self.port.law, store.packet(slot));
        }
        let (size, free_before) = (store.packet(slot).size, self.free_at);
        if self.ns_per_byte == 0 {
            self.replay(start, slot, size, waited.is_none(), store);
        } else {
            self.serialise(start, slot, size, store);
        }
        if self.measured
            && let Some(waited) = waited
        {
            self.note_service(waited, (free_before, start));
        }
        if self.is_shaken() {
            self.launch_shaken(slot, store);
        } else {
            self.launch(self.free_at + self.delay, slot);
        }
    }

    /// [`serialise`](Link::serialise) by the trace.
    #[cold]
    fn replay(&mut self, start: Time, slot: u32, size: u16, idle: bool, store: &mut impl Store) {
        let bytes = self.begin(slot, size, store);
        let rare = self.rare.get_or_insert_default();
        if let Some(cursor) = &mut rare.trace {
            if idle {
                cursor.forgo(start);
            }
            let span = cursor.deliver(bytes).saturating_sub(start);
            rare.rated.busy_ns += span.0;
            self.free_at = start + span;
        }
    }

    /// Puts a packet of `size` bytes on the wire at `start`.
    #[inline(always)]
    pub fn depart(&mut self, start: Time, slot: u32, size: u16, store: &mut impl Store) {
        let at = self.serialise(start, slot, size, store);
        self.launch(at, slot);
    }

    /// Occupies the transmitter with a packet of `size` bytes from `start` on. Returns the instant
    /// of its arrival at the far end.
    #[inline(always)]
    pub fn serialise(&mut self, start: Time, slot: u32, size: u16, store: &mut impl Store) -> Time {
        let bytes = self.begin(slot, size, store);
        let scaled = bytes * self.ns_per_byte + u64::from(self.carry);
        self.carry = (scaled & FRACTION) as u32;
        self.free_at = start + Time(scaled >> FRACTION_BITS);
        self.free_at + self.delay
    }

    /// Counts a packet whose transmission begins. Returns its bytes on the wire.
    #[inline(always)]
    fn begin(&mut self, slot: u32, size: u16, store: &mut impl Store) -> u64 {
        store.quantise_link(slot);
        let segments = store.segments(slot);
        let bytes = u64::from(size) + u64::from(self.overhead) * segments;
        self.sent_packets += segments;
        self.sent_bytes += bytes;
        bytes
    }

    /// Puts a packet on the wire that arrives at the far end at `at`.
    #[inline]
    pub fn launch(&mut self, at: Time, slot: u32) {
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

    /// Offers a packet that arrives at the port.
    #[inline]
    pub fn offer(&mut self, now: Time, slot: u32, store: &mut impl Store) -> PacketFate {
        let segments = store.segments(slot);
        if !self.simple
            && let Some(faults) = &mut self.faults
            && faults.faults.strike(LossPlace::Before, store.packet(slot))
        {
            self.rare().drops.before += segments;
            return PacketFate::Lost;
        }
        self.catch_up(now, store);
        let idle = self.free_at <= now && self.has_transmitter();
        if idle {
            // It has asked in vain since it is free.
            self.port.dequeue(now, store, |_, _| {});
        }
        self.note_queue(now);
        let rare = &mut self.rare;
        let offered = self.port.enqueue(now, slot, store, |store, slot| {
            rare.get_or_insert_default().drops.full += store.segments(slot);
            store.lose(slot);
        });
        let mut marked = match offered {
            Offered::Queued => false,
            Offered::Marked => true,
            Offered::Full | Offered::Dropped => return self.refuse(offered, segments),
        };
        if idle {
            let Some((slot, late)) = self.port.dequeue(now, store, |_, _| {}) else {
                return self.refuse(Offered::Dropped, segments);
            };
            marked |= late;
            self.depart_lawful(now, slot, None, store);
        } else {
            self.waiting = true;
            // Of a medium it is not known yet whether the packet waits at all.
            if self.has_transmitter() {
                self.note_waiting();
            }
        }
        if marked {
            self.rare().marks += segments;
        }
        if !self.simple {
            self.look();
        }
        PacketFate::In
    }

    /// Refuses a packet that arrives.
    #[cold]
    fn refuse(&mut self, offered: Offered, segments: u64) -> PacketFate {
        let drops = &mut self.rare().drops;
        match offered {
            Offered::Full => drops.full += segments,
            _ => drops.law += segments,
        }
        PacketFate::Lost
    }
}

/// The rate and the delay of a link.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    ns_per_byte: u64,
    overhead: u32,
    delay: Time,
}

impl Pace {
    /// The times of a packet of `size` bytes on the wire.
    pub fn wire(self, size: u16) -> WireTimes {
        let bytes = u64::from(size) + u64::from(self.overhead);
        WireTimes { time: Time((bytes * self.ns_per_byte) >> FRACTION_BITS), delay: self.delay }
    }
}

/// The number that stands for no medium.
pub const NO_MEDIUM: u32 = u32::MAX;

const FRACTION_BITS: u32 = Rate::FRACTION_BITS;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
