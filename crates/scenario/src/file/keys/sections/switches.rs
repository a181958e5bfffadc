//! Anypoint switches.

use super::super::Default::{Else, Is, Must};
use super::super::{Kind, Section};
use super::*;

pub(super) const SHARES: Kind = Kind::Match("a whole number, or an array of such");

/// `[switch.NAME]`.
pub(crate) static SWITCH: Section = Section {
    header: "[switch.NAME]",
    says: "An Anypoint switch at a node, or at each member of a group of nodes (see [its chapter](anypoint.md)). It joins flows with `session` \
           into one connection: it spreads the frames of one sender over the flows' receivers, or merges the frames of several senders.",
    parts: &[&[
        key("node", Kind::Node, Must, "Its node or group."),
        key(
            "policy",
            Kind::Word(&["round-robin", "by-key", "least-loaded", "sticky"]),
            Is("round-robin"),
            "Choice of the member for a frame: in turn; by a hash of the frame's number; the member with the fewest bytes outstanding; always the same.",
        ),
        key(
            "shares",
            SHARES,
            Else("the `policy`"),
            "Weights of the members, which then receive frames in turn: whole numbers, in the order of the flows.",
        ),
        key(
            "flow-control",
            Kind::Word(&["credit", "soft", "strict"]),
            Else("`soft` if the session's ends use soft flow control, else `credit`"),
            "Conversion of windows (see [Anypoint](anypoint.md#credit-and-soft-flow-control)).",
        ),
        key(
            "transforms",
            Kind::Word(&["totals", "literal"]),
            Is("totals"),
            "Application of the paper's formulas for tolls: to sums over packets (`totals`), or to each packet (`literal`).",
        ),
        key(
            "ratio-window",
            Kind::Count { least: 1, most: 65536 },
            Is("64"),
            "Window of the members' receive ratio, in packets.",
        ),
        key("patience", SPAN, Is("3 s"), "Longest silence of a member from which answers are due."),
    ]],
};
