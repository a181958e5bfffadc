//! The prices of the past.

/// What a link said at each time, in slots of 1/64 to 1/32 of a round trip, over some 16 round trips or more.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// The last price of each slot.
    prices: Box<[f64; SLOTS]>,
    /// A slot is 2^`shift` ns long.
    shift: u32,
    /// The slot written last, and the first that was written at all.
    at: u64,
    first: u64,
}

impl History {
    pub(super) fn new(rtt: u64, price: f64) -> History {
        History { prices: Box::new([price; SLOTS]), shift: slot_shift(rtt), at: 0, first: 0 }
    }

    /// The price is `price` from `now` ns on.
    #[inline]
    pub(super) fn note(&mut self, now: u64, price: f64) {
        let slot = now >> self.shift;
        if slot > self.at {
            self.turn(slot);
        }
        self.prices[self.at as usize % SLOTS] = price;
    }

    /// Slots in which nothing was said have the price before them.
    fn turn(&mut self, slot: u64) {
        let price = self.prices[self.at as usize % SLOTS];
        let from = (self.at + 1).max((slot + 1).saturating_sub(SLOTS as u64));
        for k in from..=slot {
            self.prices[k as usize % SLOTS] = price;
        }
        self.at = slot;
        self.first = self.first.max((slot + 1).saturating_sub(SLOTS as u64));
    }

    /// The price at `then` ns; `None` if that is too long ago. Within a slot the price may have gone from one value to
    /// another: the greater is answered, and the balance that the packet states is the finer of the two bounds.
    #[inline]
    pub(super) fn at(&self, then: u64) -> Option<f64> {
        let slot = then >> self.shift;
        if slot > self.at {
            return Some(self.prices[self.at as usize % SLOTS]);
        }
        if slot < self.first {
            return None;
        }
        let before = if slot > self.first { slot - 1 } else { slot };
        Some(self.prices[slot as usize % SLOTS].max(self.prices[before as usize % SLOTS]))
    }

    /// A round trip now takes `rtt` ns.
    #[inline]
    pub(super) fn set_rtt(&mut self, rtt: u64) {
        let shift = slot_shift(rtt);
        if shift != self.shift {
            self.rescale(shift);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn remembers_what_was_said() {
        let mut history = History::new(100 * MS, 1.0);
        history.note(50 * MS, 2.0);
        history.note(150 * MS, 3.0);
        history.note(150 * MS + 1000, 4.0);
        assert_eq!(history.at(20 * MS), Some(1.0));
        assert_eq!(history.at(100 * MS), Some(2.0));
        // Within the slot, the greater.
        assert_eq!(history.at(150 * MS), Some(4.0));
        assert_eq!(history.at(500 * MS), Some(4.0));
        history.set_rtt(20 * MS);
        assert_eq!(history.at(100 * MS), Some(2.0));
        assert_eq!(history.at(160 * MS), Some(4.0));
        history.note(100_000 * MS, 5.0);
        assert_eq!(history.at(160 * MS), None);
        assert_eq!(history.at(99_900 * MS), Some(4.0));
        history.set_rtt(300 * MS);
        assert_eq!(history.at(99_900 * MS), Some(4.0));
        assert_eq!(history.at(100_000 * MS), Some(5.0));
    }
}
