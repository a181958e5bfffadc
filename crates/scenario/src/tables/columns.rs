//! Columns under construction.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, StringBuilder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, SchemaRef};

use super::TableError;
use super::rows::Row;
use super::schema::{ColumnKind, Table};

/// The columns of one table being filled row by row.
pub(super) struct Columns {
    table: Table,
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
}

impl Columns {
    pub(super) fn new(table: Table) -> Columns {
        let builders = table.columns().iter().map(|c| Builder::new(c.kind)).collect();
        Columns { table, schema: table.schema(), builders, rows: 0 }
    }

    /// Rows since the last [`Columns::take`].
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn push<R: Row>(&mut self, row: &R) {
        debug_assert_eq!(R::TABLE, self.table);
        let mut cells = Cells { left: self.builders.iter_mut() };
        row.write(&mut cells);
        debug_assert!(cells.left.next().is_none(), "a row leaves no column out");
        self.rows += 1;
    }

    /// The rows so far as a batch; the columns are empty again. Dictionaries keep their values, so that each batch's
    /// begins with the one before it, as the IPC file format demands.
    pub(super) fn take(&mut self) -> Result<RecordBatch, TableError> {
        self.rows = 0;
        let arrays: Result<_, _> = self.builders.iter_mut().map(Builder::take).collect();
        arrays
            .and_then(|arrays| RecordBatch::try_new(self.schema.clone(), arrays))
            .map_err(|e| TableError::Batch { table: self.table.name(), message: e.to_string() })
    }
}

/// Where a row writes its cells, from the first column to the last.
pub(super) struct Cells<'a> {
    left: std::slice::IterMut<'a, Builder>,
}

impl Cells<'_> {
    pub(super) fn text(&mut self, value: &str) {
        match self.left.next() {
            Some(Builder::Name(names)) => names.append(value),
            Some(Builder::Text(b)) => b.append_value(value),
            _ => debug_assert!(false, "a text where the table has none"),
        }
    }

    pub(super) fn number(&mut self, value: impl Into<Option<f64>>) {
        match self.left.next() {
            Some(Builder::Number(b)) => b.append_option(value.into()),
            _ => debug_assert!(false, "a number where the table has none"),
        }
    }

    pub(super) fn count(&mut self, value: impl Into<Option<u64>>) {
        match self.left.next() {
            Some(Builder::Count(b)) => b.append_option(value.into()),
            _ => debug_assert!(false, "a count where the table has none"),
        }
    }
}

enum Builder {
    Name(Names),
    Text(StringBuilder),
    Number(Float64Builder),
    Count(UInt64Builder),
}

impl Builder {
    fn new(kind: ColumnKind) -> Builder {
        match kind {
            ColumnKind::Name => Builder::Name(Names::default()),
            ColumnKind::Text => Builder::Text(StringBuilder::new()),
            ColumnKind::Number => Builder::Number(Float64Builder::new()),
            ColumnKind::Count => Builder::Count(UInt64Builder::new()),
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Builder::Name(names) => Arc::new(names.take()?),
            Builder::Text(b) => Arc::new(b.finish()),
            Builder::Number(b) => Arc::new(b.finish()),
            Builder::Count(b) => Arc::new(b.finish()),
        })
    }
}

/// A column of names that come again and again, in the same order: the name after the last one is tried before any
/// table is asked.
#[derive(Default)]
struct Names {
    rows: Vec<i32>,
    known: Vec<String>,
    keys: HashMap<String, i32>,
    /// The known names as Arrow wants them; every batch with no new name shares them.
    values: Option<Arc<StringArray>>,
}

impl Names {
    #[inline]
    fn append(&mut self, name: &str) {
        let guess = self.rows.last().map_or(0, |&last| last as usize + 1);
        let guess = if guess < self.known.len() { guess } else { 0 };
        let key = if self.known.get(guess).is_some_and(|known| known == name) {
            guess as i32
        } else {
            self.look_up(name)
        };
        self.rows.push(key);
    }

    fn look_up(&mut self, name: &str) -> i32 {
        if let Some(&key) = self.keys.get(name) {
            return key;
        }
        let key = self.known.len() as i32;
        self.known.push(name.to_string());
        self.keys.insert(name.to_string(), key);
        self.values = None;
        key
    }

    fn take(&mut self) -> Result<DictionaryArray<Int32Type>, ArrowError> {
        let values = match &self.values {
            Some(values) => Arc::clone(values),
            None => Arc::new(StringArray::from_iter_values(&self.known)),
        };
        self.values = Some(Arc::clone(&values));
        DictionaryArray::try_new(Int32Array::from(std::mem::take(&mut self.rows)), values)
    }
}
