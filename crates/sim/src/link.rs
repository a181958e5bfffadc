//! One direction of a link: port, transmitter, wire.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::link::AnyLink;
use tollway_law::{Rate, Time};
use tollway_proto::port::{ControlLog, FlowQueuesConfig, Limit, Offered};
use tollway_proto::{Fifo, Flags, Packet, Port};

use crate::slab::Slab;

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
    /// Queues by flow instead of one, each under a copy of the law.
    pub flow_queues: Option<FlowQueuesConfig>,
}

/// Random loss on a link direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSpec {
    /// Before the port's law sees the packet, or after, on the wire.
    pub place: Place,
    /// Which packets.
    pub only: Direction,
    /// Probability for each packet, independently.
    pub probability: f64,
}

/// Where on a link packets get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On arrival, before queue and law.
    Before,
    /// On the wire, after the law has written.
    After,
}

/// Which packets get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Every packet.
    All,
    /// Packets that carry data.
    Data,
    /// Packets that carry none.
    Acks,
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
}

impl Drops {
    /// Drops of the queue and its law: what a router would count.
    pub fn queue(&self) -> u64 {
        self.full + self.law
    }

    /// All packets lost here.
    pub fn total(&self) -> u64 {
        self.full + self.law + self.before + self.after
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
    pub queue_byte_ns: u64,
    /// Packets waiting, integrated over time (packets · ns), since last read.
    pub queue_packet_ns: u64,
    /// Most bytes waiting since last read.
    pub queue_max_bytes: u64,
    /// Most packets waiting since last read.
    pub queue_max_packets: u32,
}

/// Three cache lines, in the order of use: a large network waits for memory more than for anything else.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Link {
    /// When the next packet arrives at the far end, [`Time::NEVER`] if none is on its way, and which.
    first: Arrival,
    /// When the transmitter is free. Invariant (without a medium): if the queue holds a packet, this lies after the
    /// last instant the link was caught up to.
    pub(crate) free_at: Time,
    /// Nanoseconds a byte, in units of 2^-24.
    ns_per_byte: u64,
    delay: Time,
    /// What is left over of the last transmission's nanoseconds, in units of 2^-24: the long-run rate is exact.
    carry: u32,
    overhead: u32,
    pub(crate) faults: Option<Box<Faults>>,
    /// The shared medium whose turn this direction awaits, [`NO_MEDIUM`] if it has a wire of its own.
    pub(crate) medium: u32,
    /// The queue is watched.
    measured: bool,
    /// What the law says is written down.
    logs_control: bool,
    pub(crate) port: Port<AnyLink, u32>,
    /// Packets on the wire or in the transmitter behind the first, by arrival at the far end. An idle link's packet
    /// never gets here, and needs no other memory than the link's own.
    behind: Fifo<Arrival>,
    sent_packets: u64,
    sent_bytes: u64,
    busy_ns: u64,
    rare: Box<Rare>,
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
    drops: Drops,
    marks: u64,
    queue_since: Time,
    queue_byte_ns: u64,
    queue_packet_ns: u64,
    queue_max_bytes: u64,
    queue_max_packets: u32,
    /// Kept while somebody wants it.
    control: Option<Box<ControlLog>>,
}

/// What goes wrong on a link.
#[derive(Debug)]
pub(crate) struct Faults {
    rng: Pcg64Mcg,
    pub(crate) losses: Vec<LossSpec>,
    pub(crate) blackout: bool,
}

impl Faults {
    pub(crate) fn new(seed: u64, link: u32) -> Faults {
        // A stream of its own for each link: losses here don't depend on traffic elsewhere.
        let seed = seed ^ (u64::from(link) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Faults { rng: Pcg64Mcg::seed_from_u64(seed), losses: Vec::new(), blackout: false }
    }

    /// Whether `packet` is lost at `place`.
    fn strike(&mut self, place: Place, packet: &Packet) -> bool {
        if place == Place::Before && self.blackout {
            return true;
        }
        let data = packet.flags.has(Flags::DATA);
        let mut lost = false;
        for loss in &self.losses {
            let meant = match loss.only {
                Direction::All => true,
                Direction::Data => data,
                Direction::Acks => !data,
            };
            lost |= loss.place == place && meant && self.rng.random::<f64>() < loss.probability;
        }
        lost
    }
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
        Link {
            first: Arrival::default(),
            free_at: Time::ZERO,
            ns_per_byte: fixed_ns_per_byte(spec.rate),
            delay: spec.delay,
            carry: 0,
            overhead: spec.overhead,
            faults: None,
            medium: NO_MEDIUM,
            measured: false,
            logs_control: false,
            port: match spec.flow_queues {
                None => Port::new(spec.law, spec.limit),
                Some(config) => Port::with_flow_queues(spec.law, spec.limit, config),
            },
            behind: Fifo::new(),
            sent_packets: 0,
            sent_bytes: 0,
            busy_ns: 0,
            rare: Box::default(),
        }
    }

    /// When the next packet arrives at the far end.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Time {
        self.first.at
    }

    /// Whether no packet is on the wire or in the transmitter.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.first.at == Time::NEVER
    }

    /// Packets on the wire or in the transmitter.
    pub(crate) fn in_flight(&self) -> usize {
        usize::from(!self.is_idle()) + self.behind.len() as usize
    }

    /// The packet that arrives at the far end at `now`.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Time, slab: &mut Slab) -> Option<u32> {
        let arrived = self.first;
        if arrived.at == Time::NEVER {
            return None;
        }
        debug_assert_eq!(arrived.at, now);
        self.first = self.behind.pop_front().unwrap_or_default();
        if self.is_idle() {
            self.catch_up(now, slab);
            if self.first.at < now {
                self.hold_back(now);
            }
        }
        Some(arrived.slot)
    }

    /// What departed with a delay that had shrunk doesn't overtake the packet that arrives at `now`, either.
    #[cold]
    fn hold_back(&mut self, now: Time) {
        self.first.at = now;
        for _ in 0..self.behind.len() {
            if let Some(arrival) = self.behind.pop_front() {
                self.behind.push_back(Arrival { at: arrival.at.max(now), ..arrival });
            }
        }
    }

    /// Whether random loss takes the packet off the wire.
    #[inline]
    pub(crate) fn lost_on_wire(&mut self, packet: &Packet) -> bool {
        match &mut self.faults {
            None => false,
            Some(faults) => {
                let lost = faults.strike(Place::After, packet);
                self.rare.drops.after += u64::from(lost);
                lost
            }
        }
    }

    /// From now on what the law says in each control interval is written down.
    pub(crate) fn log_control(&mut self) {
        self.logs_control = true;
        self.rare.control = Some(Box::default());
    }

    /// What is written down of that.
    pub(crate) fn control_log(&mut self) -> Option<&mut ControlLog> {
        self.rare.control.as_deref_mut()
    }

    /// Runs the departures up to and including `now`, each at its own instant.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: Time, slab: &mut Slab) {
        while self.free_at <= now && self.port.packets() > 0 && self.medium == NO_MEDIUM {
            self.transmit(self.free_at, slab);
        }
    }

    /// Takes the next packet from the queue and puts it on the wire at `now`, when the transmitter is free. Answers
    /// whether there was one.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Time, slab: &mut Slab) -> bool {
        self.note_queue(now);
        let drops = &mut self.rare.drops.law;
        let taken = self.port.take(now, slab, |slab, slot| {
            *drops += 1;
            slab.lose(slot);
        });
        let Some((slot, marked)) = taken else { return false };
        if marked {
            self.rare.marks += 1;
        }
        self.depart(now, slot, slab);
        true
    }

    /// Puts a packet on the wire at `start`.
    #[inline]
    fn depart(&mut self, start: Time, slot: u32, slab: &mut Slab) {
        if self.logs_control
            && let Some(log) = &mut self.rare.control
        {
            log.note(&self.port.law, slab.get(slot));
        }
        slab.quantise_link(slot);
        let bytes = u64::from(slab.get(slot).size) + u64::from(self.overhead);
        let scaled = bytes * self.ns_per_byte + u64::from(self.carry);
        self.carry = (scaled & FRACTION) as u32;
        let span = Time(scaled >> FRACTION_BITS);
        self.free_at = start + span;
        self.sent_packets += 1;
        self.sent_bytes += bytes;
        self.busy_ns += span.0;
        self.launch(self.free_at + self.delay, slot);
    }

    #[inline]
    fn launch(&mut self, at: Time, slot: u32) {
        if self.is_idle() {
            self.first = Arrival { at, slot };
            return;
        }
        // A wire keeps order: if the delay has shrunk, later packets don't overtake.
        let last = self.behind.back().unwrap_or(self.first);
        self.behind.push_back(Arrival { at: at.max(last.at), slot });
    }

    /// A packet arrives at the port.
    #[inline]
    pub(crate) fn offer(&mut self, now: Time, slot: u32, slab: &mut Slab) -> Outcome {
        if let Some(faults) = &mut self.faults
            && faults.strike(Place::Before, slab.get(slot))
        {
            self.rare.drops.before += 1;
            return Outcome::Lost;
        }
        self.catch_up(now, slab);
        let offered = if self.free_at <= now && self.medium == NO_MEDIUM {
            let offered = self.port.pass(now, slot, slab);
            if matches!(offered, Offered::Queued | Offered::Marked) {
                self.depart(now, slot, slab);
            }
            offered
        } else {
            self.note_queue(now);
            let drops = &mut self.rare.drops.full;
            let offered = self.port.offer(now, slot, slab, |slab, slot| {
                *drops += 1;
                slab.lose(slot);
            });
            if self.measured {
                self.rare.queue_max_bytes = self.rare.queue_max_bytes.max(self.port.bytes());
                self.rare.queue_max_packets = self.rare.queue_max_packets.max(self.port.packets());
            }
            offered
        };
        match offered {
            Offered::Queued => return Outcome::In,
            Offered::Marked => {
                self.rare.marks += 1;
                return Outcome::In;
            }
            Offered::Full => self.rare.drops.full += 1,
            Offered::Dropped => self.rare.drops.law += 1,
        }
        Outcome::Lost
    }

    /// Adds to the integrals what waited up to `now`, before the queue changes.
    #[inline]
    fn note_queue(&mut self, now: Time) {
        if self.measured {
            let rare = &mut *self.rare;
            let span = now.0 - rare.queue_since.0;
            rare.queue_byte_ns += self.port.bytes() * span;
            rare.queue_packet_ns += u64::from(self.port.packets()) * span;
            rare.queue_since = now;
        }
    }

    /// The figures up to `now`; those of the queue start anew.
    pub(crate) fn read_stats(&mut self, now: Time, slab: &mut Slab) -> LinkStats {
        self.catch_up(now, slab);
        self.note_queue(now);
        let rare = &mut *self.rare;
        let stats = LinkStats {
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            // What the packet in transmission has still to go isn't done yet.
            busy_ns: self.busy_ns - self.free_at.saturating_sub(now).0,
            drops: rare.drops,
            marks: rare.marks,
            queue_byte_ns: rare.queue_byte_ns,
            queue_packet_ns: rare.queue_packet_ns,
            queue_max_bytes: rare.queue_max_bytes,
            queue_max_packets: rare.queue_max_packets,
        };
        rare.queue_byte_ns = 0;
        rare.queue_packet_ns = 0;
        rare.queue_max_bytes = self.port.bytes();
        rare.queue_max_packets = self.port.packets();
        stats
    }

    /// Packets lost here so far.
    pub(crate) fn drops(&self) -> Drops {
        self.rare.drops
    }

    /// Turns measurement of the queue on or off.
    pub(crate) fn measure(&mut self, now: Time, on: bool) {
        self.note_queue(now);
        self.measured = on;
        self.rare.queue_since = now;
    }

    /// From `now` on bits leave at `rate`; what is left of the packet in transmission, too.
    pub(crate) fn set_rate(&mut self, now: Time, rate: Rate, slab: &mut Slab) {
        self.catch_up(now, slab);
        let before = self.ns_per_byte;
        self.ns_per_byte = fixed_ns_per_byte(rate);
        if self.free_at > now && before > 0 {
            let left = self.free_at.0 - now.0;
            let scaled = (u128::from(left) * u128::from(self.ns_per_byte) / u128::from(before)) as u64;
            self.free_at = now + Time(scaled);
            self.busy_ns = self.busy_ns - left + scaled;
            let last = self.behind.pop_back().unwrap_or_else(|| std::mem::take(&mut self.first));
            if last.at != Time::NEVER {
                self.launch(self.free_at + self.delay, last.slot);
            }
        }
    }

    /// Packets that depart from `now` on take `delay`.
    pub(crate) fn set_delay(&mut self, now: Time, delay: Time, slab: &mut Slab) {
        self.catch_up(now, slab);
        self.delay = delay;
    }

    /// The law is told another capacity.
    pub(crate) fn set_capacity(&mut self, now: Time, capacity: Rate, slab: &mut Slab) {
        self.catch_up(now, slab);
        self.port.set_capacity(now, capacity);
    }

    /// The queue holds another number of packets and bytes.
    pub(crate) fn set_limit(&mut self, now: Time, limit: Limit, slab: &mut Slab) {
        self.catch_up(now, slab);
        self.port.set_limit(limit);
    }
}

/// Nanoseconds a byte at `rate`, in units of 2^-24; a rate of zero, or below 100 bit/s, counts as 100 bit/s so that
/// time can't overflow.
fn fixed_ns_per_byte(rate: Rate) -> u64 {
    let rate = rate.bytes_per_sec().max(12.5);
    (1e9 / rate * (1u64 << FRACTION_BITS) as f64 + 0.5) as u64
}

/// No shared medium.
pub(crate) const NO_MEDIUM: u32 = u32::MAX;

const FRACTION_BITS: u32 = 24;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
