//! Tenants, their purses, and the clients that spend from them.

use std::collections::VecDeque;

use rand::RngExt;
use tollway_law::Time;
use tollway_law::overlay::{Attempt, Benefit, Pace, Purse};

use super::frame::HEADER;
use super::timer::Timer;
use super::{Body, ClientId, Daemon, Event, Purchase, SetId, TenantConfig, TenantId};

/// The owner of a purse at this daemon.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) config: TenantConfig,
    pub(super) purse: Purse,
    /// Clients with a purchase that waits, the longest first.
    pub(super) waiting: VecDeque<ClientId>,
    /// The rest of a drawn lot, in bytes, and its destination set.
    lot: Option<(SetId, f64)>,
    pub(super) bought: u64,
}

/// A sender.
#[derive(Debug)]
pub(super) struct Client {
    tenant: TenantId,
    wish: Option<Wish>,
    pace: Pace,
}

#[derive(Clone, Debug)]
struct Wish {
    set: SetId,
    hops: Vec<u64>,
    bytes: usize,
}

impl<B: Body> Daemon<B> {
    /// Adds a tenant, with an empty purse. Its first salary comes at a random instant of the first
    /// period.
    pub fn add_tenant(&mut self, now: Time, config: TenantConfig) -> TenantId {
        let id = TenantId(self.next_tenant);
        self.next_tenant += 1;
        let unit = self.random.random();
        let purse = Purse::new(&self.config.purse, config.weight, self.update, now, unit);
        self.tenants.insert(id, Tenant { config, purse, waiting: VecDeque::new(), lot: None, bought: 0 });
        id
    }

    /// Changes how a tenant is paid. An unknown tenant is ignored.
    pub fn set_tenant(&mut self, tenant: TenantId, config: TenantConfig) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.config = config;
            tenant.purse.set_weight(config.weight);
        }
    }

    /// Removes a tenant with all its clients.
    pub fn remove_tenant(&mut self, tenant: TenantId) {
        self.tenants.remove(&tenant);
        self.agenda.clear(Timer::Salary(tenant));
        self.agenda.clear(Timer::Redraw(tenant));
        self.clients.retain(|_, client| client.tenant != tenant);
    }

    /// Adds a sender that spends from a tenant's purse. A client of an unknown tenant waits for
    /// ever.
    pub fn add_client(&mut self, now: Time, tenant: TenantId) -> ClientId {
        let id = ClientId(self.next_client);
        self.next_client += 1;
        self.clients.insert(id, Client { tenant, wish: None, pace: Pace::new(now) });
        id
    }

    /// Removes a sender and its waiting purchase.
    pub fn remove_client(&mut self, client: ClientId) {
        if let Some(gone) = self.clients.remove(&client)
            && let Some(tenant) = self.tenants.get_mut(&gone.tenant)
        {
            tenant.waiting.retain(|&waiting| waiting != client);
        }
    }

    /// Buys the right to send a message of `bytes` to a set (§ IV-B.2); the daemon's own header is
    /// paid too. `hops` are the keys of receivers' connections behind the set's daemons and this
    /// one ([`last_hop`](Daemon::last_hop)). A message that passes no link and no congested
    /// connection is free.
    ///
    /// A client has one purchase at a time: while one waits, another replaces it.
    pub fn buy(&mut self, now: Time, client: ClientId, set: SetId, hops: &[u64], bytes: usize) -> Purchase {
        let wish = Wish { set, hops: Vec::new(), bytes };
        let Some(entry) = self.clients.get(&client) else { return Purchase::Waiting };
        // Draws are the tenant's: more clients have no more luck.
        let may = entry.wish.is_none() && !self.agenda.has(Timer::Redraw(entry.tenant));
        if may && self.attempt(now, client, &wish, hops) == Some(Attempt::Bought) {
            return Purchase::Bought;
        }
        let Some(entry) = self.clients.get_mut(&client) else { return Purchase::Waiting };
        let waits = entry.wish.replace(Wish { hops: hops.to_vec(), ..wish }).is_some();
        if let Some(tenant) = self.tenants.get_mut(&entry.tenant).filter(|_| !waits) {
            tenant.waiting.push_back(client);
            self.agenda.by(Timer::Salary(entry.tenant), tenant.purse.due());
        }
        Purchase::Waiting
    }

    /// Tries a purchase, if as much more may be kept. A failed draw sets the tenant's timer.
    fn attempt(&mut self, now: Time, id: ClientId, wish: &Wish, hops: &[u64]) -> Option<Attempt> {
        let kept = self.outbound.bytes();
        let quote = self.quote(wish.set, hops);
        let width = self.width(wish.set);
        if width > 0 && kept > 0 && kept + wish.bytes as u64 > self.config.retain.get() {
            return None;
        }
        let client = self.clients.get_mut(&id)?;
        let tenant = self.tenants.get_mut(&client.tenant)?;
        let Some(quote) = quote else {
            tenant.bought += wish.bytes as u64;
            return Some(Attempt::Bought);
        };
        let random = &mut self.random;
        tenant.purse.pay(now, || random.random());
        let bytes = (wish.bytes + HEADER + width) as f64;
        let narrowest = quote.lot / self.lot_interval;
        let benefit = match tenant.config.benefit {
            Benefit::Concave => tenant.config.benefit.of(width, client.pace.at(now) / narrowest),
            benefit => benefit.of(width, 0.0),
        };
        let price = quote.price / benefit;
        let left = tenant.lot.filter(|lot| lot.0 == wish.set).map_or(0.0, |lot| lot.1);
        let drawn = left >= bytes;
        let attempt = tenant.purse.buy(price, bytes / quote.lot, drawn, || random.random());
        match attempt {
            Attempt::Bought => {
                let left = if drawn { left - bytes } else { (quote.lot - bytes).max(0.0) };
                tenant.lot = Some((wish.set, left));
                client.pace.add(now, bytes);
                tenant.bought += wish.bytes as u64;
            }
            Attempt::Blocked => {}
            Attempt::Unlucky => {
                let at = now.saturating_add(self.config.purse.redraw(price, random.random()));
                self.agenda.set(Timer::Redraw(client.tenant), at);
            }
        }
        Some(attempt)
    }

    /// A tenant's waiting clients try again, the longest waiting first, until a draw fails.
    pub(super) fn again(&mut self, now: Time, tenant: TenantId) {
        self.agenda.clear(Timer::Redraw(tenant));
        let waiting = self.tenants.get_mut(&tenant).map(|tenant| std::mem::take(&mut tenant.waiting));
        let mut left = waiting.unwrap_or_default();
        let mut still = VecDeque::new();
        while let Some(id) = left.pop_front() {
            let Some(wish) = self.clients.get_mut(&id).and_then(|client| client.wish.take()) else {
                continue;
            };
            let attempt = self.attempt(now, id, &wish, &wish.hops);
            if attempt == Some(Attempt::Bought) {
                self.events.push_back(Event::Bought(id));
                continue;
            }
            if let Some(client) = self.clients.get_mut(&id) {
                client.wish = Some(wish);
            }
            still.push_back(id);
            if attempt == Some(Attempt::Unlucky) {
                break;
            }
        }
        // The next draw is for another client.
        left.append(&mut still);
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.waiting = left;
        }
    }

    /// A tenant's salary is due: its waiting clients try in their order.
    pub(super) fn salary(&mut self, now: Time, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let random = &mut self.random;
        tenant.purse.pay(now, || random.random());
        self.again(now, id);
        if let Some(tenant) = self.tenants.get(&id).filter(|tenant| !tenant.waiting.is_empty()) {
            self.agenda.set(Timer::Salary(id), tenant.purse.due());
        }
    }

    /// Prices or destinations have changed: all waiting clients try.
    pub(super) fn retry_all(&mut self, now: Time) {
        let waiting = self.tenants.iter().filter(|(_, tenant)| !tenant.waiting.is_empty());
        for tenant in waiting.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.again(now, tenant);
        }
    }
}
