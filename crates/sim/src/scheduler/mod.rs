//! The event queue: the pending event of each entity (link, endpoint, source), earliest first.
//!
//! An entity has at most one pending event, so an event is 8 bytes: `time << bits | id`, compared
//! as one integer. Equal times go by id, whatever the history.
//!
//! Links and timers behave differently, so each kind has a separate tournament tree. A link's event
//! begins and ends with a packet, and most links of a large network are idle. Their tree has leaves
//! for pending events only, and so stays in the fastest cache. Timers are nearly always pending and
//! seldom set. With many thousand pending link events, a [wheel](Wheel) takes the place of their
//! tree.

mod wheel;

use tollway_law::Time;

use self::wheel::Wheel;

use crate::pages::in_large_pages;

/// The pending events of a run.
#[derive(Debug)]
pub struct Scheduler {
    bits: u32,
    /// Entities below this id are busy: their events are short-lived.
    busy: u32,
    /// The bits of a key that hold the id.
    ids: u64,
    /// The latest time that fits a key.
    latest: u64,
    links: Lively,
    /// One leaf per entity.
    timers: Tree,
}

impl Scheduler {
    /// Creates a scheduler for `entities` entities, numbered from 0. The first `busy` of them have
    /// short-lived events; [`grow`](Scheduler::grow) adds more of the others.
    pub fn new(busy: usize, entities: usize) -> Scheduler {
        let entities = entities.max(busy).max(2);
        let bits = usize::BITS - (entities - 1).leading_zeros();
        Scheduler {
            bits,
            busy: busy as u32,
            ids: (1 << bits) - 1,
            latest: u64::MAX >> bits,
            links: Lively::new(busy),
            timers: Tree::new(entities - busy),
        }
    }

    /// The number of entities that fit.
    pub fn capacity(&self) -> usize {
        (1 << self.bits).min(self.busy as usize + self.timers.leaves())
    }

    /// The latest representable instant: 4.9 hours for a million entities, more for fewer.
    pub fn horizon(&self) -> Time {
        Time(self.latest - 1)
    }

    /// Makes room for at least `entities`, and keeps pending events.
    pub fn grow(&mut self, entities: usize) {
        if entities <= self.capacity() {
            return;
        }
        let mut bigger = Scheduler::new(self.busy as usize, entities.max(2 * self.capacity()));
        for id in 0..self.capacity() as u32 {
            let time = self.pending(id);
            if time != Time::NEVER {
                bigger.set(id, time);
            }
        }
        *self = bigger;
    }

    /// The time of the pending event of `id`; [`Time::NEVER`] without one.
    #[inline]
    pub fn pending(&self, id: u32) -> Time {
        let key = if id < self.busy { self.links.get(id as usize) } else { self.timers.leaf(id - self.busy) };
        if key == IDLE { Time::NEVER } else { Time(key >> self.bits) }
    }

    /// Sets the pending event of `id`, and replaces the previous one. [`Time::NEVER`] or a time
    /// past the horizon means no event.
    pub fn set(&mut self, id: u32, time: Time) {
        let key = self.key(id, time);
        if id >= self.busy {
            self.timers.set(id - self.busy, key);
        } else if key == IDLE {
            self.links.end(id as usize);
        } else {
            self.links.set(id as usize, key);
        }
    }

    /// Frees the memory of busy entities' events, which have none from then on. Frees that of the
    /// others if they set none anymore.
    pub fn release(&mut self, others: bool) {
        self.links = Lively::new(0);
        if others {
            self.timers = Tree::new(0);
        }
    }

    /// [`set`](Scheduler::set) for an entity that is not busy.
    #[inline]
    pub fn set_timer(&mut self, id: u32, time: Time) {
        let key = self.key(id, time);
        self.timers.set(id - self.busy, key);
    }

    /// [`set`](Scheduler::set) for a busy entity that has no pending event.
    #[inline]
    pub fn begin_busy(&mut self, id: u32, time: Time) {
        let key = self.key(id, time);
        self.links.begin(id as usize, key);
    }

    /// [`begin_busy`](Scheduler::begin_busy), unless the event is the earliest of all and within
    /// `bound`: then it does not become pending, and the result is true.
    #[inline(always)]
    pub fn begin_unless_next(&mut self, id: u32, time: Time, bound: TimeBound) -> bool {
        let key = self.key(id, time);
        let links = &mut self.links;
        // Of the many events in a wheel, a new one is hardly ever the earliest.
        let next = key < bound.0
            && key < links.tree.rival
            && links.wheel.is_none()
            && key < links.peek().min(self.timers.least);
        if !next {
            links.begin(id as usize, key);
        }
        next
    }

    /// [`set`](Scheduler::set) for the busy entity that [`next_before`](Scheduler::next_before)
    /// returned last.
    #[inline]
    pub fn advance_busy(&mut self, id: u32, time: Time) {
        match self.key(id, time) {
            IDLE => self.links.end(id as usize),
            key => self.links.set(id as usize, key),
        }
    }

    /// Puts many pending events of busy entities in order. Returns true if there are many, so that
    /// what they touch is in no cache; then [`next_of_many`](Scheduler::next_of_many) gives the next.
    pub fn arrange(&mut self) -> bool {
        let links = &mut self.links;
        if let Some(wheel) = &mut links.wheel {
            wheel.adapt(self.bits);
        } else if links.tree.leaves() >= MANY_LEAVES {
            self.fill_wheel();
        }
        self.links.wheel.is_some()
    }

    fn fill_wheel(&mut self) {
        let links = &mut self.links;
        let due = (0..links.leaf_of.len()).map(|id| links.get(id)).collect();
        *links = Lively { wheel: Some(Box::new(Wheel::new(due, self.bits))), ..Lively::new(0) };
    }

    /// The earliest event within `bound`; `many` is what [`arrange`](Scheduler::arrange) returned.
    #[inline]
    pub fn next(&mut self, many: bool, bound: TimeBound) -> Option<(Time, u32)> {
        if many { self.next_of_many(bound) } else { self.next_before(bound) }
    }

    /// [`next_before`](Scheduler::next_before) for a scheduler with many pending events. An event of
    /// a busy entity does not stay pending.
    #[inline]
    pub fn next_of_many(&mut self, bound: TimeBound) -> Option<(Time, u32)> {
        let wheel = self.links.wheel.as_mut()?;
        let link = wheel.peek();
        let key = link.min(self.timers.least);
        if key >= bound.0 {
            return None;
        }
        if link == key {
            wheel.take();
        }
        Some((Time(key >> self.bits), (key & self.ids) as u32))
    }

    /// Of many pending events, the busy entities of four that come soon, the soonest last. The
    /// number may be that of no entity.
    #[inline]
    pub fn ahead(&self) -> [u32; 4] {
        self.links.wheel.as_ref().map_or([u32::MAX; 4], |wheel| wheel.ahead())
    }

    /// The busy entity whose event is the earliest in the tree. The number may be that of no
    /// entity.
    #[inline]
    pub fn likely(&self) -> u32 {
        (self.links.tree.least & self.ids) as u32
    }

    /// The memory of the event of a busy entity, to be loaded early.
    #[inline]
    pub fn place(&self, id: u32) -> *const u64 {
        self.links.wheel.as_ref().map_or(std::ptr::null(), |wheel| wheel.place(id))
    }

    #[inline]
    fn key(&self, id: u32, time: Time) -> u64 {
        if time.0 > self.latest { IDLE } else { time.0 << self.bits | u64::from(id) }
    }

    /// The bound for events before `end`, an argument of [`next_before`](Scheduler::next_before).
    pub fn bound(&self, end: Time) -> TimeBound {
        // All keys of an instant lie below the first of the next.
        TimeBound(if end.0 > self.latest { IDLE } else { end.0 << self.bits })
    }

    /// Returns the earliest event within `bound`, which must come from this scheduler in its
    /// present size. The event stays pending until it is set again.
    #[inline]
    pub fn next_before(&mut self, bound: TimeBound) -> Option<(Time, u32)> {
        let key = self.links.peek().min(self.timers.least);
        (key < bound.0).then_some((Time(key >> self.bits), (key & self.ids) as u32))
    }
}

/// An upper bound on the time of events; the default admits none.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeBound(u64);

/// A tournament tree with a leaf for each pending event.
///
/// An event that ends leaves a hole, which the next event to begin fills. So a packet that goes
/// from one idle link to another costs one way up the tree instead of two. An event that seems the
/// earliest of all when it begins, such as that of a short packet over a short link, waits beside
/// the tree and costs none.
#[derive(Debug)]
struct Lively {
    tree: Tree,
    /// The leaf of each entity; [`NO_LEAF`] without a pending event. Empty with a `wheel`.
    leaf_of: Vec<u32>,
    /// Leaves without an event, the last one freed on top.
    free: Vec<u32>,
    /// A leaf whose event has ended, but which still has its key in the tree.
    hole: u32,
    /// The event that waits beside the tree ([`BESIDE`]); [`IDLE`] without one.
    beside: u64,
    /// Holds all events in place of the tree.
    wheel: Option<Box<Wheel>>,
}

impl Lively {
    fn new(entities: usize) -> Lively {
        Lively {
            tree: Tree::new(LEAST_LEAVES),
            leaf_of: vec![NO_LEAF; entities],
            free: (0..LEAST_LEAVES as u32).rev().collect(),
            hole: NO_LEAF,
            beside: IDLE,
            wheel: None,
        }
    }

    #[inline]
    fn get(&self, id: usize) -> u64 {
        match self.leaf_of.get(id) {
            None => self.wheel.as_ref().map_or(IDLE, |wheel| wheel.get(id)),
            Some(&NO_LEAF) => IDLE,
            Some(&BESIDE) => self.beside,
            Some(&leaf) => self.tree.leaf(leaf),
        }
    }

    /// Sets or replaces the event of `id`.
    #[inline]
    fn set(&mut self, id: usize, key: u64) {
        match self.leaf_of.get(id) {
            None => self.set_in_wheel(id, key),
            Some(&NO_LEAF) => self.begin(id, key),
            // It stays only if it is early again: else it would keep out every other.
            Some(&BESIDE) => {
                self.beside = IDLE;
                self.begin(id, key);
            }
            Some(&leaf) => self.tree.set(leaf, key),
        }
    }

    /// Removes the event of `id`, if any.
    #[inline]
    fn end(&mut self, id: usize) {
        let Some(leaf) = self.leaf_of.get_mut(id) else { return self.set_in_wheel(id, IDLE) };
        match std::mem::replace(leaf, NO_LEAF) {
            NO_LEAF => {}
            BESIDE => self.beside = IDLE,
            leaf => {
                if self.hole != NO_LEAF {
                    self.close();
                }
                self.hole = leaf;
            }
        }
    }

    /// Adds an event of `id`, which must have none.
    #[inline]
    fn begin(&mut self, id: usize, key: u64) {
        let Some(leaf) = self.leaf_of.get_mut(id) else { return self.set_in_wheel(id, key) };
        // The event precedes at least one half of the tree, which is enough. An event put here
        // wrongly only occupies the place.
        if self.beside == IDLE && key < self.tree.rival {
            self.beside = key;
            *leaf = BESIDE;
        } else {
            self.take_leaf(id, key);
        }
    }

    #[inline(never)]
    fn set_in_wheel(&mut self, id: usize, key: u64) {
        if let Some(wheel) = &mut self.wheel {
            wheel.set(id, key);
        }
    }

    #[inline]
    fn take_leaf(&mut self, id: usize, key: u64) {
        let leaf = self.open();
        self.leaf_of[id] = leaf;
        self.tree.set(leaf, key);
    }

    /// Allocates a leaf for a new event.
    #[inline]
    fn open(&mut self) -> u32 {
        if self.hole != NO_LEAF {
            return std::mem::replace(&mut self.hole, NO_LEAF);
        }
        match self.free.pop() {
            Some(leaf) => leaf,
            None => self.grow(),
        }
    }

    /// Clears the leaf of the hole, which must exist, and frees it.
    #[inline]
    fn close(&mut self) {
        let leaf = std::mem::replace(&mut self.hole, NO_LEAF);
        self.free.push(leaf);
        self.tree.set(leaf, IDLE);
    }

    /// Doubles the leaves, and returns one of the new ones.
    #[cold]
    fn grow(&mut self) -> u32 {
        let leaves = self.tree.leaves() as u32;
        let mut bigger = Tree::new(2 * leaves as usize);
        (0..leaves).for_each(|leaf| bigger.set(leaf, self.tree.leaf(leaf)));
        self.tree = bigger;
        self.free.extend((leaves + 1..2 * leaves).rev());
        leaves
    }

    #[inline]
    fn peek(&mut self) -> u64 {
        if self.hole != NO_LEAF {
            self.close();
        }
        self.beside.min(self.tree.least)
    }
}

/// A tournament tree: node `i` holds the lesser of nodes `2i` and `2i + 1`; the leaves are the
/// upper half.
#[derive(Debug)]
struct Tree {
    /// Their number is a power of two.
    nodes: Vec<u64>,
    /// The function that updates a tree of this size.
    climb: fn(&mut [u64], u32, u64) -> (u64, u64),
    /// The least key of all, and the least key of the half without it.
    least: u64,
    rival: u64,
}

impl Tree {
    /// Creates a tree of at least `leaves` leaves.
    fn new(leaves: usize) -> Tree {
        let room = 2 * leaves.next_power_of_two().max(LEAST_LEAVES);
        let mut nodes = Vec::with_capacity(room);
        in_large_pages(&nodes);
        nodes.resize(room, IDLE);
        Tree { nodes, climb: way_up(room), least: IDLE, rival: IDLE }
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    #[inline]
    fn leaf(&self, leaf: u32) -> u64 {
        self.nodes[self.leaves() + leaf as usize]
    }

    /// Updates the tree for a leaf's new key.
    #[inline]
    fn set(&mut self, leaf: u32, key: u64) {
        (self.least, self.rival) = (self.climb)(&mut self.nodes, leaf, key);
    }
}

/// The update function for a number of nodes. Most trees have one of the sizes here, for which the
/// loop unrolls.
fn way_up(nodes: usize) -> fn(&mut [u64], u32, u64) -> (u64, u64) {
    match nodes {
        0x20 => climb::<0x20>,
        0x40 => climb::<0x40>,
        0x80 => climb::<0x80>,
        0x100 => climb::<0x100>,
        0x200 => climb::<0x200>,
        0x400 => climb::<0x400>,
        0x800 => climb::<0x800>,
        0x1000 => climb::<0x1000>,
        0x2000 => climb::<0x2000>,
        0x4000 => climb::<0x4000>,
        _ => climb_any,
    }
}

/// Updates a tree of `NODES` nodes for a leaf's new key. Returns the least key of all, and the key
/// that lost to it in the last match.
///
/// There is no early exit on the way up. The siblings' loads don't depend on each other, and an
/// exit would depend on an unpredictable branch. The key itself is never read back, since a load
/// would wait for the store before it.
fn climb<const NODES: usize>(nodes: &mut [u64], leaf: u32, key: u64) -> (u64, u64) {
    let Ok(nodes) = <&mut [u64; NODES]>::try_from(nodes) else { return (IDLE, IDLE) };
    let mut node = (NODES / 2) | (leaf as usize & (NODES / 2 - 1));
    nodes[node] = key;
    let (mut least, mut rival) = (key, IDLE);
    for _ in 1..NODES.trailing_zeros() {
        let other = nodes[node ^ 1];
        (least, rival) = (least.min(other), least.max(other));
        node >>= 1;
        nodes[node] = least;
    }
    (least, rival)
}

/// [`climb`] in a tree of any size. Node 0, which is none, gets the leaf.
fn climb_any(nodes: &mut [u64], leaf: u32, key: u64) -> (u64, u64) {
    nodes[0] = u64::from(leaf);
    // The length is a power of two, so a masked index needs no check.
    let mask = nodes.len() - 1;
    let mut node = nodes.len() / 2 + leaf as usize;
    nodes[node & mask] = key;
    let (mut least, mut rival) = (key, IDLE);
    while node > 1 {
        let other = nodes[(node ^ 1) & mask];
        (least, rival) = (least.min(other), least.max(other));
        node >>= 1;
        nodes[node & mask] = least;
    }
    (least, rival)
}

/// No event.
const IDLE: u64 = u64::MAX;

/// The leaf of an entity without an event.
const NO_LEAF: u32 = u32::MAX;

/// The leaf of an entity whose event waits beside the tree.
const BESIDE: u32 = u32::MAX - 1;

/// The number of leaves from which on a wheel takes the place of the tree of links.
const MANY_LEAVES: usize = 0x1000;

/// The number of leaves of the smallest tree, a power of two.
const LEAST_LEAVES: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Compares both queues with the simplest one, with sets that move events earlier, later and
        // away.
        #[test]
        fn events_come_in_order(
            many in prop::bool::ANY,
            steps in prop::collection::vec((0u32..50, 0u64..3_000_000, 0u8..8), 1..400),
        ) {
            let spread = if many { 100 } else { 1 };
            let mut scheduler = Scheduler::new(25 * spread, 50 * spread);
            let mut plain = vec![u64::MAX; 50 * spread];
            let mut now = 0;
            for (id, ahead, kind) in steps {
                let id = id as usize * spread;
                let time = match kind { 0 => u64::MAX, 1 => now + (ahead << 16), _ => now + ahead };
                plain[id] = time;
                match kind {
                    2 if id >= 25 * spread => scheduler.set_timer(id as u32, Time(time)),
                    _ => scheduler.set(id as u32, Time(time)),
                }
                prop_assert_eq!(scheduler.pending(id as u32), Time(time));
                if kind > 4 {
                    let expected = plain.iter().enumerate().map(|(i, &t)| (t, i)).min().unwrap();
                    let got = scheduler.next_before(scheduler.bound(Time::NEVER));
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

    proptest! {
        // The same of a wheel, with events near and far, which fills and empties.
        #[test]
        fn events_of_a_wheel_come_in_order(
            pending in prop::collection::vec(0u64..100_000, 1..200),
            steps in prop::collection::vec((0u32..400, 0u64..100_000, 0u8..8), 1..800),
        ) {
            let mut scheduler = Scheduler::new(300, 400);
            let mut plain = vec![u64::MAX; 400];
            for (id, &time) in pending.iter().enumerate() {
                plain[id] = time;
                scheduler.set(id as u32, Time(time));
            }
            scheduler.fill_wheel();
            let mut now = 0;
            for (id, ahead, kind) in steps {
                let time = match kind {
                    0 => u64::MAX,
                    1 => now + (ahead << 16),
                    2 => now + ahead % 64,
                    _ => now + ahead,
                };
                let idle = std::mem::replace(&mut plain[id as usize], time) == u64::MAX;
                if kind == 2 && idle && id < 300 {
                    prop_assert!(!scheduler.begin_unless_next(id, Time(time), TimeBound(IDLE)));
                } else {
                    scheduler.set(id, Time(time));
                }
                prop_assert_eq!(scheduler.pending(id), Time(time));
                prop_assert!(scheduler.arrange());
                if kind > 3 {
                    let (time, first) = plain.iter().enumerate().map(|(i, &t)| (t, i)).min().unwrap();
                    let expected = (time < u64::MAX).then_some((Time(time), first as u32));
                    prop_assert_eq!(scheduler.next_of_many(scheduler.bound(Time::NEVER)), expected);
                    if time < u64::MAX {
                        now = time;
                        plain[first] = u64::MAX;
                        scheduler.set(first as u32, Time::NEVER);
                        prop_assert_eq!(scheduler.pending(first as u32), Time::NEVER);
                    }
                }
            }
        }
    }

    #[test]
    fn a_late_event_leaves_the_place_beside_the_tree() {
        let mut scheduler = Scheduler::new(16, 16);
        (2..16).for_each(|id| scheduler.set(id, Time(100 + u64::from(id))));
        // The first of all found the tree empty.
        assert_eq!(scheduler.links.leaf_of[2], BESIDE);
        scheduler.set(2, Time::NEVER);
        scheduler.set(0, Time(10));
        assert_eq!(scheduler.links.leaf_of[0], BESIDE);
        scheduler.set(0, Time(1000));
        assert_ne!(scheduler.links.leaf_of[0], BESIDE);
        scheduler.set(1, Time(20));
        assert_eq!(scheduler.links.leaf_of[1], BESIDE);
    }

    #[test]
    fn growing_keeps_what_is_pending() {
        let mut scheduler = Scheduler::new(2, 4);
        scheduler.set(3, Time(70));
        scheduler.set(1, Time(70));
        scheduler.grow(10_000);
        scheduler.set(9_999, Time(60));
        assert_eq!(scheduler.next_before(scheduler.bound(Time(61))), Some((Time(60), 9_999)));
        scheduler.set(9_999, Time::NEVER);
        assert_eq!(scheduler.next_before(scheduler.bound(Time(70))), None);
        assert_eq!(scheduler.next_before(scheduler.bound(Time(71))), Some((Time(70), 1)));
    }
}
