//! The 20-byte congestion header of draft-falk-xcp-spec, between IP and the transport, in network
//! byte order.
//!
//! ```text
//! byte    0            1         2         3      4      5     8     12        16
//! v2 (-02)| next proto | len 20  | version | format | unused | RTT | X   | Delta   | Reverse |
//! v3 (-03)| next proto | len 20  | version | format | unused | X   | RTT | Reverse | Delta   |
//! ```
//!
//! `RTT` and `X` (time between this sender's packets) are unsigned fixed-point seconds with 4
//! integer and 28 fractional bits; `Delta_Throughput` and `Reverse_Feedback` are signed bytes per
//! second. The two drafts differ in the order of the fields; the version on the wire selects it.

use tollway_law::Toll;

/// The draft that defines the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// draft-falk-xcp-spec-02: RTT, X, Delta, Reverse.
    V2,
    /// draft-falk-xcp-spec-03: X, RTT, Reverse, Delta.
    #[default]
    V3,
}

impl Version {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Version::V2 => 2,
            Version::V3 => 3,
        }
    }

    /// Offsets of X, RTT, Delta and Reverse.
    const fn places(self) -> Places {
        match self {
            Version::V2 => Places { rtt: 4, x: 8, delta: 12, reverse: 16 },
            Version::V3 => Places { x: 4, rtt: 8, reverse: 12, delta: 16 },
        }
    }
}

/// The header's format, which tells links whether to write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Format 1, on data: all fields are valid.
    #[default]
    Standard,
    /// Format 2, on acknowledgements: only the reverse feedback is valid, and routers do not write.
    Minimal,
}

/// The header's fields, as they are on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// IP protocol number of the next header.
    pub next: u8,
    /// Order of the fields.
    pub version: Version,
    /// Standard or minimal.
    pub format: Format,
    /// Time between the sender's packets, 2^-28 s; 0 unknown.
    pub x: u32,
    /// Sender's smoothed round-trip time, 2^-28 s; 0 unknown.
    pub rtt: u32,
    /// Change of throughput, first requested, then granted, bytes/s.
    pub delta: i32,
    /// The feedback that the receiver returns, bytes/s.
    pub reverse: i32,
}

impl Header {
    /// The standard header that carries `toll`, without `stake`.
    pub fn from_toll(toll: &Toll, version: Version, next: u8) -> Header {
        Header {
            next,
            version,
            format: Format::Standard,
            x: encode_seconds(toll.offer),
            rtt: encode_seconds(toll.rtt),
            delta: encode_change(toll.due),
            reverse: encode_change(f64::from(toll.echo)),
        }
    }

    /// The header of an acknowledgement without data, which holds only the echo.
    pub fn minimal(echo: f32, version: Version, next: u8) -> Header {
        Header {
            next,
            version,
            format: Format::Minimal,
            reverse: encode_change(f64::from(echo)),
            ..Header::default()
        }
    }

    /// The toll of this header. A minimal header has an echo only, whatever its other fields hold.
    #[inline]
    pub fn toll(&self) -> Toll {
        let echo = self.reverse as f32;
        match self.format {
            Format::Minimal => Toll { echo, ..Toll::default() },
            Format::Standard => Toll {
                due: f64::from(self.delta),
                rtt: decode_seconds(self.rtt),
                offer: decode_seconds(self.x),
                stake: 0.0,
                echo,
            },
        }
    }

    /// Reads the header at the start of `bytes`. Bytes after it, and the unused byte, are not
    /// checked.
    ///
    /// # Errors
    /// [`DraftError`] if there are too few bytes, or the length, version or format is unknown.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, DraftError> {
        let Some(bytes) = bytes.first_chunk::<LEN>() else {
            return Err(DraftError::TooShort { have: bytes.len() });
        };
        let [next, length, version_format, ..] = *bytes;
        if usize::from(length) != LEN {
            return Err(DraftError::Length { length });
        }
        let version = match version_format >> 4 {
            2 => Version::V2,
            3 => Version::V3,
            version => return Err(DraftError::Version { version }),
        };
        let format = match version_format & 0xf {
            1 => Format::Standard,
            2 => Format::Minimal,
            format => return Err(DraftError::Format { format }),
        };
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let places = version.places();
        Ok(Header {
            next,
            version,
            format,
            x: u32::from_be_bytes(word(places.x)),
            rtt: u32::from_be_bytes(word(places.rtt)),
            delta: i32::from_be_bytes(word(places.delta)),
            reverse: i32::from_be_bytes(word(places.reverse)),
        })
    }

    /// The header in wire format.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let format = match self.format {
            Format::Standard => 1,
            Format::Minimal => 2,
        };
        let mut bytes = [0; LEN];
        bytes[..3].copy_from_slice(&[self.next, LEN as u8, self.version.number() << 4 | format]);
        let places = self.version.places();
        bytes[places.x..][..4].copy_from_slice(&self.x.to_be_bytes());
        bytes[places.rtt..][..4].copy_from_slice(&self.rtt.to_be_bytes());
        bytes[places.delta..][..4].copy_from_slice(&self.delta.to_be_bytes());
        bytes[places.reverse..][..4].copy_from_slice(&self.reverse.to_be_bytes());
        bytes
    }
}

/// Writes `delta` (bytes/s, see [`encode_change`]) over the `Delta_Throughput` of the header at the
/// start of `bytes`, as a router does. Changes four bytes.
///
/// # Errors
/// As [`Header::parse`], and [`DraftError::Untouchable`] for a minimal header; nothing is written
/// then.
#[inline]
pub fn store_delta(bytes: &mut [u8], delta: i32) -> Result<(), DraftError> {
    let header = Header::parse(bytes)?;
    if header.format == Format::Minimal {
        return Err(DraftError::Untouchable);
    }
    bytes[header.version.places().delta..][..4].copy_from_slice(&delta.to_be_bytes());
    Ok(())
}

/// `seconds` in units of 2^-28 s, to the nearest, at most 15.9999999963 s. At least one unit for
/// any positive time; zero, negative and NaN give 0, "unknown".
#[inline]
pub fn encode_seconds(seconds: f32) -> u32 {
    // `as` saturates.
    if seconds > 0.0 { ((f64::from(seconds) * UNITS_PER_SECOND).round() as u32).max(1) } else { 0 }
}

/// The time in seconds. The longest times lose the bits beyond a float's 24; encoded again they
/// give the same float.
#[inline]
pub fn decode_seconds(units: u32) -> f32 {
    (f64::from(units) / UNITS_PER_SECOND) as f32
}

/// A change of throughput in whole bytes/s, to the nearest. Saturates at ±2^31 bytes/s (17.18
/// Gbit/s); NaN gives zero.
#[inline]
pub fn encode_change(change: f64) -> i32 {
    change.round() as i32
}

/// The reason bytes are not a congestion header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    /// Too few bytes.
    #[error("an XCP header needs {LEN} bytes, and the packet has {have}")]
    TooShort {
        /// Bytes present.
        have: usize,
    },
    /// The length byte is wrong.
    #[error("byte 1: the length of an XCP header is {length} instead of {LEN}")]
    Length {
        /// The length found.
        length: u8,
    },
    /// Neither version 2 nor 3.
    #[error("byte 2: XCP header version {version}, but only 2 and 3 are supported")]
    Version {
        /// The version found.
        version: u8,
    },
    /// Neither standard nor minimal.
    #[error("byte 2: XCP header format {format}, but only 1 (standard) and 2 (minimal) are supported")]
    Format {
        /// The format found.
        format: u8,
    },
    /// A minimal header, which routers must not write.
    #[error("a minimal XCP header has no field for a throughput change")]
    Untouchable,
}

struct Places {
    x: usize,
    rtt: usize,
    delta: usize,
    reverse: usize,
}

/// Length of the header, bytes.
pub const LEN: usize = 20;

/// Units per second, with 28 fractional bits.
const UNITS_PER_SECOND: f64 = (1u32 << 28) as f64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = Header> {
        let version = prop_oneof![Just(Version::V2), Just(Version::V3)];
        let format = prop_oneof![Just(Format::Standard), Just(Format::Minimal)];
        (any::<(u8, u32, u32, i32, i32)>(), version, format).prop_map(
            |((next, x, rtt, delta, reverse), version, format)| Header {
                next,
                version,
                format,
                x,
                rtt,
                delta,
                reverse,
            },
        )
    }

    #[test]
    fn each_version_has_its_own_order() {
        let mut header = Header {
            next: 6,
            version: Version::V3,
            format: Format::Standard,
            x: 0x0102_0304,
            rtt: 0x1112_1314,
            delta: -1,
            reverse: 0x3132_3334,
        };
        let v3 = [6, 20, 0x31, 0, 1, 2, 3, 4, 17, 18, 19, 20, 49, 50, 51, 52, 255, 255, 255, 255];
        assert_eq!(header.to_bytes(), v3);
        header.version = Version::V2;
        let v2 = [6, 20, 0x21, 0, 17, 18, 19, 20, 1, 2, 3, 4, 255, 255, 255, 255, 49, 50, 51, 52];
        assert_eq!(header.to_bytes(), v2);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let good = Header::default().to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        assert_eq!(with(1, 24), Err(DraftError::Length { length: 24 }));
        assert_eq!(with(2, 0x11), Err(DraftError::Version { version: 1 }));
        assert_eq!(with(2, 0x41), Err(DraftError::Version { version: 4 }));
        assert_eq!(with(2, 0x30), Err(DraftError::Format { format: 0 }));
        assert_eq!(with(2, 0x33), Err(DraftError::Format { format: 3 }));
        assert!(with(3, 99).is_ok(), "the unused byte is not looked at");
        for cut in 0..LEN {
            assert_eq!(Header::parse(&good[..cut]), Err(DraftError::TooShort { have: cut }));
        }
    }

    #[test]
    fn seconds_and_changes_end_where_the_draft_says() {
        assert_eq!(encode_seconds(1.0), 1 << 28);
        assert_eq!(encode_seconds(0.0), 0);
        assert_eq!(encode_seconds(f32::NAN), 0);
        assert_eq!(encode_seconds(1e-12), 1);
        assert_eq!(encode_seconds(20.0), u32::MAX);
        assert_eq!(encode_seconds(f32::INFINITY), u32::MAX);
        assert_eq!(encode_change(0.4), 0);
        assert_eq!(encode_change(-0.6), -1);
        assert_eq!(encode_change(1e24), i32::MAX);
        assert_eq!(encode_change(f64::NEG_INFINITY), i32::MIN);
        assert_eq!(encode_change(f64::NAN), 0);
    }

    #[test]
    fn an_acknowledgement_says_only_what_goes_back() {
        let mut header = Header::minimal(-1234.4, Version::V2, 6);
        header.delta = 5;
        header.rtt = 5;
        assert_eq!(header.toll(), Toll { echo: -1234.0, ..Toll::default() });
        let mut bytes = header.to_bytes();
        assert_eq!(store_delta(&mut bytes, 7), Err(DraftError::Untouchable));
        assert_eq!(bytes, header.to_bytes());
    }

    proptest! {
        #[test]
        fn headers_read_back(header in header(), tail in prop::collection::vec(any::<u8>(), 0..8)) {
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend(tail);
            prop_assert_eq!(Header::parse(&bytes), Ok(header));
        }

        #[test]
        fn a_rewrite_touches_the_delta_alone(header in header(), delta: i32) {
            let mut bytes = header.to_bytes();
            if store_delta(&mut bytes, delta).is_ok() {
                prop_assert_eq!(Header::parse(&bytes), Ok(Header { delta, ..header }));
                let changed = bytes.iter().zip(header.to_bytes()).filter(|(a, b)| **a != *b).count();
                prop_assert!(changed <= 4);
            } else {
                prop_assert_eq!(header.format, Format::Minimal);
                prop_assert_eq!(bytes, header.to_bytes());
            }
        }

        #[test]
        fn every_time_codes_again_to_itself(units: u32) {
            let seconds = decode_seconds(units);
            let again = encode_seconds(seconds);
            prop_assert_eq!(decode_seconds(again), seconds);
            prop_assert!(units.abs_diff(again) <= units >> 24);
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..32)) {
            let _ = Header::parse(&bytes);
            let _ = store_delta(&mut bytes, 1);
        }
    }
}
