//! Checking a tree against the table of keys, and reading what passed.

use std::sync::Arc;

use tollway_law::param::{self, Field, Threshold, Values};
use tollway_law::{Bytes, Rate, Time};

use super::error::{At, Mistakes, ScenarioError, Sources, closest, synonyms};
use super::keys::{Default, Kind, Section};
use super::tree::{self, Entry, Node, Table, Value};
use super::value::{LimitSpec, SizesSpec, Val, When};

/// Reads `text`, which messages call `file`, by the keys of `top`. Messages call the table at its top `title`, and the
/// whole `of`. `resolve` makes a value of it, and notes mistakes of its own.
///
/// # Errors
/// All mistakes that can be told apart, with their places.
pub fn read<T>(
    file: &str,
    text: &str,
    top: &'static Section,
    (title, of): (&str, &'static str),
    resolve: impl FnOnce(&Reader<'_>, &mut Mistakes) -> T,
) -> Result<T, ScenarioError> {
    let sources = Sources(vec![(file.to_owned(), Arc::from(text))]);
    let mut mistakes = Mistakes::default();
    let tree = tree::parse(text, &mut mistakes);
    if mistakes.is_empty() {
        check(&tree, At::default(), top, title, &mut mistakes);
    }
    let value = resolve(&Reader::new(top, Some(&tree), At::default()), &mut mistakes);
    if !mistakes.is_empty() {
        return Err(mistakes.into_error(&sources, 1).of(of));
    }
    Ok(value)
}

/// Notes every unknown key, every missing one and every value that its key does not take, all the way down. `title`
/// is what messages call the table.
pub(crate) fn check(table: &Table, at: At, section: &'static Section, title: &str, mistakes: &mut Mistakes) {
    for entry in &table.0 {
        let Some(key) = section.key(&entry.key) else {
            mistakes
                .add(entry.at, format!("there is no key `{}` in {title}", entry.key), "unknown key")
                .suggest(&entry.key, section.names());
            continue;
        };
        let wrong = |mistakes: &mut Mistakes, node: &Node| {
            let (wants, is) = (key.kind.wants(), node.value.what());
            mistakes
                .add(entry.at, format!("`{}` is {wants}; this is {is}", key.name), is)
                .help(format!("write `{}`", example(key.kind, key.name)));
        };
        match (key.kind, &entry.node.value) {
            (Kind::Table(inner), Value::Table(t)) => {
                // `[link.a]` and its table `xcp` make `[link.a.xcp]`.
                let outer = title.strip_prefix("`[").and_then(|t| t.strip_suffix("]`"));
                let inner_title = outer
                    .map_or_else(|| format!("`[{}]`", key.name), |outer| format!("`[{outer}.{}]`", key.name));
                check(t, entry.at, inner, &inner_title, mistakes);
            }
            (Kind::Named(inner), Value::Table(names)) => {
                let outer = title.strip_prefix("`[").and_then(|t| t.strip_suffix("]`"));
                let of = outer.map_or_else(|| key.name.to_owned(), |outer| format!("{outer}.{}", key.name));
                check_named(names, entry, &of, inner, mistakes);
            }
            (Kind::List(inner), Value::List(items)) => {
                for item in items {
                    match &item.value {
                        Value::Table(t) => check(t, item.at, inner, &inner.title(), mistakes),
                        _ => wrong(mistakes, item),
                    }
                }
            }
            // Variants are laid over the rest before it is checked; the report reads its own.
            (Kind::Variants | Kind::Grid | Kind::RawTable, Value::Table(_)) | (Kind::Raw, Value::List(_)) => {
            }
            (kind, _) if kind.holds_tables() => {
                wrong(mistakes, &entry.node);
            }
            _ => {
                key.kind.read(key.name, &entry.node, mistakes);
            }
        }
    }
    for key in section.keys().filter(|k| matches!(k.default, Default::Must)) {
        if table.get(key.name).is_none() && !misspelt(table, section, key.name) {
            mistakes
                .add(at, format!("{title} needs `{}`", key.name), format!("no `{}`", key.name))
                .help(format!("`{}` is {}", key.name, key.kind.wants()));
        }
    }
}

/// Checks tables by name.
fn check_named(names: &Table, at: &Entry, of: &str, inner: &'static Section, mistakes: &mut Mistakes) {
    for named in &names.0 {
        match &named.node.value {
            Value::Table(t) => {
                name(&named.key, named.at, mistakes);
                check(t, named.at, inner, &format!("`[{of}.{}]`", named.key), mistakes);
            }
            // `[flow]` for `[flow.NAME]`: once is enough.
            _ if inner.key(&named.key).is_some() => {
                mistakes
                    .add(at.at, format!("this {} has no name", at.key), "no name")
                    .help(format!("write `{}`", inner.header));
                return;
            }
            other => {
                let message = format!("`[{of}.{}]` is a table; this is {}", named.key, other.what());
                mistakes.add(named.at, message, "not a table").help(format!("write `{}`", inner.header));
            }
        }
    }
}

/// Whether an absent key is there under a name that is none: one message is enough then.
fn misspelt(table: &Table, section: &'static Section, key: &str) -> bool {
    let unknown = table.0.iter().filter(|e| section.key(&e.key).is_none());
    let mut unknown = unknown.map(|e| e.key.as_str());
    unknown.any(|name| {
        synonyms(name, section.names()).contains(&key) || closest(name, section.names()) == Some(key)
    })
}

/// Names become parts of paths: letters, digits, `-` and `_`.
pub(crate) fn name(text: &str, at: At, mistakes: &mut Mistakes) {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || !text.chars().all(good) {
        mistakes
            .add(at, format!("`{text}` is no name"), "not a name")
            .help("names are made of the letters a to z, digits, `-` and `_`");
    }
}

fn example(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Table(section) | Kind::Named(section) | Kind::List(section) => section.header.to_owned(),
        Kind::Variants => "[variant.NAME]".to_owned(),
        Kind::Grid => "[grid.AXIS]".to_owned(),
        _ => format!("[[{name}]]"),
    }
}

/// Methods of [`Reader`] for values of one kind; `None` without a value and a default.
macro_rules! read_as {
    ($($(#[$doc:meta])* $vis:vis $name:ident: $kind:ident($type:ty);)*) => {$(
        $(#[$doc])*
        $vis fn $name(&self, key: &str) -> Option<$type> {
            match self.value(key) {
                Some(Val::$kind(value)) => Some(value),
                _ => None,
            }
        }
    )*};
}

/// Reads the keys of one table, with their defaults. Values that do not pass the check of their key read as their defaults: they
/// have been reported.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    section: &'static Section,
    table: Option<&'a Table>,
    at: At,
}

impl<'a> Reader<'a> {
    /// Of a table; of one that is not there, all defaults.
    pub(crate) fn new(section: &'static Section, table: Option<&'a Table>, at: At) -> Reader<'a> {
        Reader { section, table, at }
    }

    /// Notes what is wrong in the table, as [`check`] does.
    pub(crate) fn check(&self, mistakes: &mut Mistakes) {
        if let Some(table) = self.table {
            check(table, self.at, self.section, &self.section.title(), mistakes);
        }
    }

    /// The table under a key.
    pub fn table(&self, key: &str, section: &'static Section) -> Reader<'a> {
        debug_assert!(self.section.key(key).is_some(), "{key}");
        let at = self.table.and_then(|t| t.get(key)).map_or(self.at, |e| e.at);
        Reader { section, table: self.table.and_then(|t| t.table(key)), at }
    }

    /// The tables by name under a key.
    pub fn named(
        &self,
        key: &str,
        section: &'static Section,
    ) -> impl Iterator<Item = (&'a str, Reader<'a>)> + use<'a> {
        debug_assert!(self.section.key(key).is_some(), "{key}");
        let tables = self.table.and_then(|t| t.table(key)).map_or(&[][..], |t| &t.0);
        tables.iter().filter_map(move |e| match &e.node.value {
            Value::Table(t) => Some((e.key.as_str(), Reader { section, table: Some(t), at: e.at })),
            _ => None,
        })
    }

    /// The names of the tables under a key.
    pub(crate) fn names(&self, key: &str) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let tables = self.table.and_then(|t| t.table(key)).map_or(&[][..], |t| &t.0);
        tables.iter().map(|e| e.key.as_str())
    }

    /// The tables one after another under a key.
    pub(crate) fn list(
        &self,
        key: &str,
        section: &'static Section,
    ) -> impl Iterator<Item = Reader<'a>> + use<'a> {
        debug_assert!(self.section.key(key).is_some(), "{key}");
        let items = match self.table.and_then(|t| t.get(key)).map(|e| &e.node.value) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        items.iter().filter_map(move |n| match &n.value {
            Value::Table(t) => Some(Reader { section, table: Some(t), at: n.at }),
            _ => None,
        })
    }

    /// A key as it stands in the table.
    pub(crate) fn entry(&self, key: &str) -> Option<&'a Entry> {
        debug_assert!(self.section.key(key).is_some(), "{key}");
        self.table.and_then(|t| t.get(key))
    }

    /// Whether the table is there.
    pub(crate) fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// Whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|t| t.get(key).is_some())
    }

    /// Whether the key is absent, and no other was probably meant for it.
    pub fn lacks(&self, key: &str) -> bool {
        !self.table.is_some_and(|t| t.get(key).is_some() || misspelt(t, self.section, key))
    }

    /// Where the table is.
    pub fn place(&self) -> At {
        self.at
    }

    /// Where a key's value is, or else the table.
    pub fn at(&self, key: &str) -> At {
        self.table.and_then(|t| t.get(key)).map_or(self.at, |e| e.node.at)
    }

    /// Where the key itself is, or else the table.
    pub(crate) fn key_at(&self, key: &str) -> At {
        self.table.and_then(|t| t.get(key)).map_or(self.at, |e| e.at)
    }

    fn value(&self, name: &str) -> Option<Val> {
        let key = self.section.key(name);
        debug_assert!(key.is_some(), "{name} is not in the table of keys");
        let key = key?;
        let mut reported = Mistakes::default();
        let given = self.table.and_then(|t| t.get(name));
        if let Some(value) = given.and_then(|e| key.kind.read(name, &e.node, &mut reported)) {
            return Some(value);
        }
        let Default::Is(text) = key.default else { return None };
        let node = Node { value: literal(key.kind, text), at: At::default() };
        key.kind.read(name, &node, &mut reported)
    }

    read_as! {
        /// A number of a key that has no default.
        pub(crate) number_if: Number(f64);
        /// A string.
        pub text: Text(String);
        pub(crate) count: Count(u64);
        /// A size, bytes.
        pub bytes: Bytes(u64);
        pub(crate) when: When(When);
        pub(crate) sizes: Sizes(SizesSpec);
        pub(crate) arrivals: Arrivals(crate::plan::Arrivals);
    }

    pub(crate) fn truth(&self, key: &str) -> bool {
        matches!(self.value(key), Some(Val::Truth(true)))
    }

    /// One of the key's words; empty if it has neither value nor default.
    pub(crate) fn word(&self, key: &str) -> &'static str {
        match self.value(key) {
            Some(Val::Word(word)) => word,
            _ => "",
        }
    }

    /// The same, where the words are an enum's.
    pub(crate) fn one_of<F: Field>(&self, key: &str) -> Option<F> {
        F::of(param::Value::Word(self.word(key)))
    }

    /// A number of a key that has a default or must be there.
    pub fn number(&self, key: &str) -> f64 {
        self.number_if(key).unwrap_or_default()
    }

    /// A time; `None` if it is `"none"`, or neither given nor a default.
    pub(crate) fn time(&self, key: &str) -> Option<Time> {
        match self.value(key) {
            Some(Val::Time(time)) => time,
            _ => None,
        }
    }

    /// A time of a key that has a default or must be there.
    pub fn span(&self, key: &str) -> Time {
        self.time(key).unwrap_or_default()
    }

    /// A rate; `None` if it is `"all"`, or neither given nor a default.
    pub fn rate(&self, key: &str) -> Option<Rate> {
        match self.value(key) {
            Some(Val::Rate(rate)) => rate,
            _ => None,
        }
    }

    pub(crate) fn limit(&self, key: &str) -> LimitSpec {
        match self.value(key) {
            Some(Val::Limit(limit)) => limit,
            _ => LimitSpec::Unlimited,
        }
    }

    /// Patterns, with their places.
    pub fn patterns(&self, key: &str) -> Vec<(String, At)> {
        match self.value(key) {
            Some(Val::Patterns(patterns)) => patterns,
            _ => Vec::new(),
        }
    }
}

/// Values of a law's parameters. Words of files have hyphens.
impl Values for Reader<'_> {
    fn value(&self, field: &str) -> Option<param::Value> {
        let key = field.replace('_', "-");
        if !self.has(&key) {
            return None;
        }
        Some(match self.value(&key)? {
            Val::Truth(truth) => param::Value::Truth(truth),
            Val::Word(word) => param::Value::Word(word),
            Val::Count(n) => param::Value::Count(n),
            Val::Number(x) => param::Value::Number(x),
            Val::Time(time) => param::Value::Time(time?),
            Val::Rate(rate) => param::Value::Rate(rate),
            Val::Bytes(n) => param::Value::Bytes(Bytes(n)),
            Val::Limit(LimitSpec::Packets(n)) => param::Value::Threshold(Threshold::Packets(n)),
            Val::Limit(LimitSpec::Bytes(n)) => param::Value::Threshold(Threshold::Bytes(n)),
            Val::Limit(LimitSpec::Times(part)) => param::Value::Threshold(Threshold::Part(part)),
            _ => return None,
        })
    }
}

/// A default as a value.
fn literal(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Truth => Value::Truth(text == "true"),
        Kind::Count { .. } => text.parse().map_or(Value::Date, Value::Whole),
        Kind::Number { .. } | Kind::Over { .. } => text.parse().map_or(Value::Date, Value::Real),
        Kind::Threshold => text.parse().map_or_else(|_| Value::Text(text.into()), Value::Real),
        _ => Value::Text(text.into()),
    }
}

#[cfg(test)]
impl Reader<'_> {
    /// Whether a key's default is a value that it takes.
    pub(crate) fn default_is_right(&self, key: &str) -> bool {
        self.value(key).is_some()
    }
}
