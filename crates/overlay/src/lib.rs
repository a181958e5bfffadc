//! Reliable fan-out between sites for unmodified NATS clients.
//!
//! | | |
//! |---|---|
//! | [`nats`] | the protocol of the clients |
//! | [`broker`] | a site's clients: who receives what, who waits for whom |
//! | [`rules`] | what they may do |

pub mod broker;
pub mod nats;
pub mod rules;
pub mod server;
mod tls;
