//! Rate control of many connections as one.

use super::super::Default::{Else, Is, Must};
use super::super::{Kind, Section};
use super::*;

/// `[aggregate.NAME]`.
pub(crate) static AGGREGATE: Section = Section {
    header: "[aggregate.NAME]",
    says: "A policy: flows from one host that its filter matches share one token bucket, at the host (the aggregates paper). Each \
           host that it matches flows of has a bucket of its own. Of several policies that match a flow the most specific is its: a \
           full name counts two, a pattern or a group one, over `from`, `to` and `flows`.",
    parts: &[&[
        key("from", Kind::Nodes, Else("any host"), "Where data come from: nodes by name, with `*` and `?`."),
        key("to", Kind::Nodes, Else("any host"), "Where they go, likewise."),
        key(
            "flows",
            Kind::Flows,
            Else("any flow"),
            "Which flows, workloads and cross-traffic: a name, with `*` and `?` if many.",
        ),
        key("rate", Kind::Rate, Must, "Of all of them together: r, on the wire without framing."),
        key(
            "depth",
            Kind::Bytes { least: 60, most: 1 << 33 },
            Else("the rate × the mean base round trip of its flows (§ 4.2.1), or a packet if that is more"),
            "Of the bucket: B, the longest burst.",
        ),
        key(
            "peak",
            Kind::Rate,
            Else("none"),
            "p: no packet leaves before the last one is over at this rate.",
        ),
        key("largest", PACKET, Else("what the bucket holds"), "L, the largest packet."),
        key(
            "scheme",
            Kind::Word(&["partitioned", "common", "logical"]),
            Is("logical"),
            "A bucket each; one for whoever comes; or one with a partition each, what runs over being shared.",
        ),
        key(
            "depths",
            Kind::Word(&["equal", "rtt"]),
            Is("rtt"),
            "How the depth is divided over partitions: equally, or in proportion to round trips.",
        ),
        key(
            "order",
            Kind::Word(&["sequential", "fcfs", "lru"]),
            Is("fcfs"),
            "Who of those that wait goes first: the first in the list, who has waited longest, or whose last packet is longest ago.",
        ),
        key(
            "action",
            Kind::Word(&["shape", "mark", "drop"]),
            Is("shape"),
            "A packet that does not conform waits, goes unmarked, or is dropped.",
        ),
        key(
            "timer",
            PERIOD,
            Is("15 ms"),
            "Period of the host's timer for what waits; the shortest of its policies' counts.",
        ),
        key(
            "flow-timers",
            Kind::Truth,
            Is("false"),
            "Instead of that one a timer for each flow that waits, set to when its packet conforms.",
        ),
        key(
            "queue",
            Kind::Count { least: 0, most: 1 << 30 },
            Is("50"),
            "Packets of a source of cross-traffic that may wait.",
        ),
        key(
            "window",
            Kind::Word(&["standard", "aggregate-fair", "increase-by-k"]),
            Is("standard"),
            "Growth of windows a round trip, with the law `newreno` (§ 5): 1; rtt²/rtt_av²; or `k` from `long-rtt` on.",
        ),
        key("k", Kind::Over { over: 0.0, most: 1e6 }, Is("4"), "With `increase-by-k`, packets a round trip."),
        key(
            "long-rtt",
            SPAN,
            Is("200 ms"),
            "With `increase-by-k`, the least smoothed round trip that counts as long.",
        ),
        key("install", TIME, Is("0 s"), "When the policy comes into force, also for flows that are open."),
        key("remove", TIME, Else("the end of the run"), "When it is gone."),
    ]],
};
