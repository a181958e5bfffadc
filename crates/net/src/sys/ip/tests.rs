use proptest::prelude::*;

use super::*;

/// The sum over a header, which is zero if its checksum is right (RFC 1071).
pub(crate) fn sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let total = words.sum::<u32>();
    let folded = (total & 0xffff) + (total >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// A packet with ports and a right IP checksum.
pub(crate) fn packet(from: [u8; 4], to: [u8; 4], protocol: u8, tos: u8, payload: usize) -> Vec<u8> {
    let body = if protocol == TCP { 20 } else { 8 };
    let len = (MIN_HEADER + body + payload) as u16;
    let mut bytes = vec![0u8; usize::from(len)];
    bytes[0] = 0x45;
    bytes[1] = tos;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    bytes[8] = 64;
    bytes[9] = protocol;
    bytes[12..16].copy_from_slice(&from);
    bytes[16..20].copy_from_slice(&to);
    bytes[20..24].copy_from_slice(&[0x1f, 0x90, 0, 80]);
    if protocol == TCP {
        bytes[32] = 5 << 4;
    }
    let checksum = sum(&bytes[..MIN_HEADER]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// An IPv6 packet with ports.
pub(crate) fn packet_v6(from: [u8; 16], to: [u8; 16], protocol: u8, tos: u8, payload: usize) -> Vec<u8> {
    // The transport's part is that of an IPv4 packet.
    let v4 = packet([0; 4], [0; 4], protocol, 0, payload);
    let body = &v4[MIN_HEADER..];
    let mut bytes = vec![0x60 | tos >> 4, tos << 4, 0, 0];
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend([protocol, 64]);
    bytes.extend(from.into_iter().chain(to));
    bytes.extend(body);
    bytes
}

#[test]
fn a_segment_is_read() {
    let bytes = packet([10, 77, 0, 1], [10, 77, 0, 2], TCP, 2, 100);
    let header = parse(&bytes).unwrap();
    assert_eq!(header.flow.to_string(), "tcp 10.77.0.1:8080 > 10.77.0.2:80");
    assert_eq!((header.len, header.header_len, header.payload()), (140, 40, 100));
    assert_eq!(header.ecn, Flags::ECT);
    assert_eq!(header.flow.back().back(), header.flow);
}

#[test]
fn what_is_no_packet_is_told_apart() {
    assert_eq!(parse(&[]), Err(Malformed::Truncated));
    assert_eq!(parse(&[0x60; 40]), Err(Malformed::NotIpv4));
    let bytes = packet([10, 77, 0, 1], [10, 77, 0, 2], UDP, 0, 10);
    for len in 1..bytes.len() {
        assert_eq!(parse(&bytes[..len]), Err(Malformed::Truncated), "{len}");
    }
}

/// A segment with a right checksum and XCP's option, `shift` bytes into its options.
///
/// The checksum leaves the pseudo-header out, since no router changes it.
pub(crate) fn xcp_segment(from: [u8; 4], to: [u8; 4], shift: usize, forward: Forward) -> Vec<u8> {
    let mut bytes = packet(from, to, TCP, 0, 12 + 100);
    let tcp = MIN_HEADER;
    bytes[tcp + 12] = 8 << 4;
    bytes[tcp + 20..tcp + 32].fill(1);
    bytes[tcp + 20 + shift..tcp + 28 + shift].copy_from_slice(&forward.to_bytes());
    bytes[tcp + 16..tcp + 18].fill(0);
    let checksum = sum(&bytes[tcp..]);
    bytes[tcp + 16..tcp + 18].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn feedback_is_rewritten_wherever_the_option_stands() {
    let forward = Forward { feedback: 0x1234, rtt_ms: 40, cwnd: 10 };
    for shift in 0..=4 {
        let mut bytes = xcp_segment([10, 77, 0, 1], [10, 77, 0, 2], shift, forward);
        let header = parse(&bytes).unwrap();
        let (at, read) = xcp_option(&bytes, &header).unwrap();
        assert_eq!((at, read), (40 + shift, forward));
        assert_eq!(sum(&bytes[MIN_HEADER..]), 0);
        store_feedback(&mut bytes, at, 0xfedc, false);
        assert_eq!(sum(&bytes[MIN_HEADER..]), 0, "{shift}");
        assert_eq!(xcp_option(&bytes, &header).unwrap().1, Forward { feedback: 0xfedc, ..forward });
        let checksum = [bytes[36], bytes[37]];
        store_feedback(&mut bytes, at, 1, true);
        assert_eq!([bytes[36], bytes[37]], checksum);
    }
    let plain = packet([10, 77, 0, 1], [10, 77, 0, 2], TCP, 0, 40);
    assert_eq!(xcp_option(&plain, &parse(&plain).unwrap()), None);
}

#[test]
fn a_changed_word_changes_a_checksum_as_the_rfcs_reckon_it() {
    // RFC 1624 § 4: zero, where RFC 1141 gave its complement.
    assert_eq!(adjusted(0xdd2f, 0x5555, 0x3285), 0);
    // A carry may cause a second carry, which must be added too; only a one is left then.
    assert_eq!(adjusted(0, 0, 1), !1);
    // RFC 1071 § 3: the words of 00 01 f2 03 f4 f5 f6 f7 sum up to ddf2. Here they replace
    // zeros one by one.
    let words = [0x0001, 0xf203, 0xf4f5, 0xf6f7];
    assert_eq!(words.iter().fold(0xffff, |sum, &word| adjusted(sum, 0, word)), !0xddf2);
}

#[test]
fn a_datagram_s_checksum_follows_its_payload() {
    let before = [0xab, 0xcd, 0x12, 0x34];
    let mut bytes = packet([10, 77, 0, 1], [10, 77, 0, 2], UDP, 0, 6);
    bytes[28..32].copy_from_slice(&before);
    let header = parse(&bytes).unwrap();
    let plain = bytes.clone();
    // The pseudo-header is left out, since it does not change.
    let checksum = sum(&bytes[20..]).to_be_bytes();
    bytes[26..28].copy_from_slice(&checksum);
    // The last change makes the sum zero, which would mean that there is no checksum (RFC 768).
    let zero = u32::from(u16::from_be_bytes(checksum)) + 0xabcd;
    let zero = ((zero & 0xffff) + (zero >> 16)) as u16;
    for after in
        [[0, 0, 0, 0], [0xff; 4], [0xab, 0xcd, 0x12, 0x35], [(zero >> 8) as u8, zero as u8, 0x12, 0x34]]
    {
        let mut changed = bytes.clone();
        changed[28..32].copy_from_slice(&after);
        rewritten(&mut changed, &header, &before, &after);
        assert_eq!(sum(&changed[20..]), 0, "{after:?}");
        assert_ne!(changed[26..28], [0, 0]);
        assert_eq!(changed[..26], bytes[..26]);
    }
    let mut none = plain.clone();
    rewritten(&mut none, &header, &before, &[0; 4]);
    assert_eq!(none, plain);
}

#[test]
fn headers_are_as_long_as_they_say() {
    let [from, to] = [[10, 77, 0, 1], [10, 77, 0, 2]];
    let read = |bytes: &[u8]| {
        parse(bytes).map(|header| (header.header_len, header.payload(), header.flow.source_port))
    };
    // Bytes behind the packet are padding of the frame.
    let mut padded = packet(from, to, UDP, 0, 10);
    padded.extend([0; 20]);
    assert_eq!(read(&padded), Ok((28, 10, 8080)));
    // An option in IP's header, and twelve bytes in TCP's. A header that states too great a
    // length is cut off.
    let mut options = packet(from, to, TCP, 0, 100);
    options[0] = 0x46;
    assert_eq!(read(&options), Ok((24, 116, 0)));
    options[24 + 12] = 8 << 4;
    assert_eq!(read(&options), Ok((56, 84, 0)));
    options[24 + 12] = 15 << 4;
    options[2..4].copy_from_slice(&60u16.to_be_bytes());
    assert_eq!(read(&options), Ok((60, 0, 0)));
    // A length below a header's minimum, below the header, or beyond the bytes.
    for (first, len) in [(0x44, 60u16), (0x45, 19), (0x46, 23), (0x45, 141)] {
        options[0] = first;
        options[2..4].copy_from_slice(&len.to_be_bytes());
        assert_eq!(read(&options), Err(Malformed::Truncated), "{first:x} {len}");
    }
    // ICMP's header has eight bytes and no ports. An unknown protocol has neither.
    assert_eq!(read(&packet(from, to, ICMP, 0, 10)), Ok((28, 10, 0)));
    assert_eq!(read(&packet(from, to, 132, 0, 10)), Ok((20, 18, 0)));
    // A first fragment shows its ports, and so does a packet with DF set. Later fragments do
    // not.
    for (flags, ports) in [([0x20, 0], true), ([0x40, 0], true), ([0x20, 1], false), ([0x10, 0], false)] {
        let mut fragment = packet(from, to, TCP, 0, 100);
        fragment[6..8].copy_from_slice(&flags);
        let found = if ports { (40, 100, 8080) } else { (20, 120, 0) };
        assert_eq!(read(&fragment), Ok(found), "{flags:?}");
    }
    // Three bytes are too few for two ports.
    let mut cut = packet(from, to, UDP, 0, 0);
    cut[2..4].copy_from_slice(&23u16.to_be_bytes());
    assert_eq!(read(&cut), Ok((23, 0, 0)));
}

#[test]
fn names_are_those_that_programs_show() {
    for (protocol, name) in [
        (ICMP, "icmp 10.77.0.1 > 10.77.1.0"),
        (UDP, "udp 10.77.0.1:8080 > 10.77.1.0:80"),
        (47, "ip 47 10.77.0.1 > 10.77.1.0"),
    ] {
        let flow = parse(&packet([10, 77, 0, 1], [10, 77, 1, 0], protocol, 0, 10)).unwrap().flow;
        assert_eq!(flow.to_string(), name);
    }
    for (tos, ecn) in
        [(0, Flags::NONE), (1, Flags::ECT1), (2, Flags::ECT), (3, Flags::CE), (0xfc, Flags::NONE)]
    {
        assert_eq!(parse(&packet([10, 77, 0, 1], [10, 77, 0, 2], UDP, tos, 0)).unwrap().ecn, ecn);
    }
}

#[test]
fn only_a_segment_s_own_options_speak() {
    let forward = Forward { feedback: 0x1234, rtt_ms: 40, cwnd: 10 };
    let [from, to] = [[10, 77, 0, 1], [10, 77, 0, 2]];
    let said = |bytes: &[u8]| xcp_option(bytes, &parse(bytes).unwrap()).map(|(_, forward)| forward);
    assert_eq!(said(&xcp_segment(from, to, 0, forward)), Some(forward));
    // The same bytes in another protocol, in a later fragment, or in the payload are no option.
    let mut other = xcp_segment(from, to, 0, forward);
    other[9] = UDP;
    assert_eq!(said(&other), None);
    let mut fragment = xcp_segment(from, to, 0, forward);
    fragment[7] = 1;
    assert_eq!(said(&fragment), None);
    let mut payload = xcp_segment(from, to, 0, forward);
    payload[MIN_HEADER + 12] = 5 << 4;
    assert_eq!(said(&payload), None);
    // IP options come before the TCP header.
    let mut longer = xcp_segment(from, to, 0, forward);
    longer.splice(MIN_HEADER..MIN_HEADER, [1; 4]);
    longer[0] = 0x46;
    let len = longer.len() as u16;
    longer[2..4].copy_from_slice(&len.to_be_bytes());
    assert_eq!(xcp_option(&longer, &parse(&longer).unwrap()), Some((44, forward)));
    let mut stored = longer.clone();
    store_feedback(&mut stored, 44, 0x4321, false);
    assert_eq!((sum(&stored[24..]), said(&stored).unwrap().feedback), (0, 0x4321));
}

#[test]
fn later_fragments_have_no_ports() {
    let mut bytes = packet([10, 77, 0, 1], [10, 77, 0, 2], UDP, 0, 100);
    bytes[7] = 1;
    let header = parse(&bytes).unwrap();
    assert_eq!((header.flow.source_port, header.flow.destination_port), (0, 0));
    assert_eq!(header.payload(), 108);
}

proptest! {
    #[test]
    fn a_mark_leaves_a_right_checksum(
        from in any::<[u8; 4]>(), to in any::<[u8; 4]>(), tos in any::<u8>(), payload in 0usize..64,
    ) {
        let mut bytes = packet(from, to, TCP, tos, payload);
        prop_assert_eq!(sum(&bytes[..MIN_HEADER]), 0);
        let before = parse(&bytes).unwrap();
        mark(&mut bytes);
        prop_assert_eq!(sum(&bytes[..MIN_HEADER]), 0);
        prop_assert_eq!(parse(&bytes).unwrap(), Header { ecn: Flags::CE, ..before });
        prop_assert_eq!(bytes[1] & !3, tos & !3);
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), v4 in any::<bool>()) {
        if let (true, Some(first)) = (v4, bytes.first_mut()) {
            *first = 0x40 | (*first & 15);
        }
        if let Ok(header) = parse(&bytes) {
            if let Some((at, _)) = xcp_option(&bytes, &header) {
                store_feedback(&mut bytes, at, 7, false);
            }
            prop_assert!(header.header_len <= header.len);
            prop_assert!(usize::from(header.len) <= bytes.len());
        }
        mark(&mut bytes);
    }
}
