//! Papers' experiments: found by name, run, held against their claims, drawn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rayon::prelude::*;
use tollway_proto::encoding::{SelfCheck, self_check};
use tollway_scenario::file::{Scenario, ScenarioError};
use tollway_scenario::plan::Plan;
use tollway_scenario::tables::RunResult;

use crate::claim::{Report, check};
use crate::deviation::Aims;
use crate::experiment::{Experiment, ExperimentError};
use crate::gallery::Gallery;
use crate::grid::Cells;
use crate::html::Page;
use crate::neighbourhood::Neighbour;
use crate::papers::{self, experiments, is_built_in};
use crate::plot::{Figure, Picture, PlotError};
use crate::seeds::NoSeeds;
use crate::session::{Progress, Ran, Session, SessionError};
use crate::verify::{Kind, Verify, VerifyError};

/// An experiment file, found but not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// `xcp/validation`.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
}

impl Found {
    /// Its title; empty if its file has none, or cannot be read.
    pub fn title(&self) -> String {
        #[derive(Default, serde::Deserialize)]
        struct Titled {
            #[serde(default)]
            title: String,
        }
        let text = papers::read(&self.path).unwrap_or_default();
        toml::from_str::<Titled>(&text).unwrap_or_default().title
    }
}

/// An experiment, run and judged.
#[derive(Clone, Debug)]
pub struct Reproduced {
    /// What it claims and draws.
    pub experiment: Experiment,
    /// Its runs, one a variant.
    pub runs: Vec<Ran>,
    /// The verdicts.
    pub report: Report,
}

/// Why an experiment gave no verdict.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ReproduceError {
    /// There are no experiments where they were looked for.
    #[error("there are no experiments in {}", folder.display())]
    #[diagnostic(help(
        "name the folder of files PAPER/FIGURE.toml, or leave out `--papers` for the experiments built in"
    ))]
    NoFolder {
        /// Where.
        folder: PathBuf,
    },
    /// No experiment is called so.
    #[error("there is no experiment `{name}`")]
    #[diagnostic(help("{}`tollway reproduce --list` names all", near.as_ref().map_or(String::new(), |n| format!("did you mean `{n}`? "))))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What is called nearly so.
        near: Option<String>,
    },
    /// The file's scenario is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Scenario(#[from] ScenarioError),
    /// The file's claims are wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Experiment(#[from] ExperimentError),
    /// A comparison with real packets names a variant that the file has not.
    #[error("live claim `{claim}`: there is no variant `{name}`")]
    NoVariant {
        /// The comparison.
        claim: String,
        /// The variant.
        name: String,
    },
    /// No experiment of those named says what of it runs on real packets.
    #[error("none of these experiments has a part that runs live")]
    #[diagnostic(help("`[[live]]` tables in an experiment's file say what runs on real packets too"))]
    NothingLive,
    /// Its neighbourhood has more seeds than there are.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Seeds(#[from] NoSeeds),
    /// The kernel's TCP could not be run beside it.
    #[error("live claim `{claim}`: {message}")]
    Kernel {
        /// The comparison.
        claim: String,
        /// Why.
        message: String,
    },
    /// Two experiments would draw one figure.
    #[error("{} and {} are both called `{name}`", one.display(), other.display())]
    #[diagnostic(help("each has its own `name`, after which its figure is called"))]
    SameName {
        /// Their name.
        name: String,
        /// The first file.
        one: PathBuf,
        /// The second.
        other: PathBuf,
    },
    /// A verdict would not say of which of them it is, nor a list of what is unmet.
    #[error("{} and {} both have a claim `{id}`", one.display(), other.display())]
    #[diagnostic(help("rename one of them: verdicts, and `unmet.toml`, know a claim by its `id` alone"))]
    SameClaim {
        /// Its name.
        id: String,
        /// The first file.
        one: PathBuf,
        /// The second.
        other: PathBuf,
    },
    /// A run failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Its random networks could not be held against theory.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Random(#[from] VerifyError),
    /// A figure could not be written.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

impl ReproduceError {
    /// Whether it is what was asked for that is wrong, and not how it went.
    pub fn is_input(&self) -> bool {
        !matches!(self, ReproduceError::Session(_) | ReproduceError::Plot(_))
    }
}

/// Every experiment beneath `papers`, by name: files `PAPER/FIGURE.toml`, or what is built in ([`papers::BUILT_IN`]).
///
/// # Errors
/// [`ReproduceError::NoFolder`].
pub fn list(papers: &Path) -> Result<Vec<Found>, ReproduceError> {
    if is_built_in(papers) {
        let found = experiments().map(|(paper, figure)| Found {
            name: format!("{paper}/{figure}"),
            path: papers.join(format!("{paper}/{figure}.toml")),
        });
        return Ok(found.collect());
    }
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let mut found = Vec::new();
    for folder in entries(papers).iter().filter(|path| path.is_dir()) {
        for path in entries(folder).into_iter().filter(|path| path.extension().is_some_and(|e| e == "toml")) {
            if let (Some(paper), Some(figure)) = (folder.file_name(), path.file_stem()) {
                let name = format!("{}/{}", paper.to_string_lossy(), figure.to_string_lossy());
                found.push(Found { name, path });
            }
        }
    }
    match found.is_empty() {
        true => Err(ReproduceError::NoFolder { folder: papers.to_path_buf() }),
        false => Ok(found),
    }
}

/// The experiments that `names` mean: a name, a paper (all its figures), or with no name at all everything.
///
/// # Errors
/// A name means nothing, or there are no experiments.
pub fn select(papers: &Path, names: &[String]) -> Result<Vec<Found>, ReproduceError> {
    let all = list(papers)?;
    if names.is_empty() {
        return Ok(all);
    }
    let mut chosen: Vec<Found> = Vec::new();
    for name in names {
        let name = name.trim_end_matches('/');
        let folder = format!("{name}/");
        let before = chosen.len();
        for found in all.iter().filter(|found| found.name == name || found.name.starts_with(&folder)) {
            if !chosen.contains(found) {
                chosen.push(found.clone());
            }
        }
        let known = |found: &Found| found.name == name || found.name.starts_with(&folder);
        if chosen.len() == before && !chosen.iter().any(known) {
            let papers = all.iter().filter_map(|found| found.name.split('/').next());
            let near = all
                .iter()
                .map(|found| found.name.as_str())
                .chain(papers)
                .min_by_key(|known| strsim::damerau_levenshtein(known, name))
                .filter(|known| strsim::damerau_levenshtein(known, name) <= 4);
            return Err(ReproduceError::Unknown { name: name.into(), near: near.map(str::to_owned) });
        }
    }
    Ok(chosen)
}

/// Reads an experiment's file: what is to be run, and what it must show.
///
/// # Errors
/// The file cannot be read, or something in it is wrong.
pub fn read(found: &Found) -> Result<(Scenario, Experiment), ReproduceError> {
    let scenario = match papers::read(&found.path) {
        Ok(text) if is_built_in(&found.path) => {
            Scenario::parse(&found.path.display().to_string(), &text, NO_SETS)?
        }
        _ => Scenario::load(&found.path, NO_SETS)?,
    };
    let mut experiment = Experiment::parse(scenario.text(), &found.path)?;
    experiment.cells = Cells::of(&scenario);
    Ok((scenario, experiment))
}

/// Reads each to see whether it is right, and whether no two would draw one figure or claim under one name: what is wrong with the last shall be told before
/// the first has run for minutes. Nothing is kept, for some networks are large.
///
/// # Errors
/// As [`read`]; or [`ReproduceError::SameName`], or [`ReproduceError::SameClaim`].
pub fn check_all(selected: &[Found]) -> Result<(), ReproduceError> {
    let mut drawn: BTreeMap<String, &Path> = BTreeMap::new();
    let mut claimed: BTreeMap<String, &Path> = BTreeMap::new();
    for found in selected {
        let Experiment { name, claims, live, .. } = read(found)?.1;
        let ids = claims.into_iter().map(|claim| claim.id).chain(live.into_iter().map(|live| live.id));
        for id in ids {
            if let Some(one) = claimed.insert(id.clone(), &found.path) {
                return Err(ReproduceError::SameClaim { id, one: one.into(), other: found.path.clone() });
            }
        }
        if let Some(one) = drawn.insert(file_name(&name), &found.path) {
            return Err(ReproduceError::SameName { name, one: one.into(), other: found.path.clone() });
        }
    }
    Ok(())
}

/// Runs an experiment and holds it against its claims. `missing` names the peer programs that are not installed.
///
/// # Errors
/// A run fails.
pub fn reproduce(
    scenario: &Scenario,
    mut experiment: Experiment,
    jobs: usize,
    missing: &[String],
    progress: Option<Progress<'_>>,
) -> Result<Reproduced, ReproduceError> {
    let mut runs = Session { jobs, ..Session::default() }.run(scenario, progress)?;
    if experiment.claims.iter().any(|claim| claim.measures_codecs()) {
        for ran in &mut runs {
            add_codecs(&mut ran.result, &self_check());
        }
    }
    for random in &experiment.random {
        let Some(first) = runs.first_mut() else { break };
        let kind = if random.starts { Kind::Starts } else { Kind::Steady };
        let verify = Verify { kind, ..Verify::law(&random.law, random.networks, random.seed, jobs)? };
        let go_on = |_| progress.is_none_or(|progress| progress(0, 1.0));
        let mut verified = verify.run(&go_on)?;
        for &seed in &random.also {
            verified.cases.extend(Verify { networks: 1, seed, ..verify }.run(&go_on)?.cases);
        }
        verified.report(&mut first.result.systems);
    }
    let found = runs.iter().map(|ran| (ran.result.variant.as_str(), ran.deviation.as_ref().ok()));
    experiment.aims = Aims::of(found);
    let results: Vec<RunResult> = runs.iter().map(|ran| ran.result.clone()).collect();
    let report = check(&experiment.claims, &results, &experiment.context(missing.to_vec()));
    let report = report.with_neighbours(neighbourhood_size(&experiment, scenario)?, &[]);
    Ok(Reproduced { experiment, runs, report })
}

/// Runs and judges `reproduced`, an experiment's base, at `neighbours` too, `jobs` of them at once
/// (0: as many as there are processors). `progress` counts those that are done; if it answers
/// false, the judgement stays that of the base.
///
/// # Errors
/// A neighbour cannot be built, or its run fails.
pub fn judge(
    found: &Found,
    reproduced: Reproduced,
    neighbours: &[Neighbour],
    jobs: usize,
    missing: &[String],
    progress: Progress<'_>,
) -> Result<Reproduced, ReproduceError> {
    let (scenario, experiment) = read(found)?;
    let of = |(i, neighbour): (usize, &Neighbour)| -> Result<(String, Report), ReproduceError> {
        let scenario = neighbour.of(&scenario, &found.path)?;
        // One thread each: there are as many neighbours as threads, and more.
        let go_on = |_, _| progress(i, 0.0);
        let judged = reproduce(&scenario, experiment.clone(), 1, missing, Some(&go_on))?;
        progress(i, 1.0);
        Ok((neighbour.to_string(), judged.report))
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .build()
        .map_err(|e| SessionError::Threads { jobs, message: e.to_string() })?;
    let reports: Result<Vec<_>, _> = pool.install(|| neighbours.par_iter().enumerate().map(of).collect());
    let size = neighbourhood_size(&experiment, &scenario)?;
    Ok(Reproduced { report: reproduced.report.with_neighbours(size, &reports?), ..reproduced })
}

/// How many neighbours an experiment has, if its file says.
fn neighbourhood_size(experiment: &Experiment, scenario: &Scenario) -> Result<Option<usize>, NoSeeds> {
    let seed = scenario.variants()[0].plan.seed;
    experiment.neighbourhood.as_ref().map(|n| n.neighbours(seed).map(|all| all.len())).transpose()
}

/// The peer programs that some claims compare with and that are not installed here.
pub fn missing_peers() -> Vec<String> {
    let runs = |program: &str, argument: &str| {
        let quiet = Command::new(program)
            .arg(argument)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok()
    };
    [("ns2", "ns", "-version")]
        .into_iter()
        .filter(|(_, program, argument)| !runs(program, argument))
        .map(|(name, ..)| name.to_owned())
        .collect()
}

impl Reproduced {
    /// Adds the figure and its claims to a page over many experiments.
    pub fn hang(&self, gallery: &mut Gallery) {
        let results: Vec<RunResult> = self.runs.iter().map(|ran| ran.result.clone()).collect();
        let experiment = &self.experiment;
        let figure = Figure::of_grid(
            &experiment.title,
            &experiment.source,
            &experiment.plots,
            &results,
            &experiment.cells,
            &experiment.aims,
        );
        gallery.add(&file_name(&experiment.name), &figure, &self.report);
    }

    /// Draws the figure as a page and as `pictures` in `folder`, and answers their paths.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn draw(&self, folder: &Path, pictures: &[Picture]) -> Result<Vec<PathBuf>, ReproduceError> {
        let experiment = &self.experiment;
        let sheet = Sheet {
            title: &experiment.title,
            subtitle: &experiment.source,
            name: &experiment.name,
            experiment,
            claims: Some(&self.report),
        };
        sheet.draw(&self.runs, folder, pictures)
    }
}

/// Draws what ran as `NAME.html` and, if there is anything to see, as `pictures`: the plots of its
/// file, or the usual ones.
///
/// # Errors
/// A file cannot be written.
pub fn draw_runs(
    plan: &Plan,
    mut experiment: Experiment,
    runs: &[Ran],
    folder: &Path,
    pictures: &[Picture],
) -> Result<Vec<PathBuf>, ReproduceError> {
    let found = runs.iter().map(|ran| (ran.result.variant.as_str(), ran.deviation.as_ref().ok()));
    experiment.aims = Aims::of(found);
    let (title, name) = (&plan.title, &plan.name);
    Sheet { title, subtitle: "", name, experiment: &experiment, claims: None }.draw(runs, folder, pictures)
}

/// A figure's page and pictures.
struct Sheet<'a> {
    title: &'a str,
    subtitle: &'a str,
    name: &'a str,
    experiment: &'a Experiment,
    claims: Option<&'a Report>,
}

impl Sheet<'_> {
    fn draw(
        &self,
        runs: &[Ran],
        folder: &Path,
        pictures: &[Picture],
    ) -> Result<Vec<PathBuf>, ReproduceError> {
        let results: Vec<RunResult> = runs.iter().map(|ran| ran.result.clone()).collect();
        let experiment = self.experiment;
        let name = file_name(self.name);
        let html = folder.join(format!("{name}.html"));
        let parent = html.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent)
            .map_err(|e| PlotError::Write { path: parent.to_path_buf(), message: e.to_string() })?;
        let (plots, cells, aims) = (&experiment.plots, &experiment.cells, &experiment.aims);
        let mut figure = Figure::of_grid(self.title, self.subtitle, plots, &results, cells, aims);
        if plots.is_empty() {
            let slowdowns: Vec<_> = runs.iter().map(|ran| ran.slowdowns.as_slice()).collect();
            figure.add_distributions(&results, &slowdowns);
        }
        Page { figure: &figure, runs: &results, claims: self.claims }.write(&html)?;
        let mut written = vec![html];
        written.extend(figure.write_all(&folder.join(name), pictures)?);
        Ok(written)
    }
}

/// A scenario's name as the name of a file beneath a folder, `PAPER/FIGURE` included, that leads nowhere else: its parts
/// are letters, digits, `-`, `_` and single dots within.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let parts =
        name.split(['/', '\\']).map(|part| part.trim_matches('.').chars().map(plain).collect::<String>());
    // Most file systems take 255 bytes.
    let parts: Vec<String> =
        parts.filter(|part| !part.is_empty()).map(|part| part.chars().take(60).collect()).collect();
    if parts.is_empty() { "run".to_owned() } else { parts.join("/") }
}

/// What the encodings' exhaustive check found, as numbers that claims name.
fn add_codecs(result: &mut RunResult, check: &SelfCheck) {
    let numbers = [
        ("values", f64::from(check.values)),
        ("failures", f64::from(check.failures)),
        ("misrounded", f64::from(check.misrounded)),
        ("least_mantissa", f64::from(check.least_mantissa)),
        ("greatest_mantissa", f64::from(check.greatest_mantissa)),
        ("worst_relative", check.worst_relative),
        ("worst_absolute", check.worst_absolute),
        ("options_checked", f64::from(check.options.checked)),
        ("options_failures", f64::from(check.options.failures)),
        ("sack_blocks_without_xcp", check.sack_blocks[0] as f64),
        ("sack_blocks_beside_forward", check.sack_blocks[1] as f64),
        ("sack_blocks_beside_return", check.sack_blocks[2] as f64),
        ("sack_blocks_beside_both", check.sack_blocks[3] as f64),
        ("draft2_checked", f64::from(check.draft2.checked)),
        ("draft2_failures", f64::from(check.draft2.failures)),
        ("draft3_checked", f64::from(check.draft3.checked)),
        ("draft3_failures", f64::from(check.draft3.failures)),
    ];
    for (column, number) in numbers {
        result.systems.set("codec", &[], column, number);
    }
}

/// No keys set otherwise.
const NO_SETS: &[&str] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        assert_eq!(file_name("xcp/validation"), "xcp/validation");
        assert_eq!(file_name("/etc/../..//passwd"), "etc/passwd");
        assert_eq!(file_name("a b: \u{0} c"), "a-b----c");
        assert_eq!(file_name("..\\..\\x"), "x");
        assert_eq!(file_name("../."), "run");
        assert_eq!(file_name("v1.2"), "v1.2");
        assert_eq!(file_name(&"x".repeat(5000)).len(), 60);
    }
}
