//! The account of an owner's budget while it moves between flows: equation 1 at each instant.

use crate::Time;

/// Decreases of flows' budgets that have not taken effect, and parts lent to newcomers before the
/// others have made room.
///
/// A change of a flow's budget is announced for a round trip and takes effect over the next one. A
/// decrease is announced faster ([`Fall::new`]). An increase may be given as soon as no decrease
/// ends later than it does. The round trip of a newcomer is unknown: what it may spend at its first
/// price is lent to it, within [`CREDIT`].
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    falls: Vec<Fall>,
    loans: Vec<Loan>,
}

/// A decrease under way.
#[derive(Clone, Copy, Debug)]
pub struct Fall {
    begins: Time,
    ends: Time,
    /// $/s.
    amount: f64,
}

/// Spending beyond the budget, dollars, and the time from which it is no part of the last second.
#[derive(Clone, Copy, Debug)]
struct Loan {
    dollars: f64,
    until: Time,
}

impl Fall {
    /// A decrease by `amount` of `from` $/s, told at `now` to a flow with a packet every `spacing`.
    ///
    /// Its next packet announces it; it takes effect a round trip later, within a quarter of a
    /// round trip, or the part of one that it is of the flow's spending.
    pub fn new(now: Time, rtt: Time, spacing: Time, amount: f64, from: f64) -> Fall {
        let part = if from > 0.0 { (amount / from).clamp(QUICK, 1.0) } else { 1.0 };
        let begins = now.saturating_add(rtt).saturating_add(spacing);
        Fall { begins, ends: begins.saturating_add(Time((rtt.0 as f64 * part) as u64)), amount }
    }

    /// True if an increase told at `now` to a flow of round trip `rtt` takes effect before the
    /// decrease. It begins a round trip later, and takes another. Round trips that differ by an
    /// eighth count as equal.
    fn outlasts(&self, now: Time, rtt: Time) -> bool {
        let slack = Time(rtt.0 / 8);
        let begins = now.saturating_add(rtt).saturating_add(slack);
        self.begins > begins || self.ends > begins.saturating_add(rtt)
    }
}

impl Ledger {
    /// Forgets what has taken effect by `now`.
    pub fn settle(&mut self, now: Time) {
        self.falls.retain(|fall| fall.ends > now);
        self.loans.retain(|loan| loan.until > now);
    }

    /// Records a decrease.
    pub fn fall(&mut self, mut fall: Fall) {
        // Flows with one round trip share an entry.
        fall.begins = Time(fall.begins.0.next_multiple_of(GRAIN.0));
        fall.ends = Time(fall.ends.0.next_multiple_of(GRAIN.0));
        let same = |other: &&mut Fall| other.begins == fall.begins && other.ends == fall.ends;
        match self.falls.iter_mut().rev().take(8).find(same) {
            Some(other) => other.amount += fall.amount,
            None => self.falls.push(fall),
        }
    }

    /// The budget that decreases still hold when an increase told at `now` to a flow of round trip
    /// `rtt` takes effect, $/s. A round trip of zero is unknown.
    pub fn held(&self, now: Time, rtt: Time) -> f64 {
        let held = |fall: &&Fall| fall.ends > now && fall.outlasts(now, rtt);
        self.falls.iter().filter(held).map(|fall| fall.amount).sum()
    }

    /// Dollars lent that may be spent within one second.
    pub fn lent(&self) -> f64 {
        self.loans.iter().map(|loan| loan.dollars).sum()
    }

    /// Records `dollars` that are spent beyond the budget until `due`.
    pub fn spend(&mut self, dollars: f64, due: Time) {
        if dollars > 0.0 {
            self.loans.push(Loan { dollars, until: due.saturating_add(Time::from_secs(1)) });
        }
    }
}

/// The part of a second's budget that may be lent within one second.
pub const CREDIT: f64 = 0.01;
/// A decrease is announced within this part of a round trip, if it is no larger part of the
/// spending.
const QUICK: f64 = 0.25;
/// The grain of recorded times.
const GRAIN: Time = Time::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn increases_of_nearer_flows_wait_for_decreases_of_farther_ones() {
        let mut ledger = Ledger::default();
        ledger.fall(Fall::new(ms(1000), ms(600), Time::ZERO, 0.1, 1.0));
        // It takes effect from 1600 to 1750 ms; an increase takes its own round trip twice.
        for (now, rtt, held) in [
            (1000, 600, 0.0),
            (1000, 500, 0.1),
            (1000, 10, 0.1),
            (1700, 10, 0.1),
            (1740, 10, 0.0),
            (1751, 0, 0.0),
        ] {
            assert_eq!(ledger.held(ms(now), ms(rtt)), held, "{now} {rtt}");
        }
        ledger.settle(ms(1751));
        assert_eq!(ledger.falls.len(), 0);
    }

    #[test]
    fn a_flow_that_gives_up_everything_needs_a_round_trip_for_it() {
        let mut ledger = Ledger::default();
        ledger.fall(Fall::new(ms(0), ms(100), ms(10), 1.0, 1.0));
        // From 110 to 210 ms.
        assert_eq!((ledger.held(ms(0), ms(100)), ledger.held(ms(0), ms(50))), (0.0, 1.0));
        assert_eq!((ledger.held(ms(209), ms(0)), ledger.held(ms(210), ms(0))), (1.0, 0.0));
    }

    #[test]
    fn a_loan_counts_for_a_second_after_it_is_due() {
        let mut ledger = Ledger::default();
        ledger.spend(0.005, ms(300));
        ledger.settle(ms(1299));
        assert_eq!(ledger.lent(), 0.005);
        ledger.settle(ms(1300));
        assert_eq!(ledger.lent(), 0.0);
    }
}
