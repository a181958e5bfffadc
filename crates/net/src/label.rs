//! Labels of packets between nodes: a flow's number and direction, or one of these kinds.

use tollway_proto::encoding::acp;

/// Bit of labels of packets that carry a kernel's IP packet; without it the label is the flow's.
pub(crate) const CARRIED: u32 = 1 << 30;
/// Bytes on the wire around such an IP packet: headers, and ten bytes that the interface adds.
pub(crate) const CARRIER: u16 = (acp::OVERHEAD + acp::LEN) as u16 + 10;
/// Bit of labels of cross-traffic; the other bits number its sources.
pub(crate) const CROSS: u32 = 1 << 31;
/// Bit of labels of packets that middles send; the other bits number the middles' outlets.
pub(crate) const TREE: u32 = 1 << 29;
