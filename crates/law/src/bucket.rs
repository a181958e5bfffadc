//! A token bucket: the amount of traffic that may pass, and when (the aggregates paper, § 3.2).
//!
//! Tokens are counted in billionths of a byte. So a rate of whole bytes a second adds a whole
//! number of tokens in every nanosecond, and a bucket neither gains nor loses by rounding.

use crate::{Bytes, Rate, Time};

/// A traffic profile: the tuple ⟨B, r, p, L⟩ of the aggregates paper (§ 3.2, § 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// B, the depth of the bucket: the longest burst. Capped at [`Profile::MOST_DEPTH`].
    pub depth: Bytes,
    /// r, the rate at which tokens arrive; whole bytes a second, at least 1.
    pub rate: Rate,
    /// p, the peak rate: packets are spaced at no more than this rate. `None` lets a burst leave at
    /// once.
    pub peak: Option<Rate>,
    /// L, the largest packet, bytes on the wire. `None` admits any packet that the bucket can hold.
    pub largest: Option<u32>,
}

impl Profile {
    /// The deepest bucket whose tokens can be counted.
    pub const MOST_DEPTH: Bytes = Bytes(1 << 33);

    /// The largest packet that can ever conform, bytes.
    pub fn largest(&self) -> u32 {
        let depth = u32::try_from(self.depth.get()).unwrap_or(u32::MAX);
        self.largest.unwrap_or(u32::MAX).min(depth)
    }
}

/// The reason a packet may not pass now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The earliest instant at which it conforms, if no other packet passes before; [`Time::NEVER`]
    /// if that depends on other packets.
    #[error("the packet conforms at {0}")]
    Until(Time),
    /// The packet can never conform.
    #[error(
        "a packet of {size} B exceeds the largest that conforms, {largest} B: send smaller packets, or allow \
        larger ones"
    )]
    TooLarge {
        /// Size of the packet, bytes.
        size: u32,
        /// The largest packet that the profile admits, bytes.
        largest: u32,
    },
}

/// A token bucket for one traffic stream.
#[derive(Clone, Debug)]
pub struct Bucket {
    profile: Profile,
    pub(crate) depth: u64,
    /// Bytes per second, which is also tokens per nanosecond.
    pub(crate) rate: u64,
    pub(crate) level: u64,
    /// The instant up to which tokens have been counted.
    settled: Time,
    /// The end of the last packet at the peak rate.
    spaced: Time,
    /// Tokens for which there was no room.
    pub(crate) overflow: u64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(now: Time, profile: Profile) -> Bucket {
        let depth = profile.depth.min(Profile::MOST_DEPTH).get() * TOKENS_PER_BYTE;
        let rate = libm::round(profile.rate.bytes_per_sec()).max(1.0) as u64;
        Bucket { profile, depth, rate, level: depth, settled: now, spaced: now, overflow: 0 }
    }

    /// The profile given at construction.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Tokens in the bucket, in bytes.
    pub fn tokens(&self) -> f64 {
        in_bytes(self.level)
    }

    /// Checks that a packet of `size` bytes conforms, after the tokens that arrived until `now`.
    ///
    /// # Errors
    /// [`Refusal`] holds the earliest instant at which it will.
    pub fn conforms(&mut self, now: Time, size: u32) -> Result<(), Refusal> {
        self.fill(now);
        let largest = self.profile.largest();
        if size > largest {
            return Err(Refusal::TooLarge { size, largest });
        }
        let lack = (u64::from(size) * TOKENS_PER_BYTE).saturating_sub(self.level);
        if lack == 0 && now >= self.spaced {
            return Ok(());
        }
        Err(Refusal::Until(self.when(now, lack.div_ceil(self.rate))))
    }

    /// Takes the tokens of a packet of `size` bytes.
    ///
    /// # Errors
    /// [`Refusal`]: the packet does not conform, and no tokens were taken.
    pub fn take(&mut self, now: Time, size: u32) -> Result<(), Refusal> {
        self.conforms(now, size)?;
        self.level -= u64::from(size) * TOKENS_PER_BYTE;
        if let Some(peak) = self.profile.peak {
            // Rounded up: a nanosecond early would be over the peak.
            let span = libm::ceil(f64::from(size) * 1e9 / peak.bytes_per_sec().max(1e-3));
            self.spaced = now.saturating_add(Time(span as u64));
        }
        Ok(())
    }

    /// Adds the tokens that arrived until `now`.
    pub(crate) fn fill(&mut self, now: Time) {
        let span = now.saturating_sub(self.settled);
        self.settled = self.settled.max(now);
        let arrived = u128::from(self.rate) * u128::from(span.0);
        self.overflow = self.pour(u64::try_from(arrived).unwrap_or(u64::MAX)).saturating_add(self.overflow);
    }

    /// Adds tokens. Returns those for which there is no room.
    pub(crate) fn pour(&mut self, tokens: u64) -> u64 {
        let taken = tokens.min(self.depth - self.level);
        self.level += taken;
        tokens - taken
    }

    /// The later of `span` nanoseconds from now and the end of the last packet.
    pub(crate) fn when(&self, now: Time, span: u64) -> Time {
        now.saturating_add(Time(span)).max(self.spaced)
    }
}

/// Tokens in bytes.
pub(crate) fn in_bytes(tokens: u64) -> f64 {
    tokens as f64 / TOKENS_PER_BYTE as f64
}

pub(crate) const TOKENS_PER_BYTE: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(depth: u64, kbps: f64) -> Bucket {
        let rate = Rate::from_bps(kbps * 1e3);
        Bucket::new(Time::ZERO, Profile { depth: Bytes(depth), rate, peak: None, largest: None })
    }

    #[test]
    fn a_refusal_says_when_it_will_conform_to_the_nanosecond() {
        let mut bucket = bucket(3000, 80.0);
        assert_eq!(bucket.take(Time::ZERO, 1500), Ok(()));
        assert_eq!(bucket.take(Time::ZERO, 1500), Ok(()));
        // 10 kB/s: 1500 bytes in 150 ms.
        let then = Time::from_millis(150);
        assert_eq!(bucket.take(Time::ZERO, 1500), Err(Refusal::Until(then)));
        assert_eq!(bucket.take(then - Time(1), 1500), Err(Refusal::Until(then)));
        assert_eq!(bucket.take(then, 1500), Ok(()));
        assert_eq!(bucket.tokens(), 0.0);
    }

    #[test]
    fn a_peak_spaces_packets() {
        let rate = Rate::from_bps(80e3);
        let profile =
            Profile { depth: Bytes(9000), rate, peak: Some(Rate::from_bps(800e3)), largest: Some(1000) };
        let mut bucket = Bucket::new(Time::ZERO, profile);
        assert_eq!(bucket.take(Time::ZERO, 1000), Ok(()));
        let over = Time::from_millis(10);
        assert_eq!(bucket.take(Time::ZERO, 40), Err(Refusal::Until(over)));
        assert_eq!(bucket.take(over, 1000), Ok(()));
        let refusal = bucket.take(Time::from_secs(1), 1001).unwrap_err();
        assert_eq!(refusal, Refusal::TooLarge { size: 1001, largest: 1000 });
        assert!(refusal.to_string().contains("1001 B"), "{refusal}");
    }

    #[test]
    fn what_the_bucket_cannot_hold_never_conforms() {
        let refusal = bucket(1000, 1e6).take(Time::from_secs(9), 1001);
        assert_eq!(refusal, Err(Refusal::TooLarge { size: 1001, largest: 1000 }));
    }

    proptest! {
        // Asked at any instants, it passes in any stretch of time no more than its burst and its
        // rate allow.
        #[test]
        fn bursts_and_rate_are_kept(
            steps in prop::collection::vec((0u64..300_000_000, 1u32..2000), 1..200),
        ) {
            let mut bucket = bucket(4000, 133.0);
            let (mut now, mut last, mut burst) = (Time::ZERO, Time::ZERO, 0u128);
            for (ahead, size) in steps {
                now += Time(ahead);
                if bucket.take(now, size).is_ok() {
                    let gone = u128::from(bucket.rate) * u128::from((now - last).0);
                    burst = burst.saturating_sub(gone) + u128::from(size) * u128::from(TOKENS_PER_BYTE);
                    last = now;
                    prop_assert!(burst <= u128::from(bucket.depth));
                }
            }
        }
    }
}
