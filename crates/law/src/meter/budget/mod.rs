//! Enforcement of budgets, where a host's packets enter (the FCP report, CMU-CS-12-125, § 5 and §
//! 6.1.3, "Misbehaving users").

use super::{MeterConfig, Offence, Passage};
use crate::sender::{LONGEST_PAUSE, longest_pause};
use crate::{Budget, Time, Toll};

/// The account of one host over all its flows.
///
/// Two independent checks:
///
/// - **Spending**, Σ paid · size, against the budget: a bucket that fills at the budget's rate and
///   holds the budget of `burst` round trips, and a packet of each flow: those of flows with few
///   packets a round trip may come at once, and each pays for the time until the next. (The report's inequality multiplies by the preload,
///   which is zero for a steady flow. This follows its text, "operating within its budget".)
/// - **Announcements** against the spending a round trip later. Spending, less everything announced
///   up to a round trip ago, is constant for a host that keeps its promises, whatever flows start
///   and end. If announcements are not followed it falls without end. If a host takes back an
///   amount and continues to spend it, it rises without end. A slow drift, `tolerance` budgets per
///   round trip, is forgiven, since announcements get lost.
///
/// An accused host is held. Its announcements are removed. The price returned to it is raised until
/// its spending matches its budget ([`BudgetMeter::answer`]), and packets above that are dropped.
#[derive(Clone, Debug)]
pub struct BudgetMeter {
    config: MeterConfig,
    /// The budget, $/s.
    budget: f64,
    /// Mean round trip as stated, s; 0 until one was.
    rtt: f64,
    /// $ spent beyond the income of the budget up to the last packet, and the time of that packet.
    spent: f64,
    settled: Time,
    /// Σ of announced changes, $/s.
    announced: f64,
    round: Round,
    /// The recent average of spending less announcements, $/s.
    usual: Option<f64>,
    accusation: Option<BudgetAccusation>,
    /// For a held host: the amount it would have spent in this round, $, and the factor on its
    /// price.
    wanted: f64,
    raised: f64,
    dropped: u64,
    /// Flows of the host that were seen.
    flows: u32,
}

/// An offence against a budget, and the time it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetAccusation {
    /// Time of the accusation.
    pub at: Time,
    /// The offence.
    pub offence: Offence,
}

/// A round trip of the account.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begins: Time,
    /// $ paid in this round.
    paid: f64,
    /// The integral of the announced spending over this round, $, and the instant up to which it is
    /// computed.
    promised: f64,
    at: Time,
    /// The mean of announced spending in the previous round, $/s.
    before: Option<f64>,
}

impl BudgetMeter {
    /// The account of a host with `budget`. `config` gives the tolerance, the burst and
    /// enforcement.
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
            flows: 0,
        }
    }

    /// Handles the first packet of a flow.
    pub fn on_flow(&mut self) {
        self.flows = self.flows.saturating_add(1);
    }

    /// True if the host is held.
    pub fn holds(&self) -> bool {
        self.accusation.is_some() && self.config.enforce
    }

    /// The price to return to the host in place of `echo`.
    pub fn answer(&self, echo: f32) -> f32 {
        if self.holds() { (f64::from(echo) * self.raised).min(f64::from(f32::MAX)) as f32 } else { echo }
    }

    /// The first offence found, if any.
    pub fn accusation(&self) -> Option<BudgetAccusation> {
        self.accusation
    }

    /// Packets dropped since the host was held.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Records an `offence` of the host that another meter found.
    pub fn accuse(&mut self, at: Time, offence: Offence) {
        if self.accusation.is_none() {
            self.accusation = Some(BudgetAccusation { at, offence });
            // It is to hear of its new price before anything is dropped.
            self.spent = 0.0;
        }
    }

    /// Handles a packet of `size` bytes.
    ///
    /// `opening` is the number of its bytes that the flow's first packet announced, in the flow's
    /// first round trip. `price` is the last price of its path: a held host's packet is charged
    /// this, whatever it states.
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
            // The announcement of a first packet is bounded by budgets, but not in price. That of a
            // held host is not believed.
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
        let flows = f64::from(self.flows.max(1));
        let at_once = (paid * flows).min(self.budget * longest_pause(self.rtt, LONGEST_PAUSE)).max(paid);
        if self.spent > most + at_once && self.accusation.is_none() {
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

    /// Updates the account of announcements and the spending that follows them.
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
            // Rises half of the way, since a change takes a round trip to take effect. Falls
            // slowly, since a held host may pause.
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

/// The payments of a flow, checked where its packets leave the network.
///
/// The report lets each link subtract its price of a round trip ago from the balance; the rest at
/// the egress averages to zero. Here the egress remembers the path price of a round trip ago, which
/// is the same sum without writes.
///
/// A sender pays too little if it states less than the *least* price of its path over the last
/// eight round trips, and at least over a second. The time covers the waits of packets. The
/// deficits add up over time. A part of `tolerance` is forgiven; `burst` half round trips unpaid
/// are an accusation. Retransmissions are exempt: a sender without feedback cannot know the price.
/// So is one packet per pause of the least rate, which pays what a budget has for it.
#[derive(Clone, Debug)]
pub struct BalanceMeter {
    config: MeterConfig,
    /// The least price in the present period of eight round trips, and in the previous one.
    least: f64,
    before: f64,
    turns: Time,
    last: Time,
    /// Packets that the least rate allows a flow that pays too little.
    least_rate: f64,
    /// Unpaid round trips.
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

    /// The flow's offence, if any.
    pub fn accusation(&self) -> Option<BudgetAccusation> {
        self.accusation
    }

    /// Handles a packet that leaves the network. `fresh` is true for a first transmission;
    /// `toll.due` is the price of its path.
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
        self.least_rate = (self.least_rate + LEAST_RATE_SLACK * gone / longest_pause(rtt, LONGEST_PAUSE))
            .min(MOST_AT_LEAST_RATE);
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

/// The range of round trips that are believed, s.
const SHORTEST: f64 = 1e-3;
const LONGEST: f64 = 1.0;
/// Round trips for which prices are remembered, and the bounds of that time, s.
const MEMORY: f64 = 8.0;
const SHORTEST_MEMORY: f64 = 1.0;
const LONGEST_MEMORY: f64 = 4.0;
/// At the least rate: packets that may arrive together, and the factor by which they may exceed one
/// per pause, since queueing varies.
const MOST_AT_LEAST_RATE: f64 = 2.0;
const LEAST_RATE_SLACK: f64 = 1.1;
const MOST_RAISED: f64 = 1e6;
const LEAST_STEP: f64 = 0.98;
const RTT_GAIN: f64 = 1.0 / 16.0;
/// Upper bound on an announcement, $/s.
const MOST: f64 = 1e60;

#[cfg(test)]
mod tests;
