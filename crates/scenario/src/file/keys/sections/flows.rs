//! Flows, workloads and hosts.

use tollway_law::sender;

use super::super::Default::{Else, Is, Must};
use super::super::{Key, Kind, Section};
use super::*;
use crate::plan::Strategy;

/// What flows and workloads share: how their ends behave.
pub(super) const TRANSPORT: &[Key] = &[
    key("law", Kind::Word(sender::WORDS), Must, "The sender's law."),
    key("", Kind::All(laws::transport), Else(""), ""),
    key(
        "receive-buffer",
        Kind::Limit,
        Is("unlimited"),
        "The receiver's buffer: packets, or bytes of payload. A BDP is here the least rate on the way × base RTT, on the wire.",
    ),
    key("send-buffer", Kind::Limit, Is("unlimited"), "The sender's, likewise."),
    key(
        "flow-control",
        Kind::Word(&["credit", "soft"]),
        Is("credit"),
        "What the receiver states of its buffer: the room left, as a window; or, with the law `xcp`, the rate at which it drains, as feedback \
         (the Anypoint paper, § IV-A), and what finds no room is dropped.",
    ),
    key(
        "reader",
        Kind::Table(&READER),
        Else("it reads at once"),
        "How the application at the receiver reads.",
    ),
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
    key("", Kind::All(laws::sender_keys), Else(""), ""),
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
        "repair-copies",
        Kind::Count { least: 0, most: 4 },
        Is("0"),
        "With `rack`: how many times more a retransmission is sent where the receive window would not last until its loss is repaired.",
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
        "class",
        Kind::Text,
        Else("none"),
        "The class of traffic that it belongs to: a name that `[class.NAME]` gives.",
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
    key("", Kind::All(laws::sender_tables), Else(""), ""),
];

// The nodes of flows and workloads.
const FROM: Key = key("from", Kind::Node, Else("`between`"), "Where data come from.");
const TO: Key = key("to", Kind::Node, Else("`between`"), "Where they go.");
const BETWEEN: Key = key(
    "between",
    Kind::Nodes,
    Else("`from` and `to`"),
    "Instead of these: nodes by name, with `*` and `?`, or a list of such; flows go from any to any other.",
);
const PAIRS: Key = key(
    "pairs",
    Kind::Count { least: 1, most: 1_000_000 },
    Else("all, or 10 000 if there are more"),
    "With `between`: so many ordered pairs, drawn by chance.",
);

/// `[flow.NAME]`.
pub(crate) static FLOW: Section = Section {
    header: "[flow.NAME]",
    says: "A flow, or one for each member of a group: groups of one size go member by member, a group and a node \
           many to one; or between any nodes. Where that makes several they are `NAME.1`, `NAME.2`, …",
    parts: &[
        &[
            FROM,
            TO,
            BETWEEN,
            PAIRS,
            key(
                "count",
                Kind::Count { least: 1, most: 1_000_000 },
                Else("one flow"),
                "So many between each pair of nodes.",
            ),
            key(
                "multicast",
                Kind::Truth,
                Is("false"),
                "One sender for a whole group `to`, whose members receive copies that are made where their routes part; with the law `fcp`.",
            ),
            key(
                "session",
                Kind::Text,
                Else("each flow is a connection"),
                "The switches that make the flows of this section one connection: a name that `[switch.NAME]` gives, with `*` and `?` if many. They send `frames`.",
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
        key("count", Kind::Count { least: 1, most: 1 << 40 }, Else("endless"), "How many frames."),
        key("size", Kind::Bytes { least: 1, most: 1 << 40 }, Must, "Payload of each."),
    ]],
};

/// `[flow.NAME.reader]`.
pub(crate) static READER: Section = Section {
    header: "[flow.NAME.reader]",
    says: "An application that works on what it reads: a frame at a time, or a packet where there are no frames. Until then data wait in the receive buffer. \
           `[workload.NAME.reader]` and `[change.reader]` likewise.",
    parts: &[&[
        key("every", TIME, Must, "How long it works on each; `\"0 s\"` reads at once."),
        key("then", TIME, Else("as `every`"), "The same in the second half of each period: a square wave."),
        key("period", PERIOD, Else("no wave"), "The period of that wave, from the run's begin on."),
    ]],
};

/// `[flow.NAME.rto]`.
pub(crate) static RTO: Section = Section {
    header: "[flow.NAME.rto]",
    says: "The retransmission timer (RFC 6298); `[workload.NAME.rto]` likewise.",
    parts: &[&[
        key("initial", PERIOD, Is("1 s"), "Before the first sample of the round trip."),
        key("min", PERIOD, Is("200 ms"), "Never shorter."),
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
        key("fixed", PERIOD, Else("worked out from the round trip"), "Always this long, without doubling."),
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
        key("strategy", Kind::Word(Strategy::WORDS), Is("equal-budget"), "How it divides its budget."),
    ]],
};

/// `[workload.NAME]`.
pub(crate) static WORKLOAD: Section = Section {
    header: "[workload.NAME]",
    says: "Flows that come by chance, each on one of the pairs of nodes that `from` and `to`, or `between`, make.",
    parts: &[
        &[
            FROM,
            TO,
            BETWEEN,
            PAIRS,
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
