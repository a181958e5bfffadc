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
    /// The receiver's buffer, in packets or in bytes of payload. A BDP is here the lowest rate on
    /// the path × base RTT, in bytes on the wire.
    "receive-buffer": Kind::Limit, default "unlimited";
    /// The sender's buffer, in the same units.
    "send-buffer": Kind::Limit, default "unlimited";
    /// Flow control by windows, or with the law `xcp` by feedback (see
    /// [Anypoint](anypoint.md#credit-and-soft-flow-control)).
    "flow-control": Kind::Word(&["credit", "soft"]), default "credit";
    /// The reading speed of the receiving application.
    "reader": Kind::Table(&READER), else "it reads at once";
    /// Size of a full packet on the wire, with headers but without framing.
    "packet-size": PACKET, default "1500 B";
    /// Size of a packet's headers; the rest counts as goodput.
    "header": Kind::Bytes { least: 0, most: 65535 }, default "40 B";
    /// Size of a packet without data.
    "ack-size": Kind::Bytes { least: 1, most: 65535 }, default "40 B";
    /// Initial window, in packets.
    "initial-window": Kind::Count { least: 1, most: 1_000_000 },
        else "10 (RFC 6928), or 2 with the law `xcp`";
    "": Kind::All(laws::sender_keys), optional;
    /// Enables selective acknowledgement (RFC 2018).
    "sack": Kind::Truth, default "true";
    /// Largest number of SACK ranges in an acknowledgement.
    "sack-blocks": Kind::Count { least: 1, most: 4 },
        else "3; beside XCP's options 2, or 1 with data both ways";
    /// Loss detection: RFC 5681 with one repair per recovery, like ns-2's `Agent/TCP/Reno`
    /// (`reno`); RFC 6582 (`newreno`); RFC 6675; or RFC 8985 (`rack`). `ns-2`, with the law
    /// `newreno` and without ECN: repair, window and timer of ns-2.35's Sack1, or without SACK
    /// Newreno.
    "loss-detection": Kind::Word(&["reno", "newreno", "rfc6675", "rack", "ns-2"]),
        else "`rfc6675` with SACK, `rack` with SACK and the law `bbr`, `newreno` without SACK";
    /// With `rack`: extra copies of a retransmission, sent if the receive window would be exhausted
    /// before the loss is repaired.
    "repair-copies": Kind::Count { least: 0, most: 4 }, default "0";
    /// Longest delay of an acknowledgement that waits for a second packet.
    "delayed-ack": Kind::TimeOrNone, default "none";
    /// Opens the connection with a handshake before data are sent.
    "handshake": Kind::Truth, default "true";
    /// Form of the toll in a packet, which also sets its precision.
    "encoding": Kind::Word(&["acp", "tcp-option", "draft-2", "draft-3"]), default "acp";
    /// With `tcp-option`: feedback in 13 + 3 bits, or in whole packets. For the kernel's TCP only
    /// links round; its ends keep fractions.
    "feedback": Kind::Word(&["split", "integer"]), else "`split`";
    /// Sends data in both directions of the connection.
    "both-ways": Kind::Truth, default "false";
    /// Enables ECN: links may mark data packets instead of dropping them (RFC 3168).
    "ecn": Kind::Truth, else "`true` with the law `dctcp`, `false` with others";
    /// Sends data packets with ECT(1), as a scalable sender does (RFC 9331); with the law `dctcp`.
    "l4s": Kind::Truth, default "false";
    /// The flow's class of traffic, the NAME of a `[class.NAME]`.
    "class": Kind::Text, else "none";
    /// Weight in the ideal allocation of `tollway theory`, and among the flows of its host.
    "weight": Kind::Over { over: 0.0, most: 1e12 }, default "1";
    /// The retransmission timer.
    "rto": Kind::Table(&RTO), optional;
    /// The part of the receive buffer that is advertised.
    "receive-window": Kind::Table(&RECEIVE_WINDOW), optional;
    "": Kind::All(laws::sender_tables), optional;
};

/// The nodes of flows and workloads.
const ENDS: &[Key] = keys! {
    /// Source.
    "from": Kind::Node, else "`between`";
    /// Destination.
    "to": Kind::Node, else "`between`";
    /// Instead of `from` and `to`: flows go from any of these nodes to any other.
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
    /// With `all-to-all`: number of ordered pairs, drawn at random.
    "pairs": Kind::Count { least: 1, most: 1_000_000 }, else "all, or 10 000 if there are more";
};

section! {
    /// A flow, or several: one for each member of a group. Two groups of one size are joined member
    /// by member; with a group and a node, there is a flow for each member. With `between`, flows
    /// join any nodes. Several flows are called `NAME.1`, `NAME.2`, …
    FLOW = "[flow.NAME]": [
        ENDS,
        keys! {
            /// Nodes that data pass, in order; acknowledgements pass them in reverse.
            "via": Kind::Match("a node, such as \"spine.2\", or an array of such"),
                else "the shortest route";
            /// Number of flows between each pair of nodes.
            "count": Kind::Count { least: 1, most: 1_000_000 }, else "one flow";
            /// Multicast: one sender for the whole group `to`. Copies are made where the routes to
            /// its members part. Needs the law `fcp`.
            "multicast": Kind::Truth, default "false";
            /// The switches that join the flows of this section into one connection: the NAME of a
            /// `[switch.NAME]`, with `*` and `?` for several. The flows must send `frames`.
            "session": Kind::Text, else "each flow is a connection";
            /// Start of the flow.
            "start": Kind::When, default "0 s";
            /// Another section; the flow starts when the other's data are acknowledged. Two
            /// sections with the same number of flows are paired flow by flow; otherwise every flow
            /// waits for all flows of the other section. `start` then counts from there.
            "after": Kind::Text, else "none";
            /// Time at which its application stops.
            "stop": Kind::When, else "the end of the run";
            /// Payload to send, in bytes.
            "size": Kind::Bytes { least: 1, most: 1 << 60 }, else "endless";
            /// Frames to send instead of `size` bytes.
            "frames": Kind::Table(&FRAMES), else "a stream of bytes";
        },
        TRANSPORT,
    ]
}

section! {
    /// The frames of a flow.
    FRAMES = "[flow.NAME.frames]" {
        /// Number of frames.
        "count": Kind::Count { least: 1, most: 1 << 40 }, else "endless";
        /// Payload of each frame.
        "size": Kind::Bytes { least: 1, most: 1 << 40 };
    }
}

section! {
    /// An application that takes time for what it reads: for each frame, or for each packet if
    /// there are no frames. Meanwhile data wait in the receive buffer.
    READER = "[flow.NAME.reader]" {
        /// Time for each frame or packet; `"0 s"` reads at once.
        "every": TIME;
        /// Time for each in the second half of each period: a square wave.
        "then": TIME, else "`every`";
        /// Period of that wave, from the start of the run.
        "period": PERIOD, else "no wave";
    }
}

section! {
    /// The retransmission timer (RFC 6298).
    RTO = "[flow.NAME.rto]" {
        /// Timeout before the first sample of the round trip.
        "initial": PERIOD, default "1 s";
        /// Lower bound of the timeout.
        "min": PERIOD, default "200 ms";
        /// Upper bound of the timeout.
        "max": SPAN, default "60 s";
        /// Smallest margin above the smoothed round trip: the clock granularity G of RFC 6298.
        /// Linux uses 200 ms.
        "granularity": SPAN, default "200 ms";
        /// Doubles the timeout at each expiry; the study proposes `false`.
        "backoff": Kind::Truth, default "true";
        /// Restarts the timer at the fast retransmit of the first hole (RFC 6675, § 6, allows it;
        /// Linux and ns-2 do so). With `loss-detection = "rack"` it always restarts.
        "at-repair": Kind::Truth, default "false";
        /// With `loss-detection = "newreno"`: only the first partial acknowledgement of a recovery
        /// restarts the timer (RFC 6582, § 4, Impatient; ns-2's default), not every one
        /// (Slow-but-Steady).
        "impatient": Kind::Truth, default "false";
        /// A constant timeout, without doubling.
        "fixed": PERIOD, else "computed from the round trip";
    }
}

section! {
    /// The part of the receive buffer that is advertised; it never shrinks.
    RECEIVE_WINDOW = "[flow.NAME.receive-window]" {
        /// `whole`: the whole buffer from the start. `per-packet`: grows with each data packet, as
        /// in Linux. `feedback`: grows by the feedback received (the study).
        "growth": Kind::Word(&["whole", "per-packet", "feedback"]), default "whole";
        /// Packets advertised at the start, unless `growth` is `whole`.
        "initial": Kind::Count { least: 1, most: 1 << 30 }, default "10";
        /// With `per-packet`: increase for each data packet, in packets.
        "step": Kind::Count { least: 1, most: 1 << 20 }, default "2";
    }
}

section! {
    /// A host with a budget, which it divides over its flows of the law `fcp`. A flow without a
    /// host has its own budget.
    HOST = "[host.NAME]" {
        /// Budget of all its flows together, in $/s.
        "budget": Kind::Number { least: 0.0, most: 1e12 }, default "1";
        /// Its flows and workloads.
        "flows": Kind::Flows;
        /// Division of the budget over the flows.
        "strategy": Kind::Word(Strategy::WORDS), default "equal-budget";
    }
}

section! {
    /// Flows with random arrivals and sizes. Each joins one of the pairs of nodes that `from` and
    /// `to`, or `between`, define.
    WORKLOAD = "[workload.NAME]": [
        ENDS,
        keys! {
            /// Arrivals of flows, over all pairs.
            "arrivals": Kind::Arrivals;
            /// Payload of a flow.
            "sizes": Kind::Sizes;
            /// Earliest time of an arrival.
            "start": TIME, default "0 s";
            /// Latest time of an arrival.
            "stop": TIME, else "the end of the run";
            /// Largest number of flows.
            "max-flows": Kind::Count { least: 1, most: i64::MAX as u64 }, else "no limit";
        },
        TRANSPORT,
    ]
}
