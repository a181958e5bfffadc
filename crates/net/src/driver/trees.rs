//! Middles: machines at a node on the way, which end datagrams and make others.

use tollway_law::Time;
use tollway_proto::encoding::acp;
use tollway_proto::{AnyMiddle, Gate, Middle, Packet, SackRanges};

use super::Driver;
use crate::error::Error;

/// A middle, and where what it sends goes by each of its gates.
#[derive(Debug)]
pub(crate) struct Crossing {
    machine: AnyMiddle,
    outlets: Vec<Outlet>,
}

/// The label that datagrams have when they leave, and the first link of their way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlet {
    pub(crate) label: u32,
    pub(crate) first: u32,
}

impl Driver {
    pub(crate) fn add_middle(&mut self, machine: AnyMiddle) -> u32 {
        self.middles.push(Crossing { machine, outlets: Vec::new() });
        self.middles.len() as u32 - 1
    }

    /// A gate that datagrams come in by; answers its number.
    pub(crate) fn add_opening(&mut self, middle: u32, gate: Gate) -> u32 {
        self.openings.push((middle, gate));
        self.openings.len() as u32 - 1
    }

    pub(crate) fn set_outlet(&mut self, middle: u32, gate: Gate, outlet: Outlet) {
        let outlets = &mut self.middles[middle as usize].outlets;
        outlets.resize(outlets.len().max(gate.0 as usize + 1), outlet);
        outlets[gate.0 as usize] = outlet;
    }

    /// A datagram has come to a gate of a middle, and ends there; what the middle makes of it leaves, with the same payload.
    pub(super) fn cross(&mut self, opening: usize, now: Time, datagram: &[u8]) -> Result<(), Error> {
        let Ok(decoded) = acp::decode(datagram) else {
            self.counters.senseless += 1;
            return Ok(());
        };
        self.counters.absorbed += 1;
        let (at, gate) = self.openings[opening];
        self.middles[at as usize].machine.handle_packet(now, gate, &decoded.packet, &decoded.sack);
        loop {
            let Crossing { machine, outlets } = &mut self.middles[at as usize];
            let mut out = Packet::default();
            let Some(gate) = machine.poll_transmit(now, &mut out) else { return Ok(()) };
            let Some(&Outlet { label, first }) = outlets.get(gate.0 as usize) else { continue };
            out.flow = label;
            let len = usize::from(out.size).saturating_sub(acp::OVERHEAD);
            let handle = self.buffers.alloc(out, len);
            let bytes = self.buffers.bytes_mut(handle);
            let tail = len.min(datagram.len());
            bytes[..len - tail].fill(0);
            bytes[len - tail..].copy_from_slice(&datagram[datagram.len() - tail..]);
            if acp::encode(&out, &SackRanges::EMPTY, bytes).is_err() {
                self.buffers.free(handle);
                return Err(Error::NoRoom { size: out.size, need: acp::OVERHEAD + acp::LEN });
            }
            self.counters.created += 1;
            self.begin(first, now, handle);
        }
    }
}
