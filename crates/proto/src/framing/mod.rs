//! Framing: the boundaries of messages in a byte stream.
//!
//! A [`Framer`] receives the bytes after the last frame, as far as they have arrived, and finds the
//! frame's end. It keeps its position between calls, so a frame that arrives byte by byte costs no
//! more than one that arrives at once.
//!
//! | framing | a frame is |
//! |---|---|
//! | [`Framing::Length`] | a header with a length field of 2 or 4 bytes, and the bytes it counts |
//! | [`Framing::Delimited`] | bytes up to and including a delimiter: lines (LF), GELF (NUL) |
//! | [`Framing::OctetCounting`] | a decimal length, a space, that many bytes (RFC 6587 § 3.4.1) |
//! | [`Framing::Resp`] | one value of RESP 2 or 3, nested values included |

mod key;
mod resp;
#[cfg(test)]
mod tests;

pub use key::Key;

use std::fmt;
use std::str::FromStr;

use resp::Scan;

/// The rule that splits a byte stream into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A length field before each frame.
    Length(LengthPrefix),
    /// A delimiter byte that occurs only at the end of a frame.
    Delimited(u8),
    /// `MSG-LEN SP MSG` (RFC 6587 § 3.4.1).
    OctetCounting,
    /// The Redis serialization protocol, versions 2 and 3.
    Resp,
}

/// A length field and the bytes it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthPrefix {
    /// Width of the field in bytes: 2 or 4.
    pub width: u8,
    /// True if the least significant byte comes first.
    pub little_endian: bool,
    /// True if the field counts the whole frame, including the bytes before it and itself.
    pub inclusive: bool,
    /// Bytes before the field.
    pub offset: u8,
    /// Bytes after the field that it does not count, such as a header of ISO 8583.
    pub uncounted: u8,
}

/// The error of a stream that cannot be split further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame exceeds the limit, by its length field or by the bytes received without an end.
    #[error("a frame of at least {len} bytes exceeds the limit of {most}")]
    TooLong {
        /// Length as announced, or as received so far, bytes.
        len: u64,
        /// The limit, bytes.
        most: usize,
    },
    /// The bytes do not follow this framing.
    #[error("{0}")]
    Malformed(&'static str),
}

/// Finds the ends of frames in one direction of one stream.
#[derive(Clone, Debug)]
pub struct Framer {
    framing: Framing,
    most: usize,
    /// Bytes of the present frame already searched for a delimiter.
    searched: usize,
    scan: Scan,
}

impl Framer {
    /// A framer at the start of a stream whose frames have at most `most` bytes.
    pub fn new(framing: Framing, most: usize) -> Framer {
        Framer { framing, most, searched: 0, scan: Scan::default() }
    }

    /// The length of the frame at the start of `bytes`, or `None` while its end is missing. `bytes`
    /// begins where the last frame ended, and only grows from call to call.
    ///
    /// # Errors
    /// The stream does not follow this framing, or the frame is too long. The stream is then
    /// unusable.
    #[inline]
    pub fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        match self.framing {
            Framing::Length(prefix) => prefix.len(bytes, self.most),
            Framing::Delimited(end) => self.delimited(end, bytes),
            Framing::OctetCounting => octet_counted(bytes, self.most),
            Framing::Resp => self.scan.end(bytes, self.most),
        }
    }

    fn delimited(&mut self, end: u8, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let fresh = bytes.get(self.searched..).unwrap_or_default();
        let most = self.most;
        let Some(at) = memchr::memchr(end, fresh) else {
            self.searched = bytes.len();
            return within(bytes.len(), most).map(|_| None);
        };
        let len = self.searched + at + 1;
        self.searched = 0;
        within(len, most).map(Some)
    }
}

impl LengthPrefix {
    /// A field of `width` bytes in network order that counts what follows it.
    pub const fn new(width: u8) -> LengthPrefix {
        LengthPrefix { width, little_endian: false, inclusive: false, offset: 0, uncounted: 0 }
    }

    /// Offset of the end of the field, bytes.
    fn header(&self) -> usize {
        usize::from(self.offset) + usize::from(self.width)
    }

    #[inline]
    fn len(&self, bytes: &[u8], most: usize) -> Result<Option<usize>, FrameError> {
        let Some(field) = bytes.get(usize::from(self.offset)..self.header()) else { return Ok(None) };
        let counted = match (field, self.little_endian) {
            (&[a, b], false) => u64::from(u16::from_be_bytes([a, b])),
            (&[a, b], true) => u64::from(u16::from_le_bytes([a, b])),
            (&[a, b, c, d], false) => u64::from(u32::from_be_bytes([a, b, c, d])),
            (&[a, b, c, d], true) => u64::from(u32::from_le_bytes([a, b, c, d])),
            _ => return Err(FrameError::Malformed("a length field must have 2 or 4 bytes")),
        };
        let header = self.header() as u64;
        let len = counted + u64::from(self.uncounted) + if self.inclusive { 0 } else { header };
        if len < header {
            return Err(FrameError::Malformed("an inclusive length is less than the length of its field"));
        }
        if len > most as u64 {
            return Err(FrameError::TooLong { len, most });
        }
        Ok((bytes.len() as u64 >= len).then_some(len as usize))
    }
}

/// RFC 6587 § 3.4.1: `MSG-LEN = NONZERO-DIGIT *DIGIT`.
fn octet_counted(bytes: &[u8], most: usize) -> Result<Option<usize>, FrameError> {
    let mut counted = 0u64;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'0' if at == 0 => return Err(FrameError::Malformed("a message's length begins with 0")),
            b'0'..=b'9' => counted = counted * 10 + u64::from(byte - b'0'),
            b' ' if at > 0 => {
                let len = counted + at as u64 + 1;
                if len > most as u64 {
                    return Err(FrameError::TooLong { len, most });
                }
                return Ok((bytes.len() as u64 >= len).then_some(len as usize));
            }
            _ => return Err(FrameError::Malformed("a message does not begin with its length and a space")),
        }
        if counted > most as u64 {
            return Err(FrameError::TooLong { len: counted, most });
        }
    }
    Ok(None)
}

fn within(len: usize, most: usize) -> Result<usize, FrameError> {
    if len > most { Err(FrameError::TooLong { len: len as u64, most }) } else { Ok(len) }
}

/// Reads `u16`, `u32le,inclusive,offset=2,uncounted=5`, `lines`, `nul`, `octet-counting`, or
/// `resp`.
impl FromStr for Framing {
    type Err = String;

    fn from_str(text: &str) -> Result<Framing, String> {
        let mut words = text.split(',').map(str::trim);
        let kind = words.next().unwrap_or_default();
        let mut prefix = match kind {
            "u16" | "u16le" => LengthPrefix::new(2),
            "u32" | "u32le" => LengthPrefix::new(4),
            other => {
                let framing = match other {
                    "lines" => Framing::Delimited(b'\n'),
                    "nul" => Framing::Delimited(0),
                    "octet-counting" => Framing::OctetCounting,
                    "resp" => Framing::Resp,
                    _ => return Err(format!("`{other}` is not a framing: use {KINDS}")),
                };
                return match words.next() {
                    None => Ok(framing),
                    Some(word) => Err(format!("`{other}` has no option `{word}`")),
                };
            }
        };
        prefix.little_endian = kind.ends_with("le");
        for word in words {
            let number = |value: &str| {
                value.parse().map_err(|_| format!("`{word}`: write a number of bytes from 0 to 255"))
            };
            match word.split_once('=') {
                None if word == "inclusive" => prefix.inclusive = true,
                Some(("offset", value)) => prefix.offset = number(value)?,
                Some(("uncounted", value)) => prefix.uncounted = number(value)?,
                _ => {
                    return Err(format!(
                        "`{word}` is not an option of a length: use `inclusive`, `offset=N` or `uncounted=N`"
                    ));
                }
            }
        }
        Ok(Framing::Length(prefix))
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self {
            Framing::Delimited(b'\n') => return f.write_str("lines"),
            Framing::Delimited(0) => return f.write_str("nul"),
            Framing::Delimited(byte) => return write!(f, "delimited by {byte}"),
            Framing::OctetCounting => return f.write_str("octet-counting"),
            Framing::Resp => return f.write_str("resp"),
            Framing::Length(prefix) => prefix,
        };
        write!(f, "u{}{}", 8 * prefix.width, if prefix.little_endian { "le" } else { "" })?;
        if prefix.inclusive {
            f.write_str(",inclusive")?;
        }
        for (name, value) in [("offset", prefix.offset), ("uncounted", prefix.uncounted)] {
            if value > 0 {
                write!(f, ",{name}={value}")?;
            }
        }
        Ok(())
    }
}

const KINDS: &str = "`u16`, `u16le`, `u32`, `u32le`, `lines`, `nul`, `octet-counting` or `resp`";
