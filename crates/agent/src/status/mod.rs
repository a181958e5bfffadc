//! One list of fields for a status: its struct and JSON, its text, its metrics and its page.
//!
//! [`status!`](crate::status!) declares a struct. Each field states its form beside its type, so
//! that a new field is in every output, and one without a form does not compile.
//!
//! ```
//! use tollway_agent::status::{Product, alert, count, gauge, info, label, rows, Table};
//!
//! tollway_agent::status! {
//!     /// A link.
//!     pub struct LinkStatus {
//!         /// The other end.
//!         site: String = label("link to");
//!         /// Bytes that wait for the link.
//!         queued: u64 = gauge("waits kB").scaled(1e-3, 1);
//!     }
//! }
//!
//! tollway_agent::status! {
//!     /// A site.
//!     pub struct Status {
//!         /// Its name.
//!         site: String = info();
//!         /// The first fault.
//!         trouble: Option<String> = alert("Trouble");
//!         /// Messages that clients have published.
//!         published: u64 = count("published");
//!         /// Links to other sites.
//!         links: Vec<LinkStatus> = rows(&LINK);
//!     }
//! }
//!
//! const LINK: Table = Table::new("link", LinkStatus::FIELDS);
//! const SITE: Product = Product::new("overlay", "Site {site}.", Status::FIELDS);
//!
//! let link = LinkStatus { site: "b".into(), queued: 1500 };
//! let status = Status { site: "a".into(), trouble: None, published: 7, links: vec![link] };
//! let text = SITE.text(&serde_json::to_value(&status)?, 80, 40).expect("a status");
//! assert!(text.starts_with("Site a.\n7 published.\n\nlink to  waits kB\n"), "{text}");
//! # Ok::<(), serde_json::Error>(())
//! ```

#[cfg(feature = "metrics")]
mod metrics;
mod schema;
mod text;

use serde_json::Value;

/// A field of a status, in all its forms.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The key in JSON.
    pub key: &'static str,
    /// The meaning: the field's documentation.
    pub says: &'static str,
    /// The form in text, metrics and page.
    pub form: Form,
}

/// The form of a field in text, metrics and page.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    kind: Kind,
    /// The header of a column, or the words after a number.
    label: &'static str,
    /// Factor and decimal places of a number in text.
    scale: f64,
    digits: usize,
    /// The metric's name, if it is not the key.
    metric: &'static str,
    unit: Unit,
    /// Factor from the JSON's unit to the metric's.
    factor: f64,
    /// Shown only if it differs from zero.
    rare: bool,
    /// The page shows its growth per second.
    rate: bool,
    /// The metric is the number of rows with each of these words; its label.
    tally: Option<(&'static str, &'static [&'static str])>,
}

/// The kind of a field's values.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Text of the head; a label of the metric `…_info`.
    Info,
    /// The name of a row: its first column, and the label of its metrics.
    Label,
    /// Text of a row, without a metric.
    Word,
    /// A value in JSON only.
    Json,
    /// A fault as text, or null; its metric is 1 or 0.
    Alert,
    /// A number that only grows.
    Count,
    /// A number.
    Gauge,
    /// True or false, shown as one of two words.
    Flag(&'static str, &'static str),
    /// A word; the metric is 1 if it is this one.
    State(&'static str),
    /// Numbers by a word, which has this label in the metric; their sum in a row.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "the label of a metric"))]
    By(&'static str),
    /// A list of objects.
    Rows(&'static Table),
    /// An object, or null.
    Part(&'static Part),
}

/// The unit of a metric, which is part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None.
    One,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// A part of one.
    Ratio,
    /// Seconds.
    Seconds,
}

/// A list of objects in a status.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The metrics' names begin with it; none if only tallies are metrics.
    prefix: Option<&'static str>,
    fields: &'static [Field],
    /// One more row for the whole, made from the status.
    total: Option<fn(&Value) -> Option<Value>>,
}

/// An object in a status.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "metrics' names begin with it"))]
    prefix: &'static str,
    head: &'static str,
    fields: &'static [Field],
}

/// The status of a product: its name, its first line and its fields.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    name: &'static str,
    head: &'static str,
    fields: &'static [Field],
}

impl Product {
    /// A status whose text begins with `head`, in which `{key}` is a field's value.
    ///
    /// # Panics
    /// An [`info`] is not in the head. In a constant that is an error of the compiler.
    pub const fn new(name: &'static str, head: &'static str, fields: &'static [Field]) -> Product {
        assert_told(head, fields);
        Product { name, head, fields }
    }
}

impl Table {
    /// A list whose metrics begin with `prefix`, which may be empty.
    pub const fn new(prefix: &'static str, fields: &'static [Field]) -> Table {
        Table { prefix: Some(prefix), fields, total: None }
    }

    /// A long list: its rows come and go and have no metrics, only tallies.
    pub const fn long(fields: &'static [Field]) -> Table {
        Table { prefix: None, fields, total: None }
    }

    /// Adds a row for the whole, which `total` makes from the status.
    pub const fn with_total(mut self, total: fn(&Value) -> Option<Value>) -> Table {
        self.total = Some(total);
        self
    }
}

impl Part {
    /// An object whose metrics begin with `prefix`; for `head` see [`Product::new`].
    ///
    /// # Panics
    /// See [`Product::new`].
    pub const fn new(prefix: &'static str, head: &'static str, fields: &'static [Field]) -> Part {
        assert_told(head, fields);
        Part { prefix, head, fields }
    }
}

const fn form(kind: Kind, label: &'static str) -> Form {
    Form {
        kind,
        label,
        scale: 1.0,
        digits: 0,
        metric: "",
        unit: Unit::One,
        factor: 1.0,
        rare: false,
        rate: false,
        tally: None,
    }
}

/// Text in the first line, and a label of the metric `…_info`.
pub const fn info() -> Form {
    form(Kind::Info, "")
}

/// The name of a row, under this header.
pub const fn label(header: &'static str) -> Form {
    form(Kind::Label, header)
}

/// Text of a row, under this header.
pub const fn word(header: &'static str) -> Form {
    form(Kind::Word, header)
}

/// A value that text, metrics and page leave out: a detail for programs.
pub const fn json_only() -> Form {
    form(Kind::Json, "")
}

/// A fault, on a line after this word; its metric is 1 while there is one.
pub const fn alert(word: &'static str) -> Form {
    form(Kind::Alert, word)
}

/// A number that only grows, before these words or under this header.
pub const fn count(words: &'static str) -> Form {
    form(Kind::Count, words).per_second()
}

/// A number, before these words or under this header. Without words it is a metric only; a row for
/// the whole may show it.
pub const fn gauge(words: &'static str) -> Form {
    form(Kind::Gauge, words)
}

/// True or false, as one of two words under this header.
pub const fn flag(header: &'static str, yes: &'static str, no: &'static str) -> Form {
    form(Kind::Flag(yes, no), header)
}

/// A word under this header; its metric is 1 while it is `good`.
pub const fn state(header: &'static str, good: &'static str) -> Form {
    form(Kind::State(good), header)
}

/// Numbers that only grow, by a word which the metric has as `label`. A row shows their sum.
pub const fn by(words: &'static str, label: &'static str) -> Form {
    form(Kind::By(label), words)
}

/// A list of objects.
pub const fn rows(table: &'static Table) -> Form {
    form(Kind::Rows(table), "")
}

/// An object, or null.
pub const fn part(part: &'static Part) -> Form {
    form(Kind::Part(part), "")
}

impl Form {
    /// Multiplies the number by `scale` in text, and shows `digits` decimal places.
    pub const fn scaled(mut self, scale: f64, digits: usize) -> Form {
        (self.scale, self.digits) = (scale, digits);
        self
    }

    /// Names the metric.
    pub const fn metric(mut self, name: &'static str) -> Form {
        self.metric = name;
        self
    }

    /// Sets the metric's unit, and the factor from the JSON's unit.
    pub const fn unit(mut self, unit: Unit, factor: f64) -> Form {
        (self.unit, self.factor) = (unit, factor);
        self
    }

    /// Shows the field in text and page only if it differs from zero, and a column only if a row
    /// has it.
    pub const fn rare(mut self) -> Form {
        self.rare = true;
        self
    }

    /// Shows the growth per second in the page.
    pub const fn per_second(mut self) -> Form {
        self.rate = true;
        self
    }

    /// Makes the number of rows with each of `words` the metric, with the label `by`.
    pub const fn tallied(mut self, by: &'static str, words: &'static [&'static str]) -> Form {
        self.tally = Some((by, words));
        self
    }
}

impl Field {
    /// True if the value is worth a place in text: not rare, or neither zero nor null nor false.
    fn is_shown(&self, value: &Value) -> bool {
        let is_zero = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Object(numbers) => numbers.values().all(|number| number.as_f64() == Some(0.0)),
            _ => false,
        };
        !(self.form.rare && is_zero)
    }
}

/// Asserts that every field of the kind [`info`] is in the head.
const fn assert_told(head: &str, fields: &[Field]) {
    let mut at = 0;
    while at < fields.len() {
        let told = !matches!(fields[at].form.kind, Kind::Info) || has(head, fields[at].key);
        assert!(told, "an `info` is not in the head of its status");
        at += 1;
    }
}

/// True if `head` contains `{key}`.
const fn has(head: &str, key: &str) -> bool {
    let (head, key) = (head.as_bytes(), key.as_bytes());
    let mut at = 0;
    while at + key.len() + 2 <= head.len() {
        let mut same = head[at] == b'{' && head[at + key.len() + 1] == b'}';
        let mut i = 0;
        while same && i < key.len() {
            same = head[at + 1 + i] == key[i];
            i += 1;
        }
        if same {
            return true;
        }
        at += 1;
    }
    false
}

/// Declares a struct whose fields are those of a status, each with its form: see
/// [`status`](mod@crate::status).
#[macro_export]
macro_rules! status {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident {
            $($(#[doc = $says:literal])+ $(#[serde($($serde:tt)*)])? $key:ident: $type:ty = $form:expr;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Serialize)]
        $vis struct $Name {
            $($(#[doc = $says])+ $(#[serde($($serde)*)])? $vis $key: $type,)*
        }

        impl $Name {
            /// The fields, in the order of JSON.
            $vis const FIELDS: &'static [$crate::status::Field] = &[
                $($crate::status::Field {
                    key: stringify!($key),
                    says: concat!($($says),+),
                    form: $form,
                }),*
            ];
        }
    };
}

#[cfg(test)]
mod tests;
