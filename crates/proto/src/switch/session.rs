//! A session: one connection of a peer, and those of the members.

use tollway_law::Time;
use tracing::debug;

use crate::route::{Candidate, Route};
use crate::transport::serial::before;
use crate::{Flags, Packet, SackRanges, Stamp};

use super::inbound::{Heard, Inbound, Module, Router};
use super::members::{Health, Member};
use super::outbound::{Onward, Outbound};
use super::{Config, FrameStart};

/// One session: a connection of the peer, divided over the members of a cluster.
#[derive(Debug)]
pub struct Session {
    pub(super) config: Config,
    pub(super) stage: Stage,
    pub(super) opener: Option<Opener>,
    pub(super) members: Vec<Member>,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    pub(super) router: Router,
    pub(super) stats: Stats,
    // Packets to send to the peer: an acknowledgement (`answer`), a SYN+ACK (`greet`), or a reset
    // with its sequence and acknowledgement numbers.
    pub(super) answer: bool,
    pub(super) greet: bool,
    pub(super) reset: Option<(u32, u32)>,
    /// The stamp that the SYN to the peer echoes.
    pub(super) greeting: Option<Stamp>,
    /// The time after which the session opens without the members that have not opened.
    pub(super) open_by: Time,
    /// True if a drained member has not received its FIN, or one is to be opened anew.
    pub(super) leaving: bool,
    pub(super) alarm: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Opening,
    Open,
    /// The session has ended: each packet is answered by a reset.
    Reset,
}

/// The side that opens the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opener {
    Peer,
    /// The members. The peer received the SYN of the member with this index.
    Members(usize),
}

/// The counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Duplicate packets, which their receiver already had.
    pub duplicates: u64,
    /// Packets dropped: outside the ring or the receiver's window, or without a member for them.
    pub refused: u64,
    /// Acknowledgements of numbers that the switch has not sent.
    pub forged: u64,
    /// Null segments sent, without their retransmissions.
    pub nulls: u64,
    /// Packets of failed members that were forwarded to other members.
    pub rerouted: u64,
    /// Packets lost with failed members: acknowledged but not delivered by them, or sent by them.
    pub lost: u64,
    /// Members that failed.
    pub failures: u64,
}

/// The state of a session's member, for tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberStats {
    /// The member's state.
    pub health: Health,
    /// Packets that the member has acknowledged.
    pub packets: u64,
    /// The same in bytes on the wire.
    pub bytes: u64,
    /// Packets of the member that the peer has acknowledged.
    pub sent_packets: u64,
    /// The same in bytes on the wire.
    pub sent_bytes: u64,
    /// The member's receive ratio, as in the Anypoint paper.
    pub ratio: f64,
    /// Bytes that the member has not acknowledged.
    pub outstanding: u64,
}

impl Session {
    pub(super) fn new(
        config: Config,
        session: u64,
        route: Box<dyn Route + Send>,
        mut candidates: Vec<Candidate>,
    ) -> Session {
        let count = candidates.len();
        let mut members: Vec<Member> = (0..count).map(|_| Member::new(config.initial_segment)).collect();
        let stage = if config.handshake { Stage::Idle } else { Stage::Open };
        for (member, candidate) in members.iter_mut().zip(&mut candidates) {
            candidate.up = !config.handshake || config.pinned;
            if !config.handshake {
                member.health = Health::Up;
            }
        }
        Session {
            stage,
            opener: None,
            inbound: Inbound::new(&config, count),
            outbound: Outbound::new(&config, count),
            router: Router { session, route: Module(route), candidates },
            members,
            config,
            stats: Stats::default(),
            answer: false,
            greet: false,
            reset: None,
            greeting: None,
            open_by: Time::NEVER,
            leaving: false,
            alarm: Time::NEVER,
        }
    }

    /// The counters so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The members, in the order of the configuration.
    pub fn members(&self) -> impl Iterator<Item = MemberStats> {
        self.members.iter().enumerate().map(|(k, member)| MemberStats {
            health: if member.is_done() { Health::Down } else { member.health },
            packets: member.to.delivered.1,
            bytes: member.to.delivered.0,
            sent_packets: member.from.delivered.1,
            sent_bytes: member.from.delivered.0,
            ratio: self.inbound.ratio.of(k),
            outstanding: self.router.candidates[k].outstanding,
        })
    }

    /// Unacknowledged packets, inbound and outbound, each at most [`Config::ring`].
    pub fn outstanding(&self) -> (u32, u32) {
        (self.inbound.space.len(), self.outbound.space.len())
    }

    /// True if the session was reset, by the peer or because it has no members.
    pub fn is_reset(&self) -> bool {
        self.stage == Stage::Reset
    }

    /// True if both directions have ended, and their receivers have acknowledged the FIN.
    pub fn is_closed(&self) -> bool {
        let fin = self.outbound.fin.is_some_and(|fin| before(fin, self.outbound.space.una));
        self.stage == Stage::Open && fin && self.inbound.fin_done()
    }

    pub(super) fn set_route(&mut self, route: Box<dyn Route + Send>) {
        self.router.route = Module(route);
    }

    pub(super) fn set_member(&mut self, now: Time, k: usize, up: bool) {
        let Some(member) = self.members.get_mut(k) else { return };
        let was = std::mem::replace(&mut member.barred, !up);
        if up && was {
            self.admit(k, now);
        } else if !up && member.health != Health::Down {
            self.fail(k, now);
        }
        self.reschedule(now);
    }

    /// The first data number of each side, after its SYN.
    pub(super) fn first(&self) -> u32 {
        self.config.initial_segment.wrapping_add(u32::from(self.config.handshake))
    }

    /// True if the switch itself may have a packet to send.
    pub(super) fn has_work(&self) -> bool {
        let due = self.answer || self.greet || self.reset.is_some() || self.leaving;
        due || !self.outbound.nulls.is_empty() || self.members.iter().any(Member::has_work)
    }

    pub(super) fn alarm(&self) -> Time {
        self.alarm
    }

    /// Handles a packet from the peer. Returns the side to which it is forwarded.
    pub(super) fn on_peer(
        &mut self,
        now: Time,
        packet: &mut Packet,
        sack: &mut SackRanges,
        content: Option<FrameStart<'_>>,
    ) -> Option<u32> {
        if packet.flags.has(Flags::RST) {
            self.on_peer_reset(packet);
            return None;
        }
        if self.stage == Stage::Reset {
            self.reset = Some(answered(packet));
            return None;
        }
        if packet.flags.has(Flags::SYN) {
            return self.on_peer_syn(now, packet);
        }
        if self.stage != Stage::Open {
            // The packet belongs to an earlier session, from before a restart of the switch.
            self.reset = (self.stage == Stage::Idle).then(|| answered(packet));
            return None;
        }
        let mut to = None;
        if packet.flags.has(Flags::ACK) {
            to = self.outbound.on_ack(now, packet, sack, &mut self.members);
            if to.is_none() {
                self.stats.forged += 1;
                self.answer = true;
                return None;
            }
        }
        if packet.flags.has(Flags::FIN) {
            self.inbound.on_fin(now, packet.seq, &mut self.members);
            self.finish(now);
            self.answer = true;
            return None;
        }
        let k = if packet.flags.has(Flags::DATA) {
            let Session { inbound, members, router, config, stats, .. } = self;
            let Some(k) = inbound.on_data(now, (packet, content), members, router, config, stats) else {
                self.answer = true;
                self.wake(now);
                return None;
            };
            if self.members[k].expect(now) {
                self.wake(self.members[k].dead_at(self.config.patience));
            }
            k
        } else {
            let k = to.filter(|&k| self.members[k].is_up())?;
            packet.seq = self.members[k].to.next;
            k
        };
        self.outbound.write(now, k, packet, sack, &mut self.members, &self.config);
        self.wake_for_nulls(now);
        Some(k as u32 + 1)
    }

    /// Handles a packet from member `k`. Returns the side to which it is forwarded.
    pub(super) fn on_member(
        &mut self,
        now: Time,
        k: usize,
        packet: &mut Packet,
        sack: &mut SackRanges,
    ) -> Option<u32> {
        let member = &mut self.members[k];
        if member.is_stale(now, packet.sent) {
            self.stats.duplicates += 1;
            return None;
        }
        if !packet.flags.has(Flags::SYN) && member.is_up() {
            member.on_heard(now, packet.sent);
            member.syn_at = Time::NEVER;
        }
        if packet.flags.has(Flags::RST) {
            let refuses = member.health == Health::Opening
                && packet.flags.has(Flags::ACK)
                && packet.ack == member.to.first;
            if refuses || (member.is_up() && packet.seq == member.from.next) {
                self.fail(k, now);
            }
            return None;
        }
        if packet.flags.has(Flags::SYN) && self.stage != Stage::Reset {
            return self.on_member_syn(now, k, packet);
        }
        if !member.is_up() || self.stage == Stage::Reset {
            member.reset = Some(answered(packet));
            return None;
        }
        let mut heard = Heard::default();
        if packet.flags.has(Flags::ACK) {
            let Session { inbound, members, router, .. } = self;
            let Some(news) = inbound.on_ack(now, k, packet, sack, members, router) else {
                self.stats.forged += 1;
                self.members[k].from.owes = true;
                return None;
            };
            heard = news;
        }
        if packet.flags.has(Flags::FIN) {
            self.outbound.on_fin(k, packet, &mut self.members);
            self.outbound.divide(now, &mut self.members);
            self.finish(now);
            self.answer |= heard.news;
            return None;
        }
        if packet.flags.has(Flags::DATA) {
            match self.outbound.on_data(now, k, packet, &mut self.members, &mut self.stats) {
                Onward::Peer => self.wake(self.outbound.asks_at(self.config.patience)),
                Onward::Nowhere => {
                    self.members[k].from.owes = true;
                    self.answer |= heard.news;
                    return None;
                }
                Onward::Refused => {
                    self.fail(k, now);
                    return None;
                }
            }
        } else {
            let waits = self.inbound.holder().is_none_or(|holder| holder == k);
            if !heard.news && (heard.progress || !(heard.room || waits)) {
                return None;
            }
            packet.seq = self.outbound.space.next;
        }
        self.inbound.write(now, packet, sack, &self.members, &self.config);
        self.answer = false;
        Some(0)
    }

    /// Removes member `k`, which failed or left, and reroutes its packets.
    pub(super) fn fail(&mut self, k: usize, now: Time) {
        self.stats.failures += u64::from(self.members[k].is_up() && !self.members[k].is_done());
        let expects = (self.members[k].to.una, self.members[k].from.next);
        let lost = self.forget(k, now);
        debug!(target: "switch", %now, member = k, lost, "member fails");
        self.stats.lost += lost;
        let torn =
            self.config.pinned && self.members[k].is_up() && self.members[k].to.packets().next().is_some();
        let (first, covered) = (self.first(), self.inbound.space.una);
        let member = &mut self.members[k];
        member.begin(first, covered, self.config.handshake);
        (member.health, member.reset, member.awaited) = (Health::Down, Some(expects), false);
        member.syn_at = now.saturating_add(self.config.patience);
        self.inbound.on_left(&self.members);
        self.outbound.divide(now, &mut self.members);
        self.finish(now);
        self.answer = true;
        if torn {
            self.reset_members();
            self.reset_peer();
        } else {
            self.reset_without_members();
        }
        self.wake(now);
    }

    /// Forgets the connection of member `k`. Returns the number of packets lost with it.
    pub(super) fn forget(&mut self, k: usize, now: Time) -> u64 {
        self.router.candidates[k].up = self.config.pinned && !self.members[k].drained;
        self.inbound.fail(k, &self.members, &mut self.router) + self.outbound.fail(k, now)
    }

    /// Resets the session if no member is up or opening, and none is expected.
    fn reset_without_members(&mut self) {
        if self.members.iter().all(|member| member.health == Health::Down && !member.awaited) {
            self.reset_peer();
        }
    }

    fn reset_peer(&mut self) {
        // A peer whose SYN was not answered expects an acknowledgement of it.
        let next = if self.stage == Stage::Open { self.inbound.space.next } else { self.first() };
        self.stage = Stage::Reset;
        self.reset = Some((self.outbound.space.una, next));
    }

    fn reset_members(&mut self) {
        for member in self.members.iter_mut().filter(|member| member.health != Health::Down) {
            member.reset = Some((member.to.next, member.from.next));
            member.health = Health::Down;
        }
    }

    /// Sends the FIN to the peer if it is due.
    pub(super) fn finish(&mut self, now: Time) {
        let ended = self.inbound.fin.is_some();
        let Some(fin) = self.outbound.finish(&self.members, ended) else { return };
        self.outbound.nulls.push(fin, now, true);
        for k in 0..self.members.len() {
            if self.members[k].health == Health::Opening {
                self.fail(k, now);
            }
        }
    }

    fn on_peer_reset(&mut self, packet: &Packet) {
        let known = self.stage == Stage::Open && packet.seq == self.inbound.space.next;
        if known || self.stage == Stage::Opening {
            self.stage = Stage::Reset;
            self.reset_members();
        } else if self.stage == Stage::Open {
            self.answer = true;
        }
    }

    pub(super) fn wake(&mut self, at: Time) {
        self.alarm = self.alarm.min(at);
    }

    fn wake_for_nulls(&mut self, now: Time) {
        if self.members.iter().any(|member| !member.to.nulls.is_empty()) {
            self.wake(now);
        }
    }

    pub(super) fn reschedule(&mut self, now: Time) {
        if self.stage == Stage::Reset {
            self.alarm = Time::NEVER;
            return;
        }
        let patience = self.config.patience;
        let probes = self.opener == Some(Opener::Peer) && self.outbound.fin.is_none();
        let of = |member: &Member| {
            let dead = member.dead_at(patience);
            let dead = if dead <= now { now.saturating_add(patience) } else { dead };
            let asked = member.is_up() || probes && !member.barred && !member.drained;
            let syn = if asked { member.syn_at } else { Time::NEVER };
            dead.min(syn).min(member.to.nulls.due())
        };
        let members = self.members.iter().map(of).min().unwrap_or(Time::NEVER);
        let outbound = self.outbound.nulls.due().min(self.outbound.asks_at(patience));
        self.alarm = members.min(outbound).min(self.open_by);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if now < self.alarm {
            return;
        }
        for k in 0..self.members.len() {
            let member = &self.members[k];
            if member.is_up() && member.dead_at(self.config.patience) <= now && self.stage == Stage::Open {
                self.fail(k, now);
            } else if member.is_up() && member.syn_at <= now {
                self.members[k].greet = true;
            } else if member.health == Health::Down && member.syn_at <= now {
                self.admit(k, now);
            }
        }
        if self.outbound.asks_at(self.config.patience) <= now {
            // The member may have failed, and has no packets that it could acknowledge.
            if let Some(k) = self.outbound.waits_for() {
                self.members[k].probe = self.members[k].is_up();
            }
            self.outbound.since = now.saturating_sub(Time(self.config.patience.0 / 8 * 7));
        }
        if now >= self.open_by {
            self.open_by = Time::NEVER;
            self.members.iter_mut().for_each(|member| member.awaited = false);
            self.finish(now);
            self.reset_without_members();
        }
        self.open_if_complete();
        self.reschedule(now);
    }
}

/// The numbers of a reset that answers `packet`: the sequence number that its sender expects, and
/// the number after the packet.
pub(super) fn answered(packet: &Packet) -> (u32, u32) {
    let uses = packet.flags.0 & (Flags::SYN.0 | Flags::FIN.0 | Flags::DATA.0) != 0;
    (packet.ack, packet.seq.wrapping_add(u32::from(uses)))
}
