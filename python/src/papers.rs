//! The papers' experiments with their claims, and the comparison of two results.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;
use tollway_report::compare::{self, CompareError};
use tollway_report::neighbourhood::draw;
use tollway_report::plot::{Figure, Picture, PictureOptions};
use tollway_report::reproduce::{self, Found, ReproduceError};
use tollway_scenario::tables::{RunResult, Table};

use crate::laws::Ending;
use crate::{RunError, ScenarioError, WIDTH, shown, watched};

fn png() -> PictureOptions {
    PictureOptions { formats: vec![Picture::Png], ..PictureOptions::default() }
}

/// The names of all experiments in a folder, or of the built-in ones.
#[pyfunction]
fn experiments(papers: Option<PathBuf>) -> PyResult<Vec<String>> {
    let all = reproduce::list(&folder(papers)).map_err(|error| unjudged(&error))?;
    Ok(all.into_iter().map(|found| found.name).collect())
}

/// The experiments that `names` select, each checked, with its file.
#[pyfunction]
fn select(py: Python<'_>, papers: Option<PathBuf>, names: Vec<String>) -> PyResult<Vec<(String, PathBuf)>> {
    let papers = folder(papers);
    let selected = py.detach(|| {
        let selected = reproduce::select(&papers, &names)?;
        reproduce::check_all(&selected)?;
        Ok::<_, ReproduceError>(selected)
    });
    let selected = selected.map_err(|error| unjudged(&error))?;
    Ok(selected.into_iter().map(|found| (found.name, found.path)).collect())
}

fn folder(papers: Option<PathBuf>) -> PathBuf {
    papers.unwrap_or_else(|| tollway_report::papers::BUILT_IN.into())
}

/// Runs an experiment with all or some of its neighbours, and returns its claims as JSON. Draws its
/// figure to the folder `out`, if set.
#[pyfunction]
#[pyo3(name = "reproduce")]
fn judge(
    py: Python<'_>,
    experiment: (String, PathBuf),
    neighbours: Option<usize>,
    jobs: usize,
    out: Option<PathBuf>,
) -> PyResult<String> {
    let found = Found { name: experiment.0, path: experiment.1 };
    let (ending, shares) = (Ending::default(), <[AtomicU64; 0]>::default());
    let judged = py.detach(|| {
        watched(&shares, None, false, &ending, || {
            let missing = reproduce::missing_peers();
            let go_on = |_, _| !ending.is_stopped();
            let (scenario, experiment) = reproduce::read(&found)?;
            let mut judged = reproduce::reproduce(&scenario, experiment, jobs, &missing, Some(&go_on))?;
            if let Some(neighbourhood) = &judged.experiment.neighbourhood
                && !ending.is_stopped()
            {
                let all = neighbourhood.neighbours(scenario.variants()[0].plan.seed)?;
                let chosen = draw(&found.name, all, neighbours.unwrap_or(usize::MAX));
                judged = reproduce::judge(&found, judged, &chosen, jobs, &missing, &go_on)?;
            }
            let judged = (!ending.is_stopped()).then_some(judged);
            let drawn = match (&judged, &out) {
                (Some(judged), Some(out)) => judged.draw(out, &png())?,
                _ => Vec::new(),
            };
            Ok::<_, ReproduceError>((judged, drawn))
        })
    })?;
    let (judged, drawn) = judged.map_err(|error| unjudged(&error))?;
    let judged = judged.ok_or_else(|| RunError::new_err("the run was ended"))?;
    let claims = judged.report.claims.iter().map(|claim| {
        json!({
            "experiment": found.name,
            "id": claim.id,
            "says": claim.says,
            "status": claim.status,
            "expected": claim.expected,
            "measured": claim.measured,
            "source": claim.source,
            "reading": claim.reading,
            "neighbourhood": claim.neighbourhood,
            "neighbours": claim.neighbours,
        })
    });
    Ok(json!({ "claims": claims.collect::<Vec<_>>(), "figures": drawn }).to_string())
}

/// One side of a comparison: a folder of tables, or runs by variant, each with its tables in
/// Arrow's stream format.
#[derive(FromPyObject)]
enum Side<'py> {
    Runs(Vec<(String, Bound<'py, PyDict>)>),
    Folder(PathBuf),
}

impl Side<'_> {
    fn runs(self) -> PyResult<Vec<RunResult>> {
        match self {
            Side::Folder(path) => compare::runs(&path).map_err(|error| incomparable(&error)),
            Side::Runs(runs) => runs.into_iter().map(|(variant, tables)| run(variant, &tables)).collect(),
        }
    }
}

fn run(variant: String, tables: &Bound<'_, PyDict>) -> PyResult<RunResult> {
    let read = |table: Table| -> PyResult<Vec<RecordBatch>> {
        let bytes: Vec<u8> = match tables.get_item(table.name())? {
            Some(stream) => stream.extract()?,
            None => return Ok(Vec::new()),
        };
        let batches = StreamReader::try_new(&bytes[..], None).and_then(Iterator::collect);
        batches.map_err(|error| RunError::new_err(format!("the table of {}: {error}", table.name())))
    };
    Ok(RunResult {
        variant,
        flows: read(Table::Flows)?,
        links: read(Table::Links)?,
        control: read(Table::Control)?,
        hops: read(Table::Hops)?,
        summary: read(Table::Summary)?,
        link_summary: read(Table::LinkSummary)?,
        ..RunResult::default()
    })
}

/// Draws the usual plots of runs, each given by its variant and tables. Writes PNG, SVG or PDF to
/// `path` by its ending, or returns SVG if there is no path.
#[pyfunction]
fn plot(
    py: Python<'_>,
    title: &str,
    runs: Vec<(String, Bound<'_, PyDict>)>,
    path: Option<PathBuf>,
) -> PyResult<Option<String>> {
    let runs: Vec<RunResult> =
        runs.into_iter().map(|(variant, tables)| run(variant, &tables)).collect::<PyResult<_>>()?;
    let drawn = py.detach(|| {
        let mut figure = Figure::new(title, "", &[], &runs);
        figure.add_distributions(&runs, &[]);
        match path {
            Some(path) => figure.write(&path).map(|()| None),
            None => figure.to_svg().map(Some),
        }
    });
    drawn.map_err(|error| RunError::new_err(error.to_string()))
}

/// The comparison of two results.
#[pyclass(frozen, name = "Comparison", module = "tollway._native")]
struct PyComparison {
    inner: compare::Comparison,
}

#[pymethods]
impl PyComparison {
    #[new]
    fn new(a: (String, Side<'_>), b: (String, Side<'_>)) -> PyResult<PyComparison> {
        let inner = match (a, b) {
            // Two folders have their own names.
            ((_, Side::Folder(a)), (_, Side::Folder(b))) => compare::Comparison::read(&a, &b),
            ((a, a_side), (b, b_side)) => compare::Comparison::of((a, a_side.runs()?), (b, b_side.runs()?)),
        };
        Ok(PyComparison { inner: inner.map_err(|error| incomparable(&error))? })
    }

    /// The text of `tollway compare`.
    fn text(&self) -> String {
        self.inner.to_text(WIDTH)
    }

    /// The JSON of `tollway compare --json`.
    fn json(&self) -> String {
        self.inner.to_json().to_string()
    }

    /// Draws both results in the same plots, and returns the files' paths.
    fn draw(&self, py: Python<'_>, folder: PathBuf) -> PyResult<Vec<PathBuf>> {
        py.detach(|| self.inner.draw(&folder, &png())).map_err(|error| incomparable(&error))
    }
}

fn unjudged(error: &ReproduceError) -> PyErr {
    match error {
        ReproduceError::Runner(error) => crate::failed(error),
        error if error.is_input() => ScenarioError::new_err(shown(error)),
        error => RunError::new_err(shown(error)),
    }
}

fn incomparable(error: &CompareError) -> PyErr {
    if error.is_input() { ScenarioError::new_err(shown(error)) } else { RunError::new_err(shown(error)) }
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyComparison>()?;
    module.add_function(wrap_pyfunction!(experiments, module)?)?;
    module.add_function(wrap_pyfunction!(plot, module)?)?;
    module.add_function(wrap_pyfunction!(select, module)?)?;
    module.add_function(wrap_pyfunction!(judge, module)?)
}
