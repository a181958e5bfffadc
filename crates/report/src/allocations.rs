//! Allocations of a scenario's capacity under each kind of fairness, computed without a run.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Value, json};
use tollway_scenario::file::Variant;
use tollway_scenario::plan::overlay::Overlay;
use tollway_theory::{
    Aim, Network, NetworkError, Solver, max_min, max_throughput, proportional_rates, session_fair,
    xcp_equilibrium,
};

use crate::deviation::{NoDeviation, aim, links_of, seconds, xcp_gains};
use crate::ideal::overlay::Stretch;
use crate::ideal::steady;
use crate::text::{Align, TextTable};

/// The allocations of one variant, in its longest stretch without change.
#[derive(Clone, Debug)]
pub struct Allocations {
    /// The variant; empty without one.
    pub variant: String,
    /// Start of the stretch, in seconds.
    pub from_s: f64,
    /// End of the stretch, in seconds.
    pub until_s: f64,
    /// The common aim of the flows' laws; `None` without one.
    pub aim: Option<Aim>,
    /// The solver of the proportionally fair rates: `clarabel` or `prices`.
    pub solver: &'static str,
    /// One row per flow.
    pub flows: Vec<FlowShares>,
}

/// A flow's rates under each kind of fairness, in Mb/s with headers.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowShares {
    /// The flow.
    pub flow: String,
    /// The flow's section of the file, which is its session.
    pub session: String,
    /// Weighted max–min fairness.
    pub max_min: f64,
    /// Weighted proportional fairness.
    pub proportional: f64,
    /// The rate in the division with the largest sum; only for an overlay's senders.
    pub max_throughput: Option<f64>,
    /// Equal rates for all sections, divided within each by weight.
    pub session_fair: f64,
    /// XCP's equilibrium over the XCP links, or over all links if there are none.
    pub xcp: Option<f64>,
    /// The rate under the aim of the flow's laws.
    pub aimed: Option<f64>,
    /// The link that limits the flow under max–min fairness; `None` if its buffers do.
    pub bottleneck: Option<String>,
}

impl Allocations {
    /// Computes all allocations of `variant`.
    ///
    /// # Errors
    /// The file defines no allocation.
    pub fn of(variant: &Variant) -> Result<Allocations, NoDeviation> {
        let plan = &variant.plan;
        if let Some(overlay) = &plan.overlay {
            return of_senders(variant, overlay);
        }
        let steady = steady(plan)?;
        let network = &steady.network;
        let fair = max_min(network).map_err(undefined)?;
        let mut solver = Solver::Prices;
        let (_, proportional) = steady
            .allocate(|network| {
                let (rates, by) = proportional_rates(network)?;
                solver = by;
                Ok(rates)
            })
            .map_err(undefined)?;
        let mut sessions: HashMap<&str, usize> = HashMap::new();
        let session: Vec<usize> = steady
            .directions
            .iter()
            .map(|direction| {
                let next = sessions.len();
                *sessions.entry(&plan.flows[direction.flow].section).or_insert(next)
            })
            .collect();
        let hierarchical = session_fair(network, &session).map_err(undefined)?.rates;
        let of_xcp = links_of(plan, network, Aim::XcpEquilibrium);
        let any_xcp = of_xcp.flows.iter().any(|flow| !flow.links.is_empty());
        let xcp = xcp_equilibrium(if any_xcp { &of_xcp } else { network }, &xcp_gains(plan, &steady))
            .ok()
            .map(|x| x.rates);
        let (aim, aimed, allocation) = aim(plan, &steady)?;
        let bottlenecks = bottlenecks(network, &fair);
        let mbps = |bps: f64| bps * 1e-6;
        let flows = steady.directions.iter().enumerate().map(|(f, direction)| FlowShares {
            flow: direction.name.clone(),
            session: plan.flows[direction.flow].section.to_string(),
            max_min: mbps(fair[f]),
            proportional: mbps(proportional[f]),
            max_throughput: None,
            session_fair: mbps(hierarchical[f]),
            xcp: xcp.as_ref().map(|rates| mbps(rates[f])),
            aimed: aimed.then(|| mbps(allocation.rates[f])),
            bottleneck: bottlenecks[f].map(|l| plan.links[l].name.to_string()),
        });
        Ok(Allocations {
            variant: variant.name.clone(),
            from_s: steady.from.nearest_secs(),
            until_s: steady.until.nearest_secs(),
            aim: aimed.then_some(aim),
            solver: solver.name(),
            flows: flows.collect(),
        })
    }

    /// The allocations as one JSON object.
    pub fn to_json(&self) -> Value {
        let flow = |f: &FlowShares| {
            json!({
                "flow": f.flow,
                "session": f.session,
                "max_min_mbps": f.max_min,
                "proportional_mbps": f.proportional,
                "max_throughput_mbps": f.max_throughput,
                "session_fair_mbps": f.session_fair,
                "xcp_mbps": f.xcp,
                "aimed_mbps": f.aimed,
                "bottleneck": f.bottleneck,
            })
        };
        json!({
            "variant": self.variant,
            "window": [self.from_s, self.until_s],
            "aim": self.aim.map(Aim::name),
            "solver": self.solver,
            "flows": self.flows.iter().map(flow).collect::<Vec<_>>(),
        })
    }

    /// The allocations as a table of at most `width` columns. Equal rows of flows in one section
    /// are one row.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = String::new();
        if !self.variant.is_empty() {
            let _ = writeln!(text, "{}", self.variant);
        }
        let mut columns = vec![
            ("flow", Align::Left),
            ("max–min", Align::Right),
            ("proportional", Align::Right),
            ("by session", Align::Right),
            ("XCP", Align::Right),
        ];
        let by_budget = self.aim == Some(Aim::Proportional);
        if by_budget {
            columns.push(("by budget", Align::Right));
        }
        let sums = self.flows.iter().any(|flow| flow.max_throughput.is_some());
        if sums {
            columns.push(("largest sum", Align::Right));
        }
        columns.push(("held at", Align::Left));
        let mut table = TextTable::new(&columns);
        let rate = |v: f64| format!("{v:.3}");
        let mut rows: Vec<(&FlowShares, Vec<String>, usize)> = Vec::new();
        for f in &self.flows {
            let mut cells = vec![rate(f.max_min), rate(f.proportional), rate(f.session_fair)];
            cells.push(f.xcp.map_or("–".into(), rate));
            if by_budget {
                cells.push(f.aimed.map_or("–".into(), rate));
            }
            cells.extend(f.max_throughput.map(rate));
            cells.push(f.bottleneck.clone().unwrap_or_else(|| "its buffers".into()));
            match rows.last_mut().filter(|(first, before, _)| first.session == f.session && *before == cells)
            {
                Some((.., count)) => *count += 1,
                None => rows.push((f, cells, 1)),
            }
        }
        for (first, cells, count) in rows {
            let name = match count {
                1 => first.flow.clone(),
                n => format!("{} and {} more", first.flow, n - 1),
            };
            table.row([name].into_iter().chain(cells));
        }
        text.push_str(&table.print(width));
        let _ = writeln!(
            text,
            "Mb/s, headers included, from {} to {} s; by session: equal parts for each `[{}.…]` section",
            seconds(self.from_s),
            seconds(self.until_s),
            if sums { "overlay.sender" } else { "flow" },
        );
        let _ = match self.aim {
            Some(aim) => writeln!(text, "its laws aim at {}", aim.title()),
            None if sums => {
                writeln!(text, "its prices aim at the largest sum, of which several divisions may exist")
            }
            None => writeln!(text, "its laws aim at none of these"),
        };
        text
    }
}

/// All allocations of the senders of an overlay.
fn of_senders(variant: &Variant, overlay: &Overlay) -> Result<Allocations, NoDeviation> {
    let plan = &variant.plan;
    let Stretch { from, until, senders, network } = Stretch::of(plan, overlay)?;
    let most = max_throughput(&network).map_err(|error| NoDeviation::Network(error.to_string()))?;
    let (proportional, solver) = proportional_rates(&network).map_err(undefined)?;
    let fair = max_min(&network).map_err(undefined)?;
    let mut sessions: HashMap<&str, usize> = HashMap::new();
    let session = senders.iter().map(|&s| {
        let next = sessions.len();
        *sessions.entry(&overlay.senders[s].section).or_insert(next)
    });
    let session: Vec<usize> = session.collect();
    let by_session = session_fair(&network, &session).map_err(undefined)?.rates;
    let held = bottlenecks(&network, &fair);
    let flows = senders.iter().enumerate().map(|(f, &s)| FlowShares {
        flow: overlay.senders[s].name.clone(),
        session: overlay.senders[s].section.to_string(),
        max_min: fair[f] * 1e-6,
        proportional: proportional[f] * 1e-6,
        max_throughput: Some(most[f] * 1e-6),
        session_fair: by_session[f] * 1e-6,
        xcp: None,
        aimed: None,
        bottleneck: held[f].map(|link| plan.links[link].name.to_string()),
    });
    Ok(Allocations {
        variant: variant.name.clone(),
        from_s: from.nearest_secs(),
        until_s: until.nearest_secs(),
        aim: None,
        solver: solver.name(),
        flows: flows.collect(),
    })
}

fn undefined(error: NetworkError) -> NoDeviation {
    NoDeviation::Network(error.to_string())
}

/// For each flow, a full link where the flow's max–min rate divided by its weight is the largest.
fn bottlenecks(network: &Network, rates: &[f64]) -> Vec<Option<usize>> {
    let loads = network.loads(rates);
    let mut top = vec![0.0_f64; loads.len()];
    for (flow, rate) in network.flows.iter().zip(rates) {
        flow.links.iter().for_each(|&l| top[l] = top[l].max(rate / flow.weight));
    }
    let held = |(flow, rate): (&tollway_theory::Flow, &f64)| {
        let full = |l: usize| loads[l] >= network.capacities[l] * (1.0 - 1e-9);
        flow.links.iter().copied().find(|&l| full(l) && rate / flow.weight >= top[l] * (1.0 - 1e-9))
    };
    network.flows.iter().zip(rates).map(held).collect()
}

#[cfg(test)]
mod tests {
    use tollway_scenario::file::Scenario;

    use super::*;

    fn allocations(law: &str, more: &str) -> Allocations {
        let of_link =
            if ["xcp", "fcp"].contains(&law) { format!(", law = \"{law}\"") } else { String::new() };
        let text = format!(
            "name = \"t\"\nduration = \"10 s\"\nnode = {{ a = {{}}, b = {{}}, c = {{}} }}\n\
             link.one = {{ from = \"a\", to = \"b\", rate = \"30 Mbps\", delay = \"5 ms\"{of_link} }}\n\
             link.two = {{ from = \"b\", to = \"c\", rate = \"90 Mbps\", delay = \"5 ms\"{of_link} }}\n\
             flow.long = {{ from = \"a\", to = \"c\", law = \"{law}\" }}\n\
             flow.far = {{ from = \"b\", to = \"c\", law = \"{law}\", count = 2 }}\n{more}"
        );
        let scenario = Scenario::parse::<&str>("", &text, &[]).unwrap();
        Allocations::of(&scenario.variants()[0]).unwrap()
    }

    #[test]
    fn each_kind_of_fairness_has_its_own_rates() {
        let found =
            allocations("xcp", "flow.near = { from = \"a\", to = \"b\", law = \"xcp\", weight = 2 }\n");
        let of = |name: &str| found.flows.iter().find(|f| f.flow == name).unwrap();
        let near = |found: f64, mbps: f64| assert!((found - mbps).abs() < 0.05, "{found}, not {mbps}");
        // By weight: `long` gets a third of the first link, and the two others half of the rest of
        // the second.
        near(of("long").max_min, 10.0);
        near(of("near").max_min, 20.0);
        near(of("far.1").max_min, 40.0);
        // `long` crosses two links, and gets less of the first under proportional fairness.
        assert!(of("long").proportional < 9.5 && of("near").proportional > 20.5, "{found:?}");
        assert_eq!(of("long").bottleneck.as_deref(), Some("one"));
        assert_eq!(of("near").bottleneck.as_deref(), Some("one"));
        assert_eq!(of("far.2").bottleneck.as_deref(), Some("two"));
        assert_eq!(of("far.2").session, "far");
        assert!(found.flows.iter().all(|f| f.xcp.is_some_and(|mbps| mbps > 1.0)), "{found:?}");
    }

    #[test]
    fn a_section_of_many_flows_has_no_more_than_one_of_one() {
        // One flow, and two of another section, share a link of 90: a third each, but half by
        // session.
        let found =
            allocations("newreno", "change = [{ at = \"0 s\", link = \"one\", rate = \"90 Mbps\" }]\n");
        let of = |name: &str| found.flows.iter().find(|f| f.flow == name).unwrap();
        assert!((of("long").max_min - 30.0).abs() < 1e-6 && (of("far.1").max_min - 30.0).abs() < 1e-6);
        assert!((of("long").session_fair - 45.0).abs() < 1e-6, "{found:?}");
        assert!((of("far.1").session_fair - 22.5).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn equal_flows_of_a_section_are_one_row() {
        let text = allocations("newreno", "").to_text(120);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("far.1 and 1 more").ends_with("two"), "{text}");
        assert!(row("long").ends_with("one"), "{text}");
        assert!(!text.contains("far.2") && !text.contains("by budget"), "{text}");
        // Flows of another section get another row, even if equal.
        let text = allocations("newreno", "flow.more = { from = \"b\", to = \"c\", law = \"newreno\" }\n")
            .to_text(120);
        assert!(text.lines().any(|line| line.starts_with("more ")), "{text}");
    }

    #[test]
    fn who_is_held_by_its_buffers_has_no_bottleneck() {
        let found = allocations(
            "newreno",
            "flow.slow = { from = \"a\", to = \"b\", law = \"newreno\", receive-buffer = \"2 packets\" }\n",
        );
        let slow = found.flows.iter().find(|f| f.flow == "slow").unwrap();
        assert_eq!(slow.bottleneck, None);
        assert!(found.to_text(120).contains("its buffers"));
    }

    #[test]
    fn what_budgets_buy_is_a_column_of_its_own() {
        let found = allocations("fcp", "");
        assert_eq!(found.aim, Some(Aim::Proportional));
        let text = found.to_text(120);
        assert!(text.contains("by budget") && text.contains("its laws aim at"), "{text}");
        let aimed = found.flows.iter().map(|f| f.aimed.unwrap()).sum::<f64>();
        assert!(aimed > 80.0 && aimed <= 120.0, "{found:?}");
    }
}
