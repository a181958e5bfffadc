//! The timers of a daemon, and their spans.

use super::{DaemonId, Incarnation, PortId, TenantId};

/// Timers of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Trees are to be computed anew.
    Routes,
    /// An update interval ends.
    Tick,
    /// Signs of life.
    Hello,
    /// Salaries of a tenant with waiting clients.
    Salary(TenantId),
    /// A failed draw is repeated.
    Redraw(TenantId),
    /// Receipts that wait on a port for others are to go.
    Receipts(PortId),
    /// Messages of an origin are to be acknowledged.
    Ack(Incarnation),
    /// A destination has not acknowledged for long.
    Probe(Incarnation),
    /// A daemon is out of reach for as long as patience lasts, or for so long that all about it is
    /// forgotten.
    Expire(DaemonId),
    /// The next stage of the recovery of a dead daemon's messages.
    Recover(Incarnation),
    /// Views of ordered groups are to follow their members.
    Order,
}

/// T_max's that an acknowledgement may wait for more messages of its origin.
pub(super) const ACK: u64 = 3;

/// T_max's without an acknowledgement after which a destination is asked.
pub(super) const PROBE: u64 = ACK + 2;

/// T_min's that links get to settle after a change, and gaps to close.
pub(super) const SETTLE: u64 = 4;
