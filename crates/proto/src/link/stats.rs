//! Counters and records of a link.

use tollway_law::Time;
use tollway_law::link::LinkLaw;

use super::flight::Flight;
use super::{FRACTION_BITS, Link, NO_MEDIUM, Store};
use crate::lateness::Lateness;
use crate::port::{ControlInterval, ControlLog};
use crate::trace::Cursor;

/// Packets lost on a link direction, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// The queue was full.
    pub full: u64,
    /// Dropped by the law.
    pub law: u64,
    /// Random loss or blackout before the queue.
    pub before: u64,
    /// Random loss on the wire.
    pub after: u64,
    /// Damaged on the wire.
    pub corrupt: u64,
    /// Dropped by the meter at the far end, above the allotment of a held flow.
    pub meter: u64,
}

impl Drops {
    /// Drops of the queue and its law, as a router counts them.
    pub fn queue(&self) -> u64 {
        self.full + self.law
    }

    /// All packets lost on this link.
    pub fn total(&self) -> u64 {
        self.full + self.law + self.before + self.after + self.corrupt + self.meter
    }
}

/// Counters of a link direction since the run's start; queue figures since they were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets whose transmission began.
    pub sent_packets: u64,
    /// Bytes of those packets, framing included.
    pub sent_bytes: u64,
    /// Nanoseconds the transmitter was busy.
    pub busy_ns: u64,
    /// Packets lost.
    pub drops: Drops,
    /// Packets marked.
    pub marks: u64,
    /// Copies made of packets on the wire.
    pub copies: u64,
    /// Bytes waiting, integrated over time (bytes · ns), since last read.
    pub queue_byte_ns: u128,
    /// Packets waiting, integrated over time (packets · ns), since last read.
    pub queue_packet_ns: u128,
    /// The time to send the bytes waiting, at the rate of each instant, integrated over time (ns²),
    /// since last read.
    pub queue_drain_ns2: u128,
    /// Most bytes waiting since last read.
    pub queue_max_bytes: u64,
    /// Most packets waiting since last read.
    pub queue_max_packets: u32,
}

/// Counters of measured links, and rarely used state.
#[derive(Debug, Default)]
pub(super) struct Rare {
    pub(super) rated: Rated,
    pub(super) drops: Drops,
    pub(super) marks: u64,
    pub(super) copies: u64,
    pub(super) queue_since: Time,
    pub(super) queue_byte_ns: u128,
    pub(super) queue_packet_ns: u128,
    /// The parts of the two integrals that `queue_drain_ns2` covers.
    drained: (u128, u128),
    queue_drain_ns2: u128,
    pub(super) queue_max_bytes: u64,
    pub(super) queue_max_packets: u32,
    /// Waiting times until transmission, without those of packets that found the link idle.
    pub(super) waits: Lateness,
    /// Packets sent when these were last restarted.
    waits_from: u64,
    /// The control log, if requested.
    pub(super) control: Option<Box<ControlLog>>,
    /// The trace that replaces a rate.
    pub(super) trace: Option<Box<Cursor>>,
    /// The transmitter's busy time at the last read, ns.
    pub(super) told_busy_ns: u64,
}

/// The state when the rate was last set. The transmitter's busy time since then follows from the
/// bytes sent, so packets need not add to it.
#[derive(Debug, Default)]
pub(super) struct Rated {
    pub(super) busy_ns: u64,
    pub(super) sent_bytes: u64,
    pub(super) carry: u32,
}

impl Rare {
    /// Adds a queue of `packets` and `bytes` up to `now` to the integrals.
    #[inline(always)]
    pub(super) fn integrate(&mut self, now: Time, (packets, bytes): (u32, u64)) {
        // Ten megabytes for half an hour are more than 64 bits hold.
        let span = u128::from(now.saturating_sub(self.queue_since).0);
        self.queue_byte_ns += u128::from(bytes) * span;
        self.queue_packet_ns += u128::from(packets) * span;
        self.queue_since = self.queue_since.max(now);
    }

    /// Updates the maxima, after the queue has grown.
    #[inline(always)]
    pub(super) fn note_length(&mut self, (packets, bytes): (u32, u64)) {
        self.queue_max_bytes = self.queue_max_bytes.max(bytes);
        self.queue_max_packets = self.queue_max_packets.max(packets);
    }
}

impl Link {
    /// Nanoseconds of transmission begun so far.
    pub(super) fn busy_ns(&self) -> u64 {
        let start = Rated::default();
        let rated = self.rare.as_ref().map_or(&start, |rare| &rare.rated);
        let bytes = u128::from(self.sent_bytes - rated.sent_bytes);
        let scaled = bytes * u128::from(self.ns_per_byte) + u128::from(rated.carry) - u128::from(self.carry);
        rated.busy_ns + (scaled >> FRACTION_BITS) as u64
    }

    /// Starts a log of the law's control intervals, if it has any.
    pub fn log_control(&mut self) {
        if self.port.law.control().is_some() {
            self.rare().control = Some(Box::default());
            self.recorded = true;
            self.settle();
        }
    }

    /// The control intervals that ended since the last call.
    pub fn take_control(&mut self) -> Vec<ControlInterval> {
        let log = self.rare.as_mut().and_then(|rare| rare.control.as_mut());
        log.map_or(Vec::new(), |log| log.take())
    }

    /// Waiting times of packets at a [measured](Link::measure) link, zero ones included.
    pub fn waits(&self) -> Lateness {
        let mut waits = self.rare.as_ref().map_or_else(Lateness::default, |rare| rare.waits.clone());
        waits.note(Time::ZERO, self.waited().1.saturating_sub(waits.count()));
        waits
    }

    /// The sum of these waiting times, and the number of packets.
    pub fn waited(&self) -> (Time, u64) {
        self.rare.as_ref().map_or((Time::ZERO, self.sent_packets), |rare| {
            (rare.waits.total(), self.sent_packets - rare.waits_from)
        })
    }

    /// Forgets all waiting times so far.
    pub fn restart_waits(&mut self) {
        let sent = self.sent_packets;
        let rare = self.rare();
        (rare.waits, rare.waits_from) = (Lateness::default(), sent);
    }

    /// Adds the queue up to now, at the present rate, to the integral of the time to send it.
    /// Without a rate, or on a medium, [`note_service`](Link::note_service) does so.
    pub(super) fn note_drain(&mut self) {
        let rated = self.ns_per_byte > 0 && self.medium == NO_MEDIUM;
        let (ns_per_byte, overhead) = (u128::from(self.ns_per_byte), u128::from(self.overhead));
        let Some(rare) = &mut self.rare else { return };
        let (bytes, packets) = (rare.queue_byte_ns - rare.drained.0, rare.queue_packet_ns - rare.drained.1);
        if rated {
            rare.queue_drain_ns2 += ((bytes + overhead * packets) * ns_per_byte) >> FRACTION_BITS;
        }
        rare.drained = (rare.queue_byte_ns, rare.queue_packet_ns);
    }

    /// Adds a packet that waited to the same integral, on a link whose rate does not tell the time
    /// to send it. The transmitter was free at the first instant, and has sent the packet from the
    /// second on.
    pub(super) fn note_service(&mut self, waited: Time, (free_before, start): (Time, Time)) {
        if self.ns_per_byte > 0 && self.medium == NO_MEDIUM {
            return;
        }
        // Up to its time at the head, each packet stands for all of its service.
        let head = u128::from(waited.min(start.saturating_sub(free_before)).0);
        let service = u128::from(self.free_at.saturating_sub(start).0) + head;
        let drain = (u128::from(waited.0) - head) * service + head * head / 2;
        self.rare().queue_drain_ns2 += drain;
    }

    /// Adds the queue up to `now` to the integrals, before it changes.
    #[inline]
    pub(super) fn note_queue(&mut self, now: Time) {
        if self.measured {
            let backlog = (self.port.packets(), self.port.bytes());
            self.rare.get_or_insert_default().integrate(now, backlog);
        }
    }

    /// Updates the maxima, after the queue may have grown.
    #[inline(always)]
    pub fn note_waiting(&mut self) {
        if self.measured {
            let backlog = (self.port.packets(), self.port.bytes());
            self.rare.get_or_insert_default().note_length(backlog);
        }
    }

    /// [`read`](Link::read), caught up to `now` first.
    pub fn read_stats(&mut self, now: Time, store: &mut impl Store) -> LinkStats {
        self.catch_up(now, store);
        self.read(now)
    }

    /// The counters of a link caught up to `now`; those of the queue restart.
    pub fn read(&mut self, now: Time) -> LinkStats {
        self.note_queue(now);
        self.note_drain();
        let mut stats = LinkStats {
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            // The remaining time of the packet in transmission is not busy time yet.
            busy_ns: self.busy_ns().saturating_sub(self.free_at.saturating_sub(now).0),
            ..LinkStats::default()
        };
        if let Some(rare) = &mut self.rare {
            // A live engine reads a moment late, maybe for one before that packet began.
            stats.busy_ns = stats.busy_ns.max(rare.told_busy_ns);
            rare.told_busy_ns = stats.busy_ns;
            stats.drops = rare.drops;
            stats.marks = rare.marks;
            stats.copies = rare.copies;
            stats.queue_byte_ns = std::mem::take(&mut rare.queue_byte_ns);
            stats.queue_packet_ns = std::mem::take(&mut rare.queue_packet_ns);
            stats.queue_drain_ns2 = std::mem::take(&mut rare.queue_drain_ns2);
            rare.drained = (0, 0);
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
    pub fn drops(&self) -> Drops {
        self.rare.as_ref().map_or(Drops::default(), |rare| rare.drops)
    }

    /// All packets at the port, in the transmitter or on the wire.
    pub fn held(&self) -> impl Iterator<Item = u32> + '_ {
        let first = (!self.is_idle() && !self.is_shaken()).then_some(self.first_slot);
        let flying = self.flight().into_iter().flat_map(Flight::slots);
        self.port.queued().chain(first).chain(self.behind.iter().map(|arrival| arrival.slot)).chain(flying)
    }

    /// Number of packets that came off the wire, without lost ones.
    pub fn handed_on(&self) -> u64 {
        let drops = self.drops();
        self.sent_packets + self.copies()
            - drops.after
            - drops.corrupt
            - drops.meter
            - self.in_flight() as u64
    }

    /// Copies made of packets on the wire.
    pub fn copies(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.copies)
    }

    /// The rarely used state, created if needed.
    #[cold]
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Turns measurement of the queue on or off.
    pub fn measure(&mut self, now: Time, on: bool) {
        self.note_queue(now);
        self.measured = on;
        if on {
            self.rare().queue_since = now;
        }
    }
}
