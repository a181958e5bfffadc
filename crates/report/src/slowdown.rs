//! Slowdowns: completion times of a workload's flows relative to theory.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde_json::{Value, json};
use tollway_law::Time;
use tollway_scenario::plan::{Cbr, Flow, Path, Plan, Transport};
use tollway_scenario::run::arrivals;
use tollway_scenario::tables::RunResult;
use tollway_theory::{Job, completions};

use crate::data;
use crate::ideal::capacities;
use crate::sizes::{SizeClass, quantile};

/// The slowdowns of a workload's finished flows.
///
/// In the ideal, all present flows have their max–min fair rates at every instant
/// ([`completions`]). A round trip is added for the opening, if any, and one for the last
/// acknowledgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Slowdown {
    /// The workload.
    pub workload: String,
    /// Number of flows that finished.
    pub flows: usize,
    /// The mean slowdown: completion time over ideal completion time.
    pub mean: f64,
    /// The median slowdown.
    pub median: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The slowdowns by size class, smallest first.
    pub by_size: Vec<OfSize>,
    /// The median of flows of a megabyte or more; NaN if there are none.
    pub median_large: f64,
}

/// Slowdowns of a workload's flows of one size class.
#[derive(Clone, Debug, PartialEq)]
pub struct OfSize {
    class: SizeClass,
    /// Number of flows that finished.
    pub flows: usize,
    /// The median slowdown.
    pub median: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// All slowdowns, sorted.
    pub sorted: Vec<f64>,
}

impl OfSize {
    /// From sorted slowdowns.
    fn new(class: SizeClass, sorted: &[f64]) -> OfSize {
        let [median, p95, p99] = [0.5, 0.95, 0.99].map(|p| quantile(sorted, p));
        OfSize { class, flows: sorted.len(), median, p95, p99, sorted: sorted.to_vec() }
    }

    pub(crate) fn class(&self) -> SizeClass {
        self.class
    }
}

/// The slowdowns of each workload. Empty if the file changes links or cross-traffic during the run,
/// stops flows, uses several routes for a flow, or has too many flows for the theory.
pub fn slowdowns(plan: &Plan, result: &RunResult) -> Vec<Slowdown> {
    let always = |cbr: &Cbr| cbr.start == Time::ZERO && cbr.stop >= plan.duration;
    let stands_still = plan.events.is_empty()
        && plan.media.is_empty()
        && plan.trees.is_empty()
        && plan.sessions.is_empty()
        && plan.cbrs.iter().all(always);
    let one_route = |path: &Path| path.spread.is_none();
    let whole = |flow: &Flow| flow.stop >= plan.duration && flow.after.is_none() && one_route(&flow.path);
    let stands_still = stands_still && plan.workloads.iter().flat_map(|one| &one.paths).all(one_route);
    if plan.workloads.is_empty() || !stands_still || !plan.flows.iter().all(whole) {
        return Vec::new();
    }
    // Counted before anything is kept: a run of a million flows has no theory.
    let drawn = (0..plan.workloads.len()).flat_map(|i| arrivals(plan, i));
    if plan.flows.len() + drawn.take(MOST + 1).count() > MOST {
        return Vec::new();
    }
    let mut jobs = Vec::new();
    for flow in &plan.flows {
        let transport = &plan.transports[flow.transport.0 as usize];
        let amount = flow.data.bytes().map_or(f64::INFINITY, |bytes| bits(transport, bytes));
        let links = flow.path.route.iter().map(|link| link.0 as usize).collect();
        jobs.push(Job { at: flow.start.as_secs_f64(), amount, links });
    }
    // The workload's index, the flow's name, the time to open, the round trip, and the size.
    let mut flows: Vec<(usize, String, f64, f64, u64)> = Vec::new();
    for (i, workload) in plan.workloads.iter().enumerate() {
        let transport = &plan.transports[workload.transport.0 as usize];
        for drawn in arrivals(plan, i) {
            let path = &workload.paths[drawn.path];
            let opens = if transport.handshake { path.base_rtt } else { Time::ZERO };
            let (rtt, opens) = (path.base_rtt.as_secs_f64(), opens.as_secs_f64());
            let name = format!("{}.{}", workload.name, drawn.number + 1);
            flows.push((i, name, opens, rtt, drawn.size));
            jobs.push(Job {
                at: drawn.at.as_secs_f64() + opens,
                amount: bits(transport, drawn.size),
                links: path.route.iter().map(|link| link.0 as usize).collect(),
            });
        }
    }
    let Ok(done) = completions(&capacities(plan), &jobs) else { return Vec::new() };
    let took: HashMap<String, f64> = data::summary(&result.summary, "flow")
        .into_iter()
        .map(|flow| (flow.name.clone(), flow.get("fct_s")))
        .collect();
    let mut of: Vec<Vec<(f64, u64)>> = vec![Vec::new(); plan.workloads.len()];
    let drawn = jobs.iter().zip(&done).skip(plan.flows.len());
    for ((workload, name, opens, rtt, size), (job, done)) in flows.iter().zip(drawn) {
        let ideal = done - job.at + opens + rtt;
        if let Some(took) = took.get(name).filter(|took| took.is_finite() && ideal.is_finite()) {
            of[*workload].push((took / ideal, *size));
        }
    }
    let slowdown = |(workload, mut all): (&tollway_scenario::plan::Workload, Vec<(f64, u64)>)| {
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let times: Vec<f64> = all.iter().map(|flow| flow.0).collect();
        let mut sized: BTreeMap<SizeClass, Vec<f64>> = BTreeMap::new();
        all.iter().for_each(|flow| sized.entry(SizeClass::of(flow.1)).or_default().push(flow.0));
        let large: Vec<f64> = all.iter().filter(|flow| flow.1 >= LARGE).map(|flow| flow.0).collect();
        Slowdown {
            workload: workload.name.clone(),
            flows: times.len(),
            mean: times.iter().sum::<f64>() / times.len() as f64,
            median: quantile(&times, 0.5),
            p95: quantile(&times, 0.95),
            p99: quantile(&times, 0.99),
            by_size: sized.iter().map(|(class, sorted)| OfSize::new(*class, sorted)).collect(),
            median_large: quantile(&large, 0.5),
        }
    };
    let pairs = plan.workloads.iter().zip(of);
    pairs.filter(|(_, all)| !all.is_empty()).map(slowdown).collect()
}

/// The bits of a flow with this payload on a link: whole packets, and a last one.
fn bits(transport: &Transport, payload: u64) -> f64 {
    let header = u64::from(transport.header);
    let each = u64::from(transport.packet_size).saturating_sub(header).max(1);
    8.0 * (payload + payload.div_ceil(each) * header) as f64
}

impl Slowdown {
    /// The slowdowns as a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "workload": self.workload,
            "flows": self.flows,
            "mean": self.mean,
            "median": self.median,
            "p95": self.p95,
            "p99": self.p99,
            "by_size": self.by_size.iter().map(|of| json!({
                "size_below_bytes": of.class.end(), "flows": of.flows, "median": of.median, "p95": of.p95, "p99": of.p99,
            })).collect::<Vec<_>>(),
            "median_large": self.median_large.is_finite().then_some(self.median_large),
        })
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} flows took {:.2} times as long as with max–min fair rates at every moment (median; mean {:.2}, 95 % {:.2}, 99 % {:.2})",
            self.workload, self.flows, self.median, self.mean, self.p95, self.p99
        )?;
        if self.median_large.is_finite() {
            write!(f, ", those of a megabyte and more {:.2}", self.median_large)?;
        }
        // A single class repeats the whole.
        for of in self.by_size.iter().filter(|_| self.by_size.len() > 1) {
            let OfSize { class, flows, median, p95, p99, .. } = of;
            write!(
                f,
                "\n  {flows} flows of {class}: {median:.2} (median), {p95:.2} (95 %), {p99:.2} (99 %)"
            )?;
        }
        Ok(())
    }
}

/// Upper bound on jobs, since each start and end needs an allocation.
const MOST: usize = 50_000;
/// Least size of a large flow, in bytes.
const LARGE: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use tollway_scenario::file::Scenario;
    use tollway_scenario::run::{Options, run};
    use tollway_scenario::tables::Outputs;

    use super::*;

    #[test]
    fn xcp_flows_take_a_little_longer_than_ideally() {
        let text = r#"
            name = "w"
            duration = "20 s"
            node = { a = {}, b = {} }
            link.l = { from = "a", to = "b", rate = "20 Mbps", delay = "5 ms", law = "xcp" }
            workload.w = { from = "a", to = "b", law = "xcp", arrivals = { poisson = 5 }, sizes = "200 kB" }
        "#;
        let scenario = Scenario::parse::<&str>("w", text, &[]).unwrap();
        let plan = &scenario.variants()[0].plan;
        let result = run(plan, &Options { outputs: Outputs::memory(), ..Options::default() }).unwrap().result;
        let found = slowdowns(plan, &result);
        let [of] = &found[..] else { panic!("{found:?}") };
        assert!(of.flows > 60 && of.flows <= 130, "{of}");
        // Slow start keeps flows from the ideal. No flow is faster than the fluid model by more
        // than its rounding.
        assert!(of.median > 1.0 && of.median < 3.0, "{of}");
        assert!(of.median_large.is_nan());
        assert_eq!(of.to_json()["workload"], "w");
        // All flows have 200 kB.
        assert_eq!((of.by_size.len(), of.by_size[0].flows, of.by_size[0].p95), (1, of.flows, of.p95));
        assert_eq!(of.to_json()["by_size"][0]["size_below_bytes"], 1_000_000);
    }

    /// A flow alone on the link, and one beside an endless flow.
    #[test]
    fn theory_counts_headers_the_opening_and_the_last_acknowledgement() {
        let slowdown = |more: &str| {
            let text = format!(
                r#"
                name = "w"
                duration = "30 s"
                node = {{ a = {{}}, b = {{}} }}
                link.l = {{ from = "a", to = "b", rate = "12 Mbps", delay = "50 ms" }}
                workload.w = {{ from = "a", to = "b", law = "newreno", arrivals = {{ interval = "1 s" }}, sizes = "1 MB", max-flows = 1, packet-size = "1000 B", header = "40 B"{more}
                "#
            );
            let scenario = Scenario::parse::<&str>("w", &text, &[]).unwrap();
            let plan = &scenario.variants()[0].plan;
            let result =
                run(plan, &Options { outputs: Outputs::memory(), ..Options::default() }).unwrap().result;
            let took =
                data::summary(&result.summary, "flow").into_iter().find(|flow| flow.name == "w.1").unwrap();
            let found = slowdowns(plan, &result);
            assert_eq!(
                (found[0].median_large, found[0].mean, found[0].p95),
                (found[0].median, found[0].median, found[0].median)
            );
            took.get("fct_s") / found[0].median
        };
        let near =
            |found: f64, seconds: f64| assert!((found - seconds).abs() < 1e-6, "{found}, not {seconds}");
        // A million bytes in 1042 packets with headers, and a round trip for the last
        // acknowledgement.
        let alone = 8.0 * (1e6 + 1042.0 * 40.0) / 12e6;
        near(slowdown(", handshake = false }"), alone + 0.1);
        near(slowdown(", handshake = true }"), alone + 0.2);
        near(
            slowdown(", handshake = false }\nflow.f = { from = \"a\", to = \"b\", law = \"newreno\" }"),
            2.0 * alone + 0.1,
        );
    }

    #[test]
    fn what_changes_on_the_way_has_no_such_ideal() {
        for change in [
            "change = [{ at = \"1 s\", link = \"l\", rate = \"10 Mbps\" }]",
            "cbr.c = { from = \"a\", to = \"b\", rate = \"19 Mbps\", stop = \"1 s\" }",
            "cbr.c = { from = \"a\", to = \"b\", rate = \"19 Mbps\", start = \"1 s\" }",
        ] {
            let text = format!(
                r#"
                name = "w"
                duration = "2 s"
                node = {{ a = {{}}, b = {{}} }}
                link.l = {{ from = "a", to = "b", rate = "20 Mbps", delay = "5 ms" }}
                workload.w = {{ from = "a", to = "b", law = "cubic", arrivals = {{ poisson = 5 }}, sizes = "20 kB" }}
                {change}
                "#
            );
            let scenario = Scenario::parse::<&str>("w", &text, &[]).unwrap();
            let plan = &scenario.variants()[0].plan;
            let options = Options { outputs: Outputs::memory(), ..Options::default() };
            assert_eq!(slowdowns(plan, &run(plan, &options).unwrap().result), [], "{change}");
        }
    }
}
