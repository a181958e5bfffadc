//! Bounds on measurements.

use std::collections::BTreeMap;

use super::Measurement;

/// A bound: a relation and its right side.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// Not below the right side.
    AtLeast(Side),
    /// Not above the right side.
    AtMost(Side),
    /// Greater than the right side.
    MoreThan(Side),
    /// Less than the right side.
    LessThan(Side),
    /// Equal to the right side.
    Equals(Side),
    /// At most `distance` from `of`.
    Within {
        /// The centre.
        of: Side,
        /// The distance, relative (0.03 for 3 %) or in the metric's unit.
        distance: Distance,
    },
}

/// The allowed distance of a value from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    /// A fraction of the other value.
    Relative(f64),
    /// A distance in the metric's unit.
    Absolute(f64),
}

impl Distance {
    /// The allowed distance from `side`, in the metric's unit.
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
    /// One number per variant.
    ByVariant(BTreeMap<String, f64>),
    /// `times · measurement + plus`.
    Other {
        /// The other measurement.
        measurement: Box<Measurement>,
        /// The factor.
        times: f64,
        /// The summand.
        plus: f64,
    },
}

impl Bound {
    /// The right side.
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

    /// The slack of `value` against a right side of `side`: negative if the bound does not hold,
    /// NaN if either is no number. For strict relations a slack of 0 does not hold either.
    pub(super) fn slack(&self, value: f64, side: f64) -> f64 {
        match self {
            Bound::AtLeast(_) | Bound::MoreThan(_) => value - side,
            Bound::AtMost(_) | Bound::LessThan(_) => side - value,
            Bound::Equals(_) => -(value - side).abs(),
            Bound::Within { distance, .. } => distance.around(side) - (value - side).abs(),
        }
    }

    /// True if the bound holds with this slack; false for NaN.
    pub(super) fn holds(&self, slack: f64) -> bool {
        match self {
            Bound::MoreThan(_) | Bound::LessThan(_) => slack > 0.0,
            _ => slack >= 0.0,
        }
    }

    /// The right-side value that is hardest to meet; `None` if that is not defined.
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

    /// The centre, the least and the largest value allowed, for a right side of `side`.
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

    /// The relation as text, with the text of a right side: `≥ 0.97`, `2.5 ± 3 %`.
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
