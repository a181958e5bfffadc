//! The state of a Redis client's connection.

use std::collections::{BTreeMap, VecDeque};

use crate::redis::{Gather, Part, Setup};

/// The state of a client's connection beyond its commands under way.
#[derive(Default)]
pub(in crate::engine) struct Redis {
    /// Set-up commands in force, for members connected later.
    pub(super) setup: BTreeMap<Setup, Vec<u8>>,
    pub(super) pending: VecDeque<Pending>,
    /// The transaction that is being queued.
    pub(super) transaction: Option<Transaction>,
    /// The member that watches keys for this connection, or has its transaction.
    pub(super) watched: Option<usize>,
    /// The member that sends this connection its subscriptions.
    pub(super) subscribed: Option<usize>,
    /// The reason to handle no further command until all before are answered.
    pub(super) barrier: Option<Barrier>,
    /// Commands that several members answer, in the order of the frames.
    pub(super) joins: VecDeque<Join>,
}

/// A set-up command without an answer yet.
pub(super) struct Pending {
    pub(super) seq: u64,
    pub(super) kind: Setup,
    pub(super) frame: Vec<u8>,
    pub(super) before: Option<Vec<u8>>,
}

/// The commands between `MULTI` and `EXEC`.
#[derive(Default)]
pub(super) struct Transaction {
    pub(super) member: Option<usize>,
    /// Commands without a key before the first with one.
    pub(super) first: Vec<Vec<u8>>,
}

impl Transaction {
    /// Bytes kept.
    pub(super) fn kept(&self) -> usize {
        self.first.iter().map(Vec::len).sum()
    }
}

/// The reason to handle no further command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    /// A command may block at this member, or (`None`) at all.
    Blocking(Option<usize>),
    /// The next command needs a connection with nothing under way.
    Idle,
}

/// A command that several members answer.
pub(super) struct Join {
    pub(super) seq: u64,
    pub(super) gather: Gather,
    pub(super) parts: Vec<Part>,
}

impl Redis {
    /// True if the session cannot go on without its present connection to `member`.
    pub(super) fn is_tied_to(&self, member: usize) -> bool {
        let transaction = self.transaction.as_ref().and_then(|transaction| transaction.member);
        [transaction, self.watched, self.subscribed].contains(&Some(member))
    }

    /// True if a command may block at `member`.
    pub(super) fn blocks(&self, member: usize) -> bool {
        matches!(self.barrier, Some(Barrier::Blocking(at)) if at.is_none_or(|at| at == member))
    }

    /// Takes the set-up command whose answer has come.
    pub(super) fn answered(&mut self, seq: u64) -> Option<Pending> {
        let at = self.pending.iter().position(|pending| pending.seq == seq)?;
        self.pending.remove(at)
    }

    /// Puts the previous set-up command of its kind in force again.
    pub(super) fn drop_setup(&mut self, refused: Pending) {
        if self.setup.get(&refused.kind) == Some(&refused.frame) {
            match refused.before {
                Some(before) => self.setup.insert(refused.kind, before),
                None => self.setup.remove(&refused.kind),
            };
        }
    }
}
