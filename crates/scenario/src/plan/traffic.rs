//! What is sent, and where: flows, workloads, cross-traffic.

use super::*;

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
    /// Where flows or packets are divided among several routes: all of them.
    pub spread: Option<Box<Spread>>,
}

/// Routes of equal hops and delay between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Routes of data, one after the other, each as long as [`Path::route`], which is the first.
    pub routes: Vec<LinkId>,
    /// Routes of acknowledgements, likewise.
    pub backs: Vec<LinkId>,
}

impl Path {
    /// Links that data may cross.
    pub fn links(&self) -> &[LinkId] {
        self.spread.as_ref().map_or(&self.route, |spread| &spread.routes)
    }

    /// Links that acknowledgements may cross.
    pub fn back_links(&self) -> &[LinkId] {
        self.spread.as_ref().map_or(&self.back, |spread| &spread.backs)
    }

    /// Every route of data.
    pub fn routes(&self) -> impl ExactSizeIterator<Item = &[LinkId]> {
        self.links().chunks(self.route.len().max(1))
    }

    /// Every route of acknowledgements.
    pub fn backs(&self) -> impl ExactSizeIterator<Item = &[LinkId]> {
        self.back_links().chunks(self.back.len().max(1))
    }
}

/// How traffic is divided among routes of equal hops and delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EqualCost {
    /// All of it takes the route by the links that the file names first.
    #[default]
    First,
    /// Each flow takes one, chosen at each node by a hash (RFC 2992).
    Flow,
    /// Each packet takes one of its own.
    Packet,
    /// As `Packet`, but packets of one end that follow each other within this time take the same one.
    Flowlet(Time),
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
    /// When it begins; a time after the end of the flows of `after`, if there are such.
    pub start: Time,
    /// The flows that have ended before it begins.
    pub after: Option<Arc<[FlowId]>>,
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

/// What a flow has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// As much as goes through.
    Endless,
    /// So many bytes of payload.
    Bytes(u64),
    /// Frames.
    Frames {
        /// How many; `None` as many as go through.
        count: Option<u64>,
        /// Payload of each, bytes.
        size: u64,
    },
    /// What apps at its ends write.
    Messages,
}

impl Data {
    /// Payload in all, bytes; `None` if it has no end or is up to apps.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Data::Bytes(bytes) => Some(bytes),
            Data::Frames { count, size } => count.map(|count| count.saturating_mul(size)),
            Data::Endless | Data::Messages => None,
        }
    }

    /// Whether the flow sends as much as goes through.
    pub fn is_endless(self) -> bool {
        matches!(self, Data::Endless | Data::Frames { count: None, .. })
    }
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

impl Arrivals {
    /// The mean number of arrivals in `span`.
    pub(crate) fn expected(&self, span: Time) -> f64 {
        match *self {
            Arrivals::Poisson { per_sec } => span.as_secs_f64() * per_sec,
            Arrivals::Every(gap) => span.as_secs_f64() / gap.as_secs_f64(),
        }
    }
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
