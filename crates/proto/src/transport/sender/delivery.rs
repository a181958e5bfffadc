//! Delivery measurement for laws that request it (draft-ietf-ccwg-bbr § 4.1).

use tollway_law::Time;
use tollway_law::sender::{Delivery, Lost, SenderLaw};

use super::{Phase, Sender, whole};
use crate::transport::config::Config;
use crate::transport::ring::Ring;

/// Counters of delivery, and their values at the last transmission of each segment in flight.
/// Present only if the law requests it.
#[derive(Clone, Debug)]
pub(in crate::transport) struct Sampler {
    /// C.delivered, segments.
    delivered: u64,
    /// C.delivered_time.
    delivered_at: Time,
    /// C.first_send_time.
    first_sent: Time,
    /// C.app_limited: limited until this number is delivered; 0 if not limited.
    limited_until: u64,
    /// C.lost, segments.
    lost: u64,
    marks: Ring<Mark>,
    /// Segments newly acknowledged, outside the clean case, and newly lost: filled by the
    /// scoreboard until processed.
    pub(in crate::transport) acked: Vec<u32>,
    pub(in crate::transport) losses: Vec<u32>,
}

/// Per-packet state (§ 4.1.2.1.2).
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    sent: Time,
    first_sent: Time,
    delivered_at: Time,
    delivered: u64,
    lost: u64,
    tx_in_flight: u32,
    app_limited: bool,
    awaited: bool,
}

impl Sampler {
    pub(in crate::transport) fn new() -> Sampler {
        Sampler {
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent: Time::ZERO,
            limited_until: 0,
            lost: 0,
            marks: Ring::new(),
            acked: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// MarkConnectionAppLimited, with `pipe` segments in flight.
    pub(in crate::transport) fn limit(&mut self, pipe: u32) {
        self.limited_until = (self.delivered + u64::from(pipe)).max(1);
    }

    /// § 4.1.2.2: `seq` leaves. Then `pipe` segments are in flight, and `outstanding` from `una` on
    /// are remembered.
    fn on_sent(&mut self, now: Time, seq: u32, pipe: u32, una: u32, outstanding: u32) {
        if pipe <= 1 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        self.marks.reserve(una, outstanding.max(1));
        *self.marks.at(seq) = Mark {
            sent: now,
            first_sent: self.first_sent,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            lost: self.lost,
            tx_in_flight: pipe,
            app_limited: self.limited_until > 0,
            awaited: true,
        };
    }

    /// UpdateRateSample: `seq` is delivered. Of several, `newest` becomes the one sent last.
    fn on_acked(&mut self, now: Time, seq: u32, newest: &mut Option<(Mark, u32)>) {
        let mark = self.marks.at(seq);
        if !std::mem::take(&mut mark.awaited) {
            return;
        }
        let mark = *mark;
        self.delivered += 1;
        self.delivered_at = now;
        if newest.is_none_or(|(known, at)| (mark.sent, seq.wrapping_sub(at) < 1 << 31) > (known.sent, false))
        {
            *newest = Some((mark, seq));
        }
    }
}

impl Sender {
    /// Prepares the transmission of a segment.
    pub(in crate::transport) fn before_sending(&mut self, now: Time, config: &Config) {
        let Some(sampler) = &self.board.sampler else { return };
        if self.board.pipe() == 0 && sampler.limited_until > 0 {
            let flight = self.flight(now, config);
            self.law.on_restart(&flight);
        }
    }

    /// Records the transmission of `seq`.
    pub(in crate::transport) fn after_sending(&mut self, now: Time, seq: u32) {
        let (pipe, una, outstanding) = (self.board.pipe(), self.board.una, self.board.outstanding());
        if let Some(sampler) = &mut self.board.sampler {
            sampler.on_sent(now, seq, pipe, una, outstanding);
        }
    }

    /// Reports an acknowledgement to the law, losses first, then the delivery. The acknowledgement
    /// advanced by `clean` segments, or the scoreboard has recorded the segments it covers.
    pub(in crate::transport) fn sample_delivery(
        &mut self,
        now: Time,
        clean: u32,
        rtt: Option<Time>,
        config: &Config,
    ) {
        let Some(sampler) = &mut self.board.sampler else { return };
        let (before, mut newest) = (sampler.delivered, None);
        for seq in (1..=clean).rev().map(|back| self.board.una.wrapping_sub(back)) {
            sampler.on_acked(now, seq, &mut newest);
        }
        let mut acked = std::mem::take(&mut sampler.acked);
        for seq in acked.drain(..) {
            sampler.on_acked(now, seq, &mut newest);
        }
        sampler.acked = acked;
        let newly_acked = (sampler.delivered - before) as u32;
        if sampler.limited_until > 0 && sampler.delivered > sampler.limited_until {
            sampler.limited_until = 0;
        }
        let newly_lost = self.tell_losses(now, config);
        let (Some(sampler), Some((mark, _))) = (&mut self.board.sampler, newest) else { return };
        // GenerateRateSample: the longer of the two, and never less than a round trip can be.
        sampler.first_sent = mark.sent;
        let interval = mark.sent.saturating_sub(mark.first_sent).max(now.saturating_sub(mark.delivered_at));
        let over = sampler.delivered - mark.delivered;
        let reliable = interval > Time::ZERO && (self.rtt.min == Time::NEVER || interval >= self.rtt.min);
        let delivery = Delivery {
            delivered: sampler.delivered,
            newly_acked,
            newly_lost,
            rtt,
            rate: if reliable { over as f64 / interval.as_secs_f64() } else { 0.0 },
            over,
            before: mark.delivered,
            tx_in_flight: mark.tx_in_flight,
            lost: sampler.lost - mark.lost,
            app_limited: mark.app_limited,
            recovering: self.phase != Phase::Open,
        };
        let flight = self.flight(now, config);
        self.law.on_delivery(&flight, &delivery);
        if self.law.holds_back()
            && let Some(sampler) = &mut self.board.sampler
        {
            sampler.limit(flight.in_flight);
        }
    }

    /// Reports each segment newly declared lost to the law. Returns their number.
    pub(in crate::transport) fn tell_losses(&mut self, now: Time, config: &Config) -> u32 {
        let Some(sampler) = &mut self.board.sampler else { return 0 };
        if sampler.losses.is_empty() {
            return 0;
        }
        let mut losses = std::mem::take(&mut sampler.losses);
        let count = losses.len() as u32;
        let flight = self.flight(now, config);
        for seq in losses.drain(..) {
            let Some(sampler) = &mut self.board.sampler else { break };
            let mark = sampler.marks.get(seq);
            sampler.lost += 1;
            let lost = Lost {
                delivered: sampler.delivered,
                tx_in_flight: mark.tx_in_flight,
                lost: sampler.lost - mark.lost,
                app_limited: mark.app_limited,
            };
            self.law.on_lost(&flight, &lost);
        }
        if let Some(sampler) = &mut self.board.sampler {
            sampler.losses = losses;
        }
        self.window = whole(self.law.window());
        count
    }
}
