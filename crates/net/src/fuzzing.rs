//! What fuzz targets run of parsers that nobody else may call. Not for anybody else.
//!
//! Each takes any bytes, and panics where what it parses breaks its word.

#[cfg(target_os = "linux")]
use tollway_law::Toll;
#[cfg(target_os = "linux")]
use tollway_proto::Flags;

pub use crate::network::fuzzing::node;

/// A frame as an interface gives it: a link that changes nothing leaves it as it is, and one that writes changes nothing else.
#[cfg(target_os = "linux")]
pub fn frame(data: &[u8]) {
    use crate::hosts::PORT;
    use crate::hosts::frame::{self, Content};

    let _ = frame::datagram(data);
    let Some(content) = frame::load(data, PORT) else { return };
    let (Content::Datagram(packet) | Content::Segment(packet, _)) = content;
    let mut same = data.to_vec();
    frame::store(&mut same, &packet);
    match (content, frame::load(&same, PORT)) {
        (Content::Datagram(_), _) => assert_eq!(same, data, "a link that changes nothing"),
        (Content::Segment(_, tuple), Some(Content::Segment(again, other))) => {
            // Its option may have said the same in other bits.
            assert_eq!((again.toll.due, again.flags, other), (packet.toll.due, packet.flags, tuple));
        }
        _ => panic!("a segment is one still"),
    }
    let toll = Toll { due: -2500.0, rtt: packet.toll.rtt, offer: 8.0, stake: 1.0, echo: 3.0 };
    let mut written = data.to_vec();
    frame::store(
        &mut written,
        &tollway_proto::Packet { toll, flags: packet.flags.with(Flags::CE), ..packet },
    );
    let changed = written.iter().zip(data).filter(|(a, b)| a != b).count();
    match (content, frame::load(&written, PORT)) {
        (Content::Datagram(_), Some(Content::Datagram(again))) => {
            assert_eq!((again.flow, again.size), (packet.flow, packet.size));
            assert_eq!((again.toll.due, again.flags), (toll.due, packet.flags.with(Flags::CE)));
            assert!(changed <= 24 + 2 + 2, "a toll, flags and a checksum, and not {changed} bytes");
        }
        (Content::Segment(_, tuple), Some(Content::Segment(again, other))) => {
            assert_eq!((again.size, other), (packet.size, tuple));
            assert!(again.flags.has(Flags::CE));
            assert!(
                changed <= 1 + 2 + 2 + 2,
                "a mark, feedback and their checksums, and not {changed} bytes"
            );
        }
        _ => panic!("what a link writes leaves a frame what it was"),
    }
}

/// What the kernel answers who asks for its TCP connections; the first byte is the request's number.
#[cfg(target_os = "linux")]
pub fn connections(data: &[u8]) {
    use crate::shape::diag::message::read;

    let Some((&sequence, bytes)) = data.split_first() else { return };
    let mut seen = Vec::new();
    let answer = read(bytes, sequence.into(), &mut seen);
    // A connection is a header, a message and 208 bytes of what is known at least.
    assert!(seen.len() * (16 + 72 + 4 + 208) <= bytes.len(), "{} of {} bytes", seen.len(), bytes.len());
    for seen in &seen {
        let _ = seen.headers(14);
    }
    // What came in one piece may come in two.
    let mut cut = Vec::new();
    if let Some(len) = bytes.first_chunk().map(|len| u32::from_ne_bytes(*len) as usize)
        && (16..=bytes.len()).contains(&len)
        && len.is_multiple_of(4)
    {
        let (first, rest) = bytes.split_at(len);
        let mut again = read(first, sequence.into(), &mut cut);
        if again == crate::shape::diag::message::Answer::More {
            again = read(rest, sequence.into(), &mut cut);
        }
        assert_eq!((again, cut.len()), (answer, seen.len()));
    }
}

/// What an etcd says, whatever it was asked, and an address of one.
#[cfg(all(target_os = "linux", feature = "etcd"))]
pub fn etcd(data: &[u8]) {
    use crate::shape::etcd::Address;

    let Ok(text) = std::str::from_utf8(data) else { return };
    crate::shape::etcd::message::hear(text);
    if let Ok(address) = Address::parse(text) {
        assert!(!address.members.is_empty() && address.prefix.len() > 1);
        assert_eq!(Address::parse(&address.to_string()), Ok(address));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_node_hears_anything(data in prop::collection::vec(any::<u8>(), 0..600)) {
            if std::net::UdpSocket::bind("127.0.0.1:0").is_ok() {
                node(&data);
            }
        }
    }

    #[cfg(target_os = "linux")]
    proptest! {
        #[test]
        fn answers_may_be_anything(data in prop::collection::vec(any::<u8>(), 0..600)) {
            connections(&data);
        }
    }

    #[cfg(all(target_os = "linux", feature = "etcd"))]
    proptest! {
        #[test]
        fn a_store_may_say_anything(text in ".{0,80}") {
            etcd(text.as_bytes());
            etcd(format!("etcd://{text}").as_bytes());
        }
    }
}
