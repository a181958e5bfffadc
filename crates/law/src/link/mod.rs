//! Link laws: the toll or signal of an output port to the packets that pass it.
//!
//! A port (in `tollway-proto`) offers each packet to its law twice: on arrival, before the check
//! for room, and on departure from the queue to the transmitter. The backlog does not change
//! between calls for different packets. So a law with control intervals catches up on those that
//! ended since the last call, each at its exact instant, and needs no timer. (The XCP study calls
//! this "delayed computation"; here it is exact.)

mod avq;
mod codel;
mod config;
mod custom;
mod dualpi2;
pub mod fcp;
mod measured;
mod pie;
pub(crate) mod random;
mod rcp;
mod red;
mod shadow;
mod shared;
mod step;
pub mod xcp;

pub use avq::{Avq, AvqConfig};
pub use codel::{Codel, CodelConfig};
pub use config::{Descriptor, Failure, Gains, Limit, LinkConfig, Misfit, Placement, ThresholdUnit, entry};
pub use custom::CustomLink;
pub use dualpi2::{DualPi2, DualPi2Config};
pub(crate) use fcp::turn;
pub use fcp::{Exchange, ExchangeRate, Fcp, FcpConfig, PreloadSpan, Pricing, Unpaid};
pub use measured::Measured;
pub use pie::{Pie, PieConfig};
pub use rcp::{Rcp, RcpConfig};
pub use red::{Red, RedConfig, Spacing};
pub use shadow::{Deviation, Shadow};
pub use shared::{Shared, SharedConfig};
pub use step::{Step, StepConfig};
pub use xcp::{Xcp, XcpConfig};

use std::sync::Arc;

use crate::param::{Entry, Tables, words_of};
use crate::{Kind, Price, Rate, Time, Toll};
use xcp::{Fixed128, Shift32};

/// Every law that a scenario file may name. A new law is a file, and a line here.
pub const LAWS: &[Entry<dyn LinkConfig>] = &[
    DropTail::ENTRY,
    entry::<RedConfig>(),
    entry::<XcpConfig>(),
    entry::<CodelConfig>(),
    entry::<PieConfig>(),
    entry::<StepConfig>(),
    entry::<FcpConfig>(),
    entry::<RcpConfig>(),
    entry::<AvqConfig>(),
];

/// Reads the config of the law `word`, which is one of [`WORDS`]; drop-tail for any other.
pub fn read(word: &str, tables: &dyn Tables) -> Arc<dyn LinkConfig> {
    (LAWS.iter().find(|law| law.word == word).unwrap_or(&LAWS[0]).read)(tables)
}

/// The words of all laws.
pub const WORDS: &[&str] = &words_of::<_, { LAWS.len() }>(LAWS);

/// A packet and the queue around it, as a law sees them.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// Bytes on the wire without the link's framing.
    pub size: u32,
    /// The kind of toll that the packet carries, if any.
    pub kind: Kind,
    /// Class of traffic, for laws with classes; 0 is traffic without a class.
    pub class: u8,
    /// True if the packet may be marked instead of dropped (ECN-capable, RFC 3168).
    pub ect: bool,
    /// True if the packet belongs to a scalable sender (ECT(1) or CE, RFC 9331 § 5.1).
    pub l4s: bool,
    /// True if its host marked it as in profile (ERED drops those less).
    pub in_profile: bool,
    /// Packets in the queue: without the one in transmission, without an arriving one, with a
    /// departing one.
    pub backlog_packets: u32,
    /// The same in bytes.
    pub backlog_bytes: u64,
    /// Queueing time of the packet, zero on arrival.
    pub waited: Time,
}

impl Passing {
    /// A packet of `size` bytes that finds the given packets and bytes queued. It has no class, may
    /// not be marked, and has not waited.
    #[inline]
    pub fn of(kind: Kind, size: u32, backlog_packets: u32, backlog_bytes: u64) -> Passing {
        Passing {
            size,
            kind,
            class: 0,
            ect: false,
            l4s: false,
            in_profile: false,
            backlog_packets,
            backlog_bytes,
            waited: Time::ZERO,
        }
    }
}

/// A law's decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet passes.
    Pass,
    /// The sender is to be signalled: mark the packet if possible, otherwise drop it.
    Signal,
    /// The packet is dropped.
    Drop,
}

/// The state of a law's present control interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// The aggregate feedback of the previous interval, bytes/s.
    pub feedback: f64,
    /// The mean round-trip time, s.
    pub avg_rtt: f64,
    /// The persistent queue, bytes.
    pub persistent_queue: u64,
    /// Start of the interval.
    pub begins: Time,
    /// End of the interval.
    pub ends: Time,
}

/// A link's law. Every method is on the path of every packet: no allocation, no hashing.
///
/// Two methods are required. A law that depends on the link's capacity also implements
/// [`set_capacity`](LinkLaw::set_capacity). [`AnyLink::custom`] puts any law on a link.
pub trait LinkLaw {
    /// Handles the arrival of a packet at the port, including one that then finds no room.
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict;

    /// Handles the departure of a packet from the queue to the transmitter, and writes into its
    /// toll.
    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict;

    /// Handles a packet that passes at once, since the queue is empty and the transmitter free.
    ///
    /// Equals [`on_arrival`](LinkLaw::on_arrival) followed by
    /// [`on_departure`](LinkLaw::on_departure). A packet that is signalled but may not be marked is
    /// dropped.
    #[inline]
    fn on_passage(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        let refused = |verdict| verdict == Verdict::Drop || verdict == Verdict::Signal && !packet.ect;
        let arrival = self.on_arrival(now, packet, toll);
        if refused(arrival) {
            return Verdict::Drop;
        }
        let leaving = Passing { backlog_packets: 1, backlog_bytes: u64::from(packet.size), ..packet };
        let departure = self.on_departure(now, leaving, toll);
        if refused(departure) {
            return Verdict::Drop;
        }
        if departure == Verdict::Signal { departure } else { arrival }
    }

    /// Changes the link's capacity, as configured for the law.
    fn set_capacity(&mut self, _now: Time, _capacity: Rate) {}

    /// States the round trip of the packets, where the law is a queue's of one flow or host.
    fn set_round_trip(&mut self, _rtt: Time) {}

    /// Sets a relative error of the stated toll, for experiments. No effect on laws without tolls.
    fn set_error(&mut self, _part: f64) {}

    /// The present control interval as of the last packet; `None` for a law without intervals.
    fn control(&self) -> Option<Control> {
        None
    }

    /// Number of control intervals that ended up to the last packet.
    fn control_intervals(&self) -> u64 {
        0
    }

    /// The price that the law states, if it states prices.
    fn stated_price(&self) -> Option<Price> {
        None
    }

    /// The deviation of a second arithmetic, if one runs beside the first.
    fn deviation(&self) -> Option<Deviation> {
        None
    }

    /// True if the law lets every packet pass unchanged and keeps no state, so calls may be left
    /// out.
    #[inline]
    fn is_silent(&self) -> bool {
        false
    }

    /// True if the law never signals or drops, and reads only a packet's size, kind, class and
    /// toll, and the content of the queue.
    #[inline]
    fn is_gentle(&self) -> bool {
        false
    }
}

/// No law: the port drops packets that do not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropTail;

impl DropTail {
    /// Drop-tail's entry in the registry.
    pub const ENTRY: Entry<dyn LinkConfig> =
        Entry { word: "drop-tail", tables: &[], read: |_| Arc::new(DropTail) };
}

impl LinkConfig for DropTail {
    fn word(&self) -> &str {
        "drop-tail"
    }

    fn place(&self, _: &Placement<'_>) -> AnyLink {
        AnyLink::DropTail(DropTail)
    }
}

impl LinkLaw for DropTail {
    #[inline]
    fn on_arrival(&mut self, _: Time, _: Passing, _: &Toll) -> Verdict {
        Verdict::Pass
    }

    #[inline]
    fn on_departure(&mut self, _: Time, _: Passing, _: &mut Toll) -> Verdict {
        Verdict::Pass
    }

    #[inline]
    fn is_silent(&self) -> bool {
        true
    }
}

/// Any link law; dispatch is one predictable branch.
///
/// Laws with state are boxed. A large network has hundreds of thousands of ports with drop-tail;
/// each of them then carries 16 bytes for its law. A law with state has that state in one piece of
/// memory.
#[derive(Clone, Debug)]
pub enum AnyLink {
    /// [`DropTail`].
    DropTail(DropTail),
    /// [`Red`].
    Red(Box<Red>),
    /// [`Codel`].
    Codel(Box<Codel>),
    /// [`Pie`].
    Pie(Box<Pie>),
    /// [`Step`].
    Step(Box<Step>),
    /// [`Fcp`].
    Fcp(Box<Fcp>),
    /// [`Rcp`].
    Rcp(Box<Rcp>),
    /// [`Xcp`] in floats.
    Xcp(Box<Xcp<f64>>),
    /// [`Xcp`] with a 32-bit significand, without floats.
    Xcp32(Box<Xcp<Shift32>>),
    /// [`Xcp`] in 128-bit fixed point, without floats.
    Xcp128(Box<Xcp<Fixed128>>),
    /// [`Xcp`] in floats, compared with the 32-bit significand.
    Shadow32(Box<Shadow<Shift32>>),
    /// [`Xcp`] in floats, compared with 128-bit fixed point.
    Shadow128(Box<Shadow<Fixed128>>),
    /// One of the five variants before, with a measured capacity.
    Measured(Box<Measured>),
    /// Several laws, one per class of traffic.
    Shared(Box<Shared>),
    /// A law from outside this crate, at the cost of a call through two pointers.
    Custom(Box<CustomLink>),
}

const _: () = assert!(size_of::<AnyLink>() == 16);

impl AnyLink {
    /// Puts a law from outside this crate on a link. Queues by flow get a clone each.
    pub fn custom(law: impl LinkLaw + Clone + Send + 'static) -> AnyLink {
        AnyLink::Custom(Box::new(CustomLink::new(law)))
    }

    /// The law from outside this crate, if it is of this type.
    pub fn as_custom<L: 'static>(&self) -> Option<&L> {
        match self {
            AnyLink::Custom(law) => law.get(),
            _ => None,
        }
    }
}

/// Evaluates one expression for the law of any variant.
macro_rules! each {
    ($any:expr, $law:ident => $then:expr) => {
        match $any {
            AnyLink::DropTail($law) => $then,
            AnyLink::Red($law) => $then,
            AnyLink::Codel($law) => $then,
            AnyLink::Pie($law) => $then,
            AnyLink::Step($law) => $then,
            AnyLink::Fcp($law) => $then,
            AnyLink::Rcp($law) => $then,
            AnyLink::Xcp($law) => $then,
            AnyLink::Xcp32($law) => $then,
            AnyLink::Xcp128($law) => $then,
            AnyLink::Shadow32($law) => $then,
            AnyLink::Shadow128($law) => $then,
            AnyLink::Measured($law) => $then,
            AnyLink::Shared($law) => $then,
            AnyLink::Custom($law) => $then,
        }
    };
}

impl LinkLaw for AnyLink {
    // Most links of a network are drop-tail, and explicit laws are what simulations are about: that
    // much is inlined, with what of `packet` they look at. What the others do is a call away.
    #[inline(always)]
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        match self {
            AnyLink::DropTail(law) => law.on_arrival(now, packet, toll),
            AnyLink::Xcp(law) => law.on_arrival(now, packet, toll),
            AnyLink::Fcp(law) => law.on_arrival(now, packet, toll),
            other => other.arrival(now, packet, toll),
        }
    }

    #[inline(always)]
    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        match self {
            AnyLink::DropTail(law) => law.on_departure(now, packet, toll),
            AnyLink::Xcp(law) => law.on_departure(now, packet, toll),
            AnyLink::Fcp(law) => law.on_departure(now, packet, toll),
            other => other.departure(now, packet, toll),
        }
    }

    #[inline]
    fn on_passage(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        match self {
            AnyLink::DropTail(law) => law.on_passage(now, packet, toll),
            AnyLink::Xcp(law) => law.on_passage(now, packet, toll),
            AnyLink::Fcp(law) => law.on_passage(now, packet, toll),
            other => other.passage(now, packet, toll),
        }
    }

    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        each!(self, law => law.set_capacity(now, capacity))
    }

    fn set_round_trip(&mut self, rtt: Time) {
        each!(self, law => law.set_round_trip(rtt))
    }

    fn set_error(&mut self, part: f64) {
        each!(self, law => law.set_error(part))
    }

    fn control(&self) -> Option<Control> {
        each!(self, law => law.control())
    }

    fn control_intervals(&self) -> u64 {
        each!(self, law => law.control_intervals())
    }

    fn stated_price(&self) -> Option<Price> {
        each!(self, law => law.stated_price())
    }

    fn deviation(&self) -> Option<Deviation> {
        each!(self, law => law.deviation())
    }

    #[inline]
    fn is_silent(&self) -> bool {
        match self {
            AnyLink::DropTail(_) => true,
            AnyLink::Custom(law) => law.is_silent(),
            _ => false,
        }
    }

    #[inline]
    fn is_gentle(&self) -> bool {
        match self {
            AnyLink::Fcp(law) => law.is_gentle(),
            AnyLink::Xcp(law) => law.is_gentle(),
            AnyLink::Xcp32(law) => law.is_gentle(),
            AnyLink::Xcp128(law) => law.is_gentle(),
            AnyLink::Custom(law) => law.is_gentle(),
            _ => false,
        }
    }
}

impl AnyLink {
    #[inline(never)]
    fn passage(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        each!(self, law => law.on_passage(now, packet, toll))
    }

    #[inline(never)]
    fn arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        each!(self, law => law.on_arrival(now, packet, toll))
    }

    #[inline(never)]
    fn departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        each!(self, law => law.on_departure(now, packet, toll))
    }
}
