//! Cross-traffic, and what happens on the way.

use super::super::Default::{Else, Is, Must};
use super::super::{Kind, Section};
use super::flows::READER;
use super::switches::SHARES;
use super::*;
use crate::plan::Strategy;

/// `[cbr.NAME]`.
pub(crate) static CBR: Section = Section {
    header: "[cbr.NAME]",
    says: "Plain packets at a constant rate that nothing holds back, from each member of a group.",
    parts: &[&[
        key("from", Kind::Node, Must, "Where they come from."),
        key("to", Kind::Node, Must, "Where they go."),
        key("rate", Kind::Rate, Must, "While it sends, without framing."),
        key("packet-size", PACKET, Is("1500 B"), "On the wire, without framing."),
        key("start", Kind::When, Is("0 s"), "When it begins, as for a flow."),
        key("stop", Kind::When, Else("the end of the run"), "When it ends."),
        key("on", SPAN, Else("always"), "Sends for so long, …"),
        key("off", SPAN, Else("never"), "… then is silent for so long, and so on."),
    ]],
};

const DIRECTION: Kind = Kind::Word(&["forward", "reverse", "both"]);

/// `[[change]]`.
pub(crate) static CHANGE: Section = Section {
    header: "[[change]]",
    says: "What happens on the way, to links, to flows' receivers, to hosts or to switches.",
    parts: &[&[
        key("at", TIME, Must, "When."),
        key("link", Kind::Links, Else(""), "Which links: a name, with `*` and `?` if many."),
        key(
            "direction",
            DIRECTION,
            Else("`both` for rate, delay and blackout; `forward` for the rest"),
            "Which way.",
        ),
        key(
            "rate",
            Kind::WireRate,
            Else(""),
            "The new rate; a link's law hears of it, unless it has a `capacity` of its own.",
        ),
        key("delay", TIME, Else(""), "The new delay, for packets that leave from now on."),
        key("loss", PROBABILITY, Else(""), "The new probability of loss."),
        key(
            "blackout",
            SPAN,
            Else(""),
            "So long every packet that comes to the link is lost; those that wait there already still leave.",
        ),
        key("capacity", Kind::Rate, Else(""), "What the law is told of its capacity."),
        key("limit", Kind::Limit, Else(""), "What the queue holds from now on."),
        key(
            "price-error",
            Kind::Number { least: -1.0, most: 1e6 },
            Else(""),
            "From now on the law `fcp` is wrong by this part of its price.",
        ),
        key("flow", Kind::Flows, Else(""), "Which flows, likewise."),
        key("receive-buffer", Kind::Limit, Else(""), "Their receivers' new buffer."),
        key(
            "reader",
            Kind::Table(&READER),
            Else(""),
            "How their applications read from now on; what one works on it finishes first.",
        ),
        key("host", Kind::Text, Else(""), "Which host."),
        key(
            "budget",
            Kind::Number { least: 0.0, most: 1e12 },
            Else(""),
            "What the host, or each flow without one, may spend from now on, $/s.",
        ),
        key(
            "strategy",
            Kind::Word(Strategy::WORDS),
            Else(""),
            "How the host divides its budget from now on.",
        ),
        key("switch", Kind::Text, Else(""), "Which switches: a name, with `*` and `?` if many."),
        key("shares", SHARES, Else(""), "The new shares of their members, as in `[switch.NAME]`."),
        key(
            "member",
            Kind::Node,
            Else(""),
            "Which of their members leaves their sessions for good: its node, or a group of nodes.",
        ),
    ]],
};

/// `[[loss]]`.
pub(crate) static LOSS: Section = Section {
    header: "[[loss]]",
    says: "Random loss, each packet for itself.",
    parts: &[&[
        key("link", Kind::Links, Must, "Which links: a name, with `*` and `?` if many."),
        key("direction", DIRECTION, Is("forward"), "Which way."),
        key("probability", PROBABILITY, Must, "How likely."),
        key(
            "place",
            Kind::Word(&["before", "after"]),
            Is("after"),
            "Before the port's law sees the packet, or on the wire.",
        ),
        key("from", TIME, Is("0 s"), "From when on."),
        key("until", TIME, Else("the end of the run"), "Until when."),
        key("only", Kind::Word(&["all", "data", "ack"]), Is("all"), "Which packets."),
    ]],
};
