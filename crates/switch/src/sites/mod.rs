//! Sessions between sites: ACP over encrypted UDP, spread over members without termination.
//!
//! ```text
//! client ==TCP== front ==ACP== switch ==ACP== back ==TCP== server
//!                                     ==ACP== back ==TCP== server
//! ```
//!
//! A *front* splits the bytes of each client's connection into frames, and opens an ACP connection
//! to its peer for it. A *switch* spreads each such session over the backs of its members, with
//! [`tollway_proto::Switch`]. A *back* ends ACP and has a TCP connection to its server for each
//! session. Sequence numbers, windows, tolls and acknowledgements are those of the front and the
//! backs.
//!
//! | module | contents |
//! |---|---|
//! | `config` | the file and its checks |
//! | `engine`, `core` | the event loop of each part, the state that all parts share |
//! | `front`, `middle`, `back` | the three parts |
//! | `ledger` | requests that wait for answers |
//! | `tcp` | an end of a TCP connection; that of an ACP connection is [`tollway_session::end`] |

mod back;
mod config;
mod core;
mod engine;
mod front;
mod ledger;
mod middle;
mod snapshot;
mod tcp;

pub use config::{Answers, CommandLine, Neighbour, Part, Sites, sites_reference_markdown};

pub(crate) use engine::start;
