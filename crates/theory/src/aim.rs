//! The ideal allocation that each law aims at.

use tollway_law::Aim;
use tollway_law::sender::LAWS;

use crate::{Network, NetworkError, max_min, proportional_rates, session_fair, xcp_equilibrium};

/// The sender laws with an aim, by their words in scenario files.
///
/// Laws that react to losses or marks alone have no aim: their shares depend on round trips and
/// queues.
pub fn aims() -> impl Iterator<Item = (&'static str, Aim)> {
    LAWS.iter().filter_map(|law| Some((law.word, (law.read)(&()).descriptor().aim?)))
}

/// The common aim of all flows, given the aim of each. `None` if a flow has no aim, if two flows
/// have different aims, or if there is no flow.
pub fn common_aim(aims: impl IntoIterator<Item = Option<Aim>>) -> Option<Aim> {
    let mut aims = aims.into_iter();
    let first = aims.next()??;
    aims.all(|aim| aim == Some(first)).then_some(first)
}

/// The rates that an aim gives, in the network's unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// One rate per flow.
    pub rates: Vec<f64>,
}

impl Allocation {
    /// The allocation that `aim` gives the flows of `network`. XCP's routers have the constants of
    /// the law, and each flow is its own session.
    ///
    /// # Errors
    /// As [`Network::check`].
    pub fn of(aim: Aim, network: &Network) -> Result<Allocation, NetworkError> {
        match aim {
            Aim::MaxMin => max_min(network),
            Aim::Proportional => proportional_rates(network).map(|(rates, _)| rates),
            Aim::SessionFair => {
                let alone: Vec<usize> = (0..network.flows.len()).collect();
                session_fair(network, &alone).map(|found| found.rates)
            }
            Aim::XcpEquilibrium => xcp_equilibrium(network, &[]).map(|x| x.rates),
        }
        .map(|rates| Allocation { rates })
    }

    /// Relative deviation of `rate` from the ideal rate of flow `f`: 0.1 is 10 % too much, −0.1 is
    /// 10 % too little. NaN where the ideal rate is 0.
    pub fn deviation(&self, f: usize, rate: f64) -> f64 {
        let ideal = self.rates[f];
        if ideal > 0.0 { rate / ideal - 1.0 } else { f64::NAN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_and_their_aims() {
        let common = |laws: &[&str]| {
            common_aim(laws.iter().map(|law| aims().find(|(word, _)| word == law).map(|(_, aim)| aim)))
        };
        assert_eq!(common(&["xcp", "xcp"]), Some(Aim::XcpEquilibrium));
        assert_eq!(common(&["fcp"]), Some(Aim::Proportional));
        assert_eq!(common(&["rcp", "rcp"]), Some(Aim::MaxMin));
        assert_eq!(common(&["xcp", "cubic"]), None);
        assert_eq!(common(&["fcp", "rcp"]), None);
        assert_eq!(common(&[]), None);
    }

    #[test]
    fn deviations_are_parts_of_what_should_be() {
        let mut n = Network::new();
        let (big, after) = (n.link(100.0), n.link(10.0));
        n.flow([big]);
        for _ in 0..9 {
            n.flow([big, after]);
        }
        let allocation = Allocation::of(Aim::XcpEquilibrium, &n).unwrap();
        assert!((allocation.deviation(0, 71.87 * 1.1) - 0.1).abs() < 1e-3);
        assert!((allocation.deviation(0, 71.87 * 0.9) + 0.1).abs() < 1e-3);
    }
}
