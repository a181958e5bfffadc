//! Anypoint switches.

use super::super::Default::{Else, Is, Must};
use super::super::{Kind, Section};
use super::*;

pub(super) const SHARES: Kind = Kind::Match("a whole number, or an array of such");

/// `[switch.NAME]`.
pub(crate) static SWITCH: Section = Section {
    header: "[switch.NAME]",
    says: "An Anypoint switch at a node, or at each member of a group of nodes (see [its chapter](anypoint.md)). Flows with `session` pass it as \
           one connection: it spreads the frames of one sender over the flows' receivers, or merges those of several senders.",
    parts: &[&[
        key("node", Kind::Node, Must, "Where it is."),
        key(
            "policy",
            Kind::Word(&["round-robin", "by-key", "least-loaded", "sticky"]),
            Is("round-robin"),
            "The member that a frame goes to: each in turn; by a hash of the frame's number; the one with the fewest bytes outstanding; always the same.",
        ),
        key(
            "shares",
            SHARES,
            Else("the `policy`"),
            "Members in turn, each as often as its share says: a whole number for each, in the order of the flows.",
        ),
        key(
            "flow-control",
            Kind::Word(&["soft", "strict"]),
            Is("soft"),
            "Windows: as much as the members' rooms allow at the present receive ratio, and all of the peer's room for every member; or the least of the \
             members' windows, and an even part of the peer's.",
        ),
        key(
            "transforms",
            Kind::Word(&["totals", "literal"]),
            Is("totals"),
            "The paper's formulas for tolls apply to sums over packets, or to each packet.",
        ),
        key(
            "ratio-window",
            Kind::Count { least: 1, most: 65536 },
            Is("64"),
            "Packets that the receive ratio of members looks back on.",
        ),
        key("patience", SPAN, Is("3 s"), "The longest silence of a member while answers are due."),
    ]],
};
