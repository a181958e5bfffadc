//! The members of frames.

use tollway_proto::dispatch::{Answers, Tag};
use tollway_proto::route::{Item, Policy};

use super::commands::NONE_UP;
use super::{End, Parked, Session};
use crate::engine::core::{Core, Planned};
use crate::redis::{self, Action};

impl Session {
    /// Selects the member of a frame among the bytes just read.
    #[inline]
    pub(super) fn plan(&mut self, core: &mut Core, key: u64, frame: &[u8], at: usize) -> Result<(), End> {
        match self.pick(core, key, frame) {
            Some(member) if !core.is_reachable(member) => return Err(End::NoMember),
            Some(member) => self.plan_at(core, member, frame, at),
            None => {
                let seq = self.dispatch.number(Tag::Client);
                self.park(core, seq, Tag::Client, frame.to_vec());
            }
        }
        Ok(())
    }

    /// Plans to send the frame at `at` of the bytes just read to `member`.
    #[inline]
    pub(super) fn plan_at(&mut self, core: &mut Core, member: usize, frame: &[u8], at: usize) {
        let seq = self.dispatch.number(Tag::Client);
        core.candidates[member].outstanding += frame.len() as u64;
        let plan = &mut core.plans[member];
        if plan.is_empty() {
            core.planned.push(member);
        }
        plan.push(Planned { seq, at: at as u32, len: frame.len() as u32 });
    }

    /// The member of a frame whose key has this hash.
    #[inline]
    pub(super) fn pick(&mut self, core: &Core, key: u64, frame: &[u8]) -> Option<usize> {
        let item = Item { session: self.scrambled, key, size: frame.len() as u32, frame };
        self.route
            .pick(&item, &core.candidates)
            .filter(|&member| core.candidates.get(member).is_some_and(|candidate| candidate.up))
    }

    /// A member for a command without a key.
    pub(super) fn pick_any(&mut self, core: &Core, key: u64, frame: &[u8]) -> Option<usize> {
        match self.config.policy {
            Policy::ByKey => core.any_member(self.scrambled),
            _ => self.pick(core, key, frame),
        }
    }

    /// Assigns a frame to a member; it is written in the session's turn.
    pub(super) fn enqueue(&mut self, core: &mut Core, member: usize, seq: u64, tag: Tag, frame: &[u8]) {
        core.candidates[member].outstanding += frame.len() as u64;
        self.open_lane(core, member);
        self.dispatch.carry(member, seq, tag, frame, 0);
    }

    /// Keeps a frame until a member is up.
    pub(super) fn park(&mut self, core: &Core, seq: u64, tag: Tag, frame: Vec<u8>) {
        if self.parked.is_empty() {
            self.parked_since = core.now;
        }
        self.parked_bytes += frame.len();
        self.parked.push_back(Parked { seq, tag, frame });
    }

    /// Sends frames that waited for a member.
    pub(in crate::engine) fn unpark(&mut self, core: &mut Core) -> Result<(), End> {
        for parked in std::mem::take(&mut self.parked) {
            self.parked_bytes -= parked.frame.len();
            self.reroute(core, parked.seq, parked.tag, &parked.frame)?;
        }
        Ok(())
    }

    /// Sends a frame with a number and without a member.
    pub(super) fn reroute(&mut self, core: &mut Core, seq: u64, tag: Tag, frame: &[u8]) -> Result<(), End> {
        let hash = match &self.redis {
            Some(_) => match redis::words(frame).map(|words| redis::classify(&words, &core.homes(false))) {
                Some(Action::Keyed { hash, .. }) => Some(hash),
                _ => None,
            },
            None if self.config.hashes_keys() => Some(core.hash.of(self.config.key.of(frame))),
            None => Some(0),
        };
        let member = match hash {
            None => self.pick_any(core, self.scrambled, frame),
            Some(key) => self.pick(core, key, frame),
        };
        match member {
            Some(member) if core.is_reachable(member) => self.place_at(core, member, seq, tag, frame),
            None if !core.keys_stay() => {
                self.park(core, seq, tag, frame.to_vec());
                Ok(())
            }
            _ if self.redis.is_none() => Err(End::NoMember),
            member => {
                let why = member.map_or(NONE_UP.into(), |member| core.unreachable(member));
                self.dispatch.give_up();
                self.forget_setup(seq);
                self.answer_for(seq, &redis::error(&why));
                Ok(())
            }
        }
    }

    pub(super) fn place_at(
        &mut self,
        core: &mut Core,
        member: usize,
        seq: u64,
        tag: Tag,
        frame: &[u8],
    ) -> Result<(), End> {
        self.enqueue(core, member, seq, tag, frame);
        self.flush_lane(core, member)
    }

    /// Sends the planned frames of `bytes`, member by member.
    pub(super) fn send_planned(&mut self, core: &mut Core, bytes: &[u8]) -> Result<(), End> {
        let mut planned = std::mem::take(&mut core.planned);
        for member in planned.drain(..) {
            let mut plan = std::mem::take(&mut core.plans[member]);
            let done = self.send(core, member, bytes, &plan);
            plan.clear();
            core.plans[member] = plan;
            done?;
        }
        core.planned = planned;
        Ok(())
    }

    /// Sends frames of `bytes` to a member: part at once, and the rest when it takes more.
    fn send(&mut self, core: &mut Core, member: usize, bytes: &[u8], plan: &[Planned]) -> Result<(), End> {
        self.open_lane(core, member);
        let clear = self.dispatch.is_clear(member);
        let (now, client) = (core.now, self.client);
        let mut left = 0;
        if let Some(lane) = self.lanes.get_mut(member).and_then(Option::as_mut)
            && clear
            && lane.is_ready()
        {
            let room = core.cluster.room(now, member, client);
            match lane.write_frames(bytes, plan, room) {
                Ok(written) => left = written,
                Err(error) => {
                    self.submit(member, bytes, plan, 0);
                    return self.lane_failed(core, member, error.to_string());
                }
            }
        }
        let before = self.dispatch.outstanding(member) + left as u64;
        let one_way = self.config.rules.answers == Answers::None;
        if one_way && let Some(lane) = self.lanes.get(member).and_then(Option::as_ref) {
            // Bytes that the member's kernel already has are not kept.
            let written = self.dispatch.written(member) + left as u64;
            self.dispatch.acknowledged(member, written.saturating_sub(lane.stream.unacknowledged()));
        }
        self.submit(member, bytes, plan, left);
        self.sent(core, member, left as u64);
        if one_way {
            let after = self.dispatch.outstanding(member);
            self.drained(core, member, before - after);
            self.poll_acknowledgements(core, after);
        }
        if self.dispatch.waiting(member) > 0 { self.flush_lane(core, member) } else { Ok(()) }
    }

    fn submit(&mut self, member: usize, bytes: &[u8], plan: &[Planned], mut written: usize) {
        let all: usize = plan.iter().map(|planned| planned.len as usize).sum();
        self.dispatch.expect(member, all - written);
        for planned in plan {
            let part = written.min(planned.len as usize);
            written -= part;
            self.dispatch.carry(member, planned.seq, Tag::Client, planned.of(bytes), part);
        }
    }
}
