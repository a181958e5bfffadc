//! Tolls in TCP options that links find in a program's packets.
//!
//! XCP's is kind 14, or kind 253 with the number 0x5843; FCP's is kind 253 with 0x4643 (RFC 6994):
//!
//! ```text
//! XCP  | 253 | 12 | 0x5843 | H_feedback | H_rtt | H_cwnd | H_feedback returned |
//! FCP  | 253 | 14 | 0x4643 | price | balance | preload | H_rtt | price returned |
//! ```
//!
//! Without the last field the lengths are 10 and 12. Fields have 16 bits in network byte order. A
//! price is m·2^(e − 69) $/byte: `m` is the upper 10 bits, `e` the lower 6; zero is no price. A
//! preload has a sign, 9 bits of mantissa, and is ±m·2^(e − 18). Both err by at most one part in
//! 1024 and 512.

use tollway_law::Toll;

use super::{
    BACK_KIND, FORWARD_KIND, Feedback, Forward, KIND_TIMESTAMPS, OptionError, TcpOption, Walk, check_space,
    decode_rtt, encode_due, split_words,
};

/// A toll in an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolled {
    /// XCP's.
    Xcp(Forward),
    /// FCP's.
    Fcp(Priced),
}

/// FCP's option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priced {
    /// Price of the path so far.
    pub price: u16,
    /// The price that the sender pays.
    pub balance: u16,
    /// The announced change of spending.
    pub preload: u16,
    /// The sender's round-trip time, ms; 0 is unknown.
    pub rtt_ms: u16,
}

impl Tolled {
    /// The toll of a packet of `size` bytes on the wire.
    pub fn toll(&self, size: u32) -> Toll {
        match *self {
            Tolled::Xcp(forward) => forward.toll(size, Feedback::Split),
            Tolled::Fcp(Priced { price, balance, preload, rtt_ms }) => Toll {
                due: decode_price(price),
                rtt: decode_rtt(rtt_ms),
                offer: decode_preload(preload) as f32,
                stake: decode_price(balance) as f32,
                echo: 0.0,
            },
        }
    }

    /// The field that links rewrite, for their `due`.
    pub fn rewritten(&self, due: f64, size: u32) -> u16 {
        match self {
            Tolled::Xcp(forward) => encode_due(due, forward.rtt_ms, size, Feedback::Split),
            Tolled::Fcp(_) => encode_price(due),
        }
    }

    /// The two fields behind the one that links rewrite, as a meter corrects them by `toll`: XCP's
    /// H_rtt and H_cwnd, FCP's balance and preload.
    pub fn restated(&self, toll: &Toll) -> [u16; 2] {
        match self {
            Tolled::Xcp(_) => {
                let Forward { rtt_ms, cwnd, .. } = Forward::from_toll(toll, 1, Feedback::Split);
                [rtt_ms, cwnd]
            }
            Tolled::Fcp(priced) => {
                let preload = if toll.offer == 0.0 { 0 } else { priced.preload };
                [encode_price(f64::from(toll.stake)), preload]
            }
        }
    }
}

/// The last field, which a receiver returns. XCP's study has kind 15 for it; alone under kind 253 it
/// follows the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// XCP's H_feedback, in packets.
    Xcp(u16),
    /// FCP's price.
    Fcp(u16),
}

/// The options of a segment that a meter reads beside its toll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The toll that its sender returns, and the offset of the code.
    pub returned: Option<(usize, Returned)>,
    /// Timestamps (RFC 7323): value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// The longest segment that its sender accepts, which it states as it opens.
    pub longest: Option<u16>,
}

impl Observed {
    /// Reads a list of options.
    ///
    /// # Errors
    /// [`OptionError`]; the packet is then none of a connection that can be metered.
    pub fn read(options: &[u8]) -> Result<Observed, OptionError> {
        check_space(options)?;
        let mut observed = Observed::default();
        for option in Walk::new(options) {
            let TcpOption { kind, at, body } = option?;
            let word = |i: usize| u16::from_be_bytes([body[2 * i], body[2 * i + 1]]);
            let last = (body.len() / 2).saturating_sub(1);
            let returned = match (kind, body.len()) {
                (BACK_KIND, _) => Some(Returned::Xcp(word(last))),
                (EXPERIMENT_KIND, 4 | 10) if word(0) == XCP_EXPERIMENT => Some(Returned::Xcp(word(last))),
                (EXPERIMENT_KIND, 4 | 12) if word(0) == FCP_EXPERIMENT => Some(Returned::Fcp(word(last))),
                _ => None,
            };
            if let Some(returned) = returned {
                observed.returned = Some((at + 2 + 2 * last, returned));
            }
            match kind {
                KIND_TIMESTAMPS => observed.timestamps = body.first_chunk().map(split_words),
                KIND_SEGMENT if body.len() == 2 => observed.longest = Some(word(0)),
                _ => {}
            }
        }
        Ok(observed)
    }
}

/// Finds the toll in a list of options, and the offset of the field that links rewrite.
///
/// # Errors
/// [`OptionError`]; a router then forwards the packet unchanged.
pub fn locate_toll(options: &[u8]) -> Result<Option<(usize, Tolled)>, OptionError> {
    check_space(options)?;
    let mut found = None;
    for option in Walk::new(options) {
        let TcpOption { kind, at, body } = option?;
        let word = |i: usize| u16::from_be_bytes([body[2 * i], body[2 * i + 1]]);
        let here = match (kind, body.len()) {
            (FORWARD_KIND, _) => Forward::read(options, at).map(|forward| (at + 2, Tolled::Xcp(forward))),
            (EXPERIMENT_KIND, 8 | 10) if word(0) == XCP_EXPERIMENT => {
                let forward = Forward { feedback: word(1), rtt_ms: word(2), cwnd: word(3) };
                Some((at + 4, Tolled::Xcp(forward)))
            }
            (EXPERIMENT_KIND, 10 | 12) if word(0) == FCP_EXPERIMENT => {
                let (price, balance, preload, rtt_ms) = (word(1), word(2), word(3), word(4));
                Some((at + 4, Tolled::Fcp(Priced { price, balance, preload, rtt_ms })))
            }
            _ => None,
        };
        if here.is_some() && found.is_some() {
            return Err(OptionError::Twice { kind, at });
        }
        found = found.or(here);
    }
    Ok(found)
}

/// A price in $/byte as its code, the nearest; saturates at 2^-60 and 2^4.
pub fn encode_price(price: f64) -> u16 {
    encode(price, 10, PRICE_BIAS)
}

/// The price of a code.
pub fn decode_price(code: u16) -> f64 {
    f64::from(code >> 6) * power(i32::from(code & 63) - PRICE_BIAS)
}

/// The preload of a code.
pub fn decode_preload(code: u16) -> f64 {
    let size = f64::from(code >> 6 & 0x1ff) * power(i32::from(code & 63) - PRELOAD_BIAS);
    if code & 0x8000 == 0 { size } else { -size }
}

/// `value` as `bits` bits of mantissa above 6 of exponent.
fn encode(value: f64, bits: u32, bias: i32) -> u16 {
    if value.is_nan() || value <= 0.0 {
        return 0;
    }
    // The exponent of the value's upper bit, from its bits.
    let upper = (value.to_bits() >> 52) as i32 - 1023;
    let exponent = (upper + 1 - bits as i32 + bias).clamp(0, 63);
    let (most, least) = ((1 << bits) - 1, 1 << (bits - 1));
    // The cast saturates.
    let mantissa = (value / power(exponent - bias)).round() as u32;
    match mantissa {
        over if over > most && exponent < 63 => (least << 6 | (exponent + 1) as u32) as u16,
        mantissa => (mantissa.clamp(least, most) << 6 | exponent as u32) as u16,
    }
}

/// 2 to the power of `exponent`, exact.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// The kind of options of experiments (RFC 6994).
const EXPERIMENT_KIND: u8 = 253;
/// The kind of the longest segment accepted (RFC 9293 § 3.2).
const KIND_SEGMENT: u8 = 2;
const XCP_EXPERIMENT: u16 = 0x5843;
const FCP_EXPERIMENT: u16 = 0x4643;
const PRICE_BIAS: i32 = 69;
const PRELOAD_BIAS: i32 = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_err_by_a_thousandth_and_codes_survive() {
        for code in (512 << 6)..=u16::MAX {
            assert_eq!(encode_price(decode_price(code)), code);
        }
        for step in 0..4000 {
            let price = 1e-18 * libm::pow(1.01, f64::from(step));
            if price < 15.9 {
                assert!((decode_price(encode_price(price)) / price - 1.0).abs() < 1.0 / 1000.0, "{price}");
            }
        }
        assert_eq!((encode_price(0.0), encode_price(f64::NAN), encode_price(1e30)), (0, 0, u16::MAX));
        assert_eq!(decode_price(encode_price(1e-30)), libm::exp2(-60.0));
        assert_eq!(decode_preload(0x8000 | 256 << 6 | 10), -1.0);
    }

    #[test]
    fn a_meter_reads_timestamps_and_the_longest_segment() {
        let options = [2, 4, 5, 0xb4, 1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 15, 4, 1, 2];
        let read = Observed {
            returned: Some((18, Returned::Xcp(0x0102))),
            timestamps: Some((7, 9)),
            longest: Some(1460),
        };
        assert_eq!(Observed::read(&options), Ok(read));
        assert!(Observed::read(&options[..19]).is_err());
    }

    #[test]
    fn a_correction_keeps_what_it_does_not_state() {
        let toll = Toll { rtt: 0.1, offer: 0.01, stake: 3.0, ..Toll::default() };
        assert_eq!(Tolled::Xcp(Forward::default()).restated(&toll), [100, 10]);
        let fcp = Tolled::Fcp(Priced { price: 1, balance: 2, preload: 3, rtt_ms: 4 });
        assert_eq!(fcp.restated(&toll), [encode_price(3.0), 3]);
        assert_eq!(fcp.restated(&Toll { offer: 0.0, ..toll })[1], 0);
    }

    #[test]
    fn each_law_s_option_is_found_in_both_lengths() {
        let xcp = Tolled::Xcp(Forward { feedback: 0x0102, rtt_ms: 0x0304, cwnd: 0x0506 });
        let fcp = Tolled::Fcp(Priced { price: 0x0102, balance: 0x0304, preload: 0x0506, rtt_ms: 0x0708 });
        let fields = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        for (head, count, tolled, at) in [
            (&[14, 8][..], 6, Some(xcp), 2),
            (&[253, 10, 0x58, 0x43], 6, Some(xcp), 4),
            (&[253, 12, 0x58, 0x43], 8, Some(xcp), 4),
            (&[253, 12, 0x46, 0x43], 8, Some(fcp), 4),
            (&[253, 14, 0x46, 0x43], 10, Some(fcp), 4),
            (&[253, 6, 0x46, 0x43], 2, None, 4),
            (&[253, 12, 0x46, 0x44], 8, None, 4),
        ] {
            let options = [&[1], head, &fields[..count]].concat();
            assert_eq!(locate_toll(&options), Ok(tolled.map(|tolled| (1 + at, tolled))), "{options:?}");
            // The last two bytes are what the receiver returns, in the lengths that have it.
            let last = u16::from_be_bytes([options[options.len() - 2], options[options.len() - 1]]);
            let returned = match (head[1], &head[head.len().min(3) - 1..], head[0]) {
                (12, [0x58, ..], 253) => Some(Returned::Xcp(last)),
                (6 | 14, [0x46, ..], 253) if head[3] == 0x43 => Some(Returned::Fcp(last)),
                _ => None,
            };
            let observed = Observed::read(&options).unwrap();
            assert_eq!(observed.returned, returned.map(|code| (options.len() - 2, code)), "{options:?}");
            let twice = [&options[..], &options[1..]].concat();
            assert_eq!(locate_toll(&twice).is_err(), tolled.is_some());
            for cut in 2..options.len() {
                assert!(locate_toll(&options[..cut]).is_err());
            }
        }
    }
}
