//! Links: ports, laws and their constants, classes of traffic, media.

use super::*;

/// One direction of a link: a port and the wire behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// `bottleneck`, `access.3` for a link of a group's third member, with `.reverse` for the way back.
    pub name: String,
    /// The section of the file it comes from.
    pub section: Arc<str>,
    /// Where its port is.
    pub from: NodeId,
    /// Where its packets arrive.
    pub to: NodeId,
    /// Whether it runs as the file says, or the other way.
    pub direction: Direction,
    /// The other direction, if the link is duplex.
    pub twin: Option<LinkId>,
    /// How fast packets are put on the wire; the mean if it replays a trace.
    pub rate: Rate,
    /// When it may send, instead of at a rate.
    pub trace: Option<Trace>,
    /// Propagation delay, one way.
    pub delay: Time,
    /// Framing bytes that every packet takes on this wire in addition to its own.
    pub overhead: u32,
    /// What the queue holds.
    pub limit: Limit,
    /// The capacity that the link's law believes in.
    pub capacity: Rate,
    /// The link's law; links of one section share it, unless its thresholds are parts of their limits.
    pub law: Arc<LinkLaw>,
    /// The half-duplex medium that it shares.
    pub medium: Option<MediumId>,
    /// Probability that a packet is lost on the wire.
    pub loss: f64,
    /// The meter at its far end; only of a link that has a way back. (In a box, as few have one and there may be thousands of
    /// links.)
    pub meter: Option<Box<Meter>>,
    /// The border at its far end; only of a link that has a way back and no meter. (In a box likewise.)
    pub exchange: Option<Box<ExchangeRate>>,
}

/// A meter for flows that enter, or leave, there ([`tollway_law::meter`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meter {
    /// How far what is stated may be from what is measured, as a part of it.
    pub tolerance: f64,
    /// Round trips of excess before a flow is accused.
    pub burst: f64,
    /// Round trips for which a wrong round trip must be stated without a break.
    pub patience: f64,
    /// Accused flows are held to their allotment, not only reported.
    pub enforce: bool,
    /// What it looks after.
    pub duty: Duty,
}

/// Which way along a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From `from` to `to`.
    Forward,
    /// The way back.
    Reverse,
}

/// A link's law and its constants.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkLaw {
    /// What does not fit is dropped.
    DropTail,
    /// Random early detection.
    Red(Red),
    /// XCP's router.
    Xcp(Xcp),
    /// Controlled delay.
    Codel(Codel),
    /// Controlled delay in queues by flow.
    FqCodel(Codel, FlowQueuesConfig),
    /// Proportional integral controller.
    Pie(Pie),
    /// The coupled controller of two queues, for L4S and classic traffic.
    DualPi2(DualPi2),
    /// Marks what finds more than this queued.
    Step(Amount),
    /// FCP's router.
    Fcp(FcpRouter),
    /// RCP's router.
    Rcp(RcpRouter),
    /// A queue for each class of traffic under a law of its own; first that of what is of none.
    ByClass(Vec<ClassLaw>),
    /// The caller's; no file names it.
    Own(OwnLink),
}

/// A class's queue on a link of the law `by-class`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassLaw {
    /// Its law.
    pub law: LinkLaw,
    /// Its weight among the queues.
    pub weight: f64,
}

impl LinkLaw {
    /// The law for traffic of `class`.
    pub fn of_class(&self, class: u8) -> &LinkLaw {
        match self {
            LinkLaw::ByClass(laws) => laws.get(usize::from(class)).map_or(self, |class| &class.law),
            law => law,
        }
    }
}

/// The constants of FCP's router (the FCP report, § 4.1, § 5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FcpRouter {
    /// α, the weight of the queue in the price.
    pub alpha: f64,
    /// Length of the averaging window in mean round-trip times.
    pub window: f64,
    /// Preloads count by the flow's own round-trip time, not as long as their packet.
    pub preload_by_flow: bool,
    /// What those who pay nothing take is measured.
    pub counts_unpaid: bool,
    /// The queue that is left alone, as the time it takes to send.
    pub target: Time,
    /// The part of a Newton step that is added to the price.
    pub newton: f64,
}

/// The constants of RCP's router (Dukkipati et al., IWQoS 2005).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RcpRouter {
    /// α, the share of the spare capacity given out a round trip.
    pub alpha: f64,
    /// β, the share of the queue taken back.
    pub beta: f64,
    /// γ, the part of the capacity aimed at.
    pub gamma: f64,
    /// Longest time between updates of the rate.
    pub max_interval: Time,
}

/// CoDel's constants (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Waiting time that a standing queue may have.
    pub target: Time,
    /// How long it may have more.
    pub interval: Time,
}

/// PIE's constants (RFC 8033).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pie {
    /// Queueing delay aimed at.
    pub target: Time,
    /// Time between updates of the probability.
    pub update: Time,
    /// Length of a burst that passes unharmed.
    pub burst: Time,
    /// Weight of the deviation from the target, 1/s.
    pub alpha: f64,
    /// Weight of the trend, 1/s.
    pub beta: f64,
    /// Probability over which packets are dropped even if they can be marked.
    pub mark_limit: f64,
}

/// DualPI2's constants (RFC 9332).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualPi2 {
    /// Delay of the classic queue aimed at.
    pub target: Time,
    /// Time between updates of the probability.
    pub update: Time,
    /// Weight of the deviation from the target, 1/s.
    pub alpha: f64,
    /// Weight of the trend, 1/s.
    pub beta: f64,
    /// How much likelier than the base probability a packet of L4S is marked.
    pub coupling: f64,
    /// Waiting time over which packets of L4S are marked.
    pub step: Time,
    /// Share of the capacity that the classic queue has for certain.
    pub classic_share: f64,
}

/// RED's constants (Floyd and Jacobson, 1993).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Mean queue under which nothing is signalled.
    pub min_threshold: Amount,
    /// Mean queue from which everything is (or, if gentle, from which the probability climbs to one).
    pub max_threshold: Amount,
    /// Signal probability at the upper threshold.
    pub max_probability: f64,
    /// Weight of a new sample in the mean queue.
    pub weight: f64,
    /// Climb from `max_probability` to one between the upper threshold and twice it.
    pub gentle: bool,
    /// What the probability is divided by for packets in profile (ERED).
    pub in_profile: f64,
}

/// An amount of queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// In packets.
    Packets(f64),
    /// In bytes on the wire.
    Bytes(f64),
}

/// The constants of XCP's router (draft-falk-xcp-spec-03 § 5; Katabi et al., SIGCOMM 2002).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xcp {
    /// α, the share of spare capacity given out an interval.
    pub alpha: f64,
    /// β, the share of the standing queue taken back.
    pub beta: f64,
    /// γ, the share of the traffic that is shuffled.
    pub gamma: f64,
    /// Longest control interval, and the longest RTT that counts.
    pub max_interval: Time,
    /// Shortest control interval.
    pub min_interval: Time,
    /// Which of the two published forms.
    pub form: XcpForm,
    /// What numbers the router reckons in.
    pub arithmetic: Arithmetic,
    /// Framing bytes that the law counts for each packet.
    pub overhead: u32,
    /// Its capacity is measured from departures, beginning with [`Link::capacity`].
    pub measured: bool,
    /// A second router that sees the same packets and is only compared; only beside floats.
    pub shadow: Option<Arithmetic>,
}

/// XCP's two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XcpForm {
    /// Changes of throughput (the Internet draft).
    Throughput,
    /// Changes of window (the paper of 2002 and the study).
    Window,
}

/// A router's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Doubles.
    Float,
    /// A 32-bit significand and a scale.
    Fixed32,
    /// 128-bit integers.
    Fixed128,
}

/// A class of traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// What links of the law `fcp` ask it for.
    pub pricing: Pricing,
    /// The word of the law that its queue is under on links of the law `by-class`.
    pub law: &'static str,
    /// The weight of that queue.
    pub weight: f64,
}

/// What a link of the law `fcp` asks a class of traffic for (the FCP report, § 4.2, § 4.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pricing {
    /// The link's own price.
    Standard,
    /// A price that moves by no more than twice in two mean round trips.
    Stable,
    /// The least price, within a part of the capacity.
    Deadline {
        /// That part.
        share: f64,
    },
    /// A multiple of the link's own price.
    Priority {
        /// How many times it.
        times: f64,
    },
    /// Its own currency.
    Group {
        /// Its weight among the groups with traffic.
        weight: f64,
    },
}

/// A half-duplex medium: one transmitter for all of its links, each at its own rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Medium {
    /// Its name.
    pub name: String,
    /// The links, both directions of each.
    pub links: Vec<LinkId>,
}
