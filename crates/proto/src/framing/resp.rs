//! The ends of RESP values.
//!
//! The content of a value is parsed by `redis-protocol`, which needs the whole value from its start
//! at each call, and recurses without a bound. So the end is found here first: in one pass for any
//! arrival of bytes, without recursion, to a limited depth.

use super::FrameError;

/// A scan of one value, resumed at the element where the input ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// Offset of the present element, and the length of its header searched without an end.
    at: usize,
    searched: usize,
    depth: usize,
    /// Elements still to come, for each open aggregate.
    open: [u64; DEPTH],
}

impl Scan {
    pub(super) fn end(&mut self, bytes: &[u8], most: usize) -> Result<Option<usize>, FrameError> {
        loop {
            let from = self.at.max(self.searched);
            let Some(line_end) = memchr::memchr(b'\n', bytes.get(from..).unwrap_or_default()) else {
                self.searched = bytes.len();
                let kind = bytes.get(self.at);
                if kind.is_some_and(|kind| COUNTED.contains(kind)) && bytes.len() - self.at > LONGEST_COUNT {
                    return Err(FrameError::Malformed("too big count string"));
                }
                return super::within(bytes.len(), most).map(|_| None);
            };
            let next = from + line_end + 1;
            let Some((&kind, line)) = bytes[self.at..next].split_first() else { return Ok(None) };
            let Some(line) = line.strip_suffix(b"\r\n") else {
                return Err(FrameError::Malformed("a line of RESP does not end with CR LF"));
            };
            let mut end = next as u64;
            let children = match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => 0,
                b'$' | b'!' | b'=' => {
                    if let Some(len) = length(line, "invalid bulk length")? {
                        end = end.saturating_add(len).saturating_add(2);
                    }
                    0
                }
                // Redis ignores a command of fewer than no words.
                b'*' if line.starts_with(b"-") => {
                    length(&line[1..], "invalid multibulk length")?;
                    0
                }
                b'*' | b'~' | b'>' => length(line, "invalid multibulk length")?.unwrap_or(0),
                b'%' => length(line, "invalid multibulk length")?.unwrap_or(0).saturating_mul(2),
                // An attribute precedes the value that it is about.
                b'|' => {
                    length(line, "invalid multibulk length")?.unwrap_or(0).saturating_mul(2).saturating_add(1)
                }
                _ => {
                    return Err(FrameError::Malformed("a RESP value begins with an unknown byte"));
                }
            };
            // The shortest element has three bytes.
            let least = end.saturating_add(children.saturating_mul(3));
            if least > most as u64 {
                return Err(FrameError::TooLong { len: least, most });
            }
            if end > bytes.len() as u64 {
                return Ok(None);
            }
            self.at = end as usize;
            if children > 0 {
                let Some(slot) = self.open.get_mut(self.depth) else {
                    return Err(FrameError::Malformed("values of RESP are nested too deeply"));
                };
                *slot = children;
                self.depth += 1;
            } else if self.is_last() {
                let len = self.at;
                *self = Scan::default();
                return Ok(Some(len));
            }
        }
    }

    /// Counts a finished element, and the aggregates that end with it. Returns true if the
    /// outermost did.
    fn is_last(&mut self) -> bool {
        while self.depth > 0 {
            let left = &mut self.open[self.depth - 1];
            *left -= 1;
            if *left > 0 {
                return false;
            }
            self.depth -= 1;
        }
        true
    }
}

/// The length, or `None` for a null (`-1`).
fn length(digits: &[u8], wrong: &'static str) -> Result<Option<u64>, FrameError> {
    if digits == b"-1" {
        return Ok(None);
    }
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(FrameError::Malformed(wrong));
    }
    Ok(Some(digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))))
}

/// Kinds that begin with a count.
const COUNTED: &[u8] = b"$!=*~>%|";
/// Most bytes of a count, as in Redis.
const LONGEST_COUNT: usize = 64 << 10;
/// Maximum nesting depth of aggregates.
const DEPTH: usize = 16;
