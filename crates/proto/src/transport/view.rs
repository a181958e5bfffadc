//! Read-only access to a connection.

use std::sync::Arc;

use tollway_law::sender::{AnySender, SenderLaw};
use tollway_law::{Rate, Time};

use crate::{Flags, Packet};

use super::{Buffer, Config, Connection, FINISHED, State, Stats, sender};

impl Connection {
    /// The counters so far.
    #[inline]
    pub fn stats(&self) -> Stats {
        self.stats.all()
    }

    /// Bytes of the segments received so far.
    #[inline]
    pub fn bytes_received(&self) -> u64 {
        self.stats.bytes_received
    }

    /// The state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// The flow its packets belong to.
    pub fn flow(&self) -> u32 {
        self.flow
    }

    /// The shared configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The smoothed round-trip time, zero before the first sample.
    #[inline]
    pub fn srtt(&self) -> Time {
        self.send.rtt.srtt()
    }

    /// The latest round-trip sample, zero before the first.
    pub fn latest_rtt(&self) -> Time {
        self.send.rtt.latest
    }

    /// The least round-trip time, [`Time::NEVER`] before the first sample.
    pub fn min_rtt(&self) -> Time {
        self.send.rtt.min
    }

    /// The present retransmission timeout, backoff included.
    pub fn rto(&self) -> Time {
        self.send.rtt.rto(&self.config.rto)
    }

    /// The law's window, segments.
    #[inline]
    pub fn cwnd(&self) -> f64 {
        self.send.law.window()
    }

    /// Bytes written and not sent yet; [`u64::MAX`] for an unlimited stream or endless frames.
    pub fn unsent(&self) -> u64 {
        self.send.source.queued()
    }

    /// True if [`finish`](Connection::finish) was called: no more data can be written.
    pub fn is_closing(&self) -> bool {
        self.send.source.finished
    }

    /// True if all data of the other side have arrived, and no more will.
    pub fn has_peer_finished(&self) -> bool {
        self.receive.finished
    }

    /// Segments in the network: neither acknowledged, reported received nor declared lost.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.send.board.pipe()
    }

    /// Segments sent and not acknowledged cumulatively.
    pub fn outstanding(&self) -> u32 {
        self.send.board.outstanding()
    }

    /// The pace of the law; `None` if acknowledgements clock packets.
    #[inline]
    pub fn pacing_rate(&self, now: Time) -> Option<Rate> {
        if self.send.law.ack_clocked() {
            return None;
        }
        self.send.law.pacing_rate(&self.send.flight(now, &self.config))
    }

    /// The first unacknowledged segment: payload before it can be dropped.
    pub fn una(&self) -> u32 {
        self.send.board.una
    }

    /// The segment expected next from the other side.
    pub fn expected(&self) -> u32 {
        self.receive.next
    }

    /// Room from [`Connection::expected`] on, in segments.
    pub fn receive_window(&self) -> u32 {
        self.receive.window()
    }

    /// True while a loss is being repaired.
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

    /// True if all data up to [`Connection::finish`] or [`Connection::stop`] are acknowledged.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.told & FINISHED != 0
    }

    /// True if the other side is known to have all data and the FIN, so that it waits for nothing
    /// more.
    pub fn is_acknowledged(&self) -> bool {
        self.is_finished() && self.send.source.fin_sent() && self.outstanding() == 0
    }

    /// True if a packet's data may come from the other side: its segment is within the window, and
    /// its length valid. An engine that receives packets of other origins checks this first.
    pub fn fits(&self, packet: &Packet) -> bool {
        let beyond = packet.seq.wrapping_sub(self.receive.next.wrapping_add(self.receive.window()));
        let sizes = self.config.header..=self.config.segment.max(self.config.header.saturating_add(1));
        (beyond as i32) < 0 && sizes.contains(&packet.size)
    }

    /// True if a packet's data would be accepted: the connection is open, the packet acknowledges
    /// sent data only, and its segment is within the window and new. The payload of other packets
    /// does not matter.
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
