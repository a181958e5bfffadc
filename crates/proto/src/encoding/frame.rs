//! A packet of the machines as IPv4 bytes, for captures of a simulated link.
//!
//! | encoding | IPv4, then |
//! |---|---|
//! | [`Encoding::Acp`] | UDP, the ACP header |
//! | [`Encoding::TcpOption`] | TCP with timestamps, the XCP options and SACK |
//! | [`Encoding::Draft20`] | the draft's header (protocol 253), TCP with timestamps and SACK |
//!
//! The payload is zeros. TCP numbers bytes where the machines number segments; [`ByteNumbers`]
//! converts.

use super::{Encoding, acp, draft20, tcp_option};
use crate::{Flags, Packet, SackRanges};

/// An IPv4 address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: [u8; 4],
    /// The port.
    pub port: u16,
}

/// A packet, and the state of its flow that its bytes depend on.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The packet.
    pub packet: &'a Packet,
    /// Its SACK ranges.
    pub sack: &'a SackRanges,
    /// The encoding of its flow's tolls.
    pub encoding: Encoding,
    /// A full segment of its flow on the wire, bytes.
    pub segment: u32,
    /// The round-trip time, s, of the last tolled packet that its sender received; see
    /// [`Encoding::quantise_echo`].
    pub heard_rtt: f32,
    /// The sender's address.
    pub source: Address,
    /// The receiver's address.
    pub destination: Address,
    /// The byte numbers of its segments.
    pub numbers: ByteNumbers,
}

/// The byte numbers of segments in TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteNumbers {
    /// Payload of a full segment, bytes.
    pub payload: u32,
    /// True if number 0 is a SYN, which counts for one byte.
    pub handshake: bool,
}

impl ByteNumbers {
    /// The byte number of the start of segment `seq`.
    pub fn of(self, seq: u32) -> u32 {
        match (self.handshake, seq) {
            (true, 0) => 0,
            (true, _) => (seq - 1).wrapping_mul(self.payload).wrapping_add(1),
            (false, _) => seq.wrapping_mul(self.payload),
        }
    }
}

impl Frame<'_> {
    /// Bytes of payload: the packet's size without headers.
    pub fn payload(&self) -> u32 {
        let mut bytes = Vec::new();
        let whole = self.write(usize::MAX, &mut bytes);
        (whole - self.headers()) as u32
    }

    fn headers(&self) -> usize {
        match self.encoding {
            Encoding::Acp => IPV4 + UDP + acp::header_len(self.sack.as_slice().len()),
            Encoding::TcpOption { .. } => IPV4 + TCP + self.options().as_slice().len(),
            Encoding::Draft20 { .. } => IPV4 + draft20::LEN + TCP + self.options().as_slice().len(),
        }
    }

    /// Appends the packet, or its first `most` bytes, to `out`. Returns the length of the whole
    /// packet.
    ///
    /// That length is the packet's size, or that of its headers if those are longer (a flow may be
    /// configured with packets smaller than its headers).
    pub fn write(&self, most: usize, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let headers = self.headers();
        let whole = headers.max(usize::from(self.packet.size));
        let protocol = match self.encoding {
            Encoding::Acp => PROTOCOL_UDP,
            Encoding::TcpOption { .. } => PROTOCOL_TCP,
            Encoding::Draft20 { .. } => PROTOCOL_XCP,
        };
        ipv4(self.packet.flags, protocol, whole, self.source.address, self.destination.address, out);
        match self.encoding {
            Encoding::Acp => {
                let at = out.len();
                udp(self.source.port, self.destination.port, whole - IPV4, out);
                let mut header = [0; acp::header_len(SackRanges::MAX)];
                // There is room for every packet.
                let len = acp::encode(self.packet, self.sack, &mut header).unwrap_or(0);
                out.extend_from_slice(&header[..len]);
                self.checksum(PROTOCOL_UDP, at, 6, whole - IPV4, out);
            }
            Encoding::TcpOption { .. } => self.tcp(whole - IPV4, out),
            Encoding::Draft20 { version } => {
                let toll = &self.packet.toll;
                let header = match self.packet.flags.has(Flags::TOLLED) {
                    true => draft20::Header::from_toll(toll, version, PROTOCOL_TCP),
                    false => draft20::Header::minimal(toll.echo, version, PROTOCOL_TCP),
                };
                out.extend_from_slice(&header.to_bytes());
                self.tcp(whole - IPV4 - draft20::LEN, out);
            }
        }
        out.resize((start + whole).min(start.saturating_add(most)), 0);
        whole
    }

    fn options(&self) -> tcp_option::Builder {
        let mut options = tcp_option::Builder::new();
        let packet = self.packet;
        // A millisecond a tick, or nearly: 2^14 stamps of 64 ns. What does not fit is left out, as
        // a sender would.
        let _ = options.timestamps(packet.sent.0 >> 14, packet.sent_echo.0 >> 14);
        if let Encoding::TcpOption { feedback } = self.encoding {
            if packet.flags.has(Flags::TOLLED) {
                let size = u32::from(packet.size);
                let _ = options.forward(tcp_option::Forward::from_toll(&packet.toll, size, feedback));
            }
            if packet.flags.has(Flags::ECHO) {
                let rtt_ms = tcp_option::encode_rtt(self.heard_rtt);
                let echo = f64::from(packet.toll.echo);
                let _ = options.back(tcp_option::encode_due(echo, rtt_ms, self.segment, feedback));
            }
        }
        let ranges: Vec<(u32, u32)> =
            self.sack.as_slice().iter().map(|&(a, b)| (self.numbers.of(a), self.numbers.of(b))).collect();
        options.sack(&ranges);
        options
    }

    fn tcp(&self, len: usize, out: &mut Vec<u8>) {
        let (at, packet) = (out.len(), self.packet);
        let options = self.options();
        let offset = (TCP + options.as_slice().len()) / 4;
        let mut flags = 0;
        let bits = [
            (Flags::FIN, 1),
            (Flags::SYN, 2),
            (Flags::RST, 4),
            (Flags::LAST, 8),
            (Flags::ACK, 16),
            (Flags::ECE, 64),
        ];
        for (flag, bit) in bits {
            flags |= if packet.flags.has(flag) { bit } else { 0 };
        }
        let window = u64::from(packet.window) * u64::from(self.numbers.payload);
        out.extend_from_slice(&self.source.port.to_be_bytes());
        out.extend_from_slice(&self.destination.port.to_be_bytes());
        out.extend_from_slice(&self.numbers.of(packet.seq).to_be_bytes());
        let ack = if packet.flags.has(Flags::ACK) { self.numbers.of(packet.ack) } else { 0 };
        out.extend_from_slice(&ack.to_be_bytes());
        out.extend_from_slice(&[(offset as u8) << 4, flags]);
        out.extend_from_slice(&(window.min(0xffff) as u16).to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(options.as_slice());
        self.checksum(PROTOCOL_TCP, at, 16, len, out);
    }

    /// Fills in the checksum of the UDP or TCP header at `at`; a payload of zeros adds nothing to
    /// it.
    fn checksum(&self, protocol: u8, at: usize, field: usize, len: usize, out: &mut [u8]) {
        let mut pseudo = [0; 12];
        pseudo[..4].copy_from_slice(&self.source.address);
        pseudo[4..8].copy_from_slice(&self.destination.address);
        pseudo[9] = protocol;
        pseudo[10..].copy_from_slice(&(len as u16).to_be_bytes());
        let sum = match fold(add(&pseudo) + add(&out[at..])) {
            0 => 0xffff,
            sum => sum,
        };
        out[at + field..at + field + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Appends a packet of cross-traffic, `size` bytes of UDP to the discard port; otherwise as
/// [`Frame::write`].
pub fn write_plain(
    packet: &Packet,
    source: Address,
    destination: [u8; 4],
    most: usize,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    let whole = usize::from(packet.size).max(IPV4 + UDP);
    // The flags only mark it as cross-traffic inside the engine.
    ipv4(Flags::NONE, PROTOCOL_UDP, whole, source.address, destination, out);
    udp(source.port, 9, whole - IPV4, out);
    out.resize((start + whole).min(start.saturating_add(most)), 0);
    whole
}

fn ipv4(flags: Flags, protocol: u8, len: usize, source: [u8; 4], destination: [u8; 4], out: &mut Vec<u8>) {
    let ecn = match (flags.has(Flags::CE), flags.l4s(), flags.has(Flags::ECT)) {
        (true, _, _) => 3,
        (false, true, _) => 1,
        (false, false, true) => 2,
        _ => 0,
    };
    let len = (len as u16).to_be_bytes();
    let mut header = [0x45, ecn, len[0], len[1], 0, 0, 0x40, 0, 64, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&source);
    header[16..].copy_from_slice(&destination);
    let sum = fold(add(&header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&header);
}

fn udp(source: u16, destination: u16, len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&source.to_be_bytes());
    out.extend_from_slice(&destination.to_be_bytes());
    out.extend_from_slice(&(len as u16).to_be_bytes());
    // No checksum, unless one is filled in.
    out.extend_from_slice(&[0, 0]);
}

/// The sum of 16-bit words; an odd byte at the end is the upper half of a word (RFC 1071).
fn add(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0))).sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

const IPV4: usize = 20;
const UDP: usize = 8;
const TCP: usize = tcp_option::TCP_HEADER;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
/// The number for experiments (RFC 3692 § 2.1), since the draft's header has no assigned one.
const PROTOCOL_XCP: u8 = 253;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tcp_option::option_range;
    use super::*;
    use crate::Stamp;

    fn frame<'a>(packet: &'a Packet, sack: &'a SackRanges, encoding: Encoding) -> Frame<'a> {
        Frame {
            packet,
            sack,
            encoding,
            segment: 1500,
            heard_rtt: 0.1,
            source: Address { address: [10, 0, 0, 1], port: 1000 },
            destination: Address { address: [10, 0, 0, 2], port: 2000 },
            numbers: ByteNumbers { payload: 1448, handshake: true },
        }
    }

    #[test]
    fn segments_are_numbered_by_bytes() {
        let numbers = ByteNumbers { payload: 1000, handshake: true };
        assert_eq!([0, 1, 2, 11].map(|seq| numbers.of(seq)), [0, 1, 1001, 10_001]);
        let bare = ByteNumbers { handshake: false, ..numbers };
        assert_eq!([0, 1, 2].map(|seq| bare.of(seq)), [0, 1000, 2000]);
    }

    #[test]
    fn the_ecn_field_is_that_of_ip() {
        let cases = [(Flags::NONE, 0), (Flags::ECT1, 1), (Flags::ECT, 2), (Flags::CE, 3)];
        for (flags, want) in cases {
            let packet = Packet { size: 1500, flags: flags.with(Flags::DATA), ..Packet::default() };
            let mut bytes = Vec::new();
            frame(&packet, &SackRanges::EMPTY, Encoding::Acp).write(100, &mut bytes);
            assert_eq!(bytes[1], want);
        }
    }

    proptest! {
        /// Whatever a packet says, its headers add up, and what is in them reads back.
        #[test]
        fn frames_are_in_order(
            size in any::<u16>(), flags in 0u16..1 << 15, seq in any::<u32>(), which in 0usize..5, most in 0usize..2000,
            ranges in prop::collection::vec((any::<u32>(), 1u32..1000), 0..5), due in -1e6f64..1e6,
        ) {
            let mut sack = SackRanges::EMPTY;
            for (start, len) in ranges {
                sack.push(start, start.wrapping_add(len));
            }
            let toll = tollway_law::Toll { due, rtt: 0.05, offer: 1e-3, ..Default::default() };
            let packet = Packet {
                size, flags: Flags(flags), seq, toll, sent: Stamp(seq), window: seq, ..Packet::default()
            };
            let encoding = Encoding::NAMED[which].1;
            let frame = frame(&packet, &sack, encoding);
            let mut bytes = vec![7];
            let whole = frame.write(most, &mut bytes);
            prop_assert!(whole >= usize::from(size) && bytes.len() == 1 + whole.min(most));
            bytes.clear();
            frame.write(usize::MAX, &mut bytes);
            prop_assert_eq!(fold(add(&bytes[..IPV4])), 0);
            prop_assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), whole);
            prop_assert!(frame.payload() as usize <= whole);
            let rest = &bytes[IPV4..];
            match encoding {
                Encoding::Acp => {
                    let decoded = acp::decode(&rest[UDP..]).unwrap();
                    prop_assert_eq!(decoded.packet.seq, seq);
                    prop_assert_eq!(decoded.packet.toll, toll);
                    prop_assert_eq!(decoded.sack.as_slice(), sack.as_slice());
                }
                _ => {
                    let tcp = if which > 2 { &rest[draft20::LEN..] } else { rest };
                    prop_assert_eq!(&tcp[..2], &1000u16.to_be_bytes()[..]);
                    let options = option_range(tcp).unwrap();
                    prop_assert!(tcp_option::parse(&tcp[options]).is_ok());
                }
            }
        }
    }
}
