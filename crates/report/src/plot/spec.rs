//! A `[[plot]]` table of a file.

use std::path::PathBuf;

use serde::Deserialize;
use tollway_law::Time;

use crate::claim::{Metric, Over};
use crate::grid::Part;

/// One plot of an experiment file: a column of a table over time, a metric over an axis of the experiment's grid, or a column of the
/// summary by another.
///
/// ```toml
/// [[plot]]
/// title = "Queue (packets)"
/// y = "queue_mean_packets"
/// link = "bottleneck"
///
/// [[plot]]
/// title = "Utilisation"
/// metric = "utilisation"
/// link = "bottleneck"
/// x = "loss"
/// log-x = true
/// series = "sender"
///
/// [[plot]]
/// title = "Mean completion time (ms) by size"
/// y = "fct_s"
/// by = "size_bytes"
/// times = 1000
/// log-x = true
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlotSpec {
    /// The title, with the unit.
    pub title: String,
    /// A numeric column of the table of links or of that of control intervals, if `link` is given, of hops, if `hop` is, or else of
    /// flows.
    #[serde(default)]
    pub y: String,
    /// Instead of a column: what to measure in each run, as a claim does; of several values their mean is drawn.
    pub metric: Option<Metric>,
    /// Instead of time: a numeric column of the summary of flows, along which `y`, another of them, is drawn as the mean of the flows
    /// that are alike in it.
    pub by: Option<String>,
    /// With a metric that is a rate: what the flows' laws aim at is drawn beside it.
    #[serde(default)]
    pub theory: bool,
    /// With a metric: the axis of the grid whose values are the horizontal axis.
    pub x: Option<String>,
    /// With a metric: the axis of which each point is a curve.
    pub series: Option<String>,
    /// With a metric: the axis of which each point is a panel.
    pub panels: Option<String>,
    /// With a metric: the part of the grid that is drawn; all if left out.
    #[serde(rename = "where")]
    pub part: Option<Part>,
    /// With a metric, or `by`: whether the horizontal axis is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// With a metric, or `by`: whether the vertical axis is logarithmic.
    #[serde(default)]
    pub log_y: bool,
    /// With a metric, or `by`: what stands under the horizontal axis; the grid axis's or the column's name if left out.
    pub x_label: Option<String>,
    /// With a metric, or `by`: whether the vertical axis reaches down to zero. Usually it does.
    pub from_zero: Option<bool>,
    /// With a metric, or `by`: a factor on what is measured.
    pub times: Option<f64>,
    /// With a metric: as in a claim.
    pub over: Option<Over>,
    /// With a metric: as in a claim.
    pub name: Option<String>,
    /// With a metric: as in a claim.
    pub fraction: Option<f64>,
    /// With a metric: as in a claim.
    pub span: Option<Time>,
    /// Links: a name or a pattern with `*`.
    pub link: Option<String>,
    /// Hops of an overlay, `FROM-TO`: a name or a pattern with `*`.
    pub hop: Option<String>,
    /// Flows: a name, a group's name, or a pattern with `*`; all if left out.
    #[serde(alias = "flow")]
    pub flows: Option<String>,
    /// Variants: a name or a pattern with `*`; all if left out.
    pub variants: Option<String>,
    /// All variants in one panel instead of side by side.
    #[serde(default)]
    pub overlay: bool,
    /// Draws the moving mean of each curve over this time, which the title should state. The tables
    /// do not change.
    pub mean_over: Option<Time>,
    /// The names of flows' curves.
    #[serde(default)]
    pub label: Label,
    /// Series of others to lay beneath ours, as broken lines.
    pub reference: Option<PlotReference>,
    /// Start of the time axis, or of the span over which a metric is measured.
    pub from: Option<Time>,
    /// End of the same.
    pub until: Option<Time>,
    /// The experiment's folder.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// The names of flows' curves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Label {
    /// Their names.
    #[default]
    Name,
    /// Their round trips without queues, and their names where two are alike.
    Rtt,
}

/// Series measured by others, drawn beside ours: `reference = { file = "ns2/*.csv", name = "ns-2" }`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlotReference {
    /// A CSV file beside the experiment's, columns `time_s` and `<flow>_mbps`; a `*` stands for the variant.
    pub file: String,
    /// What the legend calls it.
    pub name: String,
    /// The experiment's folder.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}
