//! A datagram: ACP's header, padding, payload.
//!
//! ```text
//! header (52 bytes and 8 for each SACK range) | zeros | payload
//! ```
//!
//! The datagram with its IP and UDP headers is as long as the transport says the packet is, so that links, real
//! and emulated, carry what the laws count. The payload is the last `size - header` bytes of it, as
//! [`Config::header`](tollway_proto::transport::Config::header) has it; what is left between is padding.
//!
//! In a run of a scenario the payload is what an [app](tollway_proto::App) has written. Of other ends it is a pattern made from the
//! packet's label and segment number: whoever receives it can tell a byte that is wrong or in the wrong place.
//!
//! A switch changes label and number. The payload of a session's frame therefore begins with those
//! that its source gave it, its *key*, and the pattern follows.

use tollway_proto::encoding::acp::{self, AcpError};
use tollway_proto::{Flags, Packet, SackRanges};

/// Writes the datagram of `packet` into `out`, which is as long as it must be: the packet's size less
/// [`acp::OVERHEAD`]. `header` is what of the packet's size is no payload.
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

/// [`compose`] of a frame whose payload begins with its key.
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

/// [`compose`] with a payload that `write` writes.
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

/// Bytes of payload in a packet.
pub(crate) fn payload_len(packet: &Packet, header: u16) -> usize {
    if packet.flags.has(Flags::DATA) { usize::from(packet.size.saturating_sub(header)) } else { 0 }
}

/// The position in the payload of `datagram` of the first byte that is not what was sent; `None` if all is well.
pub(crate) fn corrupt(packet: &Packet, header: u16, datagram: &[u8]) -> Option<usize> {
    let payload = payload_len(packet, header);
    let start = datagram.len().checked_sub(payload)?;
    check(packet.flow, packet.seq, &datagram[start..])
}

/// The position in the payload of a frame of the first byte that does not belong to its key; `None`
/// if all is well. Any key may be; a null segment has no payload.
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

/// The first byte that differs from the pattern.
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

/// Mixed (Steele, Lea and Flood's finaliser, OOPSLA 2014), so that neighbouring segments have nothing in common.
fn first_word(label: u32, seq: u32) -> u64 {
    let key = u64::from(label) << 32 | u64::from(seq);
    let mixed = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Bytes of a key: label and segment number.
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
