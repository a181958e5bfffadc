//! Readers of other programs' files: topologies as GraphML, link traces, distributions of sizes.
//!
//! The readers turn text into plain data; `file` turns these into a scenario. No reader accesses a
//! disk or allocates more than a small multiple of its text. A reader refuses unknown content with
//! its place, or skips it if the format allows that. It reports what it skipped or assumed.

mod graphml;
mod lines;
mod names;

use std::ops::Range;

pub use graphml::{Edge, Graph, Node, Position, graphml};
pub use lines::{sizes, trace};
pub use names::{unique, word};

/// The reason why a text is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImportError {
    /// The message.
    pub message: String,
    /// The remedy.
    pub help: String,
    /// The place: bytes of the text.
    pub span: Range<usize>,
}

impl ImportError {
    fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> ImportError {
        ImportError { message: message.into(), help: help.into(), span }
    }
}

#[cfg(test)]
mod tests;
