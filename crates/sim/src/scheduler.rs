//! Who is next: the pending event of each entity (link, endpoint, source), earliest first.
//!
//! An entity has at most one pending event, so an event is 8 bytes: `time << bits | id`, compared as one integer.
//! Equal times go by id, which no history can change. Up to 2048 entities a tournament tree of those keys is
//! fastest, above it a calendar of buckets that tunes its own width.

use tollway_law::Time;

/// The pending events of a run.
#[derive(Debug)]
pub struct Scheduler {
    bits: u32,
    queue: Queue,
}

#[derive(Debug)]
enum Queue {
    Tree(Tree),
    Calendar(Box<Calendar>),
}

impl Scheduler {
    /// For `entities` entities, numbered from 0; more can come later.
    pub fn new(entities: usize) -> Scheduler {
        let entities = entities.max(2);
        let bits = usize::BITS - (entities - 1).leading_zeros();
        let queue = if entities <= TREE_MAX {
            Queue::Tree(Tree::new(1 << bits))
        } else {
            Queue::Calendar(Box::new(Calendar::new(entities, bits)))
        };
        Scheduler { bits, queue }
    }

    /// How many entities there is room for.
    pub fn capacity(&self) -> usize {
        1 << self.bits
    }

    /// The latest instant that can be told apart: 4.9 hours for a million entities, more for fewer.
    pub fn horizon(&self) -> Time {
        Time((u64::MAX >> self.bits) - 1)
    }

    /// Makes room for at least `entities`, keeping what is pending.
    pub fn grow(&mut self, entities: usize) {
        if entities <= self.capacity() {
            return;
        }
        let mut bigger = Scheduler::new(entities.max(2 * self.capacity()));
        for id in 0..self.capacity() as u32 {
            let time = self.pending(id);
            if time != Time::NEVER {
                bigger.set(id, time);
            }
        }
        *self = bigger;
    }

    /// The pending event of `id`, [`Time::NEVER`] if there is none.
    #[inline]
    pub fn pending(&self, id: u32) -> Time {
        let key = match &self.queue {
            Queue::Tree(tree) => tree.get(id as usize),
            Queue::Calendar(calendar) => calendar.due.get(id as usize).copied().unwrap_or(IDLE),
        };
        if key == IDLE { Time::NEVER } else { Time(key >> self.bits) }
    }

    /// Sets the pending event of `id`, in place of the one it had; [`Time::NEVER`] or anything past the horizon is
    /// none.
    #[inline]
    pub fn set(&mut self, id: u32, time: Time) {
        let key = if time.0 > u64::MAX >> self.bits { IDLE } else { time.0 << self.bits | u64::from(id) };
        match &mut self.queue {
            Queue::Tree(tree) => tree.set(id as usize, key),
            Queue::Calendar(calendar) => calendar.set(id as usize, key),
        }
    }

    /// The earliest event before `end`; it stays pending until it is set anew.
    #[inline]
    pub fn next_before(&mut self, end: Time) -> Option<(Time, u32)> {
        let key = match &mut self.queue {
            Queue::Tree(tree) => tree.keys[1],
            Queue::Calendar(calendar) => calendar.peek(),
        };
        let time = Time(key >> self.bits);
        (key != IDLE && time < end).then_some((time, (key & ((1 << self.bits) - 1)) as u32))
    }
}

/// A tournament (winner) tree: node `i` holds the least key of nodes `2i` and `2i + 1`.
///
/// The array has a fixed size so that a masked index needs no check. There is no early exit on the way up: the
/// siblings' loads don't depend on each other, an exit would, on a branch nobody can predict.
#[derive(Debug)]
struct Tree {
    keys: Box<[u64; TREE_NODES]>,
    leaves: usize,
    levels: u32,
}

impl Tree {
    fn new(leaves: usize) -> Tree {
        Tree { keys: Box::new([IDLE; TREE_NODES]), leaves, levels: leaves.trailing_zeros() }
    }

    #[inline]
    fn get(&self, id: usize) -> u64 {
        self.keys[(self.leaves + id) % TREE_NODES]
    }

    #[inline]
    fn set(&mut self, id: usize, key: u64) {
        let mut node = self.leaves + id;
        self.keys[node % TREE_NODES] = key;
        let mut least = key;
        for _ in 0..self.levels {
            least = least.min(self.keys[(node ^ 1) % TREE_NODES]);
            node >>= 1;
            self.keys[node % TREE_NODES] = least;
        }
    }
}

/// A calendar queue (Brown 1988) with lazy deletion: buckets of equal width around the present, an overflow for the
/// far future, and the bucket of the present kept sorted.
#[derive(Debug)]
struct Calendar {
    /// The valid key of each entity; what the buckets hold beside it is stale.
    due: Vec<u64>,
    /// Keys of the present bucket, the earliest last.
    present: Vec<u64>,
    buckets: Vec<Vec<u64>>,
    overflow: Vec<u64>,
    /// Keys below this belong to `present`.
    present_end: u64,
    /// The bucket after the present one.
    cursor: usize,
    /// log2 of a bucket's width, in key units.
    width_log2: u32,
    /// Keys in buckets and overflow, stale ones included.
    ahead: usize,
    /// Since the last look at the width: buckets passed and keys found in them.
    passed: u32,
    found: u32,
    bits: u32,
}

impl Calendar {
    fn new(entities: usize, bits: u32) -> Calendar {
        Calendar {
            due: vec![IDLE; entities],
            present: Vec::new(),
            buckets: vec![Vec::new(); BUCKETS],
            overflow: Vec::new(),
            present_end: 0,
            cursor: 0,
            // 4 µs to begin with; the width follows the density of events.
            width_log2: 12 + bits,
            ahead: 0,
            passed: 0,
            found: 0,
            bits,
        }
    }

    #[inline]
    fn set(&mut self, id: usize, key: u64) {
        if id >= self.due.len() {
            self.due.resize(id + 1, IDLE);
        }
        if self.due[id] == key {
            return;
        }
        self.due[id] = key;
        if key == IDLE {
            return;
        }
        if key < self.present_end {
            // Few keys lie before this one: what is due now was put in last.
            let mut at = self.present.len();
            while at > 0 && self.present[at - 1] < key {
                at -= 1;
            }
            self.present.insert(at, key);
        } else {
            self.file(key);
        }
    }

    /// Puts a key of the future into its bucket.
    #[inline]
    fn file(&mut self, key: u64) {
        self.ahead += 1;
        let distance = (key - self.present_end) >> self.width_log2;
        if distance < BUCKETS as u64 {
            self.buckets[(self.cursor + distance as usize) % BUCKETS].push(key);
        } else {
            self.overflow.push(key);
        }
    }

    #[inline]
    fn peek(&mut self) -> u64 {
        loop {
            while let Some(&key) = self.present.last() {
                if self.due[(key & ((1 << self.bits) - 1)) as usize] == key {
                    return key;
                }
                self.present.pop();
            }
            if self.ahead == 0 {
                return IDLE;
            }
            self.advance();
        }
    }

    /// Makes the next bucket the present one.
    fn advance(&mut self) {
        if self.ahead == self.overflow.len() {
            // Nothing but the far future: go there at once.
            let (due, mask) = (&self.due, (1 << self.bits) - 1);
            self.overflow.retain(|&key| due[(key & mask) as usize] == key);
            self.ahead = self.overflow.len();
            let Some(&first) = self.overflow.iter().min() else { return };
            self.present_end = first >> self.width_log2 << self.width_log2;
            self.refile();
            return;
        }
        std::mem::swap(&mut self.present, &mut self.buckets[self.cursor]);
        self.ahead -= self.present.len();
        self.passed += 1;
        self.found += self.present.len() as u32;
        if self.present.len() > 1 {
            self.present.sort_unstable_by(|a, b| b.cmp(a));
        }
        self.cursor = (self.cursor + 1) % BUCKETS;
        self.present_end += 1 << self.width_log2;
        if self.cursor == 0 {
            self.tune();
        }
    }

    /// Once a round: takes in what has come near, and changes the width if buckets are too full or too empty.
    fn tune(&mut self) {
        if self.passed as usize >= BUCKETS {
            if self.found > 6 * self.passed && self.width_log2 > self.bits {
                self.width_log2 -= 1;
            } else if self.found < self.passed && self.width_log2 < 40 + self.bits.min(20) {
                self.width_log2 += 1;
            }
            (self.passed, self.found) = (0, 0);
        }
        self.refile();
    }

    fn refile(&mut self) {
        let mut keys = std::mem::take(&mut self.overflow);
        for bucket in &mut self.buckets {
            keys.append(bucket);
        }
        self.ahead = 0;
        for key in keys {
            if self.due[(key & ((1 << self.bits) - 1)) as usize] == key {
                self.file(key);
            }
        }
    }
}

/// No event.
const IDLE: u64 = u64::MAX;

/// Up to how many entities the tree is the faster one (measured, see `docs/src/speed.md`).
const TREE_MAX: usize = 8192;

/// Nodes of the largest tree.
const TREE_NODES: usize = 2 * TREE_MAX;

/// Buckets of the calendar.
const BUCKETS: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Both queues against the plainest one there is, with sets that move events earlier, later and away.
        #[test]
        fn events_come_in_order(
            many in prop::bool::ANY,
            steps in prop::collection::vec((0u32..50, 0u64..3_000_000, 0u8..8), 1..400),
        ) {
            let spread = if many { 100 } else { 1 };
            let mut scheduler = Scheduler::new(50 * spread);
            let mut plain = vec![u64::MAX; 50 * spread];
            let mut now = 0;
            for (id, ahead, kind) in steps {
                let id = id as usize * spread;
                let time = match kind { 0 => u64::MAX, 1 => now + (ahead << 16), _ => now + ahead };
                plain[id] = time;
                scheduler.set(id as u32, Time(time));
                prop_assert_eq!(scheduler.pending(id as u32), Time(time));
                if kind > 4 {
                    let expected = plain.iter().enumerate().map(|(i, &t)| (t, i)).min().unwrap();
                    let got = scheduler.next_before(Time::NEVER);
                    if expected.0 == u64::MAX {
                        prop_assert_eq!(got, None);
                    } else {
                        prop_assert_eq!(got, Some((Time(expected.0), expected.1 as u32)));
                        now = expected.0;
                        plain[expected.1] = u64::MAX;
                        scheduler.set(expected.1 as u32, Time::NEVER);
                    }
                }
            }
        }
    }

    #[test]
    fn growing_keeps_what_is_pending() {
        let mut scheduler = Scheduler::new(4);
        scheduler.set(3, Time(70));
        scheduler.set(1, Time(70));
        scheduler.grow(10_000);
        scheduler.set(9_999, Time(60));
        assert_eq!(scheduler.next_before(Time(61)), Some((Time(60), 9_999)));
        scheduler.set(9_999, Time::NEVER);
        assert_eq!(scheduler.next_before(Time(70)), None);
        assert_eq!(scheduler.next_before(Time(71)), Some((Time(70), 1)));
    }
}
