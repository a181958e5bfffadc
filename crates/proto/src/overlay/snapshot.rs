//! The state of a daemon, and measurements of its links.

use tollway_law::Time;

use super::clients::Tenant;
use super::measure::{Interval, Measured};
use super::port::Port;
use super::receive::Inbound;
use super::{Body, Daemon, PortId, PortStatus, Snapshot, TenantId, TenantStatus};

impl<B: Body> Daemon<B> {
    /// The daemon's state.
    pub fn snapshot(&self) -> Snapshot {
        let port = |(&id, port): (&PortId, &Port<B>)| PortStatus {
            port: id,
            peer: port.config.peer,
            up: port.peer.is_some(),
            queued: port.queued,
            messages: port.messages(),
            price: port.price,
            lot: port.cost.lot(),
            rate: port.rate(),
            data: port.sent_data,
            control: port.sent_control,
        };
        let tenant = |(&id, tenant): (&TenantId, &Tenant)| TenantStatus {
            tenant: id,
            balance: tenant.purse.balance(),
            period: tenant.purse.period(),
            spent: tenant.purse.spent(),
            waiting: tenant.waiting.len(),
            bought: tenant.bought,
        };
        Snapshot {
            ports: self.ports.iter().map(port).collect(),
            tenants: self.tenants.iter().map(tenant).collect(),
            reachable: self.up.len(),
            retained: self.outbound.bytes(),
            held: self.inbounds.values().map(Inbound::bytes).sum(),
            refused: self.counters.refused,
            strayed: self.counters.strayed,
            resent: self.counters.resent,
            expired: self.counters.expired,
            announcements: self.counters.announcements,
            announced: self.counters.announced,
        }
    }

    /// Begins a measurement of all links' queues, prices and control.
    pub fn measure(&mut self, now: Time) {
        self.ports.values_mut().for_each(|port| port.measure.restart(now, port.control_sent()));
    }

    /// Ends an interval of a port's measurement; `None` if it is closed.
    pub fn end_interval(&mut self, now: Time, port: PortId) -> Option<Interval> {
        self.ports.get_mut(&port).map(|port| port.measure.end_interval(now))
    }

    /// The measurement of a port; `None` if it is closed.
    pub fn measured(&self, now: Time, port: PortId) -> Option<Measured> {
        self.ports.get(&port).map(|port| port.measure.read(now, port.control_sent()))
    }
}
