//! The JSON Schema of scenario files, generated from the table of keys, for editors.

use serde_json::{Map, Value, json};

use super::keys::{Default, Key, Kind, Section, TOP};

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
