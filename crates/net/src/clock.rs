//! The monotonic clock, in the laws' unit of time.

use std::time::Instant;

use tollway_law::Time;

/// A clock that counts nanoseconds from an origin; it drives every law and machine of a run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Makes a clock that shows `at` now.
    pub fn starting_at(at: Time) -> Clock {
        let now = Instant::now();
        Clock { origin: now.checked_sub(std::time::Duration::from_nanos(at.0)).unwrap_or(now) }
    }

    /// The current time.
    #[inline]
    pub fn now(&self) -> Time {
        Time(self.origin.elapsed().as_nanos() as u64)
    }

    /// Takes a span that has passed out of the count. The clock continues from its time before the
    /// span.
    pub(crate) fn hold(&mut self, span: Time) {
        self.origin += std::time::Duration::from_nanos(span.0);
    }
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_cpu() -> Time {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Time(spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64)
}

/// A detector of pauses in which the thread did not run.
///
/// Other work had its core, or the machine itself was stopped.
///
/// Where one thread runs a whole network, such a pause stops every node, link and timer alike. A
/// clock that omits the pause leaves the results unchanged. A clock that counts it makes every
/// sender burst afterwards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standstill {
    /// The last time returned.
    told: Time,
    /// The end of the sleep that the thread asked for.
    asleep_until: Time,
}

impl Standstill {
    /// Notes that the thread sleeps until `until`, or for less.
    pub(crate) fn sleep(&mut self, until: Time) {
        self.asleep_until = until;
    }

    /// Returns the part of the time since the last call that neither sleep nor work accounts for.
    ///
    /// The clock shows `now`, and `work` packets were handled since the last call. Too much work
    /// for the machine is no standstill: it makes the emulation late. The clock must omit the
    /// returned span if `held`.
    pub(crate) fn unaccounted(&mut self, now: Time, work: u64, held: bool) -> Time {
        let expected = self.told.max(self.asleep_until) + BRIEF + Time(work.saturating_mul(PER_PACKET.0));
        let span = now.saturating_sub(expected);
        self.told = if held { now - span } else { now };
        span
    }
}

/// Longest time that waking up and a turn without packets take on a machine that is awake.
const BRIEF: Time = Time::from_micros(200);
/// Longest time that one packet takes: ten times the usual time.
const PER_PACKET: Time = Time::from_micros(20);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sleep_and_work_are_no_standstill_and_a_pause_is() {
        let mut still = Standstill::default();
        still.sleep(Time::from_millis(10));
        assert_eq!(still.unaccounted(Time::from_micros(10_150), 0, true), Time::ZERO);
        // 2 ms for 200 packets are slow, but they are work.
        assert_eq!(still.unaccounted(Time::from_micros(12_150), 200, true), Time::ZERO);
        assert_eq!(still.unaccounted(Time::from_micros(17_350), 0, false), Time::from_millis(5));
        // A pause that the clock counts is reported once.
        assert_eq!(still.unaccounted(Time::from_micros(17_500), 0, true), Time::ZERO);
    }

    proptest! {
        /// Without unaccounted spans, time never runs backwards, and sleep and work bound every
        /// step.
        #[test]
        fn time_goes_on_without_the_pauses(
            steps in prop::collection::vec((0u64..5_000_000, 0u64..5_000_000, 0u64..50), 1..50)
        ) {
            let (mut still, mut real, mut held, mut before) = (Standstill::default(), 0, 0, 0);
            for (sleep, late, work) in steps {
                still.sleep(Time(before + sleep));
                real += sleep + late;
                let span = still.unaccounted(Time(real - held), work, true);
                held += span.0;
                let now = real - held;
                prop_assert!(now >= before);
                prop_assert!(now - before <= sleep + BRIEF.0 + work * PER_PACKET.0);
                before = now;
            }
        }
    }
}
