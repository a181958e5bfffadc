//! Answers that wait for earlier ones.

use tollway_proto::dispatch::Queue;

/// The place of an answer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) lane: u32,
    at: u64,
    pub(super) len: u32,
}

impl Held {
    /// The pseudo-member of the switch's own answers.
    pub(super) const LOCAL: u32 = u32::MAX;
    /// An answer that goes to the client directly from the read buffer.
    pub(super) const DIRECT: Held = Held { lane: Held::LOCAL - 1, at: 0, len: 0 };
}

/// Answers of one member in order of arrival; they leave mostly in that order.
#[derive(Debug, Default)]
pub(super) struct HeldQueue {
    bytes: Queue,
    /// Position of the first of `bytes` among all bytes that ever arrived.
    start: u64,
    /// Answers that left before earlier ones.
    left: Vec<(u64, u32)>,
}

impl HeldQueue {
    pub(super) fn push(&mut self, lane: u32, answer: &[u8]) -> Held {
        let at = self.start + self.bytes.len() as u64;
        self.bytes.push(answer);
        Held { lane, at, len: answer.len() as u32 }
    }

    pub(super) fn release(&mut self) {
        self.bytes.release();
    }

    /// Moves an answer to `out`.
    pub(super) fn take(&mut self, held: Held, out: &mut Queue) {
        let from = (held.at - self.start) as usize;
        out.push(&self.bytes.as_slice()[from..from + held.len as usize]);
        self.left.push((held.at, held.len));
        while let Some(at) = self.left.iter().position(|&(at, _)| at == self.start) {
            let (_, len) = self.left.swap_remove(at);
            self.bytes.consume(len as usize);
            self.start += u64::from(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_in_any_order_and_nothing_stays() {
        let mut queue = HeldQueue::default();
        let mut out = Queue::default();
        let held: Vec<Held> =
            [&b"one"[..], b"two", b"-", b"three"].iter().map(|text| queue.push(3, text)).collect();
        for at in [1, 0, 3, 2] {
            queue.take(held[at], &mut out);
        }
        assert_eq!(out.as_slice(), b"twoonethree-");
        assert!(queue.bytes.is_empty() && queue.left.is_empty());
        let next = queue.push(3, b"four");
        queue.take(next, &mut out);
        assert!(queue.bytes.is_empty());
    }
}
