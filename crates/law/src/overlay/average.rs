//! Mean backlog of a link between two updates, and the rate at which the link drains.

use crate::{Rate, Time};

/// The mean backlog of a queue over the time since the last sample, smoothed over `window` samples.
///
/// The message in service does not count (§ IV-B.1: "x is the average number of messages in the
/// buffer").
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Weight of a new sample: 1 / window. None: the level at the sample.
    weight: Option<f64>,
    level: f64,
    /// Byte-seconds since the last sample.
    area: f64,
    since: Time,
    started: Time,
    mean: f64,
}

impl Backlog {
    /// An empty queue. `window` is in samples: 0 takes the level at the sample, 1 the mean since
    /// the last sample.
    pub fn new(window: f64, now: Time) -> Backlog {
        let weight = (window > 0.0).then(|| 1.0 / window.max(1.0));
        Backlog { weight, level: 0.0, area: 0.0, since: now, started: now, mean: 0.0 }
    }

    /// Sets the queue to `bytes` from `now` on.
    pub fn set(&mut self, now: Time, bytes: u64) {
        self.area += self.level * now.saturating_sub(self.since).as_secs_f64();
        self.since = now;
        self.level = bytes as f64;
    }

    /// Ends an interval, and returns the smoothed mean in bytes.
    pub fn sample(&mut self, now: Time) -> f64 {
        self.area += self.level * now.saturating_sub(self.since).as_secs_f64();
        let span = now.saturating_sub(self.started).as_secs_f64();
        let mean = if span > 0.0 { self.area / span } else { self.level };
        self.mean = match self.weight {
            None => self.level,
            Some(weight) => self.mean + (mean - self.mean) * weight,
        };
        // A smoothed mean never quite reaches zero; less than a byte is none.
        if self.level == 0.0 && self.mean < 1.0 {
            self.mean = 0.0;
        }
        self.area = 0.0;
        self.since = now;
        self.started = now;
        self.mean
    }

    /// The smoothed mean at the last [`sample`](Self::sample), in bytes.
    pub fn mean(&self) -> f64 {
        self.mean
    }
}

/// The rate at which a link takes data from its queue.
///
/// An interval in which the queue never ran empty moves the estimate an eighth of the way. An
/// interval in which it did gives a lower bound only, and raises the estimate if it took more.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    rate: f64,
    taken: u64,
    started: Time,
    /// True if the queue has not been empty since the last sample.
    busy: bool,
}

impl Drain {
    /// A link whose rate counts as `rate` before it is measured.
    pub fn new(rate: Rate, now: Time) -> Drain {
        Drain { rate: rate.bytes_per_sec(), taken: 0, started: now, busy: false }
    }

    /// Records that the link took `bytes`, after which the queue held `left`.
    pub fn take(&mut self, bytes: u64, left: u64) {
        self.taken += bytes;
        self.busy &= left > 0;
    }

    /// Ends an interval of at least a millisecond; `queued` bytes are waiting now.
    pub fn sample(&mut self, now: Time, queued: u64) -> Rate {
        let span = now.saturating_sub(self.started);
        if span >= Time::from_millis(1) {
            let seen = self.taken as f64 / span.as_secs_f64();
            if self.busy || seen > self.rate {
                self.rate += (seen - self.rate) * SMOOTHING;
            }
            self.taken = 0;
            self.started = now;
            self.busy = queued > 0;
        }
        self.rate()
    }

    /// The estimate.
    pub fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(self.rate)
    }
}

/// Weight of a new sample of a link's rate.
const SMOOTHING: f64 = 0.125;

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Time = Time::from_millis(50);

    #[test]
    fn the_mean_is_over_time_and_ends_with_the_backlog() {
        let mut backlog = Backlog::new(1.0, Time::ZERO);
        backlog.set(Time::from_millis(10), 1000);
        backlog.set(Time::from_millis(35), 3000);
        assert!((backlog.sample(STEP) - (25.0 * 1000.0 + 15.0 * 3000.0) / 50.0).abs() < 1e-6);
        backlog.set(STEP, 0);
        assert_eq!(backlog.sample(STEP * 2), 0.0);
        assert_eq!(backlog.mean(), 0.0);
    }

    #[test]
    fn a_window_smooths_and_none_takes_the_level() {
        let mut level = Backlog::new(0.0, Time::ZERO);
        let mut smooth = Backlog::new(4.0, Time::ZERO);
        for backlog in [&mut level, &mut smooth] {
            backlog.set(Time::ZERO, 800);
        }
        assert_eq!((level.sample(STEP), smooth.sample(STEP)), (800.0, 200.0));
        for step in 2..60 {
            smooth.set(STEP * step, 0);
            smooth.sample(STEP * (step + 1));
        }
        assert_eq!(smooth.mean(), 0.0);
    }

    #[test]
    fn only_a_busy_link_lowers_its_rate() {
        let mut drain = Drain::new(Rate::from_mbps(2.0), Time::ZERO);
        drain.take(1000, 0);
        assert_eq!(drain.sample(STEP, 5000), Rate::from_mbps(2.0));
        for step in 2..80 {
            drain.take(6250, 5000);
            drain.sample(STEP * step, 5000);
        }
        assert!((drain.rate().mbps() - 1.0).abs() < 0.01);
        drain.take(125_000, 0);
        assert!(drain.sample(STEP * 80, 0).mbps() > 3.0);
    }
}
