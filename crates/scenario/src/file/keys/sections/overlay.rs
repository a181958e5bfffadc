//! The cost-benefit overlay.

use super::super::Default::{Else, Is, Must};
use super::super::{Kind, Section};
use super::flows::TRANSPORT;
use super::*;

const DOLLARS: Kind = Kind::Number { least: 0.0, most: 1e6 };
const BENEFITS: Kind = Kind::Word(&["messages", "receivers", "concave"]);

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
        key(
            "soft-limit",
            SPAN,
            Is("400 ms"),
            "M: the queue of a hop at which its price is `prohibitive`, as the time that the hop takes for it; 100 messages at 2 Mb/s.",
        ),
        key(
            "prohibitive",
            Kind::Over { over: 0.0, most: 1e6 },
            Is("20"),
            "S: the price at the soft limit, dollars.",
        ),
        key(
            "base",
            Kind::Over { over: 1.0, most: 1e6 },
            Is("2.718281828459045"),
            "Base of the price's exponent; e.",
        ),
        key(
            "window",
            Kind::Number { least: 0.0, most: 1e6 },
            Is("0"),
            "Updates over which the queue is averaged; 0 takes it as it is at the update.",
        ),
        key("salary", DOLLARS, Is("10"), "What a sender is paid each period, dollars."),
        key("cap", DOLLARS, Is("20"), "What it can save, dollars."),
        key("fee", DOLLARS, Is("1"), "p: what every message costs beside its hops, dollars."),
        key(
            "threshold",
            DOLLARS,
            Is("2"),
            "H: a blocked sender whose dearest message cost less has its period shortened.",
        ),
        key(
            "draw",
            Kind::Truth,
            Is("true"),
            "An affordable message of cost C is bought with probability 1/C only.",
        ),
        key(
            "retry",
            SPAN,
            Is("5 ms"),
            "Mean time to the next draw after one that failed, for each dollar of the cost.",
        ),
        key(
            "change",
            Kind::Number { least: 0.0, most: 1000.0 },
            Is("0.3"),
            "The change of a price that is announced at once, as a part of 1 + price.",
        ),
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
    says: "When daemons announce the prices of their hops.",
    parts: &[&[
        key("least", Kind::Time { least: 1_000_000 }, Is("50 ms"), "T_min: never more often."),
        key(
            "most",
            Kind::Time { least: 1_000_000 },
            Is("2.5 s"),
            "T_max: never less often while a hop has a price.",
        ),
    ]],
};

/// `[overlay.period]`.
pub(crate) static OVERLAY_PERIOD: Section = Section {
    header: "[overlay.period]",
    says: "The time between two salaries of a sender.",
    parts: &[&[
        key("initial", PERIOD, Is("100 ms"), "At first."),
        key("least", PERIOD, Is("4 ms"), "Never shorter."),
        key("most", PERIOD, Is("200 ms"), "Never longer."),
        key("jitter", PROBABILITY, Is("0.1"), "Random part of each, to both sides."),
    ]],
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
                "A hop over each of these links: a name, with `*` and `?` if many.",
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
