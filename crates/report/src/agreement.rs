//! Comparison of real and simulated packets: the same scenario in both engines.
//!
//! A `[[live]]` table of an experiment file names a part that also runs on real packets:
//!
//! ```toml
//! [[live]]
//! id = "xcp.validation.live"
//! says = "real packets fare as simulated ones do, at a round trip of 100 ms"
//! variants = ["xcp"]                       # all, if none is named
//! set = ["link.bottleneck.delay=50ms"]     # as with `--set`, in both engines
//! flows = ["a.*", "b"]                     # sums of flows; each flow alone, if none is named
//! rate-percent = 5                         # their mean rate
//! queue-percent = 10                       # each link's mean queueing delay,
//! queue-ms = 0.5                           # or this if it is more
//! ```
//!
//! Each table makes three claims per variant: `ID.rates`, `ID.queues` and `ID.packets`. The last
//! one holds if the kernel's counters of the sockets account for every datagram.
//!
//! With a table `[live.kernel]` the other side is the kernel's own TCP, with the claims of
//! [`kernel_agreement`](crate::kernel_agreement).

use std::borrow::Cow;
use std::path::Path;

use tollway_scenario::file::Scenario;
use tollway_scenario::tables::RunResult;

use crate::claim::{Claim, ClaimVerdict, Report, Status, check};
use crate::data::{self, FlowInfo};
use crate::experiment::Experiment;
use crate::live::{LiveClaim, RealEngine};
use crate::reproduce::ReproduceError;
use crate::runner::{Progress, Ran, Runner};

/// The scenario of a comparison, parsed from an experiment's text.
///
/// # Errors
/// A key or a variant of the comparison does not exist.
pub fn scenario(text: &str, path: &Path, comparison: &LiveClaim) -> Result<Scenario, ReproduceError> {
    let file = path.display().to_string();
    let mut scenario = Scenario::parse(&file, text, &comparison.set)?;
    for name in &comparison.variants {
        if scenario.variant(name).is_none() {
            return Err(ReproduceError::NoVariant { claim: comparison.id.clone(), name: name.clone() });
        }
    }
    scenario = scenario.only(&comparison.variants);
    if comparison.engine == RealEngine::Kernel {
        let sets: Vec<String> = [&comparison.set[..], &scenario.kernel_sets()].concat();
        let text = without_other_variants(text, &scenario, &comparison.variants);
        scenario = Scenario::parse(&file, &text, &sets)?.only(&comparison.variants);
    }
    Ok(scenario)
}

/// The text without variants beside `variants`, and without points of the grid that only others
/// have, of which the kernel may not have every key; all of it if none is named. `scenario` has
/// `variants`.
fn without_other_variants<'a>(text: &'a str, scenario: &Scenario, variants: &[String]) -> Cow<'a, str> {
    if variants.is_empty() {
        return Cow::Borrowed(text);
    }
    // The text has been read before.
    let mut tables: toml::Table = text.parse().unwrap_or_default();
    if let Some(others) = tables.get_mut("variant").and_then(toml::Value::as_table_mut) {
        others.retain(|name, _| variants.iter().any(|kept| kept == name));
    }
    let cells = || scenario.variants().iter().flat_map(|variant| &variant.cell);
    for (axis, points) in tables.get_mut("grid").and_then(toml::Value::as_table_mut).into_iter().flatten() {
        let used = |name: &str| cells().any(|at| at.axis == *axis && at.point == name);
        // Points that set one key are a list.
        if let Some(points) = points.as_table_mut().filter(|points| !points.contains_key("set")) {
            points.retain(|name, _| used(name));
        }
    }
    Cow::Owned(tables.to_string())
}

/// The scenario of a comparison's CUBIC, if it has one.
///
/// # Errors
/// As [`scenario`].
pub fn cubic(text: &str, path: &Path, comparison: &LiveClaim) -> Result<Option<Scenario>, ReproduceError> {
    let Some(cubic) = &comparison.cubic else { return Ok(None) };
    let set = [comparison.set.clone(), cubic.set.clone()].concat();
    // The text has been read before.
    let mut tables: toml::Table = text.parse().unwrap_or_default();
    tables.retain(|name, _| !cubic.without.iter().any(|table| table == name));
    let text = if cubic.without.is_empty() { text.to_owned() } else { tables.to_string() };
    scenario(&text, path, &LiveClaim { set, ..comparison.clone() }).map(Some)
}

/// Runs `scenario` in the simulator and by the settings of `real`, and compares the results.
/// `progress` is called during live runs, which take their full duration.
///
/// # Errors
/// A run fails in either engine.
pub fn agree(
    scenario: &Scenario,
    experiment: &Experiment,
    comparison: &LiveClaim,
    real: &Runner,
    progress: Option<Progress<'_>>,
) -> Result<Agreed, ReproduceError> {
    // One after the other: live runs need the whole machine.
    let simulated = Runner::default().run(scenario, None)?;
    let live = real.run(scenario, progress)?;
    let several = live.len() > 1;
    let mut verdicts = Vec::new();
    for (sim, live) in simulated.iter().zip(&live) {
        let id = match live.result.variant.as_str() {
            name if several => format!("{}.{name}", comparison.id),
            _ => comparison.id.clone(),
        };
        let source = &experiment.source;
        let verdict = |what: &str, expected: String, outcome: Agreement| ClaimVerdict {
            id: format!("{id}.{what}"),
            says: comparison.says.clone(),
            status: outcome.status,
            expected,
            measured: outcome.measured,
            source: source.clone(),
            neighbourhood: Some(0),
            ..ClaimVerdict::default()
        };
        let of = if comparison.flows.is_empty() { "flow" } else { "group" };
        let rates = format!("each {of}'s mean rate within {} % of the simulator's", comparison.rate_percent);
        let queues = format!(
            "each mean queueing delay within {} % or {} ms of the simulator's",
            comparison.queue_percent, comparison.queue_ms
        );
        verdicts.push(verdict("rates", rates, rates_agree(sim, live, comparison)));
        verdicts.push(verdict("queues", queues, queues_agree(sim, live, comparison)));
        let packets = "sockets' and kernel's counters account for every datagram".to_owned();
        verdicts.push(verdict("packets", packets, packets_counted(live)));
    }
    Ok(Agreed { simulated, live, report: Report::new(verdicts) })
}

/// The runs of a comparison, and its verdicts.
pub struct Agreed {
    /// The simulator's, one per variant.
    pub simulated: Vec<Ran>,
    /// Those with real packets.
    pub live: Vec<Ran>,
    /// The verdicts.
    pub report: Report,
}

impl Agreed {
    /// Adds verdicts on the experiment's claims that `comparison` names, by the values of the real
    /// engine, with those of the simulator and of CUBIC beside them.
    pub fn judge(&mut self, experiment: &Experiment, comparison: &LiveClaim, cubic: &[Ran]) {
        let named = |claim: &&Claim| comparison.claims.iter().any(|name| data::matches(name, &claim.id));
        let claims: Vec<Claim> = experiment.claims.iter().filter(named).cloned().collect();
        let judged = |runs: &[Ran]| {
            let results: Vec<RunResult> = runs.iter().map(|ran| ran.result.clone()).collect();
            let mut context = experiment.context(Vec::new());
            // A claim on a part of the grid is on those of its variants that have run.
            context.cells = context.cells.only(|name| results.iter().any(|result| result.variant == name));
            check(&claims, &results, &context).claims
        };
        let (simulated, beside) = (judged(&self.simulated), judged(cubic));
        let mut verdicts = std::mem::take(&mut self.report.claims);
        for (i, real) in judged(&self.live).into_iter().enumerate() {
            let mut values = vec![("simulator", simulated[i].measured.clone())];
            if !cubic.is_empty() {
                values.push(("CUBIC", beside[i].measured.clone()));
            }
            let id = format!("{}.{}", comparison.id, real.id.rsplit('.').next().unwrap_or_default());
            verdicts.push(ClaimVerdict { id, beside: values, neighbourhood: Some(0), ..real });
        }
        self.report = Report::new(verdicts);
    }
}

pub(crate) struct Agreement {
    pub(crate) status: Status,
    pub(crate) measured: String,
}

impl Agreement {
    pub(crate) fn of(met: bool, measured: String) -> Agreement {
        Agreement { status: if met { Status::Met } else { Status::Unmet }, measured }
    }
}

/// One quantity in both engines: its name, the two values, and the difference as a fraction of the
/// tolerance.
struct Pair {
    name: String,
    sim: f64,
    live: f64,
    used: f64,
}

fn pairs(
    sim: &[FlowInfo],
    live: &[FlowInfo],
    value: impl Fn(&FlowInfo) -> f64,
    allowed: impl Fn(f64) -> f64,
) -> Vec<Pair> {
    let pair = |live: &FlowInfo| {
        let sim = sim.iter().find(|sim| sim.name == live.name).map_or(f64::NAN, &value);
        let live_value = value(live);
        let used = (live_value - sim).abs() / allowed(sim);
        // Equal values agree, even without a tolerance.
        let used = if live_value == sim { 0.0 } else { used };
        Pair { name: live.name.clone(), sim, live: live_value, used }
    };
    live.iter().map(pair).collect()
}

/// Judges and prints the pair with the largest difference.
fn judge(pairs: &[Pair], unit: &str, late: &str) -> Agreement {
    let worst = pairs.iter().max_by(|a, b| a.used.total_cmp(&b.used));
    match worst {
        None => Agreement::of(false, "nothing ran".into()),
        Some(worst) => Agreement::of(
            worst.used <= 1.0,
            format!("worst {}: {:.3} versus {:.3} {unit}{late}", worst.name, worst.live, worst.sim),
        ),
    }
}

fn rates_agree(sim: &Ran, live: &Ran, comparison: &LiveClaim) -> Agreement {
    let flows = |ran: &Ran| -> Vec<FlowInfo> {
        let flows = data::summary(&ran.result.summary, "flow");
        if comparison.flows.is_empty() {
            return flows;
        }
        let together = |pattern: &String| {
            let rates = flows.iter().filter(|flow| data::matches(pattern, &flow.name));
            // Without a matching flow the rate is NaN.
            let rate = rates.map(|flow| flow.get("rate_mbps")).reduce(|a, b| a + b).unwrap_or(f64::NAN);
            FlowInfo::new(pattern.as_str(), [("rate_mbps", rate)])
        };
        comparison.flows.iter().map(together).collect()
    };
    let allowed = |sim: f64| sim * comparison.rate_percent / 100.0;
    let pairs = pairs(&flows(sim), &flows(live), |flow| flow.get("rate_mbps"), allowed);
    judge(&pairs, "Mb/s", "")
}

fn queues_agree(sim: &Ran, live: &Ran, comparison: &LiveClaim) -> Agreement {
    // In a large network, queues of unshared links are not recorded.
    let watched = |link: &FlowInfo| !link.get("queue_mean_ms").is_nan();
    let links = |ran: &Ran| -> Vec<FlowInfo> {
        data::summary(&ran.result.link_summary, "link").into_iter().filter(watched).collect()
    };
    // The engine sees nothing of a queue at an interface.
    let routed = live.info.live.as_ref().map(|info| info.routed.as_slice()).unwrap_or_default();
    let delay = |link: &FlowInfo| link.get("queue_mean_ms");
    let mut beside = links(live);
    for link in &mut beside {
        if let Some((_, wait)) = routed.iter().find(|(name, _)| *name == link.name) {
            *link = FlowInfo::new(link.name.as_str(), [("queue_mean_ms", *wait)]);
        }
    }
    let allowed = |sim: f64| (sim * comparison.queue_percent / 100.0).max(comparison.queue_ms);
    let late = live.info.live.as_ref().map_or(String::new(), |info| {
        let (late, worst) =
            (info.punctuality.departures.percentile(0.999), info.punctuality.departures.max());
        format!(
            " (99.9 % of departures at most {:.2} ms late, one {:.1} ms)",
            late.as_millis_f64(),
            worst.as_millis_f64()
        )
    });
    judge(&pairs(&links(sim), &beside, delay, allowed), "ms", &late)
}

fn packets_counted(live: &Ran) -> Agreement {
    let Some(info) = &live.info.live else { return Agreement::of(false, "no live run".into()) };
    let counters = &info.counters;
    let Some(dropped) = info.kernel_drops else {
        let measured = "this system does not count packets dropped at sockets".into();
        return Agreement { status: Status::Skipped, measured };
    };
    let (sent, received, waiting) = (counters.sent, counters.received, counters.waiting);
    let fallen = info.fallen.as_ref().map_or(String::new(), |fallen| format!("; fell back: {fallen}"));
    let measured = format!(
        "{sent} sent = {received} received + {waiting} waiting at the end + {dropped} dropped{fallen}"
    );
    Agreement::of(sent > 0 && sent == received + waiting + dropped, measured)
}

#[cfg(test)]
mod tests {
    use tollway_scenario::run::LiveInfo;
    use tollway_scenario::tables::{FlowSummary, LinkSummary, Outputs, TableWriter};

    use super::*;

    fn pair(sim: f64, live: f64) -> Vec<Pair> {
        let info = |value| vec![FlowInfo::new("f", [("x", value)])];
        pairs(&info(sim), &info(live), |flow| flow.get("x"), |sim| sim * 0.05)
    }

    #[test]
    fn the_bound_is_the_simulators() {
        assert_eq!(judge(&pair(2.0, 2.09), "", "").status, Status::Met);
        assert_eq!(judge(&pair(2.0, 1.91), "", "").status, Status::Met);
        assert_eq!(judge(&pair(2.0, 2.11), "", "").status, Status::Unmet);
        assert_eq!(judge(&pair(f64::NAN, 2.0), "", "").status, Status::Unmet);
        assert_eq!(judge(&pair(0.0, 0.0), "", "").status, Status::Met);
        assert_eq!(judge(&[], "", "").status, Status::Unmet);
    }

    fn comparison() -> LiveClaim {
        LiveClaim {
            id: "a.live".into(),
            says: String::new(),
            variants: Vec::new(),
            set: Vec::new(),
            flows: Vec::new(),
            rate_percent: 5.0,
            queue_percent: 10.0,
            queue_ms: 0.5,
            engine: RealEngine::Live,
            claims: Vec::new(),
            cubic: None,
            router: false,
            kernel: None,
        }
    }

    /// A run whose only flow has a mean rate of `mbps`, over a link of 8 Mb/s with a mean queue of
    /// `queue` bytes.
    fn ran(mbps: f64, queue: f64) -> Ran {
        let text = "name = \"t\"\nduration = \"10 ms\"\nnode = { a = {}, b = {} }\n\
            link.l = { from = \"a\", to = \"b\", rate = \"8 Mbps\" }\n\
            flow.f = { from = \"a\", to = \"b\", law = \"newreno\" }\n";
        let scenario = Scenario::parse::<&str>("t", text, &[]).unwrap();
        let mut ran = Runner::default().run(&scenario, None).unwrap().remove(0);
        let mut w = TableWriter::new(&Outputs::memory()).unwrap();
        w.flow_summary(&FlowSummary { flow: "f", rate_mbps: Some(mbps), ..FlowSummary::default() }).unwrap();
        let queue_mean_ms = Some(queue * 1e-3);
        w.link_summary(&LinkSummary { link: "l", queue_mean_ms, ..LinkSummary::default() }).unwrap();
        ran.result = w.finish("").unwrap();
        ran
    }

    #[test]
    fn rates_agree_within_a_part_of_the_simulator_s() {
        for (mbps, status) in
            [(3.9, Status::Met), (4.1, Status::Met), (3.7, Status::Unmet), (4.3, Status::Unmet)]
        {
            let found = rates_agree(&ran(4.0, 0.0), &ran(mbps, 0.0), &comparison());
            assert_eq!(found.status, status, "{mbps}");
            assert_eq!(found.measured, format!("worst f: {mbps:.3} versus 4.000 Mb/s"));
        }
    }

    #[test]
    fn flows_of_a_pattern_are_one_and_no_flow_agrees_with_nothing() {
        let of = |pattern: &str| LiveClaim { flows: vec![pattern.into()], ..comparison() };
        let found = rates_agree(&ran(4.0, 0.0), &ran(4.1, 0.0), &of("f*"));
        assert_eq!((found.status, &*found.measured), (Status::Met, "worst f*: 4.100 versus 4.000 Mb/s"));
        assert_eq!(rates_agree(&ran(4.0, 0.0), &ran(4.0, 0.0), &of("g")).status, Status::Unmet);
    }

    #[test]
    fn queueing_delays_agree_within_a_part_or_an_allowance() {
        // 1000 bytes take 1 ms at 8 Mb/s. Half a millisecond is allowed; from 5 ms on, a tenth,
        // which is more.
        for (sim, live, status) in [
            (1000.0, 1450.0, Status::Met),
            (1000.0, 1550.0, Status::Unmet),
            (1000.0, 450.0, Status::Unmet),
            (20_000.0, 21_900.0, Status::Met),
            (20_000.0, 22_100.0, Status::Unmet),
        ] {
            let found = queues_agree(&ran(1.0, sim), &ran(1.0, live), &comparison());
            assert_eq!(found.status, status, "{sim} {live}");
            let said = format!("worst l: {:.3} versus {:.3} ms", live / 1000.0, sim / 1000.0);
            assert_eq!(found.measured, said);
        }
    }

    #[test]
    fn of_several_pairs_the_one_furthest_apart_decides() {
        let pairs = [pair(2.0, 2.0), pair(2.0, 2.5), pair(2.0, 2.01)].map(|mut one| one.remove(0));
        let found = judge(&pairs, "Mb/s", "");
        assert_eq!(
            (found.status, found.measured.as_str()),
            (Status::Unmet, "worst f: 2.500 versus 2.000 Mb/s")
        );
        // A value at the bound is within it.
        assert_eq!(judge(&pair(20.0, 21.0), "", "").status, Status::Met);
    }

    #[test]
    fn every_datagram_sent_has_to_be_found_again() {
        let counted = |sent, received, waiting, kernel_drops| {
            let mut info = LiveInfo {
                threads: 1,
                real_time: false,
                counters: Default::default(),
                kernel_drops,
                punctuality: Default::default(),
                kernel_packets: (0, 0),
                wires: Vec::new(),
                routed: Vec::new(),
                fallen: None,
                node: None,
                broken: Vec::new(),
            };
            (info.counters.sent, info.counters.received, info.counters.waiting) = (sent, received, waiting);
            let mut live = ran(1.0, 0.0);
            live.info.live = Some(info);
            packets_counted(&live).status
        };
        assert_eq!(counted(10, 7, 2, Some(1)), Status::Met);
        assert_eq!(counted(10, 7, 2, Some(0)), Status::Unmet);
        assert_eq!(counted(10, 7, 0, Some(1)), Status::Unmet);
        assert_eq!(counted(10, 7, 2, Some(2)), Status::Unmet);
        assert_eq!(counted(0, 0, 0, Some(0)), Status::Unmet, "nothing was sent");
        assert_eq!(counted(10, 10, 0, None), Status::Skipped);
        assert_eq!(packets_counted(&ran(1.0, 0.0)).status, Status::Unmet);
    }

    #[test]
    fn every_live_part_of_the_experiments_makes_a_scenario() {
        let papers = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../papers"));
        let mut live = 0;
        for found in crate::reproduce::list(papers).unwrap() {
            let text = std::fs::read_to_string(&found.path).unwrap();
            let experiment = Experiment::parse(&text, &found.path).unwrap();
            for comparison in &experiment.live {
                let scenario = scenario(&text, &found.path, comparison).unwrap();
                assert!(!scenario.variants().is_empty());
                live += 1;
            }
        }
        assert!(live >= 2);
    }

    #[test]
    fn a_variant_that_does_not_exist_is_named() {
        let comparison = LiveClaim { variants: vec!["b".into()], ..comparison() };
        let text = include_str!("../../../papers/xcp/validation.toml");
        let error = scenario(text, Path::new("papers/xcp/validation.toml"), &comparison).unwrap_err();
        assert_eq!(error.to_string(), "live claim `a.live`: there is no variant `b`");
    }
}
