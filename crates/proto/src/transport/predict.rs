//! Header prediction: the fast path of the packet that nearly always comes next.
//!
//! On a flow without losses the sender gets one acknowledgement like another, and the receiver the
//! next segment in order. The answer to either differs in a few numbers only (V. Jacobson, "4BSD
//! Header Prediction", ACM CCR 20(2), 1990). Such a packet is answered in its own slot, without the
//! checks for losses, marks, frames and timers. Whether that is possible is decided at the end of
//! the general path ([`Connection::settle`]), and reset by any other event.
//!
//! The result equals that of the general path, bit for bit: `tests/predict.rs` compares both.

use tollway_law::sender::{Acked, AnySender, Fcp, NewReno, Xcp};
use tollway_law::{Time, Toll};

use crate::{Answer, Flags, Packet, Stamp};

use super::config::MAX_WINDOW;
use super::inline::Inline;
use super::receiver::Receiver;
use super::sender::{Force, Phase, Sender, Slot};
use super::serial::later;
use super::{Connection, State};

/// The packet expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Expected {
    /// Any packet: the general path.
    Anything,
    /// The next segment in order, to be acknowledged at once, from a peer without data of ours to
    /// acknowledge.
    Segment,
    /// An acknowledgement of data in flight, from a peer that sends no data; a stream continues, or
    /// all has been sent.
    Acknowledgement,
}

impl Connection {
    /// Answers a packet in its own slot, if it is the one expected.
    #[inline]
    pub(super) fn answer_expected(&mut self, now: Time, packet: &mut Packet) -> Answer {
        const SEGMENT: u16 = Flags::DATA.0 | Flags::ACK.0;
        const ACKNOWLEDGEMENT: u16 = Flags::ACK.0 | Flags::STAMP_ECHO.0;
        match self.expected {
            Expected::Segment if packet.flags.0 & !(Flags::TOLLED.0 | Flags::RETRANSMIT.0) == SEGMENT => {
                self.answer_segment(now, packet)
            }
            Expected::Acknowledgement if packet.flags.0 & !Flags::ECHO.0 == ACKNOWLEDGEMENT => {
                self.answer_acknowledgement(now, packet)
            }
            _ => Answer::Unanswered,
        }
    }

    /// Acknowledges the next segment at once.
    #[inline]
    fn answer_segment(&mut self, now: Time, packet: &mut Packet) -> Answer {
        let receive = &mut self.receive;
        let board = &self.send.board;
        if packet.seq != receive.next || packet.ack != board.una {
            return Answer::Unanswered;
        }
        self.send.open_window(packet);
        let size = u64::from(packet.size);
        self.stats.segments_received += 1;
        self.stats.bytes_received += size;
        self.stats.segments_delivered += 1;
        self.stats.bytes_delivered += size.saturating_sub(u64::from(self.config.header));
        self.stats.acks_sent += 1;
        let next = receive.next.wrapping_add(1);
        receive.next = next;
        receive.edge = later(receive.edge, next.wrapping_add(receive.room));
        let mut flags = Flags::ACK.with(Flags::STAMP_ECHO);
        let mut toll = Toll::default();
        if packet.flags.has(Flags::TOLLED) {
            receive.feedback.on_data(&packet.toll);
            if let Some(echo) = receive.feedback.take() {
                flags.set(Flags::ECHO);
                toll.echo = echo;
            }
            if receive.feedback.gap() {
                flags.set(Flags::GAP);
            }
        } else if packet.in_profile() {
            self.stats.rare().in_profile_received += size;
        }
        packet.toll = toll;
        packet.seq = self.send.board.next;
        packet.ack = next;
        packet.sent_echo = packet.sent;
        packet.sent = Stamp::at(now);
        packet.window = receive.edge.wrapping_sub(next).min(MAX_WINDOW);
        packet.flow = self.flow;
        packet.size = self.config.ack_size;
        packet.flags = flags;
        Answer::Only
    }

    /// Sends the data that an acknowledgement makes room for, in its slot.
    #[inline]
    fn answer_acknowledgement(&mut self, now: Time, packet: &mut Packet) -> Answer {
        let send = &self.send;
        let advance = packet.ack.wrapping_sub(send.board.una);
        if advance == 0 || advance > send.board.outstanding() {
            return Answer::Unanswered;
        }
        match &send.law {
            AnySender::NewReno(_) => self.answer_clocked::<NewReno>(now, packet, advance),
            law if law.ack_clocked() => self.answer_explicit(now, packet, advance),
            _ => self.answer_paced(now, packet, advance),
        }
    }

    /// [`answer_acknowledgement`](Connection::answer_acknowledgement) for a law other than NewReno
    /// that is clocked by acknowledgements.
    #[inline(never)]
    fn answer_explicit(&mut self, now: Time, packet: &mut Packet, advance: u32) -> Answer {
        self.answer_clocked::<Xcp>(now, packet, advance)
    }

    /// [`answer_acknowledgement`](Connection::answer_acknowledgement) for a law `L` clocked by
    /// acknowledgements, inlined.
    #[inline(always)]
    fn answer_clocked<L: Inline>(&mut self, now: Time, packet: &mut Packet, advance: u32) -> Answer {
        let send = &mut self.send;
        let config = &*self.config;
        let expiry = send.rto_at;
        let (acked, left) = send.take_clean(now, packet, advance, config);
        send.tell::<L>(now, config, || acked);
        let payload = config.payload();
        if left >= send.window || !send.has_room(config) || !send.source.streams(payload) {
            return self.answer_held(left, expiry);
        }
        let seq = send.send_fresh::<L>(now, payload, packet, config);
        self.stats.segments_sent += 1;
        self.stats.bytes_sent += u64::from(packet.size);
        packet.seq = seq;
        packet.ack = self.receive.next;
        packet.sent_echo = Stamp(0);
        packet.sent = Stamp::at(now);
        packet.window = self.receive.renew_window();
        packet.flow = self.flow;
        if left + 1 < send.window {
            return Answer::More;
        }
        send.app_limited = false;
        Answer::Packet
    }

    /// The answer to an acknowledgement that leaves `left` segments in flight, after which no full
    /// segment of a stream leaves; `expiry` was that of the timer.
    #[inline]
    fn answer_held(&mut self, left: u32, expiry: Time) -> Answer {
        let send = &mut self.send;
        if left <= 1 {
            self.check_finished();
        } else if !send.source.ready() && send.rto_at >= expiry {
            send.app_limited = left < send.window;
            return Answer::Still;
        }
        Answer::Taken
    }

    /// [`answer_acknowledgement`](Connection::answer_acknowledgement) for a law that paces:
    /// computes the departure of the next segment.
    #[inline(never)]
    fn answer_paced(&mut self, now: Time, packet: &Packet, advance: u32) -> Answer {
        let send = &mut self.send;
        let config = &*self.config;
        let (acked, left) = send.take_clean(now, packet, advance, config);
        send.tell::<Fcp>(now, config, || acked);
        if left < send.window {
            let turn = send.paced_out.then_some(send.pace_at);
            send.paced_out = false;
            let ready = send.has_room(config) && send.source.streams(config.payload());
            if ready && send.waits_its_turn(now, config) {
                return if turn == Some(send.pace_at) { Answer::Still } else { Answer::Nothing };
            }
        }
        self.check_finished();
        Answer::Taken
    }

    /// Sends the next segment of a stream, if it is due and nothing else is.
    #[inline(never)]
    pub(super) fn take_paced_turn(&mut self, now: Time, out: &mut Packet) -> Answer {
        let send = &mut self.send;
        let config = &*self.config;
        let payload = config.payload();
        // That something is ready but for its turn was found out after the last news.
        let ready =
            self.expected == Expected::Acknowledgement && send.paced_out && send.source.streams(payload);
        if !ready || now < send.pace_at || now >= send.alarm() {
            return Answer::Unanswered;
        }
        let seq = send.send_fresh::<Fcp>(now, payload, out, config);
        send.note_departure(now, out.size);
        self.stats.segments_sent += 1;
        self.stats.bytes_sent += u64::from(out.size);
        out.seq = seq;
        out.ack = self.receive.next;
        out.sent_echo = Stamp(0);
        out.sent = Stamp::at(now);
        out.window = self.receive.renew_window();
        out.flow = self.flow;
        send.paced_out = false;
        let more =
            send.board.outstanding() < send.window && send.has_room(config) && send.source.streams(payload);
        if more && send.waits_its_turn(now, config) { Answer::Packet } else { Answer::More }
    }

    /// Determines the next expected packet, at the end of the general path.
    #[inline(never)]
    pub(super) fn settle(&mut self) {
        if self.state != State::Established || !self.send.is_quiet() || self.receive.reads {
            return;
        }
        self.send.idle |= self.send.is_idle();
        if !self.receive.is_quiet() {
            return;
        }
        if self.send.idle && self.config.delayed_ack.is_none() {
            self.expected = Expected::Segment;
        } else if self.send.streams() || self.send.drains() {
            self.expected = Expected::Acknowledgement;
        }
    }
}

impl Receiver {
    /// True if the receiver has no report or event pending, and no segment is missing.
    pub(super) fn is_quiet(&self) -> bool {
        let whole = self.synced && !self.finished && self.early.is_none() && !self.in_frame && !self.framed;
        let said = !self.stamped && !self.ack_now && self.held == 0 && self.ack_at == Time::NEVER;
        let unmarked = !self.marked && !self.was_marked && !self.parted;
        whole && said && unmarked && self.room >= self.capacity && !self.feedback.is_pending()
    }

    /// The window for the next returned packet.
    #[inline]
    pub(super) fn renew_window(&mut self) -> u32 {
        self.edge = later(self.edge, self.next.wrapping_add(self.room));
        self.edge.wrapping_sub(self.next).min(MAX_WINDOW)
    }
}

impl Sender {
    /// True if nothing is lost or forced, and delivery is not measured.
    fn is_quiet(&self) -> bool {
        let whole = self.phase == Phase::Open && self.board.clean() && self.force == Force::Nothing;
        whole && self.board.sampler.is_none()
    }

    /// True if nothing is in flight and nothing to send.
    fn is_idle(&self) -> bool {
        self.board.outstanding() == 0 && !self.source.ready() && self.app_limited && !self.paced_out
    }

    /// True if a stream continues, with no timer except that of retransmission and that of a pace
    /// which only feedback changes.
    pub(super) fn streams(&self) -> bool {
        self.source.ready() && !self.source.control() && self.extra.is_none() && self.law.keeps_pace()
    }

    /// True if all has been sent and some of it is in flight, with no timer except that of
    /// retransmission.
    fn drains(&self) -> bool {
        self.board.outstanding() > 0 && !self.source.ready() && self.extra.is_none() && self.law.keeps_pace()
    }

    /// Handles an acknowledgement of `advance` segments without losses. Returns the law's input,
    /// and the number of segments left in flight.
    #[inline(always)]
    fn take_clean(
        &mut self,
        now: Time,
        packet: &Packet,
        advance: u32,
        config: &super::Config,
    ) -> (Acked, u32) {
        self.open_window(packet);
        let rtt = self.sample(now, packet, config);
        self.board.ack_clean(advance);
        self.rtt.progress();
        self.expiries = 0;
        let left = self.board.outstanding();
        self.rto_at = if left == 0 { Time::NEVER } else { now.saturating_add(self.rtt.rto(&config.rto)) };
        let acked = Acked {
            segments: advance,
            cumulative: advance,
            rtt,
            echo: packet.flags.has(Flags::ECHO).then_some(packet.toll.echo),
            gap: false,
            recovering: false,
            marked: false,
        };
        (acked, left)
    }

    /// Sends the next full segment of a stream, with the law `L` inlined. Returns its number.
    #[inline(always)]
    pub(super) fn send_fresh<L: Inline>(
        &mut self,
        now: Time,
        payload: u16,
        out: &mut Packet,
        config: &super::Config,
    ) -> u32 {
        self.source.cut_full(payload);
        let slot = Slot::new(Stamp::at(now), payload, 0);
        let seq = self.board.push(slot);
        if self.rto_at == Time::NEVER {
            self.rto_at = now.saturating_add(self.rtt.rto(&config.rto));
        }
        out.toll = Toll::default();
        out.size = config.header.saturating_add(payload);
        let mut flags = Flags::DATA.with(Flags::ACK);
        if self.toll_by::<L>(now, out, config) {
            flags.set(Flags::TOLLED);
        }
        if config.ecn {
            flags.set(if config.l4s { Flags::ECT1 } else { Flags::ECT });
        }
        out.flags = flags;
        seq
    }
}
