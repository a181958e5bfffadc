//! Round-trip time and retransmission timeout (RFC 6298).

use tollway_law::Time;

use super::config::Rto;

/// The estimator, in integer nanoseconds with the fractional bits of the gains 1/8 and 1/4.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    /// 8 × SRTT, ns; 0 before the first sample.
    srtt8: u64,
    /// 4 × RTTVAR, ns.
    var4: u64,
    /// The least sample, [`Time::NEVER`] before the first.
    pub(crate) min: Time,
    /// The latest sample.
    pub(crate) latest: Time,
    /// The timeout without backoff.
    base: Time,
    /// Number of doublings.
    backoff: u8,
}

impl Rtt {
    pub(crate) fn new(rto: &Rto) -> Rtt {
        Rtt { srtt8: 0, var4: 0, min: Time::NEVER, latest: Time::ZERO, base: rto.initial, backoff: 0 }
    }

    /// SRTT, zero before the first sample.
    #[inline]
    pub(crate) fn srtt(&self) -> Time {
        Time(self.srtt8 >> 3)
    }

    /// Adds a sample: RFC 6298 § 2.
    #[inline]
    pub(crate) fn sample(&mut self, rtt: Time, rto: &Rto) {
        let r = rtt.0;
        if self.srtt8 == 0 {
            self.srtt8 = r << 3;
            self.var4 = r << 1;
        } else {
            (self.srtt8, self.var4) = smooth(self.srtt8, self.var4, r);
        }
        self.min = self.min.min(rtt);
        self.latest = rtt;
        let base = (self.srtt8 >> 3) + self.var4.max(rto.granularity.0);
        self.base = Time(base.max(rto.min.0).min(rto.max.0));
    }

    /// Adds a sample as ns-2 does: in integer ticks (`tcp.cc` 565).
    pub(crate) fn sample_ticks(&mut self, rtt: Time, rto: &Rto) {
        let ticks = ((rtt.0 + TICK / 2) / TICK).max(1);
        let (srtt8, var4) = (self.srtt8 / TICK, self.var4 / TICK);
        let (srtt8, var4) = if srtt8 == 0 {
            (ticks << 3, ticks << 1)
        } else {
            let (srtt8, var4) = smooth(srtt8, var4, ticks);
            (srtt8.max(1), var4.max(1))
        };
        self.srtt8 = srtt8 * TICK;
        self.var4 = var4 * TICK;
        self.min = self.min.min(rtt);
        self.latest = rtt;
        self.base = Time(((srtt8 >> 3) * TICK + var4 * TICK).max(rto.min.0).min(rto.max.0));
    }

    /// Lets the next sample count as the first one from the fourth doubling on, as ns-2 does
    /// (`tcp.cc` 611).
    pub(crate) fn begin_anew(&mut self) {
        if self.backoff > 3 {
            self.srtt8 = 0;
        }
    }

    /// The present retransmission timeout.
    #[inline]
    pub(crate) fn rto(&self, rto: &Rto) -> Time {
        if self.backoff == 0 {
            return self.base;
        }
        Time(self.base.0.saturating_mul(1 << self.backoff).min(rto.max.0.max(self.base.0)))
    }

    /// Doubles the timeout after an expiry (RFC 6298 § 5.5).
    pub(crate) fn back_off(&mut self, rto: &Rto) {
        if rto.backoff {
            self.backoff = (self.backoff + 1).min(MAX_DOUBLINGS);
        }
    }

    /// Ends the backoff when new data are acknowledged: timestamps make any sample valid (RFC 6298
    /// § 5.7).
    #[inline]
    pub(crate) fn progress(&mut self) {
        self.backoff = 0;
    }
}

/// 8 × SRTT and 4 × RTTVAR after a sample, in its unit.
#[inline]
fn smooth(srtt8: u64, var4: u64, sample: u64) -> (u64, u64) {
    let srtt = srtt8 >> 3;
    (srtt8 - srtt + sample, var4 - (var4 >> 2) + sample.abs_diff(srtt))
}

/// ns-2's clock (`tcpTick_`), nanoseconds.
const TICK: u64 = 10_000_000;
/// Upper bound on doublings, enough to reach any maximum from a millisecond.
const MAX_DOUBLINGS: u8 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_rfc_6298() {
        let config = Rto { granularity: Time::ZERO, min: Time::ZERO, ..Rto::default() };
        let mut rtt = Rtt::new(&config);
        assert_eq!(rtt.rto(&config), Time::from_secs(1));
        rtt.sample(Time::from_millis(100), &config);
        assert_eq!((rtt.srtt(), rtt.rto(&config)), (Time::from_millis(100), Time::from_millis(300)));
        rtt.sample(Time::from_millis(180), &config);
        // SRTT = 110, RTTVAR = 3/4·50 + 1/4·80 = 57.5 ms.
        assert_eq!((rtt.srtt(), rtt.rto(&config)), (Time::from_millis(110), Time::from_millis(340)));
        assert_eq!(rtt.min, Time::from_millis(100));
        rtt.sample(Time::from_secs(100), &config);
        assert_eq!(rtt.rto(&config), config.max);
    }

    #[test]
    fn ticks_are_of_ten_milliseconds_and_four_timeouts_begin_anew() {
        let config = Rto { granularity: Time::ZERO, min: Time::ZERO, ..Rto::default() };
        let mut rtt = Rtt::new(&config);
        let mut sampled = |millis| {
            rtt.sample_ticks(Time::from_millis(millis), &config);
            (rtt.srtt(), rtt.rto(&config))
        };
        assert_eq!(sampled(104), (Time::from_millis(100), Time::from_millis(300)));
        assert_eq!(sampled(96), (Time::from_millis(100), Time::from_millis(250)));
        for timeouts in [3, 4] {
            let mut late = rtt.clone();
            for _ in 0..timeouts {
                late.back_off(&config);
                late.begin_anew();
            }
            late.progress();
            late.sample_ticks(Time::from_millis(500), &config);
            assert_eq!(late.srtt() == Time::from_millis(500), timeouts == 4);
        }
    }

    #[test]
    fn doubles_up_to_the_maximum_and_not_when_fixed() {
        let config = Rto::default();
        let mut rtt = Rtt::new(&config);
        let schedule = [2, 4, 8, 16, 32, 60, 60];
        for secs in schedule {
            rtt.back_off(&config);
            assert_eq!(rtt.rto(&config), Time::from_secs(secs));
        }
        rtt.progress();
        assert_eq!(rtt.rto(&config), Time::from_secs(1));
        let fixed = Rto { backoff: false, ..config };
        rtt.back_off(&fixed);
        assert_eq!(rtt.rto(&fixed), Time::from_secs(1));
    }
}
