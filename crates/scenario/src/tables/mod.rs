//! Result tables of a run, written while it runs.
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
//! An engine pushes plain rows ([`FlowRow`], [`LinkRow`], [`ControlRow`], [`HopRow`],
//! [`FlowSummary`], [`LinkSummary`]) into a [`TableWriter`]. The writer makes batches of a few
//! thousand rows. It writes them to CSV, Arrow IPC and (feature `parquet`) Parquet files, keeps
//! them in memory, or drops them; [`Outputs`] decides.
//!
//! If only files are written, memory grows with the number of flow and link *names*, not with
//! simulated time. A [`RunResult`] is the input of reports. It is kept in memory or read back with
//! [`Table::read_ipc`].
//!
//! A time is the end of its interval. Rates are link-layer rates in units of 10⁶ bit/s. Every unit
//! is part of its column's name. A null is a number that does not exist (no RTT sample yet, no size
//! given), never a zero.

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
    OneWayDelays, Percentiles, Table,
};
pub use systems::{Keys, SystemTables};
pub use writer::{Outputs, TableWriter};

use std::path::{Path, PathBuf};

/// The reason why a result table could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file system reported an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `create`, `write`, `read`, …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Arrow could not write or read the file.
    #[error("cannot {action} {}: {message}", path.display())]
    Format {
        /// `write` or `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the format's library.
        message: String,
    },
    /// The file has another table's columns.
    #[error("{} is not a table of {table}: {message}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The name of the table that was expected.
        table: &'static str,
        /// The difference.
        message: String,
    },
    /// A batch could not be built.
    #[error("cannot build a batch of the table of {table}: {message}")]
    Batch {
        /// The table's name.
        table: &'static str,
        /// Arrow's error.
        message: String,
    },
    /// This build cannot write Parquet.
    #[error("this build cannot write Parquet: build it with the feature `parquet`, or choose `ipc`")]
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
