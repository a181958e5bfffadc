//! Exchange rates between the currencies of two domains (the FCP report, CMU-CS-12-125, § 4.3,
//! "Inter-domain budget management").

use super::Span;
use super::promises::Promises;
use super::window::{Sums, Window};
use crate::{Price, Time, Toll};

/// The rule that converts the customer's currency to the provider's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExchangeRate {
    /// A constant: the provider's units per unit of the customer.
    Fixed(f64),
    /// The worth of all spending of the customer beyond the border, in the provider's $/s: its
    /// weight among the provider's customers. The customer's own unit does not matter.
    Weight(f64),
}

/// A border between two domains, where the customer's packets enter the provider's network and
/// their acknowledgements leave it.
///
/// Payments and path prices in packets are converted from the customer's unit to the provider's;
/// the price in acknowledgements is converted back. (In the report packets carry the rate, for
/// links to divide by. Conversion at the border has the same effect without a field.)
///
/// With [`ExchangeRate::Weight`] the rate is weight ∕ I. I is what the customer's packets pay
/// beyond the border over the last two mean round trips, promises included, computed as a link does
/// (equations 2 and 4). A customer that multiplies its budgets by 1000 divides the worth of its
/// unit by 1000.
#[derive(Clone, Debug)]
pub struct Exchange {
    rate: ExchangeRate,
    /// The provider's units per unit of the customer.
    factor: f64,
    window: Window<Sums>,
    promises: Promises,
    /// The window's length.
    span: Span,
}

impl Exchange {
    /// A border with this rate.
    pub fn new(rate: ExchangeRate) -> Exchange {
        let factor = match rate {
            ExchangeRate::Fixed(factor) => factor,
            ExchangeRate::Weight(_) => 1.0,
        };
        let mut exchange = Exchange {
            rate,
            factor,
            window: Window::new(),
            promises: Promises::new(1 << 30),
            span: Span::of(2.0 * INITIAL_RTT),
        };
        exchange.promises.set_span(exchange.span.ns);
        exchange
    }

    /// The present rate: the provider's units per unit of the customer.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Converts a tolled packet of `size` bytes that enters the provider's network.
    pub fn on_data(&mut self, now: Time, size: u32, toll: &mut Toll) {
        if let ExchangeRate::Weight(weight) = self.rate {
            self.weigh(now.as_nanos(), f64::from(size), toll, weight);
        }
        toll.stake = (f64::from(toll.stake) * self.factor) as f32;
        toll.due = turn(toll.due, self.factor);
    }

    /// Converts the price `echo` of an acknowledgement that returns to the customer.
    pub fn on_ack(&self, echo: f32) -> f32 {
        // Not beyond what a float holds: that would be no price.
        turn(f64::from(echo), 1.0 / self.factor).min(f64::from(f32::MAX)) as f32
    }

    fn weigh(&mut self, now: u64, size: f64, toll: &Toll, weight: f64) {
        let rtt = f64::from(toll.rtt);
        let (stake, asked) = (f64::from(toll.stake), toll.due);
        if !(rtt > 0.0 && rtt.is_finite() && stake > 0.0 && stake.is_finite()) {
            return;
        }
        let rtt = rtt.min(LONGEST);
        let beyond = if asked > Price::MIN.get() { (stake - asked).max(0.0) } else { stake };
        let paid = beyond * size;
        if self.window.add(
            now,
            self.span.ns,
            Sums { paid, bytes: size, rtt_bytes: size * rtt, ..Sums::default() },
        ) {
            let sums = self.window.sums(now, self.span.ns);
            self.set_rtt(now, sums.rtt_bytes / sums.bytes);
        }
        let change = paid * f64::from(toll.offer).max(-1.0) / rtt;
        if change != 0.0 && change < MOST_CHANGE {
            let after = |seconds: f64| now + (seconds * 1e9) as u64;
            self.promises.add_fading(now, now, after(rtt), after(rtt + self.span.d), change);
        }
        let paid = self.window.sums(now, self.span.ns).paid * self.span.per_second;
        let income = paid + self.promises.total(now);
        if income > 0.0 {
            self.factor = (weight / income).clamp(1.0 / MOST_FACTOR, MOST_FACTOR);
        }
    }

    fn set_rtt(&mut self, now: u64, rtt: f64) {
        if rtt > 0.0 {
            self.span = self.span.turned(now, 2.0 * rtt.clamp(SHORTEST, LONGEST));
            self.promises.set_span(self.span.ns);
        }
    }
}

/// A price in the other unit; the least price is the same in all units.
pub(crate) fn turn(price: f64, factor: f64) -> f64 {
    if price <= LEAST { price } else { Price::per_byte(price * factor).get() }
}

/// The least price after rounding to a 32-bit float.
const LEAST: f64 = 1.000_001e-18;
const INITIAL_RTT: f64 = 0.1;
const SHORTEST: f64 = 1e-6;
const LONGEST: f64 = 10.0;
const MOST_CHANGE: f64 = 1e60;
const MOST_FACTOR: f64 = 1e30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(stake: f32, offer: f32) -> Toll {
        Toll { due: 0.0, rtt: 0.1, offer, stake, echo: 0.0 }
    }

    #[test]
    fn a_fixed_rate_turns_what_goes_in_and_back_what_comes_out() {
        let mut border = Exchange::new(ExchangeRate::Fixed(4.0));
        let mut toll = Toll { due: 1e-9, ..packet(2e-8, 0.5) };
        border.on_data(Time::ZERO, 1500, &mut toll);
        assert!((toll.due - 4e-9).abs() < 1e-20 && (toll.stake - 8e-8).abs() < 1e-14 && toll.offer == 0.5);
        assert!((border.on_ack(8e-8) - 2e-8).abs() < 1e-14);
        // The least price is the same in all currencies.
        assert_eq!(border.on_ack(1e-18), 1e-18);
    }

    #[test]
    fn a_customer_s_money_is_worth_its_weight_however_much_of_it_there_is() {
        for inflation in [1.0, 1000.0] {
            let mut border = Exchange::new(ExchangeRate::Weight(2.0));
            // Spends `inflation` a second: a packet each millisecond; what it is worth beyond the
            // border is two.
            let stake = (inflation / 1500.0 * 1e-3) as f32;
            let mut worth = 0.0;
            for i in 1..5000 {
                let mut toll = packet(stake, 0.0);
                border.on_data(Time::from_millis(i), 1500, &mut toll);
                worth += if i > 4000 { f64::from(toll.stake) * 1500.0 } else { 0.0 };
            }
            assert!((worth - 2.0).abs() < 0.02, "{inflation}: {worth}");
        }
    }

    #[test]
    fn what_is_announced_counts_before_it_is_spent() {
        let mut border = Exchange::new(ExchangeRate::Weight(1.0));
        for i in 1..1000 {
            border.on_data(Time::from_millis(i), 1500, &mut packet(6e-7, 0.0));
        }
        let before = border.factor();
        // Twice as much from the next round trip on.
        for i in 1000..1100 {
            border.on_data(Time::from_millis(i), 1500, &mut packet(6e-7, 1.0));
        }
        assert!((before / border.factor() - 2.0).abs() < 0.05, "{before} {}", border.factor());
        // As it is spent, a round trip later, it counts neither twice nor half.
        for i in 1100..1600 {
            let spent = 6e-7 * (1.0 + (i - 1100).min(100) as f32 / 100.0);
            border.on_data(Time::from_millis(i), 1500, &mut packet(spent, 0.0));
            assert!((before / border.factor() - 2.0).abs() < 0.05, "{i}: {before} {}", border.factor());
        }
    }

    proptest! {
        #[test]
        fn prices_stay_prices(
            packets in prop::collection::vec(
                (0u64..100_000_000, any::<f32>(), any::<f32>(), any::<f32>(), 0.0f64..1e30, any::<f32>()), 1..200),
        ) {
            let mut border = Exchange::new(ExchangeRate::Weight(1.0));
            let mut now = 0;
            for (gap, rtt, offer, stake, due, echo) in packets {
                now += gap;
                let mut toll = Toll { due, rtt, offer, stake, echo: 0.0 };
                border.on_data(Time(now), 1500, &mut toll);
                prop_assert!(toll.due.is_finite() && toll.due >= 0.0);
                prop_assert!(border.factor().is_finite() && border.factor() > 0.0);
                let told = border.on_ack(echo);
                prop_assert!(echo.is_nan() || told.is_finite() || echo.is_infinite());
            }
        }
    }

    #[test]
    fn what_is_asked_before_the_border_buys_nothing_beyond_it() {
        let mut border = Exchange::new(ExchangeRate::Weight(1.0));
        // Three quarters of what is paid go to links before it: a packet each millisecond, 0.15 $/s
        // beyond.
        for i in 1..1000 {
            border.on_data(Time::from_millis(i), 1500, &mut Toll { due: 3e-7, ..packet(4e-7, 0.0) });
        }
        assert!((border.factor() * 0.15 - 1.0).abs() < 0.02, "{}", border.factor());
    }
}
