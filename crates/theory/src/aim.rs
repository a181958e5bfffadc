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

    /// What it gives each flow of `network`.
    ///
    /// # Errors
    /// As [`Network::check`].
    pub fn allocation(self, network: &Network) -> Result<Allocation, NetworkError> {
        let exact = |rates: Vec<f64>| Allocation { at_most: rates.clone(), at_least: rates };
        match self {
            Aim::MaxMin => max_min(network).map(exact),
            Aim::Proportional => proportional_rates(network).map(|(rates, _)| exact(rates)),
            Aim::XcpEquilibrium => xcp_range(network),
        }
    }
}

/// The rates that count as having reached an aim.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// The least for each flow.
    pub at_least: Vec<f64>,
    /// The most; the same where the aim is a point, as it nearly always is.
    pub at_most: Vec<f64>,
}

impl Allocation {
    /// How far `rate` lies outside what flow `f` should have, as a part of that: 0.1 is 10 % too much, −0.1 too little. NaN
    /// where it should have nothing.
    pub fn deviation(&self, f: usize, rate: f64) -> f64 {
        let (least, most) = (self.at_least[f], self.at_most[f]);
        if least <= 0.0 {
            f64::NAN
        } else if rate < least {
            rate / least - 1.0
        } else if rate > most {
            rate / most - 1.0
        } else {
            0.0
        }
    }
}

/// XCP's equilibrium, as a range where the fluid model does not decide it.
///
/// The model lets every link shuffle among all of its flows, as if each took what it is offered. A flow that is held by a
/// *later* link of its route does just that, since feedback is cut behind the shuffling link's back. Where it is held by
/// an *earlier* link, the shuffling link sees the feedback already cut, counts what was really given, and has more left
/// for the others: they come to rest between the model and max–min. So do flows that share a link with such ones.
fn xcp_range(network: &Network) -> Result<Allocation, NetworkError> {
    let model = xcp_equilibrium(network)?;
    let fair = max_min(&Network {
        capacities: network.capacities.clone(),
        flows: network.flows.iter().map(|f| crate::Flow { weight: 1.0, ..f.clone() }).collect(),
    })?;
    let flows = &network.flows;
    let mut on_link: Vec<Vec<usize>> = vec![Vec::new(); network.capacities.len()];
    for (f, flow) in flows.iter().enumerate() {
        flow.links.iter().for_each(|&l| on_link[l].push(f));
    }
    let held_before = |f: usize, link: usize| {
        let place = |l: usize| flows[f].links.iter().position(|&m| m == l);
        model.limiting[f].is_some_and(|held| held != link && place(held) < place(link))
    };
    // What is held on an open link is open, and what is held elsewhere than on a link that it shares opens that link.
    let mut open_link: Vec<bool> =
        (0..on_link.len()).map(|l| on_link[l].iter().any(|&f| held_before(f, l))).collect();
    let mut open = vec![false; flows.len()];
    loop {
        let mut grown = false;
        for f in 0..flows.len() {
            if !open[f] && model.limiting[f].is_some_and(|l| open_link[l]) {
                open[f] = true;
                grown = true;
                flows[f].links.iter().for_each(|&l| open_link[l] = true);
            }
        }
        if !grown {
            break;
        }
    }
    let bound = |pick: fn(f64, f64) -> f64| -> Vec<f64> {
        let each = model.rates.iter().zip(&fair).zip(&open);
        each.map(|((&model, &fair), &open)| if open { pick(model, fair) } else { model }).collect()
    };
    Ok(Allocation { at_least: bound(f64::min), at_most: bound(f64::max) })
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
    fn a_point_where_others_are_held_later_and_a_range_where_they_are_held_before() {
        let mut n = Network::new();
        let (before, big, after) = (n.link(10.0), n.link(100.0), n.link(10.0));
        n.flow([big]);
        for _ in 0..9 {
            n.flow([big, after]);
        }
        let later = Aim::XcpEquilibrium.allocation(&n).unwrap();
        assert_eq!(later.at_least, later.at_most);
        assert!((later.at_least[0] - 71.87).abs() < 0.01);
        assert!((later.deviation(0, 71.87 * 1.1) - 0.1).abs() < 1e-3);
        n.flows[1..].iter_mut().for_each(|f| f.links = vec![before, big]);
        let earlier = Aim::XcpEquilibrium.allocation(&n).unwrap();
        assert!((earlier.at_least[0] - 71.87).abs() < 0.01 && (earlier.at_most[0] - 90.0).abs() < 1e-9);
        // What ns-2 finds there.
        assert_eq!(earlier.deviation(0, 75.9), 0.0);
        assert!((earlier.deviation(0, 45.0) + 0.374).abs() < 1e-3);
    }
}
