//! Reliable fan-out between sites for unmodified NATS clients.
//!
//! | module | contents |
//! |---|---|
//! | [`config`], [`keys`] | a site's file, and its identity |
//! | [`nats`] | the protocol of the clients |
//! | [`broker`] | a site's clients: routing, delivery, and waits for slow receivers |
//! | [`rules`] | limits and tenants |
//! | [`spool`] | the disk on which messages wait for slow receivers |
//! | [`status`] | the state of a site |
//! | [`server`], [`agent`] | a site on real sockets |
//!
//! This example runs a site for NATS clients of this machine until its first status:
//!
//! ```
//! use std::path::Path;
//!
//! use tollway_overlay::config::Site;
//! use tollway_overlay::server::Server;
//!
//! let site = Site::parse(Path::new("site.toml"), "site = \"a\"\nlisten = \"127.0.0.1:0\"\n")?;
//! let mut server = Server::open(&site, None, 1, 1)?;
//! println!("NATS clients connect to {}", server.address());
//! let mut clients = None;
//! server.run(|server, _| {
//!     clients = Some(server.status().clients);
//!     true
//! })?;
//! assert_eq!(clients, Some(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod agent;
pub mod broker;
pub mod config;
pub mod keys;
pub mod nats;
pub mod rules;
pub mod server;
pub mod spool;
pub mod status;
pub mod tls;
