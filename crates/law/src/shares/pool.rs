//! The bucket of a tenant or of the link.

use super::Contract;
use crate::Rate;

/// A bucket filled by a clock and emptied by bytes sent; it may be in debt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    /// Fill rate, bytes/s.
    pub(super) rate: Option<f64>,
    peak: f64,
    pub(super) depth: f64,
    pub(super) level: f64,
    /// Bytes that its connections may have sent ahead of their paces.
    ahead: f64,
}

impl Pool {
    pub(super) fn new(contract: &Contract) -> Pool {
        let rate = contract.rate.map(Rate::bytes_per_sec);
        let peak = contract.peak.or(contract.rate).map_or(f64::INFINITY, Rate::bytes_per_sec);
        let depth = match (contract.depth, rate) {
            (Some(depth), _) => depth.get() as f64,
            (None, Some(rate)) => rate * DEFAULT_DEPTH,
            (None, None) => 0.0,
        };
        Pool { rate, peak: peak.max(rate.unwrap_or(0.0)), depth, level: depth, ahead: 0.0 }
    }

    pub(super) fn advance(&mut self, span: f64, sent: u64, ahead: u64) {
        if let Some(rate) = self.rate {
            self.ahead = ahead as f64;
            // Debt is bounded, or a mistaken count would be paid for long.
            let least = -self.depth.max(rate * DEFAULT_DEPTH) - self.ahead;
            self.level = (self.level + rate * span - sent as f64).clamp(least, self.depth);
        }
    }

    /// The rate to divide now.
    pub(super) fn ceiling(&self, horizon: f64) -> f64 {
        match self.rate {
            None => self.peak,
            // Half of the rate at least: debts are paid, but not by standing still.
            Some(rate) if self.level + self.ahead < 0.0 => {
                (rate + (self.level + self.ahead) / DEBT_TIME).max(rate / 2.0)
            }
            Some(rate) => (rate + self.level.max(0.0) / horizon).min(self.peak),
        }
    }

    /// The rate that may be lent in addition.
    pub(super) fn spare(&self, horizon: f64) -> f64 {
        if self.rate.is_some() { self.level.max(0.0) / horizon } else { f64::INFINITY }
    }

    pub(super) fn part(&self) -> f64 {
        if self.rate.is_some() && self.depth > 0.0 { self.level / self.depth } else { 1.0 }
    }
}

/// Depth of a bucket without a configured one, in seconds of its rate.
const DEFAULT_DEPTH: f64 = 0.1;
/// Seconds in which a debt is paid.
const DEBT_TIME: f64 = 1.0;
