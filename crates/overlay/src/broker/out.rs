//! Output buffers of clients.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

/// Bytes that wait for a socket. Messages are copied into chunks, and receivers share large bodies.
///
/// Every owned chunk begins with an operation, and every shared chunk ends one.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// Messages that begin in each chunk.
    messages: VecDeque<u64>,
    /// Bytes of the first chunk that are already sent.
    sent: usize,
    len: usize,
}

#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Bytes),
}

/// Sent chunks, kept for reuse.
#[derive(Debug, Default)]
pub(super) struct ChunkPool(Vec<Vec<u8>>);

impl Outgoing {
    /// Number of waiting bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if no bytes wait.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a whole operation of about `size` bytes, which `write` writes.
    pub(super) fn push(&mut self, pool: &mut ChunkPool, size: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let room = match self.chunks.back() {
            Some(Chunk::Own(chunk)) => chunk.capacity() - chunk.len(),
            _ => 0,
        };
        if room < size {
            self.chunks.push_back(Chunk::Own(pool.take(size)));
            self.messages.push_back(0);
        }
        let Some(Chunk::Own(chunk)) = self.chunks.back_mut() else { unreachable!("one was pushed") };
        let before = chunk.len();
        write(chunk);
        self.len += chunk.len() - before;
    }

    /// Appends a message of about `size` bytes, or its begin, which `write` writes.
    pub(super) fn push_message(
        &mut self,
        pool: &mut ChunkPool,
        size: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.push(pool, size, write);
        *self.messages.back_mut().expect("a chunk was pushed") += 1;
    }

    /// Appends the rest of the last pushed operation, or `messages` whole messages.
    pub(super) fn push_shared(&mut self, body: Bytes, messages: u64) {
        self.len += body.len();
        self.chunks.push_back(Chunk::Shared(body));
        self.messages.push_back(messages);
    }

    /// Fills `slices` with the next output. Returns the number of slices.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            let from = if count == 0 { self.sent } else { 0 };
            *slice = IoSlice::new(&chunk.bytes()[from..]);
            count += 1;
        }
        count
    }

    /// Removes the first `len` bytes, which were sent.
    pub(super) fn advance(&mut self, pool: &mut ChunkPool, len: usize) {
        self.len -= len;
        self.sent += len;
        while let Some(first) = self.chunks.front()
            && self.sent >= first.bytes().len()
        {
            self.sent -= first.bytes().len();
            self.messages.pop_front();
            if let Some(Chunk::Own(chunk)) = self.chunks.pop_front() {
                pool.give(chunk);
            }
        }
    }

    /// Drops the operations behind the first chunk; only whole operations remain. Returns the number
    /// of messages that are not sent whole, at most one chunk too many.
    pub(super) fn truncate(&mut self) -> u64 {
        let whole = match self.chunks.get(1) {
            Some(Chunk::Shared(_)) => 2,
            _ => 1,
        };
        self.chunks.truncate(whole);
        self.len = self.chunks.iter().map(|chunk| chunk.bytes().len()).sum::<usize>() - self.sent;
        let dropped = self.messages.iter().sum();
        self.messages.truncate(whole);
        dropped
    }
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Own(chunk) => chunk,
            Chunk::Shared(chunk) => chunk,
        }
    }
}

impl ChunkPool {
    fn take(&mut self, least: usize) -> Vec<u8> {
        match self.0.pop() {
            Some(chunk) if least <= CHUNK => chunk,
            Some(chunk) => {
                self.0.push(chunk);
                Vec::with_capacity(least)
            }
            None => Vec::with_capacity(least.max(CHUNK)),
        }
    }

    fn give(&mut self, mut chunk: Vec<u8>) {
        if self.0.len() < KEPT && chunk.capacity() <= 2 * CHUNK {
            chunk.clear();
            self.0.push(chunk);
        }
    }
}

/// Size of a chunk, in bytes.
const CHUNK: usize = 1 << 16;
/// Limit of chunks kept for reuse: 4 MiB.
const KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_leave_in_order(
            parts in proptest::collection::vec((0usize..100_000, any::<bool>()), 1..12),
            steps in proptest::collection::vec(1usize..80_000, 1..40),
            cut: bool,
        ) {
            let (mut out, mut pool, mut all) = (Outgoing::default(), ChunkPool::default(), Vec::new());
            let mut ends = vec![];
            for (i, (len, shared)) in parts.iter().enumerate() {
                let part = vec![i as u8; *len];
                out.push_message(&mut pool, 8 + len, |chunk| chunk.extend_from_slice(b"12345678"));
                all.extend_from_slice(b"12345678");
                if *shared {
                    out.push_shared(part.clone().into(), 0);
                } else {
                    out.push(&mut pool, 0, |chunk| chunk.extend_from_slice(&part));
                }
                all.extend_from_slice(&part);
                ends.push(all.len());
            }
            prop_assert_eq!(out.len(), all.len());
            let mut sent = Vec::new();
            for (i, step) in steps.iter().enumerate() {
                if cut && i == 1 && !out.is_empty() {
                    out.truncate();
                }
                let mut slices = [IoSlice::new(&[]); 3];
                let count = out.slices(&mut slices);
                let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
                let step = (*step).min(bytes.len());
                sent.extend_from_slice(&bytes[..step]);
                out.advance(&mut pool, step);
            }
            prop_assert!(all.starts_with(&sent));
            if cut && steps.len() > 1 && out.is_empty() {
                prop_assert!(sent.is_empty() || ends.contains(&sent.len()), "{} of {ends:?}", sent.len());
            } else if !cut {
                prop_assert_eq!(out.len(), all.len() - sent.len());
            }
        }
    }
}
