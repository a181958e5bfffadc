//! Sessions: runs of all variants of a scenario at once, with summaries as text and JSON.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use rayon::prelude::*;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Value, json};
use tollway_law::Time;
use tollway_scenario::file::{Scenario, Variant};
use tollway_scenario::run::{
    self, Capture, DigestMode, EngineKind, Finished, Hosting, KernelLaws, LiveInfo, RunError, RunInfo, Watch,
    WireInfo,
};
use tollway_scenario::tables::{Outputs, RunResult, Table, TableError, Unwritten};

use crate::data;
use crate::deviation::{Deviation, NoDeviation};
use crate::groups;
use crate::ideal::{ideal_mbps, too_many};
use crate::slowdown::{Slowdown, slowdowns};
use crate::text::{Align, TextTable};

/// The settings of a scenario's runs.
#[derive(Clone, Debug, Default)]
pub struct Runner {
    /// The folder for result tables, with a subfolder per variant; `None` keeps them in memory.
    pub out: Option<PathBuf>,
    /// True to write CSV files to `out`.
    pub csv: bool,
    /// True to write Parquet files to `out`.
    pub parquet: bool,
    /// Number of variants that run at once; 0 means one per processor. Live variants always run one
    /// at a time, since they would disturb each other's timing.
    pub jobs: usize,
    /// The engine.
    pub engine: EngineKind,
    /// The hosting of a live network's nodes.
    pub hosting: Hosting,
    /// The loader of laws for the kernel's TCP.
    pub kernel_laws: Option<Arc<dyn KernelLaws>>,
    /// The loader of links at nodes' interfaces ([`run::Options::routers`]).
    #[cfg(target_os = "linux")]
    pub routers: Option<Arc<dyn run::Routers>>,
    /// The content of digests.
    pub digest: DigestMode,
    /// Bytes of memory allowed per run ([`run::Options::memory`]).
    pub memory: Option<u64>,
    /// The capture of packets to a file; with several variants, to one file each
    /// ([`run::variant_path`]).
    pub capture: Option<Capture>,
    /// An observer of the runs.
    pub watch: Option<Arc<dyn Watch>>,
    /// Without a folder, keeps only the rates of the flows' intervals ([`Outputs::rates_only`]).
    pub rates_only: bool,
    /// Compares workloads' flows with theory ([`slowdowns`]), which needs an allocation for each
    /// start and end.
    pub slowdowns: bool,
}

/// The run of one variant.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The result tables.
    pub result: RunResult,
    /// The run's cost and counters.
    pub info: RunInfo,
    /// The random seed.
    pub seed: u64,
    /// The deviation of its steady state from the aim of its laws.
    pub deviation: Result<Deviation, NoDeviation>,
    /// The slowdowns of workloads' flows; empty if not requested or not defined.
    pub slowdowns: Vec<Slowdown>,
    /// True if the interval tables stayed in their files, since they are too large to be drawn.
    pub undrawn: bool,
}

impl Ran {
    /// False if the command was stopped before the run began.
    pub fn began(&self) -> bool {
        self.info.duration > Time::ZERO
    }
}

/// An error of a runner.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// A run failed.
    #[error("{}{error}", if variant.is_empty() { String::new() } else { format!("variant `{variant}`: ") })]
    Run {
        /// The variant.
        variant: String,
        /// The run's error.
        error: RunError,
    },
    /// Another process writes its tables to the folder.
    #[error("another tollway is writing to `{}`; give another `--out`", dir.display())]
    Taken {
        /// The folder.
        dir: PathBuf,
    },
    /// A file is in the place of a folder for tables.
    #[error("cannot create a folder for tables: `{}` is a file; give another `--out`", path.display())]
    NoFolder {
        /// The file.
        path: PathBuf,
    },
    /// Other users may plant links in the folder for tables.
    #[error("cannot write tables to `{}`, where other users can write too; give a folder of your own as `--out`", path.display())]
    Shared {
        /// The folder.
        path: PathBuf,
    },
    /// The interval tables have too many rows for memory.
    #[error(
        "the interval tables would have {} million rows, too many for memory; write them to files with \
        `--out DIR`, or make `measure.interval` longer",
        rows / 1_000_000
    )]
    Rows {
        /// Lower bound on the number of rows.
        rows: u64,
    },
    /// The folder could not be prepared for tables.
    #[error(transparent)]
    Table(#[from] TableError),
    /// No threads could be started.
    #[error("cannot start {jobs} threads: {message}")]
    Threads {
        /// The requested number of threads.
        jobs: usize,
        /// The system's message.
        message: String,
    },
}

impl RunnerError {
    /// True if the error lies in the input, and not in the runs.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            RunnerError::Rows { .. }
                | RunnerError::Run {
                    error: RunError::TooLong { .. } | RunError::Memory { .. } | RunError::Unsupported(_),
                    ..
                }
        )
    }
}

/// A callback with the index of a variant and its progress, 0 to 1. If it returns false, that run
/// ends.
pub type Progress<'a> = &'a (dyn Fn(usize, f64) -> bool + Sync);

impl Runner {
    /// Runs every variant. The results do not depend on the number of jobs.
    ///
    /// # Errors
    /// A run fails, its tables cannot be created, or there is no folder for tables that do not fit
    /// into memory.
    pub fn run(&self, scenario: &Scenario, progress: Option<Progress<'_>>) -> Result<Vec<Ran>, RunnerError> {
        let variants = scenario.variants();
        let rows = variants.iter().map(|variant| variant.plan.least_rows()).fold(0, u64::saturating_add);
        if self.out.is_none() && rows > MOST_ROWS_KEPT {
            return Err(RunnerError::Rows { rows });
        }
        let run = |(i, variant)| self.run_one(i, variant, variants.len(), progress);
        let live = self.engine == EngineKind::Live;
        // The pool interprets 0 as the number of processors.
        let threads = if live || variants.len() == 1 { 1 } else { self.jobs.min(variants.len()) };
        if threads == 1 && !live {
            // On this thread, the run reuses memory freed after reading the file; other threads
            // have separate heaps.
            return variants.iter().enumerate().map(run).collect();
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|e| RunnerError::Threads { jobs: self.jobs, message: e.to_string() })?;
        pool.install(|| variants.par_iter().enumerate().map(run).collect())
    }

    fn run_one(
        &self,
        i: usize,
        variant: &Variant,
        variants: usize,
        progress: Option<Progress<'_>>,
    ) -> Result<Ran, RunnerError> {
        let plan = &variant.plan;
        let dir = self.out.as_ref().map(|out| match variant.name.as_str() {
            "" => out.clone(),
            name => out.join(name),
        });
        let outputs = match &dir {
            None => Outputs { rates_only: self.rates_only, ..Outputs::memory() },
            Some(dir) => {
                Outputs { csv: self.csv, parquet: self.parquet, summaries: true, ..Outputs::files(dir) }
            }
        };
        let tell = progress.map(|progress| move |share| progress(i, share));
        let begun = Instant::now();
        let ideal_mbps = ideal_mbps(plan).into();
        let ideal_s = begun.elapsed().as_secs_f64();
        let mut options = run::Options {
            engine: self.engine,
            hosting: self.hosting.clone(),
            kernel_laws: self.kernel_laws.clone(),
            #[cfg(target_os = "linux")]
            routers: self.routers.clone(),
            outputs,
            ideal_mbps,
            digest: self.digest,
            memory: self.memory,
            capture: self.capture.clone().map(|capture| Capture {
                path: run::variant_path(&capture.path, if variants > 1 { &variant.name } else { "" }),
                ..capture
            }),
            watch: self.watch.as_deref(),
            progress: tell.as_ref().map(|tell| tell as &(dyn Fn(f64) -> bool + Sync)),
        };
        let mut finished = run::run(plan, &options);
        if let (Err(RunError::Table(error)), Some(dir)) = (&finished, dir.as_ref().filter(|_| i > 0)) {
            // Keeps the results of the other variants despite this variant's files.
            let unwritten = Unwritten::new(dir, error);
            options.outputs = Outputs { summaries: true, ..Outputs::default() };
            finished = run::run(plan, &options);
            if let Ok(Finished { result, .. }) = &mut finished {
                result.unwritten.push(unwritten);
            }
        }
        let Finished { mut result, run: mut info } =
            finished.map_err(|error| RunnerError::Run { variant: variant.name.clone(), error })?;
        info.setup_s += ideal_s;
        let mut undrawn = false;
        if let Some(dir) = dir.as_ref().filter(|_| result.unwritten.is_empty()) {
            // Tables read back stay in memory, so their size is bounded.
            let size = |table: Table| {
                std::fs::metadata(dir.join(format!("{}.arrow", table.name()))).map_or(0, |file| file.len())
            };
            let grow = [Table::Flows, Table::Links, Table::Control, Table::Hops];
            undrawn = grow.map(size).iter().sum::<u64>() > MOST_READ_BACK / variants.max(1) as u64;
            if !undrawn && let Err(error) = result.read_intervals(dir) {
                result.unwritten.push(Unwritten::new(dir, error));
            }
        }
        let deviation = match info.stopped {
            true => Err(NoDeviation::Stopped),
            false => {
                let deviation = Deviation::of(plan, &result).map_err(|why| match why {
                    NoDeviation::NoRates if !result.unwritten.is_empty() => NoDeviation::Unwritten,
                    why => why,
                });
                match info.live.as_ref().and_then(|live| live.node.as_deref()) {
                    Some(node) => deviation.and_then(|deviation| deviation.at(plan, node)),
                    None => deviation,
                }
            }
        };
        result.changes = plan.change_times();
        let slowdowns = if self.slowdowns { slowdowns(plan, &result) } else { Vec::new() };
        Ok(Ran { result, info, seed: plan.seed, deviation, slowdowns, undrawn })
    }
}

/// The scenario's notes, and a note for each ideal that is left out.
pub fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = scenario.notes().to_vec();
    for variant in scenario.variants() {
        let note = too_many(&variant.plan);
        notes.extend(note.map(|note| match variant.name.as_str() {
            "" => note,
            name => format!("variant `{name}`: {note}"),
        }));
    }
    notes
}

/// Upper bound on bytes of interval tables, over all variants, that are read back for drawing: more
/// points than a picture has pixels.
const MOST_READ_BACK: u64 = 64 << 20;
/// Upper bound on rows of interval tables in memory. A row of links takes 80 bytes, one of flows 20
/// or 80.
const MOST_ROWS_KEPT: u64 = 20_000_000;
/// Upper bound on rows of a summary that an [`Account`] lists: about 6 MB of text.
const MOST_ROWS_LISTED: usize = 10_000;

/// The results of all runs as one JSON object, with units in the names.
///
/// It is written row by row. A tree of values would take more memory than the run of a large
/// network.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Its runs.
    pub runs: &'a [Ran],
    /// The time to read the scenario in seconds, which counts as set-up.
    pub load_s: f64,
    /// The greatest memory of the process so far, in bytes; `None` if the system does not report
    /// it.
    pub peak_rss_bytes: Option<u64>,
}

impl Serialize for Account<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (plan, runs) = (&self.scenario.variants()[0].plan, self.runs);
        let total = |count: fn(&RunInfo) -> u64| runs.iter().map(|ran| count(&ran.info)).sum::<u64>();
        let seconds = |spent: fn(&RunInfo) -> f64| runs.iter().map(|ran| spent(&ran.info)).sum::<f64>();
        let digest = runs.iter().fold(0u64, |all, ran| all.rotate_left(7) ^ ran.info.digest);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("scenario", &plan.name)?;
        map.serialize_entry("title", &plan.title)?;
        map.serialize_entry("seed", &plan.seed)?;
        let live = runs.iter().any(|ran| ran.info.live.is_some());
        map.serialize_entry("engine", if live { EngineKind::Live.name() } else { EngineKind::Sim.name() })?;
        map.serialize_entry("duration_s", &plan.duration.nearest_secs())?;
        let flows = Rows { runs, table: |result| &result.summary, group: groups::flows };
        let links = Rows { runs, table: |result| &result.link_summary, group: groups::links };
        let mut notes = notes(self.scenario);
        notes.extend([(&flows, "flows"), (&links, "links")].iter().filter_map(|(rows, of)| rows.note(of)));
        map.serialize_entry("notes", &notes)?;
        map.serialize_entry("flows", &flows)?;
        map.serialize_entry("links", &links)?;
        map.serialize_entry("flow_groups", &flows.groups())?;
        map.serialize_entry("link_groups", &links.groups())?;
        map.serialize_entry("deviation", &worst(runs))?;
        map.serialize_entry("events", &total(|info| info.events))?;
        map.serialize_entry("packet_hops", &total(|info| info.packet_hops))?;
        // Runs in real time have no digest, since no two are equal to the bit.
        map.serialize_entry("digest", &(!live).then(|| format!("{digest:016x}")))?;
        map.serialize_entry("setup_s", &(self.load_s + seconds(|info| info.setup_s)))?;
        map.serialize_entry("run_cpu_s", &seconds(|info| info.run_cpu_s))?;
        map.serialize_entry("run_wall_s", &seconds(|info| info.run_wall_s))?;
        map.serialize_entry("runs", &each(runs))?;
        map.serialize_entry("peak_rss_bytes", &self.peak_rss_bytes)?;
        map.end()
    }
}

/// The rows of one table of all runs; empty if there are more than [`MOST_ROWS_LISTED`].
struct Rows<'a> {
    runs: &'a [Ran],
    table: fn(&RunResult) -> &[RecordBatch],
    /// The function that groups a run's rows.
    group: fn(&[RecordBatch]) -> Vec<Value>,
}

impl Rows<'_> {
    fn count(&self) -> usize {
        self.runs.iter().flat_map(|ran| (self.table)(&ran.result)).map(RecordBatch::num_rows).sum()
    }

    fn are_listed(&self) -> bool {
        self.count() <= MOST_ROWS_LISTED
    }

    /// The note that replaces rows that are not listed.
    fn note(&self, of: &str) -> Option<String> {
        let (one, count) = (of.trim_end_matches('s'), self.count());
        let file = if of == "flows" { "summary" } else { "link_summary" };
        (!self.are_listed()).then(|| {
            format!(
                "`{of}` is empty: {count} rows are more than {MOST_ROWS_LISTED}; `{one}_groups` sums them up, and `--out DIR` writes \
                 them to {file}.arrow, with `--format` also to CSV or Parquet"
            )
        })
    }

    /// The groups of each run's rows.
    fn groups(&self) -> Vec<Value> {
        let of_run = |ran: &Ran| {
            let mut groups = (self.group)((self.table)(&ran.result));
            for group in groups.iter_mut().filter_map(Value::as_object_mut) {
                group.shift_insert(0, "variant".into(), ran.result.variant.as_str().into());
            }
            groups
        };
        self.runs.iter().flat_map(of_run).collect()
    }
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(None)?;
        let listed = if self.are_listed() { self.runs } else { &[] };
        for ran in listed {
            for batch in (self.table)(&ran.result) {
                for i in 0..batch.num_rows() {
                    let mut row = data::row_as_json(batch, i);
                    row.shift_insert(0, "variant".into(), ran.result.variant.as_str().into());
                    rows.serialize_element(&row)?;
                }
            }
        }
        rows.end()
    }
}

/// The largest deviation among runs whose laws have an aim, or else among all runs.
fn worst(runs: &[Ran]) -> Option<Value> {
    let known = || runs.iter().filter_map(|ran| Some((ran, ran.deviation.as_ref().ok()?)));
    let worst = known().max_by(|(_, a), (_, b)| {
        let size = |d: &Deviation| d.worst().deviation.abs();
        a.aimed.cmp(&b.aimed).then(size(a).total_cmp(&size(b)))
    });
    worst.map(|(ran, deviation)| {
        let mut value = deviation.to_json();
        value["variant"] = ran.result.variant.as_str().into();
        value
    })
}

/// The cost and counters of each run.
fn each(runs: &[Ran]) -> Vec<Value> {
    runs.iter()
        .map(|ran| {
            json!({
                "variant": ran.result.variant,
                "seed": ran.seed,
                "duration_s": ran.info.duration.nearest_secs(),
                "stopped": ran.info.stopped,
                "events": ran.info.events,
                "packet_hops": ran.info.packet_hops,
                "digest": ran.info.live.is_none().then(|| format!("{:016x}", ran.info.digest)),
                "packets_created": ran.info.census.created,
                "packets_dropped": ran.info.census.dropped,
                "deviation": ran.deviation.as_ref().ok().map(Deviation::to_json),
                "slowdowns": ran.slowdowns.iter().map(Slowdown::to_json).collect::<Vec<_>>(),
                "setup_s": ran.info.setup_s,
                "run_cpu_s": ran.info.run_cpu_s,
                "run_wall_s": ran.info.run_wall_s,
                "tables": ran.result.systems.to_json(),
                "unwritten": ran.result.unwritten.iter().map(Unwritten::to_string).collect::<Vec<_>>(),
                "live": ran.info.live.as_ref().map(live_account),
                "lateness": ran.info.live.as_ref().map(lateness),
            })
        })
        .collect()
}

/// The counters of a live run's datagrams.
fn live_account(live: &LiveInfo) -> Value {
    let counters = &live.counters;
    json!({
        "node": live.node,
        "broken": live.broken,
        "threads": live.threads,
        "real_time_priority": live.real_time,
        "kept_up": live.kept_up(),
        "fallen": live.fallen,
        "datagrams_sent": counters.sent,
        "datagrams_received": counters.received,
        "datagrams_waiting": counters.waiting,
        "datagrams_unsent": counters.unsent,
        "datagrams_too_long": counters.too_long,
        "datagrams_unkeyed": counters.unkeyed,
        "datagrams_senseless": counters.senseless,
        "datagrams_from_strangers": counters.strangers,
        "kernel_drops": live.kernel_drops,
        "kernel_packets_sent": live.kernel_packets.0,
        "kernel_packets_received": live.kernel_packets.1,
        "wires": live.wires.iter().map(wire).collect::<Vec<_>>(),
        "send_calls": counters.sends,
        "receive_calls": counters.receives,
    })
}

/// The kernel's counters of a link between namespaces.
fn wire(wire: &WireInfo) -> Value {
    json!({
        "link": wire.link,
        "namespace": wire.namespace,
        "interface": wire.interface,
        "reported": wire.reported,
        "kernel_sent": wire.sent,
        "kernel_received": wire.received,
        "kernel_drops": wire.dropped,
    })
}

/// The lateness of live runs, as a table for a terminal.
pub fn lateness_table(runs: &[Ran], width: usize) -> String {
    let mut table = TextTable::new(&[
        ("late by (µs)", Align::Left),
        ("variant", Align::Left),
        ("count", Align::Right),
        ("median", Align::Right),
        ("90 %", Align::Right),
        ("99 %", Align::Right),
        ("99.9 %", Align::Right),
        ("worst", Align::Right),
    ]);
    for ran in runs {
        let Some(live) = &ran.info.live else { continue };
        let lateness = &live.punctuality;
        let kinds = [
            ("sent to the next node", &lateness.departures),
            ("timers", &lateness.timeouts),
            ("read from the socket", &lateness.waits),
            ("paused, not counted", &lateness.standstills),
        ];
        for (what, kind) in kinds {
            let us = |time: Time| format!("{:.0}", time.0 as f64 * 1e-3);
            let mut row = vec![what.to_owned(), ran.result.variant.clone(), kind.count().to_string()];
            row.extend([0.5, 0.9, 0.99, 0.999].map(|p| us(kind.percentile(p))));
            row.push(us(kind.max()));
            table.row(row);
        }
    }
    table.print(width)
}

/// The lateness of a live run.
fn lateness(live: &LiveInfo) -> Value {
    let lateness = &live.punctuality;
    let us = |time: Time| time.0 as f64 * 1e-3;
    let kinds = [
        ("departures", &lateness.departures),
        ("timeouts", &lateness.timeouts),
        ("socket_waits", &lateness.waits),
        ("standstills", &lateness.standstills),
    ];
    let rows = kinds.map(|(name, kind)| {
        let row = json!({
            "count": kind.count(),
            "total_us": us(kind.total()),
            "mean_us": us(kind.mean()),
            "p50_us": us(kind.percentile(0.5)),
            "p90_us": us(kind.percentile(0.9)),
            "p99_us": us(kind.percentile(0.99)),
            "p999_us": us(kind.percentile(0.999)),
            "max_us": us(kind.max()),
        });
        (name.to_owned(), row)
    });
    let programs = lateness.programs;
    let row = json!({ "count": programs.count, "total_us": us(Time(programs.total)), "mean_us": us(programs.mean()) });
    Value::Object(rows.into_iter().chain([("programs".to_owned(), row)]).collect())
}
