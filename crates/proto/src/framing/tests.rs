use proptest::prelude::*;

use super::*;

/// Feeds `bytes` in pieces; returns the frames' lengths, and why it stopped.
fn cut(framing: Framing, most: usize, bytes: &[u8], pieces: &[usize]) -> (Vec<usize>, Option<FrameError>) {
    let mut framer = Framer::new(framing, most);
    let (mut start, mut end, mut frames, mut piece) = (0, 0, Vec::new(), 0);
    loop {
        loop {
            match framer.next(&bytes[start..end]) {
                Ok(Some(len)) => {
                    assert!(len <= most && len <= end - start && len > 0);
                    frames.push(len);
                    start += len;
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        if end == bytes.len() {
            return (frames, None);
        }
        end = (end + pieces[piece % pieces.len()].max(1)).min(bytes.len());
        piece += 1;
    }
}

fn framings() -> impl Strategy<Value = Framing> {
    let prefix = (prop_oneof![Just(2u8), Just(4u8)], any::<bool>(), any::<bool>(), 0..6u8, 0..6u8).prop_map(
        |(width, little_endian, inclusive, offset, uncounted)| {
            Framing::Length(LengthPrefix { width, little_endian, inclusive, offset, uncounted })
        },
    );
    prop_oneof![
        4 => prefix,
        1 => Just(Framing::Delimited(b'\n')),
        1 => Just(Framing::Delimited(0)),
        1 => Just(Framing::OctetCounting),
        1 => Just(Framing::Resp),
    ]
}

/// A frame of this framing around `body`.
fn frame(framing: Framing, body: &[u8]) -> Vec<u8> {
    match framing {
        Framing::Length(prefix) => {
            let body = if body.len() < usize::from(prefix.uncounted) { &[9; 8][..] } else { body };
            let mut counted = body.len() - usize::from(prefix.uncounted);
            if prefix.inclusive {
                counted += prefix.header();
            }
            let field = match (prefix.width, prefix.little_endian) {
                (2, false) => (counted as u16).to_be_bytes().to_vec(),
                (2, true) => (counted as u16).to_le_bytes().to_vec(),
                (_, false) => (counted as u32).to_be_bytes().to_vec(),
                (_, true) => (counted as u32).to_le_bytes().to_vec(),
            };
            [vec![7; usize::from(prefix.offset)], field, body.to_vec()].concat()
        }
        Framing::Delimited(end) => {
            let clean: Vec<u8> = body.iter().map(|&byte| if byte == end { byte + 1 } else { byte }).collect();
            [clean, vec![end]].concat()
        }
        Framing::OctetCounting => {
            [format!("{} ", body.len().max(1)).as_bytes(), body, if body.is_empty() { b"x" } else { b"" }]
                .concat()
        }
        Framing::Resp => {
            let (a, b) = body.split_at(body.len() / 2);
            [
                format!("*3\r\n${}\r\n", a.len()).as_bytes(),
                a,
                format!("\r\n*2\r\n:5\r\n$-1\r\n${}\r\n", b.len()).as_bytes(),
                b,
                b"\r\n",
            ]
            .concat()
        }
    }
}

proptest! {
    #[test]
    fn frames_are_found_wherever_the_stream_is_cut(
        framing in framings(),
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
        pieces in prop::collection::vec(1usize..400, 1..8),
    ) {
        let frames: Vec<_> = bodies.iter().map(|body| frame(framing, body)).collect();
        let lens: Vec<_> = frames.iter().map(Vec::len).collect();
        let bytes = frames.concat();
        prop_assert_eq!(cut(framing, 1 << 16, &bytes, &pieces), (lens.clone(), None));
        prop_assert_eq!(cut(framing, 1 << 16, &bytes, &[1]), (lens.clone(), None));
        // A limit that one of them exceeds is held.
        let most = lens.iter().max().unwrap() - 1;
        let (_, error) = cut(framing, most, &bytes, &pieces);
        let too_long = matches!(error, Some(FrameError::TooLong { .. }));
        prop_assert!(too_long);
    }

    #[test]
    fn any_bytes_are_cut_or_refused_alike_in_one_piece_and_in_many(
        framing in framings(),
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$:+-%|0129 \r\n".to_vec())], 0..600),
        pieces in prop::collection::vec(1usize..50, 1..8),
    ) {
        let (whole, error) = cut(framing, 256, &bytes, &[bytes.len().max(1)]);
        let (dripped, drip_error) = cut(framing, 256, &bytes, &pieces);
        prop_assert_eq!(&whole, &dripped);
        prop_assert_eq!(error.is_some(), drip_error.is_some());
    }

    #[test]
    fn a_framing_reads_as_it_is_written(framing in framings()) {
        prop_assert_eq!(framing.to_string().parse::<Framing>().unwrap(), framing);
    }
}

#[test]
fn lengths_of_gigabytes_are_refused_at_once() {
    let four_gigabytes = [0xff, 0xff, 0xff, 0xff];
    for (framing, bytes) in [
        (Framing::Length(LengthPrefix::new(4)), &four_gigabytes[..]),
        (Framing::OctetCounting, b"4294967295"),
        (Framing::Resp, b"$4294967295\r\n"),
        (Framing::Resp, b"*4294967295\r\n"),
        (Framing::Resp, b"*1\r\n%999999999999999999\r\n"),
    ] {
        let error = Framer::new(framing, 1 << 20).next(bytes).unwrap_err();
        assert!(matches!(error, FrameError::TooLong { .. }), "{framing}: {error}");
    }
}

#[test]
fn what_is_not_of_a_framing_is_refused() {
    let inclusive = LengthPrefix { inclusive: true, ..LengthPrefix::new(2) };
    let deep = b"*1\r\n".repeat(1000);
    let endless = [&b"*1\r\n$"[..], &[b'1'; 65_536][..]].concat();
    for (framing, bytes) in [
        (Framing::Length(inclusive), &[0, 1][..]),
        (Framing::OctetCounting, b"<13>hello"),
        (Framing::OctetCounting, b"012 "),
        (Framing::OctetCounting, b" "),
        (Framing::Resp, b"PING\r\n"),
        (Framing::Resp, b"$x\r\n"),
        (Framing::Resp, b"$?\r\n"),
        (Framing::Resp, b"+a\n"),
        (Framing::Resp, b"*-\r\n"),
        (Framing::Resp, &deep),
        (Framing::Resp, &endless),
    ] {
        let error = Framer::new(framing, 1 << 20).next(bytes).unwrap_err();
        assert!(matches!(error, FrameError::Malformed(_)), "{framing}: {error}");
    }
    // Its error names the remedy.
    for (text, part) in [
        ("u8", "`u16`"),
        ("lines,offset=1", "has no option"),
        ("u16,offset=x", "0 to 255"),
        ("u16,self", "inclusive"),
    ] {
        let error = text.parse::<Framing>().unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn values_of_resp_3_end_where_they_end() {
    let all = b"|1\r\n+a\r\n:1\r\n%1\r\n+k\r\n*2\r\n#t\r\n_\r\n>2\r\n+p\r\n,1.5\r\n=5\r\ntxt:a\r\n*0\r\n*-1\r\n(12\r\n!1\r\nx\r\n";
    let (frames, error) = cut(Framing::Resp, 1 << 10, all, &[3]);
    assert_eq!(error, None);
    assert_eq!(frames, [31, 14, 11, 4, 5, 5, 7]);
    // Redis ignores it.
    assert_eq!(cut(Framing::Resp, 1 << 10, b"*-10\r\n:1\r\n", &[3]), (vec![6, 4], None));
}

#[test]
fn keys_are_where_they_are_said_to_be() {
    let frame = b"<34>1 2026 host app";
    for (text, key) in [
        ("frame", &frame[..]),
        ("1..3", b"34"),
        ("12..99", b"ost app"),
        ("50..60", b""),
        ("field=3", b"host"),
        ("field=9", b""),
        ("field=2,separator=>", b"1 2026 host app"),
    ] {
        let parsed: Key = text.parse().unwrap();
        assert_eq!(parsed.of(frame), key, "{text}");
        assert_eq!(parsed.to_string(), text);
    }
    for wrong in ["", "3..3", "4..", "field=0", "field=x", "field=1,separator=ab"] {
        assert!(wrong.parse::<Key>().is_err(), "{wrong}");
    }
}
