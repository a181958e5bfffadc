//! The columns of the result tables.

mod rows;

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::{TableError, sound};
use rows::{CONTROL, FLOWS, HOPS, LINK_SUMMARY, LINKS, SUMMARY};
pub use rows::{
    ControlRow, Delays, Ends, FlowRow, FlowSummary, HopRow, LinkRow, LinkSummary, OneWayDelays, Percentiles,
};

/// One of the result tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// A row for each flow and interval.
    Flows,
    /// A row for each link direction and interval.
    Links,
    /// A row for each control interval of an explicit law.
    Control,
    /// A row for each direction of an overlay's hop and interval.
    Hops,
    /// A row for each flow, at the end.
    Summary,
    /// A row for each link direction, at the end.
    LinkSummary,
}

impl Table {
    /// All tables, in the order of the documentation.
    pub const ALL: [Table; 6] =
        [Table::Flows, Table::Links, Table::Control, Table::Hops, Table::Summary, Table::LinkSummary];

    /// The table's name, which is also its file's name without extension: `flows`, `links`,
    /// `control`, `hops`, `summary`, `link_summary`.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Flows => "flows",
            Table::Links => "links",
            Table::Control => "control",
            Table::Hops => "hops",
            Table::Summary => "summary",
            Table::LinkSummary => "link_summary",
        }
    }

    /// Its columns in order.
    pub const fn columns(self) -> &'static [ColumnSpec] {
        match self {
            Table::Flows => FLOWS,
            Table::Links => LINKS,
            Table::Control => CONTROL,
            Table::Hops => HOPS,
            Table::Summary => SUMMARY,
            Table::LinkSummary => LINK_SUMMARY,
        }
    }

    /// Its Arrow schema.
    pub fn schema(self) -> SchemaRef {
        let field = |c: &ColumnSpec| Field::new(c.name, c.kind.data_type(), c.nullable);
        Arc::new(Schema::new(self.columns().iter().map(field).collect::<Vec<_>>()))
    }

    /// Reads all batches of the Arrow IPC file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened or read, or has other columns than this table.
    pub fn read_ipc(self, path: &Path) -> Result<Vec<RecordBatch>, TableError> {
        let file = File::open(path).map_err(|e| TableError::io("open", path, e))?;
        self.read_from(BufReader::new(file), path)
    }

    /// Reads all batches from `file`; errors name `path`.
    ///
    /// # Errors
    /// `file` cannot be read, or has other columns than this table.
    pub fn read_from(self, mut file: impl Read + Seek, path: &Path) -> Result<Vec<RecordBatch>, TableError> {
        sound::check(&mut file).map_err(|e| TableError::format("read", path, e))?;
        let reader = FileReader::try_new(file, None).map_err(|e| TableError::format("read", path, e))?;
        let (found, wanted) = (reader.schema(), self.schema());
        for field in wanted.fields() {
            let message = match found.field_with_name(field.name()) {
                Err(_) => format!("it has no column `{}`", field.name()),
                Ok(f) if f.data_type() != field.data_type() => {
                    format!(
                        "its column `{}` holds {}, not {}",
                        field.name(),
                        f.data_type(),
                        field.data_type()
                    )
                }
                Ok(_) => continue,
            };
            return Err(TableError::Schema { path: path.to_path_buf(), table: self.name(), message });
        }
        reader.map(|batch| batch.map_err(|e| TableError::format("read", path, e))).collect()
    }
}

/// A column: its name with its unit, and its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// The name; ends in the unit if there is one.
    pub name: &'static str,
    /// The type of its cells.
    pub kind: ColumnKind,
    /// True if a cell may be null.
    pub nullable: bool,
    /// A description in one line.
    pub says: &'static str,
}

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A recurring name: a dictionary of UTF-8 with 32-bit keys.
    Name,
    /// A text.
    Text,
    /// A 64-bit float.
    Number,
    /// An unsigned 64-bit count.
    Count,
}

impl ColumnKind {
    /// The Arrow type.
    pub fn data_type(self) -> DataType {
        match self {
            ColumnKind::Name => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            ColumnKind::Text => DataType::Utf8,
            ColumnKind::Number => DataType::Float64,
            ColumnKind::Count => DataType::UInt64,
        }
    }
}
