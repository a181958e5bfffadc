//! An upper bound on the number of frames in the last bytes of a stream.

use std::collections::VecDeque;

/// Counts frames by their position in a stream, coarsely, to bound the number in its last bytes
/// from above.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    bytes: u64,
    frames: u64,
    /// Totals at earlier instants, oldest first.
    marks: VecDeque<(u64, u64)>,
}

impl Tail {
    /// Records `frames` more, of `bytes` in total.
    pub fn push(&mut self, frames: u64, bytes: u64) {
        let apart = self.marks.back().map_or(0, |mark| mark.0) + APART;
        if self.marks.is_empty() || self.bytes >= apart {
            self.marks.push_back((self.bytes, self.frames));
            if self.marks.len() > MARKS {
                self.marks.pop_front();
            }
        }
        self.bytes += bytes;
        self.frames += frames;
    }

    /// An upper bound of the frames in the last `bytes` of the stream.
    pub fn within(&self, bytes: u64) -> u64 {
        let from = self.bytes.saturating_sub(bytes);
        let before = self.marks.iter().rev().find(|mark| mark.0 <= from);
        self.frames - before.map_or(0, |mark| mark.1)
    }

    /// All frames recorded.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

/// Least distance between two marks, bytes. The marks cover the last 16 MiB, more than any default
/// window of Linux.
const APART: u64 = 1 << 16;
const MARKS: usize = 256;
