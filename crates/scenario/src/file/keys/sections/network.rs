//! The network: nodes, links, media, imported topologies.

use tollway_law::link;
use tollway_proto::faults::Distribution;
use tollway_proto::port::QUEUES;

use super::super::{Key, Kind};
use super::*;

section! {
    /// A network from a GraphML file (see [Importing](importing.md)) or a generator. Each node of
    /// the file becomes a `[node.NAME]`, each edge a `[link.FROM-TO]` with both directions.
    /// Sections of the scenario with these names override them.
    TOPOLOGY = "[topology]": [
        keys! {
            /// The GraphML file, relative to the scenario's folder.
            "file": Kind::Text, else "a generator";
            /// Another such file, read if `file` does not exist.
            "fallback": Kind::Text, else "none";
            /// Rate of the edges without a rate in the file.
            "rate": Kind::WireRate, else "each edge must have its own";
            /// Propagation delay per kilometre of the great circle between two nodes with
            /// positions; light in glass takes 5 µs.
            "delay-per-km": TIME, default "5 us";
            /// The same for nodes without a position, per unit of their distance in the file's
            /// drawing.
            "delay-per-unit": TIME, else "drawings are ignored";
            /// Propagation delay of the other links.
            "delay": TIME, default "1 ms";
            /// Keys of all links of the network; they override those of the file or the generator.
            "link": Kind::Table(&TOPOLOGY_LINK), optional;
        },
        topologies::GENERATED,
    ]
}

section! {
    /// Keys of `[link.NAME]` for every link of an imported or generated network.
    TOPOLOGY_LINK = "[topology.link]": [LINK_KEYS, IMPAIRMENTS]
}

section! {
    /// A host or a router, or a group of them.
    NODE = "[node.NAME]" {
        /// Size of a group of nodes `NAME.1`, `NAME.2`, … The name of a group means all its
        /// members.
        "count": Kind::Count { least: 1, most: 1_000_000 }, else "one node, `NAME`";
    }
}

section! {
    /// The choice among routes with the fewest links and the least delay (see [Networks of a
    /// datacentre](datacentre.md)). Multicast flows and sessions always take the first.
    ROUTING = "[routing]" {
        /// `first`: all traffic takes the route over the links that come first in the file. `ecmp`:
        /// each flow takes one by a hash of its name and the seed; its acknowledgements take one by
        /// another hash. `spray`: each packet takes one at random. `flowlet`: as `spray`, but
        /// packets without a pause between them take the same route.
        "equal-cost": Kind::Word(&["first", "ecmp", "spray", "flowlet"]), default "first";
        /// Length of the pause that ends a `flowlet`.
        "flowlet-gap": SPAN, default "500 us";
    }
}

section! {
    /// A half-duplex medium: both directions of all links on it share one transmitter.
    MEDIUM = "[medium.NAME]" {
        /// Rate of its links without a rate.
        "rate": Kind::WireRate, else "each link must have its own";
    }
}

section! {
    /// A class of traffic (a flow's `class`), and its treatment by links.
    CLASS = "[class.NAME]" {
        /// Its price on links of the law `fcp` (see [FCP](fcp.md#classes-of-traffic)).
        "pricing": Kind::Word(&["standard", "stable", "deadline", "priority", "group"]), default "standard";
        /// On links of the law `by-class`: the law of its queue, with the link's constants.
        "law": Kind::Word(link::WORDS), default "drop-tail";
        /// With `deadline`: its part of the capacity.
        "share": Kind::Over { over: 0.0, most: 1.0 }, default "0.8";
        /// With `priority`: the factor on the price.
        "times": Kind::Number { least: 1.0, most: 1e9 }, default "10";
        /// With `group`: its weight among the groups with traffic. On links of the law `by-class`:
        /// the weight of its queue. Traffic without a class has weight 1.
        "weight": Kind::Over { over: 0.0, most: 1e9 }, default "1";
    }
}

/// Values of the key `law` of a link.
pub const LINK_LAWS: &[&str] = &{
    let mut words = [""; link::WORDS.len() + QUEUES.len()];
    let mut i = 0;
    while i < link::WORDS.len() {
        words[i] = link::WORDS[i];
        i += 1;
    }
    while i < words.len() {
        words[i] = QUEUES[i - link::WORDS.len()].queue.word;
        i += 1;
    }
    words
};

section! {
    /// A link: an output port with its queue and law, and the wire behind it. Between a node and a
    /// group there is a link for each member, `NAME.1`, `NAME.2`, …; between two groups of one
    /// size, a link for each pair. The reverse direction is `NAME.reverse`.
    LINK = "[link.NAME]": [
        keys! {
            /// Its start.
            "from": Kind::Node;
            /// Its end.
            "to": Kind::Node;
        },
        LINK_KEYS,
        IMPAIRMENTS,
    ]
}

/// Keys of a link in every section with links.
const LINK_KEYS: &[Key] = keys! {
    /// Rate at which packets are sent on the wire.
    "rate": Kind::WireRate, else "the medium's, or the trace's mean";
    /// Instead of a rate: a file of transmission opportunities, one per line, in milliseconds (see
    /// [Importing](importing.md)).
    "trace": Kind::Text, else "a constant rate";
    /// One-way propagation delay.
    "delay": Kind::Spread, default "0 s";
    /// Framing of each packet on this wire, in bytes beyond the packet's size.
    "overhead": OVERHEAD, default "0 B";
    /// The port's law.
    "law": Kind::Word(LINK_LAWS), default "drop-tail";
    /// Limit of the queue, without the packet being sent. A BDP is rate × mean base RTT of the
    /// flows whose data cross the link.
    "limit": Kind::Limit, default "1000 packets";
    /// Capacity that the law assumes.
    "capacity": Kind::Rate, else "the rate";
    /// Its half-duplex medium.
    "medium": Kind::Medium, else "a transmitter for each direction";
    /// Probability that a packet is lost on the wire.
    "loss": PROBABILITY, default "0";
    /// Adds the reverse direction.
    "duplex": Kind::Truth, default "true";
    /// The reverse direction has the link's law, limit, capacity, loss and impairments, unless
    /// `reverse` sets others.
    "symmetric": Kind::Truth, else "`false`; `true` for imported links";
    /// Settings of the reverse direction.
    "reverse": Kind::Table(&REVERSE), optional;
    /// A meter at its far end, for the flows that enter or leave there.
    "meter": Kind::Table(&METER), else "none";
    /// A border between two domains at its far end, which converts prices and budgets.
    "exchange": Kind::Table(&EXCHANGE), else "none";
    "": Kind::All(laws::tables), optional;
};

/// Impairments of a wire other than independent loss.
const IMPAIRMENTS: &[Key] = keys! {
    /// Scale of each packet's random extra delay: its upper bound (`uniform`) or standard deviation.
    "jitter": TIME, default "0 s";
    /// Distribution of the extra delay. `uniform`: from zero. `normal`: around three standard
    /// deviations, never below zero. `pareto`: from zero, of shape 3; the mean is 0.58 of the
    /// standard deviation.
    "jitter-distribution": Kind::Word(Distribution::WORDS), default "uniform";
    /// Correlation of the extra delays of successive packets.
    "jitter-correlation": PROBABILITY, default "0";
    /// `kept`: a packet with a short extra delay waits for those ahead of it. `free`: it overtakes
    /// them.
    "jitter-order": Kind::Word(&["kept", "free"]), default "kept";
    /// Probability that a packet is delayed further, so that later ones overtake it.
    "reorder": PROBABILITY, default "0";
    /// The further delay of such a packet.
    "reorder-delay": TIME, default "10 ms";
    /// Probability that a packet arrives twice.
    "duplicate": PROBABILITY, default "0";
    /// Probability that a packet is corrupted; the far end detects that by its checksum and drops
    /// it.
    "corrupt": PROBABILITY, default "0";
    /// Loss in bursts, in addition to `loss`.
    "bursts": Kind::Table(&BURSTS), else "none";
};

section! {
    /// Loss in bursts: the Gilbert–Elliott model. The wire is in a good or a bad state. Each packet
    /// first changes the state with a probability, then is lost with the probability of the state.
    BURSTS = "[link.NAME.bursts]" {
        /// Probability of a change from good to bad, per packet.
        "to-bad": PROBABILITY;
        /// Probability of a change from bad to good, per packet. The mean length of a burst is its
        /// reciprocal, in packets.
        "to-good": PROBABILITY;
        /// Probability of loss in the bad state.
        "in-bad": PROBABILITY, default "1";
        /// Probability of loss in the good state.
        "in-good": PROBABILITY, default "0";
    }
}

section! {
    /// The reverse direction. Without this table it has the link's rate, delay and framing, and an
    /// unlimited drop-tail queue.
    REVERSE = "[link.NAME.reverse]": [
        keys! {
            /// Rate at which packets are sent on the wire.
            "rate": Kind::WireRate, else "the link's";
            /// A trace instead of a rate, as for the link.
            "trace": Kind::Text, else "the link's";
            /// One-way propagation delay.
            "delay": Kind::Spread, else "the link's";
            /// Framing of each packet on this wire, in bytes beyond the packet's size.
            "overhead": OVERHEAD, else "the link's";
            /// The port's law.
            "law": Kind::Word(LINK_LAWS), default "drop-tail";
            /// Limit of the queue.
            "limit": Kind::Limit, default "unlimited";
            /// Capacity that the law assumes.
            "capacity": Kind::Rate, else "the rate";
            /// Probability that a packet is lost on the wire.
            "loss": PROBABILITY, default "0";
            "": Kind::All(laws::reverse_tables), optional;
        },
        IMPAIRMENTS,
    ]
}

section! {
    /// A meter at the end of a host's access link. Without `budget` and `balance` it compares the
    /// statements of XCP senders with their measured traffic, reports flows in excess, and holds
    /// them to their allotment. The first meter that a flow's data pass meters it.
    METER = "[link.NAME.meter]" {
        /// Tolerated difference between a statement and the measurement, as a fraction of the
        /// measurement.
        "tolerance": Kind::Over { over: 0.0, most: 10.0 }, default "0.2";
        /// Excess that is tolerated, in round trips of traffic. A whole window sent at once is one.
        "burst": Kind::Over { over: 1.0, most: 1000.0 }, default "2";
        /// Number of round trips in a row with a wrongly stated round trip before a flow is
        /// accused.
        "patience": Kind::Number { least: 0.0, most: 1000.0 }, default "4";
        /// Holds accused flows to their allotment; `false` only reports them.
        "enforce": Kind::Truth, default "true";
        /// Meters FCP instead: the budget of the host behind the link, for all its flows together,
        /// in $/s. The meter compares it with the host's spending, and announcements with later
        /// spending. It holds an accused host to the budget and removes its announcements.
        "budget": Kind::Number { least: 0.0, most: 1e12 }, else "XCP's windows are metered";
        /// Meters FCP's balances instead: compares each leaving flow's stated payment with the
        /// links' prices. Meters with a `budget` learn of accused flows from the next
        /// acknowledgement.
        "balance": Kind::Truth, default "false";
    }
}

section! {
    /// A border where a customer's packets enter its provider's network (the FCP report, § 4.3). It
    /// converts budgets and prices between their currencies, by a `rate` or a `weight`.
    EXCHANGE = "[link.NAME.exchange]" {
        /// Exchange rate: provider's dollars per customer's dollar.
        "rate": Kind::Over { over: 0.0, most: 1e12 }, else "by `weight`";
        /// Worth of the customer's total spending beyond the border, in the provider's $/s.
        "weight": Kind::Over { over: 0.0, most: 1e12 }, else "by `rate`";
    }
}
