//! The tidy table: what was varied, then what came of it.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Map, Value};
use tollway_scenario::tables::{ColumnKind, Table, TableError};

use super::journal::Done;
use super::{Point, Vary};

/// A row a run and flow ([`Table::Summary`]) or a run and link: a column for each varied key, `variant` if there are any,
/// `seed`, and the columns of `table`.
///
/// # Errors
/// The columns fit no batch, which cannot be.
pub(super) fn batch(
    table: Table,
    vary: &[Vary],
    rows: &[(&Point, &Done)],
) -> Result<RecordBatch, TableError> {
    let of = |done: &Done| -> Vec<Map<String, Value>> {
        if table == Table::Summary { done.flows.clone() } else { done.links.clone() }
    };
    let rows: Vec<(&Point, Map<String, Value>)> =
        rows.iter().flat_map(|(point, done)| of(done).into_iter().map(|row| (*point, row))).collect();
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    let mut add = |name: &str, column: ArrayRef, nullable| {
        fields.push(Field::new(name, column.data_type().clone(), nullable));
        columns.push(column);
    };
    for (i, vary) in vary.iter().enumerate() {
        // Plain numbers are numbers; what has a unit is text, as it was given.
        let column: ArrayRef = match vary.values.iter().all(|value| is_number(value)) {
            true => Arc::new(Float64Array::from_iter_values(
                rows.iter().map(|(point, _)| point.values[i].parse().unwrap_or(f64::NAN)),
            )),
            false => Arc::new(StringArray::from_iter_values(rows.iter().map(|(point, _)| &point.values[i]))),
        };
        add(&vary.key, column, false);
    }
    if rows.iter().any(|(point, _)| !point.variant.is_empty()) {
        add("variant", Arc::new(StringArray::from_iter_values(rows.iter().map(|(p, _)| &p.variant))), false);
    }
    add("seed", Arc::new(UInt64Array::from_iter_values(rows.iter().map(|(point, _)| point.seed))), false);
    for spec in table.columns() {
        let cells = rows.iter().map(|(_, row)| row.get(spec.name).unwrap_or(&Value::Null));
        let column: ArrayRef = match spec.kind.data_type() {
            DataType::Float64 => Arc::new(cells.map(Value::as_f64).collect::<Float64Array>()),
            DataType::UInt64 => Arc::new(cells.map(Value::as_u64).collect::<UInt64Array>()),
            _ => Arc::new(cells.map(Value::as_str).collect::<StringArray>()),
        };
        debug_assert!(matches!(spec.kind, ColumnKind::Number | ColumnKind::Count | ColumnKind::Text));
        add(spec.name, column, spec.nullable);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|e| TableError::Batch { table: table.name(), message: e.to_string() })
}

/// Whether a value is a number that a column of numbers has as it is: not every whole one beyond 2^53.
fn is_number(value: &str) -> bool {
    value.parse().is_ok_and(|number: f64| value.parse().map_or(true, |whole: i128| whole == number as i128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_that_floats_do_not_have_are_no_numbers() {
        for value in ["1", "-2.5", "1e300", "9007199254740992", "9007199254740994"] {
            assert!(is_number(value), "{value}");
        }
        for value in ["10 Mbps", "", "9007199254740993", "-9007199254740993", "9223372036854775807"] {
            assert!(!is_number(value), "{value}");
        }
    }
}
