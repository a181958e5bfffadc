//! Constant-rate cross-traffic, and events during a run.

use super::super::Kind;
use super::flows::READER;
use super::switches::SHARES;
use super::*;
use crate::plan::Strategy;

section! {
    /// Plain packets at a constant rate that nothing holds back, from each member of a group.
    CBR = "[cbr.NAME]" {
        /// Where they come from.
        "from": Kind::Node;
        /// Where they go.
        "to": Kind::Node;
        /// While it sends, without framing.
        "rate": Kind::Rate;
        /// On the wire, without framing.
        "packet-size": PACKET, default "1500 B";
        /// When it begins, as for a flow.
        "start": Kind::When, default "0 s";
        /// When it ends.
        "stop": Kind::When, else "the end of the run";
        /// Sends for so long, …
        "on": SPAN, else "always";
        /// … then is silent for so long, and so on.
        "off": SPAN, else "never";
    }
}

const DIRECTION: Kind = Kind::Word(&["forward", "reverse", "both"]);

section! {
    /// What happens on the way, to links, to flows' receivers, to hosts or to switches.
    CHANGE = "[[change]]" {
        /// When.
        "at": TIME;
        /// Which links: a name, with `*` and `?` if many.
        "link": Kind::Links, optional;
        /// Which way.
        "direction": DIRECTION, else "`both` for rate, delay and blackout; `forward` for the rest";
        /// The new rate; a link's law hears of it, unless it has a `capacity` of its own.
        "rate": Kind::WireRate, optional;
        /// The new delay, for packets that leave from now on.
        "delay": TIME, optional;
        /// The new probability of loss.
        "loss": PROBABILITY, optional;
        /// So long every packet that comes to the link is lost; those that wait there already still
        /// leave.
        "blackout": SPAN, optional;
        /// What the law is told of its capacity.
        "capacity": Kind::Rate, optional;
        /// What the queue holds from now on.
        "limit": Kind::Limit, optional;
        /// From now on the law `fcp` is wrong by this part of its price.
        "price-error": Kind::Number { least: -1.0, most: 1e6 }, optional;
        /// Which flows, likewise.
        "flow": Kind::Flows, optional;
        /// Their receivers' new buffer.
        "receive-buffer": Kind::Limit, optional;
        /// How their applications read from now on; what one works on it finishes first.
        "reader": Kind::Table(&READER), optional;
        /// Which host.
        "host": Kind::Text, optional;
        /// What the host, or each flow without one, may spend from now on, $/s.
        "budget": Kind::Number { least: 0.0, most: 1e12 }, optional;
        /// How the host divides its budget from now on.
        "strategy": Kind::Word(Strategy::WORDS), optional;
        /// Which switches: a name, with `*` and `?` if many.
        "switch": Kind::Text, optional;
        /// The new shares of their members, as in `[switch.NAME]`.
        "shares": SHARES, optional;
        /// Which of their members leaves their sessions for good: its node, or a group of nodes.
        "member": Kind::Node, optional;
    }
}

section! {
    /// Random loss, each packet for itself.
    LOSS = "[[loss]]" {
        /// Which links: a name, with `*` and `?` if many.
        "link": Kind::Links;
        /// Which way.
        "direction": DIRECTION, default "forward";
        /// How likely.
        "probability": PROBABILITY;
        /// Before the port's law sees the packet, or on the wire.
        "place": Kind::Word(&["before", "after"]), default "after";
        /// From when on.
        "from": TIME, default "0 s";
        /// Until when.
        "until": TIME, else "the end of the run";
        /// Which packets.
        "only": Kind::Word(&["all", "data", "ack"]), default "all";
    }
}
