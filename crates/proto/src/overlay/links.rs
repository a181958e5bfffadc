//! Links and what daemons tell each other of them: states, prices, groups, signs of life.

use std::collections::BTreeSet;
use std::sync::Arc;

use tollway_law::{Rate, Time};
use tracing::debug;

use super::daemon::{LastHop, Lost};
use super::frame::{GroupUpdate, Holding, HopCost, LinkCost, LinkState};
use super::groups::Change;
use super::state::News;
use super::timer::{SETTLE, Timer};
use super::tree::Routes;
use super::{Body, Daemon, DaemonId, Event, Frame, Incarnation, PortId, ProtocolError};

impl<B: Body> Daemon<B> {
    pub(super) fn greeted(&mut self, now: Time, id: PortId, peer: Incarnation) -> Result<(), ProtocolError> {
        let Some(port) = self.ports.get_mut(&id) else { return Ok(()) };
        if let Some(known) = port.peer {
            return if known == peer { Ok(()) } else { Err(ProtocolError::Restarted) };
        }
        if peer.daemon != port.config.peer || peer.daemon == self.me.daemon {
            return Err(ProtocolError::Stranger { expected: port.config.peer, found: peer.daemon });
        }
        port.peer = Some(peer);
        debug!(target: "overlay", %now, daemon = self.me.daemon.0, peer = peer.daemon.0, "link up");
        for origin in self.database.daemons() {
            port.push_state(origin, true);
        }
        port.set_groups(self.groups.whole());
        for (&origin, holders) in &self.holdings {
            for (&holder, &seq) in holders {
                port.push_holding(Holding { holder, origin, seq });
            }
        }
        self.by_peer.insert(peer.daemon, id);
        self.wake(id);
        self.links_changed(now);
        Ok(())
    }

    /// Something has come on a port's connection: a part of a frame, or a packet behind a lost one,
    /// which the connection still holds. Its peer is not silent, however long the frame takes.
    pub fn hear(&mut self, now: Time, port: PortId) {
        if let Some(port) = self.ports.get_mut(&port) {
            (port.heard, port.silent) = (now, false);
        }
    }

    /// The time without a word after which a port is silent.
    pub fn silence(&self) -> Time {
        self.most * SILENCE
    }

    /// Own links have come or gone: routes follow at once, the others hear of it as soon as T_min
    /// allows.
    pub(super) fn links_changed(&mut self, now: Time) {
        self.restate(true);
        self.branches.clear();
        self.news = true;
        self.agenda.set(Timer::Tick, now);
        self.route_soon(now);
    }

    /// Puts this daemon's links and prices into the database: all links, or where these are the
    /// same those whose prices have changed, if they are less than half.
    pub(super) fn restate(&mut self, whole: bool) {
        let links = self.by_peer.iter().filter_map(|(&peer, id)| {
            let port = self.ports.get(id)?;
            let (cost, lot) = (port.price as f32, port.cost.lot() as f32);
            Some(LinkCost { peer, weight: port.config.weight, cost, lot })
        });
        let congested = self.hops.iter().filter(|(_, hop)| hop.price > 0.0);
        let hops =
            congested.map(|(&key, hop)| HopCost { key, cost: hop.price as f32, lot: hop.cost.lot() as f32 });
        let mut links: Vec<LinkCost> = links.collect();
        let mut base = self.number;
        if let Some(known) = self.database.get(self.me.daemon).filter(|_| !whole) {
            // The same links in the same order.
            let before = known.whole.links.iter().zip(&links);
            let changed: Vec<LinkCost> = before.filter(|(a, b)| a != b).map(|(_, &link)| link).collect();
            if changed.len() * 2 < links.len() {
                (links, base) = (changed, known.whole.number);
            }
        }
        let state = LinkState {
            origin: self.me,
            number: self.number,
            base,
            links,
            hops: hops.take(MOST_HOPS).collect(),
        };
        self.database.put(Arc::new(state));
    }

    /// Computes trees now, or T_min after the last time.
    pub(super) fn route_soon(&mut self, now: Time) {
        let at = self.routed_at.map_or(now, |at| at.saturating_add(self.update).max(now));
        self.agenda.by(Timer::Routes, at);
    }

    pub(super) fn stated(&mut self, now: Time, from: PortId, state: Arc<LinkState>) {
        let most = 1000.0 * self.config.cost.prohibitive.max(1.0) * 1.001;
        if !state.is_sound(most) || state.number > MOST_STATES {
            self.counters.refused += 1;
            return;
        }
        let (origin, whole) = (state.origin, state.is_whole());
        if origin.daemon == self.me.daemon {
            if origin.epoch > self.me.epoch {
                self.counters.refused += 1;
                self.events.push_back(Event::Duplicate(origin));
            } else if origin.epoch == self.me.epoch && state.number > self.number {
                // A false state of these links: the true one gets a later number.
                self.counters.refused += 1;
                self.number = state.number;
                self.links_changed(now);
            }
            return;
        }
        match self.database.accept(state) {
            News::Old => return,
            News::Costs => self.retry = true,
            News::Topology => self.route_soon(now),
        }
        for port in self.others(Some(from)) {
            if let Some(port) = self.ports.get_mut(&port) {
                port.push_state(origin.daemon, whole);
            }
            self.wake(port);
        }
    }

    pub(super) fn grouped(&mut self, from: PortId, update: &Arc<GroupUpdate>) -> Result<(), ProtocolError> {
        let outdated = |known: Incarnation| known.epoch > update.origin.epoch;
        if self.database.incarnation(update.origin.daemon).is_some_and(outdated) {
            return Ok(());
        }
        if let Some(changes) = self.groups.accept(update)? {
            self.tell_groups(changes);
            self.flood_groups(Some(from), update);
        }
        Ok(())
    }

    pub(super) fn tell_groups(&mut self, changes: Vec<Change>) {
        self.orders.changed |= !changes.is_empty();
        let event = |(daemon, group, joined)| Event::Membership { daemon, group, joined };
        self.events.extend(changes.into_iter().map(event));
    }

    pub(super) fn flood_groups(&mut self, without: Option<PortId>, update: &Arc<GroupUpdate>) {
        for id in self.others(without) {
            if let Some(port) = self.ports.get_mut(&id) {
                // All memberships replace the changes that wait, once they are fewer.
                let waiting = port.push_groups(update.clone());
                if waiting > MOST_CHANGES && waiting > MOST_CHANGES + self.groups.len() {
                    port.set_groups(self.groups.whole());
                }
            }
            self.wake(id);
        }
    }

    /// Computes all trees, and finds the daemons that have become reachable or unreachable.
    pub(super) fn route(&mut self, now: Time) {
        self.routed_at = Some(now);
        if self.routed == self.database.topology() {
            return;
        }
        self.routed = self.database.topology();
        self.orders.changed = true;
        self.routes = Routes::compute(self.me.daemon, &self.database);
        self.reach += 1;
        self.branches.clear();
        let up: BTreeSet<DaemonId> =
            self.routes.reachable().filter(|&daemon| daemon != self.me.daemon).collect();
        let came: Vec<DaemonId> = up.difference(&self.up).copied().collect();
        let went: Vec<DaemonId> = self.up.difference(&up).copied().collect();
        self.up = up;
        for daemon in came {
            debug!(target: "overlay", %now, daemon = self.me.daemon.0, other = daemon.0, "reachable");
            self.lost.remove(&daemon);
            self.agenda.clear(Timer::Expire(daemon));
            self.events.push_back(Event::Reachable { daemon, up: true });
        }
        for &daemon in &went {
            debug!(target: "overlay", %now, daemon = self.me.daemon.0, other = daemon.0, "not reachable");
            self.events.push_back(Event::Reachable { daemon, up: false });
        }
        // Daemons known by a state only, which were never reachable, are lost as well.
        let known = self.database.daemons().filter(|daemon| *daemon != self.me.daemon);
        let out: Vec<DaemonId> =
            known.filter(|daemon| !self.up.contains(daemon) && !self.lost.contains_key(daemon)).collect();
        for daemon in out {
            self.lost.insert(daemon, Lost { since: now, expired: false });
            self.agenda.set(Timer::Expire(daemon), now.saturating_add(self.config.patience));
        }
        self.starts_changed(now);
        let soon = now.saturating_add(self.update * SETTLE);
        for to in self.outbound.behind().collect::<Vec<_>>() {
            self.agenda.by(Timer::Probe(to), soon);
        }
        self.retry = true;
    }

    /// Samples all prices, and announces them if that is due.
    pub(super) fn tick(&mut self, now: Time) {
        let mut significant = self.news;
        let (mut costly, mut calm) = (false, true);
        for port in self.ports.values_mut() {
            let before = port.price;
            port.sample(now);
            self.retry |= port.price < before;
            self.prices += u64::from(port.price != before);
            significant |= self.announcer.significant(port.announced, port.price);
            costly |= port.price > 0.0;
            calm &= port.calm();
        }
        for hop in self.hops.values_mut() {
            hop.sample(now);
            significant |= self.announcer.significant(hop.announced, hop.price);
            costly |= hop.price > 0.0;
        }
        if self.announcer.due(now, significant, costly) {
            self.announce(now);
            // The end of a hop's congestion is announced: the hop is dropped.
            self.hops.retain(|_, hop| hop.queued > 0 || hop.price > 0.0);
        }
        if !calm || self.news || !self.hops.is_empty() {
            self.agenda.set(Timer::Tick, now.saturating_add(self.update));
        }
    }

    pub(super) fn announce(&mut self, now: Time) {
        self.number += 1;
        self.restate(self.news);
        self.announcer.announced(now);
        self.counters.announcements += 1;
        let Some(state) = self.database.get(self.me.daemon).map(|known| known.last.clone()) else { return };
        let whole = state.is_whole();
        self.counters.announced += Frame::<B>::States(vec![state]).size() as u64;
        self.news = false;
        for port in self.ports.values_mut() {
            port.announced = port.price;
        }
        for hop in self.hops.values_mut() {
            hop.announced = hop.price;
        }
        for id in self.others(None) {
            if let Some(port) = self.ports.get_mut(&id) {
                port.push_state(self.me.daemon, whole);
            }
            self.wake(id);
        }
    }

    /// Begins update intervals, which idle daemons do without.
    pub(super) fn ticking(&mut self, now: Time) {
        if !self.agenda.has(Timer::Tick) {
            for port in self.ports.values_mut() {
                port.restart(now);
            }
            self.agenda.set(Timer::Tick, now.saturating_add(self.update));
        }
    }

    pub(super) fn hello(&mut self, now: Time) {
        let (mut awake, silence) = (Vec::new(), self.silence());
        for (&id, port) in &mut self.ports {
            if !std::mem::take(&mut port.spoke) {
                port.hello = true;
                awake.push(id);
            }
            if now.saturating_sub(port.heard) >= silence && !std::mem::replace(&mut port.silent, true) {
                self.events.push_back(Event::Silent(id));
            }
        }
        for id in awake {
            self.wake(id);
        }
        self.agenda.set(Timer::Hello, now.saturating_add(self.most));
    }
}

impl LastHop {
    pub(super) fn sample(&mut self, now: Time) {
        let rate = self.drain.sample(now, self.queued).bytes_per_sec();
        self.cost.set_rate(Rate::from_bytes_per_sec(rate.clamp(LEAST_HOP, MOST_HOP)));
        self.price = self.cost.price(self.backlog.sample(now));
        self.sampled = now;
    }
}

/// Congested connections to receivers that a daemon speaks of at most.
const MOST_HOPS: usize = 4096;

/// Changes of groups that may wait for a link beyond the number of memberships.
const MOST_CHANGES: usize = 1024;

/// Rates, in bytes/s, that a connection to a receiver counts as, so that its soft limit is 40 kB to
/// 4 MB at T_min = 50 ms.
const LEAST_HOP: f64 = 1e5;
const MOST_HOP: f64 = 1e7;

/// T_max's without a word after which a port is silent.
const SILENCE: u64 = 4;

/// Link states that one incarnation can state.
const MOST_STATES: u64 = 1 << 60;
