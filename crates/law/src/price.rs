//! FCP's two quantities: the price of a byte, and the budget per second (the FCP report, § 4, § 5).
//!
//! The currency is abstract. Its unit, written $, is chosen by the owner of the budgets; only
//! ratios matter.

use std::fmt;

/// The price of a byte on a link or a path, in $/byte; at least [`Price::MIN`].
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Price(f64);

impl Price {
    /// The price of a resource without scarcity, 1e-18 $/byte (§ 5). It stands for zero: sums leave
    /// it out.
    pub const MIN: Price = Price(MIN);

    /// A price of `p` $/byte, clamped to between [`Price::MIN`] and 1e30; NaN counts as the
    /// minimum.
    #[inline]
    pub fn per_byte(p: f64) -> Price {
        Price(if p > MIN { at_most(p, MAX) } else { MIN })
    }

    /// The price in $/byte.
    #[inline]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The price in $/MB, which has readable digits on most links.
    pub fn per_megabyte(self) -> f64 {
        self.0 * 1e6
    }

    /// The price of two links in series: `P = P + MIN` for any `P` (§ 5).
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

/// A rate of spending, in $/s: finite, and at least zero.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Budget(f64);

impl Budget {
    /// A budget of zero.
    pub const ZERO: Budget = Budget(0.0);

    /// A budget of `b` $/s; negative, infinite and NaN count as zero.
    #[inline]
    pub fn per_sec(b: f64) -> Budget {
        Budget(if b > 0.0 && b < f64::INFINITY { b } else { 0.0 })
    }

    /// The budget in $/s.
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

/// The greater of `x` and `least`, which is not NaN; `f64::max` would check both.
#[inline]
pub(crate) fn at_least(x: f64, least: f64) -> f64 {
    if x > least { x } else { least }
}

/// The lesser of `x` and `most`, which is not NaN.
#[inline]
pub(crate) fn at_most(x: f64, most: f64) -> f64 {
    if x < most { x } else { most }
}

const MIN: f64 = 1e-18;
/// The highest price: sums of some thousand such prices times sizes stay finite.
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
