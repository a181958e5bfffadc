//! 128-bit fixed point with 64 bits behind the point: the reference for integer routers.

use std::ops::{Add, Div, Mul, Sub};

use super::number::{Accumulator, Number, assemble, parts};

/// A number in units of 2⁻⁶⁴, up to 2⁶³. The XCP study's table requires 96 bits; this has more on
/// both sides.
///
/// Every operation is exact to one unit and saturates. Bytes per second, seconds and their
/// quotients fit if an interval's Σ X exceeds 2⁻²⁶ s on a 1 Tb/s link. One packet of a sender at
/// full rate is twelve nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Fixed128(i128);

impl Fixed128 {
    /// `magnitude`, negated if `negative`.
    #[inline]
    fn signed(negative: bool, magnitude: u128) -> Fixed128 {
        let magnitude = i128::try_from(magnitude).unwrap_or(i128::MAX);
        Fixed128(if negative { -magnitude } else { magnitude })
    }

    /// ±`significand` · 2^`exponent`.
    #[inline]
    fn scaled(negative: bool, significand: u64, exponent: i32) -> Fixed128 {
        let wide = u128::from(significand);
        let magnitude = match exponent + POINT {
            up @ 0.. if (up as u32) < wide.leading_zeros() => wide << up,
            down @ -127..0 => wide >> -down,
            0.. if significand != 0 => u128::MAX,
            _ => 0,
        };
        Fixed128::signed(negative, magnitude)
    }
}

impl Add for Fixed128 {
    type Output = Fixed128;

    #[inline]
    fn add(self, other: Fixed128) -> Fixed128 {
        Fixed128(self.0.saturating_add(other.0))
    }
}

impl Sub for Fixed128 {
    type Output = Fixed128;

    #[inline]
    fn sub(self, other: Fixed128) -> Fixed128 {
        Fixed128(self.0.saturating_sub(other.0))
    }
}

impl Mul for Fixed128 {
    type Output = Fixed128;

    #[inline]
    fn mul(self, other: Fixed128) -> Fixed128 {
        let halves = |n: i128| (n.unsigned_abs() >> 64, n.unsigned_abs() & u128::from(u64::MAX));
        let ((a, b), (c, d)) = (halves(self.0), halves(other.0));
        // (a + b/2⁶⁴)(c + d/2⁶⁴); a·c is the only part that can be too large by itself.
        let whole = if (a * c) >> 63 == 0 { (a * c) << 64 } else { u128::MAX };
        let magnitude = whole.saturating_add(a * d).saturating_add(b * c).saturating_add((b * d) >> 64);
        Fixed128::signed((self.0 < 0) != (other.0 < 0), magnitude)
    }
}

impl Div for Fixed128 {
    type Output = Fixed128;

    /// The quotient; the largest number if `other` is 0.
    fn div(self, other: Fixed128) -> Fixed128 {
        let negative = (self.0 < 0) != (other.0 < 0);
        let (dividend, divisor) = (self.0.unsigned_abs(), other.0.unsigned_abs());
        if divisor == 0 || (dividend / divisor) >> 63 != 0 {
            return Fixed128::signed(negative, u128::MAX);
        }
        // Long division, a bit at a time: only at the end of an interval, and 192-bit division is
        // nowhere built in.
        let (mut quotient, mut rest) = (dividend / divisor, dividend % divisor);
        for _ in 0..POINT {
            rest <<= 1;
            quotient <<= 1;
            if rest >= divisor {
                rest -= divisor;
                quotient |= 1;
            }
        }
        Fixed128::signed(negative, quotient)
    }
}

impl Number for Fixed128 {
    type Sum = Fixed128;

    const ZERO: Fixed128 = Fixed128(0);

    #[inline]
    fn from_count(count: u64) -> Fixed128 {
        Fixed128::signed(false, u128::from(count) << POINT)
    }

    #[inline]
    fn from_amount(bits: u64) -> Fixed128 {
        let (negative, significand, exponent) = parts(bits);
        Fixed128::scaled(negative, significand, exponent)
    }

    #[inline]
    fn from_seconds(bits: u32) -> Fixed128 {
        match bits >> 23 {
            0 => Fixed128::ZERO,
            exponent => {
                Fixed128::scaled(false, u64::from(bits & 0x7f_ffff | 0x80_0000), exponent as i32 - 150)
            }
        }
    }

    #[inline]
    fn to_amount(self) -> u64 {
        let magnitude = self.0.unsigned_abs();
        let excess = 64 - magnitude.leading_zeros().min(64) as i32;
        assemble(self.0 < 0, (magnitude >> excess) as u64, excess - POINT)
    }

    fn to_count(self) -> u64 {
        let rounded = self.0.saturating_add(1 << (POINT - 1)) >> POINT;
        u64::try_from(rounded).unwrap_or(0)
    }
}

impl Accumulator<Fixed128> for Fixed128 {
    #[inline]
    fn holding(first: Fixed128) -> Fixed128 {
        first
    }

    #[inline]
    fn put(&mut self, part: Fixed128) {
        *self = *self + part;
    }

    #[inline]
    fn draw(&mut self, part: Fixed128) -> Fixed128 {
        let drawn = part.least(*self);
        *self = *self - drawn;
        drawn
    }

    #[inline]
    fn value(self) -> Fixed128 {
        self
    }
}

/// Fractional bits.
const POINT: i32 = 64;
