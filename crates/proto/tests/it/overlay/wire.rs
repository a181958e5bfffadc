//! Frames as bytes.

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use tollway_proto::overlay::frame::{
    DataFrame, Destinations, GroupUpdate, Holding, HopCost, LinkCost, LinkState, MembershipView, Note,
    NoteKind, Receipt, ReceiptKind, ViewId,
};
use tollway_proto::overlay::wire::{Decoder, Encoder, WireError};
use tollway_proto::overlay::{Bits, DaemonId, Epoch, Frame, Incarnation};

fn incarnation() -> impl Strategy<Value = Incarnation> {
    (any::<u32>(), any::<u64>())
        .prop_map(|(daemon, epoch)| Incarnation { daemon: DaemonId(daemon), epoch: Epoch(epoch) })
}

fn state() -> impl Strategy<Value = Arc<LinkState>> {
    let link = (any::<u32>(), any::<u16>(), 0.0f32..1e4, 1.0f32..1e6);
    let link =
        link.prop_map(|(peer, weight, cost, lot)| LinkCost { peer: DaemonId(peer), weight, cost, lot });
    let hop =
        (any::<u64>(), 0.0f32..1e4, 1.0f32..1e6).prop_map(|(key, cost, lot)| HopCost { key, cost, lot });
    let parts = (
        incarnation(),
        any::<(u64, u8)>(),
        prop::collection::vec(link, 0..5),
        prop::collection::vec(hop, 0..3),
    );
    parts.prop_map(|(origin, (number, since), links, hops)| {
        let base = number.saturating_sub(u64::from(since % 3));
        Arc::new(LinkState { origin, number, base, links, hops })
    })
}

fn note() -> impl Strategy<Value = Note> {
    let view =
        || (any::<u64>(), incarnation()).prop_map(|(counter, sequencer)| ViewId { counter, sequencer });
    let set = prop::collection::vec(incarnation(), 1..9)
        .prop_map(|members| Destinations::new(members).as_slice().to_vec());
    let kind = prop_oneof![
        (view(), any::<u64>()).prop_map(|(view, sent)| NoteKind::Submit { view, sent }),
        (view(), any::<u64>(), incarnation(), any::<u64>())
            .prop_map(|(view, number, from, sent)| NoteKind::Ordered { view, number, from, sent }),
        (view(), set, prop::option::of((view(), any::<u64>())))
            .prop_map(|(id, members, after)| NoteKind::View(Arc::new(MembershipView { id, members, after }))),
        (view(), any::<u64>()).prop_map(|(view, count)| NoteKind::End { view, count }),
        any::<u64>().prop_map(|counter| NoteKind::Behind { counter }),
    ];
    (prop::collection::vec(any::<u8>(), 0..20), kind)
        .prop_map(|(group, kind)| Note { group: group.into(), kind })
}

fn data() -> impl Strategy<Value = DataFrame<Vec<u8>>> {
    let set = prop::collection::vec(incarnation(), 1..90).prop_map(|set| Arc::new(Destinations::new(set)));
    let numbers = (1u64..1 << 50, any::<u8>(), any::<bool>(), any::<u64>(), any::<u64>());
    let note = prop::option::of(note().prop_map(Arc::new));
    (incarnation(), numbers, set, note, prop::collection::vec(any::<u8>(), 0..40)).prop_map(
        |(origin, (seq, life, resent, dice, stable), set, note, body)| {
            let len = set.as_slice().len();
            let mut to = Bits::none(len);
            (0..len).filter(|&index| dice >> (index % 64) & 1 == 1).for_each(|index| to.insert(index));
            let numbers =
                |dice: u64| (0..len as u64).map(|index| dice.wrapping_mul(index + 1) % seq).collect();
            let (previous, before) = (numbers(dice), (stable % 2 == 0).then(|| numbers(stable)));
            DataFrame {
                origin,
                seq,
                stable: stable % seq,
                life,
                resent,
                set,
                previous,
                before,
                to,
                note,
                body,
            }
        },
    )
}

fn frame() -> impl Strategy<Value = Frame<Vec<u8>>> {
    let kind = prop::sample::select(vec![ReceiptKind::Ack, ReceiptKind::Gap, ReceiptKind::Stable]);
    let receipt = (kind, incarnation(), incarnation(), any::<u64>())
        .prop_map(|(kind, origin, receiver, seq)| Receipt { kind, origin, receiver, seq });
    let holding = (incarnation(), incarnation(), any::<u64>()).prop_map(|(holder, origin, seq)| Holding {
        holder,
        origin,
        seq,
    });
    let change =
        (prop::collection::vec(any::<u8>(), 0..20), any::<bool>()).prop_map(|(g, joined)| (g.into(), joined));
    let groups = (incarnation(), any::<u64>(), any::<bool>(), prop::collection::vec(change, 0..5));
    prop_oneof![
        incarnation().prop_map(Frame::Hello),
        prop::collection::vec(state(), 0..4).prop_map(Frame::States),
        groups.prop_map(|(origin, number, whole, changes)| {
            Frame::Groups(Arc::new(GroupUpdate { origin, number, whole, changes }))
        }),
        prop::collection::vec(receipt, 0..5).prop_map(Frame::Receipts),
        prop::collection::vec(holding, 0..5).prop_map(Frame::Holdings),
        data().prop_map(Frame::Data),
    ]
}

/// The frame with its content, from a decoded one.
fn filled(frame: Frame<Range<usize>>, bytes: &[u8]) -> Frame<Vec<u8>> {
    frame.map_body(|range| bytes[range].to_vec())
}

fn write(encoder: &mut Encoder, frame: &Frame<Vec<u8>>, out: &mut Vec<u8>) {
    encoder.encode(frame, out);
    out.extend(frame.body().into_iter().flatten());
}

proptest! {
    /// Frames on one connection come back as they were, at any cut, and their sizes are as told.
    #[test]
    fn frames_come_back(frames in prop::collection::vec(frame(), 1..6)) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let mut bytes = Vec::new();
        for frame in &frames {
            // Twice: the second time a destination set is known.
            for again in [false, true] {
                let start = bytes.len();
                write(&mut encoder, frame, &mut bytes);
                prop_assert!(!again || bytes.len() - start == frame.size());
            }
        }
        let mut rest = &bytes[..];
        for frame in frames.iter().flat_map(|frame| [frame, frame]) {
            prop_assert_eq!(decoder.decode(&rest[..rest.len().min(4)]), Ok(None));
            let (found, used) = decoder.decode(rest).unwrap().unwrap();
            prop_assert_eq!(decoder.decode(&rest[..used - 1]), Ok(None));
            prop_assert_eq!(&filled(found, rest), frame);
            rest = &rest[used..];
        }
        prop_assert!(rest.is_empty());
    }

    /// No bytes panic, and none make more of themselves than they are.
    #[test]
    fn no_bytes_panic(kind in 0u8..10, noise in prop::collection::vec(any::<u8>(), 0..200), real in frame(), at in any::<usize>()) {
        let mut bytes = ((noise.len() + 1) as u32).to_be_bytes().to_vec();
        bytes.push(kind);
        bytes.extend(&noise);
        let _ = Decoder::new().decode(&bytes);
        let mut bytes = Vec::new();
        write(&mut Encoder::new(), &real, &mut bytes);
        let at = at % bytes.len();
        bytes[at] ^= 1 << (at % 8);
        let _ = Decoder::new().decode(&bytes);
    }
}

#[test]
fn more_sets_than_numbers_take_the_oldest_numbers() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let origin = Incarnation { daemon: DaemonId(1), epoch: Epoch(1) };
    let message = |to: u32, seq: u64| {
        let set = Destinations::new(vec![Incarnation { daemon: DaemonId(to), epoch: Epoch(1) }]);
        Frame::Data(DataFrame {
            origin,
            seq,
            stable: 0,
            life: 9,
            resent: false,
            set: Arc::new(set),
            previous: [0].into_iter().collect(),
            before: None,
            to: Bits::all(1),
            note: None,
            body: vec![7u8],
        })
    };
    let frames: Vec<Frame<Vec<u8>>> = (0..3000).map(|n| message(n, u64::from(n) + 1)).collect();
    for frame in frames.iter().chain(&frames[..50]).chain(&frames[2900..]) {
        let mut bytes = Vec::new();
        write(&mut encoder, frame, &mut bytes);
        let (found, _) = decoder.decode(&bytes).unwrap().unwrap();
        assert_eq!(&filled(found, &bytes), frame);
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let text = |bytes: &[u8]| Decoder::new().decode(bytes).unwrap_err().to_string();
    assert!(text(&[255, 0, 0, 0]).contains("limit of 67108864"), "{}", text(&[255, 0, 0, 0]));
    assert_eq!(Decoder::new().decode(&[0, 0, 0, 0]), Err(WireError::Short));
    assert_eq!(Decoder::new().decode(&[0, 0, 0, 1, 99]), Err(WireError::Kind(99)));
    assert_eq!(Decoder::new().decode(&[0, 0, 0, 2, 8, 0]), Err(WireError::Short));
    // The greeting of a version whose contents have one message each.
    assert_eq!(Decoder::new().decode(&[0, 0, 0, 2, 1, 0]), Err(WireError::Kind(1)));
    // A set of four thousand million daemons in forty bytes.
    let mut bytes = vec![0, 0, 0, 40, 6];
    bytes.extend([0; 29]);
    bytes.extend([2, 0, 0, 255, 255, 255, 255, 0, 0, 0]);
    assert_eq!(Decoder::new().decode(&bytes), Err(WireError::Short));
}
