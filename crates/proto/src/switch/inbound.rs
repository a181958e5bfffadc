//! From the peer to the members: packets are spread, acknowledgements merged.

use tollway_law::Time;
use tollway_law::session::{ReceiveRatio, Split};

use crate::route::{Candidate, Item, Route, mix};
use crate::transport::early::{Early, EarlySlot};
use crate::transport::serial::{before, later};
use crate::{Flags, Packet, SackRanges};

use super::members::Member;
use super::ring::{Kind, NONE, Slot, Space, State};
use super::{Config, FlowControl, FrameStart, Stats};

/// The routing module of a session, and the members as it sees them.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) session: u64,
    pub(super) route: Module,
    pub(super) candidates: Vec<Candidate>,
}

/// A routing module, with an opaque debug output.
pub(super) struct Module(pub(super) Box<dyn Route + Send>);

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Route")
    }
}

/// The direction from the peer.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) space: Space,
    /// The end of the ranges that may be reported to the peer. For each packet in flight before it,
    /// the member has reported a later one. Beyond it, packets on longer paths would look lost.
    front: u32,
    /// The packets that members have between `una` and `front`.
    received: Early,
    /// True if the peer has not been informed of all of them.
    unreported: bool,
    /// The member of the packet before `una`, if its frame continues.
    unfinished: Option<u16>,
    pub(super) ratio: ReceiveRatio,
    split: Split,
    /// The FIN's number.
    pub(super) fin: Option<u32>,
    /// True if a toll's echo is due to the peer.
    echoed: bool,
    marked: bool,
    gap: bool,
}

/// The effect of a member's acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// True if the member has received more than before.
    pub(super) progress: bool,
    /// True if the peer must be informed.
    pub(super) news: bool,
    /// True if the member has room for more.
    pub(super) room: bool,
}

/// The destination of a new packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Member(usize),
    /// None: it is a null segment.
    Nowhere,
    /// None: its frame began at a member that has failed.
    Lost,
    /// Unknown until the packet before it has arrived, or while no member is up.
    Unknown,
}

impl Inbound {
    pub(super) fn new(config: &Config, members: usize) -> Inbound {
        let first = config.initial_segment;
        Inbound {
            space: Space::new(first, config.ring),
            front: first,
            received: Early::new(),
            unreported: false,
            unfinished: None,
            ratio: ReceiveRatio::new(members, config.ratio_window),
            split: Split::new(config.content, config.reading, members),
            fin: None,
            echoed: false,
            marked: false,
            gap: false,
        }
    }

    /// Adds a member.
    pub(super) fn add(&mut self) {
        self.ratio.add();
        self.split.add();
    }

    /// Starts with `first` as the peer's first packet.
    pub(super) fn begin(&mut self, first: u32) {
        self.space.begin(first);
        self.front = first;
    }

    /// Handles a data packet of the peer. Returns the member that it goes to, renumbered; `None` if
    /// it ends here, and the peer must be informed of the state.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        (packet, content): (&mut Packet, Option<FrameStart<'_>>),
        members: &mut [Member],
        router: &mut Router,
        config: &Config,
        stats: &mut Stats,
    ) -> Option<usize> {
        let csn = packet.seq;
        if !self.space.reaches(csn) {
            let old = before(csn, self.space.una);
            *(if old { &mut stats.duplicates } else { &mut stats.refused }) += 1;
            return None;
        }
        let known = self.space.holds(csn);
        if known {
            let slot = self.space.get(csn);
            if slot.state == State::Delivered || self.fin == Some(csn) {
                stats.duplicates += 1;
                return None;
            }
            // Also what is there and not acknowledged: the acknowledgement may be lost.
            if slot.state != State::Missing && slot.member != NONE {
                let k = usize::from(slot.member);
                packet.seq = slot.lsn;
                let due = self.price(k, packet);
                if !slot.state.is_there() {
                    self.space.at(csn).due = due;
                }
                members[k].to.round.on_sent(now, slot.lsn, true);
                return Some(k);
            }
        }
        let choice = self.choose(packet, content, members, router, config);
        if choice == Choice::Unknown {
            stats.refused += 1;
            return None;
        }
        if !known {
            while self.space.next != csn {
                self.space.push(Slot { member: NONE, ..Slot::default() });
            }
        }
        let inside = packet.flags.has(Flags::FIRST) || self.previous(csn).is_some_and(|(_, open)| open);
        let open = inside && !packet.flags.has(Flags::LAST);
        let Choice::Member(k) = choice else {
            stats.lost += u64::from(choice == Choice::Lost);
            self.settle(csn, open, now, members, stats);
            self.advance();
            return None;
        };
        stats.rerouted += u64::from(known && self.space.get(csn).state != State::Missing);
        // Of a packet that does not come for the first time, what others hold was given up before.
        let missing = self.space.missing_within(members[k].to.covered, csn);
        let (lsn, late) = members[k].to.take(csn, Kind::Packet, missing);
        let others = members.iter_mut().enumerate().filter(|(j, _)| *j != k);
        others.for_each(|(_, member)| stats.nulls += u64::from(member.to.nullify(csn, now)));
        members[k].to.round.on_sent(now, lsn, false);
        self.ratio.on_frame(k, u32::from(packet.size));
        let due = self.price(k, packet);
        router.candidates[k].outstanding += u64::from(packet.size);
        let slot = Slot {
            due,
            lsn,
            sent: packet.sent,
            member: k as u16,
            size: packet.size,
            state: State::Sent,
            open,
            late,
        };
        self.put(csn, slot);
        packet.seq = lsn;
        Some(k)
    }

    fn put(&mut self, csn: u32, slot: Slot) {
        if self.space.holds(csn) {
            self.space.fill(csn, slot);
        } else {
            self.space.push(slot);
        }
    }

    /// Converts the toll of a packet to member `k`. Returns its `due` behind the switch.
    fn price(&mut self, k: usize, packet: &mut Packet) -> f64 {
        if !packet.flags.has(Flags::TOLLED) {
            return 0.0;
        }
        self.split.on_data(k, u32::from(packet.size), &self.ratio, &mut packet.toll);
        packet.toll.due
    }

    /// The member of the packet before `csn`, and whether its frame continues; `None` if unknown.
    fn previous(&self, csn: u32) -> Option<(u16, bool)> {
        let last = csn.wrapping_sub(1);
        if csn == self.space.una {
            return Some(self.unfinished.map_or((NONE, false), |member| (member, true)));
        }
        self.is_placed(last).then(|| self.space.get(last)).map(|slot| (slot.member, slot.open))
    }

    /// Returns true if a frame at member `k` continues in a packet that has not arrived.
    pub(super) fn is_open(&self, k: usize) -> bool {
        let continues = |csn: u32| self.previous(csn) == Some((k as u16, true)) && !self.is_placed(csn);
        continues(self.space.una) || self.space.numbers().any(|csn| continues(csn.wrapping_add(1)))
    }

    /// Returns true if a packet has arrived, and its destination is known.
    fn is_placed(&self, csn: u32) -> bool {
        let slot = self.space.holds(csn).then(|| self.space.get(csn));
        slot.is_some_and(|slot| slot.state.is_there() || slot.member != NONE)
    }

    /// Selects the destination of a new packet.
    fn choose(
        &self,
        packet: &Packet,
        content: Option<FrameStart<'_>>,
        members: &[Member],
        router: &mut Router,
        config: &Config,
    ) -> Choice {
        let is_up = |k: usize| members.get(k).is_some_and(Member::is_up);
        if !packet.flags.has(Flags::FIRST) {
            let Some((member, open)) = self.previous(packet.seq) else { return Choice::Unknown };
            if open {
                let k = usize::from(member);
                return if is_up(k) { Choice::Member(k) } else { Choice::Lost };
            }
            if !packet.flags.has(Flags::LAST) && packet.size <= config.header {
                return Choice::Nowhere;
            }
        }
        let (session, size) = (router.session, u32::from(packet.size));
        let FrameStart { key, frame } = content.unwrap_or(FrameStart { key: None, frame: &[] });
        let key = key.unwrap_or_else(|| mix(session ^ u64::from(packet.seq)));
        let item = Item { session, key, size, frame };
        let takes = |&k: &usize| members.get(k).is_some_and(Member::takes_frames);
        let k = router.route.0.pick(&item, &router.candidates).filter(takes);
        k.map_or(Choice::Unknown, Choice::Member)
    }

    /// Marks packet `csn` as one that goes to no member.
    fn settle(&mut self, csn: u32, open: bool, now: Time, members: &mut [Member], stats: &mut Stats) {
        let slot = Slot { member: NONE, state: State::Delivered, open, ..Slot::default() };
        self.put(csn, slot);
        members.iter_mut().for_each(|member| stats.nulls += u64::from(member.to.nullify(csn, now)));
        if before(csn, self.front) {
            self.received.insert(csn, EarlySlot::default(), self.space.una);
        }
    }

    /// Handles the peer's FIN, which goes to all members.
    pub(super) fn on_fin(&mut self, now: Time, csn: u32, members: &mut [Member]) {
        if self.fin.is_none() {
            if before(csn, self.space.next) || !self.space.reaches(csn) {
                return;
            }
            while self.space.next != csn {
                self.space.push(Slot { member: NONE, ..Slot::default() });
            }
            self.space.push(Slot { member: NONE, state: State::Sent, ..Slot::default() });
            self.fin = Some(csn);
        }
        let Some(fin) = self.fin else { return };
        for member in members.iter_mut().filter(|member| member.is_up() && member.to.fin.is_none()) {
            let missing = self.space.missing_within(member.to.covered, fin);
            let (lsn, _) = member.to.take(fin, Kind::Fin, missing);
            member.to.fin = Some(lsn);
            member.to.nulls.push(lsn, now, true);
        }
    }

    /// Handles an acknowledgement of member `k`; `None` if it acknowledges a packet that was not
    /// sent.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        k: usize,
        packet: &Packet,
        sack: &SackRanges,
        members: &mut [Member],
        router: &mut Router,
    ) -> Option<Heard> {
        let to = &mut members[k].to;
        let advance = packet.ack.wrapping_sub(to.una);
        let old = advance > to.len();
        let held = to.holes.front().is_some_and(|hole| before(hole.1, packet.ack));
        if (old && !before(packet.ack, to.una)) || held {
            return None;
        }
        let mut heard = Heard::default();
        let edge = packet.ack.wrapping_add(packet.window.min(MAX_WINDOW));
        if before(to.edge, edge) {
            (to.edge, heard.room) = (edge, true);
        }
        if !old && advance > 0 {
            heard.progress = true;
            let una = to.una;
            for lsn in (0..advance).map(|i| una.wrapping_add(i)) {
                let line = to.line(lsn);
                match line.kind {
                    Kind::Packet => to.count(self.on_there(k, line.csn, State::Delivered, router)),
                    Kind::Fin => to.finished = true,
                    Kind::Null | Kind::Hole => {}
                }
            }
            to.una = packet.ack;
            to.checked = later(to.checked, to.una);
            to.nulls.advance(to.una);
            to.round.on_acked(now, to.una);
        }
        let highest = self.on_ranges(k, sack, members, router, &mut heard);
        if let Some(highest) = highest {
            self.find_losses(k, highest, &mut members[k]);
        }
        self.check_fin(members);
        heard.news = self.advance() | (heard.progress && self.fin_done());
        self.marked |= packet.flags.has(Flags::ECE);
        if packet.flags.has(Flags::ECHO) {
            self.echoed = true;
            self.gap |= packet.flags.has(Flags::GAP);
            self.split.on_echo(k, packet.toll.echo);
        }
        Some(heard)
    }

    /// Records the ranges that a member has received after a gap. Returns the highest number.
    fn on_ranges(
        &mut self,
        k: usize,
        sack: &SackRanges,
        members: &mut [Member],
        router: &mut Router,
        heard: &mut Heard,
    ) -> Option<u32> {
        let to = &mut members[k].to;
        let mut highest = None;
        for &(start, end) in sack.as_slice() {
            let (from, len) = (start.wrapping_sub(to.una), end.wrapping_sub(start));
            if from >= to.len() || len == 0 || len > to.len() - from {
                continue;
            }
            for lsn in (0..len).map(|i| start.wrapping_add(i)) {
                let line = to.line(lsn);
                match line.kind {
                    Kind::Packet if self.space.lacks(line.csn) => {
                        to.count(self.on_there(k, line.csn, State::Received, router));
                        heard.progress = true;
                    }
                    Kind::Null => to.nulls.remove(lsn),
                    _ => {}
                }
            }
            let last = end.wrapping_sub(1);
            highest = Some(highest.map_or(last, |most| later(most, last)));
        }
        highest
    }

    /// Records that member `k` has packet `csn`. Returns its size if that delivers it.
    fn on_there(&mut self, k: usize, csn: u32, state: State, router: &mut Router) -> Option<u16> {
        // A late one may be done with.
        let slot = self.space.holds(csn).then(|| self.space.at(csn))?;
        let known = slot.state.is_there();
        // A late packet waits for others at its member. The peer sends those once this one is
        // acknowledged.
        slot.state = if slot.late { State::Delivered } else { state };
        let Slot { due, size, late, .. } = *slot;
        if !known {
            self.split.on_acked(k, due);
            let load = &mut router.candidates[k].outstanding;
            *load = load.saturating_sub(u64::from(size));
            if before(csn, self.front) {
                self.received.insert(csn, EarlySlot::default(), self.space.una);
                self.unreported = true;
            }
        }
        (if late { !known } else { state == State::Delivered }).then_some(size)
    }

    /// Declares packets before the highest one reported lost. How many later ones make a loss is
    /// for the peer to decide.
    fn find_losses(&mut self, k: usize, highest: u32, member: &mut Member) {
        let to = &mut member.to;
        while before(to.checked, highest) {
            let line = to.line(to.checked);
            to.checked = to.checked.wrapping_add(1);
            if line.kind == Kind::Packet && self.space.lacks(line.csn) {
                let slot = self.space.at(line.csn);
                if slot.state == State::Sent && usize::from(slot.member) == k {
                    slot.state = State::Lost;
                }
            }
        }
    }

    /// Handles the removal of a member, which the FIN may have waited for.
    pub(super) fn on_left(&mut self, members: &[Member]) {
        self.check_fin(members);
        self.advance();
    }

    /// The FIN is delivered once all members that are up have acknowledged it.
    fn check_fin(&mut self, members: &[Member]) {
        if let Some(fin) = self.fin.filter(|&fin| self.space.holds(fin))
            && members.iter().filter(|member| member.is_up()).all(|member| member.to.finished)
        {
            self.space.at(fin).state = State::Delivered;
        }
    }

    pub(super) fn fin_done(&self) -> bool {
        self.fin.is_some_and(|fin| before(fin, self.space.una))
    }

    /// Advances `una` and `front` as far as possible. Returns true if the peer must be informed.
    fn advance(&mut self) -> bool {
        let una = self.space.una;
        while self.space.len() > 0 && self.space.get(self.space.una).state == State::Delivered {
            let slot = self.space.get(self.space.una);
            self.unfinished = slot.open.then_some(slot.member);
            self.space.una = self.space.una.wrapping_add(1);
        }
        self.received.advance(self.space.una);
        self.front = later(self.front, self.space.una);
        while self.front != self.space.next {
            let state = self.space.get(self.front).state;
            if state == State::Sent {
                break;
            }
            if state.is_there() {
                self.received.insert(self.front, EarlySlot::default(), self.space.una);
                self.unreported = true;
            }
            self.front = self.front.wrapping_add(1);
        }
        una != self.space.una || self.unreported
    }

    /// Handles the failure of member `k`: its unacknowledged packets go to others once the peer
    /// retransmits them. Returns the number of packets that it had reported and not delivered,
    /// which are lost.
    pub(super) fn fail(&mut self, k: usize, members: &[Member], router: &mut Router) -> u64 {
        let done = |csn: &u32| !self.space.holds(*csn) || self.space.get(*csn).state == State::Delivered;
        let mut lost = members[k].to.packets().filter(done).count() as u64;
        for csn in self.space.numbers() {
            let told = before(csn, self.front);
            let slot = self.space.at(csn);
            if usize::from(slot.member) != k {
                continue;
            }
            match slot.state {
                State::Missing | State::Delivered => continue,
                // The peer was told that it is received, and will not send it again.
                State::Received if told => {
                    slot.state = State::Delivered;
                    lost += 1;
                }
                State::Received | State::Sent | State::Lost => {
                    (slot.state, slot.member) = (State::Lost, NONE);
                }
            }
        }
        router.candidates[k].outstanding = 0;
        self.ratio.forget(k);
        self.split.forget(k);
        self.advance();
        lost
    }

    /// The member that the peer waits for; `None` if it waits for none.
    pub(super) fn holder(&self) -> Option<usize> {
        let slot = self.space.holds(self.space.una).then(|| self.space.get(self.space.una))?;
        (slot.state != State::Missing).then_some(usize::from(slot.member))
    }

    /// Writes the acknowledgement of the members, on data or alone.
    pub(super) fn write(
        &mut self,
        now: Time,
        packet: &mut Packet,
        sack: &mut SackRanges,
        members: &[Member],
        config: &Config,
    ) {
        packet.ack = self.space.una;
        self.unreported = false;
        packet.window = self.window(members, config);
        sack.clear();
        self.received.report(sack, SackRanges::MAX);
        let clear = Flags::ECHO.0 | Flags::GAP.0 | Flags::ECE.0;
        packet.flags = Flags(packet.flags.0 & !clear).with(Flags::ACK);
        if std::mem::take(&mut self.echoed) {
            packet.toll.echo = self.split.echo(now, &self.ratio);
            packet.flags.set(Flags::ECHO);
            if std::mem::take(&mut self.gap) {
                packet.flags.set(Flags::GAP);
            }
        }
        if std::mem::take(&mut self.marked) {
            packet.flags.set(Flags::ECE);
        }
    }

    /// Packets from `una` on that the peer may send.
    fn window(&self, members: &[Member], config: &Config) -> u32 {
        let up = || members.iter().enumerate().filter(|(_, member)| member.takes_frames());
        let capacity = self.space.len() + self.space.room();
        match config.flow_control {
            FlowControl::Strict => {
                let windows = up().map(|(_, member)| member.to.edge.wrapping_sub(member.to.una));
                windows.min().unwrap_or(0).min(capacity)
            }
            // As many more as the member with the least room for its part allows.
            FlowControl::Credit | FlowControl::Soft => {
                let parts = up().map(|(k, member)| (f64::from(member.to.room()), self.ratio.of(k)));
                let rooms = parts.filter(|&(_, beta)| beta > 0.0).map(|(room, beta)| room / beta);
                let more = rooms.fold(f64::INFINITY, f64::min);
                let more = if more.is_finite() { more } else { 0.0 };
                // The cast saturates.
                self.space.len().saturating_add(more as u32).min(capacity)
            }
        }
    }
}

/// The largest window of a member.
const MAX_WINDOW: u32 = 1 << 30;
