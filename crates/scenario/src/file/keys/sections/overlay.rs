//! The cost-benefit overlay.

use std::sync::LazyLock;

use tollway_law::overlay::{AnnounceConfig, Benefit, CostConfig, PeriodConfig, PurseConfig};
use tollway_law::param::Tabled;

use super::super::Default::{Else, Is, Must};
use super::super::{Key, Kind, Section};
use super::flows::TRANSPORT;
use super::*;

const BENEFITS: Kind = Kind::Word(Benefit::WORDS);

/// Declares functions that turn a law's parameters into keys.
macro_rules! constants {
    ($($name:ident = $config:ty;)*) => {$(
        fn $name() -> &'static [Key] {
            static KEYS: LazyLock<Vec<Key>> = LazyLock::new(laws::keys_of::<$config>);
            &KEYS
        }
    )*};
}
constants! {
    cost = CostConfig;
    purse = PurseConfig;
    update = AnnounceConfig;
    period = PeriodConfig;
}

/// `[overlay]`.
pub(crate) static OVERLAY: Section = Section {
    header: "[overlay]",
    says: "A cost-benefit overlay (see [its chapter](cost-benefit.md)): a daemon at each node where a hop ends, and the constants that \
           all daemons share. Spans that the paper leaves open have the values of the parameter study.",
    parts: &[&[
        key(
            "message",
            Kind::Bytes { least: 256, most: 1 << 20 },
            Is("1000 B"),
            "A message on a link, with the headers of daemon and transport.",
        ),
        key("", Kind::All(cost), Else(""), ""),
        key("", Kind::All(purse), Else(""), ""),
        key(
            "benefit",
            BENEFITS,
            Is("messages"),
            "What a message is worth to its sender: one; its receivers; or less the faster it sends.",
        ),
        key("update", Kind::Table(&OVERLAY_UPDATE), Else(""), "When prices are announced."),
        key("period", Kind::Table(&OVERLAY_PERIOD), Else(""), "The time between two salaries."),
        key("patience", SPAN, Is("10 s"), "How long messages are kept for a daemon out of reach."),
        key("hop", Kind::Named(&OVERLAY_HOP), Else(""), "Connections between daemons."),
        key("group", Kind::Named(&OVERLAY_GROUP), Else(""), "Groups of receivers."),
        key("sender", Kind::Named(&OVERLAY_SENDER), Else(""), "Senders."),
    ]],
};

/// `[overlay.update]`.
pub(crate) static OVERLAY_UPDATE: Section = Section {
    header: "[overlay.update]",
    says: AnnounceConfig::TABLE.says,
    parts: &[&[key("", Kind::All(update), Else(""), "")]],
};

/// `[overlay.period]`.
pub(crate) static OVERLAY_PERIOD: Section = Section {
    header: "[overlay.period]",
    says: PeriodConfig::TABLE.says,
    parts: &[&[key("", Kind::All(period), Else(""), "")]],
};

/// `[overlay.hop.NAME]`.
pub(crate) static OVERLAY_HOP: Section = Section {
    header: "[overlay.hop.NAME]",
    says: "Hops: each is one connection between two daemons with data both ways, over links one by one (`link`) or over the shortest path \
           between two nodes (`from`, `to`). In the tables of flows it is `hop.FROM-TO`, and `hop.FROM-TO.reverse`.",
    parts: &[
        &[
            key(
                "link",
                Kind::Links,
                Else("`from` and `to`"),
                "A hop over each of these links: a name, with `*` and `?` if many. Of parallel links the first.",
            ),
            key("from", Kind::Node, Else("`link`"), "One end."),
            key("to", Kind::Node, Else("`link`"), "The other end."),
            key(
                "length",
                Kind::Count { least: 1, most: 65535 },
                Is("1"),
                "Its length: messages take the shortest paths.",
            ),
        ],
        TRANSPORT,
    ],
};

/// `[overlay.group.NAME]`.
pub(crate) static OVERLAY_GROUP: Section = Section {
    header: "[overlay.group.NAME]",
    says: "A group: each of its nodes has a receiver, which takes all that is sent to the group.",
    parts: &[&[
        key("at", Kind::Nodes, Must, "Its nodes: by name, with `*` and `?`, or a list of such."),
        key(
            "width",
            Kind::Count { least: 1, most: 1_000_000 },
            Else("one group of all nodes"),
            "Makes a group for each node instead, of so many nodes from this one on; the first follow the last.",
        ),
        key(
            "ordered",
            Kind::Truth,
            Is("false"),
            "All members take all messages in one order, which one of them states. A node that sends to the group is a member.",
        ),
    ]],
};

/// `[overlay.sender.NAME]`.
pub(crate) static OVERLAY_SENDER: Section = Section {
    header: "[overlay.sender.NAME]",
    says: "Senders at a node or at each member of a group of nodes. In the tables of flows each is `NAME`, or `NAME.1`, `NAME.2`, …: its \
           rate is what its daemon accepts.",
    parts: &[&[
        key("at", Kind::Node, Must, "The node, or a group of nodes."),
        key(
            "group",
            Kind::Text,
            Must,
            "The group it sends to; of groups with a `width`, sender k sends to group k.",
        ),
        key("count", Kind::Count { least: 1, most: 1_000_000 }, Else("one sender"), "So many at each node."),
        key(
            "start",
            Kind::When,
            Is("0 s"),
            "When it begins: a time, `{ first, last }` or `{ random, after }`, as of flows.",
        ),
        key("stop", Kind::When, Else("the end of the run"), "When it ends."),
        key(
            "arrivals",
            Kind::Arrivals,
            Else("always another message"),
            "When it has a message: `{ poisson = 100 }` a second in the mean, or `{ interval = \"10 ms\" }`.",
        ),
        key("on", SPAN, Else("always"), "It has messages for so long,"),
        key("off", SPAN, Else("never"), "and then none for so long."),
        key(
            "tenant",
            Kind::Text,
            Else("a purse of its own"),
            "Senders of one tenant at one node share a purse.",
        ),
        key(
            "salary",
            Kind::Over { over: 0.0, most: 1e6 },
            Is("1"),
            "Its purse's salary, as a multiple of `[overlay]`'s.",
        ),
        key("benefit", BENEFITS, Else("`[overlay]`'s"), "What its messages are worth."),
    ]],
};
