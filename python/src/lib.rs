//! The extension module under `import tollway`: the crates check and run scenarios, and what comes of it goes over as Arrow's
//! stream format and JSON. The package's Python side, in `python/tollway`, makes tables and dictionaries of them.

#[path = "../../crates/cli/src/mathematics.rs"]
mod mathematics;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{create_exception, wrap_pyfunction};
use tollway_report::session::{Account, Ran, Session, SessionError};
use tollway_report::{Allocations, Overview};
use tollway_scenario::file;
use tollway_scenario::run::{DigestMode, EngineKind};
use tollway_scenario::tables::{RunResult, Table};

create_exception!(
    tollway,
    ScenarioError,
    PyValueError,
    "A scenario has mistakes; the text shows each with its line, a caret and what was probably meant."
);
create_exception!(tollway, RunError, PyRuntimeError, "A run gave no result.");

/// A checked scenario.
#[pyclass(frozen, module = "tollway._native")]
struct Scenario {
    inner: file::Scenario,
}

#[pymethods]
impl Scenario {
    /// Checks `text`, which messages call `file`. Each of `sets` is `path=value`, as given to `--set`; of the variants only
    /// those named in `only` are kept, if any is named.
    #[new]
    fn new(text: &str, file: &str, sets: Vec<String>, only: Vec<String>) -> PyResult<Scenario> {
        let inner = file::Scenario::parse(file, text, &sets).map_err(|error| refused(&error))?;
        if let Some(unknown) = only.iter().find(|name| inner.variant(name).is_none()) {
            let known: Vec<&str> = inner.variants().iter().map(|variant| variant.name.as_str()).collect();
            return Err(ScenarioError::new_err(format!(
                "{file} has no variant `{unknown}`; there are {}",
                if known == [""] { "none".into() } else { known.join(", ") }
            )));
        }
        Ok(Scenario { inner: inner.only(&only) })
    }

    /// The name that the file gives itself.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.variants()[0].plan.name
    }

    #[getter]
    fn title(&self) -> &str {
        &self.inner.variants()[0].plan.title
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.inner.variants()[0].plan.seed
    }

    /// Simulated seconds.
    #[getter]
    fn duration(&self) -> f64 {
        self.inner.variants()[0].plan.duration.nearest_secs()
    }

    /// The names of the variants, in the file's order; one, empty, if the file has none.
    #[getter]
    fn variants(&self) -> Vec<String> {
        self.inner.variants().iter().map(|variant| variant.name.clone()).collect()
    }

    /// What a reader should know of what was made of the file.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.inner.notes().to_vec()
    }

    /// What flows should get, as `tollway theory --json` has it.
    fn theory(&self, py: Python<'_>) -> PyResult<String> {
        let all = py.detach(|| {
            let all =
                self.inner.variants().iter().map(|variant| Allocations::of(variant).map(|all| all.to_json()));
            all.collect::<Result<Vec<serde_json::Value>, _>>().map_err(|why| why.to_string())
        });
        let variants = all.map_err(|why| {
            ScenarioError::new_err(format!(
                "{}: no allocation follows from this scenario: {why}",
                self.inner.file()
            ))
        })?;
        Ok(serde_json::json!({ "scenario": self.name(), "variants": variants }).to_string())
    }

    /// Runs every variant, `jobs` at once (0: as many as there are processors). `progress` is called about ten times a
    /// second with the share of each variant that is over. Answers the account that `tollway run --json` prints, the tables
    /// that it prints otherwise, and for each variant its tables by name in Arrow's stream format.
    fn run<'py>(
        &self,
        py: Python<'py>,
        engine: &str,
        digest: &str,
        jobs: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(String, String, Vec<Bound<'py, PyDict>>)> {
        let session = Session {
            jobs,
            engine: match engine {
                "sim" => EngineKind::Sim,
                "live" => EngineKind::Live,
                other => return Err(no_choice("engine", other, ["sim", "live"])),
            },
            digest: match digest {
                "results" => DigestMode::Results,
                "packets" => DigestMode::Packets,
                other => return Err(no_choice("digest", other, ["results", "packets"])),
            },
            slowdowns: true,
            ..Session::default()
        };
        let runs = py.detach(|| self.watched(&session, progress.as_ref()))?;
        let account = Account { scenario: &self.inner, runs: &runs, load_s: 0.0, peak_rss_bytes: None };
        let account =
            serde_json::to_string(&account).map_err(|error| RunError::new_err(error.to_string()))?;
        let results: Vec<RunResult> = runs.iter().map(|ran| ran.result.clone()).collect();
        let tables = runs.iter().map(|ran| tables(py, &ran.result)).collect::<PyResult<_>>()?;
        Ok((account, Overview::new(&results).to_text(WIDTH), tables))
    }
}

impl Scenario {
    /// Runs in threads of its own, while this one, which may be Python's main thread, listens for Ctrl-C and tells of progress.
    fn watched(&self, session: &Session, progress: Option<&Py<PyAny>>) -> PyResult<Vec<Ran>> {
        let stop = AtomicBool::new(false);
        let shares: Vec<AtomicU64> = self.inner.variants().iter().map(|_| AtomicU64::new(0)).collect();
        let tell = |variant: usize, share: f64| {
            shares[variant].store(share.to_bits(), Ordering::Relaxed);
            !stop.load(Ordering::Relaxed)
        };
        let (done, ended) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| done.send(session.run(&self.inner, Some(&tell))));
            let mut raised = None;
            let runs = loop {
                match ended.recv_timeout(LOOK) {
                    Ok(runs) => break runs,
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(RunError::new_err(
                            "the run panicked; this is a bug in Tollway, please report it",
                        ));
                    }
                    Err(RecvTimeoutError::Timeout) if raised.is_some() => {}
                    Err(RecvTimeoutError::Timeout) => {
                        let looked = Python::attach(|py| {
                            py.check_signals()?;
                            let now: Vec<f64> = shares
                                .iter()
                                .map(|share| f64::from_bits(share.load(Ordering::Relaxed)))
                                .collect();
                            progress.map_or(Ok(()), |progress| progress.call1(py, (now,)).map(drop))
                        });
                        if let Err(error) = looked {
                            stop.store(true, Ordering::Relaxed);
                            raised = Some(error);
                        }
                    }
                }
            };
            match raised {
                Some(error) => Err(error),
                None => runs.map_err(|error| failed(&error)),
            }
        })
    }
}

/// The text of a scenario file.
#[pyfunction]
fn read(path: PathBuf) -> PyResult<String> {
    file::Scenario::read(&path).map_err(|error| refused(&error))
}

/// TOML of tables given as JSON.
#[pyfunction]
fn toml_of(json: &str) -> PyResult<String> {
    let tables: serde_json::Value =
        serde_json::from_str(json).map_err(|error| ScenarioError::new_err(error.to_string()))?;
    toml::to_string_pretty(&tables)
        .map_err(|error| ScenarioError::new_err(format!("no TOML can say this: {error}")))
}

/// The five tables of a run, by name.
fn tables<'py>(py: Python<'py>, result: &RunResult) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for table in Table::ALL {
        let batches = match table {
            Table::Flows => &result.flows,
            Table::Links => &result.links,
            Table::Control => &result.control,
            Table::Summary => &result.summary,
            Table::LinkSummary => &result.link_summary,
        };
        all.set_item(table.name(), PyBytes::new(py, &stream(table, batches)?))?;
    }
    Ok(all)
}

/// Arrow's stream format.
fn stream(table: Table, batches: &[RecordBatch]) -> PyResult<Vec<u8>> {
    let schema = batches.first().map_or_else(|| table.schema(), RecordBatch::schema);
    let mut bytes = Vec::new();
    let written = StreamWriter::try_new(&mut bytes, &schema).and_then(|mut writer| {
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()
    });
    written.map_err(|error| {
        RunError::new_err(format!("the table of {} cannot be handed over: {error}", table.name()))
    })?;
    Ok(bytes)
}

fn no_choice(what: &str, given: &str, known: [&str; 2]) -> PyErr {
    PyValueError::new_err(format!("there is no {what} {given:?}; there are {known:?}"))
}

/// Mistakes, each as the command shows it.
fn refused(error: &file::ScenarioError) -> PyErr {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(WIDTH);
    let mut text = String::from("\n");
    let shown = match error.related() {
        Some(mut mistakes) => mistakes.try_for_each(|mistake| handler.render_report(&mut text, mistake)),
        None => handler.render_report(&mut text, error),
    };
    ScenarioError::new_err(if shown.is_ok() { text } else { error.to_string() })
}

/// Whose fault it is, as with the command's exit statuses.
fn failed(error: &SessionError) -> PyErr {
    let text = error.to_string();
    if error.is_input() { ScenarioError::new_err(text) } else { RunError::new_err(text) }
}

/// How often a run is looked at, and whether somebody has pressed Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);
/// Columns of text.
const WIDTH: usize = 100;

/// Scenarios checked and run.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Scenario>()?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(toml_of, module)?)?;
    module.add("ScenarioError", module.py().get_type::<ScenarioError>())?;
    module.add("RunError", module.py().get_type::<RunError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
