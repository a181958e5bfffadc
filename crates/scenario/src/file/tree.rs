//! The file as a tree of values with their places, and assignment by dotted path.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{At, Mistakes, Sources};
use super::keys::{Key, Kind, Section};
use super::matches;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: At,
}

/// A TOML value; a scenario has no dates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    /// A whole number.
    Whole(i64),
    Real(f64),
    Truth(bool),
    List(Vec<Node>),
    Table(Table),
    Date,
}

/// A table, in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table(pub(crate) Vec<Entry>);

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: At,
    pub(crate) node: Node,
}

impl Entry {
    /// A key and its value, both at one place.
    pub(crate) fn new(key: &str, at: At, value: Value) -> Entry {
        Entry { key: key.to_owned(), at, node: Node { value, at } }
    }
}

impl Value {
    /// The value's type, with an article.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Whole(_) => "a whole number",
            Value::Real(_) => "a number",
            Value::Truth(_) => "true or false",
            Value::List(list) if list.is_empty() => "an empty array",
            Value::List(_) => "an array",
            Value::Table(_) => "a table",
            Value::Date => "a date",
        }
    }
}

impl Table {
    /// The entry of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|e| e.key == key)
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.0.iter_mut().find(|e| e.key == key)
    }

    /// The table under a key, if there is one.
    pub(crate) fn table(&self, key: &str) -> Option<&Table> {
        match &self.get(key)?.node.value {
            Value::Table(t) => Some(t),
            _ => None,
        }
    }
}

/// Parses a whole file; syntax errors, as far as TOML's parser separates them, go to `mistakes`.
pub(crate) fn parse(text: &str, mistakes: &mut Mistakes) -> Table {
    // Places have 32 bits.
    if u32::try_from(text.len()).is_err() {
        mistakes.add(At::default(), "the file is larger than 4 GiB", "here");
        return Table::default();
    }
    let (tree, errors) = DeTable::parse_recoverable(text);
    let mut tables_twice = Vec::new();
    for e in &errors {
        let span = e.span().unwrap_or(0..0);
        let at = At { source: 0, start: span.start as u32, end: span.end as u32 };
        let twice = if e.message() == "duplicate key" { twice(text, span) } else { None };
        match twice {
            // The keys of such a table are duplicates, too.
            Some(Twice::Table { at, .. }) if tables_twice.contains(&at) => {}
            Some(Twice::Table { at, header, first }) => {
                tables_twice.push(at);
                mistakes
                    .add(at, format!("`{header}` is given twice: first on line {first}"), "again")
                    .help("give one of them another name, or put their keys into one table");
            }
            Some(Twice::Key { key, first }) => {
                mistakes
                    .add(at, format!("`{key}` is given twice: first on line {first}"), "again")
                    .help("leave one of them out");
            }
            None => {
                mistakes.add(at, format!("this is not TOML: {}", e.message().replace('\n', ", ")), "here");
            }
        }
    }
    table(tree.get_ref(), 0, 0)
}

/// A duplicate, and the line of its first occurrence.
enum Twice {
    /// A table's header, whose second occurrence is at `at`.
    Table { at: At, header: String, first: usize },
    /// A key of a table.
    Key { key: String, first: usize },
}

/// The item that the key at `span` duplicates; `None` if its first occurrence does not begin a
/// line.
fn twice(text: &str, span: std::ops::Range<usize>) -> Option<Twice> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').enumerate().map(|(i, line)| {
        start += line.len();
        (i + 1, start - line.len(), line.trim())
    });
    let before: Vec<(usize, usize, &str)> = lines.take_while(|line| line.1 <= span.start).collect();
    let is_header = |line: &&(usize, usize, &str)| line.2.starts_with('[');
    let here = before.iter().rposition(|line| is_header(&line));
    if let Some(here) = here {
        let (_, start, line) = before[here];
        let header: String = line.split_inclusive(']').next()?.split_whitespace().collect();
        let same = |other: &&(usize, usize, &str)| {
            other.2.starts_with('[') && other.2.split_whitespace().collect::<String>().starts_with(&header)
        };
        if let Some((first, ..)) = before[..here].iter().find(same) {
            let at = At { source: 0, start: start as u32, end: (start + line.len()) as u32 };
            return Some(Twice::Table { at, header, first: *first });
        }
    }
    let key = text.get(span)?;
    let of_key = |line: &&(usize, usize, &str)| line.2.split('=').next().map(str::trim) == Some(key);
    let lines = here.map_or(0, |here| here + 1)..before.len().saturating_sub(1);
    let table = before.get(lines).unwrap_or_default();
    let (first, ..) = table.iter().find(of_key)?;
    Some(Twice::Key { key: key.to_owned(), first: *first })
}

/// Replaces `_` by `-` in the keys of a table and its inner tables, if the table of keys has the
/// result.
pub(crate) fn spell(table: &mut Table, section: &'static Section) {
    for i in 0..table.0.len() {
        let Some(key) = section.key_spelt(&table.0[i].key) else { continue };
        if table.0[i].key != key.name && table.get(key.name).is_none() {
            table.0[i].key = key.name.to_owned();
        }
        match (inner(key), &mut table.0[i].node.value) {
            (Some(Shape::Section(inner)), Value::Table(t)) => spell(t, inner),
            (Some(Shape::Names(inner, _)), Value::Table(names)) => {
                for named in &mut names.0 {
                    if let Value::Table(t) = &mut named.node.value {
                        spell(t, inner);
                    }
                }
            }
            (Some(Shape::List(inner)), Value::List(items)) => {
                for item in items {
                    if let Value::Table(t) = &mut item.value {
                        spell(t, inner);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Parses a value of the command line as TOML, or else as a string. It begins at byte `offset` of
/// source `source`.
pub(crate) fn parse_value(text: &str, source: u32, offset: usize) -> Node {
    let at = At { source, start: offset as u32, end: (offset + text.len()) as u32 };
    if let Ok(value) = DeValue::parse(text)
        && !value.get_ref().is_datetime()
    {
        return node(&value, source, offset);
    }
    Node { value: Value::Text(text.trim().to_owned()), at }
}

fn table(t: &DeTable<'_>, source: u32, offset: usize) -> Table {
    let entries = t.iter().map(|(key, value)| Entry {
        key: key.get_ref().to_string(),
        at: at(key, source, offset),
        node: node(value, source, offset),
    });
    Table(entries.collect())
}

fn at<T>(spanned: &Spanned<T>, source: u32, offset: usize) -> At {
    let span = spanned.span();
    At { source, start: (span.start + offset) as u32, end: (span.end + offset) as u32 }
}

fn node(spanned: &Spanned<DeValue<'_>>, source: u32, offset: usize) -> Node {
    let value = match spanned.get_ref() {
        DeValue::String(s) => Value::Text(s.to_string()),
        DeValue::Integer(i) => {
            let digits = i.as_str();
            match i64::from_str_radix(digits, i.radix()) {
                Ok(n) => Value::Whole(n),
                Err(_) => Value::Real(digits.parse().unwrap_or(f64::INFINITY)),
            }
        }
        DeValue::Float(f) => Value::Real(f.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(b) => Value::Truth(*b),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(items) => Value::List(items.iter().map(|i| node(i, source, offset)).collect()),
        DeValue::Table(t) => Value::Table(table(t, source, offset)),
    };
    Node { value, at: at(spanned, source, offset) }
}

/// Sets values in a tree, for variants and `--set`.
pub(crate) struct Setter<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) mistakes: &'a mut Mistakes,
}

impl Setter<'_> {
    /// Lays `over` on top of `base`, whose keys `section` describes. Keys of `over` may be dotted
    /// paths.
    pub(crate) fn overlay(&mut self, base: &mut Table, section: &'static Section, over: &Table) {
        for entry in &over.0 {
            self.set(base, section, &entry.key, entry.at, &entry.node);
        }
    }

    /// Sets the value at a dotted `path`, which stands at `at`.
    pub(crate) fn set(
        &mut self,
        base: &mut Table,
        section: &'static Section,
        path: &str,
        at: At,
        node: &Node,
    ) {
        // The place of each segment: inside the quotes of a quoted key.
        let text = self.sources.text(at);
        let inner = match text.find(path) {
            Some(offset) => at.part(offset, path.len()),
            None => at,
        };
        let mut offset = 0;
        let mut segments = Vec::new();
        for name in path.split('.') {
            let place = if inner == at && text != path { at } else { inner.part(offset, name.len()) };
            segments.push((name.trim(), place));
            offset += name.len() + 1;
        }
        // Paths of a scenario have at most four segments.
        if segments.len() > 8 || segments.iter().any(|s| s.0.is_empty()) {
            self.mistakes
                .add(at, format!("`{path}` is not the path of a key"), "set here")
                .help("write it like `link.bottleneck.rate`");
            return;
        }
        self.descend(base, Shape::Section(section), &segments, node);
    }

    fn descend(&mut self, base: &mut Table, shape: Shape, path: &[(&str, At)], node: &Node) {
        let Some((&(name, at), rest)) = path.split_first() else { return };
        if let Shape::Names(section, what) = shape {
            return self.named(base, section, what, (name, at), rest, node);
        }
        let Shape::Section(section) = shape else { return };
        let Some(key) = section.key_spelt(name) else {
            self.mistakes
                .add(at, format!("there is no key `{name}` in {}", section.title()), "unknown key")
                .suggest(name, section.names());
            return;
        };
        let name = key.name;
        match inner(key) {
            Some(Shape::List(section)) if !rest.is_empty() => {
                let mut none = Vec::new();
                let items = match base.get_mut(name).map(|e| &mut e.node.value) {
                    Some(Value::List(items)) => items,
                    _ => &mut none,
                };
                self.numbered(items, section, name, rest, node);
            }
            Some(shape @ (Shape::Section(_) | Shape::Names(..))) => {
                let table = match base.0.iter().position(|e| e.key == name) {
                    Some(i) => &mut base.0[i].node.value,
                    None => {
                        let value = Value::Table(Table::default());
                        base.0.push(Entry { key: name.to_owned(), at, node: Node { value, at } });
                        &mut base.0.last_mut().expect("just pushed").node.value
                    }
                };
                let Value::Table(table) = table else {
                    return; // Not a table in the file; the check of the file reports it.
                };
                match (&node.value, rest) {
                    // A table is laid over the existing table, key by key.
                    (Value::Table(over), []) => {
                        for e in &over.0 {
                            self.descend(table, shape, &[(e.key.as_str(), e.at)], &e.node);
                        }
                    }
                    (_, []) => {
                        let what = node.value.what();
                        self.mistakes
                            .add(node.at, format!("`{name}` is a table, not {what}"), "set here")
                            .help(format!("name one of its keys: `{name}.…`"));
                    }
                    _ => self.descend(table, shape, rest, node),
                }
            }
            _ if rest.is_empty() => match base.get_mut(name) {
                Some(entry) => entry.node = node.clone(),
                None => base.0.push(Entry { key: name.to_owned(), at, node: node.clone() }),
            },
            // A value with parts, such as `start = { first, last }`.
            _ => {
                let mut value = Table::default();
                let entry = match base.get_mut(name) {
                    Some(entry) => entry,
                    None => {
                        base.0.push(Entry {
                            key: name.to_owned(),
                            at,
                            node: Node { value: Value::Table(Table::default()), at },
                        });
                        base.0.last_mut().expect("just pushed")
                    }
                };
                if let Value::Table(t) = &mut entry.node.value {
                    std::mem::swap(&mut value, t);
                }
                put(&mut value, rest, node);
                entry.node.value = Value::Table(value);
            }
        }
    }

    /// Sets a value in a table of named tables: `*` stands for any letters of a name, `?` for one.
    fn named(
        &mut self,
        base: &mut Table,
        section: &'static Section,
        what: &str,
        (name, at): (&str, At),
        rest: &[(&str, At)],
        node: &Node,
    ) {
        let whole = rest.is_empty();
        let mut found = false;
        let pattern = name.contains(['*', '?']);
        for entry in base.0.iter_mut().filter(|e| matches(name, &e.key)) {
            found = true;
            let Value::Table(table) = &mut entry.node.value else { continue };
            if !whole {
                self.descend(table, Shape::Section(section), rest, node);
            } else if let Value::Table(over) = &node.value {
                for e in &over.0 {
                    self.descend(table, Shape::Section(section), &[(e.key.as_str(), e.at)], &e.node);
                }
            } else {
                let is = node.value.what();
                self.mistakes
                    .add(node.at, format!("{what} `{name}` is a table, not {is}"), "set here")
                    .help(format!("name one of its keys: `{what}.{name}.…`"));
            }
        }
        if found || (name == "*" && whole) {
            return;
        }
        // A path may add a whole table. A part of a missing table is a mistake.
        if whole && !pattern && matches!(node.value, Value::Table(_)) {
            base.0.push(Entry { key: name.to_owned(), at, node: node.clone() });
            return;
        }
        let message = match pattern {
            true => format!("no {what} matches `{name}`"),
            false => format!("there is no {what} `{name}`"),
        };
        let found = self.mistakes.add(at, message, format!("unknown {what}"));
        found.suggest(name, base.0.iter().map(|e| e.key.as_str()));
    }

    /// Sets a value in a list of tables by index from 0; `*` is all of them.
    fn numbered(
        &mut self,
        items: &mut [Node],
        section: &'static Section,
        list: &str,
        path: &[(&str, At)],
        node: &Node,
    ) {
        let (which, at) = path[0];
        let many = items.len();
        let mut found = false;
        for (i, item) in items.iter_mut().enumerate() {
            if which != "*" && which.parse() != Ok(i) {
                continue;
            }
            found = true;
            if let Value::Table(table) = &mut item.value {
                self.descend(table, Shape::Section(section), &path[1..], node);
            }
        }
        if !found {
            self.mistakes
                .add(at, format!("there is no `[[{list}]]` numbered `{which}`"), "unknown number")
                .help(match many {
                    0 => format!("the file has no `[[{list}]]`"),
                    1 => "there is one, numbered 0".to_owned(),
                    n => format!("they are numbered from 0 to {}", n - 1),
                });
        }
    }
}

/// The kind of table at a place in the tree.
#[derive(Clone, Copy)]
enum Shape {
    Section(&'static Section),
    Names(&'static Section, &'static str),
    List(&'static Section),
}

fn inner(key: &'static Key) -> Option<Shape> {
    match key.kind {
        Kind::Table(section) => Some(Shape::Section(section)),
        Kind::Named(section) => Some(Shape::Names(section, key.name)),
        Kind::List(section) => Some(Shape::List(section)),
        _ => None,
    }
}

/// Sets a part of a value that has no section.
fn put(table: &mut Table, path: &[(&str, At)], node: &Node) {
    let Some(((name, at), rest)) = path.split_first() else { return };
    if rest.is_empty() {
        match table.get_mut(name) {
            Some(entry) => entry.node = node.clone(),
            None => table.0.push(Entry { key: (*name).to_owned(), at: *at, node: node.clone() }),
        }
        return;
    }
    let mut inner = Table::default();
    if let Some(Entry { node: Node { value: Value::Table(t), .. }, .. }) = table.get_mut(name) {
        std::mem::swap(&mut inner, t);
    }
    put(&mut inner, rest, node);
    let made = Node { value: Value::Table(inner), at: *at };
    match table.get_mut(name) {
        Some(entry) => entry.node = made,
        None => table.0.push(Entry { key: (*name).to_owned(), at: *at, node: made }),
    }
}
