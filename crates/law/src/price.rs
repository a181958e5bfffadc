//! FCP's two quantities: what a byte costs, and what may be spent a second (the FCP report, § 4, §
//! 5).
//!
//! The money is none: its unit, written $, is whatever the owner of the budgets takes it to be.
//! Only ratios matter.

use std::fmt;

/// What a link or a path asks for a byte, in $/byte: never below [`Price::MIN`].
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Price(f64);

impl Price {
    /// The price of what is not scarce, 1e-18 $/byte (§ 5). It stands for zero: sums leave it out.
    pub const MIN: Price = Price(MIN);

    /// `p` $/byte; anything below the least price, and what is no number, counts as the least, and
    /// what is beyond all budgets as 1e30.
    #[inline]
    pub fn per_byte(p: f64) -> Price {
        Price(if p > MIN { at_most(p, MAX) } else { MIN })
    }

    /// In $/byte.
    #[inline]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// In $/MB, which has readable digits on most links.
    pub fn per_megabyte(self) -> f64 {
        self.0 * 1e6
    }

    /// The price of two links one after the other: `P = P + MIN` for any `P` (§ 5).
    #[inline]
    pub fn plus(self, next: Price) -> Price {
        if self.0 <= MIN {
            next
        } else if next.0 <= MIN {
            self
        } else {
            Price(self.0 + next.0)
        }
    }
}

impl fmt::Debug for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:e} $/B", self.0)
    }
}

/// What may be spent, in $/s: positive or zero and finite.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Budget(f64);

impl Budget {
    /// Nothing.
    pub const ZERO: Budget = Budget(0.0);

    /// `b` $/s; negative, infinite and NaN count as zero.
    #[inline]
    pub fn per_sec(b: f64) -> Budget {
        Budget(if b > 0.0 && b < f64::INFINITY { b } else { 0.0 })
    }

    /// In $/s.
    #[inline]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} $/s", self.0)
    }
}

/// The greater of `x` and `least`, which is a number: `f64::max` asks that of both.
#[inline]
pub(crate) fn at_least(x: f64, least: f64) -> f64 {
    if x > least { x } else { least }
}

/// The lesser of `x` and `most`, which is a number.
#[inline]
pub(crate) fn at_most(x: f64, most: f64) -> f64 {
    if x < most { x } else { most }
}

const MIN: f64 = 1e-18;
/// Sums of a few thousand such prices times sizes are finite floats still.
const MAX: f64 = 1e30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_price_is_zero_in_sums() {
        let p = Price::per_byte(8e-8);
        assert_eq!(p.plus(Price::MIN), p);
        assert_eq!(Price::MIN.plus(p), p);
        assert_eq!(Price::MIN.plus(Price::MIN), Price::MIN);
        assert_eq!(p.plus(p).get(), 1.6e-7);
    }

    #[test]
    fn what_is_no_amount_is_the_least() {
        for odd in [f64::NAN, -1.0, 0.0, f64::NEG_INFINITY] {
            assert_eq!(Price::per_byte(odd), Price::MIN);
            assert_eq!(Budget::per_sec(odd), Budget::ZERO);
        }
        assert_eq!(Budget::per_sec(f64::INFINITY), Budget::ZERO);
    }
}
