//! CoDel: controlled delay (RFC 8289).

use super::{AnyLink, LinkConfig, LinkLaw, Passing, Placement, Verdict};
use crate::config;
use crate::param::{SPAN, Tabled};
use crate::{Time, Toll};

/// Signals packets at the head of the queue, at a rising rate, while every packet of an interval
/// waited at least the target.
///
/// The least sojourn time counts, not the mean: a queue that empties now and then is good. The
/// published loop dequeues until a packet may leave. Here the port dequeues, and calls the law for
/// each packet.
#[derive(Clone, Debug)]
pub struct Codel {
    target: Time,
    interval: Time,
    /// The largest packet seen, bytes; a queue of no more is never signalled.
    largest: u32,
    /// The end of the interval that started when the sojourn time exceeded the target; `None` while
    /// it is below.
    first_above: Option<Time>,
    /// The next signal while dropping; the last one otherwise.
    drop_next: Time,
    /// Signals since dropping began; carried over if it begins again soon.
    count: u32,
    /// The value of `count` when dropping began last.
    last_count: u32,
    dropping: bool,
    /// A packet was dropped for `drop_next`, which advances only if the next packet is late as
    /// well.
    due: bool,
}

config! {
    /// The constants of [`Codel`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct CodelConfig in "codel", "The constants of CoDel (RFC 8289), alone or in each queue of `fq-codel`." {
        /// Target waiting time of a standing queue.
        target: Time = Time::from_millis(5), SPAN, from "§ 4.4: 5 to 10 % of the interval";
        /// Time for which it may wait longer: a round trip of slow flows.
        interval: Time = Time::from_millis(100), SPAN, from "§ 4.3";
    }
}

impl LinkConfig for CodelConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn place(&self, _: &Placement<'_>) -> AnyLink {
        AnyLink::Codel(Box::new(self.build()))
    }
}

impl CodelConfig {
    /// Builds the law; an interval of zero counts as a nanosecond.
    pub fn build(&self) -> Codel {
        Codel {
            target: self.target,
            interval: self.interval.max(Time(1)),
            largest: 0,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
            due: false,
        }
    }
}

impl Codel {
    /// True in the dropping state.
    pub fn dropping(&self) -> bool {
        self.dropping
    }

    /// § 5.6, `dodequeue`: true if the sojourn time has exceeded the target for an interval.
    #[inline]
    fn late(&mut self, now: Time, packet: Passing) -> bool {
        self.largest = self.largest.max(packet.size);
        let left = packet.backlog_bytes.saturating_sub(u64::from(packet.size));
        if packet.waited < self.target || left <= u64::from(self.largest) {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now.saturating_add(self.interval));
                false
            }
            Some(since) => now >= since,
        }
    }

    /// § 5.6, `control_law`: the rate of signals grows with the square root of their number.
    #[inline]
    fn after(&self, t: Time) -> Time {
        let span = self.interval.0 as f64 / f64::from(self.count.max(1)).sqrt();
        t.saturating_add(Time(span as u64))
    }

    /// § 5.5: starts near the rate of the last dropping state, if that ended recently.
    fn begin(&mut self, now: Time) {
        let delta = self.count - self.last_count;
        let recent = now.0.saturating_sub(self.drop_next.0) < self.interval.0.saturating_mul(MEMORY);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.after(now);
        self.dropping = true;
        self.due = false;
    }
}

impl LinkLaw for Codel {
    /// Extends the interval to a longer round trip, and the target by the same factor (RFC 8289
    /// § 4.3, § 4.4).
    fn set_round_trip(&mut self, rtt: Time) {
        if rtt > self.interval {
            let target = u128::from(self.target.0) * u128::from(rtt.0) / u128::from(self.interval.0);
            self.target = Time(u64::try_from(target).unwrap_or(u64::MAX));
            self.interval = rtt;
        }
    }

    #[inline]
    fn on_arrival(&mut self, _: Time, _: Passing, _: &Toll) -> Verdict {
        Verdict::Pass
    }

    #[inline]
    fn on_departure(&mut self, now: Time, packet: Passing, _: &mut Toll) -> Verdict {
        let late = self.late(now, packet);
        if !self.dropping {
            if late {
                self.begin(now);
                return Verdict::Signal;
            }
            return Verdict::Pass;
        }
        if !late {
            self.dropping = false;
            self.due = false;
            return Verdict::Pass;
        }
        if std::mem::take(&mut self.due) {
            self.drop_next = self.after(self.drop_next);
        }
        if now < self.drop_next {
            return Verdict::Pass;
        }
        self.count = self.count.saturating_add(1);
        if packet.ect {
            // It will be marked and leave: the next is not looked at before its own turn.
            self.drop_next = self.after(self.drop_next);
        } else {
            self.due = true;
        }
        Verdict::Signal
    }
}

/// The number of intervals for which the rate of the last dropping state is remembered (§ 5.5).
const MEMORY: u64 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    /// A packet that waited `waited_ms`, with `behind` others after it.
    fn packet(waited_ms: u64, behind: u64, ect: bool) -> Passing {
        Passing {
            ect,
            waited: Time::from_millis(waited_ms),
            ..Passing::of(Kind::Plain, 1500, behind as u32 + 1, (behind + 1) * 1500)
        }
    }

    /// When, in ms, signals fall on a queue that stands at `waited` ms, looked at every millisecond
    /// up to `until`.
    fn signals(law: &mut Codel, from: u64, until: u64, waited: u64, ect: bool) -> Vec<u64> {
        let mut found = Vec::new();
        for ms in from..until {
            // As the port does: a dropped packet's place is taken by the next at once.
            while law.on_departure(Time::from_millis(ms), packet(waited, 50, ect), &mut Toll::default())
                != Verdict::Pass
            {
                found.push(ms);
                if ect {
                    break;
                }
            }
        }
        found
    }

    #[test]
    fn a_longer_round_trip_extends_interval_and_target() {
        let mut law = CodelConfig::default().build();
        law.set_round_trip(Time::from_millis(60));
        assert_eq!((law.target, law.interval), (Time::from_millis(5), Time::from_millis(100)));
        law.set_round_trip(Time::from_millis(600));
        assert_eq!((law.target, law.interval), (Time::from_millis(30), Time::from_millis(600)));
    }

    #[test]
    fn signals_after_an_interval_and_then_by_the_inverse_root() {
        for ect in [false, true] {
            let mut law = CodelConfig::default().build();
            // Over the target at 0; signals at 100, + 100/√1 → 200, + 100/√2 → 270.7, + 100/√3 →
            // 328.4, + 50 → 378.4,
            // + 44.7 → 423.2, + 40.8 → 464.0, seen at the next whole millisecond.
            assert_eq!(signals(&mut law, 0, 470, 20, ect), [100, 200, 271, 329, 379, 424, 464]);
        }
    }

    #[test]
    fn a_moment_under_the_target_forgives() {
        let mut law = CodelConfig::default().build();
        assert!(signals(&mut law, 0, 100, 20, false).is_empty());
        assert!(signals(&mut law, 100, 101, 4, false).is_empty());
        assert!(signals(&mut law, 101, 201, 20, false).is_empty());
        assert_eq!(signals(&mut law, 201, 202, 20, false), [201]);
        assert!(law.dropping());
        signals(&mut law, 202, 203, 4, false);
        assert!(!law.dropping());
    }

    #[test]
    fn takes_the_old_rate_up_again_if_it_is_not_long_ago() {
        let run = |gap: u64| {
            let mut law = CodelConfig::default().build();
            // Seven signals, then a good queue for `gap` ms, then a bad one.
            signals(&mut law, 0, 470, 20, true);
            signals(&mut law, 470, 470 + gap, 0, true);
            let start = 470 + gap;
            let times = signals(&mut law, start, start + 300, 20, true);
            (times[0] - start, times[1] - times[0])
        };
        // 100/√6 = 40.8 beside 100/√1.
        assert_eq!(run(10), (100, 41));
        assert_eq!(run(2000), (100, 100));
    }

    #[test]
    fn a_queue_of_one_packet_is_left_alone() {
        let mut law = CodelConfig::default().build();
        for ms in 0..1000 {
            let verdict = law.on_departure(Time::from_millis(ms), packet(50, 1, false), &mut Toll::default());
            assert_eq!(verdict, Verdict::Pass);
        }
    }

    proptest! {
        /// Whatever happens, the law only ever signals packets that waited for the target, and
        /// never the last one.
        #[test]
        fn only_late_packets_are_signalled(
            steps in prop::collection::vec((0u64..40, 0u64..30, 0u64..5, any::<bool>()), 0..400),
        ) {
            let mut law = CodelConfig::default().build();
            let mut now = 0;
            for (gap, waited, behind, ect) in steps {
                now += gap;
                let verdict =
                    law.on_departure(Time::from_millis(now), packet(waited, behind, ect), &mut Toll::default());
                if verdict != Verdict::Pass {
                    prop_assert!(waited >= 5 && behind >= 2);
                }
            }
        }

        /// The reference loop of § 5, written over a list of packets, and the law driven by a port
        /// agree.
        #[test]
        fn agrees_with_a_loop_that_takes_packets_itself(
            gaps in prop::collection::vec((0u64..30, 0u64..60), 1..300),
        ) {
            let mut law = CodelConfig::default().build();
            let mut reference = Loop::default();
            let mut now = 0;
            // An endless queue whose head waited for the given time.
            for (gap, waited) in gaps {
                now += gap;
                let t = Time::from_millis(now);
                let mut dropped = 0;
                while law.on_departure(t, packet(waited, 50, false), &mut Toll::default()) != Verdict::Pass {
                    dropped += 1;
                }
                prop_assert_eq!(dropped, reference.take(now as f64, waited as f64));
            }
        }
    }

    /// CoDel as one loop over the queue, times in ms as floats.
    #[derive(Default)]
    struct Loop {
        first_above: f64,
        drop_next: f64,
        count: u32,
        last: u32,
        dropping: bool,
    }

    impl Loop {
        fn look(&mut self, now: f64, waited: f64) -> bool {
            if waited < 5.0 {
                self.first_above = 0.0;
            } else if self.first_above == 0.0 {
                self.first_above = now + 100.0;
            } else {
                return now >= self.first_above;
            }
            false
        }

        fn take(&mut self, now: f64, waited: f64) -> u32 {
            let mut dropped = 0;
            let mut late = self.look(now, waited);
            if self.dropping {
                self.dropping = late;
                while self.dropping && now + 1e-6 >= self.drop_next {
                    dropped += 1;
                    self.count += 1;
                    late = self.look(now, waited);
                    if late {
                        self.drop_next += 100.0 / f64::from(self.count).sqrt();
                    } else {
                        self.dropping = false;
                    }
                }
            } else if late {
                dropped += 1;
                self.look(now, waited);
                self.dropping = true;
                let delta = self.count - self.last;
                self.count = if delta > 1 && now - self.drop_next < 1600.0 { delta } else { 1 };
                self.drop_next = now + 100.0 / f64::from(self.count).sqrt();
                self.last = self.count;
            }
            dropped
        }
    }
}
