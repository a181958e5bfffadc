//! A subset of a destination set, one bit a destination.

/// Bits 0 to `len` − 1 of a set; up to 64 without allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bits {
    /// At most 64 destinations.
    Few(u64),
    /// More.
    Many(Vec<u64>),
}

impl Bits {
    /// No bit of `len`.
    pub fn none(len: usize) -> Bits {
        if len <= 64 { Bits::Few(0) } else { Bits::Many(vec![0; len.div_ceil(64)]) }
    }

    /// All bits of `len`.
    pub fn all(len: usize) -> Bits {
        if len < 64 {
            return Bits::Few((1 << len) - 1);
        }
        let mut bits = Bits::none(len);
        for index in 0..len {
            bits.insert(index);
        }
        bits
    }

    /// Adds a bit; one beyond the set is ignored.
    pub fn insert(&mut self, index: usize) {
        if let Some(word) = self.words_mut().get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Removes a bit, and answers whether it was there.
    pub fn remove(&mut self, index: usize) -> bool {
        let Some(word) = self.words_mut().get_mut(index / 64) else { return false };
        let mask = 1 << (index % 64);
        let had = *word & mask != 0;
        *word &= !mask;
        had
    }

    /// True if the bit is set.
    pub fn contains(&self, index: usize) -> bool {
        self.words().get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// True if no bit is set.
    pub fn is_empty(&self) -> bool {
        self.words().iter().all(|&word| word == 0)
    }

    /// The bits that are in both.
    pub fn and(&self, other: &Bits) -> Bits {
        match (self, other) {
            (Bits::Few(a), Bits::Few(b)) => Bits::Few(a & b),
            (a, b) => Bits::Many(a.words().iter().zip(b.words()).map(|(a, b)| a & b).collect()),
        }
    }

    /// The number of bits that are set.
    pub fn count(&self) -> usize {
        self.words().iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The indices of the bits, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().iter().enumerate().flat_map(|(at, &word)| {
            // Each step clears the lowest bit.
            let rest = std::iter::successors(Some(word), |word| Some(word & word.wrapping_sub(1)));
            rest.take_while(|&word| word != 0).map(move |word| at * 64 + word.trailing_zeros() as usize)
        })
    }

    /// The words, least first.
    pub fn words(&self) -> &[u64] {
        match self {
            Bits::Few(word) => std::slice::from_ref(word),
            Bits::Many(words) => words,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Bits::Few(word) => std::slice::from_mut(word),
            Bits::Many(words) => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_agree() {
        for len in [0, 1, 63, 64, 65, 200] {
            let mut bits = Bits::all(len);
            assert_eq!(bits.iter().collect::<Vec<_>>(), (0..len).collect::<Vec<_>>(), "{len}");
            assert_eq!(bits.count(), len);
            for index in (0..len).step_by(3) {
                assert!(bits.remove(index) && !bits.remove(index));
            }
            assert!((0..len).all(|index| bits.contains(index) == (index % 3 != 0)));
            assert_eq!(bits.iter().count(), bits.count());
            assert_eq!(bits.and(&Bits::all(len)), bits);
            assert!(bits.and(&Bits::none(len)).is_empty());
            assert!(!bits.contains(len + 64) && !bits.remove(len + 64));
        }
    }
}
