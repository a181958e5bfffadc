//! What a run leaves behind.

use std::collections::BTreeMap;
use std::path::Path;

use arrow_array::RecordBatch;

use super::TableError;
use super::schema::Table;

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
    /// Batches of [`Table::Summary`].
    pub summary: Vec<RecordBatch>,
    /// Batches of [`Table::LinkSummary`].
    pub link_summary: Vec<RecordBatch>,
    /// Numbers that fit no table, by name: `law-divergence.bottleneck`, `codec.failures`.
    pub extra: BTreeMap<String, f64>,
    /// Anything else worth showing: seed, engine, events, wall time.
    pub meta: serde_json::Value,
}

impl RunResult {
    /// The tables of `dir` as [`TableWriter`](super::TableWriter) wrote them in Arrow IPC; `extra` and `meta`
    /// stay empty.
    ///
    /// # Errors
    /// A file is missing, unreadable, or another table.
    pub fn read(dir: &Path, variant: impl Into<String>) -> Result<RunResult, TableError> {
        let read = |table: Table| table.read_ipc(&dir.join(format!("{}.arrow", table.name())));
        Ok(RunResult {
            flows: read(Table::Flows)?,
            links: read(Table::Links)?,
            control: read(Table::Control)?,
            ..RunResult::read_summaries(dir, variant)?
        })
    }

    /// The same without the tables of intervals, which grow with the length of the run.
    ///
    /// # Errors
    /// A file is missing, unreadable, or another table.
    pub fn read_summaries(dir: &Path, variant: impl Into<String>) -> Result<RunResult, TableError> {
        let read = |table: Table| table.read_ipc(&dir.join(format!("{}.arrow", table.name())));
        Ok(RunResult {
            variant: variant.into(),
            summary: read(Table::Summary)?,
            link_summary: read(Table::LinkSummary)?,
            ..RunResult::default()
        })
    }
}
