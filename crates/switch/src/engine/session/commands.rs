//! Redis' commands in a session: answered here, sent to their member, or sent to all members.

use std::collections::{BTreeMap, VecDeque};

use tollway_proto::dispatch::Tag;
use tollway_proto::route::{ByKey, Item, Policy, Route};

use super::{End, Session};
use crate::engine::core::Core;
use crate::redis::{self, RedisCommand, Setup};

/// A Redis session's set-up commands, for members connected later.
#[derive(Default)]
pub(in crate::engine) struct Redis {
    pub(super) setup: BTreeMap<Setup, Vec<u8>>,
    pending: VecDeque<Pending>,
}

/// A set-up command without an answer yet.
struct Pending {
    seq: u64,
    kind: Setup,
    frame: Vec<u8>,
    before: Option<Vec<u8>>,
}

impl Session {
    /// Handles the command at `at`: answers it, or sends it to members.
    pub(super) fn take_command(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        at: usize,
        len: usize,
    ) -> Result<(), End> {
        let frame = &bytes[at..at + len];
        let spread = self.config.policy == Policy::ByKey;
        let command = redis::read(frame, |key| {
            let item = Item { key: core.hash.of(key), ..Item::default() };
            if spread { ByKey.pick(&item, &core.candidates) } else { None }
        });
        let key = match command {
            RedisCommand::Keyed(key) => core.hash.of(key),
            RedisCommand::Anywhere => self.scrambled,
            RedisCommand::Refused(why) => {
                self.answer_here(core, &redis::error(&why));
                return Ok(());
            }
            RedisCommand::Quit => {
                self.answer_here(core, b"+OK\r\n");
                self.ended = true;
                return Ok(());
            }
            RedisCommand::Setup(kind) => {
                self.send_planned(core, bytes)?;
                return self.set_up(core, kind, frame);
            }
        };
        self.plan(core, Item { session: self.scrambled, key, size: len as u32 }, frame, at);
        Ok(())
    }

    /// Sends a set-up command to every connected member; the first one's answer goes to the client.
    fn set_up(&mut self, core: &mut Core, kind: Setup, frame: &[u8]) -> Result<(), End> {
        let open: Vec<usize> = (0..self.lanes.len()).filter(|&at| self.lanes[at].is_some()).collect();
        let item = Item { session: self.scrambled, key: self.scrambled, size: frame.len() as u32 };
        let first = open.first().copied().or_else(|| self.route.pick(&item, &core.candidates));
        let seq = self.dispatch.number(Tag::Setup);
        if let Some(redis) = &mut self.redis {
            let before = redis.setup.insert(kind, frame.to_vec());
            redis.pending.push_back(Pending { seq, kind, frame: frame.to_vec(), before });
        }
        let Some(first) = first else {
            self.park(core, seq, Tag::Setup, frame.to_vec());
            return Ok(());
        };
        for &other in open.iter().skip(1) {
            self.dispatch.submit(other, Tag::Own, frame, 0);
            self.flush_lane(core, other)?;
        }
        self.place_at(core, first, seq, Tag::Setup, frame)
    }

    /// Handles the answer to a set-up command: drops a refused one, and identifies the client by an
    /// accepted user.
    pub(super) fn is_set_up(&mut self, core: &mut Core, seq: u64, answer: &[u8]) {
        let Some(redis) = &mut self.redis else { return };
        let Some(at) = redis.pending.iter().position(|pending| pending.seq == seq) else { return };
        let Some(pending) = redis.pending.remove(at) else { return };
        if answer.first() != Some(&b'-') {
            let user = redis::user(&pending.frame);
            self.becomes(core, user.as_deref(), None);
        } else if redis.setup.get(&pending.kind) == Some(&pending.frame) {
            match pending.before {
                Some(before) => redis.setup.insert(pending.kind, before),
                None => redis.setup.remove(&pending.kind),
            };
        }
    }

    /// Answers a frame without a member.
    fn answer_here(&mut self, core: &mut Core, answer: &[u8]) {
        core.counters.answered_here += 1;
        let seq = self.dispatch.submit_answered();
        self.answer_for(seq, answer);
    }

    pub(super) fn forget_setup(&mut self, seq: u64) {
        if let Some(redis) = &mut self.redis {
            redis.pending.retain(|pending| pending.seq != seq);
        }
    }
}
