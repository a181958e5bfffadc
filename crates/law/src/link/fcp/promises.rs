//! What senders have promised to spend, until they do.

/// A sum of amounts, each with an instant at which it expires: a wheel of slots, so that amounts may expire in another
/// order than they came in. An amount leaves at the end of the slot that its instant lies in, at most 1/128 of the window
/// late; one further ahead than the wheel reaches, which is 8 windows or more, leaves when the wheel has come round.
#[derive(Clone, Debug)]
pub(super) struct Promises {
    slots: Box<[f64; SLOTS]>,
    /// A slot is 2^`shift` ns long.
    shift: u32,
    /// The slot of the present, counted from time zero.
    at: u64,
    total: f64,
    /// Slots from the present on that something was put into; at none, the total is exactly zero.
    last: u64,
}

impl Promises {
    pub(super) fn new(span: u64) -> Promises {
        Promises { slots: Box::new([0.0; SLOTS]), shift: slot_shift(span), at: 0, total: 0.0, last: 0 }
    }

    /// `amount` more, until `until` ns.
    #[inline]
    pub(super) fn add(&mut self, until: u64, amount: f64) {
        let slot = (until >> self.shift).clamp(self.at, self.at + SLOTS as u64 - 1);
        self.slots[slot as usize % SLOTS] += amount;
        self.total += amount;
        self.last = self.last.max(slot);
    }

    /// The sum of what has not expired at `now` ns.
    #[inline]
    pub(super) fn total(&mut self, now: u64) -> f64 {
        let slot = now >> self.shift;
        if slot > self.at {
            self.turn(slot);
        }
        self.total
    }

    fn turn(&mut self, slot: u64) {
        if slot > self.last {
            for k in self.at..=self.last {
                self.slots[k as usize % SLOTS] = 0.0;
            }
            self.total = 0.0;
        } else {
            while self.at < slot {
                let expired = &mut self.slots[self.at as usize % SLOTS];
                self.total -= std::mem::take(expired);
                self.at += 1;
            }
        }
        self.at = slot;
    }

    /// The window is now `span` ns long.
    #[inline]
    pub(super) fn set_span(&mut self, span: u64) {
        let shift = slot_shift(span);
        if shift != self.shift {
            self.rescale(shift);
        }
    }

    #[cold]
    fn rescale(&mut self, shift: u32) {
        let old = self.clone();
        self.slots.fill(0.0);
        (self.shift, self.total) = (shift, 0.0);
        self.at = (old.at << old.shift) >> shift;
        self.last = 0;
        for k in 0..SLOTS as u64 {
            let amount = old.slots[(old.at + k) as usize % SLOTS];
            if amount != 0.0 {
                self.add(((old.at + k + 1) << old.shift) - 1, amount);
            }
        }
    }
}

/// The length of a slot, a power of two of nanoseconds: 1/256 to 1/128 of the window.
fn slot_shift(span: u64) -> u32 {
    (span / 128).max(1).ilog2()
}

const SLOTS: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn amounts_expire_when_they_should_in_any_order() {
        let mut promises = Promises::new(200 * MS);
        promises.add(400 * MS, 2.0);
        promises.add(100 * MS, 1.0);
        assert_eq!(promises.total(0), 3.0);
        assert_eq!(promises.total(99 * MS), 3.0);
        assert_eq!(promises.total(103 * MS), 2.0);
        promises.set_span(40 * MS);
        assert_eq!(promises.total(398 * MS), 2.0);
        promises.set_span(400 * MS);
        assert_eq!(promises.total(399 * MS), 2.0);
        assert_eq!(promises.total(410 * MS), 0.0);
    }

    #[test]
    fn nothing_is_left_of_what_expired() {
        let mut promises = Promises::new(200 * MS);
        for i in 0..10_000u64 {
            promises.add(i * MS / 10 + 200 * MS, 0.1);
            promises.total(i * MS / 10);
        }
        assert!((promises.total(1000 * MS) - 200.0).abs() < 2.0);
        assert_eq!(promises.total(5_000 * MS), 0.0);
        promises.add(5_100 * MS, 1.0);
        assert_eq!(promises.total(5_050 * MS), 1.0);
        assert_eq!(promises.total(1_000_000 * MS), 0.0);
    }

    #[test]
    fn what_lies_beyond_the_wheel_stays_on_it() {
        let mut promises = Promises::new(10 * MS);
        promises.add(10_000 * MS, 1.0);
        assert_eq!(promises.total(70 * MS), 1.0);
        assert_eq!(promises.total(11_000 * MS), 0.0);
    }
}
