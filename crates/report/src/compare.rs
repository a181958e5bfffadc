//! Comparison of two folders of results, flow by flow.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tollway_law::Time;
use tollway_scenario::tables::{RunResult, TableError};

use crate::data::{self, FlowInfo, natural};
use crate::html::Page;
use crate::plot::{Figure, PictureOptions, PlotError, PlotSpec};
use crate::text::{Align, TextTable};

/// The results of two folders, paired by variant.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The name of the first folder.
    pub a: String,
    /// The name of the second folder.
    pub b: String,
    /// Variants in both folders, or the only variant of each.
    pub pairs: Vec<Pair>,
    /// Variants in one folder only, each with the folder's name.
    pub alone: Vec<(String, String)>,
}

/// A variant of both folders.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The name; empty if both have none, `x / y` if the names differ.
    pub variant: String,
    runs: [RunResult; 2],
    flows: Vec<Row>,
    links: Vec<Row>,
}

/// A flow or link in one of the folders or both.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    a: Option<FlowInfo>,
    b: Option<FlowInfo>,
}

/// An error in comparing results.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum CompareError {
    /// A folder has no tables.
    #[error("{} has no result tables", path.display())]
    #[diagnostic(help("`tollway run FILE --out {}` writes them", path.display()))]
    NoTables {
        /// The folder.
        path: PathBuf,
    },
    /// The folders have no variant in common.
    #[error("the two runs have no variant in common: {} has {a}, {} has {b}", a_path.display(), b_path.display())]
    #[diagnostic(help("{}", choose(&a_variant(&[(a_path, a), (b_path, b)]))))]
    NothingCommon {
        /// The first folder.
        a_path: PathBuf,
        /// Its variants.
        a: String,
        /// The second folder.
        b_path: PathBuf,
        /// Its variants.
        b: String,
    },
    /// A table cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A figure cannot be written.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

impl CompareError {
    /// True if the error lies in the input, and not in writing figures.
    pub fn is_input(&self) -> bool {
        !matches!(self, CompareError::Plot(_))
    }
}

impl Comparison {
    /// Reads two folders that `tollway run --out` has written, or a variant's folder in each.
    ///
    /// # Errors
    /// A folder has no tables, or the folders have no variant in common.
    pub fn read(a_path: &Path, b_path: &Path) -> Result<Comparison, CompareError> {
        let (a_name, b_name) = names(a_path, b_path);
        Comparison::pair((a_name, a_path, runs(a_path)?), (b_name, b_path, runs(b_path)?))
    }

    /// Compares runs in memory, each list with its name.
    ///
    /// # Errors
    /// The lists have no variant in common.
    pub fn of(
        (a, a_runs): (String, Vec<RunResult>),
        (b, b_runs): (String, Vec<RunResult>),
    ) -> Result<Comparison, CompareError> {
        let (a_path, b_path) = (PathBuf::from(&a), PathBuf::from(&b));
        Comparison::pair((a, &a_path, a_runs), (b, &b_path, b_runs))
    }

    fn pair(
        (a_name, a_path, mut a): (String, &Path, Vec<RunResult>),
        (b_name, b_path, mut b): (String, &Path, Vec<RunResult>),
    ) -> Result<Comparison, CompareError> {
        let mut pairs = Vec::new();
        let mut alone = Vec::new();
        if let ([one], [other]) = (a.as_slice(), b.as_slice())
            && one.variant != other.variant
        {
            let variant = format!("{} / {}", one.variant, other.variant);
            let variant =
                if one.variant.is_empty() || other.variant.is_empty() { String::new() } else { variant };
            pairs.push(Pair::new(variant, a.remove(0), b.remove(0)));
        }
        let name = |run: &RunResult| if run.variant.is_empty() { "none".into() } else { run.variant.clone() };
        let known = |runs: &[RunResult]| runs.iter().map(name).collect::<Vec<_>>().join(",");
        let (a_known, b_known) = (known(&a), known(&b));
        for one in a {
            match b.iter().position(|other| other.variant == one.variant) {
                Some(i) => pairs.push(Pair::new(one.variant.clone(), one, b.remove(i))),
                None => alone.push((one.variant, a_name.clone())),
            }
        }
        alone.extend(b.into_iter().map(|other| (other.variant, b_name.clone())));
        if pairs.is_empty() {
            return Err(CompareError::NothingCommon {
                a_path: a_path.into(),
                a: a_known,
                b_path: b_path.into(),
                b: b_known,
            });
        }
        Ok(Comparison { a: a_name, b: b_name, pairs, alone })
    }

    /// The tables in at most `width` columns. Of many flows they show those that differ most.
    pub fn to_text(&self, width: usize) -> String {
        let mut parts = Vec::new();
        for pair in &self.pairs {
            let mut text = String::new();
            if !pair.variant.is_empty() {
                let _ = writeln!(text, "{}", pair.variant);
            }
            text.push_str(&self.flow_table(pair).print(width));
            if pair.flows.len() > MOST_ROWS {
                let hidden = pair.flows.len() - MOST_ROWS;
                let _ = writeln!(text, "{hidden} more flows differ less (in --json)");
            }
            text.push('\n');
            text.push_str(&self.link_table(pair).print(width));
            parts.push(text);
        }
        let mut text = parts.join("\n");
        text.push_str("Mb/s: arrived, headers included; difference: the second minus the first\n");
        for (variant, whose) in &self.alone {
            let _ = writeln!(text, "only {whose} has the variant {variant}");
        }
        text
    }

    fn flow_table(&self, pair: &Pair) -> TextTable {
        let mut shown: Vec<&Row> = pair.flows.iter().collect();
        if shown.len() > MOST_ROWS {
            shown.sort_by(|x, y| y.size("rate_mbps").total_cmp(&x.size("rate_mbps")));
            shown.truncate(MOST_ROWS);
            shown.sort_by_key(|row| natural(&row.name));
        }
        let timed = pair.flows.iter().any(|row| !row.difference("fct_s").is_nan());
        let mut columns: Vec<(&str, &str, usize)> = vec![("Mb/s", "rate_mbps", 3)];
        columns.extend(timed.then_some(("done in s", "fct_s", 3)));
        columns.push(("resent", "retransmissions", 0));
        self.table("flow", &shown, &columns)
    }

    fn link_table(&self, pair: &Pair) -> TextTable {
        let columns =
            [("used %", "utilisation", 1), ("queue", "queue_mean_packets", 1), ("drops", "drops", 0)];
        let busy = |info: &Option<FlowInfo>| {
            let least = |column| info.as_ref().map_or(0.0, |i| i.get(column));
            least("utilisation") >= 0.5 || least("drops") > 0.0
        };
        let mut shown: Vec<&Row> = pair.links.iter().filter(|row| busy(&row.a) || busy(&row.b)).collect();
        shown.truncate(MOST_ROWS);
        self.table("link", &shown, &columns)
    }

    /// One row per name, and a group of three columns per quantity: first, second, difference.
    fn table(&self, of: &str, rows: &[&Row], columns: &[(&str, &str, usize)]) -> TextTable {
        let mut head = vec![(of, Align::Left)];
        for _ in columns {
            head.extend([
                (self.a.as_str(), Align::Right),
                (self.b.as_str(), Align::Right),
                ("difference", Align::Right),
            ]);
        }
        let mut table = TextTable::new(&head);
        table.groups(1, 3, columns.iter().map(|c| c.0));
        for row in rows {
            let mut cells = vec![row.name.clone()];
            for &(_, column, decimals) in columns {
                let scale = if column == "utilisation" { 100.0 } else { 1.0 };
                let print = |value: f64| {
                    if value.is_nan() { "–".into() } else { format!("{:.decimals$}", value * scale) }
                };
                let get = |info: &Option<FlowInfo>| info.as_ref().map_or(f64::NAN, |i| i.get(column));
                let difference = row.difference(column);
                let signed = if difference.is_nan() {
                    "–".into()
                } else {
                    signed_text(difference * scale, decimals)
                };
                cells.extend([print(get(&row.a)), print(get(&row.b)), signed]);
            }
            table.row(cells);
        }
        table
    }

    /// The comparison as one JSON object: each flow and link of both, and the differences of all
    /// their numbers.
    pub fn to_json(&self) -> Value {
        let rows = |rows: &[Row], kind: &str| -> Vec<Value> {
            let each = rows.iter().map(|row| {
                let numbers = |info: &Option<FlowInfo>| match info {
                    None => Value::Null,
                    Some(info) => info.numbers().map(|(k, v)| (k.to_owned(), json!(v))).collect::<BTreeMap<_, _>>().into_iter().collect(),
                };
                let mut columns: Vec<&str> =
                    row.a.iter().chain(&row.b).flat_map(|info| info.numbers().map(|n| n.0)).collect();
                columns.sort_unstable();
                columns.dedup();
                let differences = columns.iter().map(|c| (*c, row.difference(c))).filter(|d| !d.1.is_nan());
                let differences: Value = differences.map(|(c, d)| (c.to_owned(), json!(d))).collect();
                json!({ kind: row.name, "a": numbers(&row.a), "b": numbers(&row.b), "difference": differences })
            });
            each.collect()
        };
        let pair = |pair: &Pair| json!({ "variant": pair.variant, "flows": rows(&pair.flows, "flow"), "links": rows(&pair.links, "link") });
        json!({
            "a": self.a,
            "b": self.b,
            "variants": self.pairs.iter().map(pair).collect::<Vec<_>>(),
            "only": self.alone.iter().map(|(variant, of)| json!({ "variant": variant, "of": of })).collect::<Vec<_>>(),
        })
    }

    /// Draws each pair in common plots to `folder`, as a page and as `pictures`, and returns the
    /// files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn draw(&self, folder: &Path, pictures: &PictureOptions) -> Result<Vec<PathBuf>, CompareError> {
        std::fs::create_dir_all(folder)
            .map_err(|e| PlotError::Write { path: folder.to_path_buf(), message: e.to_string() })?;
        let mut written = Vec::new();
        for pair in &self.pairs {
            let runs = [(&self.a, &pair.runs[0]), (&self.b, &pair.runs[1])];
            let runs = runs.map(|(name, run)| RunResult { variant: name.clone(), ..run.clone() });
            let figure =
                Figure::new(&format!("{} and {}", self.a, self.b), &pair.variant, &pair.plots(), &runs);
            let name = match pair.variant.as_str() {
                "" => "compare".to_owned(),
                variant => format!("compare-{}", variant.replace(" / ", "-")),
            };
            let page = folder.join(format!("{name}.html"));
            Page { figure: &figure, runs: &runs, claims: None }.write(&page)?;
            written.push(page);
            written.extend(figure.write_all(&folder.join(name), pictures)?);
        }
        Ok(written)
    }
}

impl Pair {
    fn new(variant: String, a: RunResult, b: RunResult) -> Pair {
        let flows = rows(data::summary(&a.summary, "flow"), data::summary(&b.summary, "flow"));
        let links = rows(data::summary(&a.link_summary, "link"), data::summary(&b.link_summary, "link"));
        Pair { variant, runs: [a, b], flows, links }
    }

    /// A plot for each flow, or for many flows one plot of their envelope; then the queues of the
    /// busiest links.
    fn plots(&self) -> Vec<PlotSpec> {
        let plot =
            |title: String, y: &str| PlotSpec { title, y: y.into(), overlay: true, ..PlotSpec::default() };
        let mut drawn: Vec<String> = Vec::new();
        for run in &self.runs {
            for series in data::series(&run.flows, "rate_mbps") {
                if !drawn.contains(&series.name) && drawn.len() <= FEW_FLOWS {
                    drawn.push(series.name);
                }
            }
        }
        // TCP sends in bursts. If rows are short, rates are drawn as moving means, as in other
        // figures.
        let end = self.runs.iter().map(data::duration).fold(0.0, f64::max);
        let rows = self.runs.iter().flat_map(|run| data::series(&run.flows, "rate_mbps"));
        let interval = rows.map(|series| series.interval).fold(0.0, f64::max);
        let span = Time::from_secs_f64(end / 60.0);
        let (mean_over, note) = match end / 60.0 >= 2.0 * interval && interval > 0.0 {
            true => (Some(span), format!(", mean over {span}")),
            false => (None, String::new()),
        };
        let rate = |title: String, flows: Option<String>| PlotSpec {
            mean_over,
            flows,
            ..plot(format!("{title}{note} (Mb/s)"), "rate_mbps")
        };
        let mut plots = Vec::new();
        if drawn.len() <= FEW_FLOWS {
            drawn.sort_by_key(|name| natural(name));
            for flow in drawn {
                plots.push(rate(format!("Rate of {flow}"), Some(flow)));
            }
        } else {
            plots.push(rate("Rates of the flows".into(), None));
        }
        let mut links: Vec<&Row> = self.links.iter().collect();
        let waits = |row: &Row| {
            let mean = |info: &Option<FlowInfo>| info.as_ref().map_or(0.0, |i| i.get("queue_mean_bytes"));
            mean(&row.a).max(mean(&row.b)).max(0.0)
        };
        links.sort_by(|x, y| waits(y).total_cmp(&waits(x)));
        let busy = |info: &Option<FlowInfo>| info.as_ref().is_some_and(|i| i.get("utilisation") >= 0.5);
        for row in links.into_iter().filter(|row| busy(&row.a) || busy(&row.b)).take(2) {
            let title = format!("Queue of {} (packets)", row.name);
            plots.push(PlotSpec { link: Some(row.name.clone()), ..plot(title, "queue_mean_packets") });
        }
        plots
    }
}

impl Row {
    /// The second number less the first; NaN if either is missing.
    fn difference(&self, column: &str) -> f64 {
        match (&self.a, &self.b) {
            (Some(a), Some(b)) => b.get(column) - a.get(column),
            _ => f64::NAN,
        }
    }

    /// The size of the difference, for sorting. A flow in one folder only comes first.
    fn size(&self, column: &str) -> f64 {
        let difference = self.difference(column).abs();
        if difference.is_nan() { f64::INFINITY } else { difference }
    }
}

/// A number with its sign; without one if it prints as zero.
fn signed_text(value: f64, decimals: usize) -> String {
    let text = format!("{value:+.decimals$}");
    if text.chars().any(|c| ('1'..='9').contains(&c)) { text } else { text[1..].to_owned() }
}

/// The rows of both, in natural order of names.
fn rows(a: Vec<FlowInfo>, b: Vec<FlowInfo>) -> Vec<Row> {
    // `f1` and `f01` are equal in natural order, but different flows.
    let key = |name: &str| (natural(name), name.to_owned());
    let mut all: BTreeMap<(Vec<(String, u64)>, String), Row> = Default::default();
    let blank = |name: &str| Row { name: name.to_owned(), a: None, b: None };
    for info in a {
        let row = all.entry(key(&info.name)).or_insert_with(|| blank(&info.name));
        row.a = Some(info);
    }
    for info in b {
        let row = all.entry(key(&info.name)).or_insert_with(|| blank(&info.name));
        row.b = Some(info);
    }
    all.into_values().collect()
}

/// An existing variant's folder in one of the results, each given with its variants; empty if there
/// is none.
fn a_variant(results: &[(&PathBuf, &String)]) -> PathBuf {
    let first =
        |(path, variants): &(&PathBuf, &String)| path.join(variants.split(',').next().unwrap_or_default());
    let mut folders = results.iter().map(first).filter(|folder| folder.join("summary.arrow").is_file());
    folders.next().unwrap_or_default()
}

/// The advice to name a variant of each; `folder` is an example, empty without one.
fn choose(folder: &Path) -> String {
    match folder.as_os_str().is_empty() {
        true => "choose one variant of each".into(),
        false => format!("name the variants' own folders, such as {}", folder.display()),
    }
}

/// Reads the runs in a folder that `tollway run --out` has written: one per variant, or the one of
/// a variant's folder.
///
/// # Errors
/// The folder has no tables, or a table cannot be read.
pub fn runs(path: &Path) -> Result<Vec<RunResult>, CompareError> {
    let has_tables = |dir: &Path| dir.join("summary.arrow").is_file();
    if has_tables(path) {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        // Only the neighbouring folders tell a variant's folder from that of a file without
        // variants.
        let of_several = path.parent().is_some_and(|parent| !has_tables(parent) && beneath(parent).len() > 1);
        return Ok(vec![RunResult::read(path, if of_several { name } else { String::new() })?]);
    }
    let mut found = Vec::new();
    for dir in beneath(path) {
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        found.push(RunResult::read(&dir, name)?);
    }
    if found.is_empty() { Err(CompareError::NoTables { path: path.into() }) } else { Ok(found) }
}

/// The folders in `path` that have tables.
fn beneath(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut dirs: Vec<PathBuf> = entries.filter(|dir| dir.join("summary.arrow").is_file()).collect();
    dirs.sort_by_key(|dir| natural(&dir.to_string_lossy()));
    dirs
}

/// Names for two paths: the last part of each, or as many parts as make them differ.
fn names(a: &Path, b: &Path) -> (String, String) {
    let parts = |path: &Path| -> Vec<String> {
        path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
    };
    let (a, b) = (parts(a), parts(b));
    for n in 1..=a.len().max(b.len()) {
        let last = |parts: &[String]| parts[parts.len().saturating_sub(n)..].join("/");
        if last(&a) != last(&b) {
            return (last(&a), last(&b));
        }
    }
    ("A".into(), "B".into())
}

/// Numbers of flows up to which each has its own row in the table, and its own plot.
const MOST_ROWS: usize = 24;
const FEW_FLOWS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_apart() {
        let of = |a: &str, b: &str| names(Path::new(a), Path::new(b));
        assert_eq!(of("out/a", "out/b"), ("a".into(), "b".into()));
        assert_eq!(of("old/x", "new/x"), ("old/x".into(), "new/x".into()));
        assert_eq!(of("x", "x"), ("A".into(), "B".into()));
    }

    #[test]
    fn flows_that_differ_in_leading_zeros_are_two() {
        let infos = |names: [&str; 3]| names.map(|name| FlowInfo::new(name, []));
        let rows = rows(infos(["f1", "f01", "f2"]).into(), infos(["f01", "f1", "f10"]).into());
        let rows: Vec<_> = rows.iter().map(|r| (r.name.as_str(), r.a.is_some(), r.b.is_some())).collect();
        let both = |name| (name, true, true);
        assert_eq!(rows, [both("f01"), both("f1"), ("f2", true, false), ("f10", false, true)]);
    }
}
