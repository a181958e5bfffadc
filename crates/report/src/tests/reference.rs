//! Fuzzing of the parser of reference series.

use super::{Running, Window, parse};

/// Parses any text as a reference. Its times increase, and the mean over any window is finite.
pub(crate) fn read_anything(text: &str) {
    let Ok(series) = parse(text) else { return };
    for s in &series {
        assert!(s.times.windows(2).all(|w| w[0] < w[1]), "{:?}", s.times);
        let (running, last) = (Running::new(s), s.times.last().copied().unwrap_or(0.0));
        for window in [Window { from: 0.0, until: 1.0 }, Window { from: last / 2.0, until: last + 1.0 }] {
            let mean = running.over(window);
            // Absurdly large numbers may overflow.
            let sane = s.values.iter().chain(&s.times).all(|number| number.abs() < 1e12);
            assert!(!sane || mean.is_finite(), "{mean} over {window:?} of {s:?}");
        }
    }
}
