use proptest::prelude::*;

use super::*;

const TICK: Time = Time::from_millis(15);

fn claims() -> impl Strategy<Value = Vec<Claim>> {
    let wants = prop_oneof![3 => 0.0f64..2e7, 1 => Just(f64::INFINITY), 1 => Just(0.0)];
    prop::collection::vec((0.01f64..100.0, wants), 1..40)
        .prop_map(|all| all.into_iter().map(|(weight, wants)| Claim::new(weight, wants)).collect())
}

fn divided(capacity: f64, mut claims: Vec<Claim>) -> Vec<Claim> {
    divide(capacity, &mut claims, &mut Vec::new());
    claims
}

proptest! {
    /// The whole capacity goes to claims, no claim gets more than it wants, and a claim that lacks
    /// something has, by weight, at least as much as any other.
    #[test]
    fn a_division_is_max_min(capacity in 0.0f64..1e8, claims in claims()) {
        let wanted: f64 = claims.iter().map(|claim| claim.wants).sum();
        let after = divided(capacity, claims);
        let given: f64 = after.iter().map(|claim| claim.gets).sum();
        prop_assert!((given - wanted.min(capacity)).abs() <= 1e-9 * capacity, "{given} of {capacity}");
        let most = after.iter().map(|claim| claim.gets / claim.weight).fold(0.0, f64::max);
        for claim in &after {
            prop_assert!(claim.gets <= claim.wants && claim.gets >= 0.0);
            let lacks = claim.gets < claim.wants * (1.0 - 1e-9);
            prop_assert!(!lacks || claim.gets / claim.weight >= most * (1.0 - 1e-6), "{claim:?} of {most}");
        }
    }

    /// A claim that wants its present part gets it again. More capacity lowers no part, and a
    /// higher want raises no other part.
    #[test]
    fn a_division_is_idempotent_and_monotone(
        capacity in 0.0f64..1e8, more in 0.0f64..1e7, claims in claims(), who in any::<prop::sample::Index>(),
    ) {
        let once = divided(capacity, claims.clone());
        let content = once.iter().map(|claim| Claim::new(claim.weight, claim.gets)).collect();
        for (claim, again) in once.iter().zip(divided(capacity * (1.0 + 1e-12), content)) {
            prop_assert!((claim.gets - again.gets).abs() <= 1e-6 * claim.gets);
        }
        for (claim, richer) in once.iter().zip(divided(capacity + more, claims.clone())) {
            prop_assert!(richer.gets >= claim.gets * (1.0 - 1e-9));
        }
        let at = who.index(claims.len());
        let mut greedier = claims;
        greedier[at].wants += more;
        for (i, (claim, after)) in once.iter().zip(divided(capacity, greedier)).enumerate() {
            let loss = i == at || after.gets <= claim.gets * (1.0 + 1e-9);
            prop_assert!(loss, "{claim:?} gains from {at}");
        }
    }

    /// Whatever connections do: their shares are never more than the rate, nor a tenant's more than
    /// its own; what is lent beyond them is in the buckets, or what each would have if all woke.
    #[test]
    fn nothing_is_given_that_is_not_there(
        link in prop::option::of(1e5f64..1e8),
        tenants in prop::collection::vec((0.1f64..10.0, 1e5f64..1e8, prop::collection::vec(0.1f64..10.0, 1..4)), 1..5),
        connections in prop::collection::vec((0u32..20, 0.1f64..10.0, 0.0f64..1e7, 0u8..3), 0..60),
        sent in prop::collection::vec(0u64..3_000_000, 1..12),
    ) {
        let rate = Rate::from_bytes_per_sec;
        let specs: Vec<Tenant> = tenants.iter().map(|(weight, r, classes)| Tenant {
            contract: Contract { weight: *weight, rate: Some(rate(*r)), ..Contract::default() },
            classes: classes.clone(),
        }).collect();
        let count = specs.iter().map(|tenant| tenant.classes.len() as u32).sum::<u32>();
        let contract = Contract { rate: link.map(rate), ..Contract::default() };
        let mut shares = Shares::new(Time::ZERO, contract, &specs);
        let mut connections: Vec<PacedConnection> = connections.iter().map(|&(class, weight, keep, state)| PacedConnection {
            class: class % count, weight, sent: 0, burst: 0,
            wants: Wants { keep: rate(keep), hungry: state == 1, waits: state == 2 },
            partition: Partition::default(), share: Rate::ZERO, limit: Rate::ZERO,
        }).collect();
        for (k, sent) in sent.into_iter().enumerate() {
            let n = connections.len().max(1) as u64;
            for (at, paced) in (k..).zip(&mut connections) {
                paced.sent = sent / n;
                // Windows open and close.
                if at % 3 == 0 && paced.wants.persists() {
                    (paced.wants.hungry, paced.wants.waits) = (paced.wants.waits, paced.wants.hungry);
                }
            }
            shares.divide(TICK * (k as u64 + 1), TICK, &mut connections);
            let total: f64 = connections.iter().map(|paced| paced.share.bytes_per_sec()).sum();
            let limits: f64 = connections.iter().map(|paced| paced.limit.bytes_per_sec()).sum();
            if let Some(link) = link {
                prop_assert!(total <= link * (1.0 + 1e-9), "{total} of {link}");
                let lent = shares.link.spare(TICK.as_secs_f64() * 2.0);
                prop_assert!(limits <= (2.0 * link + lent) * (1.0 + 1e-9), "{limits} of {link} and {lent}");
            }
            let mut first = 0;
            for (at, (tenant, spec)) in tenants.iter().zip(&specs).enumerate() {
                let range = first..first + spec.classes.len() as u32;
                first = range.end;
                let own: f64 = connections.iter().filter(|m| range.contains(&m.class)).map(|m| m.share.bytes_per_sec()).sum();
                prop_assert!(own <= tenant.1 * (1.0 + 1e-9));
                prop_assert!(own <= shares.share_of(at).bytes_per_sec().max(shares.tenants[at].given.most()) * (1.0 + 1e-9));
            }
            // Nothing is left over while a hungry tenant may have more.
            let hungry = |at: usize| shares.tenants[at].given.hungry;
            if let (Some(link), true) = (link, (0..specs.len()).all(hungry)) {
                let ceilings: f64 = shares.tenants.iter().map(|t| t.pool.ceiling(0.03)).sum();
                let there_is = shares.link.ceiling(0.03).min(ceilings);
                prop_assert!(total >= there_is * (1.0 - 1e-9), "{total} of {link}, {there_is}");
            }
            for paced in &connections {
                prop_assert!(paced.limit >= paced.share && paced.limit.bytes_per_sec().is_finite());
                let even = paced.limit.bytes_per_sec() > 0.0;
                prop_assert!(even, "{paced:?} stands still");
            }
        }
    }
}

proptest! {
    /// The same with weights, rates and buckets from end to end of what a file of policies takes.
    #[test]
    fn extremes_divide_no_more_than_there_is(
        link in magnitude(-1.0..14.0),
        tenants in prop::collection::vec((magnitude(-12.0..6.0), magnitude(-1.0..14.0), prop::collection::vec(magnitude(-12.0..6.0), 1..4)), 1..5),
        connections in prop::collection::vec((0u32..20, magnitude(-3.0..15.0), 0u8..4), 1..40),
        depth in prop::option::of(0u64..1 << 40),
        sent in prop::collection::vec(0u64..1 << 44, 1..8),
        tick in prop_oneof![Just(1u64), Just(15), Just(10_000)],
    ) {
        let rate = Rate::from_bytes_per_sec;
        let specs: Vec<Tenant> = tenants.iter().map(|(weight, r, classes)| Tenant {
            contract: Contract { weight: *weight, rate: Some(rate(*r)), ..Contract::default() },
            classes: classes.clone(),
        }).collect();
        let count = specs.iter().map(|tenant| tenant.classes.len() as u32).sum::<u32>();
        let contract = Contract { rate: Some(rate(link)), depth: depth.map(Bytes), ..Contract::default() };
        let mut shares = Shares::new(Time::ZERO, contract, &specs);
        let mut connections: Vec<PacedConnection> = connections.iter().map(|&(class, keep, state)| PacedConnection {
            class: class % count, weight: 1.0, sent: 0, burst: 3000,
            wants: Wants { keep: rate(if state == 3 { 0.0 } else { keep }), hungry: state == 1, waits: state == 2 },
            partition: Partition::default(), share: Rate::ZERO, limit: Rate::ZERO,
        }).collect();
        let tick = Time::from_millis(tick);
        for (k, sent) in sent.into_iter().enumerate() {
            let at = k % connections.len();
            connections[at].sent = sent;
            shares.divide(tick * (k as u64 + 1), tick, &mut connections);
            connections[at].sent = 0;
            let total: f64 = connections.iter().map(|paced| paced.share.bytes_per_sec()).sum();
            prop_assert!(total <= link * (1.0 + 1e-9), "{total} of {link}");
            for paced in &connections {
                let limit = paced.limit.bytes_per_sec();
                prop_assert!(paced.limit >= paced.share && limit.is_finite() && limit > 0.0, "{paced:?}");
            }
            let mut first = 0;
            for (tenant, spec) in tenants.iter().zip(&specs) {
                let range = first..first + spec.classes.len() as u32;
                first = range.end;
                let own: f64 = connections.iter().filter(|m| range.contains(&m.class)).map(|m| m.share.bytes_per_sec()).sum();
                prop_assert!(own <= tenant.1 * (1.0 + 1e-9), "{own} of {}", tenant.1);
            }
        }
    }
}

/// From 10 to the power of `least` on.
fn magnitude(powers: std::ops::Range<f64>) -> impl Strategy<Value = f64> {
    powers.prop_map(|power| libm::pow(10.0, power))
}

/// Of weights that are added up and taken away again, a small one would be nothing, and its part of
/// what is left without end.
#[test]
fn a_small_weight_among_large_ones_gets_what_is_left() {
    let mut claims: Vec<Claim> = (0..20).map(|_| Claim::new(1e6, 1.0)).collect();
    claims.push(Claim::new(1e-9, f64::INFINITY));
    let after = divided(100.0, claims);
    assert_eq!((after[0].gets, after[20].gets), (1.0, 80.0));
}

/// A sender whose window lets nothing through for now, though data wait.
const STOPPED: f64 = -1.0;

/// A sender that would send `wants` bytes a second and has `limit`: what it sends in a tick, and
/// how that looks.
fn acts(demand: &mut Demand, wants: f64, by_receiver: bool, paced: &mut PacedConnection) {
    let stopped = wants == STOPPED;
    let wants = wants.max(0.0);
    let limit = paced.limit.bytes_per_sec();
    let held = wants > limit;
    let span = TICK.as_secs_f64();
    paced.sent = (wants.min(limit) * span) as u64;
    paced.wants = demand.observe(&Sample {
        span: TICK,
        sent: paced.sent,
        by_receiver: if by_receiver && !held { TICK } else { Time::ZERO },
        backlog: held || by_receiver || stopped,
        window_open: !stopped,
        own: Rate::from_bytes_per_sec(if stopped { 1e4 } else { f64::MAX }),
        limit: paced.limit,
        rtt: Time::from_millis(100),
        echo: Time::from_millis(10),
    });
}

struct World {
    shares: Shares,
    connections: Vec<PacedConnection>,
    demands: Vec<Demand>,
    now: Time,
    sent: Vec<u64>,
}

impl World {
    fn new(shares: Shares, classes: &[u32]) -> World {
        let paced = |&class: &u32| PacedConnection {
            class,
            weight: 1.0,
            sent: 0,
            burst: 0,
            wants: Wants::default(),
            partition: Partition::default(),
            share: Rate::ZERO,
            limit: Rate::from_mbps(1.0),
        };
        let connections: Vec<PacedConnection> = classes.iter().map(paced).collect();
        let demands = vec![Demand::new(); connections.len()];
        World { shares, connections, demands, now: Time::ZERO, sent: Vec::new() }
    }

    /// Lets time pass; each wants `wants(i)`, and the receiver holds it if it is `slow(i)`.
    fn run(&mut self, span: Time, wants: impl Fn(usize) -> f64, slow: impl Fn(usize) -> bool) {
        let until = self.now + span;
        while self.now < until {
            self.now += TICK;
            for (i, (demand, paced)) in self.demands.iter_mut().zip(&mut self.connections).enumerate() {
                acts(demand, wants(i), slow(i), paced);
            }
            self.sent.push(self.connections.iter().map(|paced| paced.sent).sum());
            self.shares.divide(self.now, TICK, &mut self.connections);
        }
    }

    fn mbps(&self, i: usize) -> f64 {
        self.connections[i].limit.mbps()
    }
}

fn of_rate(mbps: f64, weights: &[f64]) -> Shares {
    let link = Contract { rate: Some(Rate::from_mbps(mbps)), ..Contract::default() };
    let tenant =
        |&weight: &f64| Tenant { contract: Contract { weight, ..Contract::default() }, classes: vec![1.0] };
    Shares::new(Time::ZERO, link, &weights.iter().map(tenant).collect::<Vec<_>>())
}

const ALL: f64 = 1e12;

#[test]
fn what_one_leaves_is_lent_within_a_second_and_its_own_again_at_once() {
    let mut world = World::new(of_rate(100.0, &[1.0]), &[0, 0, 0, 0]);
    world.run(Time::from_secs(2), |_| ALL, |_| false);
    (0..4).for_each(|i| assert!((world.mbps(i) - 25.0).abs() < 0.1, "{}", world.mbps(i)));
    // The last one's receiver takes 5 Mb/s.
    let slow = |i: usize| if i == 3 { 5e6 / 8.0 } else { ALL };
    world.run(Time::from_secs(1), slow, |i| i == 3);
    (0..3).for_each(|i| assert!((world.mbps(i) - 95.0 / 3.0).abs() < 0.5, "{}", world.mbps(i)));
    assert!(world.mbps(3) > 24.0, "its limit is what it could have: {}", world.mbps(3));
    world.run(Time::from_secs(5), slow, |i| i == 3);
    (0..3).for_each(|i| assert!((world.mbps(i) - 95.0 / 3.0).abs() < 0.2, "{}", world.mbps(i)));
    // It wants all again: it has 25 Mb/s from the first tick on, the others no more than that a
    // second later.
    world.run(TICK, |_| ALL, |_| false);
    assert!(world.connections[3].sent as f64 * 8e-6 / TICK.as_secs_f64() > 24.0);
    world.run(Time::from_millis(500), |_| ALL, |_| false);
    (0..4).for_each(|i| assert!((world.mbps(i) - 25.0).abs() < 0.5, "{}", world.mbps(i)));
}

#[test]
fn tenants_have_their_parts_however_many_connections_they_have() {
    let classes: Vec<u32> = [0, 0].into_iter().chain(std::iter::repeat_n(1, 560)).collect();
    let mut world = World::new(of_rate(100.0, &[1.0, 3.0]), &classes);
    world.run(Time::from_secs(3), |_| ALL, |_| false);
    let sum = |range: std::ops::Range<usize>| range.map(|i| world.mbps(i)).sum::<f64>();
    assert!((sum(0..2) - 25.0).abs() < 0.05 && (sum(2..562) - 75.0).abs() < 0.15, "{}", sum(0..2));
}

#[test]
fn a_peak_lasts_as_long_as_the_bucket() {
    let contract = Contract {
        rate: Some(Rate::from_mbps(8.0)),
        peak: Some(Rate::from_mbps(24.0)),
        depth: Some(Bytes(1_000_000)),
        weight: 1.0,
    };
    let tenant = Tenant { contract, classes: vec![1.0] };
    let mut world = World::new(Shares::new(Time::ZERO, Contract::default(), &[tenant]), &[0]);
    world.run(Time::from_millis(400), |_| ALL, |_| false);
    assert!((world.mbps(0) - 24.0).abs() < 0.1, "{}", world.mbps(0));
    // 2 MB/s more than comes in empty 1 MB in half a second.
    world.run(Time::from_millis(400), |_| ALL, |_| false);
    assert!((world.mbps(0) - 8.0).abs() < 0.5, "{}", world.mbps(0));
}

/// As with BBR: one is silent to see the round trip, and the others are slow to take what it
/// leaves.
#[test]
fn a_peak_of_the_link_makes_up_for_what_nobody_used() {
    let sent_with = |peak: Option<f64>| {
        let link = Contract {
            rate: Some(Rate::from_mbps(100.0)),
            peak: peak.map(Rate::from_mbps),
            ..Contract::default()
        };
        let tenant = Tenant { contract: Contract::default(), classes: vec![1.0] };
        let mut world = World::new(Shares::new(Time::ZERO, link, &[tenant]), &[0, 0, 0, 0]);
        let own = 26.2e6 / 8.0;
        world.run(Time::from_secs(10), |_| own, |_| false);
        let before = world.sent.len();
        world.run(Time::from_millis(300), |i| if i == 3 { 0.0 } else { own }, |_| false);
        world.run(Time::from_secs(5), |_| own, |_| false);
        world.sent[before..].iter().sum::<u64>() as f64
    };
    let (plain, peak) = (sent_with(None), sent_with(Some(105.0)));
    let all = 5.3 * 12.5e6;
    assert!(plain < all - 0.3e6 && peak > all - 0.1e6 && peak < all + 1.3e6, "{plain} and {peak} of {all}");
}

/// As BBR does to see the round trip: each stops for its own while every ten seconds. Answers each
/// one's mean rate over a minute, Mb/s.
fn means_of_those_who_stop(shares: Shares, classes: &[u32], stops: &[u64]) -> Vec<f64> {
    let mut world = World::new(shares, classes);
    let mut sent = vec![0; classes.len()];
    while world.now < Time::from_secs(80) {
        // The third's begins at the third second of ten.
        let at = |i: usize| (world.now.as_nanos() / 1_000_000 + 10_000 - 1000 * i as u64) % 10_000;
        let stopped: Vec<bool> = stops.iter().enumerate().map(|(i, &stop)| at(i) < stop).collect();
        world.run(TICK, |i| if stopped[i] { STOPPED } else { ALL }, |_| false);
        if world.now > Time::from_secs(20) {
            for (sum, paced) in sent.iter_mut().zip(&world.connections) {
                *sum += paced.sent;
            }
        }
    }
    sent.iter().map(|&sum| sum as f64 * 8e-6 / 60.0).collect()
}

#[test]
fn who_stops_now_and_then_has_as_much_as_the_others() {
    for rate in means_of_those_who_stop(of_rate(100.0, &[1.0]), &[0; 4], &[250, 600, 600, 1300]) {
        assert!((rate - 25.0).abs() < 0.25, "{rate}");
    }
}

#[test]
fn tenants_whose_connections_stop_keep_their_parts() {
    let rates = means_of_those_who_stop(of_rate(100.0, &[1.0, 3.0]), &[0, 1, 1], &[1300, 250, 250]);
    assert!((rates[0] - 25.0).abs() < 0.4, "{rates:?}");
    assert!((rates[1] + rates[2] - 75.0).abs() < 0.6, "{rates:?}");
}

#[test]
fn what_one_leaves_that_stops_is_lent_at_once_and_given_back_over_some_seconds() {
    let mut world = World::new(of_rate(100.0, &[1.0]), &[0; 4]);
    world.run(Time::from_secs(3), |_| ALL, |_| false);
    let stops = |i: usize| if i == 3 { STOPPED } else { ALL };
    world.run(TICK, stops, |_| false);
    (0..3).for_each(|i| assert!((world.mbps(i) - 33.3).abs() < 0.5, "{}", world.mbps(i)));
    assert!(world.mbps(3) > 24.0, "its limit is what it could have: {}", world.mbps(3));
    world.run(Time::from_secs(1), stops, |_| false);
    world.run(TICK * 2, |_| ALL, |_| false);
    assert!(world.mbps(3) > 29.0 && world.mbps(0) < 24.0, "{} {}", world.mbps(3), world.mbps(0));
    world.run(Time::from_secs(10), |_| ALL, |_| false);
    (0..4).for_each(|i| assert!((world.mbps(i) - 25.0).abs() < 0.5, "{}", world.mbps(i)));
}

/// BBR between its probes: what it can't use yet of what is given back is the others', and its
/// limit leaves it room.
#[test]
fn who_is_slow_to_take_what_is_given_back_holds_nothing_in_reserve() {
    let mut world = World::new(of_rate(100.0, &[1.0]), &[0; 4]);
    world.run(Time::from_secs(3), |_| ALL, |_| false);
    world.run(Time::from_secs(1), |i| if i == 3 { STOPPED } else { ALL }, |_| false);
    for tick in 0..20 {
        world.now += TICK;
        for (i, paced) in world.connections.iter_mut().enumerate() {
            let limit = paced.limit;
            let own = if i == 3 { Rate::from_mbps(32.0) } else { limit };
            paced.sent = own.bytes_in(TICK) as u64;
            paced.wants = world.demands[i].observe(&Sample {
                span: TICK,
                sent: paced.sent,
                backlog: true,
                window_open: true,
                own,
                limit,
                rtt: Time::from_millis(600),
                ..Sample::default()
            });
        }
        world.shares.divide(world.now, TICK, &mut world.connections);
        if tick >= 10 {
            let (share, limit) = (world.connections[3].share.mbps(), world.connections[3].limit.mbps());
            assert!((31.9..32.8).contains(&share) && limit > 33.0, "{share} of {limit}");
            assert!(world.connections.iter().map(|paced| paced.share.mbps()).sum::<f64>() > 99.9);
        }
    }
}

/// One that its path holds for good: nothing is kept for it then, and the others are even.
#[test]
fn what_is_kept_is_bounded_and_forgotten() {
    let mut world = World::new(of_rate(100.0, &[1.0]), &[0; 3]);
    world.run(Time::from_secs(3), |_| ALL, |_| false);
    let stops = |i: usize| if i == 2 { STOPPED } else { ALL };
    world.run(Time::from_secs(60), stops, |_| false);
    (0..2).for_each(|i| assert!((world.mbps(i) - 50.0).abs() < 0.5, "{}", world.mbps(i)));
    // Two seconds of 33 Mb/s at most were kept, of which a third is left.
    let mut sent = 0;
    for _ in 0..400 {
        world.run(TICK, |_| ALL, |_| false);
        sent += world.connections[2].sent;
    }
    let more = sent as f64 * 8e-6 - 6.0 * 100.0 / 3.0;
    assert!(more < 0.45 * 66.7, "{more} Mb");
}

#[test]
fn a_connection_waits_only_after_it_has_hungered_and_only_for_so_long() {
    let limit = Rate::from_mbps(10.0);
    let mut demand = Demand::new();
    let mut look = |own: f64, backlog: bool, ticks: usize| {
        let sample = Sample {
            span: TICK,
            backlog,
            window_open: own > 1.0,
            own: Rate::from_mbps(own),
            limit,
            rtt: Time::from_millis(100),
            ..Sample::default()
        };
        (0..ticks).map(|_| demand.observe(&sample)).last().unwrap()
    };
    // It begins slowly, and has not had its part yet.
    assert!(!look(0.5, true, 200).waits);
    // Half a second of hunger is not enough.
    assert!(look(10.0, true, 40).hungry);
    assert!(!look(0.5, true, 1).waits);
    assert!(look(10.0, true, 80).hungry);
    let wants = look(0.5, true, 1);
    assert!(wants.waits && !wants.hungry && wants.keep <= Rate::from_mbps(0.51), "{wants:?}");
    assert!(look(0.5, true, 180).waits);
    assert!(!look(0.5, true, 30).waits);
    // Nor does one that has nothing to send.
    assert!(look(10.0, true, 80).hungry);
    assert!(!look(0.5, false, 1).waits);
    assert!(!look(0.5, true, 1).waits);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Connections that begin and end as they like: no span carries more than B + r·t and what two
    /// ticks let.
    #[test]
    fn no_span_carries_more_than_the_bucket_and_the_rate(
        seed in prop::collection::vec(prop::collection::vec(prop_oneof![Just(ALL), Just(0.0), 0.0f64..4e6], 8), 1..12),
        slow in prop::collection::vec(any::<bool>(), 8),
    ) {
        let mut world = World::new(of_rate(100.0, &[1.0, 2.0]), &[0, 0, 0, 1, 1, 1, 1, 1]);
        for phase in &seed {
            world.run(Time::from_millis(300), |i| phase[i], |i| slow[i]);
        }
        let (rate, depth) = (12.5e6, 1.25e6);
        let tick = TICK.as_secs_f64();
        // The most by which any span is over the rate.
        let (mut over, mut worst) = (0.0f64, 0.0f64);
        for &sent in &world.sent {
            over = (over + sent as f64 - rate * tick).max(0.0);
            worst = worst.max(over);
        }
        prop_assert!(worst <= depth + 4.0 * rate * tick, "{worst} over");
    }
}

#[test]
fn a_policy_brings_no_tokens() {
    let mut before = of_rate(8.0, &[1.0]);
    let mut connections = World::new(of_rate(8.0, &[1.0]), &[0]).connections;
    connections[0].sent = 60_000;
    before.divide(TICK, TICK, &mut connections);
    let level = before.level();
    assert!(level < 0.7, "{level}");
    let mut after = of_rate(8.0, &[1.0, 1.0]);
    after.inherit(&before, |at| (at == 0).then_some(0));
    assert!((after.level() - level).abs() < 1e-9);
}

/// Two thousand that send 3000 bytes at a time, all in the same tick: they keep the rate all the
/// same.
#[test]
fn who_sends_in_bursts_is_not_in_debt() {
    let mut world = World::new(of_rate(100.0, &[1.0]), &[0; 2000]);
    world.run(Time::from_secs(8), |_| ALL, |_| false);
    for paced in &mut world.connections {
        (paced.burst, paced.wants) = (3000, Wants { hungry: true, ..Wants::default() });
    }
    // 6 MB take 0.48 s.
    for tick in 0..400 {
        world.now += TICK;
        world.connections.iter_mut().for_each(|paced| paced.sent = if tick % 32 == 0 { 3000 } else { 0 });
        world.shares.divide(world.now, TICK, &mut world.connections);
        let total: f64 = (0..2000).map(|i| world.mbps(i)).sum();
        assert!((total - 100.0).abs() < 0.1, "{total} at {tick}");
    }
    // Twice as much is.
    let mut least = f64::INFINITY;
    for tick in 0..400 {
        world.now += TICK;
        world.connections.iter_mut().for_each(|paced| paced.sent = if tick % 32 == 0 { 6000 } else { 0 });
        world.shares.divide(world.now, TICK, &mut world.connections);
        least = least.min((0..2000).map(|i| world.mbps(i)).sum());
    }
    assert!(least < 91.0, "{least}");
}

#[test]
fn one_that_is_new_has_what_its_window_lets_it_and_no_more_than_its_part() {
    let first = |own: f64| {
        let mut demand = Demand::new();
        demand.observe(&Sample {
            backlog: true,
            own: Rate::from_mbps(own),
            limit: Rate::from_bytes_per_sec(f64::MAX),
            ..Sample::default()
        })
    };
    let mut world = World::new(of_rate(100.0, &[1.0]), &[0; 4]);
    for (paced, own) in world.connections.iter_mut().zip([1000.0, 1000.0, 1000.0, 10.0]) {
        paced.wants = first(own);
        assert!(!paced.wants.hungry);
    }
    world.shares.divide(TICK, TICK, &mut world.connections);
    for (paced, share) in world.connections.iter().zip([30.0, 30.0, 30.0, 10.0]) {
        assert!((paced.share.mbps() - share).abs() < 0.1, "{paced:?}");
        assert!((paced.limit.mbps() - 30.0).abs() < 0.1 || share == 10.0, "{paced:?}");
    }
}

#[test]
fn a_debt_is_paid_with_half_of_the_rate_and_no_more() {
    let contract = Contract {
        rate: Some(Rate::from_bytes_per_sec(1e6)),
        depth: Some(crate::Bytes(2_000_000)),
        ..Contract::default()
    };
    let mut pool = pool::Pool::new(&contract);
    for (sent, ceiling) in [(2_300_000, 0.7e6), (300_000, 0.5e6), (9_000_000, 0.5e6)] {
        pool.advance(0.0, sent, 0);
        assert!((pool.ceiling(0.03) - ceiling).abs() < 1.0, "{}", pool.ceiling(0.03));
    }
}
