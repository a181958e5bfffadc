//! The tidy table of a sweep: varied keys, then results.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Map, Value};
use tollway_law::{Bytes, Rate, Time};
use tollway_scenario::tables::{ColumnKind, Table, TableError};

use super::journal::Done;
use super::{Point, Vary};

/// Makes a table with one row per run and flow ([`Table::Summary`]), or per run and link. It has a
/// column for each varied key, `variant` if there are variants, `seed`, and the columns of `table`.
///
/// # Errors
/// The columns do not fit into a batch, which cannot happen.
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
        let (name, numbers) = column(&vary.key, &vary.values);
        let given = rows.iter().map(|(point, _)| &point.values[i]);
        let column: ArrayRef = match numbers {
            Some(numbers) => {
                let number =
                    |value| vary.values.iter().position(|v| v == value).map_or(f64::NAN, |at| numbers[at]);
                Arc::new(Float64Array::from_iter_values(given.map(number)))
            }
            None => Arc::new(StringArray::from_iter_values(given)),
        };
        add(&name, column, false);
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

/// The column of a varied key: its name, and a number for each of `values`. Plain numbers keep the
/// key's name. Quantities of one kind get a common unit, which the name ends in:
/// `link.wire.rate_mbps`. Other values are texts, without numbers.
pub fn column(key: &str, values: &[String]) -> (String, Option<Vec<f64>>) {
    let all = |number: Number<'_>| values.iter().map(|value| number(value)).collect();
    if let Some(numbers) = all(&|value| value.parse().ok().filter(|_| is_number(value))) {
        return (key.to_owned(), Some(numbers));
    }
    let units: [(&str, Number<'_>); 6] = [
        ("mbps", &|value| value.parse().ok().map(Rate::mbps)),
        ("ms", &|value| value.parse().ok().map(Time::as_millis_f64)),
        ("bytes", &|value| value.parse().ok().map(|bytes: Bytes| bytes.get() as f64)),
        ("packets", &|value| counted(value, &["packets", "packet", "pkts"])),
        ("bdp", &|value| counted(value, &["bdp"])),
        ("percent", &|value| counted(value, &["%"])),
    ];
    let found = units.iter().find_map(|(unit, number)| Some((format!("{key}_{unit}"), Some(all(*number)?))));
    found.unwrap_or_else(|| (key.to_owned(), None))
}

/// A function that parses a value as a number.
type Number<'a> = &'a dyn Fn(&str) -> Option<f64>;

/// The number before one of these words; `None` without such a word.
fn counted(value: &str, words: &[&str]) -> Option<f64> {
    let value = value.to_ascii_lowercase();
    let number = words.iter().find_map(|word| value.trim_end().strip_suffix(word))?;
    number.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// True if a column of floats holds the value exactly, which is false for some integers beyond
/// 2^53.
fn is_number(value: &str) -> bool {
    value.parse().is_ok_and(|number: f64| value.parse().map_or(true, |whole: i128| whole == number as i128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_one_kind_are_numbers_of_one_unit() {
        let column = |values: &[&str]| column("k", &values.iter().map(|v| v.to_string()).collect::<Vec<_>>());
        for (values, name, numbers) in [
            (&["1", "-2.5"][..], "k", Some(vec![1.0, -2.5])),
            (&["500 kbps", "2Gbps"], "k_mbps", Some(vec![0.5, 2000.0])),
            (&["0", "10ms", "1 s"], "k_ms", Some(vec![0.0, 10.0, 1000.0])),
            (&["64 KiB", "100kB"], "k_bytes", Some(vec![65536.0, 100_000.0])),
            (&["1 packet", "20packets"], "k_packets", Some(vec![1.0, 20.0])),
            (&["0.5 BDP", "2BDP"], "k_bdp", Some(vec![0.5, 2.0])),
            (&["1%", "0.5 %"], "k_percent", Some(vec![1.0, 0.5])),
            (&["10 packets", "1 BDP"], "k", None),
            (&["10Mbps", "5 ms"], "k", None),
            (&["red", "xcp"], "k", None),
            (&["9007199254740992", "9007199254740993"], "k", None),
        ] {
            assert_eq!(column(values), (name.to_owned(), numbers), "{values:?}");
        }
    }

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
