//! Rate control of many connections as one.

use super::super::Kind;
use super::*;

section! {
    /// A policy: the flows from one host that match its filter share one token bucket at that host
    /// (the aggregates paper). Each host with such flows has a separate bucket. If several policies
    /// match a flow, the most specific one applies: over `from`, `to` and `flows`, a full name
    /// counts two, a pattern or a group one.
    AGGREGATE = "[aggregate.NAME]": [
        keys! {
            /// Source nodes.
            "from": Kind::Nodes, else "any host";
            /// Destination nodes.
            "to": Kind::Nodes, else "any host";
            /// Flows, workloads and cross-traffic.
            "flows": Kind::Flows, else "any flow";
            /// r: the rate of all its flows together, on the wire without framing.
            "rate": Kind::Rate;
            /// B: the depth of the bucket, which is the longest burst.
            "depth": Kind::Bytes { least: 60, most: 1 << 33 },
                else "the rate × the mean base round trip of its flows (§ 4.2.1), or a packet if that is more";
        },
        RULES,
        keys! {
            /// Period of the host's timer for waiting packets; a host uses the shortest of its
            /// policies.
            "timer": PERIOD, default "15 ms";
            /// Uses a timer for each waiting flow instead, set to the time at which its packet
            /// conforms.
            "flow-timers": Kind::Truth, default "false";
            /// Largest number of waiting packets for each source of cross-traffic.
            "queue": Kind::Count { least: 0, most: 1 << 30 }, default "50";
            /// Growth of windows with the law `newreno` (§ 5), in packets per round trip: 1
            /// (`standard`); rtt²/rtt_av² (`aggregate-fair`); or `k` for round trips of at least
            /// `long-rtt` (`increase-by-k`).
            "window": Kind::Word(&["standard", "aggregate-fair", "increase-by-k"]), default "standard";
            /// With `increase-by-k`: growth in packets per round trip.
            "k": Kind::Over { over: 0.0, most: 1e6 }, default "4";
            /// With `increase-by-k`: smallest smoothed round trip that counts as long.
            "long-rtt": SPAN, default "200 ms";
            /// Time at which the policy takes effect, also for open connections.
            "install": TIME, default "0 s";
            /// Time at which it is removed.
            "remove": TIME, else "the end of the run";
        },
    ]
}

/// The keys of a policy that do not depend on where its traffic comes from; [`policy`] reads them.
///
/// [`policy`]: crate::file::policy
pub const RULES: &[Key] = keys! {
    /// p: peak rate. A packet leaves only after the previous one has had its time at this rate.
    "peak": Kind::Rate, else "none";
    /// L: size of the largest packet.
    "largest": PACKET, else "what the bucket holds";
    /// `partitioned`: a bucket for each connection. `common`: one bucket for all. `logical`:
    /// one bucket with a partition for each; partitions share the tokens that overflow.
    "scheme": Kind::Word(&["partitioned", "common", "logical"]), default "logical";
    /// Division of the depth over partitions: equal, or in proportion to round trips.
    "depths": Kind::Word(&["equal", "rtt"]), default "rtt";
    /// Order of waiting connections: `sequential`, by their place in the list; `fcfs`, the
    /// longest wait first; `lru`, the oldest last packet first.
    "order": Kind::Word(&["sequential", "fcfs", "lru"]), default "fcfs";
    /// Treatment of a packet that does not conform: `shape` delays it; `mark` sends it without
    /// the mark of conforming packets; `drop` drops it.
    "action": Kind::Word(&["shape", "mark", "drop"]), default "shape";
};
