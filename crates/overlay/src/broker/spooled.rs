//! Messages of one receiver that wait in memory and on disk, in order.

use std::collections::VecDeque;

use bytes::Bytes;

/// One receiver's spooled messages, in order.
#[derive(Debug, Default)]
pub(super) struct Spooled {
    pub(super) chunks: VecDeque<Chunk>,
    /// Messages behind the last chunk, until they fill another one.
    pub(super) tail: Vec<u8>,
    /// Number of messages in the tail.
    pub(super) tail_messages: u64,
    pub(super) bytes: u64,
    /// True while a chunk is loading.
    pub(super) loading: bool,
}

/// A part of the spooled messages.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) place: Place,
    pub(super) len: u64,
    pub(super) messages: u64,
}

/// The place of a chunk.
#[derive(Debug)]
pub(super) enum Place {
    /// On disk, under this number.
    Disk(u64),
    /// In memory: loaded, or the disk has no room for it.
    Here(Bytes),
}

impl Spooled {
    /// True if no message is spooled.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The number of spooled messages.
    pub(super) fn messages(&self) -> u64 {
        self.tail_messages + self.chunks.iter().map(|chunk| chunk.messages).sum::<u64>()
    }

    /// Makes the tail a chunk in memory.
    pub(super) fn close_tail(&mut self) {
        let bytes = Bytes::from(std::mem::take(&mut self.tail));
        let messages = std::mem::take(&mut self.tail_messages);
        self.chunks.push_back(Chunk { len: bytes.len() as u64, messages, place: Place::Here(bytes) });
    }

    /// The chunk that is on disk under `number`.
    pub(super) fn on_disk(&mut self, number: u64) -> Option<&mut Chunk> {
        self.chunks.iter_mut().find(|chunk| matches!(chunk.place, Place::Disk(other) if other == number))
    }
}
