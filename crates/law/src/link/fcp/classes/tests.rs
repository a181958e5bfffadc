use proptest::prelude::*;

use super::super::FcpConfig;
use super::super::tests::as_printed;
use super::*;
use crate::link::LinkLaw;
use crate::{Kind, Rate, Time};

const CAPACITY: f64 = 12.5e6;
const STEP: f64 = 1e-3;

/// A link of 100 Mb/s, and what is sent over it by class: a packet each millisecond, which pays
/// what its class was told a round trip of 100 ms ago.
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

    /// For `seconds` each class spends so much, $/s, but sends no more than `most`, bytes/s.
    /// Answers the mean rates, as parts of the link's capacity.
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
                    let mut toll = Toll { due: 0.0, rtt: 0.1, offer: 0.0, stake: price as f32, echo: 0.0 };
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
    // Traffic without a group is a group of weight 1.
    let groups = [Pricing::Standard, Pricing::Group { weight: 3.0 }];
    for budgets in [[1.0, 1.0], [9.0, 1.0], [0.1, 5.0]] {
        near(&Bench::settled(&groups, &budgets, &[ALL, ALL]), &[0.25, 0.75]);
    }
}

/// The window is of 200 ms until a packet states a round trip. Then the first announcement would
/// count until 176 ms.
#[test]
fn a_group_s_first_announcement_counts_by_the_round_trip_that_it_states() {
    let law = FcpConfig { bound: false, ..FcpConfig::default() };
    for classes in [&[][..], &[Pricing::Group { weight: 1.0 }]] {
        let mut law = law.build(Rate::from_bytes_per_sec(CAPACITY));
        if !classes.is_empty() {
            law = law.with_classes(classes);
        }
        let mut pass = |ms, toll: Toll| {
            let packet = Passing { class: 0, ..Passing::of(Kind::Tolled, 1500, 0, 0) };
            law.on_arrival(Time::from_millis(ms), packet, &toll);
        };
        pass(0, Toll { offer: 10.0, ..Toll::default() });
        pass(1, Toll { rtt: 1e-3, offer: 100.0, stake: 1e-9, ..Toll::default() });
        let engine = match &mut law.classes {
            Some(classes) => &mut classes.states[0].engine,
            None => &mut law.engine,
        };
        let (whole, left) = (engine.promises.total(1_500_000), engine.promises.total(20_000_000));
        // That of the packet without a round trip is left.
        assert!(whole > 0.0 && left < 0.01 * whole, "{left} of {whole}");
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
    // No group uses its part: each may grow by a tenth, and the last gets the rest.
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
    // Ten times the budget comes at once: two mean round trips later the one price has doubled at
    // most, the other gone further.
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
    // A flow spends 1 $/s already. Then a packet of the first or the second class announces another
    // $/s, which doubles the price. A first packet pays the present price.
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
    // While the class has no traffic its price is the link's. A new flow gets that price, not twice
    // an old one.
    bench.run(1.0, &[19.0, 0.0], &[ALL; 2]);
    bench.run(0.01, &[19.0, 1.0], &[ALL; 2]);
    let [own, stable] = [0, 1].map(|class| bench.law.class_price(class).get());
    assert!(own / before > 9.0 && (stable / own - 1.0).abs() < 0.05, "{own} {stable} {before}");
    // Budgets that grow a hundredfold at once would have more than the link: they pay for 99 of a
    // hundred parts of it, whatever their price was, and one is left to the others.
    let mut bench = Bench::new(&classes);
    bench.run(3.0, &[1.0, 1.0], &[ALL; 2]);
    bench.run(0.1, &[1.0, 100.0], &[ALL; 2]);
    let law = bench.law.clone();
    let [own, stable] = [0, 1].map(|class| law.class_price(class).get());
    let stable_income = law.classes.as_ref().unwrap().states[1].engine.income;
    assert!(stable / before > 2.5, "{}", stable / before);
    assert!((stable * 0.99 * CAPACITY / stable_income - 1.0).abs() < 1e-3, "{stable} {stable_income}");
    assert!((own * 0.01 * CAPACITY / law.engine.income - 1.0).abs() < 1e-3, "{own} {}", law.engine.income);
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
    /// For any demand, the stated price changes by at most a factor of two within a window.
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
