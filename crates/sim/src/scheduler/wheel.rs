//! The events of links in a large network: buckets of equal time, of which the next ones are sorted.
//!
//! What the next events touch is in no cache. A tree only knows the first of them; here they stand
//! in order, so that their memory can be loaded early.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::IDLE;

/// The pending events of links, as keys of the [`Scheduler`](super::Scheduler).
#[derive(Debug)]
pub(super) struct Wheel {
    /// The bits of a key that hold the id.
    ids: u64,
    /// A key shifted right by this is the number of its bucket.
    shift: u32,
    /// The pending event of each entity. Other keys of an entity are out of date.
    due: Vec<u64>,
    /// The keys of all buckets up to `opened`, in order, from `head` on.
    near: Vec<u64>,
    head: usize,
    opened: u64,
    /// The last block of each of the next buckets, by number modulo their count.
    buckets: Vec<u32>,
    blocks: Vec<Block>,
    /// The first free block.
    free: u32,
    /// The number of keys in blocks.
    waiting: usize,
    /// Keys after all buckets.
    far: BinaryHeap<Reverse<u64>>,
    /// The number of keys for which the buckets were made.
    made_for: usize,
}

/// A cache line of keys of a bucket.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Block {
    keys: [u64; IN_BLOCK],
    len: u32,
    /// The block before it.
    next: u32,
}

impl Wheel {
    /// Creates a wheel for the entities of `due`, their pending events, with `bits` bits of id.
    pub(super) fn new(due: Vec<u64>, bits: u32) -> Wheel {
        let mut keys: Vec<u64> = due.iter().copied().filter(|&key| key != IDLE).collect();
        keys.sort_unstable();
        let (first, last) = (keys.first().copied().unwrap_or(0), keys.last().copied().unwrap_or(0));
        // Events are densest in the near future.
        let middle = keys.len() / 2;
        let each = (keys.get(middle).map_or(0, |key| key - first) / middle.max(1) as u64).max(1);
        let shift = (each * IN_BUCKET).ilog2().max(bits);
        let buckets = ((last - first) >> shift).next_power_of_two().clamp(1 << 8, 1 << 16) as usize;
        let mut wheel = Wheel {
            ids: (1 << bits) - 1,
            shift,
            due,
            near: Vec::new(),
            head: 0,
            opened: first >> shift,
            buckets: vec![NONE; buckets],
            blocks: Vec::new(),
            free: NONE,
            waiting: 0,
            far: BinaryHeap::new(),
            made_for: keys.len(),
        };
        keys.into_iter().for_each(|key| wheel.insert(key));
        wheel
    }

    /// Makes the buckets anew if there are far more or far fewer keys than they were made for.
    pub(super) fn adapt(&mut self, bits: u32) {
        let keys = self.near.len() - self.head + self.waiting + self.far.len();
        if keys > 4 * self.made_for || keys < self.made_for / 16 {
            *self = Wheel::new(std::mem::take(&mut self.due), bits);
        }
    }

    pub(super) fn get(&self, id: usize) -> u64 {
        self.due[id]
    }

    /// Sets or replaces the event of `id`; [`IDLE`] removes it.
    #[inline]
    pub(super) fn set(&mut self, id: usize, key: u64) {
        if std::mem::replace(&mut self.due[id], key) != key && key != IDLE {
            self.insert(key);
        }
    }

    #[inline]
    fn insert(&mut self, key: u64) {
        let bucket = key >> self.shift;
        if bucket <= self.opened {
            let at = self.head + self.near[self.head..].partition_point(|&other| other < key);
            self.near.insert(at, key);
            return;
        }
        if bucket - self.opened >= self.buckets.len() as u64 {
            self.far.push(Reverse(key));
            return;
        }
        self.waiting += 1;
        let slot = bucket as usize & (self.buckets.len() - 1);
        let mut at = self.buckets[slot];
        if self.blocks.get(at as usize).is_none_or(|block| block.len as usize == IN_BLOCK) {
            let new = self.allocate();
            self.blocks[new as usize].next = at;
            self.buckets[slot] = new;
            at = new;
        }
        let block = &mut self.blocks[at as usize];
        block.keys[block.len as usize % IN_BLOCK] = key;
        block.len += 1;
    }

    fn allocate(&mut self) -> u32 {
        let empty = Block { keys: [IDLE; IN_BLOCK], len: 0, next: NONE };
        let at = self.free;
        match self.blocks.get_mut(at as usize) {
            Some(block) => {
                self.free = block.next;
                block.len = 0;
                at
            }
            None => {
                self.blocks.push(empty);
                self.blocks.len() as u32 - 1
            }
        }
    }

    /// The earliest key; [`IDLE`] without any.
    #[inline]
    pub(super) fn peek(&mut self) -> u64 {
        loop {
            if self.near.len() - self.head < AHEAD {
                self.open();
            }
            let Some(&key) = self.near.get(self.head) else { return IDLE };
            if self.due[(key & self.ids) as usize] == key {
                return key;
            }
            self.head += 1;
        }
    }

    /// Removes the key that [`peek`](Wheel::peek) returned.
    #[inline]
    pub(super) fn take(&mut self) {
        self.due[(self.near[self.head] & self.ids) as usize] = IDLE;
        self.head += 1;
    }

    /// The entities of the next keys, of which the last is the earliest. The number may be that of
    /// no entity.
    #[inline]
    pub(super) fn ahead(&self) -> [u32; 4] {
        let next = |i: usize| self.near.get(self.head + i).map_or(NONE, |key| (key & self.ids) as u32);
        [next(15), next(10), next(6), next(2)]
    }

    /// The memory of an entity's event, to be loaded early.
    #[inline]
    pub(super) fn place(&self, id: u32) -> *const u64 {
        self.due.as_ptr().wrapping_add(id as usize)
    }

    /// Opens buckets until enough keys are sorted.
    #[inline(never)]
    fn open(&mut self) {
        self.near.drain(..std::mem::take(&mut self.head));
        while self.near.len() < AHEAD {
            self.opened = match (self.waiting, self.far.peek()) {
                (0, None) => return,
                (0, Some(Reverse(key))) => key >> self.shift,
                _ => self.opened + 1,
            };
            let start = self.near.len();
            let slot = self.opened as usize & (self.buckets.len() - 1);
            let mut at = std::mem::replace(&mut self.buckets[slot], NONE);
            while let Some(block) = self.blocks.get_mut(at as usize) {
                self.near.extend_from_slice(&block.keys[..block.len as usize]);
                self.waiting -= block.len as usize;
                let next = std::mem::replace(&mut block.next, self.free);
                self.free = std::mem::replace(&mut at, next);
            }
            while let Some(&Reverse(key)) = self.far.peek()
                && key >> self.shift <= self.opened
            {
                self.far.pop();
                self.near.push(key);
            }
            self.near[start..].sort_unstable();
        }
    }
}

/// Number of keys that are kept in order.
const AHEAD: usize = 16;

/// Keys of a bucket that is opened, about.
const IN_BUCKET: u64 = 32;

/// Keys of a block, which is a cache line.
const IN_BLOCK: usize = 7;

/// No block, no entity.
const NONE: u32 = u32::MAX;
