//! Announced spending that has not yet arrived.

use super::window::Summed;

/// A sum of amounts, each with an instant from which it counts and one at which it expires, in any
/// order.
///
/// An amount starts and ends at the end of its instant's slot in a wheel: at most 1/128 of the
/// window late, or one window late if it is more than eight windows ahead. The wheels reach a
/// thousand windows ahead; amounts beyond that end when the wheels have turned once.
#[derive(Clone, Debug)]
pub(super) struct Promises<S = f64> {
    near: Wheel<S>,
    far: Wheel<S>,
    total: S,
    /// True if no amount counts now or later.
    idle: bool,
}

impl<S: Summed + PartialEq> Promises<S> {
    /// An empty sum; the window is `span` ns long.
    pub(super) fn new(span: u64) -> Promises<S> {
        let shift = slot_shift(span);
        Promises { near: Wheel::new(shift), far: Wheel::new(shift + FAR), total: S::default(), idle: true }
    }

    /// Adds `amount`, which counts from `from` until `until` ns.
    #[inline]
    pub(super) fn add(&mut self, now: u64, from: u64, until: u64, amount: S) {
        self.begin(now, from, amount);
        self.change(until, amount.times(-1.0));
    }

    /// Adds `amount`, which counts from `from` on, and from `fades` to `until` ns decays to nothing
    /// in [`STEPS`]. With the part of it that is in a window as long as the decay, it is about the
    /// amount all the while. Steps stay between the amount and zero, however late they are.
    #[inline]
    pub(super) fn add_fading(&mut self, now: u64, from: u64, fades: u64, until: u64, amount: S) {
        if fades == until {
            return self.add(now, from, until, amount);
        }
        self.begin(now, from, amount);
        let (half, part) = ((until - fades) / (2 * STEPS), amount.times(-1.0 / STEPS as f64));
        for step in 0..STEPS {
            self.change(fades + (2 * step + 1) * half, part);
        }
    }

    #[inline]
    fn begin(&mut self, now: u64, from: u64, amount: S) {
        self.turn(now);
        self.idle = false;
        if self.near.is_ahead(from) {
            self.change(from, amount);
        } else {
            self.total.add(amount);
        }
    }

    /// Changes the total by `amount` at the end of the slot of `at` ns.
    #[inline]
    fn change(&mut self, at: u64, amount: S) {
        let wheel = if self.near.reaches(at) { &mut self.near } else { &mut self.far };
        wheel.add(at, amount);
    }

    /// The sum of the amounts that count at `now` ns.
    #[inline]
    pub(super) fn total(&mut self, now: u64) -> S {
        if !self.idle {
            self.turn(now);
        }
        self.total
    }

    /// True if no amount counts at `now` ns or later.
    #[inline]
    pub(super) fn is_idle(&mut self, now: u64) -> bool {
        if !self.idle {
            self.turn(now);
        }
        self.idle
    }

    #[inline]
    fn turn(&mut self, now: u64) {
        if self.near.is_ahead(now) {
            let mut change = self.near.turn(now);
            change.add(self.far.turn(now));
            self.total.add(change);
            if self.near.is_empty() && self.far.is_empty() {
                self.total = S::default();
                self.idle = true;
            }
        }
    }

    /// Sets the length of the window, ns.
    #[inline]
    pub(super) fn set_span(&mut self, span: u64) {
        let shift = slot_shift(span);
        if shift != self.near.shift {
            self.rescale(shift);
        }
    }

    #[cold]
    fn rescale(&mut self, shift: u32) {
        let old = [
            std::mem::replace(&mut self.near, Wheel::new(shift)),
            std::mem::replace(&mut self.far, Wheel::new(shift + FAR)),
        ];
        let now = old[0].at << old[0].shift;
        (self.near.at, self.far.at) = (now >> self.near.shift, now >> self.far.shift);
        for wheel in old {
            for slot in wheel.at..=wheel.last {
                let Some(chunk) = &wheel.chunks[chunk_of(slot)] else { continue };
                let amount = chunk[slot as usize % IN_CHUNK];
                if amount != S::default() {
                    self.change(((slot + 1) << wheel.shift) - 1, amount);
                }
            }
        }
    }
}

/// Changes of a sum, each in the slot of time at whose end it takes effect.
#[derive(Clone, Debug)]
struct Wheel<S> {
    /// The slots, in chunks that exist while they have changes: most amounts end soon.
    chunks: [Option<Box<[S; IN_CHUNK]>>; SLOTS / IN_CHUNK],
    /// A slot is 2^`shift` ns long.
    shift: u32,
    /// The slot of the present, counted from time zero.
    at: u64,
    /// The last slot with a change.
    last: u64,
}

impl<S: Summed> Wheel<S> {
    fn new(shift: u32) -> Wheel<S> {
        Wheel { chunks: Default::default(), shift, at: 0, last: 0 }
    }

    /// True if `ns` lies after the present slot.
    #[inline]
    fn is_ahead(&self, ns: u64) -> bool {
        ns >> self.shift > self.at
    }

    /// True if the wheel has a slot for `ns`.
    #[inline]
    fn reaches(&self, ns: u64) -> bool {
        ns >> self.shift < self.at + SLOTS as u64
    }

    /// True if no change is pending.
    #[inline]
    fn is_empty(&self) -> bool {
        self.at > self.last
    }

    #[inline]
    fn add(&mut self, ns: u64, amount: S) {
        let slot = (ns >> self.shift).clamp(self.at, self.at + SLOTS as u64 - 1);
        let chunk = self.chunks[chunk_of(slot)].get_or_insert_with(no_changes);
        chunk[slot as usize % IN_CHUNK].add(amount);
        self.last = self.last.max(slot);
    }

    /// Advances to `now` ns. Returns the sum of the changes in between.
    #[inline]
    fn turn(&mut self, now: u64) -> S {
        let slot = now >> self.shift;
        let mut sum = S::default();
        while self.at < slot && self.at <= self.last {
            let chunk = &mut self.chunks[chunk_of(self.at)];
            if let Some(slots) = chunk {
                sum.add(std::mem::take(&mut slots[self.at as usize % IN_CHUNK]));
            }
            self.at += 1;
            let passed = (self.at as usize).is_multiple_of(IN_CHUNK);
            if passed && self.last < self.at + (SLOTS - IN_CHUNK) as u64 {
                *chunk = None;
            }
        }
        self.at = self.at.max(slot);
        sum
    }
}

#[cold]
fn no_changes<S: Summed>() -> Box<[S; IN_CHUNK]> {
    Box::new([S::default(); IN_CHUNK])
}

fn chunk_of(slot: u64) -> usize {
    slot as usize % SLOTS / IN_CHUNK
}

/// The length of a near slot, a power of two of nanoseconds: 1/256 to 1/128 of the window.
fn slot_shift(span: u64) -> u32 {
    (span / 128).max(1).ilog2()
}

/// The steps of a decay.
const STEPS: u64 = 4;
const SLOTS: usize = 2048;
const IN_CHUNK: usize = 128;
/// A far slot is 2^7 near ones long: half a window to a whole one.
const FAR: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn amounts_expire_when_they_should_in_any_order() {
        let mut promises = Promises::new(200 * MS);
        promises.add(0, 0, 400 * MS, 2.0);
        promises.add(0, 0, 100 * MS, 1.0);
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
            promises.add(i * MS / 10, 0, i * MS / 10 + 200 * MS, 0.1);
            promises.total(i * MS / 10);
        }
        assert!((promises.total(1000 * MS) - 200.0).abs() < 2.0);
        assert_eq!(promises.total(5_000 * MS), 0.0);
        promises.add(5_000 * MS, 0, 5_100 * MS, 1.0);
        assert_eq!(promises.total(5_050 * MS), 1.0);
        assert_eq!(promises.total(1_000_000 * MS), 0.0);
    }

    #[test]
    fn amounts_a_whole_wheel_ahead_expire_when_they_should() {
        // A slot is 1 ns.
        let mut promises = Promises::new(128);
        for now in 0..10_000 {
            promises.add(now, 0, now + 2047, 1.0);
            assert_eq!(promises.total(now), (now + 1).min(2048) as f64, "{now} ns");
        }
    }

    #[test]
    fn an_amount_counts_from_when_it_is_said_to() {
        let mut promises = Promises::new(200 * MS);
        promises.add(0, 300 * MS, 500 * MS, 1.0);
        promises.add(0, 0, 400 * MS, 0.5);
        for (at, total) in [(0, 0.5), (298, 0.5), (303, 1.5), (403, 1.0), (498, 1.0), (503, 0.0)] {
            assert_eq!(promises.total(at * MS), total, "{at} ms");
            promises.set_span((100 + at % 7 * 50) * MS);
        }
    }

    #[test]
    fn an_amount_decays_in_steps_around_a_straight_line() {
        let mut promises = Promises::new(200 * MS);
        promises.add_fading(0, 50 * MS, 100 * MS, 300 * MS, 4.0);
        for (at, total) in [(49, 0.0), (53, 4.0), (123, 4.0), (128, 3.0), (178, 2.0), (228, 1.0), (278, 0.0)]
        {
            assert_eq!(promises.total(at * MS), total, "{at} ms");
        }
        assert!(promises.is_idle(278 * MS));
    }

    #[test]
    fn what_comes_after_a_long_pause_counts_too() {
        let mut promises = Promises::new(200 * MS);
        promises.add(0, 0, 100 * MS, 1.0);
        promises.add(60_000 * MS, 60_000 * MS, 60_300 * MS, 2.0);
        assert_eq!(promises.total(60_100 * MS), 2.0);
        assert_eq!(promises.total(60_400 * MS), 0.0);
    }

    #[test]
    fn what_is_many_windows_ahead_counts_when_it_is_said_to() {
        let mut promises = Promises::new(10 * MS);
        promises.add(0, 1000 * MS, 1050 * MS, 1.0);
        assert_eq!(promises.total(990 * MS), 0.0);
        assert_eq!(promises.total(1015 * MS), 1.0);
        promises.set_span(30 * MS);
        assert_eq!(promises.total(1030 * MS), 1.0);
        assert_eq!(promises.total(1100 * MS), 0.0);
    }

    #[test]
    fn what_lies_beyond_the_wheels_stays_on_them() {
        let mut promises = Promises::new(10 * MS);
        promises.add(0, 0, 10_000 * MS, 1.0);
        assert_eq!(promises.total(70 * MS), 1.0);
        assert_eq!(promises.total(11_000 * MS), 0.0);
    }
}
