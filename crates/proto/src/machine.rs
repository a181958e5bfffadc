//! What every protocol machine answers, whichever engine drives it.

use tollway_law::Time;

use crate::{Packet, SackRanges};

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
}
