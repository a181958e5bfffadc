//! Labels of frames between sites, which match answers with requests.
//!
//! ```text
//! request  number (4) | tag (4) | key (4) | frame
//! answer   number (4) | tag (4) | place (2) | part of a frame
//! frame    source (8)           | place (2) | part of a frame
//! ```
//!
//! The key is a hash of the frame's key, for switches that route by it; 0 without one.
//!
//! Requests of a session are numbered from 0. The tag is a keyed hash of the number, so a server
//! can answer only requests that it received. A server may also send frames that answer no request.
//! Their source is a random number of the server for this session.
//!
//! A server's frames are sent in parts of one packet each, since packets of several members mix on
//! their way to the peer. The place counts a frame's parts, and has four marks: the first part; the
//! last part; a frame without a request; more frames for the same request follow. After a failure,
//! a part may be missing: the frame is then dropped.

use std::collections::HashMap;

use tollway_proto::route::Hash;

use crate::PAYLOAD;

/// A request's number and tag, or the source of other frames, as they travel.
pub type Label = [u8; 8];
/// The hash of a frame's key, as it travels; zeros without a key.
pub type KeyHash = [u8; 4];

/// Length of the label and the key before a request, bytes.
pub const REQUEST: usize = 12;
/// Length of the label before a part of a server's frame, bytes.
const PART: usize = 10;

const FIRST: u16 = 1 << 15;
const LAST: u16 = 1 << 14;
const FREE: u16 = 1 << 13;
const MORE: u16 = 1 << 12;
const PLACE: u16 = MORE - 1;

/// The relation of a server's frame to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is the last answer to a request.
    Answer,
    /// More answers to the same request follow.
    Piece,
    /// It answers no request.
    Free,
}

/// The label of a request, and its frame; `None` if the message is too short.
pub fn request(message: &[u8]) -> Option<(Label, &[u8])> {
    let (label, rest) = message.split_first_chunk()?;
    let (_, frame) = rest.split_first_chunk::<4>()?;
    Some((*label, frame))
}

/// The key in the first packet of a request, if it has one, and the packet's part of the frame.
pub fn routed(payload: &[u8]) -> Option<(Option<&KeyHash>, &[u8])> {
    let (key, frame) = payload.get(8..)?.split_first_chunk()?;
    Some(((*key != [0; 4]).then_some(key), frame))
}

/// The hash of a key, as it travels.
pub fn key_hash(key: &[u8]) -> KeyHash {
    short(Hash::new([0; 16]).of(key))
}

/// A hash of 64 bits, as it travels.
pub fn short(hash: u64) -> KeyHash {
    (hash as u32).max(1).to_be_bytes()
}

/// The label and key before a request.
pub fn head([a, b, c, d, e, f, g, h]: Label, [i, j, k, l]: KeyHash) -> [u8; REQUEST] {
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

/// Splits a server's frame into parts, each with its label.
pub fn parts(label: Label, kind: Kind, frame: &[u8]) -> impl Iterator<Item = ([u8; PART], &[u8])> {
    const MOST: usize = PAYLOAD - PART;
    let count = frame.len().div_ceil(MOST).max(1);
    let [a, b, c, d, e, f, g, h] = label;
    let of_kind = match kind {
        Kind::Answer => 0,
        Kind::Piece => MORE,
        Kind::Free => FREE,
    };
    (0..count).map(move |at| {
        let (first, last) = (if at == 0 { FIRST } else { 0 }, if at + 1 == count { LAST } else { 0 });
        let [y, z] = (at as u16 & PLACE | of_kind | first | last).to_be_bytes();
        ([a, b, c, d, e, f, g, h, y, z], &frame[at * MOST..frame.len().min((at + 1) * MOST)])
    })
}

/// Labels of a session's requests.
#[derive(Clone, Copy, Debug)]
pub struct Tags {
    hash: Hash,
    /// The session's flow, which is part of the hash.
    flow: u32,
}

impl Tags {
    /// Tags by `hash`, which differ between flows.
    pub fn new(hash: Hash, flow: u32) -> Tags {
        Tags { hash, flow }
    }

    /// The label of the request with a number.
    pub fn label(&self, number: u32) -> Label {
        let key = u64::from(self.flow) << 32 | u64::from(number);
        let tag = self.hash.of(&key.to_be_bytes());
        (u64::from(number) << 32 | tag & u64::from(u32::MAX)).to_be_bytes()
    }

    /// The number of the request with this label; `None` if there was none.
    pub fn number(&self, label: Label) -> Option<u32> {
        let number = (u64::from_be_bytes(label) >> 32) as u32;
        (self.label(number) == label).then_some(number)
    }
}

/// A server's frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The request's label, or the source.
    pub label: Label,
    /// Its relation to requests.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The effect of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// Its frame is incomplete.
    Part,
    /// A frame is complete.
    Whole(Whole),
    /// The part belongs to no frame: an earlier one is missing, or it is no part at all.
    Torn,
    /// The frame, or all incomplete ones, are longer than allowed.
    TooLong,
}

/// Frames of a session that are incomplete.
#[derive(Debug)]
pub struct Assembly {
    partial: HashMap<(Label, bool), Partial>,
    /// Bytes held.
    held: usize,
    /// Upper bounds on the length of a frame, and on the bytes held.
    longest: usize,
    most: usize,
}

#[derive(Debug, Default)]
struct Partial {
    bytes: Vec<u8>,
    /// The place of the next part.
    next: u16,
}

impl Assembly {
    /// Frames of at most `longest` bytes, of which `most` are held.
    pub fn new(longest: usize, most: usize) -> Assembly {
        Assembly { partial: HashMap::new(), held: 0, longest, most }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.held
    }

    /// Adds a part. Answers count only if `known` returns true for their labels.
    pub fn add(&mut self, message: &[u8], known: impl FnOnce(Label) -> bool) -> Added {
        let Some((&[a, b, c, d, e, f, g, h, y, z], part)) = message.split_first_chunk::<PART>() else {
            return Added::Torn;
        };
        let (label, marks) = ([a, b, c, d, e, f, g, h], u16::from_be_bytes([y, z]));
        let (free, place) = (marks & FREE != 0, marks & PLACE);
        if !free && !known(label) {
            return Added::Torn;
        }
        let old = self.partial.remove(&(label, free));
        self.held -= old.as_ref().map_or(0, |old| old.bytes.len() + OVERHEAD);
        // One that another member began, which failed, begins again.
        let begun = if marks & FIRST != 0 { Some(Partial::default()) } else { old };
        let Some(mut partial) = begun.filter(|partial| partial.next == place) else { return Added::Torn };
        partial.bytes.extend_from_slice(part);
        partial.next = (place + 1) & PLACE;
        if partial.bytes.len() > self.longest {
            return Added::TooLong;
        }
        if marks & LAST != 0 {
            let kind = match (free, marks & MORE != 0) {
                (true, _) => Kind::Free,
                (false, true) => Kind::Piece,
                (false, false) => Kind::Answer,
            };
            return Added::Whole(Whole { label, kind, bytes: partial.bytes });
        }
        self.held += partial.bytes.len() + OVERHEAD;
        self.partial.insert((label, free), partial);
        if self.held > self.most { Added::TooLong } else { Added::Part }
    }
}

/// Bytes that an incomplete frame takes beside its own.
const OVERHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: Label = [9; 8];

    fn messages(label: Label, kind: Kind, frame: &[u8]) -> Vec<Vec<u8>> {
        parts(label, kind, frame).map(|(head, part)| [&head[..], part].concat()).collect()
    }

    fn whole(label: Label, kind: Kind, bytes: &[u8]) -> Added {
        Added::Whole(Whole { label, kind, bytes: bytes.to_vec() })
    }

    #[test]
    fn frames_of_several_sources_and_answers_mix() {
        let mut all = Assembly::new(1 << 20, 1 << 20);
        let frames: Vec<Vec<u8>> = (0..3).map(|at| vec![at; 4000]).collect();
        let kinds = [Kind::Answer, Kind::Piece, Kind::Free];
        let each: Vec<_> = (0..3).map(|at| messages([at as u8; 8], kinds[at], &frames[at])).collect();
        let mut done = Vec::new();
        for place in 0..each[0].len() {
            for one in &each {
                match all.add(&one[place], |_| true) {
                    Added::Whole(whole) => done.push(whole),
                    other => assert_eq!(other, Added::Part),
                }
            }
        }
        for (at, one) in done.iter().enumerate() {
            assert_eq!((one.label, one.kind, &one.bytes), ([at as u8; 8], kinds[at], &frames[at]));
        }
        assert_eq!((done.len(), all.bytes()), (3, 0));
    }

    #[test]
    fn a_frame_with_a_missing_part_is_dropped_and_the_next_one_is_whole() {
        let frame = vec![7; 5000];
        let sent = messages(SOURCE, Kind::Free, &frame);
        for missing in 0..sent.len() {
            let mut all = Assembly::new(1 << 20, 1 << 20);
            let rest = sent.iter().enumerate().filter(|(at, _)| *at != missing);
            for (_, part) in rest.chain(sent[..sent.len() - 1].iter().enumerate()) {
                assert!(!matches!(all.add(part, |_| true), Added::Whole(_)), "{missing} is missing");
            }
            assert_eq!(all.add(&sent[sent.len() - 1], |_| true), whole(SOURCE, Kind::Free, &frame));
        }
    }

    #[test]
    fn lengths_and_memory_are_bounded_and_unknown_labels_hold_nothing() {
        let mut all = Assembly::new(3000, 10_000);
        let long = messages(SOURCE, Kind::Free, &[1; 3001]);
        let added: Vec<Added> = long.iter().map(|part| all.add(part, |_| true)).collect();
        assert_eq!(added[added.len() - 1], Added::TooLong);
        assert_eq!(all.bytes(), 0);
        let begun = |all: &mut Assembly, source: u8| {
            all.add(&messages([source; 8], Kind::Free, &[1; 3000])[0], |_| true)
        };
        let count = (0..100).take_while(|&source| begun(&mut all, source) == Added::Part).count();
        assert!((5..10).contains(&count), "{count}");
        let mut all = Assembly::new(3000, 10_000);
        assert_eq!(all.add(&messages(SOURCE, Kind::Answer, &[1; 3000])[0], |_| false), Added::Torn);
        assert_eq!((all.bytes(), all.add(&[0; 9], |_| true)), (0, Added::Torn));
    }

    #[test]
    fn a_label_of_another_number_or_session_is_none() {
        let hash = Hash::new([3; 16]);
        let (one, other) = (Tags::new(hash, 9), Tags::new(hash, 10));
        let label = one.label(5);
        assert_eq!((one.number(label), other.number(label)), (Some(5), None));
        for at in 0..8 {
            let mut wrong = label;
            wrong[at] ^= 1;
            assert_eq!(one.number(wrong), None);
        }
    }

    #[test]
    fn a_request_shows_its_key_and_its_frame() {
        let hash = key_hash(b"user1");
        let message = [&head([1; 8], hash)[..], b"frame"].concat();
        assert_eq!(request(&message), Some(([1; 8], &b"frame"[..])));
        assert_eq!(routed(&message), Some((Some(&hash), &b"frame"[..])));
        let without = [&head([1; 8], [0; 4])[..], b"frame"].concat();
        assert_eq!(routed(&without), Some((None, &b"frame"[..])));
        assert_eq!(request(&message[..12]), Some(([1; 8], &b""[..])));
        assert_eq!((request(&message[..11]), routed(&message[..11])), (None, None));
    }

    proptest! {
        #[test]
        fn parts_make_the_frame_again(frame in prop::collection::vec(any::<u8>(), 0..9000), free: bool) {
            let kind = if free { Kind::Free } else { Kind::Answer };
            let mut all = Assembly::new(frame.len(), 1 << 20);
            let sent = messages(SOURCE, kind, &frame);
            prop_assert!(sent.iter().all(|message| message.len() <= PAYLOAD));
            let mut added = Added::Torn;
            for message in &sent {
                added = all.add(message, |_| true);
            }
            prop_assert_eq!(added, whole(SOURCE, kind, &frame));
        }

        #[test]
        fn no_message_panics_or_holds_more_than_the_limit(
            messages in prop::collection::vec((0u8..4, any::<u16>(), 0usize..40), 0..80),
        ) {
            let mut all = Assembly::new(100, 300);
            for (source, marks, len) in messages {
                let message = [&[source; 8][..], &marks.to_be_bytes(), &vec![1; len]].concat();
                all.add(&message, |label| label[0] != 3);
                prop_assert!(all.bytes() <= 300 + 100 + OVERHEAD);
                all.add(&message[..len.min(9)], |_| true);
            }
        }
    }
}
