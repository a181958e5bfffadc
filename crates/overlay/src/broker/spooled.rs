//! A client's operations that wait on disk.

use std::collections::VecDeque;

use bytes::Bytes;

/// One client's spooled operations, in order.
#[derive(Debug, Default)]
pub(super) struct Spooled {
    pub(super) chunks: VecDeque<Chunk>,
    /// Operations behind the chunks, until they fill one.
    pub(super) tail: Vec<u8>,
    pub(super) bytes: u64,
    /// The first chunk has been asked for.
    pub(super) loading: bool,
}

/// A part of them.
#[derive(Debug)]
pub(super) enum Chunk {
    /// On disk, by its number.
    OnDisk(u64),
    /// The disk would not have it.
    Here(Bytes),
}

impl Spooled {
    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}
