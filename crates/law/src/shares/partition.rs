//! What is kept for a connection whose window holds it for a moment.

use super::Wants;
use crate::Time;

/// A connection's logical partition (the aggregates paper, § 4.2.3): tokens for what it could not
/// use of its part while its window held it, which it gets on top of its part later, from those who
/// had it in the meantime. Theirs are as many below nothing.
///
/// BBR stops for one or two round trips every ten seconds: without this it would have the less the
/// longer its round trip is. It is the caller's to keep from tick to tick; all else about it is
/// [`Shares`](super::Shares)'.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Partition {
    /// Bytes.
    tokens: f64,
    /// Its part, were it and all others held by nothing but their shares; bytes a second.
    due: f64,
    /// What it was given instead.
    given: f64,
    /// The part of itself by which its weight is raised now.
    raise: f64,
}

impl Partition {
    /// Counts tokens for `span` seconds in which it sent so much.
    pub(super) fn settle(&mut self, span: f64, sent: u64, wants: Wants) {
        let (due, given) = (self.due * span, self.given * span);
        let had = match (wants.waits, wants.hungry) {
            (true, _) => sent as f64,
            // What it sends at a time is no difference.
            (_, true) => (sent as f64).clamp(due.min(given), due.max(given)),
            _ => due,
        };
        let most = self.due * DEPTH.as_secs_f64();
        let old = libm::exp(-span / FORGOTTEN.as_secs_f64());
        self.tokens = (self.tokens * old + due - had).clamp(-most, most);
        self.raise = 0.0;
    }

    /// Its part without regard to what is kept.
    pub(super) fn is_due(&mut self, part: f64) {
        (self.due, self.given) = (part, part);
    }

    /// What it has with regard to it.
    pub(super) fn is_given(&mut self, part: f64) {
        self.given = part;
    }

    /// Raises its weight to give tokens back, or lowers it to take them; answers by which part of
    /// itself.
    pub(super) fn give_back(&mut self) -> f64 {
        if !self.is_even() {
            self.raise = (self.tokens / (self.due * BACK.as_secs_f64())).clamp(-MOST, MOST);
        }
        self.raise
    }

    /// By which part of itself its weight is raised.
    pub(super) fn raised(&self) -> f64 {
        self.raise
    }

    /// Next to nothing is kept, or owed.
    pub(super) fn is_even(&self) -> bool {
        self.tokens.abs() <= self.due * LEAST.as_secs_f64()
    }
}

/// A partition is so long a time of its connection's part deep.
const DEPTH: Time = Time::from_secs(2);
/// Tokens are given back in about so long,
const BACK: Time = Time::from_secs(2);
/// but for the last so many: who keeps its pace is as much ahead or behind now and then.
const LEAST: Time = Time::from_millis(10);
/// What can't be given back, since its path holds a connection, is down to a third after so long.
const FORGOTTEN: Time = Time::from_secs(60);
/// Nobody's weight changes by more than this part of it.
const MOST: f64 = 0.4;
