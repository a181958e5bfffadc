//! Accounts of hosts and of flows, driven by hand.

use proptest::prelude::*;

use super::*;

const PRICE: f32 = 8e-8;

fn packet(offer: f32) -> Toll {
    Toll { due: f64::from(PRICE), rtt: 0.1, offer, stake: PRICE, echo: 0.0 }
}

/// Spends `spending(t)` for `seconds`, announcing `offer(t)`; a packet each millisecond.
fn run(
    meter: &mut BudgetMeter,
    seconds: f64,
    spending: impl Fn(f64) -> f64,
    offer: impl Fn(f64) -> f32,
) -> (f64, u64) {
    let (mut passed, mut dropped) = (0.0, 0);
    for i in 1..(seconds * 1000.0) as u64 {
        let t = i as f64 * 1e-3;
        let size = (spending(t) / f64::from(PRICE) * 1e-3) as u32;
        let mut toll = packet(offer(t));
        match meter.on_data(Time::from_millis(i), size, &mut toll, 0.0, None) {
            Passage::Dropped => dropped += 1,
            _ => passed += f64::from(PRICE) * f64::from(size),
        }
    }
    (passed, dropped)
}

fn meter() -> BudgetMeter {
    BudgetMeter::new(MeterConfig::default(), Budget::per_sec(1.0))
}

#[test]
fn who_keeps_budget_and_promises_is_not_accused() {
    let mut steady = meter();
    run(&mut steady, 20.0, |_| 1.0, |_| 0.0);
    assert_eq!(steady.accusation(), None);
    // Half a second at a tenth, half a second at all of it, each change announced over the round
    // trip before it.
    let mut moving = meter();
    let spending = |t: f64| if t % 1.0 < 0.5 { 0.1 } else { 1.0 };
    let offer = |t: f64| match t % 1.0 {
        p if (0.4..0.5).contains(&p) => 9.0,
        p if (0.9..1.0).contains(&p) => -0.9,
        _ => 0.0,
    };
    run(&mut moving, 20.0, spending, offer);
    assert_eq!(moving.accusation(), None);
}

#[test]
fn who_spends_too_much_is_found_and_held_to_its_budget() {
    let mut meter = meter();
    let (passed, dropped) = run(&mut meter, 10.0, |t| if t < 2.0 { 1.0 } else { 2.0 }, |_| 0.0);
    let found = meter.accusation().unwrap();
    assert_eq!(found.offence, Offence::Overspent);
    assert!(found.at.as_secs_f64() < 2.0 + 10.0 * 0.1, "{found:?}");
    assert!(dropped > 0 && passed < 10.0 + 0.5, "{passed}");
}

#[test]
fn the_price_of_who_is_held_rises_until_its_budget_comes_out() {
    let mut meter = meter();
    meter.accuse(Time::ZERO, Offence::Overspent);
    // Would spend three times its budget at the price returned a round trip ago.
    let mut told = [PRICE; 100];
    for i in 1..10_000u64 {
        let price = told[i as usize % 100];
        told[i as usize % 100] = meter.answer(PRICE);
        let size = (3.0 / f64::from(price) * 1e-3) as u32;
        let mut toll = Toll { stake: price, ..packet(0.0) };
        meter.on_data(Time::from_millis(i), size, &mut toll, 0.0, Some(f64::from(PRICE)));
    }
    assert!((meter.answer(PRICE) / PRICE - 3.0).abs() < 0.1, "{}", meter.answer(PRICE) / PRICE);
    let before = meter.dropped();
    assert!(before < 1000, "{before}");
}

#[test]
fn words_without_deeds_are_found_and_silenced() {
    for (offer, offence) in [(1.0, Offence::Overpromised), (-0.5, Offence::TakenBack)] {
        let mut meter = meter();
        run(&mut meter, 5.0, |_| 1.0, |t| if t < 2.0 { 0.0 } else { offer });
        let found = meter.accusation().unwrap();
        assert_eq!(found.offence, offence);
        assert!(found.at.as_secs_f64() < 2.0 + 10.0 * 0.1, "{found:?}");
        let mut toll = packet(offer);
        let passage = meter.on_data(Time::from_secs(6), 100, &mut toll, 0.0, None);
        assert_eq!((passage, toll.offer), (Passage::Rewritten, 0.0));
    }
}

#[test]
fn who_pays_too_little_is_found_even_if_it_sometimes_does_not() {
    for duty in [1.0, 0.6] {
        let mut meter = BalanceMeter::new(MeterConfig::default());
        for i in 1..5000 {
            let cheats = i > 1000 && f64::from(i % 500) < 500.0 * duty;
            let stake = if cheats { PRICE / 4.0 } else { PRICE };
            meter.on_data(Time::from_millis(i as u64), true, &Toll { stake, ..packet(0.0) });
            assert!(i > 1000 || meter.accusation().is_none());
        }
        let found = meter.accusation().unwrap();
        assert!(found.at < Time::from_secs(2), "{found:?}");
    }
}

#[test]
fn who_sends_at_the_least_rate_pays_what_it_can() {
    // A packet each 0.4 s, and one each 0.2 s, that pay a tenth.
    for (pause, accused) in [(400, false), (200, true)] {
        let mut meter = BalanceMeter::new(MeterConfig::default());
        for i in 1..500 {
            // Waiting varies by a third of a pause.
            let at = i * pause + i * 7919 % (pause / 3);
            meter.on_data(Time::from_millis(at), true, &Toll { stake: PRICE / 10.0, ..packet(0.0) });
        }
        assert_eq!(meter.accusation().is_some(), accused, "{pause} ms");
    }
}

#[test]
fn who_pays_the_price_of_a_round_trip_ago_pays_enough() {
    // The price doubles and halves each half second; what is stated is 0.1 s old.
    let price = |ms: u32| if (ms / 500).is_multiple_of(2) { PRICE } else { PRICE * 2.0 };
    let mut meter = BalanceMeter::new(MeterConfig::default());
    for i in 101..20_000u32 {
        let toll = Toll { due: f64::from(price(i)), stake: price(i - 100), ..packet(0.0) };
        meter.on_data(Time::from_millis(u64::from(i)), true, &toll);
    }
    assert_eq!(meter.accusation(), None);
}

/// The account of a host that may spend 5 $/s.
fn rich(config: MeterConfig) -> BudgetMeter {
    BudgetMeter::new(config, Budget::per_sec(5.0))
}

#[test]
fn what_counts_is_the_budget_not_the_number() {
    for (spending, accused) in [(5.0, false), (5.9, false), (6.2, true)] {
        let mut meter = rich(MeterConfig::default());
        run(&mut meter, 60.0, |_| spending, |_| 0.0);
        assert_eq!(meter.accusation().is_some(), accused, "{spending}: {:?}", meter.accusation());
    }
    // Two round trips of budget at once are a burst; three are not.
    for (rounds, accused) in [(2.0, false), (3.5, true)] {
        let mut meter = rich(MeterConfig::default());
        let size = (rounds * 0.1 * 5.0 / f64::from(PRICE) / 20.0) as u32;
        run(&mut meter, 2.0, |_| 1.0, |_| 0.0);
        for _ in 0..20 {
            meter.on_data(Time::from_secs(2), size, &mut packet(0.0), 0.0, None);
        }
        assert_eq!(meter.accusation().is_some(), accused, "{rounds}");
    }
}

#[test]
fn who_is_held_spends_its_budget_and_no_more() {
    let mut meter = rich(MeterConfig::default());
    meter.accuse(Time::ZERO, Offence::Overspent);
    let (passed, dropped) = run(&mut meter, 20.0, |_| 10.0, |_| 0.0);
    assert!((95.0..102.0).contains(&passed), "{passed}");
    assert!(dropped.abs_diff(10_000) < 500 && meter.dropped() == dropped, "{dropped}");
    // A host within its budget loses nothing.
    let mut meter = rich(MeterConfig::default());
    meter.accuse(Time::ZERO, Offence::Overspent);
    assert_eq!(run(&mut meter, 20.0, |_| 4.9, |_| 0.0).1, 0);
}

#[test]
fn a_meter_that_only_reports_lets_all_pass_at_its_price() {
    let mut meter = rich(MeterConfig { enforce: false, ..MeterConfig::default() });
    let (_, dropped) = run(&mut meter, 10.0, |_| 50.0, |_| 1.0);
    assert!(meter.accusation().is_some() && !meter.holds());
    assert_eq!((dropped, meter.answer(PRICE)), (0, PRICE));
    let mut toll = packet(1.0);
    assert_eq!(meter.on_data(Time::from_secs(11), 100, &mut toll, 0.0, Some(1.0)), Passage::Untouched);
    assert_eq!((toll.offer, toll.stake), (1.0, PRICE));
}

#[test]
fn what_is_announced_is_held_against_the_budget_that_there_is() {
    // Of 5 $/s a tolerance of a fifth is a dollar: so much may be announced in each round trip and
    // not be spent, or more, but once.
    for (offer, until, offence) in
        [(0.9, 9.0, None), (3.0, 2.1, None), (3.0, 9.0, Some(Offence::Overpromised))]
    {
        let mut meter = rich(MeterConfig::default());
        run(&mut meter, 9.0, |_| 1.0, |t| if (2.0..until).contains(&t) { offer } else { 0.0 });
        assert_eq!(meter.accusation().map(|found| found.offence), offence, "{offer} until {until}");
    }
}

#[test]
fn an_old_price_is_enough_for_a_second_turn_and_no_longer() {
    // At 2.5 s the price is four times what it was; the sender goes on paying what it did.
    let mut meter = BalanceMeter::new(MeterConfig::default());
    for ms in 1..6000u64 {
        let due = f64::from(PRICE) * if ms > 2500 { 4.0 } else { 1.0 };
        meter.on_data(Time::from_millis(ms), true, &Toll { due, ..packet(0.0) });
    }
    let at = meter.accusation().unwrap().at;
    assert!((Time::from_secs(4)..Time::from_millis(4600)).contains(&at), "{at:?}");
}

#[test]
fn the_first_offence_is_the_one_that_is_told() {
    let mut meter = rich(MeterConfig::default());
    meter.accuse(Time::from_secs(1), Offence::Underpaid);
    meter.accuse(Time::from_secs(2), Offence::Overspent);
    let found = meter.accusation().unwrap();
    assert_eq!((found.at, found.offence), (Time::from_secs(1), Offence::Underpaid));
    // Earlier spending is forgiven once: a burst passes before anything is dropped.
    let mut meter = rich(MeterConfig::default());
    run(&mut meter, 0.05, |_| 20.0, |_| 0.0);
    meter.accuse(Time::from_millis(50), Offence::Underpaid);
    let size = (0.95 / f64::from(PRICE)) as u32;
    assert_ne!(meter.on_data(Time::from_millis(50), size, &mut packet(0.0), 0.0, None), Passage::Dropped);
    assert_eq!(meter.on_data(Time::from_millis(50), size, &mut packet(0.0), 0.0, None), Passage::Dropped);
}

#[test]
fn who_is_held_pays_and_says_what_its_path_asked() {
    let mut meter = rich(MeterConfig::default());
    meter.accuse(Time::ZERO, Offence::Underpaid);
    let asked = 4.0 * PRICE;
    let mut pass =
        |toll: &mut Toll, ms| meter.on_data(Time::from_millis(ms), 100, toll, 0.0, Some(f64::from(asked)));
    // Less than was asked is put right, more is not; and what it announces is not passed on.
    let mut toll = packet(0.0);
    assert_eq!((pass(&mut toll, 1), toll.stake), (Passage::Rewritten, asked));
    let mut toll = Toll { stake: 2.0 * asked, ..packet(0.0) };
    assert_eq!((pass(&mut toll, 2), toll.stake), (Passage::Untouched, 2.0 * asked));
    let mut toll = Toll { stake: 2.0 * asked, ..packet(-0.5) };
    assert_eq!((pass(&mut toll, 3), toll.offer), (Passage::Rewritten, 0.0));
    // A first packet knows no round trip. Its announcement is not believed either, and a decrease
    // harms no flow.
    let mut toll = Toll { rtt: 0.0, ..packet(10.0) };
    assert_eq!((pass(&mut toll, 4), toll.offer), (Passage::Rewritten, 0.0));
    let mut toll = Toll { rtt: 0.0, ..packet(-10.0) };
    assert_eq!(pass(&mut toll, 5), Passage::Untouched);
    // Without a hold nothing is changed.
    let mut toll = Toll { rtt: 0.0, ..packet(10.0) };
    let mut free = rich(MeterConfig::default());
    assert_eq!(free.on_data(Time::from_millis(1), 100, &mut toll, 0.0, None), Passage::Untouched);
    assert_eq!(toll.offer, 10.0);
}

#[test]
fn a_flow_s_first_announcement_is_a_promise_like_any_other() {
    // From 2 s on twice as much is spent, as a second flow's first packet has announced it: over
    // one round trip, of the bytes of it.
    for (kept, accused) in [(true, false), (false, true)] {
        let mut meter =
            BudgetMeter::new(MeterConfig { tolerance: 0.01, ..MeterConfig::default() }, Budget::per_sec(1.0));
        for i in 1..4000u64 {
            let opens = (2000..2100).contains(&i);
            let spending = if i >= 2100 && kept { 0.9 } else { 0.05 };
            let size = (spending * 1e-3 / f64::from(PRICE)) as u32;
            // In total the bytes of 0.85 $/s, or ten times that for a flow that breaks its
            // announcement.
            let opening = if opens {
                (0.85 * 0.1 / 100.0 / f64::from(PRICE)) as f32 * if kept { 1.0 } else { 10.0 }
            } else {
                0.0
            };
            meter.on_data(Time::from_millis(i), size, &mut packet(0.0), opening, None);
        }
        assert_eq!(meter.accusation().is_some(), accused, "{:?}", meter.accusation());
    }
}

#[test]
fn words_that_are_no_numbers_are_nobody_s_offence() {
    let mut meter = rich(MeterConfig::default());
    let mut balance = BalanceMeter::new(MeterConfig::default());
    for i in 1..5000u64 {
        let now = Time::from_millis(i);
        for word in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0] {
            meter.on_data(now, 1500, &mut Toll { rtt: word, ..packet(0.0) }, word, None);
            meter.on_data(now, 1500, &mut Toll { stake: word, ..packet(word) }, word, None);
            balance.on_data(now, true, &Toll { rtt: word, stake: 0.0, ..packet(0.0) });
        }
        balance.on_data(now, true, &Toll { due: f64::INFINITY, ..packet(0.0) });
    }
    assert_eq!((meter.accusation(), balance.accusation()), (None, None));
}

#[test]
fn what_is_sent_again_is_not_held_against_who_pays_too_little() {
    for (fresh, accused) in [(false, false), (true, true)] {
        let mut meter = BalanceMeter::new(MeterConfig::default());
        for i in 1..4000 {
            meter.on_data(Time::from_millis(i), fresh, &Toll { stake: 0.0, ..packet(0.0) });
        }
        assert_eq!(meter.accusation().is_some(), accused);
    }
}

#[test]
fn a_part_of_the_tolerance_is_forgiven_to_who_pays_too_little() {
    for (part, accused) in [(0.85, false), (0.75, true)] {
        let mut meter = BalanceMeter::new(MeterConfig::default());
        for i in 1..30_000 {
            meter.on_data(Time::from_millis(i), true, &Toll { stake: PRICE * part, ..packet(0.0) });
        }
        assert_eq!(meter.accusation().is_some(), accused, "{part}");
    }
}

#[test]
fn a_pause_is_no_time_in_which_nothing_was_paid() {
    // A packet each ten seconds, then one that pays nothing: a round trip at most is missing.
    let mut meter = BalanceMeter::new(MeterConfig { burst: 4.0, ..MeterConfig::default() });
    for i in 1..2000 {
        meter.on_data(Time::from_millis(i), true, &packet(0.0));
    }
    for i in 0..3 {
        meter.on_data(Time::from_millis(2000 + i), true, &Toll { stake: 0.0, ..packet(0.0) });
    }
    meter.on_data(Time::from_secs(4), true, &Toll { stake: 0.0, ..packet(0.0) });
    assert_eq!(meter.accusation(), None);
}

proptest! {
    /// For any packets, a held host's traffic does not exceed its budget.
    #[test]
    fn a_held_host_spends_no_more_than_its_budget(
        packets in prop::collection::vec((0u64..20, any::<f32>(), any::<f32>(), 0.0f32..1e-6, 40u32..9000), 1..300),
    ) {
        let mut meter = meter();
        meter.accuse(Time::ZERO, Offence::Overspent);
        let (mut now, mut passed, mut largest) = (Time::ZERO, 0.0, 0.0_f64);
        for (gap, rtt, offer, stake, size) in packets {
            now += Time::from_millis(gap);
            let mut toll = Toll { due: 0.0, rtt, offer, stake, echo: 0.0 };
            let passage = meter.on_data(now, size, &mut toll, offer, None);
            if passage != Passage::Dropped && rtt > 0.0 && rtt.is_finite() {
                passed += f64::from(stake) * f64::from(size);
                largest = largest.max(f64::from(stake) * f64::from(size));
            }
        }
        let most = now.as_secs_f64() + 2.0 * LONGEST + largest;
        prop_assert!(passed <= most * (1.0 + 1e-9), "{passed} of {most}");
    }
}

/// A packet of 1/64 $, over an eighth of a second.
fn sixty_fourth(offer: f32) -> Toll {
    Toll { due: 0.0, rtt: 0.125, offer, stake: 1.0 / 65_536.0, echo: 0.0 }
}

#[test]
fn a_burst_is_what_the_budget_buys_in_two_round_trips() {
    // Of 1 $/s, and an eighth of a second: 16 packets. One more is no offence, two are.
    let second = Time::from_secs(1);
    let mut free = meter();
    for n in 1..=18 {
        assert_eq!(free.accusation(), None, "{n}");
        free.on_data(second, 1024, &mut sixty_fourth(0.0), 0.0, None);
    }
    assert_eq!(free.accusation(), Some(BudgetAccusation { at: second, offence: Offence::Overspent }));
    // A held host's seventeenth packet is dropped, and it has earned another one a sixty-fourth of
    // a second later: without a tolerance.
    let mut held = meter();
    held.accuse(second, Offence::Overspent);
    let mut pass = |now, size| held.on_data(now, size, &mut sixty_fourth(0.0), 0.0, None) != Passage::Dropped;
    assert!((0..16).all(|_| pass(second, 1024)));
    assert!(!pass(second, 1024));
    let later = second + Time::from_secs_f64(1.0 / 64.0);
    assert!(pass(later, 1024) && !pass(later, 1024));
    // A packet larger than all of that passes alone.
    assert!(pass(Time::from_secs(9), 30_000) && !pass(Time::from_secs(9), 1));
    assert_eq!(held.dropped(), 3);
}

#[test]
fn the_mean_round_trip_moves_by_sixteenths_between_a_millisecond_and_a_second() {
    for (first, then, mean) in [(0.125, 0.25, 0.125 + 0.125 / 16.0), (5.0, 5.0, 1.0), (1e-5, 1e-5, 1e-3)] {
        let mut meter = meter();
        for rtt in [first, then] {
            meter.on_data(Time::from_secs(1), 1, &mut Toll { rtt, ..packet(0.0) }, 0.0, None);
        }
        assert!((meter.rtt - mean).abs() < 1e-12, "{}", meter.rtt);
    }
}

#[test]
fn a_held_host_s_price_goes_half_of_the_way_up_and_slowly_down() {
    let mut meter =
        BudgetMeter::new(MeterConfig { burst: 1e12, ..MeterConfig::default() }, Budget::per_sec(2.0));
    meter.accuse(Time::ZERO, Offence::Overspent);
    let mut now = Time::from_secs(1);
    let mut raised = 1.0;
    // One packet per round trip, worth the given number of budgets.
    meter.on_data(now, 1, &mut sixty_fourth(0.0), 0.0, Some(0.0));
    for (over, step) in
        [(2.25, 1.5), (1.0, 1.0), (100.0, 2.0), (4.0, 2.0), (0.99, 0.99), (0.5, 0.98), (0.0, 0.98)]
    {
        now += Time::from_millis(125);
        meter.on_data(now, 1, &mut sixty_fourth(0.0), 0.0, Some(over * 2.0 * 0.125));
        raised *= step;
        assert!((meter.raised - raised).abs() < 1e-9, "{over}: {} and not {raised}", meter.raised);
        assert!((f64::from(meter.answer(1.0)) - raised).abs() < 1e-6);
    }
    // Never under what the path asks.
    for _ in 0..400 {
        now += Time::from_millis(125);
        meter.on_data(now, 1, &mut sixty_fourth(0.0), 0.0, Some(0.0));
    }
    assert_eq!(meter.answer(1.0), 1.0);
    // Nor beyond a million times that, so that it comes down again.
    for _ in 0..40 {
        now += Time::from_millis(125);
        meter.on_data(now, 1, &mut sixty_fourth(0.0), 0.0, Some(1e3));
    }
    assert_eq!(meter.answer(1.0), 1e6);
    assert_eq!(meter.answer(f32::MAX), f32::MAX);
}

/// A host that spends so much, $/s, in a packet each eighth of a second, and announces `change` $/s
/// with its tenth; after which it pauses for `pause` of those and spends 1 $/s. What it is accused
/// of in a second from then.
fn announces(before: f64, change: f64, pause: u64) -> Option<Offence> {
    let mut meter = meter();
    let eighth = Time::from_millis(125);
    let mut now = Time::from_secs(1);
    for i in 1..=18 {
        let spends = if i > 10 { 1.0 } else { before };
        // A packet of an eighth of that, so that what it announces is a part of what is spent.
        let mut toll = sixty_fourth(if i == 10 { (change / spends) as f32 } else { 0.0 });
        meter.on_data(now, (spends * 8192.0) as u32, &mut toll, 0.0, None);
        now += eighth * if i == 10 { pause } else { 1 };
    }
    meter.accusation().map(|found| found.offence)
}

#[test]
fn four_budgets_of_words_or_two_taken_back_are_too_much() {
    // The usual level has moved by a fifth of a budget at the time of judgement.
    for (before, change, offence) in [
        (1.0, 4.125, None),
        (1.0, 4.375, Some(Offence::Overpromised)),
        (1.0, -2.125, None),
        (1.0, -2.375, Some(Offence::TakenBack)),
        // The part that is spent no longer counts as announced.
        (0.125, 4.375, None),
        (0.125, 5.25, Some(Offence::Overpromised)),
    ] {
        assert_eq!(announces(before, change, 1), offence, "{before} {change}");
    }
}

#[test]
fn after_a_pause_nothing_is_usual() {
    assert_eq!(announces(1.0, 4.75, 3), Some(Offence::Overpromised));
    assert_eq!(announces(1.0, 4.75, 4), None);
}

#[test]
fn round_trips_not_paid_for_add_up_to_one() {
    // A packet a round trip that pays half: 0.25 round trips are missing each time, beyond the
    // tolerance.
    let config = MeterConfig { tolerance: 0.25, ..MeterConfig::default() };
    let mut meter = BalanceMeter::new(config);
    let mut now = Time::ZERO;
    let mut pass = |stake: f32, due: f64| {
        now += Time::from_millis(125);
        meter.least_rate = 0.0;
        meter.on_data(now, true, &Toll { due, rtt: 0.125, offer: 0.0, stake, echo: 0.0 });
        meter.missing
    };
    // Past prices are known after a second period of eight round trips.
    let known = (1..40).position(|_| pass(0.0, 1.0) > 0.0);
    assert_eq!(known, Some(8));
    meter.missing = 0.0;
    let mut pass = |stake: f32| {
        now += Time::from_millis(125);
        meter.least_rate = 0.0;
        meter.on_data(now, true, &Toll { due: 1.0, rtt: 0.125, offer: 0.0, stake, echo: 0.0 });
        (meter.missing, meter.accusation().is_some())
    };
    assert_eq!([pass(0.5), pass(0.5), pass(0.5)], [(0.25, false), (0.5, false), (0.75, false)]);
    // A flow may pay too much for a while and then too little for as long; it gains no credit.
    assert_eq!([pass(1.5), pass(9.0)], [(0.0, false), (0.0, false)]);
    assert_eq!([pass(0.5), pass(0.5), pass(0.5), pass(0.5)].map(|found| found.0), [0.25, 0.5, 0.75, 1.0]);
    assert_eq!((pass(1.0), pass(0.5), pass(0.25)), ((0.75, false), (1.0, false), (1.5, true)));
    // Half a round trip later, half as much.
    now += Time::from_secs_f64(0.0625);
    meter.on_data(now, true, &Toll { due: 1.0, rtt: 0.125, offer: 0.0, stake: 0.5, echo: 0.0 });
    assert_eq!(meter.missing, 1.625);
}

#[test]
fn the_least_rate_s_packets_pay_what_they_can_and_no_more_than_two_together() {
    let meter = || BalanceMeter {
        before: 1.0,
        turns: Time::from_secs(3600),
        last: Time::from_secs(1),
        ..BalanceMeter::new(MeterConfig::default())
    };
    let toll = Toll { due: 1.0, rtt: 0.125, offer: 0.0, stake: 0.0, echo: 0.0 };
    let mut found = meter();
    // After the longest pause: two for nothing, the third is unpaid. They came at one instant, so
    // that it is short of no time.
    for left in [1.0, 0.0, 0.0] {
        found.on_data(Time::from_secs(100), true, &toll);
        assert_eq!(found.least_rate, left);
    }
    // A payment is not charged.
    let mut found = meter();
    found.on_data(Time::from_secs(100), true, &Toll { stake: 1.0, ..toll });
    assert_eq!(found.least_rate, 2.0);
    // One is earned in a pause, and a tenth more.
    let pause = longest_pause(0.125, LONGEST_PAUSE);
    let mut found = BalanceMeter { least_rate: 0.0, ..meter() };
    found.on_data(Time::from_secs(1) + Time::from_secs_f64(pause / 2.0), true, &toll);
    assert!((found.least_rate - 0.55).abs() < 1e-6, "{}", found.least_rate);
}
