//! What a scenario file may say: one table of keys, from which files are checked and read, what was probably meant
//! is guessed, and the JSON Schema and the reference in the manual are written.

mod sections;

pub use sections::LINK_LAWS;
pub(crate) use sections::{
    AGGREGATE, BURSTS, CBR, CHANGE, CLASS, EXCHANGE, FLOW, FRAMES, GENERATORS, HOST, LINK, LOSS, LawTable,
    MACHINE, MEASURE, MEDIUM, METER, NODE, OVERLAY, OVERLAY_GROUP, OVERLAY_HOP, OVERLAY_PERIOD,
    OVERLAY_SENDER, OVERLAY_UPDATE, READER, RECEIVE_WINDOW, REVERSE, ROUTING, RTO, SWITCH, TOPOLOGY,
    TOPOLOGY_LINK, WORKLOAD, link_laws, sender_laws,
};
pub(crate) use sections::{TOP, all};

/// A table of the file.
#[derive(Debug)]
pub struct Section {
    /// Its header as the manual writes it: `[link.NAME]`; empty for the top of the file.
    pub header: &'static str,
    /// What it is for: a sentence or two of Markdown.
    pub says: &'static str,
    /// Its keys; in several parts, as sections share some.
    pub parts: &'static [&'static [Key]],
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, as files write it.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The value where it is absent.
    pub default: Default,
    /// What it means, in Markdown.
    pub says: &'static str,
}

/// What holds if a key is absent.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// It must not be.
    Must,
    /// This value, written as in a file but without the quotes.
    Is(&'static str),
    /// Something worked out, or nothing: what, in words; empty for nothing to be said.
    Else(&'static str),
}

/// What a key's value is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any string.
    Text,
    /// A string that can stand on a line: not empty, and without control characters.
    Line,
    /// True or false.
    Truth,
    /// One of these.
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
    /// A number over the first bound, up to the second.
    Over {
        /// The bound below, excluded.
        over: f64,
        /// The upper bound.
        most: f64,
    },
    /// A span or an instant, of so many nanoseconds at least.
    Time {
        /// The lower bound.
        least: u64,
    },
    /// The same, or `"none"`.
    TimeOrNone,
    /// Bits a second, more than none.
    Rate,
    /// The same, as much as a wire has at least.
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
    /// A part of a limit, or packets or bytes.
    Threshold,
    /// A time, or `{ first, last }`.
    Spread,
    /// A time, `{ first, last }` or `{ random, after }`.
    When,
    /// How large flows are.
    Sizes,
    /// When flows come.
    Arrivals,
    /// A node, a group, or a member of one.
    Node,
    /// Nodes by name, with `*` and `?`, or a list of such.
    Nodes,
    /// A name that `[medium.NAME]` gives.
    Medium,
    /// Links by name, with `*` and `?`.
    Links,
    /// Flows by name, with `*` and `?`.
    Flows,
    /// A string or several, of which this is said.
    Match(&'static str),
    /// A table of its own.
    Table(&'static Section),
    /// Tables by name.
    Named(&'static Section),
    /// Tables one after another.
    List(&'static Section),
    /// Tables by name that say what to set otherwise.
    Variants,
    /// Tables by name that are the axes of a grid of variants.
    Grid,
    /// Tables one after another that the report reads.
    Raw,
    /// A table of another reader.
    RawTable,
    /// No key, but all of these.
    All(fn() -> &'static [Key]),
}

impl Kind {
    /// Whether its value is a table, or several, and not read by [`Kind::read`].
    pub(crate) fn holds_tables(&self) -> bool {
        use Kind::*;
        matches!(self, Table(_) | Named(_) | List(_) | Variants | Grid | Raw | RawTable | All(_))
    }
}

impl Section {
    /// Every key.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static Key> + Clone + use<> {
        self.parts.iter().flat_map(|part| part.iter()).flat_map(|key| match key.kind {
            Kind::All(keys) => keys(),
            _ => std::slice::from_ref(key),
        })
    }

    /// Every key's name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.keys().map(|k| k.name)
    }

    /// A key by name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|k| k.name == name)
    }

    /// A key by its name, or by its name with `_` for `-`.
    pub(crate) fn key_spelt(&self, name: &str) -> Option<&'static Key> {
        self.key(name).or_else(|| self.key(&name.replace('_', "-")))
    }

    /// What messages call it.
    pub(crate) fn title(&self) -> String {
        if self.header.is_empty() { "a scenario".to_owned() } else { format!("`{}`", self.header) }
    }
}
