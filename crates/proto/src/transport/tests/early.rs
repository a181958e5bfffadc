//! Early segments, compared with the simplest way to store them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::early::{Early, EarlySlot};
use crate::{Flags, SackRanges};

/// Segments by their distance from the first number, and those that were touched last.
#[derive(Default)]
struct Plainly {
    got: BTreeMap<u32, EarlySlot>,
    recent: Vec<u32>,
}

impl Plainly {
    fn range(&self, at: u32) -> Option<(u32, u32)> {
        self.got.contains_key(&at).then(|| {
            let start = (0..=at).rev().take_while(|i| self.got.contains_key(i)).last().unwrap_or(at);
            let end = (at..).find(|i| !self.got.contains_key(i)).unwrap_or(at);
            (start, end)
        })
    }

    fn insert(&mut self, at: u32, slot: EarlySlot) -> bool {
        let new = !self.got.contains_key(&at);
        self.got.entry(at).or_insert(slot);
        let range = self.range(at).unwrap_or_default();
        self.recent.retain(|&other| other < range.0 || other >= range.1);
        self.recent.insert(0, at);
        self.recent.truncate(SackRanges::MAX);
        new
    }

    fn report(&self, most: usize) -> Vec<(u32, u32)> {
        let mut ranges = Vec::new();
        for range in self.recent.iter().filter_map(|&at| self.range(at)) {
            if ranges.len() < most && !ranges.contains(&range) {
                ranges.push(range);
            }
        }
        ranges
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        rng_seed: proptest::test_runner::RngSeed::Fixed(2018),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_arrived_early_is_kept_and_reported(
        spread in prop_oneof![Just(4u32), Just(12), Just(60)],
        odd in prop_oneof![Just(0.0), Just(0.1)],
        most in 1usize..5,
        arrivals in prop::collection::vec((any::<u32>(), 0.0..1.0), 1..120),
    ) {
        let base = u32::MAX - 20;
        let (mut early, mut plainly, mut next) = (Early::new(), Plainly::default(), 0);
        for (ahead, chance) in arrivals {
            let at = next + ahead % spread;
            let slot = EarlySlot { payload: if chance < odd { 7 } else { 1460 }, flags: Flags::NONE };
            let new = early.insert(base.wrapping_add(at), slot, base.wrapping_add(next));
            prop_assert_eq!(new, plainly.insert(at, slot));
            let end = plainly.range(next).map(|range| range.1);
            prop_assert_eq!(early.take_first(base.wrapping_add(next)), end.map(|end| base.wrapping_add(end)));
            for at in next..end.unwrap_or(next) {
                prop_assert_eq!(Some(early.get(base.wrapping_add(at))), plainly.got.remove(&at));
            }
            next = end.unwrap_or(next);
            let mut sack = SackRanges::EMPTY;
            early.report(&mut sack, most);
            let reported: Vec<_> =
                sack.as_slice().iter().map(|range| (range.0.wrapping_sub(base), range.1.wrapping_sub(base))).collect();
            prop_assert_eq!(reported, plainly.report(most));
            prop_assert_eq!(early.is_empty(), plainly.got.is_empty());
        }
    }
}
