//! The packets that a switch makes itself: acknowledgements, null segments, SYN, FIN and resets.

use tollway_law::Time;

use crate::{Flags, Packet, SackRanges, Stamp};

use super::members::Health;
use super::session::{Session, Stage};

impl Session {
    /// Builds the next packet; returns the side that it goes to.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        out: &mut Packet,
        sack: &mut SackRanges,
    ) -> Option<u32> {
        if !self.has_work() {
            return None;
        }
        self.attend_leavers(now);
        *out = Packet { size: self.config.ack_size, sent: Stamp::at(now), ..Packet::default() };
        sack.clear();
        for k in 0..self.members.len() {
            if self.build_for_member(k, now, out, sack) {
                return Some(k as u32 + 1);
            }
        }
        if self.build_for_peer(now, out, sack) {
            return Some(0);
        }
        self.reschedule(now);
        None
    }

    fn build_for_member(&mut self, k: usize, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        let open = self.stage == Stage::Open;
        let member = &mut self.members[k];
        if let Some((seq, ack)) = member.reset.take() {
            (out.seq, out.ack) = (seq, ack);
            out.flags = Flags::RST.with(Flags::ACK);
            return true;
        }
        if member.health == Health::Opening && member.syn_at <= now {
            member.syn_at = now.saturating_add(member.to.round.timeout());
            out.seq = member.to.first.wrapping_sub(1);
            out.flags = Flags::SYN;
            return true;
        }
        if !member.is_up() || !open {
            return false;
        }
        let timeout = member.to.round.timeout();
        if std::mem::take(&mut member.greet) {
            // A member that waits for it accepts no data. Its own SYN may be repeated after it
            // counts as dead.
            let again = now.saturating_add(timeout.min(Time(self.config.patience.0 / 8)));
            member.syn_at = again;
            out.seq = member.to.first.wrapping_sub(1);
            out.flags = Flags::SYN;
            self.wake(again);
        } else if let Some(null) = member.to.nulls.take_due(now, timeout) {
            out.seq = null.number;
            (out.flags, out.size) = self.null(null.fin);
            self.members[k].expect(now);
        } else if std::mem::take(&mut member.probe) {
            out.seq = member.to.una.wrapping_sub(1);
            (out.flags, out.size) = self.null(false);
            self.members[k].expect(now);
        } else if member.from.owes {
            out.seq = member.to.next;
        } else {
            return false;
        }
        self.outbound.write(now, k, out, sack, &mut self.members, &self.config);
        true
    }

    fn build_for_peer(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        if let Some((seq, ack)) = self.reset.take() {
            (out.seq, out.ack) = (seq, ack);
            out.flags = Flags::RST.with(Flags::ACK);
            return true;
        }
        if self.stage != Stage::Open {
            return false;
        }
        let timeout = self.outbound.round.timeout();
        if std::mem::take(&mut self.greet) {
            out.seq = self.first().wrapping_sub(1);
            out.flags = Flags::SYN;
            if let Some(stamp) = self.greeting.take() {
                out.sent_echo = stamp;
                out.flags.set(Flags::STAMP_ECHO);
            }
        } else if let Some(null) = self.outbound.nulls.take_due(now, timeout) {
            out.seq = null.number;
            (out.flags, out.size) = self.null(null.fin);
        } else if self.answer {
            out.seq = self.outbound.space.next;
        } else {
            return false;
        }
        self.answer = false;
        self.inbound.write(now, out, sack, &self.members, &self.config);
        true
    }

    /// A null segment, or a FIN: flags and size.
    fn null(&self, fin: bool) -> (Flags, u16) {
        if fin { (Flags::FIN, self.config.ack_size) } else { (Flags::DATA, self.config.header) }
    }
}
