//! Columns under construction.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, UInt64Type};
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, PrimitiveArray, RecordBatch, StringArray};
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
    #[inline]
    pub(super) fn text(&mut self, value: &str) {
        match self.left.next() {
            Some(Builder::Name(names)) => names.append(value),
            Some(Builder::Text(b)) => b.append_value(value),
            _ => debug_assert!(false, "a text where the table has none"),
        }
    }

    #[inline]
    pub(super) fn number(&mut self, value: impl Into<Option<f64>>) {
        match self.left.next() {
            Some(Builder::Number(b)) => b.append(value.into()),
            _ => debug_assert!(false, "a number where the table has none"),
        }
    }

    #[inline]
    pub(super) fn count(&mut self, value: impl Into<Option<u64>>) {
        match self.left.next() {
            Some(Builder::Count(b)) => b.append(value.into()),
            _ => debug_assert!(false, "a count where the table has none"),
        }
    }
}

enum Builder {
    Name(Names),
    Text(StringBuilder),
    Number(Values<Float64Type>),
    Count(Values<UInt64Type>),
}

impl Builder {
    fn new(kind: ColumnKind) -> Builder {
        match kind {
            ColumnKind::Name => Builder::Name(Names::default()),
            ColumnKind::Text => Builder::Text(StringBuilder::new()),
            ColumnKind::Number => Builder::Number(Values::default()),
            ColumnKind::Count => Builder::Count(Values::default()),
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Builder::Name(names) => Arc::new(names.take()?),
            Builder::Text(b) => Arc::new(b.finish()),
            Builder::Number(b) => Arc::new(b.take()?),
            Builder::Count(b) => Arc::new(b.take()?),
        })
    }
}

/// A column of numbers: plain vectors, which Arrow takes over as they are. A cell costs a store, not a builder's
/// bookkeeping.
struct Values<T: ArrowPrimitiveType> {
    rows: Vec<T::Native>,
    /// Which rows have a value; shorter than `rows` while all that follow have one.
    there: Vec<bool>,
}

impl<T: ArrowPrimitiveType> Default for Values<T> {
    fn default() -> Values<T> {
        Values { rows: Vec::new(), there: Vec::new() }
    }
}

impl<T: ArrowPrimitiveType> Values<T> {
    #[inline]
    fn append(&mut self, value: Option<T::Native>) {
        match value {
            Some(value) => self.rows.push(value),
            None => self.append_null(),
        }
    }

    #[inline]
    fn append_null(&mut self) {
        self.there.resize(self.rows.len(), true);
        self.there.push(false);
        self.rows.push(T::Native::default());
    }

    fn take(&mut self) -> Result<PrimitiveArray<T>, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let mut there = std::mem::take(&mut self.there);
        if there.is_empty() {
            return PrimitiveArray::try_new(rows.into(), None);
        }
        there.resize(rows.len(), true);
        PrimitiveArray::try_new(rows.into(), Some(there.into()))
    }
}

/// A column of names that come again and again, in the same order: the name that followed the last one before is tried
/// before any table is asked.
#[derive(Default)]
struct Names {
    rows: Vec<i32>,
    last: i32,
    known: Vec<String>,
    /// By name, the one that followed it last.
    next: Vec<i32>,
    keys: HashMap<String, i32>,
    /// The known names as Arrow wants them; every batch with no new name shares them.
    values: Option<Arc<StringArray>>,
}

impl Names {
    #[inline]
    fn append(&mut self, name: &str) {
        let guess = self.next.get(self.last as usize).copied().unwrap_or(0);
        let key = match self.known.get(guess as usize) {
            Some(known) if known == name => guess,
            _ => self.look_up(name),
        };
        self.rows.push(key);
        self.last = key;
    }

    fn look_up(&mut self, name: &str) -> i32 {
        let key = match self.keys.get(name) {
            Some(&key) => key,
            None => self.learn(name),
        };
        self.next[self.last as usize] = key;
        key
    }

    fn learn(&mut self, name: &str) -> i32 {
        let key = self.known.len() as i32;
        self.known.push(name.to_string());
        self.next.push(0);
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
