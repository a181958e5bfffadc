//! The congestion-header encodings: how a toll is written as bytes, and what is lost on the way.
//!
//! | encoding | where it stands | carries | loses |
//! |---|---|---|---|
//! | [`acp`] | in front of a segment, over UDP | the whole toll | nothing |
//! | [`tcp_option`] | options 14 and 15 of a TCP header (the XCP study) | XCP's toll | whole ms of RTT, packets of cwnd, 13+3-bit feedback |
//! | [`draft20`] | 20 bytes between IP and TCP (draft-falk-xcp-spec) | XCP's toll | whole bytes/s, 2^-28 s |
//! | [`anypoint`] | five words behind TCP's header (the Anypoint paper) | XCP's toll | bytes of window, 2^-10 s; live only |
//!
//! On real packets bytes are loaded and stored. The simulator has no bytes: it calls the three
//! `quantise` methods of its [`Encoding`], which do to a toll exactly what being written and read
//! would do, at the same three places:
//!
//! | place | on real packets | in the simulator |
//! |---|---|---|
//! | a sender transmits a tolled packet | writes RTT, cwnd and the feedback asked for | [`Encoding::quantise_sender`] |
//! | a link sends a tolled packet on, its law having written `due` | rewrites the feedback in place | [`Encoding::quantise_link`] |
//! | a receiver sends a packet with an echo | writes the feedback to return | [`Encoding::quantise_echo`] |
//!
//! Each is a fixed point of itself: a value once quantised is not changed by the next hop unless a
//! law changes it.

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

/// How tolls travel: a scenario's choice, in both engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The project's own header, without loss: the only one for laws other than XCP.
    #[default]
    Acp,
    /// The XCP study's TCP options.
    TcpOption {
        /// How `H_feedback` is held.
        feedback: Feedback,
    },
    /// The header of the XCP draft.
    Draft20 {
        /// The draft's version.
        version: draft20::Version,
    },
}

impl Encoding {
    /// Each encoding by the name it has in a scenario.
    pub const NAMED: [(&'static str, Encoding); 5] = [
        ("acp", Encoding::Acp),
        ("tcp-option", Encoding::TcpOption { feedback: Feedback::Split }),
        ("tcp-option-integer", Encoding::TcpOption { feedback: Feedback::Integer }),
        ("draft-02", Encoding::Draft20 { version: draft20::Version::V2 }),
        ("draft-03", Encoding::Draft20 { version: draft20::Version::V3 }),
    ];

    /// Whether it carries XCP's toll only: no `stake`, and `due` as a change of throughput, so that
    /// a price would be lost.
    pub const fn xcp_only(&self) -> bool {
        !matches!(self, Encoding::Acp)
    }

    /// Makes of the forward part of `toll` what the first link will read, as the sender's packet of
    /// `size` bytes on the wire leaves. Call it for tolled packets only, after the sender's law
    /// wrote the toll; `echo` is left alone.
    ///
    /// In TCP options feedback is in packets, of *this packet's* size: that is what a router sees.
    /// `rtt` becomes whole milliseconds and `offer` that divided by whole packets of window, so a
    /// law's `X` is off by up to half a packet in the window. With an unknown `rtt` nothing else is
    /// known either, and `due` is 0.
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

    /// Makes of `toll.due` what the next reader of the packet, of `size` bytes on the wire, will
    /// find, as it leaves a link whose law has written it. Call it for tolled packets only, whose
    /// sender part went through [`Encoding::quantise_sender`]; a link writes nothing but `due`.
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

    /// What the sender will read of `echo` bytes/s, the sum its receiver returns.
    ///
    /// The draft's header returns bytes a second. Option 15 returns *packets of window*, of a full
    /// `segment` on the wire (which both ends know): `H_feedback = echo · rtt / segment`. It has no
    /// room for `rtt`, so the receiver converts with the `rtt` of the last tolled packet it
    /// received (the toll's, in seconds, as quantised), and the sender with the `H_rtt` it last
    /// wrote. The two are the same unless the smoothed round-trip time went over a whole
    /// millisecond within the last round trip; the simulator takes the receiver's for both. What
    /// does not fit the 16 bits is lost; a receiver may keep the difference for its next echo.
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

    /// SACK blocks that fit on a packet: `forward` if it carries a toll for links, `back` if it
    /// carries an echo. Only TCP's options compete for room; [`Encoding::Acp`] has room for four
    /// always.
    pub const fn sack_blocks(&self, forward: bool, back: bool, timestamps: bool) -> usize {
        match self {
            Encoding::Acp => crate::SackRanges::MAX,
            Encoding::TcpOption { .. } => tcp_option::sack_blocks(forward, back, timestamps),
            Encoding::Draft20 { .. } => tcp_option::sack_blocks(false, false, timestamps),
        }
    }

    /// Bytes of headers on a packet from IPv4 on, with `sack` blocks (those beyond the room do not
    /// count): a packet's size less this is its payload. [`Encoding::Acp`] always has its
    /// timestamps and its toll, and the draft's header is on every packet.
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

    /// Its name in a scenario.
    pub fn name(&self) -> &'static str {
        // Every variant is in the table, as a test makes sure.
        Encoding::NAMED.iter().find(|(_, encoding)| encoding == self).map_or("acp", |(name, _)| name)
    }
}

/// A name that no encoding has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no encoding: use one of acp, tcp-option, tcp-option-integer, draft-02, draft-03")]
pub struct UnknownEncoding {
    /// What was given.
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
