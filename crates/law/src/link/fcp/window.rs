//! A moving window of sums over the last `d` seconds, in buckets.

/// Sums over a moving window, in buckets of 1/128 of it.
///
/// The oldest bucket counts for the part of it that still lies in the window, as if its packets had
/// arrived evenly between the first and the last. The error against an exact window is less than
/// one bucket: under 1/128 of the total for steady traffic, and without bias. It is zero where
/// packets are further apart than the length of a bucket. Memory is fixed, a packet costs a few
/// additions, and there is no state per flow.
#[derive(Clone, Debug)]
pub(super) struct Window<S> {
    buckets: Box<[Bucket<S>; MOST]>,
    /// The oldest bucket.
    head: usize,
    len: usize,
    /// The newest bucket.
    last: usize,
    total: S,
    /// For the oldest bucket, if it is closed: 1 over the time from its first packet to its last,
    /// ns.
    slope: f64,
    /// Buckets opened since the total was last summed from scratch, which limits rounding errors.
    stale: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket<S> {
    /// Arrival of its first and last packet, ns.
    begins: u64,
    ends: u64,
    sums: S,
}

impl<S> Bucket<S> {
    /// 1 over the time from its first packet to its last, ns; the caller ensures that there are
    /// two.
    #[inline]
    fn slope(&self) -> f64 {
        1.0 / float(self.ends - self.begins)
    }
}

/// The quantities summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    /// Payments at this link, $.
    pub(super) paid: f64,
    /// Bytes of packets that state a round-trip time.
    pub(super) bytes: f64,
    /// Those bytes times that, B·s.
    pub(super) rtt_bytes: f64,
    /// Payments over the whole path, $.
    pub(super) spent: f64,
}

/// The content of a window: [`Sums`], or dollars alone.
pub(super) trait Summed: Copy + Default {
    fn add(&mut self, other: Self);

    fn take(&mut self, other: Self);

    fn times(self, share: f64) -> Self;
}

impl Summed for Sums {
    #[inline]
    fn add(&mut self, other: Sums) {
        self.paid += other.paid;
        self.bytes += other.bytes;
        self.rtt_bytes += other.rtt_bytes;
        self.spent += other.spent;
    }

    #[inline]
    fn take(&mut self, other: Sums) {
        self.paid -= other.paid;
        self.bytes -= other.bytes;
        self.rtt_bytes -= other.rtt_bytes;
        self.spent -= other.spent;
    }

    #[inline]
    fn times(self, share: f64) -> Sums {
        Sums {
            paid: self.paid * share,
            bytes: self.bytes * share,
            rtt_bytes: self.rtt_bytes * share,
            spent: self.spent * share,
        }
    }
}

impl Summed for f64 {
    #[inline]
    fn add(&mut self, other: f64) {
        *self += other;
    }

    #[inline]
    fn take(&mut self, other: f64) {
        *self -= other;
    }

    #[inline]
    fn times(self, share: f64) -> f64 {
        self * share
    }
}

impl<S: Summed> Window<S> {
    pub(super) fn new() -> Window<S> {
        Window {
            buckets: Box::new([Bucket::default(); MOST]),
            head: 0,
            len: 0,
            last: 0,
            total: S::default(),
            slope: 0.0,
            stale: 0,
        }
    }

    /// Adds a packet at `now` ns to a window of `span` ns. Returns true if it opened a bucket.
    #[inline]
    pub(super) fn add(&mut self, now: u64, span: u64, sums: S) -> bool {
        let fresh = self.len == 0 || now >= self.buckets[self.last % MOST].begins + span / SHARE;
        if fresh {
            self.open(now, span);
        }
        let newest = &mut self.buckets[self.last % MOST];
        newest.ends = now;
        newest.sums.add(sums);
        self.total.add(sums);
        fresh
    }

    /// The sums over `span` ns up to `now`; older buckets are dropped.
    #[inline]
    pub(super) fn sums(&mut self, now: u64, span: u64) -> S {
        if self.len == 0 || self.buckets[self.head % MOST].ends + span <= now {
            self.forget(now, span);
        }
        let mut sums = self.total;
        let oldest = &self.buckets[self.head % MOST];
        let from = now.saturating_sub(span);
        if oldest.begins < from && self.len > 0 {
            let slope = if self.len > 1 { self.slope } else { oldest.slope() };
            sums.take(oldest.sums.times(float(from - oldest.begins) * slope));
        }
        sums
    }

    /// Replaces the content by that of `other`, each sum mapped by `of`. Buckets that are too old
    /// go at the next read.
    #[inline(never)]
    pub(super) fn refill<T: Summed>(&mut self, other: &Window<T>, of: impl Fn(T) -> S) {
        for (own, bucket) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *own = Bucket { begins: bucket.begins, ends: bucket.ends, sums: of(bucket.sums) };
        }
        (self.head, self.len, self.last) = (other.head, other.len, other.last);
        self.slope = other.slope;
        self.add_up();
    }

    /// Drops buckets older than `span` ns, and resets the total if none remains.
    #[inline(never)]
    fn forget(&mut self, now: u64, span: u64) {
        while self.len > 0 && self.buckets[self.head % MOST].ends + span <= now {
            self.total.take(self.buckets[self.head % MOST].sums);
            self.head = (self.head + 1) % MOST;
            self.len -= 1;
        }
        if self.len == 0 {
            self.total = S::default();
        }
        self.slope = self.buckets[self.head % MOST].slope();
    }

    fn at(&self, k: usize) -> usize {
        (self.head + k) % MOST
    }

    #[inline(never)]
    fn open(&mut self, now: u64, span: u64) {
        // Of a window that is not asked for its sums.
        if self.len > 0 && self.buckets[self.head % MOST].ends + span <= now {
            self.forget(now, span);
        }
        if self.len == MOST {
            self.merge();
        }
        // The newest, which may be the oldest, too, is over.
        self.slope = self.buckets[self.head % MOST].slope();
        self.last = self.at(self.len);
        self.buckets[self.last] = Bucket { begins: now, ends: now, sums: S::default() };
        self.len += 1;
        self.stale += 1;
        if self.stale >= MOST {
            self.add_up();
        }
    }

    /// Sums the total from scratch.
    fn add_up(&mut self) {
        self.stale = 0;
        self.total = S::default();
        for k in 0..self.len {
            let at = self.at(k);
            self.total.add(self.buckets[at].sums);
        }
    }

    /// Merges buckets in pairs, after the window has become so much longer that there are too many.
    #[cold]
    fn merge(&mut self) {
        let old = self.buckets.clone();
        for k in 0..self.len / 2 {
            let (first, second) = (&old[self.at(2 * k)], &old[self.at(2 * k + 1)]);
            let mut sums = first.sums;
            sums.add(second.sums);
            self.buckets[k] = Bucket { begins: first.begins, ends: second.ends, sums };
        }
        self.head = 0;
        self.len /= 2;
    }
}

/// Converts a span that fits a signed integer, which is the faster conversion.
#[inline]
fn float(ns: u64) -> f64 {
    ns as i64 as f64
}

/// Buckets per window.
const SHARE: u64 = 128;
/// Buckets in memory: twice as many, since the window's length varies.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn paid(paid: f64) -> Sums {
        Sums { paid, ..Sums::default() }
    }

    #[test]
    fn steady_traffic_is_counted_without_bias() {
        let span = 100_000_000;
        let mut window = Window::new();
        let (mut sum, mut n) = (0.0, 0.0);
        // One packet each 37 µs: 2702.7 to a window.
        for i in 0..40_000u64 {
            let now = i * 37_000;
            window.add(now, span, paid(1.0));
            if now > 2 * span {
                let count = window.sums(now, span).paid;
                let exact = span as f64 / 37_000.0;
                assert!((count - exact).abs() <= exact / 128.0, "{count} of {exact}");
                sum += count;
                n += 1.0;
            }
        }
        assert!((sum / n - span as f64 / 37_000.0).abs() < 1.0, "{}", sum / n);
    }

    #[test]
    fn what_left_the_window_leaves_nothing_behind() {
        let mut window = Window::new();
        for i in 0..100_000u64 {
            window.add(i * 10_000, 50_000_000, paid(0.1));
        }
        assert_eq!(window.sums(10_000_000_000, 50_000_000), Sums::default());
    }

    #[test]
    fn a_window_that_nobody_asks_keeps_no_more_than_it_has_to() {
        let mut window = Window::new();
        for i in 0..100_000u64 {
            window.add(i * 10_000, 50_000_000, paid(0.1));
            assert!(window.len as u64 <= SHARE + 2);
        }
        assert!((window.sums(1_000_000_000, 50_000_000).paid - 500.0).abs() < 0.1);
    }

    #[test]
    fn a_window_filled_from_a_longer_one_holds_what_came_last() {
        let (mut long, mut short) = (Window::new(), Window::<f64>::new());
        for i in 0..1000u64 {
            short.add(i * 500_000, 10_000_000, 7.0);
            long.add(i * 1_000_000, 200_000_000, paid(i as f64));
        }
        short.refill(&long, |sums| sums.paid);
        // Within a bucket of the long one, which holds two packets here.
        let exact: f64 = (900..1000).map(f64::from).sum();
        assert!((short.sums(999_000_000, 100_000_000) - exact).abs() < 2000.0);
        short.add(1_000_000_000, 100_000_000, 5000.0);
        assert!((short.sums(1_000_000_000, 100_000_000) - exact - 5000.0 + 900.0).abs() < 2000.0);
        assert_eq!(short.sums(2_000_000_000, 100_000_000), 0.0);
    }

    proptest! {
        /// Against a window that holds every packet, while the window's length varies.
        #[test]
        fn is_within_a_bucket_of_the_exact_window(
            gaps in prop::collection::vec((1u64..3_000_000, 0.0f64..1.0), 1..400),
            spans in prop::collection::vec(20_000_000u64..200_000_000, 1..8),
        ) {
            let mut window = Window::new();
            let mut exact: VecDeque<(u64, f64)> = VecDeque::new();
            let mut now = 0;
            let mut longest = 0;
            for (i, &(gap, sum)) in gaps.iter().enumerate() {
                now += gap;
                let span = spans[i * spans.len() / gaps.len()];
                window.add(now, span, paid(sum));
                exact.push_back((now, sum));
                let got = window.sums(now, span).paid;
                // A shorter window drops data for good that a longer one would still hold.
                longest = if i == 0 || spans[(i - 1) * spans.len() / gaps.len()] == span { longest } else { i };
                let inside = |slack: u64| -> f64 {
                    exact.iter().skip(longest).filter(|e| e.0 + span + slack > now).map(|e| e.1).sum()
                };
                if longest == 0 {
                    let bucket = span / SHARE;
                    let most = inside(bucket);
                    let least: f64 = exact.iter().filter(|e| e.0 + span > now + bucket).map(|e| e.1).sum();
                    prop_assert!(got <= most + 1e-9 && got >= least - 1e-9, "{got} not in {least}..{most}");
                } else {
                    prop_assert!(got >= -1e-9);
                }
            }
        }
    }
}
