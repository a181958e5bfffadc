//! The sections of a scenario file and their keys.

use super::Default::{Else, Is, Must};
use super::{Default, Key, Kind, Section};

const fn key(name: &'static str, kind: Kind, default: Default, says: &'static str) -> Key {
    Key { name, kind, default, says }
}

const TIME: Kind = Kind::Time { positive: false };
const SPAN: Kind = Kind::Time { positive: true };
const PROBABILITY: Kind = Kind::Number { least: 0.0, most: 1.0 };
const PACKET: Kind = Kind::Bytes { least: 60, most: 65535 };
const OVERHEAD: Kind = Kind::Bytes { least: 0, most: 65535 };

/// The top of a file.
pub(crate) static TOP: Section = Section {
    header: "",
    says: "A scenario is one TOML file. Quantities are strings with their unit: `\"10 Mbps\"`, `\"250 ms\"`, \
           `\"64 KiB\"`; a size may also be a whole number of bytes.",
    parts: &[&[
        key("name", Kind::Text, Must, "What the scenario is called in results and file names."),
        key("title", Kind::Text, Else("the name"), "A line to print over results."),
        key("source", Kind::Text, Else(""), "Where the experiment comes from: paper, section, figure."),
        key("description", Kind::Text, Else(""), "What it shows."),
        key("duration", SPAN, Must, "How long to run."),
        key(
            "seed",
            Kind::Count { least: 0, most: i64::MAX as u64 },
            Is("1"),
            "What every random choice is drawn from.",
        ),
        key("measure", Kind::Table(&MEASURE), Else(""), "What is measured."),
        key("topology", Kind::Table(&TOPOLOGY), Else(""), "A network from a file."),
        key("node", Kind::Named(&NODE), Else(""), "Hosts and routers."),
        key("medium", Kind::Named(&MEDIUM), Else(""), "Half-duplex media that links share."),
        key("link", Kind::Named(&LINK), Else(""), "Links between nodes."),
        key("flow", Kind::Named(&FLOW), Else(""), "Flows known beforehand."),
        key("workload", Kind::Named(&WORKLOAD), Else(""), "Flows that come by chance."),
        key("host", Kind::Named(&HOST), Else(""), "Owners of budgets, for the law `fcp`."),
        key("cbr", Kind::Named(&CBR), Else(""), "Constant-rate cross-traffic."),
        key("change", Kind::List(&CHANGE), Else(""), "What happens on the way."),
        key("loss", Kind::List(&LOSS), Else(""), "Random loss by direction and place."),
        key(
            "variant",
            Kind::Variants,
            Else("one unnamed run"),
            "The same scenario with some keys set otherwise.",
        ),
        key("grid", Kind::Grid, Else(""), "Lists of settings; every combination is a variant more."),
        key(
            "claim",
            Kind::Raw,
            Else(""),
            "What `tollway reproduce` checks (see the chapter on experiments).",
        ),
        key("plot", Kind::Raw, Else(""), "What it draws."),
        key("reference", Kind::Raw, Else(""), "Series of others to lay beside ours."),
        key("live", Kind::Raw, Else(""), "What `tollway reproduce --engine live` runs on real packets too."),
    ]],
};

/// `[measure]`.
pub(crate) static MEASURE: Section = Section {
    header: "[measure]",
    says: "What is measured.",
    parts: &[&[
        key(
            "interval",
            Kind::TimeOrNone,
            Is("100 ms"),
            "Length of a row in the interval tables; `\"none\"` writes summaries only.",
        ),
        key("warmup", TIME, Is("0 s"), "What happens before this is left out of summaries."),
    ]],
};

/// `[topology]`.
pub(crate) static TOPOLOGY: Section = Section {
    header: "[topology]",
    says: "A network from a GraphML file (see [Importing](importing.md)): each of its nodes becomes a `[node.NAME]`, \
           each edge a `[link.FROM-TO]` of both directions. What the file says of these names itself goes on top.",
    parts: &[&[
        key("file", Kind::Text, Must, "The GraphML file, relative to the scenario's folder."),
        key("rate", Kind::Rate, Else("every edge says its own"), "Rate of the edges that say none."),
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
    parts: &[&[key("rate", Kind::Rate, Else("each link's own"), "Rate of the links on it that give none.")]],
};

/// What `law` may be for a link.
const LAWS: &[&str] =
    &["drop-tail", "red", "xcp", "codel", "fq-codel", "pie", "dualpi2", "step", "fcp", "rcp"];

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
        Kind::Rate,
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
    key("law", Kind::Word(LAWS), Is("drop-tail"), "The port's law."),
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
        "A meter at its far end, for the flows that enter there.",
    ),
    key("xcp", Kind::Table(&XCP), Else(""), "Constants of the law `xcp`."),
    key("red", Kind::Table(&RED), Else(""), "Constants of the law `red`."),
    key("codel", Kind::Table(&CODEL), Else(""), "Constants of the laws `codel` and `fq-codel`."),
    key("fq-codel", Kind::Table(&FQ_CODEL), Else(""), "Queues of the law `fq-codel`."),
    key("pie", Kind::Table(&PIE), Else(""), "Constants of the law `pie`."),
    key("dualpi2", Kind::Table(&DUALPI2), Else(""), "Constants of the law `dualpi2`."),
    key("step", Kind::Table(&STEP), Else(""), "Constant of the law `step`."),
    key("fcp", Kind::Table(&FCP), Else(""), "Constants of the law `fcp`."),
    key("rcp", Kind::Table(&RCP), Else(""), "Constants of the law `rcp`."),
];

/// `[link.NAME.reverse]`.
pub(crate) static REVERSE: Section = Section {
    header: "[link.NAME.reverse]",
    says: "The way back. Without this table it has the link's rate, delay and framing, and a drop-tail queue that \
           holds everything.",
    parts: &[&[
        key("rate", Kind::Rate, Else("the link's"), "How fast packets are put on the wire."),
        key("trace", Kind::Text, Else("the link's"), "Instead of a rate, as for the link."),
        key("delay", Kind::Spread, Else("the link's"), "Propagation, one way."),
        key(
            "overhead",
            OVERHEAD,
            Else("the link's"),
            "Framing that each packet takes on this wire beyond its own size.",
        ),
        key("law", Kind::Word(LAWS), Is("drop-tail"), "The port's law."),
        key("limit", Kind::Limit, Is("unlimited"), "What the queue holds."),
        key("capacity", Kind::Rate, Else("the rate"), "The capacity that the law believes in."),
        key("loss", PROBABILITY, Is("0"), "Probability that a packet is lost on the wire."),
        key("xcp", Kind::Table(&XCP), Else("the link's"), "Constants of the law `xcp`."),
        key("red", Kind::Table(&RED), Else("the link's"), "Constants of the law `red`."),
        key(
            "codel",
            Kind::Table(&CODEL),
            Else("the link's"),
            "Constants of the laws `codel` and `fq-codel`.",
        ),
        key("fq-codel", Kind::Table(&FQ_CODEL), Else("the link's"), "Queues of the law `fq-codel`."),
        key("pie", Kind::Table(&PIE), Else("the link's"), "Constants of the law `pie`."),
        key("dualpi2", Kind::Table(&DUALPI2), Else("the link's"), "Constants of the law `dualpi2`."),
        key("step", Kind::Table(&STEP), Else("the link's"), "Constant of the law `step`."),
        key("fcp", Kind::Table(&FCP), Else("the link's"), "Constants of the law `fcp`."),
        key("rcp", Kind::Table(&RCP), Else("the link's"), "Constants of the law `rcp`."),
    ]],
};

/// `[link.NAME.meter]`.
pub(crate) static METER: Section = Section {
    header: "[link.NAME.meter]",
    says: "A meter where a host's own link ends. It checks what XCP senders state and do against what it measures, reports \
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
    ]],
};

const ARITHMETIC: &[&str] = &["float", "fixed32", "fixed128"];

/// `[link.NAME.xcp]`.
pub(crate) static XCP: Section = Section {
    header: "[link.NAME.xcp]",
    says: "The constants of XCP's router (draft-falk-xcp-spec-03, § 5).",
    parts: &[&[
        key(
            "alpha",
            Kind::Over { over: 0.0, most: 10.0 },
            Is("0.4"),
            "α: share of the spare capacity given out in an interval.",
        ),
        key(
            "beta",
            Kind::Number { least: 0.0, most: 10.0 },
            Is("0.226"),
            "β: share of the standing queue taken back.",
        ),
        key("gamma", PROBABILITY, Is("0.1"), "γ: share of the traffic that is shuffled between flows."),
        key("max-interval", SPAN, Is("1 s"), "Longest control interval, and the longest RTT that counts."),
        key(
            "min-interval",
            SPAN,
            Is("1 ms"),
            "Shortest control interval (ns-2 has 1 ms, the draft 5 to 10).",
        ),
        key(
            "form",
            Kind::Word(&["throughput", "window"]),
            Is("throughput"),
            "The draft's form, or the first paper's.",
        ),
        key("arithmetic", Kind::Word(ARITHMETIC), Is("float"), "What numbers the router reckons in."),
        key(
            "capacity",
            Kind::Word(&["configured", "measured"]),
            Is("configured"),
            "Where the law has its capacity from: the link's `capacity`, or departures while others wait, beginning with that.",
        ),
        key("overhead", OVERHEAD, Else("the link's"), "Framing that the law counts for each packet."),
        key(
            "shadow",
            Kind::Word(&["none", "fixed32", "fixed128"]),
            Is("none"),
            "Beside `float`: runs a second router on the same packets, in this arithmetic, and reports how far the two differ.",
        ),
    ]],
};

/// `[link.NAME.red]`.
pub(crate) static RED: Section = Section {
    header: "[link.NAME.red]",
    says: "The constants of RED (Floyd and Jacobson, 1993).",
    parts: &[&[
        key(
            "min-threshold",
            Kind::Threshold,
            Is("0.25"),
            "Mean queue under which nothing is signalled: a part of the limit, or packets or bytes.",
        ),
        key(
            "max-threshold",
            Kind::Threshold,
            Is("0.75"),
            "Mean queue at which `max-probability` is reached.",
        ),
        key("max-probability", Kind::Over { over: 0.0, most: 1.0 }, Is("0.1"), "Signal probability there."),
        key(
            "weight",
            Kind::Over { over: 0.0, most: 1.0 },
            Is("0.002"),
            "Weight of a new sample in the mean queue.",
        ),
        key(
            "gentle",
            Kind::Truth,
            Is("false"),
            "Lets the probability climb to 1 at twice the upper threshold instead of jumping there.",
        ),
    ]],
};

/// `[link.NAME.codel]`.
pub(crate) static CODEL: Section = Section {
    header: "[link.NAME.codel]",
    says: "The constants of CoDel (RFC 8289), alone or in each queue of `fq-codel`.",
    parts: &[&[
        key("target", SPAN, Is("5 ms"), "Waiting time that a standing queue may have."),
        key("interval", SPAN, Is("100 ms"), "How long it may have more; a round trip of slow flows."),
    ]],
};

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

/// `[link.NAME.pie]`.
pub(crate) static PIE: Section = Section {
    header: "[link.NAME.pie]",
    says: "The constants of PIE (RFC 8033).",
    parts: &[&[
        key("target", SPAN, Is("15 ms"), "Queueing delay aimed at."),
        key("update", SPAN, Is("15 ms"), "Time between updates of the probability."),
        key("burst", TIME, Is("150 ms"), "Length of a burst that passes unharmed after a calm time."),
        key(
            "alpha",
            Kind::Number { least: 0.0, most: 1000.0 },
            Is("0.125"),
            "α: weight of the deviation from the target, 1/s.",
        ),
        key("beta", Kind::Number { least: 0.0, most: 1000.0 }, Is("1.25"), "β: weight of the trend, 1/s."),
        key(
            "mark-limit",
            PROBABILITY,
            Is("0.1"),
            "Probability over which packets are dropped even if they can be marked.",
        ),
    ]],
};

/// `[link.NAME.dualpi2]`.
pub(crate) static DUALPI2: Section = Section {
    header: "[link.NAME.dualpi2]",
    says: "The constants of DualPI2 (RFC 9332), with a queue for L4S (packets with ECT(1) or CE) and one for all others; \
           `limit` is of both together.",
    parts: &[&[
        key("target", SPAN, Is("15 ms"), "Delay of the classic queue aimed at."),
        key("update", SPAN, Is("16 ms"), "Time between updates of the base probability p′."),
        key(
            "alpha",
            Kind::Number { least: 0.0, most: 1000.0 },
            Is("0.16"),
            "α: weight of the deviation from the target, 1/s.",
        ),
        key("beta", Kind::Number { least: 0.0, most: 1000.0 }, Is("3.2"), "β: weight of the trend, 1/s."),
        key(
            "coupling",
            Kind::Number { least: 0.0, most: 1000.0 },
            Is("2"),
            "k: L4S is marked with probability k p′, classic traffic signalled with p′².",
        ),
        key(
            "step",
            TIME,
            Is("1 ms"),
            "Waiting time over which every packet of L4S is marked, unless it is alone in its queue.",
        ),
        key(
            "classic-share",
            PROBABILITY,
            Is("0.1"),
            "Share of the capacity that the classic queue has for certain while both are busy; L4S goes first with the rest.",
        ),
    ]],
};

/// `[link.NAME.step]`.
pub(crate) static STEP: Section = Section {
    header: "[link.NAME.step]",
    says: "The constant of step marking, the switch's side of DCTCP (RFC 8257 § 3.1). Packets that can't be marked pass.",
    parts: &[&[key(
        "threshold",
        Kind::Threshold,
        Is("20 packets"),
        "K: packets that find more than this queued are marked. A part of the limit, or packets or bytes.",
    )]],
};

/// `[link.NAME.fcp]`.
pub(crate) static FCP: Section = Section {
    header: "[link.NAME.fcp]",
    says: "The constants of FCP's router (the FCP report, § 4.1, § 5).",
    parts: &[&[
        key(
            "alpha",
            Kind::Number { least: 0.0, most: 100.0 },
            Is("2"),
            "α: weight of the queue in the price.",
        ),
        key(
            "window",
            Kind::Over { over: 0.0, most: 100.0 },
            Is("2"),
            "Length of the averaging window in mean round-trip times.",
        ),
        key(
            "preload-span",
            Kind::Word(&["packet", "flow"]),
            Is("flow"),
            "How long a preload counts: as long as its packet is in the window (equation 4 as printed), or until half of what it announced is (rtt + d/2, by the flow's own round trip).",
        ),
    ]],
};

/// `[link.NAME.rcp]`.
pub(crate) static RCP: Section = Section {
    header: "[link.NAME.rcp]",
    says: "The constants of RCP's router (IWQoS 2005; the defaults are those of its authors' ns-2 code).",
    parts: &[&[
        key(
            "alpha",
            Kind::Over { over: 0.0, most: 10.0 },
            Is("0.4"),
            "α: share of the spare capacity given out a round trip; 0.1 in the authors' later experiments.",
        ),
        key(
            "beta",
            Kind::Number { least: 0.0, most: 10.0 },
            Is("0.4"),
            "β: share of the queue taken back; 0.226 in the paper, 1 in later experiments.",
        ),
        key("gamma", Kind::Over { over: 0.0, most: 1.0 }, Is("1"), "γ: part of the capacity aimed at."),
        key("max-interval", SPAN, Is("10 ms"), "Longest time between updates of the rate."),
    ]],
};

/// What flows and workloads share: how their ends behave.
const TRANSPORT: &[Key] = &[
    key(
        "law",
        Kind::Word(&["newreno", "cubic", "dctcp", "bbr", "xcp", "fcp", "rcp"]),
        Must,
        "The sender's law.",
    ),
    key(
        "receive-buffer",
        Kind::Limit,
        Is("unlimited"),
        "The receiver's buffer: packets, or bytes of payload. A BDP is here the least rate on the way × base RTT, on the wire.",
    ),
    key("send-buffer", Kind::Limit, Is("unlimited"), "The sender's, likewise."),
    key("packet-size", PACKET, Is("1500 B"), "A full packet on the wire, headers included, framing not."),
    key(
        "header",
        Kind::Bytes { least: 0, most: 65535 },
        Is("40 B"),
        "What of it is header; the rest is goodput.",
    ),
    key("ack-size", Kind::Bytes { least: 1, most: 65535 }, Is("40 B"), "A packet without data."),
    key(
        "initial-window",
        Kind::Count { least: 1, most: 1_000_000 },
        Else("10 (RFC 6928), or 2 with the law `xcp`"),
        "Window at the start, packets.",
    ),
    key("sack", Kind::Truth, Is("true"), "Selective acknowledgement (RFC 2018)."),
    key(
        "sack-blocks",
        Kind::Count { least: 1, most: 4 },
        Else("3, or what XCP's options leave room for: 2, or 1 with data both ways"),
        "Ranges that an acknowledgement has room for.",
    ),
    key(
        "loss-detection",
        Kind::Word(&["newreno", "rfc6675", "rack"]),
        Else("`rfc6675` with SACK, `rack` with it and the law `bbr`, `newreno` without"),
        "How losses are found: RFC 6582, RFC 6675 or RFC 8985.",
    ),
    key(
        "delayed-ack",
        Kind::TimeOrNone,
        Is("none"),
        "How long an acknowledgement may wait for a second packet.",
    ),
    key("handshake", Kind::Truth, Is("true"), "Opens the connection before data flow."),
    key(
        "encoding",
        Kind::Word(&["acp", "tcp-option", "draft-2", "draft-3"]),
        Is("acp"),
        "What the toll looks like in a packet, and so what precision it has.",
    ),
    key(
        "feedback",
        Kind::Word(&["split", "integer"]),
        Else("`split`"),
        "With `tcp-option`: 13 + 3 bits, or whole packets.",
    ),
    key("both-ways", Kind::Truth, Is("false"), "Data in both directions of the connection."),
    key(
        "ecn",
        Kind::Truth,
        Else("`true` with the law `dctcp`, `false` with others"),
        "Data packets may be marked instead of dropped (RFC 3168).",
    ),
    key(
        "l4s",
        Kind::Truth,
        Is("false"),
        "Data packets say by ECT(1) that their sender is scalable (RFC 9331); with the law `dctcp`.",
    ),
    key(
        "weight",
        Kind::Over { over: 0.0, most: 1e12 },
        Is("1"),
        "Weight in theory's ideal allocation, and among the flows of its host.",
    ),
    key("rto", Kind::Table(&RTO), Else(""), "The retransmission timer."),
    key(
        "receive-window",
        Kind::Table(&RECEIVE_WINDOW),
        Else(""),
        "How much of the receive buffer is advertised.",
    ),
    key("xcp", Kind::Table(&XCP_FLOW), Else(""), "Options of the law `xcp`."),
    key("fcp", Kind::Table(&FCP_FLOW), Else(""), "Options of the law `fcp`."),
];

/// `[flow.NAME]`.
pub(crate) static FLOW: Section = Section {
    header: "[flow.NAME]",
    says: "A flow, or one for each member of a group: groups of one size go member by member, a group and a node \
           many to one. Where that makes several they are `NAME.1`, `NAME.2`, …",
    parts: &[
        &[
            key("from", Kind::Node, Must, "Where data come from."),
            key("to", Kind::Node, Must, "Where they go."),
            key(
                "count",
                Kind::Count { least: 1, most: 1_000_000 },
                Else("one flow"),
                "So many between each pair of nodes.",
            ),
            key(
                "start",
                Kind::When,
                Is("0 s"),
                "When the flow begins: a time; `{ first, last }`, evenly over the flows; or `{ random = \"1 s\", after = \"0 s\" }`, uniformly in that span.",
            ),
            key(
                "stop",
                Kind::When,
                Else("the end of the run"),
                "When its application stops, in the same ways.",
            ),
            key("size", Kind::Bytes { least: 1, most: 1 << 60 }, Else("endless"), "Payload to send."),
            key("frames", Kind::Table(&FRAMES), Else("a stream of bytes"), "Frames to send instead."),
        ],
        TRANSPORT,
    ],
};

/// `[flow.NAME.frames]`.
pub(crate) static FRAMES: Section = Section {
    header: "[flow.NAME.frames]",
    says: "What a framed flow sends.",
    parts: &[&[
        key("count", Kind::Count { least: 1, most: 1 << 40 }, Must, "How many frames."),
        key("size", Kind::Bytes { least: 1, most: 1 << 40 }, Must, "Payload of each."),
    ]],
};

/// `[flow.NAME.rto]`.
pub(crate) static RTO: Section = Section {
    header: "[flow.NAME.rto]",
    says: "The retransmission timer (RFC 6298); `[workload.NAME.rto]` likewise.",
    parts: &[&[
        key("initial", SPAN, Is("1 s"), "Before the first sample of the round trip."),
        key("min", SPAN, Is("200 ms"), "Never shorter."),
        key("max", SPAN, Is("60 s"), "Never longer."),
        key(
            "granularity",
            SPAN,
            Is("200 ms"),
            "Least margin over the smoothed round trip: the clock's G of RFC 6298; 200 ms as in Linux.",
        ),
        key(
            "backoff",
            Kind::Truth,
            Is("true"),
            "Doubles with each expiry; the study proposes that it should not.",
        ),
        key("fixed", SPAN, Else("worked out from the round trip"), "Always this long, without doubling."),
    ]],
};

/// `[flow.NAME.receive-window]`.
pub(crate) static RECEIVE_WINDOW: Section = Section {
    header: "[flow.NAME.receive-window]",
    says: "How much of the receive buffer is advertised; it never shrinks. `[workload.NAME.receive-window]` likewise.",
    parts: &[&[
        key(
            "growth",
            Kind::Word(&["whole", "per-packet", "feedback"]),
            Is("whole"),
            "All of the buffer from the start; growing with each data packet, as Linux does; or by the feedback received (the study).",
        ),
        key(
            "initial",
            Kind::Count { least: 1, most: 1 << 30 },
            Is("10"),
            "Packets advertised at the start, unless it is `whole`.",
        ),
        key(
            "step",
            Kind::Count { least: 1, most: 1 << 20 },
            Is("2"),
            "Packets more for each data packet, if `per-packet`.",
        ),
    ]],
};

/// `[flow.NAME.xcp]`.
pub(crate) static XCP_FLOW: Section = Section {
    header: "[flow.NAME.xcp]",
    says: "What XCP's sender does where the draft and the experimental study differ; `[workload.NAME.xcp]` likewise.",
    parts: &[&[
        key(
            "on-loss",
            Kind::Word(&["halve", "keep"]),
            Is("halve"),
            "What a loss does to the window: halved (the draft), or kept (the study).",
        ),
        key(
            "advertise-limit",
            Kind::Truth,
            Is("true"),
            "States min(cwnd, receive window, buffers) to routers instead of cwnd (the study's fix).",
        ),
        key("pacing", Kind::Truth, Is("false"), "Spaces packets over the round trip."),
        key(
            "request",
            Kind::RateOrAll,
            Is("all"),
            "What is asked of routers: everything there is, or to reach this rate in a round trip (the draft).",
        ),
        key("whole-window", Kind::Truth, Is("false"), "States the window in whole packets, as ns-2 does."),
        key(
            "gain-segment",
            Kind::Bytes { least: 1, most: 65535 },
            Else("its size on the wire"),
            "Bytes that a packet counts for when feedback is turned into packets; ns-2 has 1450 for 1500.",
        ),
        key(
            "aging",
            PROBABILITY,
            Else("nothing is given up"),
            "Part of an unused window that is kept each round trip (0.5 in the draft, § 4.1.3.1).",
        ),
        key(
            "every",
            Kind::Count { least: 1, most: 65536 },
            Is("1"),
            "A toll on every so manyth packet only, which speaks for those since the last; two a window at least. With `encoding = \"acp\"`.",
        ),
        key("cheat", Kind::Table(&CHEAT), Else("an honest sender"), "What the sender does wrong on purpose."),
    ]],
};

/// `[flow.NAME.xcp.cheat]`.
pub(crate) static CHEAT: Section = Section {
    header: "[flow.NAME.xcp.cheat]",
    says: "A sender that cheats, for meters to find; `[workload.NAME.xcp.cheat]` likewise.",
    parts: &[&[
        key(
            "trick",
            Kind::Word(&["ignore-negative", "understate-window", "overstate-rtt", "understate-rtt"]),
            Must,
            "Gives back nothing of its window; or states a window or a round trip that is not its own.",
        ),
        key(
            "factor",
            Kind::Over { over: 1.0, most: 1e6 },
            Is("2"),
            "How many times too small or too large what it states is.",
        ),
        key("from", TIME, Is("0 s"), "Since when."),
    ]],
};

/// `[flow.NAME.fcp]`.
pub(crate) static FCP_FLOW: Section = Section {
    header: "[flow.NAME.fcp]",
    says: "What FCP's sender may spend (the FCP report, § 4.1); `[workload.NAME.fcp]` likewise.",
    parts: &[&[
        key(
            "budget",
            Kind::Number { least: 0.0, most: 1e12 },
            Is("1"),
            "What the flow may spend, $/s, if it has no host.",
        ),
        key(
            "initial-packets",
            Kind::Over { over: 0.0, most: 1e6 },
            Is("10"),
            "Packets that its first packet announces for the next round trip.",
        ),
        key("max-preload", Kind::Over { over: 0.0, most: 1e30 }, Else("none"), "The largest preload."),
        key("wants", Kind::Rate, Else("none"), "The rate to be kept by a host's strategy `stable`."),
    ]],
};

/// `[host.NAME]`.
pub(crate) static HOST: Section = Section {
    header: "[host.NAME]",
    says: "An owner of a budget that it divides over its flows of the law `fcp`. Flows without a host have a budget each.",
    parts: &[&[
        key(
            "budget",
            Kind::Number { least: 0.0, most: 1e12 },
            Is("1"),
            "What all of its flows may spend, $/s.",
        ),
        key("flows", Kind::Flows, Must, "Which flows and workloads: a name, with `*` and `?` if many."),
        key("strategy", Kind::Word(STRATEGIES), Is("equal-budget"), "How it divides its budget."),
    ]],
};

const STRATEGIES: &[&str] =
    &["equal-budget", "fixed", "background", "equal-throughput", "max-throughput", "stable"];

/// `[workload.NAME]`.
pub(crate) static WORKLOAD: Section = Section {
    header: "[workload.NAME]",
    says: "Flows that come by chance, each on one of the pairs of nodes that `from` and `to`, or `between`, make.",
    parts: &[
        &[
            key("from", Kind::Node, Else("`between`"), "Where data come from."),
            key("to", Kind::Node, Else("`between`"), "Where they go."),
            key(
                "between",
                Kind::Nodes,
                Else("`from` and `to`"),
                "Instead of these: nodes by name, with `*` and `?`, or a list of such; flows go from any to any other.",
            ),
            key(
                "pairs",
                Kind::Count { least: 1, most: 1_000_000 },
                Else("all, or 10 000 if there are more"),
                "With `between`: so many ordered pairs, drawn by chance.",
            ),
            key(
                "arrivals",
                Kind::Arrivals,
                Must,
                "`{ poisson = 100 }`, a second over all pairs, or `{ interval = \"10 ms\" }`.",
            ),
            key(
                "sizes",
                Kind::Sizes,
                Must,
                "Payload of a flow: `\"10 kB\"`; `{ exponential = \"30 kB\" }`, the mean; `{ pareto = { mean = \"30 kB\", shape = 1.2 } }`; `{ empirical = [[\"1 kB\", 0.5], [\"1 MB\", 1.0]] }`; `{ file = \"web.txt\" }`, a file of such lines (see [Importing](importing.md)).",
            ),
            key("start", TIME, Is("0 s"), "First instant of an arrival."),
            key("stop", TIME, Else("the end of the run"), "Last one."),
            key(
                "max-flows",
                Kind::Count { least: 1, most: i64::MAX as u64 },
                Else("as many as come"),
                "Flows at most.",
            ),
        ],
        TRANSPORT,
    ],
};

/// `[cbr.NAME]`.
pub(crate) static CBR: Section = Section {
    header: "[cbr.NAME]",
    says: "Plain packets at a constant rate that nothing holds back, from each member of a group.",
    parts: &[&[
        key("from", Kind::Node, Must, "Where they come from."),
        key("to", Kind::Node, Must, "Where they go."),
        key("rate", Kind::Rate, Must, "While it sends, without framing."),
        key("packet-size", PACKET, Is("1500 B"), "On the wire, without framing."),
        key("start", Kind::When, Is("0 s"), "When it begins, as for a flow."),
        key("stop", Kind::When, Else("the end of the run"), "When it ends."),
        key("on", SPAN, Else("always"), "Sends for so long, …"),
        key("off", SPAN, Else("never"), "… then is silent for so long, and so on."),
    ]],
};

const DIRECTION: Kind = Kind::Word(&["forward", "reverse", "both"]);

/// `[[change]]`.
pub(crate) static CHANGE: Section = Section {
    header: "[[change]]",
    says: "What happens on the way, to links or to flows' receivers.",
    parts: &[&[
        key("at", TIME, Must, "When."),
        key("link", Kind::Links, Else(""), "Which links: a name, with `*` and `?` if many."),
        key(
            "direction",
            DIRECTION,
            Else("`both` for rate, delay and blackout; `forward` for the rest"),
            "Which way.",
        ),
        key(
            "rate",
            Kind::Rate,
            Else(""),
            "The new rate; a link's law hears of it, unless it has a `capacity` of its own.",
        ),
        key("delay", TIME, Else(""), "The new delay, for packets that leave from now on."),
        key("loss", PROBABILITY, Else(""), "The new probability of loss."),
        key("blackout", SPAN, Else(""), "So long everything put on the wire is lost."),
        key("capacity", Kind::Rate, Else(""), "What the law is told of its capacity."),
        key("limit", Kind::Limit, Else(""), "What the queue holds from now on."),
        key(
            "price-error",
            Kind::Number { least: -1.0, most: 1e6 },
            Else(""),
            "From now on the law `fcp` is wrong by this part of its price.",
        ),
        key("flow", Kind::Flows, Else(""), "Which flows, likewise."),
        key("receive-buffer", Kind::Limit, Else(""), "Their receivers' new buffer."),
        key("host", Kind::Text, Else(""), "Which host."),
        key(
            "budget",
            Kind::Number { least: 0.0, most: 1e12 },
            Else(""),
            "What the host, or each flow without one, may spend from now on, $/s.",
        ),
        key("strategy", Kind::Word(STRATEGIES), Else(""), "How the host divides its budget from now on."),
    ]],
};

/// `[[loss]]`.
pub(crate) static LOSS: Section = Section {
    header: "[[loss]]",
    says: "Random loss, each packet for itself.",
    parts: &[&[
        key("link", Kind::Links, Must, "Which links: a name, with `*` and `?` if many."),
        key("direction", DIRECTION, Is("forward"), "Which way."),
        key("probability", PROBABILITY, Must, "How likely."),
        key(
            "place",
            Kind::Word(&["before", "after"]),
            Is("after"),
            "Before the port's law sees the packet, or on the wire.",
        ),
        key("from", TIME, Is("0 s"), "From when on."),
        key("until", TIME, Else("the end of the run"), "Until when."),
        key("only", Kind::Word(&["all", "data", "ack"]), Is("all"), "Which packets."),
    ]],
};

/// Every section, in the manual's order.
pub(crate) fn all() -> [&'static Section; 30] {
    [
        &TOP,
        &MEASURE,
        &TOPOLOGY,
        &TOPOLOGY_LINK,
        &NODE,
        &MEDIUM,
        &LINK,
        &REVERSE,
        &METER,
        &XCP,
        &RED,
        &CODEL,
        &FQ_CODEL,
        &PIE,
        &DUALPI2,
        &STEP,
        &FCP,
        &RCP,
        &FLOW,
        &FRAMES,
        &RTO,
        &RECEIVE_WINDOW,
        &XCP_FLOW,
        &CHEAT,
        &FCP_FLOW,
        &WORKLOAD,
        &HOST,
        &CBR,
        &CHANGE,
        &LOSS,
    ]
}
