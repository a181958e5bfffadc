//! Size classes of flows, one per decade, and quantiles.

use std::fmt;

/// The sizes from one power of ten up to the next, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SizeClass(u32);

impl SizeClass {
    /// The class of a size in bytes. All sizes below 1 kB share one.
    pub(crate) fn of(bytes: u64) -> SizeClass {
        SizeClass(bytes.checked_ilog10().unwrap_or(0).max(2))
    }

    /// The exclusive upper bound of the class, in bytes.
    pub(crate) fn end(self) -> u64 {
        10u64.saturating_pow(self.0 + 1)
    }
}

/// The class as text: `10 kB to 100 kB`.
impl fmt::Display for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |power: u32| {
            let unit = ["B", "kB", "MB", "GB", "TB", "PB", "EB"][power as usize / 3];
            format!("{} {unit}", 10u32.pow(power % 3))
        };
        match self.0 {
            2 => f.write_str("under 1 kB"),
            18.. => f.write_str("1 EB or more"),
            power => write!(f, "{} to {}", name(power), name(power + 1)),
        }
    }
}

/// The least of `sorted` that a share `p` of all does not exceed; NaN if empty.
pub(crate) fn quantile(sorted: &[f64], p: f64) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[((p * n as f64).ceil() as usize).clamp(1, n) - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_decades() {
        let names = [0, 999, 1000, 99_999, 1_000_000, u64::MAX].map(|size| SizeClass::of(size).to_string());
        let expected =
            ["under 1 kB", "under 1 kB", "1 kB to 10 kB", "10 kB to 100 kB", "1 MB to 10 MB", "1 EB or more"];
        assert_eq!(names, expected);
        assert!(SizeClass::of(9_999).end() == 10_000 && SizeClass::of(u64::MAX).end() == u64::MAX);
    }

    #[test]
    fn quantiles_are_values_that_so_many_do_not_exceed() {
        let sorted: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.95, 0.951, 1.0].map(|p| quantile(&sorted, p)), [1.0, 10.0, 19.0, 20.0, 20.0]);
        assert_eq!((quantile(&sorted[..3], 0.5), quantile(&sorted[..1], 0.5)), (2.0, 1.0));
        assert!(quantile(&[], 0.5).is_nan());
    }
}
