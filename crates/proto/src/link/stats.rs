//! What a link counts, and what is written down of it.

use tollway_law::Time;
use tollway_law::link::LinkLaw;

use super::flight::Flight;
use super::{FRACTION_BITS, Link, Store};
use crate::lateness::Lateness;
use crate::port::{ControlInterval, ControlLog};
use crate::trace::Cursor;

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
    /// Damaged on the wire.
    pub corrupt: u64,
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
        self.full + self.law + self.before + self.after + self.corrupt + self.meter
    }
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
    /// Packets lost.
    pub drops: Drops,
    /// Packets marked.
    pub marks: u64,
    /// Packets that came to be as copies of others, on the wire.
    pub copies: u64,
    /// Bytes waiting, integrated over time (bytes · ns), since last read.
    pub queue_byte_ns: u128,
    /// Packets waiting, integrated over time (packets · ns), since last read.
    pub queue_packet_ns: u128,
    /// Most bytes waiting since last read.
    pub queue_max_bytes: u64,
    /// Most packets waiting since last read.
    pub queue_max_packets: u32,
}

/// What is counted on measured links only, or seldom.
#[derive(Debug, Default)]
pub(super) struct Rare {
    pub(super) rated: Rated,
    pub(super) drops: Drops,
    pub(super) marks: u64,
    pub(super) copies: u64,
    pub(super) queue_since: Time,
    pub(super) queue_byte_ns: u128,
    pub(super) queue_packet_ns: u128,
    pub(super) queue_max_bytes: u64,
    pub(super) queue_max_packets: u32,
    /// Kept while somebody wants it.
    pub(super) control: Option<Box<ControlLog>>,
    /// What the link replays instead of having a rate.
    pub(super) trace: Option<Box<Cursor>>,
    /// How long packets waited until their transmission began, if that is wanted.
    pub(super) waits: Option<Lateness>,
    /// Time the transmitter was busy as last read, ns.
    pub(super) told_busy_ns: u64,
}

/// How things stood when the rate was last set: what the transmitter has done since follows from the bytes sent, so
/// that no packet has to add to it.
#[derive(Debug, Default)]
pub(super) struct Rated {
    pub(super) busy_ns: u64,
    pub(super) sent_bytes: u64,
    pub(super) carry: u32,
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

    /// From now on what the law says in each control interval is written down, if it has any.
    pub fn log_control(&mut self) {
        if self.port.law.control().is_some() {
            self.rare().control = Some(Box::default());
            self.record();
        }
    }

    /// The control intervals that ended since this was last called.
    pub fn take_control(&mut self) -> Vec<ControlInterval> {
        let log = self.rare.as_mut().and_then(|rare| rare.control.as_mut());
        log.map_or(Vec::new(), |log| log.take())
    }

    /// From now on how long packets wait is counted.
    pub fn note_waits(&mut self) {
        self.rare().waits = Some(Lateness::default());
        self.record();
    }

    /// How long packets waited, those that did not among them.
    pub fn waits(&self) -> Option<&Lateness> {
        self.rare.as_ref()?.waits.as_ref()
    }

    pub(super) fn record(&mut self) {
        self.recorded = true;
        self.settle();
    }

    /// Adds to the integrals what waited up to `now`, before the queue changes.
    #[inline(always)]
    pub(super) fn note_queue(&mut self, now: Time) {
        if self.measured {
            let rare = self.rare.get_or_insert_default();
            // Ten megabytes for half an hour are more than 64 bits hold.
            let span = u128::from(now.saturating_sub(rare.queue_since).0);
            rare.queue_byte_ns += u128::from(self.port.bytes()) * span;
            rare.queue_packet_ns += u128::from(self.port.packets()) * span;
            rare.queue_since = rare.queue_since.max(now);
        }
    }

    /// The queue may have grown.
    #[inline(always)]
    pub fn note_waiting(&mut self) {
        if self.measured {
            self.note_length();
        }
    }

    /// The queue has grown.
    #[inline]
    pub(super) fn note_length(&mut self) {
        let rare = self.rare.get_or_insert_default();
        rare.queue_max_bytes = rare.queue_max_bytes.max(self.port.bytes());
        rare.queue_max_packets = rare.queue_max_packets.max(self.port.packets());
    }

    /// The figures up to `now`; those of the queue start anew.
    pub fn read_stats(&mut self, now: Time, store: &mut impl Store) -> LinkStats {
        self.catch_up(now, store);
        self.note_queue(now);
        let mut stats = LinkStats {
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            // What the packet in transmission has still to go isn't done yet.
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

    /// Every packet at the port, in the transmitter or on the wire.
    pub fn held(&self) -> impl Iterator<Item = u32> + '_ {
        let first = (!self.is_idle() && !self.is_shaken()).then_some(self.first_slot);
        let flying = self.flight().into_iter().flat_map(Flight::slots);
        self.port.queued().chain(first).chain(self.behind.iter().map(|arrival| arrival.slot)).chain(flying)
    }

    /// Packets that have come off the wire, lost ones left out.
    pub fn handed_on(&self) -> u64 {
        let drops = self.drops();
        self.sent_packets + self.copies()
            - drops.after
            - drops.corrupt
            - drops.meter
            - self.in_flight() as u64
    }

    /// Packets that came to be as copies of others, on the wire.
    pub fn copies(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.copies)
    }

    /// What is counted seldom, to be added to.
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
