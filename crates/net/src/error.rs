//! Errors of runs on real packets.

use std::io;
use std::net::SocketAddr;

use tollway_law::Time;

use crate::secure::SecureError;

/// An error that prevents or ends a live run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused a socket or an operation on it.
    #[error("node `{node}` cannot {action}: {source}")]
    Socket {
        /// The node's name.
        node: String,
        /// `open a UDP socket on loopback`, …
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The system gives no random numbers.
    #[error("cannot get random bytes from the system: {0}")]
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
        /// Size of the headers, in bytes.
        need: usize,
    },
    /// A payload arrived with a wrong byte.
    #[error(
        "flow {flow} received a wrong byte at {position} of segment {segment} after {at}: the payload was \
        corrupted in transit"
    )]
    Corrupt {
        /// The flow's number.
        flow: u32,
        /// The segment's number.
        segment: u32,
        /// Offset of the byte in its payload.
        position: usize,
        /// Time of its arrival.
        at: Time,
    },
    /// Packets appeared or vanished: a bug of the engine, or a kernel that loses datagrams without
    /// counting them.
    #[error(
        "of {sent} datagrams sent, {received} were received, {waiting} are waiting and the kernel dropped \
        {dropped}: the rest is unaccounted for"
    )]
    Unaccounted {
        /// Datagrams handed to the kernel.
        sent: u64,
        /// Datagrams received from it.
        received: u64,
        /// Datagrams found in sockets at the end.
        waiting: u64,
        /// Datagrams that the kernel had no room for.
        dropped: u64,
    },
    /// The system denies network namespaces to this user.
    #[error("this system does not allow you to create network namespaces ({source}); {remedy}")]
    NotAllowed {
        /// The setting to enable.
        remedy: String,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused an operation that an emulated network needs.
    #[error("cannot {action}: {source}")]
    Namespace {
        /// `make a network namespace`, …
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused an operation on a node's namespace.
    #[error("cannot {action} `{node}`: {source}")]
    Node {
        /// `make a namespace of node`, …
        action: &'static str,
        /// The node's name.
        node: String,
        /// The system's error.
        source: io::Error,
    },
    /// The outside world can't be reached.
    #[error("`--outside` does not work here: {why}")]
    Outside {
        /// The missing part, and the remedy.
        why: String,
    },
    /// The kernel refused a setting.
    #[error("cannot set `{key}` to `{value}` at a node: {source}")]
    Sysctl {
        /// The setting's name.
        key: String,
        /// The value asked for.
        value: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel lacks this congestion control, or denies it to this user.
    #[error(
        "this kernel does not allow the congestion control `{name}` ({source}); use one in \
        net.ipv4.tcp_allowed_congestion_control, or try `modprobe tcp_{name}`"
    )]
    Congestion {
        /// The algorithm's name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel's counters of a node's interface differ from this program's.
    #[error(
        "node `{node}`: its kernel counts {sent} packets sent and {received} received, but {read} were read \
        from it and {written} written to it: the rest is unaccounted for"
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
    /// The kernel's counters of an interface differ from the reported ones.
    #[error(
        "node `{node}`, interface `{interface}`: the kernel counts {sent} packets sent and {received} \
        received, but {handed} were written to it and {read} read from it: the rest is unaccounted for"
    )]
    Interface {
        /// The node's name.
        node: String,
        /// The interface's.
        interface: String,
        /// Packets that the kernel counts as sent there, or dropped towards the far end.
        sent: u64,
        /// Packets that it counts as received there.
        received: u64,
        /// Packets that left the link, as reported.
        handed: u64,
        /// Packets read there, or dropped there for lack of room.
        read: u64,
    },
    /// A program could not be started.
    #[error("cannot run `{program}`: {source}")]
    Program {
        /// The program's name.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// A server failed before the program was started.
    #[error("the server `{command}` at `{node}` {how} before the program was started")]
    Server {
        /// The server's command.
        command: String,
        /// The server's node.
        node: String,
        /// The manner of its end.
        how: String,
    },
    /// A server or a published port needs a port that is in use.
    #[error(
        "{what} needs a port that is already in use at `{node}`{held}; give one of them another port, or \
        another node"
    )]
    PortInUse {
        /// The server or option that needs it.
        what: String,
        /// The node.
        node: String,
        /// The ports in use there and what listens on them, behind a colon; empty if unknown.
        held: String,
    },
    /// A signal arrived before the program was started.
    #[error("ended by signal {signal} before the program was started")]
    Interrupted {
        /// The signal's number.
        signal: i32,
    },
    /// A port of this machine could not be opened.
    #[error("`--listen` cannot listen at {at} ({source}); {remedy}")]
    Listen {
        /// The address and port.
        at: SocketAddr,
        /// The system's error.
        source: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// A change of connections concerns a port to which none are relayed.
    #[error(
        "the file changes connections to port {port} of `{node}`, and none are relayed there; add `--publish \
        {node}:{port}`, or `--listen` or `--localhost` with `{node}:{port}`"
    )]
    NotRelayed {
        /// The node.
        node: String,
        /// The port.
        port: u16,
    },
    /// A port of a node could not be published.
    #[error("cannot publish port {port} at `{node}`: {source}")]
    Publish {
        /// The node.
        node: String,
        /// The port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
}
