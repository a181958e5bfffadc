//! Distributions over flows: the share of flows up to each value.

use std::collections::BTreeMap;

use tollway_scenario::tables::RunResult;

use super::{Axis, Curve, Figure, Panel, Row, VALUE_TICKS};
use crate::data;
use crate::sizes::SizeClass;
use crate::slowdown::Slowdown;

impl Figure {
    /// Adds the distributions of completion time by size, and of the slowdown of each workload.
    /// `slowdowns` has those of each run, in order.
    pub fn add_distributions(&mut self, runs: &[RunResult], slowdowns: &[&[Slowdown]]) {
        let several = runs.len() > 1;
        let named = |run: &RunResult| if several { run.variant.clone() } else { String::new() };
        let times = runs.iter().map(|run| (named(run), completion_times(run))).collect();
        self.rows.extend(row(
            "Share of flows that completed within a time, by size",
            "completion time (s)",
            times,
        ));
        let mut workloads: Vec<&str> = Vec::new();
        for slowdown in slowdowns.iter().copied().flatten() {
            if !workloads.contains(&slowdown.workload.as_str()) {
                workloads.push(&slowdown.workload);
            }
        }
        for workload in workloads {
            let of = |all: &[Slowdown]| {
                let found = all.iter().find(|slowdown| slowdown.workload == workload);
                let sizes = found.map_or(&[][..], |slowdown| &slowdown.by_size);
                sizes.iter().map(|size| (size.class(), size.sorted.clone())).collect::<BTreeMap<_, _>>()
            };
            let panels = runs.iter().zip(slowdowns).map(|(run, all)| (named(run), of(all))).collect();
            let title = format!("Share of flows of {workload} up to a slowdown, by size");
            self.rows.extend(row(&title, "slowdown", panels));
        }
    }
}

/// The sorted completion times, by size.
fn completion_times(run: &RunResult) -> BTreeMap<SizeClass, Vec<f64>> {
    let mut by_size: BTreeMap<SizeClass, Vec<f64>> = BTreeMap::new();
    for flow in data::summary(&run.summary, "flow") {
        let (time, size) = (flow.get("fct_s"), flow.get("size_bytes"));
        if time.is_finite() && size.is_finite() {
            by_size.entry(SizeClass::of(size as u64)).or_default().push(time);
        }
    }
    by_size.values_mut().for_each(|times| times.sort_by(f64::total_cmp));
    by_size
}

/// A panel per variant with a curve per size; `None` for too few flows.
fn row(title: &str, x_title: &str, panels: Vec<(String, BTreeMap<SizeClass, Vec<f64>>)>) -> Option<Row> {
    let all = || panels.iter().flat_map(|(_, sizes)| sizes.values()).flatten().copied().filter(|v| *v > 0.0);
    if all().count() < FEW {
        return None;
    }
    let (low, high) = all().fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    let mut classes: Vec<SizeClass> = panels.iter().flat_map(|(_, sizes)| sizes.keys()).copied().collect();
    classes.sort_unstable();
    classes.dedup();
    let curve = |(class, sorted): (&SizeClass, &Vec<f64>)| Curve {
        name: class.to_string(),
        colour: classes.iter().position(|known| known == class).unwrap_or(0),
        points: steps(sorted),
        ..Curve::default()
    };
    let legend = classes.iter().enumerate().map(|(i, class)| (class.to_string(), i)).collect();
    Some(Row {
        title: title.into(),
        x: if high > 10.0 * low {
            Axis::log(low, high)
        } else {
            Axis::new(low, high, VALUE_TICKS + 2, false)
        },
        y: Axis::new(0.0, 1.0, VALUE_TICKS, false),
        x_title: x_title.into(),
        legend,
        panels: panels
            .iter()
            .map(|(label, sizes)| Panel {
                label: label.clone(),
                curves: sizes.iter().map(curve).collect(),
                ..Panel::default()
            })
            .collect(),
    })
}

/// The share of values up to each value, as steps.
fn steps(sorted: &[f64]) -> Vec<(f64, f64)> {
    let n = sorted.len() as f64;
    let step = |(i, value): (usize, &f64)| [(*value, i as f64 / n), (*value, (i + 1) as f64 / n)];
    sorted.iter().enumerate().filter(|(_, value)| **value > 0.0).flat_map(step).collect()
}

/// The least number of flows for a distribution; fewer are shown in a table.
const FEW: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_climbs_from_nothing_to_all() {
        let of = |values: &[f64]| {
            BTreeMap::from([(SizeClass::of(1), values.to_vec()), (SizeClass::of(5000), vec![2.0])])
        };
        let values: Vec<f64> = (1..=20).map(|i| f64::from(i) / 4.0).collect();
        let row = row("t", "s", vec![("a".into(), of(&values)), ("b".into(), of(&values[..2]))]).unwrap();
        let points = &row.panels[0].curves[0].points;
        assert_eq!((points[0], points[points.len() - 1]), ((0.25, 0.0), (5.0, 1.0)));
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
        assert_eq!(row.legend, [("under 1 kB".to_string(), 0), ("1 kB to 10 kB".to_string(), 1)]);
        assert!(row.x.log && row.panels[1].curves[1].colour == 1);
        assert!(super::row("t", "s", vec![("a".into(), of(&values[..3]))]).is_none());
    }
}
