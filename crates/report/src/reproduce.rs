//! Experiments of papers: search, runs, judgement and figures.

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
use crate::plot::{Figure, PictureOptions, PlotError};
use crate::runner::{Progress, Ran, Runner, RunnerError};
use crate::seeds::NoSeeds;
use crate::verify::{Kind, Verify, VerifyError};

/// An experiment file, found but not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name: `xcp/validation`.
    pub name: String,
    /// The file's path.
    pub path: PathBuf,
}

impl Found {
    /// The title; empty if it is missing, or if the file cannot be read.
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

/// An experiment after its runs and its judgement.
#[derive(Clone, Debug)]
pub struct Reproduced {
    /// The experiment with its claims and plots.
    pub experiment: Experiment,
    /// The runs, one per variant.
    pub runs: Vec<Ran>,
    /// The verdicts on its claims.
    pub report: Report,
}

/// An error in reproducing an experiment.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ReproduceError {
    /// The folder has no experiments.
    #[error("there are no experiments in {}", folder.display())]
    #[diagnostic(help(
        "give a folder with files PAPER/FIGURE.toml, or leave out `--papers` for the built-in experiments"
    ))]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// No experiment has this name.
    #[error("there is no experiment `{name}`")]
    #[diagnostic(help("{}`tollway reproduce --list` lists all", near.as_ref().map_or(String::new(), |n| format!("did you mean `{n}`? "))))]
    Unknown {
        /// The given name.
        name: String,
        /// The nearest existing name.
        near: Option<String>,
    },
    /// A mistake in the file's scenario.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Scenario(#[from] ScenarioError),
    /// A mistake in the file's claims or plots.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Experiment(#[from] ExperimentError),
    /// A comparison with real packets names a variant that does not exist.
    #[error("live claim `{claim}`: there is no variant `{name}`")]
    NoVariant {
        /// The comparison's id.
        claim: String,
        /// The variant.
        name: String,
    },
    /// None of the named experiments has a part that runs on real packets.
    #[error("none of these experiments has a part that runs live")]
    #[diagnostic(help("`[[live]]` tables in an experiment's file define its live parts"))]
    NothingLive,
    /// The neighbourhood needs more seeds than exist.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Seeds(#[from] NoSeeds),
    /// The kernel's TCP could not be run.
    #[error("live claim `{claim}`: {message}")]
    Kernel {
        /// The comparison's id.
        claim: String,
        /// The reason.
        message: String,
    },
    /// Two experiments have the same file name for their figures.
    #[error("{} and {} both have the name `{name}`", one.display(), other.display())]
    #[diagnostic(help("give each a different `name`, which is also its figure's"))]
    SameName {
        /// Their name.
        name: String,
        /// The first file.
        one: PathBuf,
        /// The second file.
        other: PathBuf,
    },
    /// Two claims have the same id, which verdicts and the list of unmet claims use.
    #[error("{} and {} both have a claim `{id}`", one.display(), other.display())]
    #[diagnostic(help("rename one of them: verdicts and `unmet.toml` identify a claim by its `id`"))]
    SameClaim {
        /// The id.
        id: String,
        /// The first file.
        one: PathBuf,
        /// The second file.
        other: PathBuf,
    },
    /// A run failed.
    #[error(transparent)]
    Runner(#[from] RunnerError),
    /// The runs over random networks failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Random(#[from] VerifyError),
    /// Runs cannot be compared with another program's ranges.
    #[error("ranges `{name}`: {message}")]
    Ranges {
        /// The table's name.
        name: String,
        /// The reason.
        message: String,
    },
    /// A figure could not be written.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

impl ReproduceError {
    /// True if the error lies in the input, and not in a run or in writing figures.
    pub fn is_input(&self) -> bool {
        !matches!(self, ReproduceError::Runner(_) | ReproduceError::Plot(_))
    }
}

/// All experiments under `papers`, by name: files `PAPER/FIGURE.toml`, or the built-in ones for
/// [`papers::BUILT_IN`].
///
/// # Errors
/// [`ReproduceError::NoFolder`] if there are none.
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

/// The experiments selected by `names`: each is an experiment's name, or a paper for all its
/// figures. No name selects all.
///
/// # Errors
/// A name does not exist, or there are no experiments.
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

/// Reads an experiment's file: the scenario to run, and the claims and plots.
///
/// # Errors
/// The file cannot be read, or contains a mistake.
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

/// Reads all files, and checks that no two have the same figure or claim. So a mistake in the last
/// file appears before the first run, which may take minutes. Nothing is kept, since some networks
/// are large.
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

/// Runs an experiment and checks its claims. `missing` lists the peer programs that are not
/// installed.
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
    let mut runs = Runner { jobs, ..Runner::default() }.run(scenario, progress)?;
    if experiment.claims.iter().any(|claim| claim.measures_codecs()) {
        for ran in &mut runs {
            add_codecs(&mut ran.result, &self_check());
        }
    }
    for refused in &experiment.refused {
        let Some(first) = runs.first_mut() else { break };
        refused.report(scenario, &mut first.result.systems);
    }
    for fluid in &experiment.fluid {
        let variant = scenario.variants().iter().find(|variant| variant.name == fluid.variant);
        let run = runs.iter_mut().find(|ran| ran.result.variant == fluid.variant);
        if let (Some(variant), Some(ran)) = (variant, run) {
            fluid.report(&variant.plan, &mut ran.result.systems);
        }
    }
    for ranges in &experiment.ranges {
        let of_runs = scenario.variants().iter().filter_map(|variant| {
            let ran = runs.iter().find(|ran| ran.result.variant == variant.name)?;
            Some((&variant.plan, &ran.result))
        });
        let inside = ranges
            .inside(&experiment.cells, of_runs, &experiment.folder)
            .map_err(|message| ReproduceError::Ranges { name: ranges.name.clone(), message })?;
        let Some(first) = runs.first_mut() else { break };
        for (measure, cases) in inside {
            first.result.systems.set("ranges", &[("of", &ranges.name)], measure, cases);
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

/// Runs and judges `neighbours` beside `reproduced`, the experiment's base, with `jobs` runs at
/// once (0: one per processor). `progress` counts the neighbours done. If it returns false, only
/// the base is judged.
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
        // One thread each, since there are at least as many neighbours as threads.
        let go_on = |_, _| progress(i, 0.0);
        let judged = reproduce(&scenario, experiment.clone(), 1, missing, Some(&go_on))?;
        progress(i, 1.0);
        Ok((neighbour.to_string(), judged.report))
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .build()
        .map_err(|e| RunnerError::Threads { jobs, message: e.to_string() })?;
    let reports: Result<Vec<_>, _> = pool.install(|| neighbours.par_iter().enumerate().map(of).collect());
    let size = neighbourhood_size(&experiment, &scenario)?;
    Ok(Reproduced { report: reproduced.report.with_neighbours(size, &reports?), ..reproduced })
}

/// Number of an experiment's neighbours; `None` if its file does not define them.
fn neighbourhood_size(experiment: &Experiment, scenario: &Scenario) -> Result<Option<usize>, NoSeeds> {
    let seed = scenario.variants()[0].plan.seed;
    experiment.neighbourhood.as_ref().map(|n| n.neighbours(seed).map(|all| all.len())).transpose()
}

/// The peer programs used by some claims that are not installed here.
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
    /// Adds the figure and its claims to a gallery.
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

    /// Draws the figure in `folder`, as a page and as `pictures`, and returns their paths.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn draw(&self, folder: &Path, pictures: &PictureOptions) -> Result<Vec<PathBuf>, ReproduceError> {
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

/// Draws runs as the page `NAME.html` and, unless the figure is empty, as `pictures`: the plots of
/// the file, or the default ones.
///
/// # Errors
/// A file cannot be written.
pub fn draw_runs(
    plan: &Plan,
    mut experiment: Experiment,
    runs: &[Ran],
    folder: &Path,
    pictures: &PictureOptions,
) -> Result<Vec<PathBuf>, ReproduceError> {
    let found = runs.iter().map(|ran| (ran.result.variant.as_str(), ran.deviation.as_ref().ok()));
    experiment.aims = Aims::of(found);
    let (title, name) = (&plan.title, &plan.name);
    Sheet { title, subtitle: "", name, experiment: &experiment, claims: None }.draw(runs, folder, pictures)
}

/// The content of a figure's page and pictures.
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
        pictures: &PictureOptions,
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
        let begun: Vec<RunResult> =
            runs.iter().zip(results).filter(|(ran, _)| ran.began()).map(|(_, result)| result).collect();
        Page { figure: &figure, runs: &begun, claims: self.claims }.write(&html)?;
        let mut written = vec![html];
        written.extend(figure.write_all(&folder.join(name), pictures)?);
        Ok(written)
    }
}

/// A scenario's name as a relative file name, `PAPER/FIGURE` included, that cannot leave its
/// folder. Its parts consist of letters, digits, `-`, `_` and inner dots.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let parts =
        name.split(['/', '\\']).map(|part| part.trim_matches('.').chars().map(plain).collect::<String>());
    // Most file systems allow 255 bytes.
    let parts: Vec<String> =
        parts.filter(|part| !part.is_empty()).map(|part| part.chars().take(60).collect()).collect();
    if parts.is_empty() { "run".to_owned() } else { parts.join("/") }
}

/// Adds the results of the encodings' exhaustive check, as numbers for claims.
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

/// No keys with other values.
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
