//! A 32-bit significand with an exponent, in 64-bit integer arithmetic: the XCP study's `shiftint`, normalised.

use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Sub};

use super::number::{Accumulator, Number, assemble, parts};

/// ±significand · 2^exponent with 32 bits of significand: what a kernel without floats and with 64-bit products can
/// calculate with (XCP study, "Scaling Analysis").
///
/// The study keeps a scale and a shift apart; here they are one exponent, and the significand always has its top bit
/// set (or is 0), so an operation errs by at most one part in 2³¹.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift32 {
    significand: u32,
    exponent: i16,
    negative: bool,
}

impl Shift32 {
    /// ±`significand` · 2^`exponent`, rounded to 32 bits.
    #[inline]
    fn rounded(negative: bool, significand: u64, exponent: i32) -> Shift32 {
        if significand == 0 {
            return Shift32::ZERO;
        }
        let lead = significand.leading_zeros() as i32;
        let (mut top, mut exponent) = (((significand << lead) >> 31) + 1, exponent + 32 - lead);
        if top >> 33 != 0 {
            // Rounding carried into a new bit.
            top >>= 1;
            exponent += 1;
        }
        if exponent.abs() > EXPONENT_MOST {
            if exponent < 0 {
                return Shift32::ZERO;
            }
            exponent = EXPONENT_MOST;
        }
        Shift32 { significand: (top >> 1) as u32, exponent: exponent as i16, negative }
    }

    /// Orders like the number: magnitudes of normalised numbers order as exponent, then significand.
    #[inline]
    fn key(self) -> i64 {
        let magnitude =
            ((i64::from(self.exponent) - i64::from(i16::MIN)) << 32) | i64::from(self.significand);
        if self.negative { -magnitude } else { magnitude }
    }
}

impl PartialOrd for Shift32 {
    #[inline]
    fn partial_cmp(&self, other: &Shift32) -> Option<Ordering> {
        Some(self.key().cmp(&other.key()))
    }
}

impl Add for Shift32 {
    type Output = Shift32;

    #[inline]
    fn add(self, other: Shift32) -> Shift32 {
        let (large, small) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        // 31 bits of room below keep what alignment shifts out, one above is for the carry.
        let distance = i32::from(large.exponent) - i32::from(small.exponent);
        let left = u64::from(large.significand) << 31;
        let right = if distance < 63 { (u64::from(small.significand) << 31) >> distance } else { 0 };
        let exponent = i32::from(large.exponent) - 31;
        if large.negative == small.negative {
            Shift32::rounded(large.negative, left + right, exponent)
        } else if left >= right {
            Shift32::rounded(large.negative, left - right, exponent)
        } else {
            Shift32::rounded(small.negative, right - left, exponent)
        }
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
        let product = u64::from(self.significand) * u64::from(other.significand);
        let exponent = i32::from(self.exponent) + i32::from(other.exponent);
        Shift32::rounded(self.negative != other.negative, product, exponent)
    }
}

impl Div for Shift32 {
    type Output = Shift32;

    /// The quotient; by nought, the largest number.
    fn div(self, other: Shift32) -> Shift32 {
        let exponent = i32::from(self.exponent) - i32::from(other.exponent) - 32;
        match (u64::from(self.significand) << 32).checked_div(u64::from(other.significand)) {
            Some(quotient) => Shift32::rounded(self.negative != other.negative, quotient, exponent),
            None => Shift32::rounded(self.negative, u64::from(self.significand), EXPONENT_MOST),
        }
    }
}

impl Number for Shift32 {
    type Sum = Sum64;

    const ZERO: Shift32 = Shift32 { significand: 0, exponent: i16::MIN, negative: false };

    #[inline]
    fn from_count(count: u64) -> Shift32 {
        Shift32::rounded(false, count, 0)
    }

    #[inline]
    fn from_amount(bits: u64) -> Shift32 {
        let (negative, significand, exponent) = parts(bits);
        Shift32::rounded(negative, significand, exponent)
    }

    #[inline]
    fn from_seconds(bits: u32) -> Shift32 {
        // A sane float is positive and normal, and its 24 bits fit: no rounding.
        match bits >> 23 {
            0 => Shift32::ZERO,
            exponent => Shift32 {
                significand: (bits & 0x7f_ffff | 0x80_0000) << 8,
                exponent: exponent as i16 - (150 + 8),
                negative: false,
            },
        }
    }

    #[inline]
    fn to_amount(self) -> u64 {
        assemble(self.negative, u64::from(self.significand), i32::from(self.exponent))
    }

    fn to_count(self) -> u64 {
        let significand = u64::from(self.significand);
        match i32::from(self.exponent) {
            _ if self.negative => 0,
            down @ -33..0 => (significand + (1 << (-down - 1))) >> -down,
            up @ 0..=32 => significand << up,
            33.. => u64::MAX,
            _ => 0,
        }
    }
}

/// A sum of [`Shift32`] with 64 bits of significand: 2²⁰ packets lose under one part in 2⁴⁰ of it.
///
/// A 32-bit sum would not do: near its end a pool is as small as one packet's share, but has kept the rounding of
/// its beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum64 {
    significand: u64,
    exponent: i16,
}

impl Sum64 {
    /// `part` in units of this sum's last bit, cut; `None` if it is beyond its first.
    #[inline]
    fn aligned(self, part: Shift32) -> Option<u64> {
        let up = i32::from(part.exponent) - i32::from(self.exponent);
        match up {
            0..=31 => Some(u64::from(part.significand) << up),
            -31..0 => Some(u64::from(part.significand) >> -up),
            32.. => None,
            _ => Some(0),
        }
    }
}

impl Accumulator<Shift32> for Sum64 {
    #[inline]
    fn holding(first: Shift32) -> Sum64 {
        match first.significand {
            0 => Sum64 { significand: 0, exponent: i16::MIN },
            significand => Sum64 { significand: u64::from(significand) << 31, exponent: first.exponent - 31 },
        }
    }

    #[inline]
    fn put(&mut self, part: Shift32) {
        if self.significand == 0 {
            *self = Sum64::holding(part);
            return;
        }
        match self.aligned(part) {
            Some(part) => self.significand += part,
            None => {
                // The part is larger than all there is: make it the measure, with what there is added.
                let mut sum = Sum64::holding(part);
                let down = i32::from(sum.exponent) - i32::from(self.exponent);
                sum.significand += if down < 64 { self.significand >> down } else { 0 };
                *self = sum;
            }
        }
        if self.significand >> 63 != 0 {
            self.significand >>= 1;
            self.exponent += 1;
        }
    }

    #[inline]
    fn take(&mut self, part: Shift32) {
        if self.significand != 0 {
            self.significand = self.aligned(part).map_or(0, |part| self.significand.saturating_sub(part));
        }
    }

    #[inline]
    fn value(self) -> Shift32 {
        Shift32::rounded(false, self.significand, i32::from(self.exponent))
    }
}

/// The range of exponents: beyond any product of three sane amounts, and well inside 16 bits.
const EXPONENT_MOST: i32 = 4000;
