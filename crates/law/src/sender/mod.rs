//! Sender laws: how fast a sender may go.
//!
//! The transport (in `tollway-proto`) tells a law what happens, in verbs, and asks it three things:
//! how many segments may be in flight, how fast they may leave, and what to write into the next
//! packet's toll. Loss detection and recovery belong to the transport; a law only decides what a
//! loss means for its window.

mod bbr;
mod cheat;
mod config;
mod cubic;
mod dctcp;
mod delivery;
mod fcp;
mod fcp_cheat;
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
pub(crate) use fcp::least_pause;
pub use fcp::{Fcp, FcpConfig};
pub use fcp_cheat::{FcpCheat, FcpCheatConfig, FcpTrick};
pub use newreno::{NewReno, NewRenoConfig};
pub use rcp::{Rcp, RcpConfig};
pub use scalable::{Scalable, ScalableConfig};
pub use xcp::{Demand, Fallback, LossResponse, Xcp, XcpConfig};

use std::any::Any;
use std::fmt;

use crate::param::{Entry, words_of};
use crate::{Budget, Price, Rate, Time, Toll};

/// Every law that a scenario file may name. To add one: its file, and a line here.
pub const LAWS: &[Entry<dyn SenderConfig>] = &[
    NewRenoConfig::ENTRY,
    CubicConfig::ENTRY,
    DctcpConfig::ENTRY,
    BbrConfig::ENTRY,
    XcpSender::ENTRY,
    FcpConfig::ENTRY,
    RcpConfig::ENTRY,
    entry::<ScalableConfig>(),
];

/// Their words.
pub const WORDS: &[&str] = &words_of::<_, { LAWS.len() }>(LAWS);

/// What the transport knows when it talks to its law.
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
    /// Segments sent and neither acknowledged, selectively acknowledged nor taken for lost.
    pub in_flight: u32,
    /// Segments sent and not yet acknowledged cumulatively: RFC 5681's FlightSize.
    pub outstanding: u32,
    /// Segments that everything but the law allows in flight: receive window and send buffer.
    pub limit: u32,
    /// Whether the application, not the law nor `limit`, is what holds the sender back.
    pub app_limited: bool,
    /// In [`SenderLaw::write_toll`], the packet about to leave, bytes on the wire; elsewhere a full
    /// segment.
    pub size: u32,
    /// In [`SenderLaw::write_toll`], what will be left to be sent, for the first time or again,
    /// bytes on the wire; [`u64::MAX`] while the application has not said that it will end, and
    /// elsewhere.
    pub unsent: u64,
}

impl Flight {
    /// What a law that is driven by hand may be shown: `in_flight` full segments of 1500 bytes, and
    /// nothing but the law in their way. All round trips so far took `rtt`.
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

/// One acknowledgement, also a duplicate one.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Segments that this acknowledgement newly covers, cumulatively or selectively.
    pub segments: u32,
    /// Of these, how many the cumulative acknowledgement covers newly.
    pub cumulative: u32,
    /// A round-trip sample, if the acknowledgement gives one.
    pub rtt: Option<Time>,
    /// The toll echoed by the receiver, if the packet carries one.
    pub echo: Option<f32>,
    /// Beside an echo: whether routers were counted, and one on the way did not speak the law.
    pub gap: bool,
    /// Whether the transport is repairing a loss (fast recovery, or after a timeout up to its
    /// recovery point).
    pub recovering: bool,
    /// Whether an ECN mark was echoed.
    pub marked: bool,
}

impl Acked {
    /// An acknowledgement of `segments` in order, of which there is no more to say.
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

/// A sender's law. Windows are in segments, as the papers' are, and fractional.
///
/// Four methods have to be there; the others are for laws that space their packets, carry a toll or
/// measure what is delivered. [`AnySender::custom`] makes a sender of any law.
pub trait SenderLaw {
    /// Segments that may be in flight: whole ones count, and one at least. Asked after what is
    /// told, not as time passes.
    fn window(&self) -> f64;

    /// The rate at which packets may leave; `None` leaves it to the acknowledgements' clock. A
    /// change of less than 1/32 counts from the next packet's departure on.
    fn pacing_rate(&self, _flight: &Flight) -> Option<Rate> {
        None
    }

    /// Whether data packets of this sender are [`Kind::Tolled`](crate::Kind::Tolled).
    fn tolled(&self) -> bool {
        false
    }

    /// Whether the data packet about to leave goes without a toll, an earlier or later one speaking
    /// for it. Asked once for each packet of a sender that is [`tolled`](SenderLaw::tolled), before
    /// [`write_toll`](SenderLaw::write_toll).
    #[inline]
    fn spares_toll(&mut self) -> bool {
        false
    }

    /// Whether the packet that opens a connection is tolled, too, if data will follow it; the
    /// acknowledgement of it is then told by [`on_ack`](SenderLaw::on_ack), with no segment
    /// acknowledged.
    fn tolls_first(&self) -> bool {
        false
    }

    /// Writes the forward part of the toll of the data packet about to leave.
    fn write_toll(&mut self, _flight: &Flight, _toll: &mut Toll) {}

    /// Whether the transport is to measure delivery for this law:
    /// [`on_delivery`](SenderLaw::on_delivery), [`on_lost`](SenderLaw::on_lost) and
    /// [`on_restart`](SenderLaw::on_restart) are called for laws that say so. Asked once.
    fn samples_delivery(&self) -> bool {
        false
    }

    /// Whether the law now sends less than the path could carry, so that what is delivered says
    /// nothing of the path.
    fn holds_back(&self) -> bool {
        false
    }

    /// An acknowledgement covered segments newly; `on_ack` follows.
    fn on_delivery(&mut self, _flight: &Flight, _delivery: &Delivery) {}

    /// A segment is taken for lost.
    fn on_lost(&mut self, _flight: &Flight, _lost: &Lost) {}

    /// With nothing in flight, because the application had nothing to send, a segment is about to
    /// leave.
    fn on_restart(&mut self, _flight: &Flight) {}

    /// An acknowledgement came (also while recovering, also a duplicate).
    fn on_ack(&mut self, flight: &Flight, acked: &Acked);

    /// A loss was detected by acknowledgements: once an episode, as fast recovery is entered.
    fn on_loss(&mut self, flight: &Flight);

    /// Fast recovery is over.
    fn on_recovered(&mut self, _flight: &Flight) {}

    /// The retransmission timer expired; `first` unless it had expired already without progress
    /// since.
    fn on_timeout(&mut self, flight: &Flight, first: bool);

    /// The law as one that a budget limits; `None` if its descriptor does not say that it
    /// [spends](Descriptor::spends).
    fn spender(&self) -> Option<&dyn Spender> {
        None
    }

    /// [`spender`](SenderLaw::spender), to be changed.
    fn spender_mut(&mut self) -> Option<&mut dyn Spender> {
        None
    }
}

/// A sender's law that a budget limits.
pub trait Spender {
    /// Its budget.
    fn budget(&self) -> Budget;

    /// Lets it spend `budget` from now on; the next packets announce it.
    fn set_budget(&mut self, budget: Budget);

    /// w, its spending, $/s.
    fn spending(&self) -> f64;

    /// Dollars spent since the start.
    fn spent(&self) -> f64;

    /// The price of the path, once it is known.
    fn price(&self) -> Option<Price>;

    /// Whether it sends its last packets and has announced to links that nothing will follow.
    fn is_ending(&self) -> bool;

    /// The instant since which it lacks the rate that its deadline needs, because links had no room
    /// for it.
    fn refused(&self) -> Option<Time>;

    /// Puts its packets in another class of traffic from `now` on, which may have another price;
    /// the round trip is `rtt`. Where the price is lower, its rate stays, and it announces what it
    /// spends beyond that like any other change.
    fn change_class(&mut self, now: Time, rtt: Time);
}

/// Every sender law by value: dispatch is one predictable branch, and a connection stays in one
/// piece of memory.
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
    /// A law from outside this crate, at the price of a call through a pointer.
    Custom(CustomSender),
}

/// A boxed [`SenderLaw`], made by [`AnySender::custom`].
pub struct CustomSender(Box<dyn Boxed>);

/// A law whose type can be found out again.
trait Boxed: SenderLaw + Any + Send {}

impl<L: SenderLaw + Send + 'static> Boxed for L {}

impl fmt::Debug for CustomSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomSender").field("window", &self.0.window()).finish_non_exhaustive()
    }
}

impl AnySender {
    /// A law from outside this crate, or one that no variant is worth while for.
    pub fn custom(law: impl SenderLaw + Send + 'static) -> AnySender {
        AnySender::Custom(CustomSender(Box::new(law)))
    }

    /// The law from outside this crate, if it is one and of this type.
    pub fn as_custom<L: 'static>(&self) -> Option<&L> {
        match self {
            AnySender::Custom(CustomSender(law)) => (&**law as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    /// Whether [`SenderLaw::pacing_rate`] never answers a rate, so that it needs not be asked for
    /// each packet.
    #[inline]
    pub fn ack_clocked(&self) -> bool {
        match self {
            AnySender::NewReno(_) | AnySender::Cubic(_) | AnySender::Dctcp(_) => true,
            AnySender::Xcp(law) => !law.paced(),
            AnySender::Bbr(_) | AnySender::Fcp(_) | AnySender::Rcp(_) | AnySender::Custom(_) => false,
        }
    }

    /// [`SenderLaw::pacing_rate`], of a flight that is looked at only by laws which don't have the
    /// answer at hand.
    #[inline(always)]
    pub fn pace(&self, flight: impl FnOnce() -> Flight) -> Option<Rate> {
        match self {
            AnySender::Fcp(law) => law.pace(),
            law => law.ask_pace(&flight()),
        }
    }

    /// Whether [`SenderLaw::pacing_rate`] answers the same from one call of another method to the
    /// next, whatever the time.
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

/// Laws that have a variant.
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

/// Calls the same method of whichever law it is.
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

/// The window pacing spreads over a round trip: the least RTT, since a window over the smoothed one
/// would feed on the queue it builds. `None` before the first sample.
fn window_over_min_rtt(window: f64, flight: &Flight) -> Option<Rate> {
    let known = flight.min_rtt != Time::NEVER && flight.min_rtt > Time::ZERO;
    known.then(|| Rate::from_bytes_per_sec(window * f64::from(flight.segment) / flight.min_rtt.as_secs_f64()))
}

/// Whether the law's window is what holds the sender back. A window that is not used must not grow
/// (RFC 7661): a law that goes by acknowledgements asks this in [`SenderLaw::on_ack`].
#[inline]
pub fn window_limited(window: f64, flight: &Flight) -> bool {
    !flight.app_limited && window < f64::from(flight.limit)
}

/// What a window halved on loss is a half of: RFC 5681's FlightSize, without what limited transmit
/// added.
fn flight_size(window: f64, flight: &Flight) -> f64 {
    window.min(f64::from(flight.outstanding))
}

/// No window after a loss is under two segments (RFC 5681, equation 4).
const MIN_SSTHRESH: f64 = 2.0;

#[cfg(test)]
mod testing {
    //! A bench for laws: a flight and acknowledgements with the usual values.

    use super::{Acked, Flight};
    use crate::Time;

    pub(super) fn flight(now: Time, window: u32) -> Flight {
        Flight::of(now, Time::from_millis(100), window)
    }

    pub(super) fn acked(segments: u32) -> Acked {
        Acked::of(segments)
    }
}
