//! A histogram of delays of fixed size, with a precision of 1/16.

use tollway_law::Time;

/// Spans of time, counted in buckets whose width is a sixteenth of their power of two.
#[derive(Clone, Debug)]
pub struct Lateness {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u64,
    max: Time,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { buckets: Box::new([0; BUCKETS]), count: 0, sum: 0, max: Time::ZERO }
    }
}

impl Lateness {
    /// Counts `n` spans of the same length.
    #[inline]
    pub fn note(&mut self, span: Time, n: u64) {
        self.buckets[bucket(span.0)] += n;
        self.count += n;
        self.sum = self.sum.saturating_add(span.0.saturating_mul(n));
        self.max = self.max.max(span);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Lateness) {
        self.buckets.iter_mut().zip(other.buckets.iter()).for_each(|(to, from)| *to += from);
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

    /// The span that a fraction `p` (0 to 1) of all do not exceed, rounded up to the end of its
    /// bucket; zero without spans.
    pub fn percentile(&self, p: f64) -> Time {
        let wanted = (p * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, &n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted && n > 0 {
                return Time(bucket_end(i)).min(self.max);
            }
        }
        Time::ZERO
    }

    /// The fraction of spans longer than `limit`, 0 to 1, with the precision of a bucket.
    pub fn share_over(&self, limit: Time) -> f64 {
        let over: u64 = self.buckets[bucket(limit.0) + 1..].iter().sum();
        over as f64 / self.count.max(1) as f64
    }
}

/// Index of a span's bucket. Spans below 16 ns have a bucket each; above, each power of two has
/// sixteen.
fn bucket(ns: u64) -> usize {
    if ns < 16 {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros() as usize;
    let within = (ns >> (power - 4)) as usize & 15;
    ((power - 3) * 16 + within).min(BUCKETS - 2)
}

/// The last nanosecond of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let (power, within) = (bucket / 16 + 3, bucket as u64 % 16);
    ((16 + within + 1) << (power - 4)) - 1
}

/// Number of buckets: up to 2^44 ns, almost five hours; longer spans count as that. One more stays
/// empty.
const BUCKETS: usize = 42 * 16 + 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_counted() {
        let mut lateness = Lateness::default();
        (1..=1000).for_each(|us| lateness.note(Time::from_micros(us), 1));
        let near = |p: f64, us: f64| (lateness.percentile(p).0 as f64 / (us * 1e3) - 1.0).abs() < 0.07;
        assert!(near(0.5, 500.0) && near(0.9, 900.0) && near(0.99, 990.0));
        assert_eq!((lateness.percentile(1.0), lateness.max()), (Time::from_millis(1), Time::from_millis(1)));
        assert_eq!(lateness.mean(), Time(500_500));
        assert!((lateness.share_over(Time::from_micros(900)) - 0.1).abs() < 0.07);
        assert_eq!(Lateness::default().percentile(0.5), Time::ZERO);
    }

    proptest! {
        #[test]
        fn a_bucket_ends_within_a_sixteenth(ns in 0u64..1 << 43) {
            let end = bucket_end(bucket(ns));
            prop_assert!(ns <= end && end <= ns + ns / 16, "{} {}", ns, end);
        }

        #[test]
        fn any_span_is_counted(ns: u64) {
            let mut lateness = Lateness::default();
            lateness.note(Time(ns), 2);
            prop_assert_eq!((lateness.count(), lateness.max()), (2, Time(ns)));
        }
    }
}
