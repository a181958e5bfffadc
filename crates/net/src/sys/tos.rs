//! The field of an IP header with the codepoint of differentiated services and ECN's bits, and the
//! update of checksums.

/// The codepoint of an IP packet (RFC 2474).
pub fn dscp(bytes: &[u8]) -> u8 {
    match *bytes {
        [a, b, ..] if a >> 4 == 6 => ((a & 15) << 4 | b >> 4) >> 2,
        [_, tos, ..] => tos >> 2,
        _ => 0,
    }
}

/// Sets the codepoint of an IP packet.
pub fn set_dscp(bytes: &mut [u8], dscp: u8) {
    let class = (dscp & 63) << 2;
    match bytes {
        [a, b, ..] if *a >> 4 == 6 => {
            *a = 6 << 4 | class >> 4;
            *b = *b & 0x3f | class << 4;
        }
        _ => set_tos(bytes, |tos| tos & 3 | class),
    }
}

/// Changes IPv4's field of the codepoint and ECN, and updates the header checksum (RFC 1624).
fn set_tos(bytes: &mut [u8], changed: impl FnOnce(u8) -> u8) {
    if bytes.len() < MIN_HEADER {
        return;
    }
    let before = u16::from_be_bytes([bytes[0], bytes[1]]);
    bytes[1] = changed(bytes[1]);
    let after = u16::from_be_bytes([bytes[0], bytes[1]]);
    let sum = u16::from_be_bytes([bytes[10], bytes[11]]);
    bytes[10..12].copy_from_slice(&adjusted(sum, before, after).to_be_bytes());
}

/// Sets congestion experienced in an IP packet, and updates the header checksum of IPv4.
pub fn mark(bytes: &mut [u8]) {
    match bytes {
        [a, b, ..] if *a >> 4 == 6 => *b |= 0x30,
        _ => set_tos(bytes, |tos| tos | 3),
    }
}

/// The checksum `sum` after a word under it has changed (RFC 1624, equation 3).
pub(super) fn adjusted(sum: u16, before: u16, after: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    !(total as u16)
}

/// Length of a header without options, in bytes.
pub(super) const MIN_HEADER: usize = 20;
