//! Requests of a client and the servers' frames, matched by their [labels](tollway_session::label).

use std::collections::VecDeque;

use tollway_law::Time;
use tollway_proto::dispatch::Queue;
use tollway_session::label::{Added, Assembly, KeyHash, Kind, REQUEST, Tags, Whole, head};

use super::config::Answers;

/// The expected length of a session's answers before the first has come, bytes.
const FIRST_EXPECTED: f64 = 65_536.0;
/// Weight of an answer's length in the expected length of the next.
const GAIN: f64 = 0.125;

/// The requests of a session that wait for their answers.
pub(super) struct Ledger {
    answers: Answers,
    tags: Tags,
    assembly: Assembly,
    /// Upper bound on the length of an answer, bytes.
    most: usize,
    /// The number of the first in `waiting`.
    first: u32,
    waiting: VecDeque<Waiting>,
    /// Bytes of answers that are not due.
    held: usize,
    /// Requests without an answer.
    open: u32,
    /// The expected length of an answer: a moving average, bytes.
    expected: f64,
}

#[derive(Debug)]
struct Waiting {
    since: Time,
    answer: Vec<u8>,
    done: bool,
}

/// The effect of a part of a server's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// The frame is incomplete.
    Part,
    /// A frame is complete.
    Answer,
    /// No request waits for it: a repetition, an answer without a request, or another message.
    /// Or an earlier part was lost with its member.
    Unrequested,
    /// It is longer than the largest frame.
    TooLong,
}

impl Ledger {
    /// An empty ledger, for frames of at most `most` bytes. Incomplete ones hold `held` bytes.
    pub(super) fn new(answers: Answers, tags: Tags, most: usize, held: usize) -> Ledger {
        Ledger {
            answers,
            tags,
            assembly: Assembly::new(most, held),
            most,
            first: 0,
            waiting: VecDeque::new(),
            held: 0,
            open: 0,
            expected: FIRST_EXPECTED.min(most as f64),
        }
    }

    /// The label and the key of a new request.
    pub(super) fn number(&mut self, now: Time, key: KeyHash) -> [u8; REQUEST] {
        let number = self.first.wrapping_add(self.waiting.len() as u32);
        if matches!(self.answers, Answers::None | Answers::Stream) {
            self.first = number.wrapping_add(1);
        } else {
            self.waiting.push_back(Waiting { since: now, answer: Vec::new(), done: false });
            self.open += 1;
        }
        head(self.tags.label(number), key)
    }

    /// Adds a part of a server's frame; those that are due are appended to `out`.
    pub(super) fn note(&mut self, message: &[u8], out: &mut Queue) -> Noted {
        let Ledger { answers, tags, assembly, first, waiting, .. } = self;
        let is_open = |number: u32| {
            let at = number.wrapping_sub(*first) as usize;
            *answers == Answers::Stream || waiting.get(at).is_some_and(|waiting| !waiting.done)
        };
        match assembly.add(message, |label| tags.number(label).is_some_and(is_open)) {
            Added::Part => Noted::Part,
            Added::Torn => Noted::Unrequested,
            Added::TooLong => Noted::TooLong,
            Added::Whole(whole) => self.take(&whole, out),
        }
    }

    fn take(&mut self, whole: &Whole, out: &mut Queue) -> Noted {
        if self.answers == Answers::Stream {
            out.push(&whole.bytes);
            return Noted::Answer;
        }
        let number = if whole.kind == Kind::Free { None } else { self.tags.number(whole.label) };
        let at = number.map(|number| number.wrapping_sub(self.first) as usize);
        let Some(waiting) = at.and_then(|at| self.waiting.get_mut(at)) else { return Noted::Unrequested };
        if self.answers == Answers::Any {
            out.push(&whole.bytes);
        } else {
            waiting.answer.extend_from_slice(&whole.bytes);
            self.held += whole.bytes.len();
        }
        if whole.kind == Kind::Piece {
            return if waiting.answer.len() > self.most { Noted::TooLong } else { Noted::Answer };
        }
        waiting.done = true;
        self.open -= 1;
        self.expected += GAIN * (whole.bytes.len() as f64 - self.expected);
        self.release(out);
        Noted::Answer
    }

    /// Appends the answers that are due to `out`.
    fn release(&mut self, out: &mut Queue) {
        while let Some(done) = self.waiting.front().filter(|waiting| waiting.done) {
            out.push(&done.answer);
            self.held -= done.answer.len();
            self.first = self.first.wrapping_add(1);
            self.waiting.pop_front();
        }
    }

    /// Answers the last request here, without a server.
    pub(super) fn answer_last(&mut self, answer: &[u8], out: &mut Queue) {
        let Some(waiting) = self.waiting.back_mut() else { return };
        waiting.answer.extend_from_slice(answer);
        waiting.done = true;
        (self.held, self.open) = (self.held + answer.len(), self.open - 1);
        self.release(out);
    }

    /// Requests without an answer.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// Number of waiting requests, including answered ones whose answers wait for others.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.held + self.assembly.bytes()
    }

    /// Bytes of answers that may wait for others: those held, and those expected for all requests
    /// without an answer.
    pub(super) fn due(&self) -> usize {
        let expected = if self.answers == Answers::InOrder { self.expected } else { 0.0 };
        self.bytes() + (f64::from(self.open) * expected) as usize
    }

    /// Arrival of the oldest request without an answer.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.waiting.front().map(|waiting| waiting.since)
    }
}

#[cfg(test)]
mod tests {
    use tollway_proto::route::Hash;
    use tollway_session::label::parts;

    use super::*;

    fn tags() -> Tags {
        Tags::new(Hash::new([3; 16]), 9)
    }

    fn ledger(answers: Answers, requests: u32) -> Ledger {
        let mut ledger = Ledger::new(answers, tags(), 6000, 1 << 20);
        for number in 0..requests {
            assert_eq!(ledger.number(Time::ZERO, [0; 4])[..4], number.to_be_bytes());
        }
        ledger
    }

    /// Gives a ledger a frame of a server, and returns the effect of its last part.
    fn note(ledger: &mut Ledger, number: u32, kind: Kind, frame: &[u8], out: &mut Queue) -> Noted {
        let mut last = Noted::Unrequested;
        for (head, part) in parts(tags().label(number), kind, frame) {
            last = ledger.note(&[&head[..], part].concat(), out);
        }
        last
    }

    #[test]
    fn answers_come_out_as_they_come_or_in_the_order_of_requests() {
        let long = vec![b'c'; 4000];
        for (answers, order) in [(Answers::Any, &b"ba"[..]), (Answers::InOrder, b"ab")] {
            let (mut ledger, mut out) = (ledger(answers, 3), Queue::default());
            assert_eq!(note(&mut ledger, 1, Kind::Answer, b"b", &mut out), Noted::Answer);
            assert_eq!(note(&mut ledger, 1, Kind::Answer, b"b", &mut out), Noted::Unrequested);
            assert_eq!(note(&mut ledger, 0, Kind::Answer, b"a", &mut out), Noted::Answer);
            assert_eq!(note(&mut ledger, 2, Kind::Answer, &long, &mut out), Noted::Answer);
            assert_eq!(out.as_slice(), [order, &long].concat());
            assert_eq!((ledger.open(), ledger.len(), ledger.bytes()), (0, 0, 0));
            for number in [0, 3, u32::MAX] {
                assert_eq!(note(&mut ledger, number, Kind::Answer, b"x", &mut out), Noted::Unrequested);
            }
            assert_eq!(note(&mut ledger, 0, Kind::Free, b"x", &mut out), Noted::Unrequested);
        }
    }

    #[test]
    fn pieces_of_an_answer_keep_their_request_open() {
        for (answers, order) in [(Answers::Any, &b"1b23"[..]), (Answers::InOrder, b"123b")] {
            let (mut ledger, mut out) = (ledger(answers, 2), Queue::default());
            assert_eq!(note(&mut ledger, 0, Kind::Piece, b"1", &mut out), Noted::Answer);
            assert_eq!(note(&mut ledger, 1, Kind::Answer, b"b", &mut out), Noted::Answer);
            assert_eq!(note(&mut ledger, 0, Kind::Piece, b"2", &mut out), Noted::Answer);
            assert_eq!(ledger.open(), 1);
            assert_eq!(note(&mut ledger, 0, Kind::Answer, b"3", &mut out), Noted::Answer);
            assert_eq!((out.as_slice(), ledger.open(), ledger.bytes()), (order, 0, 0));
        }
    }

    #[test]
    fn frames_of_a_stream_need_no_request_and_hold_none_open() {
        let (mut ledger, mut out) = (ledger(Answers::Stream, 2), Queue::default());
        assert_eq!((ledger.open(), ledger.len()), (0, 0));
        assert_eq!(note(&mut ledger, 77, Kind::Free, b"free", &mut out), Noted::Answer);
        assert_eq!(note(&mut ledger, 0, Kind::Answer, b"answer", &mut out), Noted::Answer);
        assert_eq!(out.as_slice(), b"freeanswer");
    }

    #[test]
    fn an_answer_made_here_waits_for_those_before_it() {
        let (mut ledger, mut out) = (ledger(Answers::InOrder, 2), Queue::default());
        ledger.answer_last(b"no", &mut out);
        assert_eq!((out.len(), ledger.open()), (0, 1));
        assert_eq!(note(&mut ledger, 0, Kind::Answer, b"yes", &mut out), Noted::Answer);
        assert_eq!((out.as_slice(), ledger.bytes()), (&b"yesno"[..], 0));
    }

    #[test]
    fn answers_that_may_wait_follow_the_length_of_answers() {
        let (mut ledger, mut out) = (ledger(Answers::InOrder, 100), Queue::default());
        assert_eq!(ledger.due(), 100 * 6000, "none has more than that");
        let mut large = Ledger::new(Answers::InOrder, tags(), 1 << 20, 1 << 20);
        large.number(Time::ZERO, [0; 4]);
        assert_eq!(large.due(), 65_536);
        for number in 1..90 {
            note(&mut ledger, number, Kind::Answer, b"ok", &mut out);
        }
        // 89 wait for the first, and eleven are still to come, of little more than two bytes each.
        assert_eq!(ledger.bytes(), 89 * 2);
        assert!((11 * 2..11 * 3).contains(&(ledger.due() - ledger.bytes())), "{}", ledger.due());
    }

    #[test]
    fn an_answer_above_the_limit_is_refused() {
        let (mut ledger, mut out) = (ledger(Answers::InOrder, 2), Queue::default());
        assert_eq!(note(&mut ledger, 0, Kind::Answer, &[1; 6001], &mut out), Noted::TooLong);
        assert_eq!(note(&mut ledger, 1, Kind::Piece, &[1; 6000], &mut out), Noted::Answer);
        assert_eq!(note(&mut ledger, 1, Kind::Piece, &[1], &mut out), Noted::TooLong);
    }
}
