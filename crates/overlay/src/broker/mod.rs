//! The sessions of a site's clients: a sans-I/O machine from bytes to bytes.

mod batch;
mod client;
mod deliver;
mod envelope;
mod keep;
mod kind;
mod order;
mod out;
mod redraw;
mod route;
mod session;
mod sites;
mod spool;
mod spooled;
mod stand;
#[cfg(test)]
mod tests;
mod urls;

use std::collections::HashMap;
use std::io::IoSlice;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use slab::Slab;
use tollway_law::Time;
use tollway_proto::overlay::DaemonId;

use crate::nats::write::error_line;
use crate::rules::{SiteRules, TenantRules};
use crate::status::Losses;
pub use envelope::MessageBytes;
use keep::Kept;
use out::ChunkPool;
use route::Routes;
use session::{Block, ClientSession, Subscription};
use sites::Sites;
use spool::Spool;
pub use spool::{SpoolAnswer, SpoolCommand};

/// The clients of a site.
#[derive(Debug)]
pub struct Broker {
    rules: SiteRules,
    tenants: Vec<Tenant>,
    by_name: HashMap<String, usize>,
    sessions: Slab<ClientSession>,
    subs: Slab<Subscription>,
    pool: ChunkPool,
    /// Sessions with output to send.
    dirty: Vec<usize>,
    /// Sessions that waited and can continue.
    runnable: Vec<usize>,
    /// Sessions to close.
    doomed: Vec<usize>,
    /// Sessions with a large output backlog.
    lagging: Vec<usize>,
    sites: Option<Sites>,
    /// The address for clients.
    address: (String, u16),
    /// Addresses of this site and of others.
    urls: Vec<(Option<DaemonId>, String)>,
    /// Those of reachable sites, as told to clients.
    listed: Vec<String>,
    /// True once this site ends.
    retired: bool,
    /// Messages to ordered subjects that came back without a place.
    unordered: u64,
    spool: Spool,
    kept: Slab<Kept>,
    random: Pcg64Mcg,
    numbers: u64,
    totals: Totals,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages that clients have published.
    pub published: u64,
    /// Messages handed to clients' connections.
    pub delivered: u64,
    /// Messages dropped at the request of slow subscriptions.
    pub dropped: u64,
    /// Clients disconnected because they made no progress.
    pub cut: u64,
}

#[derive(Debug)]
struct Tenant {
    rules: TenantRules,
    routes: Routes,
    connections: usize,
    /// Subscriptions of clients here, and ordered subjects to which they publish.
    subscriptions: usize,
    /// Number of congested sessions.
    congested: usize,
    published: u64,
    delivered: u64,
    dropped: u64,
    losses: Losses,
    /// True once the tenant is removed: its clients are refused.
    gone: bool,
}

/// The result of [`Broker::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes used. The rest must be passed again, with new input behind it.
    pub used: usize,
    /// The next step.
    pub then: Then,
}

/// The next step for a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Read on; the next operation has at least this many bytes.
    Read(usize),
    /// Pass the rest again after other clients' input.
    Again,
    /// Read nothing more until the client is [runnable](Broker::take_runnable).
    Wait,
    /// Close it after its output has been sent.
    Close,
}

impl Broker {
    /// Makes a broker under `rules`; random choices are drawn from `seed`.
    pub fn new(rules: SiteRules, seed: u64) -> Broker {
        let mut broker = Broker {
            rules: SiteRules { tenants: Vec::new(), ..rules.clone() },
            tenants: Vec::new(),
            by_name: HashMap::new(),
            sessions: Slab::new(),
            subs: Slab::new(),
            pool: ChunkPool::default(),
            dirty: Vec::new(),
            runnable: Vec::new(),
            doomed: Vec::new(),
            lagging: Vec::new(),
            sites: None,
            address: (String::new(), 0),
            urls: Vec::new(),
            listed: Vec::new(),
            retired: false,
            unordered: 0,
            spool: Spool::default(),
            kept: Slab::new(),
            random: Pcg64Mcg::seed_from_u64(seed),
            numbers: 0,
            totals: Totals::default(),
        };
        broker.set_rules(Time::ZERO, rules);
        broker
    }

    /// Applies new rules. It closes clients of a tenant that is removed or has a changed proof, and
    /// the latest of those above a lowered limit.
    pub fn set_rules(&mut self, now: Time, rules: SiteRules) {
        for tenant in &mut self.tenants {
            tenant.gone = true;
        }
        let mut changed = Vec::new();
        for new in &rules.tenants {
            match self.by_name.get(&new.name) {
                Some(&index) => {
                    let tenant = &mut self.tenants[index];
                    tenant.gone = false;
                    if tenant.rules.proof != new.proof {
                        changed.push(index);
                    }
                    tenant.rules = new.clone();
                    self.pay(index);
                }
                None => {
                    self.by_name.insert(new.name.clone(), self.tenants.len());
                    self.tenants.push(Tenant::new(new.clone()));
                    self.add_to_sites(now, self.tenants.len() - 1);
                }
            }
        }
        self.rules = rules;
        let admitted = self.sessions.iter().filter(|(_, session)| session.closing.is_none());
        let mut admitted: Vec<(u64, usize, usize)> =
            admitted.filter_map(|(key, session)| Some((session.number, key, session.tenant?))).collect();
        admitted.sort_unstable();
        let mut counts = vec![0; self.tenants.len()];
        for (_, key, index) in admitted {
            counts[index] += 1;
            let tenant = &self.tenants[index];
            if tenant.gone || changed.contains(&index) {
                self.fail(key, "Account Authentication Expired");
            } else if counts[index] > tenant.rules.connections {
                self.fail(key, CONNECTIONS);
            }
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> &SiteRules {
        &self.rules
    }

    /// Counters since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Adds a client that has connected to the site's `host` and `port`.
    ///
    /// Returns its key, which is valid until the client is [removed](Broker::remove).
    pub fn open(&mut self, now: Time, address: String, host: &str, port: u16) -> usize {
        self.numbers += 1;
        let number = self.numbers;
        let key = self.sessions.insert(ClientSession::new(now, number, address));
        self.address = (host.to_owned(), port);
        let info = self.info(key);
        self.tell(key, &info);
        key
    }

    /// Notes that the client's certificate names `tenant`.
    pub fn certify(&mut self, key: usize, tenant: String) {
        self.sessions[key].certified = Some(tenant);
    }

    /// Removes a client whose connection is closed.
    pub fn remove(&mut self, key: usize) {
        let sids: Vec<usize> = self.sessions[key].subs.values().copied().collect();
        for sub in sids {
            self.drop_subscription(sub);
        }
        self.set_congested(key, false);
        self.forget_spool(key);
        self.detach_all(key);
        let session = self.sessions.remove(key);
        if let Some(Block::Receiver(slow)) = session.blocked
            && let Some(slow) = self.sessions.get_mut(slow)
        {
            slow.waiters.retain(|&waiter| waiter != key);
        }
        if let Some(tenant) = session.tenant {
            self.tenants[tenant].connections -= 1;
        }
        self.leave_orders(&session);
        self.forget_buyer(session.buyer);
        self.lagging.retain(|&other| other != key);
        self.runnable.retain(|&other| other != key);
        self.dirty.retain(|&other| other != key);
        self.doomed.retain(|&other| other != key);
    }

    /// Fills `slices` with a client's next output. Returns the number of slices.
    pub fn outgoing<'a>(&'a self, key: usize, slices: &mut [IoSlice<'a>]) -> usize {
        self.sessions[key].out.slices(slices)
    }

    /// True if bytes wait for a client's socket.
    pub fn has_outgoing(&self, key: usize) -> bool {
        !self.sessions[key].out.is_empty()
    }

    /// Notes that the client's connection accepted `len` bytes.
    pub fn sent(&mut self, now: Time, key: usize, len: usize) {
        let session = &mut self.sessions[key];
        session.out.advance(&mut self.pool, len);
        session.taken_at = now;
        session.taken += len as u64;
        let enough = session.out.len() <= self.rules.buffer / 2;
        if enough && session.blocked == Some(Block::Output) {
            session.blocked = None;
            self.runnable.push(key);
        }
        if session.congested && enough {
            self.set_congested(key, false);
        }
        if enough && !self.sessions[key].spooled.is_empty() {
            self.unspool(key);
        }
        if enough && !self.sessions[key].kept.is_empty() {
            self.pump_all(key);
        }
    }

    /// Takes a client with new output.
    pub fn take_dirty(&mut self) -> Option<usize> {
        let key = self.dirty.pop()?;
        self.sessions[key].dirty = false;
        Some(key)
    }

    /// Takes a client whose input may be read again.
    pub fn take_runnable(&mut self) -> Option<usize> {
        self.runnable.pop()
    }

    /// Takes a client that must be closed after its output has been sent.
    pub fn take_doomed(&mut self) -> Option<usize> {
        self.doomed.pop()
    }

    /// The reason for closing a client.
    pub fn why(&self, key: usize) -> Option<&str> {
        self.sessions[key].closing.as_deref()
    }

    /// A client's number, tenant, address and name.
    pub fn describe(&self, key: usize) -> String {
        let session = &self.sessions[key];
        let tenant = session.tenant.map_or("no tenant", |tenant| self.tenants[tenant].rules.name.as_str());
        let name = if session.name.is_empty() { String::new() } else { format!(" ({})", session.name) };
        format!("{} of {tenant} at {}{name}", session.number, session.address)
    }

    /// Pings silent clients and closes stalled ones. The caller must call it every [`TICK`].
    pub fn tick(&mut self, now: Time) {
        self.recall(now);
        self.retry_spool(now);
        let keys: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            let session = &mut self.sessions[key];
            if session.closing.is_some() {
                continue;
            }
            if session.out.is_empty() {
                session.taken_at = now;
                self.unspool(key);
            } else if now.saturating_sub(session.taken_at) >= self.rules.patience {
                self.cut(key);
                continue;
            }
            let session = &mut self.sessions[key];
            if session.tenant.is_none() && now.saturating_sub(session.opened_at) >= AUTH {
                self.fail(key, "Authentication Timeout");
                continue;
            }
            // A client that is not read can't answer.
            if session.blocked.is_some() {
                session.heard_at = now;
            }
            let quiet = now.saturating_sub(session.heard_at);
            if quiet >= PING * u64::from(session.pings + 1) {
                session.pings += 1;
                if session.pings > PINGS {
                    self.fail(key, "Stale Connection");
                } else {
                    session.pinged.push_back(None);
                    self.tell(key, "PING\r\n");
                }
            }
        }
    }

    /// Closes a client that is too slow.
    fn cut(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        let lost = session.out.truncate();
        if let Some(tenant) = session.tenant {
            self.tenants[tenant].losses.cut += lost;
        }
        self.totals.cut += 1;
        self.fail(key, "Slow Consumer");
    }

    /// Sends an error to a client and closes it.
    fn fail(&mut self, key: usize, why: &str) {
        let session = &mut self.sessions[key];
        if session.closing.is_some() {
            return;
        }
        session.closing = Some(why.to_owned());
        self.doomed.push(key);
        self.tell(key, &error_line(why));
        // Senders do not wait for a closing session.
        let subs: Vec<usize> = self.sessions[key].subs.values().copied().collect();
        for sub in subs {
            self.drop_subscription(sub);
        }
        self.set_congested(key, false);
        self.forget_spool(key);
        self.detach_all(key);
    }

    /// Appends a line to a client's output.
    fn tell(&mut self, key: usize, line: &str) {
        let session = &mut self.sessions[key];
        session.replied = true;
        session.out.push(&mut self.pool, line.len(), |chunk| chunk.extend_from_slice(line.as_bytes()));
        mark(&mut self.dirty, key, session);
    }

    fn set_congested(&mut self, key: usize, congested: bool) {
        let session = &mut self.sessions[key];
        if session.congested == congested {
            return;
        }
        session.congested = congested;
        if let Some(tenant) = session.tenant {
            let count = &mut self.tenants[tenant].congested;
            *count = if congested { *count + 1 } else { *count - 1 };
        }
        if !congested {
            // The first waiter resumes first. Runnable sessions are taken from the end of the list.
            let waiters = std::mem::take(&mut self.sessions[key].waiters);
            for waiter in waiters.into_iter().rev() {
                self.sessions[waiter].blocked = None;
                self.runnable.push(waiter);
            }
        }
    }
}

impl Tenant {
    /// True if the tenant has reached its limit of subscriptions.
    fn is_full(&self) -> bool {
        self.subscriptions >= self.rules.subscriptions
    }

    fn new(rules: TenantRules) -> Tenant {
        Tenant {
            rules,
            routes: Routes::default(),
            connections: 0,
            subscriptions: 0,
            congested: 0,
            published: 0,
            delivered: 0,
            dropped: 0,
            losses: Losses::default(),
            gone: false,
        }
    }
}

/// Lists a session that has output to send.
fn mark(dirty: &mut Vec<usize>, key: usize, session: &mut ClientSession) {
    if !session.dirty {
        session.dirty = true;
        dirty.push(key);
    }
}

/// The interval between calls of [`Broker::tick`].
pub const TICK: Time = Time::from_millis(100);
/// The error of a client above its tenant's limit.
const CONNECTIONS: &str = "maximum account active connections exceeded";
/// The time limit for `CONNECT`.
const AUTH: Time = Time::from_secs(5);
/// Silence after which a client gets a `PING`, and the limit of unanswered ones.
const PING: Time = Time::from_secs(60);
const PINGS: u32 = 2;
/// The NATS version whose client protocol the broker implements.
const NATS_VERSION: &str = "2.9.10";
