//! A histogram of spans of time, with a precision of 1/128.

use tollway_law::Time;

/// Spans of time, counted in buckets whose width is 1/64 of their power of two. A power of two
/// takes memory from its first span on.
#[derive(Clone, Debug)]
pub struct Lateness {
    powers: [Option<Box<[u64; PARTS]>>; POWERS],
    count: u64,
    sum: u64,
    max: Time,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { powers: [const { None }; POWERS], count: 0, sum: 0, max: Time::ZERO }
    }
}

impl Lateness {
    /// Counts `n` spans of the same length.
    #[inline]
    pub fn note(&mut self, span: Time, n: u64) {
        let bucket = bucket(span.0);
        match &mut self.powers[bucket / PARTS] {
            Some(parts) => parts[bucket % PARTS] += n,
            none => note_first(none, bucket % PARTS, n),
        }
        self.count += n;
        self.sum = self.sum.saturating_add(span.0.saturating_mul(n));
        self.max = self.max.max(span);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Lateness) {
        for (to, from) in self.powers.iter_mut().zip(&other.powers) {
            let Some(from) = from else { continue };
            let to = to.get_or_insert_with(|| Box::new([0; PARTS]));
            to.iter_mut().zip(from.iter()).for_each(|(to, from)| *to += from);
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Number of spans counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all spans.
    pub fn total(&self) -> Time {
        Time(self.sum)
    }

    /// The mean span; zero without spans.
    pub fn mean(&self) -> Time {
        Time(self.sum / self.count.max(1))
    }

    /// The longest span.
    pub fn max(&self) -> Time {
        self.max
    }

    /// The span that a fraction `p` (0 to 1) of all do not exceed, as the middle of its bucket;
    /// zero without spans.
    pub fn percentile(&self, p: f64) -> Time {
        let wanted = (p * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, n) in self.buckets() {
            seen += n;
            if seen >= wanted {
                let middle = Time(bucket_start(bucket).midpoint(bucket_start(bucket + 1) - 1));
                // The last bucket ends with the longest span.
                return if seen == self.count && p >= 1.0 { self.max } else { middle.min(self.max) };
            }
        }
        Time::ZERO
    }

    /// The fraction of spans longer than `limit`, 0 to 1, with the precision of a bucket.
    pub fn share_over(&self, limit: Time) -> f64 {
        let within = bucket(limit.0);
        let over: u64 = self.buckets().filter(|&(bucket, _)| bucket > within).map(|(_, n)| n).sum();
        over as f64 / self.count.max(1) as f64
    }

    /// The buckets with spans, ascending, and their counts.
    fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let parts = |(power, parts): (usize, &Option<Box<[u64; PARTS]>>)| {
            let counts = parts.as_deref().copied().unwrap_or([0; PARTS]);
            (power * PARTS..).zip(counts)
        };
        self.powers.iter().enumerate().flat_map(parts).filter(|&(_, n)| n > 0)
    }
}

#[cold]
fn note_first(power: &mut Option<Box<[u64; PARTS]>>, part: usize, n: u64) {
    power.get_or_insert_with(|| Box::new([0; PARTS]))[part] += n;
}

/// Index of a span's bucket: exponent and first bits of the fraction of `ns` + 1 as a
/// floating-point number.
#[inline]
fn bucket(ns: u64) -> usize {
    let bits = (ns.min(LONGEST) as i64 + 1) as f32;
    (bits.to_bits() >> (f32::MANTISSA_DIGITS - 1 - PARTS.ilog2())) as usize - ONE
}

/// The first nanosecond of a bucket.
fn bucket_start(bucket: usize) -> u64 {
    let (power, part) = ((bucket / PARTS) as u32, (bucket % PARTS) as u64);
    let parts = PARTS as u64;
    (((parts + part) << power).div_ceil(parts)).saturating_sub(1)
}

/// Buckets of a power of two.
const PARTS: usize = 64;
/// Powers of two: spans from 2^44 ns on, almost five hours, count as that.
const POWERS: usize = 45;
const LONGEST: u64 = 1 << 44;
/// The number one, shifted like those of [`bucket`].
const ONE: usize = 127 * PARTS;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_counted() {
        let mut lateness = Lateness::default();
        (1..=1000).for_each(|us| lateness.note(Time::from_micros(us), 1));
        let near = |p: f64, us: f64| (lateness.percentile(p).0 as f64 / (us * 1e3) - 1.0).abs() < 0.009;
        assert!(near(0.5, 500.0) && near(0.9, 900.0) && near(0.99, 990.0));
        assert_eq!((lateness.percentile(1.0), lateness.max()), (Time::from_millis(1), Time::from_millis(1)));
        assert_eq!(lateness.mean(), Time(500_500));
        assert!((lateness.share_over(Time::from_micros(900)) - 0.1).abs() < 0.02);
        assert_eq!(Lateness::default().percentile(0.5), Time::ZERO);
    }

    proptest! {
        #[test]
        fn a_bucket_is_a_sixty_fourth_wide(ns in 0u64..1 << 43) {
            // The number is rounded to 24 bits.
            let (start, end) = (bucket_start(bucket(ns)), bucket_start(bucket(ns) + 1));
            prop_assert!(start <= ns + (ns >> 23) && ns < end.max(start + 1), "{} {} {}", start, ns, end);
            prop_assert!(end - start <= 1 + ns / 63, "{} {} {}", start, ns, end);
        }

        #[test]
        fn any_span_is_counted(ns: u64) {
            let mut lateness = Lateness::default();
            lateness.note(Time(ns), 2);
            prop_assert_eq!((lateness.count(), lateness.max()), (2, Time(ns)));
        }
    }
}
