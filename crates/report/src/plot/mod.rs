//! Figures: the selection and layout of plots, apart from the drawing formats.

mod axis;
mod by;
mod canvas;
mod curve;
mod distribution;
mod error;
mod font;
mod pdf;
mod png;
mod spec;
mod svg;
mod sweep;

pub(crate) use axis::Axis;
pub(crate) use canvas::style;
pub(crate) use curve::Curve;
pub use error::PlotError;
pub use spec::{Label, PlotReference, PlotSpec};

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tollway_law::Time;
use tollway_scenario::tables::{ColumnKind, ColumnSpec, RunResult, Table};

use crate::claim::number;
use crate::data;
use crate::deviation::Aims;
use crate::grid::Cells;

/// A figure: rows of panels, one panel per variant.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) rows: Vec<Row>,
    /// Rows in a picture unless others are chosen; a page has all.
    pub(crate) brief: Option<usize>,
    /// Width and height of a picture, pixels of a standard screen; by the content if `None`.
    pub(crate) size: Option<(u32, u32)>,
}

/// The pictures to write of a figure.
#[derive(Clone, Debug, Default)]
pub struct PictureOptions {
    /// One picture per format.
    pub formats: Vec<Picture>,
    /// Width and height, pixels of a standard screen; by the content if `None`.
    pub size: Option<(u32, u32)>,
    /// The rows to draw, by their numbers on the page, from 1. If empty: the first ones, or all
    /// plots of a file with `[[plot]]` tables.
    pub rows: Vec<usize>,
    /// Replaces the title and the line below it; empty for none.
    pub title: Option<String>,
}

/// A curve's name and its points: time in seconds, and value.
pub type Line = (String, Vec<(f64, f64)>);

/// Panels of one quantity with a common scale.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) title: String,
    pub(crate) panels: Vec<Panel>,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The title of the horizontal axes.
    pub(crate) x_title: String,
    /// The names of the curves with their colours, for all panels.
    pub(crate) legend: Vec<(String, usize)>,
}

/// One set of curves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panel {
    /// The variant; empty if there is only one, or if the panel has all.
    pub(crate) label: String,
    pub(crate) curves: Vec<Curve>,
    /// Times of changes during the run, s.
    pub(crate) marks: Vec<f64>,
    /// End of the warm-up, s; 0 without one.
    pub(crate) warmup: f64,
}

impl Figure {
    /// Makes a figure with one panel per row, from titles and lines over time, from 0 to `until`
    /// seconds.
    pub fn of_lines(title: String, subtitle: String, rows: Vec<(&str, Vec<Line>)>, until: f64) -> Figure {
        let rows: Vec<Row> =
            rows.into_iter().map(|(title, lines)| Row::of_lines(title, lines, until)).collect();
        Figure { title, subtitle, rows: recoloured(rows), ..Figure::default() }
    }

    /// Draws `specs` of `runs`, with one column per variant. Without specs it draws rates (as
    /// moving means, since TCP sends in bursts), queues of the busiest links, round trips,
    /// utilisations, and congestion windows; a picture has the first of these. Plots without data
    /// are left out.
    pub fn new(title: &str, subtitle: &str, specs: &[PlotSpec], runs: &[RunResult]) -> Figure {
        Figure::of_grid(title, subtitle, specs, runs, &Cells::default(), &Aims::default())
    }

    /// [`Figure::new`], with plots over axes of the grid, in which `cells` gives the position of
    /// each run, and with the theoretical rates of `aims`.
    pub fn of_grid(
        title: &str,
        subtitle: &str,
        specs: &[PlotSpec],
        runs: &[RunResult],
        cells: &Cells,
        aims: &Aims,
    ) -> Figure {
        let usual;
        let mut brief = None;
        let specs = if specs.is_empty() {
            usual = usual_plots(runs);
            brief = Some((MOST_PANELS / runs.len().max(1)).max(1));
            &usual
        } else {
            specs
        };
        let row = |spec: &PlotSpec| match (spec.metric, &spec.by) {
            (Some(metric), _) => sweep::row(spec, metric, runs, cells, aims),
            (None, Some(by)) => by::row(spec, by, runs),
            (None, None) => Row::new(spec, runs),
        };
        let rows: Vec<Row> = specs.iter().map(row).filter(|row| !row.legend.is_empty()).collect();
        Figure { title: title.into(), subtitle: subtitle.into(), rows: recoloured(rows), brief, size: None }
    }

    /// The figure as SVG.
    ///
    /// # Errors
    /// Drawing fails.
    pub fn to_svg(&self) -> Result<String, PlotError> {
        svg::to_svg(self).map_err(PlotError::Draw)
    }

    /// Writes the figure to `path`, as PNG, SVG or PDF according to its extension.
    ///
    /// # Errors
    /// The extension is another, the file cannot be written, or drawing fails.
    pub fn write(&self, path: &Path) -> Result<(), PlotError> {
        let drawn = match Picture::of(path)? {
            Picture::Png => png::to_png(self),
            Picture::Svg => svg::to_svg(self).map(String::into_bytes),
            Picture::Pdf => pdf::to_pdf(self),
        };
        std::fs::write(path, drawn.map_err(PlotError::Draw)?)
            .map_err(|e| PlotError::Write { path: path.to_path_buf(), message: e.to_string() })
    }

    /// Writes the figure once per format, to files named `stem` with the format's extension, and
    /// returns their paths. An empty figure writes none.
    ///
    /// # Errors
    /// As [`Figure::write`]; a row does not exist, or the rows do not fit the size.
    pub fn write_all(&self, stem: &Path, options: &PictureOptions) -> Result<Vec<PathBuf>, PlotError> {
        let mut written: Vec<PathBuf> = Vec::new();
        if self.is_empty() {
            return Ok(written);
        }
        let figure = self.with(options)?;
        for picture in &options.formats {
            let mut path = stem.as_os_str().to_owned();
            path.push(".");
            path.push(picture.ending());
            if !written.contains(&PathBuf::from(&path)) {
                figure.write(Path::new(&path))?;
                written.push(path.into());
            }
        }
        Ok(written)
    }

    fn with(&self, options: &PictureOptions) -> Result<Figure, PlotError> {
        let mut figure = Figure { size: options.size, ..self.clone() };
        if !options.rows.is_empty() {
            let row = |&row: &usize| {
                let found = row.checked_sub(1).and_then(|i| self.rows.get(i)).cloned();
                found.ok_or_else(|| PlotError::Row { row, figure: self.title.clone(), rows: self.rows.len() })
            };
            figure.rows = options.rows.iter().map(row).collect::<Result<_, _>>()?;
        } else if let Some(count) = self.brief {
            figure.rows.truncate(count);
        }
        if let Some(title) = &options.title {
            (figure.title, figure.subtitle) = (title.clone(), String::new());
        }
        let (width, height) = canvas::least(&figure);
        match options.size {
            Some(size) if size.0 < width || size.1 < height => Err(PlotError::Small { size, width, height }),
            _ => Ok(figure),
        }
    }

    /// True if there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// The formats of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// Pixels, at twice a standard screen's resolution.
    Png,
    /// Vector graphics, for browsers and drawing programs.
    Svg,
    /// Vector graphics with an embedded font, for papers.
    Pdf,
}

impl Picture {
    /// All formats.
    pub const ALL: [Picture; 3] = [Picture::Png, Picture::Svg, Picture::Pdf];

    /// The format for the extension of `path`.
    ///
    /// # Errors
    /// [`PlotError::Ending`] for any other extension.
    pub fn of(path: &Path) -> Result<Picture, PlotError> {
        let found =
            path.extension().and_then(|ending| Picture::ALL.into_iter().find(|p| *p.ending() == *ending));
        found.ok_or_else(|| PlotError::Ending { path: path.to_path_buf() })
    }

    /// The file name extension.
    pub fn ending(self) -> &'static str {
        match self {
            Picture::Png => "png",
            Picture::Svg => "svg",
            Picture::Pdf => "pdf",
        }
    }
}

impl Row {
    fn new(spec: &PlotSpec, runs: &[RunResult]) -> Row {
        let wanted = spec.variants.as_deref().unwrap_or("*");
        let runs: Vec<&RunResult> =
            runs.iter().filter(|r| data::glob(wanted, &r.variant).is_some()).collect();
        let mut row = Row { title: spec.title.clone(), x_title: "time (s)".into(), ..Row::default() };
        let several = runs.len() > 1;
        let from = spec.from.map_or(0.0, |t| t.nearest_secs());
        let end = runs.iter().map(|r| data::duration(r)).fold(0.0, f64::max);
        let until = spec.until.map_or(end, |t| t.nearest_secs());

        let mut panels: Vec<(String, Vec<Curve>)> = Vec::new();
        for run in &runs {
            let curves = curves(spec, run, from, until);
            if spec.overlay && several {
                let alone = curves.iter().filter(|curve| !curve.faint).count() == 1;
                let named = curves.into_iter().map(|curve| {
                    let name =
                        if alone { run.variant.clone() } else { format!("{} {}", run.variant, curve.name) };
                    Curve { name, ..curve }
                });
                match panels.first_mut() {
                    Some((_, all)) => all.extend(named),
                    None => panels.push((String::new(), named.collect())),
                }
            } else {
                panels.push((if several { run.variant.clone() } else { String::new() }, curves));
            }
        }

        // The top of a utilisation is 1, whatever its values.
        let top = (spec.y == "utilisation").then_some(1.0);
        row.fill(panels, (from, until), top);
        let inside = |at: &f64| (from..until).contains(at);
        for (i, panel) in row.panels.iter_mut().enumerate() {
            panel.marks = runs[i].changes.iter().copied().filter(inside).collect();
            panel.warmup = data::warmup(runs[i]).min(until);
            // The reference is drawn last; its gaps show the curve below.
            panel.curves.sort_by_key(|c| spec.reference.as_ref().is_none_or(|r| r.name != c.name));
        }
        row
    }

    fn of_lines(title: &str, lines: Vec<Line>, until: f64) -> Row {
        let mut row = Row { title: title.into(), x_title: "time (s)".into(), ..Row::default() };
        let curves =
            lines.into_iter().map(|(name, points)| Curve { name, points, ..Curve::default() }).collect();
        row.fill(vec![(String::new(), curves)], (0.0, until), None);
        row
    }

    /// One panel of numbers over a quantity, each with the name of its curve. Several numbers at a
    /// position are drawn as their mean and range. With `names`, the positions are the names'
    /// indices.
    pub(crate) fn over(
        title: &str,
        x_title: &str,
        numbers: &[(String, f64, f64)],
        names: Option<&[String]>,
        (log_x, log_y): (bool, bool),
    ) -> Row {
        let spec = PlotSpec { title: title.into(), log_x, log_y, ..PlotSpec::default() };
        let dot = |(series, x, y): &(String, f64, f64)| sweep::Dot {
            series: series.clone(),
            x: *x,
            y: *y,
            ..sweep::Dot::default()
        };
        let dots: Vec<sweep::Dot> = numbers.iter().map(dot).collect();
        let mut row = sweep::drawn(&spec, x_title, &dots);
        for curve in row.panels.iter_mut().flat_map(|panel| &mut panel.curves) {
            curve.band = sweep::ranges(dots.iter().filter(|dot| dot.series == curve.name));
        }
        if let Some(names) = names {
            row.x = Axis::new(0.0, names.len().saturating_sub(1) as f64, TIME_TICKS, false);
            row.x.ticks = names.iter().enumerate().map(|(i, name)| (i as f64, name.clone())).collect();
        }
        row
    }

    /// Sets common scales for the curves of all panels, with one colour per name.
    fn fill(&mut self, panels: Vec<(String, Vec<Curve>)>, (from, until): (f64, f64), top: Option<f64>) {
        let all = || panels.iter().flat_map(|(_, curves)| curves);
        let mut names: Vec<String> = Vec::new();
        for curve in all() {
            if !names.contains(&curve.name) {
                names.push(curve.name.clone());
            }
        }
        let values = all().flat_map(|curve| &curve.points).map(|p| p.1).filter(|v| v.is_finite());
        let low = values.fold(0.0, f64::min);
        let (high, peak) = top.map_or_else(|| curve::top(all()), |top| (top, None));
        if let Some(peak) = peak {
            self.title += &format!("; start peaks at {}", number(peak));
        }
        self.x = Axis::new(from, until, TIME_TICKS, false);
        self.y = Axis::new(low, if high > low { high } else { low + 1.0 }, VALUE_TICKS, true);
        let colour = |name: &String| names.iter().position(|n| n == name).unwrap_or(0);
        let coloured = |curve: Curve| Curve { colour: colour(&curve.name), ..curve };
        self.panels = panels
            .into_iter()
            .map(|(label, curves)| Panel {
                label,
                curves: curves.into_iter().map(coloured).collect(),
                ..Panel::default()
            })
            .collect();
        self.legend = names.into_iter().enumerate().map(|(i, n)| (n, i)).collect();
    }
}

/// Gives a name the same colour in all rows, where a row's names leave it free.
fn recoloured(mut rows: Vec<Row>) -> Vec<Row> {
    let mut known: HashMap<String, usize> = HashMap::new();
    for row in &mut rows {
        let mut taken: Vec<usize> = Vec::new();
        let mut colours: HashMap<usize, usize> = HashMap::new();
        let (old, new): (Vec<_>, Vec<_>) = row.legend.iter().partition(|(name, _)| known.contains_key(name));
        for (name, index) in old.into_iter().chain(new) {
            let free = || (0..).find(|colour| !taken.contains(colour)).unwrap_or_default();
            let colour = known.get(name).copied().filter(|colour| !taken.contains(colour));
            let colour = colour.unwrap_or_else(free);
            taken.push(colour);
            known.entry(name.clone()).or_insert(colour);
            colours.insert(*index, colour);
        }
        let colour = |index: usize| colours.get(&index).copied().unwrap_or(index);
        row.legend.iter_mut().for_each(|(_, index)| *index = colour(*index));
        let curves = row.panels.iter_mut().flat_map(|panel| &mut panel.curves);
        curves.for_each(|curve| curve.colour = colour(curve.colour));
    }
    rows
}

/// The curves of `spec` in `run`, or the median of all if there are too many to distinguish.
fn curves(spec: &PlotSpec, run: &RunResult, from: f64, until: f64) -> Vec<Curve> {
    let (batches, pattern) = match (&spec.link, &spec.hop) {
        (Some(link), _) if is_column(Table::Control, &spec.y) => (&run.control, link.as_str()),
        (Some(link), _) => (&run.links, link.as_str()),
        (None, Some(hop)) => (&run.hops, hop.as_str()),
        (None, None) => (&run.flows, spec.flows.as_deref().unwrap_or("*")),
    };
    let mut all = data::series(batches, &spec.y);
    all.retain(|s| data::matches(pattern, &s.name));
    let flows = data::summary(&run.summary, "flow");
    let lives: HashMap<&str, (f64, f64)> =
        flows.iter().map(|f| (f.name.as_str(), (f.start(), f.end()))).collect();
    let labels = if spec.label == Label::Rtt { round_trips(&flows) } else { HashMap::new() };
    let clipped = all.into_iter().map(|s| {
        // A flow is drawn during its life and one interval longer, which shows its end.
        let life = lives.get(s.name.as_str()).filter(|_| spec.link.is_none() && spec.hop.is_none());
        let (start, end) =
            life.map_or((from, until), |(start, end)| (from.max(*start), until.min(end + s.interval)));
        let inside = |(t, v): (f64, f64)| (t >= start - 1e-9 && t <= end + 1e-9).then_some((t, v));
        let mut points: Vec<(f64, f64)> =
            s.times.iter().copied().zip(s.values.iter().copied()).filter_map(inside).collect();
        if let Some(span) = spec.mean_over {
            curve::smooth(&mut points, span.nearest_secs());
        }
        let name = labels.get(&s.name).cloned().filter(|_| spec.link.is_none()).unwrap_or(s.name);
        Curve { name, points, ..Curve::default() }
    });
    let curves: Vec<Curve> = clipped.filter(|curve| !curve.points.is_empty()).collect();
    let mut curves = if curves.len() > MOST_CURVES { curve::crowd(curves) } else { curves };
    if let Some(reference) = &spec.reference {
        let file = reference.folder.join(reference.file.replace('*', &run.variant));
        // The claim that compares with the file reports a reading error.
        for s in crate::reference::read(&file).unwrap_or_default() {
            let mut points: Vec<(f64, f64)> = s.times.into_iter().zip(s.values).collect();
            if let Some(span) = spec.mean_over {
                curve::smooth(&mut points, span.nearest_secs());
            }
            points.retain(|(t, _)| *t >= from - 1e-9 && *t <= until + 1e-9);
            curve::dash(&mut points, (until - from) / DASHES);
            curves.push(Curve { name: reference.name.clone(), points, ..Curve::default() });
        }
    }
    curves
}

/// For each flow, its round trip without queues, with its name if another flow has the same.
fn round_trips(flows: &[data::FlowInfo]) -> HashMap<String, String> {
    let trip = |flow: &data::FlowInfo| {
        let ms = flow.get("rtt_mean_ms") - flow.get("queueing_mean_ms");
        ms.is_finite().then(|| format!("{} ms", number(libm::round(ms * 10.0) / 10.0)))
    };
    let trips: Vec<Option<String>> = flows.iter().map(trip).collect();
    let alone = |trip: &String| trips.iter().flatten().filter(|other| *other == trip).count() == 1;
    let label = |(flow, trip): (&data::FlowInfo, &Option<String>)| {
        let trip = trip.as_ref()?;
        let label = if alone(trip) { trip.clone() } else { format!("{trip} ({})", flow.name) };
        Some((flow.name.clone(), label))
    };
    flows.iter().zip(&trips).filter_map(label).collect()
}

/// The plots of a run without specs.
fn usual_plots(runs: &[RunResult]) -> Vec<PlotSpec> {
    let plot = |title: &str, y: &str, link: Option<&str>| PlotSpec {
        title: title.into(),
        y: y.into(),
        link: link.map(str::to_string),
        ..PlotSpec::default()
    };
    let span = usual_mean(runs);
    let title = span
        .map_or("Rate of each flow (Mb/s)".into(), |s| format!("Rate of each flow, mean over {s} (Mb/s)"));
    let mut plots = vec![PlotSpec { mean_over: span, ..plot(&title, "rate_mbps", None) }];
    let busiest = busiest_links(runs);
    for link in &busiest {
        plots.push(plot(&format!("Queue of {link} (packets)"), "queue_mean_packets", Some(link)));
    }
    plots.push(plot("Round trip of each flow (ms)", "rtt_ms", None));
    for link in &busiest {
        plots.push(plot(&format!("Utilisation of {link}"), "utilisation", Some(link)));
    }
    plots.push(plot("Congestion window (packets)", "cwnd_packets", None));
    plots
}

/// The averaging time for drawing rates: about a sixtieth of the run, one pixel in six of a panel.
/// Within a round trip, a TCP sender's rate varies between zero and the link's rate, and several
/// curves would overlap. `None` if rows are not shorter than this.
fn usual_mean(runs: &[RunResult]) -> Option<Time> {
    let end = runs.iter().map(data::duration).fold(0.0, f64::max);
    let interval = runs.iter().flat_map(|run| data::series(&run.flows, "rate_mbps")).map(|s| s.interval);
    let interval = interval.fold(0.0, f64::max);
    let rough = end / 60.0;
    if rough < 1e-6 {
        return None;
    }
    let power = libm::pow(10.0, libm::floor(libm::log10(rough * 1.001)));
    let round = [5.0, 2.0, 1.0].map(|m| m * power).into_iter().find(|s| *s <= rough * 1.001)?;
    (round >= 2.0 * interval).then(|| Time::from_secs_f64(round))
}

/// The links, at most two, with the longest queues in any run, among those that some run loads to a
/// half.
fn busiest_links(runs: &[RunResult]) -> Vec<String> {
    let mut links: Vec<(String, f64)> = Vec::new();
    for link in runs.iter().flat_map(|r| data::summary(&r.link_summary, "link")) {
        // Queues decide; among links without one, load decides.
        let score = link.get("queue_mean_bytes") * 1e3 + link.get("utilisation");
        if link.get("utilisation") < 0.5 || score.is_nan() {
            continue;
        }
        match links.iter_mut().find(|(name, _)| *name == link.name) {
            Some((_, best)) => *best = best.max(score),
            None => links.push((link.name, score)),
        }
    }
    links.sort_by(|a, b| b.1.total_cmp(&a.1));
    links.into_iter().take(2).map(|(name, _)| name).collect()
}

/// The numeric columns for `y` of a plot over time.
pub(crate) fn plottable(spec: &PlotSpec) -> impl Iterator<Item = &'static str> + Clone + use<> {
    let tables: &[Table] = match (&spec.link, &spec.hop) {
        (Some(_), _) => &[Table::Links, Table::Control],
        (None, Some(_)) => &[Table::Hops],
        (None, None) => &[Table::Flows],
    };
    let is_number =
        |c: &&ColumnSpec| matches!(c.kind, ColumnKind::Number | ColumnKind::Count) && c.name != "time_s";
    tables.iter().flat_map(|table| table.columns()).filter(is_number).map(|c| c.name)
}

fn is_column(table: Table, column: &str) -> bool {
    table.columns().iter().any(|c| c.name == column)
}

/// Eight colours that colour-blind readers can distinguish on light and dark ground (after Okabe &
/// Ito).
pub(crate) const PALETTE: [(u8, u8, u8); 8] = [
    (0x1f, 0x77, 0xb4),
    (0xe6, 0x8a, 0x00),
    (0x00, 0x9e, 0x73),
    (0xcc, 0x5f, 0xa0),
    (0x56, 0xb4, 0xe9),
    (0xc4, 0x4e, 0x12),
    (0x7a, 0x68, 0xb8),
    (0x80, 0x80, 0x80),
];

/// Upper bound on curves, since colours would repeat.
const MOST_CURVES: usize = PALETTE.len();
/// Panels of a picture of the usual plots.
const MOST_PANELS: usize = 6;
/// Dashes and gaps of a broken line over the width of a panel.
const DASHES: f64 = 100.0;
const TIME_TICKS: usize = 7;
const VALUE_TICKS: usize = 5;

#[cfg(test)]
mod tests {
    use tollway_scenario::tables::{HopRow, Outputs, TableWriter};

    use super::*;

    #[test]
    fn curves_are_named_by_round_trips_that_differ() {
        let flow = |name: &str, rtt: f64| {
            data::FlowInfo::new(name, [("rtt_mean_ms", rtt + 7.0), ("queueing_mean_ms", 7.0)])
        };
        let named = round_trips(&[flow("a", 20.04), flow("b", 40.0), flow("c", 40.0), flow("d", f64::NAN)]);
        let of = |name: &str| named.get(name).map(String::as_str);
        assert_eq!(["a", "b", "c", "d"].map(of), [Some("20 ms"), Some("40 ms (b)"), Some("40 ms (c)"), None]);
    }

    #[test]
    fn columns_are_known() {
        let of = |link: Option<&str>, hop: Option<&str>| {
            let spec =
                PlotSpec { link: link.map(Into::into), hop: hop.map(Into::into), ..PlotSpec::default() };
            plottable(&spec).collect::<Vec<_>>()
        };
        let (flows, links, hops) = (of(None, None), of(Some("l"), None), of(None, Some("A-B")));
        assert!(flows.contains(&"rate_mbps") && links.contains(&"queue_max_bytes"));
        assert!(!links.contains(&"rate_mbps") && !flows.contains(&"flow"));
        assert_eq!(hops, ["queue_mean_messages", "queue_max_messages", "price"]);
    }

    #[test]
    fn hops_are_drawn_over_time() {
        let mut writer = TableWriter::new(&Outputs::memory()).unwrap();
        for (time_s, price) in [(1.0, 3.0), (2.0, 5.0)] {
            for hop in ["A-B", "B-A"] {
                writer.hop(&HopRow { time_s, hop, price, ..HopRow::default() }).unwrap();
            }
        }
        let run = writer.finish("").unwrap();
        let (hop, y) = (Some("A-*".into()), "price".into());
        let spec = PlotSpec { hop, y, until: Some(Time::from_secs(2)), ..PlotSpec::default() };
        let row = Row::new(&spec, &[run]);
        let curve = &row.panels[0].curves[0];
        assert_eq!((&*curve.name, &curve.points[..]), ("A-B", &[(1.0, 3.0), (2.0, 5.0)][..]));
        assert_eq!(row.legend.len(), 1);
    }
}
