//! A datagram: ACP's header, padding, payload.
//!
//! ```text
//! header (52 bytes and 8 for each SACK range) | zeros | payload
//! ```
//!
//! With its IP and UDP headers, the datagram has the size that the transport states. So real and
//! emulated links carry the bytes that the laws count. The payload is the last `size - header`
//! bytes, where `header` is [`Config::header`](tollway_proto::transport::Config::header). The bytes
//! between are padding.
//!
//! If an end has an [app](tollway_proto::App), the payload is the app's data. Otherwise it is a
//! pattern made from the packet's label and segment number, so that the receiver can detect a wrong
//! or misplaced byte.
//!
//! A switch changes label and number. So the payload of a session's frame begins with its *key*,
//! the label and number that its source gave it. The pattern follows.

use tollway_proto::encoding::acp::{self, AcpError};
use tollway_proto::{Flags, Packet, SackRanges};

/// Writes the datagram of `packet` into `out`.
///
/// `out` must have the packet's size less [`acp::OVERHEAD`]. `header` counts the bytes of the
/// packet's size that are not payload.
///
/// # Errors
/// [`AcpError::TooShort`] if the packet has no room for its header.
pub(crate) fn compose(
    packet: &Packet,
    sack: &SackRanges,
    header: u16,
    out: &mut [u8],
) -> Result<(), AcpError> {
    compose_with(packet, sack, header, out, |tail| fill(packet.flow, packet.seq, tail))
}

/// Like [`compose`], for a frame whose payload begins with its key.
pub(crate) fn compose_keyed(
    packet: &Packet,
    sack: &SackRanges,
    header: u16,
    out: &mut [u8],
) -> Result<(), AcpError> {
    compose_with(packet, sack, header, out, |tail| {
        let (key, rest) = tail.split_at_mut(KEY.min(tail.len()));
        let bytes = [packet.flow.to_le_bytes(), packet.seq.to_le_bytes()];
        key.copy_from_slice(&bytes.as_flattened()[..key.len()]);
        fill(packet.flow, packet.seq, rest);
    })
}

/// Like [`compose`], with a payload that `write` writes.
pub(crate) fn compose_with(
    packet: &Packet,
    sack: &SackRanges,
    header: u16,
    out: &mut [u8],
    write: impl FnOnce(&mut [u8]),
) -> Result<(), AcpError> {
    let payload = payload_len(packet, header).min(out.len());
    let split = out.len() - payload;
    let (head, tail) = out.split_at_mut(split);
    let len = acp::encode(packet, sack, head)?;
    head[len..].fill(0);
    write(tail);
    Ok(())
}

/// Length of a packet's payload, in bytes.
pub(crate) fn payload_len(packet: &Packet, header: u16) -> usize {
    if packet.flags.has(Flags::DATA) { usize::from(packet.size.saturating_sub(header)) } else { 0 }
}

/// Position in the payload of the first wrong byte; `None` if all bytes are right.
pub(crate) fn corrupt(packet: &Packet, header: u16, datagram: &[u8]) -> Option<usize> {
    let payload = payload_len(packet, header);
    let start = datagram.len().checked_sub(payload)?;
    check(packet.flow, packet.seq, &datagram[start..])
}

/// Position in a frame's payload of the first byte that does not belong to its key.
///
/// `None` if all bytes are right. Any key is valid, and a null segment has no payload.
pub(crate) fn corrupt_keyed(packet: &Packet, header: u16, datagram: &[u8]) -> Option<usize> {
    let payload = payload_len(packet, header);
    let start = datagram.len().checked_sub(payload)?;
    let (key, rest) = datagram[start..].split_at_checked(KEY)?;
    let (words, _) = key.as_chunks::<4>();
    let [label, seq] = [words[0], words[1]].map(u32::from_le_bytes);
    check(label, seq, rest).map(|position| KEY + position)
}

/// Writes the pattern of segment `seq` of `label`.
pub(crate) fn fill(label: u32, seq: u32, out: &mut [u8]) {
    let mut word = first_word(label, seq);
    let (words, rest) = out.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
}

/// Position of the first byte that differs from the pattern.
fn check(label: u32, seq: u32, bytes: &[u8]) -> Option<usize> {
    let mut word = first_word(label, seq);
    let mut differs = 0;
    let (words, rest) = bytes.as_chunks::<8>();
    for bytes in words {
        differs |= u64::from_le_bytes(*bytes) ^ word;
        word = word.wrapping_add(STEP);
    }
    if differs == 0 && *rest == word.to_le_bytes()[..rest.len()] {
        return None;
    }
    let mut right = vec![0; bytes.len()];
    fill(label, seq, &mut right);
    bytes.iter().zip(&right).position(|(read, right)| read != right)
}

/// The first word of a pattern, mixed so that neighbouring segments differ everywhere.
///
/// The mixer is the finaliser of Steele, Lea and Flood (OOPSLA 2014).
fn first_word(label: u32, seq: u32) -> u64 {
    let key = u64::from(label) << 32 | u64::from(seq);
    let mixed = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Length of a key in bytes: label and segment number.
pub(crate) const KEY: usize = 8;
/// Odd, so that no word repeats.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_without_room_for_its_header_is_refused() {
        let packet = Packet { size: 70, flags: Flags::ACK, ..Packet::default() };
        let mut out = vec![0; 42];
        let refused = compose(&packet, &SackRanges::EMPTY, 60, &mut out);
        assert_eq!(refused, Err(AcpError::TooShort { have: 42, need: 52 }));
    }

    proptest! {
        #[test]
        fn what_is_composed_decodes_and_any_wrong_byte_is_found(
            (label, seq) in any::<(u32, u32)>(),
            payload in 0u16..1500,
            padding in 0u16..40,
            ranges in 0u32..4,
            at in any::<prop::sample::Index>(),
            wrong in 1u8..,
        ) {
            let mut sack = SackRanges::EMPTY;
            (0..ranges).for_each(|i| { sack.push(10 * i + 5, 10 * i + 8); });
            let header = (acp::OVERHEAD + acp::header_len(ranges as usize)) as u16 + padding;
            let packet = Packet { flow: label, seq, size: header + payload, flags: Flags::DATA, ..Packet::default() };
            let mut out = vec![0xee; usize::from(packet.size) - acp::OVERHEAD];
            compose_keyed(&packet, &sack, header, &mut out).unwrap();
            // A switch has given the frame another number.
            let renumbered = Packet { flow: !label, seq: !seq, ..packet };
            prop_assert_eq!(corrupt_keyed(&renumbered, header, &out), None);
            if let Some(last) = usize::from(payload).checked_sub(KEY + 1) {
                let place = out.len() - 1;
                out[place] ^= wrong;
                prop_assert_eq!(corrupt_keyed(&renumbered, header, &out), Some(KEY + last));
            }
            compose(&packet, &sack, header, &mut out).unwrap();
            let decoded = acp::decode(&out).unwrap();
            prop_assert_eq!((decoded.packet.flow, decoded.packet.seq), (label, seq));
            prop_assert_eq!((decoded.packet.size, decoded.sack), (packet.size, sack));
            prop_assert_eq!(corrupt(&decoded.packet, header, &out), None);
            if payload > 0 {
                let at = at.index(usize::from(payload));
                let place = out.len() - usize::from(payload) + at;
                out[place] ^= wrong;
                prop_assert_eq!(corrupt(&decoded.packet, header, &out), Some(at));
            }
        }
    }
}
