//! The tables of links' laws, which the registries of laws and queues list.

use std::sync::LazyLock;

use tollway_law::link::{DualPi2Config, LAWS};
use tollway_law::param::{self, Param, Table};

use super::super::Default::{Else, Is};
use super::super::{Key, Kind, Section};
use super::*;

/// A table of a link law's constants.
#[derive(Debug)]
pub(crate) struct LawTable {
    /// The key that it stands under.
    pub(crate) word: &'static str,
    pub(crate) section: &'static Section,
    /// The laws that have their constants there.
    says: String,
}

/// Every table of link laws' constants, in the registries' order.
pub(crate) fn link_laws() -> &'static [LawTable] {
    static TABLES: LazyLock<Vec<LawTable>> = LazyLock::new(|| {
        let mut tables: Vec<LawTable> = Vec::new();
        let laws = LAWS.iter().flat_map(|law| law.tables.iter().copied());
        for table in laws.chain([DualPi2Config::TABLE]) {
            if tables.iter().all(|other| other.word != table.word) {
                let section = section("link.NAME", table);
                tables.push(LawTable { word: table.word, section, says: constants_of(table) });
            }
        }
        tables.push(LawTable {
            word: "fq-codel",
            section: &FQ_CODEL,
            says: "Queues of the law `fq-codel`.".into(),
        });
        tables
    });
    &TABLES
}

/// The keys of these tables in `[link.NAME]`.
pub(super) fn tables() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| keys_of_tables(""));
    &KEYS
}

/// The same in `[link.NAME.reverse]`.
pub(super) fn reverse_tables() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| keys_of_tables("the link's"));
    &KEYS
}

fn keys_of_tables(default: &'static str) -> Vec<Key> {
    link_laws().iter().map(|law| key(law.word, Kind::Table(law.section), Else(default), &law.says)).collect()
}

/// The laws that have their constants in a table, in a sentence.
fn constants_of(table: &Table) -> String {
    let users = LAWS.iter().filter(|law| law.tables.iter().any(|other| other.word == table.word));
    let mut users: Vec<String> = users.map(|law| format!("`{}`", law.word)).collect();
    match table.word {
        "codel" => users.push("`fq-codel`".into()),
        "dualpi2" => users.push("`dualpi2`".into()),
        _ => {}
    }
    let constants = if (table.params)().len() == 1 { "Constant" } else { "Constants" };
    let laws = if users.len() == 1 { "law" } else { "laws" };
    format!("{constants} of the {laws} {}.", users.join(" and "))
}

/// The section of a table of parameters under `header`. It lasts as long as the program; there are as many as tables.
pub(super) fn section(header: &str, table: &Table) -> &'static Section {
    let keys: &'static [Key] = (table.params)().iter().map(parameter).collect::<Vec<_>>().leak();
    let header = format!("[{header}.{}]", table.word).leak();
    Box::leak(Box::new(Section { header, says: table.says, parts: Vec::leak(vec![keys]) }))
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
        param::Kind::RateOrAll => Kind::RateOrAll,
        param::Kind::Threshold => Kind::Threshold,
    };
    let default = match param.default {
        Some(value) => Is(value.to_string().leak()),
        None => Else(param.otherwise),
    };
    key(param.field.replace('_', "-").leak(), kind, default, param.says)
}

/// `[link.NAME.fq-codel]`.
pub(crate) static FQ_CODEL: Section = Section {
    header: "[link.NAME.fq-codel]",
    says: "The queues of FQ-CoDel (RFC 8290); `limit` is of all together.",
    parts: &[&[
        key(
            "queues",
            Kind::Count { least: 1, most: 65_536 },
            Is("1024"),
            "Queues that flows are hashed into.",
        ),
        key(
            "quantum",
            Kind::Bytes { least: 1, most: 1 << 20 },
            Is("1514 B"),
            "What a queue may send in its turn.",
        ),
    ]],
};
