//! Machines at nodes.

use super::super::Kind;

section! {
    /// A machine at a node, or at each member of a group. A *middle* (`counter`) sees every packet
    /// that comes over a link to its node. An *app* (`caller`, `echo`) owns the ends of flows at
    /// its node: it writes what they send and reads what they receive, message by message. Both
    /// ends of such a flow are apps', and it has data `both-ways`.
    MACHINE = "[machine.NAME]" {
        /// Where it is.
        "node": Kind::Node;
        /// `counter` counts packets and whole frames; `echo` returns each message; `caller` sends
        /// messages to an `echo` and checks that they come back as they were. The table `machines`
        /// of the results has what each counted.
        "kind": Kind::Word(&["counter", "caller", "echo"]);
        /// Of an app: flows with an end at its node, a name, with `*` and `?` if many.
        "flows": Kind::Flows, else "none";
        /// With `caller`: messages on each flow.
        "messages": Kind::Count { least: 1, most: 1 << 40 }, default "100";
        /// With `caller`: of each.
        "size": Kind::Bytes { least: 0, most: 1 << 30 }, default "1 kB";
    }
}
