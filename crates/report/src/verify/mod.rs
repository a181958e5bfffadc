//! Verification of laws on random networks, against the allocation that the law aims at.
//!
//! A network is drawn from a seed, written as a scenario file, and run like any other file. So a
//! failing case can be kept and examined with `tollway run`. The bounds on steady states are in
//! [`Bounds`], for each aim of a law. Beside it a path is drawn on which flows and the link's rate
//! change. Networks in which flows start and stop are judged by losses and queues.

mod changes;
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

pub use changes::Changes;

use changes::{Expected, Path};
use draw::scenario_text;
use starts::starts_text;

/// The settings of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    /// The law of all senders and links.
    pub law: &'static str,
    /// The aim of the law.
    pub aim: Aim,
    /// The number of networks.
    pub networks: u64,
    /// The seed of the first network; each further one has the next number.
    pub seed: u64,
    /// Number of networks that run at once; 0 means one per processor.
    pub jobs: usize,
    /// The kind of judgement.
    pub kind: Kind,
}

/// The kinds of judgement of random networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The steady state, compared with theory, and the law's reaction to changes.
    Steady,
    /// Losses and queues, while flows start and stop.
    Starts,
}

/// A verification in a `[[random]]` table of an experiment file. Claims find its results among the
/// `extra` numbers of the experiment's first run, with names `random.LAW.…`, or `starts.LAW.…` with
/// `starts`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RandomNetworks {
    /// The law of all senders and links.
    pub law: String,
    /// The number of networks.
    pub networks: u64,
    /// The seed of the first network.
    pub seed: u64,
    /// Seeds of further networks, such as some that failed earlier.
    #[serde(default)]
    pub also: Vec<u64>,
    /// True for flows that start and stop, judged by losses and queues instead of steady states.
    #[serde(default)]
    pub starts: bool,
}

/// The verdicts on all networks.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The settings.
    pub verify: Verify,
    /// One verdict per network, by seed; fewer after an interruption.
    pub cases: Vec<Case>,
}

/// The verdict on one network.
#[derive(Clone, Debug)]
pub struct Case {
    /// The network's seed.
    pub seed: u64,
    /// Number of shared links.
    pub links: usize,
    /// Number of flows.
    pub flows: usize,
    /// The steady state; `None` if starts are judged.
    pub rest: Option<Rest>,
    /// The effects of changes of flows and of the rate; `None` for starts, and laws without bounds.
    pub changes: Option<Changes>,
    /// Packets dropped in the whole run, as a fraction of those sent.
    pub lost: f64,
    /// The longest queue of a link in the whole run, in ms at its rate.
    pub peak_queue_ms: f64,
    /// The link of the longest queue.
    pub peak_link: String,
    /// The longest queue in products of a link's rate and the mean base round trip over it; `None`
    /// for steady states.
    pub peak_queue_bdp: Option<f64>,
    /// The failed requirements, as text; empty if all are met.
    pub problems: Vec<String>,
    /// The known reasons for failures that are seen in the run, as text; empty if all requirements
    /// are met.
    pub remarks: Vec<String>,
}

/// The steady state of a network beside theory.
#[derive(Clone, Debug)]
pub struct Rest {
    /// Number of judged flows; the shares of the others are too small.
    pub judged: usize,
    /// The relative deviation of the worst flow from its theoretical rate.
    pub deviation: f64,
    /// The worst flow.
    pub flow: String,
    /// The least utilisation of the links that should be full; 1 if there are none.
    pub utilisation: f64,
    /// Packets dropped in the steady state.
    pub drops: f64,
    /// The longest mean queue of a link, in ms at its rate.
    pub queue_ms: f64,
    /// FCP's budget identity: the relative difference of Σ price · capacity over the links from Σ
    /// budget over the flows.
    pub balance: Option<f64>,
}

/// An error of a verification.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum VerifyError {
    /// The law aims at no known allocation.
    #[error("no target allocation is known for the law `{law}`")]
    #[diagnostic(help("laws that can be verified: {}", laws()))]
    Law {
        /// The given law.
        law: String,
    },
    /// There are not enough seeds for the networks.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Seeds(#[from] NoSeeds),
    /// A network's run failed.
    #[error("network {seed}: {error}")]
    Run {
        /// The network's seed.
        seed: u64,
        /// The run's error.
        error: RunError,
    },
    /// A network could not be compared with theory.
    #[error("network {seed}: {why}")]
    Deviation {
        /// The network's seed.
        seed: u64,
        /// The reason.
        why: NoDeviation,
    },
    /// A network's file has a mistake, which is a bug in the generator.
    #[error("network {seed} is invalid, which is a bug in Tollway: {message}")]
    File {
        /// The network's seed.
        seed: u64,
        /// The mistake.
        message: String,
    },
    /// No threads could be started.
    #[error("cannot start threads: {message}")]
    Threads {
        /// The system's message.
        message: String,
    },
}

impl Verify {
    /// The verification of `law`, a law's name in scenario files.
    ///
    /// # Errors
    /// [`VerifyError::Law`] if the law has no known aim, and [`VerifyError::Seeds`].
    pub fn law(law: &str, networks: u64, seed: u64, jobs: usize) -> Result<Verify, VerifyError> {
        seeds(seed, networks)?;
        match aims().find(|(name, _)| *name == law) {
            Some((law, aim)) => Ok(Verify { law, aim, networks, seed, jobs, kind: Kind::Steady }),
            None => Err(VerifyError::Law { law: law.into() }),
        }
    }

    /// Draws, runs and judges every network. `progress` receives the number of networks done, and
    /// ends the verification by returning false.
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
            let case = self.case(seed, &goes_on);
            // A partial run cannot be judged.
            go_on(1 + done.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).then_some(case)
        };
        // By index: the cases are in the order of their seeds, whatever their order of completion.
        let cases: Vec<Option<Result<Case, VerifyError>>> =
            pool.install(|| (0..self.networks).into_par_iter().map(one).collect());
        let cases = cases.into_iter().flatten().collect::<Result<Vec<Case>, VerifyError>>()?;
        Ok(Verified { verify: *self, cases })
    }

    /// The names and texts of the scenario files drawn from `seed`, the network's first.
    pub fn files(&self, seed: u64) -> Vec<(String, String)> {
        let network = format!("{seed}.toml");
        if self.kind == Kind::Starts {
            return vec![(network, starts_text(self.law, seed))];
        }
        let mut files = vec![(network, scenario_text(self.law, seed))];
        if Expected::of(self.aim, f64::INFINITY).is_some() {
            files.push((format!("{seed}-changes.toml"), Path::draw(seed).text(self.law, seed)));
        }
        files
    }

    /// Runs and judges what is drawn from `seed`.
    fn case(&self, seed: u64, goes_on: Going<'_>) -> Result<Case, VerifyError> {
        let files = self.files(seed);
        let mut case = self.judge(seed, &files[0].1, goes_on)?;
        if let Some((_, text)) = files.get(1) {
            let changes = follow(seed, text, goes_on)?;
            case.problems.extend(changes.problems(self.aim, &Path::draw(seed)));
            case.changes = Some(changes);
        }
        Ok(case)
    }

    /// Runs the network in `text`, drawn from `seed`, and judges it.
    fn judge(&self, seed: u64, text: &str, goes_on: Going<'_>) -> Result<Case, VerifyError> {
        let (plan, result) = run(seed, text, goes_on)?;
        match self.kind {
            Kind::Steady => judge_rest(self.aim, seed, &plan, &result),
            Kind::Starts => Ok(starts::judge(seed, &plan, &result)),
        }
    }
}

/// Receives the progress of a run, and ends it by returning false.
type Going<'a> = &'a (dyn Fn(f64) -> bool + Sync);

/// Runs the path of changes in `text`, drawn from `seed`.
fn follow(seed: u64, text: &str, goes_on: Going<'_>) -> Result<Changes, VerifyError> {
    let (_, result) = run(seed, text, goes_on)?;
    Ok(Path::draw(seed).follow(&result))
}

/// Runs the scenario in `text`, drawn from `seed`.
fn run(seed: u64, text: &str, goes_on: Going<'_>) -> Result<(Plan, RunResult), VerifyError> {
    let scenario = Scenario::parse::<&str>(&format!("{seed}.toml"), text, &[])
        .map_err(|e| VerifyError::File { seed, message: format!("{e}\n{text}") })?;
    let plan = scenario.variants()[0].plan.clone();
    let options =
        run::Options { outputs: Outputs::memory(), progress: Some(goes_on), ..run::Options::default() };
    let result = run::run(&plan, &options).map_err(|error| VerifyError::Run { seed, error })?.result;
    Ok((plan, result))
}

/// Compares the steady state of a run with theory.
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
            utilisation = (mean("utilisation"), link.name.to_string());
        }
        let dropped: f64 = data::series(&result.links, "drops")
            .iter()
            .filter(|series| series.name == link.name)
            .flat_map(|series| series.within(window).map(|(_, drops)| drops).collect::<Vec<_>>())
            .sum();
        if dropped > drops.0 {
            drops = (dropped, link.name.to_string());
        }
        let waits = mean("queue_mean_ms");
        if waits > queue_ms.0 {
            queue_ms = (waits, link.name.to_string());
        }
    }
    let balance = (aim == Aim::Proportional).then(|| balance(plan, &steady, result, window));
    let worst = deviation.worst();
    let mut problems = Vec::new();
    if !deviation.aimed || deviation.aim != aim {
        problems.push("its flows do not have the aim of the law".to_owned());
    }
    if worst.deviation.is_nan() || worst.deviation.abs() > bounds.tolerance {
        let FlowDeviation { flow, rate_mbps, ideal_mbps, .. } = worst;
        problems.push(format!("flow {flow} has {rate_mbps:.3} Mb/s, not {ideal_mbps:.3}"));
    }
    if utilisation.0 < bounds.least_used {
        problems.push(format!("link {} is used only to {:.1} %", utilisation.1, 100.0 * utilisation.0));
    }
    if drops.0 > 0.0 {
        problems.push(format!("link {} drops {} packets", drops.1, drops.0));
    }
    if queue_ms.0 > bounds.queue_ms {
        problems.push(format!("link {} has a mean queue of {:.1} ms", queue_ms.1, queue_ms.0));
    }
    if let Some(balance) = balance.filter(|b| b.is_nan() || b.abs() > bounds.tolerance) {
        problems.push(format!("links earn {:+.1} % more than the flows' budgets", 100.0 * balance));
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
        changes: None,
        lost: lost(result),
        peak_queue_ms,
        peak_link,
        peak_queue_bdp: None,
        problems,
        remarks,
    })
}

/// Number of shared links, without their reverse directions.
fn shared_links(plan: &Plan) -> usize {
    plan.links.iter().filter(|link| link.name.starts_with(draw::SHARED) && link.twin.is_some()).count() / 2
}

/// Packets dropped in the whole run, as a fraction of the full packets sent.
fn lost(result: &RunResult) -> f64 {
    let sum = |batches, key, column| -> f64 {
        data::summary(batches, key).iter().map(|row| row.whole(column)).sum()
    };
    let sent = sum(&result.summary, "flow", "sent_bytes") / PACKET;
    sum(&result.link_summary, "link", "drops") / sent.max(1.0)
}

/// The longest queue of a shared link in the whole run, in ms at its rate, with the link.
fn queue_peaks(plan: &Plan, result: &RunResult) -> (f64, String) {
    let rows = data::summary(&result.link_summary, "link");
    let shared = plan.links.iter().filter(|link| link.name.starts_with(draw::SHARED));
    let peak = |link: &Link| {
        let row = rows.iter().find(|row| row.name == link.name);
        row.map_or(0.0, |row| row.get("queue_max_bytes") * 8e3 / link.rate.bps())
    };
    let longest = shared.max_by(|a, b| peak(a).total_cmp(&peak(b)));
    longest.map_or((0.0, String::new()), |link| (peak(link), link.name.to_string()))
}

/// Σ price · capacity over Σ budget, minus one. Links without a finite mean price count as 0.
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

/// The requirements on a network's steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Upper bound on the relative deviation of a flow; with prices, also on that of links' income
    /// from flows' spending.
    pub tolerance: f64,
    /// Load from which a link should be full, as a fraction of its capacity.
    pub full: f64,
    /// Least utilisation of such a link.
    pub least_used: f64,
    /// Upper bound on a mean queue, in ms.
    pub queue_ms: f64,
}

impl Bounds {
    /// The bounds for laws that aim at `aim`. XCP's links may stall at α ∕ (α + γ) = 0.8 of their
    /// capacity (checked against ns-2.35). Links that state a rate or a price are full where the
    /// theory's are.
    pub const fn of(aim: Aim) -> Bounds {
        match aim {
            Aim::XcpEquilibrium => Bounds { tolerance: 0.05, full: 0.8, least_used: 0.78, queue_ms: 10.0 },
            Aim::Proportional | Aim::MaxMin | Aim::SessionFair => {
                Bounds { tolerance: 0.03, full: 0.999, least_used: 0.97, queue_ms: 10.0 }
            }
        }
    }
}

/// A full packet, in bytes.
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
        // Routers that assume half of every link's capacity leave the other half unused.
        let plan = Scenario::parse::<&str>("", &text, &[]).unwrap();
        let mut lying = text.clone();
        for link in plan.variants()[0].plan.links.iter().filter(|link| link.name.starts_with(draw::SHARED)) {
            let at = format!("[link.{}]\n", link.name);
            let half = link.rate.mbps() / 2.0;
            lying = lying.replace(&at, &format!("{at}capacity = \"{half} Mbps\"\n"));
        }
        let problems = judge(Aim::XcpEquilibrium, 1, &lying).unwrap().problems.join("; ");
        assert!(problems.contains("flow") && problems.contains("is used only to"), "{problems}");
        // Senders of another law aim at another allocation, and fill the queues.
        let other = text
            .replace("packets\"\nlaw = \"xcp\"", "packets\"\nlaw = \"drop-tail\"")
            .replace("law = \"xcp\"", "law = \"newreno\"");
        let problems = judge(Aim::XcpEquilibrium, 1, &other).unwrap().problems.join("; ");
        assert!(problems.contains("do not have the aim") && problems.contains("queue"), "{problems}");
    }

    #[test]
    fn wrong_gains_show_in_what_follows_a_change() {
        let found = |aim, keys: &str| {
            let law = aims().find(|(_, aims)| *aims == aim).unwrap().0;
            let line = format!("law = \"{law}\"\n\n");
            let text =
                Path::draw(SEED).text(law, SEED).replacen(&line, &format!("law = \"{law}\"\n{keys}\n\n"), 1);
            follow(SEED, &text, &|_| true).unwrap().problems(aim, &Path::draw(SEED)).join("; ")
        };
        const SEED: u64 = 5000;
        for aim in [Aim::XcpEquilibrium, Aim::Proportional] {
            assert_eq!(found(aim, ""), "");
        }
        for (keys, sign) in [
            ("xcp.alpha = 0.8", "the longest queue after the rate doubled"),
            ("xcp.alpha = 0.2", "the longest queue after the rate doubled"),
            ("xcp.beta = 0", "the queue 10 to 15 round trips after the rate fell back"),
            ("xcp.beta = 0.4", "the queue 10 to 15 round trips after the rate fell back"),
            ("xcp.gamma = 0.3", "a new flow's share after 10 to 15 round trips"),
        ] {
            assert!(
                found(Aim::XcpEquilibrium, keys).contains(sign),
                "{keys}: {}",
                found(Aim::XcpEquilibrium, keys)
            );
        }
        assert!(found(Aim::Proportional, "fcp.alpha = 0").contains("after the rate fell back"));
    }

    /// `docs/src/notes/theory.md` explains the remarks on each of these networks.
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
        // In two minutes the link is used to 97.05 % (by equation 2 alone), and RCP's to 98.4 %.
        let found = remarks(Aim::Proportional, 1028);
        assert!(found.contains("link up2 withholds 2.8 %") && !found.contains("still"), "{found}");
        let found = remarks(Aim::MaxMin, 31_337_433);
        assert!(found.contains("link up2 withholds 1.6 %"), "{found}");
        let found = remarks(Aim::XcpEquilibrium, 31_337_484);
        assert!(found.contains("flow f10 should have a window of 3.8 packets"), "{found}");
        assert_eq!(remarks(Aim::Proportional, 1), "");
    }

    /// The theory of these two networks depends on the lengths of links' intervals, and on links
    /// with a single flow.
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
