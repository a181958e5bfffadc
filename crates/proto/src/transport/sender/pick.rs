//! Selection of the segment that may leave now: new data, a repair, or none.

use tollway_law::Time;

use super::{Force, Phase, Pick, SAME_TURN, Sender, Slot};
use crate::transport::config::{Config, Detection};

impl Sender {
    /// The segment that may leave now.
    #[inline]
    pub(super) fn pick(&mut self, now: Time, config: &Config) -> Pick {
        self.paced_out = false;
        if self.extra.is_ns2() {
            return self.pick_ns2(config);
        }
        if self.board.clean() && self.force == Force::Nothing {
            self.pick_fresh(now, config, self.board.outstanding())
        } else if self.is_full(config) {
            self.app_limited = false;
            Pick::Nothing
        } else {
            self.pick_repairing(now, config)
        }
    }

    /// True if the window has no room for new or lost data, and no packet is forced.
    #[inline]
    pub(in crate::transport) fn is_full(&self, config: &Config) -> bool {
        let full = self.board.pipe() >= self.window && self.counted(config) >= self.window;
        full && self.force == Force::Nothing
    }

    /// Segments that count against the window for new data: without limited transmit the first
    /// duplicates release none.
    #[inline]
    pub(in crate::transport) fn counted(&self, config: &Config) -> u32 {
        let counts_duplicates = config.limited_transmit || self.phase != Phase::Open;
        if counts_duplicates { self.board.pipe() } else { self.board.outstanding() }
    }

    #[inline]
    pub(super) fn pick_fresh(&mut self, now: Time, config: &Config, pipe: u32) -> Pick {
        if pipe >= self.window {
            self.app_limited = false;
            return Pick::Nothing;
        }
        if !self.source.ready() {
            self.app_limited = true;
            if let Some(sampler) = &mut self.board.sampler {
                sampler.limit(pipe);
            }
            return Pick::Nothing;
        }
        if !self.has_room(config) && !self.source.control() {
            self.app_limited = false;
            if self.board.outstanding() == 0 && self.rto_at == Time::NEVER {
                // Nothing will come back that could open the window: probe for it (RFC 9293 §
                // 3.8.6.1).
                self.rto_at = now.saturating_add(self.rtt.rto(&config.rto));
            }
            return Pick::Nothing;
        }
        if self.held_by_pacing(now, config) {
            return Pick::Nothing;
        }
        Pick::Fresh
    }

    #[cold]
    pub(super) fn pick_repairing(&mut self, now: Time, config: &Config) -> Pick {
        let pipe = self.board.pipe();
        if pipe < self.window
            && let Some(seq) = self.next_copy()
        {
            return Pick::Copy(seq);
        }
        let force = std::mem::replace(&mut self.force, Force::Nothing);
        if force == Force::First {
            return Pick::Again(self.board.una);
        }
        if let Some(seq) = self.board.first_pending() {
            if force == Force::Lost || (pipe < self.window && !self.held_by_pacing(now, config)) {
                return Pick::Again(seq);
            }
            self.app_limited = false;
            return Pick::Nothing;
        }
        match force {
            Force::Fresh if self.source.ready() => return Pick::Fresh,
            Force::Last if self.board.outstanding() > 0 => {
                return Pick::Again(self.board.next.wrapping_sub(1));
            }
            _ => {}
        }
        let pipe = self.counted(config);
        let fresh = self.pick_fresh(now, config, pipe);
        let rescues = self.phase == Phase::Recovery && config.detects() == Detection::Rfc6675;
        if matches!(fresh, Pick::Nothing)
            && rescues
            && pipe < self.window
            && !self.paced_out
            && let Some(seq) = self.board.next_rescue()
        {
            return Pick::Again(seq);
        }
        fresh
    }

    /// Size of the data packet that would leave now, without sending it.
    pub(in crate::transport) fn next_size(&mut self, now: Time, config: &Config) -> Option<u16> {
        let force = self.force;
        let pick = self.pick(now, config);
        self.force = force;
        let payload = match pick {
            Pick::Nothing => return None,
            Pick::Fresh if self.source.control() => return None,
            Pick::Fresh => self.source.next_payload(config.payload()),
            Pick::Again(seq) | Pick::Copy(seq) => {
                let slot = self.board.slot(seq);
                if slot.has(Slot::SYN | Slot::FIN) {
                    return None;
                }
                slot.payload
            }
        };
        Some(config.header.saturating_add(payload))
    }

    /// Records that something other than the law holds data back, so the window is not the limit.
    pub(in crate::transport) fn hold(&mut self) {
        self.app_limited = true;
    }

    /// True if the law paces packets and the next one is not due.
    #[inline]
    pub(super) fn held_by_pacing(&mut self, now: Time, config: &Config) -> bool {
        !self.law.ack_clocked() && self.waits_its_turn(now, config)
    }

    /// [`held_by_pacing`](Sender::held_by_pacing) for a law that may pace packets.
    #[inline(always)]
    pub(in crate::transport) fn waits_its_turn(&mut self, now: Time, config: &Config) -> bool {
        let Some(rate) = self.law.pace(|| self.flight(now, config)) else {
            self.paced = false;
            return false;
        };
        self.paced = true;
        // By the rate of now, not of when the last packet left: a slow flow that is granted more
        // uses it at once. But each acknowledgement moves the rates of explicit laws a little, and
        // a timer with it would cost as much as its packet. Of a packet that has just left there is
        // no pause yet, and less than none if it was late; signed, it is sooner made a float.
        let pause = (self.pace_at.0 as i64).wrapping_sub(self.paced_from.0 as i64) as f64 * 1e-9;
        let (size, sends) = (f64::from(self.paced_size), rate.bytes_per_sec() * pause);
        if (sends - size).abs() > SAME_TURN * size {
            self.pace_at = self.paced_from.saturating_add(rate.time_for(u64::from(self.paced_size)));
        }
        self.paced_out = now < self.pace_at;
        self.paced_out
    }
}
