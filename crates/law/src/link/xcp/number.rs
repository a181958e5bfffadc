//! The numbers of XCP's algorithm, the conversion of tolls to numbers, and the `f64` form.

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Sub};

/// A number representation for the XCP router: signed, with the four operations.
///
/// The algorithm ([`Xcp`](super::Xcp)) is generic over this trait. A form without floats uses
/// integer instructions only. Floats enter and leave as bit patterns: they are fields of a packet
/// to decode, not numbers to compute with. No operation panics; results out of range saturate.
pub trait Number:
    Copy + Debug + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// A sum that adds up an interval's packets, or hands out a pool, without loss of terms that
    /// are small against the total.
    type Sum: Accumulator<Self>;

    /// Zero.
    const ZERO: Self;

    /// A count: bytes, or a plain 1.
    fn from_count(count: u64) -> Self;

    /// Converts the bits of a double, as [`sane_amount`] returns them.
    fn from_amount(bits: u64) -> Self;

    /// Converts seconds from the bits of a float, as [`sane_seconds`] returns them.
    fn from_seconds(bits: u32) -> Self;

    /// The bits of the nearest double.
    fn to_amount(self) -> u64;

    /// Rounded to the nearest whole number; negative gives 0, too large gives `u64::MAX`.
    fn to_count(self) -> u64;

    /// A span in nanoseconds as seconds.
    fn from_nanos(nanos: u64) -> Self {
        Self::from_count(nanos) / Self::from_count(1_000_000_000)
    }

    /// Seconds as a span in nanoseconds, to the nearest.
    fn to_nanos(self) -> u64 {
        (self * Self::from_count(1_000_000_000)).to_count()
    }

    /// The smaller of the two.
    #[inline]
    fn least(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    /// The larger of the two.
    #[inline]
    fn most(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

/// A sum of many numbers, never below zero.
pub trait Accumulator<N>: Copy + Debug {
    /// Starts at `first`, which is not negative.
    fn holding(first: N) -> Self;

    /// Adds `part`, which is not negative.
    fn put(&mut self, part: N);

    /// Subtracts `part`, which is not negative, or the whole sum if that is less. Returns the
    /// amount.
    fn draw(&mut self, part: N) -> N;

    /// The sum.
    fn value(self) -> N;
}

/// Sanitises the bits of a float that a packet states as seconds, so that no packet can corrupt a
/// router's sums.
///
/// Negative values, NaN and values below 2⁻⁴⁰ s (a picosecond; this includes subnormals, which are
/// slow) become 0, "unknown". Values above 16 s, infinity included, become 16 s, the end of the
/// draft's 4.28-bit fields. Positive floats order like their bits, so the comparisons are integer
/// ones.
#[inline]
pub fn sane_seconds(seconds: f32) -> u32 {
    let bits = seconds.to_bits();
    if (SECONDS_LEAST..=SECONDS_INFINITE).contains(&bits) { bits.min(SECONDS_MOST) } else { 0 }
}

/// Sanitises the bits of a double that a packet or a configuration states as an amount.
///
/// NaN and magnitudes below 2⁻¹⁰⁰ become 0. Magnitudes above 2¹⁰⁰, infinities included, become
/// ±2¹⁰⁰ (1.3e30; ns-2's senders request 1e24 for "as much as possible").
#[inline]
pub fn sane_amount(amount: f64) -> u64 {
    let bits = amount.to_bits();
    let sign = bits & (1 << 63);
    let magnitude = bits & !(1 << 63);
    if (AMOUNT_LEAST..=AMOUNT_INFINITE).contains(&magnitude) { sign | magnitude.min(AMOUNT_MOST) } else { 0 }
}

/// Splits the bits of a finite, normal double into sign, significand (53 bits, 0 for zero) and
/// exponent.
#[inline]
pub(super) fn parts(bits: u64) -> (bool, u64, i32) {
    let exponent = (bits >> 52) as i32 & 0x7ff;
    if exponent == 0 {
        return (false, 0, 0);
    }
    (bits >> 63 != 0, bits & ((1 << 52) - 1) | 1 << 52, exponent - 1075)
}

/// The bits of the double ±`significand` · 2^`exponent`, truncated to 53 bits; zero or the largest
/// double if out of range.
pub(super) fn assemble(negative: bool, significand: u64, exponent: i32) -> u64 {
    if significand == 0 {
        return 0;
    }
    let sign = u64::from(negative) << 63;
    let lead = significand.leading_zeros();
    // The leading one goes to bit 63 and then out: a double does not store it.
    let fraction = (significand << lead) << 1 >> 12;
    let biased = exponent + 63 - lead as i32 + 1023;
    match biased {
        ..=0 => 0,
        1..=2046 => sign | (biased as u64) << 52 | fraction,
        _ => sign | f64::MAX.to_bits(),
    }
}

impl Number for f64 {
    type Sum = f64;

    const ZERO: f64 = 0.0;

    #[inline]
    fn from_count(count: u64) -> f64 {
        count as f64
    }

    #[inline]
    fn from_amount(bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    #[inline]
    fn from_seconds(bits: u32) -> f64 {
        f64::from(f32::from_bits(bits))
    }

    #[inline]
    fn to_amount(self) -> u64 {
        self.to_bits()
    }

    #[inline]
    fn to_count(self) -> u64 {
        // `as` saturates, and takes what is negative to zero.
        (self + 0.5) as u64
    }
}

impl Accumulator<f64> for f64 {
    #[inline]
    fn holding(first: f64) -> f64 {
        first
    }

    #[inline]
    fn put(&mut self, part: f64) {
        *self += part;
    }

    #[inline]
    fn draw(&mut self, part: f64) -> f64 {
        let drawn = part.least(*self);
        *self -= drawn;
        drawn
    }

    #[inline]
    fn value(self) -> f64 {
        self
    }
}

/// 2⁻⁴⁰ s, 16 s and infinity as a float's bits.
const SECONDS_LEAST: u32 = (127 - 40) << 23;
const SECONDS_MOST: u32 = (127 + 4) << 23;
const SECONDS_INFINITE: u32 = 255 << 23;

/// 2⁻¹⁰⁰, 2¹⁰⁰ and infinity as a double's bits.
const AMOUNT_LEAST: u64 = (1023 - 100) << 52;
const AMOUNT_MOST: u64 = (1023 + 100) << 52;
const AMOUNT_INFINITE: u64 = 2047 << 52;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Fixed128, Shift32};
    use super::*;

    /// `a` and `b` through `N`: sum, difference, product, quotient as doubles.
    fn four<N: Number>(a: f64, b: f64) -> [f64; 4] {
        let (a, b) = (N::from_amount(sane_amount(a)), N::from_amount(sane_amount(b)));
        [a + b, a - b, a * b, a / b].map(|n| f64::from_bits(n.to_amount()))
    }

    #[test]
    fn what_is_no_number_of_seconds_is_unknown_and_what_is_too_much_is_cut() {
        let clean = |s| f32::from_bits(sane_seconds(s));
        for bad in [f32::NAN, -f32::NAN, -1.0, f32::NEG_INFINITY, -0.0, 1e-40, f32::MIN_POSITIVE] {
            assert_eq!(clean(bad), 0.0, "{bad}");
        }
        for large in [16.0, 17.0, f32::MAX, f32::INFINITY] {
            assert_eq!(clean(large), 16.0);
        }
        assert_eq!(clean(0.25), 0.25);
        let clean = |a| f64::from_bits(sane_amount(a));
        assert_eq!((clean(f64::NAN), clean(-f64::NAN), clean(5e-324)), (0.0, 0.0, 0.0));
        assert_eq!((clean(f64::INFINITY), clean(-1e308)), (clean(1e300), -clean(1e300)));
        assert_eq!((clean(1e24), clean(-0.125)), (1e24, -0.125));
    }

    proptest! {
        /// Two operands and a result, each rounded to 32 bits: two parts in 2³¹ at most.
        #[test]
        fn the_fixed_forms_calculate(a in -1e9f64..1e9, b in prop_oneof![-1e5f64..-1e-4, 1e-4f64..1e5]) {
            let right = four::<f64>(a, b);
            let size = a.abs().max(b.abs());
            for (got, epsilon) in [(four::<Shift32>(a, b), 1.0 / (1u64 << 30) as f64), (four::<Fixed128>(a, b), 1e-12)] {
                for k in 0..4 {
                    let scale = if k < 2 { size } else { right[k].abs().max(1e-6) };
                    prop_assert!((got[k] - right[k]).abs() <= epsilon * scale, "{k}: {} {}", got[k], right[k]);
                }
            }
        }

        #[test]
        fn no_amounts_panic(a in any::<f64>(), b in any::<f64>()) {
            four::<Shift32>(a, b);
            four::<Fixed128>(a, b);
        }

        #[test]
        fn order_is_the_doubles_order(a in -1e6f64..1e6, b in -1e6f64..1e6) {
            let bits = (sane_amount(a), sane_amount(b));
            let rounds_apart = (a - b).abs() > 1e-3;
            if rounds_apart {
                prop_assert_eq!(Shift32::from_amount(bits.0) < Shift32::from_amount(bits.1), a < b);
            }
            prop_assert_eq!(Fixed128::from_amount(bits.0) < Fixed128::from_amount(bits.1), a < b && (a - b).abs() > 1e-18);
        }

        #[test]
        fn nanoseconds_come_back(ns in 0u64..4_000_000_000) {
            prop_assert!(Shift32::from_nanos(ns).to_nanos().abs_diff(ns) <= 2 + (ns >> 31));
            prop_assert!(Fixed128::from_nanos(ns).to_nanos() == ns);
            prop_assert!(f64::from_nanos(ns).to_nanos() == ns);
        }

        /// A pool of n equal parts is empty after n of them, to a small part of one.
        #[test]
        fn accumulators_lose_nothing_small(part in 1e-9f64..1e9, n in 1u32..4000) {
            fn rest<N: Number>(part: f64, n: u32) -> f64 {
                let part = N::from_amount(sane_amount(part));
                let mut sum = N::Sum::holding(N::ZERO);
                (0..n).for_each(|_| sum.put(part));
                let right = part * N::from_count(u64::from(n));
                let whole = f64::from_bits((sum.value() / right).to_amount());
                assert!((whole - 1.0).abs() < 1e-9, "{whole}");
                (0..n - 1).for_each(|_| { sum.draw(part); });
                let last = f64::from_bits((sum.value() / part).to_amount());
                assert!(sum.draw(part + part) <= part + part);
                assert!(sum.value() == N::ZERO);
                last
            }
            prop_assert!((rest::<Shift32>(part, n) - 1.0).abs() < 1e-6);
            prop_assert!((rest::<Fixed128>(part, n) - 1.0).abs() < 1e-6);
            prop_assert!((rest::<f64>(part, n) - 1.0).abs() < 1e-6);
        }
    }
}
