//! What every protocol machine answers, whichever engine drives it.

use std::any::Any;

use tollway_law::Time;

use crate::transport::Connection;
use crate::{App, Middle, Packet, SackRanges};

/// A machine at a node, by value, as an engine adds it. Endpoints, the third kind, come in pairs.
#[derive(Debug)]
pub enum NodeMachine {
    /// On the way of packets.
    Middle(Box<dyn Middle>),
    /// On top of connections that end there.
    App(Box<dyn App>),
}

impl NodeMachine {
    /// A middle.
    pub fn middle(machine: impl Middle) -> NodeMachine {
        NodeMachine::Middle(Box::new(machine))
    }

    /// An app.
    pub fn app(machine: impl App) -> NodeMachine {
        NodeMachine::App(Box::new(machine))
    }

    /// The machine, to be downcast to its type.
    pub fn as_any(&self) -> &dyn Any {
        match self {
            NodeMachine::Middle(machine) => &**machine,
            NodeMachine::App(machine) => &**machine,
        }
    }

    /// The machine, to be downcast to its type and changed.
    pub fn as_any_mut(&mut self) -> &mut dyn Any {
        match self {
            NodeMachine::Middle(machine) => &mut **machine,
            NodeMachine::App(machine) => &mut **machine,
        }
    }

    /// The machine as a middle; `None` if it is another kind.
    pub fn as_middle(&mut self) -> Option<&mut dyn Middle> {
        match self {
            NodeMachine::Middle(machine) => Some(&mut **machine),
            NodeMachine::App(_) => None,
        }
    }

    /// When the machine next wants to be called; [`Time::NEVER`] if it waits.
    pub fn poll_timeout(&self) -> Time {
        match self {
            NodeMachine::Middle(machine) => machine.poll_timeout(),
            NodeMachine::App(machine) => machine.poll_timeout(),
        }
    }
}

/// A sans-I/O machine at the end of a path: fed packets and instants, asked for packets and its next timer.
///
/// The engine calls [`handle_packet`](Machine::handle_packet) or [`handle_timeout`](Machine::handle_timeout), then
/// [`poll_transmit`](Machine::poll_transmit) until it answers false, then looks at
/// [`poll_timeout`](Machine::poll_timeout). Timers are lazy: an engine may call `handle_timeout` early, at an instant
/// that the machine had once named and has since put off; the machine then does nothing.
pub trait Machine {
    /// The machine's start time has come.
    fn open(&mut self, now: Time);

    /// The machine's stop time has come: send nothing new.
    fn stop(&mut self, now: Time);

    /// A packet arrived, with its SACK ranges (empty unless [`Flags::SACK`](crate::Flags::SACK)).
    fn handle_packet(&mut self, now: Time, packet: &Packet, sack: &SackRanges);

    /// A packet without SACK ranges arrived in a slot of its own, and may be answered there: what
    /// [`handle_packet`](Machine::handle_packet) and a first [`poll_transmit`](Machine::poll_transmit) would do, for machines that
    /// have a shorter way for what nearly always comes.
    #[inline]
    fn answer(&mut self, _now: Time, _packet: &mut Packet) -> Answer {
        Answer::Unanswered
    }

    /// The instant that `poll_timeout` named has come, or one before it. Where it is a packet's turn and nothing else is due, the packet
    /// is built in `out`: what [`handle_timeout`](Machine::handle_timeout) and a first [`poll_transmit`](Machine::poll_transmit) would do,
    /// for machines that have a shorter way for it. It answers [`Answer::Packet`], [`Answer::More`] or [`Answer::Unanswered`].
    #[inline]
    fn take_turn(&mut self, _now: Time, _out: &mut Packet) -> Answer {
        Answer::Unanswered
    }

    /// Any packet arrived in a slot of its own, and may be answered there: [`handle_packet`](Machine::handle_packet) and a first
    /// [`poll_transmit`](Machine::poll_transmit) in one, which is never left [unanswered](Answer::Unanswered). `sack` are the
    /// packet's ranges; those of what stands in its place afterwards are in `out`, which comes empty.
    #[inline]
    fn respond(
        &mut self,
        now: Time,
        packet: &mut Packet,
        sack: &SackRanges,
        _out: &mut SackRanges,
    ) -> Answer {
        self.handle_packet(now, packet, sack);
        Answer::Taken
    }

    /// The instant that `poll_timeout` named has come.
    fn handle_timeout(&mut self, now: Time);

    /// When the machine next wants to be called; [`Time::NEVER`] if it waits for packets only.
    fn poll_timeout(&self) -> Time;

    /// Whether all that the machine had to send has been sent and acknowledged, for good.
    fn is_done(&self) -> bool {
        false
    }

    /// Builds the next packet to send into `out`, a recycled slot of which the machine writes every field of its
    /// own, and its SACK ranges into `sack`, which comes empty. Answers false, `out` untouched, if there is none.
    fn poll_transmit(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool;

    /// Bytes on the wire of the data packet that [`poll_transmit`](Machine::poll_transmit) would build now; `None` if it would
    /// build none, or one without data. What a [shaper](crate::shaper) asks for before it lets the packet leave.
    fn poll_size(&mut self, _now: Time) -> Option<u16> {
        None
    }

    /// [`poll_transmit`](Machine::poll_transmit) while a shaper holds data back: only what carries none.
    fn poll_control(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        self.poll_transmit(now, out, sack)
    }

    /// The machine as a connection that an [app](crate::App) can own; `None` if it is another kind.
    fn connection(&mut self) -> Option<&mut Connection> {
        None
    }

    /// The least and the smoothed round trip, zero while they are unknown.
    fn round_trips(&self) -> (Time, Time) {
        (Time::ZERO, Time::ZERO)
    }

    /// The window is to grow by so many segments a round trip ([`NewReno::set_increase`]); of no effect on laws that have no such
    /// thing.
    ///
    /// [`NewReno::set_increase`]: tollway_law::sender::NewReno::set_increase
    fn set_increase(&mut self, _segments: f64) {}
}

/// What became of a packet that [`Machine::answer`] or [`Machine::respond`] was shown, or of a turn that [`Machine::take_turn`] was
/// offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: it is untouched, and [`Machine::handle_packet`] has to be called.
    Unanswered,
    /// It was taken in; [`Machine::poll_transmit`] says what there is to send.
    Taken,
    /// It was taken in, there is nothing to send, and nothing [is done](Machine::is_done) that was not done before.
    Nothing,
    /// The same, and the machine's timer has not come nearer.
    Still,
    /// In its place stands a packet to be sent, and there is no other.
    Packet,
    /// The same, and the machine's timer has not come nearer.
    Only,
    /// In its place stands a packet to be sent, and [`Machine::poll_transmit`] may have more.
    More,
}
