//! Which allocation a law aims at.

use tollway_law::Aim;

use crate::{Network, NetworkError, max_min, proportional_rates, xcp_equilibrium};

/// Sender laws whose allocation runs are held against, by their words in scenario files. This is the one place that knows: a
/// new law is a new row. Laws that go by losses or marks alone have none, their shares depending on round trips and queues.
pub const AIMS: &[(&str, Aim)] =
    &[("xcp", Aim::XcpEquilibrium), ("fcp", Aim::Proportional), ("rcp", Aim::MaxMin)];

/// What all flows together aim at, given their laws; `None` if any law has no aim, if two have different ones, or for
/// no flow at all.
pub fn common_aim<'a>(laws: impl IntoIterator<Item = &'a str>) -> Option<Aim> {
    let mut common = None;
    for law in laws {
        let &(_, aim) = AIMS.iter().find(|(name, _)| *name == law)?;
        if *common.get_or_insert(aim) != aim {
            return None;
        }
    }
    common
}

/// The rates that an aim gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// One a flow.
    pub rates: Vec<f64>,
}

impl Allocation {
    /// What `aim` gives each flow of `network`; XCP's routers have its own constants.
    ///
    /// # Errors
    /// As [`Network::check`].
    pub fn of(aim: Aim, network: &Network) -> Result<Allocation, NetworkError> {
        match aim {
            Aim::MaxMin => max_min(network),
            Aim::Proportional => proportional_rates(network).map(|(rates, _)| rates),
            Aim::XcpEquilibrium => xcp_equilibrium(network, &[]).map(|x| x.rates),
        }
        .map(|rates| Allocation { rates })
    }

    /// How far `rate` lies from what flow `f` should have, as a part of that: 0.1 is 10 % too much, −0.1 too little. NaN
    /// where it should have nothing.
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
        assert_eq!(common_aim(["xcp", "xcp"]), Some(Aim::XcpEquilibrium));
        assert_eq!(common_aim(["fcp"]), Some(Aim::Proportional));
        assert_eq!(common_aim(["rcp", "rcp"]), Some(Aim::MaxMin));
        assert_eq!(common_aim(["xcp", "cubic"]), None);
        assert_eq!(common_aim(["fcp", "rcp"]), None);
        assert_eq!(common_aim([]), None);
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
