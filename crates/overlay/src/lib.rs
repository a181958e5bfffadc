//! Reliable fan-out between sites for unmodified NATS clients.
//!
//! | | |
//! |---|---|
//! | [`config`], [`keys`] | a site's file, and who it is |
//! | [`nats`] | the protocol of the clients |
//! | [`broker`] | a site's clients: who receives what, who waits for whom |
//! | [`rules`] | what they may do |
//! | [`spool`] | the disk on which messages wait for slow receivers |
//! | [`status`] | how a site stands |
//! | [`server`], [`agent`] | a site on real sockets |

pub mod agent;
pub mod broker;
pub mod config;
pub mod keys;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod nats;
pub mod rules;
pub mod server;
pub mod spool;
pub mod status;
pub mod tls;
#[cfg(feature = "view")]
pub mod view;
