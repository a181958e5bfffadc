//! FCP's sender (the FCP report, CMU-CS-12-125, § 4.1 "Sender behavior with preloading", "Start-up
//! behavior").
//!
//! A flow spends w dollars per second: at a path price of P it sends w/P bytes per second, evenly
//! spaced. It announces a change of w to links beforehand, by *preloads*. A packet that pays
//! `paid·size` and carries `preload` announces a change of paid·size·preload/rtt; the change takes
//! effect with its acknowledgement.
//!
//! Read literally (preload (x − w)/w with the present w until w = x), changes are announced for two
//! round trips, and w overshoots. Here one **round** commits a change: the amount missing at its
//! start, spread over the packets of one round trip, the last one trimmed so that the sum is exact.
//! A decrease is announced faster, within a quarter of a round trip if small: it needs no room, and
//! others may use it.
//!
//! So that feedback never stops, a packet leaves at least every four round trips or quarter of a
//! second ([`FcpConfig::max_pause`]), the longer of the two. If the flow's budget does not buy that
//! rate, it pays budget ∕ rate for a byte.

pub(crate) mod config;
mod peak;

use std::collections::VecDeque;

use super::{Acked, Flight, SenderConfig, SenderLaw, Spender};
use crate::price::{at_least, at_most};
use crate::{Budget, Price, Rate, Time, Toll};
pub use config::FcpConfig;
pub(super) use peak::Peak;

/// FCP's sender: rate = budget / price.
#[derive(Clone, Debug)]
pub struct Fcp {
    config: FcpConfig,
    /// Upper bound on its rate, bytes/s.
    line_rate: f64,
    /// The budget that the owner allows the flow.
    budget: Budget,
    /// w, the spending that links expect and that takes place, $/s.
    spending: f64,
    /// w and all announced changes that are not acknowledged yet, $/s.
    committed: f64,
    /// The highest allowance since the last time all announcements were acknowledged, $/s.
    ceiling: f64,
    /// Bytes that the first packet announces for the next round trip.
    first: f64,
    /// The total change that the present round announces, and the remainder; zero between rounds.
    change: f64,
    left: f64,
    /// The price of the path, once known.
    price: Option<Price>,
    /// The rate at that price, bytes/s, as of the last feedback.
    pace: f64,
    /// Announcements in flight, in the order sent.
    promises: VecDeque<Promise>,
    /// Dollars spent since the start.
    spent: f64,
    /// True if the owner changed the budget since the last packet.
    revised: bool,
    /// True while the last packets are sent.
    ending: bool,
    /// True once all that it wanted was announced.
    established: bool,
    /// True after a silence in which links may have dropped its state: the next price restarts it.
    forgotten: bool,
    /// The price at the beginning of a round trip, and whether it had risen in the one before.
    trend: Trend,
    /// The instant since which links refuse the rate of its deadline.
    refused: Option<Time>,
    /// Until this instant, a fall of the price may be due to a change of class.
    moved: Option<Time>,
    window: Peak,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trend {
    since: Time,
    price: f64,
    rises: bool,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    sent: Time,
    change: f64,
    /// True if it was confirmed out of order.
    kept: bool,
}

impl FcpConfig {
    /// Builds the law.
    pub fn build(&self) -> Fcp {
        Fcp {
            config: *self,
            line_rate: at_most(self.line_rate.bytes_per_sec(), MOST_RATE),
            budget: self.budget,
            spending: 0.0,
            committed: 0.0,
            ceiling: self.budget.get(),
            first: 0.0,
            change: 0.0,
            left: 0.0,
            price: None,
            pace: 0.0,
            promises: VecDeque::new(),
            spent: 0.0,
            revised: false,
            ending: false,
            established: false,
            forgotten: false,
            trend: Trend::default(),
            refused: None,
            moved: None,
            window: Peak::default(),
        }
    }
}

impl Fcp {
    /// Committed spending, $/s: w and all announced changes that are not confirmed.
    pub fn committed(&self) -> f64 {
        self.committed
    }

    /// The rate to send at the least price, while links grant it.
    fn deadline(&self) -> Option<Rate> {
        self.config.deadline.filter(|_| self.refused.is_none())
    }

    /// The allowed spending; with a deadline, the cost of its rate at the least price.
    fn allowance(&self) -> f64 {
        self.deadline().map_or(self.budget.get(), |rate| rate.bytes_per_sec() * Price::MIN.get())
    }

    /// Handles a price above the least one: no room for the deadline. Starts again at that price.
    fn refuse(&mut self, flight: &Flight, price: Price, rtt: f64) {
        self.refused = Some(flight.now);
        self.first = self.first.max(f64::from(flight.segment));
        self.start(price, rtt);
    }

    /// Handles a price drop from `old` to `new`, maybe due to a class change, before `until`.
    #[cold]
    fn settle(&mut self, now: Time, until: Time, old: Price, new: Price) {
        let ratio = new.get() / old.get();
        if now > until {
            self.moved = None;
        } else if ratio < OTHER_CLASS {
            self.moved = None;
            self.spending *= ratio;
            self.committed = self.spending;
            self.promises.clear();
            (self.left, self.change) = (0.0, 0.0);
        }
    }

    /// Limits the spending of a flow at its least rate, after an unnoticed fall of the price.
    ///
    /// A link on which hardly any flow pays forgets its price. The spending would then buy more
    /// than any link has. A flow that sends no more than its first packets, with no announcements,
    /// is limited to [`LEAP`] times those, and announces the rest.
    #[inline]
    fn tread(&mut self, flight: &Flight, price: Price, rtt: f64) {
        // Size of the first packets, bytes; not divided by the round trip: this runs often.
        let first = self.config.initial_packets * f64::from(flight.segment);
        if self.spending * rtt > LEAP * first * price.get()
            && self.window.highest() * rtt <= first
            && self.left == 0.0
            && self.promises.is_empty()
            && self.deadline().is_none()
        {
            self.hold_to(LEAP * first * price.get() / rtt);
        }
    }

    /// Sets the spending, and drops all announcements.
    #[cold]
    fn hold_to(&mut self, spending: f64) {
        self.spending = spending;
        self.committed = spending;
        self.promises.clear();
        (self.left, self.change) = (0.0, 0.0);
        self.revised = true;
    }

    /// The rate as of the last feedback.
    #[inline]
    pub(super) fn pace(&self) -> Option<Rate> {
        self.price.map(|_| Rate::from_bytes_per_sec(self.pace))
    }

    /// Rate in bytes/s: w/P, but never below the rate that keeps feedback alive.
    #[inline]
    fn rate(&self, price: Price, flight: &Flight) -> f64 {
        let srtt = flight.srtt.as_secs_f64();
        let pause = longest_pause(srtt, self.config.max_pause);
        // The last packets of a flow that has taken everything back need no feedback.
        let pause = if self.ending { pause.min(srtt) } else { pause };
        let segment = f64::from(flight.segment);
        if self.spending * pause < segment * price.get() {
            return segment / pause;
        }
        at_most(self.spending / price.get(), self.line_rate)
    }

    /// The price paid for a byte: the path's, but at the least rate at most what the budget buys. A
    /// higher payment would raise the price further, without end if many flows did so.
    #[inline(always)]
    fn stake(&self, price: Price) -> Price {
        if self.pace * price.get() <= at_least(self.spending, self.allowance()) * ROUNDED || self.ending {
            return price;
        }
        self.least_stake(price)
    }

    /// [`stake`](Fcp::stake) of a flow at the least rate that cannot pay the price.
    #[cold]
    fn least_stake(&self, price: Price) -> Price {
        Price::per_byte(at_most(at_least(self.spending, self.allowance()) / self.pace, price.get()))
    }

    /// The budget to work towards, x_i. A short flow needs only enough to send all within a round
    /// trip (§ 6.1.1); one that sends its last packets needs none afterwards (§ 4.1: preload −1).
    fn target(&self, flight: &Flight, price: Price, rtt: f64) -> f64 {
        let budget = self.allowance();
        if flight.unsent == u64::MAX {
            return budget;
        }
        let unsent = flight.unsent as f64;
        // The rate goes from the present one to the committed one within the round trip.
        let ahead = (self.rate(price, flight) + self.committed / price.get()) / 2.0 * rtt;
        // The rate of a deadline is kept to the end: it would not be given twice.
        let leaving = if self.deadline().is_some() { 1.0 } else { LEAVING };
        if unsent <= leaving * ahead {
            0.0
        } else if unsent > self.config.short.0 as f64 {
            budget
        } else {
            budget.min(price.get() * unsent / rtt)
        }
    }

    /// True if an increase must wait: the flow keeps a rate rather than a budget, and prices rise.
    /// If all such flows bid higher at once, none gains, and the link is overloaded until one
    /// reaches the end of its budget, which may be decades of prices away.
    fn waits(&mut self, flight: &Flight, price: Price, target: f64) -> bool {
        if !self.established || target >= self.allowance() {
            return false;
        }
        if flight.now >= self.trend.since.saturating_add(flight.srtt) {
            let rises = self.trend.price > 0.0 && price.get() > STEADY * self.trend.price;
            self.trend = Trend { since: flight.now, price: price.get(), rises };
        }
        self.trend.rises
    }

    /// The preload of a packet that pays `pays` dollars. `price` is the path's and `stake` the
    /// price paid, as rounded to floats in the toll.
    #[inline(always)]
    fn announce(&mut self, flight: &Flight, [price, stake]: [Price; 2], rtt: f64, pays: f64) -> f32 {
        // A long flow has nothing to say most of the time.
        if flight.unsent == u64::MAX && self.left == 0.0 && !self.revised {
            let target = self.allowance();
            if (target - self.committed).abs() <= SAME * at_least(target, self.committed) {
                self.ending = false;
                return 0.0;
            }
        }
        // By value, so that of a flow with nothing to say it is never put together.
        self.begin_round(*flight, [price, stake], rtt, pays)
    }

    /// [`announce`](Fcp::announce) where a change may be due.
    #[inline(never)]
    fn begin_round(&mut self, flight: Flight, [price, stake]: [Price; 2], rtt: f64, pays: f64) -> f32 {
        let flight = &flight;
        let target = self.target(flight, price, rtt);
        self.ending = target == 0.0 && flight.unsent != u64::MAX;
        let revised = std::mem::take(&mut self.revised);
        if self.left == 0.0 || revised || self.ending && self.change > 0.0 {
            let left = target - self.committed;
            if left.abs() <= SAME * target.max(self.committed)
                || left > 0.0 && self.waits(flight, price, target)
            {
                self.left = 0.0;
                return 0.0;
            }
            // The rest of the present round keeps its pace, and a new change is added to it.
            let change = if self.left == 0.0 { left } else { self.change + (left - self.left) };
            let onward = change * left > 0.0 && change.abs() >= left.abs();
            (self.change, self.left) = (if onward { change } else { left }, left);
        }
        let pace = self.rate(price, flight) * stake.get();
        // A deadline is a matter of all or nothing, which one packet has to ask.
        let haste = match self.deadline() {
            Some(_) => f64::INFINITY,
            None if self.change < 0.0 => HASTE,
            None => 1.0,
        };
        let mut preload =
            (haste * self.change / pace).clamp(-1.0, self.config.max_preload.unwrap_or(f64::INFINITY));
        let most = self.left * rtt / pays;
        let last = preload.abs() >= most.abs();
        if last {
            preload = most;
        }
        let preload = (preload as f32).clamp(f32::MIN, f32::MAX);
        let change = pays * f64::from(preload) / rtt;
        self.left = if last { 0.0 } else { self.left - change };
        self.established |= last;
        self.committed += change;
        self.promises.push_back(Promise { sent: flight.now, change, kept: false });
        preload
    }

    /// Confirms the announcements of the packet sent at `sent`, and of `also` more packets.
    fn confirm(&mut self, sent: Time, srtt: Time, also: u32) {
        // Stamps are coarser than time. Packets sent just before this one may be confirmed later.
        let later = |promise: &Promise| promise.sent.0 > sent.0 + STAMP_NS;
        let older = self.promises.iter().take_while(|promise| !later(promise)).count();
        let exact = older > 0 && self.promises[older - 1].sent.0 + STAMP_NS >= sent.0;
        if exact {
            self.keep(older - 1);
        }
        // A lost or delayed acknowledgement left them: first those before this one, then after.
        let mut also = also.min(MOST_ALSO);
        let before = older.saturating_sub(usize::from(exact));
        for k in (before.saturating_sub(also as usize)..before).rev() {
            if !self.promises[k].kept {
                self.keep(k);
                also -= 1;
            }
        }
        for k in older..(older + also as usize).min(self.promises.len()) {
            self.keep(k);
        }
        // A packet overtaken by many, or by one sent a round trip later, is lost with its
        // announcement; the next round repeats the change.
        let stale = |promise: &&Promise| promise.sent.saturating_add(srtt) < sent;
        let lost = older.saturating_sub(REORDERED).max(self.promises.iter().take_while(stale).count());
        for promise in self.promises.drain(..lost) {
            if !promise.kept {
                self.committed -= promise.change;
            }
        }
        while self.promises.front().is_some_and(|promise| promise.kept) {
            self.promises.pop_front();
        }
        if self.promises.is_empty() {
            self.committed = self.spending;
            self.ceiling = self.allowance();
        }
    }

    fn keep(&mut self, k: usize) {
        let promise = &mut self.promises[k];
        if !promise.kept {
            promise.kept = true;
            // Of a decrease and a later increase the first may be lost: the allowance at the time
            // of announcement is a bound in any case.
            let spending = (self.spending + promise.change).clamp(0.0, self.ceiling.max(self.spending));
            self.committed += spending - self.spending - promise.change;
            self.spending = spending;
        }
    }

    /// Handles the first price: the announced amount may be spent (§ 4.1), within the budget.
    fn start(&mut self, price: Price, rtt: f64) {
        self.spending = (self.first * price.get() / rtt).min(self.allowance());
        self.committed = self.spending;
        self.ceiling = self.allowance();
        self.promises.clear();
        self.left = 0.0;
        self.change = 0.0;
    }
}

impl Spender for Fcp {
    fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
        self.ceiling = self.ceiling.max(budget.get());
        self.revised = true;
    }

    fn change_class(&mut self, now: Time, rtt: Time) {
        self.moved = Some(now.saturating_add(rtt * 2));
    }

    fn budget(&self) -> Budget {
        self.budget
    }

    fn spending(&self) -> f64 {
        self.spending
    }

    fn price(&self) -> Option<Price> {
        self.price
    }

    fn refused(&self) -> Option<Time> {
        self.refused
    }

    fn is_ending(&self) -> bool {
        self.ending
    }

    fn spent(&self) -> f64 {
        self.spent
    }
}

impl SenderLaw for Fcp {
    /// Twice the volume in flight at the highest recent rate: it binds only if acknowledgements
    /// stop.
    #[inline]
    fn window(&self) -> f64 {
        match self.price {
            Some(_) => self.window.segments,
            None if self.config.program => self.config.initial_packets,
            None => 1.0,
        }
    }

    #[inline]
    fn pacing_rate(&self, flight: &Flight) -> Option<Rate> {
        if let Some(price) = self.price {
            debug_assert_eq!(self.pace, self.rate(price, flight), "it changes with news, and as a flow ends");
        }
        self.pace()
    }

    #[inline]
    fn tolled(&self) -> bool {
        true
    }

    #[inline]
    fn tolls_first(&self) -> bool {
        !self.config.program
    }

    #[inline(always)]
    fn write_toll(&mut self, flight: &Flight, toll: &mut Toll) {
        let endless;
        let flight = if self.config.program {
            endless = Flight { unsent: u64::MAX, ..*flight };
            &endless
        } else {
            flight
        };
        let size = f64::from(flight.size.max(1));
        toll.due = 0.0;
        let (Some(price), true) = (self.price, flight.srtt > Time::ZERO) else {
            // Nothing is known yet: it announces a rate, whatever the price turns out to be.
            toll.rtt = 0.0;
            toll.stake = 0.0;
            self.first = self.config.announces(flight.unsent, flight.segment);
            let announced = if self.config.program { size } else { self.first };
            toll.offer = (announced / size) as f32;
            return;
        };
        toll.rtt = flight.srtt.as_secs_f64() as f32;
        let stake = self.stake(price);
        toll.stake = stake.get() as f32;
        let pays = f64::from(toll.stake) * size;
        self.spent += pays;
        let ending = self.ending;
        toll.offer = self.announce(flight, [price, stake], f64::from(toll.rtt), pays);
        if self.ending != ending {
            self.pace = self.rate(price, flight);
        }
    }

    #[inline]
    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        if let Some(rtt) = acked.rtt
            && !self.promises.is_empty()
        {
            self.confirm(flight.now.saturating_sub(rtt), flight.srtt, acked.segments.saturating_sub(1));
        }
        // A path without prices echoes nothing: the flow stays at its first packet per round trip.
        if let Some(echo) = acked.echo.filter(|echo| *echo > 0.0) {
            let price = Price::per_byte(f64::from(echo));
            let rtt = flight.srtt.as_secs_f64();
            // Packets sent before the refusal report a price that is no longer available.
            let sent = flight.now.saturating_sub(acked.rtt.unwrap_or(flight.srtt));
            if self.refused.is_none_or(|refused| sent >= refused) {
                if rtt > 0.0 && self.deadline().is_some() && price.get() > 2.0 * Price::MIN.get() {
                    self.refuse(flight, price, rtt);
                } else if rtt > 0.0 && (self.price.is_none() || std::mem::take(&mut self.forgotten)) {
                    self.start(price, rtt);
                } else if rtt > 0.0 {
                    self.tread(flight, price, rtt);
                }
                if let (Some(until), Some(old)) = (self.moved, self.price) {
                    self.settle(flight.now, until, old, price);
                }
                self.price = Some(price);
            }
        }
        if let Some(price) = self.price {
            self.pace = self.rate(price, flight);
            self.window.note(flight, self.pace);
        }
    }

    /// Prices signal congestion; a loss repaired by acknowledgements adds nothing.
    fn on_loss(&mut self, _: &Flight) {}

    fn spender(&self) -> Option<&dyn Spender> {
        Some(self)
    }

    fn spender_mut(&mut self) -> Option<&mut dyn Spender> {
        Some(self)
    }

    /// Feedback has stopped: the flow starts again with the announcement of a first packet.
    fn on_timeout(&mut self, flight: &Flight, _: bool) {
        let rtt = flight.srtt.as_secs_f64();
        if let Some(price) = self.price
            && rtt > 0.0
        {
            let before = self.spending;
            self.start(price, rtt);
            self.forgotten = true;
            self.spending = self.spending.min(before);
            self.committed = self.spending;
            self.pace = self.rate(price, flight);
        }
    }
}

/// Longest pause between packets of a rate-based sender, s: four round trips or `most`.
#[inline]
pub(crate) fn longest_pause(rtt: f64, most: Time) -> f64 {
    at_least(4.0 * rtt, most.as_secs_f64())
}

/// Budgets that differ by less than this fraction count as equal.
const SAME: f64 = 1e-6;
/// Values whose ratio is below this count as equal.
const ROUNDED: f64 = 1.0 + 1e-9;
/// After a change of class, a fall of the price to this fraction is due to the other class.
const OTHER_CLASS: f64 = 0.7;
/// Upper bound on a flow's rate before an announcement, in multiples of its first packets.
const LEAP: f64 = 16.0;
/// A price below this multiple of its value a round trip ago does not count as rising.
const STEADY: f64 = 1.05;
/// Round trips before its end at which a flow starts to take back its spending. The rate falls a
/// round trip after the announcement: 1.5 would end exactly then, 1 half a round trip earlier.
const LEAVING: f64 = 1.4;
/// A decrease is announced this many times faster than an increase.
const HASTE: f64 = 4.0;
/// Packets that may overtake a packet before it counts as lost.
const REORDERED: usize = 8;
/// Upper bound on segments beyond the first that an acknowledgement confirms.
const MOST_ALSO: u32 = 2;
/// The unit of a stamp: the error of a round-trip sample.
const STAMP_NS: u64 = 64;
/// 1 Tb/s in bytes/s, above any path: the least price alone would allow more.
pub(super) const MOST_RATE: f64 = 1.25e11;

#[cfg(test)]
mod tests;
