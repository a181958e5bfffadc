//! Which allocation a law aims at.

use crate::{Network, NetworkError, max_min, proportional_rates, xcp_equilibrium};

/// An allocation that a control law steers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Where XCP's feedback comes to nothing: [`xcp_equilibrium`].
    XcpEquilibrium,
    /// Weighted max–min fairness: [`max_min()`].
    MaxMin,
    /// Weighted proportional fairness: [`proportional_rates`]. FCP's weights are what flows may spend: [`crate::spend`].
    Proportional,
}

/// Sender laws whose allocation runs are held against, by their words in scenario files. This is the one place that knows: a
/// new law is a new row. Laws that go by losses or marks alone have none, their shares depending on round trips and queues.
pub const AIMS: &[(&str, Aim)] =
    &[("xcp", Aim::XcpEquilibrium), ("fcp", Aim::Proportional), ("rcp", Aim::MaxMin)];

impl Aim {
    /// What all flows together aim at, given their laws; `None` if any law has no aim, if two have different ones, or for
    /// no flow at all.
    pub fn of<'a>(laws: impl IntoIterator<Item = &'a str>) -> Option<Aim> {
        let mut common = None;
        for law in laws {
            let &(_, aim) = AIMS.iter().find(|(name, _)| *name == law)?;
            if *common.get_or_insert(aim) != aim {
                return None;
            }
        }
        common
    }

    /// What it is called: `xcp-equilibrium`, `max-min`, `proportional`.
    pub const fn name(self) -> &'static str {
        match self {
            Aim::XcpEquilibrium => "xcp-equilibrium",
            Aim::MaxMin => "max-min",
            Aim::Proportional => "proportional",
        }
    }

    /// The same for a sentence.
    pub const fn title(self) -> &'static str {
        match self {
            Aim::XcpEquilibrium => "XCP's equilibrium",
            Aim::MaxMin => "max–min fairness",
            Aim::Proportional => "proportional fairness",
        }
    }

    /// What it gives each flow of `network`; XCP's routers have its own constants.
    ///
    /// # Errors
    /// As [`Network::check`].
    pub fn allocation(self, network: &Network) -> Result<Allocation, NetworkError> {
        match self {
            Aim::MaxMin => max_min(network),
            Aim::Proportional => proportional_rates(network).map(|(rates, _)| rates),
            Aim::XcpEquilibrium => xcp_equilibrium(network, &[]).map(|x| x.rates),
        }
        .map(|rates| Allocation { rates })
    }
}

/// The rates that an aim gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// One a flow.
    pub rates: Vec<f64>,
}

impl Allocation {
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
        assert_eq!(Aim::of(["xcp", "xcp"]), Some(Aim::XcpEquilibrium));
        assert_eq!(Aim::of(["fcp"]), Some(Aim::Proportional));
        assert_eq!(Aim::of(["rcp", "rcp"]), Some(Aim::MaxMin));
        assert_eq!(Aim::of(["xcp", "cubic"]), None);
        assert_eq!(Aim::of(["fcp", "rcp"]), None);
        assert_eq!(Aim::of([]), None);
    }

    #[test]
    fn deviations_are_parts_of_what_should_be() {
        let mut n = Network::new();
        let (big, after) = (n.link(100.0), n.link(10.0));
        n.flow([big]);
        for _ in 0..9 {
            n.flow([big, after]);
        }
        let allocation = Aim::XcpEquilibrium.allocation(&n).unwrap();
        assert!((allocation.deviation(0, 71.87 * 1.1) - 0.1).abs() < 1e-3);
        assert!((allocation.deviation(0, 71.87 * 0.9) + 0.1).abs() < 1e-3);
    }
}
