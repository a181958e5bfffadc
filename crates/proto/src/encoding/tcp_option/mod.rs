//! The XCP study's header: two TCP options, kind 14 towards the receiver and kind 15 on the way
//! back.
//!
//! ```text
//! forward  | 14 | 8 | H_feedback | H_rtt | H_cwnd |      16 bits each, network byte order
//! return   | 15 | 4 | H_feedback |
//! ```
//!
//!
//! `H_feedback` is in packets ([`Split`] or whole ones), `H_rtt` in milliseconds, `H_cwnd` in
//! packets (Zhang & Henderson, INFOCOM 2005, figure 1).
//!
//! A router reads and writes kind 14 only. It finds the option with [`locate`], reads it with
//! [`Forward::read`], and rewrites its feedback in place with [`store_feedback`]. The caller
//! updates the TCP checksum.

mod tolled;

use std::ops::Range;

use tollway_law::Toll;

use super::split::{Split, encode_integer};
use crate::SackRanges;
pub use tolled::{
    Observed, Priced, Returned, Tolled, decode_preload, decode_price, encode_price, locate_toll,
};

/// The format of `H_feedback`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Feedback {
    /// A mantissa of 13 bits and an exponent of 3, which keeps fractions.
    #[default]
    Split,
    /// Whole packets, truncated toward zero; the study's "Feedback Fractions" shows the cost.
    Integer,
}

impl Feedback {
    /// `packets` as 16 bits; saturates, and converts NaN to zero.
    #[inline]
    pub fn encode(self, packets: f64) -> u16 {
        match self {
            Feedback::Split => Split::encode(packets).0,
            Feedback::Integer => encode_integer(packets) as u16,
        }
    }

    /// The number of packets, exact.
    #[inline]
    pub fn decode(self, bits: u16) -> f64 {
        match self {
            Feedback::Split => Split(bits).decode(),
            Feedback::Integer => f64::from(bits as i16),
        }
    }
}

/// The forward option, kind 14.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forward {
    /// `H_feedback`: packets of congestion window per packet, in the format of [`Feedback`].
    pub feedback: u16,
    /// `H_rtt`, milliseconds; 0 is unknown.
    pub rtt_ms: u16,
    /// `H_cwnd`, packets; 0 is unknown.
    pub cwnd: u16,
}

impl Forward {
    /// The option for `toll` on a packet of `size` bytes on the wire.
    ///
    /// `H_rtt` is the nearest millisecond, 1 to 65 535 unless unknown; `H_feedback = due · H_rtt /
    /// size`; `H_cwnd = rtt / offer`, the nearest of 1 to 65 535 unless unknown. Feedback uses the
    /// *coded* round-trip time, the only one that the reader has. Without a round-trip time there
    /// is no feedback.
    #[inline]
    pub fn from_toll(toll: &Toll, size: u32, feedback: Feedback) -> Forward {
        let rtt_ms = encode_rtt(toll.rtt);
        let cwnd = if toll.rtt > 0.0 && toll.offer > 0.0 {
            (f64::from(toll.rtt) / f64::from(toll.offer)).round().clamp(1.0, 65535.0) as u16
        } else {
            0
        };
        Forward { feedback: encode_due(toll.due, rtt_ms, size, feedback), rtt_ms, cwnd }
    }

    /// The toll that a router or receiver reads: `due` in bytes/s, `rtt` in seconds, `offer =
    /// H_rtt / H_cwnd`; `stake` and `echo` are zero.
    #[inline]
    pub fn toll(self, size: u32, feedback: Feedback) -> Toll {
        let rtt = decode_rtt(self.rtt_ms);
        let offer = if self.cwnd > 0 { rtt / f32::from(self.cwnd) } else { 0.0 };
        let due = decode_due(self.feedback, self.rtt_ms, size, feedback);
        Toll { due, rtt, offer, stake: 0.0, echo: 0.0 }
    }

    /// The option in wire format.
    pub fn to_bytes(self) -> [u8; FORWARD_LEN] {
        let (f, r, c) = (self.feedback.to_be_bytes(), self.rtt_ms.to_be_bytes(), self.cwnd.to_be_bytes());
        [FORWARD_KIND, FORWARD_LEN as u8, f[0], f[1], r[0], r[1], c[0], c[1]]
    }

    /// The forward option at byte `at` of `options`; `None` if there is none.
    #[inline]
    pub fn read(options: &[u8], at: usize) -> Option<Forward> {
        let bytes = options.get(at..)?.first_chunk::<FORWARD_LEN>()?;
        let &[FORWARD_KIND, 8, f0, f1, r0, r1, c0, c1] = bytes else { return None };
        let word = |high, low| u16::from_be_bytes([high, low]);
        Some(Forward { feedback: word(f0, f1), rtt_ms: word(r0, r1), cwnd: word(c0, c1) })
    }
}

/// Writes `feedback` over the `H_feedback` of the forward option at byte `at`, as a router does.
/// Changes two bytes; returns `false`, without a change, if no forward option starts there.
#[inline]
pub fn store_feedback(options: &mut [u8], at: usize, feedback: u16) -> bool {
    let Some(bytes) = options.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<FORWARD_LEN>()) else {
        return false;
    };
    let found = bytes[0] == FORWARD_KIND && bytes[1] == FORWARD_LEN as u8;
    if found {
        bytes[2..4].copy_from_slice(&feedback.to_be_bytes());
    }
    found
}

/// `H_feedback` for a change of `due` bytes/s, on a packet of `size` bytes that states `rtt_ms`:
/// `due · rtt / size`.
#[inline]
pub fn encode_due(due: f64, rtt_ms: u16, size: u32, feedback: Feedback) -> u16 {
    let rtt = f64::from(decode_rtt(rtt_ms));
    if rtt > 0.0 { feedback.encode(due * rtt / f64::from(size.max(1))) } else { 0 }
}

/// The change in bytes/s for `H_feedback` on a packet of `size` bytes that states `rtt_ms`; zero
/// without a round-trip time.
#[inline]
pub fn decode_due(bits: u16, rtt_ms: u16, size: u32, feedback: Feedback) -> f64 {
    let rtt = f64::from(decode_rtt(rtt_ms));
    if rtt > 0.0 { feedback.decode(bits) * f64::from(size.max(1)) / rtt } else { 0.0 }
}

/// `H_rtt` for `rtt` seconds: the nearest millisecond, from 1, since 0 means unknown, to 65 535.
#[inline]
pub fn encode_rtt(rtt: f32) -> u16 {
    if rtt > 0.0 { (f64::from(rtt) * 1e3).round().clamp(1.0, 65535.0) as u16 } else { 0 }
}

/// `H_rtt` in seconds.
#[inline]
pub fn decode_rtt(rtt_ms: u16) -> f32 {
    f32::from(rtt_ms) / 1e3
}

/// SACK blocks that fit into TCP's 40 bytes beside the XCP options and timestamps: 2 with one XCP
/// option and timestamps, 1 with both, 3 with timestamps alone, 4 alone.
pub const fn sack_blocks(forward: bool, back: bool, timestamps: bool) -> usize {
    // Two bytes of padding and the option's own two stand before its blocks of eight.
    (SPACE - len_without_sack(forward, back, timestamps) - 4) / 8
}

/// Bytes of these options in a TCP header, padded to whole words; blocks beyond the room do not
/// count.
pub const fn len(forward: bool, back: bool, timestamps: bool, sack: usize) -> usize {
    let room = sack_blocks(forward, back, timestamps);
    let blocks = if sack < room { sack } else { room };
    len_without_sack(forward, back, timestamps) + if blocks > 0 { 4 + 8 * blocks } else { 0 }
}

const fn len_without_sack(forward: bool, back: bool, timestamps: bool) -> usize {
    timestamps as usize * (2 + TIMESTAMPS_LEN) + forward as usize * FORWARD_LEN + back as usize * BACK_LEN
}

/// The reason bytes are not a list of TCP options. Offsets count from the first byte of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Longer than TCP's maximum.
    #[error("{len} bytes of TCP options exceed the {SPACE} bytes of a header")]
    TooLong {
        /// Bytes present.
        len: usize,
    },
    /// The header is shorter than its data offset, or than the minimum.
    #[error("a TCP header needs {need} bytes, and the packet has {have}")]
    Header {
        /// Bytes present.
        have: usize,
        /// Bytes by the data offset, or the minimum of 20.
        need: usize,
    },
    /// The list ends between kind and length.
    #[error("TCP option {kind} at byte {at} has no length byte")]
    NoLength {
        /// The option's kind.
        kind: u8,
        /// Its offset.
        at: usize,
    },
    /// The length fits neither the list nor the kind.
    #[error("TCP option {kind} at byte {at} has length {length}, but only {left} bytes are left")]
    Length {
        /// The option's kind.
        kind: u8,
        /// Its offset.
        at: usize,
        /// The length found.
        length: u8,
        /// Bytes from its start to the end of the list.
        left: usize,
    },
    /// An XCP option occurs twice, so the one that a router wrote is ambiguous.
    #[error("XCP option {kind} at byte {at} is the second of its kind")]
    Twice {
        /// The option's kind.
        kind: u8,
        /// Offset of the second one.
        at: usize,
    },
    /// The 40 bytes are used up (in [`Builder`]).
    #[error("no room for {need} more bytes of TCP options: {left} left")]
    Full {
        /// Bytes needed.
        need: usize,
        /// Bytes left.
        left: usize,
    },
}

/// One TCP option of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Its kind, never 0 or 1: end and padding are passed over.
    pub kind: u8,
    /// Offset of its first byte in the list.
    pub at: usize,
    /// The bytes after kind and length.
    pub body: &'a [u8],
}

/// Iterates over a list of TCP options (RFC 9293 § 3.1). Padding is skipped, as are unknown kinds
/// by their length. The list ends at its last byte, at kind 0, or after an error.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    options: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// Starts at the first byte of `options`.
    pub fn new(options: &'a [u8]) -> Walk<'a> {
        Walk { options, at: 0 }
    }

    fn fail(&mut self, error: OptionError) -> Option<Result<TcpOption<'a>, OptionError>> {
        self.at = self.options.len();
        Some(Err(error))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<TcpOption<'a>, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let kind = *self.options.get(at)?;
            match kind {
                KIND_END => {
                    self.at = self.options.len();
                    return None;
                }
                KIND_NOP => self.at += 1,
                _ => {
                    let Some(&length) = self.options.get(at + 1) else {
                        return self.fail(OptionError::NoLength { kind, at });
                    };
                    let end = at + usize::from(length);
                    let left = self.options.len() - at;
                    let fits = match kind {
                        FORWARD_KIND => usize::from(length) == FORWARD_LEN,
                        BACK_KIND => usize::from(length) == BACK_LEN,
                        KIND_TIMESTAMPS => usize::from(length) == TIMESTAMPS_LEN,
                        KIND_SACK => length >= 10 && length % 8 == 2,
                        _ => length >= 2,
                    };
                    if !fits || usize::from(length) > left {
                        return self.fail(OptionError::Length { kind, at, length, left });
                    }
                    self.at = end;
                    return Some(Ok(TcpOption { kind, at, body: &self.options[at + 2..end] }));
                }
            }
        }
    }
}

/// Offsets of the XCP options in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// Kind 14.
    pub forward: Option<usize>,
    /// Kind 15.
    pub back: Option<usize>,
}

/// Finds the XCP options. The whole list is checked, so that an invalid header is never rewritten.
///
/// # Errors
/// [`OptionError`]; a router then forwards the packet unchanged.
pub fn locate(options: &[u8]) -> Result<Located, OptionError> {
    check_space(options)?;
    let mut located = Located::default();
    for option in Walk::new(options) {
        let TcpOption { kind, at, .. } = option?;
        let place = match kind {
            FORWARD_KIND => &mut located.forward,
            BACK_KIND => &mut located.back,
            _ => continue,
        };
        if place.replace(at).is_some() {
            return Err(OptionError::Twice { kind, at });
        }
    }
    Ok(located)
}

/// The options that an end of a connection reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The forward option.
    pub forward: Option<Forward>,
    /// The return option's `H_feedback`.
    pub back: Option<u16>,
    /// Timestamps (RFC 7323): value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// Blocks of the SACK option (RFC 2018), left and right edge.
    pub sack: SackRanges,
}

/// Reads the options that the ends of an XCP connection use; others are skipped.
///
/// # Errors
/// [`OptionError`] names the place of the fault.
pub fn parse(options: &[u8]) -> Result<Parsed, OptionError> {
    let located = locate(options)?;
    let mut parsed =
        Parsed { forward: located.forward.and_then(|at| Forward::read(options, at)), ..Parsed::default() };
    for option in Walk::new(options) {
        let TcpOption { kind, body, .. } = option?;
        let mut words = body.chunks_exact(8).filter_map(|pair| pair.first_chunk::<8>()).map(split_words);
        match kind {
            BACK_KIND => parsed.back = body.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes)),
            KIND_TIMESTAMPS => parsed.timestamps = words.next(),
            KIND_SACK => {
                parsed.sack = SackRanges::EMPTY;
                // A list of 40 bytes has room for no more than four blocks, which is what the
                // ranges hold.
                words.for_each(|(start, end)| _ = parsed.sack.push(start, end));
            }
            _ => {}
        }
    }
    Ok(parsed)
}

/// The range of the options in a segment that begins with its TCP header.
///
/// # Errors
/// [`OptionError::Header`] if the header is shorter than 20 bytes or than its data offset.
pub fn option_range(segment: &[u8]) -> Result<Range<usize>, OptionError> {
    let have = segment.len();
    let Some(&offset) = segment.get(12).filter(|_| have >= TCP_HEADER) else {
        return Err(OptionError::Header { have, need: TCP_HEADER });
    };
    let need = usize::from(offset >> 4) * 4;
    if need < TCP_HEADER || need > have {
        return Err(OptionError::Header { have, need: need.max(TCP_HEADER) });
    }
    Ok(TCP_HEADER..need)
}

fn check_space(options: &[u8]) -> Result<(), OptionError> {
    if options.len() > SPACE { Err(OptionError::TooLong { len: options.len() }) } else { Ok(()) }
}

fn split_words(pair: &[u8; 8]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = *pair;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// Builds a list of options within TCP's 40 bytes, each padded in front so that its fields are
/// aligned to words.
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    bytes: [u8; SPACE],
    len: usize,
}

impl Builder {
    /// An empty list.
    pub fn new() -> Builder {
        Builder { bytes: [KIND_NOP; SPACE], len: 0 }
    }

    /// Adds timestamps (RFC 7323), 12 bytes with their padding.
    ///
    /// # Errors
    /// [`OptionError::Full`]; the list is unchanged then, also in the methods below.
    pub fn timestamps(&mut self, value: u32, echo: u32) -> Result<(), OptionError> {
        let room = self.take(2 + TIMESTAMPS_LEN)?;
        room[2] = KIND_TIMESTAMPS;
        room[3] = TIMESTAMPS_LEN as u8;
        room[4..8].copy_from_slice(&value.to_be_bytes());
        room[8..12].copy_from_slice(&echo.to_be_bytes());
        Ok(())
    }

    /// Adds the forward option, 8 bytes.
    ///
    /// # Errors
    /// [`OptionError::Full`].
    pub fn forward(&mut self, forward: Forward) -> Result<(), OptionError> {
        self.take(FORWARD_LEN)?.copy_from_slice(&forward.to_bytes());
        Ok(())
    }

    /// Adds the return option, 4 bytes.
    ///
    /// # Errors
    /// [`OptionError::Full`].
    pub fn back(&mut self, feedback: u16) -> Result<(), OptionError> {
        let [high, low] = feedback.to_be_bytes();
        self.take(BACK_LEN)?.copy_from_slice(&[BACK_KIND, BACK_LEN as u8, high, low]);
        Ok(())
    }

    /// Adds as many of `ranges` as fit, from the first on. Returns their number.
    pub fn sack(&mut self, ranges: &[(u32, u32)]) -> usize {
        let blocks = ranges.len().min((SPACE - self.len).saturating_sub(4) / 8);
        if blocks == 0 {
            return 0;
        }
        let Ok(room) = self.take(4 + 8 * blocks) else { return 0 };
        room[2] = KIND_SACK;
        room[3] = (2 + 8 * blocks) as u8;
        for (bytes, (start, end)) in room[4..].chunks_exact_mut(8).zip(ranges) {
            bytes[..4].copy_from_slice(&start.to_be_bytes());
            bytes[4..].copy_from_slice(&end.to_be_bytes());
        }
        blocks
    }

    /// The list, a whole number of words.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn take(&mut self, need: usize) -> Result<&mut [u8], OptionError> {
        let left = SPACE - self.len;
        if need > left {
            return Err(OptionError::Full { need, left });
        }
        let start = self.len;
        self.len += need;
        Ok(&mut self.bytes[start..self.len])
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

/// Bytes available to options in TCP.
pub const SPACE: usize = 40;
/// Length of TCP's header without options.
pub const TCP_HEADER: usize = 20;
/// Kind of the forward option, chosen by the study; it is in no registry.
pub const FORWARD_KIND: u8 = 14;
/// Length of the forward option.
pub const FORWARD_LEN: usize = 8;
/// Kind of the return option.
pub const BACK_KIND: u8 = 15;
/// Length of the return option.
pub const BACK_LEN: usize = 4;

const KIND_END: u8 = 0;
const KIND_NOP: u8 = 1;
const KIND_SACK: u8 = 5;
const KIND_TIMESTAMPS: u8 = 8;
const TIMESTAMPS_LEN: usize = 10;

#[cfg(test)]
mod tests;
