//! Plots of one column of the flows' summary over another, such as completion times by size.

use tollway_scenario::tables::RunResult;

use super::{PlotSpec, Row, sweep};
use crate::data;
use sweep::Dot;

/// The row of `spec`, with one curve per run: the mean over flows with similar values of column
/// `by`. Only flows that began in the plot's time window count.
pub(super) fn row(spec: &PlotSpec, by: &str, runs: &[RunResult]) -> Row {
    let wanted = spec.variants.as_deref().unwrap_or("*");
    let (from, until) = (seconds(spec.from, 0.0), seconds(spec.until, f64::INFINITY));
    let mut found: Vec<(&str, f64, f64)> = Vec::new();
    for run in runs.iter().filter(|run| data::glob(wanted, &run.variant).is_some()) {
        for flow in data::summary(&run.summary, "flow") {
            let (x, y) = (flow.get(by), flow.get(&spec.y) * spec.times.unwrap_or(1.0));
            let named = data::matches(spec.flows.as_deref().unwrap_or("*"), &flow.name);
            let began = flow.start() >= from && flow.start() < until;
            if named && began && y.is_finite() && x.is_finite() && (x > 0.0 || !spec.log_x) {
                found.push((&run.variant, x, y));
            }
        }
    }
    let ends = found.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), f| (a.min(f.1), b.max(f.1)));
    let bins = Bins::over(ends, spec.log_x);
    let dots: Vec<Dot> = found
        .into_iter()
        .map(|(run, x, y)| Dot { series: run.to_owned(), x: bins.middle(x), y, ..Dot::default() })
        .collect();
    sweep::drawn(spec, by, &dots)
}

fn seconds(time: Option<tollway_law::Time>, otherwise: f64) -> f64 {
    time.map_or(otherwise, |time| time.nearest_secs())
}

/// The division of a range into pieces of equal length on its scale.
struct Bins {
    from: f64,
    width: f64,
    log: bool,
}

impl Bins {
    /// Five pieces per decade, or twenty in all.
    fn over((low, high): (f64, f64), log: bool) -> Bins {
        let width = if log { 0.2 } else { (high - low) / 20.0 };
        let from = if log { libm::floor(libm::log10(low)) } else { low };
        Bins { from, width: if width > 0.0 { width } else { 1.0 }, log }
    }

    /// The middle of the piece that contains `x`.
    fn middle(&self, x: f64) -> f64 {
        let place = if self.log { libm::log10(x) } else { x };
        let middle = self.from + (libm::floor((place - self.from) / self.width + 1e-9) + 0.5) * self.width;
        if self.log { libm::pow(10.0, middle) } else { middle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_equally_long_on_their_scale() {
        let log = Bins::over((150.0, 90_000.0), true);
        let middles = [100.0, 150.0, 170.0, 90_000.0].map(|x| libm::round(log.middle(x)));
        assert_eq!(middles, [126.0, 126.0, 200.0, 79_433.0]);
        let linear = Bins::over((0.0, 20.0), false);
        assert_eq!([0.0, 0.99, 1.0, 20.0].map(|x| linear.middle(x)), [0.5, 0.5, 1.5, 20.5]);
        // All values equal.
        assert_eq!(Bins::over((5.0, 5.0), false).middle(5.0), 5.5);
    }
}
