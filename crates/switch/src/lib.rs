//! `tollway switch`: one connection's messages, spread over many servers.
//!
//! A process in front of unmodified servers splits each client's connection into frames, sends each
//! frame to a member of the cluster, and merges the answers. The machines of
//! [`tollway_proto::dispatch`], [`tollway_proto::framing`] and [`tollway_proto::route`] decide on
//! the member, the order, the amount in flight, and the treatment of frames whose member fails.
//! This crate adds sockets, TLS, Redis' commands, the configuration and the status.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | the file, its checks, its reload |
//! | [`engine`] | the event loop: one thread, all sockets |
//! | [`setup`] | either configuration: its file, and changes of its members |
//! | [`sites`] | sessions between sites, by ACP instead of TCP |
//! | [`agent`] | a switch as a process: the engine's thread, its control socket |
//! | [`status`] | the status, as text and as JSON |
//!
//! Lines from one connection, one to each of two servers:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//!
//! use tollway_switch::agent::{Agent, Events};
//! use tollway_switch::config::Config;
//!
//! let servers = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
//! let mut text = "listen = \"127.0.0.1:0\"\nframes = \"lines\"\nanswers = \"none\"\n".to_owned();
//! for (at, server) in servers.iter().enumerate() {
//!     text += &format!("[member.m{at}]\naddress = \"{}\"\n", server.local_addr()?);
//! }
//! let config = Config::parse("example", &text, None)?;
//! let switch = Agent::start(config, "example".into(), Events::default())?;
//! TcpStream::connect(switch.listen()[0])?.write_all(b"one\ntwo\n")?;
//! let mut lines = Vec::new();
//! for server in &servers {
//!     let mut line = [0; 4];
//!     server.accept()?.0.read_exact(&mut line)?;
//!     lines.push(line);
//! }
//! lines.sort();
//! assert_eq!(lines, [*b"one\n", *b"two\n"]);
//! switch.end()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg(target_os = "linux")]

pub mod agent;
pub mod config;
pub mod engine;
mod mailbox;
mod redis;
pub mod setup;
pub mod sites;
pub mod status;
mod stream;
