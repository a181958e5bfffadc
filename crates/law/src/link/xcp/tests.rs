//! The router driven by hand, and on random traces.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::Shadow;
use super::*;
use crate::Bytes;

/// The request of a sender for everything available.
const ALL: f64 = 1e24;

#[derive(Clone, Copy, Debug)]
struct Event {
    at: u64,
    leaves: bool,
    packet: Passing,
    toll: Toll,
}

/// A packet that arrives: when (ns), bytes, round-trip time and X (s), what it asks for (bytes/s).
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: u64,
    size: u32,
    kind: Kind,
    toll: Toll,
}

fn arrival(at: u64, size: u32, rtt: f32, x: f32, due: f64) -> Arrival {
    Arrival { at, size, kind: Kind::Tolled, toll: Toll { due, rtt, offer: x, ..Toll::default() } }
}

/// A FIFO of infinite room in front of a transmitter of `rate` bytes/s: what its law sees of
/// `arrivals`.
fn pass(mut arrivals: Vec<Arrival>, rate: f64) -> Vec<Event> {
    arrivals.sort_by_key(|a| a.at);
    let (mut events, mut free) = (Vec::new(), 0u64);
    for (order, a) in arrivals.iter().enumerate() {
        let leaves_at = free.max(a.at);
        free = leaves_at + (f64::from(a.size) / rate * 1e9) as u64 + 1;
        for leaves in [false, true] {
            let at = if leaves { leaves_at } else { a.at };
            events.push((at, order, leaves, *a));
        }
    }
    // At one instant what is queued already leaves first; a packet never leaves before it has come.
    events.sort_by_key(|&(at, order, leaves, a)| (at, !leaves || a.at == at, order, leaves));
    let (mut packets, mut bytes) = (0u32, 0u64);
    let mut seen = Vec::new();
    for (at, _, leaves, a) in events {
        let packet = Passing {
            waited: Time(if leaves { at - a.at } else { 0 }),
            ..Passing::of(a.kind, a.size, packets, bytes)
        };
        seen.push(Event { at, leaves, packet, toll: a.toll });
        if leaves {
            packets -= 1;
            bytes -= u64::from(a.size);
        } else {
            packets += 1;
            bytes += u64::from(a.size);
        }
    }
    seen
}

/// Runs a law over a trace: each departing packet's time and what it was told.
fn run(law: &mut impl LinkLaw, events: &[Event]) -> Vec<(u64, f64)> {
    let mut told = Vec::new();
    for event in events {
        let mut toll = event.toll;
        if event.leaves {
            law.on_departure(Time(event.at), event.packet, &mut toll);
            told.push((event.at, toll.due));
        } else {
            law.on_arrival(Time(event.at), event.packet, &toll);
        }
    }
    told
}

/// A config whose timers both first expire after `ms`, the length of their first intervals.
fn aligned(ms: u64) -> XcpConfig {
    let initial = Time::from_millis(ms);
    XcpConfig {
        initial_interval: initial,
        first_control: initial,
        first_queue: initial,
        ..XcpConfig::default()
    }
}

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs())
}

const MS: u64 = 1_000_000;

/// 10 packets of 1000 B in the first 100 ms on 1 MB/s: y = 100 kB/s, F = 0.4 · 900 kB/s = 360 kB/s,
/// nothing to shuffle. Each has X = 20 ms, so each of the next ones gets a tenth until all is
/// given.
fn by_hand<N: Number>() {
    let config = aligned(100);
    let mut router = Xcp::<N>::new(&config, Rate::from_bytes_per_sec(1e6));
    let arrivals = (0..22).map(|k| arrival(k * 10 * MS + MS, 1000, 0.2, 0.02, ALL)).collect();
    let told = run(&mut router, &pass(arrivals, 1e6));
    for &(at, due) in &told {
        // After 200 ms all is given, and the interval, which is 200 ms long now, goes on.
        let right = if (100 * MS..200 * MS).contains(&at) { 36_000.0 } else { 0.0 };
        assert!((due - right).abs() < 1e-2, "{at}: {due}");
    }
    assert_eq!(told.len(), 22);
    assert_eq!(router.intervals(), 1);
    assert!(near(router.feedback(), 360_000.0, 1e-8), "{}", router.feedback());
    assert!(near(router.avg_rtt(), 0.2, 1e-7));
}

#[test]
fn a_toll_for_four_packets_is_given_and_taken_what_four_are() {
    let router = || {
        let mut xcp = Xcp::<f64>::new(&XcpConfig::default(), Rate::from_mbps(10.0));
        // An interval that gives nothing and takes nothing but what is shuffled: both pools are
        // full.
        xcp.per_x = 50_000.0;
        xcp.per_byte = 3.0;
        xcp.positive = <f64 as Number>::Sum::holding(1e6);
        xcp.negative = <f64 as Number>::Sum::holding(1e6);
        xcp
    };
    let packet = arrival(0, 1500, 0.1, 0.01, ALL);
    let passing = Passing::of(packet.kind, packet.size, 1, 1500);
    let feedback = |xcp: &mut Xcp<f64>, toll: &Toll| xcp.depart(passing, toll).unwrap().feedback.unwrap();
    let mut each = router();
    let four: f64 = (0..4).map(|_| feedback(&mut each, &packet.toll)).sum();
    let mut once = router();
    let for_four = Toll { offer: 0.04, stake: 4.0, ..packet.toll };
    assert!((feedback(&mut once, &for_four) - four).abs() < 1e-3);
    assert!((once.pools().0 - each.pools().0).abs() < 1e-3 && (once.pools().1 - each.pools().1).abs() < 1e-3);
    // False counts and NaN: the toll counts as one packet, or as the maximum.
    for stake in [f32::NAN, -3.0, 0.0, 1.0] {
        assert!((feedback(&mut router(), &Toll { stake, ..packet.toll }) - four / 4.0).abs() < 1e-3);
    }
    assert!(feedback(&mut router(), &Toll { stake: f32::INFINITY, ..packet.toll }).is_finite());
}

#[test]
fn a_case_calculated_by_hand() {
    by_hand::<f64>();
    by_hand::<Shift32>();
    by_hand::<Fixed128>();
}

/// The same with both pools: 100 packets of 1000 B fill 1 MB/s for 100 ms; nothing spare, 10 % is
/// shuffled.
#[test]
fn a_full_link_shuffles_a_tenth() {
    let mut router = Xcp::<f64>::new(&aligned(100), Rate::from_bytes_per_sec(1e6));
    // Two flows, one three times as fast: X of 4/3 ms and 4 ms.
    let arrivals = (0..200u64)
        .map(|k| arrival(k * MS + 500, 1000, 0.1, if k % 4 == 0 { 4e-3 } else { 4e-3 / 3.0 }, ALL))
        .collect();
    let told = run(&mut router, &pass(arrivals, 1e9));
    // ΣX = 25 · 4 ms + 75 · 4/3 ms = 200 ms; h = 100 kB/s both ways; −h/100 per packet, +h·X/ΣX.
    for (k, &(_, due)) in told.iter().enumerate().skip(100) {
        let right = if k % 4 == 0 { 2000.0 - 1000.0 } else { 2000.0 / 3.0 - 1000.0 };
        assert!(near(due, right, 1e-5), "{k}: {due} {right}");
    }
}

#[test]
fn a_packet_without_a_round_trip_time_gets_nothing_and_a_plain_one_is_left_alone() {
    let mut router = Xcp::<f64>::new(&aligned(100), Rate::from_bytes_per_sec(1e6));
    let mut arrivals: Vec<_> = (0..10).map(|k| arrival(k * 10 * MS + MS, 1000, 0.0, 0.1, ALL)).collect();
    arrivals.push(Arrival { kind: Kind::Plain, ..arrival(60 * MS, 40, 0.1, 0.1, 77.0) });
    let told = run(&mut router, &pass(arrivals, 1e9));
    assert_eq!(told.iter().filter(|t| t.1 == 0.0).count(), 10);
    assert_eq!(told.iter().filter(|t| t.1 == 77.0).count(), 1);
    // They count by their bytes only: no round-trip time was heard of.
    router.on_arrival(Time(150 * MS), told_nothing(), &Toll::default());
    assert!(near(router.feedback(), 0.4 * (1e6 - 100_400.0), 1e-12));
    assert_eq!(router.avg_rtt(), 0.1);
}

fn told_nothing() -> Passing {
    Passing::of(Kind::Plain, 40, 0, 0)
}

/// draft § 5, departure: what a packet does not take of its gift is balanced against what is taken
/// back.
#[test]
fn a_packet_that_asks_for_less_gets_that_and_the_pools_stay_balanced() {
    for (asked, feedback, given, taken) in [
        (700.0, 500.0, 1500.0, 1000.0),    // limited by the link
        (500.0, 500.0, 1500.0, 1000.0),    // a tie is the link's, either way alike
        (200.0, 200.0, 1500.0, 1300.0),    // 300 of the gift are booked as taken back
        (-9e9, -9e9, 0.0, 2000.0),         // no more than there is, and nothing comes back into the pool
        (-1200.0, -1200.0, 800.0, 2000.0), // 1000 + 1700 asked, 2000 there: the rest as not given
    ] {
        let mut router = Xcp::<f64>::new(&aligned(100), Rate::from_bytes_per_sec(1e6));
        router.per_x = 1500.0;
        router.per_byte = 1.0;
        router.positive = 10_000.0;
        router.negative = 2000.0;
        let mut toll = Toll { due: asked, rtt: 0.1, offer: 1.0, ..Toll::default() };
        let packet = Passing { size: 1000, kind: Kind::Tolled, ..told_nothing() };
        router.on_departure(Time(MS), packet, &mut toll);
        assert_eq!(toll.due, feedback);
        assert_eq!(router.pools(), (10_000.0 - given, 2000.0 - taken), "asked {asked}");
    }
}

#[test]
fn what_never_drains_in_a_queue_interval_is_the_persistent_queue() {
    let mut router = Xcp::<f64>::new(&aligned(100), Rate::from_bytes_per_sec(1e6));
    let mut leave = |at: u64, backlog: u64| {
        let packet = Passing { backlog_bytes: backlog, kind: Kind::Plain, ..told_nothing() };
        router.on_departure(Time(at * MS), packet, &mut Toll::default());
        router.persistent_queue()
    };
    assert_eq!(leave(10, 5000), 0);
    // Starts at zero, and the first expiry sees what stood before this packet: 9000 B.
    assert_eq!(leave(101, 9000), 0);
    // The next is (100 − 9)/2 = 45.5 ms long; its least is 3000.
    assert_eq!(leave(120, 3000), 0);
    assert_eq!(leave(145, 8000), 0);
    assert_eq!(leave(146, 7000), 3000);
}

/// F = α (C − y) − β Q / RTT, with a queue that stands.
#[test]
fn a_standing_queue_is_drained_over_a_round_trip() {
    let config = XcpConfig { first_queue: Time::from_millis(40), ..aligned(100) };
    let mut router = Xcp::<f64>::new(&config, Rate::from_bytes_per_sec(1e6));
    let packet =
        |backlog| Passing { backlog_bytes: backlog, size: 1000, kind: Kind::Tolled, ..told_nothing() };
    let mut toll = Toll { due: ALL, rtt: 0.25, offer: 0.01, ..Toll::default() };
    // 90 packets in 100 ms are 900 kB/s. From 40 ms on at least 30 kB stand; the queue interval
    // after that ends at 40 + (100 − 30)/2 = 75 ms, so it is in the feedback of the control
    // interval's end at 100 ms.
    for k in 0..90 {
        router.on_arrival(Time(k * MS), packet(30_000), &toll);
        router.on_departure(Time(k * MS), packet(30_000 + k), &mut toll);
    }
    router.on_arrival(Time(101 * MS), packet(30_000), &toll);
    assert_eq!(router.persistent_queue(), 30_000);
    let right = 0.4 * (1e6 - 9e5) - 0.226 * 30_000.0 / 0.25;
    assert!(near(router.feedback(), right, 1e-9), "{} {right}", router.feedback());
}

/// If both timers expire together, the control interval ends first: the next queue interval follows
/// the new RTT.
#[test]
fn control_comes_before_queue() {
    let mut router = Xcp::<f64>::new(&aligned(100), Rate::from_bytes_per_sec(1e6));
    run(
        &mut router,
        &pass(vec![arrival(MS, 1000, 0.3, 0.3, ALL), arrival(100 * MS, 1000, 0.3, 0.3, ALL)], 1e9),
    );
    assert_eq!((router.control_timer.next, router.queue_timer.next), (400_000_012, 250_000_006));
}

/// A sender that says its round trip takes a picosecond does not make a standing queue an infinite
/// debt.
#[test]
fn a_round_trip_of_next_to_nothing_counts_as_a_microsecond() {
    let mut router = Xcp::<f64>::new(&aligned(100), Rate::from_bytes_per_sec(1e6));
    let events =
        pass(vec![arrival(MS, 1000, 1e-12, 16.0, ALL), arrival(100 * MS, 1000, 1e-12, 16.0, ALL)], 1e9);
    run(&mut router, &events);
    assert_eq!(router.avg_rtt(), 1e-6);
}

#[test]
fn overhead_counts_as_traffic() {
    let capacity = Rate::from_bytes_per_sec(1e6);
    let feedback = |overhead, size| {
        let config = XcpConfig { overhead: Some(Bytes(overhead)), ..aligned(100) };
        let mut router = Xcp::<f64>::new(&config, capacity);
        run(&mut router, &pass((0..80).map(|k| arrival(k * MS + 1, size, 0.1, 0.01, ALL)).collect(), 1e9));
        router.on_arrival(Time(101 * MS), told_nothing(), &Toll::default());
        router.feedback()
    };
    assert_eq!(feedback(90, 1000), feedback(0, 1090));
    assert!(feedback(90, 1000) < feedback(0, 1000));
}

/// Claim xcp.step: one flow at equilibrium, then the capacity is 1 + Δ times what it was.
#[test]
fn a_step_of_capacity_gives_each_packet_alpha_delta_packets() {
    fn first_interval<N: Number>(form: Form, delta: f64) {
        // 500 packets of 1250 B a round trip of 0.5 s fill 1.25 MB/s.
        let (capacity, rtt, size) = (1.25e6, 0.5, 1250u32);
        let config = XcpConfig { form, ..XcpConfig::default() };
        let mut router = Xcp::<N>::new(&config, Rate::from_bytes_per_sec(capacity));
        let events =
            pass((0..6000u64).map(|k| arrival(k * MS + 500_000, size, 0.5, 1e-3, ALL)).collect(), 1e9);
        let (before, after): (Vec<_>, Vec<_>) = events.into_iter().partition(|e| e.at < 3_000 * MS);
        let told = run(&mut router, &before);
        // A Te of 500 ms may hold 499 or 501 packets here, no more is in it.
        assert!(told.iter().skip(1500).all(|t| (t.1 * rtt / f64::from(size)).abs() < 2e-3));
        router.set_capacity(Time(3_000 * MS), Rate::from_bytes_per_sec(capacity * (1.0 + delta)));
        let interval = router.intervals() + 1;
        let mut packets = 0;
        for event in after {
            let mut toll = event.toll;
            if event.leaves {
                router.on_departure(Time(event.at), event.packet, &mut toll);
                if router.intervals() == interval {
                    packets += 1;
                    let got = toll.due * rtt / f64::from(size);
                    assert!(near(got, 0.4 * delta, 0.02), "{form:?} {delta}: {got}");
                }
            } else {
                router.on_arrival(Time(event.at), event.packet, &toll);
            }
        }
        assert!((499..=501).contains(&packets), "{packets}");
    }
    for form in [Form::Throughput, Form::Window] {
        for delta in [-0.5, -0.2, 0.2, 0.5, 1.0, 2.0] {
            first_interval::<f64>(form, delta);
            first_interval::<Shift32>(form, delta);
            first_interval::<Fixed128>(form, delta);
        }
    }
}

/// Idle intervals are skipped in one step, with the same state as one by one.
#[test]
fn skipping_an_idle_time_is_stepping_through_it() {
    fn check<N: Number>(backlog: u64, seconds: u64) {
        let mut skips = Xcp::<N>::new(&XcpConfig::default(), Rate::from_mbps(10.0));
        run(&mut skips, &pass((0..400).map(|k| arrival(k * MS, 1500, 0.13, 0.01, ALL)).collect(), 1e9));
        let mut steps = skips.clone();
        let end = 400 * MS + seconds * 1000 * MS + 12345;
        (401 * MS..end).step_by(MS as usize).for_each(|at| steps.catch_up(Time(at), backlog));
        steps.catch_up(Time(end), backlog);
        skips.catch_up(Time(end), backlog);
        assert_eq!(format!("{skips:?}"), format!("{steps:?}"));
        assert!(skips.intervals() > 15 * seconds);
        // Another backlog stands from now on, ten times, at other places in both timers' periods.
        let mut at = end;
        for backlog in 1..=10 {
            let later = at + 107 * MS;
            (at..later).step_by(MS as usize).for_each(|at| steps.catch_up(Time(at), backlog));
            steps.catch_up(Time(later), backlog);
            skips.catch_up(Time(later), backlog);
            assert_eq!(format!("{skips:?}"), format!("{steps:?}"));
            at = later;
        }
    }
    for backlog in [0, 1500, 250_000] {
        check::<f64>(backlog, 7);
        check::<Shift32>(backlog, 7);
        check::<Fixed128>(backlog, 3);
    }
    // Ten years, and the end of time.
    let mut router = Xcp::<f64>::new(&XcpConfig::default(), Rate::from_mbps(10.0));
    router.catch_up(Time::from_secs(315_360_000), 0);
    assert_eq!(router.intervals(), 6_307_200_000 - 1);
    router.catch_up(Time::NEVER, 0);
}

/// A few flows with a round-trip time each, sending unevenly, at `load` of a link of `rate` bytes/s
/// for a second.
fn traffic() -> impl Strategy<Value = (f64, Vec<Arrival>)> {
    let flow = (0.02f32..0.4, 0.05f64..1.0, 40u32..1500, prop::bool::weighted(0.2));
    (1e5f64..2e6, 0.3f64..1.6, prop::collection::vec(flow, 1..6), any::<u64>()).prop_map(
        |(rate, load, flows, seed)| {
            let whole: f64 = flows.iter().map(|f| f.1).sum();
            let mut random = seed | 1;
            let mut draw = move || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 11) as f64 / (1u64 << 53) as f64
            };
            let mut arrivals = Vec::new();
            for (rtt, share, size, limited) in flows {
                let gap = f64::from(size) / (rate * load * share / whole);
                let mut at = draw() * gap;
                while at < 1.0 {
                    // Some are limited by an earlier link, around what this one would say.
                    let due = if limited { (draw() - 0.5) * 0.02 * rate } else { ALL };
                    let x = (gap * (0.9 + 0.2 * draw())) as f32;
                    let rtt = if draw() < 0.05 { 0.0 } else { rtt * (1.0 + 0.1 * draw() as f32) };
                    let mut packet = arrival((at * 1e9) as u64, size, rtt, x, due);
                    if draw() < 0.05 {
                        packet.kind = Kind::Plain;
                    }
                    arrivals.push(packet);
                    at += gap * (0.5 + draw());
                }
            }
            (rate, arrivals)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, rng_seed: RngSeed::Fixed(2002), ..ProptestConfig::default() })]

    /// Claim xcp.fixed-point, on random traces instead of a whole run.
    #[test]
    fn fixed_forms_follow_the_float_form((rate, arrivals) in traffic(), window in any::<bool>()) {
        let form = if window { Form::Window } else { Form::Throughput };
        let config = XcpConfig { form, ..XcpConfig::default() };
        let events = pass(arrivals, rate);
        let mut small = Shadow::<Shift32>::new(&config, Rate::from_bytes_per_sec(rate));
        let mut large = Shadow::<Fixed128>::new(&config, Rate::from_bytes_per_sec(rate));
        run(&mut small, &events);
        run(&mut large, &events);
        let tolled = events.iter()
            .filter(|e| e.leaves && e.packet.kind == Kind::Tolled && e.toll.rtt != 0.0).count();
        let [small, large] = [small.deviation().unwrap(), large.deviation().unwrap()];
        prop_assert_eq!(small.packets, tolled as u64);
        // The deviation comes from the end of a pool, whose error is N times a packet's rounding.
        prop_assert!(small.worst < 1e-5, "{small:?}");
        prop_assert!(large.worst < 1e-8, "{large:?}");
    }

    /// Within an interval no more is handed out, and no more taken back, than its pool held.
    #[test]
    fn pools_are_not_overdrawn((rate, arrivals) in traffic()) {
        let mut router = Xcp::<f64>::new(&XcpConfig::default(), Rate::from_bytes_per_sec(rate));
        let (mut interval, mut pools, mut given, mut taken) = (0, (0.0, 0.0), 0.0, 0.0);
        for event in pass(arrivals, rate) {
            router.catch_up(Time(event.at), event.packet.backlog_bytes);
            if router.intervals() != interval {
                (interval, pools, given, taken) = (router.intervals(), router.pools(), 0.0, 0.0);
            }
            let mut toll = event.toll;
            if event.leaves && event.packet.kind == Kind::Tolled {
                router.on_departure(Time(event.at), event.packet, &mut toll);
                // Feedback of an earlier link does not count.
                if toll.due != event.toll.due {
                    given += toll.due.max(0.0);
                    taken += (-toll.due).max(0.0);
                }
                prop_assert!(given <= pools.0 * (1.0 + 1e-9) && taken <= pools.1 * (1.0 + 1e-9));
            } else if !event.leaves {
                router.on_arrival(Time(event.at), event.packet, &toll);
            }
        }
    }

    /// If intervals are as long as the only round-trip time, empty ones included, both forms agree.
    #[test]
    fn the_forms_agree_where_all_round_trips_are_equal((rate, mut arrivals) in traffic(), rtt in 0.02f32..0.3) {
        arrivals.iter_mut().for_each(|a| a.toll.rtt = rtt);
        let events = pass(arrivals, rate);
        let initial_interval = Time::from_secs_f64(f64::from(rtt));
        let told = [Form::Throughput, Form::Window].map(|form| {
            let config = XcpConfig { form, initial_interval, ..XcpConfig::default() };
            run(&mut Xcp::<f64>::new(&config, Rate::from_bytes_per_sec(rate)), &events)
        });
        for (a, b) in told[0].iter().zip(&told[1]) {
            prop_assert!((a.1 - b.1).abs() <= 1e-6 * rate, "{a:?} {b:?}");
        }
    }

    /// Whatever a packet says, every form stays finite, and honest packets get what they are owed
    /// two intervals on.
    #[test]
    fn a_hostile_packet_does_not_poison(
        lies in prop::collection::vec((any::<f64>(), any::<f32>(), any::<f32>(), any::<u32>()), 1..20),
    ) {
        fn check<N: Number>(lies: &[(f64, f32, f32, u32)]) -> Result<(), TestCaseError> {
            let mut router = Xcp::<N>::new(&aligned(100), Rate::from_bytes_per_sec(1e6));
            for &(due, rtt, x, size) in lies {
                let mut toll = Toll { due, rtt, offer: x, ..Toll::default() };
                let packet = Passing { size, kind: Kind::Tolled, ..told_nothing() };
                router.on_arrival(Time(50 * MS), packet, &toll);
                router.on_departure(Time(120 * MS), packet, &mut toll);
                prop_assert!(toll.due.is_finite());
                prop_assert!(router.feedback().is_finite() && (1e-6..=1.0 + 1e-9).contains(&router.avg_rtt()));
                let (give, take) = router.pools();
                prop_assert!(give.is_finite() && take.is_finite() && give >= 0.0 && take >= 0.0);
            }
            let honest = (2000..2300u64).map(|k| arrival(k * MS + 1, 500, 0.1, 1e-3, ALL)).collect();
            let told = run(&mut router, &pass(honest, 1e9));
            // y is half of the capacity: F = 200 kB/s and nothing shuffled, over 100 packets.
            let last = told[told.len() - 1].1;
            prop_assert!(near(last, 2000.0, 0.03), "{last}");
            Ok(())
        }
        check::<f64>(&lies)?;
        check::<Shift32>(&lies)?;
        check::<Fixed128>(&lies)?;
    }

    /// No constants make it panic, or hang.
    #[test]
    fn any_configuration_runs(
        numbers in prop::array::uniform4(any::<f64>()), spans in prop::array::uniform6(any::<u64>()),
        steps in prop::collection::vec((any::<u64>(), any::<u32>()), 1..20),
    ) {
        let config = XcpConfig {
            alpha: numbers[0],
            beta: numbers[1],
            gamma: numbers[2],
            max_interval: Time(spans[0]),
            min_interval: Time(spans[1] % 1000),
            allowed_queue: Time(spans[2] % 1000),
            initial_interval: Time(spans[3]),
            first_control: Time(spans[4]),
            first_queue: Time(spans[5]),
            ..XcpConfig::default()
        };
        for shadow in [Beside::Fixed32, Beside::Fixed128] {
            let mut law = XcpConfig { shadow, ..config }.build(Rate::from_bps(numbers[3]));
            for &(now, size) in &steps {
                let mut toll = Toll { due: ALL, rtt: 0.1, offer: 0.01, ..Toll::default() };
                let packet = Passing { size, kind: Kind::Tolled, ..told_nothing() };
                // Time may even run backwards.
                law.on_arrival(Time(now), packet, &toll);
                law.set_capacity(Time(now), Rate::from_bps(numbers[3]));
                law.on_departure(Time(now / 2), packet, &mut toll);
                prop_assert!(toll.due.is_finite());
            }
        }
    }
}

/// 10 packets of `size`, one each 10 ms from 1 ms on, with a round trip of 0.2 s, and the end of
/// the interval at 100 ms.
fn ten(config: &XcpConfig, size: u32, rate: f64) -> Xcp<f64> {
    let mut router = Xcp::<f64>::new(config, Rate::from_bytes_per_sec(rate));
    run(&mut router, &pass((0..10).map(|k| arrival((1 + k * 10) * MS, size, 0.2, 0.02, ALL)).collect(), 1e9));
    router
}

#[test]
fn traffic_is_over_the_interval_or_over_the_mean_round_trip() {
    for (form, y) in [(Form::Throughput, 100e3), (Form::Window, 50e3)] {
        let mut router = ten(&XcpConfig { form, ..aligned(100) }, 1000, 1e6);
        router.on_arrival(Time(101 * MS), told_nothing(), &Toll::default());
        assert!((router.feedback() - 0.4 * (1e6 - y)).abs() < 1.0, "{form:?}: {}", router.feedback());
    }
}

#[test]
fn a_change_of_capacity_leaves_the_intervals_before_it_alone() {
    let mut router = ten(&aligned(100), 1000, 1e6);
    router.set_capacity(Time(150 * MS), Rate::from_bytes_per_sec(2e6));
    assert!((router.feedback() - 360e3).abs() < 1.0, "{}", router.feedback());
}

#[test]
fn no_interval_is_shorter_than_the_shortest() {
    let config = XcpConfig { min_interval: Time::from_millis(10), ..aligned(100) };
    let mut router = Xcp::<f64>::new(&config, Rate::from_bytes_per_sec(1e6));
    run(&mut router, &pass((1..100).map(|k| arrival(k * MS, 1000, 0.001, 0.001, ALL)).collect(), 1e9));
    router.on_arrival(Time(101 * MS), told_nothing(), &Toll::default());
    assert_eq!(router.interval(), (Time(100 * MS), Time(110 * MS)));
}

#[test]
fn what_is_taken_back_counts_framing_as_what_came_does() {
    // 170 kB/s of packets and 30 kB/s of framing into 100 kB/s: 0.4 · 100 kB/s are taken back, all
    // of it.
    let config = XcpConfig { overhead: Some(Bytes(300)), gamma: 0.0, ..aligned(100) };
    let mut router = ten(&config, 1700, 1e5);
    let events = pass((0..10).map(|k| arrival((101 + k * 10) * MS, 1700, 0.2, 0.02, ALL)).collect(), 1e9);
    let taken: f64 = run(&mut router, &events).iter().map(|told| told.1).sum();
    assert!((taken + 0.4 * 1e5).abs() < 1.0, "{taken}");
}
