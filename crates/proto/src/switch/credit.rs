//! Credit: parts of the peer's window for the members, which together never exceed it.
//!
//! Each member may send up to an *edge*. Credits beyond what has arrived sum to at most the room at
//! the peer, so that a packet within its credit is never refused. A member's *demand* is twice the
//! packets that it sent in the longer of this period and the last one, so that a window can double
//! per round trip, and a reserve of a quarter of an even part. Room is divided max-min fairly over
//! the demands: a member above its part gets none back, those below get it. An only member has all.
//!
//! A member that sends no more keeps unused credit. While another lacks room, its edge is *cut*
//! back to its demand: a sender with nothing in flight accepts a smaller window. The room counts as
//! taken for another period, in which packets under the former edge may still arrive.

use tollway_law::Time;

use crate::transport::serial::{before, later};

use super::members::{Member, Outbox};

/// The credits of a session's members.
#[derive(Debug)]
pub(super) struct Credit {
    shares: Vec<Share>,
    /// The end of the present period.
    until: Time,
    /// The first member to receive room.
    turn: usize,
}

/// The credit of a member.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The first number that the member may not send.
    edge: u32,
    /// The member's next number when the period began, and the packets of the period before.
    begun: u32,
    used: u32,
    cut: Option<Cut>,
}

/// An edge that was reduced.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The former edge.
    edge: u32,
    /// The member's next number at the cut. If it sends more, the former edge stays valid.
    next: u32,
    /// The end of the former edge's validity.
    until: Time,
}

impl Credit {
    /// Credits of `members` whose numbers start at `first`: none yet.
    pub(super) fn new(members: usize, first: u32) -> Credit {
        Credit { shares: vec![Share::new(first); members], until: Time::ZERO, turn: 0 }
    }

    /// Adds a member, with `first` as its first number.
    pub(super) fn add(&mut self, first: u32) {
        self.shares.push(Share::new(first));
    }

    /// Starts member `k` anew, with `first` as its first number and without credit.
    pub(super) fn begin(&mut self, k: usize, first: u32) {
        self.shares[k] = Share::new(first);
    }

    /// The first number that member `k` may not send.
    pub(super) fn edge(&self, k: usize) -> u32 {
        self.shares[k].edge
    }

    /// Divides `free`, the room at the peer for packets that have not arrived. An acknowledgement is
    /// due to a member that had no credit and gets some, and to one whose edge is cut. A period
    /// ends at the first call after `period`.
    pub(super) fn divide(&mut self, now: Time, free: u32, period: Time, members: &mut [Member]) {
        if now >= self.until {
            // After a pause, the packets of the period before are old.
            let stale = now >= self.until.saturating_add(period);
            self.until = now.saturating_add(period);
            for (share, member) in self.shares.iter_mut().zip(members.iter()) {
                share.used = if stale { 0 } else { member.from.next.wrapping_sub(share.begun) };
                share.begun = member.from.next;
            }
        }
        let (mut count, mut total, mut promised) = (0, free, 0u32);
        for (share, member) in self.shares.iter_mut().zip(members.iter()) {
            if !sends(member) {
                continue;
            }
            share.settle(now, member.from.next);
            count += 1;
            total = total.saturating_add(member.from.len());
            promised = promised.saturating_add(share.promised(&member.from));
        }
        let reserve = if count == 1 { u32::MAX } else { (total / 4).checked_div(count).unwrap_or(0).max(1) };
        let level = self.level(total, reserve, members);
        let (mut left, mut short) = (free.saturating_sub(promised), None);
        for k in (self.turn..members.len()).chain(0..self.turn) {
            let (share, member) = (&mut self.shares[k], &mut members[k]);
            if !sends(member) {
                continue;
            }
            let has = member.from.len().saturating_add(share.promised(&member.from));
            let lacks = share.demand(reserve, &member.from).min(level).saturating_sub(has);
            let gets = lacks.min(left);
            if gets > 0 {
                share.edge = later(share.edge, member.from.next).wrapping_add(gets);
                left -= gets;
                member.from.owes |= member.from.starved;
            }
            if gets < lacks && short.is_none() {
                short = Some(k);
            }
        }
        if let Some(k) = short {
            self.turn = k;
            self.cut(now.saturating_add(period), reserve, members);
        }
    }

    /// The greatest part of a member, in packets: demands below it are met, and the rest of `total`
    /// is divided equally.
    fn level(&self, total: u32, reserve: u32, members: &[Member]) -> u32 {
        let mut level = 0;
        loop {
            let (mut rest, mut count) = (total, 0);
            for (share, member) in self.shares.iter().zip(members).filter(|(_, member)| sends(member)) {
                let demand = share.demand(reserve, &member.from);
                if demand <= level {
                    rest = rest.saturating_sub(demand);
                } else {
                    count += 1;
                }
            }
            if count == 0 {
                return u32::MAX;
            }
            let next = rest.div_ceil(count);
            if next <= level {
                return level;
            }
            level = next;
        }
    }

    /// Cuts the edges of members with nothing in flight back to their demand.
    fn cut(&mut self, until: Time, reserve: u32, members: &mut [Member]) {
        for (share, member) in self.shares.iter_mut().zip(members) {
            let (next, wants) = (member.from.next, share.demand(reserve, &member.from));
            let idle = member.from.len() == 0 && share.cut.is_none();
            if sends(member) && idle && share.promised(&member.from) > wants {
                share.cut = Some(Cut { edge: share.edge, next, until });
                share.edge = next.wrapping_add(wants);
                member.from.owes = true;
            }
        }
    }
}

impl Share {
    fn new(first: u32) -> Share {
        Share { edge: first, begun: first, used: 0, cut: None }
    }

    /// Ends a cut, by time or because the member sends.
    fn settle(&mut self, now: Time, next: u32) {
        let Some(cut) = self.cut else { return };
        if next != cut.next {
            (self.edge, self.cut) = (cut.edge, None);
        } else if now >= cut.until {
            self.cut = None;
        }
    }

    /// Packets that the member may still send.
    fn promised(&self, from: &Outbox) -> u32 {
        let edge = self.cut.map_or(self.edge, |cut| cut.edge);
        if before(from.next, edge) { edge.wrapping_sub(from.next) } else { 0 }
    }

    /// Packets that the member should be able to have under way.
    fn demand(&self, reserve: u32, from: &Outbox) -> u32 {
        let used = self.used.max(from.next.wrapping_sub(self.begun));
        used.saturating_mul(2).saturating_add(reserve)
    }
}

/// Returns true if the member may have data to send.
fn sends(member: &Member) -> bool {
    member.is_up() && !member.from.finished
}
