//! Ideal allocations and equilibria: what a network *should* do, as pure functions.
//!
//! A [`Network`] is link capacities and flows over them, in one unit of rate throughout (Mb/s, bytes a second: as you
//! like, but capacities must count the same bytes as rates do, framing included or not). Given one,
//!
//! - [`max_min()`] is the weighted max–min fair allocation, which RCP aims at, and XCP on a single bottleneck;
//! - [`proportional()`] the weighted proportionally fair one, which FCP aims at;
//! - [`xcp_equilibrium`] where XCP itself comes to rest, which with several bottlenecks is neither;
//! - [`xcp_standing_queue`] the queue that XCP keeps on a link slower than its router believes;
//! - [`jain`] how even rates are.

mod fairness;
mod max_min;
mod network;
mod proportional;
mod xcp;

pub use fairness::jain;
pub use max_min::max_min;
pub use network::{Flow, Network, NetworkError};
pub use proportional::{Proportional, proportional, proportional_with};
pub use xcp::{XcpEquilibrium, xcp_equilibrium, xcp_standing_queue};
