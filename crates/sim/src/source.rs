//! Cross-traffic of constant bit rate, without replies.

use tollway_law::{Rate, Time};
use tollway_proto::shaper::UNSHAPED;
use tollway_proto::{Cbr, OneWay};

use crate::names::RouteId;

/// Cross-traffic of constant rate, always on or in on–off periods.
#[derive(Clone, Copy, Debug)]
pub struct SourceSpec {
    /// The route of the packets.
    pub route: RouteId,
    /// Bits a second while on, headers included.
    pub rate: Rate,
    /// Size of a packet on the wire, in bytes.
    pub size: u16,
    /// The instant of the first packet.
    pub start: Time,
    /// No packet leaves at or after this instant.
    pub stop: Time,
    /// The lengths of the on and off periods, in turns; `None` means always on.
    pub on_off: Option<(Time, Time)>,
}

/// Counts of packets at a source and its sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that arrived.
    pub arrived_packets: u64,
    /// Bytes on the wire of the packets that arrived.
    pub arrived_bytes: u64,
    /// Bytes of the packets that arrived marked as in profile.
    pub in_profile_bytes: u64,
    /// Packets on links or in their queues.
    pub in_flight_packets: u64,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) spec: SourceSpec,
    pub(crate) stats: SinkStats,
    /// Delays and losses at its sink.
    pub(crate) one_way: OneWay,
    /// Its number among shaped senders; [`UNSHAPED`] without a shaper.
    pub(crate) shaped: u32,
    /// Packets that have passed the shaper.
    pub(crate) launched: u64,
    cbr: Cbr,
}

impl Source {
    pub(crate) fn new(spec: SourceSpec) -> Source {
        let SourceSpec { rate, size, start, stop, on_off, .. } = spec;
        let cbr = Cbr::new(rate, size, start, stop, on_off);
        Source {
            spec,
            stats: SinkStats::default(),
            one_way: OneWay::default(),
            shaped: UNSHAPED,
            launched: 0,
            cbr,
        }
    }

    /// The instant of the first packet.
    pub(crate) fn first(&self) -> Time {
        self.cbr.first()
    }

    /// Counts a packet sent, and returns the instant of the next one.
    pub(crate) fn next(&mut self) -> Time {
        self.stats.sent_packets += 1;
        self.cbr.advance()
    }
}
