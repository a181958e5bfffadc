//! The network: nodes, links, media, imported topologies.

use tollway_law::link;
use tollway_proto::port::QUEUES;

use super::super::{Key, Kind};
use super::*;

section! {
    /// A network from a GraphML file (see [Importing](importing.md)) or a generator. Each node of
    /// the file becomes a `[node.NAME]`, each edge a `[link.FROM-TO]` of both directions. What the
    /// scenario says of these names itself goes on top.
    TOPOLOGY = "[topology]": [
        keys! {
            /// The GraphML file, relative to the scenario's folder.
            "file": Kind::Text, else "a generator";
            /// Another such file, read if there is no `file`.
            "fallback": Kind::Text, else "none";
            /// Rate of the edges that say none.
            "rate": Kind::WireRate, else "every edge says its own";
            /// Propagation along the great circle between two ends that have a latitude and a
            /// longitude; light in glass takes 5 µs.
            "delay-per-km": TIME, default "5 us";
            /// The same for ends that have no position, by their distance in the file's drawing.
            "delay-per-unit": TIME, else "drawings are not measured";
            /// Propagation of the other links.
            "delay": TIME, default "1 ms";
            /// Keys of all links of the network, over those of the file or the generator.
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
        /// Makes a group of so many, `NAME.1`, `NAME.2`, … Where a node is named, the group's name
        /// means all of them.
        "count": Kind::Count { least: 1, most: 1_000_000 }, else "one node, `NAME`";
    }
}

section! {
    /// The choice among routes of fewest links and least delay (see [Networks of a
    /// datacentre](datacentre.md)). Multicast flows and sessions take the first.
    ROUTING = "[routing]" {
        /// `first`: all traffic takes the route by the links that the file names first. `ecmp`:
        /// each flow takes one by a hash of its name and the seed, acknowledgements by another.
        /// `spray`: each packet takes one, drawn by the seed. `flowlet`: as `spray`, but packets
        /// stay together until there is a pause.
        "equal-cost": Kind::Word(&["first", "ecmp", "spray", "flowlet"]), default "first";
        /// The pause after which a `flowlet` ends.
        "flowlet-gap": SPAN, default "500 us";
    }
}

section! {
    /// A half-duplex medium: the links that name it, both directions of each, take turns on one
    /// transmitter.
    MEDIUM = "[medium.NAME]" {
        /// Rate of the links on it that give none.
        "rate": Kind::WireRate, else "each link's own";
    }
}

section! {
    /// A class of traffic, for flows to belong to (`class`), and what links make of it.
    CLASS = "[class.NAME]" {
        /// What links of the law `fcp` ask it for (see [FCP](fcp.md)): their own price; one that
        /// moves by no more than twice in two mean round trips; the least price within `share` of
        /// the capacity; `times` their own; or a price in the class's own currency, by its
        /// `weight`.
        "pricing": Kind::Word(&["standard", "stable", "deadline", "priority", "group"]), default "standard";
        /// On links of the law `by-class`: the law that its queue is under, with the link's
        /// constants.
        "law": Kind::Word(link::WORDS), default "drop-tail";
        /// With `deadline`: the part of the capacity for it.
        "share": Kind::Over { over: 0.0, most: 1.0 }, default "0.8";
        /// With `priority`: how many times the price.
        "times": Kind::Number { least: 1.0, most: 1e9 }, default "10";
        /// With `group`: its weight among the groups with traffic. On links of the law `by-class`:
        /// that of its queue. What is of no class has weight 1.
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
    /// group it is a link for each member, `NAME.1`, `NAME.2`, …; between two groups of one size, a
    /// link for each pair. The way back is `NAME.reverse`.
    LINK = "[link.NAME]": [
        keys! {
            /// Node or group where it begins.
            "from": Kind::Node;
            /// Node or group where it ends.
            "to": Kind::Node;
        },
        LINK_KEYS,
        IMPAIRMENTS,
    ]
}

/// Keys of a link in every section with links.
const LINK_KEYS: &[Key] = keys! {
    /// How fast packets are put on the wire.
    "rate": Kind::WireRate, else "the medium's, or the trace's mean";
    /// Instead of a rate: a file of opportunities to send, each a line with its millisecond (see
    /// [Importing](importing.md)).
    "trace": Kind::Text, else "a constant rate";
    /// Propagation, one way; `{ first = "5 ms", last = "50 ms" }` spreads it evenly over the links
    /// of a group.
    "delay": Kind::Spread, default "0 s";
    /// Framing that each packet takes on this wire beyond its own size.
    "overhead": OVERHEAD, default "0 B";
    /// The port's law.
    "law": Kind::Word(LINK_LAWS), default "drop-tail";
    /// What the queue holds, without the packet on the wire. A BDP is rate × mean base RTT of the
    /// flows whose data cross the link.
    "limit": Kind::Limit, default "1000 packets";
    /// The capacity that the law believes in.
    "capacity": Kind::Rate, else "the rate";
    /// The half-duplex medium that it shares.
    "medium": Kind::Medium, else "a transmitter for each direction";
    /// Probability that a packet is lost on the wire.
    "loss": PROBABILITY, default "0";
    /// Whether there is a way back.
    "duplex": Kind::Truth, default "true";
    /// The way back has the link's law, limit, capacity, loss and what else its wire does where
    /// `reverse` says nothing else.
    "symmetric": Kind::Truth, else "`false`; `true` for imported links";
    /// What differs on the way back.
    "reverse": Kind::Table(&REVERSE), optional;
    /// A meter at its far end, for the flows that enter there, or leave.
    "meter": Kind::Table(&METER), else "none";
    /// A border between domains at its far end, for prices and budgets.
    "exchange": Kind::Table(&EXCHANGE), else "none";
    "": Kind::All(laws::tables), optional;
};

/// Impairments of a wire other than independent loss.
const IMPAIRMENTS: &[Key] = keys! {
    /// The bound of an extra delay, uniform from zero, of each packet.
    "jitter": TIME, default "0 s";
    /// A packet whose extra delay is short waits for those ahead of it (`kept`), or overtakes them.
    "jitter-order": Kind::Word(&["kept", "free"]), default "kept";
    /// Probability that a packet is held back, so that later ones overtake it.
    "reorder": PROBABILITY, default "0";
    /// The extra delay of a packet that is held back.
    "reorder-delay": TIME, default "10 ms";
    /// Probability that a packet arrives twice.
    "duplicate": PROBABILITY, default "0";
    /// Probability that a packet is damaged; the far end finds that by its checksum, and drops it.
    "corrupt": PROBABILITY, default "0";
    /// Loss in bursts, beside `loss`.
    "bursts": Kind::Table(&BURSTS), else "none";
};

section! {
    /// Loss in bursts: the Gilbert–Elliott model, in which a wire is good or bad. Each packet may
    /// turn it first, and is then lost as likely as the wire's state says.
    BURSTS = "[link.NAME.bursts]" {
        /// Probability that a packet finds a good wire turned bad.
        "to-bad": PROBABILITY;
        /// Probability that a packet finds a bad wire turned good: bursts last for one packet in
        /// this, on average.
        "to-good": PROBABILITY;
        /// Probability of loss on a bad wire.
        "in-bad": PROBABILITY, default "1";
        /// Probability of loss on a good wire.
        "in-good": PROBABILITY, default "0";
    }
}

section! {
    /// The way back. Without this table it has the link's rate, delay and framing, and a drop-tail
    /// queue that holds everything.
    REVERSE = "[link.NAME.reverse]": [
        keys! {
            /// How fast packets are put on the wire.
            "rate": Kind::WireRate, else "the link's";
            /// Instead of a rate, as for the link.
            "trace": Kind::Text, else "the link's";
            /// Propagation, one way.
            "delay": Kind::Spread, else "the link's";
            /// Framing that each packet takes on this wire beyond its own size.
            "overhead": OVERHEAD, else "the link's";
            /// The port's law.
            "law": Kind::Word(LINK_LAWS), default "drop-tail";
            /// What the queue holds.
            "limit": Kind::Limit, default "unlimited";
            /// The capacity that the law believes in.
            "capacity": Kind::Rate, else "the rate";
            /// Probability that a packet is lost on the wire.
            "loss": PROBABILITY, default "0";
            "": Kind::All(laws::reverse_tables), optional;
        },
        IMPAIRMENTS,
    ]
}

section! {
    /// A meter where a host's own link ends. Without `budget` and `balance` it checks what XCP
    /// senders state and do against what it measures, reports those it accuses, and holds them to
    /// their allotment. A flow is metered where its data first pass one.
    METER = "[link.NAME.meter]" {
        /// How far what is stated may be from what is measured, as a part of it.
        "tolerance": Kind::Over { over: 0.0, most: 10.0 }, default "0.2";
        /// Round trips of excess before a flow is accused; a window sent at once is one.
        "burst": Kind::Over { over: 1.0, most: 1000.0 }, default "2";
        /// Round trips for which a wrong round trip must be stated without a break.
        "patience": Kind::Number { least: 0.0, most: 1000.0 }, default "4";
        /// Whether accused flows are held to their allotment, or only reported.
        "enforce": Kind::Truth, default "true";
        /// Instead: what the host behind the link may spend in FCP, $/s, all its flows together.
        /// What it spends is held against that, and what it announces against what it spends then;
        /// who is accused is held to the budget and announces nothing more.
        "budget": Kind::Number { least: 0.0, most: 1e12 }, else "XCP's windows are metered";
        /// Instead: what FCP's flows that leave over this link state to pay is held against what
        /// they are asked. Meters with a `budget` learn whom it accuses with the next
        /// acknowledgement.
        "balance": Kind::Truth, default "false";
    }
}

section! {
    /// A border where a customer's packets enter its provider's network (the FCP report, § 4.3):
    /// budgets and prices are turned from one unit into the other. It has a `rate` or a `weight`.
    EXCHANGE = "[link.NAME.exchange]" {
        /// What a $ of the customer's is worth to the provider.
        "rate": Kind::Over { over: 0.0, most: 1e12 }, else "by `weight`";
        /// What all that the customer spends beyond the border is worth together, the provider's
        /// $/s.
        "weight": Kind::Over { over: 0.0, most: 1e12 }, else "by `rate`";
    }
}
