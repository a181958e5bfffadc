//! Middles: machines at a node that packets pass.
//!
//! A router's ports forward packets unchanged. A [`Middle`] rewrites, splits or merges them: the
//! engine shows it each packet in place, at one of its *gates*. Like every machine here it has no
//! clock and no socket; randomness is a seeded generator handed to its constructor.
//!
//! A gate ends a route, or lies on the way of routes: at the far end of a link to the middle's
//! node. A machine reports its observations by methods of its own: an engine lends it back by its
//! type.

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
/// The engine calls [`pass`](Middle::pass) for a packet or
/// [`handle_timeout`](Middle::handle_timeout), then [`poll_transmit`](Middle::poll_transmit) until
/// it returns `None`, then [`poll_timeout`](Middle::poll_timeout). Timers are lazy:
/// `handle_timeout` may come early, and then has no effect.
pub trait Middle: Any + Debug + Send {
    /// A packet came in by `gate`. The machine may rewrite the SACK ranges, and every field but
    /// `size`, `flow`, `sack`, `cursor` and `entered`. The engine sets
    /// [`Flags::SACK`](crate::Flags::SACK) if there are ranges, and clears it otherwise.
    ///
    /// On real packets a data packet has room for as many ranges as it came with: the oldest of
    /// more are cut off.
    fn pass(&mut self, now: Time, gate: Gate, packet: &mut Packet, sack: &mut SackRanges) -> Passed;

    /// A packet comes off the wire of a link that the machine [watches](Wire), lost there or not.
    /// One that is not lost comes to [`pass`](Middle::pass) at once. Only the toll may be
    /// rewritten.
    fn on_wire(&mut self, _now: Time, _gate: Gate, _wire: Wire, _packet: &mut Packet) {}

    /// A new flow has the number `flow`, which may have been another's; its full packets have
    /// `segment` bytes.
    fn on_flow(&mut self, _flow: u32, _segment: u32) {}

    /// Builds a new packet in `out`, a recycled slot, and its SACK ranges in `sack`, which comes
    /// empty; returns the gate by which it leaves. The machine writes every field but `flow` and
    /// `cursor`.
    ///
    /// On real packets, data built right after [`pass`](Middle::pass) have the payload of the
    /// packet that passed.
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

/// A place where packets enter and leave a middle, in the middle's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gate(pub u32);

/// A packet's times on a link whose wire a machine watches.
///
/// A machine that watches a wire sees packets at the instant of their arrival at the far end. There
/// it may rewrite tolls alone, and packets that it does not let pass count as dropped by a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Transmission time of the packet.
    pub time: Time,
    /// One-way delay.
    pub delay: Time,
}

/// A middle's decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The packet continues on its own route. At a gate that ends a route, it is absorbed.
    Onward,
    /// The packet leaves by a gate, on the route and as a packet of the flow that the gate leads
    /// to.
    By(Gate),
    /// The packet ends here.
    Absorbed,
}
