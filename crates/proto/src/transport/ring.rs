//! A table of segments addressed by their number.

/// Slots for a run of consecutive segment numbers. A segment's slot is its number modulo a power of
/// two, so the run advances without moving entries. An empty ring owns no memory.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T> {
    slots: Box<[T]>,
}

impl<T: Copy + Default> Ring<T> {
    pub(crate) fn new() -> Ring<T> {
        Ring { slots: Box::default() }
    }

    /// Number of consecutive segments with a slot.
    #[inline]
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The slot of `seq`, which must have been [reserved](Ring::reserve).
    #[inline]
    pub(crate) fn get(&self, seq: u32) -> T {
        self.slots[seq as usize & (self.slots.len() - 1)]
    }

    /// The slot of `seq`, mutable; it must have been [reserved](Ring::reserve).
    #[inline]
    pub(crate) fn at(&mut self, seq: u32) -> &mut T {
        let mask = self.slots.len() - 1;
        &mut self.slots[seq as usize & mask]
    }

    /// Ensures that the `len` segments from `first` on have slots, and keeps their content.
    #[inline]
    pub(crate) fn reserve(&mut self, first: u32, len: u32) {
        if len > self.capacity() {
            self.resize(first, len);
        }
    }

    /// Frees most slots, if the `len` segments from `first` on need few.
    pub(crate) fn fit(&mut self, first: u32, len: u32) {
        if self.capacity() / 4 >= len.max(LEAST) {
            self.resize(first, len);
        }
    }

    #[cold]
    fn resize(&mut self, first: u32, len: u32) {
        let capacity = len.next_power_of_two().max(LEAST);
        let mut slots = vec![T::default(); capacity as usize].into_boxed_slice();
        for i in 0..self.capacity().min(capacity) {
            let seq = first.wrapping_add(i);
            slots[seq as usize & (capacity as usize - 1)] = self.get(seq);
        }
        self.slots = slots;
    }
}

/// The first allocation, slots.
const LEAST: u32 = 8;
