//! Loss detection by time: RACK and the tail-loss probe (RFC 8985).

use std::collections::VecDeque;

use tollway_law::Time;
use tollway_law::sender::SenderLaw;

use crate::{Flags, Packet, Stamp};

use super::scoreboard::{DUP_THRESH, sent_after};
use super::{Phase, Sender};
use crate::transport::config::Config;
use crate::transport::serial::before;
use crate::transport::stats::Counters;

/// The additional state of time-based detection.
#[derive(Clone, Debug)]
pub(in crate::transport) struct Rack {
    /// Retransmissions in the order sent; those acknowledged since are skipped at their turn.
    /// Originals need no list, since they were sent in order of their numbers.
    resent: VecDeque<(u32, Stamp)>,
    /// A retransmission to send again, and the number of copies left.
    copy: Option<(u32, u8)>,
    tail_probe: bool,
    /// True if `rack_at` belongs to the probe, not to the reordering timer.
    probe_armed: bool,
    /// The probe in flight: one after its segment, and its departure if it was a retransmission.
    probe: Option<(u32, Option<Stamp>)>,
}

impl Rack {
    pub(in crate::transport) fn new(tail_probe: bool) -> Rack {
        Rack { resent: VecDeque::new(), copy: None, tail_probe, probe_armed: false, probe: None }
    }

    pub(in crate::transport) fn on_resent(&mut self, seq: u32, sent: Stamp) {
        self.resent.push_back((seq, sent));
        if let Some((end, stamp @ None)) = &mut self.probe
            && end.wrapping_sub(1) == seq
        {
            *stamp = Some(sent);
        }
    }

    /// Resets the state after a timeout.
    pub(in crate::transport) fn clear(&mut self) {
        self.resent.clear();
        self.copy = None;
        self.probe = None;
        self.probe_armed = false;
    }
}

impl Sender {
    /// RFC 8985 § 6.2: declares lost what was sent long enough before a segment that was received.
    pub(in crate::transport) fn detect_by_time(&mut self, now: Time, stats: &mut Counters) {
        if self.board.clean() {
            return;
        }
        let (Some(rack), Some(newest)) = (self.extra.rack_mut(), self.board.newest) else { return };
        // Steps 2 and 4: the round trip of the newest received one, and how much reordering to
        // allow for.
        let slack = if !self.board.reordered && (self.phase != Phase::Open || self.board.sacked >= DUP_THRESH)
        {
            Time::ZERO
        } else {
            Time(self.rtt.min.0 / 4).min(self.rtt.srtt())
        };
        let wait = self.rtt.latest.saturating_add(slack);
        let lost = |sent: (Stamp, u32)| sent_after(newest, sent) && sent.0.elapsed(now) >= wait;
        let mut due = Time::NEVER;
        let mut consider = |sent: Stamp, seq: u32| {
            if sent_after(newest, (sent, seq)) {
                due = due.min(now.saturating_add(wait.saturating_sub(sent.elapsed(now)).max(Time(64))));
            }
        };
        if let Some((sent, seq)) = self.board.judge_while(lost) {
            consider(sent, seq);
        }
        while let Some(&(seq, sent)) = rack.resent.front() {
            if self.board.awaits(seq, sent) {
                // At equal times the newest may be an original that left before it: only the time
                // tells.
                if newest.0 == sent {
                    break;
                }
                if !lost((sent, seq)) {
                    consider(sent, seq);
                    break;
                }
                self.board.lose(seq);
                stats.rare().lost_retransmissions += 1;
            }
            rack.resent.pop_front();
        }
        rack.probe_armed = false;
        self.rack_at = due;
    }

    /// Decides on copies of the retransmission of `seq`, which has left.
    ///
    /// Its loss would be found a round trip later and repaired in another. In these two the
    /// receiver's window is used up, unless it has room for two windows more, and then nothing can
    /// be sent. In that case the retransmission leaves more than once. (No RFC has this; it is a
    /// proactive sender's method, used for repairs only: Flach et al., *Reducing Web Latency*,
    /// SIGCOMM 2013.)
    pub(in crate::transport) fn consider_copies(&mut self, seq: u32, config: &Config) {
        let needed = self.board.outstanding().saturating_add(self.window.saturating_mul(2));
        let short = config.repair_copies > 0 && self.limit(config) < needed;
        if let Some(rack) = self.extra.rack_mut().filter(|_| short) {
            rack.copy = Some((seq, config.repair_copies));
        }
    }

    /// The retransmission to send again, if it is not acknowledged yet.
    pub(in crate::transport) fn next_copy(&self) -> Option<u32> {
        let (seq, _) = self.extra.rack()?.copy?;
        self.board.is_resent(seq).then_some(seq)
    }

    /// Records that the copy has left.
    pub(in crate::transport) fn copy_left(&mut self) {
        let Some(rack) = self.extra.rack_mut() else { return };
        rack.copy =
            rack.copy.and_then(|(seq, left)| Some((seq, left.checked_sub(1).filter(|&more| more > 0)?)));
    }

    /// RFC 8985 § 7.2: schedules a probe of the last segment after two quiet round trips, if no
    /// other recovery is under way.
    pub(in crate::transport) fn schedule_probe(&mut self, now: Time, config: &Config) {
        let Some(rack) = self.extra.rack_mut() else { return };
        let quiet = self.phase == Phase::Open && self.board.clean() && rack.probe.is_none();
        if !rack.tail_probe || !quiet || self.board.outstanding() == 0 {
            if rack.probe_armed {
                rack.probe_armed = false;
                self.rack_at = Time::NEVER;
            }
            return;
        }
        let srtt = self.rtt.srtt();
        if srtt == Time::ZERO {
            return;
        }
        let mut wait = srtt.saturating_add(srtt);
        if self.board.outstanding() == 1 {
            wait = wait.saturating_add(config.delayed_ack.unwrap_or(Time::ZERO));
        }
        // The probe must come before the timeout; otherwise there is none.
        let at = now.saturating_add(wait);
        rack.probe_armed = at < self.rto_at;
        self.rack_at = if rack.probe_armed { at } else { Time::NEVER };
    }

    /// Handles the reordering timer or the probe timer.
    pub(in crate::transport) fn on_rack_timer(
        &mut self,
        now: Time,
        flow: u32,
        config: &Config,
        stats: &mut Counters,
    ) {
        let has_room = self.has_room(config);
        let Some(rack) = self.extra.rack_mut() else { return };
        if !std::mem::take(&mut rack.probe_armed) {
            self.detect_by_time(now, stats);
            if self.phase == Phase::Open && self.board.pending > 0 {
                self.enter_recovery(now, flow, config, stats);
            }
            return;
        }
        if self.board.outstanding() == 0 || self.board.pending > 0 {
            return;
        }
        // New data is as good a probe as the last segment again (§ 7.3), if there is any and room
        // for it.
        let fresh = self.source.ready() && has_room;
        let end = if fresh { self.board.next.wrapping_add(1) } else { self.board.next };
        rack.probe = Some((end, None));
        if self.board.clean() {
            self.board.refresh();
        }
        stats.rare().tail_probes += 1;
        self.force_probe(fresh);
        self.rto_at = now.saturating_add(self.rtt.rto(&config.rto));
    }

    /// RFC 8985 § 7.4: a probe that was a retransmission, and that the receiver was missing, has
    /// hidden a loss.
    pub(in crate::transport) fn probe_answered(&mut self, now: Time, packet: &Packet, config: &Config) {
        let Some(rack) = self.extra.rack_mut() else { return };
        let Some((end, sent)) = rack.probe else { return };
        if before(self.board.una, end) {
            return;
        }
        rack.probe = None;
        let repaired =
            sent.is_some_and(|sent| packet.flags.has(Flags::STAMP_ECHO) && packet.sent_echo == sent);
        if repaired && self.phase == Phase::Open {
            let flight = self.flight(now, config);
            self.law.on_loss(&flight);
            self.law.on_recovered(&flight);
        }
    }
}
