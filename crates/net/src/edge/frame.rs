//! A frame of an interface, as the links see it. No I/O; every length is checked before use.
//!
//! ```text
//! virtio_net_hdr (10 bytes) | Ethernet's header (14), tags (4 each) | IP packet
//! ```
//!
//! On an interface without Ethernet, such as a PPP or WireGuard one, the IP packet follows directly.

use tollway_proto::{Flags, Packet};

use crate::sys::ip::{self, Header};
use crate::sys::tun;

/// A frame's packet: whole headers if it is IP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    /// Offset of the IP packet; of the content if it is none.
    pub(super) at: usize,
    /// The headers; `None` if it is not IP, or malformed.
    pub(super) header: Option<Header>,
    /// Size, number of segments and flags, as a link counts them.
    pub(super) packet: Packet,
}

/// Reads a frame, which has Ethernet's header if `ethernet`. `None` if it is shorter than its
/// headers.
pub(super) fn read(frame: &[u8], ethernet: bool) -> Option<Content> {
    let at = if ethernet { behind_ethernet(frame)? } else { tun::VNET_LEN };
    let bytes = frame.get(at..).filter(|bytes| !bytes.is_empty())?;
    let header = ip::parse_any(bytes).ok();
    let mut packet = Packet { size: short(bytes.len()), seq: 1, ..Packet::default() };
    if let Some(header) = &header {
        let segment = tun::segment_of(frame);
        // Each segment has its own header on the wire.
        let segments = if segment > 0 { u32::from(header.payload().div_ceil(segment)).max(1) } else { 1 };
        let size = usize::from(header.len) + (segments as usize - 1) * usize::from(header.header_len);
        let data = if header.payload() > 0 { Flags::DATA } else { Flags::NONE };
        let flags = header.ecn.with(data).with(ip::opens(bytes, header));
        packet = Packet { size: short(size), seq: segments, flags, ..packet };
    }
    Some(Content { at, header, packet })
}

/// Removes the outermost tag, which a program in the kernel has put on the frame in `bytes`. Returns
/// the tag's number, and the offset at which the frame begins now. `None` if it has no such tag.
///
/// It is at the same offset on an interface without Ethernet's header, amid the packet.
pub(super) fn remove_tag(bytes: &mut [u8]) -> Option<(u16, usize)> {
    let place: &[u8; 4] = bytes.get(PLACE..PLACE + 4)?.try_into().ok()?;
    let (kind, number) = (u16::from_be_bytes([place[0], place[1]]), u16::from_be_bytes([place[2], place[3]]));
    if kind != SERVICE_TAG {
        return None;
    }
    bytes.copy_within(..PLACE, 4);
    // Lengths from the frame's begin: of the headers, and to the start of the checksum.
    for at in [4 + 2, 4 + 6] {
        let len = u16::from_ne_bytes([bytes[at], bytes[at + 1]]).saturating_sub(4);
        bytes[at..at + 2].copy_from_slice(&len.to_ne_bytes());
    }
    Some((number, 4))
}

/// Offset of the content behind Ethernet's header and its tags.
fn behind_ethernet(frame: &[u8]) -> Option<usize> {
    let mut at = tun::VNET_LEN + 12;
    while let [a, b] = *frame.get(at..at + 2)? {
        at += match u16::from_be_bytes([a, b]) {
            TAG | SERVICE_TAG => 4,
            _ => return Some(at + 2),
        };
    }
    None
}

fn short(len: usize) -> u16 {
    len.min(usize::from(u16::MAX)) as u16
}

/// Offset of the outermost tag.
const PLACE: usize = tun::VNET_LEN + 12;
/// EtherTypes of VLAN tags (IEEE 802.1Q).
const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
