//! IP packets as links see them: flow, length, ECN field. No I/O. Every length is checked before use.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollway_law::Toll;
use tollway_proto::encoding::tcp_option::{self, Forward, Observed, Tolled};
use tollway_proto::{Flags, Packet};

use super::tos::{MIN_HEADER, adjusted};
pub use super::tos::{dscp, mark, set_dscp};

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

/// The options of a TCP segment that a meter reads, and the offset of their list; `None` if it is
/// none, or malformed.
pub(crate) fn observed(bytes: &[u8], header: &Header) -> Option<(usize, Observed)> {
    let (start, options) = tcp_options(bytes, header)?;
    Some((start, Observed::read(options).ok()?))
}

/// The sequence number of a TCP segment with its whole header.
pub(crate) fn sequence(bytes: &[u8], header: &Header) -> Option<u32> {
    bytes.get(usize::from(header.ip_len) + 4..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// True if a TCP segment with its whole header acknowledges another.
pub(crate) fn answers(bytes: &[u8], header: &Header) -> bool {
    bytes.get(usize::from(header.ip_len) + TCP_FLAGS).is_some_and(|flags| flags & TCP_ACK != 0)
}

/// Writes the corrections of a meter, `toll`, into the toll of a TCP segment, if it has one.
pub(crate) fn restate(bytes: &mut [u8], header: &Header, toll: &Toll, unfinished: bool) {
    if let Some((at, tolled)) = toll_option(bytes, header) {
        for (i, value) in (1..).zip(tolled.restated(toll)) {
            store_field(bytes, usize::from(header.ip_len), at + 2 * i, value, unfinished);
        }
    }
}

/// [`Flags::SYN`] if the packet that [`parse_any`] has accepted opens a TCP connection, or answers
/// that.
pub(crate) fn opens(bytes: &[u8], header: &Header) -> Flags {
    let flags = bytes.get(usize::from(header.ip_len) + TCP_FLAGS);
    let whole = header.flow.protocol == TCP && header.flow.source_port > 0;
    if whole && flags.is_some_and(|flags| flags & TCP_SYN != 0) { Flags::SYN } else { Flags::NONE }
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
pub(crate) fn store_field(bytes: &mut [u8], tcp: usize, at: usize, value: u16, unfinished: bool) {
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

const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// IP's protocol number of TCP.
pub const TCP: u8 = 6;
/// IP's protocol number of UDP.
pub const UDP: u8 = 17;
/// Length of IPv6's header, in bytes.
const V6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
/// Offset of the flags in TCP's header, and SYN.
const TCP_FLAGS: usize = 13;
const TCP_SYN: u8 = 2;
const TCP_ACK: u8 = 16;
/// Offset of the checksum in TCP's header.
const TCP_CHECKSUM: usize = 16;
const UDP_HEADER: usize = 8;
/// Offset of the checksum in UDP's header.
const UDP_CHECKSUM: usize = 6;

#[cfg(test)]
pub(crate) mod tests;
