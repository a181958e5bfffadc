//! Constant-rate cross-traffic, and events during a run.

use super::super::Kind;
use super::flows::READER;
use super::switches::SHARES;
use super::*;
use crate::plan::{Connections, Strategy};

section! {
    /// Plain packets at a constant rate, without congestion control. Each member of a group is a
    /// source.
    CBR = "[cbr.NAME]" {
        /// Source.
        "from": Kind::Node;
        /// Destination.
        "to": Kind::Node;
        /// Sending rate, without framing.
        "rate": Kind::Rate;
        /// Packet size on the wire, without framing.
        "packet-size": PACKET, default "1500 B";
        /// Start.
        "start": Kind::When, default "0 s";
        /// End.
        "stop": Kind::When, else "the end of the run";
        /// Length of a sending period.
        "on": SPAN, else "always";
        /// Length of the silence after each sending period.
        "off": SPAN, else "never";
        /// One-way delay beyond which a packet counts as late in the results.
        "late": SPAN, optional;
    }
}

const DIRECTION: Kind = Kind::Word(&["forward", "reverse", "both"]);

section! {
    /// A change of links, of flows, of hosts, of switches or of connections to a port during the
    /// run.
    CHANGE = "[[change]]" {
        /// Time of the change.
        "at": TIME;
        /// Links.
        "link": Kind::Links, optional;
        /// Direction.
        "direction": DIRECTION, else "`both` for rate, delay and blackout; `forward` for the rest";
        /// The new rate. A link's law uses it too, unless the link has a `capacity`.
        "rate": Kind::WireRate, optional;
        /// The new delay, for packets sent from then on.
        "delay": TIME, optional;
        /// The new probability of loss.
        "loss": PROBABILITY, optional;
        /// Length of a blackout: every packet that arrives at the link is lost. Queued packets are
        /// still sent.
        "blackout": SPAN, optional;
        /// The new capacity that the law assumes.
        "capacity": Kind::Rate, optional;
        /// The new limit of the queue.
        "limit": Kind::Limit, optional;
        /// Error of the law `fcp` from then on, as a fraction of its price.
        "price-error": Kind::Number { least: -1.0, most: 1e6 }, optional;
        /// Flows.
        "flow": Kind::Flows, optional;
        /// The new buffer of their receivers.
        "receive-buffer": Kind::Limit, optional;
        /// The new reading speed of their applications. A frame in progress is finished first.
        "reader": Kind::Table(&READER), optional;
        /// Holds back new data of their senders (`true`), or lets them leave again (`false`). A
        /// frame in progress is finished first; the window stays.
        "paused": Kind::Truth, optional;
        /// Host.
        "host": Kind::Text, optional;
        /// The new budget of the host, or of each flow without a host, in $/s.
        "budget": Kind::Number { least: 0.0, most: 1e12 }, optional;
        /// The host's new division of its budget.
        "strategy": Kind::Word(Strategy::WORDS), optional;
        /// Switches: a name, with `*` and `?` for several.
        "switch": Kind::Text, optional;
        /// The new shares of their members, as in `[switch.NAME]`.
        "shares": SHARES, optional;
        /// The member that leaves their sessions for good: its node, or a group of nodes.
        "member": Kind::Node, optional;
        /// TCP port of a node, for `tollway exec`: `server:8000`. The change applies to connections
        /// that `--publish`, `--listen` or `--localhost` carry there.
        "port": Kind::Text, optional;
        /// The new treatment of these connections, open ones and new ones: `carry`, `reset`, or
        /// `stall`, which keeps them open and carries no byte.
        "connections": Kind::Word(Connections::WORDS), optional;
        /// The new delay of the end of each direction (FIN), after its last byte.
        "close-delay": TIME, optional;
    }
}

section! {
    /// Random loss, independent for each packet.
    LOSS = "[[loss]]" {
        /// Links.
        "link": Kind::Links;
        /// Direction.
        "direction": DIRECTION, default "forward";
        /// Probability of loss.
        "probability": PROBABILITY;
        /// Place of the loss: `before` the port's law, or `after` it, on the wire.
        "place": Kind::Word(&["before", "after"]), default "after";
        /// Start of the loss.
        "from": TIME, default "0 s";
        /// End of the loss.
        "until": TIME, else "the end of the run";
        /// Packets subject to the loss.
        "only": Kind::Word(&["all", "data", "ack"]), default "all";
    }
}
