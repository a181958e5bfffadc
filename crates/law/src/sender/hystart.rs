//! HyStart: the end of slow start before the first loss, by Linux's rules (`tcp_cubic.c`; Ha and Rhee,
//! "Taming the elephants: New TCP slow start", Computer Networks 55(9), 2011) or by RFC 9406.

use super::{Acked, Flight};
use crate::{Time, words};

words! {
    /// The end of slow start before the first loss.
    pub enum HyStart {
        /// Linux's, where a socket's packets are paced (the `fq` queue, or BBR before CUBIC): a
        /// round's acknowledgements without a gap last longer than the least round trip, or the
        /// round's least round trip exceeds it by an eighth, 4 to 16 ms.
        LinuxPaced = "linux-paced",
        /// Linux's, where packets are not paced: half a round trip of acknowledgements is enough.
        Linux = "linux",
        /// HyStart++ (RFC 9406): as the round trip rises, growth slows to a quarter; after five such
        /// rounds, slow start ends.
        Rfc9406 = "rfc9406",
        /// None: slow start ends with a loss or a mark.
        None = "none",
    }
}

impl HyStart {
    pub(super) fn is_linux(self) -> bool {
        matches!(self, HyStart::LinuxPaced | HyStart::Linux)
    }
}

/// The state of one slow start. A round lasts until the data in flight at its start are acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    rule: HyStart,
    /// Segments acknowledged cumulatively since the start.
    acked: u64,
    /// The value of `acked` that ends the round.
    end: u64,
    /// The round's first acknowledgement.
    start: Time,
    /// The last acknowledgement of the round's train, which has no gap of over 2 ms.
    train: Time,
    /// Least round trip of this round and of the one before, [`Time::NEVER`] without a sample.
    least: Time,
    before: Time,
    /// Samples in this round, up to eight.
    samples: u32,
    /// RFC 9406's conservative slow start: its round trip at entry, and the rounds left.
    slowed: Option<(Time, u32)>,
}

impl Rounds {
    pub(super) fn new(rule: HyStart) -> Rounds {
        Rounds {
            rule,
            acked: 0,
            end: 0,
            start: Time::ZERO,
            train: Time::ZERO,
            least: Time::NEVER,
            before: Time::NEVER,
            samples: 0,
            slowed: None,
        }
    }

    /// Begins anew after a timeout. RFC 9406 § 4.3 is for the first slow start only. Returns true if
    /// Linux's rules hold.
    pub(super) fn restart(&mut self) -> bool {
        *self = Rounds::new(if self.rule == HyStart::Rfc9406 { HyStart::None } else { self.rule });
        self.rule.is_linux()
    }

    /// Counts an acknowledgement, in slow start or not.
    #[inline]
    pub(super) fn count(&mut self, acked: &Acked) {
        self.acked += u64::from(acked.cumulative);
    }

    /// Handles a counted acknowledgement in slow start, at a window of `window` segments. Returns
    /// the growth for each segment acknowledged; `None` ends slow start.
    pub(super) fn on_ack(&mut self, flight: &Flight, acked: &Acked, window: f64) -> Option<f64> {
        let Some(rtt) = acked.rtt else { return Some(self.growth()) };
        match self.rule {
            HyStart::None => Some(1.0),
            HyStart::Rfc9406 => self.on_sample(flight, rtt),
            HyStart::Linux | HyStart::LinuxPaced => {
                if self.acked > self.end {
                    self.begin(flight);
                }
                let ends =
                    window >= LOW_WINDOW && (self.train_ends(flight, window) | self.delay_ends(flight, rtt));
                (!ends).then_some(1.0)
            }
        }
    }

    fn growth(&self) -> f64 {
        if self.slowed.is_some() { CSS_GROWTH } else { 1.0 }
    }

    fn begin(&mut self, flight: &Flight) {
        self.end = self.acked + u64::from(flight.outstanding);
        (self.start, self.train) = (flight.now, flight.now);
        self.before = std::mem::replace(&mut self.least, Time::NEVER);
        self.samples = 0;
    }

    /// The kernel's ACK train.
    fn train_ends(&mut self, flight: &Flight, window: f64) -> bool {
        if flight.now.saturating_sub(self.train) > TRAIN_GAP {
            return false;
        }
        self.train = flight.now;
        // Two windows a round trip are the pace of slow start.
        let burst = BURST * flight.srtt.as_secs_f64() / (2.0 * window * f64::from(flight.segment));
        let whole = flight.min_rtt.saturating_add(Time::from_secs_f64(burst).min(LONGEST_BURST));
        let most = if self.rule == HyStart::LinuxPaced { whole } else { Time(whole.0 / 2) };
        flight.now.saturating_sub(self.start) > most
    }

    /// The kernel's rule of delay: eight samples, then the least of the round.
    fn delay_ends(&mut self, flight: &Flight, rtt: Time) -> bool {
        self.least = self.least.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        self.least > flight.min_rtt.saturating_add(threshold(flight.min_rtt))
    }

    /// RFC 9406 § 4.2.
    fn on_sample(&mut self, flight: &Flight, rtt: Time) -> Option<f64> {
        if self.acked > self.end {
            self.begin(flight);
            if let Some((_, rounds)) = &mut self.slowed {
                *rounds = rounds.saturating_sub(1);
                if *rounds == 0 {
                    return None;
                }
            }
        }
        self.least = self.least.min(rtt);
        self.samples += 1;
        if self.samples >= SAMPLES {
            match self.slowed {
                Some((baseline, _)) if self.least < baseline => self.slowed = None,
                None if self.before != Time::NEVER
                    && self.least >= self.before.saturating_add(threshold(self.before)) =>
                {
                    self.slowed = Some((self.least, CSS_ROUNDS));
                }
                _ => {}
            }
        }
        Some(self.growth())
    }
}

/// The rise of the round trip that counts: an eighth, 4 to 16 ms.
fn threshold(rtt: Time) -> Time {
    Time((rtt.0 / 8).clamp(4_000_000, 16_000_000))
}

/// The window from which the kernel's rules apply, segments (`hystart_low_window`).
const LOW_WINDOW: f64 = 16.0;
/// The longest gap in a train (`hystart_ack_delta_us`).
const TRAIN_GAP: Time = Time::from_millis(2);
/// Round-trip samples before a rise counts (`HYSTART_MIN_SAMPLES`; RFC 9406, N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Four bursts of segmentation offload, bytes, whose time the kernel adds to a train's, up to 1 ms.
const BURST: f64 = 4.0 * 65_536.0;
const LONGEST_BURST: Time = Time::from_millis(1);
/// RFC 9406 § 4.3: growth in conservative slow start, and its rounds.
const CSS_GROWTH: f64 = 0.25;
const CSS_ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::super::testing::acked;
    use super::*;

    const RTT: Time = Time::from_millis(40);

    fn ack(state: &mut Rounds, flight: &Flight, acked: Acked, window: f64) -> Option<f64> {
        state.count(&acked);
        state.on_ack(flight, &acked, window)
    }

    /// Slow start with a window of `window` segments over `rounds` round trips of `rtt`, each
    /// acknowledged by a train of one segment every `gap`. Returns the window at its end, if it ends.
    fn run(rule: HyStart, gap: Time, rtt: impl Fn(u64) -> Time) -> Option<f64> {
        let (mut state, mut window, mut least) = (Rounds::new(rule), 16.0_f64, Time::NEVER);
        let mut now = Time::from_secs(1);
        for round in 0..6 {
            let (start, n) = (now, window as u64);
            for k in 0..n {
                let sample = rtt(round);
                least = least.min(sample);
                let at = start + Time(gap.0 * k);
                let flight = Flight { srtt: sample, min_rtt: least, ..Flight::of(at, sample, n as u32) };
                let flight = Flight { outstanding: (n - 1 + k) as u32, ..flight };
                match ack(&mut state, &flight, Acked { rtt: Some(sample), ..acked(1) }, window) {
                    Some(growth) => window += growth,
                    None => return Some(window),
                }
            }
            now = start + rtt(round).max(Time(gap.0 * n));
        }
        None
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_linuxs_slow_start_and_a_whole_one_where_it_paces() {
        // 4 acknowledgements a millisecond: half of 40 ms and half of the kernel's millisecond are
        // 82 of them in the round of 128, and the whole 164 in that of 256.
        let gap = Time::from_micros(250);
        assert_eq!(run(HyStart::Linux, gap, |_| RTT), Some(128.0 + 83.0));
        assert_eq!(run(HyStart::LinuxPaced, gap, |_| RTT), Some(256.0 + 165.0));
        assert_eq!(run(HyStart::None, gap, |_| RTT), None);
    }

    #[test]
    fn a_gap_of_over_two_milliseconds_ends_a_train() {
        assert_eq!(run(HyStart::Linux, Time::from_micros(2_001), |_| RTT), None);
        assert!(run(HyStart::Linux, Time::from_millis(2), |_| RTT).is_some());
    }

    #[test]
    fn a_rise_of_an_eighth_in_a_rounds_least_round_trip_ends_linuxs_slow_start() {
        let rise =
            |ms: u64| run(HyStart::LinuxPaced, Time(1), |round| RTT + Time::from_millis(ms * (round / 2)));
        // Rounds 0 and 1 have the least round trip, the next ones 5 or 6 ms more: the ninth sample
        // of the first with over 5 ms ends it.
        assert_eq!(rise(6), Some(64.0 + 8.0));
        assert_eq!(rise(2), None, "4 ms are no eighth of 40");
    }

    #[test]
    fn hystart_plus_plus_grows_by_a_quarter_as_the_round_trip_rises_and_ends_after_five_rounds() {
        let mut state = Rounds::new(HyStart::Rfc9406);
        let mut growths = vec![];
        for round in 0..8_u64 {
            let sample = if round < 2 { RTT } else { RTT + Time::from_millis(6) };
            for k in 0..10 {
                let flight = Flight { outstanding: 9 + k, ..Flight::of(Time::from_secs(round), sample, 10) };
                growths.push(ack(&mut state, &flight, Acked { rtt: Some(sample), ..acked(1) }, 16.0));
            }
        }
        // From the eighth sample of round 2 on; it counts as the first of five.
        assert!(growths[..27].iter().all(|growth| *growth == Some(1.0)), "{growths:?}");
        assert!(growths[27..70].iter().all(|growth| *growth == Some(0.25)), "{growths:?}");
        assert_eq!(growths[70], None);
    }

    #[test]
    fn hystart_plus_plus_resumes_where_the_round_trip_falls_again() {
        let mut state = Rounds::new(HyStart::Rfc9406);
        let mut growth = vec![];
        for round in 0..5_u64 {
            let sample = if round == 2 { RTT + Time::from_millis(6) } else { RTT };
            for k in 0..10 {
                let flight = Flight { outstanding: 9 + k, ..Flight::of(Time::from_secs(round), sample, 10) };
                growth.push(ack(&mut state, &flight, Acked { rtt: Some(sample), ..acked(1) }, 16.0));
            }
        }
        assert_eq!((growth[29], growth[30], growth[49]), (Some(0.25), Some(0.25), Some(1.0)));
    }
}
