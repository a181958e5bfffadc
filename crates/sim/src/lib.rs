//! Tollway's packet simulator: virtual time, one thread. Equal seeds give runs equal to the bit.
//!
//! Sources of its speed (measured; `docs/src/speed.md`):
//! - **One event per packet-hop.** A link has one pending event, the next arrival at its far end.
//!   An access to the link advances its transmitter, each departure at its exact virtual instant.
//! - **Packets never move.** They are 64-byte values in a slab, built in place and passed on as
//!   indices.
//! - **The next hop is known beforehand.** A packet carries its position on a flattened route.
//! - **Timers are lazy.** An endpoint has one pending event, which stays when its deadline moves
//!   later.
//! - **The scheduler has 8-byte keys**, `time << bits | id`. Events at one time go by id, whatever
//!   the history.
//!
//! Order at one instant: a link's departures precede an arrival at its queue, and events go in the
//! order of their entities' ids. Calls between two [`Network::run_until`] precede the events of
//! that instant.
//!
//! `examples/own_laws.rs` builds a network in Rust with a sender law and a link law that are not
//! Tollway's, and runs it.
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
