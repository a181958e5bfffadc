//! How an XCP router is set up.

use serde::{Deserialize, Serialize};

use super::{Fixed128, Shift32, Xcp};
use crate::link::{AnyLink, Measured, Shadow};
use crate::{Bytes, Rate, Time};

/// The constants of an XCP router, and the factory of one.
///
/// Out-of-range values are pulled into range, never refused: spans to 1 µs … 1 h, the overhead to 1 MiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct XcpConfig {
    /// α, the share of the spare bandwidth handed out in an interval. 0.4 (SIGCOMM'02 § 3.5). Stable for one
    /// round-trip time below π/(4√2) = 0.555 with β = α²√2.
    pub alpha: f64,
    /// β, the share of the persistent queue drained in an interval. 0.226 (SIGCOMM'02; α²√2 = 0.22627 rounded).
    pub beta: f64,
    /// γ, the share of the traffic redistributed in every interval, for fairness. 0.1 (SIGCOMM'02).
    pub gamma: f64,
    /// What a packet's round-trip time counts at most. 1 s (draft § 5; ns-2.35).
    pub max_interval: Time,
    /// The shortest control interval. 1 ms (ns-2.35; the draft suggests 5 to 10 ms).
    pub min_interval: Time,
    /// The shortest queue interval: the time in which a queue may stand without counting. 2 ms (draft § 5).
    pub allowed_queue: Time,
    /// The length of both first intervals, and the round-trip time taken for one without packets that say theirs.
    /// 50 ms (ns-2.35).
    pub initial_interval: Time,
    /// When the first control interval ends, counted from the run's start. ns-2 draws it, so that its routers do
    /// not tick together; the default is the draw of the first router in its default stream, 63.8023 ms, so that runs
    /// compare. The rate of that first interval is still reckoned over `initial_interval`, as there.
    pub first_control: Time,
    /// When the first queue interval ends. 47.2859 ms, as above.
    pub first_queue: Time,
    /// Bytes a packet costs the link beside its size, as the router believes: they count in input traffic and in
    /// what a packet gives back. 0; the study's testbed is right at 90.
    pub overhead: Bytes,
    /// Which form of the algorithm. The draft's by default.
    pub form: Form,
    /// What it calculates in. Floats by default.
    pub arithmetic: Arithmetic,
    /// Where it has its capacity from. What it is told, by default.
    pub capacity: CapacityFrom,
}

/// Where a router has its capacity from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityFrom {
    /// It is told.
    #[default]
    Configuration,
    /// It measures how fast packets leave while others wait ([`Measured`]), beginning with what it is told.
    Departures,
}

/// The two published forms of the algorithm.
///
/// With X = RTT/cwnd and feedback as a change of throughput they differ only in the rate y of an interval's input.
/// SIGCOMM'02's per-packet feedback H = ξp·RTT²·s/cwnd − ξn·RTT·s in bytes is H/RTT = ξp·X − ξn·s in bytes/s, with the
/// same sums, and its pools decrease by H·d/RTT over an interval d, which again is H/RTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// draft-falk-xcp-spec-03 and ns-2.35: the input's rate is over the interval that has just ended.
    #[default]
    Throughput,
    /// SIGCOMM'02 and the study: the input's rate is over the mean round-trip time that the interval found.
    Window,
}

/// The router's number representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arithmetic {
    /// Doubles.
    #[default]
    Float,
    /// [`Shift32`]: no floats, 64-bit intermediates.
    Fixed32,
    /// [`Fixed128`]: no floats, the integer reference.
    Fixed128,
    /// Doubles, with [`Shift32`] calculating the same packets beside them and its deviation recorded ([`Shadow`]).
    Shadow32,
    /// Doubles, with [`Fixed128`] beside them.
    Shadow128,
}

impl XcpConfig {
    /// The router, for a link of `capacity` (as the router believes), at the run's start.
    pub fn build(&self, capacity: Rate) -> AnyLink {
        let law = self.build_told(capacity);
        match self.capacity {
            CapacityFrom::Configuration => law,
            CapacityFrom::Departures => {
                AnyLink::Measured(Box::new(Measured::new(law, capacity, self.overhead)))
            }
        }
    }

    fn build_told(&self, capacity: Rate) -> AnyLink {
        match self.arithmetic {
            Arithmetic::Float => AnyLink::Xcp(Box::new(Xcp::new(self, capacity))),
            Arithmetic::Fixed32 => AnyLink::Xcp32(Box::new(Xcp::<Shift32>::new(self, capacity))),
            Arithmetic::Fixed128 => AnyLink::Xcp128(Box::new(Xcp::<Fixed128>::new(self, capacity))),
            Arithmetic::Shadow32 => AnyLink::Shadow32(Box::new(Shadow::new(self, capacity))),
            Arithmetic::Shadow128 => AnyLink::Shadow128(Box::new(Shadow::new(self, capacity))),
        }
    }
}

impl Default for XcpConfig {
    fn default() -> XcpConfig {
        XcpConfig {
            alpha: 0.4,
            beta: 0.226,
            gamma: 0.1,
            max_interval: Time::from_secs(1),
            min_interval: Time::from_millis(1),
            allowed_queue: Time::from_millis(2),
            initial_interval: Time::from_millis(50),
            first_control: Time::from_nanos(63_802_300),
            first_queue: Time::from_nanos(47_285_900),
            overhead: Bytes(0),
            form: Form::Throughput,
            arithmetic: Arithmetic::Float,
            capacity: CapacityFrom::Configuration,
        }
    }
}
