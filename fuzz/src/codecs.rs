//! Congestion headers: no bytes may panic, and what is read has to be what is written.

use tollway_law::Toll;
use tollway_proto::encoding::tcp_option::{self, Builder, Feedback, Forward};
use tollway_proto::encoding::{acp, anypoint, draft20};
use tollway_proto::framing::{FrameError, Framer, Framing};

/// A list of TCP options, and a segment that holds one.
pub fn tcp_option(data: &[u8]) {
    if let Ok(range) = tcp_option::option_range(data) {
        let _ = tcp_option::parse(&data[range]);
    }
    let Ok(parsed) = tcp_option::parse(data) else { return };
    let located = tcp_option::locate(data).expect("what parses can be located");
    assert_eq!(located.forward.and_then(|at| Forward::read(data, at)), parsed.forward);
    if let (Some(at), Some(forward)) = (located.forward, parsed.forward) {
        for feedback in [Feedback::Split, Feedback::Integer] {
            let toll = forward.toll(1500, feedback);
            assert!(toll.due.is_finite() && toll.rtt.is_finite() && toll.offer.is_finite());
            let bits = tcp_option::encode_due(toll.due, forward.rtt_ms, 1500, feedback);
            let again = tcp_option::decode_due(bits, forward.rtt_ms, 1500, feedback);
            assert_eq!(again, toll.due, "a router that changes nothing");
        }
        let mut rewritten = data.to_vec();
        assert!(tcp_option::store_feedback(&mut rewritten, at, !forward.feedback));
        assert_eq!(&rewritten[..at + 2], &data[..at + 2]);
        assert_eq!(&rewritten[at + 4..], &data[at + 4..]);
    }
    // Built anew, the list reads the same: what a header held fits a header, unless it had no
    // padding.
    let mut list = Builder::new();
    let timestamps = parsed.timestamps.map_or(Ok(()), |(value, echo)| list.timestamps(value, echo));
    let forward = parsed.forward.map_or(Ok(()), |forward| list.forward(forward));
    let back = parsed.back.map_or(Ok(()), |feedback| list.back(feedback));
    if timestamps.and(forward).and(back).is_ok() {
        let ranges = parsed.sack.as_slice();
        if list.sack(ranges) == ranges.len() {
            assert_eq!(tcp_option::parse(list.as_slice()), Ok(parsed));
        }
    }
}

/// The draft's header.
pub fn draft20(data: &[u8]) {
    let Ok(header) = draft20::Header::parse(data) else { return };
    let bytes = header.to_bytes();
    // All but the unused byte.
    assert_eq!((&bytes[..3], &bytes[4..]), (&data[..3], &data[4..draft20::LEN]));
    let toll = header.toll();
    let again = draft20::Header::from_toll(&toll, header.version, header.next);
    assert_eq!(again.toll(), toll);
    let mut rewritten = data.to_vec();
    let stored = draft20::store_delta(&mut rewritten, !header.delta);
    assert_eq!(stored.is_ok(), header.format == draft20::Format::Standard);
    let changed = rewritten.iter().zip(data).filter(|(a, b)| a != b).count();
    assert_eq!(changed, if stored.is_ok() { 4 } else { 0 });
}

/// Anypoint's five words: any that are there.
pub fn anypoint(data: &[u8]) {
    let Ok(words) = anypoint::HeaderWords::parse(data) else {
        assert!(data.len() < anypoint::LEN);
        return;
    };
    assert_eq!(words.to_bytes(), data[..anypoint::LEN]);
    let toll = words.toll(1500);
    assert!(toll.due.is_finite() && toll.rtt.is_finite() && toll.offer.is_finite() && toll.echo.is_finite());
    let mut rewritten = data.to_vec();
    anypoint::store_feedback(&mut rewritten, !words.src_fdbk).expect("there are five words");
    let again = anypoint::HeaderWords::parse(&rewritten).expect("there are still");
    assert_eq!(again, anypoint::HeaderWords { src_fdbk: !words.src_fdbk, ..words });
}

/// The project's header.
pub fn acp(data: &[u8]) {
    let loaded = acp::load(data);
    let mut rewritten = data.to_vec();
    if let Ok((_, toll)) = loaded {
        acp::store(&mut rewritten, &toll).expect("what loads can be stored");
        assert_eq!(rewritten, data, "a router that changes nothing");
    } else {
        let _ = acp::store(&mut rewritten, &Toll::default());
        let _ = acp::mark(&mut rewritten);
    }
    let Ok(decoded) = acp::decode(data) else { return };
    assert_eq!(loaded, Ok((decoded.packet.flags, decoded.packet.toll)));
    let mut bytes = vec![0; decoded.payload];
    assert_eq!(acp::encode(&decoded.packet, &decoded.sack, &mut bytes), Ok(decoded.payload));
    assert_eq!(bytes, data[..decoded.payload]);
}

/// A framing's word, a line feed, and a stream: it is cut alike whole and byte by byte, and no
/// frame exceeds its limit.
pub fn framing(data: &[u8]) {
    let Some(end) = data.iter().position(|&byte| byte == b'\n') else { return };
    let Ok(word) = std::str::from_utf8(&data[..end]) else { return };
    let Ok(framing) = word.parse::<Framing>() else { return };
    assert_eq!(framing.to_string().parse(), Ok(framing), "a framing reads as it is written");
    let stream = &data[end + 1..];
    let cut = |step: usize| -> (Vec<usize>, Option<FrameError>) {
        let mut framer = Framer::new(framing, 512);
        let (mut frames, mut from, mut to) = (Vec::new(), 0, 0);
        loop {
            match framer.next(&stream[from..to]) {
                Ok(Some(len)) => {
                    assert!(len > 0 && len <= 512 && from + len <= to);
                    frames.push(len);
                    from += len;
                }
                Ok(None) if to == stream.len() => return (frames, None),
                Ok(None) => to = (to + step).min(stream.len()),
                Err(error) => return (frames, Some(error)),
            }
        }
    };
    let (whole, dripped) = (cut(stream.len().max(1)), cut(1));
    assert_eq!(whole.0, dripped.0);
    assert_eq!(whole.1.is_some(), dripped.1.is_some());
}
