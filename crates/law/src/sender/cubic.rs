//! CUBIC (RFC 9438): a window that is a cubic function of the time since the last loss.

use super::hystart::{HyStart, Rounds};
use super::{
    Acked, AnySender, Descriptor, Flight, MIN_SSTHRESH, SenderConfig, SenderLaw, Sending, flight_size,
    window_limited,
};
use crate::param::{Kind, Tabled};
use crate::{Time, config};

/// CUBIC's window, with the Reno-friendly region, fast convergence, and [`HyStart`].
#[derive(Clone, Debug)]
pub struct Cubic {
    window: f64,
    ssthresh: f64,
    /// The plateau: where the last loss happened (§ 4.6), or where avoidance began after a timeout
    /// (§ 4.8).
    w_max: f64,
    /// Window before the last reduction (§ 4.3).
    prior: f64,
    /// The window that Reno would have now (equation 4).
    w_est: f64,
    /// Seconds from the start of the epoch to the plateau (equation 2).
    k: f64,
    /// Start of this congestion-avoidance epoch, [`Time::NEVER`] before its first acknowledgement.
    epoch: Time,
    /// The last acknowledgement, so that idle time does not count.
    last: Time,
    /// Marks up to this instant belong to the window already reduced (RFC 3168 § 6.1.2).
    reduced_until: Time,
    /// Losses up to this instant belong to the window already reduced for marks.
    eased_until: Time,
    in_recovery: bool,
    after_timeout: bool,
    fast_convergence: bool,
    /// The end of slow start before a loss.
    rounds: Box<Rounds>,
    /// True in congestion avoidance that no loss preceded, by Linux's rules.
    searching: bool,
}

config! {
    /// The parameters of [`Cubic`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct CubicConfig in "cubic", "The constants of CUBIC." {
        /// Ends slow start before a loss: `linux`, by trains of acknowledgements and by delay, where
        /// packets are not paced; `linux-paced`, where they are (the `fq` queue, or BBR before
        /// CUBIC); `rfc9406`, HyStart++; or `none`.
        hystart: HyStart = HyStart::LinuxPaced, Kind::Word(HyStart::WORDS), from "`tcp_cubic.c`; RFC 9406";
        fixed {
            /// Window at the start, segments (RFC 6928).
            initial_window: f64 = 10.0;
            /// Slow-start threshold at the start, segments.
            initial_ssthresh: f64 = f64::INFINITY;
            /// True if a flow that loses below its last plateau releases bandwidth (§ 4.7).
            fast_convergence: bool = true;
        }
    }
}

impl SenderConfig for CubicConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor { kernel: Some("cubic"), ..Descriptor::default() }
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        CubicConfig { initial_window: of.initial_window, ..*self }.build().into()
    }
}

impl CubicConfig {
    /// Builds the law.
    pub fn build(&self) -> Cubic {
        Cubic {
            window: self.initial_window.max(1.0),
            ssthresh: self.initial_ssthresh,
            w_max: 0.0,
            prior: 0.0,
            w_est: 0.0,
            k: 0.0,
            epoch: Time::NEVER,
            last: Time::ZERO,
            reduced_until: Time::ZERO,
            eased_until: Time::ZERO,
            in_recovery: false,
            after_timeout: false,
            fast_convergence: self.fast_convergence,
            rounds: Box::new(Rounds::new(self.hystart)),
            searching: self.hystart.is_linux(),
        }
    }
}

impl Cubic {
    /// The slow-start threshold, segments.
    pub fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// §§ 4.6 and 4.7: records the plateau and sets the threshold.
    fn reduce(&mut self, flight: &Flight) {
        self.prior = self.window;
        self.searching = false;
        let early = self.fast_convergence && self.window < self.w_max;
        self.w_max = if early { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.ssthresh = (flight_size(self.window, flight) * BETA).max(MIN_SSTHRESH);
        self.epoch = Time::NEVER;
        // The next epoch is this reduction's; if it is a timeout's, that says so.
        self.after_timeout = false;
        self.reduced_until = flight.now.saturating_add(flight.srtt);
    }

    /// The first acknowledgement of a congestion-avoidance epoch (§§ 4.2, 4.8).
    fn begin_epoch(&mut self, now: Time) {
        self.epoch = now;
        self.w_est = self.window;
        if self.after_timeout || self.w_max <= self.window {
            self.w_max = self.window;
            self.k = 0.0;
            self.after_timeout = false;
        } else {
            self.k = libm::cbrt((self.w_max - self.window) / C);
        }
    }

    /// Equation 1, `t` in seconds.
    #[inline]
    fn cubic(&self, t: f64) -> f64 {
        let d = t - self.k;
        C * d * d * d + self.w_max
    }

    fn avoid(&mut self, flight: &Flight, segments: f64) {
        if self.epoch == Time::NEVER {
            self.begin_epoch(flight.now);
        }
        let t = flight.now.saturating_sub(self.epoch).as_secs_f64();
        // § 4.3: Reno's slope with CUBIC's milder reduction, and Reno's own once that is made good.
        let alpha = if self.w_est < self.prior { ALPHA } else { 1.0 };
        self.w_est += alpha * segments / self.window;
        let least = if self.searching { self.window + segments * SEARCH } else { self.window };
        if self.cubic(t) < self.w_est {
            self.window = least.max(self.w_est);
            return;
        }
        // § 4.2: where the curve will be a round trip from now.
        let target = self.cubic(t + flight.srtt.as_secs_f64()).clamp(self.window, 1.5 * self.window);
        self.window = least.max(self.window + segments * (target - self.window) / self.window);
    }
}

impl SenderLaw for Cubic {
    #[inline]
    fn window(&self) -> f64 {
        self.window
    }

    #[inline]
    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        let idle = flight.now.saturating_sub(self.last);
        self.last = flight.now;
        let slow = self.window < self.ssthresh;
        if slow {
            self.rounds.count(acked);
        }
        if acked.marked && !self.in_recovery && flight.now >= self.reduced_until {
            self.reduce(flight);
            self.window = self.ssthresh;
            self.eased_until = self.reduced_until;
            return;
        }
        // As of NewReno: what comes behind a hole grows nothing.
        if self.in_recovery || acked.cumulative == 0 {
            return;
        }
        if !window_limited(self.window, flight) {
            // § 5.8: the curve waits while the window is not used.
            if self.epoch != Time::NEVER {
                self.epoch = self.epoch.saturating_add(idle);
            }
            return;
        }
        if slow {
            if let Some(growth) = self.rounds.on_ack(flight, acked, self.window) {
                let grown = if acked.recovering { 1.0 } else { f64::from(acked.segments) };
                self.window = (self.window + growth * grown).min(self.ssthresh.max(self.window));
                return;
            }
            self.ssthresh = self.window;
        }
        self.avoid(flight, f64::from(acked.segments));
    }

    fn on_loss(&mut self, flight: &Flight) {
        if flight.now >= self.eased_until {
            self.reduce(flight);
            self.window = self.ssthresh;
        }
        self.in_recovery = true;
    }

    fn on_recovered(&mut self, _: &Flight) {
        self.in_recovery = false;
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        if first {
            self.reduce(flight);
        }
        self.searching = self.rounds.restart();
        self.after_timeout = true;
        self.epoch = Time::NEVER;
        self.window = 1.0;
        self.in_recovery = false;
    }
}

/// Least growth before the first loss, for each segment acknowledged: a twentieth of the window in a
/// round trip (`tcp_cubic.c`, `cnt` of at most 20).
const SEARCH: f64 = 0.05;
/// The steepness of the curve, segments/s³ (§ 4.1.2).
const C: f64 = 0.4;
/// The factor on the window at a loss (§ 4.6).
const BETA: f64 = 0.7;
/// The additive increase with which this β has Reno's average window (§ 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, flight};
    use super::*;

    /// Acknowledges one window a round trip of 100 ms, from `from` on, for `rounds`.
    fn run(law: &mut Cubic, from: Time, rounds: u32) -> Time {
        let mut now = from;
        for _ in 0..rounds {
            let window = law.window() as u32;
            for i in 0..window {
                let at = now + Time(100_000_000 * u64::from(i) / u64::from(window));
                law.on_ack(&flight(at, window), &acked(1));
            }
            now += Time::from_millis(100);
        }
        now
    }

    #[test]
    fn what_comes_behind_a_hole_grows_nothing() {
        let behind = |segments| Acked { cumulative: 0, ..acked(segments) };
        let mut law = CubicConfig { initial_window: 10.0, ..Default::default() }.build();
        let now = Time::from_secs(1);
        (0..10).for_each(|_| law.on_ack(&flight(now, 10), &behind(1)));
        assert_eq!(law.window(), 10.0);
        law.on_timeout(&flight(now, 10), true);
        (0..10).for_each(|_| law.on_ack(&flight(now, 1), &Acked { recovering: true, ..behind(2) }));
        assert_eq!(law.window(), 1.0);
        law.on_ack(&flight(now, 1), &Acked { recovering: true, ..acked(1) });
        assert_eq!(law.window(), 2.0);
    }

    #[test]
    fn is_back_at_the_plateau_after_k_seconds() {
        let mut law = CubicConfig { initial_window: 1000.0, ..Default::default() }.build();
        let now = Time::from_secs(1);
        law.on_loss(&flight(now, 1000));
        assert_eq!(law.window(), 700.0);
        law.on_recovered(&flight(now, 700));
        // K = cbrt(300 / 0.4) = 9.086 s: concave before it, convex beyond.
        let now = run(&mut law, now, 45);
        assert!((950.0..970.0).contains(&law.window()), "{}", law.window());
        let now = run(&mut law, now, 46);
        assert!((law.window() - 1000.0).abs() < 2.0, "{}", law.window());
        run(&mut law, now, 46);
        assert!((1030.0..1050.0).contains(&law.window()), "{}", law.window());
    }

    #[test]
    fn a_loss_in_the_slow_start_after_a_timeout_has_a_plateau_of_its_own() {
        let mut law = CubicConfig { initial_window: 200.0, ..Default::default() }.build();
        law.on_timeout(&flight(Time::from_secs(1), 200), true);
        let mut now = Time::from_secs(2);
        while law.window() < 100.0 {
            now = run(&mut law, now, 1);
        }
        assert!(law.window() < law.ssthresh());
        let lost_at = flight(now, law.window() as u32);
        law.on_loss(&lost_at);
        law.on_recovered(&lost_at);
        let plateau = law.w_max;
        run(&mut law, now, 1);
        assert!(law.k > 3.0 && law.w_max == plateau, "{} {} {plateau}", law.k, law.w_max);
    }

    #[test]
    fn is_no_slower_than_reno_on_short_paths() {
        let mut law = CubicConfig { initial_window: 20.0, ..Default::default() }.build();
        let now = Time::from_secs(1);
        law.on_loss(&flight(now, 20));
        law.on_recovered(&flight(now, 14));
        // Back to 20 at 0.529 a round trip: 11.3 round trips, where the curve alone needs K = 2.5
        // s.
        run(&mut law, now, 12);
        assert!((19.5..21.0).contains(&law.window()), "{}", law.window());
    }

    #[test]
    fn fast_convergence_lowers_the_plateau_of_a_second_loss() {
        for (fast, plateau) in [(true, 70.0 * 0.85), (false, 70.0)] {
            let config = CubicConfig { initial_window: 100.0, fast_convergence: fast, ..Default::default() };
            let mut law = config.build();
            law.on_loss(&flight(Time::from_secs(1), 100));
            law.on_recovered(&flight(Time::from_secs(1), 70));
            law.on_loss(&flight(Time::from_secs(2), 70));
            assert!((law.w_max - plateau).abs() < 1e-9, "{}", law.w_max);
            assert!((law.window() - 49.0).abs() < 1e-9);
        }
    }

    #[test]
    fn after_a_timeout_the_curve_starts_flat_where_slow_start_ended() {
        let mut law = CubicConfig { initial_window: 100.0, ..Default::default() }.build();
        law.on_timeout(&flight(Time::from_secs(1), 100), true);
        assert_eq!((law.window(), law.ssthresh()), (1.0, 70.0));
        run(&mut law, Time::from_secs(2), 8);
        assert_eq!(law.k, 0.0);
        assert!(law.window() >= 70.0 && law.w_max >= 70.0, "{} {}", law.window(), law.w_max);
    }

    #[test]
    fn the_curve_waits_for_an_idle_application() {
        let mut law = CubicConfig { initial_window: 1000.0, ..Default::default() }.build();
        let now = Time::from_secs(1);
        law.on_loss(&flight(now, 1000));
        law.on_recovered(&flight(now, 700));
        let now = run(&mut law, now, 10);
        let before = law.window();
        let later = now + Time::from_secs(30);
        law.on_ack(&Flight { app_limited: true, ..flight(later, 3) }, &acked(1));
        law.on_ack(&flight(later, 700), &acked(1));
        assert!(law.window() - before < 1.0, "{} {before}", law.window());
    }

    #[test]
    fn a_repeated_timeout_keeps_the_threshold() {
        let mut law = CubicConfig { initial_window: 100.0, ..Default::default() }.build();
        law.on_timeout(&flight(Time::from_secs(1), 100), true);
        law.on_timeout(&flight(Time::from_secs(3), 1), false);
        assert_eq!((law.window(), law.ssthresh()), (1.0, 70.0));
    }

    #[test]
    fn a_loss_in_a_window_reduced_for_a_mark_does_not_reduce_again() {
        let now = Time::from_secs(1);
        let mut law = CubicConfig { initial_window: 100.0, ..Default::default() }.build();
        law.on_ack(&flight(now, 100), &Acked { marked: true, ..acked(1) });
        law.on_loss(&flight(now + Time::from_millis(50), 70));
        assert_eq!((law.window(), law.w_max), (70.0, 100.0));
    }

    #[test]
    fn beyond_the_old_window_the_estimate_of_reno_grows_as_reno_does() {
        let mut law = CubicConfig { initial_window: 20.0, ..Default::default() }.build();
        law.on_loss(&flight(Time::from_secs(1), 20));
        law.on_recovered(&flight(Time::from_secs(1), 14));
        // On a path of 1 ms the curve is flat: 12 round trips back to 20, then one segment each.
        let mut now = Time::from_secs(1);
        for _ in 0..32 {
            for _ in 0..law.window() as u32 {
                law.on_ack(&Flight { srtt: Time::from_millis(1), ..flight(now, 20) }, &acked(1));
            }
            now += Time::from_millis(1);
        }
        assert!((38.0..41.0).contains(&law.window()), "{}", law.window());
    }
}
