//! How many frames the last bytes of a stream held.

use std::collections::VecDeque;

/// Counts frames by their place in a stream, coarsely: enough to bound from above how many lay in
/// its last bytes.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    bytes: u64,
    frames: u64,
    /// Totals at earlier instants, oldest first.
    marks: VecDeque<(u64, u64)>,
}

impl Tail {
    /// Records `frames` more, of `bytes` in all.
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

/// Marks are at least so many bytes apart, and there are so many: the last 16 MiB, beyond any
/// window of Linux's defaults.
const APART: u64 = 1 << 16;
const MARKS: usize = 256;
