//! The daemon: ports, links, groups and messages.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::overlay::{Announcer, Backlog, Cost, Drain};
use tollway_law::{Rate, Time};
use tracing::debug;

use super::agenda::Agenda;
use super::bits::Bits;
use super::clients::{Client, Tenant};
use super::frame::{DataFrame, Destinations, LinkCost, Note, Receipt, ReceiptKind};
use super::groups::Groups;
use super::order::Orders;
use super::port::Port;
use super::receive::{Due, Given, Inbound};
use super::retain::Outbound;
use super::sets::Sets;
use super::state::Database;
use super::timer::{ACK, PROBE, SETTLE, Timer};
use super::tree::Routes;
use super::{
    Body, ClientId, Config, DaemonId, DeliveredMessage, Event, Frame, Incarnation, LinkConfig, PortId,
    ProtocolError, SetId, TenantId,
};

/// A daemon of the overlay (§ III and § IV): it buys messages for its clients, multicasts them, and
/// forwards others'.
///
/// `now` must not decrease between calls.
#[derive(Debug)]
pub struct Daemon<B> {
    pub(super) me: Incarnation,
    pub(super) config: Config,
    /// T_min and T_max.
    pub(super) update: Time,
    pub(super) most: Time,
    /// Seconds that a lot takes on its link.
    pub(super) lot_interval: f64,
    pub(super) random: Pcg64Mcg,
    pub(super) database: Database,
    pub(super) routes: Routes,
    pub(super) routed: u64,
    pub(super) routed_at: Option<Time>,
    /// Grows when a daemon comes into reach or goes out of it, or a path changes.
    pub(super) reach: u64,
    /// Grows when a price of this daemon's changes.
    pub(super) prices: u64,
    pub(super) up: BTreeSet<DaemonId>,
    pub(super) lost: BTreeMap<DaemonId, Lost>,
    pub(super) groups: Groups,
    pub(super) ports: BTreeMap<PortId, Port<B>>,
    pub(super) by_peer: BTreeMap<DaemonId, PortId>,
    pub(super) next_port: u32,
    pub(super) announcer: Announcer,
    pub(super) number: u64,
    /// A change of links that has not been announced.
    pub(super) news: bool,
    pub(super) sets: Sets,
    pub(super) tenants: BTreeMap<TenantId, Tenant>,
    pub(super) next_tenant: u32,
    pub(super) clients: BTreeMap<ClientId, Client>,
    pub(super) next_client: u32,
    /// Waiting clients are to try again before this call ends.
    pub(super) retry: bool,
    pub(super) outbound: Outbound<B>,
    pub(super) inbounds: BTreeMap<Incarnation, Inbound<B>>,
    pub(super) holdings: BTreeMap<Incarnation, BTreeMap<Incarnation, u64>>,
    pub(super) hops: BTreeMap<u64, LastHop>,
    pub(super) orders: Orders<B>,
    pub(super) agenda: Agenda<Timer>,
    pub(super) events: VecDeque<Event>,
    pub(super) deliveries: VecDeque<DeliveredMessage<B>>,
    /// For each destination set in use, which of its bits go over which port.
    pub(super) branches: HashMap<usize, (Arc<Destinations>, Branches)>,
    pub(super) counters: Counters,
}

/// Ports, and the destinations behind each.
type Branches = Vec<(PortId, Bits)>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) refused: u64,
    pub(super) strayed: u64,
    pub(super) resent: u64,
    pub(super) expired: u64,
    pub(super) announcements: u64,
    pub(super) announced: u64,
}

/// A daemon that was known and is out of reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub(super) since: Time,
    /// It is for longer than patience.
    pub(super) expired: bool,
}

/// Connections to receivers that share a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastHop {
    pub(super) backlog: Backlog,
    pub(super) drain: Drain,
    pub(super) cost: Cost,
    pub(super) price: f64,
    pub(super) announced: f64,
    pub(super) queued: u64,
    pub(super) taken: u64,
    pub(super) sampled: Time,
}

impl<B: Body> Daemon<B> {
    /// A daemon without links.
    pub fn new(now: Time, config: Config, seed: u64) -> Daemon<B> {
        let me = Incarnation { daemon: config.id, epoch: config.epoch };
        let mut daemon = Daemon {
            me,
            config,
            update: config.announce.least,
            most: config.announce.most,
            lot_interval: config.cost.lot_interval(),
            random: Pcg64Mcg::seed_from_u64(seed),
            database: Database::default(),
            routes: Routes::default(),
            routed: 0,
            routed_at: None,
            reach: 0,
            prices: 0,
            up: BTreeSet::new(),
            lost: BTreeMap::new(),
            groups: Groups::new(me),
            ports: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            next_port: 0,
            announcer: Announcer::new(config.announce),
            number: 0,
            news: false,
            sets: Sets::default(),
            tenants: BTreeMap::new(),
            next_tenant: 0,
            clients: BTreeMap::new(),
            next_client: 0,
            retry: false,
            outbound: Outbound::new(me),
            inbounds: BTreeMap::new(),
            holdings: BTreeMap::new(),
            hops: BTreeMap::new(),
            orders: Orders::new(),
            agenda: Agenda::new(),
            events: VecDeque::new(),
            deliveries: VecDeque::new(),
            branches: HashMap::new(),
            counters: Counters::default(),
        };
        daemon.restate(true);
        let phase: f64 = daemon.random.random();
        let first = Time::from_secs_f64(daemon.most.as_secs_f64() * phase);
        daemon.agenda.set(Timer::Hello, now.saturating_add(first));
        daemon
    }

    /// This daemon's name and start.
    pub fn incarnation(&self) -> Incarnation {
        self.me
    }

    /// A connection to another daemon stands. It carries nothing but greetings until the peer has
    /// answered.
    pub fn open(&mut self, now: Time, link: LinkConfig) -> PortId {
        let id = PortId(self.next_port);
        self.next_port += 1;
        let link = LinkConfig { weight: link.weight.max(1), ..link };
        self.ports.insert(id, Port::new(now, link, &self.config.cost));
        self.wake(id);
        id
    }

    /// A connection has failed or ended. What waited for it is dropped; origins send it again on
    /// another way.
    pub fn close(&mut self, now: Time, port: PortId) {
        let Some(gone) = self.ports.remove(&port) else { return };
        if let Some(peer) = gone.peer
            && self.by_peer.get(&peer.daemon) == Some(&port)
        {
            debug!(target: "overlay", %now, daemon = self.me.daemon.0, peer = peer.daemon.0, "link down");
            self.by_peer.remove(&peer.daemon);
            let up = |other: &Port<B>| other.peer.is_some_and(|other| other.daemon == peer.daemon);
            if let Some((&other, _)) = self.ports.iter().rfind(|(_, other)| up(other)) {
                self.by_peer.insert(peer.daemon, other);
            }
            self.links_changed(now);
        }
        self.finish(now);
    }

    /// Takes a frame from a port.
    ///
    /// # Errors
    /// [`ProtocolError`] if the connection is to be closed.
    pub fn handle_message(&mut self, now: Time, port: PortId, frame: Frame<B>) -> Result<(), ProtocolError> {
        let entry = self.ports.get_mut(&port).ok_or(ProtocolError::Closed(port))?;
        (entry.heard, entry.silent) = (now, false);
        if entry.peer.is_none() && !matches!(frame, Frame::Hello(_)) {
            return Err(ProtocolError::NoHello);
        }
        match frame {
            Frame::Hello(peer) => self.greeted(now, port, peer)?,
            Frame::States(states) => states.into_iter().for_each(|state| self.stated(now, port, state)),
            Frame::Groups(update) => self.grouped(port, &update)?,
            Frame::Receipts(receipts) => receipts.into_iter().for_each(|r| self.route_receipt(now, r)),
            Frame::Holdings(holdings) => {
                holdings.into_iter().for_each(|holding| self.told(now, Some(port), holding))
            }
            Frame::Data(data) => self.arrived(now, data),
        }
        self.finish(now);
        Ok(())
    }

    /// The next frame for a port. To be asked for only while the port's connection has little
    /// unsent, so that messages wait here, where their backlog has a price.
    pub fn poll_message(&mut self, now: Time, port: PortId) -> Option<Frame<B>> {
        self.ports.get_mut(&port)?.poll(now, self.me, &self.database)
    }

    /// When [`handle_timeout`](Daemon::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Time {
        self.agenda.next()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(timer) = self.agenda.pop(now) {
            match timer {
                Timer::Routes => self.route(now),
                Timer::Tick => self.tick(now),
                Timer::Hello => self.hello(now),
                Timer::Salary(tenant) => self.salary(now, tenant),
                Timer::Redraw(tenant) => self.again(now, tenant),
                Timer::Receipts(port) => self.release_receipts(port),
                Timer::Ack(origin) => self.acknowledge(now, origin, false),
                Timer::Probe(to) => self.probe(now, to),
                Timer::Expire(daemon) => self.expire(now, daemon),
                Timer::Recover(origin) => self.recover(now, origin),
                Timer::Order => self.reorder(now),
            }
        }
        self.finish(now);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            // Thousands of daemons that come into reach at once leave room for as many events.
            self.events.shrink_to(EVENTS);
        }
        event
    }

    /// The next message for this daemon's members. It counts as delivered.
    pub fn poll_delivery(&mut self) -> Option<DeliveredMessage<B>> {
        self.deliveries.pop_front()
    }

    /// Joins a group; false, and nothing done, if its name is longer than [`MAX_GROUP`] or this
    /// daemon would announce more than [`MAX_MEMBERSHIPS`](super::MAX_MEMBERSHIPS). Joins are
    /// counted.
    pub fn join(&mut self, group: &[u8]) -> bool {
        if group.len() > MAX_GROUP || !self.groups.has_room(group) {
            return false;
        }
        if let Some(update) = self.groups.join(group) {
            self.flood_groups(None, &Arc::new(update));
        }
        true
    }

    /// Takes a join back.
    pub fn leave(&mut self, group: &[u8]) {
        if let Some(update) = self.groups.leave(group) {
            self.flood_groups(None, &Arc::new(update));
        }
    }

    /// Other daemons known to belong to a group, ascending, reachable or not.
    pub fn members<'a>(&'a self, group: &'a [u8]) -> impl Iterator<Item = DaemonId> + 'a {
        self.groups.members(group)
    }

    /// Sends a client's message to a set; to those of it that were out of reach for longer than
    /// patience, it does not.
    pub fn send(&mut self, now: Time, by: ClientId, set: SetId, body: B) {
        self.send_noted(now, by, set, None, body);
    }

    /// As [`send`](Daemon::send), with a part in the order of a group.
    pub(super) fn send_noted(
        &mut self,
        now: Time,
        by: ClientId,
        set: SetId,
        note: Option<Arc<Note>>,
        body: B,
    ) {
        let Some(destinations) = self.destinations(set).filter(|set| !set.as_slice().is_empty()) else {
            return;
        };
        let data = self.outbound.send(now, by, &destinations, note, body);
        for &to in destinations.as_slice() {
            if !self.agenda.has(Timer::Probe(to)) {
                self.agenda.set(Timer::Probe(to), now.saturating_add(self.late(to, self.most * PROBE)));
            }
        }
        self.forward(now, data);
    }

    /// Tells how much waits for connections to receivers: `queued` bytes at `now`, `taken` bytes
    /// that they took since ever.
    ///
    /// To be called about every 2 ms while something waits, and when nothing does any more. The
    /// price holds for this daemon's clients at once, and is announced to others as links' costs
    /// are. All connections with one `key` are one.
    pub fn last_hop(&mut self, now: Time, key: u64, queued: u64, taken: u64) {
        let fresh = || LastHop {
            backlog: Backlog::new(self.config.cost.window, now),
            drain: Drain::new(Rate::ZERO, now),
            cost: Cost::new(&self.config.cost, Rate::ZERO),
            price: 0.0,
            announced: 0.0,
            queued: 0,
            taken,
            sampled: now,
        };
        if queued == 0 && !self.hops.contains_key(&key) {
            return;
        }
        let hop = self.hops.entry(key).or_insert_with(fresh);
        hop.drain.take(taken.saturating_sub(hop.taken), queued);
        (hop.taken, hop.queued) = (taken, queued);
        hop.backlog.set(now, queued);
        if now.saturating_sub(hop.sampled) >= HOP_SAMPLE || queued == 0 {
            let before = hop.price;
            hop.sample(now);
            self.retry |= hop.price < before;
        }
        self.ticking(now);
        self.finish(now);
    }

    /// Daemons reachable now, ascending; this one is not among them.
    pub fn reachable(&self) -> impl Iterator<Item = DaemonId> + '_ {
        self.up.iter().copied()
    }

    /// All links known, as their daemons announce them: the daemon a link leaves, and its state.
    pub fn links(&self) -> impl Iterator<Item = (DaemonId, &LinkCost)> {
        let known = self.database.daemons().filter_map(|daemon| self.database.get(daemon));
        known.flat_map(|known| known.links().map(|link| (known.last.origin.daemon, link)))
    }

    /// Returns true if a daemon is reachable now.
    pub fn reaches(&self, daemon: DaemonId) -> bool {
        self.up.contains(&daemon)
    }

    /// The backlog of a port, in bytes and messages.
    pub fn backlog(&self, port: PortId) -> (u64, usize) {
        self.ports.get(&port).map_or((0, 0), |port| (port.queued, port.messages()))
    }

    /// The last step of every call that may have changed a price.
    pub(super) fn finish(&mut self, now: Time) {
        self.reorder_soon(now);
        if std::mem::take(&mut self.retry) {
            self.retry_all(now);
        }
    }

    /// Tells that an idle port has something to send.
    pub(super) fn wake(&mut self, id: PortId) {
        if let Some(port) = self.ports.get_mut(&id)
            && std::mem::take(&mut port.idle)
        {
            self.events.push_back(Event::Sendable(id));
        }
    }

    /// Ports whose peer has answered, except one.
    pub(super) fn others(&self, without: Option<PortId>) -> Vec<PortId> {
        let up = self.ports.iter().filter(|(id, port)| port.peer.is_some() && Some(**id) != without);
        up.map(|(&id, _)| id).collect()
    }

    /// A message has come: it is for this daemon, for others behind it, or both.
    fn arrived(&mut self, now: Time, mut data: DataFrame<B>) {
        if let Some(index) = data.set.index_of(self.me.daemon)
            && data.to.remove(index)
            && data.set.as_slice()[index] == self.me
        {
            self.receive(now, data.clone());
        }
        match data.life.checked_sub(1) {
            Some(life) if !data.to.is_empty() => self.forward(now, DataFrame { life, ..data }),
            _ => {}
        }
    }

    fn receive(&mut self, now: Time, data: DataFrame<B>) {
        let origin = data.origin;
        let mut bodies = Given::new();
        let inbound = self.inbounds.entry(origin).or_default();
        let most = self.config.retain.get();
        let due = inbound.receive(now, self.me.daemon, data, self.update * SETTLE, most, &mut bodies);
        self.deliver(now, origin, bodies);
        match due {
            Due::Never => {}
            Due::Later => {
                let wait = self.config.ack.unwrap_or(self.most * ACK);
                self.agenda.by(Timer::Ack(origin), now.saturating_add(wait));
            }
            Due::Now => self.acknowledge(now, origin, false),
            Due::Gap => self.acknowledge(now, origin, true),
        }
        self.expect_recovery(now, origin);
    }

    pub(super) fn deliver(&mut self, now: Time, origin: Incarnation, bodies: Given<B>) {
        for (note, body) in bodies {
            match note {
                None => {
                    self.deliveries.push_back(DeliveredMessage { origin: origin.daemon, body, place: None })
                }
                Some(note) => self.noted(now, origin, &note, body),
            }
        }
    }

    pub(super) fn acknowledge(&mut self, now: Time, origin: Incarnation, gap: bool) {
        let Some(inbound) = self.inbounds.get_mut(&origin) else { return };
        let seq = inbound.acknowledge();
        // While copies are kept, the origin is asked whether they still have to be.
        let again = if inbound.has_copies() { now.saturating_add(self.most * ACK) } else { Time::NEVER };
        self.agenda.set(Timer::Ack(origin), again);
        let kind = if gap { ReceiptKind::Gap } else { ReceiptKind::Ack };
        self.route_receipt(now, Receipt { kind, origin, receiver: self.me, seq });
    }

    /// Queues a message for the ports towards its destinations.
    pub(super) fn forward(&mut self, now: Time, data: DataFrame<B>) {
        let key = Arc::as_ptr(&data.set).addr();
        if !self.branches.contains_key(&key) {
            if self.branches.len() >= BRANCHES {
                self.branches.clear();
            }
            let branches = self.branch(&data.set);
            self.branches.insert(key, (data.set.clone(), branches));
        }
        let Some((_, branches)) = self.branches.get(&key) else { return };
        let mut left = data.to.count();
        let mut woken = Vec::new();
        for (id, mask) in branches {
            let to = data.to.and(mask);
            if to.is_empty() {
                continue;
            }
            left -= to.count();
            if let Some(port) = self.ports.get_mut(id) {
                port.push_data(now, DataFrame { to, ..data.clone() });
                woken.push(*id);
            }
        }
        self.counters.strayed += u64::from(left > 0);
        for id in woken {
            self.wake(id);
        }
        self.ticking(now);
    }

    /// The destinations behind each port.
    fn branch(&self, set: &Destinations) -> Branches {
        let mut branches = Branches::new();
        for (index, destination) in set.as_slice().iter().enumerate() {
            let next = self.routes.next_hop(destination.daemon).and_then(|next| self.by_peer.get(&next));
            let Some(&port) = next.filter(|_| destination.daemon != self.me.daemon) else { continue };
            let at = branches.iter().position(|branch| branch.0 == port).unwrap_or_else(|| {
                branches.push((port, Bits::none(set.as_slice().len())));
                branches.len() - 1
            });
            branches[at].1.insert(index);
        }
        branches
    }

    /// Takes a receipt that is for this daemon, or sends it a link further.
    pub(super) fn route_receipt(&mut self, now: Time, receipt: Receipt) {
        let to = receipt.to();
        if to != self.me.daemon {
            let next = self.routes.next_hop(to).and_then(|next| self.by_peer.get(&next).copied());
            let Some(id) = next else { return };
            let Some(port) = self.ports.get_mut(&id) else { return };
            if port.push_receipt(receipt) {
                self.wake(id);
            } else {
                self.agenda.by(Timer::Receipts(id), now.saturating_add(self.update));
            }
        } else if receipt.kind == ReceiptKind::Stable {
            if let Some(inbound) =
                self.inbounds.get_mut(&receipt.origin).filter(|_| receipt.receiver == self.me)
            {
                inbound.settle(receipt.seq);
            }
        } else if receipt.origin == self.me {
            self.acked(now, receipt);
        }
    }

    /// Receipts on a port have waited for others long enough.
    fn release_receipts(&mut self, id: PortId) {
        if let Some(port) = self.ports.get_mut(&id) {
            port.release_receipts();
            self.wake(id);
        }
    }

    /// Sends copies of kept messages, which are paid.
    pub(super) fn resend(&mut self, now: Time, copies: Vec<DataFrame<B>>) {
        self.counters.resent += copies.len() as u64;
        for copy in copies {
            self.forward(now, copy);
        }
    }

    /// Waiting clients are to try again before the call ends.
    pub(super) fn retry_soon(&mut self) {
        self.retry = true;
    }

    /// T_max.
    pub(super) fn most(&self) -> Time {
        self.most
    }

    /// Queues control on every port whose peer has answered, except one.
    pub(super) fn flood(&mut self, without: Option<PortId>, give: impl Fn(&mut Port<B>)) {
        for id in self.others(without) {
            if let Some(port) = self.ports.get_mut(&id) {
                give(port);
            }
            self.wake(id);
        }
    }
}

/// Events that there is always room for.
const EVENTS: usize = 16;

/// Bytes of the longest name of a group.
pub const MAX_GROUP: usize = 4096;

/// The time between two samples of connections to receivers.
const HOP_SAMPLE: Time = Time::from_millis(2);

/// Destination sets whose branches are remembered.
const BRANCHES: usize = 4096;
