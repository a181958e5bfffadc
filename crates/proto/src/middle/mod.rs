//! Middles: machines at a node that packets pass.
//!
//! A router's ports forward packets unchanged; a [`Middle`] rewrites, splits or merges them. The
//! engine passes it each packet in place, at one of its *gates*. Like every machine it has no clock
//! and no socket; randomness is a seeded generator passed to its constructor.
//!
//! A gate ends a route, or lies on routes: at the far end of a link to the middle's node. A machine
//! reports observations by its own methods, since an engine returns it by type.

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
    /// Handles a packet that came in by `gate`. The machine may rewrite the SACK ranges, and every
    /// field except `size`, `flow`, `sack`, `cursor` and `entered`. The engine sets
    /// [`Flags::SACK`](crate::Flags::SACK) if there are ranges, and clears it otherwise.
    ///
    /// On real packets a data packet has room for as many ranges as it arrived with; the oldest
    /// beyond that are dropped.
    fn pass(&mut self, now: Time, gate: Gate, packet: &mut Packet, sack: &mut SackRanges) -> Passed;

    /// Handles a packet that comes off the wire of a link that the machine [watches](WireTimes),
    /// including packets lost there. A packet that is not lost goes to [`pass`](Middle::pass) next.
    /// Only the toll may be rewritten.
    fn on_wire(&mut self, _now: Time, _gate: Gate, _wire: WireTimes, _packet: &mut Packet) {}

    /// Starts a new flow under the number `flow`, which may be reused; its full packets have
    /// `segment` bytes.
    fn on_flow(&mut self, _flow: u32, _segment: u32) {}

    /// Builds a new packet in `out`, a recycled slot, and its SACK ranges in `sack`, which is empty
    /// on entry. Returns the gate by which it leaves. The machine writes every field except `flow`
    /// and `cursor`.
    ///
    /// On real packets, a data packet built right after [`pass`](Middle::pass) has the payload of
    /// the packet that passed.
    fn poll_transmit(&mut self, _now: Time, _out: &mut Packet, _sack: &mut SackRanges) -> Option<Gate> {
        None
    }

    /// Handles the instant that `poll_timeout` returned.
    fn handle_timeout(&mut self, _now: Time) {}

    /// The time of the next `handle_timeout`; [`Time::NEVER`] if the machine waits for packets
    /// only.
    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

/// A place where packets enter and leave a middle, in the middle's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gate(pub u32);

/// A packet's times on a link whose wire a machine watches.
///
/// A machine that watches a wire handles packets at their arrival at the far end. There it may
/// rewrite only tolls, and packets that it drops count as dropped by a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireTimes {
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
