//! Columns under construction.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, UInt64Type};
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, Fields, Schema, SchemaRef};

use super::TableError;
use super::schema::{ColumnKind, ColumnSpec, Table};

/// The columns of one table being filled row by row.
pub(super) struct Columns {
    table: Table,
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
}

impl Columns {
    /// All columns of `table` for which `wanted` holds; the cells of others are dropped.
    pub(super) fn new(table: Table, wanted: impl Fn(&str) -> bool) -> Columns {
        let builder = |c: &ColumnSpec| if wanted(c.name) { Builder::new(c.kind) } else { Builder::Unwanted };
        let builders = table.columns().iter().map(builder).collect();
        let schema = table.schema();
        let fields = schema.fields().iter().filter(|field| wanted(field.name())).cloned();
        Columns { table, schema: Arc::new(Schema::new(fields.collect::<Fields>())), builders, rows: 0 }
    }

    /// Rows since the last [`Columns::take`].
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn push<R: Row>(&mut self, rows: &[R]) {
        debug_assert_eq!(R::TABLE, self.table);
        let mut cells = Cells { left: self.builders.iter_mut() };
        R::write(rows, &mut cells);
        debug_assert!(cells.left.next().is_none(), "a row leaves no column out");
        self.rows += rows.len();
    }

    /// The rows so far as a batch; the columns are empty again. Dictionaries keep their values, so that each batch's
    /// begins with the one before it, as the IPC file format demands. With room for `next` rows at once.
    pub(super) fn take(&mut self, next: usize) -> Result<RecordBatch, TableError> {
        self.rows = 0;
        let arrays: Result<_, _> =
            self.builders.iter_mut().filter_map(|builder| builder.take(next)).collect();
        arrays
            .and_then(|arrays| RecordBatch::try_new(self.schema.clone(), arrays))
            .map_err(|e| self.error(&e))
    }

    /// Why a batch could not be put together.
    pub(super) fn error(&self, error: &ArrowError) -> TableError {
        TableError::Batch { table: self.table.name(), message: error.to_string() }
    }
}

/// A row that knows its table. Rows write their cells column by column, in the order of the table's columns: what a column is
/// gets looked up once for many cells.
pub(super) trait Row: Sized {
    const TABLE: Table;

    fn write(rows: &[Self], cells: &mut Cells<'_>);
}

/// The columns that rows write their cells to, from the first to the last.
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

    /// The rows so far, unless nobody wants them.
    fn take(&mut self, next: usize) -> Option<Result<ArrayRef, ArrowError>> {
        Some(match self {
            Builder::Name(names) => names.take(next).map(|array| Arc::new(array) as ArrayRef),
            Builder::Text(b) => {
                // Texts are kept for each row: as much room as the last batch took, not twice that.
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

/// A column of numbers: plain vectors, which Arrow takes over as they are. A cell costs a store, not a builder's
/// bookkeeping; a missing one only a count while no row has a value, as in most columns that can lack one.
struct Values<T: ArrowPrimitiveType> {
    rows: Vec<T::Native>,
    /// Which rows have a value; shorter than `rows` while all that follow have one.
    there: Vec<bool>,
    /// Rows without a value; `rows` begins after them, when they are made up for.
    missing: usize,
    /// The last batch without any value: others of its length share it.
    blank: PrimitiveArray<T>,
}

impl<T: ArrowPrimitiveType> Default for Values<T> {
    fn default() -> Values<T> {
        Values { rows: Vec::new(), there: Vec::new(), missing: 0, blank: PrimitiveArray::new_null(0) }
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

    /// The first value comes after rows that have none.
    #[cold]
    fn make_up(&mut self) {
        let missing = std::mem::take(&mut self.missing);
        self.rows.resize(missing, T::Native::default());
        self.there.resize(missing, false);
    }

    fn take(&mut self, next: usize) -> Result<PrimitiveArray<T>, ArrowError> {
        if self.missing > 0 {
            let missing = std::mem::take(&mut self.missing);
            if self.blank.len() != missing {
                self.blank = PrimitiveArray::new_null(missing);
            }
            return Ok(self.blank.clone());
        }
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(next));
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
    known: Known,
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

/// Texts one after the other, as they are looked at.
#[derive(Default)]
struct Known {
    text: String,
    /// Where each begins and ends.
    spans: Vec<(u32, u32)>,
}

impl Known {
    /// Adds a text; answers its number.
    fn push(&mut self, text: &str) -> i32 {
        let begin = self.text.len() as u32;
        self.text.push_str(text);
        self.spans.push((begin, self.text.len() as u32));
        self.spans.len() as i32 - 1
    }

    /// Whether the text `number` is there and is `text`.
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
