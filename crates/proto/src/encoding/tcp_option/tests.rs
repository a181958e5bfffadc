use proptest::prelude::*;

use super::*;

#[test]
fn the_study_counts_of_sack_blocks() {
    assert_eq!(sack_blocks(false, false, false), 4);
    assert_eq!(sack_blocks(false, false, true), 3);
    assert_eq!(sack_blocks(true, false, true), 2);
    assert_eq!(sack_blocks(false, true, true), 2);
    assert_eq!(sack_blocks(true, true, true), 1);
}

#[test]
fn figure_1_byte_for_byte() {
    // Half a packet, 500 ms, 416 packets: mantissa 2048 at exponent 0.
    let forward = Forward { feedback: Feedback::Split.encode(0.5), rtt_ms: 500, cwnd: 416 };
    assert_eq!(forward.to_bytes(), [14, 8, 0x40, 0x00, 0x01, 0xf4, 0x01, 0xa0]);
    let mut list = Builder::new();
    list.back(Feedback::Split.encode(-1.0)).unwrap();
    assert_eq!(list.as_slice(), [15, 4, 0x80, 0x00]);
}

#[test]
fn padding_and_unknown_kinds_are_passed_over() {
    let options = [1, 2, 4, 5, 220, 1, 1, 14, 8, 0, 8, 0, 100, 0, 10, 1, 253, 3, 9, 0, 14, 99];
    let located = locate(&options).unwrap();
    assert_eq!(located, Located { forward: Some(7), back: None });
    let forward = Forward::read(&options, 7).unwrap();
    assert_eq!(forward, Forward { feedback: 8, rtt_ms: 100, cwnd: 10 });
    assert_eq!(Forward::read(&options, 6), None);
    assert_eq!(Forward::read(&options, usize::MAX), None);
}

#[test]
fn errors_say_where() {
    let length = |kind, at, length, left| Err(OptionError::Length { kind, at, length, left });
    assert_eq!(locate(&[1, 14]), Err(OptionError::NoLength { kind: 14, at: 1 }));
    assert_eq!(locate(&[1, 1, 14, 7, 0, 0, 0, 0, 0]), length(14, 2, 7, 7));
    assert_eq!(locate(&[14, 8, 0, 0, 0, 0, 0]), length(14, 0, 8, 7));
    assert_eq!(locate(&[15, 4, 0]), length(15, 0, 4, 3));
    assert_eq!(locate(&[30, 1]), length(30, 0, 1, 2));
    assert_eq!(locate(&[30, 0]), length(30, 0, 0, 2));
    assert_eq!(locate(&[15, 4, 0, 0, 15, 4, 0, 0]), Err(OptionError::Twice { kind: 15, at: 4 }));
    assert_eq!(locate(&[1; 41]), Err(OptionError::TooLong { len: 41 }));
    let text = locate(&[1, 14]).unwrap_err().to_string();
    assert_eq!(text, "TCP option 14 at byte 1 has no length byte");
}

#[test]
fn the_options_lie_where_the_header_says() {
    let mut segment = [0u8; 60];
    segment[12] = 8 << 4;
    assert_eq!(option_range(&segment), Ok(20..32));
    assert_eq!(option_range(&segment[..31]), Err(OptionError::Header { have: 31, need: 32 }));
    for short in 0..20 {
        assert!(option_range(&segment[..short]).is_err());
    }
    segment[12] = 4 << 4;
    assert!(option_range(&segment).is_err());
}

#[test]
fn feedback_is_packets_of_window_and_rates_are_bytes() {
    // 0.4 packets of 1500 B over 500 ms are 1200 B/s.
    let toll = Toll { due: 1200.0, rtt: 0.5, offer: 0.5 / 416.0, ..Toll::default() };
    let forward = Forward::from_toll(&toll, 1500, Feedback::Split);
    assert_eq!((forward.rtt_ms, forward.cwnd), (500, 416));
    let read = forward.toll(1500, Feedback::Split);
    assert!((read.due - 1200.0).abs() < 1200.0 / 512.0);
    assert_eq!(Forward::from_toll(&toll, 1500, Feedback::Integer).feedback, 0, "lost to rounding");
}

#[test]
fn unknown_stays_unknown_and_small_stays_known() {
    let toll = Toll { due: 1e9, rtt: 0.0, offer: 0.0, ..Toll::default() };
    assert_eq!(Forward::from_toll(&toll, 1500, Feedback::Split), Forward::default());
    let toll = Toll { due: f64::INFINITY, rtt: 1e-5, offer: 1.0, ..Toll::default() };
    let forward = Forward::from_toll(&toll, 1500, Feedback::Split);
    assert_eq!((forward.rtt_ms, forward.cwnd, forward.feedback), (1, 1, Split::MAX.0));
}

proptest! {
    #[test]
    fn what_is_built_reads_back(
        timestamps: Option<(u32, u32)>,
        forward: Option<(u16, u16, u16)>,
        back: Option<u16>,
        ranges in prop::collection::vec((any::<u32>(), any::<u32>()), 0..6),
    ) {
        let forward = forward.map(|(feedback, rtt_ms, cwnd)| Forward { feedback, rtt_ms, cwnd });
        let mut list = Builder::new();
        if let Some((value, echo)) = timestamps { list.timestamps(value, echo).unwrap(); }
        if let Some(forward) = forward { list.forward(forward).unwrap(); }
        if let Some(back) = back { list.back(back).unwrap(); }
        let blocks = list.sack(&ranges);
        let room = sack_blocks(forward.is_some(), back.is_some(), timestamps.is_some());
        prop_assert_eq!(blocks, ranges.len().min(room));
        let bytes = list.as_slice();
        prop_assert_eq!(bytes.len() % 4, 0);
        let len = len(forward.is_some(), back.is_some(), timestamps.is_some(), ranges.len());
        prop_assert_eq!(bytes.len(), len);

        let parsed = parse(bytes).unwrap();
        prop_assert_eq!((parsed.forward, parsed.back, parsed.timestamps), (forward, back, timestamps));
        prop_assert_eq!(parsed.sack.as_slice(), &ranges[..blocks]);

        // Cut anywhere, the list is refused, unless the cut falls between two options.
        let mut whole = Vec::new();
        let mut end = 0;
        for option in Walk::new(bytes) {
            let option = option.unwrap();
            whole.extend(end..=option.at);
            end = option.at + 2 + option.body.len();
        }
        for cut in 0..bytes.len() {
            prop_assert_eq!(parse(&bytes[..cut]).is_ok(), whole.contains(&cut), "cut at {}", cut);
        }
    }

    #[test]
    fn a_rewrite_touches_two_bytes(
        before in prop::collection::vec(Just(KIND_NOP), 0..32),
        fields: (u16, u16, u16),
        feedback: u16,
    ) {
        let forward = Forward { feedback: fields.0, rtt_ms: fields.1, cwnd: fields.2 };
        let mut options = before.clone();
        options.extend(forward.to_bytes());
        let at = locate(&options).unwrap().forward.unwrap();
        let original = options.clone();
        prop_assert!(store_feedback(&mut options, at, feedback));
        prop_assert_eq!(Forward::read(&options, at), Some(Forward { feedback, ..forward }));
        for i in (0..options.len()).filter(|i| !(at + 2..at + 4).contains(i)) {
            prop_assert_eq!(options[i], original[i]);
        }
        let rewritten = options.clone();
        for elsewhere in (0..options.len() + 2).filter(|&i| i != at) {
            let starts = Forward::read(&options, elsewhere).is_some();
            prop_assert_eq!(store_feedback(&mut options.clone(), elsewhere, feedback), starts);
        }
        prop_assert_eq!(options, rewritten);
    }

    #[test]
    fn no_bytes_panic(options in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse(&options);
        let _ = option_range(&options);
        prop_assert!(Walk::new(&options).count() <= options.len());
    }
}
