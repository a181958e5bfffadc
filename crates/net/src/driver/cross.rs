//! Cross-traffic of constant rate: datagrams without an answer.

use tollway_law::Time;
use tollway_proto::cbr::PLAIN;
use tollway_proto::encoding::acp;
use tollway_proto::shaper::UNSHAPED;
use tollway_proto::{Cbr, OneWay, Packet, SackRanges, Stamp};

use super::{Driver, SOURCE};
use crate::error::Error;
use crate::wire;

/// A source of cross-traffic.
#[derive(Debug)]
pub(crate) struct Source {
    cbr: Cbr,
    pub(super) size: u16,
    /// Label of the packets that it sends.
    label: u32,
    /// The first link of their path.
    first: u32,
    due: Time,
    /// Its number among shaped senders; [`UNSHAPED`] without a shaper.
    pub(super) shaped: u32,
    pub(crate) sent: u64,
}

/// A sink of cross-traffic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sink {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Bytes of those that arrived marked as in profile.
    pub(crate) in_profile: u64,
    pub(crate) one_way: OneWay,
}

impl Driver {
    pub(crate) fn add_source(&mut self, cbr: Cbr, size: u16, label: u32, first: u32) -> u32 {
        let due = cbr.first();
        self.sources.push(Source { cbr, size, label, first, due, shaped: UNSHAPED, sent: 0 });
        let at = self.sources.len() - 1;
        self.set_timer(due, at, SOURCE);
        at as u32
    }

    pub(crate) fn add_sink(&mut self) -> u32 {
        self.sinks.push(Sink::default());
        self.sinks.len() as u32 - 1
    }

    /// Sends the packets that are due at a source by `now`.
    pub(super) fn emit(&mut self, at: usize, now: Time) -> Result<(), Error> {
        loop {
            let Source { cbr, due, shaped, .. } = &mut self.sources[at];
            if *due > now {
                let due = *due;
                self.set_timer(due, at, SOURCE);
                return Ok(());
            }
            *due = cbr.advance();
            match *shaped {
                UNSHAPED => self.launch_plain(at, now, false)?,
                _ => self.emit_shaped(at, now)?,
            }
        }
    }

    /// Sends a packet of a source.
    pub(super) fn launch_plain(&mut self, at: usize, now: Time, in_profile: bool) -> Result<(), Error> {
        let Source { size, label, first, sent, .. } = &mut self.sources[at];
        let (size, first, seq) = (*size, *first, *sent as u32);
        *sent += 1;
        let sent = Stamp::at(now);
        let mut packet = Packet { size, flags: PLAIN, flow: *label, seq, sent, ..Packet::default() };
        if in_profile {
            packet.mark_in_profile();
        }
        let handle = self.buffers.alloc(packet, usize::from(size).saturating_sub(acp::OVERHEAD));
        let bytes = self.buffers.bytes_mut(handle);
        if wire::compose(&packet, &SackRanges::EMPTY, size, bytes).is_err() {
            self.buffers.free(handle);
            return Err(Error::NoRoom { size, need: acp::OVERHEAD + acp::LEN });
        }
        self.counters.created += 1;
        self.begin(first, now, handle);
        Ok(())
    }

    /// Counts a datagram of cross-traffic that arrives at its sink at `now`.
    pub(super) fn absorb(&mut self, sink: usize, packet: &Packet, now: Time) {
        let sink = &mut self.sinks[sink];
        sink.packets += 1;
        sink.bytes += u64::from(packet.size);
        sink.one_way.arrive(now, packet.sent, packet.seq);
        sink.in_profile += u64::from(packet.in_profile()) * u64::from(packet.size);
        self.counters.delivered += 1;
    }
}
