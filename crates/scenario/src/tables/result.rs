//! What a run leaves behind.

use std::fmt;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use super::schema::Table;
use super::{SystemTables, TableError};

/// A run's tables and what else is known of it: all that claims, plots and terminal tables are made of.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// The variant of the scenario that ran; empty if it has none.
    pub variant: String,
    /// Batches of [`Table::Flows`], in order of time.
    pub flows: Vec<RecordBatch>,
    /// Batches of [`Table::Links`], in order of time.
    pub links: Vec<RecordBatch>,
    /// Batches of [`Table::Control`], each link's rows in order of time.
    pub control: Vec<RecordBatch>,
    /// Batches of [`Table::Hops`].
    pub hops: Vec<RecordBatch>,
    /// Batches of [`Table::Summary`].
    pub summary: Vec<RecordBatch>,
    /// Batches of [`Table::LinkSummary`].
    pub link_summary: Vec<RecordBatch>,
    /// The tables of the systems that ran.
    pub systems: SystemTables,
    /// Anything else worth showing: seed, engine, events, wall time.
    pub meta: serde_json::Value,
    /// Files that were to be written, and are not there or not whole.
    pub unwritten: Vec<Unwritten>,
}

/// A file that took no more, or none of what it should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The file.
    pub path: PathBuf,
    /// Why, the file named.
    pub error: String,
}

impl Unwritten {
    /// What an error says of the file at `path`.
    pub fn new(path: &Path, error: impl fmt::Display) -> Unwritten {
        Unwritten { path: path.to_path_buf(), error: error.to_string() }
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl RunResult {
    /// The tables of `dir` as [`TableWriter`](super::TableWriter) wrote them in Arrow IPC; `systems` and `meta`
    /// stay empty.
    ///
    /// # Errors
    /// A file is missing, unreadable, or another table.
    pub fn read(dir: &Path, variant: impl Into<String>) -> Result<RunResult, TableError> {
        let read = |table: Table| table.read_ipc(&dir.join(format!("{}.arrow", table.name())));
        let mut result = RunResult {
            variant: variant.into(),
            summary: read(Table::Summary)?,
            link_summary: read(Table::LinkSummary)?,
            ..RunResult::default()
        };
        result.read_intervals(dir)?;
        Ok(result)
    }

    /// Takes the tables of intervals, which grow with the length of the run, from `dir`.
    ///
    /// # Errors
    /// A file is missing, unreadable, or another table.
    pub fn read_intervals(&mut self, dir: &Path) -> Result<(), TableError> {
        let read = |table: Table| table.read_ipc(&dir.join(format!("{}.arrow", table.name())));
        (self.flows, self.links) = (read(Table::Flows)?, read(Table::Links)?);
        (self.control, self.hops) = (read(Table::Control)?, read(Table::Hops)?);
        Ok(())
    }
}
