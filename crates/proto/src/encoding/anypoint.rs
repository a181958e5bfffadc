//! The Anypoint paper's congestion words: five 32-bit words after TCP's 20 bytes of header, in
//! network byte order.
//!
//! ```text
//! | cwnd | src_fdbk | rflct_fdbk | rtt | rpatch |
//! ```
//!
//! Windows and feedback are in bytes, the round-trip time in 1/1024 s. A router rewrites
//!
//! Windows and feedback are in bytes, the round-trip time in 1/1024 s. A router rewrites
//! `src_fdbk`; the caller updates the TCP checksum.

use tollway_law::Toll;

/// The five words, as they are on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderWords {
    /// The sender's congestion window, bytes; 0 on acknowledgements without data.
    pub cwnd: u32,
    /// Change of window, first requested, then granted, bytes per packet.
    pub src_fdbk: i32,
    /// The feedback that the receiver returns, bytes.
    pub rflct_fdbk: i32,
    /// The sender's smoothed round-trip time, 1/1024 s; 0 unknown.
    pub rtt: u32,
    /// The redirect patch: all segments numbered below it may be delivered (Anypoint, holes in the
    /// member's numbers).
    pub rpatch: u32,
}

impl HeaderWords {
    /// The words for `toll` on a packet of `size` bytes: `cwnd = size · rtt / offer`, and feedback
    /// times the coded round-trip time. The echo is converted with the same time, since both belong
    /// to one connection.
    pub fn from_toll(toll: &Toll, size: u32, rpatch: u32) -> HeaderWords {
        let known = toll.rtt > 0.0;
        // `as` saturates, and takes NaN to zero.
        let rtt = if known { ((f64::from(toll.rtt) * TICKS).round() as u32).max(1) } else { 0 };
        let cwnd = if known && toll.offer > 0.0 {
            ((f64::from(size) * f64::from(toll.rtt) / f64::from(toll.offer)).round() as u32).max(1)
        } else {
            0
        };
        let seconds = f64::from(rtt) / TICKS;
        let bytes = |change: f64| if known { (change * seconds).round() as i32 } else { 0 };
        HeaderWords { cwnd, src_fdbk: bytes(toll.due), rflct_fdbk: bytes(f64::from(toll.echo)), rtt, rpatch }
    }

    /// The toll that a router reads on a packet of `size` bytes. `stake` is zero, and without a
    /// round-trip time so is all feedback.
    pub fn toll(&self, size: u32) -> Toll {
        if self.rtt == 0 {
            return Toll::default();
        }
        let seconds = f64::from(self.rtt) / TICKS;
        let offer =
            if self.cwnd > 0 { (seconds * f64::from(size) / f64::from(self.cwnd)) as f32 } else { 0.0 };
        Toll {
            due: f64::from(self.src_fdbk) / seconds,
            rtt: seconds as f32,
            offer,
            stake: 0.0,
            echo: (f64::from(self.rflct_fdbk) / seconds) as f32,
        }
    }

    /// Reads the words at the start of `bytes`.
    ///
    /// # Errors
    /// [`TooShort`] if there are fewer than 20 bytes; any 20 bytes are valid.
    pub fn parse(bytes: &[u8]) -> Result<HeaderWords, TooShort> {
        let bytes = bytes.first_chunk::<LEN>().ok_or(TooShort { have: bytes.len() })?;
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        Ok(HeaderWords {
            cwnd: u32::from_be_bytes(word(0)),
            src_fdbk: i32::from_be_bytes(word(SRC_FDBK_AT)),
            rflct_fdbk: i32::from_be_bytes(word(8)),
            rtt: u32::from_be_bytes(word(12)),
            rpatch: u32::from_be_bytes(word(16)),
        })
    }

    /// The words in wire format.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let words = [self.cwnd, self.src_fdbk as u32, self.rflct_fdbk as u32, self.rtt, self.rpatch];
        let mut bytes = [0; LEN];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// Writes `feedback`, bytes per packet, over the `src_fdbk` of the words at the start of `bytes`,
/// as a router does. Changes four bytes.
///
/// # Errors
/// [`TooShort`] if there are fewer than 20 bytes; nothing is written then.
pub fn store_feedback(bytes: &mut [u8], feedback: i32) -> Result<(), TooShort> {
    let have = bytes.len();
    let words = bytes.first_chunk_mut::<LEN>().ok_or(TooShort { have })?;
    words[SRC_FDBK_AT..SRC_FDBK_AT + 4].copy_from_slice(&feedback.to_be_bytes());
    Ok(())
}

/// Too few bytes for the five words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Anypoint's congestion words need {LEN} bytes, and the packet has {have}")]
pub struct TooShort {
    /// Bytes present.
    pub have: usize,
}

/// Length of the words, bytes.
pub const LEN: usize = 20;

const SRC_FDBK_AT: usize = 4;
/// Ticks of `rtt` per second.
const TICKS: f64 = 1024.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_and_a_change_of_it() {
        // 100 packets of 1500 B in 250 ms; 300 B more a packet are 1200 B/s.
        let toll = Toll { due: 1200.0, rtt: 0.25, offer: 0.0025, echo: -80.0, ..Toll::default() };
        let words = HeaderWords::from_toll(&toll, 1500, 3);
        assert_eq!(words, HeaderWords { cwnd: 150_000, src_fdbk: 300, rflct_fdbk: -20, rtt: 256, rpatch: 3 });
        assert_eq!(words.toll(1500), toll);
        let unknown = Toll { due: 1e9, ..Toll::default() };
        assert_eq!(HeaderWords::from_toll(&unknown, 1500, 0), HeaderWords::default());
        assert_eq!(
            HeaderWords { src_fdbk: 9, cwnd: 9, ..HeaderWords::default() }.toll(1500),
            Toll::default()
        );
    }

    proptest! {
        #[test]
        fn words_read_back_and_a_rewrite_touches_one(fields: [u32; 5], feedback: i32) {
            let [cwnd, src, reflected, rtt, rpatch] = fields;
            let words = HeaderWords { cwnd, src_fdbk: src as i32, rflct_fdbk: reflected as i32, rtt, rpatch };
            let mut bytes = words.to_bytes();
            prop_assert_eq!(HeaderWords::parse(&bytes), Ok(words));
            for cut in 0..LEN {
                prop_assert_eq!(HeaderWords::parse(&bytes[..cut]), Err(TooShort { have: cut }));
                prop_assert!(store_feedback(&mut bytes[..cut], 0).is_err());
            }
            store_feedback(&mut bytes, feedback).unwrap();
            prop_assert_eq!(HeaderWords::parse(&bytes), Ok(HeaderWords { src_fdbk: feedback, ..words }));
        }
    }
}
