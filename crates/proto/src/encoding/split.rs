//! The 16-bit value of the XCP study's `H_feedback`: a 13-bit mantissa and a 3-bit exponent.

/// A number of packets as `m · 16^(e − 3)`: `m` is the upper 13 bits, two's complement, `e` the
/// lower 3, unsigned (Zhang & Henderson, INFOCOM 2005, "XCP Option Format").
///
/// The range is 0, from 1/4096 packet up to 4095·65536 = 268 369 920 packets, and down to −2^28;
/// the study's "±2^28" is reached on the negative side only. The error is at most one part in 512,
/// or 1/8192 packet below 1. Several bit patterns represent one value; [`Split::encode`] returns
/// the one with the smallest exponent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Split(pub u16);

impl Split {
    /// Zero packets.
    pub const ZERO: Split = Split(0);
    /// The greatest value, 268 369 920 packets.
    pub const MAX: Split = Split::pack(MANTISSA_MAX as i16, EXPONENT_MAX);
    /// The least value, −268 435 456 packets.
    pub const MIN: Split = Split::pack(MANTISSA_MIN as i16, EXPONENT_MAX);

    /// The value nearest to `packets` (halves away from zero), with the smallest exponent that
    /// fits. Saturates, also for infinities; NaN gives zero.
    #[inline]
    pub fn encode(packets: f64) -> Split {
        let mut scaled = packets * UNITS_PER_PACKET;
        for exponent in 0..=EXPONENT_MAX {
            let mantissa = scaled.round();
            if (f64::from(MANTISSA_MIN)..=f64::from(MANTISSA_MAX)).contains(&mantissa) {
                return Split::pack(mantissa as i16, exponent);
            }
            scaled /= 16.0;
        }
        Split::saturated(packets > 0.0, packets < 0.0)
    }

    /// The same from a whole number of 1/4096 packets, in integer arithmetic only, for routers
    /// without floats.
    #[inline]
    pub fn from_units(units: i64) -> Split {
        // Anything beyond 2^41 saturates; the bound keeps the rounding below from overflowing.
        let bounded = units.clamp(-(1 << 41), 1 << 41);
        for exponent in 0..=EXPONENT_MAX {
            let shift = 4 * exponent;
            let half = (1i64 << shift) >> 1;
            let magnitude = (bounded.abs() + half) >> shift;
            let mantissa = if bounded < 0 { -magnitude } else { magnitude };
            if (i64::from(MANTISSA_MIN)..=i64::from(MANTISSA_MAX)).contains(&mantissa) {
                return Split::pack(mantissa as i16, exponent);
            }
        }
        Split::saturated(units > 0, units < 0)
    }

    /// True for the request of a sender under `tollway host` that no router has rewritten: a form
    /// that no encoding here returns, or the largest value, other senders' request.
    #[inline]
    pub fn is_request(self) -> bool {
        (self.0 & 7 == 1 && self.0 >> 3 < 256) || self == Split::MAX
    }

    /// The number of packets, exact.
    #[inline]
    pub fn decode(self) -> f64 {
        self.units() as f64 / UNITS_PER_PACKET
    }

    /// The number of 1/4096 packets, exact; its magnitude is at most 2^40.
    #[inline]
    pub const fn units(self) -> i64 {
        (self.mantissa() as i64) << (4 * self.exponent())
    }

    /// The signed mantissa `m`, −4096 to 4095.
    #[inline]
    pub const fn mantissa(self) -> i16 {
        (self.0 as i16) >> EXPONENT_BITS
    }

    /// The exponent `e`, 0 to 7.
    #[inline]
    pub const fn exponent(self) -> u16 {
        self.0 & EXPONENT_MAX
    }

    /// The sum, and the remainder in packets that does not fit the sum's 16 bits, exact. An
    /// accumulator keeps the remainder for the next addition, as the study's `cwnd_frac` does.
    #[inline]
    pub fn plus(self, other: Split) -> (Split, f64) {
        let wide = self.units() + other.units();
        let sum = Split::from_units(wide);
        (sum, (wide - sum.units()) as f64 / UNITS_PER_PACKET)
    }

    const fn pack(mantissa: i16, exponent: u16) -> Split {
        Split(((mantissa as u16) << EXPONENT_BITS) | exponent)
    }

    const fn saturated(above: bool, below: bool) -> Split {
        match (above, below) {
            (true, _) => Split::MAX,
            (_, true) => Split::MIN,
            _ => Split::ZERO,
        }
    }
}

/// `H_feedback` as whole packets, truncated toward zero like integer arithmetic: the comparison for
/// the split value in the study's "Feedback Fractions". Saturates; NaN gives zero.
///
/// A value within one part in 2^20 of a whole number counts as that number. So a decoded value
/// survives a conversion to a rate and back.
#[inline]
pub fn encode_integer(packets: f64) -> i16 {
    let whole = packets.round();
    let near = (packets - whole).abs() <= packets.abs() * (1.0 / (1 << 20) as f64);
    // `as` truncates toward zero, saturates, and takes NaN to zero.
    if near { whole as i16 } else { packets as i16 }
}

const EXPONENT_BITS: u16 = 3;
const EXPONENT_MAX: u16 = 7;
const MANTISSA_MIN: i32 = -4096;
const MANTISSA_MAX: i32 = 4095;
/// The smallest step: 16^3 of them are a packet.
const UNITS_PER_PACKET: f64 = 4096.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all() -> impl Iterator<Item = Split> {
        (0..=u16::MAX).map(Split)
    }

    /// Every value there is, once, in ascending order.
    fn ascending() -> Vec<f64> {
        let mut values: Vec<f64> = all().map(Split::decode).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }

    #[test]
    fn every_pattern_means_m_times_a_power_of_16() {
        let mut mantissas = (i16::MAX, i16::MIN);
        for split in all() {
            // Read off the bits in another way: as digits of the whole number.
            let bits = i32::from(split.0);
            let (m, e) = (((bits / 8) + 4096) % 8192 - 4096, bits % 8);
            let scale = [16.0 / 65536.0, 1.0 / 256.0, 1.0 / 16.0, 1.0, 16.0, 256.0, 4096.0, 65536.0];
            assert_eq!(split.decode(), f64::from(m) * scale[e as usize], "{:#06x}", split.0);
            assert_eq!((i32::from(split.mantissa()), i32::from(split.exponent())), (m, e));
            mantissas = (mantissas.0.min(split.mantissa()), mantissas.1.max(split.mantissa()));
        }
        assert_eq!(mantissas, (-4096, 4095));
    }

    #[test]
    fn reencoding_keeps_every_value_and_takes_the_smallest_exponent() {
        for split in all() {
            let again = Split::encode(split.decode());
            assert_eq!(again.decode(), split.decode());
            assert!(again.exponent() <= split.exponent());
            assert_eq!(Split::encode(again.decode()), again);
            assert_eq!(Split::from_units(split.units()), again);
        }
    }

    #[test]
    fn between_two_neighbours_the_nearer_is_taken() {
        let values = ascending();
        // Of the 8192 mantissas of each exponent above 0, 512 fit a smaller one too.
        assert_eq!(values.len(), 8192 + 7 * (8192 - 512));
        for pair in values.windows(2) {
            let (low, high) = (pair[0], pair[1]);
            let middle = (low + high) / 2.0;
            let step = (high - low) / 1024.0;
            assert_eq!(Split::encode(middle - step).decode(), low);
            assert_eq!(Split::encode(middle + step).decode(), high);
            let error = (Split::encode(middle).decode() - middle).abs();
            assert!(error <= 1.0 / 8192.0 || error <= middle.abs() / 512.0, "{middle}: off by {error}");
        }
    }

    #[test]
    fn the_ends_saturate_and_nonsense_is_nothing() {
        assert_eq!(Split::MAX.decode(), 268_369_920.0);
        assert_eq!(Split::MIN.decode(), -268_435_456.0);
        for huge in [268_435_456.0, 1e24, f64::MAX, f64::INFINITY] {
            assert_eq!(Split::encode(huge), Split::MAX);
            assert_eq!(Split::encode(-huge), Split::MIN);
        }
        assert_eq!(Split::from_units(i64::MAX), Split::MAX);
        assert_eq!(Split::from_units(i64::MIN), Split::MIN);
        for nothing in [0.0, -0.0, f64::NAN, 1e-300, -1e-5] {
            assert_eq!(Split::encode(nothing), Split::ZERO);
        }
    }

    #[test]
    fn whole_packets_are_truncated_toward_zero() {
        let cases = [(0.9, 0), (-0.9, 0), (2.5, 2), (-2.5, -2), (4e4, i16::MAX), (-4e4, i16::MIN)];
        for (packets, whole) in cases {
            assert_eq!(encode_integer(packets), whole);
        }
        assert_eq!(encode_integer(f64::NAN), 0);
        assert_eq!(encode_integer(f64::INFINITY), i16::MAX);
        assert_eq!(encode_integer(7.0 - 1e-9), 7, "seven, through a rate and back");
    }

    proptest! {
        #[test]
        fn sums_lose_nothing(a: u16, b: u16) {
            let (a, b) = (Split(a), Split(b));
            let (sum, rest) = a.plus(b);
            prop_assert_eq!(sum.decode() + rest, a.decode() + b.decode());
            let exact = a.decode() + b.decode();
            if exact.abs() < 268_369_920.0 {
                prop_assert!(rest.abs() <= (exact.abs() / 512.0).max(1.0 / 8192.0));
            }
        }

        #[test]
        fn encoding_is_monotone_and_close(a in -4e8..4e8f64, shrink in 0u32..48, b in -4e8..4e8f64) {
            let scale = 1.0 / (1u64 << shrink) as f64;
            let (low, high) = if a < b { (a * scale, b * scale) } else { (b * scale, a * scale) };
            prop_assert!(Split::encode(low).decode() <= Split::encode(high).decode());
            for v in [low, high] {
                let error = (Split::encode(v).decode() - v).abs();
                if v.abs() < 1.0 {
                    prop_assert!(error <= 1.0 / 8192.0);
                } else if v.abs() <= 268_369_920.0 {
                    prop_assert!(error <= v.abs() / 512.0);
                }
            }
        }

        #[test]
        fn integers_and_floats_round_alike(units in -(1i64 << 42)..1i64 << 42, shrink in 0u32..40) {
            let units = units >> shrink;
            prop_assert_eq!(Split::from_units(units), Split::encode(units as f64 / 4096.0));
        }
    }
}
