//! Middles: machines at a node on the way of packets.
//!
//! A router's ports forward packets unchanged. A [`Middle`] rewrites, splits or merges them: the engine shows it each packet
//! at one of its *gates*, in place. Like every machine here it has no clock and no socket; randomness is a seeded generator
//! handed to its constructor.
//!
//! A gate is either at the end of a route, or on the way: where a packet leaves the wire of a link that leads to the
//! middle's node. What such a machine observes, its own methods tell: an engine lends it back by its type.

mod counter;
mod tree;

pub use counter::Counter;
pub use tree::Branch;

use std::any::Any;
use std::fmt::Debug;

use tollway_law::Time;

use crate::{Packet, SackRanges};

/// A sans-I/O machine between the ends of a path.
///
/// The engine calls [`pass`](Middle::pass) for a packet or [`handle_timeout`](Middle::handle_timeout), then
/// [`poll_transmit`](Middle::poll_transmit) until it returns `None`, then [`poll_timeout`](Middle::poll_timeout). Timers are
/// lazy: `handle_timeout` may come early, and then has no effect.
pub trait Middle: Any + Debug + Send {
    /// A packet came in by `gate`. The machine may rewrite every field but `size`, `flow`, `sack`, `cursor` and `entered`, and
    /// the SACK ranges; a packet goes on without [`Flags::SACK`](crate::Flags::SACK) exactly if `sack` is empty.
    ///
    /// On real packets a data packet has room for as many ranges as it came with: further ones, the oldest, are cut off.
    fn pass(&mut self, now: Time, gate: Gate, packet: &mut Packet, sack: &mut SackRanges) -> Passed;

    /// A packet comes off the wire of a link that the machine [watches](Wire), lost there or not; what is not lost comes to
    /// [`pass`](Middle::pass) at once. Only the toll may be rewritten.
    fn on_wire(&mut self, _now: Time, _gate: Gate, _wire: Wire, _packet: &mut Packet) {}

    /// From now on a flow, perhaps another one than before, has the number `flow`; a full packet of it has `segment` bytes.
    fn on_flow(&mut self, _flow: u32, _segment: u32) {}

    /// Builds a new packet in `out`, a recycled slot, and its SACK ranges in `sack`, which comes empty; returns the gate by
    /// which it leaves. The machine writes every field but `flow` and `cursor`.
    ///
    /// On real packets, what is built right after [`pass`](Middle::pass) has the payload of the packet that passed.
    fn poll_transmit(&mut self, _now: Time, _out: &mut Packet, _sack: &mut SackRanges) -> Option<Gate> {
        None
    }

    /// The instant `poll_timeout` returned has come.
    fn handle_timeout(&mut self, _now: Time) {}

    /// When `handle_timeout` is due; [`Time::NEVER`] if the machine waits for packets only.
    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

/// Where packets enter and leave a middle, in the middle's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gate(pub u32);

/// What a machine that watches a link's wire knows of a packet there.
///
/// Such a machine stands at the link's far end, or at its near end and sees what leaves there; in both cases at the instant of arrival. At this gate
/// it rewrites tolls alone, sees SACK ranges without effect on the packet's, and what it does not let pass the link counts as dropped by a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Transmission time of the packet.
    pub time: Time,
    /// One-way delay.
    pub delay: Time,
}

/// What a middle decides on a packet that it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The packet continues on its own route. At a gate that ends a route, it is absorbed.
    Onward,
    /// The packet leaves by a gate, on the route and as a packet of the flow that the gate leads to.
    By(Gate),
    /// The packet ends here.
    Absorbed,
}
