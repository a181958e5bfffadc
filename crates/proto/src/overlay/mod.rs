//! The cost-benefit overlay: a daemon that multicasts messages over priced links, sans I/O.
//!
//! The text followed is "Global Flow Control for Wide Area Overlay Networks" (OPENARCH 2002), "the
//! paper"; the arithmetic is in [`tollway_law::overlay`]. A [`Daemon`] stands on **ports**, one for
//! each reliable, ordered connection to another daemon:
//!
//! ```text
//! handle_message(now, port, frame)      poll_message(now, port) -> Option<Frame>
//! handle_timeout(now)                   poll_timeout() -> Time
//! buy(now, client, set, …), send(…)     poll_event(), poll_delivery()
//! ```
//!
//! Its queue is the priced queue: a carrier asks for the next frame only while its connection has
//! little unsent.
//!
//! # Delivery
//!
//! What a daemon has accepted reaches every destination that stays reachable, once, in the order in
//! which that daemon accepted it. Each message names for each destination the one before it, so
//! that a receiver knows what it lacks; the origin keeps messages until all destinations have
//! acknowledged them. Survivors give each other what they have of a dead daemon's messages. Where
//! no survivor has a message, later ones of the same client are dropped: of each client survivors
//! deliver the same prefix.
//!
//! A destination that is unreachable for [`Config::patience`] has its messages dropped.
//!
//! # Order
//!
//! Members of a group that [`Daemon::join_ordered`] joins deliver messages in one order, and know
//! by [`Event::View`] which members deliver with them.
//!
//! # Trust
//!
//! Daemons are one trust domain. A frame that contradicts the protocol ends the connection that
//! brought it; a link state with numbers that are not finite or out of range is ignored and
//! counted.

mod agenda;
pub mod bits;
mod clients;
mod daemon;
pub mod frame;
mod groups;
mod links;
mod measure;
mod order;
mod port;
mod receive;
mod recover;
mod retain;
mod sets;
mod site;
mod snapshot;
mod state;
mod timer;
mod tree;
pub mod wire;

use std::fmt;
use std::sync::Arc;

use tollway_law::overlay::{AnnounceConfig, Benefit, CostConfig, PurseConfig};
use tollway_law::{Bytes, Rate, Time};

pub use bits::Bits;
pub use daemon::{Daemon, MAX_GROUP};
pub use frame::Frame;
pub use groups::MAX_MEMBERSHIPS;
pub use measure::{Interval, Measured};
pub use site::{ArrivalProcess, SenderConfig, Sent, Site, SiteConfig};
pub use tree::Topology;

/// A daemon's name in its overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonId(pub u32);

/// One start of a daemon; greater than that of the start before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A daemon from one start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// Its name.
    pub daemon: DaemonId,
    /// Its start.
    pub epoch: Epoch,
}

impl fmt::Display for DaemonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    )*};
}
handles! {
    /// A connection to another daemon, as [`Daemon::open`] numbers it.
    PortId;
    /// The owner of a purse, as [`Daemon::add_tenant`] numbers it.
    TenantId;
    /// A sender, as [`Daemon::add_client`] numbers it.
    ClientId;
    /// A set of destinations, as [`Daemon::set`] numbers it.
    SetId;
}

/// The content of a message: cheap to clone, and never looked at.
pub trait Body: Clone {
    /// Bytes on a link.
    fn size(&self) -> usize;

    /// A content of no bytes.
    fn empty() -> Self;
}

impl Body for Arc<[u8]> {
    fn size(&self) -> usize {
        self.len()
    }

    fn empty() -> Self {
        Arc::from([])
    }
}

impl Body for bytes::Bytes {
    fn size(&self) -> usize {
        self.len()
    }

    fn empty() -> Self {
        bytes::Bytes::new()
    }
}

impl Body for Vec<u8> {
    fn size(&self) -> usize {
        self.len()
    }

    fn empty() -> Self {
        Vec::new()
    }
}

/// How a daemon is set up. All daemons of an overlay share the laws' constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Its name.
    pub id: DaemonId,
    /// This start; greater than all before.
    pub epoch: Epoch,
    /// The price of links.
    pub cost: CostConfig,
    /// Salaries.
    pub purse: PurseConfig,
    /// Announcements.
    pub announce: AnnounceConfig,
    /// The time for which an unreachable destination's messages are kept, and senders may have to
    /// wait for it. 10 s.
    pub patience: Time,
    /// Bytes kept until all destinations have acknowledged them; beyond, senders wait. 64 MB.
    pub retain: Bytes,
    /// The time that an acknowledgement may wait for more messages of its origin. 3 T_max.
    pub ack: Option<Time>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            id: DaemonId(0),
            epoch: Epoch(1),
            cost: CostConfig::default(),
            purse: PurseConfig::default(),
            announce: AnnounceConfig::default(),
            patience: Time::from_secs(10),
            retain: Bytes(64_000_000),
            ack: None,
        }
    }
}

/// A connection to another daemon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// The daemon that must answer.
    pub peer: DaemonId,
    /// Length for the choice of trees, the same at both ends; 0 counts as 1.
    pub weight: u16,
    /// The rate until it is measured.
    pub rate: Rate,
}

/// How a tenant is paid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantConfig {
    /// Its salary as a multiple of the others'. 1.
    pub weight: f64,
    /// The worth of its messages.
    pub benefit: Benefit,
}

impl Default for TenantConfig {
    fn default() -> TenantConfig {
        TenantConfig { weight: 1.0, benefit: Benefit::Messages }
    }
}

/// The answer to [`Daemon::buy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purchase {
    /// Paid: [`Daemon::send`] may follow.
    Bought,
    /// Too dear now. [`Event::Bought`] follows when it has been paid; the client is not to be read
    /// until then.
    Waiting,
}

/// A daemon's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The port has something to send; it had nothing before.
    Sendable(PortId),
    /// The client's waiting purchase is paid.
    Bought(ClientId),
    /// A daemon has joined a group, or left it.
    Membership {
        /// The daemon.
        daemon: DaemonId,
        /// The group.
        group: Arc<[u8]>,
        /// True if it is a member now.
        joined: bool,
    },
    /// A daemon has become reachable, or unreachable.
    Reachable {
        /// The daemon.
        daemon: DaemonId,
        /// True if it is reachable now.
        up: bool,
    },
    /// An ordered group has another view ([`Daemon::join_ordered`]): purchases for it need another
    /// set.
    View {
        /// The group.
        group: Arc<[u8]>,
        /// The view's number, greater than that of each view before.
        view: u64,
        /// The daemons whose members deliver its messages, ascending; this one is among them.
        members: Arc<[DaemonId]>,
    },
    /// Nothing came on the port for 4 T_max: its connection is to be closed.
    Silent(PortId),
    /// A later start of this daemon's name: another daemon has the name, or the clock behind the
    /// epochs was set back.
    Duplicate(Incarnation),
}

/// A message for this daemon's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredMessage<B> {
    /// The daemon that accepted it.
    pub origin: DaemonId,
    /// Its content.
    pub body: B,
    /// Its place in the order of its group, if that is an ordered one.
    pub place: Option<OrderPlace>,
}

/// A message that a destination will not receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered<B> {
    /// The destination.
    pub to: DaemonId,
    /// The sender; `None` for a message of another daemon, which has ended.
    pub by: Option<ClientId>,
    /// The content.
    pub body: B,
}

/// A place in the order of a group. Members deliver messages by ascending (view, number).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderPlace {
    /// The group.
    pub group: Arc<[u8]>,
    /// The number of the view.
    pub view: u64,
    /// The number in the view, from 1.
    pub number: u64,
}

/// A frame that contradicts the protocol: its connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The peer has another name than its connection was opened for.
    #[error("the daemon at the other end is number {found}, not {expected}: check both ends' names")]
    Stranger {
        /// The peer that [`LinkConfig`] names.
        expected: DaemonId,
        /// The peer's own name.
        found: DaemonId,
    },
    /// A frame came before [`Frame::Hello`].
    #[error("a frame arrived before the greeting: the other end may be another version")]
    NoHello,
    /// The peer's epoch changed on one connection.
    #[error("the daemon at the other end started again without a new connection")]
    Restarted,
    /// A daemon belongs to more groups than it may ([`MAX_MEMBERSHIPS`]).
    #[error("daemon number {0} announces more than {MAX_MEMBERSHIPS} bytes of group memberships")]
    Memberships(DaemonId),
    /// The port is closed.
    #[error("port {} is closed", .0.0)]
    Closed(PortId),
}

/// The state of a daemon, for status pages and measurements.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Links to other daemons.
    pub ports: Vec<PortStatus>,
    /// Tenants.
    pub tenants: Vec<TenantStatus>,
    /// Daemons reachable now.
    pub reachable: usize,
    /// Bytes of own messages kept until all destinations have acknowledged them.
    pub retained: u64,
    /// Bytes of others' messages kept for survivors or out of order.
    pub held: u64,
    /// Link states refused since the start: absurd numbers, or another's use of this daemon's name.
    pub refused: u64,
    /// Copies dropped since the start because no link led on; their origin sends them again.
    pub strayed: u64,
    /// Messages sent again since the start.
    pub resent: u64,
    /// Messages dropped since the start: for destinations unreachable for too long, or of a dead
    /// daemon's client behind one that no survivor has.
    pub expired: u64,
    /// Own link states announced since the start.
    pub announcements: u64,
    /// Bytes of these on a link.
    pub announced: u64,
}

/// The state of a link.
#[derive(Clone, Copy, Debug)]
pub struct PortStatus {
    /// The port.
    pub port: PortId,
    /// The daemon at the other end.
    pub peer: DaemonId,
    /// True if it has answered.
    pub up: bool,
    /// Bytes of data that wait.
    pub queued: u64,
    /// Messages that wait.
    pub messages: usize,
    /// Dollars a lot.
    pub price: f64,
    /// Bytes of a lot.
    pub lot: f64,
    /// The rate as measured.
    pub rate: Rate,
    /// Bytes of data polled since the start.
    pub data: u64,
    /// Bytes of all else polled since the start.
    pub control: u64,
}

/// The state of a tenant's purse.
#[derive(Clone, Copy, Debug)]
pub struct TenantStatus {
    /// The tenant.
    pub tenant: TenantId,
    /// Its savings, in dollars; negative while a large message is paid off.
    pub balance: f64,
    /// Its salary period.
    pub period: Time,
    /// Dollars spent since the start.
    pub spent: f64,
    /// Its clients that wait.
    pub waiting: usize,
    /// Bytes bought since the start.
    pub bought: u64,
}
