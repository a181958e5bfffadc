//! Link laws: what an output port says to the packets that pass it.
//!
//! A port (in `tollway-proto`) offers each packet to its law on arrival, before it decides whether there is room,
//! and again on departure, when the packet leaves the queue for the transmitter. Between the two calls for
//! different packets the backlog does not change, so a law that works in control intervals catches up on the
//! intervals that ended since it was last called, each at its exact instant, and needs no timer of its own
//! (the "delayed computation" of the XCP study, exact instead of late).

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

/// Every law that a scenario file may name. To add one: its file, and a line here.
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

/// Their words.
pub const WORDS: &[&str] = &words_of::<_, { LAWS.len() }>(LAWS);

/// What a law sees of a packet and of the queue around it.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// Bytes on the wire without the link's framing.
    pub size: u32,
    /// Whether the packet's toll is meant for this link.
    pub kind: Kind,
    /// The class of traffic it belongs to, for laws that tell classes apart; 0 is what belongs to none.
    pub class: u8,
    /// Whether the packet may be marked instead of dropped (ECN-capable, RFC 3168).
    pub ect: bool,
    /// Whether it is to be taken for one of a scalable sender (ECT(1) or CE, RFC 9331 § 5.1).
    pub l4s: bool,
    /// Whether its sender has marked it as in profile (ERED lets more of those pass).
    pub in_profile: bool,
    /// Packets in the queue: without the one in transmission, without an arriving one, with a departing one.
    pub backlog_packets: u32,
    /// The same in bytes.
    pub backlog_bytes: u64,
    /// How long the packet was queued, zero on arrival.
    pub waited: Time,
}

impl Passing {
    /// A packet of `size` bytes, with so many packets and bytes queued, of which there is no more to say: it is of no class, may not be
    /// marked, and hasn't waited.
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

/// What the law wants done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it pass.
    Pass,
    /// Tell its sender of congestion: marked if it may be, dropped if not.
    Signal,
    /// Drop it.
    Drop,
}

/// What a law with control intervals knows of the one under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// The aggregate feedback of the interval before, bytes/s.
    pub feedback: f64,
    /// The mean round-trip time, s.
    pub avg_rtt: f64,
    /// The persistent queue, bytes.
    pub persistent_queue: u64,
    /// When the interval began.
    pub begins: Time,
    /// When it ends.
    pub ends: Time,
}

/// A link's law. Every method is on the path of every packet: no allocation, no hashing.
///
/// Two methods have to be there; a law that goes by the link's capacity is told of another one by
/// [`set_capacity`](LinkLaw::set_capacity). [`AnyLink::custom`] puts any law on a link.
pub trait LinkLaw {
    /// A packet comes to the port; the law sees it also if the queue then has no room.
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict;

    /// A packet leaves the queue for the transmitter; the law writes into its toll.
    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict;

    /// A packet comes to the port and leaves it at once, the queue being empty and the transmitter free: what
    /// [`on_arrival`](LinkLaw::on_arrival) and [`on_departure`](LinkLaw::on_departure) say together. A packet that may not be marked is
    /// dropped instead.
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

    /// The link's capacity, as configured for the law, changes.
    fn set_capacity(&mut self, _now: Time, _capacity: Rate) {}

    /// From now on what the law states is wrong by `part` of it, for experiments; of no effect on laws that state nothing.
    fn set_error(&mut self, _part: f64) {}

    /// The control interval under way as of the last packet; `None` for a law that works packet by packet.
    fn control(&self) -> Option<Control> {
        None
    }

    /// How many control intervals have ended as of the last packet.
    fn control_intervals(&self) -> u64 {
        0
    }

    /// The price that the law states, if it states one.
    fn stated_price(&self) -> Option<Price> {
        None
    }

    /// How far a second arithmetic deviates, if there are two.
    fn deviation(&self) -> Option<Deviation> {
        None
    }

    /// Whether the law lets every packet pass as it is and learns nothing from it, so that it needs not be asked.
    #[inline]
    fn is_silent(&self) -> bool {
        false
    }

    /// Whether the law lets every packet pass, and looks at nothing of it but its size, kind, class and toll, and of the queue at
    /// nothing but what it holds.
    #[inline]
    fn is_gentle(&self) -> bool {
        false
    }
}

/// No law: what does not fit is dropped by the port.
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

/// Every link law: dispatch is one predictable branch.
///
/// Laws with state stand in a box: a port with nothing but drop-tail, of which a large network has hundreds of
/// thousands, then carries 16 bytes for its law, and a law that works finds its state in one piece of memory.
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
    /// One of the five before, with a capacity that it measures.
    Measured(Box<Measured>),
    /// One of these for each class of traffic.
    Shared(Box<Shared>),
    /// A law from outside this crate, at the price of a call through two pointers.
    Custom(Box<CustomLink>),
}

const _: () = assert!(size_of::<AnyLink>() == 16);

impl AnyLink {
    /// A law from outside this crate, or one that no variant is worth while for. Queues by flow have a clone of it each.
    pub fn custom(law: impl LinkLaw + Clone + Send + 'static) -> AnyLink {
        AnyLink::Custom(Box::new(CustomLink::new(law)))
    }

    /// The law from outside this crate, if it is one and of this type.
    pub fn as_custom<L: 'static>(&self) -> Option<&L> {
        match self {
            AnyLink::Custom(law) => law.get(),
            _ => None,
        }
    }
}

/// The same expression for the law in whichever variant.
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
    // Most links of a network are drop-tail, and explicit laws are what simulations are about: that much is inlined, with what of
    // `packet` they look at. What the others do is a call away.
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
