//! The project's own header, in front of each segment in a UDP datagram, in network byte order.
//!
//! ```text
//!  0  magic 0xA5 | version (4 bits), SACK ranges (4 bits) | flags (16)
//!  4  flow
//!  8  due (64-bit float)
//! 16  rtt | 20  offer | 24  stake | 28  echo               (32-bit floats)
//! 32  seq | 36  ack | 40  window | 44  sent | 48  sent echo
//! 52  start, end of each SACK range, then the payload
//! ```
//!
//!
//! The toll is carried exactly, in 24 contiguous bytes. A router loads them with [`load`], runs the
//! same law as in the simulator, and stores them in place with [`store`]. The packet's size is not
//! a field: it is the datagram's size plus [`OVERHEAD`].

use tollway_law::Toll;

use crate::{Flags, Packet, SackRanges, Stamp};

/// The content of a datagram, as [`decode`] returns it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoded {
    /// The packet; `sack`, `cursor` and `entered` are zero, since they belong to the engine.
    pub packet: Packet,
    /// The SACK ranges, empty unless [`Flags::SACK`].
    pub sack: SackRanges,
    /// Offset of the payload in the datagram.
    pub payload: usize,
}

/// Writes the header of `packet` to the start of `out`, and returns its length. The payload follows
/// it.
///
/// [`Flags::SACK`] is written if and only if there are ranges, whatever the packet's flag. The
/// engine's fields and `size` are not written.
///
/// # Errors
/// [`AcpError::TooShort`] if `out` has no room.
pub fn encode(packet: &Packet, sack: &SackRanges, out: &mut [u8]) -> Result<usize, AcpError> {
    let ranges = sack.as_slice();
    let len = header_len(ranges.len());
    let have = out.len();
    let Some(out) = out.get_mut(..len) else {
        return Err(AcpError::TooShort { have, need: len });
    };
    let flags =
        if ranges.is_empty() { packet.flags.0 & !Flags::SACK.0 } else { packet.flags.0 | Flags::SACK.0 };
    let (fixed, tail) = out.split_at_mut(LEN);
    fixed[0] = MAGIC;
    fixed[1] = VERSION << 4 | ranges.len() as u8;
    fixed[FLAGS_AT..4].copy_from_slice(&flags.to_be_bytes());
    fixed[4..TOLL_AT].copy_from_slice(&packet.flow.to_be_bytes());
    fixed[TOLL_AT..TOLL_AT + TOLL_LEN].copy_from_slice(&toll_bytes(&packet.toll));
    let words = [packet.seq, packet.ack, packet.window, packet.sent.0, packet.sent_echo.0];
    for (bytes, word) in fixed[TOLL_AT + TOLL_LEN..].chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    for (bytes, (start, end)) in tail.chunks_exact_mut(8).zip(ranges) {
        bytes[..4].copy_from_slice(&start.to_be_bytes());
        bytes[4..].copy_from_slice(&end.to_be_bytes());
    }
    Ok(len)
}

/// Reads a whole datagram.
///
/// # Errors
/// [`AcpError`] names the fault. The toll's floats must be numbers, and all but `due` finite (an
/// infinite `due` requests everything available), so that no law receives a NaN from outside.
pub fn decode(datagram: &[u8]) -> Result<Decoded, AcpError> {
    let fixed = fixed(datagram)?;
    let toll = checked_toll(fixed)?;
    let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let flags = flags_of(fixed);
    let count = fixed[1] & 0xf;
    let (len, have) = (header_len(usize::from(count)), datagram.len());
    if usize::from(count) > SackRanges::MAX || (count > 0) != flags.has(Flags::SACK) {
        return Err(AcpError::SackCount { count });
    }
    let Some(tail) = datagram.get(LEN..len) else {
        return Err(AcpError::TooShort { have, need: len });
    };
    let mut sack = SackRanges::EMPTY;
    for bytes in tail.chunks_exact(8) {
        let start = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let end = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        // Serial arithmetic (RFC 1982): the end comes after the start, by less than half the
        // circle.
        if !(1..1 << 31).contains(&end.wrapping_sub(start)) {
            return Err(AcpError::SackRange { start, end });
        }
        sack.push(start, end);
    }
    let size = u16::try_from(have + OVERHEAD).map_err(|_| AcpError::TooLong { have })?;
    let packet = Packet {
        toll,
        seq: word(32),
        ack: word(36),
        sent: Stamp(word(44)),
        sent_echo: Stamp(word(48)),
        window: word(40),
        flow: word(4),
        size,
        flags,
        ..Packet::default()
    };
    Ok(Decoded { packet, sack, payload: len })
}

/// True if the bytes begin as an ACP header of this version.
pub fn is_header(datagram: &[u8]) -> bool {
    fixed(datagram).is_ok()
}

/// The fields that a router reads: the flags, for [`Flags::TOLLED`] and [`Flags::ecn_capable`], and
/// the toll.
///
/// # Errors
/// [`AcpError`] if this is not an ACP header or its toll is not valid; a router then forwards the
/// datagram unchanged. Fields of the ends are not checked.
#[inline]
pub fn load(datagram: &[u8]) -> Result<(Flags, Toll), AcpError> {
    let fixed = fixed(datagram)?;
    Ok((flags_of(fixed), checked_toll(fixed)?))
}

/// The fields that a router's port reads, as a packet: flow, size, flags and toll. Fields of the
/// ends are zero.
///
/// # Errors
/// As [`load`], and [`AcpError::TooLong`].
#[inline]
pub fn load_packet(datagram: &[u8]) -> Result<Packet, AcpError> {
    let fixed = fixed(datagram)?;
    let size =
        u16::try_from(datagram.len() + OVERHEAD).map_err(|_| AcpError::TooLong { have: datagram.len() })?;
    Ok(Packet {
        toll: checked_toll(fixed)?,
        flow: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        size,
        flags: flags_of(fixed),
        ..Packet::default()
    })
}

/// Writes the toll over that of the header, in place: exactly 24 bytes.
///
/// # Errors
/// [`AcpError`] if this is not an ACP header; nothing is written then.
#[inline]
pub fn store(datagram: &mut [u8], toll: &Toll) -> Result<(), AcpError> {
    fixed(datagram)?;
    datagram[TOLL_AT..TOLL_AT + TOLL_LEN].copy_from_slice(&toll_bytes(toll));
    Ok(())
}

/// Writes a header over that of a datagram, in place; the payload stays. `room` is the number of
/// SACK ranges that fit; the oldest beyond that are left out.
///
/// # Errors
/// [`AcpError`] if this is not an ACP header; nothing is written then.
pub fn rewrite(datagram: &mut [u8], packet: &Packet, sack: &SackRanges, room: usize) -> Result<(), AcpError> {
    let came = header_len(usize::from(fixed(datagram)?[1] & 0xf)).min(datagram.len());
    let room = room.min((datagram.len() - LEN) / 8);
    let mut kept = SackRanges::EMPTY;
    sack.as_slice().iter().take(room).for_each(|&(start, end)| {
        kept.push(start, end);
    });
    let len = encode(packet, &kept, datagram)?;
    if len < came {
        datagram[len..came].fill(0);
    }
    Ok(())
}

/// Sets [`Flags::CE`] in place, for a port that marks the packet.
///
/// # Errors
/// [`AcpError`] if this is not an ACP header; nothing is written then.
#[inline]
pub fn mark(datagram: &mut [u8]) -> Result<(), AcpError> {
    let flags = flags_of(fixed(datagram)?).with(Flags::CE);
    datagram[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&flags.0.to_be_bytes());
    Ok(())
}

/// Length of a header with `ranges` SACK ranges, bytes.
pub const fn header_len(ranges: usize) -> usize {
    LEN + 8 * ranges
}

fn fixed(datagram: &[u8]) -> Result<&[u8; LEN], AcpError> {
    let Some(fixed) = datagram.first_chunk::<LEN>() else {
        return Err(AcpError::TooShort { have: datagram.len(), need: LEN });
    };
    if fixed[0] != MAGIC {
        return Err(AcpError::Magic { magic: fixed[0] });
    }
    if fixed[1] >> 4 != VERSION {
        return Err(AcpError::Version { version: fixed[1] >> 4 });
    }
    Ok(fixed)
}

fn flags_of(fixed: &[u8; LEN]) -> Flags {
    Flags(u16::from_be_bytes([fixed[FLAGS_AT], fixed[FLAGS_AT + 1]]))
}

fn toll_bytes(toll: &Toll) -> [u8; TOLL_LEN] {
    let mut bytes = [0; TOLL_LEN];
    bytes[..8].copy_from_slice(&toll.due.to_be_bytes());
    let floats = [toll.rtt, toll.offer, toll.stake, toll.echo];
    for (place, float) in bytes[8..].chunks_exact_mut(4).zip(floats) {
        place.copy_from_slice(&float.to_be_bytes());
    }
    bytes
}

fn checked_toll(fixed: &[u8; LEN]) -> Result<Toll, AcpError> {
    let word = |at: usize| [fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]];
    let ([a, b, c, d], [e, f, g, h]) = (word(TOLL_AT), word(TOLL_AT + 4));
    let float = |at: usize| f32::from_be_bytes(word(at));
    let toll = Toll {
        due: f64::from_be_bytes([a, b, c, d, e, f, g, h]),
        rtt: float(TOLL_AT + 8),
        offer: float(TOLL_AT + 12),
        stake: float(TOLL_AT + 16),
        echo: float(TOLL_AT + 20),
    };
    let fields = [
        ("due", !toll.due.is_nan()),
        ("rtt", toll.rtt.is_finite()),
        ("offer", toll.offer.is_finite()),
        ("stake", toll.stake.is_finite()),
        ("echo", toll.echo.is_finite()),
    ];
    match fields.iter().find(|field| !field.1) {
        Some(&(field, _)) => Err(AcpError::NotANumber { field }),
        None => Ok(toll),
    }
}

/// The reason bytes are not an ACP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcpError {
    /// Too few bytes.
    #[error("an ACP header needs {need} bytes, and the packet has {have}")]
    TooShort {
        /// Bytes present.
        have: usize,
        /// Bytes required by the header.
        need: usize,
    },
    /// Longer than the largest packet size.
    #[error(
        "a datagram of {have} bytes is too long: with {OVERHEAD} bytes of IP and UDP headers, a packet has \
        at most 65535"
    )]
    TooLong {
        /// Bytes present.
        have: usize,
    },
    /// Another protocol.
    #[error("byte 0 is {magic:#04x}: an ACP header starts with {MAGIC:#04x}")]
    Magic {
        /// The byte found.
        magic: u8,
    },
    /// Another version.
    #[error("byte 1: ACP version {version}, but only {VERSION} is supported")]
    Version {
        /// The version found.
        version: u8,
    },
    /// Too many ranges, or a number that contradicts the SACK flag.
    #[error("byte 1: {count} SACK ranges, but there must be 1 to 4 with the SACK flag, and 0 without it")]
    SackCount {
        /// The number found.
        count: u8,
    },
    /// A range whose end is not after its start.
    #[error("SACK range from {start} to {end} is empty")]
    SackRange {
        /// First segment.
        start: u32,
        /// The segment after the last.
        end: u32,
    },
    /// A toll field that no law can use, such as NaN.
    #[error("the toll's `{field}` is not a finite number")]
    NotANumber {
        /// The field's name.
        field: &'static str,
    },
}

/// The header's length without SACK ranges, bytes.
pub const LEN: usize = 52;
/// Bytes of IPv4 and UDP headers before the datagram's payload, which a packet's size includes.
pub const OVERHEAD: usize = 28;
/// The first byte of each header.
pub const MAGIC: u8 = 0xa5;
/// The version written, and the only version read.
pub const VERSION: u8 = 1;

const FLAGS_AT: usize = 2;
const TOLL_AT: usize = 8;
const TOLL_LEN: usize = 24;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn toll() -> impl Strategy<Value = Toll> {
        use prop::num::f32::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
        let float = || POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO;
        let due = any::<f64>().prop_filter("a number", |due| !due.is_nan());
        (due, float(), float(), float(), float()).prop_map(|(due, rtt, offer, stake, echo)| Toll {
            due,
            rtt,
            offer,
            stake,
            echo,
        })
    }

    fn packet() -> impl Strategy<Value = (Packet, SackRanges)> {
        let ranges = prop::collection::vec((any::<u32>(), 1u32..1 << 31), 0..=SackRanges::MAX);
        (toll(), any::<[u32; 6]>(), any::<u16>(), ranges).prop_map(|(toll, words, flags, ranges)| {
            let mut sack = SackRanges::EMPTY;
            for (start, len) in ranges {
                sack.push(start, start.wrapping_add(len));
            }
            let [seq, ack, window, sent, sent_echo, flow] = words;
            let flags = if sack.is_empty() { flags & !Flags::SACK.0 } else { flags | Flags::SACK.0 };
            let packet = Packet {
                toll,
                seq,
                ack,
                sent: Stamp(sent),
                sent_echo: Stamp(sent_echo),
                window,
                flow,
                flags: Flags(flags),
                ..Packet::default()
            };
            (packet, sack)
        })
    }

    fn datagram(packet: &Packet, sack: &SackRanges, payload: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; header_len(SackRanges::MAX) + payload];
        let len = encode(packet, sack, &mut bytes).unwrap();
        bytes.truncate(len + payload);
        bytes
    }

    #[test]
    fn the_toll_lies_where_the_picture_says() {
        let toll = Toll { due: 1.0, rtt: 2.0, offer: 0.5, stake: -1.0, echo: 0.0 };
        let packet = Packet { toll, flow: 7, seq: 9, flags: Flags::DATA, ..Packet::default() };
        let bytes = datagram(&packet, &SackRanges::EMPTY, 0);
        assert_eq!(bytes.len(), LEN);
        assert_eq!(bytes[..8], [0xa5, 0x10, 0, 1, 0, 0, 0, 7]);
        assert_eq!(bytes[8..20], [0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0]);
        assert_eq!(bytes[32..36], [0, 0, 0, 9]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut sack = SackRanges::EMPTY;
        sack.push(5, 8);
        let good = datagram(&Packet::default(), &sack, 0);
        let with = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            decode(&bad)
        };
        assert!(decode(&good).is_ok());
        assert_eq!(with(0, &[0]), Err(AcpError::Magic { magic: 0 }));
        assert_eq!(with(1, &[0x21]), Err(AcpError::Version { version: 2 }));
        assert_eq!(with(2, &[0, 0]), Err(AcpError::SackCount { count: 1 }));
        assert_eq!(with(1, &[0x10]), Err(AcpError::SackCount { count: 0 }));
        assert_eq!(with(1, &[0x15]), Err(AcpError::SackCount { count: 5 }));
        assert_eq!(with(59, &[5]), Err(AcpError::SackRange { start: 5, end: 5 }));
        assert_eq!(with(8, &f64::NAN.to_be_bytes()), Err(AcpError::NotANumber { field: "due" }));
        assert!(with(8, &f64::INFINITY.to_be_bytes()).is_ok());
        for (at, field) in [(16, "rtt"), (20, "offer"), (24, "stake"), (28, "echo")] {
            assert_eq!(with(at, &f32::INFINITY.to_be_bytes()), Err(AcpError::NotANumber { field }));
        }
        let long = datagram(&Packet::default(), &SackRanges::EMPTY, 65_536 - LEN - OVERHEAD);
        assert_eq!(decode(&long), Err(AcpError::TooLong { have: 65_508 }));
        assert_eq!(decode(&long[1..]), Err(AcpError::Magic { magic: 0x10 }));
    }

    #[test]
    fn a_buffer_too_small_is_left_alone() {
        let mut out = [7; LEN - 1];
        let error = AcpError::TooShort { have: LEN - 1, need: LEN };
        assert_eq!(encode(&Packet::default(), &SackRanges::EMPTY, &mut out), Err(error));
        assert_eq!(out, [7; LEN - 1]);
    }

    proptest! {
        #[test]
        fn packets_read_back((packet, sack) in packet(), payload in 0usize..64) {
            let bytes = datagram(&packet, &sack, payload);
            let decoded = decode(&bytes).unwrap();
            let size = (bytes.len() + OVERHEAD) as u16;
            prop_assert_eq!(decoded.packet, Packet { size, ..packet });
            prop_assert_eq!(decoded.packet.toll.due.to_bits(), packet.toll.due.to_bits());
            prop_assert_eq!(decoded.sack, sack);
            prop_assert_eq!(decoded.payload, bytes.len() - payload);
            for cut in 0..decoded.payload {
                let error = matches!(decode(&bytes[..cut]), Err(AcpError::TooShort { .. }));
                prop_assert!(error, "cut at {}", cut);
            }
        }

        #[test]
        fn a_router_touches_the_toll_alone((packet, sack) in packet(), written in toll()) {
            let original = datagram(&packet, &sack, 9);
            let mut bytes = original.clone();
            prop_assert_eq!(load(&bytes), Ok((packet.flags, packet.toll)));
            let seen = load_packet(&bytes).unwrap();
            prop_assert_eq!((seen.flags, seen.toll, seen.flow), (packet.flags, packet.toll, packet.flow));
            prop_assert_eq!(usize::from(seen.size), bytes.len() + OVERHEAD);
            store(&mut bytes, &written).unwrap();
            prop_assert_eq!(load(&bytes), Ok((packet.flags, written)));
            prop_assert_eq!(&bytes[..TOLL_AT], &original[..TOLL_AT]);
            prop_assert_eq!(&bytes[TOLL_AT + TOLL_LEN..], &original[TOLL_AT + TOLL_LEN..]);
            store(&mut bytes, &packet.toll).unwrap();
            mark(&mut bytes).unwrap();
            prop_assert_eq!(load(&bytes).unwrap().0, packet.flags.with(Flags::CE));
            bytes[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&packet.flags.0.to_be_bytes());
            prop_assert_eq!(bytes, original);
        }

        #[test]
        fn a_header_is_rewritten_and_the_payload_stays(
            (old, came) in packet(),
            (new, wanted) in packet(),
            payload in 0usize..64,
            room in 0..=SackRanges::MAX,
        ) {
            let mut bytes = datagram(&old, &came, payload);
            let room = room.min(came.as_slice().len());
            let behind = bytes[bytes.len() - payload..].to_vec();
            rewrite(&mut bytes, &new, &wanted, room).unwrap();
            let decoded = decode(&bytes).unwrap();
            let kept = wanted.as_slice().len().min(room);
            prop_assert_eq!(decoded.sack.as_slice(), &wanted.as_slice()[..kept]);
            let sack = if kept > 0 { Flags::SACK } else { Flags::NONE };
            let flags = Flags(new.flags.0 & !Flags::SACK.0).with(sack);
            prop_assert_eq!(decoded.packet, Packet { size: decoded.packet.size, flags, ..new });
            prop_assert_eq!(&bytes[bytes.len() - payload..], behind);
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..96), honest: bool) {
            if honest && bytes.len() > 1 {
                bytes[0] = MAGIC;
                bytes[1] = VERSION << 4 | bytes[1] & 0xf;
            }
            let _ = decode(&bytes);
            let _ = load(&bytes);
            let _ = load_packet(&bytes);
            let _ = store(&mut bytes, &Toll::default());
            let _ = mark(&mut bytes);
            let _ = rewrite(&mut bytes, &Packet::default(), &SackRanges::EMPTY, SackRanges::MAX);
        }
    }
}
