//! Redis' commands in a session: answered here, sent to one member, or to several.

use tollway_proto::dispatch::Tag;
use tollway_proto::route::Policy;

use super::redis_state::{Barrier, Join, Pending, Transaction};
use super::{End, Session};
use crate::engine::core::Core;
use crate::redis::{self, Action, Gather, Homes, Part, Setup};

impl Session {
    /// Handles a command: answers it, or sends it to members. `at` is its place in `bytes`, if it is
    /// there. Returns false if it must wait until all commands before it are answered.
    pub(super) fn take_command(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        frame: &[u8],
        at: Option<usize>,
    ) -> Result<bool, End> {
        let Some(words) = redis::words(frame) else {
            self.refuse(core, "Protocol error: a command is an array of bulk strings: expected '$'", true);
            return Ok(true);
        };
        let spread = self.is_spread();
        let mut action = redis::classify(&words, &core.homes(spread));
        if let Action::All { gather, blocks } = action {
            let succeeds = matches!(gather, Gather::AllSucceeded | Gather::OneSucceeded);
            if core.is_single() || !(spread || succeeds) {
                action = if spread { Action::Keyed { hash: 0, blocks } } else { Action::Anywhere };
            }
        }
        let Some(redis) = &mut self.redis else { return Ok(true) };
        if let Some(member) = redis.subscribed {
            return self.pass(core, member, &action, frame).map(|()| true);
        }
        if redis.transaction.is_some() {
            return self.queue(core, bytes, &action, frame).map(|()| true);
        }
        match action {
            Action::Nothing => {}
            Action::Keyed { hash, blocks } => {
                let member = core.homes(spread).home(hash).or_else(|| self.pick_any(core, hash, frame));
                if blocks {
                    self.hold(Barrier::Blocking(member));
                }
                self.plan_command(core, member, bytes, frame, at)?;
            }
            Action::Anywhere => {
                let member = self.pick_any(core, self.scrambled, frame);
                self.plan_command(core, member, bytes, frame, at)?;
            }
            Action::Split { step, gather } => self.split(core, bytes, &words, step, gather)?,
            Action::All { gather, blocks } => {
                let parts = core.listed().map(|member| (Part::of(member), frame.to_vec())).collect();
                if blocks {
                    self.hold(Barrier::Blocking(None));
                }
                self.join(core, bytes, gather, parts)?;
            }
            Action::Scan { at, cursor } => self.scan(core, bytes, &words, at, cursor)?,
            Action::Setup(kind) => {
                self.send_planned(core, bytes)?;
                self.set_up(core, kind, frame)?;
            }
            Action::Multi => {
                redis.transaction = Some(Transaction::default());
                self.answer_here(core, b"+OK\r\n");
            }
            Action::Exec => self.answer_here(core, b"-ERR EXEC without MULTI\r\n"),
            Action::Discard => self.answer_here(core, b"-ERR DISCARD without MULTI\r\n"),
            Action::Watch(hash) => self.watch_keys(core, bytes, hash, frame)?,
            Action::Unwatch => match redis.watched {
                Some(member) => {
                    self.send_bound(core, bytes, member, frame)?;
                    self.watch(None);
                }
                None => self.answer_here(core, b"+OK\r\n"),
            },
            Action::Subscribe(hash) => return self.subscribe(core, hash, frame),
            Action::Unsubscribe if words.len() <= 2 => {
                let member = core.any_member(self.scrambled);
                self.plan_command(core, member, bytes, frame, at)?;
            }
            Action::Unsubscribe => self.refuse(core, "nothing is subscribed on this connection", true),
            Action::Quit => {
                self.answer_here(core, b"+OK\r\n");
                self.close_after_answers();
            }
            Action::Refused { why, name, ends } => self.refuse_command(core, name, why, ends),
        }
        Ok(true)
    }

    /// True if keys are spread over members; otherwise members are replicas of each other.
    fn is_spread(&self) -> bool {
        self.config.policy == Policy::ByKey
    }

    /// Sends a command to `member`, in the order of the commands before it.
    fn plan_command(
        &mut self,
        core: &mut Core,
        member: Option<usize>,
        bytes: &[u8],
        frame: &[u8],
        at: Option<usize>,
    ) -> Result<(), End> {
        match (member, at) {
            (Some(member), _) if !core.is_reachable(member) => {
                let why = core.unreachable(member);
                self.refuse(core, &why, false);
            }
            (Some(member), Some(at)) => self.plan_at(core, member, frame, at),
            (Some(member), None) => {
                self.send_planned(core, bytes)?;
                let seq = self.dispatch.number(Tag::Client);
                self.enqueue(core, member, seq, Tag::Client, frame);
            }
            (None, _) if core.keys_stay() => self.refuse(core, NONE_UP, false),
            (None, _) => {
                let seq = self.dispatch.number(Tag::Client);
                self.park(core, seq, Tag::Client, frame.to_vec());
            }
        }
        Ok(())
    }

    /// Handles a command after `MULTI`. The transaction's member is that of its first key; commands
    /// before are kept here.
    fn queue(&mut self, core: &mut Core, bytes: &[u8], action: &Action<'_>, frame: &[u8]) -> Result<(), End> {
        let Some(redis) = &mut self.redis else { return Ok(()) };
        let Some(transaction) = &mut redis.transaction else { return Ok(()) };
        let bound = transaction.member.or(redis.watched);
        let spread = self.config.policy == Policy::ByKey;
        let key = match action {
            Action::Keyed { hash, .. } => core.homes(spread).home(*hash),
            _ => None,
        };
        let member = match action {
            Action::Keyed { .. } if spread && key.is_none() => {
                self.refuse(core, NONE_UP, true);
                return Ok(());
            }
            Action::Keyed { .. } | Action::Anywhere | Action::Unwatch => bound.or(key),
            Action::Discard => bound,
            Action::Exec => bound.or_else(|| core.any_member(self.scrambled)),
            Action::Nothing => return Ok(()),
            Action::Multi => {
                self.answer_here(core, b"-ERR MULTI calls can not be nested\r\n");
                return Ok(());
            }
            Action::Watch(_) => {
                self.answer_here(core, b"-ERR WATCH inside MULTI is not allowed\r\n");
                return Ok(());
            }
            Action::Quit => {
                self.answer_here(core, b"+OK\r\n");
                self.close_after_answers();
                return Ok(());
            }
            Action::Refused { why, name, .. } => {
                self.refuse_command(core, name, why, true);
                return Ok(());
            }
            _ => {
                self.refuse(core, "a command of several members cannot be in a transaction", true);
                return Ok(());
            }
        };
        if key.is_some_and(|key| Some(key) != member) {
            let why = "the keys of a transaction are at several members: give them one hash tag, as in {user1}.name";
            self.refuse(core, why, true);
            return Ok(());
        }
        match (member, action) {
            (None, Action::Discard) => self.answer_here(core, b"+OK\r\n"),
            (None, Action::Exec) => self.refuse(core, NONE_UP, true),
            (None, _) if transaction.kept() > self.config.limits.session_buffer => {
                self.refuse(core, "the transaction exceeds limits.session-buffer before its first key", true);
            }
            (None, _) => {
                transaction.first.push(frame.to_vec());
                self.answer_here(core, b"+QUEUED\r\n");
            }
            (Some(member), _) => {
                let first = std::mem::take(&mut transaction.first);
                if transaction.member.replace(member).is_none() {
                    self.send_planned(core, bytes)?;
                    let multi = redis::command([&b"MULTI"[..]].into_iter());
                    for frame in std::iter::once(&multi).chain(&first) {
                        self.enqueue(core, member, 0, Tag::Own, frame);
                    }
                }
                self.send_bound(core, bytes, member, frame)?;
            }
        }
        if matches!(action, Action::Exec | Action::Discard)
            && let Some(redis) = &mut self.redis
        {
            (redis.transaction, redis.watched) = (None, None);
        }
        Ok(())
    }

    fn watch_keys(&mut self, core: &mut Core, bytes: &[u8], hash: u64, frame: &[u8]) -> Result<(), End> {
        let watched = self.redis.as_ref().and_then(|redis| redis.watched);
        let home = core.homes(self.is_spread()).home(hash).or(watched);
        match home.or_else(|| self.pick_any(core, hash, frame)) {
            Some(member) if watched.is_none_or(|other| other == member) => {
                self.send_bound(core, bytes, member, frame)?;
            }
            Some(_) => self.refuse(core, "'WATCH' has keys at several members: give them one hash tag", true),
            None => self.refuse(core, NONE_UP, true),
        }
        Ok(())
    }

    /// Binds the session to the member of its first subscription, once nothing is under way.
    fn subscribe(&mut self, core: &mut Core, hash: u64, frame: &[u8]) -> Result<bool, End> {
        if self.dispatch.open() > 0 {
            self.hold(Barrier::Idle);
            return Ok(false);
        }
        match core.homes(self.is_spread()).home(hash).or_else(|| core.any_member(self.scrambled)) {
            Some(member) if core.is_reachable(member) => {
                if let Some(redis) = &mut self.redis {
                    redis.subscribed = Some(member);
                }
                self.pass(core, member, &Action::Anywhere, frame)?;
            }
            member => {
                let why = member.map_or(NONE_UP.into(), |member| core.unreachable(member));
                self.refuse(core, &why, true);
            }
        }
        Ok(true)
    }

    /// Sends a command that depends on its connection to `member`, to which the session is then tied.
    fn send_bound(&mut self, core: &mut Core, bytes: &[u8], member: usize, frame: &[u8]) -> Result<(), End> {
        if !core.is_reachable(member) {
            let why = core.unreachable(member);
            self.refuse(core, &why, true);
            return Ok(());
        }
        self.send_planned(core, bytes)?;
        let seq = self.dispatch.number(Tag::Bound);
        self.enqueue(core, member, seq, Tag::Bound, frame);
        self.watch(Some(member));
        Ok(())
    }

    /// Handles no further command until all before are answered.
    fn hold(&mut self, barrier: Barrier) {
        if let Some(redis) = &mut self.redis {
            redis.barrier = Some(barrier);
        }
    }

    fn watch(&mut self, member: Option<usize>) {
        if let Some(redis) = &mut self.redis {
            redis.watched = member;
        }
    }

    /// Sends a command of a session with subscriptions to its member, whose answers are passed on.
    fn pass(&mut self, core: &mut Core, member: usize, action: &Action<'_>, frame: &[u8]) -> Result<(), End> {
        let fits = match action {
            Action::Keyed { hash, .. } | Action::Watch(hash) | Action::Subscribe(hash) => {
                core.homes(self.is_spread()).home(*hash).is_none_or(|home| home == member)
            }
            Action::Anywhere
            | Action::Unsubscribe
            | Action::Multi
            | Action::Exec
            | Action::Discard
            | Action::Unwatch => true,
            Action::Nothing => return Ok(()),
            Action::Quit => {
                self.answer_here(core, b"+OK\r\n");
                self.close_after_answers();
                return Ok(());
            }
            _ => false,
        };
        if fits {
            self.enqueue(core, member, 0, Tag::Passed, frame);
        } else {
            let why =
                "a connection with subscriptions is bound to their member, and this command concerns another";
            self.refuse(core, why, true);
        }
        Ok(())
    }

    /// Sends to each member its keys of a command.
    fn split(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        words: &[&[u8]],
        step: usize,
        gather: Gather,
    ) -> Result<(), End> {
        let Some((&name, rest)) = words.split_first() else { return Ok(()) };
        let mut parts: Vec<(Part, Vec<&[u8]>)> = Vec::new();
        let homes = core.homes(true);
        for (at, key) in rest.chunks(step).enumerate() {
            let Some(member) = homes.home(homes.hash(key[0])) else {
                self.refuse(core, NONE_UP, false);
                return Ok(());
            };
            let index = parts.iter().position(|(part, _)| part.member == member).unwrap_or_else(|| {
                parts.push((Part::of(member), vec![name]));
                parts.len() - 1
            });
            parts[index].0.keys.push(at as u32);
            parts[index].1.extend_from_slice(key);
        }
        let parts =
            parts.into_iter().map(|(part, words)| (part, redis::command(words.into_iter()))).collect();
        self.join(core, bytes, gather, parts)
    }

    /// Sends each part of a command to its member, unless one of them is down.
    fn join(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        gather: Gather,
        parts: Vec<(Part, Vec<u8>)>,
    ) -> Result<(), End> {
        if let Some((part, _)) = parts.iter().find(|(part, _)| !core.is_reachable(part.member)) {
            let why = core.unreachable(part.member);
            self.refuse(core, &why, false);
            return Ok(());
        }
        self.send_planned(core, bytes)?;
        let seq = self.dispatch.number(Tag::Client);
        let (parts, frames): (Vec<Part>, Vec<Vec<u8>>) = parts.into_iter().unzip();
        let members: Vec<usize> = parts.iter().map(|part| part.member).collect();
        if let Some(redis) = &mut self.redis {
            redis.joins.push_back(Join { seq, gather, parts });
        }
        for (member, frame) in members.into_iter().zip(frames) {
            self.enqueue(core, member, seq, Tag::Part, &frame);
        }
        Ok(())
    }

    /// Sends a `SCAN` to the member at its turn.
    fn scan(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        words: &[&[u8]],
        at: usize,
        cursor: u64,
    ) -> Result<(), End> {
        let mut from = core.listed().filter(|&member| member >= at);
        let (member, next) = (from.next(), from.next());
        drop(from);
        let Some(member) = member else {
            self.answer_here(core, b"*2\r\n$1\r\n0\r\n*0\r\n");
            return Ok(());
        };
        let next = next.filter(|_| self.is_spread());
        let cursor = if member == at { cursor.to_string() } else { "0".to_owned() };
        let of = words.iter().enumerate().map(|(at, word)| if at == 1 { cursor.as_bytes() } else { *word });
        let frame = redis::command(of);
        self.join(core, bytes, Gather::Scan { at: member, next }, vec![(Part::of(member), frame)])
    }

    /// Handles the answer to a member's part of a command.
    pub(super) fn part_answered(&mut self, member: usize, seq: u64, answer: &[u8]) {
        let Some(redis) = &mut self.redis else { return };
        let Ok(at) = redis.joins.binary_search_by_key(&seq, |join| join.seq) else { return };
        let join = &mut redis.joins[at];
        if let Some(part) = join.parts.iter_mut().find(|part| part.member == member && part.answer.is_none())
        {
            part.answer = Some(answer.to_vec());
            self.held_bytes += answer.len();
        }
        if join.parts.iter().any(|part| part.answer.is_none()) {
            return;
        }
        if let Some(join) = redis.joins.remove(at) {
            let held = join.parts.iter().flat_map(|part| &part.answer).map(Vec::len);
            self.held_bytes -= held.sum::<usize>();
            self.dispatch.give_up();
            self.answer_for(seq, &join.gather.combine(&join.parts));
        }
    }

    /// Sends a set-up command to every connected member; the first one's answer goes to the client.
    fn set_up(&mut self, core: &mut Core, kind: Setup, frame: &[u8]) -> Result<(), End> {
        let open: Vec<usize> = (0..self.lanes.len()).filter(|&at| self.lanes[at].is_some()).collect();
        let first = open.first().copied().or_else(|| core.any_member(self.scrambled));
        if first.is_none() && core.keys_stay() {
            self.refuse(core, NONE_UP, false);
            return Ok(());
        }
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
        let Some(pending) = redis.answered(seq) else { return };
        if answer.first() != Some(&b'-') {
            let user = redis::user(&pending.frame);
            self.becomes(core, user.as_deref(), None);
        } else {
            redis.drop_setup(pending);
        }
    }

    /// Answers a frame without a member.
    fn answer_here(&mut self, core: &mut Core, answer: &[u8]) {
        core.counters.answered_here += 1;
        let seq = self.dispatch.submit_answered();
        self.answer_for(seq, answer);
    }

    /// Answers a command with an error, and ends the session if its further answers could be taken
    /// for others.
    pub(super) fn refuse(&mut self, core: &mut Core, why: &str, ends: bool) {
        self.answer_here(core, &redis::error(why));
        if ends {
            self.close_after_answers();
        }
    }

    fn refuse_command(&mut self, core: &mut Core, name: &[u8], why: &str, ends: bool) {
        let name = name.to_ascii_uppercase();
        let why = format!("'{}' {why}", String::from_utf8_lossy(&name).escape_default());
        self.refuse(core, &why, ends);
    }

    pub(super) fn forget_setup(&mut self, seq: u64) {
        if let Some(redis) = &mut self.redis {
            redis.pending.retain(|pending| pending.seq != seq);
        }
    }
}

pub(super) const NONE_UP: &str = "no server accepts commands now; the command was not executed";
