//! Captures: packets at the far end of tapped links, and packets dropped or lost there.

use tollway_law::Time;
use tollway_proto::{Encoding, Packet, SackRanges};

use crate::names::{End, FlowId, LinkId, SourceId};

/// A packet seen on a link.
#[derive(Clone, Copy, Debug)]
pub struct Sighting {
    /// The instant of arrival at the link's far end, or of the drop.
    pub at: Time,
    /// The tapped link.
    pub link: LinkId,
    /// The packet's fate at this link.
    pub fate: Fate,
    /// The packet, as of that instant.
    pub packet: Packet,
    /// Its SACK ranges.
    pub sack: SackRanges,
    /// The sender of the packet.
    pub origin: Origin,
    /// The first and the last link of its route.
    pub ends: (LinkId, LinkId),
}

/// The fate of a packet at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It crossed the link.
    Crossed,
    /// The port did not accept it, or it was lost before.
    Dropped,
    /// It was lost on the wire.
    Lost,
}

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin {
    /// A machine of a flow.
    Machine {
        /// The flow.
        flow: FlowId,
        /// The end that sent it.
        end: End,
        /// The form of its tolls in bytes.
        encoding: Encoding,
        /// A full segment on the wire, bytes.
        segment: u32,
        /// The round-trip time, in seconds, stated by the last tolled packet that the machine
        /// received.
        heard_rtt: f32,
    },
    /// Cross-traffic.
    Source(SourceId),
}

/// The tapped links of a network, and the packets seen there.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    pub(crate) watched: Vec<bool>,
    pub(crate) seen: Vec<Sighting>,
}
