//! One direction of a link, in both engines: port, transmitter, wire.
//!
//! It works in virtual instants: a packet's departure and its arrival at the far end follow from when it came and from the
//! link's rate and delay, to the nanosecond, and the law sees the departure at that instant, however late the link is touched.

mod change;
mod flight;
mod simply;
mod stats;

pub use stats::{Drops, LinkStats};

use tollway_law::link::AnyLink;
use tollway_law::{Rate, Time};

use crate::faults::Place;
use crate::port::{AnyQueue, Limit, Offered};
use flight::Flight;
use stats::Rare;

use crate::{Faults, Fifo, Gate, Packet, Pool, Port, Wire};

/// An engine's packets, as links use them.
pub trait Store: Pool<Handle = u32> {
    /// A link that had taken the packet in loses it.
    fn lose(&mut self, handle: u32);

    /// A link has written into the packet's toll: its encoding may say less.
    fn quantise_link(&mut self, handle: u32);

    /// Another packet like `handle`.
    fn copy(&mut self, handle: u32) -> u32;

    /// The packets that `handle` stands for: more than one for a train of segments, each framed by itself.
    #[inline]
    fn segments(&self, _handle: u32) -> u64 {
        1
    }
}

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

/// Three cache lines, in the order of use: a large network waits for memory more than for anything else. Of a link that
/// is idle and plain (no faults, no medium) a packet touches the first line only.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Link {
    /// When the next packet arrives at the far end, [`Time::NEVER`] if none is on its way.
    first_at: Time,
    /// When the transmitter is free. Invariant (without a medium): if the queue holds a packet, this lies after the
    /// last instant the link was caught up to.
    free_at: Time,
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
    /// Nothing happens on this link but what its port does and transmission: no faults, medium, trace or record.
    simple: bool,
    /// As `simple`, and the port is silent: the short way will do.
    plain: bool,
    /// The queue holds a packet.
    waiting: bool,
    /// There are packets in `behind`.
    trailing: bool,
    /// The delay has shrunk before now, so that a packet may catch up with one ahead of it.
    shrunk: bool,
    /// The queue under its law.
    pub port: Port<AnyLink, u32>,
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
    /// A control log is kept, or a histogram of waiting times.
    recorded: bool,
    /// As `plain`, but for what the law reads in tolls and writes into them.
    gentle: bool,
}

const _: () = assert!(size_of::<Link>() == 192);

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

/// What became of a packet offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the queue or on the wire.
    In,
    /// It is lost; the packet is the caller's to free.
    Lost,
}

impl Link {
    /// A link at rest.
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
            recorded: false,
            gentle: false,
        };
        link.settle();
        link
    }

    /// Finds out again what need not be asked for each packet.
    fn settle(&mut self) {
        self.simple =
            self.ns_per_byte != 0 && self.faults.is_none() && self.medium == NO_MEDIUM && !self.recorded;
        self.plain = self.simple && self.port.is_silent();
        self.gentle = self.simple && self.port.is_gentle();
    }

    /// Whether the short way will do: [`offer_simply::<false>`](Link::offer_simply).
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether the short way will do if the law is told: [`offer_simply::<true>`](Link::offer_simply).
    #[inline]
    pub fn is_gentle(&self) -> bool {
        self.gentle
    }

    /// Whether the link has neither faults nor a medium, and nobody looks at its packets.
    #[inline]
    pub fn is_simple(&self) -> bool {
        self.simple
    }

    /// When the next packet arrives at the far end.
    #[inline]
    pub fn next_arrival(&self) -> Time {
        self.first_at
    }

    /// When the transmitter is free.
    #[inline]
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Whether no packet is on the wire or in the transmitter.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.first_at == Time::NEVER
    }

    /// Packets on the wire or in the transmitter.
    pub fn in_flight(&self) -> usize {
        self.flight().map_or(usize::from(!self.is_idle()) + self.behind.len() as usize, Flight::len)
    }

    /// The medium that the link shares, [`NO_MEDIUM`] if it has a wire of its own.
    #[inline]
    pub fn medium(&self) -> u32 {
        self.medium
    }

    /// From now on the link awaits its turn on `medium`.
    pub fn share(&mut self, medium: u32) {
        self.medium = medium;
        self.settle();
    }

    /// The link's faults, to be changed; at first none, with the randomness that `faults` gives.
    pub fn faults(&mut self, faults: impl FnOnce() -> Faults) -> &mut Faults {
        (self.simple, self.plain, self.gentle) = (false, false, false);
        &mut self
            .faults
            .get_or_insert_with(|| Box::new(Trouble { watch: None, faults: faults(), flight: None }))
            .faults
    }

    /// From now on `machine` watches the wire by `gate`. `faults` as in [`faults`](Link::faults).
    pub fn set_watch(&mut self, machine: u32, gate: Gate, faults: impl FnOnce() -> Faults) {
        self.faults(faults);
        self.faults.iter_mut().for_each(|trouble| trouble.watch = Some((machine, gate)));
    }

    /// The packet that arrives at the far end at `now`, when the link was
    /// [due](Link::next_arrival). A wire on which packets overtake each other may have none.
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

    /// The next packet that has arrived at the far end by `now`, and when it did.
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

    /// Packets wait, and none is on its way any more at `now`.
    fn resume(&mut self, now: Time, store: &mut impl Store) {
        self.catch_up(now, store);
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
    pub fn is_faulty(&self) -> bool {
        self.faults.is_some()
    }

    /// The machine that watches the wire at the far end, and its gate.
    #[inline]
    pub fn watch(&self) -> Option<(u32, Gate)> {
        self.faults.as_ref().and_then(|faults| faults.watch)
    }

    /// The speed and the length of the link.
    pub fn pace(&self) -> Pace {
        Pace { ns_per_byte: self.ns_per_byte, overhead: self.overhead, delay: self.delay }
    }

    /// A meter has dropped a packet at the far end.
    #[cold]
    pub fn note_metered(&mut self) {
        self.rare().drops.meter += 1;
    }

    /// Draws random loss for a packet on the wire that stands for `segments`; answers whether it is lost.
    #[inline]
    pub fn lost_on_wire(&mut self, packet: &Packet, segments: u64) -> bool {
        match &mut self.faults {
            None => false,
            Some(faults) => {
                let lost = faults.faults.strike(Place::After, packet);
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

    /// Whether the transmitter is the link's own.
    #[inline]
    fn has_transmitter(&self) -> bool {
        self.simple || self.medium == NO_MEDIUM
    }

    /// Takes the next packet from the queue and puts it on the wire at `now`, when the transmitter is free. Answers
    /// whether there was one.
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
        self.depart_lawful(now, slot, false, store);
        true
    }

    /// [`depart`](Link::depart) of a link that need not be plain; `idle` if nothing had waited until the packet came.
    #[inline]
    fn depart_lawful(&mut self, start: Time, slot: u32, idle: bool, store: &mut impl Store) {
        if self.simple {
            let size = store.packet(slot).size;
            self.depart(start, slot, size, store);
        } else {
            self.depart_watched(start, slot, idle, store);
        }
    }

    /// [`depart`](Link::depart), first writing down what is wanted, and by the trace if there is one.
    #[inline(never)]
    fn depart_watched(&mut self, start: Time, slot: u32, idle: bool, store: &mut impl Store) {
        if self.recorded
            && let Some(rare) = &mut self.rare
        {
            if let Some(log) = &mut rare.control {
                log.note(&self.port.law, store.packet(slot));
            }
            if let Some(waits) = &mut rare.waits {
                let waited = if idle { Time::ZERO } else { store.packet(slot).entered.elapsed(start) };
                waits.note(waited, store.segments(slot));
            }
        }
        let size = store.packet(slot).size;
        if self.ns_per_byte == 0 {
            self.replay(start, slot, size, idle, store);
        } else {
            self.serialise(start, slot, size, store);
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
        self.serialise(start, slot, size, store);
        self.launch(self.free_at + self.delay, slot);
    }

    /// Has the transmitter busy with a packet of `size` bytes from `start` on.
    #[inline(always)]
    fn serialise(&mut self, start: Time, slot: u32, size: u16, store: &mut impl Store) {
        let bytes = self.begin(slot, size, store);
        let scaled = bytes * self.ns_per_byte + u64::from(self.carry);
        self.carry = (scaled & FRACTION) as u32;
        self.free_at = start + Time(scaled >> FRACTION_BITS);
    }

    /// Counts a packet whose transmission begins; answers its bytes on the wire.
    #[inline(always)]
    fn begin(&mut self, slot: u32, size: u16, store: &mut impl Store) -> u64 {
        store.quantise_link(slot);
        let segments = store.segments(slot);
        let bytes = u64::from(size) + u64::from(self.overhead) * segments;
        self.sent_packets += segments;
        self.sent_bytes += bytes;
        bytes
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

    /// A packet arrives at the port.
    #[inline]
    pub fn offer(&mut self, now: Time, slot: u32, store: &mut impl Store) -> Outcome {
        let segments = store.segments(slot);
        if !self.simple
            && let Some(faults) = &mut self.faults
            && faults.faults.strike(Place::Before, store.packet(slot))
        {
            self.rare().drops.before += segments;
            return Outcome::Lost;
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
            self.depart_lawful(now, slot, true, store);
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
        Outcome::In
    }

    /// The port takes no packet that arrives.
    #[cold]
    fn refuse(&mut self, offered: Offered, segments: u64) -> Outcome {
        let drops = &mut self.rare().drops;
        match offered {
            Offered::Full => drops.full += segments,
            _ => drops.law += segments,
        }
        Outcome::Lost
    }
}

/// The speed and the length of a link.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    ns_per_byte: u64,
    overhead: u32,
    delay: Time,
}

impl Pace {
    /// The times of a packet of `size` bytes on the wire.
    pub fn wire(self, size: u16) -> Wire {
        let bytes = u64::from(size) + u64::from(self.overhead);
        Wire { time: Time((bytes * self.ns_per_byte) >> FRACTION_BITS), delay: self.delay }
    }
}

/// The number that stands for no medium.
pub const NO_MEDIUM: u32 = u32::MAX;

const FRACTION_BITS: u32 = Rate::FRACTION_BITS;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
