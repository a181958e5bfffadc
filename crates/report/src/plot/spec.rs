//! The `[[plot]]` tables of experiment files.

use std::path::PathBuf;

use serde::Deserialize;
use tollway_law::Time;

use crate::claim::{Metric, Over};
use crate::grid::GridPart;

/// A plot of an experiment file: a column of a table over time, a metric over an axis of the
/// experiment's grid, or a column of the summary over another.
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
    /// A numeric column of a table: links or control intervals with `link`, hops with `hop`,
    /// otherwise flows.
    #[serde(default)]
    pub y: String,
    /// Replaces the column: a metric of each run, as in a claim. Of several values the mean is
    /// drawn.
    pub metric: Option<Metric>,
    /// Replaces time: a numeric column of the summary of flows. `y`, another of its columns, is
    /// drawn over it, as the mean of flows with similar values.
    pub by: Option<String>,
    /// With a metric that is a rate: also draws the theoretical rate under the flows' laws.
    #[serde(default)]
    pub theory: bool,
    /// With a metric: the axis of the grid for the horizontal axis.
    pub x: Option<String>,
    /// With a metric: the axis of the grid with a curve per point.
    pub series: Option<String>,
    /// With a metric: the axis of the grid with a panel per point.
    pub panels: Option<String>,
    /// With a metric: the part of the grid to draw; all of it if left out.
    #[serde(rename = "where")]
    pub part: Option<GridPart>,
    /// With a metric, or `by`: true for a logarithmic horizontal axis.
    #[serde(default)]
    pub log_x: bool,
    /// With a metric, or `by`: true for a logarithmic vertical axis.
    #[serde(default)]
    pub log_y: bool,
    /// With a metric, or `by`: the title of the horizontal axis; by default the name of the grid's
    /// axis or of the column.
    pub x_label: Option<String>,
    /// With a metric, or `by`: true if the vertical axis includes zero, which is the default.
    pub from_zero: Option<bool>,
    /// With a metric, or `by`: a factor on the values.
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
    /// True for all variants in one panel instead of side by side.
    #[serde(default)]
    pub overlay: bool,
    /// Draws the moving mean of each curve over this time, which the title should state. The tables
    /// do not change.
    pub mean_over: Option<Time>,
    /// The names of flows' curves.
    #[serde(default)]
    pub label: Label,
    /// Reference series, drawn below the runs' as broken lines.
    pub reference: Option<PlotReference>,
    /// Start of the time axis, or of the window of a metric.
    pub from: Option<Time>,
    /// End of the time axis, or of the window of a metric.
    pub until: Option<Time>,
    /// The experiment's folder.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// The names of flows' curves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Label {
    /// The flows' names.
    #[default]
    Name,
    /// The flows' round trips without queues, with the names of flows that have the same.
    Rtt,
}

/// Series from another program, drawn beside the runs': `reference = { file = "ns2/*.csv", name =
/// "ns-2" }`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlotReference {
    /// A CSV file beside the experiment's, with columns `time_s` and `<flow>_mbps`. A `*` stands
    /// for the variant.
    pub file: String,
    /// The name in the legend.
    pub name: String,
    /// The experiment's folder.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}
