//! The frames of one session.

use std::collections::VecDeque;

use super::{Queue, Tail};

/// The answering scheme of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// One answer per frame in any order, since the client can match them: merged as they arrive.
    Any,
    /// One answer per frame, in the order of the frames.
    InOrder,
    /// No answers. A frame is done once the member's kernel has acknowledged it.
    None,
}

/// The treatment of frames that a failed member has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// They may have been executed, and are not sent again.
    Never,
    /// Executing them twice does no harm: they are sent to another member.
    Idempotent,
}

/// The rules for all frames of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The answering scheme.
    pub answers: Answers,
    /// The treatment of unanswered frames.
    pub retry: Retry,
}

/// The origin and purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A client's frame: its answer goes to the client.
    Client,
    /// A client's frame that sets up its connection: the caller inspects the answer before it goes
    /// to the client.
    Setup,
    /// A frame of the switch: its answer is dropped, and it is never sent to another member.
    Own,
}

/// A frame that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its number in the session.
    pub seq: u64,
    /// Its origin and purpose.
    pub tag: Tag,
    /// Its length in bytes.
    pub len: u32,
}

/// A frame whose member failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its number in the session.
    pub seq: u64,
    /// Its origin and purpose.
    pub tag: Tag,
    /// The frame, to [carry](Session::carry) to another member. `None` if it may have been executed
    /// and [`Retry`] forbids a second execution.
    pub frame: Option<Vec<u8>>,
}

/// The error of a member that answers without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer to no frame")]
pub struct Unrequested;

/// The frames of one session: numbers, members, answers. `A` locates an answer's bytes at the
/// caller.
#[derive(Clone, Debug)]
pub struct Session<A> {
    rules: Rules,
    lanes: Vec<Lane>,
    next: u64,
    /// Answers in the order of their frames, from `first` on; [`Answers::InOrder`] only.
    slots: VecDeque<Option<A>>,
    first: u64,
    /// Number of client frames under way.
    open: u64,
    bytes: usize,
}

/// A session's frames at one member.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// Its frames, from the oldest that is not done to the newest.
    entries: VecDeque<Entry>,
    /// Number of frames written completely.
    sent: usize,
    /// Bytes written of the next frame.
    torn: usize,
    /// Complete frames that may be needed: those not written completely and, if they are kept,
    /// those before them.
    queue: Queue,
    /// Bytes of `queue` that belong to frames written completely.
    kept: usize,
    /// Bytes written to the present connection; the part acknowledged by the member's kernel; the
    /// part of frames that are done.
    written: u64,
    acked: u64,
    done: u64,
    tail: Tail,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    seq: u64,
    len: u32,
    tag: Tag,
}

impl<A: Copy> Session<A> {
    /// A session with nothing under way.
    pub fn new(rules: Rules) -> Session<A> {
        Session { rules, lanes: Vec::new(), next: 0, slots: VecDeque::new(), first: 0, open: 0, bytes: 0 }
    }

    /// True if frames may be written to `lane` from the caller's buffer, since no frame waits
    /// before them.
    pub fn is_clear(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_none_or(|lane| lane.sent == lane.entries.len())
    }

    /// Assigns a frame to the member `lane`. Returns its number.
    ///
    /// The caller has written the first `written` bytes; that may be above zero only while the lane
    /// [is clear](Session::is_clear).
    pub fn submit(&mut self, lane: usize, tag: Tag, frame: &[u8], written: usize) -> u64 {
        let seq = self.number(tag);
        self.carry(lane, seq, tag, frame, written);
        seq
    }

    /// Numbers a frame that no member can take yet, to [carry](Session::carry) later.
    pub fn number(&mut self, tag: Tag) -> u64 {
        let seq = self.next;
        if tag != Tag::Own {
            self.next += 1;
            self.open += 1;
            if self.rules.answers == Answers::InOrder {
                self.slots.push_back(None);
            }
        }
        seq
    }

    /// Assigns a frame with a number and without a member to the member `lane`; `written` as in
    /// [`submit`](Session::submit).
    pub fn carry(&mut self, lane: usize, seq: u64, tag: Tag, frame: &[u8], written: usize) {
        self.enqueue(lane, Entry { seq, len: frame.len() as u32, tag }, frame, written);
    }

    /// Reserves memory for `bytes` of frames that wait for `lane` and are [carried](Session::carry)
    /// next.
    pub fn expect(&mut self, lane: usize, bytes: usize) {
        self::lane(&mut self.lanes, lane).queue.reserve(bytes);
    }

    /// Gives up a frame with a number and without a member: the caller answers it, or reports to
    /// the client.
    pub fn give_up(&mut self) {
        self.open -= 1;
    }

    /// Numbers a frame that the caller answers itself. Returns its number, for
    /// [`place`](Session::place).
    pub fn submit_answered(&mut self) -> u64 {
        let seq = self.next;
        self.next += 1;
        if self.rules.answers == Answers::InOrder {
            self.slots.push_back(None);
        }
        seq
    }

    fn enqueue(&mut self, at: usize, entry: Entry, frame: &[u8], written: usize) {
        let retains = self.retains();
        let lane = lane(&mut self.lanes, at);
        let whole = written == frame.len();
        debug_assert!(written == 0 || lane.sent == lane.entries.len(), "others wait before it");
        lane.written += written as u64;
        if whole && self.rules.answers == Answers::None && lane.written <= lane.acked {
            debug_assert!(lane.entries.is_empty(), "what was written before it is acknowledged, too");
            lane.done += frame.len() as u64;
            lane.tail.push(1, frame.len() as u64);
            self.open -= 1;
            return;
        }
        lane.entries.push_back(entry);
        if whole {
            lane.sent += 1;
        } else {
            lane.torn = lane.torn.max(written);
        }
        if !whole || retains {
            lane.queue.push(frame);
            lane.kept += if whole { frame.len() } else { 0 };
            self.bytes += frame.len();
        }
    }

    /// True if written frames are kept until they are done.
    fn retains(&self) -> bool {
        self.rules.answers == Answers::None || self.rules.retry == Retry::Idempotent
    }

    /// The next bytes to write to `lane`: the rest of a frame under way, and whole frames that
    /// begin within `room` bytes.
    pub fn sendable(&self, lane: usize, room: u64) -> &[u8] {
        let Some(lane) = self.lanes.get(lane) else { return &[] };
        let bytes = &lane.queue.as_slice()[lane.kept + lane.torn..];
        let (mut len, mut torn) = (0, lane.torn);
        for entry in lane.entries.iter().skip(lane.sent) {
            if torn == 0 && len as u64 >= room {
                break;
            }
            len += entry.len as usize - std::mem::take(&mut torn);
        }
        &bytes[..len]
    }

    /// Bytes that wait to be written to `lane`.
    pub fn waiting(&self, lane: usize) -> usize {
        self.lanes.get(lane).map_or(0, |lane| lane.queue.len() - lane.kept - lane.torn)
    }

    /// Records that the first `len` bytes of [`sendable`](Session::sendable) were written.
    pub fn wrote(&mut self, lane: usize, len: usize) {
        let retains = self.retains();
        let Some(lane) = self.lanes.get_mut(lane) else { return };
        lane.torn += len;
        lane.written += len as u64;
        while let Some(entry) = lane.entries.get(lane.sent)
            && lane.torn >= entry.len as usize
        {
            let len = entry.len as usize;
            lane.torn -= len;
            lane.sent += 1;
            if retains {
                lane.kept += len;
            } else {
                lane.queue.consume(len);
                self.bytes -= len;
            }
        }
    }

    /// Bytes written to the present connection of `lane`.
    pub fn written(&self, lane: usize) -> u64 {
        self.lanes.get(lane).map_or(0, |lane| lane.written)
    }

    /// Bytes written of frames that are not done, that is, outstanding at the member.
    pub fn outstanding(&self, lane: usize) -> u64 {
        self.lanes.get(lane).map_or(0, |lane| lane.written - lane.done)
    }

    /// Records that the member's kernel has acknowledged the first `offset` bytes written, or about
    /// to be [submitted](Session::submit) as written. Returns the bytes of frames that are done by
    /// that.
    pub fn acknowledged(&mut self, lane: usize, offset: u64) -> u64 {
        let lane = self::lane(&mut self.lanes, lane);
        lane.acked = lane.acked.max(offset);
        let before = lane.done;
        while lane.sent > 0
            && let Some(entry) = lane.entries.front()
            && lane.done + u64::from(entry.len) <= lane.acked
        {
            let len = entry.len;
            lane.entries.pop_front();
            self.bytes -= lane.finish(len, true);
            lane.tail.push(1, u64::from(len));
            self.open -= 1;
        }
        lane.done - before
    }

    /// Records an answer of the member `lane` to its oldest frame.
    ///
    /// # Errors
    /// Every completely written frame is answered already.
    pub fn answer(&mut self, lane: usize) -> Result<Answer, Unrequested> {
        let retains = self.retains();
        let lane = self.lanes.get_mut(lane).ok_or(Unrequested)?;
        if lane.sent == 0 || self.rules.answers == Answers::None {
            return Err(Unrequested);
        }
        let entry = lane.entries.pop_front().ok_or(Unrequested)?;
        self.bytes -= lane.finish(entry.len, retains);
        if entry.tag != Tag::Own {
            self.open -= 1;
        }
        Ok(Answer { seq: entry.seq, tag: entry.tag, len: entry.len })
    }

    /// Records the location of the answer to the frame `seq`, with [`Answers::InOrder`].
    pub fn place(&mut self, seq: u64, answer: A) {
        let slot = seq.checked_sub(self.first).and_then(|at| self.slots.get_mut(at as usize));
        if let Some(slot) = slot {
            *slot = Some(answer);
        }
    }

    /// True if the answer to `seq` is the next one due to the client.
    pub fn is_next(&self, seq: u64) -> bool {
        seq == self.first
    }

    /// Returns the next answer in the order of the frames, if it has arrived.
    pub fn deliver(&mut self) -> Option<A> {
        let answer = (*self.slots.front()?)?;
        self.slots.pop_front();
        self.first += 1;
        Some(answer)
    }

    /// The member whose answer is the next in order; `None` if nothing is under way.
    pub fn head(&self) -> Option<usize> {
        let first = self.first;
        // Frames of a lane are mostly in order.
        self.lanes
            .iter()
            .position(|lane| lane.entries.iter().any(|entry| entry.seq == first && entry.tag != Tag::Own))
    }

    /// Frees the memory of empty queues.
    pub fn release(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.queue.release());
    }

    /// Number of the client's frames that are not done.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Number of frames at `lane` that are not done, the switch's own included.
    pub fn at(&self, lane: usize) -> usize {
        self.lanes.get(lane).map_or(0, |lane| lane.entries.len())
    }

    /// Number of frames written completely to `lane` and not done.
    pub fn sent(&self, lane: usize) -> usize {
        self.lanes.get(lane).map_or(0, |lane| lane.sent)
    }

    /// Bytes kept in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Upper bound on the frames in the last `bytes` that the member's kernel acknowledged on the
    /// present connection: those that may be lost with a failed member.
    pub fn perhaps_lost(&self, lane: usize, bytes: u64) -> u64 {
        self.lanes.get(lane).map_or(0, |lane| lane.tail.within(bytes))
    }

    /// Removes all frames from the member `lane`, whose connection has ended. Returns them, oldest
    /// first, without the switch's own.
    pub fn fail(&mut self, lane: usize) -> Vec<Orphan> {
        let retains = self.retains();
        let mut orphans = Vec::new();
        let Some(lane) = self.lanes.get_mut(lane).map(std::mem::take) else { return orphans };
        self.bytes -= lane.queue.len();
        let mut bytes = lane.queue.as_slice();
        for (at, entry) in lane.entries.iter().enumerate() {
            let frame = (retains || at >= lane.sent).then(|| {
                let (frame, rest) = bytes.split_at((entry.len as usize).min(bytes.len()));
                bytes = rest;
                frame
            });
            if entry.tag == Tag::Own {
                continue;
            }
            self.open -= u64::from(frame.is_none());
            orphans.push(Orphan { seq: entry.seq, tag: entry.tag, frame: frame.map(<[u8]>::to_vec) });
        }
        orphans
    }
}

impl Lane {
    /// Ends the oldest frame, which was written completely. Returns the bytes kept for it.
    fn finish(&mut self, len: u32, kept: bool) -> usize {
        self.sent -= 1;
        self.done += u64::from(len);
        if !kept {
            return 0;
        }
        self.queue.consume(len as usize);
        self.kept -= len as usize;
        len as usize
    }
}

fn lane(lanes: &mut Vec<Lane>, at: usize) -> &mut Lane {
    if at >= lanes.len() {
        lanes.resize_with(at + 1, Lane::default);
    }
    &mut lanes[at]
}
