//! One origin's messages at a destination: their order, and what survivors owe each other when the
//! origin is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tollway_law::Time;

use super::bits::Bits;
use super::frame::{DataFrame, Note};
use super::{Body, DaemonId, Incarnation};

/// Messages from one start of one daemon.
#[derive(Clone, Debug)]
pub(super) struct Inbound<B> {
    /// The last message delivered: all before it that were meant for this daemon are delivered or
    /// given up.
    last: u64,
    /// Messages that came before one that they follow.
    held: BTreeMap<u64, DataFrame<B>>,
    /// Delivered messages with other destinations that may lack them.
    copies: VecDeque<DataFrame<B>>,
    bytes: u64,
    /// Messages and bytes delivered since the last acknowledgement.
    unacked: (u32, u64),
    gap_at: Option<Time>,
    stage: Stage,
    /// Since messages were given up: the last one before them, and those delivered after them.
    given_up: Option<(u64, BTreeSet<u64>)>,
}

/// Messages due for delivery.
pub(super) type Given<B> = VecDeque<(Option<Arc<Note>>, B)>;

/// Stages of the recovery of a dead daemon's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The daemon lives, as far as is known.
    #[default]
    None,
    /// Survivors tell each other what they hold.
    Told,
    /// Survivors have sent each other what they hold.
    Sent,
    /// Messages that no survivor holds are given up.
    Ended,
}

/// When to acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing new.
    Never,
    /// With others.
    Later,
    /// At once.
    Now,
    /// At once, as something lacks.
    Gap,
}

impl<B> Default for Inbound<B> {
    fn default() -> Inbound<B> {
        Inbound {
            last: 0,
            held: BTreeMap::new(),
            copies: VecDeque::new(),
            bytes: 0,
            unacked: (0, 0),
            gap_at: None,
            stage: Stage::None,
            given_up: None,
        }
    }
}

impl<B: Body> Inbound<B> {
    /// The last message delivered.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Bytes of content held or copied.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a message for `me`, and appends the messages due for delivery. Gaps are told at most
    /// every `pause`. Not more than `most` bytes are held; what is over is sent again.
    pub(super) fn receive(
        &mut self,
        now: Time,
        me: DaemonId,
        data: DataFrame<B>,
        pause: Time,
        most: u64,
        out: &mut Given<B>,
    ) -> Due {
        self.settle(data.stable);
        let again = data.resent;
        if data.seq <= self.last {
            return if again { Due::Now } else { Due::Never };
        }
        if self.follows(me, &data) {
            // Earlier ones are held only where the origin has given up those that lack, and begins
            // anew.
            while let Some(held) = self.held.first_entry().filter(|held| *held.key() < data.seq) {
                self.bytes -= held.remove().body.size() as u64;
            }
            self.deliver(data, out);
            while self.held.first_key_value().is_some_and(|(_, next)| self.follows(me, next)) {
                self.release(out);
            }
        } else if self.bytes + data.body.size() as u64 <= most && !self.held.contains_key(&data.seq) {
            self.bytes += data.body.size() as u64;
            self.held.insert(data.seq, data);
        }
        if !self.held.is_empty() && self.gap_at.is_none_or(|at| now >= at.saturating_add(pause)) {
            self.gap_at = Some(now);
            return Due::Gap;
        }
        match again || self.unacked.0 >= ACK_MESSAGES || self.unacked.1 >= ACK_BYTES {
            true => Due::Now,
            false => Due::Later,
        }
    }

    /// True if every message to `me` before this one is delivered or given up, and every one of its
    /// client is delivered.
    fn follows(&self, me: DaemonId, data: &DataFrame<B>) -> bool {
        data.follows(me).is_some_and(|(previous, before)| previous <= self.last && self.has(before))
    }

    /// True if a message up to the last one has been delivered.
    fn has(&self, seq: u64) -> bool {
        self.given_up.as_ref().is_none_or(|(last, after)| seq <= *last || after.contains(&seq))
    }

    /// Delivers the first held message.
    fn release(&mut self, out: &mut Given<B>) {
        if let Some((_, data)) = self.held.pop_first() {
            self.bytes -= data.body.size() as u64;
            self.deliver(data, out);
        }
    }

    fn deliver(&mut self, data: DataFrame<B>, out: &mut Given<B>) {
        let size = data.body.size() as u64;
        self.last = data.seq;
        if let Some((_, after)) = &mut self.given_up {
            after.insert(data.seq);
        }
        self.unacked = (self.unacked.0 + 1, self.unacked.1 + size);
        out.push_back((data.note.clone(), data.body.clone()));
        if data.set.as_slice().len() > 1 && data.seq > data.stable {
            self.bytes += size;
            self.copies.push_back(data);
        }
    }

    /// Every destination has the messages up to `stable`: their copies go.
    pub(super) fn settle(&mut self, stable: u64) {
        while let Some(copy) = self.copies.front().filter(|copy| copy.seq <= stable) {
            self.bytes -= copy.body.size() as u64;
            self.copies.pop_front();
        }
    }

    /// The number that an acknowledgement carries: that of the last message.
    pub(super) fn acknowledge(&mut self) -> u64 {
        self.unacked = (0, 0);
        self.last
    }

    /// True if messages are held because earlier ones are missing.
    pub(super) fn lacks(&self) -> bool {
        !self.held.is_empty()
    }

    /// Gives up what is missing: messages held are delivered, except those of clients of which an
    /// earlier one is lost. Answers the dropped ones.
    pub(super) fn give_up(&mut self, me: DaemonId, out: &mut Given<B>) -> Vec<DataFrame<B>> {
        if self.lacks() {
            self.given_up.get_or_insert((self.last, BTreeSet::new()));
        }
        let mut dropped = Vec::new();
        while let Some((_, data)) = self.held.pop_first() {
            self.bytes -= data.body.size() as u64;
            if data.follows(me).is_some_and(|(_, before)| self.has(before)) {
                self.deliver(data, out);
            } else {
                dropped.push(data);
            }
        }
        dropped
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Enters a stage of recovery. [`Stage::None`]: the origin is back, and begins anew with what
    /// it has given up.
    pub(super) fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        if stage == Stage::None {
            self.given_up = None;
        }
    }

    /// True if copies are kept.
    pub(super) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Drops all copies.
    pub(super) fn clear_copies(&mut self) {
        self.settle(u64::MAX);
        self.copies.shrink_to_fit();
    }

    /// The copies that other survivors lack and that `me` is to send: the least daemon that holds a
    /// message does.
    ///
    /// `holdings` are the last messages that survivors have delivered; `alive` tells whether a
    /// daemon is reachable.
    pub(super) fn owed(
        &self,
        me: Incarnation,
        holdings: &BTreeMap<Incarnation, u64>,
        alive: impl Fn(Incarnation) -> bool,
    ) -> Vec<DataFrame<B>> {
        let has = |daemon: Incarnation, seq: u64| holdings.get(&daemon).is_some_and(|&last| last >= seq);
        let mut owed = Vec::new();
        for copy in &self.copies {
            let set = copy.set.as_slice();
            let holder = set.iter().find(|&&daemon| daemon == me || (alive(daemon) && has(daemon, copy.seq)));
            if holder != Some(&me) {
                continue;
            }
            let mut to = Bits::none(set.len());
            for (index, &daemon) in set.iter().enumerate() {
                if daemon != me && alive(daemon) && !has(daemon, copy.seq) {
                    to.insert(index);
                }
            }
            if !to.is_empty() {
                owed.push(DataFrame { to, resent: true, life: super::retain::LIFE, ..copy.clone() });
            }
        }
        owed
    }
}

/// Messages, and bytes, that one acknowledgement may cover.
const ACK_MESSAGES: u32 = 32;
const ACK_BYTES: u64 = 64_000;
