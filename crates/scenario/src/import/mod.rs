//! What other programs wrote: topologies as GraphML, link traces, distributions of sizes. Text in, plain data out; what
//! a scenario makes of them is `file`'s business.
//!
//! None of these read a disk or allocate more than a small multiple of their text. Whatever is not understood is
//! refused with its place, or skipped if the format says that it may be; what was skipped or made up is told.

mod graphml;
mod lines;
mod names;

use std::ops::Range;

pub use graphml::{Edge, Graph, Node, Position, graphml};
pub use lines::{sizes, trace};
pub use names::{unique, word};

/// Why a text is not what it was taken for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImportError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
    /// Where: bytes of the text.
    pub span: Range<usize>,
}

impl ImportError {
    fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> ImportError {
        ImportError { message: message.into(), help: help.into(), span }
    }
}

#[cfg(test)]
mod tests;
