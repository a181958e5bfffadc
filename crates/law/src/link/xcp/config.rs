//! The configuration of an XCP router.

use super::{Fixed128, Shift32, Xcp};
use crate::link::{AnyLink, Descriptor, Gains, LinkConfig, Measured, Misfit, Placement, Shadow};
use crate::param::{Kind, OVERHEAD, PROBABILITY, SPAN, Tabled};
use crate::toll::Content;
use crate::{Aim, Bytes, Rate, Time, config, words};

config! {
    /// The constants of an XCP router, and its factory.
    ///
    /// Values out of range are clamped: spans to 1 µs … 1 h, the overhead to 1 MiB.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct XcpConfig in "xcp", "The constants of XCP's router (draft-falk-xcp-spec-03, § 5)." {
        /// α: share of the spare capacity given out in an interval.
        alpha: f64 = 0.4, Kind::Over { over: 0.0, most: 10.0 },
            from "SIGCOMM'02 § 3.5; stable for one round-trip time below π/(4√2) with β = α²√2";
        /// β: share of the standing queue taken back.
        beta: f64 = 0.226, Kind::Number { least: 0.0, most: 10.0 }, from "SIGCOMM'02: α²√2, rounded";
        /// γ: share of the traffic that is shuffled between flows.
        gamma: f64 = 0.1, PROBABILITY, from "SIGCOMM'02";
        /// Longest control interval, and the longest RTT that counts.
        max_interval: Time = Time::from_secs(1), SPAN, from "draft § 5; ns-2.35";
        /// Shortest control interval (ns-2 has 1 ms, the draft 5 to 10).
        min_interval: Time = Time::from_millis(1), SPAN, from "ns-2.35";
        /// The draft's form, or the first paper's.
        form: Form = Form::Throughput, Kind::Word(Form::WORDS);
        /// The number representation of the router.
        arithmetic: Arithmetic = Arithmetic::Float, Kind::Word(Arithmetic::WORDS);
        /// The source of the law's capacity: the link's `capacity`, or the rate of departures while
        /// others wait, starting from it.
        capacity: CapacityFrom = CapacityFrom::Configured, Kind::Word(CapacityFrom::WORDS);
        /// Framing that the law counts for each packet.
        overhead: Option<Bytes> = None, OVERHEAD, else "the link's";
        /// With `float`: runs a second router on the same packets, in this arithmetic, and reports
        /// how far the two differ.
        shadow: Beside = Beside::None, Kind::Word(Beside::WORDS);
        fixed {
            /// The shortest queue interval: the time in which a queue may stand without counting
            /// (draft § 5).
            allowed_queue: Time = Time::from_millis(2);
            /// The length of both first intervals, and the round-trip time of an interval without
            /// packets that state theirs (ns-2.35).
            initial_interval: Time = Time::from_millis(50);
            /// End of the first control interval, from the run's start. ns-2 draws it, so that its
            /// routers are not synchronised. The default is the draw of the first router in its
            /// default stream, so that runs compare. The rate of that first interval is still
            /// computed over `initial_interval`, as there.
            first_control: Time = Time::from_nanos(63_802_300);
            /// End of the first queue interval, likewise.
            first_queue: Time = Time::from_nanos(47_285_900);
        }
    }
}

words! {
    /// The source of a router's capacity.
    pub enum CapacityFrom {
        /// The configured value.
        Configured = "configured",
        /// The rate of departures while others wait ([`Measured`]), starting from the configured
        /// value.
        Measured = "measured",
    }
}

words! {
    /// The two published forms of the algorithm.
    ///
    /// With X = RTT/cwnd and feedback as a change of throughput, they differ only in the rate y of
    /// an interval's input. SIGCOMM'02's per-packet feedback H = ξp·RTT²·s/cwnd − ξn·RTT·s in bytes
    /// is H/RTT = ξp·X − ξn·s in bytes/s, with the same sums. Its pools decrease by H·d/RTT over an
    /// interval d, which is again H/RTT.
    pub enum Form {
        /// draft-falk-xcp-spec-03 and ns-2.35: the input's rate is over the interval that has just
        /// ended.
        Throughput = "throughput",
        /// SIGCOMM'02 and the study: the input's rate is over the mean round-trip time that the
        /// interval found.
        Window = "window",
    }
}

words! {
    /// The router's number representation.
    pub enum Arithmetic {
        /// Doubles.
        Float = "float",
        /// [`Shift32`]: no floats, 64-bit intermediates.
        Fixed32 = "fixed32",
        /// [`Fixed128`]: no floats, the integer reference.
        Fixed128 = "fixed128",
    }
}

words! {
    /// The arithmetic that runs beside doubles on the same packets ([`Shadow`]).
    pub enum Beside {
        /// No second arithmetic.
        None = "none",
        /// [`Shift32`].
        Fixed32 = "fixed32",
        /// [`Fixed128`].
        Fixed128 = "fixed128",
    }
}

impl LinkConfig for XcpConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor {
            gives: Some(Content::Feedback),
            aim: Some(Aim::XcpEquilibrium),
            gains: Some(Gains {
                alpha: self.alpha,
                gamma: self.gamma,
                min_interval: self.min_interval,
                max_interval: self.max_interval,
            }),
            ..Descriptor::default()
        }
    }

    fn check(&self, _: &Placement<'_>) -> Result<(), Misfit> {
        if self.shadow == Beside::None || self.arithmetic == Arithmetic::Float {
            return Ok(());
        }
        Err(Misfit {
            field: "shadow",
            message: "`shadow` needs floating-point arithmetic".into(),
            label: "with another arithmetic",
            help: "leave out `arithmetic`",
        })
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        XcpConfig { overhead: self.overhead.or(Some(at.overhead)), ..*self }.build(at.capacity)
    }
}

impl XcpConfig {
    /// Builds the router for a link configured as `capacity`, at the start of a run.
    pub fn build(&self, capacity: Rate) -> AnyLink {
        let law = self.build_told(capacity);
        match self.capacity {
            CapacityFrom::Configured => law,
            CapacityFrom::Measured => {
                let overhead = self.overhead.unwrap_or_default();
                AnyLink::Measured(Box::new(Measured::new(law, capacity, overhead)))
            }
        }
    }

    fn build_told(&self, capacity: Rate) -> AnyLink {
        match (self.arithmetic, self.shadow) {
            (Arithmetic::Float, Beside::Fixed32) => AnyLink::Shadow32(Box::new(Shadow::new(self, capacity))),
            (Arithmetic::Float, Beside::Fixed128) => {
                AnyLink::Shadow128(Box::new(Shadow::new(self, capacity)))
            }
            (Arithmetic::Float, Beside::None) => AnyLink::Xcp(Box::new(Xcp::new(self, capacity))),
            (Arithmetic::Fixed32, _) => AnyLink::Xcp32(Box::new(Xcp::<Shift32>::new(self, capacity))),
            (Arithmetic::Fixed128, _) => AnyLink::Xcp128(Box::new(Xcp::<Fixed128>::new(self, capacity))),
        }
    }
}
