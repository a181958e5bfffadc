//! Strategies that divide an owner's budget over its flows (the FCP report, § 4.2 "End-point
//! evolution").
//!
//! The network holds a host to its whole budget (equation 1); the host decides how to divide it. A
//! [`Strategy`] is that decision: it reads the state of the flows and sets the budget of each. The
//! strategies of the report are in this module. A new one is a type with two methods:
//!
//! ```
//! use tollway_law::budget::{Share, Strategy};
//! use tollway_law::{Budget, Time};
//!
//! /// Everything to the flow whose path is cheapest.
//! #[derive(Debug)]
//! struct Cheapest;
//!
//! impl Strategy for Cheapest {
//!     fn divide(&mut self, _now: Time, budget: Budget, flows: &mut [Share]) {
//!         let price = |flow: &Share| flow.price.map_or(f64::INFINITY, |price| price.get());
//!         let best = flows.iter().map(price).fold(f64::INFINITY, f64::min);
//!         let winner = flows.iter().position(|flow| price(flow) <= best);
//!         for (i, flow) in flows.iter_mut().enumerate() {
//!             flow.budget = if Some(i) == winner { budget } else { Budget::ZERO };
//!         }
//!     }
//!
//!     fn interval(&self, flows: &[Share]) -> Time {
//!         // Look again every two round trips of the slowest flow.
//!         flows.iter().map(|flow| flow.rtt * 2).max().unwrap_or(Time::NEVER)
//!     }
//! }
//!
//! let mut flows = [Share::new(1), Share::new(2)];
//! flows[1].price = Some(tollway_law::Price::per_byte(1e-8));
//! Cheapest.divide(Time::ZERO, Budget::per_sec(2.0), &mut flows);
//! assert_eq!(flows[1].budget, Budget::per_sec(2.0));
//! ```

mod ledger;
mod simple;
mod stable;
mod throughput;

pub use ledger::{CREDIT, Fall, Ledger};
pub use simple::{Background, EqualBudget, Fixed};
pub use stable::Stable;
pub use throughput::{EqualThroughput, MaxThroughput};

use std::fmt;

use crate::{Budget, Price, Rate, Time};

/// One of the flows that share a budget, as a strategy sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The owner's identifier of the flow; strategies only compare it.
    pub flow: u64,
    /// Its budget: the last value on entry to [`Strategy::divide`], the new value on return.
    pub budget: Budget,
    /// The price of its path; `None` until it is known.
    pub price: Option<Price>,
    /// Its mean rate since the last call.
    pub rate: Rate,
    /// Its smoothed round-trip time, zero while it is unknown.
    pub rtt: Time,
    /// The flow's weight among those of its host, from the scenario.
    pub weight: f64,
    /// The rate it is to keep, for [`Stable`]; zero for none.
    pub wants: Rate,
}

impl Share {
    /// A flow of weight 1 without measurements.
    pub fn new(flow: u64) -> Share {
        Share {
            flow,
            budget: Budget::ZERO,
            price: None,
            rate: Rate::ZERO,
            rtt: Time::ZERO,
            weight: 1.0,
            wants: Rate::ZERO,
        }
    }
}

/// A rule that divides an owner's budget over its flows.
pub trait Strategy: fmt::Debug {
    /// Sets the budget of each flow; their sum must not exceed `budget`.
    ///
    /// Called when a flow starts or ends, when the budget changes, and every
    /// [`interval`](Strategy::interval).
    fn divide(&mut self, now: Time, budget: Budget, flows: &mut [Share]);

    /// Time until the next call without a change of flows or budget. [`Time::NEVER`], the default,
    /// if the strategy needs none.
    fn interval(&self, _flows: &[Share]) -> Time {
        Time::NEVER
    }
}

/// The mean of the known round-trip times; 100 ms if none is known.
fn mean_rtt(flows: &[Share]) -> Time {
    let known = flows.iter().filter(|flow| flow.rtt > Time::ZERO);
    let (sum, n) = known.fold((0, 0), |(sum, n), flow| (sum + flow.rtt.0, n + 1));
    u64::checked_div(sum, n).map_or(Time::from_millis(100), Time)
}

/// Divides `budget` in proportion to `part` of each flow.
fn divide_by(budget: Budget, flows: &mut [Share], part: impl Fn(&Share) -> f64) {
    let positive = |flow: &Share| part(flow).clamp(0.0, f64::MAX);
    let sum: f64 = flows.iter().map(positive).sum();
    let n = flows.len() as f64;
    for flow in flows {
        let part = if sum > 0.0 { positive(flow) / sum } else { 1.0 / n };
        flow.budget = Budget::per_sec(budget.get() * part);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, proptest};

    use super::*;

    proptest! {
        /// Equation 1, of what is assigned: no strategy gives away more than there is.
        #[test]
        fn no_strategy_spends_more_than_there_is(
            budget in 0.0f64..1e6,
            flows in prop::collection::vec(
                (any::<f64>(), 0.0f64..1e9, 0u64..1_000_000_000, 0.0f64..10.0, 0.0f64..1e7),
                0..12,
            ),
            rounds in 1usize..20,
        ) {
            let strategies: Vec<Box<dyn super::Strategy>> = vec![
                Box::new(EqualBudget),
                Box::new(Fixed),
                Box::new(Background::default()),
                Box::new(EqualThroughput::default()),
                Box::new(MaxThroughput::default()),
                Box::new(Stable),
            ];
            let budget = Budget::per_sec(budget);
            for mut strategy in strategies {
                let mut shares: Vec<Share> = flows
                    .iter()
                    .enumerate()
                    .map(|(i, &(price, rate, rtt, weight, wants))| Share {
                        price: Some(Price::per_byte(price)),
                        rate: Rate::from_bytes_per_sec(rate),
                        rtt: Time(rtt),
                        weight,
                        wants: Rate::from_bytes_per_sec(wants),
                        ..Share::new(i as u64)
                    })
                    .collect();
                for k in 0..rounds {
                    if k == rounds / 2 {
                        shares.truncate(flows.len() / 2 + 1);
                    }
                    strategy.divide(Time::from_millis(k as u64 * 200), budget, &mut shares);
                    let sum: f64 = shares.iter().map(|share| share.budget.get()).sum();
                    prop_assert!(sum <= budget.get() * (1.0 + 1e-9), "{strategy:?}: {sum} of {budget:?}");
                    prop_assert!(strategy.interval(&shares) > Time::ZERO);
                }
            }
        }
    }
}
