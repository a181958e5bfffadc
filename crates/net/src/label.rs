//! Labels of packets between nodes: a flow's number and direction, or one of these kinds.

use tollway_proto::encoding::acp;

/// In the labels of packets that carry an IP packet of a node's kernel; without it they are those of the flow.
pub(crate) const CARRIED: u32 = 1 << 30;
/// Bytes on the wire between nodes that are none of such an IP packet's: headers, and ten bytes of the interface's own.
pub(crate) const CARRIER: u16 = (acp::OVERHEAD + acp::LEN) as u16 + 10;
/// In the labels of cross-traffic; the rest numbers its sources.
pub(crate) const CROSS: u32 = 1 << 31;
/// In the labels of what middles send; the rest numbers the ways out of them.
pub(crate) const TREE: u32 = 1 << 29;
