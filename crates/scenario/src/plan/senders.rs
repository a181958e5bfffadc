//! What flows' ends do: the transport and the senders' laws.

use std::ops::Deref;

use tollway_law::sender::{self, Descriptor, SenderConfig};
pub use tollway_proto::encoding::Encoding;
pub use tollway_proto::transport::{Detection, Rto, WindowGrowth};

use super::*;

/// How a flow's ends behave.
#[derive(Clone, Debug, PartialEq)]
pub struct Transport {
    /// The sender's law.
    pub law: SenderLaw,
    /// In a live run it is the kernel's TCP.
    pub kernel: bool,
    /// Size of a full packet on the wire, headers included, the link's framing not, bytes.
    pub packet_size: u16,
    /// Of these, what is header.
    pub header: u16,
    /// Size of a packet without data, bytes.
    pub ack_size: u16,
    /// Window at the start, packets.
    pub initial_window: u32,
    /// SACK ranges an acknowledgement has room for; 0 is no SACK.
    pub sack_blocks: u8,
    /// How losses are found.
    pub loss_detection: Detection,
    /// How many times more a retransmission leaves where the receiver's window would not last until its loss is repaired.
    pub repair_copies: u8,
    /// How long an acknowledgement may wait for a second packet; `None` acknowledges every packet.
    pub delayed_ack: Option<Time>,
    /// Whether a connection is opened before data flow.
    pub handshake: bool,
    /// What the toll looks like in a packet.
    pub encoding: Encoding,
    /// Data in both directions.
    pub both_ways: bool,
    /// Data packets may be marked instead of dropped (RFC 3168).
    pub ecn: bool,
    /// They say by ECT(1) that their sender is scalable (RFC 9331).
    pub l4s: bool,
    /// How much of the receive buffer is advertised.
    pub window_growth: WindowGrowth,
    /// The pace of the receiver's application.
    pub reader: Reader,
    /// The receiver's flow control.
    pub flow_control: FlowControl,
    /// The retransmission timer.
    pub rto: Rto,
    /// The class of traffic that its packets belong to, counted from 1; 0 is none.
    pub class: u8,
    /// The flow's weight in theory's ideal allocation, and among those of its host.
    pub weight: f64,
}

/// A sender's law with its constants.
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
    /// The class that its packets are of at first.
    pub fn first_class(&self) -> u8 {
        let chooses = self.law.descriptor().spends.is_some_and(|spends| spends.patience.is_some());
        if chooses { 0 } else { self.class }
    }
}

/// The words of the laws that are so, in a sentence.
pub(crate) fn laws_that(are: impl Fn(&Descriptor) -> bool) -> String {
    let laws = sender::LAWS.iter().filter(|law| are(&(law.read)(&()).descriptor()));
    let words: Vec<&str> = laws.map(|law| law.word).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}
