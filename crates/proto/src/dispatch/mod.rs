//! Dispatch: the frames of one session spread over the members of a cluster, and their answers
//! merged.
//!
//! [`Session`] is what one client's connection has under way: which frame went to which member,
//! which were answered, what is to be sent again when a member fails. [`Cluster`] is what all
//! sessions share: each member's window by its drain rate, and the parts of it that clients have.
//! Neither knows a socket: bytes come in as slices and go out as slices, and what was written is
//! said back.
//!
//! Bytes are copied only where they have to wait: a frame that its caller has written already, and
//! that needs no second sending, is counted and forgotten.

mod cluster;
mod queue;
mod session;
mod tail;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, MemberConfig};
pub use queue::Queue;
pub use session::{Answer, Answers, Orphan, Retry, Rules, Session, Tag, Unrequested};
pub use tail::Tail;
