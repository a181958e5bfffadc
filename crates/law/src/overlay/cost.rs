//! The cost of an overlay link from its mean backlog (§ IV-B.1).

use serde::{Deserialize, Serialize};

use crate::{Rate, Time};

/// The constants of [`Cost`].
///
/// Out-of-range values are pulled into range: the limit to 0.01 … 10⁶, the prohibitive cost to 0.01
/// … 10⁶, the base to 1.000001 … 10⁶. The window is read by [`Backlog`](super::Backlog).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostConfig {
    /// M, the soft limit of a link's backlog, in update intervals at the link's rate. 8: 100
    /// packets of 1000 bytes at 2 Mb/s.
    pub limit: f64,
    /// S, the cost at the soft limit, in dollars a lot. 20 (§ VI).
    pub prohibitive: f64,
    /// The base of the exponent. e (§ IV-B.1); 20 is the theory's.
    pub base: f64,
    /// Smoothing of the backlog, in update intervals. 0: the backlog at the update. 1: the mean over
    /// the last interval. The paper leaves it open; the parameter study chose 0.
    pub window: f64,
}

impl Default for CostConfig {
    fn default() -> CostConfig {
        CostConfig { limit: 8.0, prohibitive: 20.0, base: std::f64::consts::E, window: 0.0 }
    }
}

/// The price of one link: C(x) = S · (B^(x/M) − 1) / (B − 1) dollars for a lot of M / 100 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// M in update intervals, and in bytes.
    intervals: f64,
    prohibitive: f64,
    log_base: f64,
    scale: f64,
    update: f64,
    soft: f64,
}

impl Cost {
    /// The price of a link of `rate`, where updates are at least `update` apart (T_min).
    pub fn new(config: &CostConfig, rate: Rate, update: Time) -> Cost {
        let positive = |x: f64, least: f64| if x > least { x.min(1e6) } else { least };
        let base = positive(config.base, 1.000001);
        let mut cost = Cost {
            intervals: positive(config.limit, 0.01),
            prohibitive: positive(config.prohibitive, 0.01),
            log_base: libm::log(base),
            scale: 1.0 / (base - 1.0),
            update: update.as_secs_f64(),
            soft: 0.0,
        };
        cost.set_rate(rate);
        cost
    }

    /// Scales the soft limit to another rate, at least 1 kb/s.
    pub fn set_rate(&mut self, rate: Rate) {
        let rate = rate.bytes_per_sec().max(Rate::SLOWEST_WIRE.bytes_per_sec());
        self.soft = (self.intervals * self.update * rate).max(100.0);
    }

    /// M, the soft limit, in bytes.
    pub fn limit(&self) -> f64 {
        self.soft
    }

    /// The bytes that one purchase buys, M / 100.
    pub fn lot(&self) -> f64 {
        self.soft * 0.01
    }

    /// The cost, in dollars a lot, of a mean backlog in bytes. It grows beyond S above the soft
    /// limit, up to 1000 · S.
    pub fn price(&self, backlog: f64) -> f64 {
        let exponent = (backlog.max(0.0) / self.soft * self.log_base).min(700.0);
        (self.prohibitive * libm::expm1(exponent) * self.scale).min(1000.0 * self.prohibitive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost() -> Cost {
        Cost::new(&CostConfig::default(), Rate::from_mbps(2.0), Time::from_millis(50))
    }

    #[test]
    fn constants_at_two_megabits_are_the_papers() {
        let cost = cost();
        assert_eq!(cost.limit(), 100_000.0);
        assert_eq!(cost.lot(), 1000.0);
        assert_eq!(cost.price(0.0), 0.0);
        assert!((cost.price(100_000.0) - 20.0).abs() < 1e-9);
        // Of the inverse x = M · ln(1 + C (e − 1) / S).
        for (packets, dollars) in [(5.0, 0.597), (10.0, 1.224), (50.0, 7.551), (90.0, 16.99)] {
            assert!((cost.price(1000.0 * packets) - dollars).abs() < 0.01, "{packets}");
        }
    }

    #[test]
    fn a_larger_base_asks_less_below_the_limit_and_as_much_at_it() {
        let theory = Cost::new(
            &CostConfig { base: 20.0, ..CostConfig::default() },
            Rate::from_mbps(2.0),
            Time::from_millis(50),
        );
        assert!(theory.price(50_000.0) < 0.6 * cost().price(50_000.0));
        assert!((theory.price(100_000.0) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn limit_and_lot_scale_with_the_rate_and_no_backlog_overflows() {
        let mut cost = cost();
        cost.set_rate(Rate::from_mbps(20.0));
        assert_eq!(cost.limit(), 1e6);
        assert!((cost.price(5e5) - 7.551).abs() < 0.01);
        assert_eq!(cost.price(f64::INFINITY), 20_000.0);
        assert_eq!(cost.price(f64::NAN), 0.0);
        cost.set_rate(Rate::ZERO);
        assert!(cost.lot() >= 1.0 && cost.price(1e12).is_finite());
    }
}
