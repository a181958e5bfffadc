//! A maximum over a moving window.

/// A windowed maximum after Kathleen Nichols: the best three of a window, each later than the one
/// before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowedMax {
    best: [(f64, u64); 3],
}

impl WindowedMax {
    /// The present maximum.
    pub(super) fn get(&self) -> f64 {
        self.best[0].0
    }

    /// Adds a value at `time`, and drops those more than `length` older.
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
        // The second and third are from later parts of the window, so that there is one when the
        // first goes.
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

    #[test]
    fn keeps_a_second_and_a_third_from_later_quarters_as_linux_does() {
        // Values that fall by one: of a window of 10, what comes over a quarter of it later is kept
        // as the second, what comes over a half later as the third (lib/win_minmax.c).
        let mut filter = WindowedMax::default();
        let mut found = |time: u64, value: u64| {
            filter.add(value as f64, time, 10);
            filter.get()
        };
        for time in 0..18 {
            let largest = match time {
                0..11 => 40,
                11..14 => 40 - 3,
                14..17 => 40 - 6,
                _ => 40 - 11,
            };
            assert_eq!(found(time, 40 - time), largest as f64, "{time}");
        }
        // After a pause the first and the second are too old, and the third is left; after a longer
        // one, nothing.
        assert_eq!(found(25, 1), (40 - 17) as f64);
        assert_eq!(found(60, 1), 1.0);
        // As much as the largest makes it new.
        found(65, 1);
        assert_eq!(found(75, 0), 1.0);
        assert_eq!(found(76, 0), 0.0);
    }

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
