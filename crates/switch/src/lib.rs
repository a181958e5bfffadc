//! `tollway switch`: one connection's messages, spread over many servers.
//!
//! A process stands before unmodified servers, cuts each client's connection into frames, sends each frame to a member of the
//! cluster, and merges the answers. Which member, in which order, how much at a time and what becomes of a frame whose member fails is decided by the
//! machines of [`tollway_proto::dispatch`], [`tollway_proto::framing`] and [`tollway_proto::route`]; here are sockets, TLS, Redis' commands, the
//! configuration, and what people and programs see of it.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the file, its checks, watching it |
//! | [`engine`] | the event loop: one thread, all sockets |
//! | [`sites`] | sessions between sites, by ACP instead of TCP |
//! | [`agent`] | a switch as a process: the engine's thread, its control socket |
//! | [`status`] | how it stands: for people, for programs |
#![cfg(target_os = "linux")]

pub mod agent;
pub mod config;
pub mod engine;
#[cfg(feature = "metrics")]
pub mod metrics;
mod redis;
#[cfg(feature = "watch")]
pub mod screen;
pub mod sites;
pub mod status;
mod stream;
#[cfg(feature = "view")]
pub mod view;
