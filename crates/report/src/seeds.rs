//! Ranges of consecutive seeds.

use std::ops::Range;

/// An error: the seeds would exceed the largest integer of scenario files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("there are fewer than {seeds} seeds from {seed} on: the last is {}", i64::MAX)]
#[diagnostic(help("start with a smaller seed"))]
pub struct NoSeeds {
    /// The first seed.
    pub seed: u64,
    /// The number of seeds.
    pub seeds: u64,
}

/// A range of `seeds` seeds from `seed` on, each valid in a scenario file.
pub(crate) fn seeds(seed: u64, seeds: u64) -> Result<Range<u64>, NoSeeds> {
    match seed.checked_add(seeds).filter(|end| *end <= END) {
        Some(end) => Ok(seed..end),
        None => Err(NoSeeds { seed, seeds }),
    }
}

/// The largest integer of TOML plus one.
const END: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_seed_is_the_largest_of_a_file() {
        let last = i64::MAX as u64;
        assert_eq!(seeds(last, 1), Ok(last..END));
        assert_eq!(seeds(last, 2), Err(NoSeeds { seed: last, seeds: 2 }));
        assert!(seeds(1, u64::MAX).is_err() && seeds(u64::MAX, 1).is_err());
    }
}
