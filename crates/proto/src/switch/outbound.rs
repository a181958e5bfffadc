//! From the members to the peer: packets are merged, acknowledgements spread.

use tollway_law::Time;
use tollway_law::session::Merge;

use crate::transport::serial::{before, later};
use crate::{Flags, Packet, SackRanges, Stamp};

use super::credit::Credit;
use super::members::Member;
use super::ring::{Loop, NONE, Nulls, Slot, Space, State};
use super::{Config, FlowControl, Stats};

/// The direction to the peer.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) space: Space,
    merge: Merge,
    /// The first number beyond the peer's window.
    edge: u32,
    /// The members' parts of it; `None` unless they have credit.
    credit: Option<Credit>,
    /// Numbers of members that failed.
    pub(super) nulls: Nulls,
    pub(super) round: Loop,
    /// The FIN's number.
    pub(super) fin: Option<u32>,
    /// The instant since which the peer has been waiting for `una`; later once its member is
    /// probed.
    pub(super) since: Time,
    /// The member whose data arrived last.
    last: usize,
    marked: Vec<bool>,
    gap: bool,
}

/// The destination of a member's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onward {
    /// To the peer.
    Peer,
    /// None: the member must be informed of the state.
    Nowhere,
    /// None: the member sends data that a session cannot carry.
    Refused,
}

impl Outbound {
    pub(super) fn new(config: &Config, members: usize) -> Outbound {
        let first = config.initial_segment;
        Outbound {
            space: Space::new(first, config.ring),
            merge: Merge::new(config.content, config.reading, members),
            edge: first,
            credit: (config.flow_control == FlowControl::Credit).then(|| Credit::new(members, first)),
            nulls: Nulls::default(),
            round: Loop::new(),
            fin: None,
            since: Time::ZERO,
            last: 0,
            marked: vec![false; members],
            gap: false,
        }
    }

    /// Adds a member, whose numbers start at `first`.
    pub(super) fn add(&mut self, first: u32) {
        self.merge.add();
        self.marked.push(false);
        if let Some(credit) = &mut self.credit {
            credit.add(first);
        }
    }

    /// Starts with `first` as the first packet to the peer.
    pub(super) fn begin(&mut self, first: u32) {
        self.space.begin(first);
    }

    /// Extends the peer's window up to `edge`; a lower value is ignored.
    pub(super) fn open(&mut self, edge: u32) -> bool {
        let more = before(self.edge, edge);
        self.edge = later(self.edge, edge);
        more
    }

    /// Packets beyond those that have arrived for which the peer has room.
    fn free(&self) -> u32 {
        if before(self.space.next, self.edge) { self.edge.wrapping_sub(self.space.next) } else { 0 }
    }

    /// Divides the peer's window over the members, if they have credit.
    pub(super) fn divide(&mut self, now: Time, members: &mut [Member]) {
        let free = self.free().min(self.space.room());
        if let Some(credit) = &mut self.credit {
            credit.divide(now, free, self.round.timeout(), members);
        }
    }

    /// Starts the numbers of member `k` at `first`.
    pub(super) fn admit(&mut self, k: usize, first: u32) {
        if let Some(credit) = &mut self.credit {
            credit.begin(k, first);
        }
    }

    /// Handles data of member `k`; renumbered if they are forwarded.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        k: usize,
        packet: &mut Packet,
        members: &mut [Member],
        stats: &mut Stats,
    ) -> Onward {
        let whole = packet.flags.has(Flags::FIRST) == packet.flags.has(Flags::LAST);
        if !whole && members.len() > 1 {
            return Onward::Refused;
        }
        let from = &mut members[k].from;
        let lsn = packet.seq;
        let ahead = lsn.wrapping_sub(from.next);
        if before(lsn, from.acked) {
            stats.duplicates += 1;
            return Onward::Nowhere;
        }
        let csn = if before(lsn, from.next) {
            let csn = from.csn(lsn);
            let slot = self.space.holds(csn).then(|| self.space.get(csn));
            let own = slot.filter(|slot| usize::from(slot.member) == k && slot.lsn == lsn);
            if own.is_none_or(|slot| slot.state.is_there()) {
                stats.duplicates += 1;
                return Onward::Nowhere;
            }
            csn
        } else {
            // A probe of a window that is closed passes.
            let free = self.free();
            let probes = ahead == 0 && self.space.len() == 0;
            if from.finished || ahead >= self.space.room() || (ahead >= free && !probes) {
                stats.refused += 1;
                return Onward::Nowhere;
            }
            if self.space.len() == 0 {
                self.since = now;
            }
            for _ in 0..ahead {
                let hole = Slot { member: k as u16, lsn: from.next, ..Slot::default() };
                from.push(self.space.push(hole));
            }
            let csn = self.space.push(Slot { member: k as u16, lsn, state: State::Sent, ..Slot::default() });
            from.push(csn);
            csn
        };
        let again = self.space.get(csn).size > 0;
        let due = packet.toll.due;
        if packet.flags.has(Flags::TOLLED) {
            self.merge.on_data(now, k, u32::from(packet.size), &mut packet.toll);
        }
        let (sent, size) = (packet.sent, packet.size);
        let slot = Slot { due, lsn, sent, member: k as u16, size, state: State::Sent, ..Slot::default() };
        self.space.fill(csn, slot);
        self.round.on_sent(now, csn, again);
        self.last = k;
        packet.seq = csn;
        Onward::Peer
    }

    /// Records that member `k` has no more data.
    pub(super) fn on_fin(&mut self, k: usize, packet: &Packet, members: &mut [Member]) {
        let from = &mut members[k].from;
        if before(packet.seq, from.next) {
            from.owes = true;
            return;
        }
        let ahead = packet.seq.wrapping_sub(from.next);
        if !from.finished && ahead < self.space.room() {
            for _ in 0..ahead {
                let hole = Slot { member: k as u16, lsn: from.next, ..Slot::default() };
                from.push(self.space.push(hole));
            }
            // The FIN itself has no number for the peer before all have finished.
            let lsn = from.push(self.space.next);
            from.finished = true;
            from.on_received(lsn);
        }
    }

    /// The number of the FIN to the peer, the first time that it is due: once no member has more
    /// data. Members that are drained may be followed by others, unless the peer has `ended`.
    pub(super) fn finish(&mut self, members: &[Member], ended: bool) -> Option<u32> {
        let up = || members.iter().filter(|member| member.is_up() || member.awaited);
        let stays = |member: &Member| ended || !member.closing;
        let done = up().any(stays) && up().all(|member| member.from.finished);
        if !done || self.fin.is_some() || self.space.room() == 0 {
            return None;
        }
        let fin = self.space.push(Slot { member: NONE, state: State::Sent, ..Slot::default() });
        self.fin = Some(fin);
        Some(fin)
    }

    /// Handles an acknowledgement of the peer. Sets [`Outbox::owes`] of the members it concerns,
    /// and returns the one that its packet serves best; `None` if it acknowledges a packet that was
    /// not sent.
    ///
    /// [`Outbox::owes`]: super::members::Outbox::owes
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        packet: &Packet,
        sack: &SackRanges,
        members: &mut [Member],
    ) -> Option<usize> {
        let advance = packet.ack.wrapping_sub(self.space.una);
        let old = advance > self.space.len();
        let missing = self.space.missing.front().is_some_and(|&csn| before(csn, packet.ack));
        if (old && !before(packet.ack, self.space.una)) || (!old && missing) {
            return None;
        }
        let stamp = packet.flags.has(Flags::STAMP_ECHO).then_some(packet.sent_echo);
        let mut best = None;
        let mut progress = false;
        if !old {
            let una = self.space.una;
            for csn in (0..advance).map(|i| una.wrapping_add(i)) {
                progress |= self.on_there(csn, stamp, members, &mut best);
            }
            if advance > 0 {
                self.since = now;
            }
            self.space.una = packet.ack;
            self.nulls.advance(packet.ack);
            self.round.on_acked(now, packet.ack);
        }
        for &(start, end) in sack.as_slice() {
            let (from, len) = (start.wrapping_sub(self.space.una), end.wrapping_sub(start));
            if from >= self.space.len() || len > self.space.len() - from {
                continue;
            }
            for csn in (0..len).map(|i| start.wrapping_add(i)) {
                if self.space.get(csn).state != State::Missing {
                    progress |= self.on_there(csn, stamp, members, &mut best);
                }
            }
        }
        let more = self.open(packet.ack.wrapping_add(packet.window.min(1 << 30)));
        if packet.flags.has(Flags::ECHO) {
            self.gap = packet.flags.has(Flags::GAP);
            self.merge.on_echo(now, packet.toll.echo);
        }
        if packet.flags.has(Flags::ECE) {
            self.marked.fill(true);
        }
        // Room that opened, or was given back, is news for those that were told of none.
        if self.credit.is_some() {
            self.divide(now, members);
        } else if more || progress {
            members
                .iter_mut()
                .filter(|member| member.from.starved)
                .for_each(|member| member.from.owes = true);
        }
        Some(best.or_else(|| self.waits_for()).unwrap_or(self.last))
    }

    /// Records that the peer has packet `csn`. Returns true if that is new.
    fn on_there(
        &mut self,
        csn: u32,
        stamp: Option<Stamp>,
        members: &mut [Member],
        best: &mut Option<usize>,
    ) -> bool {
        let slot = self.space.at(csn);
        if slot.state.is_there() {
            return false;
        }
        slot.state = State::Received;
        let slot = *slot;
        self.nulls.remove(csn);
        let k = usize::from(slot.member);
        let Some(member) = members.get_mut(k) else { return true };
        self.merge.on_acked(k, slot.due);
        member.from.on_received(slot.lsn);
        member.from.delivered.0 += u64::from(slot.size);
        member.from.delivered.1 += 1;
        let own = stamp.is_some_and(|stamp| stamp == slot.sent);
        if own {
            member.from.stamp = stamp;
        }
        if own || best.is_none() {
            *best = Some(k);
        }
        true
    }

    /// The time to probe the member whose packet the peer waits for.
    pub(super) fn asks_at(&self, patience: Time) -> Time {
        if self.space.len() == 0 { Time::NEVER } else { self.since.saturating_add(patience) }
    }

    /// The member whose packet the peer waits for.
    pub(super) fn waits_for(&self) -> Option<usize> {
        let una = self.space.una;
        let waits = self.space.holds(una).then(|| usize::from(self.space.get(una).member));
        waits.filter(|&k| k != usize::from(NONE))
    }

    /// Handles the failure of member `k`: null segments replace its packets that the peer lacks.
    /// Returns the number of lost packets.
    pub(super) fn fail(&mut self, k: usize, now: Time) -> u64 {
        let mut lost = 0;
        for csn in self.space.numbers() {
            let slot = self.space.get(csn);
            if usize::from(slot.member) != k || slot.state.is_there() {
                continue;
            }
            lost += 1;
            let gone = Slot { member: NONE, state: State::Sent, size: slot.size, ..Slot::default() };
            self.space.fill(csn, gone);
            // A packet under way to the peer may still arrive.
            let missing = slot.state == State::Missing;
            let due = if missing { now } else { now.saturating_add(self.round.timeout()) };
            self.nulls.push(csn, due, false);
        }
        self.merge.forget(k);
        self.marked[k] = false;
        if self.last == k {
            self.last = 0;
        }
        lost
    }

    /// Writes the acknowledgement of member `k`, on data or alone.
    pub(super) fn write(
        &mut self,
        now: Time,
        k: usize,
        packet: &mut Packet,
        sack: &mut SackRanges,
        members: &mut [Member],
        config: &Config,
    ) {
        let count = members.iter().filter(|member| !member.is_done()).count() as u32;
        let from = &mut members[k].from;
        packet.ack = from.acked;
        let capacity = self.space.len() + self.space.room();
        packet.window = match (&self.credit, config.flow_control) {
            (Some(credit), _) => later(credit.edge(k), from.next).wrapping_sub(from.acked),
            (None, FlowControl::Strict) => self.edge.wrapping_sub(self.space.una).min(capacity) / count,
            (None, _) => from.len() + self.free().min(self.space.room()),
        };
        from.starved = packet.window <= from.len();
        from.owes = false;
        sack.clear();
        from.report(sack, SackRanges::MAX);
        let clear = Flags::ECHO.0 | Flags::GAP.0 | Flags::ECE.0 | Flags::STAMP_ECHO.0;
        packet.flags = Flags(packet.flags.0 & !clear).with(Flags::ACK);
        packet.sent_echo = Stamp(0);
        if let Some(stamp) = from.stamp.take() {
            packet.sent_echo = stamp;
            packet.flags.set(Flags::STAMP_ECHO);
        }
        if let Some(echo) = self.merge.echo(now, k) {
            packet.toll.echo = echo;
            packet.flags.set(if self.gap { Flags::ECHO.with(Flags::GAP) } else { Flags::ECHO });
        }
        if std::mem::take(&mut self.marked[k]) {
            packet.flags.set(Flags::ECE);
        }
    }
}
