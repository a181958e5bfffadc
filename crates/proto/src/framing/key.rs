//! The part of a frame that selects its member.

use std::fmt;
use std::str::FromStr;

/// The place of the key in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// The whole frame.
    #[default]
    Frame,
    /// Bytes from `start` up to `end`, counted from the frame's first; fewer if the frame is
    /// shorter.
    Bytes {
        /// The first byte.
        start: u32,
        /// One past the last byte.
        end: u32,
    },
    /// A field between separators, counted from 1; empty if there are fewer.
    Field {
        /// Its number.
        number: u16,
        /// The byte between fields.
        separator: u8,
    },
}

impl Key {
    /// The key of `frame`.
    pub fn of<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        match *self {
            Key::Frame => frame,
            Key::Bytes { start, end } => {
                let end = frame.len().min(end as usize);
                frame.get(start as usize..end).unwrap_or_default()
            }
            Key::Field { number, separator } => {
                let mut fields = frame.split(|&byte| byte == separator);
                fields.nth(usize::from(number).saturating_sub(1)).unwrap_or_default()
            }
        }
    }
}

/// Reads `frame`, `4..20`, `field=3`, or `field=3,separator=|`.
impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        let wrong = || {
            format!(
                "`{text}` is not a key: write `frame`, `4..20` for bytes, or `field=3` with `,separator=|`"
            )
        };
        if text == "frame" {
            return Ok(Key::Frame);
        }
        if let Some((start, end)) = text.split_once("..") {
            let (start, end) = (start.parse().map_err(|_| wrong())?, end.parse().map_err(|_| wrong())?);
            return if start < end { Ok(Key::Bytes { start, end }) } else { Err(wrong()) };
        }
        let field = text.strip_prefix("field=").ok_or_else(wrong)?;
        let (number, separator) = match field.split_once(",separator=") {
            None => (field, b' '),
            Some((number, separator)) => match *separator.as_bytes() {
                [byte] => (number, byte),
                _ => return Err(format!("`{text}`: a separator must be one byte")),
            },
        };
        match number.parse() {
            Ok(number) if number > 0 => Ok(Key::Field { number, separator }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Key::Frame => f.write_str("frame"),
            Key::Bytes { start, end } => write!(f, "{start}..{end}"),
            Key::Field { number, separator: b' ' } => write!(f, "field={number}"),
            Key::Field { number, separator } => {
                write!(f, "field={number},separator={}", char::from(separator))
            }
        }
    }
}
