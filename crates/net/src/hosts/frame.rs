//! A frame of an interface, and its fields that links read and write. No I/O.
//!
//! ```text
//! virtio_net_hdr (10 bytes) | Ethernet's header (14) | IP's header | UDP: ACP's datagram
//!                                                                  | TCP: an option with a toll
//! ```

use std::ops::Range;

use tollway_proto::encoding::acp;
use tollway_proto::{Flags, Packet};

use crate::sys::ip::{self, FiveTuple, Header};
use crate::sys::tun;

/// The content of a frame, as links see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FrameContent {
    /// A datagram of Tollway.
    Datagram(Packet),
    /// A segment of the kernel's TCP. Addresses and ports name its flow; it is tolled if it has
    /// an option with a toll.
    Segment(Packet, FiveTuple),
}

/// Reads a frame; `port` is that of ACP's datagrams.
///
/// `None` for other protocols, and for a train of packets, since a law must see each packet.
pub(crate) fn load(frame: &[u8], port: u16) -> Option<FrameContent> {
    if tun::segment_of(frame) != 0 {
        return None;
    }
    let bytes = frame.get(PREFIX..)?;
    let header = ip::parse(bytes).ok()?;
    match header.flow.protocol {
        ip::UDP if header.flow.destination_port == port => {
            let datagram = &bytes[usize::from(header.header_len)..usize::from(header.len)];
            Some(FrameContent::Datagram(acp::load_packet(datagram).ok()?))
        }
        ip::TCP if header.flow.source_port > 0 => {
            let data = if header.payload() > 0 { Flags::DATA } else { Flags::NONE };
            let mut packet = Packet { size: header.len, flags: header.ecn.with(data), ..Packet::default() };
            if let Some((_, tolled)) = ip::toll_option(bytes, &header) {
                packet.flags.set(Flags::TOLLED);
                packet.toll = tolled.toll(u32::from(header.len));
            }
            Some(FrameContent::Segment(packet, header.flow))
        }
        _ => None,
    }
}

/// Range of ACP's datagram in a frame that [`load`] has accepted; `None` for TCP.
pub(crate) fn datagram(frame: &[u8]) -> Option<Range<usize>> {
    let header = ip::parse(frame.get(PREFIX..)?).ok()?;
    is_datagram(&header).then(|| PREFIX + usize::from(header.header_len)..PREFIX + usize::from(header.len))
}

/// Writes a packet's toll and mark back into a frame that [`load`] has accepted.
///
/// It updates the toll in a TCP option, and the checksums.
pub(crate) fn store(frame: &mut [u8], packet: &Packet) {
    let unfinished = tun::is_unfinished(frame);
    let Some(bytes) = frame.get_mut(PREFIX..) else { return };
    let Ok(header) = ip::parse(bytes) else { return };
    let marked = packet.flags.has(Flags::CE);
    if is_datagram(&header) {
        let Some(datagram) = bytes.get_mut(usize::from(header.header_len)..usize::from(header.len)) else {
            return;
        };
        let Some(before) = datagram.first_chunk::<REWRITTEN>().copied() else { return };
        // The header was checked when the packet was read.
        let _ = acp::store(datagram, &packet.toll);
        if marked {
            let _ = acp::mark(datagram);
        }
        let Some(after) = datagram.first_chunk::<REWRITTEN>().copied() else { return };
        if !unfinished {
            ip::rewritten(bytes, &header, &before, &after);
        }
        return;
    }
    ip::store(bytes, packet, unfinished);
}

fn is_datagram(header: &Header) -> bool {
    header.flow.protocol == ip::UDP
}

/// Bytes in front of the IP header.
pub(crate) const PREFIX: usize = tun::VNET_LEN + ETHERNET;
/// Length of the Ethernet header, in bytes.
const ETHERNET: usize = 14;
/// The first bytes of ACP's header, which links rewrite.
const REWRITTEN: usize = 32;
