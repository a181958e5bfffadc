//! Recovery when links and daemons fail: acknowledgements, probes, messages of dead daemons.

use std::collections::VecDeque;

use tollway_law::Time;

use super::frame::{Holding, Receipt, ReceiptKind};
use super::receive::{Inbound, Stage};
use super::timer::{PROBE, SETTLE, Timer};
use super::{Body, Daemon, DaemonId, Incarnation, PortId, Undelivered};

impl<B: Body> Daemon<B> {
    /// Takes back the unacknowledged messages to a daemon that `which` selects, so that
    /// [`poll_undelivered`](Daemon::poll_undelivered) gives them.
    ///
    /// If the daemon is only cut off, it may have received some of them.
    pub fn recall(&mut self, to: DaemonId, which: impl FnMut(&B) -> bool) {
        self.outbound.recall(to, which);
    }

    /// The next message that a destination will not receive: it was recalled, or the destination
    /// has started again or was unreachable for longer than patience. Messages of ordered groups
    /// are not among these.
    pub fn poll_undelivered(&mut self) -> Option<Undelivered<B>> {
        self.outbound.undelivered.pop_front()
    }

    /// True if messages to a daemon are kept for it: it is reachable, or was until less than
    /// patience ago.
    pub fn keeps(&self, daemon: DaemonId) -> bool {
        self.up.contains(&daemon) || self.lost.get(&daemon).is_some_and(|lost| !lost.expired)
    }

    /// Grows with each change of what [`reaches`](Daemon::reaches) or [`keeps`](Daemon::keeps)
    /// answer.
    pub fn reach(&self) -> u64 {
        self.reach
    }

    /// A destination has told what it has.
    pub(super) fn acked(&mut self, now: Time, receipt: Receipt) {
        let (to, gap) = (receipt.receiver, receipt.kind == ReceiptKind::Gap);
        let pause = self.update * SETTLE;
        let Some(acked) = self.outbound.ack(now, to, receipt.seq, gap, pause) else { return };
        if acked.resend {
            let copies = self.outbound.unacknowledged(to);
            self.resend(now, copies);
        }
        match acked.outstanding {
            // A gap that was closed a moment ago may still be on its way.
            true if acked.unclear || gap && !acked.resend => {
                self.agenda.by(Timer::Probe(to), now.saturating_add(self.late(to, pause)));
            }
            true => {
                let wait = self.late(to, self.most() * PROBE);
                self.agenda.set(Timer::Probe(to), now.saturating_add(wait));
            }
            false => self.agenda.clear(Timer::Probe(to)),
        }
        if acked.freed {
            self.retry_soon();
        }
        if acked.stable {
            self.route_receipt(now, Receipt { kind: ReceiptKind::Stable, ..receipt });
        }
    }

    /// A destination has not told anything for long: its oldest message goes again, and is
    /// acknowledged at once.
    pub(super) fn probe(&mut self, now: Time, to: Incarnation) {
        let Some(copy) = self.outbound.probe(to) else { return };
        let probes = self.outbound.chain(to).map_or(0, |chain| chain.probes);
        if self.routes.reaches(to.daemon) {
            self.resend(now, vec![copy]);
        }
        let wait = self.late(to, self.most() * PROBE) * (1 << probes.min(3));
        self.agenda.set(Timer::Probe(to), now.saturating_add(wait));
    }

    /// The time after which an acknowledgement of `to` is late, at least `least`.
    pub(super) fn late(&self, to: Incarnation, least: Time) -> Time {
        self.outbound.chain(to).map_or(least, |chain| chain.late(least))
    }

    /// Drops chains to daemons that have started again and the memberships of their former starts,
    /// and begins to recover what these have sent.
    pub(super) fn starts_changed(&mut self, now: Time) {
        let current =
            |to: &Incarnation| self.database.incarnation(to.daemon).is_none_or(|known| known <= *to);
        let gone: Vec<Incarnation> = self.outbound.destinations().filter(|to| !current(to)).collect();
        for to in gone {
            self.drop_destination(to);
        }
        for daemon in self.groups.outdated(|daemon| self.database.incarnation(daemon)) {
            let left = self.groups.forget(daemon);
            self.tell_groups(left);
        }
        let origins: Vec<Incarnation> = self.inbounds.keys().copied().collect();
        for origin in origins {
            self.expect_recovery(now, origin);
            // The daemon that was to send the missing messages may have failed, or its link.
            if self.inbounds.get(&origin).is_some_and(|inbound| inbound.stage() == Stage::Sent) {
                self.share(now, origin);
                self.agenda.set(Timer::Recover(origin), now.saturating_add(self.most() * 2));
            }
        }
    }

    /// Gives up on a destination.
    fn drop_destination(&mut self, to: Incarnation) {
        self.counters.expired += self.outbound.drop_chain(to) as u64;
        self.agenda.clear(Timer::Probe(to));
        self.retry_soon();
    }

    /// Patience with an unreachable daemon ends: its messages are dropped, and later all that is
    /// known about it.
    pub(super) fn expire(&mut self, now: Time, daemon: DaemonId) {
        let Some(lost) = self.lost.get_mut(&daemon) else { return };
        if std::mem::replace(&mut lost.expired, true) {
            self.forget(now, daemon);
            return;
        }
        self.agenda.set(Timer::Expire(daemon), now.saturating_add(self.config.patience * FORGET));
        self.reach += 1;
        for to in self.outbound.chains_of(daemon) {
            self.drop_destination(to);
        }
        self.retry_soon();
    }

    /// Forgets all about a daemon that is out of reach for very long.
    fn forget(&mut self, now: Time, daemon: DaemonId) {
        if self.lost.remove(&daemon).is_none() {
            return;
        }
        self.database.forget(daemon);
        let left = self.groups.forget(daemon);
        self.tell_groups(left);
        self.inbounds.retain(|origin, _| origin.daemon != daemon);
        self.holdings.retain(|origin, _| origin.daemon != daemon);
        self.route_soon(now);
    }

    /// When an origin is given up, if it is out of reach: at once if it has started again, else
    /// after twice the patience, when it has given up this daemon too.
    fn dead_at(&self, now: Time, origin: Incarnation) -> Option<Time> {
        let known = self.database.incarnation(origin.daemon);
        if known.is_some_and(|known| known.epoch > origin.epoch) {
            return Some(now);
        }
        self.lost.get(&origin.daemon).map(|lost| lost.since.saturating_add(self.config.patience * 2))
    }

    /// Plans the recovery of an origin's messages if it is out of reach; ends it if the origin is
    /// back.
    pub(super) fn expect_recovery(&mut self, now: Time, origin: Incarnation) {
        let dead = self.dead_at(now, origin);
        let Some(inbound) = self.inbounds.get_mut(&origin) else { return };
        match dead {
            Some(at) if inbound.stage() == Stage::None => self.agenda.by(Timer::Recover(origin), at.max(now)),
            // Late copies: no survivor has the messages before them either.
            Some(_) if inbound.stage() == Stage::Ended && inbound.lacks() => {
                inbound.enter(Stage::Sent);
                self.agenda.set(Timer::Recover(origin), now);
            }
            Some(_) => {}
            None => {
                inbound.enter(Stage::None);
                self.agenda.clear(Timer::Recover(origin));
                self.holdings.remove(&origin);
            }
        }
    }

    /// A stage of the recovery: survivors tell what they hold, then send what others lack, then
    /// give up what none has.
    pub(super) fn recover(&mut self, now: Time, origin: Incarnation) {
        let dead = self.dead_at(now, origin).is_some();
        let wait = self.most();
        let Some(inbound) = self.inbounds.get_mut(&origin).filter(|_| dead) else {
            self.holdings.remove(&origin);
            return;
        };
        let (stage, next) = match inbound.stage() {
            Stage::None => (Stage::Told, wait),
            Stage::Told => (Stage::Sent, wait * 2),
            // A survivor that was cut off meanwhile recovers later, and sends what is here already.
            Stage::Sent => (Stage::Ended, self.config.patience * FORGET + wait * 8),
            Stage::Ended => {
                // A former start is over for good; one that may come back is still known by its
                // last message.
                if self.database.incarnation(origin.daemon).is_some_and(|known| known.epoch > origin.epoch) {
                    self.inbounds.remove(&origin);
                }
                self.holdings.remove(&origin);
                return;
            }
        };
        inbound.enter(stage);
        match stage {
            Stage::Told => {
                let holding = Holding { holder: self.me, origin, seq: inbound.last() };
                self.told(now, None, holding);
            }
            Stage::Sent => self.share(now, origin),
            _ => {
                let mut bodies = VecDeque::new();
                let dropped = inbound.give_up(self.me.daemon, &mut bodies);
                inbound.clear_copies();
                self.counters.expired += dropped.len() as u64;
                let to = self.me.daemon;
                let plain = dropped.into_iter().filter(|data| data.note.is_none());
                let lost = plain.map(|data| Undelivered { to, by: None, body: data.body });
                self.outbound.undelivered.extend(lost);
                self.deliver(now, origin, bodies);
            }
        }
        self.agenda.set(Timer::Recover(origin), now.saturating_add(next));
    }

    /// Sends what other survivors lack of a dead daemon's messages.
    fn share(&mut self, now: Time, origin: Incarnation) {
        let Some(inbound) = self.inbounds.get(&origin) else { return };
        let Some(holdings) = self.holdings.get(&origin) else { return };
        let alive = |daemon: Incarnation| {
            self.up.contains(&daemon.daemon) && self.database.incarnation(daemon.daemon) == Some(daemon)
        };
        let owed = inbound.owed(self.me, holdings, alive);
        self.resend(now, owed);
    }

    /// A survivor has told what it holds of a dead daemon's messages.
    pub(super) fn told(&mut self, now: Time, from: Option<PortId>, holding: Holding) {
        let holders = self.holdings.entry(holding.origin).or_default();
        if holders.get(&holding.holder).is_some_and(|&seq| seq >= holding.seq) {
            return;
        }
        holders.insert(holding.holder, holding.seq);
        self.flood(from, |port| port.push_holding(holding));
        // Survivors go through the stages together, whenever each has noticed.
        let stage = self.inbounds.get(&holding.origin).map(Inbound::stage);
        let lost = self.dead_at(now, holding.origin).is_some();
        match stage {
            Some(Stage::None) if lost => self.agenda.by(Timer::Recover(holding.origin), now),
            Some(Stage::Sent) => self.share(now, holding.origin),
            Some(_) => {}
            // Nothing has come of it: its word is kept for others as long as recovery takes.
            None => {
                let most = self.most() * 4 + self.config.patience;
                self.agenda.by(Timer::Recover(holding.origin), now.saturating_add(most));
            }
        }
    }
}

/// Patiences after which a daemon is forgotten that was given up.
const FORGET: u64 = 9;
