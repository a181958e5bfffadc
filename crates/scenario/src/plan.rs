//! The resolved form of a scenario: plain data in law units, names turned into indices, no default left implicit.
//!
//! A [`Plan`] is one run: one variant of one file. Either engine is built from it without looking anything up:
//! routes are lists of link indices, limits are packets and bytes, `"2 BDP"` and `{ first, last }` are worked out.

use std::sync::Arc;

use tollway_law::link::ExchangeRate;
use tollway_law::meter::Duty;
use tollway_law::sender::{CheatTimes, FcpTrick};
use tollway_law::{Bytes, Rate, Time};
use tollway_proto::port::{FlowQueuesConfig, Limit};
use tollway_sim::Trace;

/// Index into [`Plan::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Index into [`Plan::links`]: one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Index into [`Plan::flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// Index into [`Plan::transports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(pub u32);

/// Index into [`Plan::media`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediumId(pub u32);

/// One run, complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The scenario's name.
    pub name: String,
    /// A line to print over results; the name if the file has none.
    pub title: String,
    /// Where the experiment comes from.
    pub source: Option<String>,
    /// What the scenario is about.
    pub description: Option<String>,
    /// The variant this is; `None` if the file has none.
    pub variant: Option<String>,
    /// How long to run.
    pub duration: Time,
    /// What every random choice of the run is drawn from.
    pub seed: u64,
    /// What is measured.
    pub measure: Measure,
    /// Every node, in the file's order, group members in theirs.
    pub nodes: Vec<Node>,
    /// Every direction of every link; the directions of a duplex link stand side by side, forward first.
    pub links: Vec<Link>,
    /// Half-duplex media.
    pub media: Vec<Medium>,
    /// Classes of traffic: class i + 1 of [`Transport::class`] stands at i.
    pub classes: Vec<Class>,
    /// Settings of transports, shared by the flows of one section.
    pub transports: Vec<Transport>,
    /// Every flow that is known beforehand.
    pub flows: Vec<Flow>,
    /// Flows with several receivers.
    pub trees: Vec<Tree>,
    /// Flows that come by chance.
    pub workloads: Vec<Workload>,
    /// Owners of budgets.
    pub hosts: Vec<Host>,
    /// Policies for aggregates of flows.
    pub aggregates: Vec<Aggregate>,
    /// Hosts that have any.
    pub shapers: Vec<Shaper>,
    /// Constant-rate cross-traffic.
    pub cbrs: Vec<Cbr>,
    /// What happens on the way, by time, in the file's order where times are equal.
    pub changes: Vec<Change>,
    /// Random loss beyond [`Link::loss`].
    pub losses: Vec<Loss>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Length of a row of the interval tables; `None` writes summaries only.
    pub interval: Option<Time>,
    /// What happens before this instant is left out of summaries.
    pub warmup: Time,
}

/// A host or a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `r`, or `s.3` for the third member of the group `s`.
    pub name: String,
}

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
    /// The link's law.
    pub law: LinkLaw,
    /// The half-duplex medium that it shares.
    pub medium: Option<MediumId>,
    /// Probability that a packet is lost on the wire.
    pub loss: f64,
    /// The meter at its far end; only of a link that has a way back.
    pub meter: Option<Meter>,
    /// The border at its far end; only of a link that has a way back and no meter.
    pub exchange: Option<ExchangeRate>,
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

/// How a flow's ends behave.
#[derive(Clone, Debug, PartialEq)]
pub struct Transport {
    /// The sender's law.
    pub law: SenderLaw,
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
    /// The retransmission timer.
    pub rto: Rto,
    /// The class of traffic that its packets belong to, counted from 1; 0 is none.
    pub class: u8,
    /// The flow's weight in theory's ideal allocation, and among those of its host.
    pub weight: f64,
}

/// A sender's law.
#[derive(Clone, Copy, Debug, PartialEq)]
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

/// An owner of a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// What its flows may spend together, $/s.
    pub budget: f64,
    /// How it divides that.
    pub strategy: Strategy,
    /// Its flows.
    pub flows: Vec<FlowId>,
    /// Its workloads, indices into [`Plan::workloads`].
    pub workloads: Vec<usize>,
}

/// A policy for the flows that its filter matches, together (the aggregates paper, § 2 to § 6).
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// Its name.
    pub name: String,
    /// r.
    pub rate: Rate,
    /// B.
    pub depth: Bytes,
    /// p.
    pub peak: Option<Rate>,
    /// L, bytes.
    pub largest: Option<u32>,
    /// How tokens are shared.
    pub scheme: AggregateScheme,
    /// Partitions have depths by round trip, not equal ones.
    pub by_rtt: bool,
    /// Who goes first.
    pub order: AggregateOrder,
    /// What is done to packets that don't conform.
    pub action: AggregateAction,
    /// Packets of cross-traffic that may wait, of each source.
    pub queue: u32,
    /// How windows grow.
    pub window: WindowIncrease,
    /// In force from this instant.
    pub install: Time,
    /// Until this one; [`Time::NEVER`] for good.
    pub remove: Time,
}

/// How tokens are shared (the aggregates paper, § 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateScheme {
    /// A bucket each.
    Partitioned,
    /// One for whoever comes.
    Common,
    /// One with a partition each.
    Logical,
}

/// Who of those that wait goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateOrder {
    /// Who came first of all.
    Sequential,
    /// Who has waited longest.
    Fcfs,
    /// Whose last packet is longest ago.
    Lru,
}

/// What is done to a packet that doesn't conform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateAction {
    /// It waits.
    Shape,
    /// It goes unmarked.
    Mark,
    /// It is dropped.
    Drop,
}

/// How windows under a policy grow a round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowIncrease {
    /// As their law has it.
    Standard,
    /// By rtt²/rtt_av².
    AggregateFair,
    /// By `k` packets from a round trip on.
    ByK {
        /// Packets.
        k: f64,
        /// From this round trip on.
        long: Time,
    },
}

/// A host with policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// The host.
    pub node: NodeId,
    /// Period of its timer.
    pub timer: Time,
    /// Each flow that waits has one instead.
    pub flow_timers: bool,
    /// For each kind of flow that policies tell apart, those that are for it, indices into [`Plan::aggregates`], the most
    /// specific first.
    pub classes: Vec<Vec<usize>>,
}

/// Where a flow asks before it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Index into [`Plan::shapers`].
    pub shaper: usize,
    /// Index into its classes.
    pub class: u32,
}

/// How a budget is divided (the FCP report, § 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By weight.
    EqualBudget,
    /// Each its weight's part, whoever is there.
    Fixed,
    /// A ten-thousandth, by weight.
    Background,
    /// The same rate for all.
    EqualThroughput,
    /// The most in all.
    MaxThroughput,
    /// Steady rates for those that want one.
    Stable,
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
    /// Its word in scenario files and result tables.
    pub const fn name(&self) -> &'static str {
        match self {
            SenderLaw::NewReno => "newreno",
            SenderLaw::Cubic => "cubic",
            SenderLaw::Dctcp => "dctcp",
            SenderLaw::Bbr => "bbr",
            SenderLaw::Xcp(_) => "xcp",
            SenderLaw::Fcp(_) => "fcp",
            SenderLaw::Rcp => "rcp",
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

/// The way between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where data come from.
    pub from: NodeId,
    /// Where they go.
    pub to: NodeId,
    /// Links that data cross, in order.
    pub route: Vec<LinkId>,
    /// Links that acknowledgements cross, in order.
    pub back: Vec<LinkId>,
    /// Propagation there and back.
    pub base_rtt: Time,
}

/// A flow that is known beforehand.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// `f`, or `f.3` for the third flow of a section that makes several.
    pub name: String,
    /// The section of the file it comes from.
    pub section: Arc<str>,
    /// Where it runs.
    pub path: Path,
    /// How its ends behave.
    pub transport: TransportId,
    /// When it begins.
    pub start: Time,
    /// When its application stops; [`Time::NEVER`] if it does not.
    pub stop: Time,
    /// What there is to send.
    pub data: Data,
    /// The receiver's buffer, full packets, at least one; `u32::MAX` is no limit.
    pub receive_buffer: u32,
    /// The sender's buffer, likewise.
    pub send_buffer: u32,
    /// Where it asks before it sends, if any policy is for it.
    pub gate: Option<Gate>,
}

/// One sender and several receivers: a flow of [`Plan::flows`] for each receiver, one after the other, of which the first's
/// sender is the only one. Its packets are copied where the flows' routes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The first of the flows.
    pub first: FlowId,
    /// How many there are.
    pub count: u32,
}

impl Tree {
    /// Its flows.
    pub fn flows(&self) -> std::ops::Range<usize> {
        self.first.0 as usize..(self.first.0 + self.count) as usize
    }
}

impl Plan {
    /// The flow whose sender sends what `flow` receives: itself, but for a receiver of a [`Tree`].
    pub fn sender_of(&self, flow: usize) -> usize {
        self.trees
            .iter()
            .map(Tree::flows)
            .find(|flows| flows.contains(&flow))
            .map_or(flow, |flows| flows.start)
    }
}

/// What a flow has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// As much as goes through.
    Endless,
    /// So many bytes of payload.
    Bytes(u64),
    /// Frames.
    Frames {
        /// How many.
        count: u64,
        /// Payload of each, bytes.
        size: u64,
    },
}

/// Flows that come by chance: each arrival takes one of the paths, all equally likely.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Where its flows may run.
    pub paths: Vec<Path>,
    /// How their ends behave.
    pub transport: TransportId,
    /// When flows come.
    pub arrivals: Arrivals,
    /// How much each sends.
    pub sizes: Sizes,
    /// First instant of an arrival.
    pub start: Time,
    /// Last one; [`Time::NEVER`] if there is none.
    pub stop: Time,
    /// Flows that come at most.
    pub max_flows: u64,
    /// Receive buffer of each flow, as in [`Flow`], one a path.
    pub receive_buffers: Vec<u32>,
    /// Send buffer of each flow, as in [`Flow`], one a path.
    pub send_buffers: Vec<u32>,
    /// As in [`Flow`], one a path; empty if there are no policies.
    pub gates: Vec<Option<Gate>>,
}

/// When flows come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// A Poisson process.
    Poisson {
        /// Mean arrivals a second, over all paths.
        per_sec: f64,
    },
    /// One every so often.
    Every(Time),
}

/// How much a flow sends, in bytes of payload.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Always the same.
    Fixed(u64),
    /// Exponential.
    Exponential {
        /// Mean, bytes.
        mean: f64,
    },
    /// Pareto.
    Pareto {
        /// Mean, bytes.
        mean: f64,
        /// Shape, over one.
        shape: f64,
    },
    /// A cumulative distribution, sizes between its points interpolated.
    Empirical(Vec<CdfPoint>),
}

/// A point of a cumulative distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CdfPoint {
    /// Bytes.
    pub size: f64,
    /// Probability of this size or less; the last point's is 1.
    pub cumulative: f64,
}

/// Constant-rate cross-traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Cbr {
    /// `c`, or `c.3`.
    pub name: String,
    /// The section of the file it comes from.
    pub section: Arc<str>,
    /// Where it comes from.
    pub from: NodeId,
    /// Where it goes.
    pub to: NodeId,
    /// Links it crosses.
    pub route: Vec<LinkId>,
    /// While it sends, on the wire without framing.
    pub rate: Rate,
    /// Bytes on the wire without framing.
    pub packet_size: u16,
    /// When it begins.
    pub start: Time,
    /// When it ends; [`Time::NEVER`] if it does not.
    pub stop: Time,
    /// It sends for the first span, is silent for the second, and so on; `None` always sends.
    pub on_off: Option<(Time, Time)>,
    /// As in [`Flow`].
    pub gate: Option<Gate>,
}

/// Something that happens on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A link gets another rate.
    Rate(LinkId, Rate),
    /// A link gets another delay, for packets that leave from now on.
    Delay(LinkId, Time),
    /// A link gets another probability of loss.
    Loss(LinkId, f64),
    /// A link's law is told another capacity.
    Capacity(LinkId, Rate),
    /// A link's queue gets another limit.
    Limit(LinkId, Limit),
    /// Until the given instant everything put on this wire is lost.
    Blackout(LinkId, Time),
    /// The law of a link is wrong by this part of its price.
    PriceError(LinkId, f64),
    /// A flow without a host may spend so much, $/s.
    FlowBudget(FlowId, f64),
    /// A host, by its index, may spend so much, $/s.
    HostBudget(usize, f64),
    /// A host, by its index, divides its budget otherwise.
    HostStrategy(usize, Strategy),
    /// A flow's receiver gets another buffer, packets as in [`Flow::receive_buffer`].
    ReceiveBuffer(FlowId, u32),
}

/// Random loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Where.
    pub link: LinkId,
    /// How likely.
    pub probability: f64,
    /// On which side of the port.
    pub place: Place,
    /// From this instant.
    pub from: Time,
    /// Until this one; [`Time::NEVER`] for good.
    pub until: Time,
    /// Which packets.
    pub only: Only,
}

/// On which side of a port packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the queue and its law see them.
    Before,
    /// On the wire.
    After,
}

/// Which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Any.
    All,
    /// Those with data.
    Data,
    /// Those without.
    Ack,
}
