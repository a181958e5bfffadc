//! Maps by numbers that the kernel gives out.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by cookie or inode. Every connection is looked up at every tick.
pub(super) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<Number>>;

/// One multiplication: nobody can choose these numbers so that they meet.
#[derive(Debug, Default)]
pub(super) struct Number(u64);

impl Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * SPREAD;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// 2⁶⁴ by the golden ratio.
const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15;
