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

use super::{Part, Point, SweepError, links_beside};
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

/// The path of the journal beside a table of flows: `sweep.csv.journal`, or
/// `sweep.csv.3of16.journal` of a part.
fn beside(flows: &Path, part: Option<Part>) -> PathBuf {
    let mut name = flows.file_name().unwrap_or_default().to_owned();
    if let Some(Part { index, of }) = part {
        name.push(format!(".{index}of{of}"));
    }
    name.push(".journal");
    flows.with_file_name(name)
}

/// Returns the journals beside a table of flows: the sweep's own and those of its parts.
fn all_beside(flows: &Path) -> std::io::Result<Vec<PathBuf>> {
    let name = flows.file_name().unwrap_or_default().to_string_lossy();
    let folder = flows.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut journals = Vec::new();
    for entry in std::fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let other = entry?.file_name();
        let middle = other.to_str().and_then(|other| other.strip_prefix(&*name)?.strip_suffix(".journal"));
        let part = |text: &str| {
            let (index, of) = text.strip_prefix('.')?.split_once("of")?;
            Part::new(index.parse().ok()?, of.parse().ok()?)
        };
        if middle.is_some_and(|middle| middle.is_empty() || part(middle).is_some()) {
            journals.push(flows.with_file_name(other));
        }
    }
    journals.sort();
    Ok(journals)
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

/// Reads a journal file from its start. Returns as [`read`] does.
fn load(file: &mut File, path: &Path, head: &Head) -> Result<(u64, HashMap<Key, Done>), SweepError> {
    // Bytes, since a cut may fall within a character.
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| SweepError::Journal {
        action: "read",
        path: path.to_owned(),
        error,
    })?;
    let (whole, done) = read(&bytes, head).map_err(|why| SweepError::Other { path: path.to_owned(), why })?;
    Ok((whole as u64, done))
}

/// The open journal file, locked while open.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    done: HashMap<Key, Done>,
}

impl Journal {
    /// Opens the journal of the table `out`, or of a part of its sweep, or creates it. Runs in the
    /// sweep's other journals count as done.
    pub(super) fn open(
        out: &Path,
        part: Option<Part>,
        scenario: &str,
        vary: &[String],
    ) -> Result<Journal, SweepError> {
        let (path, links) = (beside(out, part), links_beside(out));
        let fail = |action, path: &Path| {
            let path = path.to_owned();
            move |error| SweepError::Journal { action, path, error }
        };
        let head = Head {
            tollway_sweep: env!("CARGO_PKG_VERSION").into(),
            scenario: scenario.into(),
            vary: vary.to_vec(),
        };
        if beside(&links, None).exists() {
            let why = format!("its table of flows has the name of the table of links of {}", out.display());
            return Err(SweepError::Other { path: beside(&links, None), why });
        }
        if !beside(out, None).exists()
            && let Some(table) = [out, &links].into_iter().find(|table| table.exists())
        {
            return Err(SweepError::Exists { path: table.to_owned() });
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(fail("write", &path))?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(fail("write", &path))?;
        // Two processes would run all points twice, and replace each other's table.
        if is_taken(&file) {
            return Err(SweepError::Taken { path });
        }
        let mut all = HashMap::new();
        for other in all_beside(out).map_err(fail("read", &path))? {
            if other == path {
                continue;
            }
            let mut file = File::open(&other).map_err(fail("read", &other))?;
            // The whole sweep would do again what a part is doing. Parts have no run in common.
            if part.is_none() && is_taken(&file) {
                return Err(SweepError::Taken { path: other });
            }
            all.extend(load(&mut file, &other, &head)?.1);
        }
        let (bytes, done) = load(&mut file, &path, &head)?;
        // Whole lines stay in place, since a rewrite could lose them.
        file.set_len(bytes).map_err(fail("write", &path))?;
        if bytes == 0 {
            let head = serde_json::to_string(&head).unwrap_or_default() + "\n";
            file.write_all(head.as_bytes()).map_err(fail("write", &path))?;
        }
        all.extend(done);
        Ok(Journal { path, file, done: all })
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
