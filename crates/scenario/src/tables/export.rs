//! Export of a table with any columns to one file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;

use super::{TableError, csv};

/// The file extensions that [`export`] supports.
pub const EXPORTS: [&str; 2] = ["csv", "arrow"];

/// Writes `batch` to `path` as CSV (`.csv`) or Arrow IPC (`.arrow`).
///
/// The file appears only when complete: it is written beside `path` and then moved there.
///
/// # Errors
/// The extension is not supported, or the file cannot be written.
pub fn export(path: &Path, batch: &RecordBatch) -> Result<(), TableError> {
    let ending = path.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let io = |action, e| TableError::io(action, path, e);
    let mut out = BufWriter::new(File::create(&part).map_err(|e| io("create", e))?);
    match ending.as_str() {
        "csv" => {
            let names = batch.schema_ref().fields().iter().map(|field| field.name().clone());
            csv::write_names(&mut out, names).map_err(|e| io("write", e))?;
            csv::write_batch(&mut out, batch).map_err(|e| io("write", e))?;
        }
        "arrow" => {
            let format = |e: arrow_schema::ArrowError| TableError::format("write", path, e);
            let mut writer = FileWriter::try_new(&mut out, batch.schema_ref()).map_err(format)?;
            writer.write(batch).and_then(|()| writer.finish()).map_err(format)?;
        }
        other => {
            let message = format!("`.{other}` is not the extension of a table; use `.csv` or `.arrow`");
            return Err(TableError::format("write", path, message));
        }
    }
    out.flush().map_err(|e| io("write", e))?;
    drop(out);
    std::fs::rename(&part, path).map_err(|e| io("write", e))
}
