//! Sender laws: the window and pace of a sender.
//!
//! The transport (in `tollway-proto`) reports events to a law, and reads three values from it: the
//! number of segments that may be in flight, their rate, and the toll of the next packet. Loss
//! detection and recovery belong to the transport; a law only decides the effect of a loss on its
//! window.

mod bbr;
mod cheat;
mod config;
mod cubic;
mod dctcp;
mod delivery;
mod fcp;
mod fcp_cheat;
mod hystart;
mod newreno;
mod rcp;
mod scalable;
mod xcp;

pub use bbr::{Bbr, BbrConfig, Phase as BbrPhase};
pub use cheat::{Cheat, CheatConfig, Trick, XcpSender};
pub use config::{Descriptor, Ecn, SenderConfig, Sending, Spending, Unanswered, entry, fixed};
pub use cubic::{Cubic, CubicConfig};
pub use dctcp::{Dctcp, DctcpConfig};
pub use delivery::{Delivery, Lost};
pub use fcp::{Fcp, FcpConfig};
pub(crate) use fcp::{config::LONGEST_PAUSE, longest_pause};
pub use fcp_cheat::{FcpCheat, FcpCheatConfig, FcpTrick};
pub use hystart::HyStart;
pub use newreno::{NewReno, NewRenoConfig};
pub use rcp::{Rcp, RcpConfig};
pub use scalable::{Scalable, ScalableConfig};
pub use xcp::{Fallback, LossResponse, RequestedIncrease, Xcp, XcpConfig};

use std::any::Any;
use std::fmt;

use crate::param::{Entry, words_of};
use crate::{Budget, Price, Rate, Time, Toll};

/// Every law that a scenario file may name. A new law is a file, and a line here.
pub const LAWS: &[Entry<dyn SenderConfig>] = &[
    NewRenoConfig::ENTRY,
    entry::<CubicConfig>(),
    DctcpConfig::ENTRY,
    BbrConfig::ENTRY,
    XcpSender::ENTRY,
    FcpConfig::ENTRY,
    RcpConfig::ENTRY,
    entry::<ScalableConfig>(),
];

/// The words of all laws.
pub const WORDS: &[&str] = &words_of::<_, { LAWS.len() }>(LAWS);

/// The transport's state at a call of its law.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// The present.
    pub now: Time,
    /// Smoothed round-trip time (RFC 6298's SRTT), zero before the first sample.
    pub srtt: Time,
    /// Least round-trip time seen, [`Time::NEVER`] before the first sample.
    pub min_rtt: Time,
    /// A full segment on the wire, bytes.
    pub segment: u32,
    /// Segments sent that are neither acknowledged, selectively acknowledged nor declared lost.
    pub in_flight: u32,
    /// Segments sent and not yet acknowledged cumulatively: RFC 5681's FlightSize.
    pub outstanding: u32,
    /// Segments that the receive window and the send buffer allow in flight.
    pub limit: u32,
    /// True if the application limits the sender, not the law or `limit`.
    pub app_limited: bool,
    /// In [`SenderLaw::write_toll`], the size of the packet about to leave, bytes on the wire;
    /// elsewhere a full segment.
    pub size: u32,
    /// In [`SenderLaw::write_toll`], data still to send after this packet, retransmissions
    /// included, bytes on the wire.
    ///
    /// [`u64::MAX`] in other calls, and while the application has not announced its end.
    pub unsent: u64,
}

impl Flight {
    /// A state for tests of a law: `in_flight` full segments of 1500 bytes, no limit but the law's,
    /// and a constant round trip of `rtt`.
    pub fn of(now: Time, rtt: Time, in_flight: u32) -> Flight {
        Flight {
            now,
            srtt: rtt,
            min_rtt: rtt,
            segment: 1500,
            in_flight,
            outstanding: in_flight,
            limit: u32::MAX,
            app_limited: false,
            size: 1500,
            unsent: u64::MAX,
        }
    }
}

/// One acknowledgement, including duplicates.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Segments that this acknowledgement newly covers, cumulatively or selectively.
    pub segments: u32,
    /// The part of those that the cumulative acknowledgement newly covers.
    pub cumulative: u32,
    /// A round-trip sample, if the acknowledgement gives one.
    pub rtt: Option<Time>,
    /// The toll echoed by the receiver, if the packet carries one.
    pub echo: Option<f32>,
    /// With an echo: true if routers were counted, and one of them did not speak the law.
    pub gap: bool,
    /// True while the transport repairs a loss (fast recovery, or up to the recovery point of a
    /// timeout).
    pub recovering: bool,
    /// True if an ECN mark was echoed.
    pub marked: bool,
}

impl Acked {
    /// An acknowledgement of `segments` in order, without further content.
    pub fn of(segments: u32) -> Acked {
        Acked {
            segments,
            cumulative: segments,
            rtt: None,
            echo: None,
            gap: false,
            recovering: false,
            marked: false,
        }
    }
}

/// A sender's law. Windows are in segments, as in the papers, and fractional.
///
/// Four methods are required. The others serve laws that pace, carry a toll or measure delivery.
/// [`AnySender::custom`] makes a sender of any law.
pub trait SenderLaw {
    /// Segments that may be in flight, rounded down, at least one. It changes with events, not with
    /// time.
    fn window(&self) -> f64;

    /// The rate at which packets may leave; `None` leaves it to the acknowledgements' clock. A
    /// change of less than 1/32 takes effect with the next packet's departure.
    fn pacing_rate(&self, _flight: &Flight) -> Option<Rate> {
        None
    }

    /// True if this sender's data packets are [`Kind::Tolled`](crate::Kind::Tolled).
    fn tolled(&self) -> bool {
        false
    }

    /// True if the data packet about to leave carries no toll, because an earlier or later one
    /// speaks for it.
    ///
    /// Called once per packet of a [`tolled`](SenderLaw::tolled) sender, before
    /// [`write_toll`](SenderLaw::write_toll).
    #[inline]
    fn spares_toll(&mut self) -> bool {
        false
    }

    /// True if the packet that opens a connection is tolled, too, provided that data follow. Its
    /// acknowledgement is reported by [`on_ack`](SenderLaw::on_ack) with no segment acknowledged.
    fn tolls_first(&self) -> bool {
        false
    }

    /// Writes the forward part of the toll of the data packet about to leave.
    fn write_toll(&mut self, _flight: &Flight, _toll: &mut Toll) {}

    /// True if the transport is to measure delivery for this law. It then calls
    /// [`on_delivery`](SenderLaw::on_delivery), [`on_lost`](SenderLaw::on_lost) and
    /// [`on_restart`](SenderLaw::on_restart). Read once.
    fn samples_delivery(&self) -> bool {
        false
    }

    /// True while the law sends less than the path could carry, so that samples do not measure the
    /// path.
    fn holds_back(&self) -> bool {
        false
    }

    /// Handles an acknowledgement that newly covers segments; `on_ack` follows.
    fn on_delivery(&mut self, _flight: &Flight, _delivery: &Delivery) {}

    /// Handles a segment declared lost.
    fn on_lost(&mut self, _flight: &Flight, _lost: &Lost) {}

    /// Handles the end of an idle time: a segment is about to leave, with nothing in flight because
    /// the application had no data.
    fn on_restart(&mut self, _flight: &Flight) {}

    /// Handles an acknowledgement, including duplicates and those during recovery.
    fn on_ack(&mut self, flight: &Flight, acked: &Acked);

    /// Handles a loss detected by acknowledgements: once per episode, on entry to fast recovery.
    fn on_loss(&mut self, flight: &Flight);

    /// Handles the end of fast recovery.
    fn on_recovered(&mut self, _flight: &Flight) {}

    /// Handles an expiry of the retransmission timer. `first` is false if it expired before,
    /// without progress since.
    fn on_timeout(&mut self, flight: &Flight, first: bool);

    /// The law's budget interface; `None` unless its descriptor [spends](Descriptor::spends).
    fn spender(&self) -> Option<&dyn Spender> {
        None
    }

    /// [`spender`](SenderLaw::spender), mutable.
    fn spender_mut(&mut self) -> Option<&mut dyn Spender> {
        None
    }
}

/// A sender's law that a budget limits.
pub trait Spender {
    /// The budget, $/s.
    fn budget(&self) -> Budget;

    /// Sets the budget; the next packets announce the change.
    fn set_budget(&mut self, budget: Budget);

    /// w, its spending, $/s.
    fn spending(&self) -> f64;

    /// Dollars spent since the start.
    fn spent(&self) -> f64;

    /// The price of the path, once it is known.
    fn price(&self) -> Option<Price>;

    /// True while it sends its last packets and has announced the end to links.
    fn is_ending(&self) -> bool;

    /// The instant since which its deadline lacks the rate, because links have no room.
    fn refused(&self) -> Option<Time>;

    /// Moves its packets to another class of traffic at `now`, whose price may differ; `rtt` is the
    /// round trip. At a lower price its rate stays, and spending beyond that is announced like any
    /// other change.
    fn change_class(&mut self, now: Time, rtt: Time);
}

/// Any sender law by value. Dispatch is one predictable branch, and a connection stays in one piece
/// of memory.
#[derive(Debug)]
pub enum AnySender {
    /// [`NewReno`].
    NewReno(NewReno),
    /// [`Cubic`].
    Cubic(Cubic),
    /// [`Dctcp`].
    Dctcp(Dctcp),
    /// [`Bbr`].
    Bbr(Box<Bbr>),
    /// [`Xcp`].
    Xcp(Xcp),
    /// [`Fcp`].
    Fcp(Box<Fcp>),
    /// [`Rcp`].
    Rcp(Rcp),
    /// A law from outside this crate, at the cost of a call through a pointer.
    Custom(CustomSender),
}

/// A boxed [`SenderLaw`], made by [`AnySender::custom`].
pub struct CustomSender(Box<dyn Boxed>);

/// A law whose type can be recovered.
trait Boxed: SenderLaw + Any + Send {}

impl<L: SenderLaw + Send + 'static> Boxed for L {}

impl fmt::Debug for CustomSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomSender").field("window", &self.0.window()).finish_non_exhaustive()
    }
}

impl AnySender {
    /// Makes a sender of a law from outside this crate.
    pub fn custom(law: impl SenderLaw + Send + 'static) -> AnySender {
        AnySender::Custom(CustomSender(Box::new(law)))
    }

    /// The law from outside this crate, if it is of this type.
    pub fn as_custom<L: 'static>(&self) -> Option<&L> {
        match self {
            AnySender::Custom(CustomSender(law)) => (&**law as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    /// True if [`SenderLaw::pacing_rate`] never returns a rate, so that it need not be called per
    /// packet.
    #[inline]
    pub fn ack_clocked(&self) -> bool {
        match self {
            AnySender::NewReno(_) | AnySender::Cubic(_) | AnySender::Dctcp(_) => true,
            AnySender::Xcp(law) => !law.paced(),
            AnySender::Bbr(_) | AnySender::Fcp(_) | AnySender::Rcp(_) | AnySender::Custom(_) => false,
        }
    }

    /// [`SenderLaw::pacing_rate`]; the flight is built only for laws that need it.
    #[inline(always)]
    pub fn pace(&self, flight: impl FnOnce() -> Flight) -> Option<Rate> {
        match self {
            AnySender::Fcp(law) => law.pace(),
            law => law.ask_pace(&flight()),
        }
    }

    /// True if [`SenderLaw::pacing_rate`] is constant between calls of other methods.
    #[inline]
    pub fn keeps_pace(&self) -> bool {
        match self {
            AnySender::Bbr(_) | AnySender::Custom(_) => false,
            AnySender::NewReno(_)
            | AnySender::Cubic(_)
            | AnySender::Dctcp(_)
            | AnySender::Xcp(_)
            | AnySender::Fcp(_)
            | AnySender::Rcp(_) => true,
        }
    }
}

/// Conversions for laws that have a variant.
macro_rules! from {
    ($($law:ident $(in $boxed:ident)?),*) => {$(
        impl From<$law> for AnySender {
            fn from(law: $law) -> AnySender {
                AnySender::$law($($boxed::new)?(law))
            }
        }
    )*};
}

from!(NewReno, Cubic, Dctcp, Bbr in Box, Xcp, Fcp in Box, Rcp);

/// Calls the same method of the law in any variant.
macro_rules! each {
    ($self:ident, $law:ident => $call:expr) => {
        match $self {
            AnySender::NewReno($law) => $call,
            AnySender::Cubic($law) => $call,
            AnySender::Dctcp($law) => $call,
            AnySender::Bbr($law) => $call,
            AnySender::Xcp($law) => $call,
            AnySender::Fcp($law) => $call,
            AnySender::Rcp($law) => $call,
            AnySender::Custom(CustomSender($law)) => $call,
        }
    };
}

impl SenderLaw for AnySender {
    #[inline]
    fn window(&self) -> f64 {
        each!(self, law => law.window())
    }

    #[inline]
    fn pacing_rate(&self, flight: &Flight) -> Option<Rate> {
        each!(self, law => law.pacing_rate(flight))
    }

    #[inline]
    fn tolled(&self) -> bool {
        match self {
            AnySender::NewReno(_) | AnySender::Cubic(_) | AnySender::Dctcp(_) | AnySender::Bbr(_) => false,
            AnySender::Xcp(_) | AnySender::Fcp(_) | AnySender::Rcp(_) => true,
            AnySender::Custom(CustomSender(law)) => law.tolled(),
        }
    }

    #[inline]
    fn spares_toll(&mut self) -> bool {
        match self {
            AnySender::Fcp(_) => false,
            AnySender::Xcp(law) => law.spares_toll(),
            law => law.ask_for_toll(),
        }
    }

    #[inline]
    fn tolls_first(&self) -> bool {
        each!(self, law => law.tolls_first())
    }

    // Nor is there much of a choice where packets are tolled.
    #[inline]
    fn write_toll(&mut self, flight: &Flight, toll: &mut Toll) {
        match self {
            AnySender::Fcp(law) => law.write_toll(flight, toll),
            AnySender::Xcp(law) => law.write_toll(flight, toll),
            law => law.tell_toll(flight, toll),
        }
    }

    fn samples_delivery(&self) -> bool {
        each!(self, law => law.samples_delivery())
    }

    fn holds_back(&self) -> bool {
        each!(self, law => law.holds_back())
    }

    fn on_delivery(&mut self, flight: &Flight, delivery: &Delivery) {
        each!(self, law => law.on_delivery(flight, delivery));
    }

    fn on_lost(&mut self, flight: &Flight, lost: &Lost) {
        each!(self, law => law.on_lost(flight, lost));
    }

    fn on_restart(&mut self, flight: &Flight) {
        each!(self, law => law.on_restart(flight));
    }

    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        each!(self, law => law.on_ack(flight, acked));
    }

    fn on_loss(&mut self, flight: &Flight) {
        each!(self, law => law.on_loss(flight));
    }

    fn on_recovered(&mut self, flight: &Flight) {
        each!(self, law => law.on_recovered(flight));
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        each!(self, law => law.on_timeout(flight, first));
    }

    fn spender(&self) -> Option<&dyn Spender> {
        each!(self, law => law.spender())
    }

    fn spender_mut(&mut self) -> Option<&mut dyn Spender> {
        each!(self, law => law.spender_mut())
    }
}

impl AnySender {
    #[inline(never)]
    fn tell_toll(&mut self, flight: &Flight, toll: &mut Toll) {
        each!(self, law => law.write_toll(flight, toll));
    }

    #[inline(never)]
    fn ask_for_toll(&mut self) -> bool {
        each!(self, law => law.spares_toll())
    }

    #[inline(never)]
    fn ask_pace(&self, flight: &Flight) -> Option<Rate> {
        self.pacing_rate(flight)
    }
}

/// The pace that spreads a window over a round trip. It uses the least RTT, since the smoothed one
/// would feed on the queue that it builds. `None` before the first sample.
fn window_over_min_rtt(window: f64, flight: &Flight) -> Option<Rate> {
    let known = flight.min_rtt != Time::NEVER && flight.min_rtt > Time::ZERO;
    known.then(|| Rate::from_bytes_per_sec(window * f64::from(flight.segment) / flight.min_rtt.as_secs_f64()))
}

/// True if the law's window limits the sender. A window that is not used must not grow (RFC 7661):
/// an acknowledgement-based law checks this in [`SenderLaw::on_ack`].
#[inline]
pub fn window_limited(window: f64, flight: &Flight) -> bool {
    !flight.app_limited && window < f64::from(flight.limit)
}

/// The volume that a reduction applies to: RFC 5681's FlightSize, without the segments of limited
/// transmit.
fn flight_size(window: f64, flight: &Flight) -> f64 {
    window.min(f64::from(flight.outstanding))
}

/// The least window after a loss, segments (RFC 5681, equation 4).
const MIN_SSTHRESH: f64 = 2.0;

#[cfg(test)]
mod testing {
    //! Test fixtures for laws: a flight and acknowledgements with usual values.

    use super::{Acked, Flight};
    use crate::Time;

    pub(super) fn flight(now: Time, window: u32) -> Flight {
        Flight::of(now, Time::from_millis(100), window)
    }

    pub(super) fn acked(segments: u32) -> Acked {
        Acked::of(segments)
    }
}
