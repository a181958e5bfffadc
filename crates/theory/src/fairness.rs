//! Measures of the evenness of an allocation.

/// Jain's fairness index, (Σx)² ∕ (n·Σx²): 1 when all rates are equal, 1/n when one flow has all
/// (Jain, Chiu, Hawe, *A Quantitative Measure of Fairness*, DEC-TR-301, 1984).
///
/// NaN for no flows, and where all rates are zero.
pub fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_from_one_over_n_to_one() {
        assert_eq!(jain(&[2.5; 4]), 1.0);
        assert_eq!(jain(&[10.0, 0.0, 0.0, 0.0]), 0.25);
        assert!((jain(&[1.0, 2.0, 3.0]) - 36.0 / 42.0).abs() < 1e-15);
        assert!(jain(&[]).is_nan() && jain(&[0.0, 0.0]).is_nan());
    }
}
