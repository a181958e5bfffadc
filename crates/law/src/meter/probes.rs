//! Round trips measured at a point of the path, from timestamps that pass in both directions.

use super::DataPacket;
use crate::Time;

/// Packets whose timestamps are awaited, oldest first: a ring.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    ring: [Probe; LEN],
    first: u8,
    len: u8,
    /// The number of packets to skip before the next probe.
    skip: u32,
}

/// A packet whose timestamp is awaited.
#[derive(Clone, Copy, Debug, Default)]
struct Probe {
    stamp: u32,
    sent: Time,
    waited: Time,
}

/// The meaning of a returned timestamp for the round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It belongs to a probe: its round trip, and the time `waited` by which the sender's may be
    /// longer.
    Probe { rtt: Time, waited: Time },
    /// It belongs to a packet between two probes, or after the last one; its round trip lies
    /// between theirs. With many losses it may be the only sample of the sender.
    Between { least: Time, most: Time },
}

impl Default for Probes {
    fn default() -> Probes {
        Probes { ring: [Probe::default(); LEN], first: 0, len: 0, skip: 0 }
    }
}

impl Probes {
    /// Offers a packet as a probe; `window` is the sender's window in packets. All packets of a
    /// small window become probes.
    pub(super) fn offer(&mut self, data: &DataPacket, window: f64) {
        while self.at(0).is_some_and(|oldest| data.sent.saturating_sub(oldest.sent) > WRAPS) {
            self.pop();
        }
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

    /// Handles a returned timestamp.
    pub(super) fn answer(&mut self, now: Time, stamp: u32) -> Option<Answer> {
        let back = |probe: &Probe| stamp.wrapping_sub(probe.stamp) as i32;
        while let Some(probe) = self.at(0).filter(|probe| back(probe) >= 0) {
            let elapsed = now.saturating_sub(probe.sent);
            if stamp == probe.stamp {
                // It stays: another packet of its instant may be answered later, which its sender
                // measures too.
                return Some(Answer::Probe { rtt: elapsed, waited: probe.waited });
            }
            let next = self.at(1);
            if next.is_none_or(|next| back(&next) < 0) {
                let least = next.map_or(Time::ZERO, |next| now.saturating_sub(next.sent));
                return Some(Answer::Between { least, most: elapsed.saturating_add(probe.waited) });
            }
            // Passed by: the packet was lost, or the receiver answered for it with another one.
            self.pop();
        }
        None
    }

    /// The `n`-th oldest.
    fn at(&self, n: u8) -> Option<Probe> {
        (n < self.len).then(|| self.ring[usize::from(self.first + n) % LEN])
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % LEN as u8;
        self.len -= 1;
    }
}

/// Probes under way at once.
const LEN: usize = 16;
/// Time after which a probe is given up.
const GIVEN_UP: Time = Time::from_secs(4);
/// Age at which a timestamp is ambiguous: those of 64 ns wrap after 275 s, and half of that counts
/// as past.
const WRAPS: Time = Time::from_secs(64);

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(millis: u64, waited: u64) -> DataPacket {
        let (sent, waited) = (Time::from_millis(millis), Time::from_millis(waited));
        DataPacket { size: 1500, seq: millis as u32, stamp: millis as u32, sent, waited }
    }

    #[test]
    fn what_lies_between_probes_is_known_to_lie_between_theirs() {
        let mut probes = Probes::default();
        // Of a window of 32 every fifth is one.
        (0..13).for_each(|i| probes.offer(&packet(i * 10, 0), 32.0));
        let at = Time::from_millis(1000);
        let span = |least, most| {
            Some(Answer::Between { least: Time::from_millis(least), most: Time::from_millis(most) })
        };
        let probe = Some(Answer::Probe { rtt: Time::from_millis(1000), waited: Time::ZERO });
        assert_eq!(probes.answer(at, 0), probe);
        assert_eq!(probes.answer(at, 20), span(950, 1000));
        assert_eq!(probes.answer(at, 20), span(950, 1000), "another of its instant");
        assert_eq!(probes.answer(at, 90), span(900, 950), "the probe before it was lost");
        assert_eq!(probes.answer(at, 20), None, "overtaken");
        assert_eq!(probes.answer(at, 110), span(0, 900), "after the last of them");
        assert_eq!(Probes::default().answer(at, 7), None);
    }

    #[test]
    fn what_the_sender_held_back_counts_for_what_it_may_have_measured() {
        let mut probes = Probes::default();
        probes.offer(&packet(100, 30), 1.0);
        let at = Time::from_millis(200);
        let known = Answer::Probe { rtt: Time::from_millis(100), waited: Time::from_millis(30) };
        assert_eq!(probes.answer(at, 100), Some(known));
        let between = Answer::Between { least: Time::ZERO, most: Time::from_millis(130) };
        assert_eq!(probes.answer(at, 101), Some(between));
    }

    #[test]
    fn a_timestamp_that_has_come_round_is_a_new_one() {
        let mut probes = Probes::default();
        probes.offer(&DataPacket { stamp: 7, ..packet(0, 0) }, 1.0);
        // So long after, the old one would seem to be yet to come.
        probes.offer(&DataPacket { stamp: 8 | 1 << 31, ..packet(140_000, 0) }, 1.0);
        let known = Answer::Probe { rtt: Time::from_millis(50), waited: Time::ZERO };
        assert_eq!(probes.answer(Time::from_millis(140_050), 8 | 1 << 31), Some(known));
    }

    fn at_ms(stamp: u32, ms: u64) -> DataPacket {
        DataPacket { size: 1500, seq: 0, stamp, sent: Time::from_millis(ms), waited: Time::ZERO }
    }

    #[test]
    fn a_full_ring_waits_four_seconds_for_its_oldest() {
        for (ms, taken) in [(3999, false), (4000, true)] {
            let mut probes = Probes::default();
            (0..16).for_each(|stamp| probes.offer(&at_ms(stamp, u64::from(stamp)), 0.0));
            probes.offer(&at_ms(100, ms), 0.0);
            let probe = Answer::Probe { rtt: Time::from_millis(5000 - ms), waited: Time::ZERO };
            assert_eq!(probes.answer(Time::from_secs(5), 100) == Some(probe), taken, "{ms}");
        }
    }

    #[test]
    fn packets_of_one_instant_are_one_probe() {
        let mut probes = Probes::default();
        (0..16).for_each(|stamp| probes.offer(&at_ms(stamp, 0), 0.0));
        probes.answer(Time::from_millis(1), 15);
        // Also where the ring begins again.
        for (stamp, len) in [(15, 1), (16, 2), (16, 2), (17, 3), (17, 3)] {
            probes.offer(&at_ms(stamp, 0), 0.0);
            assert_eq!(probes.len, len, "{stamp}");
        }
    }

    #[test]
    fn what_was_sent_over_a_minute_ago_is_not_waited_for() {
        let mut probes = Probes::default();
        for (stamp, ms, len) in [(7, 0, 1), (8, 64_000, 2), (9, 64_001, 2), (10, 200_000, 1)] {
            probes.offer(&at_ms(stamp, ms), 0.0);
            assert_eq!(probes.len, len, "{ms}");
        }
    }
}
