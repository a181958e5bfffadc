//! Members of a session: the numbers of each, and whether it answers.

use std::collections::VecDeque;

use tollway_law::Time;

use crate::transport::early::{Early, EarlySlot};
use crate::transport::ring::Ring;
use crate::transport::serial::{before, later};
use crate::{SackRanges, Stamp};

use super::ring::{Kind, Line, Loop, Nulls};

/// A member's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The member takes no frames.
    Down,
    /// A SYN to the member was sent, or is due.
    Opening,
    /// The member is connected.
    Up,
}

/// A member of a session.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) health: Health,
    /// True if the operator keeps it down.
    pub(super) barred: bool,
    /// True if it gets no new frames.
    pub(super) drained: bool,
    /// True if a FIN was sent or is due to it alone.
    pub(super) closing: bool,
    /// True if it has not connected yet, and may still have data to send.
    pub(super) awaited: bool,
    pub(super) to: Inbox,
    pub(super) from: Outbox,
    /// Its SYN, and the latest of its packets: each by its clock and by ours.
    born: Option<(Stamp, Time)>,
    latest: Option<(Stamp, Time)>,
    /// Number of its connections so far.
    lives: u8,
    silent: Option<Silence>,
    /// The time of the next SYN. While the member is up, it is a SYN that answers the member's,
    /// until a packet shows that it arrived.
    pub(super) syn_at: Time,
    /// Pending packets to it, apart from acknowledgements. A reset holds the number that the member
    /// expects and the one expected from it; a SYN is with an acknowledgement.
    pub(super) reset: Option<(u32, u32)>,
    pub(super) greet: bool,
    /// True to repeat a packet that it has, as a probe.
    pub(super) probe: bool,
}

/// The time for which a member owes an answer.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Time,
    /// Packets sent to it since.
    packets: u32,
    /// The time at which [`UNANSWERED`] packets had been sent.
    enough: Time,
}

impl Member {
    pub(super) fn new(first: u32) -> Member {
        Member {
            health: Health::Down,
            barred: false,
            drained: false,
            closing: false,
            awaited: false,
            to: Inbox::new(first),
            from: Outbox::new(first),
            born: None,
            latest: None,
            lives: 0,
            silent: None,
            syn_at: Time::NEVER,
            reset: None,
            greet: false,
            probe: false,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.health == Health::Up
    }

    /// Returns true if it is up and may get new frames.
    pub(super) fn takes_frames(&self) -> bool {
        self.is_up() && !self.drained && !self.closing
    }

    /// Returns true if it was drained, and both directions are over.
    pub(super) fn is_done(&self) -> bool {
        self.closing && self.to.finished && self.from.finished && self.from.len() == 0
    }

    /// Starts a new connection, with `first` as the member's first number, and `covered` as the
    /// session's. The switch's numbers start elsewhere each time if it `opens`, so that old packets
    /// in flight match none of them.
    pub(super) fn begin(&mut self, first: u32, covered: u32, opens: bool) {
        let life = if opens { u32::from(self.lives) << 24 } else { 0 };
        self.lives = self.lives.wrapping_add(1);
        let (to, from) = (self.to.delivered, self.from.delivered);
        self.to = Inbox { covered, delivered: to, ..Inbox::new(first.wrapping_add(life)) };
        self.from = Outbox { delivered: from, ..Outbox::new(first) };
        (self.silent, self.born) = (None, None);
        (self.reset, self.greet, self.probe, self.closing) = (None, false, false, false);
    }

    /// Records its SYN, sent at `sent`.
    pub(super) fn on_born(&mut self, now: Time, sent: Stamp) {
        self.born = Some((sent, now));
        self.on_heard(now, sent);
    }

    /// Returns true if a packet sent at `sent` comes from the process before.
    pub(super) fn is_stale(&self, now: Time, sent: Stamp) -> bool {
        self.is_up() && self.born.is_some_and(|born| is_later(now, sent, born) == Some(false))
    }

    /// Returns true if the process may have sent a packet at `sent`: the peer may echo the SYN of
    /// another member.
    pub(super) fn may_have_sent(&self, now: Time, sent: Stamp) -> bool {
        self.born.is_some_and(|(stamp, came)| {
            sent.0.wrapping_sub(stamp.0) <= Stamp::at(now).0.wrapping_sub(Stamp::at(came).0)
        })
    }

    /// Returns true if a packet of the switch itself may be due to it.
    pub(super) fn has_work(&self) -> bool {
        let due = self.reset.is_some() || self.greet || self.from.owes || self.probe;
        due || self.health == Health::Opening || !self.to.nulls.is_empty()
    }

    /// Records a packet that must be answered. Returns true if that makes enough unanswered ones.
    pub(super) fn expect(&mut self, now: Time) -> bool {
        let first = Silence { since: now, packets: 0, enough: Time::NEVER };
        let silence = self.silent.get_or_insert(first);
        silence.packets = silence.packets.saturating_add(1);
        let enough = silence.packets == UNANSWERED;
        if enough {
            silence.enough = now;
        }
        enough
    }

    /// Records a packet of an open connection from it.
    pub(super) fn on_heard(&mut self, now: Time, sent: Stamp) {
        self.silent = None;
        if self.latest.is_none_or(|latest| is_later(now, sent, latest) != Some(false)) {
            self.latest = Some((sent, now));
        }
    }

    /// Returns true if a SYN sent at `sent` comes from a new process: it is later than all other
    /// packets, and the previous process had sent more than its SYN.
    pub(super) fn has_restarted(&self, now: Time, sent: Stamp) -> bool {
        let begun = self.born.map(|born| born.0) != self.latest.map(|latest| latest.0);
        let later = self.latest.is_none_or(|latest| is_later(now, sent, latest) != Some(false));
        self.is_up() && begun && later && self.latest.is_none_or(|latest| latest.0 != sent)
    }

    /// The time at which it counts as dead: after a silence of `patience` and [`UNANSWERED`]
    /// packets, once the last of these had time to be answered. [`Time::NEVER`] otherwise.
    pub(super) fn dead_at(&self, patience: Time) -> Time {
        self.silent.map_or(Time::NEVER, |silence| {
            let answered = silence.enough.saturating_add(self.to.round.timeout());
            silence.since.saturating_add(patience).max(answered)
        })
    }
}

/// Returns true if `sent` is not earlier than a stamp that arrived at an instant of ours; `None` if
/// that was so long ago that stamps are ambiguous.
fn is_later(now: Time, sent: Stamp, (stamp, came): (Stamp, Time)) -> Option<bool> {
    let comparable = now.saturating_sub(came) < Stamp::REACH;
    comparable.then(|| !before(sent.0, stamp.0))
}

/// Fewer packets in a row may all be lost by chance.
const UNANSWERED: u32 = 6;

/// The packets to a member, by local number.
#[derive(Debug)]
pub(super) struct Inbox {
    lines: Ring<Line>,
    /// Its first number after the SYN.
    pub(super) first: u32,
    /// The first number that it has not acknowledged, and the next one to assign.
    pub(super) una: u32,
    pub(super) next: u32,
    /// The first number beyond its window.
    pub(super) edge: u32,
    /// The first connection number that its local numbers do not cover.
    pub(super) covered: u32,
    /// Numbers held for missing packets: connection number, local number.
    pub(super) holes: VecDeque<(u32, u32)>,
    pub(super) nulls: Nulls,
    pub(super) round: Loop,
    /// Numbers before this one have been checked for losses.
    pub(super) checked: u32,
    /// The FIN's number, and whether it is acknowledged.
    pub(super) fin: Option<u32>,
    pub(super) finished: bool,
    /// Bytes and packets acknowledged, over all its connections.
    pub(super) delivered: (u64, u64),
}

impl Inbox {
    fn new(first: u32) -> Inbox {
        Inbox {
            lines: Ring::new(),
            first,
            una: first,
            next: first,
            edge: first,
            covered: first,
            holes: VecDeque::new(),
            nulls: Nulls::default(),
            round: Loop::new(),
            checked: first,
            fin: None,
            finished: false,
            delivered: (0, 0),
        }
    }

    /// Count of numbers assigned and not acknowledged.
    pub(super) fn len(&self) -> u32 {
        self.next.wrapping_sub(self.una)
    }

    /// The line of a number that is assigned and not acknowledged.
    pub(super) fn line(&self, lsn: u32) -> Line {
        self.lines.get(lsn)
    }

    /// Count of numbers within its window beyond those assigned.
    pub(super) fn room(&self) -> u32 {
        if before(self.next, self.edge) { self.edge.wrapping_sub(self.next) } else { 0 }
    }

    fn push(&mut self, line: Line) -> u32 {
        let lsn = self.next;
        self.lines.reserve(self.una, self.len() + 1);
        *self.lines.at(lsn) = line;
        self.next = lsn.wrapping_add(1);
        lsn
    }

    /// The number of the FIN, the last one.
    pub(super) fn end(&mut self) -> u32 {
        let lsn = self.push(Line { csn: self.covered, kind: Kind::Fin });
        self.fin = Some(lsn);
        lsn
    }

    /// The number of packet `csn`: the one held for it, or a new one after those held for the
    /// packets `missing` before it. Also returns true if later packets have lower numbers here.
    ///
    /// Such a late packet takes the first number held for another one. That one may arrive later
    /// still, and beyond a window full of packets after the gap there is no room.
    pub(super) fn take(&mut self, csn: u32, kind: Kind, missing: impl Iterator<Item = u32>) -> (u32, bool) {
        if let Some(lsn) = self.release(csn) {
            self.lines.at(lsn).kind = kind;
            return (lsn, false);
        }
        let late = before(csn, self.covered);
        if late && let Some((_, lsn)) = self.holes.pop_front() {
            *self.lines.at(lsn) = Line { csn, kind };
            return (lsn, true);
        }
        if !late {
            for csn in missing {
                let lsn = self.push(Line { csn, kind: Kind::Hole });
                self.holes.push_back((csn, lsn));
            }
            self.covered = csn.wrapping_add(1);
        }
        (self.push(Line { csn, kind }), late)
    }

    /// Counts the delivery of a packet of this size.
    pub(super) fn count(&mut self, size: Option<u16>) {
        let Some(size) = size else { return };
        self.delivered.0 += u64::from(size);
        self.delivered.1 += 1;
    }

    /// Packets under numbers that it has not acknowledged.
    pub(super) fn packets(&self) -> impl Iterator<Item = u32> {
        let lines = (0..self.len()).map(|i| self.line(self.una.wrapping_add(i)));
        lines.filter(|line| line.kind == Kind::Packet).map(|line| line.csn)
    }

    /// Releases the number held for packet `csn`.
    fn release(&mut self, csn: u32) -> Option<u32> {
        let at = self.holes.iter().take_while(|hole| !before(csn, hole.0)).position(|hole| hole.0 == csn)?;
        self.holes.remove(at).map(|hole| hole.1)
    }

    /// Turns the number held for packet `csn`, which went elsewhere, into a null segment.
    pub(super) fn nullify(&mut self, csn: u32, now: Time) -> bool {
        let Some(lsn) = self.release(csn) else { return false };
        self.lines.at(lsn).kind = Kind::Null;
        self.nulls.push(lsn, now, false);
        true
    }
}

/// The packets from a member, by local number, and their acknowledgement.
#[derive(Debug)]
pub(super) struct Outbox {
    lines: Ring<u32>,
    /// The first number that the peer has not received, and the first that has not arrived.
    pub(super) acked: u32,
    pub(super) next: u32,
    /// Numbers beyond `acked` that the peer has.
    early: Early,
    /// True once its FIN has arrived.
    pub(super) finished: bool,
    /// True if an acknowledgement is due.
    pub(super) owes: bool,
    /// True if its window was closed.
    pub(super) starved: bool,
    /// The stamp that the next packet to it echoes.
    pub(super) stamp: Option<Stamp>,
    /// Bytes and packets of it that the peer has, over all its connections.
    pub(super) delivered: (u64, u64),
}

impl Outbox {
    fn new(first: u32) -> Outbox {
        Outbox {
            lines: Ring::new(),
            acked: first,
            next: first,
            early: Early::new(),
            finished: false,
            owes: false,
            starved: false,
            stamp: None,
            delivered: (0, 0),
        }
    }

    /// Count of numbers that have arrived, or are held, and that the peer lacks.
    pub(super) fn len(&self) -> u32 {
        self.next.wrapping_sub(self.acked)
    }

    /// The connection number of a number from `acked` to `next`.
    pub(super) fn csn(&self, lsn: u32) -> u32 {
        self.lines.get(lsn)
    }

    /// Assigns the next number to packet `csn`.
    pub(super) fn push(&mut self, csn: u32) -> u32 {
        let lsn = self.next;
        self.lines.reserve(self.acked, self.len() + 1);
        *self.lines.at(lsn) = csn;
        self.next = lsn.wrapping_add(1);
        lsn
    }

    /// Records that the peer has `lsn`.
    pub(super) fn on_received(&mut self, lsn: u32) {
        self.owes = true;
        if lsn != self.acked {
            self.early.insert(lsn, EarlySlot::default(), self.acked);
            return;
        }
        self.acked = lsn.wrapping_add(1);
        if let Some(end) = self.early.take_first(self.acked) {
            self.acked = later(self.acked, end);
        }
    }

    /// The ranges that the peer has beyond `acked`.
    pub(super) fn report(&self, sack: &mut SackRanges, most: usize) {
        self.early.report(sack, most);
    }
}
