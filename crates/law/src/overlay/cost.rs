//! The cost of an overlay link from its mean backlog (§ IV-B.1).

use serde::{Deserialize, Serialize};

use crate::param::{Kind, SPAN};
use crate::{Rate, Time, config};

config! {
    /// The constants of [`Cost`]. The window is read by [`Backlog`](super::Backlog).
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct CostConfig {
        /// M: the queue of a hop at which its price is `prohibitive`, as the time that the hop
        /// needs for it; 100 messages at 2 Mb/s.
        soft_limit: Time = Time::from_millis(400), SPAN, from "§ VI";
        /// S: the price at the soft limit, dollars.
        prohibitive: f64 = 20.0, Kind::Over { over: 0.0, most: 1e6 }, from "§ VI";
        /// Base of the price's exponent; e.
        base: f64 = std::f64::consts::E, Kind::Over { over: 1.0, most: 1e6 }, from "§ IV-B.1";
        /// Updates over which the queue is averaged; 0 takes the queue at the update. The paper
        /// leaves it open.
        window: f64 = 0.0, Kind::Number { least: 0.0, most: 1e6 };
    }
}

impl CostConfig {
    /// The time that a link needs for a lot, M / 100, in seconds.
    pub fn lot_interval(&self) -> f64 {
        LOT * self.soft_limit.as_secs_f64()
    }
}

/// The price of one link: C(x) = S · (B^(x/M) − 1) / (B − 1) dollars for a lot of M / 100 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// M in seconds, and in bytes.
    seconds: f64,
    soft: f64,
    prohibitive: f64,
    log_base: f64,
    scale: f64,
}

impl Cost {
    /// The price of a link of `rate`.
    pub fn new(config: &CostConfig, rate: Rate) -> Cost {
        let mut cost = Cost {
            seconds: config.soft_limit.as_secs_f64(),
            soft: 0.0,
            prohibitive: config.prohibitive,
            log_base: libm::log(config.base),
            scale: 1.0 / (config.base - 1.0),
        };
        cost.set_rate(rate);
        cost
    }

    /// Scales the soft limit to another rate, at least 1 kb/s.
    pub fn set_rate(&mut self, rate: Rate) {
        let rate = rate.bytes_per_sec().max(Rate::SLOWEST_WIRE.bytes_per_sec());
        self.soft = (self.seconds * rate).max(100.0);
    }

    /// M, the soft limit, in bytes.
    pub fn limit(&self) -> f64 {
        self.soft
    }

    /// The bytes that one purchase buys, M / 100.
    pub fn lot(&self) -> f64 {
        self.soft * LOT
    }

    /// The cost, in dollars a lot, of a mean backlog in bytes. It grows beyond S above the soft
    /// limit, up to 1000 · S.
    pub fn price(&self, backlog: f64) -> f64 {
        let exponent = (backlog.max(0.0) / self.soft * self.log_base).min(700.0);
        (self.prohibitive * libm::expm1(exponent) * self.scale).min(1000.0 * self.prohibitive)
    }
}

/// A lot, as a part of M.
const LOT: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn cost() -> Cost {
        Cost::new(&CostConfig::default(), Rate::from_mbps(2.0))
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
        let theory = Cost::new(&CostConfig { base: 20.0, ..CostConfig::default() }, Rate::from_mbps(2.0));
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
