//! Queue and price of a link over a span of time.

use tollway_law::Time;

/// Sums over the time since a measurement began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    began: Time,
    since: Time,
    queue: usize,
    longest: usize,
    price: f64,
    /// Message-seconds and dollar-seconds.
    queued: f64,
    priced: f64,
    /// Bytes and frames of all but data that had been sent when it began.
    control: (u64, u64),
    /// The interval that has not ended: its begin, its longest queue, and the sums by then.
    interval: (Time, usize, f64, f64),
}

/// Queue and price of a link over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// The longest queue, in messages.
    pub longest: usize,
    /// The mean queue over time, in messages.
    pub queue: f64,
    /// The mean price over time, in dollars a lot.
    pub price: f64,
}

/// Queue, price and control of a link since [`Daemon::measure`](super::Daemon::measure) was called.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The longest queue, in messages.
    pub longest: usize,
    /// The mean queue over time, in messages.
    pub queue: f64,
    /// The mean price over time, in dollars a lot.
    pub price: f64,
    /// Seconds since the measurement began.
    pub seconds: f64,
    /// Bytes of all but data.
    pub control: u64,
    /// Frames of all but data.
    pub control_frames: u64,
}

impl Measure {
    /// An empty queue without a price.
    pub(super) fn new(now: Time) -> Measure {
        Measure {
            began: now,
            since: now,
            queue: 0,
            longest: 0,
            price: 0.0,
            queued: 0.0,
            priced: 0.0,
            control: (0, 0),
            interval: (now, 0, 0.0, 0.0),
        }
    }

    /// Forgets the past; queue and price stay as they are. `control` are the bytes and frames of
    /// all but data sent so far.
    pub(super) fn restart(&mut self, now: Time, control: (u64, u64)) {
        self.advance(now);
        let (queue, price, (begin, longest, queued, priced)) = (self.queue, self.price, self.interval);
        let interval = (begin, longest, queued - self.queued, priced - self.priced);
        *self = Measure { queue, longest: queue, price, control, interval, ..Measure::new(now) };
    }

    /// Ends an interval, and begins the next.
    pub(super) fn end_interval(&mut self, now: Time) -> Interval {
        self.advance(now);
        let (begin, longest, queued, priced) = self.interval;
        self.interval = (now, self.queue, self.queued, self.priced);
        let seconds = now.saturating_sub(begin).as_secs_f64().max(1e-9);
        Interval { longest, queue: (self.queued - queued) / seconds, price: (self.priced - priced) / seconds }
    }

    /// The queue holds so many messages from `now` on.
    pub(super) fn set_queue(&mut self, now: Time, messages: usize) {
        self.advance(now);
        self.queue = messages;
        self.longest = self.longest.max(messages);
        self.interval.1 = self.interval.1.max(messages);
    }

    /// The price from `now` on.
    pub(super) fn set_price(&mut self, now: Time, price: f64) {
        self.advance(now);
        self.price = price;
    }

    fn advance(&mut self, now: Time) {
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        self.queued += self.queue as f64 * seconds;
        self.priced += self.price * seconds;
        self.since = now;
    }

    /// `control` as in `restart`.
    pub(super) fn read(mut self, now: Time, control: (u64, u64)) -> Measured {
        self.advance(now);
        let seconds = now.saturating_sub(self.began).as_secs_f64().max(1e-9);
        Measured {
            longest: self.longest,
            queue: self.queued / seconds,
            price: self.priced / seconds,
            seconds,
            control: control.0 - self.control.0,
            control_frames: control.1 - self.control.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_time_since_the_last_restart() {
        let at = Time::from_secs;
        let mut measure = Measure::new(at(0));
        measure.set_queue(at(0), 9);
        measure.set_queue(at(1), 2);
        measure.set_price(at(1), 3.0);
        measure.restart(at(2), (100, 2));
        measure.set_queue(at(5), 4);
        measure.set_price(at(6), 1.0);
        let (seconds, control, control_frames) = (6.0, 50, 1);
        assert_eq!(
            measure.read(at(8), (150, 3)),
            Measured { longest: 4, queue: 3.0, price: 14.0 / 6.0, seconds, control, control_frames }
        );
    }

    #[test]
    fn intervals_follow_each_other_whenever_the_measurement_begins() {
        let at = Time::from_secs;
        let mut measure = Measure::new(at(0));
        measure.set_queue(at(0), 6);
        measure.set_queue(at(1), 2);
        measure.set_price(at(2), 8.0);
        measure.restart(at(3), (0, 0));
        let first = Interval { longest: 6, queue: 3.0, price: 4.0 };
        assert_eq!(measure.end_interval(at(4)), first);
        measure.set_queue(at(6), 0);
        assert_eq!(measure.end_interval(at(8)), Interval { longest: 2, queue: 1.0, price: 8.0 });
    }
}
