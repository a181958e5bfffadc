//! A self-check of the codecs, on which the claim `xcp.headers` is based.

use super::draft20::{Format, Header, Version};
use super::split::Split;
use super::tcp_option::{Builder, Forward, SPACE, parse};

/// The counts of [`self_check`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfCheck {
    /// 16-bit patterns decoded: all 65 536.
    pub values: u32,
    /// Patterns that do not decode to `m · 16^(e − 3)`, or whose value changes when encoded again.
    pub failures: u32,
    /// Least mantissa seen; −4096.
    pub least_mantissa: i16,
    /// Greatest mantissa seen; 4095.
    pub greatest_mantissa: i16,
    /// Largest relative error of coding a value of at least 1 packet, measured at the midpoints of
    /// neighbours, where it is largest; at most 1/512.
    pub worst_relative: f64,
    /// Largest absolute error of coding a value below 1 packet, packets; at most 2^-13.
    pub worst_absolute: f64,
    /// Neighbours whose midpoint is coded as neither of them; 0 if coding is monotone and to the
    /// nearest.
    pub misrounded: u32,
    /// TCP options 14 and 15, written to and read from a list of options.
    pub options: RoundTrips,
    /// SACK blocks that fit into TCP's 40 bytes of options beside timestamps: with neither XCP
    /// option, with the forward one, with the return one, with both.
    pub sack_blocks: [usize; 4],
    /// Draft headers in version 2's order.
    pub draft2: RoundTrips,
    /// Draft headers in version 3's order.
    pub draft3: RoundTrips,
}

/// Headers written, read back and compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// Number of headers checked.
    pub checked: u32,
    /// Number of headers that differ after the round trip, or have fields at the wrong place.
    pub failures: u32,
}

impl RoundTrips {
    fn note(&mut self, good: bool) {
        self.checked += 1;
        self.failures += u32::from(!good);
    }
}

/// Checks every 16-bit value, and headers over corner cases and a fixed sample; takes some
/// milliseconds.
pub fn self_check() -> SelfCheck {
    let mut check = SelfCheck {
        values: 0,
        failures: 0,
        least_mantissa: i16::MAX,
        greatest_mantissa: i16::MIN,
        worst_relative: 0.0,
        worst_absolute: 0.0,
        misrounded: 0,
        options: RoundTrips::default(),
        sack_blocks: [(false, false), (true, false), (false, true), (true, true)]
            .map(|(forward, back)| sack_blocks_that_fit(forward, back)),
        draft2: RoundTrips::default(),
        draft3: RoundTrips::default(),
    };
    let mut values = Vec::with_capacity(1 << 16);
    for bits in 0..=u16::MAX {
        let split = Split(bits);
        let value = split.decode();
        // The definition once more, read off the bits without the codec's own helpers; every step
        // is exact.
        let upper = f64::from(bits / 8);
        let mantissa = if upper < 4096.0 { upper } else { upper - 8192.0 };
        let defined = (0..bits % 8).fold(mantissa / 4096.0, |v, _| v * 16.0);
        let again = Split::encode(value);
        let sound = value == defined && again.decode() == value && Split::encode(again.decode()) == again;
        check.values += 1;
        check.failures += u32::from(!sound);
        check.least_mantissa = check.least_mantissa.min(split.mantissa());
        check.greatest_mantissa = check.greatest_mantissa.max(split.mantissa());
        values.push(value);
    }
    values.sort_by(f64::total_cmp);
    values.dedup();
    for pair in values.windows(2) {
        let middle = (pair[0] + pair[1]) / 2.0;
        let coded = Split::encode(middle).decode();
        let error = (coded - middle).abs();
        check.misrounded += u32::from(!pair.contains(&coded));
        if middle.abs() < 1.0 {
            check.worst_absolute = check.worst_absolute.max(error);
        } else {
            check.worst_relative = check.worst_relative.max(error / middle.abs());
        }
    }
    let mut words = Words(1);
    for i in 0..SAMPLES {
        check.options.note(option_survives(&mut words, i));
        check.draft2.note(draft_survives(&mut words, i, Version::V2));
        check.draft3.note(draft_survives(&mut words, i, Version::V3));
    }
    check
}

/// The number of SACK blocks, of four, that fit a list with these options; 0 if the list does not
/// read back.
fn sack_blocks_that_fit(forward: bool, back: bool) -> usize {
    let mut list = Builder::new();
    let begun = list.timestamps(1, 2).is_ok()
        && (!forward || list.forward(Forward { feedback: 1, rtt_ms: 2, cwnd: 3 }).is_ok())
        && (!back || list.back(1).is_ok());
    let blocks = list.sack(&[(1, 2), (3, 4), (5, 6), (7, 8)]);
    let read = parse(list.as_slice());
    let whole = read.is_ok_and(|p| p.forward.is_some() == forward && p.back.is_some() == back);
    if begun && whole && list.as_slice().len() <= SPACE { blocks } else { 0 }
}

fn option_survives(words: &mut Words, i: u32) -> bool {
    let [feedback, rtt_ms, cwnd, back] = words.corner_or_any(i).map(|word| (word >> 16) as u16);
    let forward = Forward { feedback, rtt_ms, cwnd };
    let mut list = Builder::new();
    let built =
        list.timestamps(i, !i).and_then(|()| list.forward(forward)).and_then(|()| list.back(back)).is_ok();
    let parsed = parse(list.as_slice());
    built && parsed.is_ok_and(|p| p.forward == Some(forward) && p.back == Some(back))
}

fn draft_survives(words: &mut Words, i: u32, version: Version) -> bool {
    let [x, rtt, delta, reverse] = words.corner_or_any(i);
    let format = if i.is_multiple_of(2) { Format::Standard } else { Format::Minimal };
    let header =
        Header { next: i as u8, version, format, x, rtt, delta: delta as i32, reverse: reverse as i32 };
    let bytes = header.to_bytes();
    let order = match version {
        Version::V2 => [rtt, x, delta, reverse],
        Version::V3 => [x, rtt, reverse, delta],
    };
    let placed = bytes[4..].chunks_exact(4).zip(order).all(|(place, word)| *place == word.to_be_bytes());
    placed && Header::parse(&bytes) == Ok(header)
}

/// A fixed sequence of words (SplitMix64), so that the check is the same on every machine.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((b ^ (b >> 31)) >> 32) as u32
    }

    /// Four fields: while `i` counts through them, each combination of corner cases, then words of
    /// the sequence.
    fn corner_or_any(&mut self, i: u32) -> [u32; 4] {
        const CORNERS: [u32; 6] = [0, 1, 0x0001_0000, 0x7fff_ffff, 0x8000_0000, u32::MAX];
        let base = CORNERS.len() as u32;
        if i < base.pow(4) {
            [0, 1, 2, 3].map(|digit| CORNERS[(i / base.pow(digit) % base) as usize])
        } else {
            [(); 4].map(|()| self.next())
        }
    }
}

const SAMPLES: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codecs_hold_what_the_formats_promise() {
        let check = self_check();
        assert_eq!((check.values, check.failures, check.misrounded), (65_536, 0, 0));
        assert_eq!((check.least_mantissa, check.greatest_mantissa), (-4096, 4095));
        assert!(check.worst_relative <= 1.0 / 512.0 && check.worst_relative > 1.0 / 520.0);
        assert_eq!(check.worst_absolute, 1.0 / 8192.0);
        assert_eq!(check.sack_blocks, [3, 2, 2, 1]);
        for trips in [check.options, check.draft2, check.draft3] {
            assert_eq!(trips, RoundTrips { checked: SAMPLES, failures: 0 });
        }
    }
}
