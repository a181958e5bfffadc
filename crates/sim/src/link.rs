//! One direction of a link: port, transmitter, wire.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::link::AnyLink;
use tollway_law::{Rate, Time};
use tollway_proto::port::{FlowQueuesConfig, Limit, Offered};
use tollway_proto::{Flags, Packet, Port};

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

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) port: Port<AnyLink, u32>,
    /// Packets on the wire or in the transmitter, by arrival at the far end.
    flight: VecDeque<(Time, u32)>,
    /// When the transmitter is free. Invariant (without a medium): if the queue holds a packet, this lies after the
    /// last instant the link was caught up to.
    pub(crate) free_at: Time,
    /// Nanoseconds a byte, in units of 2^-24.
    ns_per_byte: u64,
    /// What is left over of the last transmission's nanoseconds, in units of 2^-24: the long-run rate is exact.
    carry: u64,
    delay: Time,
    overhead: u32,
    /// The shared medium whose turn this direction awaits, [`NO_MEDIUM`] if it has a wire of its own.
    pub(crate) medium: u32,
    pub(crate) measured: bool,
    queue_since: Time,
    pub(crate) stats: LinkStats,
    pub(crate) faults: Option<Box<Faults>>,
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
        let mut link = Link {
            port: match spec.flow_queues {
                None => Port::new(spec.law, spec.limit),
                Some(config) => Port::with_flow_queues(spec.law, spec.limit, config),
            },
            flight: VecDeque::new(),
            free_at: Time::ZERO,
            ns_per_byte: 0,
            carry: 0,
            delay: spec.delay,
            overhead: spec.overhead,
            medium: NO_MEDIUM,
            measured: false,
            queue_since: Time::ZERO,
            stats: LinkStats::default(),
            faults: None,
        };
        link.ns_per_byte = fixed_ns_per_byte(spec.rate);
        link
    }

    /// When the next packet arrives at the far end.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Time {
        self.flight.front().map_or(Time::NEVER, |&(at, _)| at)
    }

    /// Packets on the wire or in the transmitter.
    pub(crate) fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// The packet that arrives at the far end at `now`.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Time, slab: &mut Slab) -> Option<u32> {
        let (at, slot) = self.flight.pop_front()?;
        debug_assert_eq!(at, now);
        if self.flight.is_empty() {
            self.catch_up(now, slab);
        }
        Some(slot)
    }

    /// Whether random loss takes the packet off the wire.
    #[inline]
    pub(crate) fn lost_on_wire(&mut self, packet: &Packet) -> bool {
        match &mut self.faults {
            None => false,
            Some(faults) => {
                let lost = faults.strike(Place::After, packet);
                self.stats.drops.after += u64::from(lost);
                lost
            }
        }
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
        let drops = &mut self.stats.drops.law;
        let taken = self.port.take(now, slab, |slab, slot| {
            *drops += 1;
            slab.lose(slot);
        });
        if let Some(slot) = taken {
            self.depart(now, slot, slab);
        }
        taken.is_some()
    }

    /// Puts a packet on the wire at `start`.
    #[inline]
    fn depart(&mut self, start: Time, slot: u32, slab: &mut Slab) {
        slab.quantise_link(slot);
        let bytes = u64::from(slab.get(slot).size) + u64::from(self.overhead);
        let scaled = bytes * self.ns_per_byte + self.carry;
        self.carry = scaled & FRACTION;
        let span = Time(scaled >> FRACTION_BITS);
        self.free_at = start + span;
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += bytes;
        self.stats.busy_ns += span.0;
        self.launch(self.free_at + self.delay, slot);
    }

    /// A wire keeps order: if the delay has shrunk, later packets don't overtake.
    #[inline]
    fn launch(&mut self, at: Time, slot: u32) {
        let at = self.flight.back().map_or(at, |&(last, _)| at.max(last));
        self.flight.push_back((at, slot));
    }

    /// A packet arrives at the port.
    #[inline]
    pub(crate) fn offer(&mut self, now: Time, slot: u32, slab: &mut Slab) -> Outcome {
        if let Some(faults) = &mut self.faults
            && faults.strike(Place::Before, slab.get(slot))
        {
            self.stats.drops.before += 1;
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
            let drops = &mut self.stats.drops.full;
            let offered = self.port.offer(now, slot, slab, |slab, slot| {
                *drops += 1;
                slab.lose(slot);
            });
            if self.measured {
                self.stats.queue_max_bytes = self.stats.queue_max_bytes.max(self.port.bytes());
                self.stats.queue_max_packets = self.stats.queue_max_packets.max(self.port.packets());
            }
            offered
        };
        match offered {
            Offered::Queued => return Outcome::In,
            Offered::Marked => {
                self.stats.marks += 1;
                return Outcome::In;
            }
            Offered::Full => self.stats.drops.full += 1,
            Offered::Dropped => self.stats.drops.law += 1,
        }
        Outcome::Lost
    }

    /// Adds to the integrals what waited up to `now`, before the queue changes.
    #[inline]
    fn note_queue(&mut self, now: Time) {
        if self.measured {
            let span = now.0 - self.queue_since.0;
            self.stats.queue_byte_ns += self.port.bytes() * span;
            self.stats.queue_packet_ns += u64::from(self.port.packets()) * span;
            self.queue_since = now;
        }
    }

    /// The figures up to `now`; those of the queue start anew.
    pub(crate) fn read_stats(&mut self, now: Time, slab: &mut Slab) -> LinkStats {
        self.catch_up(now, slab);
        self.note_queue(now);
        let mut stats = self.stats;
        // What the packet in transmission has still to go isn't done yet.
        stats.marks += self.port.marks_on_departure();
        stats.busy_ns -= self.free_at.saturating_sub(now).0;
        self.stats.queue_byte_ns = 0;
        self.stats.queue_packet_ns = 0;
        self.stats.queue_max_bytes = self.port.bytes();
        self.stats.queue_max_packets = self.port.packets();
        stats
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
            self.stats.busy_ns = self.stats.busy_ns - left + scaled;
            if let Some((_, slot)) = self.flight.pop_back() {
                self.launch(self.free_at + self.delay, slot);
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
