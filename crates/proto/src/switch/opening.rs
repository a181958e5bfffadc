//! The handshakes of a session, and the admission of members to an open session.

use tollway_law::Time;
use tracing::debug;

use crate::{Flags, Packet, SackRanges};

use super::members::{Health, Member};
use super::session::{Opener, Session, Stage, answered};

impl Session {
    /// Handles a SYN or SYN+ACK of the peer. Returns the side to which it is forwarded.
    pub(super) fn on_peer_syn(&mut self, now: Time, packet: &mut Packet) -> Option<u32> {
        let first = self.first();
        if packet.flags.has(Flags::ACK) {
            if packet.ack != first || packet.seq.wrapping_add(1) != first {
                return None;
            }
            if let (Stage::Opening, Some(Opener::Members(k))) = (self.stage, self.opener) {
                self.begin();
                self.outbound.open(first.wrapping_add(packet.window));
                let echo = packet.flags.has(Flags::STAMP_ECHO).then_some(packet.sent_echo);
                self.members[k].from.stamp = echo.filter(|&echo| self.members[k].may_have_sent(now, echo));
                self.outbound.on_ack(now, packet, &SackRanges::EMPTY, &mut self.members);
            }
            self.answer = self.stage == Stage::Open;
            return None;
        }
        if !self.config.handshake || packet.seq.wrapping_add(1) != first {
            return None;
        }
        match (self.stage, self.opener) {
            (Stage::Idle, _) => {
                (self.stage, self.opener) = (Stage::Opening, Some(Opener::Peer));
                self.greeting = Some(packet.sent);
                self.await_members(now);
                (0..self.members.len()).for_each(|k| self.admit(k, now));
            }
            (Stage::Open, Some(Opener::Peer)) => {
                self.greeting = Some(packet.sent);
                self.greet = true;
                return None;
            }
            _ => {}
        }
        let k = self.members.iter().position(|member| member.health == Health::Opening)?;
        packet.seq = self.members[k].to.first.wrapping_sub(1);
        self.members[k].syn_at = now.saturating_add(self.members[k].to.round.timeout());
        self.reschedule(now);
        Some(k as u32 + 1)
    }

    /// Handles a SYN or SYN+ACK of member `k`. Returns the side to which it is forwarded.
    pub(super) fn on_member_syn(&mut self, now: Time, k: usize, packet: &mut Packet) -> Option<u32> {
        let first = self.first();
        if packet.seq.wrapping_add(1) != first || !self.config.handshake {
            return None;
        }
        let begun = self.members[k].is_up();
        if packet.flags.has(Flags::ACK) {
            if self.members[k].health == Health::Opening && packet.ack == self.members[k].to.first {
                self.join(k, now);
                self.members[k].on_born(now, packet.sent);
                let to = &mut self.members[k].to;
                to.edge = to.first.wrapping_add(packet.window);
                if self.stage == Stage::Opening {
                    self.greeting = packet.flags.has(Flags::STAMP_ECHO).then_some(packet.sent_echo);
                    let Session { inbound, members, router, .. } = self;
                    inbound.on_ack(now, k, packet, &SackRanges::EMPTY, members, router);
                    self.open_if_complete();
                }
            }
            self.members[k].from.owes = self.members[k].is_up();
            return None;
        }
        if self.opener == Some(Opener::Peer)
            || self.members[k].barred
            || self.members[k].drained
            || self.outbound.fin.is_some() && !begun
        {
            self.members[k].reset = Some(answered(packet));
            return None;
        }
        if self.members[k].has_restarted(now, packet.sent) {
            self.fail(k, now);
            if self.stage == Stage::Reset {
                return None;
            }
        }
        if !self.members[k].is_up() {
            self.begin_member(k);
            self.join(k, now);
            self.members[k].on_born(now, packet.sent);
        }
        self.members[k].greet = true;
        if self.stage == Stage::Idle {
            (self.stage, self.opener) = (Stage::Opening, Some(Opener::Members(k)));
            self.await_members(now);
            self.members[k].awaited = false;
        }
        // One whose SYN was lost on the way to the peer may have failed since.
        if let (Stage::Opening, Some(Opener::Members(first))) = (self.stage, self.opener)
            && (!self.members[first].is_up() || self.open_by == Time::NEVER)
        {
            self.opener = Some(Opener::Members(k));
        }
        (self.stage == Stage::Opening && self.opener == Some(Opener::Members(k))).then_some(0)
    }

    /// Expects connections of all members, until `open_by`.
    fn await_members(&mut self, now: Time) {
        self.members.iter_mut().for_each(|member| member.awaited = !member.barred && !member.drained);
        self.open_by = now.saturating_add(self.config.patience);
        self.wake(self.open_by);
    }

    /// Starts both directions.
    fn begin(&mut self) {
        let first = self.first();
        self.inbound.begin(first);
        self.outbound.begin(first);
        self.stage = Stage::Open;
    }

    /// Opens the session towards the peer, if a member is up and no other is awaited.
    pub(super) fn open_if_complete(&mut self) {
        let awaited = |member: &Member| member.awaited && member.health == Health::Opening;
        if (self.stage, self.opener) == (Stage::Opening, Some(Opener::Peer))
            && self.members.iter().any(Member::is_up)
            && !self.members.iter().any(awaited)
        {
            self.begin();
            self.greet = true;
        }
    }

    /// Admits member `k` to the session. If the peer opened the session, a SYN to the member is
    /// due.
    pub(super) fn admit(&mut self, k: usize, now: Time) {
        // After the FIN, the peer accepts no more data of members.
        let member = &self.members[k];
        if member.barred || member.drained || self.stage == Stage::Reset || self.outbound.fin.is_some() {
            return;
        }
        if !self.config.handshake {
            self.begin_member(k);
            return self.join(k, now);
        }
        if self.opener == Some(Opener::Peer) {
            self.begin_member(k);
            let member = &mut self.members[k];
            (member.health, member.syn_at) = (Health::Opening, now);
        }
    }

    /// Starts the numbers of member `k`, which gets the packets from now on.
    fn begin_member(&mut self, k: usize) {
        let open = self.stage == Stage::Open;
        let covered = if open { self.inbound.space.una } else { self.first() };
        let first = self.first();
        self.members[k].begin(first, covered, self.config.handshake);
        self.outbound.admit(k, first);
    }

    /// Marks member `k` as up: the router may choose it.
    fn join(&mut self, k: usize, now: Time) {
        debug!(target: "switch", %now, member = k, "member takes part");
        let member = &mut self.members[k];
        (member.health, member.syn_at, member.awaited) = (Health::Up, Time::NEVER, false);
        self.router.candidates[k].up = !self.members[k].drained;
        self.outbound.divide(now, &mut self.members);
        if let Some(fin) = self.inbound.fin {
            self.inbound.on_fin(now, fin, &mut self.members);
        }
    }
}
