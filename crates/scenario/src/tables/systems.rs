//! Tables of the systems in a run: a row for each object, a column for each number.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The tables of a run's systems, by name: queues by class, meters, policies, hosts and others.
///
/// A number has a path: its table, the keys of its row, and its column, joined by dots. An example
/// is `queues.bottleneck.none.delay_ms`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemTables(BTreeMap<&'static str, BTreeMap<Keys, Row>>);

/// Columns that identify a row, with their values.
pub type Keys = Vec<(&'static str, String)>;
/// Numbers by column.
type Row = BTreeMap<&'static str, f64>;

impl SystemTables {
    /// Sets the number of `column` in the row with these keys in `table`. The column's name ends in
    /// its unit.
    pub fn set(
        &mut self,
        table: &'static str,
        keys: &[(&'static str, &str)],
        column: &'static str,
        value: f64,
    ) {
        *self.cell(table, keys, column) = value;
    }

    /// Adds to a number, which is 0 at first.
    pub fn add(
        &mut self,
        table: &'static str,
        keys: &[(&'static str, &str)],
        column: &'static str,
        value: f64,
    ) {
        *self.cell(table, keys, column) += value;
    }

    fn cell(&mut self, table: &'static str, keys: &[(&'static str, &str)], column: &'static str) -> &mut f64 {
        let keys = keys.iter().map(|&(key, value)| (key, value.to_owned())).collect();
        self.0.entry(table).or_default().entry(keys).or_default().entry(column).or_default()
    }

    /// The tables: a name, and the numbers by column of each row, by its keys.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, &BTreeMap<Keys, Row>)> {
        self.0.iter().map(|(table, rows)| (*table, rows))
    }

    /// All numbers with their paths, in order of paths.
    pub fn numbers(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        self.0.iter().flat_map(|(table, rows)| {
            rows.iter().flat_map(move |(keys, row)| {
                let keys: String = keys.iter().map(|(_, value)| format!("{value}.")).collect();
                row.iter().map(move |(column, value)| (format!("{table}.{keys}{column}"), *value))
            })
        })
    }

    /// The number at a path.
    pub fn get(&self, path: &str) -> Option<f64> {
        self.numbers().find_map(|(name, value)| (name == path).then_some(value))
    }

    /// Adds the tables of `others`.
    pub fn extend(&mut self, others: SystemTables) {
        for (table, rows) in others.0 {
            let own = self.0.entry(table).or_default();
            for (keys, row) in rows {
                own.entry(keys).or_default().extend(row);
            }
        }
    }

    /// Returns a list of rows for each table; a number that is not finite becomes null.
    pub fn to_json(&self) -> Value {
        let row = |(keys, row): (&Keys, &Row)| {
            let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
            let numbers = row.iter().map(|(column, value)| ((*column).to_owned(), json!(value)));
            Value::Object(keys.chain(numbers).collect())
        };
        let tables = self.0.iter().map(|(table, rows)| ((*table).to_owned(), rows.iter().map(row).collect()));
        Value::Object(tables.collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_path() {
        let mut tables = SystemTables::default();
        tables.set("queues", &[("link", "access.3"), ("class", "none")], "delay_ms", 1.5);
        tables.add("meters", &[], "flows", 2.0);
        let mut others = SystemTables::default();
        others.set("queues", &[("link", "access.3"), ("class", "none")], "packets", 7.0);
        tables.extend(others);
        assert_eq!(tables.get("queues.access.3.none.delay_ms"), Some(1.5));
        assert_eq!(tables.get("meters.flows"), Some(2.0));
        assert_eq!(tables.get("queues.access.3.none"), None);
        let rows = r#"[{"link":"access.3","class":"none","delay_ms":1.5,"packets":7.0}]"#;
        assert_eq!(
            tables.to_json().to_string(),
            format!(r#"{{"meters":[{{"flows":2.0}}],"queues":{rows}}}"#)
        );
    }
}
