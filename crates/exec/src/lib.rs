//! `tollway exec`: runs unmodified programs over an emulated network, and reports on their packets.
//!
//! Every node of the network is a network namespace with one interface. The emulator receives each
//! packet sent there, carries it over the links of its route ([`tollway_net::mesh`]), and hands it
//! to the kernel at its destination. Namespaces have no name and end with the run. Interfaces lead
//! to the emulator only, so that nothing reaches an outside network. Links come from a few words,
//! or from a scenario file. A file's own flows do not run.
//!
//! | item | contents |
//! |---|---|
//! | [`options`] | command-line options: network, program, servers, ports |
//! | [`Privilege::acquire`] | the right to make namespaces: root's, or a user namespace's |
//! | [`Spec`], [`run()`] | a network, a program in it, servers and the host's services |
//! | [`account`] | the report: as text, as JSON, in the browser |
//! | [`Emulation`] | a network for the tests of an application |
//! | [`clean()`] | removes the remains of a killed run |
//!
//! A link in a few words is a scenario of two nodes:
//!
//! ```
//! use tollway_exec::two_nodes;
//! use tollway_scenario::file::Scenario;
//! use tollway_scenario::run::mesh::mesh;
//!
//! let text = two_nodes("20Mbps 40ms fq_codel", Some("5Mbps"), 1)?;
//! let scenario = Scenario::parse::<&str>("--link", &text, &[])?;
//! let mesh = mesh(&scenario.variants()[0].plan)?;
//! assert_eq!(mesh.nodes, ["program", "server"]);
//! assert_eq!(mesh.links[1].rate.mbps(), 5.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg(target_os = "linux")]

pub mod account;
mod change;
mod emulation;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "tests/fuzzing.rs"]
pub mod fuzzing;
mod mahimahi;
pub mod options;
mod profiles;
mod program;
#[cfg(test)]
mod tests;
mod words;

pub use change::LinkChange;
pub use emulation::{Emulation, EmulationError, helper};
pub use mahimahi::chain;
pub use profiles::{PROFILES, Profile};
pub use program::{Ended, Listen, Listened, Listeners, Outcome, Ports, Publish, Spec, Tls, Treatment, run};
pub use tollway_net::mesh::{
    FlowMoment, FlowRecord, LinkMoment, LinkRecord, Mesh, Moment, Panel, Record, Remote, Setting, Strays,
    panel,
};
pub use tollway_net::sys::ip::FiveTuple;
pub use tollway_net::sys::{
    address, address_v6, addresses, clean::MARK, clean::clean, namespace::Privilege, signals::Signals,
};
pub use tollway_net::{Error, Lateness, LinkStats, clean_names};
pub use tollway_scenario::words::{WordError, laws};
pub use words::two_nodes;

/// The program's node in a network from words.
pub const PROGRAM: &str = "program";
/// The node at the other end of the links.
pub const SERVER: &str = "server";
