//! Random networks in which flows start and stop, judged by losses and the longest queue.

use std::fmt::Write;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::Aim;
use tollway_scenario::plan::Plan;
use tollway_scenario::tables::RunResult;

use super::draw::{SHARED, Tree, spread};
use super::{Case, queue_peaks};
use crate::data;

/// A random network under one law in which flows start and stop, as the text of a scenario file.
/// The text for a seed is the same on every machine.
///
/// One to seven links of 3 to 400 Mb/s make a line or a tree towards `r0`. Two to eight flows climb
/// it, with base round trips of 5 to 300 ms, and budgets of 0.2 to 5 for FCP's. Each has a host
/// behind 10 Gb/s and starts within the first 8 s. About half of them stop 1 to 4 s later. A queue
/// holds twice the product of its link's rate and the mean base round trip of the flows over it.
pub(super) fn starts_text(law: &str, seed: u64) -> String {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ STARTS);
    let tree = Tree::draw(&mut random, 7);
    let flows: usize = random.random_range(2..=8);
    let rates: Vec<f64> = tree.parents.iter().map(|_| tenths(spread(&mut random, 3.0, 400.0))).collect();
    let budgets = tollway_theory::aims().any(|(word, aim)| word == law && aim == Aim::Proportional);
    let mut body = String::new();
    // The sum of the round trips of the flows over each link in ms, and their number.
    let mut trips = vec![(0.0, 0_u32); rates.len()];
    for f in 1..=flows {
        let (from, to, hops) = tree.climb(&mut random);
        let rtt = tenths(spread(&mut random, 5.0, 300.0));
        let mut at = from;
        while at != to {
            trips[at - 1] = (trips[at - 1].0 + rtt, trips[at - 1].1 + 1);
            at = tree.parents[at - 1];
        }
        let start = random.random_range(0..8000_u32);
        let _ = write!(
            body,
            "\n[node.s{f}]\n[link.access{f}]\nfrom = \"s{f}\"\nto = \"r{from}\"\nrate = \"10 Gbps\"\ndelay = \"{:.2} ms\"\n\
             [flow.f{f}]\nfrom = \"s{f}\"\nto = \"r{to}\"\nlaw = \"{law}\"\nstart = \"{start} ms\"\n",
            rtt / 2.0 - 0.1 * hops as f64,
        );
        if random.random_bool(0.5) {
            let _ = writeln!(body, "stop = \"{} ms\"", start + random.random_range(1000..4000_u32));
        }
        let budget = spread(&mut random, 0.2, 5.0);
        if budgets {
            let _ = writeln!(body, "{law}.budget = {budget:.2}");
        }
    }
    let mut text = format!(
        "# Drawn by `tollway verify --starts --law {law} --random 1 --seed {seed}`: a {} of {}, data flowing towards r0.\n\
         name = \"starts-{law}-{seed}\"\ntitle = \"Random network {seed}, flows starting and stopping\"\nduration = \"12 s\"\nseed = {seed}\n\n\
         [measure]\ninterval = \"100 ms\"\n\n[node.r0]\n",
        tree.shape(),
        rates.len(),
    );
    for (i, ((rate, parent), (sum, count))) in rates.iter().zip(&tree.parents).zip(trips).enumerate() {
        let link = i + 1;
        let _ = write!(
            text,
            "\n[node.r{link}]\n[link.{SHARED}{link}]\nfrom = \"r{link}\"\nto = \"r{parent}\"\nrate = \"{rate} Mbps\"\ndelay = \"0.1 ms\"\nlaw = \"{law}\"\n",
        );
        if count > 0 {
            let bdp = rate * 1e3 / 8.0 * sum / f64::from(count);
            let _ = writeln!(text, "limit = \"{:.0} B\" # 2 BDP", 2.0 * bdp);
        }
    }
    text + &body
}

/// Judges the run of a network of [`starts_text`].
pub(super) fn judge(seed: u64, plan: &Plan, result: &RunResult) -> Case {
    let shared = |name: &str| name.starts_with(SHARED);
    let (peak_queue_ms, _) = queue_peaks(plan, result);
    let links = data::summary(&result.link_summary, "link");
    let peak = |row: &&data::FlowInfo| 2.0 * row.get("queue_max_bytes") / row.get("limit_bytes");
    let limited = links.iter().filter(|row| shared(&row.name) && row.get("limit_bytes") > 0.0);
    let worst = limited.max_by(|a, b| peak(a).total_cmp(&peak(b)));
    let bdp = worst.map_or(0.0, |row| peak(&row));
    let peak_link = worst.map_or_else(String::new, |row| row.name.clone());
    let lost = super::lost(result);
    let mut problems = Vec::new();
    if lost > MOST_LOST {
        problems.push(format!("{:.2} % of packets are lost", 100.0 * lost));
    }
    if bdp > MOST_QUEUE {
        problems.push(format!("link {peak_link} has a queue of {bdp:.1} BDP"));
    }
    Case {
        seed,
        links: super::shared_links(plan),
        flows: plan.flows.len(),
        rest: None,
        changes: None,
        lost,
        peak_queue_ms,
        peak_link,
        peak_queue_bdp: Some(bdp),
        problems,
        remarks: Vec::new(),
    }
}

fn tenths(number: f64) -> f64 {
    libm::round(10.0 * number) / 10.0
}

/// Upper bound on a network's loss, as a fraction of its packets.
pub(super) const MOST_LOST: f64 = 1e-3;
/// Upper bound on a link's queue, in products of its rate and the mean round trip.
const MOST_QUEUE: f64 = 1.0;
/// Mixed with the seed, so that networks differ from those for steady states.
const STARTS: u64 = 0x7374_6172_7473_2121;

#[cfg(test)]
mod tests {
    use tollway_scenario::file::Scenario;

    use super::super::{Kind, Verify};
    use super::*;

    #[test]
    fn every_seed_is_a_scenario() {
        for (seed, (law, _)) in (0..300).flat_map(|seed| tollway_theory::aims().map(move |aim| (seed, aim))) {
            let text = starts_text(law, seed);
            if let Err(error) = Scenario::parse::<&str>("drawn.toml", &text, &[]) {
                panic!("{law}, {seed}: {error}\n{text}");
            }
        }
    }

    /// With equation 2 alone, the flow that starts over idle links beside priced ones overloads
    /// them.
    #[test]
    fn losses_and_queues_are_seen() {
        let verify = Verify { kind: Kind::Starts, ..Verify::law("fcp", 1, SEED, 1).unwrap() };
        let case = verify.run(&|_| true).unwrap().cases.remove(0);
        assert!(case.lost <= MOST_LOST && case.rest.is_none(), "{case:?}");
        let text = verify
            .files(SEED)
            .remove(0)
            .1
            .replace("law = \"fcp\"\nlimit", "law = \"fcp\"\nfcp.bound = false\nlimit");
        let flooded = verify.judge(SEED, &text, &|_| true).unwrap();
        assert!(flooded.lost > 5.0 * MOST_LOST && flooded.peak_queue_bdp > Some(1.9), "{flooded:?}");
        let problems = flooded.problems.join("; ");
        assert!(problems.contains("of packets are lost; link up") && problems.contains(" BDP"), "{problems}");
    }

    const SEED: u64 = 4;
}
