//! Sender laws: how fast a sender may go.
//!
//! The transport (in `tollway-proto`) tells a law what happens, in verbs, and asks it three things: how many
//! segments may be in flight, how fast they may leave, and what to write into the next packet's toll. Loss
//! detection and recovery belong to the transport; a law only decides what a loss means for its window.

use crate::{Rate, Time, Toll};

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
    /// Segments that everything but the law allows in flight: receive window and send buffer.
    pub limit: u32,
    /// Whether the application, not the law nor `limit`, is what holds the sender back.
    pub app_limited: bool,
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
    /// Whether the transport is repairing a loss (fast recovery, or after a timeout up to its recovery point).
    pub recovering: bool,
    /// Whether an ECN mark was echoed.
    pub marked: bool,
}

/// A sender's law. Windows are in segments, as the papers' are, and fractional.
pub trait SenderLaw {
    /// Segments that may be in flight.
    fn window(&self) -> f64;

    /// The rate at which packets may leave; `None` leaves it to the acknowledgements' clock.
    fn pacing_rate(&self, _flight: &Flight) -> Option<Rate> {
        None
    }

    /// Whether data packets of this sender are [`Kind::Tolled`](crate::Kind::Tolled).
    fn tolled(&self) -> bool {
        false
    }

    /// Writes the forward part of the toll of the data packet about to leave.
    fn write_toll(&mut self, _flight: &Flight, _toll: &mut Toll) {}

    /// An acknowledgement came (also while recovering, also a duplicate).
    fn on_ack(&mut self, flight: &Flight, acked: &Acked);

    /// A loss was detected by acknowledgements: once an episode, as fast recovery is entered.
    fn on_loss(&mut self, flight: &Flight);

    /// Fast recovery is over.
    fn on_recovered(&mut self, _flight: &Flight) {}

    /// The retransmission timer expired; `first` unless it had expired already without progress since.
    fn on_timeout(&mut self, flight: &Flight, first: bool);
}
