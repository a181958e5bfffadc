//! `tollway shape`: real TCP connections of this machine, paced so that tenants and connections have their shares of a rate.
//!
//! Nothing is queued and no program is changed: the kernel's own TCP sends each connection's segments at the pace that it is let have,
//! whatever its congestion control, and needs no queueing discipline for it. Who may have how much [`tollway_law::shares`] says; here
//! is what it is said of.
//!
//! | | |
//! |---|---|
//! | [`Kernel`] | a way to see connections and to set their paces |
//! | [`SockDiag`] | the way that works everywhere: `inet_diag`, and sockets borrowed from their owners |
//! | [`bpf`] | the way of Linux 6.12 and later: programs in the kernel, and no descriptor of anybody's |
//! | [`Agent`], [`run()`] | a tick: look, divide, set; and tick after tick |
//! | [`Regime`], [`Rules`] | what is to hold: the link, tenants, and who is whose |
//! | [`Guardian`] | the process that makes sockets free again when the agent can't |
//! | [`Handover`] | files and sockets that the agent hands to its worker, which has no rights |
//! | [`policies`] | the file of policies or a store, its checks, watching it |
//! | [`service`] | the agent as a process |
//! | [`worker`] | the process without rights that reads policies and serves readers |
//! | [`status`] | the agent's state: for people, for programs |
//!
//! A file of policies, and the tenant of a connection:
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
//! let class = regime.rules.class_of(&Identity { local, remote, uid: 33, cgroup: None });
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
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod policies;
mod rights;
mod run;
#[cfg(feature = "watch")]
pub mod screen;
pub mod service;
#[cfg(test)]
mod simulation;
pub mod status;
mod supervisor;
#[cfg(test)]
mod tests;
mod ward;
pub mod worker;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tollway_law::shares::{Contract, Tenant};
use tollway_law::{Rate, Time};

pub use agent::{Agent, ConnectionStatus, Status, TenantStatus};
pub use diag::SockDiag;
pub use guardian::{Guardian, clear, replay};
pub use handover::{Handover, Item, Number};
pub use rights::{Needs, Reach, give_up_all, settle_in, unprivileged};
pub use run::{Then, Turn, run};
pub use tollway_net::sys::control::{Control, ask};
pub use tollway_net::sys::signals::Signals;

/// The socket of this user's agent, unless an option names another.
pub fn default_path() -> std::path::PathBuf {
    tollway_net::sys::control::folder().join("shape.sock")
}

/// A map by cookie or inode. The kernel gives these out, so that no user can make them collide.
type ByNumber<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// A way to see this machine's TCP connections and to say how fast they may send.
///
/// The agent asks for the connections, says what each may have, and then that all is said, once a tick. A back-end that acts in
/// the kernel may take that last call for the renewal of a lease: whoever is not heard of any more has no say.
pub trait Kernel: std::fmt::Debug {
    /// Lists every connection that may still send data; `seen` is empty at the call.
    ///
    /// # Errors
    /// The kernel can't be asked. One connection that can't be read is left out instead.
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()>;

    /// Lets `connection` have `rate`, payload bytes a second; `None` is as much as it likes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]: it is gone, or nobody has it open any more. [`io::ErrorKind::PermissionDenied`]: its owner is
    /// beyond our rights. It is asked for again at the next tick.
    fn pace(&mut self, connection: &Seen, rate: Option<Rate>) -> io::Result<()>;

    /// Hears that its program has set `connection`'s limit by itself: that is what it is to have in the end.
    fn owns(&mut self, _connection: &Seen) {}

    /// Hears of policies that are to hold from now on, before any other call.
    ///
    /// # Errors
    /// They can't be put in force.
    fn install(&mut self, _regime: &Regime) -> io::Result<()> {
        Ok(())
    }

    /// Says what each tenant has sent so far, whatever the socket; nothing where the back-end does not count packets.
    ///
    /// # Errors
    /// The kernel can't be asked.
    fn traffic(&mut self, _traffic: &mut Vec<Traffic>) -> io::Result<()> {
        Ok(())
    }

    /// Holds each tenant's packets to a rate, and those of no known tenant to `strangers`, where the back-end can.
    ///
    /// # Errors
    /// The kernel can't be told.
    fn hold(&mut self, _strangers: Rate, _holds: &[Hold]) -> io::Result<()> {
        Ok(())
    }

    /// Hears, a few times a second, that the agent is there.
    fn beat(&mut self) {}

    /// All that this tick has to say is said.
    ///
    /// # Errors
    /// What was said can't be put in force.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// A line on what it is and what it can't do, for people.
    fn describe(&self) -> String;

    /// What it could not do at the last look, and the remedy, for people.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// Bytes on the wire that a tenant's packets had, since the back-end began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Those that were sent.
    pub passed: u64,
    /// Those that were dropped: they were above the tenant's rate.
    pub dropped: u64,
}

/// The limit of all packets of a tenant, on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    /// Its rate.
    pub rate: Rate,
    /// What it may be ahead of that.
    pub depth: Time,
    /// The pace of a connection that opens, until the next tick.
    pub opening: Rate,
}

/// A kernel that is only looked at.
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

/// A TCP connection as the kernel has it. Counters run from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Names the socket as long as the machine is up (`SO_COOKIE`).
    pub cookie: u64,
    /// When this was so, by a clock of the back-end's.
    pub at: Time,
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Whose it is.
    pub uid: u32,
    /// Its control group, where the kernel tells.
    pub cgroup: Option<u64>,
    /// The number under which processes have it open; 0 once none has.
    pub inode: u32,
    /// Smoothed round trip; zero while unknown.
    pub rtt: Time,
    /// The least one lately; [`Time::NEVER`] while unknown.
    pub least_rtt: Time,
    /// Payload sent, with what was sent again, bytes.
    pub sent: u64,
    /// Segments with payload sent; runs over at 2³².
    pub segments: u32,
    /// Segments sent again.
    pub resent: u32,
    /// How long the receiver's window has held it.
    pub by_receiver: Time,
    /// Payload written by the program and not sent yet, bytes.
    pub unsent: u32,
    /// Segments sent and not acknowledged.
    pub in_flight: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Payload of a full segment, bytes.
    pub mss: u32,
    /// Whether segments carry time stamps, of 12 bytes.
    pub timestamps: bool,
    /// What it is paced to now, payload bytes a second.
    pub pacing: u64,
    /// What it may be paced to at most; `None` is any rate.
    pub limit: Option<u64>,
}

impl Seen {
    /// Bytes in front of a segment's payload: TCP, IP, and `overhead` for what is below.
    pub fn headers(&self, overhead: u32) -> u32 {
        let ip = match self.remote {
            SocketAddr::V4(_) => 20,
            SocketAddr::V6(remote) if remote.ip().to_ipv4_mapped().is_some() => 20,
            SocketAddr::V6(_) => 40,
        };
        20 + if self.timestamps { 12 } else { 0 } + ip + overhead
    }

    /// The wire's rate as payload in full segments, by which the kernel paces.
    pub fn payload(&self, wire: Rate, overhead: u32) -> Rate {
        let mss = f64::from(self.mss.max(1));
        Rate::from_bytes_per_sec(wire.bytes_per_sec() * mss / (mss + f64::from(self.headers(overhead))))
    }

    /// What it would send at most by itself, payload: at its pace, and no more than its window in the least round trip.
    pub fn able(&self) -> Rate {
        let pace = self.pacing as f64;
        if self.least_rtt == Time::NEVER || self.least_rtt == Time::ZERO {
            return Rate::from_bytes_per_sec(pace);
        }
        let window = f64::from(self.cwnd) * f64::from(self.mss) / self.least_rtt.as_secs_f64();
        Rate::from_bytes_per_sec(pace.min(window))
    }

    /// What the kernel sends at a time at this pace (tcp_tso_autosize()), bytes on the wire: two segments, or a millisecond; and the nearer the other
    /// end, the more, up to 64 KiB.
    pub fn burst(&self, overhead: u32) -> u32 {
        let near = NEAR_BURST.checked_shr((self.least_rtt.as_nanos() / NEAR_RTT.0).min(64) as u32);
        let payload = ((self.pacing >> 10) + near.unwrap_or(0)).min(NEAR_BURST) as u32;
        let segments = (payload / self.mss.max(1)).max(LEAST_BURST);
        segments * (self.mss + self.headers(overhead))
    }

    /// The reverse of [`payload`](Seen::payload).
    pub fn wire(&self, payload: Rate, overhead: u32) -> Rate {
        let mss = f64::from(self.mss.max(1));
        Rate::from_bytes_per_sec(payload.bytes_per_sec() * (mss + f64::from(self.headers(overhead))) / mss)
    }
}

/// Segments that the kernel sends at a time at least (`tcp_min_tso_segs`), and bytes at most.
const LEAST_BURST: u32 = 2;
const NEAR_BURST: u64 = 1 << 16;
/// The most halves with so much of a round trip (`tcp_tso_rtt_log`).
const NEAR_RTT: Time = Time(512_000);

/// Who a connection is, for [`Rules`].
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Whose it is.
    pub uid: u32,
    /// The path of its control group without the mount point, such as `/system.slice/nginx.service`; `None` where it isn't known.
    pub cgroup: Option<&'a str>,
}

/// Says whose a connection is.
pub trait Rules: std::fmt::Debug + Send + Sync {
    /// Its class, counted through tenant by tenant; `None` for one that is nobody's and left alone.
    fn class_of(&self, who: &Identity<'_>) -> Option<u32>;

    /// The values that rules compare with. Two identities on the same side of all of them are of one class.
    fn distinctions(&self) -> Distinctions {
        Distinctions::default()
    }

    /// What the rules say of a control group's path. Two groups of which they say the same are alike.
    fn profile(&self, _group: &str) -> Vec<Option<u32>> {
        Vec::new()
    }

    /// Whether any of them asks for a control group.
    fn by_group(&self) -> bool {
        false
    }
}

/// The values that [`Rules`] compare with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distinctions {
    /// Networks of our end: an address, and how many of its bits count.
    pub local: Vec<(IpAddr, u32)>,
    /// Those of the other end.
    pub remote: Vec<(IpAddr, u32)>,
    /// Ports of our end, from the first to the last.
    pub local_ports: Vec<(u16, u16)>,
    /// Those of the other end.
    pub remote_ports: Vec<(u16, u16)>,
    /// Users.
    pub users: Vec<u32>,
}

/// What is to hold: one version of the policies.
#[derive(Clone, Debug)]
pub struct Regime {
    /// What people call this version.
    pub version: String,
    /// How often to look, at the most.
    pub tick: Time,
    /// Bytes that each packet has beside IP's, on the link.
    pub overhead: u32,
    /// What the link keeps to.
    pub link: Contract,
    /// Those who share it.
    pub tenants: Vec<Party>,
    /// Who is whose.
    pub rules: Arc<dyn Rules>,
}

/// A tenant with its name and those of its classes.
#[derive(Clone, Debug)]
pub struct Party {
    /// Its name.
    pub name: String,
    /// What it keeps to, and its classes' weights.
    pub tenant: Tenant,
    /// Its classes' names.
    pub classes: Vec<String>,
}
