use proptest::prelude::*;

use super::*;

fn members(count: usize) -> Vec<Candidate> {
    let hash = Hash::new([7; 16]);
    let one = |at: usize| Candidate {
        name: hash.of(format!("10.0.0.{at}:6379").as_bytes()),
        up: true,
        outstanding: 0,
        window: 1 << 20,
        weight: 1,
    };
    (0..count).map(one).collect()
}

fn item(key: u64) -> Item<'static> {
    Item { session: key, key, size: 100, ..Item::default() }
}

#[test]
fn round_robin_takes_turns_and_passes_over_who_is_down() {
    let mut members = members(4);
    let mut route = RoundRobin::default();
    let mut picks = |members: &[Candidate], n| -> Vec<usize> {
        (0..n).map(|_| route.pick(&item(0), members).unwrap()).collect()
    };
    assert_eq!(picks(&members, 6), [0, 1, 2, 3, 0, 1]);
    members[2].up = false;
    assert_eq!(picks(&members, 4), [3, 0, 1, 3]);
    members.truncate(1);
    assert_eq!(picks(&members, 2), [0, 0]);
}

#[test]
fn turns_and_keys_follow_weights() {
    let mut members = members(3);
    (members[0].weight, members[2].weight) = (3, 2);
    let mut route = RoundRobin::default();
    let turns: Vec<usize> = (0..12).map(|_| route.pick(&item(0), &members).unwrap()).collect();
    assert_eq!(turns, [0, 1, 2, 0, 2, 0, 0, 1, 2, 0, 2, 0]);
    members[0].up = false;
    let turns: Vec<usize> = (0..3).map(|_| route.pick(&item(0), &members).unwrap()).collect();
    assert_eq!(turns, [2, 1, 2]);
    members[0].up = true;
    let held = |members: &[Candidate]| -> Vec<usize> {
        (0..12_000).map(|key| ByKey.pick(&item(mix(key)), members).unwrap()).collect()
    };
    let before = held(&members);
    // Of 12 000 keys a half, a sixth and a third, within five standard deviations.
    for (at, share) in [6000, 2000, 4000].into_iter().enumerate() {
        let count = before.iter().filter(|&&member| member == at).count();
        assert!(count.abs_diff(share) < 280, "{at}: {count}");
    }
    // A greater weight moves keys to this member only.
    members[1].weight = 2;
    let after = held(&members);
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *after == 1));
}

#[test]
fn shares_are_kept_in_every_stretch() {
    let mut members = members(4);
    let mut route = Weighted::new(&[3, 1, 0, 2]);
    let mut picks = |members: &[Candidate], n| -> Vec<usize> {
        (0..n).filter_map(|_| route.pick(&item(0), members)).collect()
    };
    assert_eq!(picks(&members, 12), [0, 3, 0, 1, 3, 0, 0, 3, 0, 1, 3, 0]);
    members[0].up = false;
    assert_eq!(picks(&members, 6).iter().filter(|&&at| at == 3).count(), 4);
    members[1].up = false;
    members[3].up = false;
    assert_eq!(picks(&members, 1), []);
    let mut equal = Weighted::new(&[5; 3]);
    let turns: Vec<_> = (0..6).filter_map(|_| equal.pick(&item(0), &self::members(3))).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_leaving_member_moves_only_its_keys_over_ten_thousand_frames() {
    let hash = Hash::new([9; 16]);
    let all = members(5);
    let mut without = all.clone();
    without[3].up = false;
    let (mut moved, mut held) = (0, [0; 5]);
    for frame in 0..10_000u32 {
        let item = item(hash.of(&frame.to_le_bytes()));
        let (before, after) = (ByKey.pick(&item, &all).unwrap(), ByKey.pick(&item, &without).unwrap());
        held[before] += 1;
        assert_ne!(after, 3);
        if before != after {
            assert_eq!(before, 3);
            moved += 1;
        }
        assert_eq!(before, Sticky.pick(&item, &all).unwrap(), "the same hash, of the session");
    }
    assert_eq!(moved, held[3]);
    // Each has a fifth, within five standard deviations (40 each).
    assert!(held.iter().all(|count| (1800..2200).contains(count)), "{held:?}");
}

#[test]
fn the_place_in_the_list_moves_no_key() {
    let all = members(5);
    let mut turned = all.clone();
    turned.rotate_left(2);
    for key in 0..1000u64 {
        let item = item(mix(key));
        let one = all[ByKey.pick(&item, &all).unwrap()];
        assert_eq!(one, turned[ByKey.pick(&item, &turned).unwrap()]);
    }
}

#[test]
fn keys_chosen_to_meet_under_one_hash_are_spread_under_another() {
    let (known, secret) = (Hash::new([0; 16]), Hash::new([42; 16]));
    let named = |hash: Hash| -> Vec<Candidate> {
        (0..4).map(|at: u8| Candidate { name: hash.of(&[at]), up: true, ..Candidate::default() }).collect()
    };
    let (seen, real) = (named(known), named(secret));
    let chosen: Vec<[u8; 4]> = (0u32..40_000)
        .map(u32::to_le_bytes)
        .filter(|key| ByKey.pick(&item(known.of(key)), &seen) == Some(0))
        .take(4000)
        .collect();
    assert_eq!(chosen.len(), 4000);
    let mut held = [0; 4];
    for key in &chosen {
        held[ByKey.pick(&item(secret.of(key)), &real).unwrap()] += 1;
    }
    assert!(held.iter().all(|count| (850..1150).contains(count)), "{held:?}");
}

#[test]
fn the_least_part_of_a_window_wins_and_equals_take_turns() {
    let mut members = members(3);
    let mut route = LeastLoaded::default();
    assert_eq!([(); 4].map(|()| route.pick(&item(0), &members).unwrap()), [0, 1, 2, 0]);
    members[0].outstanding = 3000;
    members[1].outstanding = 2000;
    members[2].outstanding = 2500;
    assert_eq!(route.pick(&item(0), &members), Some(1));
    // Half of what it has, but of a small window.
    members[1].window = 1 << 10;
    assert_eq!(route.pick(&item(0), &members), Some(2));
}

proptest! {
    #[test]
    fn who_is_not_up_is_never_picked(
        ups in prop::collection::vec(any::<bool>(), 0..6),
        session in any::<u64>(),
        keys in prop::collection::vec(any::<u64>(), 1..20),
    ) {
        let mut members = members(ups.len());
        members.iter_mut().zip(&ups).for_each(|(member, &up)| member.up = up);
        for policy in Policy::ALL {
            let mut module = policy.module(session);
            for &key in &keys {
                let pick = module.pick(&item(key), &members);
                prop_assert_eq!(pick.is_some(), ups.contains(&true));
                prop_assert!(pick.is_none_or(|at| members[at].up));
            }
            prop_assert_eq!(policy.word().parse::<Policy>().unwrap(), policy);
        }
    }
}
