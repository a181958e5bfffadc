//! Segments received after a gap.

use crate::{Flags, SackRanges};

use super::ring::Ring;
use super::serial::{before, later};

/// Segments received out of order, in one piece of memory while they form few ranges and are all
/// alike.
#[derive(Debug)]
pub(crate) struct Early {
    ranges: Ranges,
    /// One segment of each range that grew recently, latest first.
    recent: [u32; SackRanges::MAX],
    recents: u8,
    /// The flags of every segment, while there are no `slots`.
    alike: EarlySlot,
    slots: Ring<EarlySlot>,
}

/// The state of a segment until its delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EarlySlot {
    pub(crate) payload: u16,
    pub(crate) flags: Flags,
}

/// Disjoint ranges of segments `[start, end)`, in order: a few in place, all in `many` once there
/// were more.
#[derive(Debug)]
struct Ranges {
    few: [(u32, u32); FEW],
    len: u32,
    many: Vec<(u32, u32)>,
}

impl Early {
    pub(crate) fn new() -> Early {
        Early {
            ranges: Ranges { few: [(0, 0); FEW], len: 0, many: Vec::new() },
            recent: [0; SackRanges::MAX],
            recents: 0,
            alike: EarlySlot::default(),
            slots: Ring::new(),
        }
    }

    /// True if no segments are held.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.as_slice().is_empty()
    }

    /// True if `seq` has been [inserted](Early::insert).
    pub(crate) fn holds(&self, seq: u32) -> bool {
        self.ranges.as_slice().get(self.ranges.find(seq)).is_some_and(|range| !before(seq, range.0))
    }

    /// The state of `seq`, which has been [inserted](Early::insert).
    #[inline]
    pub(crate) fn get(&self, seq: u32) -> EarlySlot {
        if self.slots.capacity() == 0 { self.alike } else { self.slots.get(seq) }
    }

    /// Inserts `seq`. Returns true if it is new. `next` is the first missing number.
    #[inline(always)]
    pub(crate) fn insert(&mut self, seq: u32, slot: EarlySlot, next: u32) -> bool {
        if self.grow_latest(seq, slot) {
            return true;
        }
        let i = self.ranges.find(seq);
        let ranges = self.ranges.as_slice();
        let following = ranges.get(i).copied();
        if let Some(range) = following
            && !before(seq, range.0)
        {
            self.touch(seq, range);
            return false;
        }
        let preceding = if i > 0 { ranges.get(i - 1).copied() } else { None };
        self.keep(seq, slot, next);
        let after = seq.wrapping_add(1);
        let joins_before = preceding.filter(|range| range.1 == seq);
        let joins_after = following.filter(|range| range.0 == after);
        let range = (joins_before.map_or(seq, |range| range.0), joins_after.map_or(after, |range| range.1));
        match (joins_before.is_some(), joins_after.is_some()) {
            (true, true) => {
                self.ranges.set(i - 1, range);
                self.ranges.remove(i);
            }
            (true, false) => self.ranges.set(i - 1, range),
            (false, true) => self.ranges.set(i, range),
            (false, false) => self.ranges.insert(i, range),
        }
        self.touch(seq, range);
        true
    }

    /// [`Early::insert`] for the segment after the last of all, if that was also the latest to
    /// arrive. Returns true in that case.
    #[inline]
    fn grow_latest(&mut self, seq: u32, slot: EarlySlot) -> bool {
        if self.slots.capacity() != 0 || slot != self.alike {
            return false;
        }
        match self.ranges.last_mut() {
            Some(range) if range.1 == seq && self.recents > 0 && self.recent[0] == seq.wrapping_sub(1) => {
                range.1 = seq.wrapping_add(1);
                self.recent[0] = seq;
                true
            }
            _ => false,
        }
    }

    /// Stores the state of `seq`.
    #[inline]
    fn keep(&mut self, seq: u32, slot: EarlySlot, next: u32) {
        if self.slots.capacity() == 0 {
            if self.is_empty() {
                self.alike = slot;
            }
            if slot == self.alike {
                return;
            }
        }
        self.keep_apart(seq, slot, next);
    }

    /// Gives each segment a slot, once not all are alike.
    #[cold]
    fn keep_apart(&mut self, seq: u32, slot: EarlySlot, next: u32) {
        let first = self.slots.capacity() == 0;
        let last = self.ranges.as_slice().last().map_or(next, |range| range.1);
        self.slots.reserve(next, later(last, seq.wrapping_add(1)).wrapping_sub(next));
        if first {
            for &(start, end) in self.ranges.as_slice() {
                for i in 0..end.wrapping_sub(start) {
                    *self.slots.at(start.wrapping_add(i)) = self.alike;
                }
            }
        }
        *self.slots.at(seq) = slot;
    }

    /// Makes the range of `seq` the one that grew last (RFC 2018 § 4: it is reported first).
    #[inline]
    fn touch(&mut self, seq: u32, (start, end): (u32, u32)) {
        let length = end.wrapping_sub(start);
        let (mut moved, mut n) = (seq, 1);
        // Each that stays goes back by one; what was within the range makes room.
        for i in 0..usize::from(self.recents).min(SackRanges::MAX) {
            let known = std::mem::replace(&mut self.recent[i], moved);
            if known.wrapping_sub(start) < length {
                // The rest stays where it is, but for others in the same range.
                return self.drop_within(i + 1, start, length);
            }
            (moved, n) = (known, i + 2);
        }
        if n <= SackRanges::MAX {
            self.recent[n - 1] = moved;
            self.recents = n as u8;
        }
    }

    /// Drops the entries of `recent` within the `length` segments from `start` on, except in the
    /// first `kept`.
    #[inline]
    fn drop_within(&mut self, kept: usize, start: u32, length: u32) {
        let mut n = kept;
        for i in kept..usize::from(self.recents).min(SackRanges::MAX) {
            let known = self.recent[i];
            if known.wrapping_sub(start) >= length {
                self.recent[n] = known;
                n += 1;
            }
        }
        self.recents = n as u8;
    }

    /// Removes the first range if it begins at `next`. Returns its end.
    #[inline]
    pub(crate) fn take_first(&mut self, next: u32) -> Option<u32> {
        let &(start, end) = self.ranges.as_slice().first()?;
        (start == next).then(|| {
            self.ranges.remove(0);
            end
        })
    }

    /// Removes all segments before `to`.
    pub(crate) fn advance(&mut self, to: u32) {
        while let Some(&(start, end)) = self.ranges.as_slice().first()
            && before(start, to)
        {
            if before(to, end) {
                return self.ranges.set(0, (to, end));
            }
            self.ranges.remove(0);
        }
    }

    /// Reports the ranges that grew last, latest first, while there is room.
    #[inline]
    pub(crate) fn report(&self, sack: &mut SackRanges, most: usize) {
        let most = most.min(SackRanges::MAX);
        let ranges = self.ranges.as_slice();
        for &seq in self.recent.iter().take(usize::from(self.recents)) {
            if sack.as_slice().len() >= most {
                return;
            }
            if let Some(&(start, end)) = ranges.get(self.ranges.find(seq))
                && !before(seq, start)
                && !sack.as_slice().contains(&(start, end))
            {
                sack.push(start, end);
            }
        }
    }
}

impl Ranges {
    #[inline]
    fn as_slice(&self) -> &[(u32, u32)] {
        if self.many.is_empty() { &self.few[..(self.len as usize).min(FEW)] } else { &self.many }
    }

    #[inline]
    fn last_mut(&mut self) -> Option<&mut (u32, u32)> {
        if self.many.is_empty() {
            self.few[..(self.len as usize).min(FEW)].last_mut()
        } else {
            self.many.last_mut()
        }
    }

    /// Index of the first range that ends after `seq`: the one that holds it, or the place for one.
    #[inline]
    fn find(&self, seq: u32) -> usize {
        if !self.many.is_empty() {
            return self.many.partition_point(|&(_, end)| !before(seq, end));
        }
        let mut i = (self.len as usize).min(FEW);
        while i > 0 && before(seq, self.few[i - 1].1) {
            i -= 1;
        }
        i
    }

    #[inline]
    fn set(&mut self, i: usize, range: (u32, u32)) {
        let ranges = if self.many.is_empty() { &mut self.few[..] } else { &mut self.many };
        if let Some(known) = ranges.get_mut(i) {
            *known = range;
        }
    }

    #[inline]
    fn insert(&mut self, i: usize, range: (u32, u32)) {
        let len = self.len as usize;
        if !self.many.is_empty() || len >= FEW {
            return self.insert_many(i, range);
        }
        for j in (i..len).rev() {
            self.few[j + 1] = self.few[j];
        }
        self.few[i] = range;
        self.len += 1;
    }

    #[cold]
    fn insert_many(&mut self, i: usize, range: (u32, u32)) {
        if self.many.is_empty() {
            self.many.extend_from_slice(&self.few);
            self.len = 0;
        }
        self.many.insert(i, range);
    }

    #[inline]
    fn remove(&mut self, i: usize) {
        if !self.many.is_empty() {
            self.many.remove(i);
            return;
        }
        self.len -= 1;
        for j in i..(self.len as usize).min(FEW - 1) {
            self.few[j] = self.few[j + 1];
        }
    }
}

/// Ranges kept in place.
const FEW: usize = 4;
