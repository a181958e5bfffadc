//! One timer for each key, and the earliest of all.

use std::collections::{BTreeMap, BTreeSet};

use tollway_law::Time;

/// Timers by key. Timers of one instant are due in the order of their keys.
#[derive(Clone, Debug)]
pub(super) struct Agenda<K> {
    order: BTreeSet<(Time, K)>,
    at: BTreeMap<K, Time>,
}

impl<K: Ord + Copy> Agenda<K> {
    pub(super) fn new() -> Agenda<K> {
        Agenda { order: BTreeSet::new(), at: BTreeMap::new() }
    }

    /// Sets the key's timer, whatever it was before; [`Time::NEVER`] removes it.
    pub(super) fn set(&mut self, key: K, time: Time) {
        self.clear(key);
        if time < Time::NEVER {
            self.order.insert((time, key));
            self.at.insert(key, time);
        }
    }

    /// Sets the key's timer unless it is due earlier.
    pub(super) fn by(&mut self, key: K, time: Time) {
        if self.at.get(&key).is_none_or(|&at| at > time) {
            self.set(key, time);
        }
    }

    pub(super) fn clear(&mut self, key: K) {
        if let Some(at) = self.at.remove(&key) {
            self.order.remove(&(at, key));
        }
    }

    pub(super) fn has(&self, key: K) -> bool {
        self.at.contains_key(&key)
    }

    /// The earliest timer's instant.
    pub(super) fn next(&self) -> Time {
        self.order.first().map_or(Time::NEVER, |&(time, _)| time)
    }

    /// Removes and answers the earliest timer that is due.
    pub(super) fn pop(&mut self, now: Time) -> Option<K> {
        let &(time, key) = self.order.first()?;
        (time <= now).then(|| {
            self.clear(key);
            key
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_timer_and_the_earliest_is_due_first() {
        let mut agenda = Agenda::new();
        agenda.set(1, Time(30));
        agenda.set(2, Time(20));
        agenda.by(1, Time(40));
        agenda.by(1, Time(10));
        agenda.set(3, Time(10));
        assert_eq!(agenda.next(), Time(10));
        assert_eq!(
            [agenda.pop(Time(20)), agenda.pop(Time(20)), agenda.pop(Time(20))],
            [Some(1), Some(3), Some(2)]
        );
        agenda.set(4, Time::NEVER);
        assert!(agenda.pop(Time::NEVER).is_none() && !agenda.has(4));
    }
}
