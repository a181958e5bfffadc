//! Links whose rate is a recording: delivery opportunities, as replayed by the link emulator
//! Mahimahi (Netravali and others, USENIX ATC 2015, § 4).
//!
//! A trace is a list of milliseconds, each an opportunity to deliver 1500 bytes, repeated with the
//! last one as period. A packet leaves with the opportunity that carries its last byte. Several
//! small packets share an opportunity, and a large one takes several. An opportunity without
//! waiting packets is lost; a packet that arrives at the very instant of an opportunity is too late
//! for it.

use std::sync::Arc;

use tollway_law::{Rate, Time};

/// The delivery opportunities of a link. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds within the period, in order; not empty, and the last is above zero.
    opportunities: Arc<[u32]>,
}

/// The reason a list of milliseconds is not a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// There are no opportunities.
    #[error("it has no transmission opportunities")]
    Empty,
    /// An opportunity is before its predecessor.
    #[error("opportunity {index} is at {at} ms, before the previous one at {before} ms")]
    Backwards {
        /// Its index, from 0.
        index: usize,
        /// Its time, ms.
        at: u32,
        /// The time of its predecessor, ms.
        before: u32,
    },
    /// The period is zero.
    #[error("its length is zero: its last opportunity is at 0 ms")]
    NoTime,
}

impl Trace {
    /// Bytes that one opportunity delivers.
    pub const OPPORTUNITY: u64 = 1500;

    /// The trace with opportunities at these `milliseconds`, the last of which is its period.
    ///
    /// # Errors
    /// [`TraceError`] if there are none, if they are not in order, or if the last one is 0.
    pub fn new(milliseconds: &[u32]) -> Result<Trace, TraceError> {
        let backwards = milliseconds.windows(2).position(|pair| pair[1] < pair[0]);
        if let Some(i) = backwards {
            let (before, at) = (milliseconds[i], milliseconds[i + 1]);
            return Err(TraceError::Backwards { index: i + 1, at, before });
        }
        match milliseconds.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoTime),
            Some(_) => Ok(Trace { opportunities: milliseconds.into() }),
        }
    }

    /// Length of the period.
    pub fn period(&self) -> Time {
        Time::from_millis(self.last().into())
    }

    /// Number of opportunities in a period.
    pub fn len(&self) -> usize {
        self.opportunities.len()
    }

    /// Always false: a trace has at least one opportunity.
    pub fn is_empty(&self) -> bool {
        self.opportunities.is_empty()
    }

    /// The mean rate: bytes per period.
    pub fn mean_rate(&self) -> Rate {
        Rate::from_bytes_per_sec((self.len() as u64 * Self::OPPORTUNITY) as f64 / self.period().as_secs_f64())
    }

    /// The highest rate over any `window` that begins with an opportunity: the rate that a provider
    /// would advertise.
    pub fn peak_rate(&self, window: Time) -> Rate {
        let (millis, period) = (u64::from(self.last()), self.len());
        let window_ms = (window.0 / 1_000_000).max(1);
        // Whole periods count alike wherever the window begins.
        let (whole, rest) = (window_ms / millis, window_ms % millis);
        let at = |i: usize| u64::from(self.opportunities[i % period]) + millis * (i / period) as u64;
        let (mut end, mut most) = (0, 0);
        for begin in 0..period {
            end = end.max(begin);
            while at(end) < at(begin) + rest {
                end += 1;
            }
            most = most.max(end - begin);
        }
        let bytes = (whole * period as u64 + most as u64) * Self::OPPORTUNITY;
        Rate::from_bytes_per_sec(bytes as f64 / (window_ms as f64 * 1e-3))
    }

    /// Bytes it can deliver after `from`, up to and including `to`.
    pub fn bytes_between(&self, from: Time, to: Time) -> u64 {
        self.count(to).saturating_sub(self.count(from)) * Self::OPPORTUNITY
    }

    /// Number of opportunities up to and including `to`.
    fn count(&self, to: Time) -> u64 {
        let period = self.period().0;
        let (whole, rest) = (to.0 / period, to.0 % period);
        let within = self.opportunities.partition_point(|&ms| u64::from(ms) * NANOS <= rest);
        whole * self.len() as u64 + within as u64
    }

    fn last(&self) -> u32 {
        self.opportunities.last().copied().unwrap_or(1)
    }
}

/// A link's position in its trace.
#[derive(Clone, Debug)]
pub struct Cursor {
    trace: Trace,
    /// The next opportunity: index, and the start of the period it is in.
    next: usize,
    period_began: u64,
    /// The last opportunity used, and its remaining bytes.
    used_at: u64,
    left: u64,
}

impl Cursor {
    /// The beginning of `trace`.
    pub fn new(trace: Trace) -> Cursor {
        Cursor { trace, next: 0, period_began: 0, used_at: 0, left: 0 }
    }

    /// Drops the opportunities up to and including `now`, at which nothing waited.
    pub fn forgo(&mut self, now: Time) {
        self.left = 0;
        if self.at() > now.0 {
            return;
        }
        let period = self.trace.period().0;
        self.period_began += (now.0 - self.period_began) / period * period;
        let rest = now.0 - self.period_began;
        self.next = self.trace.opportunities.partition_point(|&ms| u64::from(ms) * NANOS <= rest);
        self.wrap();
    }

    /// Delivers `bytes` that have waited since before the next opportunity. Returns the instant at
    /// which the last of them leaves.
    pub fn deliver(&mut self, mut bytes: u64) -> Time {
        while bytes > self.left {
            bytes -= self.left;
            self.left = Trace::OPPORTUNITY;
            self.used_at = self.at();
            self.next += 1;
            self.wrap();
        }
        self.left -= bytes;
        Time(self.used_at)
    }

    fn at(&self) -> u64 {
        self.period_began + u64::from(self.trace.opportunities[self.next]) * NANOS
    }

    fn wrap(&mut self) {
        if self.next == self.trace.len() {
            self.next = 0;
            self.period_began += self.trace.period().0;
        }
    }
}

/// Nanoseconds per millisecond.
const NANOS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn lists_that_are_no_traces_are_refused() {
        assert_eq!(Trace::new(&[]), Err(TraceError::Empty));
        assert_eq!(Trace::new(&[0, 0]), Err(TraceError::NoTime));
        assert_eq!(Trace::new(&[3, 5, 4]), Err(TraceError::Backwards { index: 2, at: 4, before: 5 }));
    }

    #[test]
    fn rates_are_those_of_a_period() {
        let trace = Trace::new(&[0, 0, 5, 10]).unwrap();
        assert_eq!((trace.period(), trace.len()), (millis(10), 4));
        assert_eq!(trace.mean_rate(), Rate::from_bytes_per_sec(600_000.0));
        // From 0 ms on three opportunities within 6 ms; from 10 ms on as well: 10, 10 (= 0 of the
        // next), 10, 15.
        assert_eq!(trace.peak_rate(millis(6)), Rate::from_bytes_per_sec(4.0 * 1500.0 / 6e-3));
        assert_eq!(trace.peak_rate(millis(10)), trace.mean_rate());
        assert_eq!(trace.bytes_between(Time::ZERO, millis(10)), 4 * 1500);
        assert_eq!(trace.bytes_between(millis(3), millis(1005)), 401 * 1500);
        assert_eq!(trace.bytes_between(millis(7), millis(7)), 0);
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_take_several() {
        let mut cursor = Cursor::new(Trace::new(&[2, 4, 4, 10]).unwrap());
        cursor.forgo(Time::ZERO);
        let left = |cursor: &mut Cursor, bytes| cursor.deliver(bytes).0 / NANOS;
        assert_eq!([700, 700, 700].map(|b| left(&mut cursor, b)), [2, 2, 4]);
        // 900 bytes of the first at 4 ms, 600 of the second; then 900, then 600 of the one at 10
        // ms.
        assert_eq!([1500, 1500].map(|b| left(&mut cursor, b)), [4, 10]);
        // The period ends with the opportunity at 10 ms; the next one is at 10 + 2.
        assert_eq!([900, 3000].map(|b| left(&mut cursor, b)), [10, 14]);
    }

    #[test]
    fn what_nobody_waits_for_is_lost() {
        let trace = Trace::new(&[2, 4, 4, 10]).unwrap();
        for (now, leaves) in [(0, 2), (1, 2), (2, 4), (4, 10), (9, 10), (10, 12), (12, 14), (1_004, 1_010)] {
            let mut cursor = Cursor::new(trace.clone());
            assert_eq!(cursor.deliver(100), millis(2));
            cursor.forgo(millis(now));
            let leaves = if now < 2 { 4 } else { leaves };
            assert_eq!(cursor.deliver(100), millis(leaves), "{now}");
        }
        // At 0 ms no packet can have waited.
        let mut cursor = Cursor::new(Trace::new(&[0, 5]).unwrap());
        cursor.forgo(Time::ZERO);
        assert_eq!(cursor.deliver(1), millis(5));
    }
}
