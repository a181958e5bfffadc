//! The reserve of a connection that its window limits for a moment.

use super::Wants;
use crate::Time;

/// A connection's logical partition (the aggregates paper, § 4.2.3): tokens for the part that it
/// could not use while its window limited it.
///
/// It gets them later in addition to its part, from the connections that used it in the meantime.
/// Their partitions are negative by the same amount.
///
/// BBR pauses for one or two round trips every ten seconds. Without this it would have less, the
/// longer its round trip is. The caller keeps the partition from tick to tick;
/// [`Shares`](super::Shares) does the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Partition {
    /// Tokens, bytes; negative for a debt.
    tokens: f64,
    /// Its part if only shares limited all connections, bytes/s.
    due: f64,
    /// Its present part, bytes/s.
    given: f64,
    /// The relative raise of its weight at present.
    raise: f64,
}

impl Partition {
    /// Counts tokens for `span` seconds in which it sent `sent` bytes.
    pub(super) fn settle(&mut self, span: f64, sent: u64, wants: Wants) {
        let (due, given) = (self.due * span, self.given * span);
        let had = match (wants.waits, wants.hungry) {
            (true, _) => sent as f64,
            // Data sent at a time are no difference.
            (_, true) => (sent as f64).clamp(due.min(given), due.max(given)),
            _ => due,
        };
        let most = self.due * DEPTH.as_secs_f64();
        let old = libm::exp(-span / FORGOTTEN.as_secs_f64());
        self.tokens = (self.tokens * old + due - had).clamp(-most, most);
        self.raise = 0.0;
    }

    /// Sets its part without regard to reserves.
    pub(super) fn is_due(&mut self, part: f64) {
        (self.due, self.given) = (part, part);
    }

    /// Sets its part with regard to reserves.
    pub(super) fn is_given(&mut self, part: f64) {
        self.given = part;
    }

    /// Raises its weight to give tokens back, or lowers it to take them. Returns the relative
    /// change.
    pub(super) fn give_back(&mut self) -> f64 {
        if !self.is_even() {
            self.raise = (self.tokens / (self.due * BACK.as_secs_f64())).clamp(-MOST, MOST);
        }
        self.raise
    }

    /// The relative raise of its weight.
    pub(super) fn raised(&self) -> f64 {
        self.raise
    }

    /// True if hardly any tokens are reserved or owed.
    pub(super) fn is_even(&self) -> bool {
        self.tokens.abs() <= self.due * LEAST.as_secs_f64()
    }
}

/// The depth of a partition, as time at its connection's part.
const DEPTH: Time = Time::from_secs(2);
/// The time in which tokens are given back.
const BACK: Time = Time::from_secs(2);
/// Tokens below this time at its part are ignored: a connection that keeps its pace is as far ahead
/// or behind now and then.
const LEAST: Time = Time::from_millis(10);
/// The time after which tokens that cannot be given back, since the path limits the connection, are
/// down to a third.
const FORGOTTEN: Time = Time::from_secs(60);
/// The largest relative change of a weight.
const MOST: f64 = 0.4;
