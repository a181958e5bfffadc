//! The table of keys of a scenario file.
//!
//! Files are checked and read by it. Suggestions, the JSON Schema and the manual's reference come
//! from it, too.

mod sections;

pub(crate) use sections::{
    AGGREGATE, BURSTS, CBR, CHANGE, CLASS, EXCHANGE, FLOW, FRAMES, GENERATORS, HOST, LINK, LOSS, LawTable,
    MACHINE, MEASURE, MEDIUM, METER, NODE, OVERLAY, OVERLAY_GROUP, OVERLAY_HOP, OVERLAY_PERIOD,
    OVERLAY_SENDER, OVERLAY_UPDATE, READER, RECEIVE_WINDOW, REVERSE, ROUTING, RTO, SWITCH, TOPOLOGY,
    TOPOLOGY_LINK, WORKLOAD, link_laws, sender_laws,
};
pub use sections::{LINK_LAWS, RULES};
pub(crate) use sections::{TOP, families};

/// A table of the file, such as `[link.NAME]`.
#[derive(Debug)]
pub struct Section {
    /// Its header as the manual writes it: `[link.NAME]`; empty for the top of the file. Quotes, as
    /// in `[member."NAME"]`, allow any visible characters in a name.
    pub header: &'static str,
    /// The table's purpose: a sentence or two of Markdown.
    pub says: &'static str,
    /// Its keys, in several lists, since sections share some lists.
    pub parts: &'static [&'static [Key]],
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key's name in files.
    pub name: &'static str,
    /// The valid values.
    pub kind: Kind,
    /// The value if the key is absent.
    pub default: Default,
    /// The key's meaning, in Markdown.
    pub says: &'static str,
}

/// The value of an absent key.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// The key is required.
    Must,
    /// This value, as in a file but without quotes.
    Is(&'static str),
    /// A computed value or none, described in words; empty if no description is needed.
    Else(&'static str),
}

/// The type and range of a key's values.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any string.
    Text,
    /// A string for a single line: not empty, without control characters.
    Line,
    /// True or false.
    Truth,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number in a range.
    Count {
        /// The lower bound.
        least: u64,
        /// The upper bound.
        most: u64,
    },
    /// A number in a range.
    Number {
        /// The lower bound.
        least: f64,
        /// The upper bound.
        most: f64,
    },
    /// A number above the first bound, at most the second.
    Over {
        /// The lower bound, excluded.
        over: f64,
        /// The upper bound.
        most: f64,
    },
    /// A duration or an instant of at least `least` nanoseconds.
    Time {
        /// The lower bound.
        least: u64,
    },
    /// A positive duration, or `"none"`.
    TimeOrNone,
    /// A positive rate, bit/s.
    Rate,
    /// A rate in the range of a wire's rates, bit/s.
    WireRate,
    /// As `Rate`, or `"all"`.
    RateOrAll,
    /// A size in a range, bytes.
    Bytes {
        /// The lower bound.
        least: u64,
        /// The upper bound.
        most: u64,
    },
    /// A queue's or a buffer's limit: packets, bytes, BDP or `"unlimited"`.
    Limit,
    /// A fraction of a limit, or packets or bytes.
    Threshold,
    /// A time, or `{ first, last }`.
    Spread,
    /// A time, `{ first, last }`, or `{ random, after }`.
    When,
    /// The sizes of flows.
    Sizes,
    /// The arrivals of flows.
    Arrivals,
    /// A node, a group, or a member of one.
    Node,
    /// Nodes by name, with `*` and `?`, or a list of such.
    Nodes,
    /// A name of a `[medium.NAME]`.
    Medium,
    /// Links by name, with `*` and `?`.
    Links,
    /// Flows by name, with `*` and `?`.
    Flows,
    /// A string or a list of strings, described by these words.
    Match(&'static str),
    /// A table.
    Table(&'static Section),
    /// Tables by name.
    Named(&'static Section),
    /// A list of tables.
    List(&'static Section),
    /// Tables by name with settings of variants.
    Variants,
    /// Tables by name that are the axes of a grid of variants.
    Grid,
    /// A list of tables for the report, not checked here.
    Raw,
    /// A table for another reader, not checked here.
    RawTable,
    /// No key of this name; all of the returned keys instead.
    All(fn() -> &'static [Key]),
}

impl Kind {
    /// Returns true if the value is a table or a list of tables; [`Kind::read`] does not read it.
    pub(crate) fn holds_tables(&self) -> bool {
        use Kind::*;
        matches!(self, Table(_) | Named(_) | List(_) | Variants | Grid | Raw | RawTable | All(_))
    }
}

impl Section {
    /// All keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static Key> + Clone + use<> {
        self.parts.iter().flat_map(|part| part.iter()).flat_map(|key| match key.kind {
            Kind::All(keys) => keys(),
            _ => std::slice::from_ref(key),
        })
    }

    /// The names of all keys.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.keys().map(|k| k.name)
    }

    /// The key called `name`.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|k| k.name == name)
    }

    /// The key called `name`, also with `_` for `-`.
    pub(crate) fn key_spelt(&self, name: &str) -> Option<&'static Key> {
        self.key(name).or_else(|| self.key(&name.replace('_', "-")))
    }

    /// The table's name in messages.
    pub(crate) fn title(&self) -> String {
        if self.header.is_empty() { "a scenario".to_owned() } else { format!("`{}`", self.header) }
    }
}
