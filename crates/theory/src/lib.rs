//! Ideal allocations and equilibria: what a network *should* do, as pure functions.
//!
//! A [`Network`] is link capacities and flows over them, in one unit of rate throughout (Mb/s,
//! bytes a second: as you like, but capacities must count the same bytes as rates do, framing
//! included or not). Given one,
//!
//! - [`max_min()`] is the weighted max–min fair allocation, which RCP aims at, and XCP on a single
//!   bottleneck;
//! - [`proportional()`] the weighted proportionally fair one, which FCP aims at;
//! - [`max_throughput`] the allocation of the largest sum, which the overlay's prices aim at;
//! - [`spend`] what FCP's owners spend on each flow by their strategies, the weights of its
//!   allocation;
//! - [`xcp_equilibrium`] where XCP itself comes to rest, which with several bottlenecks is neither;
//! - [`xcp_session_equilibrium`] the same where a switch merges the flows of a session;
//! - [`xcp_standing_queue`] the queue that XCP keeps on a link slower than its router believes;
//! - [`session_fair`] max–min fairness among sessions, and within each among its flows;
//! - [`completions`] when flows that come and go would be done if they had their fair rates at
//!   every moment;
//! - [`jain`] how even rates are.
//!
//! [`Aim`] says which of them a law steers to. [`proportional_by_solver`] is the proportionally
//! fair allocation once more, by a convex solver, and [`proportional_by_newton`] by Newton's
//! method, for large networks.
//!
//! ```
//! use tollway_theory::{Network, max_min};
//!
//! // One flow over both links of a parking lot, and one over each.
//! let mut network = Network::new();
//! let links = [network.link(10.0), network.link(20.0)];
//! network.flow(links);
//! network.flow([links[0]]);
//! network.flow([links[1]]);
//! assert_eq!(max_min(&network)?, [5.0, 5.0, 15.0]);
//! # Ok::<(), tollway_theory::NetworkError>(())
//! ```

mod aim;
mod budgets;
mod fairness;
mod fluid;
mod max_min;
mod network;
mod newton;
mod proportional;
mod session;
mod solver;
mod throughput;
mod xcp;

pub use aim::{Allocation, aims, common_aim};
pub use budgets::{Division, Owner, spend};
pub use fairness::jain;
pub use fluid::{Job, completions};
pub use max_min::{MaxMin, max_min};
pub use network::{Flow, Network, NetworkError};
pub use newton::proportional_by_newton;
pub use proportional::{Proportional, Solver, proportional, proportional_rates, proportional_with};
pub use session::{SessionFair, session_fair};
pub use solver::{SolverError, proportional_by_solver};
pub use throughput::max_throughput;
pub use tollway_law::Aim;
pub use xcp::{XcpEquilibrium, XcpGains, xcp_equilibrium, xcp_session_equilibrium, xcp_standing_queue};
