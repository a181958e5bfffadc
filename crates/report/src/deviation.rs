//! The deviation of a run's steady state from the allocation that its laws aim at.

use std::collections::HashMap;
use std::fmt;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, RecordBatch, StringArray};
use serde_json::{Value, json};
use tollway_law::Time;
use tollway_law::link::Gains;
use tollway_scenario::plan::overlay::Overlay;
use tollway_scenario::plan::{Flow, Link, Plan};
use tollway_scenario::tables::RunResult;
use tollway_theory::{
    Aim, Allocation, Network, NetworkError, XcpGains, common_aim, max_throughput, proportional_rates,
    session_fair, spend, xcp_equilibrium, xcp_session_equilibrium,
};

use crate::data;
use crate::ideal::overlay::Stretch;
use crate::ideal::{Steady, Undefined, sessions, steady};

/// The steady state of a run beside the theoretical allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// The allocation compared with.
    pub aim: Aim,
    /// True if the laws aim at it. Otherwise it is max–min fairness, only for comparison.
    pub aimed: bool,
    /// Start of the stretch, in seconds.
    pub from_s: f64,
    /// End of the stretch, in seconds.
    pub until_s: f64,
    /// The rate of each flow, in the plan's order, without the slow ones.
    pub flows: Vec<FlowDeviation>,
    /// Flows that are left out because their shares are below two packets per round trip.
    pub slow: Vec<FlowDeviation>,
    /// The sum over an overlay's senders; `None` for flows.
    pub throughput: Option<Throughput>,
}

/// The sum of all rates beside the largest sum that links and demands allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// The sum of the senders' rates, in Mb/s.
    pub total_mbps: f64,
    /// The optimum of the linear program, in Mb/s.
    pub most_mbps: f64,
}

/// A flow's rate beside the theoretical one.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowDeviation {
    /// The flow.
    pub flow: String,
    /// The flow's mean rate, headers included, in Mb/s.
    pub rate_mbps: f64,
    /// The theoretical rate, in Mb/s.
    pub ideal_mbps: f64,
    /// The relative deviation: 0.1 is 10 % above the theoretical rate.
    pub deviation: f64,
}

/// The theoretical rates of the flows in each variant of an experiment, if computed.
#[derive(Clone, Debug, Default)]
pub struct Aims(HashMap<String, Vec<(String, f64)>>);

impl Aims {
    /// The rates from runs with their deviations.
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = (&'a str, Option<&'a Deviation>)>) -> Aims {
        let flows = |found: &Deviation| found.flows.iter().map(|f| (f.flow.clone(), f.ideal_mbps)).collect();
        Aims(runs.into_iter().filter_map(|(run, found)| Some((run.to_owned(), flows(found?)))).collect())
    }

    /// The theoretical rate of the flows that match `pattern` in `variant`, in Mb/s: their sum if
    /// `total`, otherwise their mean. `None` if no rate is known.
    pub(crate) fn rate_mbps(&self, variant: &str, pattern: &str, total: bool) -> Option<f64> {
        let flows = self.0.get(variant)?.iter().filter(|(flow, _)| data::matches(pattern, flow));
        let (sum, count) = flows.fold((0.0, 0u32), |(sum, count), (_, rate)| (sum + rate, count + 1));
        (count > 0).then(|| if total { sum } else { sum / f64::from(count) })
    }
}

/// The reason why a run cannot be compared with theory.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoDeviation {
    /// The file defines no allocation.
    #[error("{0}")]
    Undefined(#[from] Undefined),
    /// The rates of the stretch were not recorded.
    #[error(
        "its rates in the steady state are not available: this needs `measure.interval`, and tables that fit \
        into memory"
    )]
    NoRates,
    /// The rates of the stretch were in tables that could not be written.
    #[error("its rates in the steady state are lost with the tables that could not be written")]
    Unwritten,
    /// Every flow's share is below two packets per round trip.
    #[error("every share is below two packets a round trip")]
    Slow,
    /// No flow ends at the node of this process, so it has no rates.
    #[error("no flow ends at this process's node, and rates are only measured there")]
    Elsewhere,
    /// The run was stopped early.
    #[error("the run was stopped before its end")]
    Stopped,
    /// The network has no allocation.
    #[error("{0}")]
    Network(String),
}

impl Deviation {
    /// Compares the steady state of a run of `plan` with the allocation that its flows' laws aim
    /// at; without an aim, with max–min fairness. The steady state is the second half of the
    /// longest stretch after the warm-up in which no flow begins or ends and nothing changes.
    ///
    /// # Errors
    /// No comparison is possible, see [`NoDeviation`].
    pub fn of(plan: &Plan, result: &RunResult) -> Result<Deviation, NoDeviation> {
        if let Some(overlay) = &plan.overlay {
            return of_senders(plan, overlay, result);
        }
        let steady = steady(plan)?;
        let (from, until) = (steady.from.nearest_secs(), steady.until.nearest_secs());
        let mut window = (0.5 * (from + until), until);
        let interval = plan.measure.interval.map_or(0.0, |interval| interval.nearest_secs());
        let mut rates = mean_rates(&result.flows, interval, window);
        let whole =
            steady.from <= plan.measure.warmup.max(first_start(plan)) && steady.until == plan.duration;
        if rates.is_empty() && whole {
            // Without rows, the summary's means serve, if nothing changes after the warm-up.
            window.0 = from;
            let rows = data::summary(&result.summary, "flow");
            rates = rows.iter().map(|row| (row.name.clone(), row.get("rate_mbps"))).collect();
        }
        if rates.is_empty() {
            return Err(NoDeviation::NoRates);
        }
        Deviation::judge(plan, &steady, &rates, window)
    }

    fn judge(
        plan: &Plan,
        steady: &Steady,
        rates: &HashMap<String, f64>,
        (from_s, until_s): (f64, f64),
    ) -> Result<Deviation, NoDeviation> {
        let (aim, aimed, allocation) = aim(plan, steady)?;
        let mut flows = Vec::new();
        let mut slow = Vec::new();
        for (f, direction) in steady.directions.iter().enumerate() {
            let Some(&rate_mbps) = rates.get(&direction.name) else { continue };
            let flow = &plan.flows[direction.flow];
            let packet = f64::from(plan.transports[flow.transport.0 as usize].packet_size) * 8.0;
            let found = FlowDeviation {
                flow: direction.name.clone(),
                rate_mbps,
                ideal_mbps: allocation.rates[f] * 1e-6,
                deviation: allocation.deviation(f, rate_mbps * 1e6),
            };
            let few = allocation.rates[f] * direction.base_rtt.as_secs_f64() < SLOW * packet;
            if few { slow.push(found) } else { flows.push(found) }
        }
        match flows.is_empty() {
            false => Ok(Deviation { aim, aimed, from_s, until_s, flows, slow, throughput: None }),
            true if !slow.is_empty() => Err(NoDeviation::Slow),
            true => Err(NoDeviation::NoRates),
        }
    }

    /// The part of the deviation at one `node`, whose process has only the rates of the flows that
    /// end there.
    pub(crate) fn at(mut self, plan: &Plan, node: &str) -> Result<Deviation, NoDeviation> {
        let ends_here = |name: &str| {
            let end = |flow: &Flow| match name.strip_prefix(flow.name.as_str()) {
                Some("") => Some(flow.path.to),
                Some(".reverse") => Some(flow.path.from),
                _ => None,
            };
            let senders = plan.overlay.iter().flat_map(|overlay| &overlay.senders);
            let sender = senders.filter(|sender| sender.name == name).map(|sender| sender.at).next();
            let end = plan.flows.iter().find_map(end).or(sender);
            end.is_some_and(|end| plan.nodes[end.0 as usize].name == node)
        };
        self.flows.retain(|flow| ends_here(&flow.flow));
        self.slow.retain(|flow| ends_here(&flow.flow));
        self.throughput = None;
        if self.flows.is_empty() { Err(NoDeviation::Elsewhere) } else { Ok(self) }
    }

    /// The flow with the largest deviation.
    pub fn worst(&self) -> &FlowDeviation {
        // A `Deviation` has at least one flow.
        farthest(&self.flows).unwrap_or(&self.flows[0])
    }

    /// The mean of the absolute deviations.
    pub fn mean(&self) -> f64 {
        self.flows.iter().map(|f| f.deviation.abs()).sum::<f64>() / self.flows.len() as f64
    }

    /// The deviation as one JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "aim": self.aim.name(),
            "aimed": self.aimed,
            "worst": self.worst().deviation,
            "mean": self.mean(),
            "flow": self.worst().flow,
            "flows": self.flows.len(),
            "left_out": self.slow.iter().map(|flow| json!({ "flow": flow.flow, "deviation": flow.deviation })).collect::<Vec<_>>(),
            "window": [self.from_s, self.until_s],
            "throughput_mbps": self.throughput.map(|sum| sum.total_mbps),
            "max_throughput_mbps": self.throughput.map(|sum| sum.most_mbps),
        })
    }
}

/// The deviation as a sentence.
impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worst = self.worst();
        let percent = 100.0 * worst.deviation;
        write!(f, "steady state ({} to {} s): ", seconds(self.from_s), seconds(self.until_s))?;
        if let Some(Throughput { total_mbps, most_mbps }) = self.throughput {
            let part = 100.0 * total_mbps / most_mbps;
            write!(f, "{total_mbps:.3} Mb/s in all, {part:.1} % of the largest sum; ")?;
        }
        let one = if self.throughput.is_some() { "sender" } else { "flow" };
        write!(
            f,
            "worst {one} {percent:+.1} % from {} ({}), mean {:.1} %",
            self.aim.title(),
            worst.flow,
            100.0 * self.mean(),
        )?;
        if !self.aimed && self.throughput.is_none() {
            write!(f, "; for comparison: its laws aim at something else")?;
        }
        if let Some(slow) = farthest(&self.slow) {
            let (count, percent) = (self.slow.len(), 100.0 * slow.deviation);
            let (flows, shares) = if count == 1 { ("flow", "its share") } else { ("flows", "their shares") };
            write!(
                f,
                "; left out: {count} {flows}, {shares} below two packets a round trip, worst {percent:+.1} % ({})",
                slow.flow
            )?;
        }
        Ok(())
    }
}

/// The flow of `flows` with the largest deviation.
fn farthest(flows: &[FlowDeviation]) -> Option<&FlowDeviation> {
    flows.iter().max_by(|a, b| a.deviation.abs().total_cmp(&b.deviation.abs()))
}

/// The aim of the laws of the flows of `steady`, true if the laws have it in common, and its
/// allocation.
pub(crate) fn aim(plan: &Plan, steady: &Steady) -> Result<(Aim, bool, Allocation), NoDeviation> {
    let network = |e: tollway_theory::NetworkError| NoDeviation::Network(e.to_string());
    let aims = steady.directions.iter().map(|direction| {
        let flow = &plan.flows[direction.flow];
        plan.transports[flow.transport.0 as usize].law.descriptor().aim
    });
    let flows: Vec<usize> = steady.directions.iter().map(|direction| direction.flow).collect();
    let sessions = sessions(plan, &flows);
    let fair = || {
        let (aim, allocation) = match &sessions {
            None => (Aim::MaxMin, Allocation::of(Aim::MaxMin, &steady.network).map_err(network)?),
            Some(sessions) => {
                let rates = session_fair(&steady.network, sessions).map_err(network)?.rates;
                (Aim::SessionFair, Allocation { rates })
            }
        };
        Ok((aim, false, allocation))
    };
    let Some(aim) = common_aim(aims) else { return fair() };
    // The budget of a session is divided by its switch.
    if sessions.is_some() && aim != Aim::XcpEquilibrium {
        return fair();
    }
    // Beyond a border the worth of a budget depends on other flows too.
    if plan.links.iter().any(|link| link.exchange.is_some()) {
        return fair();
    }
    let allocated = steady.allocate(|network| {
        // Other links send no feedback to these senders: they may only carry what the links of the
        // law let through.
        let own = links_of(plan, network, aim);
        let own = if aim == Aim::Proportional { spend(&own, &steady.owners)? } else { own };
        match aim {
            Aim::XcpEquilibrium => {
                let gains = xcp_gains(plan, steady);
                let found = match &sessions {
                    None => xcp_equilibrium(&own, &gains),
                    Some(sessions) => xcp_session_equilibrium(&own, sessions, &gains),
                };
                found.map(|found| found.rates)
            }
            _ => Allocation::of(aim, &own).map(|allocation| allocation.rates),
        }
    });
    let Ok((network, rates)) = allocated else { return fair() };
    let loads = network.loads(&rates);
    let overloaded = loads.iter().zip(&network.capacities).any(|(load, c)| *load > c * (1.0 + OVERLOAD));
    if overloaded { fair() } else { Ok((aim, true, Allocation { rates })) }
}

/// The constants of XCP's routers, for each link. A control interval is the mean of its flows'
/// round trips without queues.
pub(crate) fn xcp_gains(plan: &Plan, steady: &Steady) -> Vec<XcpGains> {
    let mut trips = vec![(0.0, 0_u32); plan.links.len()];
    for (flow, direction) in steady.network.flows.iter().zip(&steady.directions) {
        let rtt = direction.base_rtt.as_secs_f64();
        for &l in &flow.links {
            let longest =
                plan.links[l].law.descriptor().gains.map_or(Time::NEVER, |gains| gains.max_interval);
            trips[l] = (trips[l].0 + rtt.min(longest.as_secs_f64()), trips[l].1 + 1);
        }
    }
    let gains = |(link, &(sum, flows)): (&Link, &(f64, u32))| {
        let mean = if flows > 0 { sum / f64::from(flows) } else { 1.0 };
        match link.law.descriptor().gains {
            Some(Gains { alpha, gamma, min_interval, .. }) => {
                XcpGains { alpha, gamma, interval: mean.max(min_interval.as_secs_f64()) }
            }
            None => XcpGains { interval: mean, ..XcpGains::default() },
        }
    };
    plan.links.iter().zip(&trips).map(gains).collect()
}

/// A copy of `network` with only those links on routes whose law steers to `aim`, with weights and
/// capacities as in that law.
pub(crate) fn links_of(plan: &Plan, network: &Network, aim: Aim) -> Network {
    let mut network = network.clone();
    for flow in &mut network.flows {
        flow.links.retain(|&l| plan.links[l].law.descriptor().aim == Some(aim));
        // RCP has one rate for all flows.
        if aim == Aim::MaxMin {
            flow.weight = 1.0;
        }
    }
    for (capacity, link) in network.capacities.iter_mut().zip(&plan.links) {
        *capacity *= link.law.descriptor().share;
    }
    network
}

fn first_start(plan: &Plan) -> Time {
    plan.flows.iter().map(|flow| flow.start).min().unwrap_or_default()
}

/// The rates of a run's senders in the second half of its longest stretch, beside the ideal ones.
fn of_senders(plan: &Plan, overlay: &Overlay, result: &RunResult) -> Result<Deviation, NoDeviation> {
    let Stretch { from, until, senders, network } = Stretch::of(plan, overlay)?;
    let (from, until) = (from.nearest_secs(), until.nearest_secs());
    let window = (0.5 * (from + until), until);
    let interval = plan.measure.interval.map_or(0.0, |interval| interval.nearest_secs());
    let rates = mean_rates(&result.flows, interval, window);
    let most = max_throughput(&network).map_err(|error| NoDeviation::Network(error.to_string()))?;
    let (fair, _) = proportional_rates(&network).map_err(undefined)?;
    let mut flows = Vec::new();
    for (&s, fair) in senders.iter().zip(fair) {
        let sender = &overlay.senders[s].name;
        let Some(&rate_mbps) = rates.get(sender) else { continue };
        let ideal_mbps = fair * 1e-6;
        let deviation = rate_mbps / ideal_mbps - 1.0;
        flows.push(FlowDeviation { flow: sender.clone(), rate_mbps, ideal_mbps, deviation });
    }
    if flows.is_empty() {
        return Err(NoDeviation::NoRates);
    }
    let total_mbps = flows.iter().map(|flow| flow.rate_mbps).sum();
    let most_mbps = most.iter().sum::<f64>() * 1e-6;
    Ok(Deviation {
        aim: Aim::Proportional,
        aimed: false,
        from_s: window.0,
        until_s: window.1,
        flows,
        slow: Vec::new(),
        throughput: Some(Throughput { total_mbps, most_mbps }),
    })
}

fn undefined(error: NetworkError) -> NoDeviation {
    NoDeviation::Network(error.to_string())
}

/// The mean over `window` of each flow's rate in the interval table. It makes no series, since
/// there may be millions of rows.
fn mean_rates(batches: &[RecordBatch], interval: f64, window: (f64, f64)) -> HashMap<String, f64> {
    let mut all: HashMap<String, (f64, f64)> = HashMap::new();
    let mut add = |names: &StringArray, sums: &[(f64, f64)]| {
        for (name, &(sum, weight)) in names.iter().zip(sums).filter(|(_, (_, weight))| *weight > 0.0) {
            let all = all.entry(name.unwrap_or_default().to_owned()).or_default();
            *all = (all.0 + sum, all.1 + weight);
        }
    };
    // Most batches share their names, and then their sums.
    let mut shared: Option<(&StringArray, Vec<(f64, f64)>)> = None;
    for batch in batches {
        let number = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Float64Type>();
        let keys = batch.column_by_name("flow").and_then(|c| c.as_dictionary_opt::<Int32Type>());
        let (Some(times), Some(rates), Some(keys)) = (number("time_s"), number("rate_mbps"), keys) else {
            continue;
        };
        let Some(names) = keys.values().as_string_opt::<i32>() else { continue };
        if !shared.as_ref().is_some_and(|(known, _)| known.to_data().ptr_eq(&names.to_data())) {
            let fresh = (names, vec![(0.0, 0.0); names.len()]);
            shared.replace(fresh).iter().for_each(|(names, sums)| add(names, sums));
        }
        let Some((_, sums)) = &mut shared else { continue };
        // Successive rows are of one interval.
        let (mut last, mut overlap) = (f64::NAN, 0.0);
        for ((&end, &rate), &key) in times.values().iter().zip(rates.values()).zip(keys.keys().values()) {
            if end != last {
                (last, overlap) = (end, end.min(window.1) - (end - interval).max(window.0));
            }
            if overlap > 0.0 {
                let sum = &mut sums[key as usize];
                sum.0 += overlap * rate;
                sum.1 += overlap;
            }
        }
    }
    shared.iter().for_each(|(names, sums)| add(names, sums));
    all.into_iter().map(|(name, (sum, weight))| (name, sum / weight)).collect()
}

/// Seconds with at most three decimals, without trailing zeros.
pub(crate) fn seconds(s: f64) -> String {
    let text = format!("{s:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Relative overload of a link that is within a solver's precision.
const OVERLOAD: f64 = 1e-6;
/// Packets per round trip below which a share is too small for a window in packets.
const SLOW: f64 = 2.0;

#[cfg(test)]
mod tests {
    use tollway_scenario::file::Scenario;
    use tollway_scenario::run::{Options, run};
    use tollway_scenario::tables::{FlowRow, Outputs, TableWriter};

    use super::*;

    #[test]
    fn a_mean_rate_is_over_all_batches() {
        // The second batch knows more flows than the first; the third knows the same.
        let mut writer = TableWriter::new(&Outputs::memory()).unwrap();
        for second in 1..=3 {
            for i in 0..5000 {
                let rate_mbps = f64::from(second * second * (i + 1));
                let row = FlowRow {
                    time_s: f64::from(second),
                    flow: &format!("f.{i}"),
                    rate_mbps,
                    ..FlowRow::default()
                };
                writer.flow(&row).unwrap();
            }
        }
        let rates = mean_rates(&writer.finish("").unwrap().flows, 1.0, (0.5, 3.0));
        assert_eq!(rates.len(), 5000);
        for i in [0, 4095, 4096, 4999] {
            let expected = (0.5 + 4.0 + 9.0) / 2.5 * f64::from(i + 1);
            assert!((rates[&format!("f.{i}")] / expected - 1.0).abs() < 1e-12, "{i}");
        }
    }

    /// A link of 20 Mb/s with a round trip of 20 ms.
    fn plan(more: &str) -> Plan {
        let text = format!(
            "name = \"t\"\nduration = \"10 s\"\nnode = {{ a = {{}}, b = {{}}, c = {{}} }}\n\
             link.w = {{ from = \"a\", to = \"b\", rate = \"20 Mbps\", delay = \"10 ms\", law = \"rcp\", rcp = {{ gamma = 0.9 }} }}\n{more}"
        );
        let scenario = Scenario::parse::<&str>("", &text, &[]).unwrap();
        scenario.variants()[0].plan.clone()
    }

    fn flow(name: &str, law: &str, more: &str) -> String {
        format!("flow.{name} = {{ from = \"a\", to = \"b\", law = \"{law}\"{more} }}\n")
    }

    fn judge(plan: &Plan, rates: &[(&str, f64)]) -> Result<Deviation, NoDeviation> {
        let rates = rates.iter().map(|&(name, mbps)| (name.to_owned(), mbps)).collect();
        Deviation::judge(plan, &steady(plan)?, &rates, (5.0, 10.0))
    }

    #[test]
    fn rcp_gives_all_the_same_of_what_its_links_hand_out() {
        let of = |law: &str| plan(&(flow("one", law, "") + &flow("two", law, ", weight = 3")));
        let found = judge(&of("rcp"), &[("one", 9.0), ("two", 8.1)]).unwrap();
        assert_eq!((found.aim, found.aimed), (Aim::MaxMin, true));
        let near =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
        for (flow, deviation) in found.flows.iter().zip([0.0, -0.1]) {
            near(flow.ideal_mbps, 9.0);
            near(flow.deviation, deviation);
        }
        near(found.worst().deviation, -0.1);
        near(found.mean(), 0.05);
        let says = "steady state (5 to 10 s): worst flow -10.0 % from max–min fairness (two), mean 5.0 %";
        assert_eq!(found.to_string(), says);
        // Senders of another law aim at nothing: by weight, of the whole link, only for comparison.
        let found = judge(&of("newreno"), &[("one", 5.0), ("two", 15.0)]).unwrap();
        assert!(!found.aimed && found.flows.iter().all(|flow| flow.deviation.abs() < 1e-9), "{found:?}");
        assert!(
            found.to_string().ends_with("mean 0.0 %; for comparison: its laws aim at something else"),
            "{found}"
        );
    }

    #[test]
    fn shares_below_two_packets_a_round_trip_are_not_judged() {
        // 18 Mb/s among 15 are exactly two packets of 1500 B each in 20 ms.
        let rates: Vec<(String, f64)> = (1..=16).map(|i| (format!("f.{i}"), 1.0)).collect();
        let rates: Vec<(&str, f64)> = rates.iter().map(|(name, mbps)| (name.as_str(), *mbps)).collect();
        let among = |n: u32| judge(&plan(&flow("f", "rcp", &format!(", count = {n}"))), &rates);
        assert_eq!(among(14).unwrap().flows.len(), 14);
        // Beside a flow with the share of twenty, fourteen have less than two packets. They are
        // named.
        let both = flow("f", "rcp", ", count = 14") + &flow("far", "rcp", "");
        let far = "\nlink.l = { from = \"b\", to = \"c\", rate = \"1 Mbps\", law = \"rcp\" }\n";
        let both =
            both.replace("flow.far = { from = \"a\", to = \"b\"", "flow.far = { from = \"a\", to = \"c\"");
        let mut rates = rates.clone();
        rates.push(("far", 0.9));
        let found = judge(&plan(&(both + far)), &rates).unwrap();
        assert_eq!((found.flows.len(), found.slow.len()), (14, 1));
        let says = "; left out: 1 flow, its share below two packets a round trip, worst -10.0 % (far)";
        assert!(found.to_string().ends_with(says), "{found}");
        assert_eq!(among(16), Err(NoDeviation::Slow));
        // With the round trip of that stretch: 22 ms suffice for 16 flows, and 18 ms are too short
        // for 14.
        let after = |n: u32, delay: u32| {
            let change = format!("change = [{{ at = \"1 s\", link = \"w\", delay = \"{delay} ms\" }}]\n");
            judge(&plan(&(flow("f", "rcp", &format!(", count = {n}")) + &change)), &rates)
        };
        assert_eq!(after(16, 11).unwrap().flows.len(), 16);
        assert_eq!(after(14, 9), Err(NoDeviation::Slow));
        assert_eq!(judge(&plan(&flow("f", "rcp", "")), &[]), Err(NoDeviation::NoRates));
    }

    #[test]
    fn without_rows_the_whole_run_speaks_if_nothing_changes_in_it() {
        let of = |more: &str| {
            let plan = plan(&format!(
                "measure = {{ interval = \"none\", warmup = \"2 s\" }}\n{}{more}",
                flow("f", "rcp", "")
            ));
            let result =
                run(&plan, &Options { outputs: Outputs::memory(), ..Options::default() }).unwrap().result;
            Deviation::of(&plan, &result)
        };
        let found = of("").unwrap();
        assert_eq!((found.from_s, found.until_s), (2.0, 10.0));
        assert!(found.worst().deviation.abs() < 0.05, "{found}");
        let change = "change = [{ at = \"6 s\", link = \"w\", rate = \"10 Mbps\" }]\n";
        assert_eq!(of(change), Err(NoDeviation::NoRates));
        assert_eq!(of(&change.replace('6', "5")), Err(NoDeviation::NoRates));
    }

    #[test]
    fn a_process_knows_of_the_flows_that_end_at_its_node() {
        let plan = plan(&flow("f", "newreno", ", both-ways = true"));
        let found = judge(&plan, &[("f", 20.0), ("f.reverse", 10.0)]).unwrap();
        let at = |node: &str| {
            let found = found.clone().at(&plan, node)?;
            Ok(found.flows.into_iter().map(|flow| flow.flow).collect::<Vec<_>>())
        };
        assert_eq!((at("a"), at("b")), (Ok(vec!["f.reverse".to_owned()]), Ok(vec!["f".to_owned()])));
        assert_eq!(at("c"), Err(NoDeviation::Elsewhere));
        let aims = Aims::of([("v", Some(&found)), ("other", None)]);
        let rate = |variant: &str, pattern: &str, total| aims.rate_mbps(variant, pattern, total);
        assert_eq!(
            (rate("v", "f", true), rate("v", "*", true), rate("v", "*", false)),
            (Some(20.0), Some(40.0), Some(20.0))
        );
        assert_eq!((rate("v", "g", false), rate("other", "*", true)), (None, None));
    }
}
