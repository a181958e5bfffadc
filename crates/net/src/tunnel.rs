//! The two ends of an encrypted tunnel that keeps congestion headers visible to links.
//!
//! Links write into a header, which encryption hides. Zhang and Henderson (INFOCOM 2005) find that
//! XCP is "incompatible with IPsec encryption" unless the header is copied to the encrypted packet
//! and back. So the end where a packet [enters](Tunnel::enter) writes the packet's congestion
//! header, and nothing else of it, in clear in front of the sealed packet. Routers read and write
//! this header as any other. At the end where the packet [leaves](Tunnel::leave), the routers'
//! values replace those in the packet. Marks are copied as in RFC 6040.
//!
//! ```text
//! ACP header: the tunnel's label, the flags that routers read, the toll | sealed packet
//! ```
//!
//! Packets are ACP datagrams, IP packets of TCP with XCP's option (kind 14), or anything else,
//! which passes without a toll. The [`Cipher`] encrypts them. Neither type reads a clock or opens a
//! socket.
//!
//! An observer of the tunnel sees what every router sees: sizes, and the toll's fields. A change of
//! the sealed packet is detected. Any router can change the toll in front of it, as without a
//! tunnel.

use tollway_proto::encoding::acp::{self, AcpError};
use tollway_proto::encoding::tcp_option::{self, Feedback};
use tollway_proto::{Flags, Packet, SackRanges};

use crate::sys::ip;

/// Authenticated encryption of packets.
pub trait Cipher {
    /// Appends `plain`, sealed, to `out`.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>);

    /// Opens `sealed` and appends the packet to `out`.
    ///
    /// Returns false, and leaves `out` unchanged, if the other end has not sealed it.
    fn open(&mut self, sealed: &[u8], out: &mut Vec<u8>) -> bool;
}

/// One end of a tunnel.
#[derive(Debug)]
pub struct Tunnel<C> {
    label: u32,
    cipher: C,
}

/// The reason why a datagram is not accepted from a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelError {
    /// It does not begin with a congestion header.
    #[error(transparent)]
    Header(#[from] AcpError),
    /// It belongs to another tunnel.
    #[error("a datagram of tunnel {label}")]
    Label {
        /// The label of that tunnel.
        label: u32,
    },
    /// The other end has not sealed it.
    #[error("a datagram that the tunnel's other end did not encrypt")]
    Forged,
    /// It was marked, but its sender does not support marks, so it counts as lost (RFC 6040 § 4.2).
    #[error("a packet marked in the tunnel although its sender does not support ECN")]
    Unmarkable,
}

impl<C: Cipher> Tunnel<C> {
    /// Makes an end of the tunnel whose datagrams have `label`.
    pub fn new(label: u32, cipher: C) -> Tunnel<C> {
        Tunnel { label, cipher }
    }

    /// Writes the datagram that carries `packet` through the tunnel to `out`.
    ///
    /// # Errors
    /// [`AcpError`] if the packet's toll is invalid.
    pub fn enter(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), AcpError> {
        let mut outer = Packet { flow: self.label, ..Packet::default() };
        match Inner::of(packet) {
            Inner::Acp => {
                let (flags, toll) = acp::load(packet)?;
                outer.flags = Flags(flags.0 & SEEN.0);
                outer.toll = toll;
            }
            Inner::Ip { ecn, data, xcp } => {
                outer.flags = ecn.with(data);
                if let Some((_, forward)) = xcp {
                    outer.flags.set(Flags::TOLLED);
                    outer.toll = forward.toll(ip_size(packet), FEEDBACK);
                }
            }
            Inner::Other => {}
        }
        out.clear();
        out.resize(acp::LEN, 0);
        acp::encode(&outer, &SackRanges::EMPTY, out)?;
        self.cipher.seal(packet, out);
        Ok(())
    }

    /// Writes the packet in a tunnel's datagram to `out`, with the values that links wrote.
    ///
    /// # Errors
    /// [`TunnelError`]: the datagram holds no such packet.
    pub fn leave(&mut self, datagram: &[u8], out: &mut Vec<u8>) -> Result<(), TunnelError> {
        let outer = acp::load_packet(datagram)?;
        if outer.flow != self.label {
            return Err(TunnelError::Label { label: outer.flow });
        }
        out.clear();
        if !self.cipher.open(&datagram[acp::LEN..], out) {
            return Err(TunnelError::Forged);
        }
        let marked = outer.flags.has(Flags::CE);
        match Inner::of(out) {
            Inner::Acp => {
                let (flags, _) = acp::load(out)?;
                // A router cannot add a toll to a packet that entered without one.
                if flags.has(Flags::TOLLED) || flags.has(Flags::ECHO) {
                    acp::store(out, &outer.toll)?;
                }
                if marked && !flags.has(Flags::CE) {
                    if !flags.ecn_capable() {
                        return Err(TunnelError::Unmarkable);
                    }
                    acp::mark(out)?;
                }
            }
            Inner::Ip { ecn, xcp, .. } => {
                let size = ip_size(out);
                let due = outer.toll.due;
                // An unchanged value keeps its exact bits.
                if let Some((at, forward)) =
                    xcp.filter(|(_, forward)| forward.toll(size, FEEDBACK).due != due)
                {
                    let feedback = tcp_option::encode_due(due, forward.rtt_ms, size, FEEDBACK);
                    ip::store_feedback(out, at, feedback, false);
                }
                if marked && !ecn.has(Flags::CE) {
                    if ecn == Flags::NONE {
                        return Err(TunnelError::Unmarkable);
                    }
                    ip::mark(out);
                }
            }
            Inner::Other => {}
        }
        Ok(())
    }
}

/// The kind of a packet in the tunnel.
enum Inner {
    Acp,
    Ip { ecn: Flags, data: Flags, xcp: Option<(usize, tcp_option::Forward)> },
    Other,
}

impl Inner {
    fn of(bytes: &[u8]) -> Inner {
        if let Ok(header) = ip::parse(bytes) {
            let data = if header.payload() > 0 { Flags::DATA } else { Flags::NONE };
            return Inner::Ip { ecn: header.ecn, data, xcp: ip::xcp_option(bytes, &header) };
        }
        if acp::is_header(bytes) { Inner::Acp } else { Inner::Other }
    }
}

/// Length of an IP packet; 0 for other bytes.
fn ip_size(bytes: &[u8]) -> u32 {
    ip::parse(bytes).map_or(0, |header| u32::from(header.len))
}

/// The flags that routers and meters read.
const SEEN: Flags =
    Flags(Flags::TOLLED.0 | Flags::ECHO.0 | Flags::DATA.0 | Flags::ECT.0 | Flags::ECT1.0 | Flags::CE.0);
/// The format of feedback from XCP senders.
const FEEDBACK: Feedback = Feedback::Split;

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;
    use siphasher::sip::SipHasher24;
    use tollway_law::Toll;
    use tollway_proto::encoding::tcp_option::Forward;

    use super::*;
    use crate::sys::ip::tests::{packet, xcp_segment};

    /// SipHash in counter mode with a tag, enough to detect what is read or changed.
    #[derive(Clone, Default)]
    struct Sip(u64);

    impl Sip {
        fn word(key: u64, number: u64) -> u64 {
            let mut hasher = SipHasher24::new_with_keys(key, number);
            hasher.write_u64(number);
            hasher.finish()
        }

        fn tag(nonce: u64, sealed: &[u8]) -> [u8; 8] {
            let mut hasher = SipHasher24::new_with_keys(7, nonce);
            hasher.write(sealed);
            hasher.finish().to_be_bytes()
        }

        fn cross(nonce: u64, bytes: &mut [u8]) {
            for (i, chunk) in bytes.chunks_mut(8).enumerate() {
                let word = Sip::word(nonce, i as u64).to_be_bytes();
                chunk.iter_mut().zip(word).for_each(|(byte, key)| *byte ^= key);
            }
        }
    }

    impl Cipher for Sip {
        fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
            self.0 += 1;
            let mut sealed = plain.to_vec();
            Sip::cross(self.0, &mut sealed);
            out.extend_from_slice(&self.0.to_be_bytes());
            out.extend_from_slice(&Sip::tag(self.0, &sealed));
            out.extend_from_slice(&sealed);
        }

        fn open(&mut self, sealed: &[u8], out: &mut Vec<u8>) -> bool {
            let Some((nonce, rest)) = sealed.split_first_chunk::<8>() else { return false };
            let Some((tag, rest)) = rest.split_first_chunk::<8>() else { return false };
            let nonce = u64::from_be_bytes(*nonce);
            if Sip::tag(nonce, rest) != *tag {
                return false;
            }
            let start = out.len();
            out.extend_from_slice(rest);
            Sip::cross(nonce, &mut out[start..]);
            true
        }
    }

    fn ends() -> (Tunnel<Sip>, Tunnel<Sip>) {
        (Tunnel::new(5, Sip::default()), Tunnel::new(5, Sip::default()))
    }

    /// Passes a packet through the tunnel, past a router that applies `on_way` to the header in
    /// clear.
    fn through(packet: &[u8], on_way: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>, TunnelError> {
        let (mut entry, mut exit) = ends();
        let (mut outer, mut inner) = (Vec::new(), vec![9; 3]);
        entry.enter(packet, &mut outer).unwrap();
        on_way(&mut outer);
        exit.leave(&outer, &mut inner)?;
        Ok(inner)
    }

    fn datagram(flags: Flags, toll: Toll) -> Vec<u8> {
        let mut bytes = vec![0x5a; acp::LEN + 400];
        let packet = Packet { flow: 3, seq: 77, flags, toll, ..Packet::default() };
        acp::encode(&packet, &SackRanges::EMPTY, &mut bytes).unwrap();
        bytes
    }

    /// Acts as a router: loads the toll, sets `due`, stores the toll.
    fn say(outer: &mut [u8], due: f64) {
        let (_, toll) = acp::load(outer).unwrap();
        acp::store(outer, &Toll { due, ..toll }).unwrap();
    }

    #[test]
    fn what_links_say_comes_out_and_nothing_else_changes() {
        let toll = Toll { due: 3000.0, rtt: 0.04, offer: 1.5, stake: 2.5, echo: 0.5 };
        let bytes = datagram(Flags::TOLLED.with(Flags::DATA), toll);
        let inner = through(&bytes, |outer| {
            let seen = acp::load_packet(outer).unwrap();
            assert_eq!((seen.flow, seen.toll, seen.flags), (5, toll, Flags::TOLLED.with(Flags::DATA)));
            // The rest of the packet is not visible.
            assert!(!outer.windows(8).any(|window| window == [0x5a; 8]));
            say(outer, -120.0);
        })
        .unwrap();
        let mut expected = bytes;
        acp::store(&mut expected, &Toll { due: -120.0, ..toll }).unwrap();
        assert_eq!(inner, expected);
    }

    #[test]
    fn an_xcp_option_in_tcp_is_copied_in_and_out() {
        let forward = Forward { feedback: Feedback::Split.encode(2.0), rtt_ms: 40, cwnd: 10 };
        for shift in 0..=4 {
            let bytes = xcp_segment([10, 77, 0, 1], [10, 77, 0, 2], shift, forward);
            let size = bytes.len() as u32;
            let less = Forward { feedback: Feedback::Split.encode(-1.0), ..forward };
            let inner = through(&bytes, |outer| {
                assert_eq!(acp::load(outer).unwrap().1, forward.toll(size, Feedback::Split));
                say(outer, less.toll(size, Feedback::Split).due);
            })
            .unwrap();
            // The result, checksum included, equals that of a router without a tunnel.
            assert_eq!(inner, xcp_segment([10, 77, 0, 1], [10, 77, 0, 2], shift, less));
        }
    }

    #[test]
    fn marks_come_out_where_they_mean_something() {
        let mark = |outer: &mut Vec<u8>| acp::mark(outer).unwrap();
        let capable = datagram(Flags::ECT, Toll::default());
        assert!(acp::load(&through(&capable, mark).unwrap()).unwrap().0.has(Flags::CE));
        let plain = datagram(Flags::DATA, Toll::default());
        assert_eq!(through(&plain, mark), Err(TunnelError::Unmarkable));
        let segment = |tos| packet([10, 77, 0, 1], [10, 77, 0, 2], 6, tos, 50);
        assert_eq!(through(&segment(2), mark).unwrap(), segment(3));
        assert_eq!(through(&segment(0), mark), Err(TunnelError::Unmarkable));
        assert_eq!(through(&segment(0), |_| ()).unwrap(), segment(0));
    }

    #[test]
    fn what_was_not_sealed_here_does_not_come_out() {
        let bytes = datagram(Flags::TOLLED, Toll::default());
        assert_eq!(through(&bytes, |outer| outer[acp::LEN + 30] ^= 1), Err(TunnelError::Forged));
        assert_eq!(through(&bytes, |outer| outer.truncate(acp::LEN + 3)), Err(TunnelError::Forged));
        assert_eq!(through(&bytes, |outer| outer[7] = 6), Err(TunnelError::Label { label: 6 }));
        assert!(matches!(through(&bytes, |outer| outer.truncate(9)), Err(TunnelError::Header(_))));
        // A toll added to a packet that entered without one is ignored.
        let untolled = datagram(Flags::DATA, Toll::default());
        assert_eq!(through(&untolled, |outer| say(outer, 7.0)).unwrap(), untolled);
    }

    proptest! {
        #[test]
        fn whatever_enters_comes_out(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut entry, _) = ends();
            // A malformed header has no defined toll.
            if entry.enter(&bytes, &mut Vec::new()).is_ok() {
                prop_assert_eq!(through(&bytes, |_| ()), Ok(bytes));
            }
        }

        #[test]
        fn no_datagram_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (_, mut exit) = ends();
            let _ = exit.leave(&bytes, &mut Vec::new());
        }
    }
}
