//! Machines at nodes.

use super::super::Default::{Else, Is, Must};
use super::super::{Kind, Section};
use super::*;

/// `[machine.NAME]`.
pub(crate) static MACHINE: Section = Section {
    header: "[machine.NAME]",
    says: "A machine at a node, or at each member of a group. A *middle* (`counter`) sees every packet that comes over a link to its \
           node. An *app* (`caller`, `echo`) owns the ends of flows at its node: it writes what they send and reads what they receive, \
           message by message. Both ends of such a flow are apps', and it has data `both-ways`.",
    parts: &[&[
        key("node", Kind::Node, Must, "Where it is."),
        key(
            "kind",
            Kind::Word(&["counter", "caller", "echo"]),
            Must,
            "`counter` counts packets and whole frames; `echo` returns each message; `caller` sends messages to an `echo` and checks that \
             they come back as they were. The table `machines` of the results has what each counted.",
        ),
        key(
            "flows",
            Kind::Flows,
            Else("none"),
            "Of an app: flows with an end at its node, a name, with `*` and `?` if many.",
        ),
        key(
            "messages",
            Kind::Count { least: 1, most: 1 << 40 },
            Is("100"),
            "With `caller`: messages on each flow.",
        ),
        key("size", Kind::Bytes { least: 0, most: 1 << 30 }, Is("1 kB"), "With `caller`: of each."),
    ]],
};
