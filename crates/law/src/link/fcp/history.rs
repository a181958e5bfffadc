//! A link's past prices.

use crate::price::at_least;

/// The prices that a link stated, by time.
///
/// Slots of 1/64 to 1/32 of a round trip cover the last 16 round trips or more. Two further levels
/// have slots sixteen times as long over sixteen times the span each. A flow's round trip may be
/// thousands of times the mean on a link, which flows with short round trips dominate.
#[derive(Clone, Debug)]
pub(super) struct History {
    levels: [Level; LEVELS],
}

impl History {
    pub(super) fn new(rtt: u64, price: f64) -> History {
        let shift = slot_shift(rtt);
        History { levels: std::array::from_fn(|k| Level::new(shift + COARSER * k as u32, price)) }
    }

    /// Records that the price is `price` from `now` (ns) on.
    #[inline]
    pub(super) fn note(&mut self, now: u64, price: f64) {
        let [fine, coarse @ ..] = &mut self.levels;
        let (until, last) = fine.latest();
        if fine.note(now, price) {
            for level in coarse {
                // The slot that is over has ended with another price than it began with.
                level.note(until, last);
                level.note(now, price);
            }
        }
    }

    /// The price around the instant `then` (ns); `None` if that is too long ago.
    #[inline]
    pub(super) fn at(&self, then: u64) -> Option<Past> {
        let [fine, coarse @ ..] = &self.levels;
        fine.at(then).or_else(|| coarse.iter().find_map(|level| level.at(then)))
    }

    /// Sets the mean round trip, `rtt` ns.
    #[inline]
    pub(super) fn set_rtt(&mut self, rtt: u64) {
        let shift = slot_shift(rtt);
        if shift != self.levels[0].shift {
            for (k, level) in self.levels.iter_mut().enumerate() {
                level.rescale(shift + COARSER * k as u32);
            }
        }
    }
}

/// The price around an instant of the past: at the beginning and at the end of its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    prices: [f64; 2],
    /// Offset into the slot, which is 2^`shift` ns long.
    into: u64,
    shift: u32,
}

impl Past {
    /// The greater of the prices at the two ends of the slot.
    #[inline]
    pub(super) fn most(&self) -> f64 {
        at_least(self.prices[0], self.prices[1])
    }

    /// The price there, by linear interpolation.
    #[inline]
    pub(super) fn likely(&self) -> f64 {
        let part = self.into as i64 as f64 / (1_i64 << self.shift) as f64;
        self.prices[0] + (self.prices[1] - self.prices[0]) * part
    }
}

/// The prices of one level, in [`SLOTS`] slots.
#[derive(Clone, Debug)]
struct Level {
    /// The last price of each slot.
    prices: Box<[f64; SLOTS]>,
    /// A slot is 2^`shift` ns long.
    shift: u32,
    /// The slot written last, and the first that was written at all.
    at: u64,
    first: u64,
}

impl Level {
    fn new(shift: u32, price: f64) -> Level {
        Level { prices: Box::new([price; SLOTS]), shift, at: 0, first: 0 }
    }

    /// Records that the price is `price` from `now` (ns) on. Returns true if a new slot begins.
    #[inline]
    fn note(&mut self, now: u64, price: f64) -> bool {
        let slot = now >> self.shift;
        let fresh = slot > self.at;
        if fresh {
            self.turn(slot);
        }
        self.prices[self.at as usize % SLOTS] = price;
        fresh
    }

    /// The last instant of the slot written last, and its price.
    #[inline]
    fn latest(&self) -> (u64, f64) {
        (((self.at + 1) << self.shift) - 1, self.prices[self.at as usize % SLOTS])
    }

    /// Moves on to `slot`. Slots without a new price repeat the price before them.
    fn turn(&mut self, slot: u64) {
        let price = self.prices[self.at as usize % SLOTS];
        let from = (self.at + 1).max((slot + 1).saturating_sub(SLOTS as u64));
        for k in from..=slot {
            self.prices[k as usize % SLOTS] = price;
        }
        self.at = slot;
        self.first = self.first.max((slot + 1).saturating_sub(SLOTS as u64));
    }

    /// The price in the slot of `then`; `None` before the first slot.
    #[inline]
    fn at(&self, then: u64) -> Option<Past> {
        let slot = then >> self.shift;
        if slot < self.first {
            return None;
        }
        let to = slot.min(self.at);
        let from = if slot > self.at || slot == self.first { to } else { slot - 1 };
        let prices = [from, to].map(|slot| self.prices[slot as usize % SLOTS]);
        Some(Past { prices, into: then & ((1 << self.shift) - 1), shift: self.shift })
    }

    #[cold]
    fn rescale(&mut self, shift: u32) {
        let old = self.clone();
        self.shift = shift;
        self.at = (old.at << old.shift) >> shift;
        self.first = ((old.first << old.shift) >> shift).max((self.at + 1).saturating_sub(SLOTS as u64));
        for slot in self.first..=self.at {
            let then = (((slot + 1) << shift) - 1) >> old.shift;
            self.prices[slot as usize % SLOTS] = old.prices[then.clamp(old.first, old.at) as usize % SLOTS];
        }
    }
}

/// The length of a slot, a power of two of nanoseconds.
fn slot_shift(rtt: u64) -> u32 {
    (rtt / 32).max(1).ilog2()
}

const SLOTS: usize = 1024;
const LEVELS: usize = 3;
/// A level's slots are 2^`COARSER` times as long as those of the one before.
const COARSER: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn most(history: &History, then: u64) -> Option<f64> {
        history.at(then).map(|past| past.most())
    }

    #[test]
    fn remembers_what_was_said() {
        let mut history = History::new(100 * MS, 1.0);
        history.note(50 * MS, 2.0);
        history.note(150 * MS, 3.0);
        history.note(150 * MS + 1000, 4.0);
        assert_eq!(most(&history, 20 * MS), Some(1.0));
        assert_eq!(most(&history, 100 * MS), Some(2.0));
        // Within the slot, the greater.
        assert_eq!(most(&history, 150 * MS), Some(4.0));
        assert_eq!(most(&history, 500 * MS), Some(4.0));
        history.set_rtt(20 * MS);
        assert_eq!(most(&history, 100 * MS), Some(2.0));
        assert_eq!(most(&history, 160 * MS), Some(4.0));
        history.note(100_000 * MS, 5.0);
        // Long ago for the finest level only.
        assert_eq!(most(&history, 160 * MS), Some(4.0));
        assert_eq!(most(&history, 99_900 * MS), Some(4.0));
        history.set_rtt(300 * MS);
        assert_eq!(most(&history, 99_900 * MS), Some(4.0));
        assert_eq!(most(&history, 100_000 * MS), Some(5.0));
    }

    #[test]
    fn a_price_that_rises_is_at_each_instant_between_what_it_was_and_what_it_will_be() {
        let mut history = History::new(100 * MS, 0.0);
        (0..1_000_000).for_each(|us| history.note(us * 1000, us as f64));
        for us in [100_000, 543_210, 900_000_u64] {
            let error = history.at(us * 1000).unwrap().likely() - us as f64;
            assert!(error.abs() < 2.0, "{error} µs at {us}");
        }
    }

    /// On a link whose mean is half a millisecond a flow of 200 ms pays what the link said 200 ms
    /// ago.
    #[test]
    fn knows_the_price_of_a_long_round_trip_ago() {
        let mut history = History::new(MS / 2, 0.0);
        let said = |ms: u64| ms as f64;
        for ms in 0..10_000 {
            history.note(ms * MS, said(ms));
        }
        for age in [1, 10, 100, 200, 1000] {
            let then = 9_999 - age;
            let error = most(&history, then * MS).unwrap() - said(then);
            assert!(error.abs() <= 1.0 + age as f64 / 16.0, "{error} after {age} ms");
        }
        assert_eq!(most(&History::new(MS / 2, 1.0), 0), Some(1.0));
    }
}
