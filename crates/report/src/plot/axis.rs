//! Axes with round ticks.

use crate::claim::number;

/// A range and its ticks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    pub(crate) from: f64,
    pub(crate) until: f64,
    /// True for a logarithmic scale.
    pub(crate) log: bool,
    /// The positions of ticks, with their labels.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis from `low` to `high` with about `count` ticks, at 1, 2 or 5 times a power of
    /// ten. With `widen` it extends to about the next tick, so that curves do not touch the frame.
    pub(crate) fn new(low: f64, high: f64, count: usize, widen: bool) -> Axis {
        let (low, high) = if high > low && (high - low).is_finite() { (low, high) } else { (low, low + 1.0) };
        let rough = (high - low) / count.max(1) as f64;
        let power = libm::pow(10.0, libm::floor(libm::log10(rough)));
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough * 0.999);
        let step = step.unwrap_or(10.0 * power);
        let (from, until) = if widen {
            let headroom = 0.02 * (high - low);
            (
                libm::floor(low / step + 1e-9) * step,
                f64::max(high + headroom, libm::ceil(high / step - 0.6) * step),
            )
        } else {
            (low, high)
        };
        let first = libm::ceil(from / step - 1e-9);
        let decimals = (-libm::floor(libm::log10(step) + 1e-9)).max(0.0) as usize;
        let ticks = (0..=((until - first * step) / step + 1e-9) as usize)
            .map(|i| (first + i as f64) * step)
            .map(|v| (v, label(v, decimals)))
            .collect();
        Axis { from, until, log: false, ticks }
    }

    /// A logarithmic axis from `low` to `high`, both above 0. Ticks are at powers of ten; below
    /// three decades also at 2 and 5 times those.
    pub(crate) fn log(low: f64, high: f64) -> Axis {
        let (low, high) = if low > 0.0 && high > low && high.is_finite() { (low, high) } else { (1.0, 10.0) };
        let powers = libm::floor(libm::log10(low)) as i32..=libm::ceil(libm::log10(high)) as i32;
        let steps: &[f64] = if libm::log10(high / low) < 2.999 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let ticks = powers
            // A negative power as the quotient of two exact doubles.
            .map(|p| if p < 0 { 1.0 / libm::pow(10.0, f64::from(-p)) } else { libm::pow(10.0, f64::from(p)) })
            .flat_map(|power| steps.iter().map(move |step| step * power))
            .filter(|v| *v >= low * 0.999 && *v <= high * 1.001)
            .map(|v| (v, number(v)))
            .collect();
        Axis { from: low, until: high, log: true, ticks }
    }

    /// The same axis with ticks at `values` only.
    pub(crate) fn with_ticks(self, values: impl Iterator<Item = f64>) -> Axis {
        Axis { ticks: values.map(|v| (v, number(v))).collect(), ..self }
    }

    /// The position of `value`: 0 at the start, 1 at the end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        if self.log {
            return libm::log(value / self.from) / libm::log(self.until / self.from);
        }
        (value - self.from) / (self.until - self.from)
    }
}

fn label(value: f64, decimals: usize) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{}M", trimmed(value / 1e6))
    } else if size >= 1e4 {
        format!("{}k", trimmed(value / 1e3))
    } else if value == 0.0 {
        "0".into()
    } else {
        format!("{value:.decimals$}")
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|t| t.1.as_str()).collect()
    }

    #[test]
    fn ticks_are_round() {
        let axis = Axis::new(0.0, 60.0, 7, false);
        assert_eq!(labels(&axis), ["0", "10", "20", "30", "40", "50", "60"]);
        assert_eq!(labels(&Axis::new(0.0, 0.93, 5, true)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&Axis::new(0.0, 130_000.0, 5, true)), ["0", "50k", "100k"]);
        let axis = Axis::new(-3.0, 4.0, 5, true);
        assert!(axis.from <= -3.0 && axis.until > 4.0);
        let axis = Axis::log(1e-4, 0.1);
        assert_eq!(labels(&axis), ["0.0001", "0.001", "0.01", "0.1"]);
        assert!((axis.place(0.01) - 2.0 / 3.0).abs() < 1e-12 && axis.place(1e-4) == 0.0);
        assert_eq!(labels(&Axis::log(1.0, 16.0)), ["1", "2", "5", "10"]);
        assert_eq!(labels(&Axis::log(f64::INFINITY, 0.0)), labels(&Axis::log(1.0, 10.0)));
        assert_eq!(Axis::new(1.0, 1.0, 5, true).ticks.len(), Axis::new(1.0, 2.0, 5, true).ticks.len());
    }
}
