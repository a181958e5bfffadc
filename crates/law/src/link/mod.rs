//! Link laws: what an output port says to the packets that pass it.
//!
//! A port (in `tollway-proto`) offers each packet to its law on arrival, before it decides whether there is room,
//! and again on departure, when the packet leaves the queue for the transmitter. Between the two calls for
//! different packets the backlog does not change, so a law that works in control intervals catches up on the
//! intervals that ended since it was last called, each at its exact instant, and needs no timer of its own
//! (the "delayed computation" of the XCP study, exact instead of late).

use crate::{Kind, Rate, Time, Toll};

/// What a law sees of a packet and of the queue around it.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// Bytes on the wire without the link's framing.
    pub size: u32,
    /// Whether the packet's toll is meant for this link.
    pub kind: Kind,
    /// Whether the packet may be marked instead of dropped (ECN-capable, RFC 3168).
    pub ect: bool,
    /// Packets in the queue: without the one in transmission, without an arriving one, with a departing one.
    pub backlog_packets: u32,
    /// The same in bytes.
    pub backlog_bytes: u64,
    /// How long the packet was queued, zero on arrival.
    pub waited: Time,
}

/// What the law wants done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it pass.
    Pass,
    /// Tell its sender of congestion: marked if it may be, dropped if not.
    Signal,
    /// Drop it.
    Drop,
}

/// A link's law. Every method is on the path of every packet: no allocation, no hashing.
pub trait LinkLaw {
    /// A packet comes to the port; the law sees it also if the queue then has no room.
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict;

    /// A packet leaves the queue for the transmitter; the law writes into its toll.
    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict;

    /// The link's capacity, as configured for the law, changes.
    fn set_capacity(&mut self, _now: Time, _capacity: Rate) {}
}

/// No law: what does not fit is dropped by the port.
#[derive(Clone, Copy, Debug, Default)]
pub struct DropTail;

impl LinkLaw for DropTail {
    #[inline]
    fn on_arrival(&mut self, _: Time, _: Passing, _: &Toll) -> Verdict {
        Verdict::Pass
    }

    #[inline]
    fn on_departure(&mut self, _: Time, _: Passing, _: &mut Toll) -> Verdict {
        Verdict::Pass
    }
}

/// Every link law by value: dispatch is one predictable branch, and a port stays in one piece of memory.
#[derive(Clone, Debug)]
pub enum AnyLink {
    /// [`DropTail`].
    DropTail(DropTail),
}

impl LinkLaw for AnyLink {
    #[inline]
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        match self {
            AnyLink::DropTail(law) => law.on_arrival(now, packet, toll),
        }
    }

    #[inline]
    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        match self {
            AnyLink::DropTail(law) => law.on_departure(now, packet, toll),
        }
    }

    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        match self {
            AnyLink::DropTail(law) => law.set_capacity(now, capacity),
        }
    }
}
