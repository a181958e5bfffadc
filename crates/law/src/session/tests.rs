use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::link::{LinkLaw, Passing, XcpConfig};
use crate::{Kind, Rate};

const READINGS: [Reading; 2] = [Reading::Totals, Reading::Literal];
const CONTENTS: [Content; 2] = [Content::Feedback, Content::Price];

/// Ratios of a round robin over `members`, the window full.
fn even(members: usize) -> ReceiveRatio {
    let mut ratio = ReceiveRatio::new(members, 16 * members);
    (0..16 * members).for_each(|frame| ratio.on_frame(frame % members, 1000));
    ratio
}

/// A packet of a flow with `rate` bytes/s in packets of 1000 bytes, 100 ms.
fn packet(rate: f64, due: f64) -> Toll {
    Toll { due, rtt: 0.1, offer: (1000.0 / rate) as f32, stake: 0.0, echo: 0.0 }
}

/// An acknowledgement of one packet that carried `due` and came back with `echo`.
fn answer(split: &mut XcpSplit, member: usize, due: f64, echo: f64) {
    split.on_acked(member, due);
    split.on_echo(member, echo as f32);
}

#[test]
fn ratios_are_equal_at_first_and_then_of_the_last_frames() {
    let mut ratio = ReceiveRatio::new(4, 8);
    assert_eq!([0, 1, 2, 3].map(|k| ratio.of(k)), [0.25; 4]);
    assert_eq!(ratio.active(), 4);
    ratio.on_frame(2, 1000);
    assert_eq!((ratio.of(2), ratio.of(0), ratio.active()), (1.0, 0.0, 1));
    (0..8).for_each(|frame| ratio.on_frame(frame % 2, 1000 + 2000 * (frame as u32 % 2)));
    assert_eq!([0, 1, 2, 3].map(|k| ratio.of(k)), [0.25, 0.75, 0.0, 0.0]);
    ratio.forget(1);
    assert_eq!((ratio.of(0), ratio.of(1), ratio.active()), (1.0, 0.0, 1));
    (0..8).for_each(|_| ratio.on_frame(3, 500));
    assert_eq!((ratio.of(3), ratio.active()), (1.0, 1));
}

#[test]
fn a_split_moves_the_session_by_its_tightest_member() {
    let (ratio, mut split) = (even(4), XcpSplit::new(Reading::Totals, 4));
    let mut toll = packet(1e6, 7.0);
    split.on_data(0, 1000, &ratio, &mut toll);
    assert_eq!((toll.due, toll.rtt), (7.0, 0.1));
    assert!((f64::from(toll.offer) - 4e-3).abs() < 1e-9, "a quarter of the session's rate: {toll:?}");
    for (member, echo) in [(0, 500.0), (1, 200.0), (2, 300.0), (3, 900.0)] {
        answer(&mut split, member, 1e6, echo);
    }
    let now = Time::from_millis(1);
    assert_eq!(split.echo(now, &ratio), 800.0, "four times the least");
    assert_eq!(split.echo(now, &ratio), 0.0, "and once");
    // Its room is used; the others' is not.
    answer(&mut split, 1, 1e6, 50.0);
    assert_eq!(split.echo(now, &ratio), 200.0);
    answer(&mut split, 2, 1e6, -100.0);
    assert_eq!(split.echo(now, &ratio), -200.0, "50 was left there");
}

#[test]
fn a_silent_member_bounds_nothing_and_raises_the_window() {
    let (mut ratio, mut split) = (ReceiveRatio::new(2, 64), XcpSplit::new(Reading::Totals, 2));
    (0..64).for_each(|frame| ratio.on_frame(usize::from(frame % 4 > 0), 1000));
    // Four packets a round trip: the first member has one of them, and its echoes are zero.
    split.on_data(1, 1000, &ratio, &mut packet(4e4, 0.0));
    let mut round = |millis, echoes: [f64; 2]| {
        (0..2).for_each(|member| answer(&mut split, member, 1e6, echoes[member]));
        split.echo(Time::from_millis(millis), &ratio)
    };
    assert_eq!(round(0, [0.0, 300.0]), 0.0);
    assert_eq!(round(101, [0.0, 300.0]), 1e4, "a segment, since after two round trips it is silent");
    assert_eq!(round(150, [0.0, 300.0]), 400.0, "what the other has granted, and once a segment");
    assert_eq!(round(160, [-10.0, 0.0]), -40.0, "what it takes back counts");
    assert_eq!(round(202, [20.0, 300.0]), 80.0, "and what it grants, from the next round trip on");
    assert_eq!(round(252, [0.0, 300.0]), 0.0);
    // With sixteen packets a round trip, two zeros are what its links say.
    assert_eq!(round(303, [0.0, 300.0]), 0.0);
    split.on_data(1, 1000, &ratio, &mut packet(64e4, 0.0));
    let mut round = |millis| {
        (0..2).for_each(|member| answer(&mut split, member, 1e6, [0.0, 300.0][member]));
        split.echo(Time::from_millis(millis), &ratio)
    };
    assert_eq!([404, 505, 606].map(&mut round), [0.0; 3]);
}

#[test]
fn room_that_was_not_used_within_a_round_trip_is_gone() {
    let (ratio, mut split) = (even(2), XcpSplit::new(Reading::Totals, 2));
    split.on_data(0, 1000, &ratio, &mut packet(1e6, 0.0));
    for i in 0..100 {
        let now = Time::from_millis(10 * i);
        answer(&mut split, 0, 1e9, 1e4);
        answer(&mut split, 1, 1e9, 10.0);
        assert!((split.echo(now, &ratio) - 20.0).abs() < 1e-3);
    }
    // Ten of its answers came within a round trip, and no more than twenty count.
    answer(&mut split, 1, 1e9, 1e9);
    assert!(split.echo(Time::from_secs(1), &ratio) <= 4.2e5);
}

#[test]
fn a_split_window_stays_at_a_segment_a_member() {
    let (ratio, mut split) = (even(4), XcpSplit::new(Reading::Totals, 4));
    let mut window = 40.0;
    // A segment is 10 kB/s at 1000 bytes and 100 ms. Each round trip all members take back half of
    // the rate.
    for round in 0..20_u64 {
        for i in 0..4 {
            split.on_data(i, 1000, &ratio, &mut packet(window * 1e4, 0.0));
            answer(&mut split, i, 0.0, -window * 1e4 / 8.0);
        }
        let change = split.echo(Time::from_millis(100 * round), &ratio);
        window += f64::from(change) / 1e4;
        assert!(window >= 3.99, "{window} in round {round}");
    }
    assert!(window < 5.0, "{window}");
    // One that is under it is raised at once, and once.
    let mut split = XcpSplit::new(Reading::Totals, 4);
    split.on_data(0, 1000, &ratio, &mut packet(2e4, 0.0));
    assert!((split.echo(Time::ZERO, &ratio) - 2e4).abs() < 1.0);
    assert!(split.echo(Time::from_millis(1), &ratio).abs() < 1.0);
}

#[test]
fn the_floor_leaves_a_single_member_alone() {
    let (ratio, mut split) = (even(1), XcpSplit::new(Reading::Totals, 1));
    split.on_data(0, 1000, &ratio, &mut packet(1e4, 0.0));
    answer(&mut split, 0, 0.0, -9e3);
    assert_eq!(split.echo(Time::ZERO, &ratio), -9e3);
}

#[test]
fn a_merge_is_one_flow_to_a_router() {
    // Four members at 100, 200, 300 and 400 kB/s: a router's sum of X over a second is a second.
    let mut merge = XcpMerge::new(Reading::Totals, 4);
    let mut sums = [0.0; 3];
    for millis in 0..2000_u64 {
        let now = Time::from_millis(millis);
        for (member, every) in [(0, 20), (1, 10), (2, 5), (3, 4)] {
            if millis % every != 0 {
                continue;
            }
            let mut toll = packet(1e6 / every as f64, member as f64);
            merge.on_data(now, member, 1000, &mut toll);
            if millis >= 1000 {
                sums[0] += f64::from(toll.offer);
                sums[1] += f64::from(toll.offer) * f64::from(toll.rtt);
                sums[2] += toll.due;
            }
        }
    }
    assert!((sums[0] - 1.0).abs() < 1e-3 && (sums[1] - 0.1).abs() < 1e-3, "{sums:?}");
    // Each member's packets carry what it asks for, and the session's carry as much together.
    let asked = 100.0 * 1.0 + 200.0 * 2.0 + 250.0 * 3.0;
    assert!((sums[2] / asked - 1.0).abs() < 1e-3, "{sums:?}");
}

#[test]
fn a_merge_divides_gains_evenly_and_losses_by_rate() {
    let mut merge = XcpMerge::new(Reading::Totals, 3);
    let now = Time::from_secs(1);
    for (member, rate) in [(0, 1e5), (1, 3e5)] {
        merge.on_data(now, member, 1000, &mut packet(rate, 1e9));
        merge.on_acked(member, 1e9);
    }
    merge.on_echo(now, 1000.0);
    assert_eq!(merge.echo(now, 0), Some(500.0), "of those that send, there are two");
    assert_eq!(merge.echo(now, 0), None);
    merge.on_echo(now, -400.0);
    assert_eq!(merge.echo(now, 0), Some(-100.0));
    assert_eq!(merge.echo(now, 1), Some(200.0), "500 and -300");
    // Silent for two round trips, the slower one counts no more.
    let later = now + Time::from_millis(201);
    merge.on_data(later, 1, 1000, &mut packet(3e5, 1e9));
    merge.on_acked(1, 1e9);
    merge.on_echo(later, 1000.0);
    assert_eq!(merge.echo(later, 1), Some(1000.0));
}

#[test]
fn a_member_is_given_no_more_than_its_own_links_granted() {
    let mut merge = XcpMerge::new(Reading::Totals, 2);
    let now = Time::from_secs(1);
    for member in 0..2 {
        merge.on_data(now, member, 1000, &mut packet(1e5, 30.0));
        merge.on_acked(member, 30.0);
    }
    merge.on_echo(now, 100.0);
    assert_eq!(merge.echo(now, 0), Some(30.0));
}

#[test]
fn a_merge_shuffles_traffic_from_faster_members_to_slower_ones() {
    let rates = [4e5, 1e5, 1e5];
    let mut merge = XcpMerge::new(Reading::Totals, 3);
    let mut totals = [0.0; 3];
    // The second member's links grant a byte/s per packet, and the receiver's echo is zero.
    let carried = [1e9, 1.0, 1e9];
    for millis in (0..=100).step_by(10) {
        let now = Time::from_secs(1) + Time::from_millis(millis);
        for (member, &rate) in rates.iter().enumerate() {
            merge.on_data(now, member, 1000, &mut packet(rate, carried[member]));
            merge.on_acked(member, carried[member]);
            merge.on_echo(now, 0.0);
            totals[member] += f64::from(merge.echo(now, member).unwrap());
        }
    }
    // In a round trip, a twentieth of a third of the difference of 300 kB/s.
    assert!((totals[2] - 5e3).abs() < 1.0, "{totals:?}");
    assert!((totals[1] - 10.0).abs() < 1e-3, "what its links refuse stays with the others: {totals:?}");
    assert!((totals[0] + 4.5e3).abs() < 20.0, "it loses as much, at its next acknowledgement: {totals:?}");
}

/// However long its acknowledgements fail to come; and a member that has stated no rate gets none.
#[test]
fn a_member_is_shuffled_at_most_a_round_trip_s_part_at_once() {
    let mut merge = XcpMerge::new(Reading::Totals, 3);
    for millis in (0..=1000).step_by(50) {
        let now = Time::from_secs(1) + Time::from_millis(millis);
        merge.on_data(now, 0, 1000, &mut packet(4e5, 1e9));
        merge.on_data(now, 1, 1000, &mut packet(1e5, 1e9));
    }
    (0..3).for_each(|member| merge.on_acked(member, 1e9));
    let now = Time::from_secs(2);
    merge.on_echo(now, 0.0);
    let got = merge.echo(now, 1).unwrap();
    assert!((got - 0.05 / 2.0 * 3e5).abs() < 1.0, "{got}");
    assert_eq!(merge.echo(now, 2), Some(0.0));
}

#[test]
fn the_literal_reading_is_the_paper_s_formulas_packet_by_packet() {
    let (ratio, mut split) = (even(4), XcpSplit::new(Reading::Literal, 4));
    (0..4).for_each(|member| answer(&mut split, member, 1e9, 100.0 + member as f64));
    assert_eq!([(); 2].map(|()| split.echo(Time::ZERO, &ratio)), [400.0; 2], "on every acknowledgement");
    let (mut merge, now) = (XcpMerge::new(Reading::Literal, 2), Time::from_secs(1));
    for member in 0..2 {
        let mut toll = packet(1e5, 30.0);
        merge.on_data(now, member, 1000, &mut toll);
        assert_eq!(toll.due, 30.0 * (member + 1) as f64);
    }
    merge.on_echo(now, 50.0);
    assert_eq!(merge.echo(now, 0), Some(25.0));
    merge.on_echo(now, 90.0);
    assert_eq!(merge.echo(now, 1), Some(30.0));
}

#[test]
fn a_split_budget_pays_each_member_s_price() {
    let (ratio, mut split) = (even(2), FcpSplit::new(2));
    assert_eq!(split.echo(&ratio), 0.0);
    split.on_echo(0, 1e-8);
    split.on_echo(1, 3e-8);
    let price = split.echo(&ratio);
    assert!((f64::from(price) / 2e-8 - 1.0).abs() < 1e-6);
    let mut paid = [Toll { stake: price, ..Toll::default() }; 2];
    (0..2).for_each(|member| split.on_data(member, &ratio, &mut paid[member]));
    assert!(
        (paid[0].stake / 1e-8 - 1.0).abs() < 1e-6 && (paid[1].stake / 3e-8 - 1.0).abs() < 1e-6,
        "{paid:?}"
    );
    // A price below what the links before the switch asked is a lie.
    split.on_acked(0, 5e-8);
    split.on_echo(0, 1e-18);
    split.on_echo(1, 5e-8);
    assert!((f64::from(split.echo(&ratio)) / 5e-8 - 1.0).abs() < 1e-6);
}

#[test]
fn merged_members_spend_one_budget() {
    let (mut merge, now) = (FcpMerge::new(4), Time::from_secs(1));
    let mut toll = Toll { stake: 4e-8, due: 2e-8, rtt: 0.1, ..Toll::default() };
    (0..4).for_each(|member| merge.on_data(now, member, &mut toll.clone()));
    merge.on_data(now, 0, &mut toll);
    assert!((toll.stake / 1e-8 - 1.0).abs() < 1e-6 && (toll.due / 5e-9 - 1.0).abs() < 1e-6, "{toll:?}");
    merge.on_echo(1e-8);
    let told = merge.echo(now, 2).unwrap();
    assert!((told / 4e-8 - 1.0).abs() < 1e-6);
    assert_eq!(merge.echo(now, 2), None);
    // Alone, its dollar is worth a dollar.
    let later = now + Time::from_millis(300);
    let mut toll = Toll { stake: 4e-8, rtt: 0.1, ..Toll::default() };
    merge.on_data(later, 1, &mut toll);
    assert_eq!(toll.stake, 4e-8);
}

fn tolls() -> impl Strategy<Value = Toll> {
    let stated = || prop_oneof![4 => 1e-4f32..1.0, 1 => any::<f32>(), 1 => Just(0.0)];
    let due = prop_oneof![4 => -1e7f64..1e7, 1 => any::<f64>()];
    let echo = prop_oneof![4 => -1e7f32..1e7, 1 => any::<f32>()];
    (due, stated(), stated(), any::<f32>(), echo).prop_map(|(due, rtt, offer, stake, echo)| Toll {
        due,
        rtt,
        offer,
        stake,
        echo,
    })
}

/// The same bits; the bits of a number that is none may differ.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a == b || a.is_nan() && b.is_nan()
}

proptest! {
    /// One member, or one of several that is used: what goes in comes out, to the bit.
    #[test]
    fn one_active_member_changes_nothing(
        members in 1usize..5,
        choice in any::<prop::sample::Index>(),
        story in prop::collection::vec((tolls(), 0u64..50), 1..60),
    ) {
        let active = choice.index(members);
        for (content, reading) in CONTENTS.into_iter().flat_map(|c| READINGS.map(|r| (c, r))) {
            let mut ratio = ReceiveRatio::new(members, 64);
            let mut split = Split::new(Some(content), reading, members);
            let mut merge = Merge::new(Some(content), reading, members);
            let mut now = Time::from_secs(1);
            for (toll, millis) in &story {
                now += Time::from_millis(*millis);
                // As links and receivers leave it: numbers, prices of at least the least, and an
                // echo of what was carried.
                let mut toll = *toll;
                toll.rtt = toll.rtt.clamp(1e-4, 10.0);
                toll.offer = toll.offer.clamp(1e-9, 10.0);
                if toll.rtt.is_nan() || toll.offer.is_nan() || !toll.due.is_finite() || toll.stake.is_nan() {
                    continue;
                }
                toll.due = toll.due.clamp(-1e30, 1e30);
                if content == Content::Price {
                    toll.due = toll.due.abs().clamp(1e-18, 1e6);
                }
                ratio.on_frame(active, 1000);
                let (mut down, mut up) = (toll, toll);
                split.on_data(active, 1000, &ratio, &mut down);
                merge.on_data(now, active, 1000, &mut up);
                let bits = |toll: &Toll| (toll.due.to_bits(), toll.rtt.to_bits(), toll.offer.to_bits());
                prop_assert_eq!(bits(&down), bits(&toll), "{:?} {:?}", content, reading);
                prop_assert_eq!(bits(&up), bits(&toll));
                prop_assert!(same(down.stake, toll.stake) && same(up.stake, toll.stake));
                let due = toll.due as f32;
                let echo = match content {
                    Content::Price => due * 2.0,
                    _ => due.min(due * 0.5),
                };
                split.on_acked(active, down.due);
                split.on_echo(active, echo);
                prop_assert!(same(split.echo(now, &ratio), echo), "{content:?} {reading:?}");
                merge.on_acked(active, toll.due);
                merge.on_echo(now, echo);
                prop_assert!(same(merge.echo(now, active).unwrap(), echo), "{content:?} {reading:?} {echo}");
            }
        }
    }

    /// The session never rises by more than any of its members was granted, and falls with the
    /// first that must.
    #[test]
    fn a_split_conserves_totals(
        members in 2usize..6,
        echoes in prop::collection::vec((any::<prop::sample::Index>(), -1e5f32..1e5), 1..200),
    ) {
        let (ratio, mut split) = (even(members), XcpSplit::new(Reading::Totals, members));
        split.on_data(0, 1000, &ratio, &mut packet(1e12, 0.0));
        let (mut granted, mut sent) = (vec![0.0; members], 0.0);
        for (choice, echo) in echoes {
            let member = choice.index(members);
            answer(&mut split, member, 1e9, echo.into());
            granted[member] += f64::from(echo);
            sent += f64::from(split.echo(Time::ZERO, &ratio));
            let least = granted.iter().copied().fold(f64::INFINITY, f64::min) * members as f64;
            prop_assert!((sent - least).abs() < 1.0, "{sent} {least}");
        }
    }

    /// Members are paid, all together, what the receiver echoes.
    #[test]
    fn a_merge_conserves_totals(
        rates in prop::collection::vec(1e3f64..1e7, 1..6),
        echoes in prop::collection::vec(-1e5f32..1e5, 1..100),
    ) {
        let (mut merge, now) = (XcpMerge::new(Reading::Totals, rates.len()), Time::from_secs(1));
        for (member, &rate) in rates.iter().enumerate() {
            merge.on_data(now, member, 1000, &mut packet(rate, 0.0));
        }
        let (mut echoed, mut paid, mut scale) = (0.0, 0.0, 0.0);
        for (i, echo) in echoes.into_iter().enumerate() {
            merge.on_echo(now, echo);
            echoed += f64::from(echo);
            scale += f64::from(echo.abs());
            let member = i % rates.len();
            merge.on_acked(member, 1e12);
            paid += merge.echo(now, member).map_or(0.0, f64::from);
        }
        // Twice: what one gets at the first acknowledgement of its round trip, others still owe.
        for member in (0..rates.len()).cycle().take(2 * rates.len()) {
            merge.on_echo(now, 0.0);
            merge.on_acked(member, 1e12);
            paid += merge.echo(now, member).map_or(0.0, f64::from);
        }
        prop_assert!((paid - echoed).abs() <= 1e-5 * scale, "{paid} {echoed}");
    }

    /// Whatever is stated and echoed: ratios are ratios, members are given no more than was
    /// carried, and no number is none.
    #[test]
    fn lies_are_bounded(
        members in 1usize..5,
        story in prop::collection::vec((tolls(), any::<prop::sample::Index>(), 0u64..200, any::<u32>()), 1..100),
    ) {
        for (content, reading) in CONTENTS.into_iter().flat_map(|c| READINGS.map(|r| (c, r))) {
            let mut ratio = ReceiveRatio::new(members, 8);
            let mut split = Split::new(Some(content), reading, members);
            let mut merge = Merge::new(Some(content), reading, members);
            let mut now = Time::from_secs(1);
            for (toll, choice, millis, size) in &story {
                let (member, size) = (choice.index(members), size % 65_536);
                now += Time::from_millis(*millis);
                ratio.on_frame(member, size);
                let sum: f64 = (0..members).map(|k| ratio.of(k)).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9);
                let (mut down, mut up) = (*toll, *toll);
                split.on_data(member, size, &ratio, &mut down);
                merge.on_data(now, member, size, &mut up);
                split.on_acked(member, down.due);
                merge.on_acked(member, toll.due);
                split.on_echo(member, toll.echo);
                merge.on_echo(now, toll.echo);
                let (back, own) = (split.echo(now, &ratio), merge.echo(now, member).unwrap());
                prop_assert!(!back.is_nan() && !own.is_nan(), "{content:?} {reading:?}");
                let carried = if toll.due.is_nan() { 0.0 } else { toll.due.clamp(-1e30, 1e30) };
                if content == Content::Feedback {
                    prop_assert!(own <= carried.max(0.0) as f32, "{own} of {carried}");
                } else {
                    prop_assert!(own >= (carried.clamp(1e-18, 1e30) as f32) * 0.999_999);
                }
                if choice.index(7) == 0 {
                    split.forget(member);
                    merge.forget(member);
                    ratio.forget(member);
                    ratio.on_frame(member, 1);
                }
            }
        }
    }

    /// Two routers, one before and one behind a split, with three members of unlike rates behind
    /// it: the session comes to the rate that its tightest member allows, and no router's queue
    /// counts its flows.
    #[test]
    fn members_links_find_the_session_s_rate(slow in 0.2f64..1.0) {
        let rates = [slow, 1.0, 1.0].map(|part| part * 1e6);
        let (rtt, size) = (0.1, 1000.0);
        let ratio = even(3);
        let mut split = XcpSplit::new(Reading::Totals, 3);
        let mut links = rates.map(|rate| XcpConfig::default().build(Rate::from_bytes_per_sec(rate)));
        let mut window = 2.0f64;
        let (mut now, mut member) = (Time::ZERO, 0);
        let mut flying: VecDeque<(Time, usize, f64)> = VecDeque::new();
        // A fluid sender: a packet each rtt/window, back a round trip later.
        while now < Time::from_secs(40) {
            while flying.front().is_some_and(|&(at, ..)| at <= now) {
                let (_, member, due) = flying.pop_front().unwrap();
                split.on_acked(member, 1e12);
                split.on_echo(member, due as f32);
                window = (window + f64::from(split.echo(now, &ratio)) * rtt / size).max(1.0);
            }
            let mut toll = packet(window * size / rtt, 1e12);
            split.on_data(member, 1000, &ratio, &mut toll);
            let passing = Passing::of(Kind::Tolled, 1000, 0, 0);
            links[member].on_arrival(now, passing, &toll);
            links[member].on_departure(now, passing, &mut toll);
            flying.push_back((now + Time::from_secs_f64(rtt), member, toll.due));
            member = (member + 1) % 3;
            now += Time::from_secs_f64(rtt / window);
        }
        let rate = window * size / rtt;
        prop_assert!((rate / (3.0 * rates[0]) - 1.0).abs() < 0.05, "{rate} at {slow}");
    }
}
