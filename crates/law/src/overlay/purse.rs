//! A sender's salary and savings, and when it may buy (§ IV-B.2 and § IV-B.3).

use serde::{Deserialize, Serialize};

use crate::param::{Kind, PROBABILITY, SPAN};
use crate::{Time, config};

config! {
    /// The constants of a [`Purse`].
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct PurseConfig {
        /// A sender's income each period, dollars.
        salary: f64 = 10.0, DOLLARS, from "§ VI";
        /// Upper bound of its savings, dollars.
        cap: f64 = 20.0, DOLLARS, from "§ VI";
        /// p: the price of every message in addition to that of its hops, dollars.
        fee: f64 = 1.0, DOLLARS, from "§ IV-B.3";
        /// H: a blocked sender whose most expensive message cost less has its period shortened.
        threshold: f64 = 2.0, DOLLARS, from "§ IV-B.3";
        /// Buys an affordable message of cost C only with probability 1/C.
        draw: bool = true, Kind::Truth, from "§ IV-B.3";
        /// Mean time to the next draw after a failed one, for each dollar of the cost. The paper
        /// leaves it open.
        retry: Time = Time::from_millis(5), SPAN;
        fixed {
            /// The time between two salaries.
            period: PeriodConfig = PeriodConfig::default();
        }
    }
}

config! {
    /// The time between two salaries of a sender. The paper bounds it on neither side.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct PeriodConfig in "period", "The time between two salaries of a sender." {
        /// First value.
        initial: Time = Time::from_millis(100), PERIOD;
        /// Lower bound.
        least: Time = Time::from_millis(4), PERIOD;
        /// Upper bound.
        most: Time = Time::from_millis(200), PERIOD;
        /// Random part of each period, in both directions.
        jitter: f64 = 0.1, PROBABILITY;
    }
}

const DOLLARS: Kind = Kind::Number { least: 0.0, most: 1e6 };
/// The range of a period. Timers use it, and a shorter one would stall a run.
const PERIOD: Kind = Kind::Time { least: 1000 };

impl PurseConfig {
    /// The delay before the next draw after a failed draw at `price`; `unit` is uniform on [0, 1).
    pub fn redraw(&self, price: f64, unit: f64) -> Time {
        Time::from_secs_f64(self.retry.as_secs_f64() * price * (0.5 + unit))
    }
}

/// The result of an attempt to buy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The message is paid for.
    Bought,
    /// The savings are too low: retry at the next salary or when the price falls.
    Blocked,
    /// Affordable, but the draw failed: retry after [`PurseConfig::redraw`], or at a salary or an
    /// update.
    Unlucky,
}

/// A token bucket of dollars whose period adapts as a congestion window does (§ IV-B.3).
///
/// A message of several lots is bought at the price of one, and the rest is a debt that later
/// salaries pay; the paper's messages are one lot each.
#[derive(Clone, Copy, Debug)]
pub struct Purse {
    config: PurseConfig,
    /// Factor on the configured salary and savings.
    weight: f64,
    /// T_min, the least interval between updates.
    update: Time,
    balance: f64,
    /// The salary period T.
    period: Time,
    due: Time,
    blocked: bool,
    /// The highest price paid in this period; zero without a purchase.
    dearest: f64,
    spent: f64,
}

impl Purse {
    /// An empty purse, whose first salary comes after the part `unit` of the first period. `update`
    /// is T_min.
    pub fn new(config: &PurseConfig, weight: f64, update: Time, now: Time, unit: f64) -> Purse {
        let period = config.period.initial;
        let due = now.saturating_add(scaled(period, unit));
        let mut purse = Purse {
            config: *config,
            weight: 1.0,
            update,
            balance: 0.0,
            period,
            due,
            blocked: false,
            dearest: 0.0,
            spent: 0.0,
        };
        purse.set_weight(weight);
        purse
    }

    /// Changes the weight of the salary, clamped to 0.001 … 1000.
    pub fn set_weight(&mut self, weight: f64) {
        self.weight = if weight > 0.001 { weight.min(1000.0) } else { 0.001 };
    }

    /// The time of the next salary.
    pub fn due(&self) -> Time {
        self.due
    }

    /// The savings, in dollars; negative while a large message is paid off.
    pub fn balance(&self) -> f64 {
        self.balance
    }

    /// The salary period T.
    pub fn period(&self) -> Time {
        self.period
    }

    /// Dollars spent since the start.
    pub fn spent(&self) -> f64 {
        self.spent
    }

    /// Pays the salaries due at `now`; `unit` draws uniformly from [0, 1) for the jitter of a
    /// period.
    ///
    /// Equations (3) and (4): a period in which the sender was blocked is followed by T · T_min /
    /// (T + T_min) if its dearest purchase was under the threshold, by 2 T if it was not. A period
    /// without purchase leaves T, which the paper leaves open.
    pub fn pay(&mut self, now: Time, mut unit: impl FnMut() -> f64) {
        while self.due <= now {
            if self.blocked && self.dearest > 0.0 {
                let (period, step) = (self.period.as_secs_f64(), self.update.as_secs_f64());
                let next = match self.dearest < self.config.threshold {
                    true => period * step / (period + step),
                    false => 2.0 * period,
                };
                let PeriodConfig { least, most, .. } = self.config.period;
                self.period = Time::from_secs_f64(next).clamp(least, most);
            }
            (self.blocked, self.dearest) = (false, 0.0);
            let cap = self.config.cap * self.weight.max(1.0);
            self.balance = (self.balance + self.config.salary * self.weight).min(cap);
            let span =
                scaled(self.period, 1.0 + self.config.period.jitter * (2.0 * unit() - 1.0)).max(Time(1));
            self.due = self.due.saturating_add(span);
            // Savings are full: salaries missed since change nothing.
            if self.balance >= cap && self.due <= now {
                let missed = (now.0 - self.due.0) / span.0 + 1;
                self.due = self.due.saturating_add(Time(missed.saturating_mul(span.0)));
            }
        }
    }

    /// Tries to buy `lots` at `price` dollars each. No draw is needed if `drawn`; `unit` is uniform
    /// on [0, 1).
    pub fn buy(&mut self, price: f64, lots: f64, drawn: bool, unit: impl FnOnce() -> f64) -> Attempt {
        // Not `>=`: a price that is no number blocks.
        let affordable = price <= self.config.cap && price * lots.min(1.0) <= self.balance;
        if !affordable {
            self.blocked = true;
            return Attempt::Blocked;
        }
        if self.config.draw && !drawn && price > 1.0 && unit() * price >= 1.0 {
            return Attempt::Unlucky;
        }
        self.balance -= price * lots;
        self.spent += price * lots;
        self.dearest = self.dearest.max(price);
        Attempt::Bought
    }
}

fn scaled(span: Time, by: f64) -> Time {
    Time::from_secs_f64(span.as_secs_f64() * by)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPDATE: Time = Time::from_millis(50);

    fn steady() -> Purse {
        let period = PeriodConfig { jitter: 0.0, ..PeriodConfig::default() };
        let config = PurseConfig { draw: false, period, ..PurseConfig::default() };
        Purse::new(&config, 1.0, UPDATE, Time::ZERO, 0.0)
    }

    #[test]
    fn savings_are_capped_and_buy_what_they_reach() {
        let mut purse = steady();
        assert_eq!(purse.buy(1.0, 1.0, true, || 0.0), Attempt::Blocked);
        purse.pay(Time::from_secs(10), || 0.5);
        assert_eq!(purse.balance(), 20.0);
        assert!(purse.due() > Time::from_secs(10));
        assert_eq!(purse.buy(20.1, 1.0, true, || 0.0), Attempt::Blocked);
        assert_eq!(purse.buy(20.0, 1.0, true, || 0.0), Attempt::Bought);
        assert_eq!(purse.buy(0.5, 1.0, true, || 0.0), Attempt::Blocked);
        assert_eq!(purse.spent(), 20.0);
    }

    #[test]
    fn the_period_follows_equations_3_and_4() {
        let mut purse = steady();
        purse.pay(purse.due(), || 0.5);
        assert_eq!(purse.period(), Time::from_millis(100));
        // Blocked by the fee alone: 1/T grows by 1/T_min.
        while purse.buy(1.0, 1.0, true, || 0.0) == Attempt::Bought {}
        purse.pay(purse.due(), || 0.5);
        assert!((purse.period().as_millis_f64() - 100.0 / 3.0).abs() < 0.001);
        // Blocked by a price: T doubles.
        while purse.buy(3.0, 1.0, true, || 0.0) == Attempt::Bought {}
        purse.pay(purse.due(), || 0.5);
        assert!((purse.period().as_millis_f64() - 200.0 / 3.0).abs() < 0.001);
        // Not blocked, or nothing bought: T stays.
        purse.buy(1.0, 1.0, true, || 0.0);
        purse.pay(purse.due(), || 0.5);
        purse.buy(1000.0, 1.0, true, || 0.0);
        purse.pay(purse.due(), || 0.5);
        assert!((purse.period().as_millis_f64() - 200.0 / 3.0).abs() < 0.001);
    }

    #[test]
    fn a_draw_succeeds_with_probability_one_in_the_price() {
        let mut purse = Purse::new(&PurseConfig::default(), 1.0, UPDATE, Time::ZERO, 0.0);
        purse.pay(Time::from_secs(1), || 0.5);
        assert_eq!(purse.buy(4.0, 1.0, false, || 0.25), Attempt::Unlucky);
        assert_eq!(purse.buy(4.0, 1.0, false, || 0.249), Attempt::Bought);
        assert_eq!(purse.buy(4.0, 1.0, true, || 0.9), Attempt::Bought);
        assert_eq!(purse.buy(0.5, 1.0, false, || 0.999), Attempt::Bought);
    }

    #[test]
    fn a_large_message_is_a_debt() {
        let mut purse = steady();
        purse.pay(purse.due(), || 0.5);
        assert_eq!(purse.buy(1.0, 64.0, true, || 0.0), Attempt::Bought);
        assert_eq!(purse.balance(), -54.0);
        assert_eq!(purse.buy(1.0, 1.0, true, || 0.0), Attempt::Blocked);
    }

    #[test]
    fn weight_is_a_multiple_of_the_salary_and_no_price_that_is_no_number_is_paid() {
        let mut purse = Purse::new(&PurseConfig::default(), 5.0, UPDATE, Time::ZERO, 0.0);
        purse.pay(Time::ZERO, || 0.5);
        assert_eq!(purse.balance(), 50.0);
        assert_eq!(purse.buy(21.0, 1.0, true, || 0.0), Attempt::Blocked);
        assert_eq!(purse.buy(f64::NAN, 1.0, true, || 0.0), Attempt::Blocked);
    }

    #[test]
    fn redraws_come_after_five_milliseconds_a_dollar() {
        let config = PurseConfig::default();
        assert_eq!(config.redraw(4.0, 0.5), Time::from_millis(20));
        assert_eq!(config.redraw(4.0, 0.0), Time::from_millis(10));
    }
}
