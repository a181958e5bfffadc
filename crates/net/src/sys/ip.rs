//! IP packets as links see them: flow, length, ECN field. No I/O. Every length is checked before use.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollway_proto::encoding::tcp_option::{self, Forward, Tolled};
use tollway_proto::{Flags, Packet};

/// The addresses, protocol and ports that name a flow.
///
/// Ports are 0 for a protocol without ports, and for a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FiveTuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP's number of the protocol: 6 for TCP, 17 for UDP, 1 for ICMP.
    pub protocol: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl FiveTuple {
    /// The protocol's name, or its number.
    pub fn protocol_name(&self) -> String {
        match self.protocol {
            ICMP | ICMP6 => "icmp".into(),
            TCP => "tcp".into(),
            UDP => "udp".into(),
            other => format!("ip {other}"),
        }
    }

    /// The flow in the opposite direction.
    pub fn back(&self) -> FiveTuple {
        FiveTuple {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |address: IpAddr, port: u16| match port {
            0 => address.to_string(),
            port => SocketAddr::new(address, port).to_string(),
        };
        let (from, to) = (end(self.source, self.source_port), end(self.destination, self.destination_port));
        write!(f, "{} {from} > {to}", self.protocol_name())
    }
}

/// The fields of a packet's headers that a link reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Addresses and ports of the packet's flow.
    pub flow: FiveTuple,
    /// The packet's length as stated in its header, in bytes.
    pub len: u16,
    /// Length of IP's headers, in bytes.
    pub ip_len: u16,
    /// Length of the headers of IP and of TCP or UDP, in bytes.
    pub header_len: u16,
    /// True for each fragment of a packet, also the first.
    pub fragment: bool,
    /// The two bits of the ECN field, as [`Flags`].
    pub ecn: Flags,
}

impl Header {
    /// Bytes of payload.
    pub fn payload(&self) -> u16 {
        self.len - self.header_len
    }
}

/// The reason why bytes are no packet that a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Another version of IP, or no IP.
    #[error("not IPv4")]
    NotIpv4,
    /// Lengths that contradict each other.
    #[error("an IPv4 packet cut short")]
    Truncated,
}

/// Reads the headers of the IPv4 or IPv6 packet in `bytes`.
///
/// # Errors
/// [`Malformed`]: lengths contradict each other, or it is no IP packet.
pub fn parse_any(bytes: &[u8]) -> Result<Header, Malformed> {
    match bytes.first().ok_or(Malformed::Truncated)? >> 4 {
        6 => parse_v6(bytes),
        _ => parse(bytes),
    }
}

/// Reads the headers of an IPv6 packet (RFC 8200 § 3), extension headers included.
fn parse_v6(bytes: &[u8]) -> Result<Header, Malformed> {
    let ip: &[u8; V6_HEADER] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
    let len = usize::from(u16::from_be_bytes([ip[4], ip[5]])) + V6_HEADER;
    let whole = bytes.get(..len).ok_or(Malformed::Truncated)?;
    let address =
        |at: usize| -> IpAddr { Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| ip[at + i])).into() };
    let (mut protocol, mut at, mut fragment, mut later) = (ip[6], V6_HEADER, false, false);
    // Hop-by-hop, routing and destination options, fragment header, authentication header.
    while let (0 | 43 | 44 | 51 | 60, false, Some(&[next, units, high, low])) =
        (protocol, later, whole.get(at..at + 4))
    {
        at += match protocol {
            44 => 8,
            51 => (usize::from(units) + 2) * 4,
            _ => (usize::from(units) + 1) * 8,
        };
        if protocol == 44 {
            (fragment, later) = (true, u16::from_be_bytes([high, low]) >> 3 > 0);
        }
        protocol = next;
    }
    let at = at.min(len);
    let body = if later { &[] } else { &whole[at..] };
    let (ports, transport_len) = transport(protocol, body);
    Ok(Header {
        flow: FiveTuple {
            source: address(8),
            destination: address(24),
            protocol,
            source_port: ports.0,
            destination_port: ports.1,
        },
        len: u16::try_from(len).map_err(|_| Malformed::Truncated)?,
        ip_len: at as u16,
        header_len: (at + transport_len).min(len) as u16,
        fragment,
        ecn: ecn(ip[1] >> 4),
    })
}

/// The ports, and the length of the header of TCP, UDP or ICMP at the start of `body`.
fn transport(protocol: u8, body: &[u8]) -> ((u16, u16), usize) {
    let ports = match (protocol, body) {
        (TCP | UDP, &[a, b, c, d, ..]) => (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
        _ => (0, 0),
    };
    let len = match protocol {
        TCP => body.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4),
        UDP | ICMP | ICMP6 if !body.is_empty() => 8,
        _ => 0,
    };
    (ports, len)
}

/// Reads the headers of the IPv4 packet in `bytes` (RFC 791 § 3.1).
///
/// # Errors
/// [`Malformed`]: the packet can't be forwarded.
pub fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
    let ip: &[u8; MIN_HEADER] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
    if ip[0] >> 4 != 4 {
        return Err(Malformed::NotIpv4);
    }
    let ip_len = usize::from(ip[0] & 15) * 4;
    let len = u16::from_be_bytes([ip[2], ip[3]]);
    if ip_len < MIN_HEADER || usize::from(len) < ip_len || usize::from(len) > bytes.len() {
        return Err(Malformed::Truncated);
    }
    let address = |at: usize| -> IpAddr { Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]).into() };
    let protocol = ip[9];
    let body = &bytes[ip_len..usize::from(len)];
    let offset = u16::from_be_bytes([ip[6], ip[7]]);
    // Only a first fragment shows its ports.
    let (ports, transport_len) = transport(protocol, if offset & 0x1fff == 0 { body } else { &[] });
    Ok(Header {
        flow: FiveTuple {
            source: address(12),
            destination: address(16),
            protocol,
            source_port: ports.0,
            destination_port: ports.1,
        },
        len,
        ip_len: ip_len as u16,
        header_len: (ip_len + transport_len).min(usize::from(len)) as u16,
        fragment: offset & 0x3fff != 0,
        ecn: ecn(ip[1]),
    })
}

/// The flags of an ECN field (RFC 3168 § 5).
fn ecn(tos: u8) -> Flags {
    match tos & 3 {
        0b01 => Flags::ECT1,
        0b10 => Flags::ECT,
        0b11 => Flags::CE,
        _ => Flags::NONE,
    }
}

/// Writes the mark and the toll of `packet` into the packet in `bytes` that [`parse_any`] has
/// accepted. Returns true if the mark is new. The checksum of an `unfinished` segment stays: the
/// kernel leaves it to the receiving side.
pub(crate) fn store(bytes: &mut [u8], packet: &Packet, unfinished: bool) -> bool {
    if !packet.flags.has(Flags::CE) && !packet.flags.has(Flags::TOLLED) {
        return false;
    }
    let Ok(header) = parse_any(bytes) else { return false };
    let marked = packet.flags.has(Flags::CE) && header.ecn != Flags::CE;
    if marked {
        mark(bytes);
    }
    if packet.flags.has(Flags::TOLLED)
        && let Some((at, tolled)) = toll_option(bytes, &header)
    {
        let value = tolled.rewritten(packet.toll.due, u32::from(packet.size));
        store_field(bytes, usize::from(header.ip_len), at, value, unfinished);
    }
    marked
}

/// Sets congestion experienced in a packet that [`parse_any`] has accepted, and updates the header
/// checksum of IPv4 (RFC 1624).
pub fn mark(bytes: &mut [u8]) {
    if bytes.len() < MIN_HEADER {
        return;
    }
    if bytes[0] >> 4 == 6 {
        bytes[1] |= 0x30;
        return;
    }
    let before = u16::from_be_bytes([bytes[0], bytes[1]]);
    bytes[1] |= 3;
    let after = u16::from_be_bytes([bytes[0], bytes[1]]);
    let sum = u16::from_be_bytes([bytes[10], bytes[11]]);
    bytes[10..12].copy_from_slice(&adjusted(sum, before, after).to_be_bytes());
}

/// The forward option of XCP in a TCP segment that [`parse`] has accepted, and its offset.
///
/// `None` if there is no such option, or if it is malformed.
pub fn xcp_option(bytes: &[u8], header: &Header) -> Option<(usize, Forward)> {
    let (start, options) = tcp_options(bytes, header)?;
    let at = tcp_option::locate(options).ok()?.forward?;
    Some((start + at, Forward::read(options, at)?))
}

/// The toll of XCP or FCP in a TCP segment that [`parse`] has accepted, and the offset of the field
/// that links rewrite.
///
/// `None` if there is no such option, or if it is malformed.
pub fn toll_option(bytes: &[u8], header: &Header) -> Option<(usize, Tolled)> {
    let (start, options) = tcp_options(bytes, header)?;
    let (at, tolled) = tcp_option::locate_toll(options).ok()??;
    Some((start + at, tolled))
}

/// The options of a whole TCP header, and their offset.
fn tcp_options<'a>(bytes: &'a [u8], header: &Header) -> Option<(usize, &'a [u8])> {
    let start = usize::from(header.ip_len) + TCP_HEADER;
    let shows_ports = header.flow.protocol == TCP && header.flow.source_port > 0;
    let options = bytes.get(start..usize::from(header.len).min(bytes.len())).filter(|_| shows_ports)?;
    let len = usize::from(header.header_len).checked_sub(start)?;
    Some((start, options.get(..len)?))
}

/// Writes `feedback` into the option at `at`, an offset from [`xcp_option`], and updates the
/// checksum. That of an `unfinished` segment stays.
pub fn store_feedback(bytes: &mut [u8], at: usize, feedback: u16, unfinished: bool) {
    if Forward::read(bytes, at).is_some() {
        let tcp = usize::from(bytes[0] & 15) * 4;
        store_field(bytes, tcp, at + 2, feedback, unfinished);
    }
}

/// Writes a field of a TCP option, at an offset from [`toll_option`], and updates the checksum; TCP's
/// header begins at `tcp`.
///
/// If the segment is `unfinished`, the checksum stays: the kernel leaves it to the receiving side,
/// which computes it over the final bytes.
fn store_field(bytes: &mut [u8], tcp: usize, at: usize, value: u16, unfinished: bool) {
    // The field may begin at any offset, but a checksum is over 16-bit words.
    let first = (at - tcp) / 2;
    let word = |bytes: &[u8], i: usize| u16::from_be_bytes([bytes[tcp + 2 * i], bytes[tcp + 2 * i + 1]]);
    let words = if (at - tcp).is_multiple_of(2) { 1 } else { 2 };
    let before: [u16; 2] = std::array::from_fn(|i| if i < words { word(bytes, first + i) } else { 0 });
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    if unfinished {
        return;
    }
    let sum = (0..words)
        .fold(word(bytes, TCP_CHECKSUM / 2), |sum, i| adjusted(sum, before[i], word(bytes, first + i)));
    bytes[tcp + TCP_CHECKSUM..tcp + TCP_CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Updates the UDP checksum after the first bytes of the payload changed from `before` to `after`.
///
/// Both are whole 16-bit words, and [`parse`] has accepted the packet.
pub fn rewritten(bytes: &mut [u8], header: &Header, before: &[u8], after: &[u8]) {
    let at = usize::from(header.header_len) - UDP_HEADER + UDP_CHECKSUM;
    let Some(place) = bytes.get_mut(at..at + 2) else { return };
    let sum = u16::from_be_bytes([place[0], place[1]]);
    if sum == 0 {
        return; // It has none (RFC 768).
    }
    let pairs = before.as_chunks::<2>().0.iter().zip(after.as_chunks::<2>().0);
    let sum = pairs.fold(sum, |sum, (&before, &after)| {
        adjusted(sum, u16::from_be_bytes(before), u16::from_be_bytes(after))
    });
    place.copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
}

/// The checksum `sum` after a word under it has changed (RFC 1624, equation 3).
fn adjusted(sum: u16, before: u16, after: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    !(total as u16)
}

const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// IP's protocol number of TCP.
pub const TCP: u8 = 6;
/// IP's protocol number of UDP.
pub const UDP: u8 = 17;
/// Length of a header without options, in bytes.
const MIN_HEADER: usize = 20;
/// Length of IPv6's header, in bytes.
const V6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
/// Offset of the checksum in TCP's header.
const TCP_CHECKSUM: usize = 16;
const UDP_HEADER: usize = 8;
/// Offset of the checksum in UDP's header.
const UDP_CHECKSUM: usize = 6;

#[cfg(test)]
pub(crate) mod tests {
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
}
