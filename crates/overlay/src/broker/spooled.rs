//! A client's operations on disk.

use std::collections::VecDeque;

use bytes::Bytes;

/// One client's spooled operations, in order.
#[derive(Debug, Default)]
pub(super) struct Spooled {
    pub(super) chunks: VecDeque<Chunk>,
    /// Operations behind the last chunk, until they fill another one.
    pub(super) tail: Vec<u8>,
    pub(super) bytes: u64,
    /// True while the first chunk is loading.
    pub(super) loading: bool,
}

/// A part of the spooled operations.
#[derive(Debug)]
pub(super) enum Chunk {
    /// On disk, under this number.
    OnDisk(u64),
    /// In memory, loaded or refused by the disk.
    Here(Bytes),
}

impl Spooled {
    /// True if no operation is spooled.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}
