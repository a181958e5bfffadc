//! Middles that watch the wires of links, such as meters.

use std::net::SocketAddr;

use tollway_law::Time;
use tollway_proto::encoding::acp;
use tollway_proto::link::Pace;
use tollway_proto::{Encoding, Gate, Packet, Passed, SackRanges};

use super::Driver;
use crate::emulator;
use crate::error::Error;
use crate::label::CARRIED;

/// A watched link of another process, by which datagrams arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) machine: u32,
    pub(crate) gate: Gate,
    pub(crate) pace: Pace,
}

impl Driver {
    /// The next packet that leaves the wire of a link by `now` and goes on, with its due time.
    pub(super) fn arrive(&mut self, link: usize, now: Time) -> Option<(Time, u32)> {
        let Some((machine, gate)) = self.links[link].watch else {
            return emulator::arrive(&mut self.links[link].link, now, &mut self.buffers);
        };
        loop {
            let hop = &mut self.links[link].link;
            let (at, handle) = hop.arrive_by(now, &mut self.buffers)?;
            let wire = hop.pace().wire(self.buffers.get(handle).size);
            // A datagram that does not decode goes on. Its receiver drops it.
            let decoded = acp::decode(self.datagram(handle));
            let own = self.buffers.own_label(handle);
            let mut seen = decoded.map(|acp::Decoded { mut packet, sack, .. }| {
                // The toll and flags as links have written them so far.
                let known = self.buffers.get(handle);
                packet.flow = (own & !CARRIED) >> 1;
                (packet.toll, packet.flags) = (known.toll, known.flags);
                (packet, sack)
            });
            let middle = self.residents[machine as usize].machine.as_middle()?;
            match &mut seen {
                Ok((packet, _)) => middle.on_wire(at, gate, wire, packet),
                Err(_) => middle.on_wire(at, gate, wire, &mut Packet::default()),
            }
            if emulator::is_lost(&mut self.links[link].link, handle, &mut self.buffers) {
                continue;
            }
            let Ok((mut packet, mut sack)) = seen else { return Some((at, handle)) };
            if self.let_pass(machine, gate, at, own, &mut packet, &mut sack) {
                self.buffers.packet_mut(handle).toll = packet.toll;
                return Some((at, handle));
            }
            self.links[link].link.note_metered();
            self.buffers.free(handle);
        }
    }

    /// Makes datagrams from `peer` to `node` pass a machine. Returns the entry's number.
    pub(crate) fn add_entry(&mut self, node: u32, peer: SocketAddr, entry: Entry) -> u32 {
        self.entries.push(entry);
        let at = self.entries.len() as u32 - 1;
        self.nodes[node as usize].entries.push((peer, at));
        at
    }

    /// Handles a datagram from a watched link.
    pub(super) fn accept_watched(
        &mut self,
        node: usize,
        now: Time,
        datagram: &mut [u8],
        place: Option<(u32, usize)>,
        entry: u32,
    ) -> Result<(), Error> {
        let Ok(packet) = acp::load_packet(datagram) else {
            self.counters.senseless += 1;
            return Ok(());
        };
        let Entry { machine, gate, pace } = self.entries[entry as usize];
        let (wire, own) = (pace.wire(packet.size), self.buffers.own(packet.flow));
        if let Ok(acp::Decoded { mut packet, mut sack, .. }) = acp::decode(datagram) {
            packet.flow = (own & !CARRIED) >> 1;
            if let Some(middle) = self.residents[machine as usize].machine.as_middle() {
                middle.on_wire(now, gate, wire, &mut packet);
            }
            if !self.let_pass(machine, gate, now, own, &mut packet, &mut sack) {
                self.counters.metered += 1;
                return Ok(());
            }
            let _ = acp::store(datagram, &packet.toll);
        }
        self.accept(node, now, datagram, place)
    }

    /// Shows a machine a packet off a wire, of the flow with the label `own`.
    ///
    /// Returns false if the machine drops it.
    fn let_pass(
        &mut self,
        machine: u32,
        gate: Gate,
        now: Time,
        own: u32,
        packet: &mut Packet,
        sack: &mut SackRanges,
    ) -> bool {
        let Some(middle) = self.residents[machine as usize].machine.as_middle() else { return true };
        let toll = packet.toll;
        if middle.pass(now, gate, packet, sack) != Passed::Onward {
            return false;
        }
        let encoding = self.buffers.encoding_of(own);
        if packet.toll != toll && encoding != Encoding::Acp {
            encoding.quantise_sender(&mut packet.toll, u32::from(packet.size));
        }
        true
    }
}
