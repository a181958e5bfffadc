//! Bytes in the order in which they came.

/// A queue of bytes that lie side by side. It gives its memory back when it is empty.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Whether there are none.
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
        self.head = (self.head + len).min(self.bytes.len());
        if self.head == self.bytes.len() {
            self.head = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT {
                self.bytes = Vec::new();
            }
        }
    }
}

/// Fewer bytes are left where they are.
const WORTH_MOVING: usize = 4096;
/// An empty queue keeps so much memory.
const KEPT: usize = 4096;
