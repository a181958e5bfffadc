//! A digest over results: equal results, equal digest, on every machine.

/// FNV-1a over 64-bit words, rotated so that their order counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    pub(super) fn number(&mut self, number: f64) {
        self.word(number.to_bits());
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}
