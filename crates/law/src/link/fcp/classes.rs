//! Prices by class of traffic (§ 4.2 "Network and end-point evolution", § 4.3 "Aggregate congestion control").
//!
//! The report prints two of these as code with slips in it, and one formula upside down; the manual's chapter on FCP has a
//! table of what was made of them.

use std::collections::VecDeque;

use super::super::Passing;
use super::{Arrival, Fcp, PriceEngine, REFUSAL, Span};
use crate::{Price, Toll};

/// What a link does with a class of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pricing {
    /// It is asked for the link's own price.
    Standard,
    /// Its price at most doubles or halves within two mean round trips, the bandwidth for that being taken from, or left
    /// to, what is asked for the link's own price (§ 4.2 "Bandwidth stability").
    Stable,
    /// It is asked for the least price, and a packet that announces more than there is room for is told the link's own
    /// price instead (§ 4.2, after D³). What says that it pays more than the least price has been told so, and is asked for
    /// the link's own from then on.
    Deadline {
        /// The part of the capacity that such traffic may have.
        share: f64,
    },
    /// It is asked for so many times the link's own price (§ 4.2, after Paris Metro Pricing).
    Priority {
        /// How many times.
        times: f64,
    },
    /// Together it has its weight's part of the link, whatever is spent in it: a currency of its own (§ 4.3).
    Group {
        /// The weight among all groups with traffic. What is of no group is one, too, of weight 1.
        weight: f64,
    },
}

/// The classes of a link.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    lanes: Vec<Lane>,
    /// Whether they are groups.
    grouped: bool,
}

/// What is kept of one class.
#[derive(Clone, Debug)]
struct Lane {
    class: Pricing,
    /// What its traffic pays and is asked for; unused where that is the link's own price, or a multiple of it.
    engine: PriceEngine,
    /// Its prices of late, if they are bounded.
    swing: Swing,
    /// Of a group: the part of the link that it may have, and whether that is still to be said.
    share: f64,
    open: bool,
}

impl Classes {
    pub(super) fn new(classes: &[Pricing]) -> Classes {
        let grouped = classes.iter().any(|class| matches!(class, Pricing::Group { .. }));
        let lane = |&class: &Pricing| {
            let class = match class {
                Pricing::Standard if grouped => Pricing::Group { weight: 1.0 },
                class => class,
            };
            Lane { class, engine: PriceEngine::new(), swing: Swing::default(), share: 0.0, open: false }
        };
        Classes { lanes: classes.iter().map(lane).collect(), grouped }
    }

    pub(super) fn set_avg_rtt(&mut self, span: Span, avg_rtt: f64) {
        for lane in &mut self.lanes {
            lane.engine.set_avg_rtt(span, avg_rtt);
        }
    }

    /// The class that a packet counts in.
    fn of(&self, class: u8, toll: &Toll) -> u8 {
        match self.lanes.get(usize::from(class)) {
            Some(Lane { class: Pricing::Deadline { .. }, .. }) if pays(toll) => NONE,
            _ => class,
        }
    }

    /// What `class` is asked for, `link` being what the link's own price is made of.
    pub(super) fn price(&self, class: u8, link: &PriceEngine) -> Price {
        match self.lanes.get(usize::from(class)).map(|lane| (lane.class, &lane.engine)) {
            None | Some((Pricing::Standard, _)) => link.price,
            Some((Pricing::Priority { times }, _)) => raised(link.price, times),
            Some((Pricing::Stable | Pricing::Deadline { .. } | Pricing::Group { .. }, own)) => own.price,
        }
    }

    /// Bandwidth that admitted deadlines need, bytes/s.
    fn required(&mut self, now: u64, span: Span) -> f64 {
        let deadlines = self.lanes.iter_mut().filter(|lane| matches!(lane.class, Pricing::Deadline { .. }));
        deadlines.map(|lane| lane.engine.sum_up(now, span) / Price::MIN.get()).sum()
    }

    /// The bandwidth that traffic of bounded prices buys at those, bytes/s; also whether a bound was reached, when `price` is what
    /// all would be asked for without.
    fn bound(&mut self, now: u64, span: Span, price: f64, room: f64) -> (f64, bool) {
        let (mut needs, mut reached) = (0.0, false);
        for lane in self.lanes.iter_mut().filter(|lane| lane.class == Pricing::Stable) {
            let spent = lane.engine.sum_up(now, span);
            // A bound protects those that are there; and nothing can be taken from what nobody has.
            let bounded = if spent > 0.0 { lane.swing.bound(price) } else { price };
            let bounded = bounded.max(spent / ((1.0 - LEAST) * room));
            lane.engine.say(now, bounded);
            let bounded = lane.engine.price.get();
            if spent > 0.0 {
                lane.swing.note(now, span.ns, bounded);
            } else {
                lane.swing.forget();
            }
            reached |= bounded != price;
            needs += spent / bounded;
        }
        (needs, reached)
    }

    /// Divides the link over groups by weight: what one does not use goes to the others. Each may use what budgets in it pay
    /// for and promise, and a tenth more.
    fn divide(&mut self, now: u64, span: Span, room: f64) {
        for lane in &mut self.lanes {
            lane.open = lane.engine.sum_up(now, span) > 0.0;
            lane.share = 0.0;
        }
        let mut free = 1.0;
        loop {
            let weights: f64 = self.lanes.iter().filter(|lane| lane.open).map(Lane::weight).sum();
            let (all, mut settled) = (free, false);
            for lane in self.lanes.iter_mut().filter(|lane| lane.open) {
                lane.share = all * lane.weight() / weights;
                let used = GROWTH * lane.engine.rate(now, span) / room;
                if used < lane.share {
                    (lane.open, settled) = (false, true);
                    free -= used;
                }
            }
            if !settled {
                return;
            }
        }
    }
}

impl Lane {
    fn weight(&self) -> f64 {
        if let Pricing::Group { weight } = self.class { weight } else { 1.0 }
    }
}

impl PriceEngine {
    /// Bytes a second that come, or are promised.
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
        let lane = classes.lanes.get_mut(usize::from(class));
        let waits = lane.as_ref().is_some_and(|lane| lane.share == 0.0) || toll.offer != 0.0;
        let fresh = match lane {
            Some(lane) if matches!(lane.class, Pricing::Stable | Pricing::Group { .. }) => {
                let paid = lane.engine.paid(now, toll, arrival.rtt) * arrival.size;
                lane.engine.window.add(now, span.ns, arrival.sums(paid));
                lane.engine.stay(now, toll.offer, paid);
                if let Some(promise) = self.promise(now, arrival, toll.offer, paid) {
                    lane.engine.expect(now, promise);
                }
                self.note_stake(now, arrival.size, toll.stake);
                self.count(now, arrival, 0.0)
            }
            // What it announces is weighed as it leaves: it is then told whether it may.
            Some(lane) if matches!(lane.class, Pricing::Deadline { .. }) => {
                lane.engine.window.add(now, span.ns, arrival.sums(Price::MIN.get() * arrival.size));
                self.count(now, arrival, 0.0)
            }
            lane => {
                // A dollar at k times the price buys as much as 1/k of one.
                let times = match lane.map(|lane| lane.class) {
                    Some(Pricing::Priority { times }) => times,
                    _ => 1.0,
                };
                let said = Toll { stake: toll.stake / times as f32, ..*toll };
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
        let stable = classes.lanes.iter_mut().filter(|lane| lane.class == Pricing::Stable);
        let all = own + stable.map(|lane| lane.engine.sum_up(now, span)).sum::<f64>();
        let price = Price::per_byte(self.corrected(now, arrival.size, all / room) * self.error).get();
        let (needs, reached) = classes.bound(now, span, price, room);
        let price = match reached {
            true => own / (room - needs).max(LEAST * room) * self.error,
            false => price,
        };
        self.engine.say(now, price);
    }

    /// Prices of groups, each in its own currency: what is spent in it over its part of the link. The link is divided anew
    /// where one may have come, and with each bucket of the window.
    fn price_groups(&mut self, classes: &mut Classes, now: u64, class: u8, arrival: &Arrival, anew: bool) {
        let span = self.span;
        let room = self.room(now, arrival, self.capacity);
        if anew {
            classes.divide(now, span, room);
        }
        for (i, lane) in classes.lanes.iter_mut().enumerate() {
            if lane.share > 0.0 && (anew || i == usize::from(class)) {
                let price = lane.engine.sum_up(now, span) / (lane.share * room) * self.error;
                lane.engine.say(now, price);
            }
        }
    }

    /// What a packet that leaves is told.
    pub(super) fn class_says(&mut self, now: u64, packet: Passing, toll: &Toll) -> Price {
        let Some(mut classes) = self.classes.take() else { return self.engine.price };
        let price = match classes.lanes.get(usize::from(packet.class)).map(|lane| lane.class) {
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

    /// Whether a packet of a class for deadlines is told the least price: if it asks for nothing more, or for what there is
    /// room for in `share` of the link, which then counts from now on.
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
        classes.lanes[usize::from(packet.class)].engine.expect(now, promise);
        true
    }
}

/// Whether a packet says that it pays more than the least price.
fn pays(toll: &Toll) -> bool {
    f64::from(toll.stake) > REFUSAL / 2.0
}

/// `times` a price; of what is not scarce, the same.
fn raised(price: Price, times: f64) -> Price {
    if price > Price::MIN { Price::per_byte(price.get() * times) } else { price }
}

/// What was said over a moving window: its least and its greatest.
#[derive(Clone, Debug, Default)]
struct Swing {
    stretches: VecDeque<Stretch>,
    /// Over all stretches but the last.
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
    /// `price`, or the nearest to it that is not over twice, nor under half of, anything said in the window. The least price
    /// stands for zero, of which no multiple bounds anything.
    fn bound(&self, price: f64) -> f64 {
        let Some(&last) = self.stretches.back() else { return price };
        let all = self.before.map_or(last, |before| before.join(last));
        if all.least <= Price::MIN.get() {
            price
        } else {
            price.max(all.greatest / SWING).min(all.least * SWING)
        }
    }

    /// `price` is said at `now`, the window being `span` ns long.
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

/// The class of what belongs to none.
const NONE: u8 = 0;
/// A bounded price at most doubles in a window.
const SWING: f64 = 2.0;
/// Parts of a window in which the least and the greatest price are known.
const STRETCHES: u64 = 32;
/// The part of a link that is left to what is asked for the link's own price, whatever the others need.
const LEAST: f64 = 0.01;
/// How many times what it uses a group may use while others would have what it does not.
const GROWTH: f64 = 1.1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::as_printed;
    use super::*;
    use crate::link::LinkLaw;
    use crate::{Kind, Rate, Time};

    const CAPACITY: f64 = 12.5e6;
    const STEP: f64 = 1e-3;

    /// A link of 100 Mb/s, and what is sent over it by class: a packet each millisecond, which pays what its class was told a
    /// round trip of 100 ms ago.
    struct Bench {
        law: Fcp,
        steps: usize,
        told: Vec<Vec<f64>>,
        /// Bytes of each class so far.
        sent: Vec<f64>,
    }

    impl Bench {
        fn new(classes: &[Pricing]) -> Bench {
            let law = as_printed().build(Rate::from_bytes_per_sec(CAPACITY)).with_classes(classes);
            let told = vec![vec![1e-7; 100]; classes.len()];
            Bench { law, steps: 0, told, sent: vec![0.0; classes.len()] }
        }

        /// For `seconds` each class spends so much, $/s, but sends no more than `most`, bytes/s. Answers the mean rates, as parts of
        /// the link's capacity.
        fn run(&mut self, seconds: f64, budgets: &[f64], most: &[f64]) -> Vec<f64> {
            let (before, steps) = (self.sent.clone(), (seconds / STEP) as usize);
            for _ in 0..steps {
                self.steps += 1;
                let now = Time::from_secs_f64(self.steps as f64 * STEP);
                for (class, (&budget, &most)) in budgets.iter().zip(most).enumerate() {
                    let price = self.told[class][self.steps % 100];
                    let size = ((budget / price).min(most) * STEP) as u32;
                    if size > 0 {
                        let packet = Passing { class: class as u8, ..Passing::of(Kind::Tolled, size, 0, 0) };
                        let mut toll =
                            Toll { due: 0.0, rtt: 0.1, offer: 0.0, stake: price as f32, echo: 0.0 };
                        self.law.on_arrival(now, packet, &toll);
                        self.law.on_departure(now, packet, &mut toll);
                        self.told[class][self.steps % 100] = toll.due;
                        self.sent[class] += f64::from(size);
                    }
                }
            }
            self.sent.iter().zip(before).map(|(now, then)| (now - then) / seconds / CAPACITY).collect()
        }

        /// The rates once all has settled.
        fn settled(classes: &[Pricing], budgets: &[f64], most: &[f64]) -> Vec<f64> {
            let mut bench = Bench::new(classes);
            bench.run(4.0, budgets, most);
            bench.run(1.0, budgets, most)
        }
    }

    const ALL: f64 = f64::INFINITY;

    fn near(found: &[f64], parts: &[f64]) {
        assert!(found.iter().zip(parts).all(|(a, b)| (a - b).abs() < 3e-3), "{found:?}, not {parts:?}");
    }

    #[test]
    fn groups_have_their_weights_parts_whatever_is_spent_in_them() {
        // What is of no group is one of weight 1.
        let groups = [Pricing::Standard, Pricing::Group { weight: 3.0 }];
        for budgets in [[1.0, 1.0], [9.0, 1.0], [0.1, 5.0]] {
            near(&Bench::settled(&groups, &budgets, &[ALL, ALL]), &[0.25, 0.75]);
        }
    }

    #[test]
    fn what_a_group_does_not_use_goes_to_the_others_but_for_a_tenth_of_what_it_does() {
        let groups =
            [Pricing::Group { weight: 1.0 }, Pricing::Group { weight: 1.0 }, Pricing::Group { weight: 2.0 }];
        near(&Bench::settled(&groups, &[1.0, 0.0, 0.0], &[ALL; 3]), &[1.0, 0.0, 0.0]);
        let tenth = 0.1 * CAPACITY;
        near(&Bench::settled(&groups, &[0.0, 1.0, 1.0], &[ALL, tenth, ALL]), &[0.0, 0.1, 0.89]);
        // The first leaves 0.14 of its quarter: a third of it for the second, two for the third.
        let found = Bench::settled(&groups, &[1.0; 3], &[tenth, ALL, ALL]);
        near(&found, &[0.1, 0.89 / 3.0, 0.89 * 2.0 / 3.0]);
        // Nobody uses its part: each may grow by a tenth, and the last has all that is left.
        let found = Bench::settled(&groups, &[1.0; 3], &[tenth, 2.0 * tenth, ALL]);
        near(&found, &[0.1, 0.2, 0.67]);
    }

    #[test]
    fn a_group_that_comes_again_has_its_part_at_once() {
        let groups = [Pricing::Group { weight: 1.0 }, Pricing::Group { weight: 1.0 }];
        let mut bench = Bench::new(&groups);
        bench.run(3.0, &[1.0, 1.0], &[ALL; 2]);
        bench.run(1.0, &[1.0, 0.0], &[ALL; 2]);
        near(&bench.run(1.0, &[1.0, 0.0], &[ALL; 2]), &[1.0, 0.0]);
        assert!(bench.law.class_price(0).get() < 1.1 / CAPACITY, "all of the link is the first's");
        bench.run(1.0, &[1.0, 1.0], &[ALL; 2]);
        near(&bench.run(1.0, &[1.0, 1.0], &[ALL; 2]), &[0.5, 0.5]);
    }

    #[test]
    fn a_dollar_at_four_times_the_price_buys_a_fourth() {
        let classes = [Pricing::Standard, Pricing::Priority { times: 4.0 }];
        near(&Bench::settled(&classes, &[1.0, 1.0], &[ALL; 2]), &[0.8, 0.2]);
        near(&Bench::settled(&classes, &[1.0, 4.0], &[ALL; 2]), &[0.5, 0.5]);
    }

    #[test]
    fn traffic_with_deadlines_at_the_least_price_leaves_the_rest_to_what_pays() {
        let classes = [Pricing::Standard, Pricing::Deadline { share: 0.5 }];
        let mut bench = Bench::new(&classes);
        bench.told[1] = vec![Price::MIN.get(); 100];
        let run = |bench: &mut Bench| bench.run(2.0, &[1.0, 1.0], &[ALL, 0.2 * CAPACITY]);
        run(&mut bench);
        near(&run(&mut bench), &[0.8, 0.2]);
        assert_eq!(bench.law.class_price(1), Price::MIN);
    }

    #[test]
    fn who_says_that_it_was_refused_pays_what_all_pay() {
        let classes = [Pricing::Standard, Pricing::Deadline { share: 0.5 }];
        near(&Bench::settled(&classes, &[1.0, 1.0], &[ALL; 2]), &[0.5, 0.5]);
        near(&Bench::settled(&classes, &[1.0, 3.0], &[ALL; 2]), &[0.25, 0.75]);
    }

    #[test]
    fn a_stable_price_at_most_doubles_in_a_window_and_the_others_make_up_for_it() {
        let classes = [Pricing::Standard, Pricing::Stable];
        let mut bench = Bench::new(&classes);
        bench.run(3.0, &[1.0, 1.0], &[ALL; 2]);
        near(&bench.run(1.0, &[1.0, 1.0], &[ALL; 2]), &[0.5, 0.5]);
        let before = bench.law.class_price(1).get();
        assert!((bench.law.class_price(0).get() / before - 1.0).abs() < 1e-3);
        // Ten times the budget comes at once: two mean round trips later the one price has doubled at most, the other gone further.
        bench.run(0.15, &[19.0, 1.0], &[ALL; 2]);
        let [own, stable] = [0, 1].map(|class| bench.law.class_price(class).get() / before);
        assert!(stable > 1.9 && stable <= 2.0 * (1.0 + 1e-6), "{stable}");
        assert!(own > 9.0, "{own}");
        // In the end all pay alike.
        bench.run(3.0, &[19.0, 1.0], &[ALL; 2]);
        near(&bench.run(1.0, &[19.0, 1.0], &[ALL; 2]), &[0.95, 0.05]);
        // And down again: by half at most.
        let before = bench.law.class_price(1).get();
        bench.run(0.15, &[1.0, 1.0], &[ALL; 2]);
        let stable = bench.law.class_price(1).get() / before;
        assert!((0.5 * (1.0 - 1e-6)..0.55).contains(&stable), "{stable}");
        bench.run(3.0, &[1.0, 1.0], &[ALL; 2]);
        near(&bench.run(1.0, &[1.0, 1.0], &[ALL; 2]), &[0.5, 0.5]);
    }

    #[test]
    fn what_a_class_announces_is_asked_for_at_once() {
        // Somebody spends 1 $/s already. Then a packet announces another, of the class of so many or of another: that doubles the price.
        // A first packet pays the price that there is.
        let price = 1.0 / CAPACITY;
        for (classes, of, paid) in [
            ([Pricing::Group { weight: 1.0 }, Pricing::Group { weight: 1.0 }], 1, Price::MIN.get()),
            ([Pricing::Standard, Pricing::Stable], 1, price),
            ([Pricing::Standard, Pricing::Priority { times: 4.0 }], 1, price),
            ([Pricing::Standard, Pricing::Priority { times: 4.0 }], 0, price),
        ] {
            let mut bench = Bench::new(&classes);
            bench.run(3.0, &[1.0, 0.0], &[ALL; 2]);
            let before = bench.law.class_price(0).get();
            assert!((before / price - 1.0).abs() < 0.01, "{before}");
            let offer = 0.1 / (paid * 1000.0);
            let toll = Toll { due: 0.0, rtt: 0.0, offer: offer as f32, stake: 0.0, echo: 0.0 };
            let packet = Passing { class: of, ..Passing::of(Kind::Tolled, 1000, 0, 0) };
            bench.law.on_arrival(Time::from_secs_f64((bench.steps + 1) as f64 * STEP), packet, &toll);
            let asked = bench.law.class_price(0).get();
            assert!((asked / price - 2.0).abs() < 0.02, "{classes:?} {of}: {}", asked / price);
        }
    }

    #[test]
    fn a_group_that_announces_more_has_its_part_of_the_link_anew() {
        let groups = [Pricing::Group { weight: 1.0 }, Pricing::Group { weight: 1.0 }];
        let mut bench = Bench::new(&groups);
        bench.run(4.0, &[1.0, 1.0], &[ALL, 0.1 * CAPACITY]);
        assert!((bench.law.class_price(0).get() * CAPACITY * 0.89 - 1.0).abs() < 0.01);
        let now = Time::from_secs_f64((bench.steps + 1) as f64 * STEP);
        let stake = bench.law.class_price(1).get() as f32;
        let toll = Toll { due: 0.0, rtt: 0.1, offer: 1000.0, stake, echo: 0.0 };
        bench.law.on_arrival(now, Passing { class: 1, ..Passing::of(Kind::Tolled, 1000, 0, 0) }, &toll);
        let asked = bench.law.class_price(0).get();
        assert!((asked * CAPACITY * 0.5 - 1.0).abs() < 0.02, "{}", asked * CAPACITY);
    }

    #[test]
    fn a_bound_protects_those_that_are_there_and_no_more_than_there_is() {
        let classes = [Pricing::Standard, Pricing::Stable];
        let mut bench = Bench::new(&classes);
        bench.run(3.0, &[1.0, 1.0], &[ALL; 2]);
        let before = bench.law.class_price(1).get();
        // While nobody is in the class its price is the link's; who comes then is told that, and not twice what was asked before.
        bench.run(1.0, &[19.0, 0.0], &[ALL; 2]);
        bench.run(0.01, &[19.0, 1.0], &[ALL; 2]);
        let [own, stable] = [0, 1].map(|class| bench.law.class_price(class).get());
        assert!(own / before > 9.0 && (stable / own - 1.0).abs() < 0.05, "{own} {stable} {before}");
        // Budgets that grow a hundredfold at once would have more than the link: they pay for 99 of a hundred parts of it, whatever
        // their price was, and one is left to the others.
        let mut bench = Bench::new(&classes);
        bench.run(3.0, &[1.0, 1.0], &[ALL; 2]);
        bench.run(0.1, &[1.0, 100.0], &[ALL; 2]);
        let law = bench.law.clone();
        let [own, stable] = [0, 1].map(|class| law.class_price(class).get());
        let stable_income = law.classes.as_ref().unwrap().lanes[1].engine.income;
        assert!(stable / before > 2.5, "{}", stable / before);
        assert!((stable * 0.99 * CAPACITY / stable_income - 1.0).abs() < 1e-3, "{stable} {stable_income}");
        assert!(
            (own * 0.01 * CAPACITY / law.engine.income - 1.0).abs() < 1e-3,
            "{own} {}",
            law.engine.income
        );
    }

    #[test]
    fn a_price_that_is_wrong_is_wrong_in_every_class() {
        // Twice too much is asked: half of the link is used.
        let mut bench = Bench::new(&[Pricing::Standard, Pricing::Priority { times: 4.0 }]);
        bench.law.set_error(1.0);
        bench.run(4.0, &[1.0, 1.0], &[ALL; 2]);
        near(&bench.run(1.0, &[1.0, 1.0], &[ALL; 2]), &[0.4, 0.1]);
    }

    #[test]
    fn a_bounded_price_is_forgotten_with_the_window_it_was_said_in() {
        let (span, mut swing) = (200_000_000, Swing::default());
        swing.note(0, span, 1e-6);
        assert_eq!(swing.bound(1e-3), 2e-6);
        assert_eq!(swing.bound(1e-9), 0.5e-6);
        // It still bounds a window later, but not two.
        swing.note(span, span, 2e-6);
        assert_eq!(swing.bound(1e-3), 2e-6);
        swing.note(2 * span, span, 2e-6);
        assert_eq!(swing.bound(1e-3), 4e-6);
        // Nothing bounds what was as good as free.
        swing.note(4 * span, span, Price::MIN.get());
        assert_eq!(swing.bound(1e-3), 1e-3);
        swing.forget();
        assert_eq!(swing.bound(1e-9), 1e-9);
    }

    #[test]
    fn what_is_not_scarce_costs_no_multiple() {
        assert_eq!(raised(Price::MIN, 4.0), Price::MIN);
        assert_eq!(raised(Price::per_byte(1e-6), 4.0), Price::per_byte(4e-6));
    }

    proptest! {
        /// Whatever is wanted, what is said never changes by more than twice within a window.
        #[test]
        fn a_bounded_price_never_swings_by_more_than_twice(
            wanted in prop::collection::vec((1u64..30_000_000, -8.0f64..-2.0), 1..300),
        ) {
            let span = 200_000_000;
            let mut swing = Swing::default();
            let mut said: Vec<(u64, f64)> = Vec::new();
            let mut now = 0;
            for (gap, log) in wanted {
                now += gap;
                let price = swing.bound(libm::pow(10.0, log));
                swing.note(now, span, price);
                for &(_, before) in said.iter().rev().take_while(|&&(at, _)| at + span >= now) {
                    prop_assert!(price <= before * 2.0 * (1.0 + 1e-12) && price >= before / 2.0 / (1.0 + 1e-12));
                }
                said.push((now, price));
            }
        }
    }
}
