//! Tollway's live engine: the machines of `tollway-proto` on UDP sockets and a real clock.
//!
//! Every node of a topology has its own socket on loopback, and packets cross from node to node as
//! real datagrams: ACP's header in clear, padding, payload. A link's effects (queue, law, rate,
//! delay, loss) are emulated at the node that has its output port. They occur at the virtual
//! instants that the link's rate and delay give. The lateness of the real sends after those
//! instants is measured.
//!
//! | item | contents |
//! |---|---|
//! | [`Network`] | nodes, links and flows; runs in real time |
//! | [`LinkSpec`] | an emulated link direction |
//! | [`Network::in_namespaces`] | the same between network namespaces, over veth pairs |
//! | [`mesh`] | IP packets of unmodified programs and of the kernel's TCP in network namespaces |
//! | [`KernelSpec`] | the kernel's own TCP on the same links |
//! | [`tunnel`] | encrypted tunnels that show their tolls to links |
//! | [`host::Host`] | ACP between processes, without emulation |
//! | [`secure`] | datagrams sealed between peers with pinned keys |
//! | [`cookie`] | stateless proofs that a client receives at its address |
//! | [`Lateness`], [`Counters`] | the punctuality of a run, and the fate of every datagram |
//!
//! In either engine, a law of `tollway-law` decides the rate of a flow.
//!
//! In this example, one host sends 100 kB to another over loopback:
//!
//! ```
//! use std::sync::Arc;
//!
//! use tollway_law::Time;
//! use tollway_law::sender::NewRenoConfig;
//! use tollway_net::host::{Host, HostConfig, HostEvent};
//! use tollway_proto::transport::Config;
//!
//! let host = |key| {
//!     let config = HostConfig {
//!         transport: Arc::new(Config {
//!             segment: 1400,
//!             header: 80,
//!             ack_size: 112,
//!             ..Config::default()
//!         }),
//!         law: Box::new(|| NewRenoConfig::default().build().into()),
//!         patience: Time::from_secs(3),
//!         most: 8,
//!         most_per_address: 4,
//!     };
//!     Host::new("127.0.0.1:0".parse().unwrap(), config, key)
//! };
//! let mut server = host(Some(tollway_net::random()?))?;
//! let mut client = host(None)?;
//! client.connect(server.addr(), 100_000)?;
//! let event = loop {
//!     server.run(Time::from_millis(1))?;
//!     if let Some(event) = client.run(Time::from_millis(1))? {
//!         break event;
//!     }
//! };
//! assert!(matches!(event, HostEvent::Finished(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffers;
mod clock;
pub mod cookie;
mod driver;
#[cfg(target_os = "linux")]
pub mod edge;
mod emulator;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "tests/fuzzing.rs"]
pub mod fuzzing;
pub mod hop;
pub mod host;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod kernel_tcp;
mod label;
#[cfg(target_os = "linux")]
pub mod mesh;
pub mod network;
#[cfg(target_os = "linux")]
pub mod outqueue;
mod punctual;
pub mod secure;
mod socket;
#[cfg(target_os = "linux")]
pub mod sys;
#[cfg(target_os = "linux")]
pub mod tunnel;
mod waits;
mod wire;

pub use clock::Clock;
pub use driver::{Counters, Fate};
pub use emulator::LinkSpec;
pub use error::Error;
#[cfg(target_os = "linux")]
pub use hosts::clean_names;
#[cfg(target_os = "linux")]
pub use kernel_tcp::{KernelSpec, KernelStats};
#[cfg(target_os = "linux")]
pub use network::WireCount;
pub use network::{FlowSpec, Load, Network, Punctuality, RouteEnd};
pub use tollway_proto::Lateness;
pub use tollway_proto::link::LinkStats;
pub use waits::Waited;

/// Reads random bytes from the system's generator.
///
/// # Errors
/// The system provides none.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes)
}
