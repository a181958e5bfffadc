//! A 32-bit significand with an exponent, in 64-bit integer arithmetic: the XCP study's `shiftint`,
//! normalised.

use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Sub};

use super::number::{Accumulator, Number, assemble, parts};

/// ±significand · 2^exponent with 32 bits of significand: the arithmetic of a kernel without floats
/// and with 64-bit products (XCP study, "Scaling Analysis").
///
/// The study keeps a scale and a shift separate; here they are one exponent. The significand always
/// has its top bit set (or is 0), so an operation errs by less than one part in 2³¹. The exponent
/// would fit the study's 16 bits: inputs are within 2^±100, and a result needs a handful of
/// operations, so there is no check. 32 bits need fewer instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift32 {
    significand: u32,
    exponent: i32,
    negative: bool,
}

impl Shift32 {
    /// ±`significand` · 2^`exponent`, rounded to 32 bits.
    #[inline]
    fn rounded(negative: bool, significand: u64, exponent: i32) -> Shift32 {
        if significand == 0 {
            return Shift32::ZERO;
        }
        let lead = significand.leading_zeros();
        // Saturated, what would carry into a new bit stays the largest of its exponent.
        let top = (significand << lead).saturating_add(1 << 31) >> 32;
        Shift32 { significand: top as u32, exponent: exponent + 32 - lead as i32, negative }
    }

    /// A key in the order of the numbers: magnitudes of normalised numbers order by exponent, then
    /// significand.
    #[inline]
    fn key(self) -> i64 {
        let magnitude = ((i64::from(self.exponent) - i64::from(NOUGHT)) << 32) | i64::from(self.significand);
        if self.negative { -magnitude } else { magnitude }
    }

    /// The significand with its sign, with 30 more bits for alignment.
    #[inline]
    fn aligned(self) -> i64 {
        let wide = i64::from(self.significand) << 30;
        if self.negative { -wide } else { wide }
    }
}

impl PartialOrd for Shift32 {
    #[inline]
    fn partial_cmp(&self, other: &Shift32) -> Option<Ordering> {
        Some(self.key().cmp(&other.key()))
    }

    #[inline]
    fn lt(&self, other: &Shift32) -> bool {
        self.key() < other.key()
    }

    #[inline]
    fn gt(&self, other: &Shift32) -> bool {
        self.key() > other.key()
    }
}

impl Add for Shift32 {
    type Output = Shift32;

    #[inline]
    fn add(self, other: Shift32) -> Shift32 {
        let up = self.exponent - other.exponent;
        let sum = (self.aligned() >> (-up).clamp(0, 63)) + (other.aligned() >> up.clamp(0, 63));
        Shift32::rounded(sum < 0, sum.unsigned_abs(), self.exponent.max(other.exponent) - 30)
    }
}

impl Sub for Shift32 {
    type Output = Shift32;

    #[inline]
    fn sub(self, other: Shift32) -> Shift32 {
        self + Shift32 { negative: !other.negative && other.significand != 0, ..other }
    }
}

impl Mul for Shift32 {
    type Output = Shift32;

    #[inline]
    fn mul(self, other: Shift32) -> Shift32 {
        // Of two significands with their top bit set the product has 63 or 64 bits.
        let product = u64::from(self.significand) * u64::from(other.significand);
        if product == 0 {
            return Shift32::ZERO;
        }
        // Half of the last bit that stays if it has 63, a quarter if 64: the sum cannot overflow.
        let product = product + (1 << 30);
        let shift = 31 + (product >> 63) as i32;
        Shift32 {
            significand: (product >> shift) as u32,
            exponent: self.exponent + other.exponent + shift,
            negative: self.negative != other.negative,
        }
    }
}

impl Div for Shift32 {
    type Output = Shift32;

    /// The quotient; the largest number if `other` is 0.
    fn div(self, other: Shift32) -> Shift32 {
        let (dividend, divisor) = (u64::from(self.significand) << 32, u64::from(other.significand));
        match (dividend + divisor / 2).checked_div(divisor) {
            Some(_) if dividend == 0 => Shift32::ZERO,
            Some(quotient) => {
                let exponent = self.exponent - other.exponent - 32;
                Shift32::rounded(self.negative != other.negative, quotient, exponent)
            }
            None => Shift32 { exponent: BEYOND, ..self },
        }
    }
}

impl Number for Shift32 {
    type Sum = Sum64;

    const ZERO: Shift32 = Shift32 { significand: 0, exponent: NOUGHT, negative: false };

    #[inline]
    fn from_count(count: u64) -> Shift32 {
        Shift32::rounded(false, count, 0)
    }

    #[inline]
    fn from_amount(bits: u64) -> Shift32 {
        let (negative, significand, exponent) = parts(bits);
        // A sane double has all of its 53 bits, or none.
        if significand == 0 {
            return Shift32::ZERO;
        }
        let top = ((significand + (1 << 20)) >> 21).min(u64::from(u32::MAX));
        Shift32 { significand: top as u32, exponent: exponent + 21, negative }
    }

    #[inline]
    fn from_seconds(bits: u32) -> Shift32 {
        // A sane float is positive and normal, and its 24 bits fit: no rounding.
        match bits >> 23 {
            0 => Shift32::ZERO,
            exponent => Shift32 {
                significand: (bits & 0x7f_ffff | 0x80_0000) << 8,
                exponent: exponent as i32 - (150 + 8),
                negative: false,
            },
        }
    }

    #[inline]
    fn to_amount(self) -> u64 {
        assemble(self.negative, u64::from(self.significand), self.exponent)
    }

    fn to_count(self) -> u64 {
        let significand = u64::from(self.significand);
        match self.exponent {
            _ if self.negative => 0,
            down @ -33..0 => (significand + (1 << (-down - 1))) >> -down,
            up @ 0..=32 => significand << up,
            33.. => u64::MAX,
            _ => 0,
        }
    }
}

/// A sum of [`Shift32`] with 64 bits of significand: 2²⁰ packets lose less than one part in 2⁴⁰.
///
/// A 32-bit sum is not enough: near its end a pool is as small as one packet's share, but still has
/// the rounding error of its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum64 {
    significand: u64,
    exponent: i32,
}

impl Sum64 {
    /// `part` in units of this sum's last bit, truncated; `None` if it exceeds the first bit.
    /// (Zero, on either side, has the least exponent and needs no special case.)
    #[inline]
    fn aligned(self, part: Shift32) -> Option<u64> {
        let up = part.exponent - self.exponent;
        match up {
            0..=31 => Some(u64::from(part.significand) << up),
            32.. => None,
            _ => Some(u64::from(part.significand) >> (-up).min(63)),
        }
    }

    /// Rescales the sum to `part`, which is larger than the sum.
    #[cold]
    fn rebase(&mut self, part: Shift32) {
        let mut sum = Sum64::holding(part);
        let down = sum.exponent - self.exponent;
        sum.significand += if down < 64 { self.significand >> down } else { 0 };
        *self = sum;
    }
}

impl Accumulator<Shift32> for Sum64 {
    #[inline]
    fn holding(first: Shift32) -> Sum64 {
        match first.significand {
            0 => Sum64 { significand: 0, exponent: NOUGHT },
            significand => Sum64 { significand: u64::from(significand) << 31, exponent: first.exponent - 31 },
        }
    }

    #[inline]
    fn put(&mut self, part: Shift32) {
        match self.aligned(part) {
            Some(part) => self.significand += part,
            None => self.rebase(part),
        }
        // One bit of room is kept for the next.
        let full = self.significand >> 63;
        self.significand >>= full;
        self.exponent += full as i32;
    }

    #[inline]
    fn draw(&mut self, part: Shift32) -> Shift32 {
        match self.aligned(part) {
            Some(aligned) if aligned <= self.significand => {
                self.significand -= aligned;
                part
            }
            _ => {
                let rest = self.value();
                self.significand = 0;
                rest
            }
        }
    }

    #[inline]
    fn value(self) -> Shift32 {
        Shift32::rounded(false, self.significand, self.exponent)
    }
}

/// The exponent of zero, below any other; and that of a quotient by zero, beyond any sane number.
const NOUGHT: i32 = -32_768;
const BEYOND: i32 = 4000;
