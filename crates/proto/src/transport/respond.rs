//! The fast path of packets that are not the [expected](super::predict) one, for flows with many
//! losses: segments after a gap, acknowledgements that report ranges or end a timeout, and
//! retransmissions.
//!
//! It takes the steps of [`Connection::handle_packet`] and [`Connection::poll_transmit`] in the
//! packet's own slot. An end that only acknowledges answers at once. An end whose stream is clocked
//! by acknowledgements alone ([`Sender::plain`]) sends without the checks for frames, pacing, tolls
//! and measurement. Whether there is more to send usually follows from the window alone.

use tollway_law::sender::{AnySender, NewReno, SenderLaw};
use tollway_law::{Time, Toll};

use crate::{Answer, Flags, Packet, SackRanges, Stamp};

use super::predict::Expected;
use super::sender::{Force, Phase, Sender};
use super::{Connection, State};

/// The result of an attempt to send on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    /// The fast path does not apply, and nothing was changed.
    Unable,
    /// There is nothing to send.
    Nothing,
    /// A packet was built.
    Sent,
}

impl Connection {
    /// Handles any packet, and replaces it by the first packet to send.
    #[inline]
    pub(super) fn respond_in_place(
        &mut self,
        now: Time,
        packet: &mut Packet,
        sack: &SackRanges,
        out: &mut SackRanges,
    ) -> Answer {
        if self.send.idle && self.is_mere_segment(packet) {
            return self.acknowledge_in_place(now, packet, out);
        }
        if self.send.plain && self.is_mere_acknowledgement(packet) {
            self.expected = Expected::Anything;
            self.send.on_ack(now, packet, sack, &self.config, &mut self.stats);
            match self.transmit_plain(now, packet) {
                Plain::Unable => {}
                Plain::Nothing => return Answer::Nothing,
                Plain::Sent if !self.send.is_full(&self.config) => return Answer::More,
                Plain::Sent => {
                    self.send.app_limited = false;
                    self.settle_plain();
                    return Answer::Packet;
                }
            }
        } else {
            self.handle_packet(now, packet, sack);
        }
        if self.poll_transmit(now, packet, out) { Answer::More } else { Answer::Taken }
    }

    /// True if a packet brings a segment or a FIN, and no feedback on data sent.
    #[inline]
    fn is_mere_segment(&self, packet: &Packet) -> bool {
        const LOOKED_AT: u16 = Flags::ACK.0 | RARE | TELLS;
        const RARE: u16 = Flags::SYN.0 | Flags::RST.0;
        const TELLS: u16 = Flags::STAMP_ECHO.0 | Flags::ECHO.0 | Flags::ECE.0 | Flags::SACK.0;
        packet.flags.0 & LOOKED_AT == Flags::ACK.0
            && packet.flags.0 & (Flags::DATA.0 | Flags::FIN.0) != 0
            && packet.ack == self.send.board.una
            && self.state == State::Established
    }

    /// True if a packet acknowledges segments in flight, or none, and has no other content.
    #[inline]
    fn is_mere_acknowledgement(&self, packet: &Packet) -> bool {
        const ACKNOWLEDGES: u16 = Flags::ACK.0 | Flags::STAMP_ECHO.0;
        let board = &self.send.board;
        packet.flags.0 & !Flags::SACK.0 == ACKNOWLEDGES
            && packet.ack.wrapping_sub(board.una) <= board.outstanding()
    }

    /// [`Connection::respond_in_place`] for an end that has only acknowledgements to send.
    #[inline]
    fn acknowledge_in_place(&mut self, now: Time, packet: &mut Packet, out: &mut SackRanges) -> Answer {
        self.expected = Expected::Anything;
        self.receive.on_segment(now, packet, &self.config, &mut self.stats);
        if self.receive.has_news() {
            self.note_arrivals();
        }
        self.send.open_window(packet);
        if !self.receive.ack_now {
            self.settle();
            return Answer::Nothing;
        }
        self.stats.acks_sent += 1;
        self.write_bare(now, packet, out);
        if self.receive.ack_now {
            return Answer::More;
        }
        if self.receive.early.is_none() {
            self.settle();
        }
        Answer::Only
    }

    /// [`Connection::poll_transmit`] of a sender that is [`plain`](Sender::plain).
    #[inline]
    pub(super) fn transmit_plain(&mut self, now: Time, out: &mut Packet) -> Plain {
        let config = &*self.config;
        let send = &mut self.send;
        let pipe = send.board.pipe();
        let counted = send.counted(config);
        match send.force {
            Force::Nothing if pipe >= send.window && counted >= send.window => return self.hold_plain(),
            Force::Nothing | Force::Lost => {}
            Force::First | Force::Fresh | Force::Last => return Plain::Unable,
        }
        let payload = config.payload();
        if !send.has_room(config) || !send.source.streams(payload) {
            return Plain::Unable;
        }
        let forced = std::mem::replace(&mut send.force, Force::Nothing) == Force::Lost;
        match send.board.first_pending() {
            Some(seq) if forced || pipe < send.window => {
                send.restart_at_repair(now, seq, config);
                let slot = send.resend(now, seq, &mut self.stats);
                if send.rto_at == Time::NEVER {
                    send.rto_at = now.saturating_add(send.rtt.rto(&config.rto));
                }
                out.seq = seq;
                out.toll = Toll::default();
                out.size = config.header.saturating_add(slot.payload);
                out.flags = slot.frame_flags().with(AGAIN);
            }
            None if counted < send.window => out.seq = send.send_fresh::<NewReno>(now, payload, out, config),
            _ => return self.hold_plain(),
        }
        self.stats.segments_sent += 1;
        self.stats.bytes_sent += u64::from(out.size);
        out.ack = self.receive.next;
        out.sent_echo = Stamp(0);
        out.sent = Stamp::at(now);
        out.window = self.receive.renew_window();
        out.flow = self.flow;
        Plain::Sent
    }

    /// Holds data back: the window has no room.
    #[inline]
    fn hold_plain(&mut self) -> Plain {
        self.send.app_limited = false;
        self.settle_plain();
        Plain::Nothing
    }

    /// [`Connection::settle`], where a check shows that no packet can be expected.
    #[inline]
    fn settle_plain(&mut self) {
        if self.send.phase == Phase::Open && self.send.board.clean() && self.expected == Expected::Anything {
            self.settle();
        }
    }

    /// Determines whether the sender is plain, at the end of the general path.
    pub(super) fn note_plain(&mut self) {
        self.send.plain = self.state == State::Established && self.send.is_plain() && self.receive.is_quiet();
    }
}

impl Sender {
    /// True if a stream continues that acknowledgements alone clock, and delivery is not measured.
    fn is_plain(&self) -> bool {
        let law = matches!(self.law, AnySender::NewReno(_) | AnySender::Cubic(_)) && !self.law.tolled();
        let measures = !self.extra.is_none() || self.board.sampler.is_some();
        law && !measures && !self.paced && self.streams()
    }
}

/// The flags of a retransmission, which also acknowledges.
const AGAIN: Flags = Flags::DATA.with(Flags::ACK).with(Flags::RETRANSMIT);
