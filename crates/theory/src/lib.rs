//! Ideal allocations and equilibria: the rates that a network *should* give, as pure functions.
//!
//! A [`Network`] holds link capacities and the flows over them, in one unit of rate throughout
//! (Mb/s or bytes per second). Capacities must count the same bytes as rates do, with or without
//! framing.
//!
//! | function | result |
//! |---|---|
//! | [`max_min()`] | weighted max–min fair rates: the aim of RCP, and of XCP on one bottleneck |
//! | [`proportional()`] | weighted proportionally fair rates: the aim of FCP |
//! | [`max_throughput`] | the largest sum of rates: the aim of the overlay's prices |
//! | [`session_fair`] | max–min fairness among sessions, and among the flows of each session |
//! | [`spend`] | the amount that each FCP owner spends on each flow, as weights |
//! | [`xcp_equilibrium`] | XCP's equilibrium, which on several bottlenecks is neither fair share |
//! | [`xcp_session_equilibrium`] | the same where a switch merges the flows of a session |
//! | [`xcp_standing_queue`] | XCP's queue on a link slower than its router's configuration |
//! | [`completions`] | completion times of flows that arrive and leave, at max–min fair rates |
//! | [`jain`] | the evenness of rates |
//!
//! [`Aim`] names the allocation that a law steers to. The proportionally fair allocation has two
//! more solvers: [`proportional_by_solver`], a convex solver, and [`proportional_by_newton`],
//! Newton's method for large networks. [`proportional_rates`] takes the fastest.
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
