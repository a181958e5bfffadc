//! Middles: machines at a node on the way, which absorb packets and make others.
//!
//! A router's ports pass packets on as they are. What splits, merges or rewrites them is a [`Middle`]: fed packets at its
//! *gates*, asked for packets and where each of them goes. Like every machine here it has no clock and no socket.

mod tree;

pub use tree::Branch;

use tollway_law::Time;

use crate::{Packet, SackRanges};

/// A sans-I/O machine between the ends of a path.
///
/// The engine calls [`handle_packet`](Middle::handle_packet), the packet then being absorbed, and
/// [`poll_transmit`](Middle::poll_transmit) until it answers `None`.
pub trait Middle {
    /// A packet came in by `gate`.
    fn handle_packet(&mut self, now: Time, gate: Gate, packet: &Packet, sack: &SackRanges);

    /// Builds the next packet to leave into `out`, a recycled slot of which the machine writes every field but `flow` and
    /// `cursor`, and answers by which gate it leaves. It carries no SACK ranges.
    fn poll_transmit(&mut self, now: Time, out: &mut Packet) -> Option<Gate>;
}

/// Where packets come and go at a middle, by its own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gate(pub u32);

/// Every middle, by value.
#[derive(Clone, Debug)]
pub enum AnyMiddle {
    /// [`Branch`].
    Branch(Branch),
}

impl Middle for AnyMiddle {
    fn handle_packet(&mut self, now: Time, gate: Gate, packet: &Packet, sack: &SackRanges) {
        match self {
            AnyMiddle::Branch(middle) => middle.handle_packet(now, gate, packet, sack),
        }
    }

    fn poll_transmit(&mut self, now: Time, out: &mut Packet) -> Option<Gate> {
        match self {
            AnyMiddle::Branch(middle) => middle.poll_transmit(now, out),
        }
    }
}
