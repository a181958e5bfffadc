//! CSV according to RFC 4180, except that lines end in a line feed only. Floats have the shortest
//! form that reads back to the same bits, so that equal runs give equal files.

use std::io::{self, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, Float64Array, Int32Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::DataType;

use super::schema::Table;

/// The header line of `table`.
pub(super) fn write_header(out: &mut impl Write, table: Table) -> io::Result<()> {
    write_names(out, table.columns().iter().map(|column| column.name))
}

/// Writes a header line of any column names.
pub(super) fn write_names<S: AsRef<str>>(
    out: &mut impl Write,
    names: impl Iterator<Item = S>,
) -> io::Result<()> {
    for (i, name) in names.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        write_text(out, name.as_ref())?;
    }
    writeln!(out)
}

/// Writes the rows of `batch`; a null is an empty cell.
pub(super) fn write_batch(out: &mut impl Write, batch: &RecordBatch) -> io::Result<()> {
    let columns: Vec<Column<'_>> = batch.columns().iter().map(|c| Column::new(c)).collect();
    for row in 0..batch.num_rows() {
        for (i, column) in columns.iter().enumerate() {
            if i > 0 {
                out.write_all(b",")?;
            }
            column.write(out, row)?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A column's array in its concrete type, looked up once for each batch.
enum Column<'a> {
    Name(&'a Int32Array, Option<&'a StringArray>),
    Text(&'a StringArray),
    Number(&'a Float64Array),
    Count(&'a UInt64Array),
    Unknown,
}

impl<'a> Column<'a> {
    fn new(array: &'a dyn Array) -> Column<'a> {
        match array.data_type() {
            DataType::Dictionary(..) => match array.as_dictionary_opt::<Int32Type>() {
                Some(d) => Column::Name(d.keys(), d.values().as_string_opt()),
                None => Column::Unknown,
            },
            DataType::Utf8 => Column::Text(array.as_string()),
            DataType::Float64 => Column::Number(array.as_primitive::<Float64Type>()),
            DataType::UInt64 => Column::Count(array.as_primitive::<UInt64Type>()),
            _ => Column::Unknown,
        }
    }

    fn write(&self, out: &mut impl Write, row: usize) -> io::Result<()> {
        match self {
            Column::Name(keys, Some(names)) if keys.is_valid(row) => {
                write_text(out, names.value(keys.value(row) as usize))
            }
            Column::Text(a) if a.is_valid(row) => write_text(out, a.value(row)),
            Column::Number(a) if a.is_valid(row) => write!(out, "{}", a.value(row)),
            Column::Count(a) if a.is_valid(row) => write!(out, "{}", a.value(row)),
            _ => Ok(()),
        }
    }
}

fn write_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    if text.contains([',', '"', '\n', '\r']) {
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    } else {
        out.write_all(text.as_bytes())
    }
}
