//! Figures of a sweep.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tollway_scenario::file::suggestion;
use tollway_scenario::tables::{ColumnKind, Table};

use super::journal::Done;
use super::{Point, SweepError, Vary, column, split};
use crate::data;
use crate::plot::{Figure, Row};

/// A plot of a number of each run over a varied key:
/// `x=link.wire.rate,y=queueing_p95_ms,by=variant`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// The option's value.
    text: String,
    /// A varied key, `variant` or `seed`.
    x: String,
    /// A column of the table of flows, or else of links. Its value in a run is the mean over the
    /// run's rows.
    y: String,
    /// The source of curves: a varied key, `variant`, or a column of the table: `flow`, `law` or
    /// `link`.
    by: Option<String>,
    /// The selected flows or links: a name or a pattern with `*`.
    of: Option<String>,
    /// The logarithmic axes: `x`, `y` or `xy`.
    log: String,
    /// The picture's file, whose extension gives the format.
    file: Option<PathBuf>,
}

impl Plot {
    /// Parses `x=…,y=…`, with optional `by=…`, `of=…`, `log=…` and `file=…`.
    ///
    /// # Errors
    /// [`SweepError::Plot`] for a mistake in the text.
    pub fn parse(text: &str) -> Result<Plot, SweepError> {
        let mut words: BTreeMap<String, String> = BTreeMap::new();
        for word in split(text) {
            let (key, value) = word
                .split_once('=')
                .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
                .ok_or_else(|| wrong(text, format!("`{word}` has no `=`"), None))?;
            if !KEYS.contains(&&*key) {
                return Err(wrong(text, format!("it has no `{key}`"), suggestion(&key, KEYS.into_iter())));
            }
            if words.insert(key.clone(), value).is_some() {
                return Err(wrong(text, format!("`{key}` is given twice"), None));
            }
        }
        let mut take = |key: &str| words.remove(key).filter(|value| !value.is_empty());
        let mut needs = |key: &str| take(key).ok_or_else(|| wrong(text, format!("it has no `{key}=`"), None));
        let (x, y) = (needs("x")?, needs("y")?);
        let log = take("log").unwrap_or_default();
        if !["", "x", "y", "xy"].contains(&&*log) {
            return Err(wrong(
                text,
                format!("`log={log}` is not an axis"),
                Some("write `log=x`, `log=y` or `log=xy`".into()),
            ));
        }
        let file = take("file").map(PathBuf::from);
        Ok(Plot { text: text.into(), x, y, by: take("by"), of: take("of"), log, file })
    }

    /// Checks the plot against the sweep's varied keys.
    ///
    /// # Errors
    /// A word names nothing in the sweep.
    pub(super) fn check(&self, vary: &[Vary]) -> Result<(), SweepError> {
        let keys = || vary.iter().map(|vary| vary.key.as_str()).chain(["variant", "seed"]);
        let numbers = || {
            let columns = |table: Table| table.columns().iter().filter(|c| is_number(c.kind)).map(|c| c.name);
            columns(Table::Summary).chain(columns(Table::LinkSummary))
        };
        if find(vary, &self.x).is_none() {
            let help = suggestion(&self.x, keys());
            return Err(wrong(&self.text, format!("the sweep does not vary `{}`", self.x), help));
        }
        if !numbers().any(|name| name == self.y) {
            let why = format!("no table has a numeric column `{}`", self.y);
            return Err(wrong(&self.text, why, suggestion(&self.y, numbers())));
        }
        let names: &[&str] = if self.table() == Table::Summary { &["flow", "law"] } else { &["link"] };
        if let Some(by) =
            self.by.as_ref().filter(|by| find(vary, by).is_none() && !names.contains(&by.as_str()))
        {
            let help = suggestion(by, keys().chain(names.iter().copied()));
            return Err(wrong(&self.text, format!("`by={by}` is not varied"), help));
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let of_flows = Table::Summary.columns().iter().any(|c| c.name == self.y);
        if of_flows { Table::Summary } else { Table::LinkSummary }
    }

    /// Draws the mean over the runs at each position, with the range from the least to the largest.
    pub(super) fn figure(&self, title: &str, vary: &[Vary], runs: &[(&Point, &Done)]) -> Figure {
        let (x_title, places) = self.places(vary, runs);
        let mut dots = Vec::new();
        for (point, done) in runs {
            let Some(x) = find(vary, &self.x).and_then(|of| places.at(&of.value(point))) else { continue };
            for (series, y) in self.means(vary, point, done) {
                dots.push((series, x, y));
            }
        }
        let log = (self.log.contains('x') && places.names.is_none(), self.log.contains('y'));
        let row = Row::over(&self.title(runs), &x_title, &dots, places.names.as_deref(), log);
        Figure { title: title.into(), rows: vec![row], ..Figure::default() }
    }

    fn title(&self, runs: &[(&Point, &Done)]) -> String {
        let of = self.of.as_ref().map_or(String::new(), |of| format!(" of {of}"));
        let several = runs.iter().any(|(point, _)| point.seed != runs[0].0.seed);
        format!("{}{of}{}", self.y, if several { ": mean over seeds, and their range" } else { "" })
    }

    /// The title of the horizontal axis, and the positions of the values on it.
    fn places(&self, vary: &[Vary], runs: &[(&Point, &Done)]) -> (String, Places) {
        let of = find(vary, &self.x);
        let mut values: Vec<String> = Vec::new();
        match of {
            Some(Of::Key(i)) => values.clone_from(&vary[i].values),
            Some(of) => runs.iter().for_each(|(point, _)| {
                let value = of.value(point);
                if !values.contains(&value) {
                    values.push(value);
                }
            }),
            None => {}
        }
        let (name, numbers) = match of {
            Some(Of::Key(i)) => column(&vary[i].key, &values),
            _ => column(&self.x, &values),
        };
        match numbers {
            Some(numbers) => (name, Places { values, numbers, names: None }),
            None => {
                let numbers = (0..values.len()).map(|i| i as f64).collect();
                (name, Places { names: Some(values.clone()), values, numbers })
            }
        }
    }

    /// The mean of `y` over a run's rows, for each curve.
    fn means(&self, vary: &[Vary], point: &Point, done: &Done) -> Vec<(String, f64)> {
        let (rows, name) = match self.table() {
            Table::Summary => (&done.flows, "flow"),
            _ => (&done.links, "link"),
        };
        let text = |row: &Map<String, Value>, key: &str| {
            row.get(key).and_then(Value::as_str).unwrap_or("").to_owned()
        };
        let mut sums: Vec<(String, f64, u32)> = Vec::new();
        for row in rows {
            let Some(y) = row.get(&self.y).and_then(Value::as_f64) else { continue };
            if self.of.as_ref().is_some_and(|of| !data::matches(of, &text(row, name))) {
                continue;
            }
            let series = match &self.by {
                None => String::new(),
                Some(by) => find(vary, by).map_or_else(|| text(row, by), |of| of.value(point)),
            };
            match sums.iter_mut().find(|sum| sum.0 == series) {
                Some(sum) => (sum.1, sum.2) = (sum.1 + y, sum.2 + 1),
                None => sums.push((series, y, 1)),
            }
        }
        sums.into_iter().map(|(series, sum, count)| (series, sum / f64::from(count))).collect()
    }
}

/// Values on a horizontal axis.
struct Places {
    values: Vec<String>,
    numbers: Vec<f64>,
    /// Labels of the positions; `None` if the values are numbers.
    names: Option<Vec<String>>,
}

impl Places {
    fn at(&self, value: &str) -> Option<f64> {
        self.values.iter().position(|known| known == value).map(|i| self.numbers[i])
    }
}

/// The part of a run that gives its position or its curve.
#[derive(Clone, Copy)]
enum Of {
    Key(usize),
    Variant,
    Seed,
}

impl Of {
    fn value(self, point: &Point) -> String {
        match self {
            Of::Key(i) => point.values[i].clone(),
            Of::Variant => point.variant.clone(),
            Of::Seed => point.seed.to_string(),
        }
    }
}

/// The part with the name `word`: a varied key, its column, `variant` or `seed`.
fn find(vary: &[Vary], word: &str) -> Option<Of> {
    let key = |vary: &Vary| vary.key == word || column(&vary.key, &vary.values).0 == word;
    match vary.iter().position(key) {
        Some(i) => Some(Of::Key(i)),
        None if word == "variant" => Some(Of::Variant),
        None if word == "seed" => Some(Of::Seed),
        None => None,
    }
}

/// The file of each plot: the given one, or one beside the table with the name of the table and
/// `y`.
///
/// # Errors
/// Two plots have the same file.
pub(super) fn files(plots: &[Plot], table: &Path) -> Result<Vec<PathBuf>, SweepError> {
    let mut files: Vec<PathBuf> = Vec::new();
    for plot in plots {
        let stem = table.file_stem().unwrap_or_default().to_string_lossy();
        let usual = || table.with_file_name(format!("{stem}.{}.svg", plot.y));
        let file = plot.file.clone().unwrap_or_else(usual);
        crate::plot::Picture::of(&file)?;
        if files.contains(&file) {
            let why = format!("another plot is also written to {}", file.display());
            return Err(wrong(&plot.text, why, Some("give each a picture with `file=`".into())));
        }
        files.push(file);
    }
    Ok(files)
}

fn is_number(kind: ColumnKind) -> bool {
    matches!(kind, ColumnKind::Number | ColumnKind::Count)
}

fn wrong(text: &str, why: String, help: Option<String>) -> SweepError {
    let usual = || "write it like `--plot x=link.bottleneck.rate,y=queueing_p95_ms,by=variant`".into();
    SweepError::Plot { text: text.into(), why, help: help.unwrap_or_else(usual) }
}

const KEYS: [&str; 6] = ["x", "y", "by", "of", "log", "file"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vary(text: &str) -> Vary {
        Vary::parse(text).unwrap()
    }

    fn run(rate: &str, seed: u64, variant: &str, delays: &[Option<f64>]) -> (Point, Done) {
        let point = Point { values: vec![rate.into()], seed, variant: variant.into() };
        let rows: Vec<Value> = delays
            .iter()
            .enumerate()
            .map(|(i, delay)| json!({"flow": format!("f.{i}"), "law": "xcp", "queueing_p95_ms": delay}))
            .collect();
        let done = json!({
            "values": [rate], "seed": seed, "variant": variant, "plan": 0, "flows": rows,
            "links": [{"link": "l", "utilisation": 0.5}, {"link": "l.reverse", "utilisation": 0.1}],
        });
        (point, serde_json::from_value(done).unwrap())
    }

    #[test]
    fn each_run_counts_once_and_what_it_lacks_not_at_all() {
        let vary = [vary("l.rate=20Mbps,5Mbps")];
        let runs = [
            run("20Mbps", 1, "a", &[Some(2.0), Some(4.0), None]),
            run("20Mbps", 2, "a", &[Some(9.0)]),
            run("5Mbps", 1, "a", &[Some(1.0)]),
            run("5Mbps", 1, "b", &[None]),
        ];
        let runs: Vec<(&Point, &Done)> = runs.iter().map(|(point, done)| (point, done)).collect();
        let plot = Plot::parse("x=l.rate_mbps, y=queueing_p95_ms, by=variant").unwrap();
        plot.check(&vary).unwrap();
        let figure = plot.figure("t", &vary, &runs);
        let row = &figure.rows[0];
        assert_eq!((row.x_title.as_str(), row.panels[0].curves.len()), ("l.rate_mbps", 1));
        let curve = &row.panels[0].curves[0];
        assert_eq!((curve.name.as_str(), &curve.points[..]), ("a", &[(5.0, 1.0), (20.0, 6.0)][..]));
        assert_eq!(curve.band, [(5.0, 1.0, 1.0), (20.0, 3.0, 9.0)]);
        // Positions of texts have labels, in the given order. One of the links is selected.
        let plot = Plot::parse("x=variant,y=utilisation,of=l,by=link").unwrap();
        plot.check(&vary).unwrap();
        let row = &plot.figure("t", &vary, &runs).rows[0];
        let names: Vec<&str> = row.x.ticks.iter().map(|tick| tick.1.as_str()).collect();
        assert_eq!((names, row.panels[0].curves[0].points[0]), (vec!["a", "b"], (0.0, 0.5)));
        assert_eq!(row.panels[0].curves.len(), 1);
    }

    #[test]
    fn what_cannot_be_drawn_says_what_can() {
        let vary = [vary("l.rate=20Mbps,5Mbps")];
        for (text, says) in [
            ("y=rate_mbps", "it has no `x=`"),
            ("x=l.rate,y=rate_mbps,bye=variant", "did you mean `by`?"),
            ("x=l.rate,y=rate_mbps,y=drops", "`y` is given twice"),
            ("x=l.rate,rate_mbps", "`rate_mbps` has no `=`"),
            ("x=l.rat,y=rate_mbps", "did you mean `l.rate`?"),
            ("x=l.rate,y=rate_mpbs", "did you mean `rate_mbps`?"),
            ("x=l.rate,y=drops,by=flow", "`by=flow` is not varied"),
            ("x=l.rate,y=drops,log=z", "write `log=x`"),
        ] {
            let checked = Plot::parse(text).and_then(|plot| plot.check(&vary));
            let Err(SweepError::Plot { why, help, .. }) = checked else { panic!("{text}: {checked:?}") };
            assert!(format!("{why} {help}").contains(says), "{text}: {why} {help}");
        }
        let files = |texts: &[&str]| {
            let plots: Vec<Plot> = texts.iter().map(|text| Plot::parse(text).unwrap()).collect();
            files(&plots, Path::new("out/rates.csv")).map_err(|error| error.to_string())
        };
        let two = files(&["x=a,y=drops", "x=a,y=drops,file=b.png"]).unwrap();
        assert_eq!(two, [Path::new("out/rates.drops.svg"), Path::new("b.png")]);
        assert!(files(&["x=a,y=drops", "x=b,y=drops"]).unwrap_err().contains("another plot"));
        assert!(files(&["x=a,y=drops,file=b.gif"]).unwrap_err().contains("b.gif"));
    }
}
