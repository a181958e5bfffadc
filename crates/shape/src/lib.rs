//! `tollway shape`: paces real TCP connections of this machine, so that tenants and connections get
//! their shares of a rate.
//!
//! There is no queue, and no program changes: the kernel's TCP sends each connection's segments at
//! a set pace, with any congestion control, and without a queueing discipline.
//! [`tollway_law::shares`] computes the paces; this crate applies them.
//!
//! | item | contents |
//! |---|---|
//! | [`Kernel`] | a back-end that lists connections and sets their paces |
//! | [`SockDiag`] | the back-end for any kernel: `inet_diag`, and sockets borrowed by descriptor |
//! | [`bpf`] | the back-end for Linux 6.12 and later: eBPF programs, no descriptors |
//! | [`Agent`], [`run()`] | one tick (list, divide, set), and a loop of ticks |
//! | [`Regime`], [`Rules`] | the policies in force: link, tenants, and the tenant of a connection |
//! | [`Guardian`] | the process that frees sockets when the agent can't |
//! | [`Handover`] | files and sockets that the agent hands to its worker, which has no rights |
//! | [`policies`] | policies from a file or a store, checked and watched |
//! | [`service`] | the agent as a process |
//! | [`worker`] | the process without rights that reads policies and serves readers |
//! | [`status`] | the agent's state as text and as JSON |
//!
//! A policy file, and the tenant of a connection:
//!
//! ```
//! use tollway_shape::Identity;
//! use tollway_shape::policies::Policies;
//!
//! let policies = Policies::parse("policies.toml", r#"
//!     [link]
//!     rate = "100 Mbps"
//!
//!     [aggregate.web]
//!     from-port = [80, 443]
//!     weight = 3
//!
//!     [aggregate.crawler]
//!     cgroup = "/system.slice/crawler.service"
//!     rate = "20 Mbps"
//! "#)?;
//! let regime = policies.into_regime();
//! let (local, remote) = ("10.0.0.1:443".parse()?, "192.0.2.1:50000".parse()?);
//! let class = regime.rules.class_of(&Identity { local, remote, uid: 33, cgroup: None, stays: false });
//! assert_eq!(regime.tenants[class.unwrap() as usize].name, "web");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg(target_os = "linux")]

mod agent;
pub mod bpf;
mod cgroup;
mod channel;
pub(crate) mod diag;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "tests/fuzzing.rs"]
pub mod fuzzing;
mod guardian;
mod handover;
pub mod policies;
mod rights;
mod run;
pub mod service;
#[cfg(test)]
mod simulation;
pub mod status;
#[cfg(test)]
mod tests;
mod ward;
pub mod worker;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tollway_law::shares::{Contract, Tenant};
use tollway_law::{Rate, Time};

pub use agent::Agent;
pub use diag::SockDiag;
pub use guardian::{Guardian, clear, replay};
pub use handover::{Handover, Item, Number};
pub use rights::{Needs, Reach, give_up_all, settle_in, unprivileged};
pub use run::{Then, Turn, run};
pub use tollway_agent::control::{ControlSocket, ask};
pub use tollway_agent::events::{Events, Form};
pub use tollway_net::sys::signals::Signals;

/// The default path of the socket of this user's agent.
pub fn default_path() -> std::path::PathBuf {
    tollway_agent::control::folder().join("shape.sock")
}

/// A map by cookie or inode. The kernel assigns these numbers, so that no user can make them
/// collide.
type ByNumber<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// A back-end that lists this machine's TCP connections and sets their paces.
///
/// At each tick the agent calls [`connections`](Kernel::connections), then [`pace`](Kernel::pace)
/// for each change, then [`settle`](Kernel::settle). A back-end in the kernel may renew a lease
/// there: without a renewal, connections are free again.
pub trait Kernel: std::fmt::Debug {
    /// Lists every connection that may still send data; `seen` is empty at the call.
    ///
    /// # Errors
    /// The kernel can't list connections. A single connection that can't be read is left out
    /// instead.
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()>;

    /// Sets the pace of `connection`, in payload bytes per second; `None` removes the limit.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]: the connection has closed, or no process has it open.
    /// [`io::ErrorKind::PermissionDenied`]: the process lacks the rights for its owner. The agent
    /// tries again at the next tick.
    fn pace(&mut self, connection: &Seen, rate: Option<Rate>) -> io::Result<()>;

    /// Records that the program of `connection` has set its limit, which is to be restored in the
    /// end.
    fn owns(&mut self, _connection: &Seen) {}

    /// Installs policies, to be in force from now on. Called before any other method.
    ///
    /// # Errors
    /// The policies can't be put in force.
    fn install(&mut self, _regime: &Regime) -> io::Result<()> {
        Ok(())
    }

    /// Returns in `counts` the bytes that have left so far, on any socket; nothing where the
    /// back-end does not count packets.
    ///
    /// # Errors
    /// The kernel can't return its counts.
    fn traffic(&mut self, _counts: &mut Counts) -> io::Result<()> {
        Ok(())
    }

    /// Limits each tenant's packets, and those of no known tenant to `strangers`, where the
    /// back-end can.
    ///
    /// # Errors
    /// The kernel can't set the limits.
    fn hold(&mut self, _strangers: Rate, _holds: &[Hold]) -> io::Result<()> {
        Ok(())
    }

    /// Signals, a few times per second, that the agent is alive.
    fn beat(&mut self) {}

    /// Ends the changes of this tick.
    ///
    /// # Errors
    /// The changes can't be put in force.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// A line for users: the back-end's name and its limits.
    fn describe(&self) -> String;

    /// Messages for users on what failed at the last tick, with the remedies.
    fn warnings(&self) -> Vec<(Concern, String)> {
        Vec::new()
    }

    /// True if the back-end limits the packets of tenants that do not cooperate.
    fn contains(&self) -> bool {
        false
    }
}

/// The cause of a warning, which is logged when it begins, whatever others there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// Control groups that can't be read.
    Groups,
    /// The guardian with this process number, or the one that can't be started.
    Guardian(Option<u32>),
    /// Traffic that the back-end does not limit.
    Unlimited,
    /// A table that is full.
    Full,
    /// Connections whose sockets can't be reached.
    Unpaced,
}

/// All messages as one, if there are any.
fn joined(warnings: Vec<(Concern, String)>) -> Option<String> {
    let texts: Vec<String> = warnings.into_iter().map(|(_, text)| text).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Bytes on the wire of all packets, since the back-end's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By tenant; empty where the back-end does not count packets.
    pub tenants: Vec<Traffic>,
    /// Packets of a kind that is new to the policies.
    pub unknown: Traffic,
    /// Packets of no tenant.
    pub others: Traffic,
}

/// Bytes on the wire of a tenant's packets, since the back-end's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub passed: u64,
    /// Bytes dropped because they exceeded the tenant's rate.
    pub dropped: u64,
}

/// The limit of all packets of a tenant, on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    /// The tenant's rate.
    pub rate: Rate,
    /// The longest time that packets may be ahead of the rate.
    pub depth: Time,
    /// The pace of a connection that opens, until the next tick.
    pub opening: Rate,
}

/// A back-end that lists connections, and sets nothing.
#[derive(Debug)]
pub struct LookOnly<K>(pub K);

impl<K: Kernel> Kernel for LookOnly<K> {
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        self.0.connections(seen)
    }

    fn pace(&mut self, _: &Seen, _: Option<Rate>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn describe(&self) -> String {
        format!("{}, nothing set", self.0.describe())
    }
}

/// A TCP connection as listed by the kernel. Counters start at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The kernel's number for the socket, unique until the next boot (`SO_COOKIE`).
    pub cookie: u64,
    /// The time of the listing, by the back-end's clock.
    pub at: Time,
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// User that owns the socket.
    pub uid: u32,
    /// Number of its control group, where the kernel states it.
    pub cgroup: Option<u64>,
    /// Inode of the socket; 0 if no process has it open.
    pub inode: u32,
    /// Smoothed round-trip time; zero if unknown.
    pub rtt: Time,
    /// Recent minimum of the round-trip time; [`Time::NEVER`] if unknown.
    pub least_rtt: Time,
    /// Payload sent, with retransmissions, in bytes.
    pub sent: u64,
    /// Segments with payload sent; wraps at 2³².
    pub segments: u32,
    /// Segments retransmitted.
    pub resent: u32,
    /// Total time for which the receiver's window has held it up.
    pub by_receiver: Time,
    /// Payload written by the program and not sent yet, in bytes.
    pub unsent: u32,
    /// Segments sent and not acknowledged.
    pub in_flight: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Payload of a full segment, in bytes.
    pub mss: u32,
    /// Bytes of TCP's options and of IP's options or extension headers in a segment.
    pub options: u32,
    /// True if its packets stay on this machine: they leave by the loopback device.
    pub stays: bool,
    /// Current pacing rate, in payload bytes per second.
    pub pacing: u64,
    /// Upper bound of its pacing rate, in payload bytes per second; `None` for no limit.
    pub limit: Option<u64>,
}

impl Seen {
    /// Bytes of headers of a segment: TCP, IP, and `overhead` for lower layers.
    pub fn headers(&self, overhead: u32) -> u32 {
        let ip = match self.remote {
            SocketAddr::V4(_) => 20,
            SocketAddr::V6(remote) if remote.ip().to_ipv4_mapped().is_some() => 20,
            SocketAddr::V6(_) => 40,
        };
        20 + self.options + ip + overhead
    }

    /// The payload rate of full segments at a rate on the wire. The kernel paces by payload.
    pub fn payload(&self, wire: Rate, overhead: u32) -> Rate {
        let mss = f64::from(self.mss.max(1));
        Rate::from_bytes_per_sec(wire.bytes_per_sec() * mss / (mss + f64::from(self.headers(overhead))))
    }

    /// The highest payload rate at which TCP would send now: its pace, or a window per minimum
    /// round trip if that is less.
    pub fn able(&self) -> Rate {
        let pace = self.pacing as f64;
        if self.least_rtt == Time::NEVER || self.least_rtt == Time::ZERO {
            return Rate::from_bytes_per_sec(pace);
        }
        let window = f64::from(self.cwnd) * f64::from(self.mss) / self.least_rtt.as_secs_f64();
        Rate::from_bytes_per_sec(pace.min(window))
    }

    /// The size of the kernel's bursts at this pace (tcp_tso_autosize()), in bytes on the wire.
    ///
    /// A burst is at least two segments or a millisecond's data. It is larger the nearer the other
    /// end is, up to 64 KiB.
    pub fn burst(&self, overhead: u32) -> u32 {
        let near = NEAR_BURST.checked_shr((self.least_rtt.as_nanos() / NEAR_RTT.0).min(64) as u32);
        let payload = ((self.pacing >> 10) + near.unwrap_or(0)).min(NEAR_BURST) as u32;
        let segments = (payload / self.mss.max(1)).max(LEAST_BURST);
        segments * (self.mss + self.headers(overhead))
    }

    /// The rate on the wire of a payload rate: the inverse of [`payload`](Seen::payload).
    pub fn wire(&self, payload: Rate, overhead: u32) -> Rate {
        let mss = f64::from(self.mss.max(1));
        Rate::from_bytes_per_sec(payload.bytes_per_sec() * (mss + f64::from(self.headers(overhead))) / mss)
    }
}

/// Segments per burst of the kernel at least (`tcp_min_tso_segs`), and bytes at most.
const LEAST_BURST: u32 = 2;
const NEAR_BURST: u64 = 1 << 16;
/// The largest burst halves for each such part of the round trip (`tcp_tso_rtt_log`).
const NEAR_RTT: Time = Time(512_000);

/// The identity of a connection, for [`Rules`].
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// User that owns the socket.
    pub uid: u32,
    /// Path of its control group without the mount point, such as `/system.slice/nginx.service`;
    /// `None` if unknown.
    pub cgroup: Option<&'a str>,
    /// True if its packets stay on this machine.
    pub stays: bool,
}

/// The rules that assign connections to tenants.
pub trait Rules: std::fmt::Debug + Send + Sync {
    /// The class of a connection, numbered over all tenants in order; `None` if no tenant's filter
    /// matches.
    fn class_of(&self, who: &Identity<'_>) -> Option<u32>;

    /// The values that the rules compare with. Two identities on the same side of each value are of
    /// one class.
    fn distinctions(&self) -> Distinctions {
        Distinctions::default()
    }

    /// The results of the rules for a control group's path. Two groups with equal results are equal
    /// to the rules.
    fn profile(&self, _group: &str) -> Vec<Option<u32>> {
        Vec::new()
    }

    /// True if any rule matches packets that stay on this machine.
    fn local_counts(&self) -> bool {
        false
    }

    /// True if any rule compares control groups.
    fn by_group(&self) -> bool {
        false
    }
}

/// The values that [`Rules`] compare with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distinctions {
    /// Networks of the local address: an address and a prefix length.
    pub local: Vec<(IpAddr, u32)>,
    /// Networks of the remote address, likewise.
    pub remote: Vec<(IpAddr, u32)>,
    /// Ranges of local ports: first and last.
    pub local_ports: Vec<(u16, u16)>,
    /// Ranges of remote ports: first and last.
    pub remote_ports: Vec<(u16, u16)>,
    /// User numbers.
    pub users: Vec<u32>,
}

/// The policies in force: one version of them.
#[derive(Clone, Debug)]
pub struct Regime {
    /// Name of the version.
    pub version: String,
    /// Shortest interval between ticks.
    pub tick: Time,
    /// Bytes of a packet on the link in addition to IP's.
    pub overhead: u32,
    /// The link's weight, rate and bucket.
    pub link: Contract,
    /// The tenants that share the link.
    pub tenants: Vec<Party>,
    /// The rules that assign connections to tenants.
    pub rules: Arc<dyn Rules>,
}

/// A tenant with its name and its classes' names.
#[derive(Clone, Debug)]
pub struct Party {
    /// The tenant's name.
    pub name: String,
    /// The tenant's contract, and the weights of its classes.
    pub tenant: Tenant,
    /// The names of its classes.
    pub classes: Vec<String>,
}
