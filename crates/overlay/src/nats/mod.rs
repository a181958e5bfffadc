//! The NATS text protocol, without sockets.
//!
//! | module | contents |
//! |---|---|
//! | [`parse`] | operations of a client, parsed in place |
//! | [`subject`] | the syntax of subjects and patterns |
//! | [`trie`] | subscriptions by pattern |
//! | [`mod@write`] | the server's side of the protocol |

pub mod parse;
pub mod subject;
pub mod trie;
pub mod write;
