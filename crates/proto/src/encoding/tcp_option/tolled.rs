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
    FORWARD_KIND, Feedback, Forward, OptionError, TcpOption, Walk, check_space, decode_rtt, encode_due,
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
            let twice = [&options[..], &options[1..]].concat();
            assert_eq!(locate_toll(&twice).is_err(), tolled.is_some());
            for cut in 2..options.len() {
                assert!(locate_toll(&options[..cut]).is_err());
            }
        }
    }
}
