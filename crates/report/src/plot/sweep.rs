//! Plots of a metric over an axis of an experiment's grid.

use tollway_scenario::file::Coordinate;
use tollway_scenario::tables::RunResult;

use super::{Axis, Curve, Panel, PlotSpec, Row, VALUE_TICKS};
use crate::claim::{Measurement, Metric, mean_value};
use crate::deviation::Aims;
use crate::grid::{Cells, GridPart};

/// A point of a plot: its panel, its curve, its position on the axis, and its value.
#[derive(Clone, Default)]
pub(super) struct Dot {
    pub(super) panel: String,
    pub(super) series: String,
    pub(super) x: f64,
    pub(super) y: f64,
    /// True for a theoretical value, false for a measured one.
    pub(super) theory: bool,
}

/// The row of `spec`, with `metric` measured in each run of the grid. Runs that differ on no drawn
/// axis, such as those of several seeds, become one point, their mean.
pub(super) fn row(spec: &PlotSpec, metric: Metric, runs: &[RunResult], cells: &Cells, aims: &Aims) -> Row {
    let x_axis = spec.x.as_deref().unwrap_or_default();
    let measurement = Measurement {
        link: spec.link.clone(),
        flows: spec.flows.clone(),
        from: spec.from,
        until: spec.until,
        over: spec.over,
        name: spec.name.clone(),
        fraction: spec.fraction,
        span: spec.span,
        ..Measurement::of(metric)
    };
    let everything = GridPart::default();
    let mut dots = Vec::new();
    for variant in cells.within(spec.part.as_ref().unwrap_or(&everything)) {
        let (Some(run), Some(cell)) = (runs.iter().find(|r| r.variant == variant), cells.cell(variant))
        else {
            continue;
        };
        let at = |axis: &str| cell.iter().find(|c| c.axis == axis);
        let Some(x) = at(x_axis).and_then(|c| c.value).filter(|x| !spec.log_x || *x > 0.0) else { continue };
        let times = spec.times.unwrap_or(1.0);
        let measured = Dot {
            panel: named(spec.panels.as_deref(), at),
            series: named(spec.series.as_deref(), at),
            x,
            y: mean_value(&measurement, run, &spec.folder) * times,
            theory: false,
        };
        let total = metric == Metric::TotalRate;
        let ideal = aims.rate_mbps(variant, spec.flows.as_deref().unwrap_or("*"), total);
        if let Some(ideal) = ideal.filter(|_| spec.theory) {
            let series = [measured.series.as_str(), "theory"].join(" ").trim().to_owned();
            dots.push(Dot { series, y: ideal * times, theory: true, ..measured.clone() });
        }
        dots.push(measured);
    }
    // A curve beside the theoretical one needs a name.
    if dots.iter().any(|dot| dot.theory) {
        dots.iter_mut().filter(|dot| dot.series.is_empty()).for_each(|dot| dot.series = "measured".into());
    }
    drawn(spec, x_axis, &dots)
}

fn named<'a>(axis: Option<&str>, at: impl Fn(&str) -> Option<&'a Coordinate>) -> String {
    axis.and_then(at).map_or(String::new(), |c| c.point.clone())
}

/// The row of all `dots`, with one panel and one curve per name.
pub(super) fn drawn(spec: &PlotSpec, x_axis: &str, dots: &[Dot]) -> Row {
    let distinct = |of: fn(&Dot) -> &String| {
        let mut all: Vec<&String> = Vec::new();
        dots.iter().for_each(|dot| {
            if !all.contains(&of(dot)) {
                all.push(of(dot))
            }
        });
        all
    };
    let (panels, series) = (distinct(|d| &d.panel), distinct(|d| &d.series));
    let panel = |label: &String| {
        let curve = |(colour, name): (usize, &&String)| {
            let here = || dots.iter().filter(|d| d.panel == *label && d.series == **name);
            let dotted = here().any(|d| !d.theory);
            Curve { name: (*name).clone(), colour, dotted, points: means(here()), ..Curve::default() }
        };
        let curves = series.iter().enumerate().map(curve).collect();
        Panel { label: label.clone(), curves, ..Panel::default() }
    };
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values
            .filter(|v| v.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
    };
    let (left, right) = range(&mut dots.iter().map(|d| d.x));
    let (low, high) = range(&mut dots.iter().map(|d| d.y));
    let x = if spec.log_x { Axis::log(left, right) } else { Axis::new(left, right, VALUE_TICKS + 2, false) };
    let places = means(dots.iter());
    let x = if places.len() <= MOST_TICKS { x.with_ticks(places.iter().map(|p| p.0)) } else { x };
    let low = if spec.from_zero.unwrap_or(true) { low.min(0.0) } else { low };
    // The top of a utilisation is 1, whatever its values.
    let high = if spec.metric == Some(Metric::Utilisation) { high.max(1.0) } else { high };
    Row {
        title: spec.title.clone(),
        panels: panels.into_iter().map(panel).collect(),
        x,
        y: if spec.log_y {
            let least = dots.iter().map(|d| d.y).filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
            Axis::log(least, high)
        } else {
            Axis::new(low, if high > low { high } else { low + 1.0 }, VALUE_TICKS, true)
        },
        x_title: spec.x_label.clone().unwrap_or_else(|| x_axis.to_string()),
        legend: series.into_iter().enumerate().map(|(i, name)| (name.clone(), i)).collect(),
    }
}

/// Number of positions on the axis up to which each has a tick.
const MOST_TICKS: usize = 8;

/// The mean of the points at each position, from left to right.
fn means<'a>(dots: impl Iterator<Item = &'a Dot>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = dots.map(|d| (d.x, d.y)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mean = |at: &[(f64, f64)]| (at[0].0, at.iter().map(|p| p.1).sum::<f64>() / at.len() as f64);
    points.chunk_by(|a, b| a.0 == b.0).map(mean).collect()
}

/// The least and the largest value at each position.
pub(super) fn ranges<'a>(dots: impl Iterator<Item = &'a Dot>) -> Vec<(f64, f64, f64)> {
    let mut points: Vec<(f64, f64)> = dots.map(|d| (d.x, d.y)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    points.chunk_by(|a, b| a.0 == b.0).map(|at| (at[0].0, at[0].1, at[at.len() - 1].1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theory_is_drawn_without_marks() {
        let dots = [
            Dot { series: "measured".into(), x: 1.0, y: 5.0, ..Dot::default() },
            Dot { series: "theory".into(), x: 1.0, y: 5.1, theory: true, ..Dot::default() },
        ];
        let row = drawn(&PlotSpec::default(), "x", &dots);
        assert_eq!(row.panels[0].curves.iter().map(|c| c.dotted).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn points_at_one_place_become_their_mean() {
        let dot = |x, y| Dot { series: "a".into(), x, y, ..Dot::default() };
        let dots = [dot(2.0, 5.0), dot(1.0, 1.0), dot(2.0, 7.0)];
        assert_eq!(means(dots.iter()), [(1.0, 1.0), (2.0, 6.0)]);
        let row = drawn(&PlotSpec { log_x: true, log_y: true, ..PlotSpec::default() }, "loss", &dots);
        assert!(row.y.log && row.y.from == 1.0 && row.y.until == 7.0, "{:?}", row.y);
        assert_eq!((row.legend.len(), row.panels.len(), row.x_title.as_str()), (1, 1, "loss"));
        assert!(row.x.log && row.panels[0].curves[0].dotted);
        assert_eq!(row.x.ticks, [(1.0, "1".to_string()), (2.0, "2".to_string())]);
    }
}
