//! An independent check of departures against their profile.

use tollway_law::Time;
use tollway_law::bucket::Profile;

/// Measures packets that leave as conforming, from departures alone.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    /// Rate in whole bytes per second, as the bucket counts.
    rate: u64,
    has_peak: bool,
    last: Time,
    last_size: u16,
    /// Traffic beyond the rate, in billionths of a byte: the level of a leaky bucket.
    beyond: u128,
    burst: u128,
    peak: f64,
}

impl Audit {
    pub(super) fn new(now: Time, profile: &Profile) -> Audit {
        Audit {
            rate: profile.rate.bytes_per_sec().round().max(1.0) as u64,
            has_peak: profile.peak.is_some(),
            last: now,
            last_size: 0,
            beyond: 0,
            burst: 0,
            peak: 0.0,
        }
    }

    pub(super) fn on_packet(&mut self, now: Time, size: u16) {
        let gap = now.saturating_sub(self.last);
        let gone = u128::from(self.rate) * u128::from(gap.0);
        self.beyond = self.beyond.saturating_sub(gone) + u128::from(size) * BILLION;
        self.burst = self.burst.max(self.beyond);
        if self.has_peak && self.last_size > 0 {
            self.peak = self.peak.max(f64::from(self.last_size) / gap.as_secs_f64().max(1e-9));
        }
        (self.last, self.last_size) = (now, size);
    }

    /// The maximum over spans t of the bytes that left beyond r·t.
    pub(super) fn burst(&self) -> f64 {
        self.burst as f64 / BILLION as f64
    }

    /// The highest rate between two packets, bytes/s.
    pub(super) fn peak(&self) -> f64 {
        self.peak
    }
}

const BILLION: u128 = 1_000_000_000;
