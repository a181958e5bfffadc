//! What a measurement is held against.

use std::collections::BTreeMap;

use super::Measurement;

/// A bound: a relation and its right side.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// Not below.
    AtLeast(Side),
    /// Not above.
    AtMost(Side),
    /// Above.
    MoreThan(Side),
    /// Below.
    LessThan(Side),
    /// The same number.
    Equals(Side),
    /// Not further from `of` than this.
    Within {
        /// The middle.
        of: Side,
        /// The distance, relative (0.03 for 3 %) or in the metric's unit.
        distance: Distance,
    },
}

/// How far a value may lie from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    /// A part of the other.
    Relative(f64),
    /// In the metric's unit.
    Absolute(f64),
}

impl Distance {
    /// The distance allowed around `side`.
    fn around(self, side: f64) -> f64 {
        match self {
            Distance::Relative(part) => part * side.abs(),
            Distance::Absolute(distance) => distance,
        }
    }
}

/// The right side of a bound.
#[derive(Clone, Debug, PartialEq)]
pub enum Side {
    /// A number in the metric's unit.
    Number(f64),
    /// A number for each variant.
    ByVariant(BTreeMap<String, f64>),
    /// `times · measurement + plus`.
    Other {
        /// What to measure.
        measurement: Box<Measurement>,
        /// A factor.
        times: f64,
        /// What to add.
        plus: f64,
    },
}

impl Bound {
    /// Its right side.
    pub fn side(&self) -> &Side {
        match self {
            Bound::AtLeast(s)
            | Bound::AtMost(s)
            | Bound::MoreThan(s)
            | Bound::LessThan(s)
            | Bound::Equals(s) => s,
            Bound::Within { of, .. } => of,
        }
    }

    pub(super) fn side_mut(&mut self) -> &mut Side {
        match self {
            Bound::AtLeast(s)
            | Bound::AtMost(s)
            | Bound::MoreThan(s)
            | Bound::LessThan(s)
            | Bound::Equals(s) => s,
            Bound::Within { of, .. } => of,
        }
    }

    /// How much `value` has to spare against a right side of `side`: negative where the bound does not hold, and NaN
    /// where either is no number. For the strict relations 0 does not hold either.
    pub(super) fn slack(&self, value: f64, side: f64) -> f64 {
        match self {
            Bound::AtLeast(_) | Bound::MoreThan(_) => value - side,
            Bound::AtMost(_) | Bound::LessThan(_) => side - value,
            Bound::Equals(_) => -(value - side).abs(),
            Bound::Within { distance, .. } => distance.around(side) - (value - side).abs(),
        }
    }

    /// Whether that slack is enough. NaN never is.
    pub(super) fn holds(&self, slack: f64) -> bool {
        match self {
            Bound::MoreThan(_) | Bound::LessThan(_) => slack > 0.0,
            _ => slack >= 0.0,
        }
    }

    /// The one of several right-side values that is hardest to meet; `None` where that is not defined.
    pub(super) fn strictest(&self, sides: &[f64]) -> Option<f64> {
        if sides.iter().any(|s| s.is_nan()) {
            return None;
        }
        match (self, sides) {
            (_, [one]) => Some(*one),
            (Bound::AtLeast(_) | Bound::MoreThan(_), _) => sides.iter().copied().reduce(f64::max),
            (Bound::AtMost(_) | Bound::LessThan(_), _) => sides.iter().copied().reduce(f64::min),
            _ => None,
        }
    }

    /// The number to lie near and the least and largest value allowed, for a right side of `side`.
    pub(super) fn range(&self, side: f64) -> (Option<f64>, Option<f64>, Option<f64>) {
        match self {
            Bound::AtLeast(_) | Bound::MoreThan(_) => (None, Some(side), None),
            Bound::AtMost(_) | Bound::LessThan(_) => (None, None, Some(side)),
            Bound::Equals(_) => (Some(side), Some(side), Some(side)),
            Bound::Within { distance, .. } => {
                let allowed = distance.around(side);
                (Some(side), Some(side - allowed), Some(side + allowed))
            }
        }
    }

    /// The relation in print, around a right side: `≥ 0.97`, `2.5 ± 3 %`.
    pub(super) fn print(&self, side: &str, number: impl Fn(f64) -> String) -> String {
        match self {
            Bound::AtLeast(_) => format!("≥ {side}"),
            Bound::AtMost(_) => format!("≤ {side}"),
            Bound::MoreThan(_) => format!("> {side}"),
            Bound::LessThan(_) => format!("< {side}"),
            Bound::Equals(_) => format!("= {side}"),
            Bound::Within { distance: Distance::Relative(part), .. } => {
                format!("{side} ± {} %", number(part * 100.0))
            }
            Bound::Within { distance: Distance::Absolute(d), .. } => format!("{side} ± {}", number(*d)),
        }
    }
}
