//! What a capture sees: packets at the far end of the links it watches, and those that never got there.

use tollway_law::Time;
use tollway_proto::{Encoding, Packet, SackRanges};

use crate::names::{End, FlowId, LinkId, SourceId};

/// A packet seen on a link.
#[derive(Clone, Copy, Debug)]
pub struct Sighting {
    /// When: as it arrived at the link's far end, or was dropped.
    pub at: Time,
    /// On which link.
    pub link: LinkId,
    /// What became of it there.
    pub fate: Fate,
    /// The packet, as it was then.
    pub packet: Packet,
    /// Its SACK ranges.
    pub sack: SackRanges,
    /// Who sent it.
    pub origin: Origin,
    /// The first and the last link of its route.
    pub ends: (LinkId, LinkId),
}

/// What became of a packet at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It crossed the link.
    Crossed,
    /// The port did not take it in, or it was lost before.
    Dropped,
    /// It was lost on the wire.
    Lost,
}

/// Who sent a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin {
    /// A machine of a flow.
    Machine {
        /// The flow.
        flow: FlowId,
        /// Which of its ends.
        end: End,
        /// How its tolls are written.
        encoding: Encoding,
        /// A full segment on the wire, bytes.
        segment: u32,
        /// The round-trip time, s, of the last tolled packet that the machine had.
        heard_rtt: f32,
    },
    /// Cross-traffic.
    Source(SourceId),
}

/// What a network's links are watched with.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    pub(crate) watched: Vec<bool>,
    pub(crate) seen: Vec<Sighting>,
}
