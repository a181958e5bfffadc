//! Checks a tree against the table of keys, and reads valid values.

use std::sync::Arc;

use tollway_law::param::{self, Field, Threshold, Values};
use tollway_law::{Bytes, Rate, Time};

use super::error::{At, Mistakes, ScenarioError, Sources, closest, synonyms};
use super::keys::{Default, Kind, Section};
use super::tree::{self, Entry, Node, Table, Value};
use super::value::{LimitSpec, SizesSpec, Val, When};

/// Reads `text` by the keys of `top`.
///
/// Messages call the text `file`, its top table `title`, and the kind of file `of`. `resolve` makes
/// the result and may add mistakes.
///
/// # Errors
/// All independent mistakes, with their places.
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

/// Adds a mistake for every unknown key, missing key and invalid value, also in nested tables.
/// Messages call the table `title`.
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
            // Variants were laid over the rest before this check. The report checks its own tables.
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

/// Checks a table of named tables.
fn check_named(names: &Table, at: &Entry, of: &str, inner: &'static Section, mistakes: &mut Mistakes) {
    for named in &names.0 {
        match &named.node.value {
            Value::Table(t) => {
                match inner.header.contains('"') {
                    true => any_name(&named.key, named.at, mistakes),
                    false => name(&named.key, named.at, mistakes),
                }
                check(t, named.at, inner, &format!("`[{of}.{}]`", named.key), mistakes);
            }
            // `[flow]` in place of `[flow.NAME]`: one message is enough.
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

/// Returns true if an unknown key is probably the absent `key`: one message is then enough.
fn misspelt(table: &Table, section: &'static Section, key: &str) -> bool {
    let unknown = table.0.iter().filter(|e| section.key(&e.key).is_none());
    let mut unknown = unknown.map(|e| e.key.as_str());
    unknown.any(|name| {
        synonyms(name, section.names()).contains(&key) || closest(name, section.names()) == Some(key)
    })
}

/// Checks a name: names become parts of paths and consist of letters, digits, `-` and `_`.
pub(crate) fn name(text: &str, at: At, mistakes: &mut Mistakes) {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || !text.chars().all(good) {
        mistakes
            .add(at, format!("`{text}` is not a valid name"), "not a name")
            .help("a name has only the letters a to z, digits, `-` and `_`");
    }
}

/// Checks a name that may have any visible characters.
fn any_name(text: &str, at: At, mistakes: &mut Mistakes) {
    if text.trim().is_empty() || text.contains(char::is_control) {
        mistakes
            .add(at, format!("`{text}` is not a valid name"), "not a name")
            .help("write it with visible characters only");
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

/// Methods of [`Reader`] for values of one kind; `None` if a key has neither value nor default.
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

/// Reads the keys of one table, with their defaults. An invalid value, already reported, reads as
/// the default.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    section: &'static Section,
    table: Option<&'a Table>,
    at: At,
}

impl<'a> Reader<'a> {
    /// Returns a reader of a table; of an absent table, a reader of all defaults.
    pub(crate) fn new(section: &'static Section, table: Option<&'a Table>, at: At) -> Reader<'a> {
        Reader { section, table, at }
    }

    /// Adds the table's mistakes, as [`check`] does.
    pub(crate) fn check(&self, mistakes: &mut Mistakes) {
        if let Some(table) = self.table {
            check(table, self.at, self.section, &self.section.title(), mistakes);
        }
    }

    /// The table at a key.
    pub fn table(&self, key: &str, section: &'static Section) -> Reader<'a> {
        debug_assert!(self.section.key(key).is_some(), "{key}");
        let at = self.table.and_then(|t| t.get(key)).map_or(self.at, |e| e.at);
        Reader { section, table: self.table.and_then(|t| t.table(key)), at }
    }

    /// The named tables at a key.
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

    /// The names of the tables at a key.
    pub(crate) fn names(&self, key: &str) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let tables = self.table.and_then(|t| t.table(key)).map_or(&[][..], |t| &t.0);
        tables.iter().map(|e| e.key.as_str())
    }

    /// The list of tables at a key.
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

    /// A key's entry in the table.
    pub(crate) fn entry(&self, key: &str) -> Option<&'a Entry> {
        debug_assert!(self.section.key(key).is_some(), "{key}");
        self.table.and_then(|t| t.get(key))
    }

    /// Returns true if the table exists.
    pub(crate) fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// Returns true if the table has the key.
    pub fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|t| t.get(key).is_some())
    }

    /// Returns true if the key is absent and no unknown key is probably a misspelling of it.
    pub fn lacks(&self, key: &str) -> bool {
        !self.table.is_some_and(|t| t.get(key).is_some() || misspelt(t, self.section, key))
    }

    /// The place of the table.
    pub fn place(&self) -> At {
        self.at
    }

    /// The place of a key's value; of the table if the key is absent.
    pub fn at(&self, key: &str) -> At {
        self.table.and_then(|t| t.get(key)).map_or(self.at, |e| e.node.at)
    }

    /// The place of a key's name; of the table if the key is absent.
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
        /// The number of a key without a default.
        pub(crate) number_if: Number(f64);
        /// A string.
        pub text: Text(String);
        /// A whole number.
        pub count: Count(u64);
        /// A size, bytes.
        pub bytes: Bytes(u64);
        pub(crate) when: When(When);
        pub(crate) sizes: Sizes(SizesSpec);
        pub(crate) arrivals: Arrivals(crate::plan::Arrivals);
    }

    /// True if the key's value is `true`.
    pub fn truth(&self, key: &str) -> bool {
        matches!(self.value(key), Some(Val::Truth(true)))
    }

    /// The word of a key with fixed words; empty if it has neither value nor default.
    pub fn word(&self, key: &str) -> &'static str {
        match self.value(key) {
            Some(Val::Word(word)) => word,
            _ => "",
        }
    }

    /// The member of an enum whose word the key has.
    pub fn one_of<F: Field>(&self, key: &str) -> Option<F> {
        F::of(param::Value::Word(self.word(key)))
    }

    /// The number of a key that is required or has a default.
    pub fn number(&self, key: &str) -> f64 {
        self.number_if(key).unwrap_or_default()
    }

    /// A time; `None` for `"none"`, and for a key with neither value nor default.
    pub(crate) fn time(&self, key: &str) -> Option<Time> {
        match self.value(key) {
            Some(Val::Time(time)) => time,
            _ => None,
        }
    }

    /// The time of a key that is required or has a default.
    pub fn span(&self, key: &str) -> Time {
        self.time(key).unwrap_or_default()
    }

    /// A rate; `None` for `"all"`, and for a key with neither value nor default.
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

    /// The value that `parse` makes of a key's text. Its error is a mistake with the remedy `help`.
    pub fn parsed<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
        help: &str,
        mistakes: &mut Mistakes,
    ) -> Option<T> {
        let parsed = parse(&self.text(key)?);
        parsed.map_err(|message| mistakes.add(self.at(key), message, "here").help(help)).ok()
    }

    /// The values that `parse` makes of the patterns of a key, as [`Reader::parsed`].
    pub fn each<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
        help: &str,
        mistakes: &mut Mistakes,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for (text, at) in self.patterns(key) {
            match parse(&text) {
                Ok(value) => all.push(value),
                Err(message) => mistakes.add(at, message, "here").help(help),
            }
        }
        all
    }

    /// The patterns of a key, with their places.
    pub fn patterns(&self, key: &str) -> Vec<(String, At)> {
        match self.value(key) {
            Some(Val::Patterns(patterns)) => patterns,
            _ => Vec::new(),
        }
    }
}

/// Values of a law's parameters. Underscores of parameter names are hyphens in the file.
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

/// The text of a default as a value.
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
    /// Returns true if the key's default is a valid value of it.
    pub(crate) fn default_is_right(&self, key: &str) -> bool {
        self.value(key).is_some()
    }
}
