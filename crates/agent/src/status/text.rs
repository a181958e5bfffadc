//! A status as text, from its JSON: the text is the same here and in another process.

use serde_json::Value;
use tollway_report::text::{Align, TextTable};

use super::{Field, Kind, Product, Table, has};

impl Product {
    /// The status as text, in `width` columns where names allow, with at most `most` rows of long
    /// lists. `None` if `status` is not a status of this product.
    pub fn text(&self, status: &Value, width: usize, most: usize) -> Option<String> {
        let mut out = head(self.head, self.fields, status)? + "\n";
        body(self.head, self.fields, status, (width, most), &mut out)?;
        Some(out)
    }

    /// As [`Product::text`], from the text of the JSON.
    pub fn text_of(&self, json: &str, width: usize, most: usize) -> Option<String> {
        self.text(&serde_json::from_str(json).ok()?, width, most)
    }
}

/// Replaces each `{key}` of `head` by the field's value.
fn head(head: &str, fields: &[Field], status: &Value) -> Option<String> {
    let mut text = head.to_owned();
    for field in fields {
        let place = format!("{{{}}}", field.key);
        if text.contains(&place) {
            text = text.replace(&place, &field.cell(status.get(field.key)?));
        }
    }
    Some(text)
}

fn body(
    head_text: &str,
    fields: &'static [Field],
    status: &Value,
    (width, most): (usize, usize),
    out: &mut String,
) -> Option<()> {
    for field in fields {
        if let (Kind::Alert, Some(text)) = (field.form.kind, status[field.key].as_str()) {
            *out += &format!("{}: {text}\n", field.form.label);
        }
    }
    let mut counts = Vec::new();
    for field in fields {
        let value = &status[field.key];
        match field.form.kind {
            Kind::Count | Kind::Gauge
                if value.is_number()
                    && field.is_shown(value)
                    && !field.form.label.is_empty()
                    && !has(head_text, field.key) =>
            {
                counts.push(format!("{} {}", field.cell(value), field.form.label));
            }
            Kind::By(_) => {
                let each = value.as_object().into_iter().flatten().filter(|(_, count)| field.is_shown(count));
                let each: Vec<String> = each.map(|(word, count)| format!("{count} {word}")).collect();
                if !each.is_empty() {
                    counts.push(format!("{} ({})", field.form.label, each.join(", ")));
                }
            }
            _ => {}
        }
    }
    if !counts.is_empty() {
        sentence(&counts, width, out);
    }
    for field in fields {
        let value = &status[field.key];
        match field.form.kind {
            Kind::Part(part) if value.is_object() => {
                *out += "\n";
                *out += &(head(part.head, part.fields, value)? + "\n");
                body(part.head, part.fields, value, (width, most), out)?;
            }
            Kind::Rows(table) => table.write(status, value.as_array()?, (width, most), out),
            _ => {}
        }
    }
    Some(())
}

/// Appends `counts` as a sentence in lines of at most `width` characters.
fn sentence(counts: &[String], width: usize, out: &mut String) {
    let mut used = 0;
    for (at, count) in counts.iter().enumerate() {
        let end = if at + 1 == counts.len() { "." } else { "," };
        let len = count.chars().count() + end.len();
        if used > 0 && used + 1 + len > width {
            *out += "\n";
            used = 0;
        } else if used > 0 {
            *out += " ";
            used += 1;
        }
        *out += &format!("{count}{end}");
        used += len;
    }
    *out += "\n";
}

impl Table {
    fn write(&self, status: &Value, rows: &[Value], (width, most): (usize, usize), out: &mut String) {
        if rows.is_empty() {
            return;
        }
        let shown = |field: &&Field| {
            !matches!(field.form.kind, Kind::Rows(_) | Kind::Part(_))
                && !field.form.label.is_empty()
                && rows.iter().any(|row| field.is_shown(&row[field.key]))
        };
        let columns: Vec<&Field> = self.fields.iter().filter(shown).collect();
        let align = |field: &Field| match field.form.kind {
            Kind::Count | Kind::Gauge | Kind::By(_) => Align::Right,
            _ => Align::Left,
        };
        let header: Vec<_> = columns.iter().map(|field| (field.form.label, align(field))).collect();
        let mut table = TextTable::new(&header);
        let most = if self.prefix.is_none() { most } else { usize::MAX };
        let total = self.total.and_then(|total| total(status));
        for row in rows.iter().take(most).chain(&total) {
            table.row(columns.iter().map(|field| field.cell(&row[field.key])));
        }
        *out += "\n";
        *out += &table.print(width);
        let left = rows.len().saturating_sub(most);
        if left > 0 {
            *out += &format!("… and {left} more (`--json` has them all)\n");
        }
    }
}

impl Field {
    /// The value as text.
    fn cell(&self, value: &Value) -> String {
        match (self.form.kind, value) {
            (Kind::Flag(yes, no), Value::Bool(is)) => (if *is { yes } else { no }).to_owned(),
            (Kind::Count | Kind::Gauge, Value::Null) => "–".to_owned(),
            (_, Value::Null) => String::new(),
            (Kind::By(_), Value::Object(numbers)) => {
                numbers.values().filter_map(Value::as_u64).sum::<u64>().to_string()
            }
            (_, Value::Number(number)) => match number.as_f64() {
                Some(number) => {
                    let number = number * self.form.scale;
                    let before = (number.abs() as u64).checked_ilog10().map_or(1, |log| log as usize + 1);
                    let digits = self.form.digits.min(SIGNIFICANT.saturating_sub(before));
                    format!("{number:.digits$}")
                }
                None => number.to_string(),
            },
            (_, Value::String(text)) => text.clone(),
            (_, Value::Array(items)) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            (_, other) => other.to_string(),
        }
    }
}

/// A number has decimals up to this many digits, so that a table keeps to its width.
const SIGNIFICANT: usize = 5;
