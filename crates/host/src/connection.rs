//! A connection under a law, as the programs report it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tollway_law::{Price, words};
use tollway_proto::encoding::tcp_option::decode_price;

/// A connection, `struct seen` of `bpf/host.h`.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// The socket's identifier in the kernel.
    pub cookie: u64,
    /// The identifier of its control group, the inode of its folder.
    pub cgroup: u64,
    /// The user of the socket.
    pub user: u32,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The congestion window, packets; after a fallback the ordinary law's.
    pub window: f64,
    /// The pacing rate, bytes/s; likewise.
    pub rate: u64,
    /// Bytes acknowledged.
    pub acked: u64,
    /// Smoothed round-trip time; zero until one is measured.
    pub rtt: Duration,
    /// Least round-trip time.
    pub min_rtt: Duration,
    /// True while the law controls it.
    pub active: bool,
    /// The cause of its fallback.
    pub fallen: Option<Cause>,
    /// The state of the peer's last echo.
    pub echoes: Echoes,
    /// Echoes beyond what an honest router grants.
    pub forged: u32,
    /// The price of its path under FCP, once known.
    pub price: Option<Price>,
}

words! {
    /// The reason why a connection left the law.
    pub enum Cause {
        /// Acknowledgements carry no option.
        Peer = "peer",
        /// No router on the path rewrites the option.
        Path = "path",
        /// Packets are lost and queued: a bottleneck does not speak the law.
        Queue = "queue",
        /// This process sent no heartbeat.
        Agent = "agent",
        /// The program selected another congestion control.
        Program = "program",
    }
}

impl Cause {
    /// All causes, in the order of `enum cause` of `bpf/host.h`.
    pub const ALL: [Cause; 5] = [Cause::Peer, Cause::Path, Cause::Queue, Cause::Agent, Cause::Program];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Peer => "the peer sends no option",
            Cause::Path => "no router rewrites the option",
            Cause::Queue => "a bottleneck without the law",
            Cause::Agent => "no agent",
            Cause::Program => "the program selected another",
        })
    }
}

/// The state of an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echoes {
    /// There was none.
    None,
    /// The peer answers, but no router has rewritten the option.
    Unrewritten,
    /// Feedback of routers.
    Feedback,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.local, self.remote)
    }
}

impl Connection {
    /// Bytes of one connection.
    pub(crate) const LEN: usize = 104;

    /// Reads the kernel's structure.
    pub(crate) fn read(bytes: &[u8; Connection::LEN]) -> Connection {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let port = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let address = |at: usize| match bytes[76] {
            2 => IpAddr::from(Ipv4Addr::from(std::array::from_fn(|i| bytes[at + i]))),
            _ => Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| bytes[at + i])).to_canonical(),
        };
        let micros = |at| Duration::from_micros(word(at).into());
        Connection {
            cookie: long(0),
            cgroup: long(8),
            window: long(16) as f64 / 4096.0,
            rate: long(24),
            acked: long(32),
            local: SocketAddr::new(address(40), port(72)),
            remote: SocketAddr::new(address(56), port(74)),
            active: bytes[77] != 0,
            fallen: usize::from(bytes[78]).checked_sub(1).and_then(|at| Cause::ALL.get(at).copied()),
            echoes: [Echoes::None, Echoes::Unrewritten, Echoes::Feedback][usize::from(bytes[79]).min(2)],
            user: word(80),
            rtt: micros(84),
            min_rtt: micros(88),
            forged: word(92),
            price: (word(96) > 0).then(|| Price::per_byte(decode_price(word(96) as u16))),
        }
    }
}
