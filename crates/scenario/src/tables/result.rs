//! The results of a run.

use std::fmt;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use super::schema::Table;
use super::{SystemTables, TableError};

/// A run's tables and other figures: the input of claims, plots and terminal tables.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Name of the variant; empty if the scenario has no variants.
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
    /// Times at which the scenario changes links, flows and hosts, s.
    pub changes: Vec<f64>,
    /// Files that are missing or incomplete.
    pub unwritten: Vec<Unwritten>,
}

/// A file that could not be written completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The file.
    pub path: PathBuf,
    /// The error, with the file's name.
    pub error: String,
}

impl Unwritten {
    /// Returns an error about the file at `path`.
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
    /// Reads the tables in `dir`, Arrow IPC files of [`TableWriter`](super::TableWriter). `systems`
    /// and `changes` stay empty.
    ///
    /// # Errors
    /// A file is missing, unreadable, or holds another table.
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

    /// Replaces the interval tables, which grow with the length of the run, by those in `dir`.
    ///
    /// # Errors
    /// A file is missing, unreadable, or holds another table.
    pub fn read_intervals(&mut self, dir: &Path) -> Result<(), TableError> {
        let read = |table: Table| table.read_ipc(&dir.join(format!("{}.arrow", table.name())));
        (self.flows, self.links) = (read(Table::Flows)?, read(Table::Links)?);
        (self.control, self.hops) = (read(Table::Control)?, read(Table::Hops)?);
        Ok(())
    }
}
