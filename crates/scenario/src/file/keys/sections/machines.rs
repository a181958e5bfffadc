//! Machines at nodes.

use super::super::Kind;

section! {
    /// A state machine at a node, or at each member of a group. A *middle* (`counter`) sees every
    /// packet that arrives at its node over a link. An *app* (`caller`, `echo`) is the application
    /// of flows with an end at its node: it sends and receives messages. Both ends of such a flow
    /// must be apps, and its data must go `both-ways`.
    MACHINE = "[machine.NAME]" {
        /// Its node or group.
        "node": Kind::Node;
        /// `counter` counts packets and whole frames. `echo` returns each message. `caller` sends
        /// messages to an `echo` and checks that they return unchanged. The results' table
        /// `machines` has the counts.
        "kind": Kind::Word(&["counter", "caller", "echo"]);
        /// For an app: its flows, which have an end at its node.
        "flows": Kind::Flows, else "none";
        /// With `caller`: number of messages on each flow.
        "messages": Kind::Count { least: 1, most: 1 << 40 }, default "100";
        /// With `caller`: size of a message.
        "size": Kind::Bytes { least: 0, most: 1 << 30 }, default "1 kB";
    }
}
