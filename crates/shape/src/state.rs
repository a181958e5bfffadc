//! The state of an agent, its tenants and connections.

use std::net::SocketAddr;

use tollway_law::shares::LimitedBy;
use tollway_law::{Rate, Time};

/// The state of the agent.
#[derive(Clone, Debug)]
pub struct Status {
    /// Version of the policies.
    pub version: String,
    /// Name of the back-end.
    pub kernel: String,
    /// A message on what failed at the last tick, with the remedy.
    pub warning: Option<String>,
    /// Shortest interval between ticks. Costly ticks are further apart.
    pub tick: Time,
    /// The link's rate, if it has one.
    pub rate: Option<Rate>,
    /// Tokens in the link's bucket, as a fraction of its depth; below 0 is debt.
    pub level: f64,
    /// The tenants that share the link.
    pub tenants: Vec<TenantStatus>,
    /// Their connections, ordered by tenant and remote address.
    pub connections: Vec<ConnectionStatus>,
    /// Number of connections that match no tenant.
    pub others: usize,
    /// The back-end limits the packets of tenants that do not cooperate.
    pub contains: bool,
    /// Rate of packets of a kind that is new to the policies, over the last second; zero where the
    /// back-end does not count packets.
    pub unknown: Rate,
    /// Rate of packets of no tenant, likewise.
    pub elsewhere: Rate,
}

/// Packets of a tenant, as the back-end counts them on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Packets {
    /// Rate outside the listed connections: of other sockets, short connections and
    /// acknowledgements.
    pub elsewhere: Rate,
    /// Rate of dropped packets over the last second.
    pub drops: Rate,
    /// Bytes dropped so far.
    pub dropped: u64,
    /// Drops hold the tenant to its rate, not paces.
    pub held: bool,
}

/// The state of a tenant.
#[derive(Clone, Debug)]
pub struct TenantStatus {
    /// The name in the policies.
    pub name: String,
    /// Number of open connections.
    pub connections: usize,
    /// Rate at which its connections send, on the wire.
    pub uses: Rate,
    /// Its share of the link's rate.
    pub share: Rate,
    /// Its own rate, if the policies state one.
    pub rate: Option<Rate>,
    /// Tokens in its bucket, as a fraction of its depth; below 0 is debt. 1 without a rate.
    pub level: f64,
    /// Its packets, where the back-end counts them.
    pub packets: Option<Packets>,
}

/// The state of a connection. Rates are on the wire.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    /// The kernel's number for the socket.
    pub cookie: u64,
    /// Name of its tenant.
    pub tenant: String,
    /// Name of its class in the tenant.
    pub class: String,
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// User that owns the socket.
    pub uid: u32,
    /// Path of its control group, where known.
    pub cgroup: Option<String>,
    /// Rate at which it sends.
    pub uses: Rate,
    /// The part of the rate that is reserved for it.
    pub share: Rate,
    /// Upper bound of its rate.
    pub limit: Rate,
    /// Smoothed round-trip time.
    pub rtt: Time,
    /// The cause that limits its rate.
    pub limited_by: LimitedBy,
    /// It uses all of the rate it gets.
    pub hungry: bool,
    /// Payload sent so far, in bytes.
    pub sent: u64,
    /// Segments retransmitted so far.
    pub resent: u32,
    /// The agent has set its pace.
    pub paced: bool,
    /// The agent lacks the rights to set its pace.
    pub denied: bool,
}
