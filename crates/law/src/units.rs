//! Quantities with units: [`Rate`], [`Bytes`], and their text forms.
//!
//! Laws compute in SI bytes and seconds; files and tables use units such as `10 Mbps`.

use std::fmt;
use std::str::FromStr;

use crate::Time;

/// The reason a text is not a quantity.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UnitError {
    /// There is no number at the start.
    #[error("`{text}` is not {what}: it does not start with a number (write it like `{example}`)")]
    NoNumber {
        /// The text read.
        text: String,
        /// The quantity expected, with its article.
        what: &'static str,
        /// A correct example.
        example: &'static str,
    },
    /// A number without a unit.
    #[error("`{text}` has no unit: {what} needs one of {units} (write it like `{example}`)")]
    NoUnit {
        /// The text read.
        text: String,
        /// The quantity expected.
        what: &'static str,
        /// A correct example.
        example: &'static str,
        /// The known units.
        units: String,
    },
    /// The unit is not known.
    #[error("`{unit}` is not a unit of {what}: use one of {units} (write it like `{example}`)")]
    UnknownUnit {
        /// The unit read.
        unit: String,
        /// The quantity expected.
        what: &'static str,
        /// A correct example.
        example: &'static str,
        /// The known units.
        units: String,
    },
    /// Negative, infinite, or too large to hold.
    #[error("`{text}` is out of range: {what} is from 0 to 1.8e19 {unit}")]
    OutOfRange {
        /// The text read.
        text: String,
        /// The quantity expected, with its article.
        what: &'static str,
        /// The quantity's smallest unit.
        unit: String,
    },
}

/// A data rate in bytes per second, finite and at least zero. Prints and parses in bits per second:
/// `"10 Mbps"`.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// The rate zero.
    pub const ZERO: Rate = Rate(0.0);

    /// The slowest wire, 1 kbit/s. The time of the largest packet with the most framing then fits
    /// 64 bits in the units of [`ns_per_byte_fixed`](Rate::ns_per_byte_fixed).
    pub const SLOWEST_WIRE: Rate = Rate(125.0);

    /// The fastest wire, 100 Tbit/s. A byte then takes over a thousand units of
    /// [`ns_per_byte_fixed`](Rate::ns_per_byte_fixed).
    pub const FASTEST_WIRE: Rate = Rate(1.25e13);

    /// Fractional bits of [`ns_per_byte_fixed`](Rate::ns_per_byte_fixed).
    pub const FRACTION_BITS: u32 = 24;

    /// Nanoseconds per byte on a wire of this rate, in units of 2^-24 ns, so that both engines
    /// compute the same instants.
    ///
    /// Never zero. Rates below [`SLOWEST_WIRE`](Rate::SLOWEST_WIRE) count as that, so that time
    /// cannot overflow.
    pub fn ns_per_byte_fixed(self) -> u64 {
        let rate = self.bytes_per_sec().max(Rate::SLOWEST_WIRE.bytes_per_sec());
        ((1e9 / rate * (1u64 << Rate::FRACTION_BITS) as f64 + 0.5) as u64).max(1)
    }

    /// `b` bytes a second; negative and NaN count as zero.
    pub fn from_bytes_per_sec(b: f64) -> Rate {
        Rate(if b > 0.0 { b } else { 0.0 })
    }

    /// `b` bits a second; negative and NaN count as zero.
    pub fn from_bps(b: f64) -> Rate {
        Rate::from_bytes_per_sec(b / 8.0)
    }

    /// `m` megabits (1e6 bits) a second.
    pub fn from_mbps(m: f64) -> Rate {
        Rate::from_bps(m * 1e6)
    }

    /// In bytes a second, the laws' unit.
    pub const fn bytes_per_sec(self) -> f64 {
        self.0
    }

    /// In bits a second.
    pub fn bps(self) -> f64 {
        self.0 * 8.0
    }

    /// In megabits a second.
    pub fn mbps(self) -> f64 {
        self.0 * 8e-6
    }

    /// Transmission time of `bytes` at this rate, to the nearest nanosecond; [`Time::NEVER`] at
    /// rate zero.
    pub fn time_for(self, bytes: u64) -> Time {
        if self.0 > 0.0 { Time::from_secs_f64(bytes as f64 / self.0) } else { Time::NEVER }
    }

    /// Bytes that this rate carries in `span`: a bandwidth–delay product.
    pub fn bytes_in(self, span: Time) -> f64 {
        self.0 * span.as_secs_f64()
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.bps();
        let (scale, unit) = match bps {
            b if b >= 1e12 => (1e12, "Tbps"),
            b if b >= 1e9 => (1e9, "Gbps"),
            b if b >= 1e6 => (1e6, "Mbps"),
            b if b >= 1e3 => (1e3, "kbps"),
            _ => (1.0, "bps"),
        };
        f.pad(&format!("{} {unit}", short(bps / scale, f.precision())))
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    /// `"10 Mbps"`: a number and one of `bps`, `kbps`, `Mbps`, `Gbps`, `Tbps` (also `Mbit/s`,
    /// `Mb/s`, `Mbit`), or bytes a second as `B/s`, `kB/s`, `MB/s`, `GB/s` (also `MBps`). Prefixes
    /// are decimal.
    fn from_str(text: &str) -> Result<Rate, UnitError> {
        const UNITS: &[(&str, f64)] = &[
            ("bps", 1.0),
            ("kbps", 1e3),
            ("Mbps", 1e6),
            ("Gbps", 1e9),
            ("Tbps", 1e12),
            ("B/s", 8.0),
            ("kB/s", 8e3),
            ("MB/s", 8e6),
            ("GB/s", 8e9),
            ("bit/s", 1.0),
            ("kbit/s", 1e3),
            ("Mbit/s", 1e6),
            ("Gbit/s", 1e9),
            ("b/s", 1.0),
            ("kb/s", 1e3),
            ("Mb/s", 1e6),
            ("Gb/s", 1e9),
            ("kbit", 1e3),
            ("Mbit", 1e6),
            ("Gbit", 1e9),
        ];
        // A capital B alone means bytes, although case is otherwise ignored.
        let bytes = text.trim_end().strip_suffix("Bps").map(|rest| format!("{rest}B/s"));
        split_quantity(bytes.as_deref().unwrap_or(text), "a rate", "10 Mbps", UNITS).map(Rate::from_bps)
    }
}

/// A number of bytes. Prints and parses with a unit: `"64 KiB"`, `"1.5 MB"`, `"90 B"`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As a plain number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0 as f64;
        let (scale, unit) = match b {
            b if b >= 1e9 => (1e9, "GB"),
            b if b >= 1e6 => (1e6, "MB"),
            b if b >= 1e3 => (1e3, "kB"),
            _ => (1.0, "B"),
        };
        f.pad(&format!("{} {unit}", short(b / scale, f.precision())))
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// `"64 KiB"`: a number and one of `B`, `kB`, `MB`, `GB` (decimal), `KiB`, `MiB`, `GiB`
    /// (binary).
    fn from_str(text: &str) -> Result<Bytes, UnitError> {
        const UNITS: &[(&str, f64)] = &[
            ("B", 1.0),
            ("kB", 1e3),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("KiB", 1024.0),
            ("MiB", 1048576.0),
            ("GiB", 1073741824.0),
        ];
        split_quantity(text, "a size", "64 KiB", UNITS).map(|b| Bytes(libm::round(b) as u64))
    }
}

/// Reads `text` as a number and one of `units`, and returns the number times the unit's scale.
///
/// White space between them is optional. Units are matched as written first, then without regard to
/// case where that is unambiguous (`mbps` is taken for `Mbps`).
///
/// # Errors
/// [`UnitError`] names the fault and the correct form.
pub fn split_quantity(
    text: &str,
    what: &'static str,
    example: &'static str,
    units: &[(&str, f64)],
) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let end = trimmed
        .char_indices()
        .find(|&(i, c)| {
            let exponent = matches!(c, 'e' | 'E')
                && trimmed[i + 1..].starts_with(|d: char| d.is_ascii_digit() || d == '-' || d == '+');
            let sign = matches!(c, '+' | '-') && (i == 0 || trimmed[..i].ends_with(['e', 'E']));
            !(c.is_ascii_digit() || matches!(c, '.' | '_') || exponent || sign)
        })
        .map_or(trimmed.len(), |(i, _)| i);
    let number: f64 = trimmed[..end].replace('_', "").parse().map_err(|_| UnitError::NoNumber {
        text: text.to_owned(),
        what,
        example,
    })?;
    let unit = trimmed[end..].trim();
    let names = || units.iter().map(|u| u.0).collect::<Vec<_>>().join(", ");
    if unit.is_empty() && number != 0.0 {
        return Err(UnitError::NoUnit { text: text.to_owned(), what, example, units: names() });
    }
    let scale = if unit.is_empty() {
        1.0
    } else {
        let exact = units.iter().find(|u| u.0 == unit);
        let mut folded = units.iter().filter(|u| u.0.eq_ignore_ascii_case(unit));
        let found = exact.or_else(|| match (folded.next(), folded.next()) {
            (Some(one), None) => Some(one),
            (Some(one), Some(two)) if one.1 == two.1 => Some(one),
            _ => None,
        });
        match found {
            Some(u) => u.1,
            None => {
                return Err(UnitError::UnknownUnit { unit: unit.to_owned(), what, example, units: names() });
            }
        }
    };
    let value = number * scale;
    if !(0.0..1.8e19).contains(&value) {
        let unit = units.first().map_or(String::new(), |unit| unit.0.to_owned());
        return Err(UnitError::OutOfRange { text: text.to_owned(), what, unit });
    }
    Ok(value)
}

/// A number with `precision` digits, or with as many as are needed to read it back exactly.
fn short(value: f64, precision: Option<usize>) -> String {
    match precision {
        Some(p) => format!("{value:.p$}"),
        None => format!("{value}"),
    }
}

macro_rules! serde_as_text {
    ($($t:ty),*) => {$(
        impl serde::Serialize for $t {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $t {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<$t, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(Rate, Bytes, Time);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wire_takes_whole_nanoseconds_and_the_fraction_is_kept() {
        let one = 1u64 << Rate::FRACTION_BITS;
        assert_eq!(Rate::from_mbps(8.0).ns_per_byte_fixed(), 1000 * one);
        assert_eq!(Rate::from_mbps(16_000.0).ns_per_byte_fixed(), one / 2);
        assert_eq!(Rate::ZERO.ns_per_byte_fixed(), 8_000_000 * one);
        assert!(Rate::ZERO.ns_per_byte_fixed().checked_mul(2 * u64::from(u16::MAX)).is_some());
        assert_eq!(Rate::from_bytes_per_sec(1e300).ns_per_byte_fixed(), 1);
    }

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!("100 Mbps".parse(), Ok(Rate::from_mbps(100.0)));
        assert_eq!("1.5Gbit/s".parse(), Ok(Rate::from_mbps(1500.0)));
        assert_eq!("10 ms".parse(), Ok(Time::from_millis(10)));
        assert_eq!("0".parse(), Ok(Time::ZERO));
        assert_eq!("64 KiB".parse(), Ok(Bytes(65536)));
        assert_eq!("1e3 B".parse(), Ok(Bytes(1000)));
        for bits in ["10 mbps", "10 MBPS", "1.25 MB/s", "1.25MBps", "1250 kBps "] {
            assert_eq!(bits.parse(), Ok(Rate::from_mbps(10.0)), "{bits}");
        }
    }

    #[test]
    fn errors_name_what_was_wanted() {
        let e = "10".parse::<Rate>().unwrap_err().to_string();
        assert!(e.contains("has no unit") && e.contains("10 Mbps"), "{e}");
        let e = "10 parsecs".parse::<Time>().unwrap_err().to_string();
        assert!(e.contains("`parsecs` is not a unit of a time"), "{e}");
        assert!("fast".parse::<Rate>().is_err());
        let e = "-5 ms".parse::<Time>().unwrap_err().to_string();
        assert_eq!(e, "`-5 ms` is out of range: a time is from 0 to 1.8e19 ns");
        assert!("1e300 Gbps".parse::<Rate>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(ns in 0u64..1u64 << 53) {
            let t = Time(ns);
            let back = t.to_string().parse::<Time>().unwrap();
            prop_assert!(back.0.abs_diff(ns) <= ns >> 50);
            let b = Bytes(ns);
            prop_assert!(b.to_string().parse::<Bytes>().unwrap().0.abs_diff(ns) <= ns >> 50);
        }

        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = text.parse::<Rate>();
            let _ = text.parse::<Time>();
            let _ = text.parse::<Bytes>();
        }
    }
}
