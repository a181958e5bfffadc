//! Tables of the laws' constants, from the registries of laws and queues.

use std::sync::LazyLock;

use tollway_law::link::LAWS;
use tollway_law::param::{self, Config, Param, Table};
use tollway_law::sender;
use tollway_proto::port::QUEUES;

use super::super::Default::{Else, Is, Must};
use super::super::{Key, Kind, Section};
use super::*;
use crate::plan::laws_that;

/// A table of a law's constants.
#[derive(Debug)]
pub(crate) struct LawTable {
    /// The table's key: `outer.inner` inside another table, empty for keys directly in the law's
    /// section.
    pub(crate) word: &'static str,
    pub(crate) section: &'static Section,
    /// The table's meaning: the laws with constants there.
    says: String,
}

/// Every table of link laws' constants, in the registries' order.
pub(crate) fn link_laws() -> &'static [LawTable] {
    static TABLES: LazyLock<Vec<LawTable>> = LazyLock::new(|| {
        let laws = LAWS.iter().flat_map(|law| law.tables);
        let queues = QUEUES.iter().flat_map(|entry| entry.queue.tables);
        law_tables("link.NAME", laws.chain(queues), |table| table.says.to_owned(), constants_of)
    });
    &TABLES
}

/// Every table of sender laws' constants, in the registry's order.
pub(crate) fn sender_laws() -> &'static [LawTable] {
    static TABLES: LazyLock<Vec<LawTable>> = LazyLock::new(|| {
        let options = |table: &Table| format!("Options of the law `{}`.", table.word);
        let tables = sender::LAWS.iter().flat_map(|law| law.tables);
        law_tables("flow.NAME", tables, |table| table.says.to_owned(), options)
    });
    &TABLES
}

/// Each of `tables` once, as a section under `header`.
fn law_tables(
    header: &str,
    tables: impl Iterator<Item = &'static &'static Table>,
    about: impl Fn(&Table) -> String,
    says: impl Fn(&Table) -> String,
) -> Vec<LawTable> {
    let mut once: Vec<&Table> = Vec::new();
    for &table in tables {
        if once.iter().all(|other| other.word != table.word) {
            once.push(table);
        }
    }
    // Inner tables follow their outer tables in the result, but are made first.
    let mut made: Vec<LawTable> = Vec::new();
    for table in once.into_iter().rev() {
        let mut keys: Vec<Key> = (table.params)().iter().map(parameter).collect();
        for inner in made.iter().rev() {
            if let Some((outer, name)) = inner.word.rsplit_once('.').filter(|(outer, _)| *outer == table.word)
            {
                debug_assert!(!outer.is_empty());
                let first = inner.section.says.split(['.', ';']).next().unwrap_or_default();
                keys.push(key(name, Kind::Table(inner.section), Else("none"), format!("{first}.").leak()));
            }
        }
        // Leaked on purpose: at most one allocation a table, for the whole program.
        let keys: &'static [Key] = keys.leak();
        let title = format!("[{header}.{}]", table.word).leak();
        let section = Section { header: title, says: about(table).leak(), parts: Vec::leak(vec![keys]) };
        let section: &'static Section = Box::leak(Box::new(section));
        made.push(LawTable { word: table.word, section, says: says(table) });
    }
    made.reverse();
    made
}

/// The keys of sender laws in `[flow.NAME]` and `[workload.NAME]`.
pub(super) fn sender_keys() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let beside = sender_laws().iter().filter(|law| law.word.is_empty());
        beside.flat_map(|law| law.section.keys()).copied().collect()
    });
    &KEYS
}

/// The tables of sender laws in `[flow.NAME]` and `[workload.NAME]`.
pub(super) fn sender_tables() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let outer = sender_laws().iter().filter(|law| !law.word.is_empty() && !law.word.contains('.'));
        outer.map(|law| key(law.word, Kind::Table(law.section), Else(""), &law.says)).collect()
    });
    &KEYS
}

/// The key that chooses between Tollway's and the kernel's transport.
pub(super) fn transport() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let says = format!(
            "The transport. `kernel`, with the law {}: the kernel's TCP in a live run with network namespaces; {} by programs \
             of `tollway host`, as root. A simulation then has by default its sizes (`header` and `ack-size` 52 B, with \
             timestamps; more with options), `loss-detection` RACK, and the constants of these programs.",
            laws_that(|law| law.kernel.is_some() || law.program),
            laws_that(|law| law.program).replace(" or ", " and "),
        );
        vec![key("transport", Kind::Word(&["tollway", "kernel"]), Is("tollway"), says.leak())]
    });
    &KEYS
}

/// The tables of link laws in `[link.NAME]`.
pub(super) fn tables() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| keys_of_tables(""));
    &KEYS
}

/// The tables of link laws in `[link.NAME.reverse]`.
pub(super) fn reverse_tables() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| keys_of_tables("the link's"));
    &KEYS
}

fn keys_of_tables(default: &'static str) -> Vec<Key> {
    link_laws().iter().map(|law| key(law.word, Kind::Table(law.section), Else(default), &law.says)).collect()
}

/// The laws that read a table, as a sentence.
fn constants_of(table: &Table) -> String {
    let has = |tables: &[&Table]| tables.iter().any(|other| other.word == table.word);
    let laws = LAWS.iter().filter(|law| has(law.tables)).map(|law| law.word);
    // A discipline also reads the tables of its law.
    let queues = QUEUES.iter().filter(|entry| has(entry.queue.tables) || has(entry.law.tables));
    let words = laws.chain(queues.map(|entry| entry.queue.word));
    let users: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    let constants = if (table.params)().len() == 1 { "Constant" } else { "Constants" };
    let laws = if users.len() == 1 { "law" } else { "laws" };
    format!("{constants} of the {laws} {}.", users.join(" and "))
}

/// The keys of a config's parameters.
pub(super) fn keys_of<C: Config>() -> Vec<Key> {
    C::params().iter().map(parameter).collect()
}

/// The key of a parameter.
fn parameter(param: &Param) -> Key {
    let kind = match param.kind {
        param::Kind::Truth => Kind::Truth,
        param::Kind::Word(words) => Kind::Word(words),
        param::Kind::Count { least, most } => Kind::Count { least, most },
        param::Kind::Number { least, most } => Kind::Number { least, most },
        param::Kind::Over { over, most } => Kind::Over { over, most },
        param::Kind::Time { least } => Kind::Time { least },
        param::Kind::Bytes { least, most } => Kind::Bytes { least, most },
        param::Kind::Rate => Kind::Rate,
        param::Kind::RateOrAll => Kind::RateOrAll,
        param::Kind::Threshold => Kind::Threshold,
    };
    let default = match param.default {
        Some(value) => Is(value.to_string().leak()),
        None if param.otherwise.is_empty() => Must,
        None => Else(param.otherwise),
    };
    key(param.field.replace('_', "-").leak(), kind, default, param.says)
}
