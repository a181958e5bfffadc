//! Laws of the cost-benefit overlay: prices of overlay links, and the salaries that pay them.
//!
//! The source is "Global Flow Control for Wide Area Overlay Networks: A Cost-Benefit Approach"
//! (OPENARCH 2002), "the paper". Its constants are those of a 2 Mb/s link and 1000-byte packets.
//! Here they scale with the link:
//!
//! - a link's soft limit M is the volume it takes in 400 ms (8 T_min): 100 packets at 2 Mb/s;
//! - the price of a link is that of a **lot** of M / 100 bytes: one packet at 2 Mb/s.
//!
//! | module | contents |
//! |---|---|
//! | [`cost`] | the price of a lot on a link |
//! | [`average`] | the averaged backlog, and the rate at which a link drains |
//! | [`purse`] | a sender's savings, purchases and salary |
//! | [`benefit`] | the worth of a message to its sender |
//! | [`announce`] | the times at which a daemon announces its costs |

pub mod announce;
pub mod average;
pub mod benefit;
pub mod cost;
pub mod purse;

pub use announce::{AnnounceConfig, Announcer};
pub use average::{Backlog, Drain};
pub use benefit::{Benefit, Pace};
pub use cost::{Cost, CostConfig};
pub use purse::{Attempt, PeriodConfig, Purse, PurseConfig};
