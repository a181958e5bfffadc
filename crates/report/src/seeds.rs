//! Seeds one after the other.

use std::ops::Range;

/// Seeds would go beyond the whole numbers that scenario files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("there are no {seeds} seeds from {seed} on: the last is {}", i64::MAX)]
#[diagnostic(help("begin with a smaller seed"))]
pub struct NoSeeds {
    /// The first.
    pub seed: u64,
    /// How many.
    pub seeds: u64,
}

/// So many seeds from `seed` on, each one that a scenario file can have.
pub(crate) fn seeds(seed: u64, seeds: u64) -> Result<Range<u64>, NoSeeds> {
    match seed.checked_add(seeds).filter(|end| *end <= END) {
        Some(end) => Ok(seed..end),
        None => Err(NoSeeds { seed, seeds }),
    }
}

/// One beyond the largest whole number of TOML.
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
