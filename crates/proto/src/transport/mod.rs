//! ACP, the framed, reliable transport that stands in for TCP in the simulator and runs over UDP on
//! real packets.
//!
//! A [`Connection`] is one endpoint: a sending half and a receiving half. It numbers **segments**
//! (RFC 1982 serial numbers), and a segment is immutable: a retransmission equals the original. A
//! frame spans any number of segments, with flags on the first and the last; a byte stream is
//! segments without flags. The engine stores the payload by segment number; the machine only sees
//! lengths.
//!
//! | | |
//! |---|---|
//! | loss | by duplicates (RFC 6582), SACK (RFC 6675), time (RFC 8985) or timeout (RFC 6298) |
//! | rate | a [sender law](tollway_law::sender) sets window, pace and toll |
//! | round trips | from a stamp on every packet and its echo, so no sample is ambiguous |
//! | flow control | a window in segments that never shrinks, or a [soft](FlowControl::Soft) rate |
//!
//! An engine calls [`handle_packet`](Connection::handle_packet) and
//! [`handle_timeout`](Connection::handle_timeout), and after either
//! [`poll_transmit`](Connection::poll_transmit) until it returns false, then
//! [`poll_event`](Connection::poll_event) and [`poll_timeout`](Connection::poll_timeout). It may
//! first offer a packet to [`answer`](Machine::answer), a fast path for expected packets, or to
//! [`respond`](Machine::respond), which handles any packet.

mod config;
pub(crate) mod early;
mod inline;
mod predict;
mod receiver;
mod renew;
mod respond;
pub(crate) mod ring;
pub(crate) mod rtt;
mod sender;
pub(crate) mod serial;
mod settings;
mod stats;
pub mod stream;
mod view;

pub use config::{Config, Detection, FlowControl, Reader, Rto, WindowGrowth};
pub use stats::{Buffer, Event, Stats};

use std::mem::offset_of;
use std::sync::Arc;

use tollway_law::sender::AnySender;
use tollway_law::{Time, Toll};
use tracing::debug;

use crate::{Answer, Flags, Machine, Packet, SackRanges, Stamp};

use predict::Expected;
use receiver::Receiver;
use respond::Plain;
use sender::{Scoreboard, Sender};
use stats::Counters;

/// One endpoint of a connection.
///
/// Fields are in order of use, here and in the parts: an engine with thousands of connections is
/// limited by memory access. A packet of an undisturbed connection touches four cache lines of a
/// receiver, and seven of a sender.
#[derive(Debug)]
#[repr(C)]
pub struct Connection {
    config: Arc<Config>,
    flow: u32,
    state: State,
    events: u8,
    told: u8,
    /// The kind of packet expected next.
    expected: Expected,
    receive: Receiver,
    send: Sender,
    stats: Counters,
}

/// Cache lines begin with the sequence numbers in flight and with the counters, if an engine stores
/// [`HEAD`] bytes before a connection.
const _: () = {
    let una = offset_of!(Connection, send) + offset_of!(Sender, board) + offset_of!(Scoreboard, una);
    assert!((HEAD + una).is_multiple_of(64) && (HEAD + offset_of!(Connection, stats)).is_multiple_of(64));
    assert!(HEAD + size_of::<Connection>() == 9 * 64);
};

/// The simulator's own state per endpoint, bytes.
const HEAD: usize = 56;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Not opened yet.
    Idle,
    /// A client that has sent, or is about to send, its SYN.
    SynSent,
    /// A server that has received a SYN and waits for the acknowledgement of its own.
    SynReceived,
    /// Both ends know of each other; data flow until each side has finished.
    Established,
    /// Aborted by either side: no packet is answered.
    Reset,
}

impl Connection {
    /// The side that opens. `law` controls the data that this side sends, `flow` is written into
    /// its packets.
    pub fn client(config: &Arc<Config>, law: AnySender, flow: u32) -> Connection {
        Connection {
            state: State::Idle,
            flow,
            events: 0,
            told: 0,
            expected: Expected::Anything,
            send: Sender::new(config, law),
            receive: Receiver::new(config),
            stats: Counters::default(),
            config: Arc::clone(config),
        }
    }

    /// The side that is opened. Without a handshake it is established from the start.
    pub fn server(config: &Arc<Config>, law: AnySender, flow: u32) -> Connection {
        let mut connection = Connection::client(config, law, flow);
        if !config.handshake {
            connection.establish_unasked(Time::ZERO);
        }
        connection
    }

    /// Opens the connection: a SYN waits to be sent, or without a handshake data may leave at once.
    /// No effect on an open connection, or on a server's.
    pub fn open(&mut self, now: Time) {
        self.forget();
        if self.state != State::Idle {
            return;
        }
        if self.config.handshake {
            self.state = State::SynSent;
            self.send.source.queue_syn();
        } else {
            self.establish_unasked(now);
        }
    }

    fn establish_unasked(&mut self, now: Time) {
        self.send.set_window(self.config.first_window());
        self.send.source.open();
        self.receive.sync(self.config.initial_segment);
        self.establish(now);
    }

    fn establish(&mut self, now: Time) {
        debug!(target: "transport", %now, flow = self.flow, "connection open");
        self.state = State::Established;
        self.tell(CONNECTED);
    }

    /// Queues a frame of `bytes`, to be delivered whole and in order; a frame of zero bytes is a
    /// segment without payload.
    pub fn write_frame(&mut self, bytes: u64) {
        self.write_frames(bytes, 1);
    }

    /// Queues `count` frames of `bytes` each; [`u64::MAX`] frames end only at [`Connection::stop`].
    pub fn write_frames(&mut self, bytes: u64, count: u64) {
        self.forget();
        self.send.source.write_frames(bytes, count);
    }

    /// Queues `bytes` of a stream without frames.
    pub fn write_stream(&mut self, bytes: u64) {
        self.forget();
        self.send.source.write_stream(bytes);
    }

    /// Queues a stream that ends only at [`Connection::stop`].
    pub fn write_unlimited(&mut self) {
        self.forget();
        self.send.source.write_stream(u64::MAX);
    }

    /// Closes this direction by a FIN after the queued data.
    pub fn finish(&mut self) {
        self.forget();
        self.send.source.finished = true;
        self.check_finished();
    }

    /// Drops data not sent yet, and finishes. Data in flight are still repaired.
    pub fn stop(&mut self) {
        self.send.source.clear();
        self.finish();
    }

    /// Aborts the connection; the next packet informs the other side.
    pub fn abort(&mut self) {
        self.forget();
        if matches!(self.state, State::SynReceived | State::Established) {
            self.receive.ack_now = true;
        }
        self.reset();
    }

    fn reset(&mut self) {
        self.state = State::Reset;
        self.send.shut();
        self.receive.ack_at = Time::NEVER;
    }

    /// Handles a packet of this connection; `sack` is valid if the packet has [`Flags::SACK`].
    pub fn handle_packet(&mut self, now: Time, packet: &Packet, sack: &SackRanges) {
        self.expected = Expected::Anything;
        const RARE: u16 = Flags::SYN.0 | Flags::RST.0;
        if (self.state != State::Established || packet.flags.0 & RARE != 0) && !self.handle_rare(now, packet)
        {
            return;
        }
        let acks = packet.flags.has(Flags::ACK);
        if acks && packet.ack != self.send.board.una && !self.send.plausible(packet.ack) {
            // A packet that acknowledges unsent data (RFC 9293 § 3.10.7.4) is answered and ignored.
            self.receive.ack_now = true;
            self.send.plain = false;
            return;
        }
        if packet.flags.0 & (Flags::DATA.0 | Flags::FIN.0) != 0 {
            self.send.plain = false;
            self.receive.on_segment(now, packet, &self.config, &mut self.stats);
            if self.receive.has_news() {
                self.note_arrivals();
            }
        }
        if acks {
            self.send.on_ack(now, packet, sack, &self.config, &mut self.stats);
            if self.send.source.finished {
                self.check_finished();
            }
        }
    }

    /// Forgets the expectation of the next packet.
    fn forget(&mut self) {
        self.expected = Expected::Anything;
        self.send.idle = false;
        self.send.plain = false;
    }

    /// Handles handshake and reset. Returns true if the packet needs the general handling as well.
    #[cold]
    fn handle_rare(&mut self, now: Time, packet: &Packet) -> bool {
        self.forget();
        if packet.flags.has(Flags::RST) {
            self.handle_reset(now, packet);
            return false;
        }
        let syn = packet.flags.has(Flags::SYN);
        let acks_syn = self.acks_syn(packet);
        match self.state {
            State::Idle if syn && !packet.flags.has(Flags::ACK) && self.config.handshake => {
                self.receive.sync(packet.seq.wrapping_add(1));
                self.receive.note(packet);
                self.send.source.queue_syn();
                self.state = State::SynReceived;
                false
            }
            State::SynSent if syn && acks_syn => {
                self.receive.sync(packet.seq.wrapping_add(1));
                self.send.on_syn_acked(now, packet, &self.config);
                self.receive.note(packet);
                self.establish(now);
                false
            }
            State::SynReceived if !syn && acks_syn => {
                self.send.on_syn_acked(now, packet, &self.config);
                self.establish(now);
                // It may carry data as well.
                true
            }
            // A repeated SYN: our acknowledgement of it was lost.
            State::Established if syn => {
                self.receive.note(packet);
                false
            }
            _ => false,
        }
    }

    fn acks_syn(&self, packet: &Packet) -> bool {
        packet.flags.has(Flags::ACK)
            && packet.ack == self.config.initial_segment.wrapping_add(1)
            && packet.ack == self.send.board.next
    }

    /// RFC 5961 § 3.2: only the number expected next resets at once; another is answered by an
    /// acknowledgement.
    fn handle_reset(&mut self, now: Time, packet: &Packet) {
        let ours = match self.state {
            State::Idle | State::Reset => return,
            State::SynSent => packet.flags.has(Flags::ACK) && packet.ack == self.send.board.next,
            State::SynReceived | State::Established => packet.seq == self.receive.next,
        };
        if ours {
            debug!(target: "transport", %now, flow = self.flow, "connection reset");
            self.reset();
            self.tell(RESET);
        } else if self.state != State::SynSent {
            self.receive.ack_now = true;
        }
    }

    /// Handles a time that [`Connection::poll_timeout`] returned. An early call has no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.state == State::Reset || now < self.receive.ack_at && now < self.send.alarm() {
            return;
        }
        self.expected = Expected::Anything;
        self.receive.on_timer(now, &mut self.stats);
        if self.receive.reads && self.receive.has_news() {
            self.note_arrivals();
        }
        self.send.on_timer(now, self.flow, &self.config, &mut self.stats);
    }

    /// The time of the next [`Connection::handle_timeout`], followed by
    /// [`Connection::poll_transmit`]; [`Time::NEVER`] if there is no timer.
    #[inline]
    pub fn poll_timeout(&self) -> Time {
        self.send.timeout().min(self.receive.ack_at)
    }

    /// Builds the next packet to send in `out`, and its ranges in `sack`. Returns false if there is
    /// none.
    ///
    /// `out` may be a recycled packet: every field of the transport is written. If it has
    /// [`Flags::SACK`], the engine must store `sack`.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        if self.send.plain {
            let sent = self.transmit_plain(now, out);
            if sent != Plain::Unable {
                sack.clear();
                return sent == Plain::Sent;
            }
        }
        self.transmit_anything(now, out, sack)
    }

    #[inline(never)]
    fn transmit_anything(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        if self.state == State::Reset {
            return self.transmit_reset(now, out, sack);
        }
        if self.send.idle || !self.send.transmit(now, out, &self.config, &mut self.stats) {
            if !self.receive.ack_now {
                if self.expected == Expected::Anything {
                    self.settle();
                    self.note_plain();
                }
                return false;
            }
            out.toll = Toll::default();
            out.seq = self.send.board.next;
            out.flags = Flags::NONE;
            out.size = self.config.ack_size;
            self.stats.acks_sent += 1;
        }
        out.flow = self.flow;
        out.sent = Stamp::at(now);
        out.sent_echo = Stamp(0);
        self.receive.write(out, sack, &self.config);
        if out.flags.has(Flags::DATA) {
            // The rest of a burst leaves on the fast path.
            self.note_plain();
        }
        true
    }

    /// Size on the wire of the data packet that [`Connection::poll_transmit`] would build now, in
    /// bytes; `None` if it would build none, or one without data.
    pub fn poll_size(&mut self, now: Time) -> Option<u16> {
        self.forget();
        if self.state == State::Reset { None } else { self.send.next_size(now, &self.config) }
    }

    /// [`Connection::poll_transmit`] while a shaper holds data back: an acknowledgement, if one is
    /// due. An unused window does not grow (RFC 7661).
    pub fn poll_control(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        self.forget();
        if self.state == State::Reset {
            return self.transmit_reset(now, out, sack);
        }
        self.send.hold();
        if self.receive.ack_now {
            self.stats.acks_sent += 1;
            self.write_bare(now, out, sack);
            return true;
        }
        false
    }

    #[cold]
    fn transmit_reset(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        if !std::mem::take(&mut self.receive.ack_now) {
            return false;
        }
        self.write_bare(now, out, sack);
        out.flags = Flags::RST.with(Flags::ACK);
        sack.clear();
        true
    }

    /// Writes a packet without data, with the receiver's report.
    #[inline]
    fn write_bare(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) {
        out.toll = Toll::default();
        out.flow = self.flow;
        out.seq = self.send.board.next;
        out.size = self.config.ack_size;
        out.sent = Stamp::at(now);
        out.sent_echo = Stamp(0);
        out.flags = Flags::NONE;
        self.receive.write(out, sack, &self.config);
    }

    /// The next event, if there is one.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events == 0 { None } else { self.next_event() }
    }

    #[cold]
    fn next_event(&mut self) -> Option<Event> {
        for (bit, event) in EVENTS {
            if self.events & bit == 0 {
                continue;
            }
            if bit == FRAMES
                && let Some(frame) = self.receive.next_frame()
            {
                return Some(frame);
            }
            self.events &= !bit;
            if let Some(event) = event {
                return Some(event);
            }
        }
        None
    }

    /// Reports an event, once in the life of the connection.
    fn tell(&mut self, bit: u8) {
        if self.told & bit == 0 {
            self.told |= bit;
            self.events |= bit;
        }
    }

    fn note_arrivals(&mut self) {
        self.events |= FRAMES;
        if self.receive.finished {
            self.tell(PEER_FINISHED);
            self.check_finished();
        }
    }

    fn check_finished(&mut self) {
        let source = &self.send.source;
        if !source.finished || source.has_data() || self.state != State::Established {
            return;
        }
        let left = self.send.board.outstanding();
        let fin_sent = source.fin_sent();
        // Only the FIN may be left.
        if left == 0 || (left == 1 && fin_sent) {
            self.tell(FINISHED);
        }
        if left == 0 && fin_sent && self.receive.finished {
            self.tell(CLOSED);
        }
    }
}

/// The interface for engines; a stop ends both directions.
impl Machine for Connection {
    fn open(&mut self, now: Time) {
        Connection::open(self, now);
    }

    fn stop(&mut self, _: Time) {
        Connection::stop(self);
    }

    #[inline]
    fn handle_packet(&mut self, now: Time, packet: &Packet, sack: &SackRanges) {
        Connection::handle_packet(self, now, packet, sack);
    }

    #[inline]
    fn answer(&mut self, now: Time, packet: &mut Packet) -> Answer {
        self.answer_expected(now, packet)
    }

    #[inline]
    fn take_turn(&mut self, now: Time, out: &mut Packet) -> Answer {
        self.take_paced_turn(now, out)
    }

    #[inline]
    fn respond(&mut self, now: Time, packet: &mut Packet, sack: &SackRanges, out: &mut SackRanges) -> Answer {
        self.respond_in_place(now, packet, sack, out)
    }

    fn handle_timeout(&mut self, now: Time) {
        Connection::handle_timeout(self, now);
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        Connection::poll_timeout(self)
    }

    #[inline]
    fn is_done(&self) -> bool {
        self.is_finished()
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        Connection::poll_transmit(self, now, out, sack)
    }

    fn poll_size(&mut self, now: Time) -> Option<u16> {
        Connection::poll_size(self, now)
    }

    fn poll_control(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        Connection::poll_control(self, now, out, sack)
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        Some(self)
    }

    fn round_trips(&self) -> (Time, Time) {
        let least = self.min_rtt();
        (if least == Time::NEVER { Time::ZERO } else { least }, self.srtt())
    }

    fn set_increase(&mut self, segments: f64) {
        if let AnySender::NewReno(law) = self.law_mut() {
            law.set_increase(segments);
        }
    }
}

const CONNECTED: u8 = 1;
const FRAMES: u8 = 2;
const PEER_FINISHED: u8 = 4;
const FINISHED: u8 = 8;
const CLOSED: u8 = 16;
const RESET: u8 = 32;

/// Events in order of their report.
const EVENTS: [(u8, Option<Event>); 6] = [
    (CONNECTED, Some(Event::Connected)),
    (FRAMES, None),
    (PEER_FINISHED, Some(Event::PeerFinished)),
    (FINISHED, Some(Event::Finished)),
    (CLOSED, Some(Event::Closed)),
    (RESET, Some(Event::Reset)),
];

#[cfg(test)]
mod tests;
