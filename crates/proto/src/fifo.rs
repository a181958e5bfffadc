//! A queue for handles: the function of `VecDeque` in 24 bytes and without its general cases.

/// First in, first out, in a ring that doubles when full. An empty new queue owns no memory.
#[derive(Clone, Debug)]
pub struct Fifo<T> {
    slots: Box<[T]>,
    head: u32,
    len: u32,
}

impl<T: Copy + Default> Fifo<T> {
    /// An empty queue.
    pub fn new() -> Fifo<T> {
        Fifo { slots: Box::default(), head: 0, len: 0 }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element.
    #[inline]
    pub fn front(&self) -> Option<T> {
        (self.len > 0).then(|| self.slots[self.index(0)])
    }

    /// The last element.
    #[inline]
    pub fn back(&self) -> Option<T> {
        (self.len > 0).then(|| self.slots[self.index(self.len - 1)])
    }

    /// The `i`-th element.
    #[inline]
    pub fn get(&self, i: u32) -> Option<T> {
        (i < self.len).then(|| self.slots[self.index(i)])
    }

    /// The place of the first element, which is none in an empty queue.
    #[inline]
    pub fn first_place(&self) -> *const T {
        self.slots.as_ptr().wrapping_add(self.index(0))
    }

    /// Appends an element.
    #[inline]
    pub fn push_back(&mut self, value: T) {
        if self.len as usize == self.slots.len() {
            self.grow();
        }
        let at = self.index(self.len);
        self.slots[at] = value;
        self.len += 1;
    }

    /// Removes the first element.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let first = self.front()?;
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        Some(first)
    }

    /// Removes the last element.
    pub fn pop_back(&mut self) -> Option<T> {
        let last = self.back()?;
        self.len -= 1;
        Some(last)
    }

    /// Iterates from first to last.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        (0..self.len).map(|i| self.slots[self.index(i)])
    }

    /// The place of the `i`-th element. The ring's size is a power of two, so a masked index needs
    /// no bounds check.
    #[inline]
    fn index(&self, i: u32) -> usize {
        self.head.wrapping_add(i) as usize & self.slots.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let mut slots = vec![T::default(); (2 * self.slots.len()).max(LEAST)].into_boxed_slice();
        for (slot, value) in slots.iter_mut().zip(self.iter()) {
            *slot = value;
        }
        self.slots = slots;
        self.head = 0;
    }
}

impl<T: Copy + Default> Default for Fifo<T> {
    fn default() -> Fifo<T> {
        Fifo::new()
    }
}

/// Capacity of the first allocation.
const LEAST: usize = 2;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn does_what_the_standard_one_does(steps in prop::collection::vec(0u8..8, 0..300)) {
            let mut fifo = Fifo::new();
            let mut plain = VecDeque::new();
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    0..5 => {
                        fifo.push_back(i);
                        plain.push_back(i);
                    }
                    5..7 => prop_assert_eq!(fifo.pop_front(), plain.pop_front()),
                    _ => prop_assert_eq!(fifo.pop_back(), plain.pop_back()),
                }
                prop_assert_eq!(fifo.front(), plain.front().copied());
                prop_assert_eq!(fifo.back(), plain.back().copied());
                prop_assert_eq!(fifo.len() as usize, plain.len());
                prop_assert!(fifo.iter().eq(plain.iter().copied()));
            }
        }
    }
}
