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
pub struct FrameRules {
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
    /// A client's frame that depends on earlier ones at its connection: it is never sent again.
    Bound,
    /// A part of a client's frame that several members answer: the caller collects the answers, and
    /// [finishes](Dispatch::give_up) the frame. It is never sent again.
    Part,
    /// A client's frame whose answers, any number, the caller passes on by itself.
    Passed,
    /// A frame of the switch: its answer is dropped, and it is never sent to another member.
    Own,
}

impl Tag {
    /// True if the answer ends a frame of the client.
    fn ends_frame(self) -> bool {
        matches!(self, Tag::Client | Tag::Setup | Tag::Bound)
    }
}

/// A frame that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredFrame {
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
    /// The frame, to [carry](Dispatch::carry) to another member. `None` if it may have been executed
    /// and [`Retry`] forbids a second execution, or if its tag does.
    pub frame: Option<Vec<u8>>,
}

/// The error of a member that answers without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer to no frame")]
pub struct Unrequested;

/// The frames of one session: numbers, members, answers. `A` locates an answer's bytes at the
/// caller.
#[derive(Clone, Debug)]
pub struct Dispatch<A> {
    rules: FrameRules,
    members: Vec<MemberFrames>,
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
struct MemberFrames {
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

impl<A: Copy> Dispatch<A> {
    /// A session with nothing under way.
    pub fn new(rules: FrameRules) -> Dispatch<A> {
        Dispatch { rules, members: Vec::new(), next: 0, slots: VecDeque::new(), first: 0, open: 0, bytes: 0 }
    }

    /// True if frames may be written to `member` from the caller's buffer, since no frame waits
    /// before them.
    pub fn is_clear(&self, member: usize) -> bool {
        self.members.get(member).is_none_or(|frames| frames.sent == frames.entries.len())
    }

    /// Assigns a frame to `member`. Returns its number.
    ///
    /// The caller has written the first `written` bytes; that may be above zero only while the
    /// member [is clear](Dispatch::is_clear).
    pub fn submit(&mut self, member: usize, tag: Tag, frame: &[u8], written: usize) -> u64 {
        let seq = self.number(tag);
        self.carry(member, seq, tag, frame, written);
        seq
    }

    /// Numbers a frame that no member can take yet, to [carry](Dispatch::carry) later.
    pub fn number(&mut self, tag: Tag) -> u64 {
        let seq = self.next;
        if tag.ends_frame() {
            self.next += 1;
            self.open += 1;
            if self.rules.answers == Answers::InOrder {
                self.slots.push_back(None);
            }
        }
        seq
    }

    /// Assigns a frame with a number and without a member to `member`; `written` as in
    /// [`submit`](Dispatch::submit).
    pub fn carry(&mut self, member: usize, seq: u64, tag: Tag, frame: &[u8], written: usize) {
        self.enqueue(member, Entry { seq, len: frame.len() as u32, tag }, frame, written);
    }

    /// Reserves memory for `bytes` of frames that wait for `member` and are
    /// [carried](Dispatch::carry) next.
    pub fn expect(&mut self, member: usize, bytes: usize) {
        frames_at(&mut self.members, member).queue.reserve(bytes);
    }

    /// Ends a frame with a number and without a member, or whose parts are answered: the caller
    /// answers it, or reports to the client.
    pub fn give_up(&mut self) {
        self.open -= 1;
    }

    /// Numbers a frame that the caller answers itself. Returns its number, for
    /// [`place`](Dispatch::place).
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
        let frames = frames_at(&mut self.members, at);
        let whole = written == frame.len();
        debug_assert!(written == 0 || frames.sent == frames.entries.len(), "others wait before it");
        frames.written += written as u64;
        if whole && self.rules.answers == Answers::None && frames.written <= frames.acked {
            debug_assert!(frames.entries.is_empty(), "what was written before it is acknowledged, too");
            frames.done += frame.len() as u64;
            frames.tail.push(1, frame.len() as u64);
            self.open -= 1;
            return;
        }
        frames.entries.push_back(entry);
        if whole {
            frames.sent += 1;
        } else {
            frames.torn = frames.torn.max(written);
        }
        if !whole || retains {
            frames.queue.push(frame);
            frames.kept += if whole { frame.len() } else { 0 };
            self.bytes += frame.len();
        }
    }

    /// True if written frames are kept until they are done.
    fn retains(&self) -> bool {
        self.rules.answers == Answers::None || self.rules.retry == Retry::Idempotent
    }

    /// The next bytes to write to `member`: the rest of a frame under way, and whole frames that
    /// begin within `room` bytes.
    pub fn sendable(&self, member: usize, room: u64) -> &[u8] {
        let Some(frames) = self.members.get(member) else { return &[] };
        let bytes = &frames.queue.as_slice()[frames.kept + frames.torn..];
        let (mut len, mut torn) = (0, frames.torn);
        for entry in frames.entries.iter().skip(frames.sent) {
            if torn == 0 && len as u64 >= room {
                break;
            }
            len += entry.len as usize - std::mem::take(&mut torn);
        }
        &bytes[..len]
    }

    /// Bytes that wait to be written to `member`.
    pub fn waiting(&self, member: usize) -> usize {
        self.members.get(member).map_or(0, |frames| frames.queue.len() - frames.kept - frames.torn)
    }

    /// Records that the first `len` bytes of [`sendable`](Dispatch::sendable) were written.
    pub fn wrote(&mut self, member: usize, len: usize) {
        let retains = self.retains();
        let Some(frames) = self.members.get_mut(member) else { return };
        frames.torn += len;
        frames.written += len as u64;
        while let Some(entry) = frames.entries.get(frames.sent)
            && frames.torn >= entry.len as usize
        {
            let len = entry.len as usize;
            frames.torn -= len;
            frames.sent += 1;
            if retains {
                frames.kept += len;
            } else {
                frames.queue.consume(len);
                self.bytes -= len;
            }
        }
    }

    /// Bytes written to the present connection of `member`.
    pub fn written(&self, member: usize) -> u64 {
        self.members.get(member).map_or(0, |frames| frames.written)
    }

    /// Bytes written of frames that are not done, that is, outstanding at the member.
    pub fn outstanding(&self, member: usize) -> u64 {
        self.members.get(member).map_or(0, |frames| frames.written - frames.done)
    }

    /// Records that the member's kernel has acknowledged the first `offset` bytes written, or about
    /// to be [submitted](Dispatch::submit) as written. Returns the bytes of frames that are done by
    /// that.
    pub fn acknowledged(&mut self, member: usize, offset: u64) -> u64 {
        let frames = frames_at(&mut self.members, member);
        frames.acked = frames.acked.max(offset);
        let before = frames.done;
        while frames.sent > 0
            && let Some(entry) = frames.entries.front()
            && frames.done + u64::from(entry.len) <= frames.acked
        {
            let len = entry.len;
            frames.entries.pop_front();
            self.bytes -= frames.finish(len, true);
            frames.tail.push(1, u64::from(len));
            self.open -= 1;
        }
        frames.done - before
    }

    /// Records an answer of `member` to its oldest frame.
    ///
    /// # Errors
    /// Every completely written frame is answered already.
    pub fn answer(&mut self, member: usize) -> Result<AnsweredFrame, Unrequested> {
        let retains = self.retains();
        let frames = self.members.get_mut(member).ok_or(Unrequested)?;
        if frames.sent == 0 || self.rules.answers == Answers::None {
            return Err(Unrequested);
        }
        let entry = frames.entries.pop_front().ok_or(Unrequested)?;
        self.bytes -= frames.finish(entry.len, retains);
        self.open -= u64::from(entry.tag.ends_frame());
        Ok(AnsweredFrame { seq: entry.seq, tag: entry.tag, len: entry.len })
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
        // Frames at a member are mostly in order.
        let is_first =
            |entry: &Entry| entry.seq == first && (entry.tag.ends_frame() || entry.tag == Tag::Part);
        self.members.iter().position(|frames| frames.entries.iter().any(is_first))
    }

    /// Frees the memory of empty queues.
    pub fn release(&mut self) {
        self.members.iter_mut().for_each(|frames| frames.queue.release());
    }

    /// Number of the client's frames that are not done.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Number of frames at `member` that are not done, the switch's own included.
    pub fn at(&self, member: usize) -> usize {
        self.members.get(member).map_or(0, |frames| frames.entries.len())
    }

    /// Number of frames written completely to `member` and not done.
    pub fn sent(&self, member: usize) -> usize {
        self.members.get(member).map_or(0, |frames| frames.sent)
    }

    /// Bytes kept in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Upper bound on the frames in the last `bytes` that the member's kernel acknowledged on the
    /// present connection: those that may be lost with a failed member.
    pub fn perhaps_lost(&self, member: usize, bytes: u64) -> u64 {
        self.members.get(member).map_or(0, |frames| frames.tail.within(bytes))
    }

    /// Removes all frames from `member`, whose connection has ended. Returns them, oldest
    /// first, without the switch's own.
    pub fn fail(&mut self, member: usize) -> Vec<Orphan> {
        let retains = self.retains();
        let mut orphans = Vec::new();
        let Some(frames) = self.members.get_mut(member).map(std::mem::take) else { return orphans };
        self.bytes -= frames.queue.len();
        let mut bytes = frames.queue.as_slice();
        for (at, entry) in frames.entries.iter().enumerate() {
            let frame = (retains || at >= frames.sent).then(|| {
                let (frame, rest) = bytes.split_at((entry.len as usize).min(bytes.len()));
                bytes = rest;
                frame
            });
            if entry.tag == Tag::Own {
                continue;
            }
            let frame = frame.filter(|_| matches!(entry.tag, Tag::Client | Tag::Setup)).map(<[u8]>::to_vec);
            self.open -= u64::from(frame.is_none() && entry.tag.ends_frame());
            orphans.push(Orphan { seq: entry.seq, tag: entry.tag, frame });
        }
        orphans
    }
}

impl MemberFrames {
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

fn frames_at(members: &mut Vec<MemberFrames>, at: usize) -> &mut MemberFrames {
    if at >= members.len() {
        members.resize_with(at + 1, MemberFrames::default);
    }
    &mut members[at]
}
