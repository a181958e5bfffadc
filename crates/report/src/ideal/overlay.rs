//! Ideal rates of an overlay's senders: largest sum, and proportional fairness.

use std::collections::HashMap;

use tollway_law::Time;
use tollway_proto::overlay::{ArrivalProcess, DaemonId, Topology};
use tollway_scenario::plan::overlay::{Overlay, Sender};
use tollway_scenario::plan::{LinkId, Plan};
use tollway_theory::{Flow, Network, proportional_rates};

use super::{State, Undefined, dark, instants};

/// The longest stretch after the warm-up in which no sender begins or ends and nothing changes.
pub(crate) struct Stretch {
    pub(crate) from: Time,
    pub(crate) until: Time,
    /// The active senders, as indices into [`Overlay::senders`].
    pub(crate) senders: Vec<usize>,
    /// The plan's links, and the senders' trees over them, in bits per second.
    pub(crate) network: Network,
}

impl Stretch {
    pub(crate) fn of(plan: &Plan, overlay: &Overlay) -> Result<Stretch, Undefined> {
        let trees = trees(plan, overlay)?;
        let instants = instants(plan);
        let there = |phase: &[Time]| -> Vec<usize> {
            let lives = |s: &Sender| s.start <= phase[0] && phase[1] <= s.stop.min(plan.duration);
            (0..overlay.senders.len()).filter(|&s| lives(&overlay.senders[s])).collect()
        };
        let mut stretches = instants.windows(2).filter(|phase| !there(phase).is_empty()).peekable();
        stretches.peek().ok_or(Undefined::NoFlow)?;
        let light = stretches.filter(|phase| {
            let dark = dark(plan, phase[0]);
            !there(phase).iter().any(|&s| trees[s].iter().any(|link| dark.contains(link)))
        });
        let longest = light.max_by_key(|phase| phase[1] - phase[0]).ok_or(Undefined::Dark)?;
        let mut state = State::new(plan);
        state.advance(plan, longest[0]);
        let senders = there(longest);
        let half = Time((longest[0].0 + longest[1].0) / 2);
        let network = network(overlay, &trees, &senders, state.capacities(plan, half, longest[1]));
        Ok(Stretch { from: longest[0], until: longest[1], senders, network })
    }
}

/// The links that each sender's messages cross. A link of two hops of a tree counts twice.
fn trees(plan: &Plan, overlay: &Overlay) -> Result<Vec<Vec<usize>>, Undefined> {
    if !plan.workloads.is_empty() {
        return Err(Undefined::Chance);
    }
    if !plan.media.is_empty() {
        return Err(Undefined::Medium);
    }
    if plan.flows.len() > overlay.hops.len() {
        return Err(Undefined::Beside);
    }
    if overlay
        .senders
        .iter()
        .any(|sender| sender.on_off.is_some() && sender.demand == ArrivalProcess::Endless)
    {
        return Err(Undefined::Pauses);
    }
    let mut routes: HashMap<(DaemonId, DaemonId), &[LinkId]> = HashMap::new();
    let ends = overlay.hops.iter().map(|hop| {
        let path = &plan.flows[hop.flow.0 as usize].path;
        let (from, to) = (DaemonId(path.from.0), DaemonId(path.to.0));
        routes.insert((from, to), &path.route);
        routes.insert((to, from), &path.back);
        (from, to, hop.length)
    });
    let topology = Topology::new(ends);
    let mut known: HashMap<(DaemonId, usize), Vec<usize>> = HashMap::new();
    let tree = |sender: &Sender| {
        let at = DaemonId(sender.at.0);
        let links = known.entry((at, sender.group)).or_insert_with(|| {
            let group = &overlay.groups[sender.group];
            let senders = overlay.senders.iter().filter(|other| group.ordered && other.group == sender.group);
            let to = group.members.iter().copied().chain(senders.map(|other| other.at));
            let mut to: Vec<DaemonId> = to.map(|node| DaemonId(node.0)).collect();
            to.sort_unstable();
            // A message to an ordered group goes to its least member first, and from there to all.
            let first = to.first().copied().filter(|_| group.ordered).unwrap_or(at);
            let mut hops = topology.tree(first, to);
            if first != at {
                hops.extend(topology.tree(at, [first]));
            }
            let links = hops.iter().flat_map(|hop| routes.get(hop).copied().unwrap_or_default());
            links.map(|link| link.0 as usize).collect()
        });
        links.clone()
    };
    Ok(overlay.senders.iter().map(tree).collect())
}

/// The senders over the links that can limit them. A link is left out of routes if its capacity
/// suffices for all senders at their greatest rates.
fn network(overlay: &Overlay, trees: &[Vec<usize>], senders: &[usize], capacities: Vec<f64>) -> Network {
    let narrowest =
        |s: usize| trees[s].iter().copied().min_by(|&a, &b| capacities[a].total_cmp(&capacities[b]));
    let demands: Vec<f64> = senders.iter().map(|&s| demand(overlay, &overlay.senders[s])).collect();
    let mut most = vec![0.0; capacities.len()];
    let mut holds = vec![false; capacities.len()];
    for (&s, demand) in senders.iter().zip(&demands) {
        let Some(link) = narrowest(s) else { continue };
        holds[link] |= *demand > capacities[link];
        for &crossed in &trees[s] {
            most[crossed] += demand.min(capacities[link]);
        }
    }
    let counts = |link: usize| holds[link] || most[link] > capacities[link];
    let flow = |(&s, demand): (&usize, f64)| Flow {
        links: trees[s].iter().copied().filter(|&link| counts(link)).collect(),
        weight: overlay.senders[s].salary,
        demand,
    };
    let flows = senders.iter().zip(demands).map(flow).collect();
    Network { capacities, flows }
}

/// Upper bound on a sender's rate, in bits per second.
fn demand(overlay: &Overlay, sender: &Sender) -> f64 {
    let per_sec = match sender.demand {
        ArrivalProcess::Endless => return f64::INFINITY,
        ArrivalProcess::Every(gap) => 1.0 / gap.as_secs_f64(),
        ArrivalProcess::Poisson { per_sec } => per_sec,
    };
    let on = sender.on_off.map_or(1.0, |(on, off)| on.as_secs_f64() / (on + off).as_secs_f64());
    per_sec * on * f64::from(overlay.message) * 8.0
}

/// The proportionally fair rate of each sender, after the hops, which have none. `None` if a
/// sender's life has more than one stretch after the warm-up.
pub(super) fn ideal_mbps(plan: &Plan, overlay: &Overlay) -> Vec<[Option<f64>; 2]> {
    let mut ideals = vec![[None; 2]; plan.flows.len() + overlay.senders.len()];
    let Ok(stretch) = Stretch::of(plan, overlay) else { return ideals };
    let Ok((rates, _)) = proportional_rates(&stretch.network) else { return ideals };
    for (&s, rate) in stretch.senders.iter().zip(rates) {
        let sender = &overlay.senders[s];
        let whole = sender.start.max(plan.measure.warmup) == stretch.from
            && sender.stop.min(plan.duration) == stretch.until;
        ideals[plan.flows.len() + s][0] = whole.then_some(rate * 1e-6);
    }
    ideals
}

#[cfg(test)]
mod tests {
    use tollway_scenario::file::Scenario;
    use tollway_scenario::run::{Options, run};
    use tollway_scenario::tables::Outputs;

    use super::*;
    use crate::{Allocations, Deviation, FlowShares, NoDeviation, Throughput};

    fn load(figure: &str, sets: &[&str]) -> Scenario {
        let path = format!("{}/../../papers/ovl/{figure}.toml", env!("CARGO_MANIFEST_DIR"));
        Scenario::load(path.as_ref(), sets).unwrap()
    }

    fn of(figure: &str) -> Vec<FlowShares> {
        Allocations::of(&load(figure, &[]).variants()[0]).unwrap().flows
    }

    fn sum(flows: &[FlowShares], section: &str, of: fn(&FlowShares) -> f64) -> f64 {
        flows.iter().filter(|flow| flow.session == section).map(of).sum()
    }

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-4, "{found}, not {expected}");
    }

    fn most(flow: &FlowShares) -> f64 {
        flow.max_throughput.unwrap()
    }

    /// The paper's senders get 1.977 and 0.992 of these (§ VI, scenario 1).
    #[test]
    fn each_group_of_the_first_scenario_may_fill_its_own_bottleneck() {
        let flows = of("two-bottlenecks");
        assert_eq!(flows.len(), 40);
        near(sum(&flows, "a", most), 2.0);
        near(sum(&flows, "c", most), 1.0);
        near(sum(&flows, "a", |flow| flow.proportional), 2.0);
        near(flows[0].proportional, 0.1);
        assert_eq!(flows[0].bottleneck.as_deref(), Some("EF"));
        assert_eq!(flows[20].bottleneck.as_deref(), Some("BD"));
    }

    /// § VI, scenario 3: 10 Mb/s in all. The paper's senders get 9.677.
    #[test]
    fn on_a_chain_the_largest_sum_and_fairness_differ() {
        let flows = of("chain");
        let long = flows.iter().find(|flow| flow.flow == "chain-af").unwrap();
        assert!(most(long) < 1e-4, "{long:?}");
        near(flows.iter().map(most).sum(), 10.0);
        near(long.proportional, 2.0 / 6.0);
        near(long.max_min, 1.0);
    }

    /// § VII: 85 % of these rates are user data, 1.496 and 0.629 Mb/s each.
    #[test]
    fn cairns_senders_may_have_what_the_papers_simulation_has() {
        let flows = of("cairn");
        let user = |name: &str| 0.85 * most(flows.iter().find(|flow| flow.flow == name).unwrap());
        for (name, paper) in [("ra-1", 1.495), ("rb-2", 0.626), ("rb-3", 0.63)] {
            assert!((user(name) / paper - 1.0).abs() < 0.01, "{name}: {}", user(name));
        }
    }

    #[test]
    fn the_narrow_link_of_thousands_holds_all_senders() {
        let scenario = load("scale", &["node.s.count=300", "node.r.count=300"]);
        let flows = Allocations::of(scenario.variants().last().unwrap()).unwrap().flows;
        assert!(flows.iter().all(|flow| flow.bottleneck.as_deref() == Some("AB")));
        near(flows.iter().map(most).sum(), 2.0);
    }

    #[test]
    fn what_shares_links_with_hops_or_pauses_has_no_ideal() {
        let why =
            |figure: &str, sets: &[&str]| Allocations::of(&load(figure, sets).variants()[0]).unwrap_err();
        assert_eq!(why("tcp-fair", &[]), NoDeviation::Undefined(Undefined::Beside));
        let pauses = ["overlay.sender.a.on=1 s", "overlay.sender.a.off=1 s"];
        assert_eq!(why("two-bottlenecks", &pauses), NoDeviation::Undefined(Undefined::Pauses));
    }

    #[test]
    fn a_run_is_held_against_both() {
        let scenario = load("two-bottlenecks", &["duration=40 s", "measure.warmup=10 s"]);
        let plan = &scenario.variants()[0].plan;
        let ideal_mbps = crate::ideal_mbps(plan);
        let senders = &ideal_mbps[plan.flows.len()..];
        near(senders[0][0].unwrap(), 0.1);
        near(senders[39][0].unwrap(), 0.05);
        let options =
            Options { outputs: Outputs::memory(), ideal_mbps: ideal_mbps.into(), ..Options::default() };
        let result = run(plan, &options).unwrap().result;
        let found = Deviation::of(plan, &result).unwrap();
        let Throughput { total_mbps, most_mbps } = found.throughput.unwrap();
        near(most_mbps, 3.0);
        assert!(total_mbps > 0.9 * 3.0 && total_mbps < 3.1, "{total_mbps}");
        assert!(found.mean() < 0.2, "{found}");
        let says = found.to_string();
        assert!(
            says.starts_with("steady state (25 to 40 s): ") && says.contains("% of the largest sum"),
            "{says}"
        );
        let rows = crate::data::summary(&result.summary, "flow");
        let share = rows.iter().find(|row| row.name == "a.1").unwrap().get("share_of_ideal");
        assert!((0.5..1.5).contains(&share), "{share}");
    }
}
