//! Reliable fan-out between sites for unmodified NATS clients.
//!
//! | | |
//! |---|---|
//! | [`config`], [`keys`] | a site's file, and who it is |
//! | [`nats`] | the protocol of the clients |
//! | [`broker`] | a site's clients: who receives what, who waits for whom |
//! | [`rules`] | what they may do |
//! | [`server`] | a site on real sockets |

pub mod broker;
pub mod config;
pub mod keys;
pub mod nats;
pub mod rules;
pub mod server;
pub mod tls;
