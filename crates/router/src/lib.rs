//! `tollway router`: any link law at a real interface.
//!
//! Programs in the kernel (`bpf/`) redirect an interface's packets to user space. There a link of
//! [`tollway_net::edge`] queues them, one for each direction, and sends them on at its rate. The law
//! is one of a scenario's links, and tenants are under the same `proto::Shaper` as connections of a
//! host. Nothing of a law is written a second time.
//!
//! | item | contents |
//! |---|---|
//! | [`Config`] | the configuration: interface, rates, law, tenants |
//! | [`Agent`] | a router that runs, with its status |
//! | [`Links`] | routers for the links of a scenario's live run |
//! | [`Programs`] | the programs in the kernel |
//! | [`clean`] | removes what a killed router left |
//!
//! While no thread of a direction gives a sign of life, its packets pass: at most half a second after
//! an end or a stop. With [`OnFailure::Limit`] they are held to the rate then, in the kernel.
#![cfg(target_os = "linux")]

mod agent;
mod config;
mod links;
mod programs;
mod status;
mod tenants;

pub use agent::{Agent, StartError, default_path};
pub use config::{CommandLine, Config, Direction, Metering, OnFailure, router_reference_markdown};
pub use links::Links;
pub use programs::{Counts, Programs, SIGHTS, Settings, Side, Sight, clean};
pub use status::{HeldStatus, ROUTER, Status, TenantStatus, WayStatus};
pub use tenants::Condition;
pub use tollway_agent::control::ask;
