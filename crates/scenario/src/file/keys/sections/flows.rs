//! Flows, workloads and hosts.

use tollway_law::sender;

use super::super::{Key, Kind};
use super::*;
use crate::plan::Strategy;

/// Keys of flows and workloads for their ends.
pub(super) const TRANSPORT: &[Key] = keys! {
    /// The sender's law.
    "law": Kind::Word(sender::WORDS);
    "": Kind::All(laws::transport), optional;
    /// The receiver's buffer: packets, or bytes of payload. A BDP is here the least rate on the way
    /// × base RTT, on the wire.
    "receive-buffer": Kind::Limit, default "unlimited";
    /// The sender's, likewise.
    "send-buffer": Kind::Limit, default "unlimited";
    /// What the receiver states of its buffer: the room left, as a window; or, with the law `xcp`,
    /// the rate at which it drains, as feedback (the Anypoint paper, § IV-A), and what finds no
    /// room is dropped.
    "flow-control": Kind::Word(&["credit", "soft"]), default "credit";
    /// How the application at the receiver reads.
    "reader": Kind::Table(&READER), else "it reads at once";
    /// A full packet on the wire, headers included, framing not.
    "packet-size": PACKET, default "1500 B";
    /// What of it is header; the rest is goodput.
    "header": Kind::Bytes { least: 0, most: 65535 }, default "40 B";
    /// A packet without data.
    "ack-size": Kind::Bytes { least: 1, most: 65535 }, default "40 B";
    /// Window at the start, packets.
    "initial-window": Kind::Count { least: 1, most: 1_000_000 },
        else "10 (RFC 6928), or 2 with the law `xcp`";
    "": Kind::All(laws::sender_keys), optional;
    /// Selective acknowledgement (RFC 2018).
    "sack": Kind::Truth, default "true";
    /// Ranges that an acknowledgement has room for.
    "sack-blocks": Kind::Count { least: 1, most: 4 },
        else "3, or what XCP's options leave room for: 2, or 1 with data both ways";
    /// How losses are found: RFC 5681 with one repair a recovery, as ns-2's `Agent/TCP/Reno`; RFC
    /// 6582, RFC 6675 or RFC 8985.
    "loss-detection": Kind::Word(&["reno", "newreno", "rfc6675", "rack"]),
        else "`rfc6675` with SACK, `rack` with it and the law `bbr`, `newreno` without";
    /// With `rack`: how many times more a retransmission is sent where the receive window would not
    /// last until its loss is repaired.
    "repair-copies": Kind::Count { least: 0, most: 4 }, default "0";
    /// How long an acknowledgement may wait for a second packet.
    "delayed-ack": Kind::TimeOrNone, default "none";
    /// Opens the connection before data flow.
    "handshake": Kind::Truth, default "true";
    /// What the toll looks like in a packet, and so what precision it has.
    "encoding": Kind::Word(&["acp", "tcp-option", "draft-2", "draft-3"]), default "acp";
    /// With `tcp-option`: 13 + 3 bits, or whole packets.
    "feedback": Kind::Word(&["split", "integer"]), else "`split`";
    /// Data in both directions of the connection.
    "both-ways": Kind::Truth, default "false";
    /// Data packets may be marked instead of dropped (RFC 3168).
    "ecn": Kind::Truth, else "`true` with the law `dctcp`, `false` with others";
    /// Data packets say by ECT(1) that their sender is scalable (RFC 9331); with the law `dctcp`.
    "l4s": Kind::Truth, default "false";
    /// The class of traffic that it belongs to: a name that `[class.NAME]` gives.
    "class": Kind::Text, else "none";
    /// Weight in theory's ideal allocation, and among the flows of its host.
    "weight": Kind::Over { over: 0.0, most: 1e12 }, default "1";
    /// The retransmission timer.
    "rto": Kind::Table(&RTO), optional;
    /// How much of the receive buffer is advertised.
    "receive-window": Kind::Table(&RECEIVE_WINDOW), optional;
    "": Kind::All(laws::sender_tables), optional;
};

/// The nodes of flows and workloads.
const ENDS: &[Key] = keys! {
    /// Where data come from.
    "from": Kind::Node, else "`between`";
    /// Where they go.
    "to": Kind::Node, else "`between`";
    /// Instead of these: nodes by name, with `*` and `?`, or a list of such; flows go from any to
    /// any other.
    "between": Kind::Nodes, else "`from` and `to`";
    /// With `between`: the pairs. `all-to-all`: each node sends to each. `permutation`: each sends
    /// to one and receives from one. `incast`: `senders` send to each of `receivers`. `hot-spots`:
    /// each sends to one, a `share` of them to one of `receivers`. The seed draws the nodes.
    "matrix": Kind::Word(&["all-to-all", "permutation", "incast", "hot-spots"]), default "all-to-all";
    /// With `incast` and `hot-spots`: the number of receivers or hot nodes.
    "receivers": Kind::Count { least: 1, most: 1_000_000 }, default "1";
    /// With `incast`: the number of senders for each receiver.
    "senders": Kind::Count { least: 1, most: 1_000_000 }, else "all other nodes";
    /// With `hot-spots`: the probability that a node sends to a hot one.
    "share": PROBABILITY, default "0.5";
    /// With `all-to-all`: so many ordered pairs, drawn by chance.
    "pairs": Kind::Count { least: 1, most: 1_000_000 }, else "all, or 10 000 if there are more";
};

section! {
    /// A flow, or one for each member of a group: groups of one size go member by member, a group
    /// and a node many to one; or between any nodes. Where that makes several they are `NAME.1`,
    /// `NAME.2`, …
    FLOW = "[flow.NAME]": [
        ENDS,
        keys! {
            /// Nodes that data pass on their way, in order; acknowledgements pass them in reverse.
            "via": Kind::Match("a node, such as \"spine.2\", or an array of such"),
                else "the shortest route";
            /// So many between each pair of nodes.
            "count": Kind::Count { least: 1, most: 1_000_000 }, else "one flow";
            /// One sender for a whole group `to`, whose members receive copies that are made where
            /// their routes part; with the law `fcp`.
            "multicast": Kind::Truth, default "false";
            /// The switches that make the flows of this section one connection: a name that
            /// `[switch.NAME]` gives, with `*` and `?` if many. They send `frames`.
            "session": Kind::Text, else "each flow is a connection";
            /// When the flow begins: a time; `{ first, last }`, evenly over the flows; or `{ random
            /// = "1 s", after = "0 s" }`, uniformly in that span.
            "start": Kind::When, default "0 s";
            /// Starts when another flow has ended: its data are acknowledged. With the name of a
            /// section of as many flows each waits for its own; with that of another section, all
            /// wait for all of them. `start` is then the time from there on.
            "after": Kind::Text, else "it does not wait";
            /// When its application stops, in the same ways.
            "stop": Kind::When, else "the end of the run";
            /// Payload to send.
            "size": Kind::Bytes { least: 1, most: 1 << 60 }, else "endless";
            /// Frames to send instead.
            "frames": Kind::Table(&FRAMES), else "a stream of bytes";
        },
        TRANSPORT,
    ]
}

section! {
    /// What a framed flow sends.
    FRAMES = "[flow.NAME.frames]" {
        /// How many frames.
        "count": Kind::Count { least: 1, most: 1 << 40 }, else "endless";
        /// Payload of each.
        "size": Kind::Bytes { least: 1, most: 1 << 40 };
    }
}

section! {
    /// An application that works on what it reads: a frame at a time, or a packet where there are
    /// no frames. Until then data wait in the receive buffer. `[workload.NAME.reader]` and
    /// `[change.reader]` likewise.
    READER = "[flow.NAME.reader]" {
        /// How long it works on each; `"0 s"` reads at once.
        "every": TIME;
        /// The same in the second half of each period: a square wave.
        "then": TIME, else "as `every`";
        /// The period of that wave, from the run's begin on.
        "period": PERIOD, else "no wave";
    }
}

section! {
    /// The retransmission timer (RFC 6298); `[workload.NAME.rto]` likewise.
    RTO = "[flow.NAME.rto]" {
        /// Before the first sample of the round trip.
        "initial": PERIOD, default "1 s";
        /// Never shorter.
        "min": PERIOD, default "200 ms";
        /// Never longer.
        "max": SPAN, default "60 s";
        /// Least margin over the smoothed round trip: the clock's G of RFC 6298; 200 ms as in
        /// Linux.
        "granularity": SPAN, default "200 ms";
        /// Doubles with each expiry; the study proposes that it should not.
        "backoff": Kind::Truth, default "true";
        /// The fast retransmit of the first hole restarts it (RFC 6675, § 6, allows it; Linux and
        /// ns-2 do so). With `loss-detection = "rack"` it does in any case.
        "at-repair": Kind::Truth, default "false";
        /// With `loss-detection = "newreno"`: only the first partial acknowledgement of a recovery
        /// restarts it (RFC 6582, § 4, Impatient; ns-2's default), not each (Slow-but-Steady).
        "impatient": Kind::Truth, default "false";
        /// Always this long, without doubling.
        "fixed": PERIOD, else "worked out from the round trip";
    }
}

section! {
    /// How much of the receive buffer is advertised; it never shrinks.
    /// `[workload.NAME.receive-window]` likewise.
    RECEIVE_WINDOW = "[flow.NAME.receive-window]" {
        /// All of the buffer from the start; growing with each data packet, as Linux does; or by
        /// the feedback received (the study).
        "growth": Kind::Word(&["whole", "per-packet", "feedback"]), default "whole";
        /// Packets advertised at the start, unless it is `whole`.
        "initial": Kind::Count { least: 1, most: 1 << 30 }, default "10";
        /// Packets more for each data packet, if `per-packet`.
        "step": Kind::Count { least: 1, most: 1 << 20 }, default "2";
    }
}

section! {
    /// An owner of a budget that it divides over its flows of the law `fcp`. Flows without a host
    /// have a budget each.
    HOST = "[host.NAME]" {
        /// What all of its flows may spend, $/s.
        "budget": Kind::Number { least: 0.0, most: 1e12 }, default "1";
        /// Which flows and workloads: a name, with `*` and `?` if many.
        "flows": Kind::Flows;
        /// How it divides its budget.
        "strategy": Kind::Word(Strategy::WORDS), default "equal-budget";
    }
}

section! {
    /// Flows that come by chance, each on one of the pairs of nodes that `from` and `to`, or
    /// `between`, make.
    WORKLOAD = "[workload.NAME]": [
        ENDS,
        keys! {
            /// `{ poisson = 100 }`, a second over all pairs, or `{ interval = "10 ms" }`.
            "arrivals": Kind::Arrivals;
            /// Payload of a flow: `"10 kB"`; `{ exponential = "30 kB" }`, the mean; `{ pareto = {
            /// mean = "30 kB", shape = 1.2 } }`; `{ empirical = [["1 kB", 0.5], ["1 MB", 1.0]] }`;
            /// `{ file = "web.txt" }`, a file of such lines (see [Importing](importing.md)).
            "sizes": Kind::Sizes;
            /// First instant of an arrival.
            "start": TIME, default "0 s";
            /// Last one.
            "stop": TIME, else "the end of the run";
            /// Flows at most.
            "max-flows": Kind::Count { least: 1, most: i64::MAX as u64 }, else "as many as come";
        },
        TRANSPORT,
    ]
}
