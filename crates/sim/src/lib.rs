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
//!
//! ```
//! use std::sync::Arc;
//!
//! use tollway_law::link::{AnyLink, DropTail};
//! use tollway_law::sender::NewRenoConfig;
//! use tollway_law::{Rate, Time};
//! use tollway_proto::port::Limit;
//! use tollway_proto::transport::{Config, Connection};
//! use tollway_proto::Encoding;
//! use tollway_sim::{FlowSpec, LinkSpec, Network, RouteEnd};
//!
//! let mut network = Network::new(1);
//! let mut link = || {
//!     network.add_link(LinkSpec {
//!         rate: Rate::from_mbps(10.0),
//!         delay: Time::from_millis(10),
//!         overhead: 0,
//!         law: AnyLink::DropTail(DropTail),
//!         limit: Limit { packets: 50, bytes: u64::MAX },
//!         queue: Default::default(),
//!     })
//! };
//! let (there, back) = (link(), link());
//! let config = Arc::new(Config::default());
//! let law = || NewRenoConfig::default().build().into();
//! let mut client = Connection::client(&config, law(), 0);
//! client.write_unlimited();
//! let forward = network.add_route(&[there], RouteEnd::Server);
//! let back = network.add_route(&[back], RouteEnd::Client);
//! let flow = network.add_flow(FlowSpec {
//!     client,
//!     server: Connection::server(&config, law(), 0),
//!     forward,
//!     back,
//!     start: Time::ZERO,
//!     stop: Time::NEVER,
//!     encoding: Encoding::Acp,
//!     segment: 1500,
//! });
//! network.run_until(Time::from_secs(10));
//! let mbps = network.server(flow).stats().bytes_received as f64 * 8e-6 / 10.0;
//! assert!(mbps > 9.0, "{mbps}");
//! ```

mod names;
mod network;
mod pages;
mod scheduler;
mod slab;
mod source;
mod tap;

pub use names::{End, FlowId, LinkId, MachineId, RouteId, SourceId};
pub use network::{Census, FlowSpec, Network, RouteEnd};
pub use scheduler::Scheduler;
pub use source::{SinkStats, SourceSpec};
pub use tap::{Fate, Origin, Sighting};
pub use tollway_proto::link::{Drops, LinkSpec, LinkStats};
pub use tollway_proto::port::ControlInterval;
pub use tollway_proto::trace::{Trace, TraceError};
