//! The congestion-header encodings: the bytes of a toll, and the precision that they lose.
//!
//! | encoding | place | carries | precision |
//! |---|---|---|---|
//! | [`acp`] | before a segment, over UDP | the whole toll | exact |
//! | [`tcp_option`] | TCP options 14 and 15 (the XCP study) | XCP's toll | ms, whole packets |
//! | [`draft20`] | between IP and TCP (draft-falk-xcp-spec) | XCP's toll | bytes/s, 2^-28 s |
//! | [`anypoint`] | after TCP's header (Anypoint), live only | XCP's toll | bytes, 2^-10 s |
//!
//! On real packets bytes are loaded and stored. The simulator has no bytes. It calls the three
//! `quantise` methods of its [`Encoding`], which change a toll exactly as a write and a read would,
//! at the same three places:
//!
//! | place | real packets | simulator |
//! |---|---|---|
//! | a sender's tolled packet | RTT, cwnd, request written | [`Encoding::quantise_sender`] |
//! | a link, after its law | feedback rewritten in place | [`Encoding::quantise_link`] |
//! | a receiver's packet with an echo | returned feedback written | [`Encoding::quantise_echo`] |
//!
//! Each is idempotent: the next hop does not change a quantised value unless a law does.

pub mod acp;
pub mod anypoint;
mod check;
pub mod draft20;
pub mod frame;
pub mod split;
pub mod tcp_option;

use std::str::FromStr;

use tollway_law::Toll;

pub use check::{RoundTrips, SelfCheck, self_check};
pub use split::Split;
pub use tcp_option::Feedback;

/// The encoding of tolls: chosen by a scenario, for both engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The project's own header, exact; the only encoding for laws other than XCP.
    #[default]
    Acp,
    /// The XCP study's TCP options.
    TcpOption {
        /// The format of `H_feedback`.
        feedback: Feedback,
    },
    /// The header of the XCP draft.
    Draft20 {
        /// The draft's version.
        version: draft20::Version,
    },
}

impl Encoding {
    /// Each encoding with its name in scenario files.
    pub const NAMED: [(&'static str, Encoding); 5] = [
        ("acp", Encoding::Acp),
        ("tcp-option", Encoding::TcpOption { feedback: Feedback::Split }),
        ("tcp-option-integer", Encoding::TcpOption { feedback: Feedback::Integer }),
        ("draft-02", Encoding::Draft20 { version: draft20::Version::V2 }),
        ("draft-03", Encoding::Draft20 { version: draft20::Version::V3 }),
    ];

    /// True if it carries XCP's toll only: no `stake`, and `due` as a change of throughput, so a
    /// price would be lost.
    pub const fn xcp_only(&self) -> bool {
        !matches!(self, Encoding::Acp)
    }

    /// Rounds the forward part of `toll` to the values that the first link will read, as a packet
    /// of `size` bytes on the wire leaves its sender.
    ///
    /// Call it for tolled packets only, after the sender's law wrote the toll; `echo` is not
    /// changed.
    ///
    /// In TCP options feedback is in packets of *this packet's* size, which is what a router sees.
    /// `rtt` becomes whole milliseconds. `offer` becomes `rtt` divided by whole packets of window,
    /// so `X` errs by up to half a packet in the window. If `rtt` is unknown, nothing else is known
    /// either, and `due` is 0.
    #[inline]
    pub fn quantise_sender(&self, toll: &mut Toll, size: u32) {
        let echo = toll.echo;
        match *self {
            Encoding::Acp => return,
            Encoding::TcpOption { feedback } => {
                *toll = tcp_option::Forward::from_toll(toll, size, feedback).toll(size, feedback);
            }
            Encoding::Draft20 { .. } => {
                toll.due = f64::from(draft20::encode_change(toll.due));
                toll.rtt = draft20::decode_seconds(draft20::encode_seconds(toll.rtt));
                toll.offer = draft20::decode_seconds(draft20::encode_seconds(toll.offer));
                toll.stake = 0.0;
            }
        }
        toll.echo = echo;
    }

    /// Rounds `toll.due` to the value that the next reader will find, as a packet of `size` bytes
    /// on the wire leaves a link whose law wrote it.
    ///
    /// Call it for tolled packets only, whose sender part went through
    /// [`Encoding::quantise_sender`]; a link writes only `due`.
    #[inline]
    pub fn quantise_link(&self, toll: &mut Toll, size: u32) {
        match *self {
            Encoding::Acp => {}
            Encoding::TcpOption { feedback } => {
                let rtt_ms = tcp_option::encode_rtt(toll.rtt);
                let bits = tcp_option::encode_due(toll.due, rtt_ms, size, feedback);
                toll.due = tcp_option::decode_due(bits, rtt_ms, size, feedback);
            }
            Encoding::Draft20 { .. } => toll.due = f64::from(draft20::encode_change(toll.due)),
        }
    }

    /// The value that the sender will read for `echo` bytes/s, the sum that its receiver returns.
    ///
    /// The draft's header returns bytes per second. Option 15 returns *packets of window*, of a
    /// full `segment` on the wire, which both ends know: `H_feedback = echo · rtt / segment`.
    ///
    /// The option has no room for `rtt`. The receiver converts with the `rtt` of the last tolled
    /// packet it received (in seconds, as quantised), and the sender with the `H_rtt` it last
    /// wrote. The two differ only if the smoothed round-trip time crossed a whole millisecond
    /// within the last round trip. The simulator uses the receiver's for both. The part that does
    /// not fit 16 bits is lost; a receiver may keep it for its next echo.
    #[inline]
    pub fn quantise_echo(&self, echo: f32, rtt: f32, segment: u32) -> f32 {
        match *self {
            Encoding::Acp => echo,
            Encoding::TcpOption { feedback } => {
                let rtt_ms = tcp_option::encode_rtt(rtt);
                let bits = tcp_option::encode_due(f64::from(echo), rtt_ms, segment, feedback);
                tcp_option::decode_due(bits, rtt_ms, segment, feedback) as f32
            }
            Encoding::Draft20 { .. } => draft20::encode_change(f64::from(echo)) as f32,
        }
    }

    /// SACK blocks that fit on a packet. `forward`: it carries a toll for links; `back`: it carries
    /// an echo.
    ///
    /// Only TCP's options compete for room; [`Encoding::Acp`] always has room for four.
    pub const fn sack_blocks(&self, forward: bool, back: bool, timestamps: bool) -> usize {
        match self {
            Encoding::Acp => crate::SackRanges::MAX,
            Encoding::TcpOption { .. } => tcp_option::sack_blocks(forward, back, timestamps),
            Encoding::Draft20 { .. } => tcp_option::sack_blocks(false, false, timestamps),
        }
    }

    /// Bytes of headers of a packet, from IPv4 on, with `sack` blocks (those beyond the room do not
    /// count). The packet's size less this is its payload.
    ///
    /// [`Encoding::Acp`] always has timestamps and a toll, and the draft's header is on every
    /// packet.
    pub const fn header_bytes(&self, forward: bool, back: bool, timestamps: bool, sack: usize) -> usize {
        let room = self.sack_blocks(forward, back, timestamps);
        let sack = if sack < room { sack } else { room };
        match self {
            Encoding::Acp => acp::OVERHEAD + acp::header_len(sack),
            Encoding::TcpOption { .. } => {
                IPV4_HEADER + tcp_option::TCP_HEADER + tcp_option::len(forward, back, timestamps, sack)
            }
            Encoding::Draft20 { .. } => {
                IPV4_HEADER
                    + draft20::LEN
                    + tcp_option::TCP_HEADER
                    + tcp_option::len(false, false, timestamps, sack)
            }
        }
    }

    /// The name in scenario files.
    pub fn name(&self) -> &'static str {
        // Every variant is in the table, as a test makes sure.
        Encoding::NAMED.iter().find(|(_, encoding)| encoding == self).map_or("acp", |(name, _)| name)
    }
}

/// The error of a name without an encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not an encoding: use acp, tcp-option, tcp-option-integer, draft-02 or draft-03")]
pub struct UnknownEncoding {
    /// The name given.
    pub name: String,
}

impl FromStr for Encoding {
    type Err = UnknownEncoding;

    fn from_str(name: &str) -> Result<Encoding, UnknownEncoding> {
        let found = Encoding::NAMED.iter().find(|(known, _)| *known == name);
        found.map(|(_, encoding)| *encoding).ok_or_else(|| UnknownEncoding { name: name.to_owned() })
    }
}

const IPV4_HEADER: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_answered_with_the_list() {
        for (name, encoding) in Encoding::NAMED {
            assert_eq!(name.parse(), Ok(encoding));
            assert_eq!(encoding.name(), name);
        }
        let error = "tcp".parse::<Encoding>().unwrap_err().to_string();
        assert!(Encoding::NAMED.iter().all(|(name, _)| error.contains(name)), "{error}");
    }

    #[test]
    fn headers_take_what_they_take_on_the_wire() {
        let study = Encoding::TcpOption { feedback: Feedback::Split };
        assert_eq!(study.header_bytes(true, false, true, 0), 20 + 20 + 12 + 8);
        assert_eq!(study.header_bytes(false, true, true, 9), 20 + 20 + 12 + 4 + 4 + 16);
        assert_eq!(Encoding::Acp.header_bytes(true, true, true, 1), 28 + 52 + 8);
        let draft = Encoding::Draft20 { version: draft20::Version::V3 };
        assert_eq!(draft.header_bytes(true, true, true, 0), 20 + 20 + 20 + 12);
        assert_eq!(draft.sack_blocks(true, true, true), 3);
        assert_eq!(Encoding::Acp.sack_blocks(true, true, true), 4);
    }
}
