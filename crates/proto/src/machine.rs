//! The interface of every protocol machine to both engines.

use std::any::Any;

use tollway_law::Time;

use crate::transport::Connection;
use crate::{App, Middle, Packet, SackRanges};

/// A machine at a node, by value, as an engine adds it. Endpoints, the third kind, are added in
/// pairs.
#[derive(Debug)]
pub enum NodeMachine {
    /// A machine on the path of packets.
    Middle(Box<dyn Middle>),
    /// A machine on top of connections that end at the node.
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

    /// The time of the next call; [`Time::NEVER`] if the machine has no timer.
    pub fn poll_timeout(&self) -> Time {
        match self {
            NodeMachine::Middle(machine) => machine.poll_timeout(),
            NodeMachine::App(machine) => machine.poll_timeout(),
        }
    }
}

/// A sans-I/O machine at the end of a path. The engine passes it packets and instants, and polls
/// packets to send and the next timer.
///
/// The engine calls [`handle_packet`](Machine::handle_packet) or
/// [`handle_timeout`](Machine::handle_timeout), then [`poll_transmit`](Machine::poll_transmit)
/// until it returns false, then [`poll_timeout`](Machine::poll_timeout). Timers are lazy: an engine
/// may call `handle_timeout` at an instant that the machine had returned and has since postponed;
/// the machine then does nothing.
pub trait Machine {
    /// Handles the machine's start time.
    fn open(&mut self, now: Time);

    /// Handles the machine's stop time: no new data are sent.
    fn stop(&mut self, now: Time);

    /// Handles a packet with its SACK ranges (empty unless [`Flags::SACK`](crate::Flags::SACK)).
    fn handle_packet(&mut self, now: Time, packet: &Packet, sack: &SackRanges);

    /// Handles a packet without SACK ranges, and may replace it by its answer in the same slot.
    ///
    /// Equals [`handle_packet`](Machine::handle_packet) and a first
    /// [`poll_transmit`](Machine::poll_transmit), for machines with a fast path for common packets.
    #[inline]
    fn answer(&mut self, _now: Time, _packet: &mut Packet) -> Answer {
        Answer::Unanswered
    }

    /// Handles a timer, and may build a packet in `out` if sending it is the only work due. `now`
    /// may be before the instant of `poll_timeout`.
    ///
    /// Equals [`handle_timeout`](Machine::handle_timeout) and a first
    /// [`poll_transmit`](Machine::poll_transmit), for machines with a fast path. Returns
    /// [`Answer::Packet`], [`Answer::More`] or [`Answer::Unanswered`].
    #[inline]
    fn take_turn(&mut self, _now: Time, _out: &mut Packet) -> Answer {
        Answer::Unanswered
    }

    /// Handles any packet, and may replace it by its answer in the same slot.
    ///
    /// Equals [`handle_packet`](Machine::handle_packet) and a first
    /// [`poll_transmit`](Machine::poll_transmit), and never returns [`Answer::Unanswered`]. `sack`
    /// holds the packet's ranges; those of the answer go to `out`, which is empty on entry.
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

    /// Handles the instant that `poll_timeout` returned.
    fn handle_timeout(&mut self, now: Time);

    /// The time of the next call; [`Time::NEVER`] if the machine waits for packets only.
    fn poll_timeout(&self) -> Time;

    /// True if all data of the machine are sent and acknowledged, finally.
    fn is_done(&self) -> bool {
        false
    }

    /// Builds the next packet to send into `out`, and its SACK ranges into `sack`, which is empty
    /// on entry. Returns false, with `out` unchanged, if there is none.
    ///
    /// `out` is a recycled slot, of which the machine writes every field that is not the engine's.
    fn poll_transmit(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool;

    /// Size on the wire of the data packet that [`poll_transmit`](Machine::poll_transmit) would
    /// build now, in bytes; `None` if it would build none, or one without data. A
    /// [shaper](crate::shaper) calls this before it releases the packet.
    fn poll_size(&mut self, _now: Time) -> Option<u16> {
        None
    }

    /// [`poll_transmit`](Machine::poll_transmit) for packets without data only, while a shaper
    /// holds data back.
    fn poll_control(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        self.poll_transmit(now, out, sack)
    }

    /// The machine as a connection that an [app](crate::App) can own; `None` if it is another kind.
    fn connection(&mut self) -> Option<&mut Connection> {
        None
    }

    /// The least and the smoothed round trip; zero while unknown.
    fn round_trips(&self) -> (Time, Time) {
        (Time::ZERO, Time::ZERO)
    }

    /// Sets the growth of the window in segments per round trip ([`NewReno::set_increase`]); no
    /// effect on laws without such a parameter.
    ///
    /// [`NewReno::set_increase`]: tollway_law::sender::NewReno::set_increase
    fn set_increase(&mut self, _segments: f64) {}
}

/// The result of [`Machine::answer`], [`Machine::respond`] or [`Machine::take_turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The packet is untouched; the caller must call [`Machine::handle_packet`].
    Unanswered,
    /// The packet was handled; [`Machine::poll_transmit`] returns the packets to send.
    Taken,
    /// The packet was handled, there is nothing to send, and this call did not
    /// [complete](Machine::is_done) the machine's data.
    Nothing,
    /// As [`Nothing`](Answer::Nothing), and the machine's timer is not earlier than before.
    Still,
    /// The slot holds a packet to send, and there is no other.
    Packet,
    /// As [`Packet`](Answer::Packet), and the machine's timer is not earlier than before.
    Only,
    /// The slot holds a packet to send, and [`Machine::poll_transmit`] may return more.
    More,
}
