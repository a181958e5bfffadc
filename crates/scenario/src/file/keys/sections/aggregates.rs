//! Rate control of many connections as one.

use super::super::Kind;
use super::*;

section! {
    /// A policy: flows from one host that its filter matches share one token bucket, at the host
    /// (the aggregates paper). Each host that it matches flows of has a bucket of its own. Of
    /// several policies that match a flow the most specific is its: a full name counts two, a
    /// pattern or a group one, over `from`, `to` and `flows`.
    AGGREGATE = "[aggregate.NAME]" {
        /// Where data come from: nodes by name, with `*` and `?`.
        "from": Kind::Nodes, else "any host";
        /// Where they go, likewise.
        "to": Kind::Nodes, else "any host";
        /// Which flows, workloads and cross-traffic: a name, with `*` and `?` if many.
        "flows": Kind::Flows, else "any flow";
        /// Of all of them together: r, on the wire without framing.
        "rate": Kind::Rate;
        /// Of the bucket: B, the longest burst.
        "depth": Kind::Bytes { least: 60, most: 1 << 33 },
            else "the rate × the mean base round trip of its flows (§ 4.2.1), or a packet if that is more";
        /// p: no packet leaves before the last one is over at this rate.
        "peak": Kind::Rate, else "none";
        /// L, the largest packet.
        "largest": PACKET, else "what the bucket holds";
        /// A bucket each; one for whoever comes; or one with a partition each, what runs over being
        /// shared.
        "scheme": Kind::Word(&["partitioned", "common", "logical"]), default "logical";
        /// How the depth is divided over partitions: equally, or in proportion to round trips.
        "depths": Kind::Word(&["equal", "rtt"]), default "rtt";
        /// Who of those that wait goes first: the first in the list, who has waited longest, or
        /// whose last packet is longest ago.
        "order": Kind::Word(&["sequential", "fcfs", "lru"]), default "fcfs";
        /// A packet that does not conform waits, goes unmarked, or is dropped.
        "action": Kind::Word(&["shape", "mark", "drop"]), default "shape";
        /// Period of the host's timer for what waits; the shortest of its policies' counts.
        "timer": PERIOD, default "15 ms";
        /// Instead of that one a timer for each flow that waits, set to when its packet conforms.
        "flow-timers": Kind::Truth, default "false";
        /// Packets of a source of cross-traffic that may wait.
        "queue": Kind::Count { least: 0, most: 1 << 30 }, default "50";
        /// Growth of windows a round trip, with the law `newreno` (§ 5): 1; rtt²/rtt_av²; or `k`
        /// from `long-rtt` on.
        "window": Kind::Word(&["standard", "aggregate-fair", "increase-by-k"]), default "standard";
        /// With `increase-by-k`, packets a round trip.
        "k": Kind::Over { over: 0.0, most: 1e6 }, default "4";
        /// With `increase-by-k`, the least smoothed round trip that counts as long.
        "long-rtt": SPAN, default "200 ms";
        /// When the policy comes into force, also for flows that are open.
        "install": TIME, default "0 s";
        /// When it is gone.
        "remove": TIME, else "the end of the run";
    }
}
