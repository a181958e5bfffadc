//! Dispatch: the frames of one session spread over the members of a cluster, and their answers
//! merged.
//!
//! [`Dispatch`] tracks the frames of one client's connection: the member of each, the answers, and
//! the frames to send again when a member fails. [`Cluster`] is the state that all sessions share:
//! each member's window by its drain rate, and the clients' parts of it. Neither has access to a
//! socket. Bytes enter and leave as slices, and the caller reports how many were written.
//!
//! Bytes are copied only if they have to wait. A frame that the caller has written already, and
//! that needs no second transmission, is only counted.

mod cluster;
mod frames;
mod queue;
mod tail;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, MemberConfig};
pub use frames::{AnsweredFrame, Answers, Dispatch, FrameRules, Orphan, Retry, Tag, Unrequested};
pub use queue::Queue;
pub use tail::Tail;
