//! Result tables: what a run leaves behind, streamed as it runs.
//!
//! | table | a row for each |
//! |---|---|
//! | [`Table::Flows`] | flow and measurement interval |
//! | [`Table::Links`] | link direction and measurement interval |
//! | [`Table::Control`] | control interval of a link with an explicit law |
//! | [`Table::Hops`] | direction of an overlay's hop and measurement interval |
//! | [`Table::Summary`] | flow, at the end |
//! | [`Table::LinkSummary`] | link direction, at the end |
//!
//! An engine pushes plain rows ([`FlowRow`], [`LinkRow`], [`ControlRow`], [`HopRow`], [`FlowSummary`], [`LinkSummary`]) into a [`TableWriter`],
//! which writes batches of a few thousand of them to CSV, Arrow IPC and (feature `parquet`) Parquet files, keeps them
//! in memory, or drops them, as [`Outputs`] says. With files alone, memory grows with the number of flow and link
//! *names*, not with simulated time. [`RunResult`] is what reports are made of, whether it stayed in memory or was
//! read back with [`Table::read_ipc`].
//!
//! A time stands for the end of its interval. Rates are at the link layer in units of 10⁶ bit/s, and every unit stands
//! in its column's name. A null is a number that does not exist (no RTT sample yet, no size given), never a zero.

mod columns;
mod csv;
mod export;
mod result;
mod schema;
mod sound;
mod systems;
mod writer;

pub use export::{EXPORTS, export};
pub use result::{RunResult, Unwritten};
pub use schema::{
    ColumnKind, ColumnSpec, ControlRow, Delays, Ends, FlowRow, FlowSummary, HopRow, LinkRow, LinkSummary,
    Spread, Table,
};
pub use systems::{Keys, SystemTables};
pub use writer::{Outputs, TableWriter};

use std::path::{Path, PathBuf};

/// Why a result table could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file system said no.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `create`, `write`, `read`, …
        action: &'static str,
        /// Which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Arrow could not write or read the file.
    #[error("cannot {action} {}: {message}", path.display())]
    Format {
        /// `write` or `read`.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the format's library said.
        message: String,
    },
    /// The file is a table, but not this one.
    #[error("{} is no table of {table}: {message}", path.display())]
    Schema {
        /// Which file.
        path: PathBuf,
        /// The name of the table that was expected.
        table: &'static str,
        /// What differs.
        message: String,
    },
    /// A batch could not be put together.
    #[error("cannot build a batch of the table of {table}: {message}")]
    Batch {
        /// The table's name.
        table: &'static str,
        /// What Arrow said.
        message: String,
    },
    /// Parquet was asked for in a build without it.
    #[error("this build cannot write Parquet: build it with the feature `parquet`, or ask for `ipc`")]
    NoParquet,
}

impl TableError {
    fn io(action: &'static str, path: &Path, source: std::io::Error) -> TableError {
        TableError::Io { action, path: path.to_path_buf(), source }
    }

    fn format(action: &'static str, path: &Path, error: impl std::fmt::Display) -> TableError {
        TableError::Format { action, path: path.to_path_buf(), message: error.to_string() }
    }
}
