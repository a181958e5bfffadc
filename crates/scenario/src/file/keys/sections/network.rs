//! The network: nodes, links, media, imported topologies.

use tollway_law::link;

use super::super::Default::{Else, Is, Must};
use super::super::{Key, Kind, Section};
use super::*;

/// `[topology]`.
pub(crate) static TOPOLOGY: Section = Section {
    header: "[topology]",
    says: "A network from a GraphML file (see [Importing](importing.md)): each of its nodes becomes a `[node.NAME]`, \
           each edge a `[link.FROM-TO]` of both directions. What the file says of these names itself goes on top.",
    parts: &[&[
        key("file", Kind::Text, Must, "The GraphML file, relative to the scenario's folder."),
        key("fallback", Kind::Text, Else("none"), "Another such file, read if there is no `file`."),
        key("rate", Kind::WireRate, Else("every edge says its own"), "Rate of the edges that say none."),
        key(
            "delay-per-km",
            TIME,
            Is("5 us"),
            "Propagation along the great circle between two ends that have a latitude and a longitude; light in glass takes 5 µs.",
        ),
        key(
            "delay-per-unit",
            TIME,
            Else("drawings are not measured"),
            "The same for ends that have no position, by their distance in the file's drawing.",
        ),
        key("delay", TIME, Is("1 ms"), "Propagation of the other links."),
        key(
            "link",
            Kind::Table(&TOPOLOGY_LINK),
            Else(""),
            "What all of its links have, over what the GraphML file says.",
        ),
    ]],
};

/// `[topology.link]`.
pub(crate) static TOPOLOGY_LINK: Section = Section {
    header: "[topology.link]",
    says: "Keys of `[link.NAME]` for every imported link.",
    parts: &[LINK_KEYS],
};

/// `[node.NAME]`.
pub(crate) static NODE: Section = Section {
    header: "[node.NAME]",
    says: "A host or a router, or a group of them.",
    parts: &[&[key(
        "count",
        Kind::Count { least: 1, most: 1_000_000 },
        Else("one node, `NAME`"),
        "Makes a group of so many, `NAME.1`, `NAME.2`, … Where a node is named, the group's name means all of them.",
    )]],
};

/// `[medium.NAME]`.
pub(crate) static MEDIUM: Section = Section {
    header: "[medium.NAME]",
    says: "A half-duplex medium: the links that name it, both directions of each, take turns on one transmitter.",
    parts: &[&[key(
        "rate",
        Kind::WireRate,
        Else("each link's own"),
        "Rate of the links on it that give none.",
    )]],
};

/// `[class.NAME]`.
pub(crate) static CLASS: Section = Section {
    header: "[class.NAME]",
    says: "A class of traffic, for flows to belong to (`class`), and what links make of it.",
    parts: &[&[
        key(
            "pricing",
            Kind::Word(&["standard", "stable", "deadline", "priority", "group"]),
            Is("standard"),
            "What links of the law `fcp` ask it for (see [FCP](fcp.md)): their own price; one that moves by no more than twice in two mean round trips; the least price within `share` of the capacity; `times` their own; or a price in the class's own currency, by its `weight`.",
        ),
        key(
            "law",
            Kind::Word(link::WORDS),
            Is("drop-tail"),
            "On links of the law `by-class`: the law that its queue is under, with the link's constants.",
        ),
        key(
            "share",
            Kind::Over { over: 0.0, most: 1.0 },
            Is("0.8"),
            "With `deadline`: the part of the capacity for it.",
        ),
        key(
            "times",
            Kind::Number { least: 1.0, most: 1e9 },
            Is("10"),
            "With `priority`: how many times the price.",
        ),
        key(
            "weight",
            Kind::Over { over: 0.0, most: 1e9 },
            Is("1"),
            "With `group`: its weight among the groups with traffic. On links of the law `by-class`: that of its queue. What is of no class has weight 1.",
        ),
    ]],
};

/// What `law` may be for a link.
pub(crate) const LINK_LAWS: &[&str] = &{
    let mut words = [""; link::WORDS.len() + 3];
    let mut i = 0;
    while i < link::WORDS.len() {
        words[i] = link::WORDS[i];
        i += 1;
    }
    (words[i], words[i + 1], words[i + 2]) = ("fq-codel", "dualpi2", "by-class");
    words
};

/// `[link.NAME]`.
pub(crate) static LINK: Section = Section {
    header: "[link.NAME]",
    says: "A link: an output port with its queue and law, and the wire behind it. Between a node and a group it is a \
           link for each member, `NAME.1`, `NAME.2`, …; between two groups of one size, a link for each pair. The way \
           back is `NAME.reverse`.",
    parts: &[
        &[
            key("from", Kind::Node, Must, "Node or group where it begins."),
            key("to", Kind::Node, Must, "Node or group where it ends."),
        ],
        LINK_KEYS,
    ],
};

/// What a link is, wherever it is.
const LINK_KEYS: &[Key] = &[
    key(
        "rate",
        Kind::WireRate,
        Else("the medium's, or the trace's mean"),
        "How fast packets are put on the wire.",
    ),
    key(
        "trace",
        Kind::Text,
        Else("a constant rate"),
        "Instead of a rate: a file of opportunities to send, each a line with its millisecond (see [Importing](importing.md)).",
    ),
    key(
        "delay",
        Kind::Spread,
        Is("0 s"),
        "Propagation, one way; `{ first = \"5 ms\", last = \"50 ms\" }` spreads it evenly over the links of a group.",
    ),
    key("overhead", OVERHEAD, Is("0 B"), "Framing that each packet takes on this wire beyond its own size."),
    key("law", Kind::Word(LINK_LAWS), Is("drop-tail"), "The port's law."),
    key(
        "limit",
        Kind::Limit,
        Is("1000 packets"),
        "What the queue holds, without the packet on the wire. A BDP is rate × mean base RTT of the flows whose data cross the link.",
    ),
    key("capacity", Kind::Rate, Else("the rate"), "The capacity that the law believes in."),
    key(
        "medium",
        Kind::Medium,
        Else("a transmitter for each direction"),
        "The half-duplex medium that it shares.",
    ),
    key("loss", PROBABILITY, Is("0"), "Probability that a packet is lost on the wire."),
    key("duplex", Kind::Truth, Is("true"), "Whether there is a way back."),
    key(
        "symmetric",
        Kind::Truth,
        Else("`false`; `true` for imported links"),
        "The way back has the link's law, limit, capacity and loss where `reverse` says nothing else.",
    ),
    key("reverse", Kind::Table(&REVERSE), Else(""), "What differs on the way back."),
    key(
        "meter",
        Kind::Table(&METER),
        Else("none"),
        "A meter at its far end, for the flows that enter there, or leave.",
    ),
    key(
        "exchange",
        Kind::Table(&EXCHANGE),
        Else("none"),
        "A border between domains at its far end, for prices and budgets.",
    ),
    key("", Kind::All(laws::tables), Else(""), ""),
];

/// `[link.NAME.reverse]`.
pub(crate) static REVERSE: Section = Section {
    header: "[link.NAME.reverse]",
    says: "The way back. Without this table it has the link's rate, delay and framing, and a drop-tail queue that \
           holds everything.",
    parts: &[&[
        key("rate", Kind::WireRate, Else("the link's"), "How fast packets are put on the wire."),
        key("trace", Kind::Text, Else("the link's"), "Instead of a rate, as for the link."),
        key("delay", Kind::Spread, Else("the link's"), "Propagation, one way."),
        key(
            "overhead",
            OVERHEAD,
            Else("the link's"),
            "Framing that each packet takes on this wire beyond its own size.",
        ),
        key("law", Kind::Word(LINK_LAWS), Is("drop-tail"), "The port's law."),
        key("limit", Kind::Limit, Is("unlimited"), "What the queue holds."),
        key("capacity", Kind::Rate, Else("the rate"), "The capacity that the law believes in."),
        key("loss", PROBABILITY, Is("0"), "Probability that a packet is lost on the wire."),
        key("", Kind::All(laws::reverse_tables), Else(""), ""),
    ]],
};

/// `[link.NAME.meter]`.
pub(crate) static METER: Section = Section {
    header: "[link.NAME.meter]",
    says: "A meter where a host's own link ends. Without `budget` and `balance` it checks what XCP senders state and do against what it measures, reports \
           those it accuses, and holds them to their allotment. A flow is metered where its data first pass one.",
    parts: &[&[
        key(
            "tolerance",
            Kind::Over { over: 0.0, most: 10.0 },
            Is("0.2"),
            "How far what is stated may be from what is measured, as a part of it.",
        ),
        key(
            "burst",
            Kind::Over { over: 1.0, most: 1000.0 },
            Is("2"),
            "Round trips of excess before a flow is accused; a window sent at once is one.",
        ),
        key(
            "patience",
            Kind::Number { least: 0.0, most: 1000.0 },
            Is("4"),
            "Round trips for which a wrong round trip must be stated without a break.",
        ),
        key(
            "enforce",
            Kind::Truth,
            Is("true"),
            "Whether accused flows are held to their allotment, or only reported.",
        ),
        key(
            "budget",
            Kind::Number { least: 0.0, most: 1e12 },
            Else("XCP's windows are metered"),
            "Instead: what the host behind the link may spend in FCP, $/s, all its flows together. What it spends is held against \
             that, and what it announces against what it spends then; who is accused is held to the budget and announces nothing more.",
        ),
        key(
            "balance",
            Kind::Truth,
            Is("false"),
            "Instead: what FCP's flows that leave over this link state to pay is held against what they are asked. Meters with a \
             `budget` learn whom it accuses with the next acknowledgement.",
        ),
    ]],
};

/// `[link.NAME.exchange]`.
pub(crate) static EXCHANGE: Section = Section {
    header: "[link.NAME.exchange]",
    says: "A border where a customer's packets enter its provider's network (the FCP report, § 4.3): budgets and prices are turned \
           from one unit into the other. It has a `rate` or a `weight`.",
    parts: &[&[
        key(
            "rate",
            Kind::Over { over: 0.0, most: 1e12 },
            Else("by `weight`"),
            "What a $ of the customer's is worth to the provider.",
        ),
        key(
            "weight",
            Kind::Over { over: 0.0, most: 1e12 },
            Else("by `rate`"),
            "What all that the customer spends beyond the border is worth together, the provider's $/s.",
        ),
    ]],
};
