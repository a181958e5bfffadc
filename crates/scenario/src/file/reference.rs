//! Documents generated from the table of keys: a JSON Schema for editors, Markdown for the manual.

use serde_json::{Map, Value, json};
use tollway_law::Time;

use super::keys::{Default, Key, Kind, Section, TOP, all};

/// Returns the JSON Schema (2020-12) of a scenario file, for editors with TOML support.
pub fn schema() -> Value {
    let mut schema = section(&TOP);
    if let Value::Object(object) = &mut schema {
        let mut head = Map::new();
        head.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        head.insert("title".into(), json!("Tollway scenario"));
        head.append(object);
        *object = head;
    }
    schema
}

fn section(s: &'static Section) -> Value {
    let properties: Map<String, Value> = s.keys().map(|k| (k.name.to_owned(), property(k))).collect();
    let must: Vec<&str> = s.keys().filter(|k| matches!(k.default, Default::Must)).map(|k| k.name).collect();
    json!({
        "type": "object",
        "description": s.says,
        "properties": properties,
        "required": must,
        "additionalProperties": false,
    })
}

fn property(key: &'static Key) -> Value {
    let mut schema = match key.kind {
        Kind::Text | Kind::Node | Kind::Medium | Kind::Links | Kind::Flows => json!({ "type": "string" }),
        Kind::Line => json!({ "type": "string", "minLength": 1 }),
        Kind::Nodes => json!({ "type": ["string", "array"], "items": { "type": "string" } }),
        Kind::Match(_) => json!({ "type": ["string", "integer", "array"] }),
        Kind::Truth => json!({ "type": "boolean" }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Count { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Number { least, most } => {
            part_of_whole(json!({ "type": "number", "minimum": least, "maximum": most }), most)
        }
        Kind::Over { over, most } => {
            part_of_whole(json!({ "type": "number", "exclusiveMinimum": over, "maximum": most }), most)
        }
        Kind::Time { .. }
        | Kind::TimeOrNone
        | Kind::Rate
        | Kind::WireRate
        | Kind::RateOrAll
        | Kind::Limit => {
            json!({ "type": "string" })
        }
        Kind::Bytes { least, most } => {
            json!({ "type": ["string", "integer"], "minimum": least, "maximum": most })
        }
        Kind::Threshold => json!({ "type": ["string", "number"], "minimum": 0, "maximum": 1 }),
        Kind::Spread => parts(&["first", "last"]),
        Kind::When => parts(&["first", "last", "random", "after"]),
        Kind::Sizes => json!({ "type": ["string", "integer", "object"] }),
        Kind::Arrivals => json!({ "type": "object" }),
        Kind::Table(inner) => section(inner),
        Kind::Named(inner) => named(section(inner)),
        Kind::Variants | Kind::Grid => named(json!({ "type": "object" })),
        Kind::List(inner) => json!({ "type": "array", "items": section(inner) }),
        Kind::RawTable => json!({ "type": "object" }),
        Kind::Raw | Kind::All(_) => json!({ "type": "array", "items": { "type": "object" } }),
    };
    if let Value::Object(object) = &mut schema {
        object.insert("description".into(), json!(key.says));
        if let Default::Is(text) = key.default {
            let value = match key.kind {
                Kind::Truth
                | Kind::Count { .. }
                | Kind::Number { .. }
                | Kind::Over { .. }
                | Kind::Threshold => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
                _ => json!(text),
            };
            object.insert("default".into(), value);
        }
    }
    schema
}

/// The schema of a number up to `most`; a number up to 1 may also be a percentage.
fn part_of_whole(number: Value, most: f64) -> Value {
    match most == 1.0 {
        true => json!({ "anyOf": [number, { "type": "string", "pattern": "%\\s*$" }] }),
        false => number,
    }
}

/// The schema of a time or a table of times.
fn parts(names: &[&str]) -> Value {
    let properties: Map<String, Value> =
        names.iter().map(|n| ((*n).to_owned(), json!({ "type": "string" }))).collect();
    json!({ "type": ["string", "object"], "properties": properties, "additionalProperties": false })
}

fn named(inner: Value) -> Value {
    json!({ "type": "object", "propertyNames": { "pattern": "^[A-Za-z0-9_-]+$" }, "additionalProperties": inner })
}

/// Returns the manual's reference of all keys in Markdown, with type, default and meaning.
pub fn reference_markdown() -> String {
    let mut out = String::from(
        "# Scenario reference\n\n\
         <!-- Written by `reference_markdown()` in `crates/scenario` from the table of keys; do not edit. -->\n\n",
    );
    tables(&all(), &mut out);
    out += "## Variants and `--set`\n\n\
        `[variant.NAME]` has dotted paths of keys, with their values in this variant:\n\n\
        ```toml\n[variant.fifo]\n\"link.bottleneck.law\" = \"drop-tail\"\n\"flow.*.law\" = \"newreno\"\n```\n\n\
        In a name, `*` matches any letters and `?` matches one: `link.l*.law`. `change.*.at` is a key of every change (changes \
        are numbered from 0). A table replaces only the keys that it has. Each variant is a separate run; a file without \
        variants is one run.\n\n\
        `[grid.AXIS]` tables make a variant for every combination of their points; its name joins the points' names. An axis \
        lists the values of a key, or of several keys with equal values, or it has a table for each point:\n\n\
        ```toml\n[grid.rate]\nset = \"link.bottleneck.rate\"\nto = [\"1 Mbps\", \"2 Mbps\"]\n\n\
        [grid.law.red]\n\"link.bottleneck.law\" = \"red\"\n\n[grid.law.fifo]\n\"link.bottleneck.law\" = \"drop-tail\"\n```\n\n\
        make the variants `1Mbps-red`, `1Mbps-fifo`, `2Mbps-red` and `2Mbps-fifo`. An empty table, `[grid.law.plain]`, sets nothing.\n\n\
        `--set link.bottleneck.rate=20Mbps` does the same on the command line, and overrides the variants' keys. A value that \
        is not TOML is a string.\n";
    out
}

/// Returns the Markdown tables of the keys of `sections`.
pub fn sections_markdown(sections: &[&'static Section]) -> String {
    let mut out = String::new();
    tables(sections, &mut out);
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Appends a Markdown table for each section.
fn tables(sections: &[&'static Section], out: &mut String) {
    for s in sections {
        if s.header.is_empty() {
            *out += "## The top of the file\n\n";
        } else {
            *out += &format!("## `{}`\n\n", s.header);
        }
        *out += &format!("{}\n\n", s.says);
        *out += "| key | value | default | meaning |\n|---|---|---|---|\n";
        for key in s.keys() {
            let default = match key.default {
                Default::Must => "**required**".to_owned(),
                Default::Is(text) => format!("`{text}`"),
                Default::Else("") => "–".to_owned(),
                Default::Else(text) => text.to_owned(),
            };
            *out += &format!("| `{}` | {} | {default} | {} |\n", key.name, takes(key.kind), key.says);
        }
        *out += "\n";
    }
}

fn takes(kind: Kind) -> String {
    let range = |least: String, most: String| format!("{least} … {most}");
    match kind {
        Kind::Text | Kind::Line => "string".into(),
        Kind::Truth => "`true` or `false`".into(),
        Kind::Word(words) => words.iter().map(|w| format!("`\"{w}\"`")).collect::<Vec<_>>().join(", "),
        Kind::Count { least, most } if most >= 1 << 40 => format!("whole number from {least}"),
        Kind::Count { least, most } => range(least.to_string(), most.to_string()),
        Kind::Number { least, most: 1.0 } => format!("{least} … 1, or percent: `\"5 %\"`"),
        Kind::Number { least, most } => range(least.to_string(), most.to_string()),
        Kind::Over { over, most } if most > 1e9 => format!("over {over}"),
        Kind::Over { over, most } => format!("over {over}, up to {most}"),
        Kind::Time { least } if least > 1 => format!("time from {}", Time(least)),
        Kind::Time { .. } => "time".into(),
        Kind::TimeOrNone => "time or `\"none\"`".into(),
        Kind::Rate => "rate".into(),
        Kind::WireRate => "rate from 1 kbps to 100 Tbps".into(),
        Kind::RateOrAll => "rate or `\"all\"`".into(),
        Kind::Bytes { least, most } if most >= 1 << 40 => format!("size from {least} B"),
        Kind::Bytes { least, most } => format!("size, {least} … {most} B"),
        Kind::Limit => "`\"100 packets\"`, `\"64 KiB\"`, `\"2 BDP\"`, `\"unlimited\"`".into(),
        Kind::Threshold => "0 … 1, or packets or bytes".into(),
        Kind::Spread => "time or `{ first, last }`".into(),
        Kind::When => "time, `{ first, last }` or `{ random, after }`".into(),
        Kind::Sizes => "distribution".into(),
        Kind::Arrivals => "`{ poisson }` or `{ interval }`".into(),
        Kind::Node => "node or group".into(),
        Kind::Nodes => "nodes or patterns".into(),
        Kind::Match(_) => "one or a list".into(),
        Kind::Medium => "medium".into(),
        Kind::Links => "link, or pattern".into(),
        Kind::Flows => "flow, or pattern".into(),
        Kind::Table(_) | Kind::Named(_) | Kind::RawTable => "table".into(),
        Kind::Variants | Kind::Grid => "tables by name".into(),
        Kind::List(_) | Kind::Raw | Kind::All(_) => "array of tables".into(),
    }
}
