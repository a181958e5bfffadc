//! What can go wrong with real packets.

use std::io;

use tollway_law::Time;

use crate::secure::SecureError;

/// Why a live run cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused a socket or an operation on it.
    #[error("node `{node}` cannot {action}: {source}")]
    Socket {
        /// The node's name.
        node: String,
        /// `open a UDP socket on loopback`, …
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no random numbers.
    #[error("the system gives no randomness: {0}")]
    Random(io::Error),
    /// Datagrams between nodes can't be sealed.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// The system refused to wait for sockets.
    #[error("cannot wait for sockets: {0}")]
    Wait(io::Error),
    /// A route visits a node twice, and a label leads only one way out of it.
    #[error("a flow's route passes node `{node}` twice: the live engine needs a route without loops")]
    Loop {
        /// The node's name.
        node: String,
    },
    /// The transport's packets have no room for the header in front of them.
    #[error("a packet of {size} B has no room for {need} B of IP, UDP and ACP header")]
    NoRoom {
        /// The packet's size.
        size: u16,
        /// What the headers take.
        need: usize,
    },
    /// A payload arrived otherwise than it was sent.
    #[error(
        "flow {flow} received a wrong byte at {position} of segment {segment} after {at}: the payload was corrupted on its way"
    )]
    Corrupt {
        /// The flow's number.
        flow: u32,
        /// The segment's number.
        segment: u32,
        /// Which byte of its payload.
        position: usize,
        /// When.
        at: Time,
    },
    /// Packets appeared or vanished: a bug of the engine, or a kernel that loses datagrams without counting them.
    #[error(
        "of {sent} datagrams sent {received} were received, {waiting} wait and the kernel dropped {dropped}: the rest is unaccounted for"
    )]
    Unaccounted {
        /// Datagrams handed to the kernel.
        sent: u64,
        /// Datagrams it handed back.
        received: u64,
        /// Datagrams found in sockets at the end.
        waiting: u64,
        /// Datagrams that the kernel had no room for.
        dropped: u64,
    },
    /// The system lets this user have no network namespaces.
    #[error("this system does not let you make network namespaces ({source}); {remedy}")]
    NotAllowed {
        /// What to enable.
        remedy: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something that an emulated network needs.
    #[error("cannot {action}: {source}")]
    Namespace {
        /// `make a network namespace`, …
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something that a node's namespace needs.
    #[error("cannot {action} `{node}`: {source}")]
    Node {
        /// `make a namespace of node`, …
        action: &'static str,
        /// The node's name.
        node: String,
        /// What the system said.
        source: io::Error,
    },
    /// The outside world can't be reached.
    #[error("`--outside` does not work here: {why}")]
    Outside {
        /// What is missing, and the remedy.
        why: String,
    },
    /// The kernel refused a setting.
    #[error("cannot set `{key}` to `{value}` at a node: {source}")]
    Sysctl {
        /// Its name.
        key: String,
        /// What it was to be.
        value: String,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel has no such congestion control, or lets this user not have it.
    #[error(
        "this kernel lets you have no congestion control `{name}` ({source}); those in net.ipv4.tcp_allowed_congestion_control can be had, and `modprobe tcp_{name}` may bring it"
    )]
    Congestion {
        /// Its name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel's counters of a node's interface are not ours.
    #[error(
        "node `{node}`: its kernel counts {sent} packets sent and {received} received, and {read} came out of it and {written} went in: the rest is unaccounted for"
    )]
    Miscounted {
        /// The node's name.
        node: String,
        /// Packets that its kernel sent.
        sent: u64,
        /// Packets that it received.
        received: u64,
        /// Packets read from its interface.
        read: u64,
        /// Packets written to it.
        written: u64,
    },
    /// The kernel's counters of an interface are not what was reported.
    #[error(
        "node `{node}`, interface `{interface}`: the kernel counts {sent} packets sent and {received} received, where {handed} were handed to it and {read} came of it: the rest is unaccounted for"
    )]
    Interface {
        /// The node's name.
        node: String,
        /// The interface's.
        interface: String,
        /// Packets that the kernel counts as sent there, or dropped on their way to the far end.
        sent: u64,
        /// Packets that it counts as received there.
        received: u64,
        /// Packets that left the link by what is reported of it.
        handed: u64,
        /// Packets that were read there, or for which there was no room.
        read: u64,
    },
    /// A program could not be started.
    #[error("cannot run `{program}`: {source}")]
    Program {
        /// Its name.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A server failed before the program was started.
    #[error("the server `{command}` at `{node}` {how} before the program was started")]
    Server {
        /// Its command.
        command: String,
        /// Its node.
        node: String,
        /// How it ended.
        how: String,
    },
    /// A server or a published port needs a port that is in use.
    #[error(
        "{what} needs a port that is in use at `{node}`{held}; give one of them another port, or another node"
    )]
    PortInUse {
        /// The server or option that needs it.
        what: String,
        /// The node.
        node: String,
        /// The ports in use there and what listens on them, behind a colon; empty if unknown.
        held: String,
    },
    /// A signal came before the program was started.
    #[error("ended by signal {signal} before the program was started")]
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// A port of a node could not be opened.
    #[error("cannot publish port {port} at `{node}`: {source}")]
    Publish {
        /// The node.
        node: String,
        /// The port.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
}
