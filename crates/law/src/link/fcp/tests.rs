use proptest::prelude::*;

use super::*;

const MBPS_100: f64 = 12.5e6;

/// Equations 2 and 4 to the letter.
pub(super) fn as_printed() -> FcpConfig {
    FcpConfig { preload_span: PreloadSpan::Packet, bound: false, ..FcpConfig::default() }
}

fn passing(size: u32, backlog: u64) -> Passing {
    Passing::of(Kind::Tolled, size, (backlog / 1500) as u32, backlog)
}

/// A packet arrives and leaves at once; answers the price it was told.
fn pass(law: &mut Fcp, now: f64, size: u32, toll: Toll) -> f64 {
    let (now, mut toll) = (Time::from_secs_f64(now), toll);
    law.on_arrival(now, passing(size, 0), &toll);
    law.on_departure(now, passing(size, 0), &mut toll);
    toll.due
}

fn toll(rtt: f64, paid: f64, preload: f64) -> Toll {
    Toll { due: 0.0, rtt: rtt as f32, offer: preload as f32, stake: paid as f32, echo: 0.0 }
}

/// `w` dollars a second come in, one packet each 1 ms, at the price that was told a round trip
/// before; `paid` is what each packet pays. The budget then changes to `x` by a commit round that
/// begins at `t0`, and the income after it is handed to `see` with the time since.
fn commit_round(w: f64, x: f64, span: PreloadSpan, see: &mut dyn FnMut(f64, f64)) {
    let rtt = 0.1;
    let mut law = FcpConfig { preload_span: span, ..as_printed() }.build(Rate::from_bytes_per_sec(MBPS_100));
    let step = 0.001;
    let t0 = 1.0;
    for i in 0..2000 {
        let now = f64::from(i) * step;
        let since = now - t0;
        // Linear from w to x between one and two round trips after the round began.
        let ramp = ((since - rtt) / rtt).clamp(0.0, 1.0);
        let spend = w + (x - w) * ramp;
        let preload = if (-1e-9..rtt - 1e-9).contains(&since) { (x - w) / w } else { 0.0 };
        let size = 1e6;
        let paid = spend * step / size;
        // Bypassing the history: this test is of the sums.
        law.engine.history = History::new(100_000_000, paid);
        pass(&mut law, now, size as u32, toll(rtt, paid, preload));
        see(since / rtt, law.income());
    }
}

#[test]
fn a_commit_round_shows_as_the_closed_form_says() {
    // I − w over Δw, round trips after the first preloaded packet, with d twice the round trip.
    let printed: &[(f64, f64)] = &[(0.5, 0.5), (1.0, 1.0), (2.0, 1.25), (2.5, 1.0), (3.0, 0.75), (4.0, 1.0)];
    let fading: &[(f64, f64)] = &[(0.5, 0.5), (1.0, 1.0), (2.0, 1.0), (2.5, 1.0), (3.0, 1.0), (4.0, 1.0)];
    for (w, x) in [(1.0, 2.0), (1.0, 0.5), (0.5, 4.0)] {
        for (span, closed, off) in [(PreloadSpan::Packet, printed, 0.25), (PreloadSpan::Flow, fading, 0.0)] {
            let mut met = 0;
            commit_round(w, x, span, &mut |t, income| {
                let change = (income - w) / (x - w);
                for &(at, expected) in closed {
                    if (t - at).abs() < 1e-6 {
                        met += 1;
                        assert!((change - expected).abs() < 0.04, "{at}: {change} for {expected}");
                    }
                }
                // As printed, off by up to a quarter of the change once the round is over.
                if t >= 1.0 {
                    assert!((change - 1.0).abs() < off + 0.03, "{t}: {change}");
                }
            });
            assert_eq!(met, closed.len());
        }
    }
}

#[test]
fn a_long_round_trip_keeps_its_promise_in_the_second_reading() {
    // A flow of RTT 0.4 s beside one that keeps the mean near 0.1 s: the window is 0.2 s long.
    let life = |preload| -> f64 {
        let mut law =
            FcpConfig { preload_span: preload, ..as_printed() }.build(Rate::from_bytes_per_sec(MBPS_100));
        let mut held = 0.0f64;
        for i in 0..1000 {
            let now = f64::from(i) * 1e-3;
            pass(&mut law, now, 1500, toll(0.1, 1e-10, 0.0));
            if i == 100 {
                pass(&mut law, now, 60, toll(0.4, 1e-8, 1e6));
            }
            if law.engine.promises.total((now * 1e9) as u64) > 0.0 {
                held += 1e-3;
            }
        }
        held
    };
    assert!((life(PreloadSpan::Packet) - 0.2).abs() < 0.01);
    // From a window's length before it is kept until the last of four steps, 7/8 of one after.
    assert!((life(PreloadSpan::Flow) - 0.375).abs() < 0.01);
}

/// A flow with forty times the mean round trip starts, so that the window becomes as much longer.
/// Half of what it spends counts all the while, though the longer window holds only its beginning.
#[test]
fn income_stays_while_the_mean_round_trip_grows() {
    let mut law = FcpConfig { preload_span: PreloadSpan::Flow, ..as_printed() }
        .build(Rate::from_bytes_per_sec(MBPS_100));
    let (short, long, step) = (0.01, 0.4, 1e-3);
    // $/s: 1 of the short flow; the long one's spending goes from 0.01 to 4.
    let (before, after) = (0.01, 4.0);
    for i in 0..4000 {
        let now = f64::from(i) * step;
        law.engine.history = History::new(100_000_000, 1.0);
        pass(&mut law, now, 100, toll(short, step / 100.0, 0.0));
        let (spends, size, preload) = match now - 1.0 {
            since if (0.0..step / 2.0).contains(&since) => {
                (before, 1, (after - before) / before * long / step)
            }
            since if since >= long => (after, 10_000, 0.0),
            _ => (before, 1, 0.0),
        };
        pass(&mut law, now, size, toll(long, spends * step / f64::from(size), preload));
        let income = law.income() - 1.0 - before;
        if now > 1.0 + long {
            let least = if now > 2.5 { 0.98 } else { 0.5 };
            assert!((least..1.3).contains(&(income / (after - before))), "{now}: {income}");
        }
    }
}

/// Short flows that announced at a high price take it back at a low price, so the sum is far below
/// zero. New announcements must still count.
#[test]
fn an_announcement_counts_whatever_others_take_back() {
    let mut law = FcpConfig { preload_span: PreloadSpan::Flow, ..as_printed() }
        .build(Rate::from_bytes_per_sec(MBPS_100));
    let rtt = 0.1;
    for i in 0..300 {
        law.engine.history = History::new(100_000_000, 1e-6);
        pass(&mut law, f64::from(i) * 1e-3, 1500, toll(rtt, 1e-6, -1.0));
    }
    assert!(law.engine.promises.total(300_000_000) < -1.0);
    law.engine.history = History::new(100_000_000, 1e-9);
    pass(&mut law, 0.3, 1500, toll(rtt, 1e-9, 1e4));
    let announced = 1500.0 * 1e-9 * 1e4 / rtt;
    assert!(law.income() >= announced && law.income() < 1.01 * announced, "{}", law.income());
}

/// Synchronous rounds of flows with fixed budgets over links: each packet pays the path price of
/// the round before.
fn rounds(capacities: &[f64], paths: &[&[usize]], n: usize) -> Vec<Vec<f64>> {
    let mut prices: Vec<f64> = vec![0.0; capacities.len()];
    for path in paths {
        path.iter().for_each(|&l| prices[l] += 1.0 / capacities[l]);
    }
    let mut all = Vec::new();
    for _ in 0..n {
        let rates: Vec<f64> =
            paths.iter().map(|path| 1.0 / path.iter().map(|&l| prices[l]).sum::<f64>()).collect();
        for (l, price) in prices.iter_mut().enumerate() {
            let load: f64 = paths.iter().zip(&rates).filter(|(p, _)| p.contains(&l)).map(|(_, r)| r).sum();
            *price *= load / capacities[l];
        }
        all.push(rates);
    }
    all
}

#[test]
fn a_cold_start_over_two_links_estimates_over_and_then_under() {
    // § 6.1.3, figure 12 a: 50 and 100 Mb/s, one unit budget: 33.3, 60, 55.6, 52.9, 51.5, …
    let fluid = rounds(&[50.0, 100.0], &[&[0, 1]], 6);
    for (rate, expected) in fluid.iter().zip([33.3, 60.0, 55.6, 52.9, 51.5, 50.8]) {
        assert!((rate[0] - expected).abs() < 0.06, "{} for {expected}", rate[0]);
    }
    // The laws themselves, driven in the same rounds: a window's worth of one packet each, paying
    // what was last told.
    let law = |mbps| {
        let config = FcpConfig { window: 1.0, initial_rtt: Time::from_secs(1), ..as_printed() };
        config.build(Rate::from_mbps(mbps))
    };
    let mut links = [law(50.0), law(100.0)];
    // A link's income is its own price, as long as the history has it, so the first round pays 1/C
    // to each.
    let mut path = 0.0;
    for (link, mbps) in links.iter_mut().zip([50e6 / 8.0, 100e6 / 8.0]) {
        link.engine.history = History::new(1_000_000_000, 1.0 / mbps);
        link.engine.price = Price::per_byte(1.0 / mbps);
        path += 1.0 / mbps;
    }
    for (k, expected) in fluid.iter().enumerate() {
        let now = (k + 1) as f64 * 1.02;
        let rate = 1.0 / path;
        assert!((rate * 8e-6 - expected[0]).abs() < 0.02 * expected[0], "{k}: {} Mb/s", rate * 8e-6);
        let mut next = 0.0;
        for link in &mut links {
            let toll = toll(1.0, path, 0.0);
            next += pass(link, now, rate as u32, toll);
        }
        path = next;
    }
}

#[test]
fn the_price_follows_equation_2() {
    let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100));
    // One dollar a second, paid at 8e-8 $/B: the link is just full.
    for i in 0..10_000 {
        law.engine.history = History::new(100_000_000, 8e-8);
        pass(&mut law, f64::from(i) * 120e-6, 1500, toll(0.1, 8e-8, 0.0));
    }
    assert!((law.income() - 1.0).abs() < 1e-3, "{}", law.income());
    assert!((law.price().get() - 8e-8).abs() < 1e-10);
    // A queue of 0.2 C·d takes 0.4 of the capacity; a longer one no more than half.
    for (queue, expected) in [(0.2, 8e-8 / 0.6), (5.0, 16e-8)] {
        let backlog = (queue * MBPS_100 * 0.2) as u64;
        law.on_arrival(Time::from_secs_f64(1.2), passing(1500, backlog), &toll(0.1, 8e-8, 0.0));
        assert!((law.price().get() / expected - 1.0).abs() < 2e-3, "{}", law.price().get());
    }
}

#[test]
fn no_more_is_taken_back_than_leaves_half_of_what_those_who_stay_pay() {
    let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100));
    let mut least = f64::INFINITY;
    // Half a dollar a second from one that stays, and from 1 s on a whole one from others, all of
    // them packets that take their leave and were never announced: what they take back is twice
    // what is seen of them.
    for i in 0..20_000 {
        let now = f64::from(i) * 120e-6;
        law.engine.history = History::new(100_000_000, 8e-8);
        if i % 2 == 0 {
            pass(&mut law, now, 1500, toll(0.1, 8e-8, 0.0));
        }
        if now > 1.0 {
            pass(&mut law, now, 1500, toll(0.1, 8e-8, -1.0));
            least = least.min(law.income());
        }
    }
    assert!((least - 0.25).abs() < 0.01, "{least}");
    assert!((law.price().get() * MBPS_100 - 0.25).abs() < 0.01, "{:?}", law.price());
}

#[test]
fn a_price_error_is_what_was_said_and_what_is_remembered() {
    let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100));
    law.engine.history = History::new(100_000_000, 8e-8);
    law.set_error(0.25);
    for i in 0..2000 {
        pass(&mut law, f64::from(i) * 120e-6, 1500, toll(0.1, 8e-8, 0.0));
    }
    assert!((law.price().get() * MBPS_100 / law.income() - 1.25).abs() < 1e-6);
    assert!((law.engine.history.at(239_000_000).unwrap().most() / law.price().get() - 1.0).abs() < 1e-2);
}

/// Ten packets announce a budget of 1 $/s from a path whose price is another link's, where it buys
/// four times the capacity.
#[test]
fn a_newcomer_that_pays_elsewhere_finds_a_price_that_lets_no_more_in_than_fits() {
    let price = |bound| {
        let mut law = FcpConfig { bound, ..FcpConfig::default() }.build(Rate::from_bytes_per_sec(MBPS_100));
        let elsewhere = 0.25 / MBPS_100;
        for i in 0..10 {
            // Paid · size · preload / rtt is a tenth of a dollar a second.
            let preload = 0.1 * 0.1 / (1500.0 * elsewhere);
            pass(&mut law, f64::from(i) * 0.01, 1500, toll(0.1, elsewhere, preload));
        }
        law.price().get() * MBPS_100
    };
    // That which admits 1.15 C, less the other link's.
    assert!((price(true) - (1.0 / 1.15 - 0.25)).abs() < 0.02, "{}", price(true));
    assert!(price(false) < 1e-6, "{}", price(false));
}

/// Nine tenths of what flows pay is for other links.
#[test]
fn a_small_excess_of_flows_that_pay_elsewhere_does_not_multiply_the_price() {
    const P: f64 = 1e-8;
    let price = |load: f64| {
        let mut law = FcpConfig::default().build(Rate::from_bytes_per_sec(MBPS_100));
        for i in 0..1000 {
            law.engine.history = History::new(100_000_000, P);
            let size = load * MBPS_100 * 1e-3;
            pass(&mut law, f64::from(i) * 1e-3, size as u32, toll(0.1, 10.0 * P, 0.0));
        }
        law.price().get() / P
    };
    assert!((price(1.1) - 1.1).abs() < 0.01, "{}", price(1.1));
    assert!((price(1.5) - (15.0 / 1.15 - 9.0)).abs() < 0.1, "{}", price(1.5));
}

/// Flows that pay at this link only use half of it. Others, with ten times their round trip,
/// announce twice as much.
#[test]
fn what_is_announced_counts_at_once_and_in_full() {
    const P: f64 = 1e-8;
    let mut law = FcpConfig::default().build(Rate::from_bytes_per_sec(MBPS_100));
    let mut pass = |i: u32, size, rtt, preload| {
        law.engine.history = History::new(100_000_000, P);
        pass(&mut law, f64::from(i) * 1e-3, size, toll(rtt, P, preload));
        law.price().get() / P
    };
    let before = (0..1000).map(|i| pass(i, 6250, 0.1, 0.0)).last().unwrap();
    let after = (1000..1010).map(|i| pass(i, 40, 1.0, MBPS_100 / 400.0)).last().unwrap();
    assert!((before - 0.5).abs() < 0.01 && (after - 1.5).abs() < 0.05, "{before} {after}");
}

#[test]
fn the_first_packet_of_a_flow_is_seen_without_a_price() {
    let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100));
    // Ten packets to come in the next round trip (of the mean 0.1 s) at the least price.
    let told = pass(&mut law, 0.0, 40, toll(0.0, 0.0, 375.0));
    assert_eq!(told, Price::MIN.get());
    assert!((law.income() / (1e-18 * (15_000.0 / 0.1 + 40.0 / 0.2)) - 1.0).abs() < 1e-6);
}

#[test]
fn packets_without_a_toll_cost_nothing() {
    let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100));
    let mut free = Toll::default();
    let plain = Passing { kind: Kind::Plain, ..passing(1500, 0) };
    law.on_arrival(Time::ZERO, plain, &free);
    law.on_departure(Time::ZERO, plain, &mut free);
    assert_eq!((free, law.income()), (Toll::default(), 0.0));
}

proptest! {
    /// Whatever packets say, prices stay prices.
    #[test]
    fn no_words_make_a_price_that_is_none(
        packets in prop::collection::vec(
            (0u64..200_000_000, any::<f32>(), any::<f32>(), any::<f32>(), any::<f64>(), 0u64..1u64 << 40),
            1..200,
        ),
        newtonian in any::<bool>(),
    ) {
        let newton = FcpConfig { newton: 0.5, target: Time::from_millis(1), ..as_printed() };
        let law = if newtonian { newton } else { as_printed() };
        let mut law = law.build(Rate::from_bytes_per_sec(MBPS_100));
        let mut now = 0;
        for (gap, rtt, offer, stake, due, backlog) in packets {
            now += gap;
            let mut toll = Toll { due, rtt, offer, stake, echo: 0.0 };
            law.on_arrival(Time(now), passing(1500, backlog), &toll);
            law.on_departure(Time(now), passing(1500, backlog), &mut toll);
            prop_assert!(toll.due >= Price::MIN.get() && !toll.due.is_nan());
            prop_assert!(law.income().is_finite() && law.income() >= 0.0);
            prop_assert!(law.avg_rtt() >= MIN_RTT && law.avg_rtt() <= MAX_RTT);
        }
    }
}

#[test]
fn what_pays_nothing_is_left_to_the_queue_or_measured() {
    // A dollar a second, a packet each millisecond; and acknowledgements, a tenth of the link.
    let price = |unpaid: Unpaid, acks: u32| {
        let config = FcpConfig { unpaid, ..as_printed() };
        let mut law = config.build(Rate::from_bytes_per_sec(MBPS_100));
        for i in 0..2000 {
            let now = f64::from(i) * 1e-3;
            law.engine.history = History::new(100_000_000, 1e-7);
            pass(&mut law, now, 10_000, toll(0.1, 1e-7, 0.0));
            let plain = Passing { kind: Kind::Plain, ..passing(acks, 0) };
            law.on_arrival(Time::from_secs_f64(now), plain, &Toll::default());
        }
        law.price().get() * MBPS_100
    };
    assert!((price(Unpaid::Queues, 1250) - 1.0).abs() < 1e-2);
    assert!((price(Unpaid::Counts, 1250) * 0.9 - 1.0).abs() < 1e-2, "{}", price(Unpaid::Counts, 1250));
    // Never more than half of it (equation 2).
    assert!((price(Unpaid::Counts, 12_500) * 0.5 - 1.0).abs() < 1e-2);
}

#[test]
fn of_a_dearer_path_a_link_is_paid_what_it_likely_asked() {
    let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100));
    // Its price rises by a hundredth a millisecond; a slot is 2.1 ms long.
    for i in 0..30_000_u32 {
        law.engine.say(u64::from(i) * 10_000, 1e-8 * (1.0 + f64::from(i) * 1e-4));
    }
    for us in (280_000..300_000).step_by(300) {
        let paid = law.engine.paid(us * 1000, &toll(0.1, 1e-6, 0.0), 0.1) / 1e-8;
        let asked = 1.0 + (us - 100_000) as f64 * 1e-5;
        assert!((paid - asked).abs() < 1e-3, "{paid} for {asked}");
    }
    let paid = |stake: f64| law.engine.paid(300_000_000, &toll(0.1, stake, 0.0), 0.1) / 1e-8;
    assert!((paid(3.001e-8) - 3.001).abs() < 1e-4 && (2.999..=3.03).contains(&paid(3.1e-8)));
    assert!((paid(2e-8) - 2.0).abs() < 1e-6);
}

#[test]
fn a_queue_to_aim_at_is_left_alone() {
    let price = |target: u64, backlog: u64| {
        let config = FcpConfig { target: Time::from_millis(target), ..as_printed() };
        let mut law = config.build(Rate::from_bytes_per_sec(MBPS_100));
        for i in 0..1000 {
            law.engine.history = History::new(100_000_000, 1e-7);
            let now = Time::from_millis(i);
            law.on_arrival(now, passing(12_500, backlog), &toll(0.1, 1e-7, 0.0));
        }
        law.price().get() / (1e-7 * 1e3 * 12_500.0 / MBPS_100)
    };
    assert!((price(5, 62_500) - 1.0).abs() < 1e-3);
    // α = 2, d = 0.2 s: 5 ms are a twentieth of C.
    assert!((price(5, 0) * 1.05 - 1.0).abs() < 1e-3 && (price(0, 62_500) * 0.95 - 1.0).abs() < 1e-3);
    // A tenth of the round trip at most.
    assert!((price(1000, 125_000) - 1.0).abs() < 1e-3);
}

/// A link that asks a tenth of what its traffic pays in all, the rest being asked elsewhere and
/// fixed: price over what it should be, and seconds queued, a row a millisecond. From a link that
/// is full by a ninth too much and asks nothing yet.
fn mostly_paid_elsewhere(mut law: Fcp) -> Vec<(f64, f64)> {
    let (due, elsewhere) = (1e-8, 9e-8);
    let (mut said, mut backlog) = (vec![Price::MIN.get()], 0.0_f64);
    (0..15_000_u64)
        .map(|i| {
            let heard = said[said.len().saturating_sub(100)];
            let stake = heard + elsewhere;
            let rate = MBPS_100 * (due + elsewhere) / stake;
            backlog = (backlog + (rate - MBPS_100) * 1e-3).max(0.0);
            law.on_arrival(
                Time::from_millis(i),
                passing((rate * 1e-3) as u32, backlog as u64),
                &toll(0.1, stake, 0.0),
            );
            said.push(law.price().get());
            (law.price().get() / due, backlog / MBPS_100)
        })
        .collect()
}

#[test]
fn a_newton_step_finds_the_price_of_links_that_traffic_pays_little() {
    // Until when the price is more than a tenth off, s, the most that was queued, s, and the price
    // in the end.
    let course = |config: FcpConfig| {
        let rows = mostly_paid_elsewhere(config.build(Rate::from_bytes_per_sec(MBPS_100)));
        let last_off = rows.iter().rposition(|row| (row.0 - 1.0).abs() > 0.1).unwrap();
        let most = rows.iter().map(|row| row.1).fold(0.0, f64::max);
        (last_off as f64 * 1e-3, most, rows[rows.len() - 1].0)
    };
    let (settled, queue, _) = course(as_printed());
    assert!((10.0..14.0).contains(&settled) && queue > 0.5, "{settled} {queue}");
    let newton =
        FcpConfig { alpha: 0.5, window: 1.0, newton: 0.5, target: Time::from_millis(1), ..as_printed() };
    let (settled, queue, price) = course(newton);
    assert!(settled < 2.0 && queue < 0.05, "{settled} {queue}");
    // A hundred packets to a window: one too many would be a tenth of the price.
    assert!((price - 1.0).abs() < 0.02, "{price}");
}

#[test]
fn a_newton_step_is_of_the_link_s_own_price_beside_other_classes_too() {
    let law = |newton: f64| FcpConfig { newton, ..as_printed() }.build(Rate::from_bytes_per_sec(MBPS_100));
    let classes = [Pricing::Standard, Pricing::Priority { times: 2.0 }];
    let (plain, with_classes) = (law(0.5), law(0.5).with_classes(&classes));
    assert_eq!(mostly_paid_elsewhere(plain), mostly_paid_elsewhere(with_classes));
    // Without it the price is decades lower after two seconds.
    let without = mostly_paid_elsewhere(law(0.0).with_classes(&classes));
    assert!(without[2000].0 < 1e-3 * mostly_paid_elsewhere(law(0.5))[2000].0);
}

#[test]
fn a_price_follows_the_capacity_that_it_is_told() {
    let price = |then: f64| {
        let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100));
        law.set_capacity(Time::ZERO, Rate::from_bytes_per_sec(then * MBPS_100));
        for i in 0..1000 {
            law.engine.history = History::new(100_000_000, 1e-7);
            law.on_arrival(Time::from_millis(i), passing(10_000, 0), &toll(0.1, 1e-7, 0.0));
        }
        law.price().get() * MBPS_100
    };
    // A dollar a second comes in.
    for (then, due) in [(1.0, 1.0), (0.5, 2.0), (2.0, 0.5)] {
        assert!((price(then) / due - 1.0).abs() < 1e-2, "{then}: {}", price(then));
    }
}

#[test]
fn a_newton_step_counts_what_pays_nothing() {
    // Nine tenths of the link pay, acknowledgements are the last: it is full, and there is nothing
    // to correct.
    let config = FcpConfig { newton: 0.5, ..as_printed() };
    let mut law = config.build(Rate::from_bytes_per_sec(MBPS_100));
    for i in 0..2000 {
        let now = f64::from(i) * 1e-3;
        law.engine.history = History::new(100_000_000, 1e-7);
        pass(&mut law, now, 11_250, toll(0.1, 1e-7, 0.0));
        let plain = Passing { kind: Kind::Plain, ..passing(1250, 0) };
        law.on_arrival(Time::from_secs_f64(now), plain, &Toll::default());
    }
    assert!((law.price().get() / 9e-8 - 1.0).abs() < 0.02, "{:?}", law.price());
}

#[test]
fn deadlines_are_promised_no_more_than_their_share() {
    let granted = |part: f64| {
        let classes = [Pricing::Standard, Pricing::Deadline { share: 0.25 }];
        let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100)).with_classes(&classes);
        let packet = Passing { class: 1, ..passing(1500, 0) };
        let mut asks = toll(0.1, 0.0, part * MBPS_100 * 0.1 / 1500.0);
        law.on_arrival(Time::from_millis(1), packet, &asks);
        law.on_departure(Time::from_millis(1), packet, &mut asks);
        asks.due <= Price::MIN.get()
    };
    assert!(granted(0.24) && !granted(0.26));
}

#[test]
fn what_was_promised_to_one_deadline_is_not_promised_to_another() {
    let classes = [Pricing::Standard, Pricing::Deadline { share: 0.25 }];
    let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100)).with_classes(&classes);
    let mut ask = |part: f64| {
        let packet = Passing { class: 1, ..passing(1500, 0) };
        let mut asks = toll(0.1, 0.0, part * MBPS_100 * 0.1 / 1500.0);
        law.on_departure(Time::from_millis(1), packet, &mut asks);
        asks.due
    };
    assert_eq!(ask(0.2), Price::MIN.get());
    // A refusal is heard, though all is free.
    assert!(ask(0.1) >= REFUSAL);
    assert_eq!(ask(0.04), Price::MIN.get());
    // A packet that announces nothing, or a decrease, is never refused.
    assert_eq!([ask(0.0), ask(-0.01)], [Price::MIN.get(); 2]);
}

#[test]
fn a_dollar_at_four_times_the_price_counts_for_a_quarter() {
    let classes = [Pricing::Standard, Pricing::Priority { times: 4.0 }];
    let mut law = as_printed().build(Rate::from_bytes_per_sec(MBPS_100)).with_classes(&classes);
    // The price is 4e-7, and the flow's least rate allows 2e-7: as much as 5e-8 of the link's own
    // price.
    for i in 0..1000 {
        law.engine.history = History::new(100_000_000, 1e-7);
        let packet = Passing { class: 1, ..passing(10_000, 0) };
        law.on_arrival(Time::from_millis(i), packet, &toll(0.1, 2e-7, 0.0));
    }
    assert!((law.income() / 0.5 - 1.0).abs() < 1e-2, "{}", law.income());
}
