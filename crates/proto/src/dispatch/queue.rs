//! A contiguous queue of bytes.

/// A queue of contiguous bytes. An empty one keeps its memory until it is
/// [released](Queue::release).
#[derive(Clone, Debug, Default)]
pub struct Queue {
    bytes: Vec<u8>,
    head: usize,
}

impl Queue {
    /// The bytes, oldest first.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    /// Number of bytes queued.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// True if no bytes are queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        // Moved at most once for each byte that was taken.
        if self.head > self.bytes.len() / 2 && self.head > WORTH_MOVING {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the oldest `len` bytes, or all.
    pub fn consume(&mut self, len: usize) {
        self.head = self.head.saturating_add(len).min(self.bytes.len());
        if self.head == self.bytes.len() {
            self.head = 0;
            self.bytes.clear();
        }
    }

    /// Reserves memory for `len` more bytes at once, instead of by doubling.
    pub fn reserve(&mut self, len: usize) {
        self.bytes.reserve(len);
    }

    /// Frees the memory, if the queue is empty.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
        }
    }
}

/// With fewer bytes consumed, the rest is not moved to the front.
const WORTH_MOVING: usize = 4096;
