//! Random networks, run and held against the allocation that a law aims at.
//!
//! A network is drawn from a seed, written as a scenario file, and run as any other file is; so a case that fails can be kept and looked at with
//! `tollway run`. What must hold of steady states is in [`Bounds`], by what the law aims at; networks in which flows start and stop are judged by losses and queues.

mod draw;
mod remarks;
mod starts;
mod verdict;

use rayon::prelude::*;
use serde::Deserialize;
use tollway_law::toll::Content;
use tollway_scenario::file::Scenario;
use tollway_scenario::plan::{Link, Plan};
use tollway_scenario::run::{self, RunError};
use tollway_scenario::tables::{Outputs, RunResult};
use tollway_theory::{Aim, aims};

use crate::data::{self, Window};
use crate::deviation::{Deviation, FlowDeviation, NoDeviation};
use crate::ideal::{Steady, steady};
use crate::seeds::{NoSeeds, seeds};

use draw::scenario_text;
use starts::starts_text;

/// What to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    /// The law of all senders and links.
    pub law: &'static str,
    /// What it aims at.
    pub aim: Aim,
    /// How many networks.
    pub networks: u64,
    /// The seed of the first; the next has the next number, and so on.
    pub seed: u64,
    /// How many run at once; zero means as many as there are processors.
    pub jobs: usize,
    /// The judgement of each.
    pub kind: Kind,
}

/// Judgements of random networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Steady states, against theory.
    Steady,
    /// Losses and queues while flows start and stop.
    Starts,
}

/// The same, as an experiment file asks for it in `[[random]]`. Claims find what came of it among the `extra` numbers of the
/// experiment's first run, named `random.LAW.…`, or `starts.LAW.…` with `starts`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RandomNetworks {
    /// The law of all senders and links.
    pub law: String,
    /// How many networks.
    pub networks: u64,
    /// The seed of the first.
    pub seed: u64,
    /// Seeds of further networks: those of other draws that failed once.
    #[serde(default)]
    pub also: Vec<u64>,
    /// Flows start and stop, and losses and queues are judged in place of steady states.
    #[serde(default)]
    pub starts: bool,
}

/// The verdicts on all networks.
#[derive(Clone, Debug)]
pub struct Verified {
    /// What was asked for.
    pub verify: Verify,
    /// One a network, by seed; fewer if it was interrupted.
    pub cases: Vec<Case>,
}

/// One network's verdict.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed that it comes from.
    pub seed: u64,
    /// How many links flows share.
    pub links: usize,
    /// How many flows.
    pub flows: usize,
    /// Its steady state; `None` where starts are judged.
    pub rest: Option<Rest>,
    /// Packets dropped in the whole run, as a part of those sent.
    pub lost: f64,
    /// The longest queue of a link in the whole run, in ms of its rate.
    pub peak_queue_ms: f64,
    /// The link of the longest queue.
    pub peak_link: String,
    /// The longest in products of a link's rate and the mean base round trip over it; `None` in steady states.
    pub peak_queue_bdp: Option<f64>,
    /// What does not hold, in words; empty if all does.
    pub problems: Vec<String>,
    /// What of the reasons known for that is seen in the run, in words; empty if all holds.
    pub remarks: Vec<String>,
}

/// A network's steady state against theory.
#[derive(Clone, Debug)]
pub struct Rest {
    /// How many flows are judged; the others' shares are too small.
    pub judged: usize,
    /// How far the worst flow lies from what it should have, as a part.
    pub deviation: f64,
    /// Which one it is.
    pub flow: String,
    /// The least utilisation among links that should be full; 1 if there is none.
    pub utilisation: f64,
    /// Packets dropped in the steady state.
    pub drops: f64,
    /// The longest mean queue of a link, in ms of its rate.
    pub queue_ms: f64,
    /// By what part Σ price · capacity over the links differs from Σ budget over the flows: FCP's budget identity.
    pub balance: Option<f64>,
}

/// Why nothing could be verified.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum VerifyError {
    /// No allocation is known for the law.
    #[error("no allocation is known that `{law}` aims at")]
    #[diagnostic(help("laws that can be verified: {}", laws()))]
    Law {
        /// What was asked for.
        law: String,
    },
    /// There are not so many networks.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Seeds(#[from] NoSeeds),
    /// A network's run failed.
    #[error("network {seed}: {error}")]
    Run {
        /// The network's seed.
        seed: u64,
        /// Why.
        error: RunError,
    },
    /// A network could not be held against theory.
    #[error("network {seed}: {why}")]
    Deviation {
        /// The network's seed.
        seed: u64,
        /// Why.
        why: NoDeviation,
    },
    /// A network's file is wrong, which is a bug in how it is drawn.
    #[error("network {seed} was drawn wrongly, which is a bug in Tollway: {message}")]
    File {
        /// The network's seed.
        seed: u64,
        /// What was found.
        message: String,
    },
    /// No threads could be started.
    #[error("cannot start threads: {message}")]
    Threads {
        /// What the system said.
        message: String,
    },
}

impl Verify {
    /// Verifies `law`, a word of scenario files.
    ///
    /// # Errors
    /// [`VerifyError::Law`]: it aims at nothing known. [`VerifyError::Seeds`].
    pub fn law(law: &str, networks: u64, seed: u64, jobs: usize) -> Result<Verify, VerifyError> {
        seeds(seed, networks)?;
        match aims().find(|(name, _)| *name == law) {
            Some((law, aim)) => Ok(Verify { law, aim, networks, seed, jobs, kind: Kind::Steady }),
            None => Err(VerifyError::Law { law: law.into() }),
        }
    }

    /// Draws, runs and judges every network. `progress` is told how many are done, and ends it by answering false.
    ///
    /// # Errors
    /// A run fails or cannot be judged.
    pub fn run(&self, progress: &(dyn Fn(u64) -> bool + Sync)) -> Result<Verified, VerifyError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.jobs.min(usize::try_from(self.networks).unwrap_or(usize::MAX)))
            .build()
            .map_err(|e| VerifyError::Threads { message: e.to_string() })?;
        let done = std::sync::atomic::AtomicU64::new(0);
        let go_on = |n| progress(n);
        let one = |i: u64| {
            if !go_on(done.load(std::sync::atomic::Ordering::Relaxed)) {
                return None;
            }
            let seed = self.seed + i;
            let goes_on = |_| go_on(done.load(std::sync::atomic::Ordering::Relaxed));
            let case = self.judge(seed, &self.text(seed), &goes_on);
            // Half a run shows nothing.
            go_on(1 + done.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).then_some(case)
        };
        // By index: the order of the cases is that of their seeds, whoever is first.
        let cases: Vec<Option<Result<Case, VerifyError>>> =
            pool.install(|| (0..self.networks).into_par_iter().map(one).collect());
        let cases = cases.into_iter().flatten().collect::<Result<Vec<Case>, VerifyError>>()?;
        Ok(Verified { verify: *self, cases })
    }

    /// The network drawn from `seed`, as the text of a scenario file.
    pub fn text(&self, seed: u64) -> String {
        match self.kind {
            Kind::Steady => scenario_text(self.law, seed),
            Kind::Starts => starts_text(self.law, seed),
        }
    }

    /// Runs the network in `text`, drawn from `seed`, and judges it.
    fn judge(
        &self,
        seed: u64,
        text: &str,
        goes_on: &(dyn Fn(f64) -> bool + Sync),
    ) -> Result<Case, VerifyError> {
        let scenario = Scenario::parse::<&str>(&format!("{seed}.toml"), text, &[])
            .map_err(|e| VerifyError::File { seed, message: format!("{e}\n{text}") })?;
        let plan = &scenario.variants()[0].plan;
        let progress = Some(goes_on);
        let options = run::Options { outputs: Outputs::memory(), progress, ..run::Options::default() };
        let result = run::run(plan, &options).map_err(|error| VerifyError::Run { seed, error })?.result;
        match self.kind {
            Kind::Steady => judge_rest(self.aim, seed, plan, &result),
            Kind::Starts => Ok(starts::judge(seed, plan, &result)),
        }
    }
}

/// Holds the steady state of a run against theory.
fn judge_rest(aim: Aim, seed: u64, plan: &Plan, result: &RunResult) -> Result<Case, VerifyError> {
    let unjudged = |why| VerifyError::Deviation { seed, why };
    let deviation = Deviation::of(plan, result).map_err(unjudged)?;
    let steady = steady(plan).map_err(|e| unjudged(e.into()))?;
    let bounds = Bounds::of(aim);
    let (.., allocation) = crate::deviation::aim(plan, &steady).map_err(unjudged)?;

    let window = Window { from: deviation.from_s, until: deviation.until_s };
    let loads = steady.network.loads(&allocation.rates);
    let mut utilisation = (1.0, String::new());
    let mut drops = (0.0, String::new());
    let mut queue_ms = (0.0, String::new());
    for (i, link) in plan.links.iter().enumerate() {
        let mean = |column: &str| mean_of(result, &link.name, column, window);
        if loads[i] >= bounds.full * steady.network.capacities[i] && mean("utilisation") < utilisation.0 {
            utilisation = (mean("utilisation"), link.name.clone());
        }
        let dropped: f64 = data::series(&result.links, "drops")
            .iter()
            .filter(|series| series.name == link.name)
            .flat_map(|series| series.within(window).map(|(_, drops)| drops).collect::<Vec<_>>())
            .sum();
        if dropped > drops.0 {
            drops = (dropped, link.name.clone());
        }
        let waits = mean("queue_mean_bytes") * 8e3 / link.rate.bps();
        if waits > queue_ms.0 {
            queue_ms = (waits, link.name.clone());
        }
    }
    let balance = (aim == Aim::Proportional).then(|| balance(plan, &steady, result, window));
    let worst = deviation.worst();
    let mut problems = Vec::new();
    if !deviation.aimed || deviation.aim != aim {
        problems.push("its flows do not aim at what the law does".to_owned());
    }
    if worst.deviation.is_nan() || worst.deviation.abs() > bounds.tolerance {
        let FlowDeviation { flow, rate_mbps, ideal_mbps, .. } = worst;
        problems.push(format!("flow {flow} has {rate_mbps:.3} Mb/s, not {ideal_mbps:.3}"));
    }
    if utilisation.0 < bounds.least_used {
        problems.push(format!("link {} is used to {:.1} % only", utilisation.1, 100.0 * utilisation.0));
    }
    if drops.0 > 0.0 {
        problems.push(format!("link {} drops {} packets", drops.1, drops.0));
    }
    if queue_ms.0 > bounds.queue_ms {
        problems.push(format!("link {} has a mean queue of {:.1} ms", queue_ms.1, queue_ms.0));
    }
    if let Some(balance) = balance.filter(|b| b.is_nan() || b.abs() > bounds.tolerance) {
        problems.push(format!("links earn {:+.1} % more than what all flows may spend", 100.0 * balance));
    }
    let remarks = match problems.is_empty() {
        true => Vec::new(),
        false => remarks::remarks(plan, result, &steady, &allocation.rates, &deviation),
    };
    let (peak_queue_ms, peak_link) = queue_peaks(plan, result);
    Ok(Case {
        seed,
        links: shared_links(plan),
        flows: plan.flows.len(),
        rest: Some(Rest {
            judged: deviation.flows.len(),
            deviation: worst.deviation,
            flow: worst.flow.clone(),
            utilisation: utilisation.0,
            drops: drops.0,
            queue_ms: queue_ms.0,
            balance,
        }),
        lost: lost(result),
        peak_queue_ms,
        peak_link,
        peak_queue_bdp: None,
        problems,
        remarks,
    })
}

/// Links that flows share, each counted once.
fn shared_links(plan: &Plan) -> usize {
    plan.links.iter().filter(|link| link.name.starts_with(draw::SHARED) && link.twin.is_some()).count() / 2
}

/// Packets dropped in the whole run, as a part of the full packets that were sent.
fn lost(result: &RunResult) -> f64 {
    let sum =
        |batches, key, column| -> f64 { data::summary(batches, key).iter().map(|row| row.get(column)).sum() };
    let sent = sum(&result.summary, "flow", "sent_bytes") / PACKET;
    sum(&result.link_summary, "link", "drops") / sent.max(1.0)
}

/// The longest queue of a shared link in the whole run, in ms of its rate, and the link.
fn queue_peaks(plan: &Plan, result: &RunResult) -> (f64, String) {
    let rows = data::summary(&result.link_summary, "link");
    let shared = plan.links.iter().filter(|link| link.name.starts_with(draw::SHARED));
    let peak = |link: &Link| {
        let row = rows.iter().find(|row| row.name == link.name);
        row.map_or(0.0, |row| row.get("queue_max_bytes") * 8e3 / link.rate.bps())
    };
    let longest = shared.max_by(|a, b| peak(a).total_cmp(&peak(b)));
    longest.map_or((0.0, String::new()), |link| (peak(link), link.name.clone()))
}

/// Σ price · capacity, over Σ budget, less one. What no link asks anything for is not spent, and not to be earned either.
fn balance(plan: &Plan, steady: &Steady, result: &RunResult, window: Window) -> f64 {
    let links = plan.links.iter().filter(|link| link.law.descriptor().gives == Some(Content::Price));
    let earned: f64 = links
        .map(|link| mean_of(result, &link.name, "price", window) * 1e-6 * link.capacity.bytes_per_sec())
        .filter(|earned| earned.is_finite())
        .sum();
    let budgets: f64 = steady.owners.iter().map(|owner| owner.budget).sum();
    earned / budgets - 1.0
}

fn mean_of(result: &RunResult, link: &str, column: &str, window: Window) -> f64 {
    let series = data::series(&result.links, column);
    series.iter().find(|series| series.name == link).map_or(f64::NAN, |series| series.mean(window))
}

fn laws() -> String {
    aims().map(|(law, _)| format!("`{law}`")).collect::<Vec<_>>().join(", ")
}

/// What must hold of a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// How far a flow may lie outside, as a part; and how far what links earn from what flows spend, where there are prices.
    pub tolerance: f64,
    /// Load, as a part of the capacity, from which a link should be full.
    pub full: f64,
    /// And how far it must be used then.
    pub least_used: f64,
    /// The longest mean queue that counts as small.
    pub queue_ms: f64,
}

impl Bounds {
    /// Those of laws that aim at `aim`. XCP's links may stall at α ∕ (α + γ) = 0.8 of their capacity (checked against
    /// ns-2.35); those that state a rate or a price are full where theory's are.
    pub const fn of(aim: Aim) -> Bounds {
        match aim {
            Aim::XcpEquilibrium => Bounds { tolerance: 0.05, full: 0.8, least_used: 0.78, queue_ms: 10.0 },
            Aim::Proportional | Aim::MaxMin | Aim::SessionFair => {
                Bounds { tolerance: 0.03, full: 0.999, least_used: 0.97, queue_ms: 10.0 }
            }
        }
    }
}

/// A full packet, bytes.
const PACKET: f64 = 1500.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(aim: Aim, seed: u64, text: &str) -> Result<Case, VerifyError> {
        let law = aims().find(|(_, aims)| *aims == aim).unwrap().0;
        Verify::law(law, 1, seed, 1)?.judge(seed, text, &|_| true)
    }

    #[test]
    fn sees_what_is_wrong() {
        let text = scenario_text("xcp", 1);
        assert_eq!(judge(Aim::XcpEquilibrium, 1, &text).unwrap().problems, [""; 0]);
        // Routers that believe in half of every link leave half of it unused.
        let plan = Scenario::parse::<&str>("", &text, &[]).unwrap();
        let mut lying = text.clone();
        for link in plan.variants()[0].plan.links.iter().filter(|link| link.name.starts_with(draw::SHARED)) {
            let at = format!("[link.{}]\n", link.name);
            let half = link.rate.mbps() / 2.0;
            lying = lying.replace(&at, &format!("{at}capacity = \"{half} Mbps\"\n"));
        }
        let problems = judge(Aim::XcpEquilibrium, 1, &lying).unwrap().problems.join("; ");
        assert!(problems.contains("flow") && problems.contains("is used to"), "{problems}");
        // Senders that are no XCP's aim at something else, and fill the queues.
        let other = text
            .replace("xcp = { whole-window = true, pacing = true }\n", "")
            .replace("packets\"\nlaw = \"xcp\"", "packets\"\nlaw = \"drop-tail\"")
            .replace("law = \"xcp\"", "law = \"newreno\"");
        let problems = judge(Aim::XcpEquilibrium, 1, &other).unwrap().problems.join("; ");
        assert!(problems.contains("do not aim") && problems.contains("queue"), "{problems}");
    }

    /// What each of these networks has is in docs/notes/theory.md.
    #[test]
    fn says_what_may_be_why() {
        let remarks_on = |aim, seed, set: &str| {
            let law = aims().find(|(_, aims)| *aims == aim).unwrap().0;
            let law_line = format!("packets\"\nlaw = \"{law}\"\n");
            let text = scenario_text(law, seed).replace(&law_line, &format!("{law_line}{set}"));
            let case = judge(aim, seed, &text).unwrap();
            assert_eq!(case.remarks.is_empty(), case.problems.is_empty(), "{case:?}");
            case.remarks.join("; ")
        };
        let remarks = |aim, seed| remarks_on(aim, seed, "");
        let found = remarks_on(Aim::Proportional, 1033, "fcp.bound = false\n");
        assert!(found.contains("price of link up3 still rises"), "{found}");
        let found = remarks(Aim::Proportional, 232);
        assert!(found.contains("price of link up3 still falls"), "{found}");
        // In two minutes the link is used to 97.05 % (by equation 2 alone), and that of RCP to 98.4 %.
        let found = remarks(Aim::Proportional, 1028);
        assert!(found.contains("link up2 keeps back 2.8 %") && !found.contains("still"), "{found}");
        let found = remarks(Aim::MaxMin, 31_337_433);
        assert!(found.contains("link up2 keeps back 1.6 %"), "{found}");
        let found = remarks(Aim::XcpEquilibrium, 31_337_484);
        assert!(found.contains("flow f8 should have a window of 4.0 packets"), "{found}");
        assert_eq!(remarks(Aim::Proportional, 1), "");
    }

    /// The theory of these two goes by the lengths of links' intervals, and by each link that a flow has to itself.
    #[test]
    fn xcp_over_links_of_different_round_trips() {
        for seed in [870, 700_560] {
            let case = judge(Aim::XcpEquilibrium, seed, &scenario_text("xcp", seed)).unwrap();
            assert!(case.rest.as_ref().unwrap().deviation.abs() < 0.02, "{case:?}");
        }
    }

    #[test]
    fn networks_end_where_seeds_do() {
        let last = i64::MAX as u64;
        let verified = Verify::law("xcp", 1, last, 1).unwrap().run(&|_| true).unwrap();
        assert_eq!(verified.cases[0].seed, last);
        assert!(matches!(Verify::law("xcp", 2, last, 1), Err(VerifyError::Seeds(_))));
    }

    #[test]
    fn laws_that_are_unknown_are_answered_with_those_there_are() {
        let error = Verify::law("cubic", 1, 1, 1).unwrap_err();
        let help = miette::Diagnostic::help(&error).unwrap().to_string();
        assert!(help.contains("`xcp`"), "{help}");
    }
}
