use proptest::prelude::*;

use super::*;
use crate::{Bytes, Rate};

fn aggregate(scheme: Scheme, depth: u64, bytes_per_sec: f64) -> Aggregate {
    let rate = Rate::from_bytes_per_sec(bytes_per_sec);
    Aggregate::new(Time::ZERO, Profile { depth: Bytes(depth), rate, peak: None, largest: None }, scheme)
}

/// Empties what a connection can use, in packets of `size`.
fn drain(aggregate: &mut Aggregate, now: Time, seat: Seat, size: u32) -> u32 {
    let mut packets = 0;
    while aggregate.take(now, seat, size).is_ok() {
        packets += 1;
    }
    packets
}

#[test]
fn partitions_share_nothing() {
    let mut aggregate = aggregate(Scheme::Partitioned(Depths::Equal), 8000, 1000.0);
    let seats: Vec<Seat> = (0..4).map(|_| aggregate.join(Time::ZERO)).collect();
    for &seat in &seats {
        assert_eq!(drain(&mut aggregate, Time::ZERO, seat, 1000), 2);
    }
    // 250 B/s each: one packet in 4 s, whatever the others leave.
    assert_eq!(drain(&mut aggregate, Time::from_secs(4), seats[0], 1000), 1);
    assert_eq!(drain(&mut aggregate, Time::from_secs(60), seats[0], 1000), 2);
    assert_eq!(aggregate.tokens(), 8000.0 - 2000.0);
}

#[test]
fn what_runs_over_goes_in_equal_parts_to_those_not_full() {
    let mut aggregate = aggregate(Scheme::Logical(Depths::Equal), 8000, 1000.0);
    let seats: Vec<Seat> = (0..4).map(|_| aggregate.join(Time::ZERO)).collect();
    drain(&mut aggregate, Time::ZERO, seats[0], 1000);
    drain(&mut aggregate, Time::ZERO, seats[1], 1000);
    // Two are full: all of 1000 B/s is for the other two.
    assert_eq!(aggregate.conforms(Time::from_secs(1), seats[0], 500), Ok(()));
    assert_eq!(aggregate.tokens_of(seats[0]), 500.0);
    assert_eq!(aggregate.tokens_of(seats[1]), 500.0);
    assert_eq!(aggregate.tokens(), 5000.0);
    assert!(aggregate.conforms(Time::from_secs(100), seats[0], 500).is_ok());
    assert_eq!(aggregate.tokens(), 8000.0);
}

#[test]
fn a_common_bucket_is_whoevers_comes() {
    let mut aggregate = aggregate(Scheme::Common, 8000, 1000.0);
    let seats: Vec<Seat> = (0..4).map(|_| aggregate.join(Time::ZERO)).collect();
    assert_eq!(drain(&mut aggregate, Time::ZERO, seats[3], 1000), 8);
    assert_eq!(aggregate.take(Time::ZERO, seats[0], 1000), Err(Refusal::Until(Time::from_secs(1))));
}

#[test]
fn depth_goes_by_round_trip() {
    let mut aggregate = aggregate(Scheme::Logical(Depths::ByRtt), 12_500, 1000.0);
    let seats: Vec<Seat> = (0..4).map(|_| aggregate.join(Time::ZERO)).collect();
    for (&seat, ms) in seats.iter().zip([50, 300, 300, 600]) {
        aggregate.set_rtt(seat, Time::from_millis(ms), Time::from_millis(ms));
    }
    let _ = aggregate.conforms(Time::from_secs(60), seats[0], 1);
    let depths: Vec<f64> = seats.iter().map(|&seat| aggregate.tokens_of(seat)).collect();
    assert_eq!(depths, [500.0, 3000.0, 3000.0, 6000.0]);
}

#[test]
fn growth_is_aggregate_fair() {
    let mut aggregate = aggregate(Scheme::Common, 8000, 1000.0);
    let seats: Vec<Seat> = (0..4).map(|_| aggregate.join(Time::ZERO)).collect();
    let rtts = [0.05, 0.3, 0.3, 0.6];
    assert_eq!(aggregate.growth(seats[0]), 1.0);
    for (&seat, rtt) in seats.iter().zip(rtts) {
        aggregate.set_rtt(seat, Time::from_secs_f64(rtt), Time::from_secs_f64(rtt));
    }
    let growth: Vec<f64> = seats.iter().map(|&seat| aggregate.growth(seat)).collect();
    for (g, expected) in growth.iter().zip([0.0256, 0.9216, 0.9216, 3.6864]) {
        assert!((g - expected).abs() < 1e-9, "{growth:?}");
    }
    // The identity of § 5: as aggressive as n connections of the mean round trip.
    let sum: f64 = growth.iter().zip(rtts).map(|(g, rtt)| g / (rtt * rtt)).sum();
    assert!((sum / (4.0 / (0.3125 * 0.3125)) - 1.0).abs() < 1e-9);
}

#[test]
fn partitions_smaller_than_a_packet_still_use_the_whole_rate() {
    for scheme in [Scheme::Logical(Depths::Equal), Scheme::Partitioned(Depths::Equal)] {
        let mut aggregate = aggregate(scheme, 30_000, 100_000.0);
        let seats: Vec<Seat> = (0..100).map(|_| aggregate.join(Time::ZERO)).collect();
        let mut sent = [0u32; 100];
        // Whose last packet is longest ago goes first.
        let mut line: Vec<usize> = (0..100).collect();
        for ms in 0..30_000 {
            let now = Time::from_millis(ms);
            let served: Vec<usize> =
                line.iter().copied().filter(|&i| aggregate.take(now, seats[i], 1500).is_ok()).collect();
            line.retain(|i| !served.contains(i));
            served.iter().for_each(|&i| sent[i] += 1);
            line.extend(served);
        }
        let total: u32 = sent.iter().sum();
        // All but what ran over before partitions had first filled up.
        assert!((1900..=2020).contains(&total), "{scheme:?}: {total}");
        assert!(sent.iter().all(|&packets| (17..=24).contains(&packets)), "{scheme:?}: {sent:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u8, u32),
    Join,
    Leave(u8),
    Rtt(u8, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), 40u32..1501).prop_map(|(who, size)| Step::Take(who, size)),
        1 => Just(Step::Join),
        1 => any::<u8>().prop_map(Step::Leave),
        1 => (any::<u8>(), 0u64..900).prop_map(|(who, ms)| Step::Rtt(who, ms)),
    ]
}

proptest! {
    // agg.conservation: connections come, go and change; in any stretch of time no more passes than
    // B + r·t, and there are never more tokens than B.
    #[test]
    fn tokens_are_never_made(
        scheme in prop_oneof![
            Just(Scheme::Common),
            Just(Scheme::Logical(Depths::Equal)),
            Just(Scheme::Logical(Depths::ByRtt)),
            Just(Scheme::Partitioned(Depths::Equal)),
            Just(Scheme::Partitioned(Depths::ByRtt)),
        ],
        depth in 1500u64..40_000,
        rate in 1u32..200_000,
        steps in prop::collection::vec((0u64..400_000_000, step()), 1..300),
    ) {
        let mut aggregate = aggregate(scheme, depth, f64::from(rate));
        let mut seats = vec![aggregate.join(Time::ZERO)];
        let full = u128::from(depth) * u128::from(TOKENS_PER_BYTE);
        let (mut now, mut last, mut burst) = (Time::ZERO, Time::ZERO, 0u128);
        for (ahead, step) in steps {
            now += Time(ahead);
            let seat = |who: u8| seats.get(usize::from(who) % seats.len().max(1)).copied();
            match step {
                Step::Join => seats.push(aggregate.join(now)),
                Step::Leave(who) => {
                    if let Some(gone) = seat(who) {
                        aggregate.leave(now, gone);
                        seats.retain(|&other| other != gone);
                    }
                }
                Step::Rtt(who, ms) => {
                    if let Some(seat) = seat(who) {
                        aggregate.set_rtt(seat, Time::from_millis(ms), Time::from_millis(ms));
                    }
                }
                Step::Take(who, size) => {
                    let Some(seat) = seat(who) else { continue };
                    match aggregate.take(now, seat, size) {
                        Ok(()) => {
                            let gone = u128::from(aggregate.bucket.rate) * u128::from((now - last).0);
                            burst = burst.saturating_sub(gone)
                                + u128::from(size) * u128::from(TOKENS_PER_BYTE);
                            last = now;
                            prop_assert!(burst <= full, "{burst} of {full}");
                        }
                        Err(Refusal::Until(then)) => prop_assert!(then > now),
                        Err(refusal) => prop_assert!(false, "{refusal}"),
                    }
                }
            }
            prop_assert!(u128::from(aggregate.bucket.level) <= full);
            prop_assert_eq!(aggregate.members.iter().filter(|member| member.present).count(), seats.len());
        }
    }

    // Only valid if there is room for two packets for each connection: then partitions together
    // never hold more than the bucket, and checking the partitions suffices.
    #[test]
    fn partitions_never_hold_more_than_the_bucket(
        scheme in prop_oneof![
            Just(Scheme::Partitioned(Depths::Equal)),
            Just(Scheme::Partitioned(Depths::ByRtt)),
            Just(Scheme::Logical(Depths::Equal)),
            Just(Scheme::Logical(Depths::ByRtt)),
        ],
        steps in prop::collection::vec((0u64..400_000_000, 0u8..4, 40u32..851, 200u64..400), 1..300),
    ) {
        // By round trip the least of four has 200/1400 of the depth.
        let mut aggregate = aggregate(scheme, 12_000, 20_000.0);
        let seats: Vec<Seat> = (0..4).map(|_| aggregate.join(Time::ZERO)).collect();
        let mut now = Time::ZERO;
        for (ahead, who, size, ms) in steps {
            now += Time(ahead);
            let seat = seats[usize::from(who)];
            aggregate.set_rtt(seat, Time::from_millis(ms), Time::from_millis(ms));
            let _ = aggregate.take(now, seat, size);
            let held: u64 = aggregate.members.iter().map(|member| member.level).sum();
            prop_assert!(held <= aggregate.bucket.level);
        }
    }

    // If a refusal names an instant, the packet conforms then.
    #[test]
    fn a_refusal_keeps_its_word(
        scheme in prop_oneof![
            Just(Scheme::Common),
            Just(Scheme::Partitioned(Depths::Equal)),
            Just(Scheme::Logical(Depths::Equal)),
        ],
        members in 1usize..40,
        sizes in prop::collection::vec((0usize..40, 40u32..1501), 1..60),
    ) {
        let mut aggregate = aggregate(scheme, 20_000, 10_000.0);
        let seats: Vec<Seat> = (0..members).map(|_| aggregate.join(Time::ZERO)).collect();
        let mut now = Time::ZERO;
        for (who, size) in sizes {
            let seat = seats[who % members];
            if let Err(refusal) = aggregate.take(now, seat, size) {
                let Refusal::Until(then) = refusal else { panic!("{refusal}") };
                prop_assert!(then > now);
                now = then;
                prop_assert_eq!(aggregate.take(now, seat, size), Ok(()));
            }
        }
    }
}

#[test]
fn who_is_unknown_or_gone_is_not_in_the_mean_of_round_trips() {
    let mut aggregate = aggregate(Scheme::Common, 8000, 1000.0);
    let seats: Vec<Seat> = (0..4).map(|_| aggregate.join(Time::ZERO)).collect();
    for (&seat, ms) in seats.iter().zip([100, 300, 800]) {
        aggregate.set_rtt(seat, Time::from_millis(ms), Time::from_millis(ms));
    }
    // Of the fourth nothing is known: the mean is 400 ms.
    assert_eq!(aggregate.growth(seats[2]), 4.0);
    aggregate.leave(Time::from_secs(1), seats[2]);
    // 200 ms.
    assert_eq!([0, 1, 3].map(|at| aggregate.growth(seats[at])), [0.25, 2.25, 1.0]);
}

#[test]
fn who_goes_leaves_its_tokens_to_nobody_and_its_seat_to_the_next() {
    let mut aggregate = aggregate(Scheme::Logical(Depths::ByRtt), 12_000, 1000.0);
    let seats: Vec<Seat> = (0..3).map(|_| aggregate.join(Time::ZERO)).collect();
    // The last value set is in effect.
    for (&seat, ms) in seats.iter().zip([100, 200, 300]) {
        aggregate.set_rtt(seat, Time::from_secs(9), Time::from_secs(9));
        aggregate.set_rtt(seat, Time::from_millis(ms), Time::from_millis(2 * ms));
    }
    let full = |aggregate: &mut Aggregate, at: u64, who: &[Seat]| -> Vec<f64> {
        assert_eq!(aggregate.conforms(Time::from_secs(at), seats[0], 1), Ok(()));
        who.iter().map(|&seat| aggregate.tokens_of(seat)).collect()
    };
    assert_eq!(full(&mut aggregate, 100, &seats), [2000.0, 4000.0, 6000.0]);
    assert_eq!([0, 1, 2].map(|i| aggregate.growth(seats[i])), [0.25, 1.0, 2.25]);
    for _ in 0..2 {
        aggregate.leave(Time::from_secs(100), seats[1]);
        assert_eq!(
            (aggregate.members(), aggregate.tokens_of(seats[1]), aggregate.is_common()),
            (2, 0.0, false)
        );
    }
    assert_eq!(full(&mut aggregate, 200, &[seats[0], seats[2]]), [3000.0, 9000.0]);
    assert_eq!(aggregate.join(Time::from_secs(200)), seats[1]);
    assert_eq!(aggregate.members(), 3);
    // Half of a round trip is no round trip.
    for known in [(0, 100), (100, 0)] {
        aggregate.set_rtt(seats[1], Time::from_millis(known.0), Time::from_millis(known.1));
        assert_eq!(aggregate.growth(seats[1]), 1.0);
        assert_eq!(aggregate.growth(seats[0]), 0.25);
    }
}

#[test]
fn what_came_before_somebody_comes_or_goes_is_for_those_that_were_there() {
    for comes in [true, false] {
        let mut aggregate = aggregate(Scheme::Partitioned(Depths::Equal), 12_000, 1000.0);
        let seats: Vec<Seat> = (0..3).map(|_| aggregate.join(Time::ZERO)).collect();
        for &seat in &seats {
            drain(&mut aggregate, Time::ZERO, seat, 1000);
        }
        if comes {
            aggregate.join(Time::from_secs(3));
        } else {
            aggregate.leave(Time::from_secs(3), seats[2]);
        }
        assert!(aggregate.conforms(Time::from_secs(3), seats[0], 1000).is_ok());
        assert_eq!([0, 1].map(|i| aggregate.tokens_of(seats[i])), [1000.0, 1000.0]);
    }
}

#[test]
fn partitions_follow_round_trips_ten_times_a_second() {
    let mut aggregate = aggregate(Scheme::Logical(Depths::ByRtt), 12_000, 1000.0);
    let seats = [aggregate.join(Time::ZERO), aggregate.join(Time::ZERO)];
    for (seat, ms) in seats.into_iter().zip([100, 300]) {
        aggregate.set_rtt(seat, Time::from_millis(ms), Time::from_millis(ms));
    }
    for (ms, tokens) in
        [(99, [6000.0, 6000.0]), (100, [3000.0, 9000.0]), (199, [3000.0, 9000.0]), (200, [6000.0, 6000.0])]
    {
        assert_eq!(aggregate.conforms(Time::from_millis(ms), seats[0], 1), Ok(()));
        assert_eq!(seats.map(|seat| aggregate.tokens_of(seat)), tokens, "{ms} ms");
        if ms == 100 {
            aggregate.set_rtt(seats[0], Time::from_millis(300), Time::from_millis(300));
        }
    }
}

#[test]
fn arrivals_too_few_to_be_divided_are_kept_until_they_are_not() {
    // A token a nanosecond among three, a nanosecond at a time.
    let mut aggregate = aggregate(Scheme::Partitioned(Depths::Equal), 12_000, 1.0);
    let seats: Vec<Seat> = (0..3).map(|_| aggregate.join(Time::ZERO)).collect();
    for &seat in &seats {
        drain(&mut aggregate, Time::ZERO, seat, 1000);
    }
    for ns in 1..=3000 {
        assert!(aggregate.conforms(Time(ns), seats[0], 1).is_err());
    }
    assert_eq!(seats.iter().map(|&seat| aggregate.tokens_of(seat)).collect::<Vec<_>>(), [1e-6; 3]);
}

#[test]
fn a_refusal_is_to_the_nanosecond_what_a_partition_waits_for() {
    for (scheme, until) in [(Scheme::Partitioned(Depths::Equal), 3), (Scheme::Common, 1)] {
        let mut aggregate = aggregate(scheme, 12_000, 1000.0);
        let seats: Vec<Seat> = (0..3).map(|_| aggregate.join(Time::ZERO)).collect();
        for &seat in &seats {
            drain(&mut aggregate, Time::ZERO, seat, 1000);
        }
        let Err(Refusal::Until(then)) = aggregate.conforms(Time::ZERO, seats[0], 1000) else { panic!() };
        let early = then.0 - until * 1_000_000_000;
        assert!(early <= 2, "{early} ns");
        assert_eq!(aggregate.conforms(then, seats[0], 1000), Ok(()));
        assert_eq!(aggregate.is_common(), scheme == Scheme::Common);
        let tokens = if aggregate.is_common() { aggregate.tokens() } else { 1000.0 };
        assert!((aggregate.tokens_of(seats[0]) - tokens).abs() < 1e-6);
        // A packet that never conforms has no instant.
        assert!(matches!(
            aggregate.conforms(then, seats[0], 12_001),
            Err(Refusal::TooLarge { size: 12_001, .. })
        ));
    }
}
