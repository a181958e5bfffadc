//! The journal of a sweep: its finished runs, one per line.

#[cfg(any(test, fuzzing))]
#[path = "tests/journal.rs"]
pub(crate) mod fuzzing;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tollway_scenario::tables::RunResult;

use super::{Point, SweepError, links_beside};
use crate::data;
use crate::folder::is_taken;

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    /// The version of Tollway, since another may simulate differently.
    tollway_sweep: String,
    scenario: String,
    vary: Vec<String>,
}

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    values: Vec<String>,
    seed: u64,
    variant: String,
    /// The hash of the plan, see [`hash`](super::hash).
    pub(super) plan: u64,
    /// The rows of the two summaries.
    pub(super) flows: Vec<Map<String, Value>>,
    pub(super) links: Vec<Map<String, Value>>,
}

impl Done {
    pub(super) fn new(point: &Point, plan: u64, result: &RunResult) -> Done {
        let rows = |batches: &[arrow_array::RecordBatch]| {
            let each =
                batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|i| data::row_as_json(batch, i)));
            each.collect()
        };
        Done {
            values: point.values.clone(),
            seed: point.seed,
            variant: point.variant.clone(),
            plan,
            flows: rows(&result.summary),
            links: rows(&result.link_summary),
        }
    }
}

type Key = (Vec<String>, u64, String);

/// The path of the journal beside a table of flows.
fn beside(flows: &Path) -> PathBuf {
    let mut name = flows.file_name().unwrap_or_default().to_owned();
    name.push(".journal");
    flows.with_file_name(name)
}

/// Returns the number of bytes of a journal in whole lines, and the runs in them.
///
/// # Errors
/// The bytes are no journal, or the journal of another sweep.
fn read(bytes: &[u8], head: &Head) -> Result<(usize, HashMap<Key, Done>), String> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut lines = bytes[..whole].split_inclusive(|byte| *byte == b'\n');
    if let Some(first) = lines.next() {
        let found: Head =
            serde_json::from_slice(first).map_err(|_| "its first line is not that of a journal")?;
        if found != *head {
            let says = |h: &Head| {
                format!("Tollway {}, scenario {}, varying {}", h.tollway_sweep, h.scenario, h.vary.join(" "))
            };
            return Err(format!("{}; this is {}", says(&found), says(head)));
        }
    }
    // A partial line, even one ended by a later write, counts as a run not done.
    let runs = lines.filter_map(|line| serde_json::from_slice::<Done>(line).ok());
    Ok((whole, runs.map(|run| ((run.values.clone(), run.seed, run.variant.clone()), run)).collect()))
}

/// The open journal file, locked while open.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    done: HashMap<Key, Done>,
}

impl Journal {
    /// Opens the journal of the table `out`, or creates it.
    pub(super) fn open(out: &Path, scenario: &str, vary: &[String]) -> Result<Journal, SweepError> {
        let (path, links) = (beside(out), links_beside(out));
        let fail = |action| {
            let path = path.clone();
            move |error| SweepError::Journal { action, path, error }
        };
        let head = Head {
            tollway_sweep: env!("CARGO_PKG_VERSION").into(),
            scenario: scenario.into(),
            vary: vary.to_vec(),
        };
        if beside(&links).exists() {
            let why = format!("its table of flows has the name of the table of links of {}", out.display());
            return Err(SweepError::Other { path: beside(&links), why });
        }
        if !path.exists()
            && let Some(table) = [out, &links].into_iter().find(|table| table.exists())
        {
            return Err(SweepError::Exists { path: table.to_owned() });
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(fail("write"))?;
        }
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(fail("write"))?;
        // Two processes would run all points twice, and replace each other's table.
        if is_taken(&file) {
            return Err(SweepError::Taken { path });
        }
        // Bytes, since a cut may fall within a character.
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail("read"))?;
        let other = |why: String| SweepError::Other { path: path.clone(), why };
        let (whole, done) = read(&bytes, &head).map_err(other)?;
        // Whole lines stay in place, since a rewrite could lose them.
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(fail("write"))?;
        }
        if whole == 0 {
            let head = serde_json::to_string(&head).unwrap_or_default() + "\n";
            file.write_all(head.as_bytes()).map_err(fail("write"))?;
        }
        Ok(Journal { path, file, done })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn find(&self, point: &Point) -> Option<&Done> {
        self.done.get(&(point.values.clone(), point.seed, point.variant.clone()))
    }

    /// Appends a run. Memory holds the run as parsed from the line, so a later reading gives
    /// exactly the same.
    pub(super) fn add(&mut self, run: Done) -> Result<(), SweepError> {
        let fail = |error| SweepError::Journal { action: "write", path: self.path.clone(), error };
        let line = serde_json::to_string(&run).map_err(|e| fail(e.into()))?;
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(fail)?;
        let run: Done = serde_json::from_str(&line).map_err(|e| fail(e.into()))?;
        self.done.insert((run.values.clone(), run.seed, run.variant.clone()), run);
        Ok(())
    }
}
