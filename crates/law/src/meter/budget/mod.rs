//! Enforcement of budgets, where a host's packets enter (the FCP report, CMU-CS-12-125, § 5 and §
//! 6.1.3, "Misbehaving users").

use super::{MeterConfig, Offence, Passage};
use crate::sender::least_pause;
use crate::{Budget, Time, Toll};

/// The account of one host, whatever number of flows it spreads its packets over.
///
/// Two things are checked, each by itself:
///
/// - **What is spent**, Σ paid · size, against the budget: a bucket that fills at the budget's rate
///   and holds what it buys in `burst` round trips. (The report's inequality multiplies by the
///   preload, which is zero for a steady flow; its text, "operating within its budget", is what is
///   done here.)
/// - **What was announced** against what is spent a round trip later. Spending less all that was
///   announced until a round trip ago is a constant for who keeps its promises, whatever flows come
///   and go. A host whose announcements are not followed lets it fall, one that gives back what it
///   goes on spending lets it rise; either without end. A slow drift, `tolerance` budgets a round
///   trip, is forgiven: announcements get lost.
///
/// A host that is accused is held: it announces nothing any more, the price that goes back to it is
/// raised until what it spends is its budget ([`BudgetMeter::answer`]), and what exceeds that
/// nevertheless is dropped.
#[derive(Clone, Debug)]
pub struct BudgetMeter {
    config: MeterConfig,
    /// $/s.
    budget: f64,
    /// Mean round trip as stated, s; 0 until one was.
    rtt: f64,
    /// $ spent beyond what the budget has bought since, and when that was.
    spent: f64,
    settled: Time,
    /// Σ of announced changes, $/s.
    announced: f64,
    round: Round,
    /// Spending less announcements: what it has been of late, $/s.
    usual: Option<f64>,
    accusation: Option<BudgetAccusation>,
    /// Of a host that is held: what it would have spent in this round, $, and by how much its price
    /// is raised.
    wanted: f64,
    raised: f64,
    dropped: u64,
}

/// An offence against a budget, and when it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetAccusation {
    /// When.
    pub at: Time,
    /// What.
    pub offence: Offence,
}

/// A round trip of the account.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begins: Time,
    /// $ paid in it.
    paid: f64,
    /// The integral over it of what had been announced, $, and up to when.
    promised: f64,
    at: Time,
    /// The mean announced in the round before, $/s.
    before: Option<f64>,
}

impl BudgetMeter {
    /// The account of a host that may spend `budget`. Of `config`, the tolerance and the burst
    /// count, and whether it is enforced.
    pub fn new(config: MeterConfig, budget: Budget) -> BudgetMeter {
        BudgetMeter {
            config,
            budget: budget.get(),
            rtt: 0.0,
            spent: 0.0,
            settled: Time::ZERO,
            announced: 0.0,
            round: Round::default(),
            usual: None,
            accusation: None,
            wanted: 0.0,
            raised: 1.0,
            dropped: 0,
        }
    }

    /// Whether the host is held.
    pub fn holds(&self) -> bool {
        self.accusation.is_some() && self.config.enforce
    }

    /// What goes back to the host of a price `echo`.
    pub fn answer(&self, echo: f32) -> f32 {
        if self.holds() { (f64::from(echo) * self.raised).min(f64::from(f32::MAX)) as f32 } else { echo }
    }

    /// What the host is accused of, if it is: the first offence found.
    pub fn accusation(&self) -> Option<BudgetAccusation> {
        self.accusation
    }

    /// Packets dropped since it is held.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Somebody further on has found that the host commits `offence`.
    pub fn accuse(&mut self, at: Time, offence: Offence) {
        if self.accusation.is_none() {
            self.accusation = Some(BudgetAccusation { at, offence });
            // It is to hear of its new price before anything is dropped.
            self.spent = 0.0;
        }
    }

    /// A packet of `size` bytes passes. Of its bytes, the flow's first packet has announced
    /// `opening`: what passes of them in its first round trip. `price` is what its path asked last:
    /// of a host that is held, the packet is charged that, whatever it states.
    pub fn on_data(
        &mut self,
        now: Time,
        size: u32,
        toll: &mut Toll,
        opening: f32,
        price: Option<f64>,
    ) -> Passage {
        let held = self.holds();
        let price = price.filter(|_| held);
        let rtt = f64::from(toll.rtt);
        if !(rtt > 0.0 && rtt.is_finite()) {
            // What a first packet announces is bounded by what budgets buy, but not in price: of
            // one who is held it is not believed.
            return if held && toll.offer > 0.0 { silence(toll) } else { Passage::Untouched };
        }
        let rtt = rtt.clamp(SHORTEST, LONGEST);
        self.rtt = if self.rtt == 0.0 { rtt } else { self.rtt + (rtt - self.rtt) * RTT_GAIN };
        let stated = f64::from(toll.stake);
        let stated = if stated > 0.0 && stated.is_finite() { stated } else { 0.0 };
        let paid = price.unwrap_or(stated) * f64::from(size);

        let gone = now.saturating_sub(self.settled).as_secs_f64();
        self.settled = now;
        let slack = if held { 1.0 } else { 1.0 + self.config.tolerance };
        self.spent = (self.spent - gone * self.budget * slack).max(0.0);
        let most = self.budget * self.config.burst * self.rtt;
        self.wanted += paid;
        if held && self.spent + paid > most.max(paid) {
            self.dropped += 1;
            return Passage::Dropped;
        }
        self.spent += paid;
        if self.spent > most + paid && self.accusation.is_none() {
            self.accuse(now, Offence::Overspent);
        }
        let first = f64::from(opening) * stated / rtt;
        let change = f64::from(toll.offer) * stated * f64::from(size) / rtt;
        self.follow(now, stated * f64::from(size), [first, change]);
        if !held {
            return Passage::Untouched;
        }
        let mut changed = Passage::Untouched;
        if let Some(price) = price
            && price > stated
        {
            toll.stake = price as f32;
            changed = Passage::Rewritten;
        }
        if toll.offer != 0.0 { silence(toll) } else { changed }
    }

    /// Keeps the account of what is announced and what comes of it.
    fn follow(&mut self, now: Time, paid: f64, changes: [f64; 2]) {
        if self.round.at == Time::ZERO {
            self.round = Round { begins: now, at: now, ..Round::default() };
        }
        self.round.promised += self.announced * now.saturating_sub(self.round.at).as_secs_f64();
        self.round.at = now;
        self.round.paid += paid;
        for change in changes.into_iter().filter(|change| change.is_finite()) {
            self.announced += change.clamp(-MOST, MOST);
        }
        let length = now.saturating_sub(self.round.begins).as_secs_f64();
        if length >= self.rtt {
            self.end_round(now, length);
        }
    }

    fn end_round(&mut self, now: Time, length: f64) {
        if self.holds() && self.budget > 0.0 {
            // Half of the way up, since a change takes a round trip to be answered; and slowly
            // down, since who was held may pause.
            let over = self.wanted / length / self.budget;
            let step = if over > 1.0 { over.min(4.0).sqrt() } else { over.max(LEAST_STEP) };
            self.raised = (self.raised * step).clamp(1.0, MOST_RAISED);
        }
        self.wanted = 0.0;
        let promised = self.round.promised / length;
        let spending = self.round.paid / length;
        // After a pause the round before says nothing about this one.
        let fresh = length < 4.0 * self.rtt;
        if let Some(before) = self.round.before.filter(|_| fresh) {
            let kept = spending - before;
            let usual = self.usual.get_or_insert(kept);
            let forgiven = self.config.tolerance * self.budget;
            *usual += (kept - *usual).clamp(-forgiven, forgiven);
            let off = kept - *usual;
            // A sender that hears nothing any more starts anew, and announces once more what it had
            // announced.
            let most = self.config.burst * self.budget;
            if off < -2.0 * most {
                self.accuse(now, Offence::Overpromised);
            } else if off > most {
                self.accuse(now, Offence::TakenBack);
            }
        } else {
            self.usual = None;
        }
        self.round = Round { begins: now, at: now, before: Some(promised), ..Round::default() };
    }
}

fn silence(toll: &mut Toll) -> Passage {
    toll.offer = 0.0;
    Passage::Rewritten
}

/// What a flow pays, where its packets leave the network.
///
/// The report lets each link subtract its price of a round trip ago from the balance; what is left
/// at the egress is on the average nothing. Here the egress remembers what the links asked a round
/// trip ago, which is the same sum and needs no writing: a sender pays too little if it states less
/// than the *least* price that its path has asked over the last eight round trips, or a second if
/// that is more: packets may have waited long since their price was told. By how much it does is
/// added up over time; a part of `tolerance` is forgiven, `burst` half round trips unpaid are an
/// accusation. Of what is sent again nothing is held against anybody: who hears nothing any more
/// can't know the price. Nor of a packet each pause of the least rate, which pays what a budget has
/// for it.
#[derive(Clone, Debug)]
pub struct BalanceMeter {
    config: MeterConfig,
    /// The least price in this turn of eight round trips, and in the one before.
    least: f64,
    before: f64,
    turns: Time,
    last: Time,
    /// Packets that the least rate has for a flow that pays too little.
    least_rate: f64,
    /// Round trips not paid for.
    missing: f64,
    accusation: Option<BudgetAccusation>,
}

impl BalanceMeter {
    /// A meter for a flow.
    pub fn new(config: MeterConfig) -> BalanceMeter {
        BalanceMeter {
            config,
            least: f64::INFINITY,
            before: 0.0,
            turns: Time::ZERO,
            last: Time::ZERO,
            least_rate: MOST_AT_LEAST_RATE,
            missing: 0.0,
            accusation: None,
        }
    }

    /// What the flow is accused of, if it is.
    pub fn accusation(&self) -> Option<BudgetAccusation> {
        self.accusation
    }

    /// A packet leaves, sent for the first time if `fresh`, having been asked for `toll.due` on its
    /// way.
    pub fn on_data(&mut self, now: Time, fresh: bool, toll: &Toll) {
        let rtt = f64::from(toll.rtt);
        if !(rtt > 0.0 && rtt.is_finite()) {
            return;
        }
        let rtt = rtt.clamp(SHORTEST, LONGEST);
        if now >= self.turns {
            // Until a whole turn was seen nothing is known of what was asked before it.
            self.before = if self.turns == Time::ZERO { 0.0 } else { self.least };
            self.least = f64::INFINITY;
            self.turns = now + Time::from_secs_f64((MEMORY * rtt).clamp(SHORTEST_MEMORY, LONGEST_MEMORY));
        }
        let asked = self.least.min(self.before);
        self.least = self.least.min(toll.due);
        let gone = now.saturating_sub(self.last).as_secs_f64();
        self.last = now;
        self.least_rate =
            (self.least_rate + LEAST_RATE_SLACK * gone / least_pause(rtt)).min(MOST_AT_LEAST_RATE);
        if fresh && asked > 0.0 && asked.is_finite() {
            let mut part = (1.0 - f64::from(toll.stake).max(0.0) / asked).clamp(-1.0, 1.0);
            if part > 0.0 && self.least_rate >= 1.0 {
                self.least_rate -= 1.0;
                part = 0.0;
            }
            let more = (gone / rtt).min(1.0) * (part - self.config.tolerance);
            self.missing = if more.is_finite() { (self.missing + more).max(0.0) } else { self.missing };
        }
        if self.missing > self.config.burst / 2.0 {
            let accusation = BudgetAccusation { at: now, offence: Offence::Underpaid };
            self.accusation.get_or_insert(accusation);
        }
    }
}

/// Round trips that are believed, s.
const SHORTEST: f64 = 1e-3;
const LONGEST: f64 = 1.0;
/// Round trips that prices are remembered for, and the shortest and the longest time, s.
const MEMORY: f64 = 8.0;
const SHORTEST_MEMORY: f64 = 1.0;
const LONGEST_MEMORY: f64 = 4.0;
/// Of a flow at the least rate, packets that may come together, and how much sooner than one a
/// pause: waiting varies.
const MOST_AT_LEAST_RATE: f64 = 2.0;
const LEAST_RATE_SLACK: f64 = 1.1;
const MOST_RAISED: f64 = 1e6;
const LEAST_STEP: f64 = 0.98;
const RTT_GAIN: f64 = 1.0 / 16.0;
/// No announcement counts for more, $/s.
const MOST: f64 = 1e60;

#[cfg(test)]
mod tests;
