//! XCP's equilibrium with more flows than a run can have.

use std::num::NonZeroUsize;

use serde::Deserialize;
use tollway_scenario::plan::Plan;
use tollway_scenario::tables::SystemTables;
use tollway_theory::{Aim, xcp_equilibrium};

use crate::deviation::{links_of, xcp_gains};
use crate::ideal::steady;

/// A number of flows for which XCP's fluid equilibrium is computed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fluid {
    /// The name in the table `fluid`.
    pub name: String,
    /// The variant whose links the flows use.
    pub variant: String,
    /// The number of flows: copies of the variant's own flows, in turn.
    pub flows: NonZeroUsize,
}

impl Fluid {
    /// Adds the number of flows, the sum of their rates, the least and the largest to the table
    /// `fluid`; nothing if `plan` defines no allocation.
    pub(crate) fn report(&self, plan: &Plan, systems: &mut SystemTables) {
        let Ok(steady) = steady(plan) else { return };
        let mut network = links_of(plan, &steady.network, Aim::XcpEquilibrium);
        network.flows = network.flows.iter().cycle().take(self.flows.get()).cloned().collect();
        let Ok(found) = xcp_equilibrium(&network, &xcp_gains(plan, &steady)) else { return };
        let mbps = |bps: f64| bps * 1e-6;
        let numbers = [
            ("flows", found.rates.len() as f64),
            ("total_mbps", mbps(found.rates.iter().sum())),
            ("least_mbps", mbps(found.rates.iter().copied().fold(f64::INFINITY, f64::min))),
            ("largest_mbps", mbps(found.rates.iter().copied().fold(0.0, f64::max))),
        ];
        for (column, number) in numbers {
            systems.set("fluid", &[("case", &self.name)], column, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use tollway_scenario::file::Scenario;

    use super::*;

    #[test]
    fn copies_share_the_links_of_the_variant() {
        let text = "name = \"t\"\nduration = \"9 s\"\nnode = { a = {}, b = {} }\nlink.l = { from = \"a\", to = \"b\", rate = \"10 Mbps\", delay = \"9 ms\", law = \"xcp\" }\n\
                    flow.f = { from = \"a\", to = \"b\", law = \"xcp\", count = 2 }\n";
        let scenario = Scenario::parse("t.toml", text, &[] as &[&str]).unwrap();
        let mut systems = SystemTables::default();
        let fluid =
            Fluid { name: "x".into(), variant: String::new(), flows: NonZeroUsize::new(1000).unwrap() };
        fluid.report(&scenario.variants()[0].plan, &mut systems);
        let number = |column: &str| {
            let path = format!("fluid.x.{column}");
            systems.numbers().find(|(name, _)| *name == path).unwrap().1
        };
        assert_eq!(number("flows"), 1000.0);
        assert!((number("total_mbps") - 10.0).abs() < 1e-3, "{}", number("total_mbps"));
        assert!((number("least_mbps") - 0.01).abs() < 1e-6 && (number("largest_mbps") - 0.01).abs() < 1e-6);
    }
}
