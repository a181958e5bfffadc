//! Labels that front and back add to frames, to match answers with requests.
//!
//! ```text
//! request  number (4) | tag (4) | frame
//! answer   number (4) | tag (4) | 1 first, 2 last (1) | part of an answer
//! ```
//!
//! Requests of a session are numbered from 0. The tag is a keyed hash of the number, so a back can
//! answer only requests that it received. A back labels an answer with the number and tag of the
//! oldest unanswered request of its server. An answer is sent in parts of one packet each, since
//! packets of several members mix on their way to the peer.

use std::collections::VecDeque;

use tollway_law::Time;
use tollway_proto::dispatch::{Answers, Queue};
use tollway_proto::route::Hash;

use super::PAYLOAD;

/// A request's number and tag, as they travel.
pub(super) type Label = [u8; 8];

/// Length of the label before a part of an answer, bytes.
const ANSWER: usize = 9;
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// The expected length of a session's answers before the first has come, bytes.
const FIRST_EXPECTED: f64 = 65_536.0;
/// Weight of an answer's length in the expected length of the next.
const GAIN: f64 = 0.125;

/// The label of a request, and its frame; `None` if the message is too short.
pub(super) fn request(message: &[u8]) -> Option<(Label, &[u8])> {
    let (label, frame) = message.split_first_chunk()?;
    (!frame.is_empty()).then_some((*label, frame))
}

/// Splits an answer into parts, each with its label.
pub(super) fn parts(label: Label, answer: &[u8]) -> impl Iterator<Item = ([u8; ANSWER], &[u8])> {
    let count = answer.chunks(PAYLOAD - ANSWER).count();
    let [a, b, c, d, e, f, g, h] = label;
    answer.chunks(PAYLOAD - ANSWER).enumerate().map(move |(at, part)| {
        let marks = if at == 0 { FIRST } else { 0 } | if at + 1 == count { LAST } else { 0 };
        ([a, b, c, d, e, f, g, h, marks], part)
    })
}

/// The requests of a session that wait for their answers.
pub(super) struct Ledger {
    answers: Answers,
    /// The hash for tags.
    hash: Hash,
    /// The session's flow, which is part of the hash.
    flow: u32,
    /// Upper bound on the length of an answer, bytes.
    most: usize,
    /// The number of the first in `waiting`.
    first: u32,
    waiting: VecDeque<Waiting>,
    /// Bytes of answers that are incomplete, or not due.
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

/// The effect of a part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// The answer is incomplete.
    Part,
    /// An answer is complete.
    Answer,
    /// No request waits for it: a repetition, an answer without a request, or another message.
    Unrequested,
    /// It is longer than the largest frame.
    TooLong,
}

impl Ledger {
    /// An empty ledger, for answers of at most `most` bytes. The tags of `hash` differ between flows.
    pub(super) fn new(answers: Answers, hash: Hash, flow: u32, most: usize) -> Ledger {
        Ledger {
            answers,
            hash,
            flow,
            most,
            first: 0,
            waiting: VecDeque::new(),
            held: 0,
            open: 0,
            expected: FIRST_EXPECTED.min(most as f64),
        }
    }

    fn label(&self, number: u32) -> Label {
        let key = u64::from(self.flow) << 32 | u64::from(number);
        let tag = self.hash.of(&key.to_be_bytes());
        (u64::from(number) << 32 | tag & u64::from(u32::MAX)).to_be_bytes()
    }

    /// The label of a new request.
    pub(super) fn number(&mut self, now: Time) -> Label {
        let number = self.first.wrapping_add(self.waiting.len() as u32);
        if self.answers == Answers::None {
            self.first = number.wrapping_add(1);
        } else {
            self.waiting.push_back(Waiting { since: now, answer: Vec::new(), done: false });
            self.open += 1;
        }
        self.label(number)
    }

    /// Adds a part of an answer; answers that are due are appended to `out`.
    pub(super) fn note(&mut self, message: &[u8], out: &mut Queue) -> Noted {
        let Some((&[a, b, c, d, e, f, g, h, marks], part)) = message.split_first_chunk::<ANSWER>() else {
            return Noted::Unrequested;
        };
        let number = u32::from_be_bytes([a, b, c, d]);
        if self.label(number) != [a, b, c, d, e, f, g, h] {
            return Noted::Unrequested;
        }
        let at = number.wrapping_sub(self.first) as usize;
        let Some(waiting) = self.waiting.get_mut(at).filter(|waiting| !waiting.done) else {
            return Noted::Unrequested;
        };
        if marks & FIRST != 0 {
            // Another member's, that failed, may have begun.
            self.held -= waiting.answer.len();
            waiting.answer.clear();
        }
        if waiting.answer.len() + part.len() > self.most {
            return Noted::TooLong;
        }
        waiting.answer.extend_from_slice(part);
        self.held += part.len();
        if marks & LAST == 0 {
            return Noted::Part;
        }
        waiting.done = true;
        self.open -= 1;
        self.expected += GAIN * (waiting.answer.len() as f64 - self.expected);
        if self.answers == Answers::Any {
            self.held -= waiting.answer.len();
            out.push(&std::mem::take(&mut waiting.answer));
        }
        while let Some(done) = self.waiting.front().filter(|waiting| waiting.done) {
            out.push(&done.answer);
            self.held -= done.answer.len();
            self.first = self.first.wrapping_add(1);
            self.waiting.pop_front();
        }
        Noted::Answer
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
        self.held
    }

    /// Bytes of answers that may wait for others: those held, and those expected for all requests
    /// without an answer.
    pub(super) fn due(&self) -> usize {
        let expected = if self.answers == Answers::InOrder { self.expected } else { 0.0 };
        self.held + (f64::from(self.open) * expected) as usize
    }

    /// Arrival of the oldest request without an answer.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.waiting.front().map(|waiting| waiting.since)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ledger(answers: Answers, requests: u32) -> Ledger {
        let mut ledger = Ledger::new(answers, Hash::new([3; 16]), 9, 6);
        (0..requests).for_each(|number| assert_eq!(ledger.number(Time::ZERO)[..4], number.to_be_bytes()));
        ledger
    }

    fn message(ledger: &Ledger, number: u32, marks: u8, part: &[u8]) -> Vec<u8> {
        [&ledger.label(number)[..], &[marks], part].concat()
    }

    fn note(ledger: &mut Ledger, number: u32, marks: u8, part: &[u8], out: &mut Queue) -> Noted {
        let message = message(ledger, number, marks, part);
        ledger.note(&message, out)
    }

    #[test]
    fn answers_come_out_as_they_come_or_in_the_order_of_requests() {
        for (answers, expected) in [(Answers::Any, &b"bacc"[..]), (Answers::InOrder, b"abcc")] {
            let (mut ledger, mut out) = (ledger(answers, 3), Queue::default());
            assert_eq!(note(&mut ledger, 1, 3, b"b", &mut out), Noted::Answer);
            assert_eq!(note(&mut ledger, 1, 3, b"b", &mut out), Noted::Unrequested);
            assert_eq!(note(&mut ledger, 2, 1, b"c", &mut out), Noted::Part);
            assert_eq!(note(&mut ledger, 0, 3, b"a", &mut out), Noted::Answer);
            assert_eq!(note(&mut ledger, 2, 2, b"c", &mut out), Noted::Answer);
            assert_eq!(out.as_slice(), expected);
            assert_eq!((ledger.open(), ledger.len(), ledger.bytes()), (0, 0, 0));
            for number in [0, 3, u32::MAX] {
                assert_eq!(note(&mut ledger, number, 3, b"x", &mut out), Noted::Unrequested);
            }
        }
    }

    #[test]
    fn answers_that_may_wait_follow_the_length_of_answers() {
        let (mut ledger, mut out) = (ledger(Answers::InOrder, 100), Queue::default());
        assert_eq!(ledger.due(), 100 * 6, "none has more than six");
        let mut large = Ledger::new(Answers::InOrder, Hash::new([3; 16]), 9, 1 << 20);
        large.number(Time::ZERO);
        assert_eq!(large.due(), 65_536);
        for number in 1..90 {
            note(&mut ledger, number, 3, b"ok", &mut out);
        }
        // 89 wait for the first, and eleven are still to come, of little more than two bytes each.
        assert_eq!(ledger.bytes(), 89 * 2);
        assert!((11 * 2..11 * 3).contains(&(ledger.due() - ledger.bytes())), "{}", ledger.due());
    }

    #[test]
    fn an_answer_begun_by_a_member_that_failed_begins_again() {
        let (mut ledger, mut out) = (ledger(Answers::Any, 1), Queue::default());
        assert_eq!(note(&mut ledger, 0, 1, b"old", &mut out), Noted::Part);
        assert_eq!(note(&mut ledger, 0, 1, b"n", &mut out), Noted::Part);
        assert_eq!(note(&mut ledger, 0, 2, b"ew", &mut out), Noted::Answer);
        assert_eq!((out.as_slice(), ledger.bytes()), (&b"new"[..], 0));
    }

    #[test]
    fn an_answer_above_the_limit_is_refused() {
        let (mut ledger, mut out) = (ledger(Answers::Any, 1), Queue::default());
        assert_eq!(note(&mut ledger, 0, 1, b"1234", &mut out), Noted::Part);
        assert_eq!(note(&mut ledger, 0, 0, b"567", &mut out), Noted::TooLong);
    }

    #[test]
    fn an_answer_under_another_label_is_no_answer() {
        let (mut ledger, mut out) = (ledger(Answers::Any, 1), Queue::default());
        let right = message(&ledger, 0, 3, b"right");
        for at in 0..8 {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            assert_eq!(ledger.note(&wrong, &mut out), Noted::Unrequested);
        }
        // Of another session.
        let other = message(&Ledger::new(Answers::Any, Hash::new([3; 16]), 10, 6), 0, 3, b"other");
        assert_eq!(ledger.note(&other, &mut out), Noted::Unrequested);
        assert_eq!(ledger.note(&right[..8], &mut out), Noted::Unrequested);
        assert_eq!(ledger.note(&right, &mut out), Noted::Answer);
    }

    proptest! {
        #[test]
        fn parts_make_the_answer_again(answer in prop::collection::vec(any::<u8>(), 1..9000), first: u32) {
            let mut ledger = Ledger { first, most: answer.len(), ..ledger(Answers::InOrder, 0) };
            let label = ledger.number(Time::ZERO);
            let mut out = Queue::default();
            for (head, part) in parts(label, &answer) {
                prop_assert!(head.len() + part.len() <= PAYLOAD);
                ledger.note(&[&head[..], part].concat(), &mut out);
            }
            prop_assert_eq!(out.as_slice(), &answer[..]);
        }

        #[test]
        fn no_message_panics(
            messages in prop::collection::vec((0u32..7, any::<u8>(), "[a-z]{0,9}"), 0..60),
            cut in 0usize..12,
        ) {
            let (mut ledger, mut out) = (ledger(Answers::InOrder, 5), Queue::default());
            for (number, marks, part) in messages {
                let message = message(&ledger, number, marks, part.as_bytes());
                ledger.note(&message, &mut out);
                ledger.note(&message[..cut.min(message.len())], &mut out);
                prop_assert!(ledger.bytes() <= 40 && ledger.open() <= 5);
                let _ = request(&message);
            }
        }
    }
}
