//! Round trips measured from outside: which timestamp passed when.

use super::Data;
use crate::Time;

/// Packets whose timestamps are awaited, oldest first: a ring.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    ring: [Probe; LEN],
    first: u8,
    len: u8,
    /// So many packets are not taken next.
    skip: u32,
}

/// A packet whose timestamp is awaited.
#[derive(Clone, Copy, Debug, Default)]
struct Probe {
    stamp: u32,
    sent: Time,
    waited: Time,
}

impl Default for Probes {
    fn default() -> Probes {
        Probes { ring: [Probe::default(); LEN], first: 0, len: 0, skip: 0 }
    }
}

impl Probes {
    /// A packet passes, of a window of so many: perhaps it becomes a probe. All of a small window do.
    pub(super) fn offer(&mut self, data: &Data, window: f64) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        if self.len == LEN as u8 {
            // A timestamp that never comes back must not be waited for for ever.
            let oldest = self.ring[usize::from(self.first)];
            if data.sent.saturating_sub(oldest.sent) < GIVEN_UP {
                return;
            }
            self.pop();
        }
        let next = usize::from(self.first + self.len) % LEN;
        // Packets of one instant share a timestamp.
        if self.len > 0 && self.ring[(next + LEN - 1) % LEN].stamp == data.stamp {
            return;
        }
        self.ring[next] = Probe { stamp: data.stamp, sent: data.sent, waited: data.waited };
        self.len += 1;
        // Half of the ring for a window: as many again may be under way when it grows.
        self.skip = (window * 2.0 / LEN as f64) as u32;
    }

    /// A timestamp comes back: the round trip if it is a probe's, and how much longer it may have been for the sender.
    pub(super) fn answer(&mut self, now: Time, stamp: u32) -> Option<(Time, Time)> {
        while self.len > 0 {
            let Probe { stamp: awaited, sent, waited } = self.ring[usize::from(self.first)];
            if (stamp.wrapping_sub(awaited) as i32) < 0 {
                return None;
            }
            if stamp == awaited {
                // It stays: another packet of its instant may be answered later, which its sender measures too.
                return Some((now.saturating_sub(sent), waited));
            }
            // Passed by: the packet was lost, or the receiver answered for it with another one.
            self.pop();
        }
        None
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % LEN as u8;
        self.len -= 1;
    }
}

/// Probes under way at once.
const LEN: usize = 16;
/// After this a timestamp is not waited for.
const GIVEN_UP: Time = Time::from_secs(4);
