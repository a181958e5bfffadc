//! `tollway exec`: unmodified programs over a network that is emulated, and what happened to their packets.
//!
//! Every node of the network is a network namespace with one interface, and every packet that a program sends there comes to
//! the emulator, which carries it over the links of its way ([`tollway_net::mesh`]) and hands it to the kernel at its
//! destination. Namespaces have no name and die with the run; the interfaces are the emulator's own ends, and nothing reaches a
//! network outside. Links are a few words, or a scenario file; a file's own flows do not run.
//!
//! | | |
//! |---|---|
//! | [`options`] | a network in words or a file, a program, servers, ports, as users write them |
//! | [`Privilege::acquire`] | the right to make namespaces: root's, or that of a user namespace |
//! | [`Spec`], [`run()`] | a network, a program in it, servers and the host's services |
//! | [`account`] | what happened: for people, for programs, in the browser |
//! | [`clean()`] | what a run that was killed has left behind |
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

pub use mahimahi::chain;
pub use profiles::{PROFILES, Profile};
pub use program::{Ended, Outcome, Publish, Spec, run};
pub use tollway_net::mesh::{
    FlowMoment, FlowRecord, LinkMoment, LinkRecord, Mesh, Moment, Panel, Record, Remote, Setting, Strays,
    panel,
};
pub use tollway_net::sys::ip::FiveTuple;
pub use tollway_net::sys::{address, clean::clean, namespace::Privilege, signals::Signals};
pub use tollway_net::{Error, Lateness, LinkStats, clean_names};
pub use words::{WordError, two_nodes};

/// The node at which a program runs, if links are all that is given.
pub const PROGRAM: &str = "program";
/// The node at the other end of them.
pub const SERVER: &str = "server";
