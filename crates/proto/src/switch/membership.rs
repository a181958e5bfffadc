//! Members that join an open session, and members that leave it.
//!
//! A *drained* member gets no new frames. Once its last frame is complete, it receives a FIN of its
//! own, so that it can answer what it has, and close. It stays a member until both directions are
//! over; then it is *done*, and does not count as failed. A member that is no longer drained opens
//! a new connection, once it is done with the former one.

use tollway_law::Time;

use crate::route::Candidate;

use super::members::{Health, Member};
use super::session::Session;

impl Session {
    /// Adds a member to the open session, for the operator to admit. Returns its index.
    pub(super) fn add_member(&mut self, candidate: Candidate) -> usize {
        let (k, first) = (self.members.len(), self.config.initial_segment);
        let mut member = Member::new(first);
        member.barred = true;
        self.members.push(member);
        self.router.candidates.push(Candidate { up: self.config.pinned, ..candidate });
        self.inbound.add();
        self.outbound.add(first);
        k
    }

    /// Sets the name and the weight by which the routing module sees member `k`.
    pub(super) fn set_candidate(&mut self, k: usize, name: u64, weight: u32) {
        if let Some(candidate) = self.router.candidates.get_mut(k) {
            (candidate.name, candidate.weight) = (name, weight);
        }
    }

    /// Drains member `k`, or ends its drain.
    pub(super) fn drain(&mut self, now: Time, k: usize, drain: bool) {
        let Some(member) = self.members.get_mut(k) else { return };
        member.drained = drain;
        let pinned = self.config.pinned;
        match (member.health, drain) {
            (Health::Up, _) => {
                self.router.candidates[k].up = !drain && !member.closing;
                self.leaving = true;
            }
            // It has no frames.
            (Health::Opening, true) => self.fail(k, now),
            (Health::Down, false) => {
                self.router.candidates[k].up = pinned;
                self.admit(k, now);
            }
            (Health::Down, true) => self.router.candidates[k].up = false,
            (Health::Opening, false) => {}
        }
        self.reschedule(now);
    }

    /// Sends a FIN to drained members whose frames are complete. Opens members anew that are done
    /// and no longer drained.
    pub(super) fn attend_leavers(&mut self, now: Time) {
        if !std::mem::take(&mut self.leaving) {
            return;
        }
        for k in 0..self.members.len() {
            let member = &self.members[k];
            match (member.is_up(), member.drained, member.closing) {
                (true, true, false) if self.inbound.is_open(k) => self.leaving = true,
                (true, true, false) => self.close_member(k, now),
                (true, false, true) if !member.is_done() => self.leaving = true,
                (true, false, true) => {
                    self.forget(k, now);
                    self.members[k].health = Health::Down;
                    self.admit(k, now);
                }
                _ => {}
            }
        }
    }

    fn close_member(&mut self, k: usize, now: Time) {
        let member = &mut self.members[k];
        member.closing = true;
        if member.to.fin.is_none() {
            let lsn = member.to.end();
            member.to.nulls.push(lsn, now, true);
            self.wake(now);
        }
    }
}
