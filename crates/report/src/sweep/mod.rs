//! Sweeps: one scenario with varied keys and seeds, and one tidy table. No run is repeated.
//!
//! A journal beside the table holds the finished runs, one per line, each written when its run
//! ends. A restarted sweep reads it and runs only what is missing: after Ctrl-C, after a crash (a
//! partial line does not count), or with more seeds and values. Each line has a hash of the
//! resolved plan, so results of a changed scenario are never mixed in.

pub(crate) mod journal;
mod plot;
mod table;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use tollway_scenario::file::{Scenario, ScenarioError};
use tollway_scenario::plan::Plan;
use tollway_scenario::run::{self, RunError};
use tollway_scenario::tables::{EXPORTS, Outputs, Table, TableError, export};

use crate::plot::PlotError;
use crate::seeds::{NoSeeds, seeds};
use journal::{Done, Journal};

pub use plot::Plot;
pub use table::column;

/// A key with its values: `link.bottleneck.rate=10Mbps,20Mbps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    /// The key, as in `--set`.
    pub key: String,
    /// The values, as in `--set`.
    pub values: Vec<String>,
}

/// A part of a sweep: every `of`-th run, from the `index`-th on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: u64,
    of: u64,
}

impl Part {
    /// Part `index` of `of`, counted from 1. `None` if there is no such part.
    pub fn new(index: u64, of: u64) -> Option<Part> {
        (1..=of).contains(&index).then_some(Part { index, of })
    }
}

impl FromStr for Part {
    type Err = &'static str;

    /// Parses `3/16`.
    fn from_str(text: &str) -> Result<Part, &'static str> {
        let numbers =
            text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        let (index, of) = numbers.ok_or("write it like `3/16`")?;
        Part::new(index, of).ok_or("parts of N are counted from 1 to N")
    }
}

/// The settings of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The scenario file.
    pub file: PathBuf,
    /// Keys with other values in every run.
    pub sets: Vec<String>,
    /// Varied keys; every combination of their values runs.
    pub vary: Vec<Vary>,
    /// Number of seeds per point, from the scenario's on.
    pub seeds: u64,
    /// The part to run. It has a separate journal, and writes no table.
    pub part: Option<Part>,
    /// Number of runs at once; 0 means one per processor.
    pub jobs: usize,
    /// The path of the table of flows, `.csv` or `.arrow`. The table of links lies beside it.
    pub out: PathBuf,
    /// The figures to draw.
    pub plots: Vec<Plot>,
}

/// The outcome of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Number of finished runs, all of them in the tables.
    pub done: u64,
    /// Number of these runs that were in a journal before.
    pub before: u64,
    /// Number of runs of the sweep or the part.
    pub all: u64,
    /// The table of flows.
    pub flows: PathBuf,
    /// The table of links.
    pub links: PathBuf,
    /// The pictures, in the order of the plots.
    pub figures: Vec<PathBuf>,
    /// True if there are several seeds, and no result depends on them.
    pub seeds_alike: bool,
}

/// An error of a sweep.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum SweepError {
    /// A `--vary` option has a mistake.
    #[error("`--vary {text}` is wrong: {why}")]
    #[diagnostic(help("write it like `--vary link.bottleneck.rate=10Mbps,20Mbps`"))]
    Vary {
        /// The option's value.
        text: String,
        /// The mistake.
        why: &'static str,
    },
    /// A `--plot` option has a mistake.
    #[error("`--plot {text}` is wrong: {why}")]
    Plot {
        /// The option's value.
        text: String,
        /// The mistake.
        why: String,
        /// The remedy.
        #[help]
        help: String,
    },
    /// A picture could not be written.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Picture(#[from] PlotError),
    /// There are not enough seeds.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Seeds(#[from] NoSeeds),
    /// The table's extension names no format.
    #[error("the extension of {} is not a table's format", path.display())]
    #[diagnostic(help("there are {}", EXPORTS.map(|e| format!("`.{e}`")).join(" and ")))]
    Ending {
        /// The path.
        path: PathBuf,
    },
    /// A table of flows or links exists without a sweep's journal.
    #[error("{} already exists, and has no journal of a sweep beside it", path.display())]
    #[diagnostic(help("remove it (both tables of an old sweep), or give another with `--out`"))]
    Exists {
        /// The table.
        path: PathBuf,
    },
    /// The journal belongs to another sweep.
    #[error("{} belongs to another sweep: {why}", path.display())]
    #[diagnostic(help("remove it to start again, or give another table with `--out`"))]
    Other {
        /// The journal.
        path: PathBuf,
        /// The difference.
        why: String,
    },
    /// Another process writes to the journal.
    #[error("another sweep is writing to {}", path.display())]
    #[diagnostic(help("wait for its end, or give another table with `--out`"))]
    Taken {
        /// The journal.
        path: PathBuf,
    },
    /// A mistake in the scenario, at some point of the sweep.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Scenario(#[from] ScenarioError),
    /// A run failed.
    #[error("{point}: {error}")]
    Run {
        /// The point.
        point: String,
        /// The run's error.
        error: RunError,
    },
    /// A table could not be written.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The journal could not be read or written.
    #[error("cannot {action} {}: {error}", path.display())]
    Journal {
        /// `read` or `write`.
        action: &'static str,
        /// The journal.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// No threads could be started.
    #[error("cannot start threads: {0}")]
    Threads(String),
}

impl Vary {
    /// Parses `key=a,b,c`. Commas within quotes, brackets and braces do not separate values.
    ///
    /// # Errors
    /// [`SweepError::Vary`] for a mistake in the text.
    pub fn parse(text: &str) -> Result<Vary, SweepError> {
        let wrong = |why| SweepError::Vary { text: text.into(), why };
        let (key, values) = text.split_once('=').ok_or_else(|| wrong("it has no `=`"))?;
        let values: Vec<String> = split(values).iter().map(|v| v.trim().to_owned()).collect();
        if key.trim().is_empty() {
            return Err(wrong("it has no key"));
        }
        if key.trim() == "seed" {
            return Err(wrong("seeds are varied with `--seeds N`"));
        }
        if values.iter().any(String::is_empty) {
            return Err(wrong("a value is empty"));
        }
        if (1..values.len()).any(|i| values[..i].contains(&values[i])) {
            return Err(wrong("a value is given twice"));
        }
        Ok(Vary { key: key.trim().into(), values })
    }
}

/// Splits at commas outside of quotes, brackets and braces.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quote) = (0_i32, None);
    for c in text.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth <= 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        // `parts` is never empty.
        parts.last_mut().into_iter().for_each(|part| part.push(c));
    }
    parts
}

/// One run of a sweep.
#[derive(Clone, Debug)]
struct Point {
    /// A value for each varied key.
    values: Vec<String>,
    seed: u64,
    variant: String,
}

impl Sweep {
    /// Runs the missing points, and writes the tables of all finished ones, unless it is a part.
    /// `progress` receives the number of finished runs and of all runs. If it returns false, the
    /// sweep ends and keeps the finished runs.
    ///
    /// # Errors
    /// See [`SweepError`].
    pub fn run(&self, progress: &(dyn Fn(u64, u64) -> bool + Sync)) -> Result<Swept, SweepError> {
        if !self.out.extension().is_some_and(|e| EXPORTS.iter().any(|known| e == *known)) {
            return Err(SweepError::Ending { path: self.out.clone() });
        }
        for (i, vary) in self.vary.iter().enumerate() {
            if self.vary[..i].iter().any(|other| other.key == vary.key) {
                let text = format!("{}={}", vary.key, vary.values.join(","));
                return Err(SweepError::Vary { text, why: "the key is given twice" });
            }
        }
        let first = self.scenario(&self.combinations()[0], None)?;
        for plot in &self.plots {
            plot.check(&self.vary)?;
        }
        let figures = plot::files(&self.plots, &self.out)?;
        let seeds = seeds(first.variants()[0].plan.seed, self.seeds)?;
        // Every point is checked before the first run.
        let mut points: Vec<(Point, u64)> = Vec::new();
        for values in self.combinations() {
            for seed in seeds.clone() {
                for variant in self.scenario(&values, Some(seed))?.variants() {
                    let point = Point { values: values.clone(), seed, variant: variant.name.clone() };
                    points.push((point, hash(&variant.plan)));
                }
            }
        }
        if let Some(Part { index, of }) = self.part {
            points = points.into_iter().skip(index as usize - 1).step_by(of as usize).collect();
        }
        let keys: Vec<String> = self.vary.iter().map(|vary| vary.key.clone()).collect();
        let mut journal = Journal::open(&self.out, self.part, &first.variants()[0].plan.name, &keys)?;
        let mut before = 0;
        for (point, hash) in &points {
            if let Some(done) = journal.find(point) {
                if done.plan != *hash {
                    return Err(SweepError::Other {
                        path: journal.path().to_owned(),
                        why: format!("{} has changed since its run", self.describe(point)),
                    });
                }
                before += 1;
            }
        }
        let all = points.len() as u64;
        let missing: Vec<&(Point, u64)> =
            points.iter().filter(|(point, _)| journal.find(point).is_none()).collect();
        let count = AtomicU64::new(before);
        progress(before, all);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.jobs.min(missing.len()))
            .build()
            .map_err(|e| SweepError::Threads(e.to_string()))?;
        let shared = Mutex::new((&mut journal, None));
        pool.install(|| {
            missing.par_iter().for_each(|(point, hash)| {
                let lock = || shared.lock().unwrap_or_else(|e| e.into_inner());
                let go_on = || progress(count.load(Ordering::Relaxed), all);
                if lock().1.is_some() || !go_on() {
                    return;
                }
                let ran = self.one(point, *hash, &go_on);
                let mut shared = lock();
                match ran.and_then(|done| done.map_or(Ok(false), |done| shared.0.add(done).map(|()| true))) {
                    Ok(true) => {
                        progress(1 + count.fetch_add(1, Ordering::Relaxed), all);
                    }
                    Ok(false) => {}
                    Err(error) => {
                        shared.1.get_or_insert(error);
                    }
                }
            });
        });
        if let Some(error) = shared.into_inner().unwrap_or_else(|e| e.into_inner()).1 {
            return Err(error);
        }
        let rows: Vec<(&Point, &Done)> =
            points.iter().filter_map(|(point, _)| Some((point, journal.find(point)?))).collect();
        let links = links_beside(&self.out);
        let tables = [(&self.out, Table::Summary), (&links, Table::LinkSummary)];
        for (path, table) in tables.into_iter().filter(|_| self.part.is_none()) {
            export(path, &table::batch(table, &self.vary, &rows)?)?;
        }
        let title = &first.variants()[0].plan.title;
        for (plot, path) in self.plots.iter().zip(&figures) {
            plot.figure(title, &self.vary, &rows).write(path)?;
        }
        let seeds_alike = seeds_alike(&rows);
        Ok(Swept {
            done: rows.len() as u64,
            before,
            all,
            flows: self.out.clone(),
            links,
            figures,
            seeds_alike,
        })
    }

    /// Runs a point; `None` if `go_on` stopped it.
    fn one(
        &self,
        point: &Point,
        hash: u64,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Done>, SweepError> {
        let scenario = self.scenario(&point.values, Some(point.seed))?;
        let Some(variant) = scenario.variant(&point.variant) else { return Ok(None) };
        // Only summaries are kept, so interval tables are not needed.
        let mut plan = variant.plan.clone();
        plan.measure.interval = None;
        let goes_on = |_| go_on();
        let options = run::Options {
            outputs: Outputs::memory(),
            ideal_mbps: crate::ideal_mbps(&plan).into(),
            progress: Some(&goes_on),
            ..run::Options::default()
        };
        let finished = run::run(&plan, &options)
            .map_err(|error| SweepError::Run { point: self.describe(point), error })?;
        Ok((!finished.run.stopped).then(|| Done::new(point, hash, &finished.result)))
    }

    /// All combinations of values; the last key changes fastest.
    fn combinations(&self) -> Vec<Vec<String>> {
        let mut all = vec![Vec::new()];
        for vary in &self.vary {
            let longer = |before: &Vec<String>| -> Vec<Vec<String>> {
                vary.values
                    .iter()
                    .map(|value| [before.as_slice(), std::slice::from_ref(value)].concat())
                    .collect()
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    fn scenario(&self, values: &[String], seed: Option<u64>) -> Result<Scenario, ScenarioError> {
        let vary = self.vary.iter().zip(values).map(|(vary, value)| format!("{}={value}", vary.key));
        let vary: Vec<String> = vary.collect();
        let mut sets = [self.sets.as_slice(), &vary].concat();
        sets.extend(seed.map(|seed| format!("seed={seed}")));
        Scenario::load(&self.file, &sets).map_err(|error| error.set_by("--vary", &vary))
    }

    /// The point as text: `link.wire.rate=10Mbps, seed 3, variant xcp`.
    fn describe(&self, point: &Point) -> String {
        let mut text = String::new();
        for (vary, value) in self.vary.iter().zip(&point.values) {
            let _ = write!(text, "{}={value}, ", vary.key);
        }
        let _ = write!(text, "seed {}", point.seed);
        if !point.variant.is_empty() {
            let _ = write!(text, ", variant {}", point.variant);
        }
        text
    }
}

/// True if every point ran with several seeds, all with the same result.
fn seeds_alike(rows: &[(&Point, &Done)]) -> bool {
    let mut by_point: HashMap<_, Vec<&Done>> = HashMap::new();
    for (point, done) in rows {
        by_point.entry((&point.values, &point.variant)).or_default().push(done);
    }
    let same = |runs: &Vec<&Done>| {
        runs.len() > 1 && runs.iter().all(|run| (&run.flows, &run.links) == (&runs[0].flows, &runs[0].links))
    };
    !rows.is_empty() && by_point.values().all(same)
}

/// The table of links, `sweep.links.csv` for `sweep.csv`.
fn links_beside(flows: &Path) -> PathBuf {
    let stem = flows.file_stem().unwrap_or_default().to_string_lossy();
    let ending = flows.extension().unwrap_or_default().to_string_lossy();
    flows.with_file_name(format!("{stem}.links.{ending}"))
}

/// A hash over a whole plan, with the files that it names: FNV-1a over its debug output.
fn hash(plan: &Plan) -> u64 {
    struct Fnv(u64);
    impl Write for Fnv {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut fnv = Fnv(0xcbf2_9ce4_8422_2325);
    // Writing to a number cannot fail.
    let _ = write!(fnv, "{plan:?}");
    fnv.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_to_vary() {
        let vary = Vary::parse("flow.f.start={ first = \"0 s\", last = \"3 s\" }, 1 s,\"a,b\"").unwrap();
        assert_eq!(vary.key, "flow.f.start");
        assert_eq!(vary.values, ["{ first = \"0 s\", last = \"3 s\" }", "1 s", "\"a,b\""]);
        for wrong in ["rate", "=1", "rate=", "rate=1,,2", "rate=1,1", "seed=1,2"] {
            assert!(Vary::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(links_beside(Path::new("out/a.csv")), Path::new("out/a.links.csv"));
    }

    proptest! {
        /// Any text is parsed or rejected. The parsed values, joined again, equal the text.
        #[test]
        fn values_are_what_was_between_commas(text in "[a-z.]{1,8}=.{0,40}") {
            if let Ok(vary) = Vary::parse(&text) {
                let given = text.split_once('=').expect("it has one").1;
                let parts: Vec<&str> = vary.values.iter().map(String::as_str).collect();
                let squeezed = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                prop_assert_eq!(squeezed(&parts.join(",")), squeezed(given));
            }
        }
    }
}
