//! The NATS text protocol, without sockets.
//!
//! | | |
//! |---|---|
//! | [`parse`] | operations of a client, parsed in place |
//! | [`subject`] | what a subject or a pattern may be |
//! | [`trie`] | subscriptions by pattern |
//! | [`mod@write`] | the server's side of the protocol |

pub mod parse;
pub mod subject;
pub mod trie;
pub mod write;
