//! Tollway's packet simulator: virtual time, one thread, deterministic to the bit for a seed.
//!
//! What makes it fast (measured; `docs/src/speed.md`):
//! - **one event a packet-hop**: a link has one pending event, the next arrival at its far end. Its transmitter is
//!   caught up when the link is touched, each departure at its exact virtual instant;
//! - **packets never move**: 64-byte values in a slab, built in place, passed on as indices;
//! - **the next hop is known beforehand**: a packet carries its position on a flattened route;
//! - **timers are lazy**: an endpoint has one pending event, left in place when its deadline moves away;
//! - **a scheduler of 8-byte keys**, `time << bits | id`: ties in time go by id, whatever the history.
//!
//! Ties: at one instant a link's departures come before an arrival at its queue, events go in the order of their
//! entities' ids, and whatever the caller does between two [`Network::run_until`] comes before the events of that
//! instant.
//!
//! `examples/own_laws.rs` builds a network in Rust, with a sender law and a link law that are not Tollway's, and runs it.

mod network;
mod pages;
mod scheduler;
mod slab;
mod source;
mod tap;

pub use network::{Census, End, FlowId, FlowSpec, LinkId, MachineId, Network, RouteEnd, RouteId, ShaperId};
pub use scheduler::Scheduler;
pub use source::{SinkStats, SourceId, SourceSpec};
pub use tap::{Fate, Origin, Sighting};
pub use tollway_proto::link::{Drops, LinkSpec, LinkStats};
pub use tollway_proto::port::ControlInterval;
pub use tollway_proto::trace::{Trace, TraceError};
