//! A snapshot of the broker's state.

use super::Broker;
use super::sites::LAG;
use crate::status::{SlowStatus, Status, TenantStatus};

impl Broker {
    /// The status of clients, tenants and other sites. The server adds the links, by their ports.
    pub fn status(&self) -> Status {
        let snapshot = self.sites.as_ref().map(|sites| sites.daemon.snapshot()).unwrap_or_default();
        let lost = self.tenants.iter().map(|tenant| tenant.losses).sum();
        let tenants = self.tenants.iter().enumerate().filter(|(_, tenant)| !tenant.gone);
        let tenants = tenants.map(|(index, tenant)| {
            let purse = self.sites.as_ref().map(|sites| sites.purse(index));
            let purse = snapshot.tenants.iter().find(|one| Some(one.tenant) == purse);
            TenantStatus {
                tenant: tenant.rules.name.clone(),
                connections: tenant.connections,
                subscriptions: tenant.subscriptions,
                published: tenant.published,
                delivered: tenant.delivered,
                dropped: tenant.dropped,
                lost: tenant.losses,
                waiting: purse.map_or(0, |purse| purse.waiting),
                balance: purse.map_or(0.0, |purse| purse.balance),
                period_ms: purse.map_or(0.0, |purse| purse.period.as_millis_f64()),
                bought: purse.map_or(0, |purse| purse.bought),
            }
        });
        let mut slow: Vec<SlowStatus> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.out.len() > LAG)
            .map(|(key, session)| SlowStatus {
                client: self.describe(key),
                waiting: session.out.len() as u64,
                holds: session.waiters.len(),
            })
            .collect();
        slow.sort_by_key(|one| std::cmp::Reverse(one.waiting));
        slow.truncate(SHOWN);
        Status {
            site: self.rules.site.clone(),
            clients: self.sessions.len(),
            published: self.totals.published,
            delivered: self.totals.delivered,
            dropped: self.totals.dropped,
            lost,
            stray: self.sites.as_ref().map_or(0, |sites| sites.stray),
            cut: self.totals.cut,
            unordered: self.unordered,
            spooled: self.spool.bytes,
            received: self.sites.as_ref().map_or(0, |sites| sites.received),
            reachable: snapshot.reachable,
            retained: snapshot.retained,
            tenants: tenants.collect(),
            slow,
            ..Status::default()
        }
    }

    /// The state of links, by port.
    pub fn ports(&self) -> Vec<tollway_proto::overlay::PortStatus> {
        self.sites.as_ref().map(|sites| sites.daemon.snapshot().ports).unwrap_or_default()
    }
}

/// Limit of slow clients in a status.
const SHOWN: usize = 20;
