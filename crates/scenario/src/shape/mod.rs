//! Policies for this machine's own TCP connections: the file, what it means, and watching it.
//!
//! ```
//! use tollway_scenario::shape::Policies;
//!
//! let policies = Policies::parse("policies.toml", r#"
//!     [link]
//!     rate = "100 Mbps"
//!
//!     [aggregate.web]
//!     from-port = [80, 443]
//!     weight = 3
//!
//!     [aggregate.crawler]
//!     cgroup = "/system.slice/crawler.service"
//!     rate = "20 Mbps"
//! "#)?;
//! assert_eq!(policies.regime().tenants.len(), 2);
//! # Ok::<(), tollway_scenario::shape::ScenarioError>(())
//! ```

mod channel;
#[cfg(feature = "etcd")]
mod etcd;
mod filter;
mod source;

pub use channel::{AgentEnd, Reply, Request, WorkerEnd};
#[cfg(feature = "etcd")]
pub use etcd::EtcdSource;
pub use filter::{Filter, Filters, Network};
pub use source::{FileSource, News, Opener, Source};
pub use tollway_net::exec::Signals;
#[cfg(feature = "etcd")]
pub use tollway_net::shape::etcd::Access;
pub use tollway_net::shape::{
    Agent, Answers, ConnectionStatus, Control, Guardian, Handover, Identity, Item, Kernel, LookOnly, Needs,
    Party, Pending, Reach, Regime, SockDiag, Status, TenantStatus, Then, Turn, ask, bpf, clear, default_path,
    give_up_all, hand_over, pending, reading_files, replay, run, settle_in, unprivileged,
};

pub use crate::file::{Policies, ScenarioError};
