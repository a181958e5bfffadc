//! `tollway host`: XCP and FCP for the kernel's own TCP, so that unmodified programs speak them.
//!
//! Two programs in the kernel do the work (`bpf/`, C with CO-RE, compiled objects in the tree): a
//! congestion control (`struct_ops`), and one that writes and reads TCP options (`sockops`, attached
//! to control groups). Both keep a table of connections for this process. The congestion control is
//! selected for each connection that a process in the control group opens or accepts, so no program
//! and no default of the machine changes.
//!
//! A connection falls back to the machine's ordinary congestion control, for good, if its peer
//! sends no option, no router on its path rewrites it, a bottleneck without the law loses packets,
//! or this process sends no heartbeat. [`Cause`] has the list.
//!
//! | item | contents |
//! |---|---|
//! | [`Programs`] | the programs in the kernel: loading, attaching, heartbeat, connections |
//! | [`Host`] | the programs with a thread that sends their heartbeat |
//! | [`agent`] | a host as a service: status, event log, control socket |
//! | [`status`] | its status as text, JSON, metrics and page |
//! | [`Budgets`], [`Owner`] | FCP's budgets, divided by `tollway_law::budget` every 5 ms |
//! | [`Settings`] | law, option, initial window, law of the fallback |
//! | [`Config`] | the configuration file: tenants with budgets and strategies |
//! | [`Connection`] | a connection's window, rate, round trip, and fallback |
//! | [`Laws`] | the programs for flows of a scenario over the kernel's TCP |
//! | [`Group`] | a control group for one program |
//! | [`SingleSegments`] | the kernel's least train, which lengthens FCP's queues |
#![cfg(target_os = "linux")]

pub mod agent;
mod budgets;
mod config;
mod connection;
mod group;
mod laws;
mod programs;
mod service;
pub mod status;
mod trains;

pub use budgets::{Budgets, Goal, Owner, OwnerOf, Rule};
pub use config::{Config, Tenant, host_reference_markdown};
pub use connection::{Cause, Connection, Echoes};
pub use group::{Group, hierarchy};
pub use laws::Laws;
pub use programs::{Counts, Law, LoadError, OptionKind, Programs, Settings};
pub use service::Host;
pub use trains::SingleSegments;
