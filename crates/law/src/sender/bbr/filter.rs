//! The largest of what was seen lately.

/// A windowed maximum after Kathleen Nichols: the best three of a window, each later than the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowedMax {
    best: [(f64, u64); 3],
}

impl WindowedMax {
    /// The maximum.
    pub(super) fn get(&self) -> f64 {
        self.best[0].0
    }

    /// A value at `time`; those more than `length` older are forgotten.
    pub(super) fn add(&mut self, value: f64, time: u64, length: u64) {
        let new = (value, time);
        let stale = |at: u64| time.saturating_sub(at) > length;
        if value >= self.best[0].0 || stale(self.best[2].1) {
            self.best = [new; 3];
            return;
        }
        if value >= self.best[1].0 {
            self.best[1] = new;
            self.best[2] = new;
        } else if value >= self.best[2].0 {
            self.best[2] = new;
        }
        if stale(self.best[0].1) {
            self.best = [self.best[1], self.best[2], new];
            if stale(self.best[0].1) {
                self.best = [self.best[1], self.best[2], new];
            }
            return;
        }
        // The second and third are from later parts of the window, so that there is one when the first goes.
        let age = time.saturating_sub(self.best[0].1);
        if self.best[1].1 == self.best[0].1 && age > length / 4 {
            self.best[1] = new;
            self.best[2] = new;
        } else if self.best[2].1 == self.best[1].1 && age > length / 2 {
            self.best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Never more than the true maximum of the window, never less than the latest value.
        #[test]
        fn lies_between_the_latest_and_the_true_maximum(
            steps in prop::collection::vec((0u64..4, 0f64..100.0), 1..200), length in 1u64..12,
        ) {
            let (mut filter, mut seen, mut time) = (WindowedMax::default(), Vec::new(), 0);
            for (gap, value) in steps {
                time += gap;
                filter.add(value, time, length);
                seen.push((value, time));
                let window = seen.iter().filter(|(_, at)| time - at <= length).map(|(v, _)| *v);
                let largest = window.fold(0.0, f64::max);
                prop_assert!(filter.get() >= value && filter.get() <= largest, "{} {largest}", filter.get());
            }
        }
    }
}
