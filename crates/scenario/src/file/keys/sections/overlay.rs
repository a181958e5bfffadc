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
    says: "A cost-benefit overlay (see [its chapter](cost-benefit.md)): a daemon at each node where a hop ends, and the constants of \
           all daemons. Times that the paper does not give have the values of the parameter study.",
    parts: &[&[
        key(
            "message",
            Kind::Bytes { least: 256, most: 1 << 20 },
            Is("1000 B"),
            "Size of a message on a link, with the headers of daemon and transport.",
        ),
        key("", Kind::All(cost), Else(""), ""),
        key("", Kind::All(purse), Else(""), ""),
        key(
            "benefit",
            BENEFITS,
            Is("messages"),
            "Worth of a message to its sender: one (`messages`); the number of its receivers (`receivers`); or a value that falls with the sender's rate.",
        ),
        key("update", Kind::Table(&OVERLAY_UPDATE), Else(""), "Times at which prices are announced."),
        key("period", Kind::Table(&OVERLAY_PERIOD), Else(""), "The time between two salaries."),
        key("patience", SPAN, Is("10 s"), "Time for which messages to an unreachable daemon are kept."),
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
    says: "Hops: each is one connection between two daemons, with data both ways. It runs over one link (`link`) or over the shortest path \
           between two nodes (`from`, `to`). Its names in the tables of flows are `hop.FROM-TO` and `hop.FROM-TO.reverse`.",
    parts: &[
        &[
            key(
                "link",
                Kind::Links,
                Else("`from` and `to`"),
                "A hop over each of these links. Of parallel links only the first has one.",
            ),
            key("from", Kind::Node, Else("`link`"), "One end."),
            key("to", Kind::Node, Else("`link`"), "The other end."),
            key(
                "length",
                Kind::Count { least: 1, most: 65535 },
                Is("1"),
                "Length of a hop in the choice of paths: messages take the shortest paths.",
            ),
        ],
        TRANSPORT,
    ],
};

/// `[overlay.group.NAME]`.
pub(crate) static OVERLAY_GROUP: Section = Section {
    header: "[overlay.group.NAME]",
    says: "A group: each of its nodes has a receiver for all messages to the group.",
    parts: &[&[
        key("at", Kind::Nodes, Must, "Its nodes."),
        key(
            "width",
            Kind::Count { least: 1, most: 1_000_000 },
            Else("one group of all nodes"),
            "Makes a group for each node instead: this many nodes, from that node on; the list is circular.",
        ),
        key(
            "ordered",
            Kind::Truth,
            Is("false"),
            "Delivers all messages to all members in one order, which one member sets. A sender to the group must be a member.",
        ),
    ]],
};

/// `[overlay.sender.NAME]`.
pub(crate) static OVERLAY_SENDER: Section = Section {
    header: "[overlay.sender.NAME]",
    says: "Senders at a node or at each member of a group of nodes. Their names in the tables of flows are `NAME`, or `NAME.1`, `NAME.2`, …; a \
           sender's rate there is the rate that its daemon accepts.",
    parts: &[&[
        key("at", Kind::Node, Must, "The node, or a group of nodes."),
        key("group", Kind::Text, Must, "Destination group; with a `width`, sender k sends to group k."),
        key(
            "count",
            Kind::Count { least: 1, most: 1_000_000 },
            Else("one sender"),
            "Number of senders at each node.",
        ),
        key("start", Kind::When, Is("0 s"), "Start."),
        key("stop", Kind::When, Else("the end of the run"), "End."),
        key("arrivals", Kind::Arrivals, Else("a message is always ready"), "Arrivals of messages."),
        key("on", SPAN, Else("always"), "Length of a period with messages."),
        key("off", SPAN, Else("never"), "Length of the period without messages after it."),
        key(
            "tenant",
            Kind::Text,
            Else("a separate purse"),
            "Its tenant. Senders of one tenant at one node share a purse.",
        ),
        key(
            "salary",
            Kind::Over { over: 0.0, most: 1e6 },
            Is("1"),
            "Salary of its purse, as a multiple of the salary in `[overlay]`.",
        ),
        key("benefit", BENEFITS, Else("`[overlay]`'s"), "Worth of its messages."),
    ]],
};
