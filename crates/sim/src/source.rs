//! Plain cross-traffic: constant bit rate, answered by nobody.

use tollway_law::{Rate, Time};
use tollway_proto::Cbr;
use tollway_proto::shaper::OPEN;

use crate::names::RouteId;

/// Cross-traffic of constant rate, on all the time or in turns.
#[derive(Clone, Copy, Debug)]
pub struct SourceSpec {
    /// Where the packets go.
    pub route: RouteId,
    /// Bits a second while on, headers included.
    pub rate: Rate,
    /// Bytes a packet on the wire.
    pub size: u16,
    /// The first packet leaves here.
    pub start: Time,
    /// No packet leaves from here on.
    pub stop: Time,
    /// How long it is on, and off, in turns; `None` is always on.
    pub on_off: Option<(Time, Time)>,
}

/// What a source sent and its sink got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that arrived.
    pub arrived_packets: u64,
    /// Their bytes on the wire.
    pub arrived_bytes: u64,
    /// Of these, what came marked as in profile.
    pub in_profile_bytes: u64,
    /// Packets on links or in their queues.
    pub in_flight_packets: u64,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) spec: SourceSpec,
    pub(crate) stats: SinkStats,
    /// Where it asks before it sends.
    pub(crate) gate: u32,
    /// Packets that have passed the gate.
    pub(crate) launched: u64,
    cbr: Cbr,
}

impl Source {
    pub(crate) fn new(spec: SourceSpec) -> Source {
        let SourceSpec { rate, size, start, stop, on_off, .. } = spec;
        let cbr = Cbr::new(rate, size, start, stop, on_off);
        Source { spec, stats: SinkStats::default(), gate: OPEN, launched: 0, cbr }
    }

    /// When the first packet leaves.
    pub(crate) fn first(&self) -> Time {
        self.cbr.first()
    }

    /// A packet left; when does the next one?
    pub(crate) fn next(&mut self) -> Time {
        self.stats.sent_packets += 1;
        self.cbr.advance()
    }
}
