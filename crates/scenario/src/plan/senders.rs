//! The endpoints of flows: transport settings and sender laws.

use std::ops::Deref;

use tollway_law::sender::{self, Descriptor, SenderConfig};
pub use tollway_proto::encoding::Encoding;
pub use tollway_proto::transport::{Detection, Rto, WindowGrowth};

use super::*;

/// Settings of a flow's sender and receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Transport {
    /// The sender's law.
    pub law: SenderLaw,
    /// True if a live run uses the kernel's TCP.
    pub kernel: bool,
    /// Size of a full packet on the wire, bytes; with headers, without the link's framing.
    pub packet_size: u16,
    /// Header bytes of a full packet.
    pub header: u16,
    /// Size of a packet without data, bytes.
    pub ack_size: u16,
    /// Initial congestion window, packets.
    pub initial_window: u32,
    /// SACK ranges that an acknowledgement can hold; 0 disables SACK.
    pub sack_blocks: u8,
    /// The loss-detection algorithm.
    pub loss_detection: Detection,
    /// Extra copies of a retransmission if the receiver's window would run out before the repair.
    pub repair_copies: u8,
    /// Longest delay of an acknowledgement while it waits for a second packet; `None` acknowledges
    /// every packet.
    pub delayed_ack: Option<Time>,
    /// True if a handshake opens the connection before data.
    pub handshake: bool,
    /// The form of the toll in a packet.
    pub encoding: Encoding,
    /// True if both ends send data.
    pub both_ways: bool,
    /// True if data packets are ECN-capable (RFC 3168).
    pub ecn: bool,
    /// True if data packets carry ECT(1), the mark of a scalable sender (RFC 9331).
    pub l4s: bool,
    /// The growth of the advertised part of the receive buffer.
    pub window_growth: WindowGrowth,
    /// The rate at which the receiver's application reads.
    pub reader: Reader,
    /// The receiver's flow control.
    pub flow_control: FlowControl,
    /// The retransmission timer.
    pub rto: Rto,
    /// Class of traffic of its packets, counted from 1; 0 is no class.
    pub class: u8,
    /// Weight of the flow in the ideal allocation and among its host's flows.
    pub weight: f64,
}

/// A sender's law and its constants.
#[derive(Clone, Debug)]
pub struct SenderLaw(pub Arc<dyn SenderConfig>);

impl Deref for SenderLaw {
    type Target = dyn SenderConfig;

    fn deref(&self) -> &dyn SenderConfig {
        &*self.0
    }
}

impl PartialEq for SenderLaw {
    fn eq(&self, other: &SenderLaw) -> bool {
        *self.0 == *other.0
    }
}

impl Transport {
    /// The class of the first packets: none if the law chooses between classes.
    pub fn first_class(&self) -> u8 {
        let chooses = self.law.descriptor().spends.is_some_and(|spends| spends.patience.is_some());
        if chooses { 0 } else { self.class }
    }
}

/// The words of the laws whose descriptor satisfies `are`, joined for a sentence: `a, b or c`.
pub(crate) fn laws_that(are: impl Fn(&Descriptor) -> bool) -> String {
    let laws = sender::LAWS.iter().filter(|law| are(&(law.read)(&()).descriptor()));
    let words: Vec<&str> = laws.map(|law| law.word).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}
