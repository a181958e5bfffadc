//! What flows' ends do: the transport and the senders' laws.

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
    /// Segments that one acknowledgement grows the window for at most, with [`SenderLaw::NewReno`].
    pub growth_per_ack: u32,
    /// SACK ranges an acknowledgement has room for; 0 is no SACK.
    pub sack_blocks: u8,
    /// How losses are found.
    pub loss_detection: LossDetection,
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

/// A sender's law.
#[derive(Clone, Debug, PartialEq)]
pub enum SenderLaw {
    /// TCP NewReno (RFC 5681, RFC 6582).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// DCTCP (RFC 8257).
    Dctcp,
    /// BBR, version 3 (draft-ietf-ccwg-bbr).
    Bbr,
    /// XCP.
    Xcp(XcpSender),
    /// FCP.
    Fcp(FcpSender),
    /// RCP.
    Rcp,
    /// The caller's; no file names it.
    Own(OwnSender),
}

/// FCP's sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FcpSender {
    /// What it may spend without a host, $/s.
    pub budget: f64,
    /// Packets that its first packet announces for the next round trip.
    pub initial_packets: f64,
    /// It announces them also where there is less to send.
    pub initial_always: bool,
    /// Bytes up to which a flow asks for no more than to send what it has within a round trip.
    pub short: f64,
    /// The largest preload.
    pub max_preload: Option<f64>,
    /// The rate to be kept by [`Strategy::Stable`].
    pub wants: Option<Rate>,
    /// The rate that it asks for at the least price to meet a deadline.
    pub deadline: Option<Rate>,
    /// It is in its class only while that is better than none: so much queueing delay is as bad as a rate e times smaller.
    pub patience: Option<Time>,
    /// What it does wrong on purpose, and when.
    pub cheat: Option<(FcpTrick, CheatTimes)>,
}

impl Transport {
    /// The class that its packets are of at first.
    pub fn first_class(&self) -> u8 {
        match self.law {
            SenderLaw::Fcp(FcpSender { patience: Some(_), .. }) => 0,
            _ => self.class,
        }
    }
}

impl SenderLaw {
    /// Its word in scenario files and result tables; the caller's law has a name in tables only.
    pub fn name(&self) -> &str {
        match self {
            SenderLaw::NewReno => "newreno",
            SenderLaw::Cubic => "cubic",
            SenderLaw::Dctcp => "dctcp",
            SenderLaw::Bbr => "bbr",
            SenderLaw::Xcp(_) => "xcp",
            SenderLaw::Fcp(_) => "fcp",
            SenderLaw::Rcp => "rcp",
            SenderLaw::Own(law) => law.name(),
        }
    }
}

/// XCP's sender, with the options of the experimental study.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct XcpSender {
    /// What a loss does to the window.
    pub on_loss: OnLoss,
    /// State the window that is used, min(cwnd, receive window, buffers), instead of cwnd.
    pub advertise_limit: bool,
    /// Space packets over the round trip.
    pub pacing: bool,
    /// What is asked of routers.
    pub request: Request,
    /// State the window in whole packets (ns-2).
    pub whole_window: bool,
    /// Bytes that a packet counts for when feedback is turned into packets.
    pub gain_segment: u32,
    /// Part of an unused window that is kept each round trip (the draft, § 4.1.3.1); `None` keeps all.
    pub aging: Option<f64>,
    /// A toll on every so manyth packet only.
    pub every: u32,
    /// The TCP it falls back on where the bottleneck does not speak XCP.
    pub fallback: Option<Fallback>,
    /// What it does wrong on purpose.
    pub cheat: Option<Cheat>,
}

/// What an XCP sender falls back on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// `newreno`.
    NewReno,
    /// `cubic`.
    Cubic,
}

/// A sender that cheats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cheat {
    /// What it does.
    pub trick: Trick,
    /// How many times too small or too large what it states is.
    pub factor: f64,
    /// Since when.
    pub from: Time,
}

/// What a cheat does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trick {
    /// Gives back nothing of its window.
    IgnoreNegative,
    /// States a smaller window.
    UnderstateWindow,
    /// States a longer round trip.
    OverstateRtt,
    /// States a shorter one.
    UnderstateRtt,
}

/// What a loss does to an XCP sender's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Nothing (the study).
    Keep,
    /// It is halved (the draft, § 4.1).
    Halve,
}

/// What an XCP sender asks of routers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// Everything there is.
    All,
    /// To reach this rate within a round trip (the draft, § 4.1.2).
    Rate(Rate),
}

/// How losses are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// Three duplicates and partial acknowledgements (RFC 6582).
    NewReno,
    /// Conservative loss recovery by SACK (RFC 6675).
    Rfc6675,
    /// By time, lost retransmissions too (RFC 8985).
    Rack,
}

/// What the toll looks like in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// ACP's own header.
    Acp,
    /// The study's TCP options 14 and 15.
    TcpOption {
        /// Feedback as whole packets instead of the 13+3-bit split.
        integer: bool,
    },
    /// The 20-byte header of draft-falk-xcp-spec-02.
    Draft2,
    /// The 20-byte header of draft-falk-xcp-spec-03.
    Draft3,
}

/// The retransmission timer (RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rto {
    /// Before the first sample of the round trip.
    pub initial: Time,
    /// Never shorter.
    pub min: Time,
    /// Never longer.
    pub max: Time,
    /// Least margin over the smoothed round trip: RFC 6298's clock granularity G.
    pub granularity: Time,
    /// Doubles with each expiry.
    pub backoff: bool,
    /// Always this, without doubling, if given.
    pub fixed: Option<Time>,
}

/// How much of the receive buffer is advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowGrowth {
    /// All of it, from the start.
    Whole,
    /// More with each data packet, as Linux does it.
    PerPacket {
        /// Packets at the start.
        initial: u32,
        /// Packets more for each data packet.
        step: u32,
    },
    /// By the feedback received (the XCP study).
    Feedback {
        /// Packets at the start.
        initial: u32,
    },
}
