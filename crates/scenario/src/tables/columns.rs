//! Columns under construction.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, UInt64Type};
use arrow_array::{
    Array as _, ArrayRef, ArrowNativeTypeOp as _, DictionaryArray, Int32Array, PrimitiveArray, RecordBatch,
    StringArray,
};
use arrow_schema::{ArrowError, Fields, Schema, SchemaRef};

use super::TableError;
use super::schema::{ColumnKind, ColumnSpec, Table};

/// The columns of one table, filled row by row.
pub(super) struct Columns {
    table: Table,
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
}

impl Columns {
    /// Returns the columns of `table` for which `wanted` is true; cells of other columns are
    /// dropped.
    pub(super) fn new(table: Table, wanted: impl Fn(&str) -> bool) -> Columns {
        let builder = |c: &ColumnSpec| if wanted(c.name) { Builder::new(c.kind) } else { Builder::Unwanted };
        let builders = table.columns().iter().map(builder).collect();
        let schema = table.schema();
        let fields = schema.fields().iter().filter(|field| wanted(field.name())).cloned();
        Columns { table, schema: Arc::new(Schema::new(fields.collect::<Fields>())), builders, rows: 0 }
    }

    /// Number of rows since the last [`Columns::take`].
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn push<R: Row>(&mut self, rows: impl ExactSizeIterator<Item = R> + Clone) {
        debug_assert_eq!(R::TABLE, self.table);
        self.rows += rows.len();
        let mut cells = Cells { left: self.builders.iter_mut() };
        R::write(rows, &mut cells);
        debug_assert!(cells.left.next().is_none(), "a row leaves no column out");
    }

    /// Returns the rows so far as a batch, and empties the columns, with room for `next` rows.
    ///
    /// Dictionaries keep their values: each batch's dictionary begins with that of the previous
    /// batch, as the IPC file format requires.
    pub(super) fn take(&mut self, next: usize) -> Result<RecordBatch, TableError> {
        self.rows = 0;
        let arrays: Result<_, _> =
            self.builders.iter_mut().filter_map(|builder| builder.take(next)).collect();
        arrays
            .and_then(|arrays| RecordBatch::try_new(self.schema.clone(), arrays))
            .map_err(|e| self.error(&e))
    }

    /// The error of a failed batch.
    pub(super) fn error(&self, error: &ArrowError) -> TableError {
        TableError::Batch { table: self.table.name(), message: error.to_string() }
    }
}

/// A row of a known table. Rows write their cells by column, in the table's order, so that a column
/// is looked up once for many cells.
pub(super) trait Row: Sized {
    const TABLE: Table;

    fn write(rows: impl Iterator<Item = Self> + Clone, cells: &mut Cells<'_>);
}

/// The columns for the rows' cells, from first to last.
pub(super) struct Cells<'a> {
    left: std::slice::IterMut<'a, Builder>,
}

impl Cells<'_> {
    pub(super) fn texts<'b>(&mut self, values: impl Iterator<Item = &'b str>) {
        match self.left.next() {
            Some(Builder::Name(names)) => values.for_each(|value| names.append(value)),
            Some(Builder::Text(b)) => values.for_each(|value| b.append_value(value)),
            Some(Builder::Unwanted) => {}
            _ => debug_assert!(false, "a text where the table has none"),
        }
    }

    pub(super) fn numbers<T: Into<Option<f64>>>(&mut self, values: impl Iterator<Item = T>) {
        match self.left.next() {
            Some(Builder::Number(b)) => values.for_each(|value| b.append(value.into())),
            Some(Builder::Unwanted) => {}
            _ => debug_assert!(false, "a number where the table has none"),
        }
    }

    pub(super) fn counts<T: Into<Option<u64>>>(&mut self, values: impl Iterator<Item = T>) {
        match self.left.next() {
            Some(Builder::Count(b)) => values.for_each(|value| b.append(value.into())),
            Some(Builder::Unwanted) => {}
            _ => debug_assert!(false, "a count where the table has none"),
        }
    }
}

enum Builder {
    Name(Names),
    Text(StringBuilder),
    Number(Values<Float64Type>),
    Count(Values<UInt64Type>),
    Unwanted,
}

impl Builder {
    fn new(kind: ColumnKind) -> Builder {
        match kind {
            ColumnKind::Name => Builder::Name(Names::default()),
            ColumnKind::Text => Builder::Text(StringBuilder::with_capacity(0, 0)),
            ColumnKind::Number => Builder::Number(Values::default()),
            ColumnKind::Count => Builder::Count(Values::default()),
        }
    }

    /// Returns the rows so far; `None` for an unwanted column.
    fn take(&mut self, next: usize) -> Option<Result<ArrayRef, ArrowError>> {
        Some(match self {
            Builder::Name(names) => names.take(next).map(|array| Arc::new(array) as ArrayRef),
            Builder::Text(b) => {
                // Texts are stored for each row: reserve the size of the last batch, not twice
                // that.
                let bytes = if next == 0 { 0 } else { b.values_slice().len() + b.values_slice().len() / 8 };
                let mut full = std::mem::replace(b, StringBuilder::with_capacity(next, bytes));
                Ok(Arc::new(full.finish()) as ArrayRef)
            }
            Builder::Number(b) => b.take(next).map(|array| Arc::new(array) as ArrayRef),
            Builder::Count(b) => b.take(next).map(|array| Arc::new(array) as ArrayRef),
            Builder::Unwanted => return None,
        })
    }
}

/// A column of numbers, as plain vectors that Arrow takes over without a copy.
///
/// A cell costs a store, without a builder's bookkeeping. A missing cell costs only a count while
/// no row has a value, which holds for most columns that can lack values.
struct Values<T: ArrowPrimitiveType> {
    rows: Vec<T::Native>,
    /// True for rows with a value; shorter than `rows` while all later rows have one.
    there: Vec<bool>,
    /// Number of rows without a value before the first value; `rows` begins after them.
    missing: usize,
    /// The last batch of one value, or of none; equal batches share it.
    even: PrimitiveArray<T>,
}

impl<T: ArrowPrimitiveType> Default for Values<T> {
    fn default() -> Values<T> {
        Values { rows: Vec::new(), there: Vec::new(), missing: 0, even: PrimitiveArray::new_null(0) }
    }
}

impl<T: ArrowPrimitiveType> Values<T> {
    #[inline]
    fn append(&mut self, value: Option<T::Native>) {
        match value {
            Some(value) => {
                if self.missing > 0 {
                    self.make_up();
                }
                self.rows.push(value);
            }
            None if self.rows.is_empty() => self.missing += 1,
            None => self.append_null(),
        }
    }

    #[inline]
    fn append_null(&mut self) {
        self.there.resize(self.rows.len(), true);
        self.there.push(false);
        self.rows.push(T::Native::default());
    }

    /// Adds the rows without a value before the first value.
    #[cold]
    fn make_up(&mut self) {
        let missing = std::mem::take(&mut self.missing);
        self.rows.resize(missing, T::Native::default());
        self.there.resize(missing, false);
    }

    fn take(&mut self, next: usize) -> Result<PrimitiveArray<T>, ArrowError> {
        if self.missing > 0 {
            let missing = std::mem::take(&mut self.missing);
            if self.even.null_count() != missing {
                self.even = PrimitiveArray::new_null(missing);
            }
            return Ok(self.even.clone());
        }
        let mut there = std::mem::take(&mut self.there);
        let even = self
            .rows
            .first()
            .copied()
            .filter(|value| there.is_empty() && self.rows.iter().all(|other| other.is_eq(*value)));
        let known = self.even.values();
        if even.is_some_and(|value| known.len() == self.rows.len() && known[0].is_eq(value))
            && self.even.null_count() == 0
        {
            self.rows.clear();
            return Ok(self.even.clone());
        }
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(next));
        if there.is_empty() {
            let array = PrimitiveArray::try_new(rows.into(), None)?;
            if even.is_some() {
                self.even = array.clone();
            }
            return Ok(array);
        }
        there.resize(rows.len(), true);
        PrimitiveArray::try_new(rows.into(), Some(there.into()))
    }
}

/// A column of recurring names, usually in the same order. The successor of the previous name is
/// compared first, before any lookup.
#[derive(Default)]
struct Names {
    rows: Vec<i32>,
    last: i32,
    known: Known,
    /// By name: its latest successor.
    next: Vec<i32>,
    keys: HashMap<String, i32>,
    /// The known names as an Arrow array; batches without a new name share it.
    values: Option<Arc<StringArray>>,
}

impl Names {
    #[inline]
    fn append(&mut self, name: &str) {
        let guess = self.next.get(self.last as usize).copied().unwrap_or(0);
        let key = match self.known.is(guess, name) {
            true => guess,
            false => self.look_up(name),
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
        let key = self.known.push(name);
        self.next.push(0);
        self.keys.insert(name.to_string(), key);
        self.values = None;
        key
    }

    fn take(&mut self, next: usize) -> Result<DictionaryArray<Int32Type>, ArrowError> {
        let values = match &self.values {
            Some(values) => Arc::clone(values),
            None => Arc::new(StringArray::from_iter_values(self.known.iter())),
        };
        self.values = Some(Arc::clone(&values));
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(next));
        DictionaryArray::try_new(Int32Array::from(rows), values)
    }
}

/// Texts in one allocation, which a comparison reads in order.
#[derive(Default)]
struct Known {
    text: String,
    /// Start and end of each text.
    spans: Vec<(u32, u32)>,
}

impl Known {
    /// Adds a text; returns its number.
    fn push(&mut self, text: &str) -> i32 {
        let begin = self.text.len() as u32;
        self.text.push_str(text);
        self.spans.push((begin, self.text.len() as u32));
        self.spans.len() as i32 - 1
    }

    /// Returns true if text `number` exists and equals `text`.
    #[inline]
    fn is(&self, number: i32, text: &str) -> bool {
        self.spans.get(number as usize).is_some_and(|&(begin, end)| {
            self.text.as_bytes()[begin as usize..end as usize] == *text.as_bytes()
        })
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        self.spans.iter().map(|&(begin, end)| &self.text[begin as usize..end as usize])
    }
}
