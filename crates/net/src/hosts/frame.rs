//! A frame as it comes from an interface, and what of it links read and write. No I/O.
//!
//! ```text
//! virtio_net_hdr (10 bytes) | Ethernet's header (14) | IP's header | UDP: ACP's datagram
//!                                                                  | TCP: perhaps with XCP's option
//! ```

use std::ops::Range;

use tollway_proto::encoding::acp;
use tollway_proto::encoding::tcp_option::{self, Feedback};
use tollway_proto::{Encoding, Flags, Packet};

use crate::sys::ip::{self, FiveTuple, Header};
use crate::sys::tun;

/// What a frame is to links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Content {
    /// A datagram of Tollway's.
    Datagram(Packet),
    /// A segment of the kernel's TCP, whose flow its addresses and ports say; with XCP's option in it, it is tolled.
    Segment(Packet, FiveTuple),
}

/// Reads a frame; `None` if it is neither, or a train of packets, each of which a law would want to see. `port` is that of ACP's datagrams.
pub(crate) fn load(frame: &[u8], port: u16) -> Option<Content> {
    if tun::segment_of(frame) != 0 {
        return None;
    }
    let bytes = frame.get(PREFIX..)?;
    let header = ip::parse(bytes).ok()?;
    match header.flow.protocol {
        ip::UDP if header.flow.destination_port == port => {
            let datagram = &bytes[usize::from(header.header_len)..usize::from(header.len)];
            Some(Content::Datagram(acp::load_packet(datagram).ok()?))
        }
        ip::TCP if header.flow.source_port > 0 => {
            let data = if header.payload() > 0 { Flags::DATA } else { Flags::NONE };
            let mut packet = Packet { size: header.len, flags: header.ecn.with(data), ..Packet::default() };
            if let Some((_, forward)) = ip::xcp_option(bytes, &header) {
                packet.flags.set(Flags::TOLLED);
                packet.toll = forward.toll(u32::from(header.len), FEEDBACK);
            }
            Some(Content::Segment(packet, header.flow))
        }
        _ => None,
    }
}

/// Where ACP's datagram lies in a frame that [`load`] has read as one.
pub(crate) fn datagram(frame: &[u8]) -> Option<Range<usize>> {
    let header = ip::parse(frame.get(PREFIX..)?).ok()?;
    is_datagram(&header).then(|| PREFIX + usize::from(header.header_len)..PREFIX + usize::from(header.len))
}

/// Writes into a frame that [`load`] has read what links have made of its packet: toll and mark, the feedback of XCP's option,
/// the checksums over them.
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
    if marked && bytes[1] & 3 != 3 {
        ip::mark(bytes);
    }
    if packet.flags.has(Flags::TOLLED)
        && let Some((at, forward)) = ip::xcp_option(bytes, &header)
    {
        let feedback =
            tcp_option::encode_due(packet.toll.due, forward.rtt_ms, u32::from(packet.size), FEEDBACK);
        ip::store_feedback(bytes, at, feedback, unfinished);
    }
}

fn is_datagram(header: &Header) -> bool {
    header.flow.protocol == ip::UDP
}

/// What XCP's option loses of a toll.
pub(crate) const ENCODING: Encoding = Encoding::TcpOption { feedback: FEEDBACK };
/// How XCP's senders write their feedback.
const FEEDBACK: Feedback = Feedback::Split;
/// Bytes in front of IP's header.
pub(crate) const PREFIX: usize = tun::VNET_LEN + ETHERNET;
/// Bytes of Ethernet's header.
const ETHERNET: usize = 14;
/// The first bytes of ACP's header, in which links write.
const REWRITTEN: usize = 32;
