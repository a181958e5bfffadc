//! The fields of a status as JSON, for the page.

use serde_json::{Value, json};

use super::{Field, Kind, Product};

impl Product {
    /// The name, the head and the fields.
    pub fn schema(&self) -> Value {
        json!({ "title": format!("tollway {}", self.name), "head": self.head, "fields": fields(self.fields) })
    }
}

fn fields(all: &[Field]) -> Value {
    let one = |field: &Field| {
        let form = &field.form;
        let mut object = json!({
            "key": field.key,
            "says": field.says.trim(),
            "label": form.label,
            "scale": form.scale,
            "digits": form.digits,
            "rare": form.rare,
            "rate": form.rate,
        });
        let (kind, more) = match form.kind {
            Kind::Info => ("info", json!({})),
            Kind::Label => ("label", json!({})),
            Kind::Word => ("word", json!({})),
            Kind::Json => ("json", json!({})),
            Kind::Alert => ("alert", json!({})),
            Kind::Count | Kind::Gauge => ("number", json!({})),
            Kind::Flag(yes, no) => ("flag", json!({ "words": [yes, no] })),
            Kind::State(good) => ("state", json!({ "good": good })),
            Kind::By(_) => ("by", json!({})),
            Kind::Rows(table) => ("rows", json!({ "fields": fields(table.fields) })),
            Kind::Part(part) => ("part", json!({ "head": part.head, "fields": fields(part.fields) })),
        };
        object["kind"] = kind.into();
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more);
        }
        object
    };
    all.iter().map(one).collect()
}
