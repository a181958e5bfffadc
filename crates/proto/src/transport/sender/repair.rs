//! Loss detection and repair: duplicates, recovery, timeouts.

use tollway_law::Time;
use tollway_law::sender::SenderLaw;
use tracing::debug;

use crate::{Flags, Packet, SackRanges};

use super::scoreboard::{DUP_THRESH, Slot};
use super::{Force, Phase, Sender, whole};
use crate::transport::config::{Config, Detection};
use crate::transport::serial::before;
use crate::transport::stats::Counters;

impl Sender {
    /// Handles an acknowledgement while there may be losses to repair. Returns the number of newly
    /// acknowledged segments.
    #[inline(never)]
    pub(in crate::transport) fn repair(
        &mut self,
        now: Time,
        packet: &Packet,
        sack: &SackRanges,
        advance: u32,
        config: &Config,
        stats: &mut Counters,
    ) -> u32 {
        if self.board.clean() {
            self.board.refresh();
        }
        let mut news = self.board.ack(advance, config.heeds_ranges());
        if advance > 0 {
            self.judge_timeout(packet, stats);
            if config.rto.widens && self.expiries > 2 {
                self.board.repair_anew();
            }
        }
        match config.detects() {
            Detection::NewReno | Detection::Reno => {
                self.detect_by_duplicates(now, packet, advance, config, stats)
            }
            // ns-2's senders handle acknowledgements elsewhere.
            Detection::Ns2 => {}
            Detection::Rfc6675 => {
                if packet.flags.has(Flags::SACK) {
                    news += self.board.sack(sack);
                }
                self.board.judge();
            }
            Detection::Rack { .. } => {
                if packet.flags.has(Flags::SACK) {
                    news += self.board.sack(sack);
                }
                self.probe_answered(now, packet, config);
                self.detect_by_time(now, stats);
            }
        }
        if self.phase == Phase::Open && self.board.pending > 0 {
            self.enter_recovery(now, packet.flow, config, stats);
        }
        news
    }

    pub(in crate::transport) fn enter_recovery(
        &mut self,
        now: Time,
        flow: u32,
        config: &Config,
        stats: &mut Counters,
    ) {
        let (una, outstanding) = (self.board.una, self.board.outstanding());
        debug!(target: "transport", %now, flow, una, outstanding, "recovery begins");
        self.phase = Phase::Recovery;
        self.recover = self.board.next;
        self.careful = false;
        self.force = Force::Lost;
        self.board.begin_recovery();
        stats.rare().fast_recoveries += 1;
        let flight = self.flight(now, config);
        self.law.on_loss(&flight);
        self.window = whole(self.law.window());
    }

    #[inline]
    pub(in crate::transport) fn leave_recovery(
        &mut self,
        now: Time,
        flow: u32,
        config: &Config,
        stats: &mut Counters,
    ) {
        if before(self.board.una, self.recover) {
            return;
        }
        if self.phase == Phase::Recovery {
            let flight = self.flight(now, config);
            self.law.on_recovered(&flight);
        }
        self.phase = Phase::Open;
        self.timeout_stamp = None;
        if self.board.pending > 0 {
            // Lost after the recovery point: another episode.
            self.enter_recovery(now, flow, config, stats);
        }
    }

    /// RFC 6582: the third duplicate starts recovery, and each partial acknowledgement shows the
    /// next hole. With Reno it ends recovery.
    fn detect_by_duplicates(
        &mut self,
        now: Time,
        packet: &Packet,
        advance: u32,
        config: &Config,
        stats: &mut Counters,
    ) {
        let duplicate = advance == 0 && self.is_duplicate(packet);
        match self.phase {
            Phase::Open if advance > 0 => self.board.sacked = 0,
            Phase::Open if duplicate => {
                let una = self.board.una;
                // Beyond what is in flight it is behind, be it by more than half of all numbers.
                let ahead = self.recover.wrapping_sub(una);
                let fresh = ahead > self.board.outstanding() || (ahead == 0 && !self.careful);
                // Duplicates that begin no recovery release two segments at most (RFC 3042 § 2).
                let most = if fresh { DUP_THRESH } else { DUP_THRESH - 1 };
                self.board.sacked = (self.board.sacked + 1).min(self.board.outstanding()).min(most);
                if self.board.sacked >= DUP_THRESH {
                    self.board.lose(una);
                    self.enter_recovery(now, packet.flow, config, stats);
                }
            }
            Phase::Recovery if duplicate => {
                self.board.sacked = (self.board.sacked + 1).min(self.board.outstanding() - 1);
            }
            Phase::Recovery if advance > 0 && config.detects() == Detection::Reno => {
                self.board.sacked = 0;
                let flight = self.flight(now, config);
                self.law.on_recovered(&flight);
                self.phase = Phase::Open;
                // `recover` stays: duplicates up to there begin no recovery.
                self.careful = true;
            }
            Phase::Recovery if advance > 0 && before(self.board.una, self.recover) => {
                self.board.lose(self.board.una);
                self.force = Force::Lost;
            }
            Phase::Recovery if advance > 0 => self.board.sacked = 0,
            Phase::Loss => self.board.sacked = 0,
            _ => {}
        }
    }

    /// Detects whether the acknowledgement after a timeout belongs to a packet sent before it
    /// (Eifel, RFC 3522).
    pub(super) fn judge_timeout(&mut self, packet: &Packet, stats: &mut Counters) {
        if let Some(stamp) = self.timeout_stamp.take() {
            let echoed = packet.flags.has(Flags::STAMP_ECHO);
            stats.rare().spurious_timeouts += u32::from(echoed && before(packet.sent_echo.0, stamp.0));
        }
    }

    /// Handles a due timer.
    pub(in crate::transport) fn on_timer(
        &mut self,
        now: Time,
        flow: u32,
        config: &Config,
        stats: &mut Counters,
    ) {
        if self.rack_at <= now {
            self.rack_at = Time::NEVER;
            self.on_rack_timer(now, flow, config, stats);
        }
        if self.rto_at <= now {
            self.on_rto(now, flow, config, stats);
        }
        self.tell_losses(now, config);
    }

    /// RFC 6298 § 5.4–5.6, RFC 5681 § 3.1.
    fn on_rto(&mut self, now: Time, flow: u32, config: &Config, stats: &mut Counters) {
        self.rtt.back_off(&config.rto);
        self.rto_at = now.saturating_add(self.rtt.rto(&config.rto));
        if self.board.outstanding() == 0 {
            // The window is shut: one segment beyond it makes the receiver say how it stands.
            if self.source.ready() {
                self.force = Force::Fresh;
            } else {
                self.rto_at = Time::NEVER;
            }
            return;
        }
        stats.rare().timeouts += 1;
        let (una, outstanding) = (self.board.una, self.board.outstanding());
        let next = self.rto_at;
        debug!(target: "transport", %now, flow, una, outstanding, %next, "retransmission timeout");
        let first = self.expiries == 0;
        let flight = self.flight(now, config);
        let opening = self.board.slot(self.board.una).has(Slot::SYN);
        self.expiries = self.expiries.saturating_add(1);
        if self.extra.is_ns2() {
            return self.on_timeout_ns2();
        }
        let goes_on = config.rto.widens && self.expiries > 2;
        self.board.on_timeout(config.heeds_ranges(), goes_on);
        self.rack_at = Time::NEVER;
        if let Some(rack) = self.extra.rack_mut() {
            rack.clear();
        }
        self.phase = Phase::Loss;
        self.recover = self.board.next;
        self.careful = true;
        self.timeout_stamp = None;
        if opening {
            // A lost SYN says nothing of the path's capacity; the law starts as it would have.
            self.force = Force::Lost;
            return;
        }
        self.law.on_timeout(&flight, first);
        self.window = whole(self.law.window());
        if goes_on {
            self.force = Force::First;
            self.window = self.window.max(1 << u32::from(self.expiries - 2).min(8));
        }
    }
}
