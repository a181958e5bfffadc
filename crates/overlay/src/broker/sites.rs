//! Other sites: their subscriptions, and the prices to reach them.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tollway_law::Time;
use tollway_law::overlay::Benefit;
use tollway_proto::overlay::{
    ClientId, Config, Daemon, DaemonId, Epoch, Event, PortId, Purchase, SetId, TenantConfig, TenantId,
};

use super::batch::Batch;
use super::envelope::{Content, Envelope, MessageBytes};
use super::kind::Kind;
use super::redraw::{Drawn, draw_site};
use super::route::{Interest, RemoteRoute, Route};
use super::session::Block;
use super::{Broker, Tenant};
use crate::nats::parse::Publish;
use crate::rules::{Slow, TenantRules};

/// A site's daemon, and the state that its events have given.
#[derive(Debug)]
pub(super) struct Sites {
    pub(super) daemon: Daemon<MessageBytes>,
    me: u32,
    /// Tenants' purses, by the tenant's index.
    purses: Vec<TenantId>,
    /// Accounts for messages that are drawn again, by the tenant's index.
    pub(super) own: Vec<ClientId>,
    /// Sessions that have bought from the daemon.
    pub(super) buyers: HashMap<ClientId, usize>,
    /// Unreachable sites whose queue groups' messages are not drawn again yet, and since when.
    pub(super) gone: Vec<(Time, DaemonId)>,
    /// Subscriptions of other sites.
    members: HashSet<(DaemonId, Arc<[u8]>)>,
    /// Slow receivers reported to the daemon: by group, the bytes that they had accepted.
    hops: HashMap<u64, u64>,
    pulsed: Time,
    /// The last instant passed to the daemon.
    pub(super) now: Time,
    sendable: Vec<PortId>,
    silent: Vec<PortId>,
    /// A client's messages that the daemon does not have yet.
    pub(super) batch: Batch,
    /// Messages that were no envelopes, or for unknown tenants.
    pub(super) stray: u64,
    pub(super) received: u64,
    later: Option<Epoch>,
}

/// The destinations of a message at other sites.
pub(super) struct MessageDestinations {
    plain: RemoteRoute,
    drawn: Vec<(Drawn, Rc<[u8]>)>,
    /// All of them.
    set: Option<SetId>,
    /// Number of queue groups without a site.
    missing: u64,
}

impl MessageDestinations {
    /// True if a destination is reachable.
    pub(super) fn is_reachable(&self) -> bool {
        self.plain.reachable || self.drawn.iter().any(|(drawn, _)| drawn.reachable)
    }
}

impl Broker {
    /// Starts the daemon that links this site to others.
    pub fn join_sites(&mut self, now: Time, config: Config, seed: u64) {
        let mut sites = Sites {
            me: config.id.0,
            daemon: Daemon::new(now, config, seed),
            purses: Vec::new(),
            own: Vec::new(),
            buyers: HashMap::new(),
            gone: Vec::new(),
            members: HashSet::new(),
            hops: HashMap::new(),
            pulsed: now,
            now,
            sendable: Vec::new(),
            silent: Vec::new(),
            batch: Batch::default(),
            stray: 0,
            received: 0,
            later: None,
        };
        for tenant in &self.tenants {
            sites.add_tenant(now, &tenant.rules);
        }
        self.sites = Some(sites);
    }

    /// The epoch of a later start of this site, if other sites know one. They then ignore this
    /// start.
    pub fn later_start(&self) -> Option<Epoch> {
        self.sites.as_ref()?.later
    }

    /// The daemon, for the link sockets; the caller must call [`settle`](Broker::settle)
    /// afterwards.
    pub fn daemon(&mut self) -> Option<&mut Daemon<MessageBytes>> {
        self.sites.as_mut().map(|sites| &mut sites.daemon)
    }

    /// Takes a link with data to send.
    pub fn take_sendable(&mut self) -> Option<PortId> {
        self.sites.as_mut()?.sendable.pop()
    }

    /// Takes a link whose other end is silent. The caller must close it.
    pub fn take_silent(&mut self) -> Option<PortId> {
        self.sites.as_mut()?.silent.pop()
    }

    /// The deadline of the next [`settle`](Broker::settle).
    pub fn sites_timeout(&self) -> Time {
        self.sites.as_ref().map_or(Time::NEVER, |sites| sites.daemon.poll_timeout())
    }

    /// Runs due timers and delivers messages from other sites.
    pub fn settle(&mut self, now: Time) {
        let Some(sites) = &mut self.sites else { return };
        sites.now = now;
        if sites.daemon.poll_timeout() <= now {
            sites.daemon.handle_timeout(now);
        }
        self.report_hops(now);
        while let Some(sites) = &mut self.sites {
            if let Some(event) = sites.daemon.poll_event() {
                self.happened(event);
            } else if let Some(delivery) = sites.daemon.poll_delivery() {
                match &delivery.place {
                    None => self.arrived(now, &delivery.body.0),
                    Some(place) => {
                        sites.received += 1;
                        self.arrived_in_order(&delivery.body.0, place);
                    }
                }
            } else if let Some((_, content)) = sites.daemon.poll_unordered() {
                self.came_back(&content.0);
            } else if let Some(lost) = sites.daemon.poll_undelivered() {
                self.undelivered(now, &lost);
            } else {
                break;
            }
        }
    }

    fn happened(&mut self, event: Event) {
        let Some(sites) = &mut self.sites else { return };
        match event {
            Event::Sendable(port) => sites.sendable.push(port),
            Event::Silent(port) => sites.silent.push(port),
            Event::Reachable { daemon, up } => {
                sites.gone.retain(|(_, other)| *other != daemon);
                if !up {
                    sites.gone.push((sites.now, daemon));
                }
                self.urls_changed();
            }
            Event::Duplicate(other) => sites.later = sites.later.max(Some(other.epoch)),
            Event::View { group, view, members } => self.viewed(&group, view, &members),
            Event::Bought(buyer) => {
                let Some(&key) = sites.buyers.get(&buyer) else { return };
                let session = &mut self.sessions[key];
                session.paid = true;
                if session.blocked == Some(Block::Price) {
                    session.blocked = None;
                    self.runnable.push(key);
                }
            }
            Event::Membership { daemon, group, joined } => {
                self.url_changed(daemon, &group, joined);
                let Some(sites) = &mut self.sites else { return };
                let member = (daemon, group);
                if joined {
                    sites.members.insert(member.clone())
                } else {
                    sites.members.remove(&member)
                };
                self.apply_member(&member, joined);
            }
        }
    }

    fn apply_member(&mut self, (daemon, group): &(DaemonId, Arc<[u8]>), joined: bool) {
        let Some((tenant, pattern, queue)) = parts(group) else { return };
        let tenant = std::str::from_utf8(tenant).ok().and_then(|name| self.by_name.get(name));
        let Some(&tenant) = tenant else { return };
        let routes = &mut self.tenants[tenant].routes;
        let interest = Interest::Remote { site: daemon.0, queue: queue.map(Into::into), key: hop(group) };
        if joined {
            routes.insert(pattern, interest);
        } else {
            routes.remove(pattern, &interest);
        }
    }

    /// Adds a tenant to the daemon, with the subscriptions that other sites already have for it.
    pub(super) fn add_to_sites(&mut self, now: Time, index: usize) {
        let Some(sites) = &mut self.sites else { return };
        let rules = &self.tenants[index].rules;
        sites.add_tenant(now, rules);
        let prefix = [rules.name.as_bytes(), b"\0"].concat();
        let known: Vec<_> =
            sites.members.iter().filter(|(_, group)| group.starts_with(&prefix)).cloned().collect();
        for member in known {
            self.apply_member(&member, true);
        }
    }

    /// Updates a tenant's salary.
    pub(super) fn pay(&mut self, index: usize) {
        if let Some(sites) = &mut self.sites {
            sites.daemon.set_tenant(sites.purses[index], config(&self.tenants[index].rules));
        }
    }

    /// Delivers messages from another site. A message that its origin has recalled has no content.
    fn arrived(&mut self, now: Time, bytes: &Bytes) {
        let mut content = Content::decode(bytes);
        let tenant = self.tenant_of(content.tenant);
        for envelope in content.by_ref() {
            let Some(sites) = &mut self.sites else { return };
            sites.received += 1;
            match tenant {
                Some(tenant) => self.deliver_here(now, tenant, &envelope, bytes),
                None => sites.stray += 1,
            }
        }
        if content.has_more()
            && let Some(sites) = &mut self.sites
        {
            sites.stray += 1;
        }
    }

    /// Delivers a message from another site, which `bytes` hold, to its receivers here.
    fn deliver_here(&mut self, now: Time, tenant: usize, envelope: &Envelope<'_>, bytes: &Bytes) {
        let Some(Sites { me, .. }) = self.sites else { return };
        let message = envelope.message;
        let route = self.tenants[tenant].routes.of(message.subject);
        // All receivers can share the bytes.
        let mut shared = Some(bytes.slice_ref(message.framed()));
        if envelope.queues.is_empty() {
            for &sub in &route.plain {
                self.deliver(sub, None, &message, &mut shared);
            }
        }
        for (_, name) in envelope.queues.iter().filter(|(site, _)| *site == me) {
            let queue = route.queues.iter().find(|queue| *queue.name == **name);
            if let Some(queue) = queue.filter(|queue| !queue.members.is_empty()) {
                let sub = self.draw(&queue.members);
                self.deliver(sub, None, &message, &mut shared);
            } else {
                // The last member has just left.
                self.redraw(now, tenant, name, &message, None);
            }
        }
    }

    /// The index of a tenant.
    pub(super) fn tenant_of(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(std::str::from_utf8(name).ok()?).copied()
    }

    /// The destinations of a message at other sites. A queue group without a member here gets a
    /// random site.
    pub(super) fn bound(&mut self, route: &Route) -> Option<MessageDestinations> {
        let sites = self.sites.as_mut().filter(|_| !route.hops.is_empty())?;
        let plain = sites.plain(route);
        let mut bound = MessageDestinations { plain, drawn: Vec::new(), set: plain.set, missing: 0 };
        for queue in route.queues.iter().filter(|queue| queue.members.is_empty()) {
            match draw_site(&sites.daemon, &mut self.random, queue) {
                Some(drawn) => bound.drawn.push((drawn, Rc::clone(&queue.name))),
                None => bound.missing += 1,
            }
        }
        if !bound.drawn.is_empty() {
            let kept = sites.kept(route);
            let all: Vec<DaemonId> = kept.chain(bound.drawn.iter().map(|(drawn, _)| drawn.site)).collect();
            bound.set = Some(sites.daemon.set(&all));
        }
        Some(bound)
    }

    /// Pays for a message to other sites and sends it. Returns false if the client is blocked.
    pub(super) fn send_to_sites(
        &mut self,
        now: Time,
        key: usize,
        tenant: usize,
        route: &Route,
        (bound, message): (&MessageDestinations, &Publish<'_>),
    ) -> bool {
        if let Some(set) = bound.set
            && !self.pay_for(now, key, tenant, set, route, message)
        {
            return false;
        }
        let Tenant { rules, losses, .. } = &mut self.tenants[tenant];
        losses.expired += bound.plain.expired;
        losses.no_destination += bound.missing;
        let (Some(sites), Some(buyer)) = (&mut self.sites, self.sessions[key].buyer) else { return true };
        let name = rules.name.as_bytes();
        if let Some(set) = bound.plain.set {
            sites.batch.add(now, &mut sites.daemon, (buyer, set), name, *message);
        }
        // A separate message, which can be recalled.
        if !bound.drawn.is_empty() {
            sites.batch.send(now, &mut sites.daemon);
            let to: Vec<DaemonId> = bound.drawn.iter().map(|(drawn, _)| drawn.site).collect();
            let set = sites.daemon.set(&to);
            let queues = bound.drawn.iter().map(|(drawn, name)| (drawn.site.0, &**name)).collect();
            sites.daemon.send(
                now,
                buyer,
                set,
                MessageBytes::of(name, &Envelope { queues, message: *message }),
            );
        }
        true
    }

    /// Pays for a message to a set of sites. Returns false if the client is blocked.
    pub(super) fn pay_for(
        &mut self,
        now: Time,
        key: usize,
        tenant: usize,
        set: SetId,
        route: &Route,
        message: &Publish<'_>,
    ) -> bool {
        let Some(sites) = &mut self.sites else { return true };
        let session = &mut self.sessions[key];
        let buyer = *session.buyer.get_or_insert_with(|| {
            let buyer = sites.daemon.add_client(now, sites.purses[tenant]);
            sites.buyers.insert(buyer, key);
            buyer
        });
        let len = message.framed().len() + message.subject.len() + ENVELOPE;
        if !std::mem::take(&mut session.paid)
            && sites.daemon.buy(now, buyer, set, &route.hops, len) == Purchase::Waiting
        {
            session.blocked = Some(Block::Price);
            return false;
        }
        true
    }

    /// Reports the backlogs of slow receivers to the daemon, which prices them.
    fn report_hops(&mut self, now: Time) {
        let Some(sites) = &mut self.sites else { return };
        if now < sites.pulsed.saturating_add(PULSE) {
            return;
        }
        sites.pulsed = now;
        if self.lagging.is_empty() && sites.hops.is_empty() {
            return;
        }
        let mut slow: HashMap<u64, (u64, u64)> = HashMap::new();
        let sessions = &mut self.sessions;
        self.lagging.retain(|&key| {
            let Some(session) = sessions.get_mut(key) else { return false };
            session.lagging = session.out.len() > LAG;
            let name = session.tenant.map(|tenant| self.tenants[tenant].rules.name.as_bytes());
            for sub in session.subs.values().map(|&sub| &self.subs[sub]) {
                if let (true, Slow::Price, Some(name)) = (session.lagging, sub.slow, name) {
                    let key = hop(&group(name, &sub.pattern, sub.interest.queue()));
                    let sum = slow.entry(key).or_default();
                    *sum = (sum.0 + session.out.len() as u64, sum.1 + session.taken);
                }
            }
            session.lagging
        });
        for (key, taken) in std::mem::take(&mut sites.hops) {
            if !slow.contains_key(&key) {
                sites.daemon.last_hop(now, key, 0, taken);
            }
        }
        for (key, (queued, taken)) in slow {
            sites.daemon.last_hop(now, key, queued, taken);
            sites.hops.insert(key, taken);
        }
    }

    pub(super) fn join_group(&mut self, tenant: usize, pattern: &[u8], queue: Option<&[u8]>) -> bool {
        let Some(sites) = self.sites.as_mut().filter(|_| !self.retired) else { return true };
        let group = group(self.tenants[tenant].rules.name.as_bytes(), pattern, queue);
        match Kind::of(pattern) {
            Kind::Plain => sites.daemon.join(&group),
            Kind::Ordered => sites.daemon.join_ordered(sites.now, &group),
            Kind::Local => true,
        }
    }

    pub(super) fn leave_group(&mut self, tenant: usize, pattern: &[u8], queue: Option<&[u8]>) {
        if let Some(sites) = self.sites.as_mut().filter(|_| !self.retired) {
            let group = group(self.tenants[tenant].rules.name.as_bytes(), pattern, queue);
            match Kind::of(pattern) {
                Kind::Plain => sites.daemon.leave(&group),
                Kind::Ordered => sites.daemon.leave_ordered(sites.now, &group),
                Kind::Local => {}
            }
        }
    }

    pub(super) fn forget_buyer(&mut self, buyer: Option<ClientId>) {
        if let (Some(sites), Some(buyer)) = (&mut self.sites, buyer) {
            sites.daemon.remove_client(buyer);
            sites.buyers.remove(&buyer);
        }
    }
}

impl Sites {
    fn add_tenant(&mut self, now: Time, rules: &TenantRules) {
        let purse = self.daemon.add_tenant(now, config(rules));
        self.purses.push(purse);
        self.own.push(self.daemon.add_client(now, purse));
    }

    /// The sites with plain subscriptions of a route for which messages are kept.
    fn kept<'a>(&'a self, route: &'a Route) -> impl Iterator<Item = DaemonId> + 'a {
        route.sites.iter().copied().map(DaemonId).filter(|&site| self.daemon.keeps(site))
    }

    /// The destinations of a route's plain subscriptions.
    fn plain(&mut self, route: &Route) -> RemoteRoute {
        let version = self.daemon.reach();
        if let Some(known) = route.remote.get().filter(|known| known.version == version) {
            return known;
        }
        let kept: Vec<DaemonId> = self.kept(route).collect();
        let plain = RemoteRoute {
            version,
            set: (!kept.is_empty()).then(|| self.daemon.set(&kept)),
            reachable: kept.iter().any(|&site| self.daemon.reaches(site)),
            expired: (route.sites.len() - kept.len()) as u64,
        };
        route.remote.set(Some(plain));
        plain
    }

    /// A tenant's purse.
    pub(super) fn purse(&self, index: usize) -> TenantId {
        self.purses[index]
    }
}

fn config(rules: &TenantRules) -> TenantConfig {
    TenantConfig { weight: rules.salary, benefit: Benefit::Messages }
}

/// The name of a group: all subscriptions of one tenant at a site with the same pattern and queue
/// group.
pub(super) fn group(tenant: &[u8], pattern: &[u8], queue: Option<&[u8]>) -> Vec<u8> {
    [tenant, pattern, queue.unwrap_or_default()].join(&0)
}

/// Tenant, pattern and queue group in a group's name.
pub(super) type Parts<'a> = (&'a [u8], &'a [u8], Option<&'a [u8]>);

pub(super) fn parts(group: &[u8]) -> Option<Parts<'_>> {
    let mut parts = group.split(|&byte| byte == 0);
    let (tenant, pattern, queue) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = parts.next().is_none() && crate::nats::subject::is_pattern(pattern);
    whole.then_some((tenant, pattern, (!queue.is_empty()).then_some(queue)))
}

/// The key of the price of a group's slow receivers: 64-bit FNV-1a, equal at every site.
fn hop(group: &[u8]) -> u64 {
    group.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Approximate bytes of an envelope besides subject and body.
const ENVELOPE: usize = 32;
/// The interval between reports of slow receivers to the daemon.
const PULSE: Time = Time::from_millis(2);
/// Output backlog in bytes above which a receiver is reported to the daemon.
pub(super) const LAG: usize = 1 << 16;
