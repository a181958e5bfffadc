//! Traffic: flows, workloads, constant-rate cross-traffic, with their paths.

use smallvec::SmallVec;

use super::*;

/// Links in order; up to four take no memory of their own.
pub type Route = SmallVec<[LinkId; 4]>;

/// A path between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Source node.
    pub from: NodeId,
    /// Destination node.
    pub to: NodeId,
    /// Links that data cross, in order.
    pub route: Route,
    /// Links that acknowledgements cross, in order.
    pub back: Route,
    /// Round-trip propagation delay, without queueing and transmission.
    pub base_rtt: Time,
    /// All routes, if flows or packets are divided among several.
    pub spread: Option<Box<Spread>>,
}

/// Routes of equal hops and delay between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Routes of data, concatenated. Each is as long as [`Path::route`], which is the first.
    pub routes: Vec<LinkId>,
    /// Routes of acknowledgements, concatenated. Each is as long as [`Path::back`], which is the
    /// first.
    pub backs: Vec<LinkId>,
}

impl Path {
    /// Links that data may cross.
    pub fn links(&self) -> &[LinkId] {
        self.spread.as_ref().map_or(&self.route[..], |spread| &spread.routes)
    }

    /// Links that acknowledgements may cross.
    pub fn back_links(&self) -> &[LinkId] {
        self.spread.as_ref().map_or(&self.back[..], |spread| &spread.backs)
    }

    /// All routes of data.
    pub fn routes(&self) -> impl ExactSizeIterator<Item = &[LinkId]> {
        self.links().chunks(self.route.len().max(1))
    }

    /// All routes of acknowledgements.
    pub fn backs(&self) -> impl ExactSizeIterator<Item = &[LinkId]> {
        self.back_links().chunks(self.back.len().max(1))
    }
}

/// The division of traffic among routes of equal hops and delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EqualCost {
    /// All traffic takes one route: at each node, the first link in the file's order.
    #[default]
    First,
    /// Each flow takes one route, chosen at each node by a hash (RFC 2992).
    Flow,
    /// Each packet takes its own route.
    Packet,
    /// As `Packet`, but packets of one end within this time of each other take the same route.
    Flowlet(Time),
}

/// A flow of a `[flow.NAME]` section.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// `f`, or `f.3` for the third flow of a section that makes several.
    pub name: CompactString,
    /// The section of the file.
    pub section: Arc<str>,
    /// The flow's path.
    pub path: Path,
    /// Settings of its ends.
    pub transport: TransportId,
    /// Start of the flow. With `after`: a delay from the end of those flows.
    pub start: Time,
    /// The flows that must end before this one starts.
    pub after: Option<Arc<[FlowId]>>,
    /// Time at which the application stops; [`Time::NEVER`] if it does not.
    pub stop: Time,
    /// The data to send.
    pub data: Data,
    /// The receiver's buffer in full packets, at least one; `u32::MAX` is no limit.
    pub receive_buffer: u32,
    /// The sender's buffer in full packets, at least one; `u32::MAX` is no limit.
    pub send_buffer: u32,
    /// The shaper and class of the flow's packets, if a policy applies to the flow.
    pub shaped: Option<ShaperClass>,
}

/// One sender with several receivers.
///
/// It occupies consecutive entries of [`Plan::flows`], one for each receiver. Only the first
/// entry's sender sends. Its packets are copied where the flows' routes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The first of the flows.
    pub first: FlowId,
    /// Number of flows, which is the number of receivers.
    pub count: u32,
}

impl Tree {
    /// The flows, as a range of indices into [`Plan::flows`].
    pub fn flows(&self) -> std::ops::Range<usize> {
        self.first.0 as usize..(self.first.0 + self.count) as usize
    }
}

/// The data that a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Data without end.
    Endless,
    /// A number of bytes of payload.
    Bytes(u64),
    /// Frames.
    Frames {
        /// Number of frames; `None` is without end.
        count: Option<u64>,
        /// Payload of a frame, bytes.
        size: u64,
    },
    /// The messages of apps at its ends.
    Messages,
}

impl Data {
    /// Total payload, bytes; `None` if it is endless or if apps write it.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Data::Bytes(bytes) => Some(bytes),
            Data::Frames { count, size } => count.map(|count| count.saturating_mul(size)),
            Data::Endless | Data::Messages => None,
        }
    }

    /// Returns true if the flow sends without end.
    pub fn is_endless(self) -> bool {
        matches!(self, Data::Endless | Data::Frames { count: None, .. })
    }
}

/// Flows that arrive at random. Each arrival takes one of the paths with equal probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Possible paths of its flows.
    pub paths: Vec<Path>,
    /// Settings of its flows' ends.
    pub transport: TransportId,
    /// The arrival process.
    pub arrivals: Arrivals,
    /// The distribution of flow sizes.
    pub sizes: Sizes,
    /// Earliest arrival.
    pub start: Time,
    /// Time from which no flow arrives; [`Time::NEVER`] for no such time.
    pub stop: Time,
    /// Largest number of flows.
    pub max_flows: u64,
    /// Receive buffer of each flow, by path, as in [`Flow::receive_buffer`].
    pub receive_buffers: Vec<u32>,
    /// Send buffer of each flow, by path, as in [`Flow::send_buffer`].
    pub send_buffers: Vec<u32>,
    /// Shaper and class of each flow, by path, as in [`Flow::shaped`]; empty without policies.
    pub shaped: Vec<Option<ShaperClass>>,
}

/// The arrival process of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// A Poisson process.
    Poisson {
        /// Mean arrivals a second, over all paths.
        per_sec: f64,
    },
    /// Arrivals at a constant interval.
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

/// The distribution of flow sizes, in bytes of payload.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All flows have one size.
    Fixed(u64),
    /// An exponential distribution.
    Exponential {
        /// Mean, bytes.
        mean: f64,
    },
    /// A Pareto distribution.
    Pareto {
        /// Mean, bytes.
        mean: f64,
        /// Shape, above 1.
        shape: f64,
    },
    /// A cumulative distribution; sizes between its points are interpolated.
    Empirical(Vec<CdfPoint>),
}

/// A point of a cumulative distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CdfPoint {
    /// Size, bytes.
    pub size: f64,
    /// Probability of this size or less; the last point's is 1.
    pub cumulative: f64,
}

/// Constant-rate cross-traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Cbr {
    /// `c`, or `c.3` for the third source of a section.
    pub name: CompactString,
    /// The section of the file.
    pub section: Arc<str>,
    /// Source node.
    pub from: NodeId,
    /// Destination node.
    pub to: NodeId,
    /// Links of the route, in order.
    pub route: Vec<LinkId>,
    /// Rate while on; sizes on the wire without framing.
    pub rate: Rate,
    /// Size of a packet on the wire without framing, bytes.
    pub packet_size: u16,
    /// Start of the source.
    pub start: Time,
    /// End of the source; [`Time::NEVER`] if it does not end.
    pub stop: Time,
    /// Lengths of the on and off periods, on first; `None` is always on.
    pub on_off: Option<(Time, Time)>,
    /// One-way delay beyond which a packet counts as late.
    pub late: Option<Time>,
    /// As [`Flow::shaped`].
    pub shaped: Option<ShaperClass>,
}
