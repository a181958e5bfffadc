//! Generated networks.

use super::super::{Key, Kind};
use super::*;

/// The generators by their key of `[topology]`.
pub(crate) static GENERATORS: [(&str, &Section); 6] = [
    ("fat-tree", &FAT_TREE),
    ("leaf-spine", &LEAF_SPINE),
    ("ring", &RING),
    ("grid", &GRID),
    ("dumbbell", &DUMBBELL),
    ("parking-lot", &PARKING_LOT),
];

/// Keys of `[topology]`, one a generator.
pub(super) const GENERATED: &[Key] = keys! {
    /// Generates a fat-tree.
    "fat-tree": Kind::Table(&FAT_TREE), optional;
    /// Generates leaves and spines.
    "leaf-spine": Kind::Table(&LEAF_SPINE), optional;
    /// Generates a ring of routers.
    "ring": Kind::Table(&RING), optional;
    /// Generates a grid of routers.
    "grid": Kind::Table(&GRID), optional;
    /// Generates one bottleneck between sources and sinks.
    "dumbbell": Kind::Table(&DUMBBELL), optional;
    /// Generates bottlenecks in a row.
    "parking-lot": Kind::Table(&PARKING_LOT), optional;
};

const SIDE: Kind = Kind::Count { least: 1, most: 1000 };

section! {
    /// A fat-tree of switches with `k` ports each: `[node.host]` with k³/4 members, `[node.edge]`
    /// and `[node.agg]` with k²/2, `[node.core]` with k²/4, pod by pod. A link's name has its two
    /// ends, the one nearer to the hosts first: `[link.host-1-edge-1]`, `[link.edge-1-agg-2]`,
    /// `[link.agg-2-core-3]`.
    FAT_TREE = "[topology.fat-tree]" {
        /// Ports of a switch, an even number.
        "k": Kind::Count { least: 2, most: 64 };
        /// Rate of every link.
        "rate": Kind::WireRate;
        /// Propagation delay of every link.
        "delay": TIME, default "1 us";
    }
}

section! {
    /// Racks of hosts, each under a leaf; every leaf has a link to every spine. Nodes are
    /// `[node.host]`, rack by rack, `[node.leaf]` and `[node.spine]`; links are
    /// `[link.host-1-leaf-1]`, `[link.leaf-1-spine-2]`, …
    LEAF_SPINE = "[topology.leaf-spine]" {
        /// Number of leaves.
        "leaves": SIDE;
        /// Number of spines.
        "spines": SIDE;
        /// Hosts under each leaf.
        "hosts": SIDE;
        /// Rate of the hosts' links.
        "rate": Kind::WireRate;
        /// Rate of the links between leaves and spines.
        "uplink-rate": Kind::WireRate, else "`rate`";
        /// Propagation delay of every link.
        "delay": TIME, default "1 us";
    }
}

section! {
    /// Routers in a ring: `[node.router]`, with `[link.router-1-router-2]` and so on, and a link
    /// from the last to the first.
    RING = "[topology.ring]" {
        /// Number of routers.
        "routers": Kind::Count { least: 3, most: 100_000 };
        /// Rate of every link.
        "rate": Kind::WireRate;
        /// Propagation delay of every link.
        "delay": TIME, default "1 ms";
    }
}

section! {
    /// Routers in a grid, row by row: `[node.router]`, with links to the right and down, such as
    /// `[link.router-1-router-2]`.
    GRID = "[topology.grid]" {
        /// Number of rows.
        "rows": SIDE;
        /// Routers in a row.
        "columns": SIDE;
        /// Rate of every link.
        "rate": Kind::WireRate;
        /// Propagation delay of every link.
        "delay": TIME, default "1 ms";
    }
}

section! {
    /// A dumbbell: `[node.source]` and `[node.sink]`, groups of one size, on the two sides of a
    /// bottleneck from `left` to `right`. Links are `[link.source-left]`, `[link.left-right]` and
    /// `[link.right-sink]`.
    DUMBBELL = "[topology.dumbbell]" {
        /// Number of sources, and of sinks.
        "pairs": Kind::Count { least: 1, most: 100_000 };
        /// Rate of the bottleneck.
        "rate": Kind::WireRate;
        /// Propagation delay of a bottleneck.
        "delay": TIME, default "1 ms";
        /// Rate of the other links.
        "access-rate": Kind::WireRate, else "ten times `rate`";
        /// Propagation delay of the other links.
        "access-delay": TIME, default "0 s";
    }
}

section! {
    /// Bottlenecks in a row: `[node.router]` from first to last, `[link.router-1-router-2]` and so
    /// on. `source` and `sink` are at the ends of the row. For each bottleneck K there are
    /// `entry.K` before it and `exit.K` behind it: `[link.entry-1-router-1]`,
    /// `[link.router-2-exit-1]`.
    PARKING_LOT = "[topology.parking-lot]" {
        /// Number of bottlenecks.
        "hops": Kind::Count { least: 1, most: 10_000 };
        /// Rate of each bottleneck.
        "rate": Kind::WireRate;
        /// Propagation delay of a bottleneck.
        "delay": TIME, default "1 ms";
        /// Rate of the other links.
        "access-rate": Kind::WireRate, else "ten times `rate`";
        /// Propagation delay of the other links.
        "access-delay": TIME, default "0 s";
    }
}
