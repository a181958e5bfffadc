//! What can be read of a connection.

use std::sync::Arc;

use tollway_law::sender::{AnySender, SenderLaw};
use tollway_law::{Rate, Time};

use crate::{Flags, Packet};

use super::{Buffer, Config, Connection, FINISHED, State, Stats, sender};

impl Connection {
    /// What was done so far.
    #[inline]
    pub fn stats(&self) -> Stats {
        self.stats.all()
    }

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// The flow its packets belong to.
    pub fn flow(&self) -> u32 {
        self.flow
    }

    /// The configuration it shares.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The smoothed round-trip time, zero before the first sample.
    #[inline]
    pub fn srtt(&self) -> Time {
        self.send.rtt.srtt()
    }

    /// The latest round-trip time measured, zero before the first.
    pub fn latest_rtt(&self) -> Time {
        self.send.rtt.latest
    }

    /// The least round-trip time, [`Time::NEVER`] before the first sample.
    pub fn min_rtt(&self) -> Time {
        self.send.rtt.min
    }

    /// The retransmission timeout as it stands, backing off included.
    pub fn rto(&self) -> Time {
        self.send.rtt.rto(&self.config.rto)
    }

    /// The law's window, segments.
    #[inline]
    pub fn cwnd(&self) -> f64 {
        self.send.law.window()
    }

    /// Bytes written that have not been sent for the first time; [`u64::MAX`] of an unlimited stream or endless frames.
    pub fn unsent(&self) -> u64 {
        self.send.source.queued()
    }

    /// Whether [`finish`](Connection::finish) was called: no more can be written.
    pub fn is_closing(&self) -> bool {
        self.send.source.finished
    }

    /// Whether all the other side will ever send has arrived.
    pub fn has_peer_finished(&self) -> bool {
        self.receive.finished
    }

    /// Segments in the network: neither acknowledged, reported received nor taken for lost.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.send.board.pipe()
    }

    /// Segments sent and not acknowledged cumulatively.
    pub fn outstanding(&self) -> u32 {
        self.send.board.outstanding()
    }

    /// The rate at which the law lets packets leave; `None` if acknowledgements clock them.
    #[inline]
    pub fn pacing_rate(&self, now: Time) -> Option<Rate> {
        if self.send.law.ack_clocked() {
            return None;
        }
        self.send.law.pacing_rate(&self.send.flight(now, &self.config))
    }

    /// The first segment not acknowledged: payload before it can be forgotten.
    pub fn una(&self) -> u32 {
        self.send.board.una
    }

    /// The segment expected next from the other side.
    pub fn expected(&self) -> u32 {
        self.receive.next
    }

    /// Segments from [`Connection::expected`] on that there is room for.
    pub fn receive_window(&self) -> u32 {
        self.receive.window()
    }

    /// Whether a loss is being repaired.
    pub fn recovering(&self) -> bool {
        self.send.phase != sender::Phase::Open
    }

    /// The sender's law.
    pub fn law(&self) -> &AnySender {
        &self.send.law
    }

    /// The receive buffer; `None` if the application has always read at once.
    pub fn buffer(&self) -> Option<Buffer> {
        self.receive.reading.as_ref().map(|reading| reading.buffer())
    }

    /// Whether all that [`Connection::finish`] or [`Connection::stop`] closed off has been acknowledged.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.told & FINISHED != 0
    }

    /// Whether the other side is known to have all, the FIN with it, so that it waits for nothing more of ours.
    pub fn is_acknowledged(&self) -> bool {
        self.is_finished() && self.send.source.fin_sent() && self.outstanding() == 0
    }

    /// Whether the data of a packet may be the other side's: its segment is not beyond the window, and no longer than one may be nor
    /// shorter than its header. An engine that hears others than the other side asks this first.
    pub fn fits(&self, packet: &Packet) -> bool {
        let beyond = packet.seq.wrapping_sub(self.receive.next.wrapping_add(self.receive.window()));
        let sizes = self.config.header..=self.config.segment.max(self.config.header.saturating_add(1));
        (beyond as i32) < 0 && sizes.contains(&packet.size)
    }

    /// Whether the data of a packet would be taken in: the connection is open, what the packet acknowledges was sent, and its segment is
    /// within the window and has not come yet. Of others it does not matter whether their payload is right.
    pub fn awaits(&self, packet: &Packet) -> bool {
        let open = match self.state {
            State::Established => true,
            State::SynReceived => self.acks_syn(packet),
            State::Idle | State::SynSent | State::Reset => false,
        };
        let rare = packet.flags.0 & (Flags::SYN.0 | Flags::RST.0) != 0;
        let sent = !packet.flags.has(Flags::ACK) || self.send.plausible(packet.ack);
        open && !rare && sent && self.receive.awaits(packet.seq)
    }
}
