//! FCP's sender (the FCP report, CMU-CS-12-125, § 4.1 "Sender behavior with preloading", "Start-up behavior").
//!
//! A flow spends w dollars a second: at a path price of P it sends w/P bytes a second, evenly spaced. Before it spends
//! another amount, links are told, by *preloads*: a packet that pays `paid·size` and carries `preload` announces a change of
//! paid·size·preload/rtt, and the change is made when its acknowledgement comes.
//!
//! Read literally (preload (x − w)/w with the present w until w = x), changes are announced for two round trips and w
//! overshoots. Here a change is committed in one **round**: as much as is missing at its beginning, spread over the
//! packets of one round trip, the last one trimmed, so that the announcements add up exactly. What is given back is announced
//! faster, in a quarter of a round trip where it is little: nobody has to make room for it, and somebody may wait.
//!
//! So that feedback never stops, a packet leaves each four round trips or quarters of a second ([`FcpConfig::max_pause`]; whichever is
//! longer), however high the price. Where that is more than the flow's budget buys, it pays as much a byte as the budget makes of that rate.

mod config;

use std::collections::VecDeque;

use super::{Acked, Flight, SenderLaw, Spender};
use crate::price::{at_least, at_most};
use crate::{Budget, Price, Rate, Time, Toll};
pub use config::FcpConfig;

/// FCP's sender: rate = budget / price.
#[derive(Clone, Debug)]
pub struct Fcp {
    config: FcpConfig,
    /// The most that it sends, bytes a second.
    line_rate: f64,
    /// What the owner lets the flow spend.
    budget: Budget,
    /// w, what links expect and what is spent, $/s.
    spending: f64,
    /// w and everything announced that no acknowledgement has confirmed yet, $/s.
    committed: f64,
    /// The most that was allowed since there was nothing announced and not confirmed, $/s.
    ceiling: f64,
    /// Bytes that the first packet announces for the next round trip.
    first: f64,
    /// What the round under way has to announce in all, and what of it is left; zero between rounds.
    change: f64,
    left: f64,
    /// The price of the path, once known.
    price: Option<Price>,
    /// The rate that makes of it, bytes/s, as of the last news.
    pace: f64,
    /// Announcements on their way, in the order sent.
    promises: VecDeque<Promise>,
    /// Dollars spent since the start.
    spent: f64,
    /// The owner has changed its mind since the last packet.
    revised: bool,
    /// The last packets are being sent.
    ending: bool,
    /// It has announced once all that it wanted.
    established: bool,
    /// Nothing was heard for so long that links may have forgotten it: it begins anew with the next price.
    forgotten: bool,
    /// The price at the beginning of a round trip, and whether it had risen in the one before.
    trend: Trend,
    /// Since when links have refused the rate that a deadline needs.
    refused: Option<Time>,
    /// Until when a price that falls may be that of another class of traffic.
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
    /// Confirmed out of order.
    kept: bool,
}

impl FcpConfig {
    /// A law with these parameters.
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
    /// What it has committed itself to spend, $/s: w, and the changes that are announced and not confirmed.
    pub fn committed(&self) -> f64 {
        self.committed
    }

    /// The rate to be had at the least price, if one is to be had still.
    fn deadline(&self) -> Option<Rate> {
        self.config.deadline.filter(|_| self.refused.is_none())
    }

    /// What it may spend: with a deadline, what that costs at the least price.
    fn allowance(&self) -> f64 {
        self.deadline().map_or(self.budget.get(), |rate| rate.bytes_per_sec() * Price::MIN.get())
    }

    /// A price came back that is not the least: there is no room for the deadline. As at the start, and at that price.
    fn refuse(&mut self, flight: &Flight, price: Price, rtt: f64) {
        self.refused = Some(flight.now);
        self.first = self.first.max(f64::from(flight.segment));
        self.start(price, rtt);
    }

    /// Where a flow has changed its class until before `until`, the price falls from `old` to `new`, maybe for that.
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

    /// The price may have fallen by decades while the flow, at its least rate, heard nothing of it: a link on which hardly anybody
    /// pays forgets what it asked. What it spends would then buy more than any link has. Of a flow that sends no more than its
    /// first packets, and has nothing announced, it spends what buys [`LEAP`] times those, and announces the rest.
    #[inline]
    fn tread(&mut self, flight: &Flight, price: Price, rtt: f64) {
        // What the first packets are, bytes; not divided by the round trip, since each acknowledgement asks.
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

    /// From now on it spends `spending`, and nothing is announced.
    #[cold]
    fn hold_to(&mut self, spending: f64) {
        self.spending = spending;
        self.committed = spending;
        self.promises.clear();
        (self.left, self.change) = (0.0, 0.0);
        self.revised = true;
    }

    /// The rate as of the last news.
    #[inline]
    pub(super) fn pace(&self) -> Option<Rate> {
        self.price.map(|_| Rate::from_bytes_per_sec(self.pace))
    }

    /// Bytes a second: w/P, but never so little that no feedback comes.
    #[inline]
    fn rate(&self, price: Price, flight: &Flight) -> f64 {
        let srtt = flight.srtt.as_secs_f64();
        let pause = at_least(4.0 * srtt, self.config.max_pause.as_secs_f64());
        // What is left of a flow that has taken all back need not wait for feedback.
        let pause = if self.ending { pause.min(srtt) } else { pause };
        let segment = f64::from(flight.segment);
        if self.spending * pause < segment * price.get() {
            return segment / pause;
        }
        at_most(self.spending / price.get(), self.line_rate)
    }

    /// What it pays for a byte: the price, but at the least rate there is no more than its budget buys. If it paid a price that is
    /// too high for it all the same, that would raise the price further, without end where many do.
    #[inline(always)]
    fn stake(&self, price: Price) -> Price {
        if self.pace * price.get() <= at_least(self.spending, self.allowance()) * ROUNDED || self.ending {
            return price;
        }
        self.least_stake(price)
    }

    /// [`stake`](Fcp::stake) of a flow whose rate is the least one, and more than it can pay.
    #[cold]
    fn least_stake(&self, price: Price) -> Price {
        Price::per_byte(at_most(at_least(self.spending, self.allowance()) / self.pace, price.get()))
    }

    /// The budget to work towards: x_i. A short flow needs no more than to send all it has within a round trip (§ 6.1.1); one that
    /// is about to send its last packets needs nothing from then on (§ 4.1: it preloads −1).
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

    /// Whether it had better not ask for more now: it wants to keep its rate, not to spend its budget, and prices rise. If all who
    /// want that bid higher at once, they get no more than before, and there is too much for the link until somebody is
    /// at the end of a budget, which may be decades of prices away.
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

    /// The change to be announced by a packet that pays `pays` dollars, asked for a price and paying by another one; what it says of it
    /// in its toll comes in floats.
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

    /// [`announce`](Fcp::announce) where there may be something to be announced.
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
            // What a round under way has not announced yet keeps its pace, and what is new comes on top.
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

    /// An acknowledgement of the packet sent at `sent` confirms what that announced, and of `also` more packets.
    fn confirm(&mut self, sent: Time, srtt: Time, also: u32) {
        // Stamps are a little coarser than time. Of a few packets sent just before it may be heard later.
        let later = |promise: &Promise| promise.sent.0 > sent.0 + STAMP_NS;
        let older = self.promises.iter().take_while(|promise| !later(promise)).count();
        let exact = older > 0 && self.promises[older - 1].sent.0 + STAMP_NS >= sent.0;
        if exact {
            self.keep(older - 1);
        }
        // A lost or delayed acknowledgement left them to this one: first those before it, then those behind.
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
        // Overtaken by many, or by what left a round trip later, a packet is lost, and with it what it announced: another round
        // makes up for it.
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
            // Of a change down and one up again the first may be lost: what the owner allowed when they were announced is
            // the bound whatever is.
            let spending = (self.spending + promise.change).clamp(0.0, self.ceiling.max(self.spending));
            self.committed += spending - self.spending - promise.change;
            self.spending = spending;
        }
    }

    /// The first price: what the first packet announced may be spent (§ 4.1), if the budget allows it.
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
    /// Twice what the highest rate of late puts in flight: it counts only when acknowledgements fail to come.
    #[inline]
    fn window(&self) -> f64 {
        if self.price.is_some() { self.window.segments } else { 1.0 }
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
        true
    }

    #[inline(always)]
    fn write_toll(&mut self, flight: &Flight, toll: &mut Toll) {
        let size = f64::from(flight.size.max(1));
        toll.due = 0.0;
        let (Some(price), true) = (self.price, flight.srtt > Time::ZERO) else {
            // Nothing is known yet: it announces a rate, whatever the price turns out to be.
            toll.rtt = 0.0;
            toll.stake = 0.0;
            let packets = self.config.initial_packets.min(self.deadline().map_or(f64::INFINITY, |_| ASKING));
            self.first = packets * f64::from(flight.segment);
            if !self.config.initial_always {
                // Of a flow that is shorter it is all there is.
                self.first = self.first.min(flight.unsent as f64);
            }
            toll.offer = (self.first / size) as f32;
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
        // Nothing at all is what a path says on which no link states a price: the flow then stays at its first packet a
        // round trip.
        if let Some(echo) = acked.echo.filter(|echo| *echo > 0.0) {
            let price = Price::per_byte(f64::from(echo));
            let rtt = flight.srtt.as_secs_f64();
            // What was sent before links refused speaks of a price that is no more to be had.
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

    /// Prices tell of congestion; a loss repaired by acknowledgements tells nothing new.
    fn on_loss(&mut self, _: &Flight) {}

    fn spender(&self) -> Option<&dyn Spender> {
        Some(self)
    }

    fn spender_mut(&mut self) -> Option<&mut dyn Spender> {
        Some(self)
    }

    /// Nothing is heard of the path any more: the flow starts again from what a first packet may announce.
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

/// What may be in flight of a sender that goes by a rate: twice the bandwidth–delay product of its highest rate within
/// one to two round trips. A rate that falls does not stop the sender; feedback that fails to come does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak {
    pub(super) segments: f64,
    now: f64,
    before: f64,
    turns: Time,
    /// A segment's bytes, and 2 over them.
    segment: u32,
    twice_per_byte: f64,
}

impl Peak {
    /// The highest rate within the last round trip or two, bytes/s.
    #[inline]
    fn highest(&self) -> f64 {
        at_least(self.now, self.before)
    }

    /// The rate is `rate` bytes/s now.
    #[inline]
    pub(super) fn note(&mut self, flight: &Flight, rate: f64) {
        if flight.now >= self.turns {
            self.before = std::mem::take(&mut self.now);
            self.turns = flight.now.saturating_add(flight.srtt);
        }
        self.now = at_least(rate, self.now);
        let most = self.highest();
        if flight.segment != self.segment {
            self.segment = flight.segment;
            self.twice_per_byte = 2.0 / f64::from(flight.segment.max(1));
        }
        let segments = self.twice_per_byte * most * flight.srtt.as_secs_f64();
        self.segments = at_least(segments, LEAST_WINDOW);
    }
}

/// The longest pause between packets of a sender that goes by a rate, in seconds: four of its round trips, or a quarter of a second.
#[inline]
pub(crate) fn least_pause(rtt: f64) -> f64 {
    at_least(4.0 * rtt, LONGEST_PAUSE.as_secs_f64())
}

/// The default of [`FcpConfig::max_pause`].
const LONGEST_PAUSE: Time = Time::from_millis(250);

/// Budgets nearer to each other than this part of them are the same.
const SAME: f64 = 1e-6;
/// What is no more times another is that, rounded.
const ROUNDED: f64 = 1.0 + 1e-9;
/// After a change of class a price that falls at once by so much is that of the other class.
const OTHER_CLASS: f64 = 0.7;
/// How many times faster than with its first packets a flow is before it has announced that.
const LEAP: f64 = 16.0;
/// A price that is no more times what it was a round trip ago doesn't rise.
const STEADY: f64 = 1.05;
/// Round trips before its end from which on a flow takes back what it spends. Its rate falls a round trip after it has said so, as
/// acknowledgements come, so that with 1.5 it would end just as it has announced, and with 1 at full rate, half a round trip earlier.
const LEAVING: f64 = 1.4;
/// How many times faster less is announced than more.
const HASTE: f64 = 4.0;
/// Packets a round trip that a flow with a deadline announces before it asks for its rate: that is what its first packet with
/// data is for, and room that is promised to nobody in particular is refused to somebody.
const ASKING: f64 = 0.25;
/// Packets that may overtake one another before one is taken for lost.
const REORDERED: usize = 8;
/// Segments beyond the first that an acknowledgement confirms at most.
const MOST_ALSO: u32 = 2;
/// A stamp's unit: a round-trip sample is that much too short or too long.
const STAMP_NS: u64 = 64;
/// Bytes a second that no path carries, 1 Tb/s: the least price alone would ask for more.
pub(super) const MOST_RATE: f64 = 1.25e11;
/// Segments that may be in flight whatever the rate.
const LEAST_WINDOW: f64 = 4.0;

#[cfg(test)]
mod tests;
