//! Prices by class of traffic (§ 4.2 "Network and end-point evolution", § 4.3 "Aggregate congestion
//! control").
//!
//! The report prints two of these as code with errors, and one formula inverted; the book's chapter
//! on FCP has a table of the corrections.

use std::collections::VecDeque;

use super::super::Passing;
use super::{Arrival, Fcp, PriceEngine, REFUSAL, Span};
use crate::{Price, Toll};

/// The price rule of a class of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pricing {
    /// The link's own price.
    Standard,
    /// A price that at most doubles or halves within two mean round trips. The bandwidth for that
    /// is taken from, or left to, traffic at the link's own price (§ 4.2 "Bandwidth stability").
    Stable,
    /// The least price, if there is room (§ 4.2, after D³).
    ///
    /// A packet that announces more than the room gets the link's own price instead. From then on
    /// its flow states a price above the least one, and is charged the link's own.
    Deadline {
        /// The fraction of the capacity for such traffic.
        share: f64,
    },
    /// A multiple of the link's own price (§ 4.2, after Paris Metro Pricing).
    Priority {
        /// The multiple.
        times: f64,
    },
    /// A currency of its own: the group gets its weight's part of the link, independent of the
    /// amount spent in it (§ 4.3).
    Group {
        /// The weight among all groups with traffic. Traffic without a group is a group of
        /// weight 1.
        weight: f64,
    },
}

/// The classes of a link.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    states: Vec<ClassState>,
    /// True if the classes are groups.
    grouped: bool,
}

/// The state of one class.
#[derive(Clone, Debug)]
struct ClassState {
    class: Pricing,
    /// The payments and the price of its traffic; unused where that is the link's own price or a
    /// multiple of it.
    engine: PriceEngine,
    /// Its recent prices, if they are bounded.
    swing: Swing,
    /// For a group: its part of the link, and whether that has still to be announced.
    share: f64,
    open: bool,
}

impl Classes {
    pub(super) fn new(classes: &[Pricing]) -> Classes {
        let grouped = classes.iter().any(|class| matches!(class, Pricing::Group { .. }));
        let state = |&class: &Pricing| {
            let class = match class {
                Pricing::Standard if grouped => Pricing::Group { weight: 1.0 },
                class => class,
            };
            ClassState { class, engine: PriceEngine::new(), swing: Swing::default(), share: 0.0, open: false }
        };
        Classes { states: classes.iter().map(state).collect(), grouped }
    }

    pub(super) fn set_avg_rtt(&mut self, span: Span, avg_rtt: f64) {
        for state in &mut self.states {
            state.engine.set_avg_rtt(span, avg_rtt);
        }
    }

    /// The class that a packet counts in.
    fn of(&self, class: u8, toll: &Toll) -> u8 {
        match self.states.get(usize::from(class)) {
            Some(ClassState { class: Pricing::Deadline { .. }, .. }) if pays(toll) => NONE,
            _ => class,
        }
    }

    /// The price of `class`; `link` is the engine of the link's own price.
    pub(super) fn price(&self, class: u8, link: &PriceEngine) -> Price {
        match self.states.get(usize::from(class)).map(|state| (state.class, &state.engine)) {
            None | Some((Pricing::Standard, _)) => link.price,
            Some((Pricing::Priority { times }, _)) => raised(link.price, times),
            Some((Pricing::Stable | Pricing::Deadline { .. } | Pricing::Group { .. }, own)) => own.price,
        }
    }

    /// Bandwidth that admitted deadlines need, bytes/s.
    fn required(&mut self, now: u64, span: Span) -> f64 {
        let deadlines =
            self.states.iter_mut().filter(|state| matches!(state.class, Pricing::Deadline { .. }));
        deadlines.map(|state| state.engine.sum_up(now, span) / Price::MIN.get()).sum()
    }

    /// The bandwidth that traffic with bounded prices buys at those, bytes/s, and whether a bound
    /// was reached. `price` is the price for all traffic without bounds.
    fn bound(&mut self, now: u64, span: Span, price: f64, room: f64) -> (f64, bool) {
        let (mut needs, mut reached) = (0.0, false);
        for state in self.states.iter_mut().filter(|state| state.class == Pricing::Stable) {
            let spent = state.engine.sum_up(now, span);
            // A bound protects existing traffic only, and no bandwidth can be taken from traffic
            // that has none.
            let bounded = if spent > 0.0 { state.swing.bound(price) } else { price };
            let bounded = bounded.max(spent / ((1.0 - LEAST) * room));
            state.engine.say(now, bounded);
            let bounded = state.engine.price.get();
            if spent > 0.0 {
                state.swing.note(now, span.ns, bounded);
            } else {
                state.swing.forget();
            }
            reached |= bounded != price;
            needs += spent / bounded;
        }
        (needs, reached)
    }

    /// Divides the link over groups by weight; unused parts go to the other groups. Each group may
    /// use what its budgets pay for and promise, and a tenth more.
    fn divide(&mut self, now: u64, span: Span, room: f64) {
        for state in &mut self.states {
            state.open = state.engine.sum_up(now, span) > 0.0;
            state.share = 0.0;
        }
        let mut free = 1.0;
        loop {
            let weights: f64 = self.states.iter().filter(|state| state.open).map(ClassState::weight).sum();
            let (all, mut settled) = (free, false);
            for state in self.states.iter_mut().filter(|state| state.open) {
                state.share = all * state.weight() / weights;
                let used = GROWTH * state.engine.rate(now, span) / room;
                if used < state.share {
                    (state.open, settled) = (false, true);
                    free -= used;
                }
            }
            if !settled {
                return;
            }
        }
    }
}

impl ClassState {
    fn weight(&self) -> f64 {
        if let Pricing::Group { weight } = self.class { weight } else { 1.0 }
    }
}

impl PriceEngine {
    /// Rate of arrivals and promises, bytes/s.
    fn rate(&mut self, now: u64, span: Span) -> f64 {
        let bytes = self.window.sums(now, span.ns).bytes;
        bytes * span.per_second + self.promises.total(now).max(0.0) / self.price.get()
    }
}

impl Fcp {
    /// [`update`](Fcp::update) of a link with classes.
    pub(super) fn update_classes(
        &mut self,
        classes: &mut Classes,
        now: u64,
        class: u8,
        arrival: &Arrival,
        toll: &Toll,
    ) {
        let span = self.span;
        let class = classes.of(class, toll);
        let state = classes.states.get_mut(usize::from(class));
        let waits = state.as_ref().is_some_and(|state| state.share == 0.0) || toll.offer != 0.0;
        let fresh = match state {
            Some(state) if matches!(state.class, Pricing::Stable | Pricing::Group { .. }) => {
                let fresh = self.count(now, arrival, 0.0);
                let paid = state.engine.paid(now, toll, arrival.rtt) * arrival.size;
                state.engine.window.add(now, span.ns, arrival.sums(paid));
                state.engine.stay(now, toll.offer, paid);
                if let Some(promise) = self.promise(now, arrival, toll.offer, paid) {
                    state.engine.expect(now, promise);
                }
                self.note_stake(now, arrival.size, toll.stake);
                fresh
            }
            // Its announcement is weighed on departure, when the packet receives its price.
            Some(state) if matches!(state.class, Pricing::Deadline { .. }) => {
                state.engine.window.add(now, span.ns, arrival.sums(Price::MIN.get() * arrival.size));
                self.count(now, arrival, 0.0)
            }
            state => {
                // A dollar at k times the price buys as much as 1/k of one.
                let times = match state.map(|state| state.class) {
                    Some(Pricing::Priority { times }) => times,
                    _ => 1.0,
                };
                let said = Toll { stake: toll.stake / times as f32, ..*toll };
                let arrival = &Arrival { spent: arrival.spent / times, ..*arrival };
                let paid = self.engine.paid(now, &said, arrival.rtt) * arrival.size;
                let fresh = self.count(now, arrival, paid);
                self.note_stake(now, arrival.size, said.stake);
                self.engine.stay(now, toll.offer, paid);
                if let Some(promise) = self.promise(now, arrival, toll.offer, paid) {
                    self.engine.expect(now, promise);
                }
                fresh
            }
        };
        if fresh {
            classes.set_avg_rtt(self.span, self.avg_rtt);
        }
        if classes.grouped {
            self.price_groups(classes, now, class, arrival, fresh || waits);
        } else {
            self.price_classes(classes, now, arrival);
        }
    }

    /// Prices of classes that share one currency.
    fn price_classes(&mut self, classes: &mut Classes, now: u64, arrival: &Arrival) {
        let span = self.span;
        let free = self.capacity - classes.required(now, span);
        let room = self.room(now, arrival, free.max(LEAST * self.capacity));
        let own = self.engine.sum_up(now, span);
        let stable = classes.states.iter_mut().filter(|state| state.class == Pricing::Stable);
        let all = own + stable.map(|state| state.engine.sum_up(now, span)).sum::<f64>();
        let price = Price::per_byte(self.corrected(now, arrival.size, all / room) * self.error).get();
        let (needs, reached) = classes.bound(now, span, price, room);
        let price = match reached {
            true => own / (room - needs).max(LEAST * room) * self.error,
            false => price,
        };
        // The window holds the bytes of bounded prices and of deadlines, too, but not what these
        // pay.
        let one_price =
            classes.states.iter().all(|l| matches!(l.class, Pricing::Standard | Pricing::Priority { .. }));
        let price =
            if self.config.bound && one_price { self.engine.bounded(now, span, room, price) } else { price };
        self.engine.say(now, price);
    }

    /// Prices of groups, each in its own currency: the spending in it over its part of the link.
    /// The link is divided anew where a group may have appeared, and with each bucket of the
    /// window.
    fn price_groups(&mut self, classes: &mut Classes, now: u64, class: u8, arrival: &Arrival, anew: bool) {
        let span = self.span;
        let room = self.room(now, arrival, self.capacity);
        if anew {
            classes.divide(now, span, room);
        }
        for (i, state) in classes.states.iter_mut().enumerate() {
            if state.share > 0.0 && (anew || i == usize::from(class)) {
                let room = state.share * room;
                let price = state.engine.sum_up(now, span) / room;
                let price =
                    if self.config.bound { state.engine.bounded(now, span, room, price) } else { price };
                state.engine.say(now, price * self.error);
            }
        }
    }

    /// The price that a departing packet receives.
    pub(super) fn class_says(&mut self, now: u64, packet: Passing, toll: &Toll) -> Price {
        let Some(mut classes) = self.classes.take() else { return self.engine.price };
        let price = match classes.states.get(usize::from(packet.class)).map(|state| state.class) {
            Some(Pricing::Deadline { share }) => match self.admits(&mut classes, now, packet, toll, share) {
                true => Price::MIN,
                // Even if it costs nothing else, a refusal is heard.
                false if self.engine.price.get() < REFUSAL => Price::per_byte(REFUSAL),
                false => self.engine.price,
            },
            _ => classes.price(packet.class, &self.engine),
        };
        self.classes = Some(classes);
        price
    }

    /// True if a packet of a deadline class gets the least price: it announces no increase, or an
    /// increase that fits `share` of the link. The increase then counts from now on.
    fn admits(&self, classes: &mut Classes, now: u64, packet: Passing, toll: &Toll, share: f64) -> bool {
        if pays(toll) {
            return false;
        }
        let arrival = Arrival::of(packet, toll);
        let promise = self.promise(now, &arrival, toll.offer, Price::MIN.get() * arrival.size);
        let Some(promise) = promise else { return true };
        let required = classes.required(now, self.span);
        if promise.change > 0.0 && required + promise.change / Price::MIN.get() > share * self.capacity {
            return false;
        }
        classes.states[usize::from(packet.class)].engine.expect(now, promise);
        true
    }
}

/// True if a packet states that it pays more than the least price.
fn pays(toll: &Toll) -> bool {
    f64::from(toll.stake) > REFUSAL / 2.0
}

/// `times` the price; the least price stays the same.
fn raised(price: Price, times: f64) -> Price {
    if price > Price::MIN { Price::per_byte(price.get() * times) } else { price }
}

/// The least and the greatest price over a moving window.
#[derive(Clone, Debug, Default)]
struct Swing {
    stretches: VecDeque<Stretch>,
    /// The prices of all stretches but the last.
    before: Option<Stretch>,
}

/// The least and the greatest price of a stretch of time.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begins: u64,
    ends: u64,
    least: f64,
    greatest: f64,
}

impl Stretch {
    fn join(self, other: Stretch) -> Stretch {
        Stretch {
            begins: self.begins,
            ends: other.ends,
            least: self.least.min(other.least),
            greatest: self.greatest.max(other.greatest),
        }
    }
}

impl Swing {
    /// The nearest value to `price` that is at most twice, and at least half of, every price in the
    /// window. The least price stands for zero, of which no multiple bounds anything.
    fn bound(&self, price: f64) -> f64 {
        let Some(&last) = self.stretches.back() else { return price };
        let all = self.before.map_or(last, |before| before.join(last));
        if all.least <= Price::MIN.get() {
            price
        } else {
            price.max(all.greatest / SWING).min(all.least * SWING)
        }
    }

    /// Records `price` at `now`; the window is `span` ns long.
    fn note(&mut self, now: u64, span: u64, price: f64) {
        let said = Stretch { begins: now, ends: now, least: price, greatest: price };
        match self.stretches.back_mut() {
            Some(last) if now < last.begins + span / STRETCHES => *last = last.join(said),
            _ => {
                while self.stretches.front().is_some_and(|first| first.ends + span + span / STRETCHES < now) {
                    self.stretches.pop_front();
                }
                self.before = self.stretches.iter().copied().reduce(Stretch::join);
                self.stretches.push_back(said);
            }
        }
    }

    fn forget(&mut self) {
        self.stretches.clear();
        self.before = None;
    }
}

/// The class of traffic without a class.
const NONE: u8 = 0;
/// A bounded price at most doubles in a window.
const SWING: f64 = 2.0;
/// Number of parts of a window for which the least and the greatest price are kept.
const STRETCHES: u64 = 32;
/// The fraction of a link that always remains for traffic at the link's own price.
const LEAST: f64 = 0.01;
/// Growth of a group beyond its present use, as a factor, while other groups could use the rest.
const GROWTH: f64 = 1.1;

#[cfg(test)]
mod tests;
