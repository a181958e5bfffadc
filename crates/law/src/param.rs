//! Parameters of laws. Each law's config is the only list of them; files are read by it, and the
//! reference is generated from it.
//!
//! [`config!`](crate::config) declares a config. For each parameter it holds the field, its
//! meaning, the default, the range with its unit, and the section of the source. The key in a file
//! is the field's name with hyphens.
//!
//! ```
//! use tollway_law::Time;
//! use tollway_law::param::{Config, Kind, SPAN, Value, Values};
//!
//! tollway_law::config! {
//!     /// The constants of a law.
//!     #[derive(Clone, Copy, Debug, PartialEq)]
//!     pub struct MineConfig {
//!         /// Queueing delay aimed at.
//!         target: Time = Time::from_millis(15), SPAN, from "RFC 8033, § 4.2";
//!         /// Weight of the trend, 1/s.
//!         gain: f64 = 0.5, Kind::Number { least: 0.0, most: 10.0 };
//!     }
//! }
//!
//! struct Given;
//! impl Values for Given {
//!     fn value(&self, field: &str) -> Option<Value> {
//!         (field == "gain").then_some(Value::Number(2.0))
//!     }
//! }
//! assert_eq!(MineConfig::read(&Given), MineConfig { gain: 2.0, ..MineConfig::default() });
//! assert_eq!(MineConfig::params()[0].default.unwrap().to_string(), "15 ms");
//! ```

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Budget, Bytes, Rate, Time};

/// A parameter of a law.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The field of the config.
    pub field: &'static str,
    /// Its unit and its range.
    pub kind: Kind,
    /// The default. `None` if it depends on other values, as `otherwise` describes; if `otherwise`
    /// is empty too, the parameter is required.
    pub default: Option<Value>,
    /// The default in words, where it depends on something else.
    pub otherwise: &'static str,
    /// Its meaning, in Markdown.
    pub says: &'static str,
    /// The section of a paper or RFC that defines it; empty if there is none.
    pub source: &'static str,
}

/// The unit and the range of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// True or false.
    Truth,
    /// One of the given words.
    Word(&'static [&'static str]),
    /// A whole number.
    Count {
        /// Lower bound.
        least: u64,
        /// Upper bound.
        most: u64,
    },
    /// A number.
    Number {
        /// Lower bound.
        least: f64,
        /// Upper bound.
        most: f64,
    },
    /// A number above a bound.
    Over {
        /// Excluded lower bound.
        over: f64,
        /// Upper bound.
        most: f64,
    },
    /// A time.
    Time {
        /// Lower bound, ns.
        least: u64,
    },
    /// A size.
    Bytes {
        /// Lower bound.
        least: u64,
        /// Upper bound.
        most: u64,
    },
    /// A rate.
    Rate,
    /// A rate, or `all` for no bound.
    RateOrAll,
    /// A fraction of the queue's limit, packets or bytes.
    Threshold,
}

/// Any time, zero included.
pub const TIME: Kind = Kind::Time { least: 0 };
/// A time above zero.
pub const SPAN: Kind = Kind::Time { least: 1 };
/// A number from 0 to 1.
pub const PROBABILITY: Kind = Kind::Number { least: 0.0, most: 1.0 };
/// Framing of a packet, bytes.
pub const OVERHEAD: Kind = Kind::Bytes { least: 0, most: 65_535 };

/// A parameter's value. It prints in the notation of scenario files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Truth(bool),
    /// One of the words of the kind.
    Word(&'static str),
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A time.
    Time(Time),
    /// A size.
    Bytes(Bytes),
    /// A rate; `None` for no bound.
    Rate(Option<Rate>),
    /// An amount of queue.
    Threshold(Threshold),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Truth(value) => value.fmt(f),
            Value::Word(word) => word.fmt(f),
            Value::Count(n) => n.fmt(f),
            Value::Number(x) => x.fmt(f),
            Value::Time(time) => time.fmt(f),
            Value::Bytes(Bytes(n)) if *n > 0 && n.is_multiple_of(1000) => write!(f, "{} kB", n / 1000),
            Value::Bytes(Bytes(n)) => write!(f, "{n} B"),
            Value::Rate(None) => f.write_str("all"),
            Value::Rate(Some(rate)) => rate.fmt(f),
            Value::Threshold(Threshold::Part(part)) => part.fmt(f),
            Value::Threshold(Threshold::Packets(n)) => write!(f, "{n} packets"),
            Value::Threshold(Threshold::Bytes(n)) => write!(f, "{n} B"),
        }
    }
}

/// An amount of queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// A fraction of the queue's limit.
    Part(f64),
    /// Packets.
    Packets(f64),
    /// Bytes on the wire.
    Bytes(f64),
}

/// The values that a source, such as a table of a file, gives for the fields of a config.
pub trait Values {
    /// The value of a field, of the field's kind and in its range; `None` if the source has none.
    fn value(&self, field: &str) -> Option<Value>;
}

/// A source without values: all defaults.
impl Values for () {
    fn value(&self, _: &str) -> Option<Value> {
        None
    }
}

/// A table of parameters.
#[derive(Debug)]
pub struct Table {
    /// The table's key: `outer.inner` inside another table, empty for keys beside the law's.
    pub word: &'static str,
    /// Its description: a sentence or two of Markdown.
    pub says: &'static str,
    /// Lists the parameters.
    pub params: fn() -> Vec<Param>,
}

/// Tables by their words, such as those of one link of a file.
pub trait Tables {
    /// The values in the table under `word`.
    fn table(&self, word: &str) -> &dyn Values;

    /// The word of the link law and the weight of each class of traffic, in order.
    fn classes(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// A source without tables: all defaults.
impl Tables for () {
    fn table(&self, _: &str) -> &dyn Values {
        self
    }
}

/// An entry of a registry: a word for scenario files, and the config that it selects.
#[derive(Debug)]
pub struct Entry<C: ?Sized> {
    /// The word in scenario files.
    pub word: &'static str,
    /// The tables with its parameters; several entries may share one.
    pub tables: &'static [&'static Table],
    /// Reads the config from the tables.
    pub read: fn(&dyn Tables) -> Arc<C>,
}

/// The words of a registry's entries.
pub const fn words_of<C: ?Sized, const N: usize>(entries: &[Entry<C>]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut i = 0;
    while i < N {
        words[i] = entries[i].word;
        i += 1;
    }
    words
}

/// Equality of configs of any type.
pub trait Same: Any {
    /// True if the other config has the same type and is equal.
    fn same(&self, other: &dyn Any) -> bool;
}

impl<C: PartialEq + Any> Same for C {
    fn same(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// A config that [`config!`](crate::config) declares.
pub trait Config: Default {
    /// Its parameters, in order.
    fn params() -> Vec<Param>;

    /// The config with the values given, and defaults for the others.
    fn read(values: &dyn Values) -> Self;
}

/// A config with a separate table in files: `struct MineConfig in "mine", "About it." { … }`.
pub trait Tabled: Config {
    /// The table of its parameters.
    const TABLE: &'static Table;
    /// A list of that table alone.
    const TABLES: &'static [&'static Table] = &[Self::TABLE];
}

/// A type that config fields can have, with its conversions to and from [`Value`].
pub trait Field: Sized {
    /// The value that represents the field; `None` for an absent optional field.
    fn value(self) -> Option<Value>;

    /// The field from a value; `None` if the value is of another kind.
    fn of(value: Value) -> Option<Self>;
}

/// Implements [`Field`] for types that are a variant of [`Value`].
macro_rules! fields {
    ($($type:ty => $variant:ident, $to:expr, $of:expr;)*) => {
        $(impl $crate::param::Field for $type {
            fn value(self) -> Option<$crate::param::Value> {
                let to: fn($type) -> _ = $to;
                Some($crate::param::Value::$variant(to(self)))
            }

            fn of(value: $crate::param::Value) -> Option<$type> {
                let of: fn(_) -> Option<$type> = $of;
                match value {
                    $crate::param::Value::$variant(value) => of(value),
                    _ => None,
                }
            }
        })*
    };
}
pub(crate) use fields;

fields! {
    bool => Truth, |truth| truth, Some;
    u8 => Count, u64::from, |n: u64| n.try_into().ok();
    u16 => Bytes, |size| Bytes(size.into()), |size: Bytes| size.0.try_into().ok();
    u32 => Count, u64::from, |n: u64| n.try_into().ok();
    u64 => Count, |n| n, Some;
    f64 => Number, |x| x, Some;
    Time => Time, |time| time, Some;
    Bytes => Bytes, |size| size, Some;
    Rate => Rate, Some, |rate| rate;
    Budget => Number, Budget::get, |x| Some(Budget::per_sec(x));
    Threshold => Threshold, |amount| amount, Some;
}

/// A parameter whose default depends on something else.
impl<F: Field> Field for Option<F> {
    fn value(self) -> Option<Value> {
        self.and_then(F::value)
    }

    fn of(value: Value) -> Option<Option<F>> {
        F::of(value).map(Some)
    }
}

/// Declares a config with its parameters: see [`param`](crate::param). Constants that are not
/// parameters stand under `fixed`.
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(in $word:literal, $about:literal)? {
            $(
                $(#[doc = $says:literal])+
                $field:ident: $type:ty = $default:expr, $kind:expr
                    $(, else $otherwise:literal)? $(, from $source:literal)?;
            )*
            $(fixed {
                $(
                    $(#[doc = $note:literal])+
                    $constant:ident: $constant_type:ty = $value:expr;
                )*
            })?
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[doc = $says])+
                #[doc = concat!("\n\nDefault `", stringify!($default), "`", $(", ", $source,)? ".")]
                pub $field: $type,
            )*
            $($(
                $(#[doc = $note])+
                #[doc = concat!("\n\nDefault `", stringify!($value), "`.")]
                pub $constant: $constant_type,
            )*)?
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* $($($constant: $value,)*)? }
            }
        }

        $(impl $crate::param::Tabled for $name {
            const TABLE: &'static $crate::param::Table = &$crate::param::Table {
                word: $word,
                says: $about,
                params: <$name as $crate::param::Config>::params,
            };
        })?

        impl $crate::param::Config for $name {
            fn params() -> Vec<$crate::param::Param> {
                vec![$($crate::param::Param {
                    field: stringify!($field),
                    kind: $kind,
                    default: <$type as $crate::param::Field>::value($default),
                    otherwise: concat!($($otherwise)?),
                    says: concat!($($says),+).trim_ascii(),
                    source: concat!($($source)?),
                },)*]
            }

            fn read(values: &dyn $crate::param::Values) -> $name {
                $name {
                    $($field: values.value(stringify!($field))
                        .and_then($crate::param::Field::of)
                        .unwrap_or($default),)*
                    $($($constant: $value,)*)?
                }
            }
        }
    };
}

/// Declares an enum whose variants are the words of a parameter; the first is its `Default`.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$note:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$note])* $variant,)*
        }

        impl $name {
            /// The words of all variants.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The variant's word.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl $crate::param::Field for $name {
            fn value(self) -> Option<$crate::param::Value> {
                Some($crate::param::Value::Word(self.word()))
            }

            fn of(value: $crate::param::Value) -> Option<$name> {
                match value {
                    $($crate::param::Value::Word($word) => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
