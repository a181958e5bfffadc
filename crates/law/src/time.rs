//! Time in integer nanoseconds: one type for an instant since a run's start and for a span, without
//! a clock.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

use crate::units::{UnitError, split_quantity};

/// An instant or a span, in whole nanoseconds since the run's start (584 years fit).
///
/// Integer time makes simulations exact and repeatable: sums do not depend on the order of terms.
/// Parses and prints with a unit: `"250 ms"`, `"1.5 s"`, `"20us"`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The run's start, or the empty span.
    pub const ZERO: Time = Time(0);
    /// Later than any event; the timeout of a machine without a timer.
    pub const NEVER: Time = Time(u64::MAX);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Time {
        Time(ns)
    }

    /// `us` microseconds.
    pub const fn from_micros(us: u64) -> Time {
        Time(us * 1_000)
    }

    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// `s` whole seconds.
    pub const fn from_secs(s: u64) -> Time {
        Time(s * 1_000_000_000)
    }

    /// `s` seconds to the nearest nanosecond; negative and NaN give zero, too large gives
    /// [`Time::NEVER`].
    pub fn from_secs_f64(s: f64) -> Time {
        // `as` saturates, and takes NaN to zero: both are what is wanted here.
        Time((s * 1e9 + 0.5) as u64)
    }

    /// The time in seconds, for computation: one multiplication, which may err in the last bit (60
    /// s gives 60.00000000000001). For output and comparisons use [`Time::nearest_secs`].
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// The time in seconds, for tables and messages: the nearest double, so that a tenth of a
    /// second prints as 0.1.
    pub fn nearest_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time in milliseconds, for tables and messages: the nearest double.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span from `earlier` to this instant; zero if `earlier` is later.
    pub const fn saturating_sub(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }

    /// The sum, saturating at [`Time::NEVER`].
    pub const fn saturating_add(self, span: Time) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, span: Time) -> Time {
        Time(self.0 + span.0)
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, span: Time) {
        self.0 += span.0;
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, earlier: Time) -> Time {
        Time(self.0 - earlier.0)
    }
}

impl SubAssign for Time {
    fn sub_assign(&mut self, span: Time) {
        self.0 -= span.0;
    }
}

impl Mul<u64> for Time {
    type Output = Time;
    fn mul(self, k: u64) -> Time {
        Time(self.0 * k)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER {
            return f.pad("never");
        }
        let (scale, unit) = match self.0 {
            0 => (1_000_000_000, "s"),
            n if n >= 1_000_000_000 => (1_000_000_000, "s"),
            n if n >= 1_000_000 => (1_000_000, "ms"),
            n if n >= 1_000 => (1_000, "us"),
            _ => (1, "ns"),
        };
        // Exact: whole part and the remaining digits, trailing zeros cut, so that what is printed
        // parses back.
        let (whole, rest) = (self.0 / scale, self.0 % scale);
        let mut text = whole.to_string();
        if rest > 0 {
            let digits = scale.ilog10() as usize;
            text += format!(".{rest:0digits$}").trim_end_matches('0');
        }
        f.pad(&format!("{text} {unit}"))
    }
}

impl FromStr for Time {
    type Err = UnitError;

    /// `"250 ms"`: a number and one of `ns`, `us` (`µs`), `ms`, `s`, `min`, `h`.
    fn from_str(text: &str) -> Result<Time, UnitError> {
        const UNITS: &[(&str, f64)] =
            &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)];
        let ns = split_quantity(text, "a time", "250 ms", UNITS)?;
        Ok(Time(libm::round(ns) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_seconds_print_as_they_are_written() {
        for tenths in 1..=600 {
            assert_eq!(Time::from_millis(100 * tenths).nearest_secs(), tenths as f64 / 10.0);
        }
        for tenths in 1..=2000 {
            assert_eq!(Time::from_micros(100 * tenths).as_millis_f64(), tenths as f64 / 10.0);
        }
        // `as_secs_f64` errs in the last bit here.
        assert_ne!(Time::from_secs(60).as_secs_f64(), 60.0);
    }
}
