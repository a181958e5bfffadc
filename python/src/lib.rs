//! The extension module of the Python package `tollway`. It checks and runs scenarios with the
//! crates, and passes results to Python in Arrow's stream format and JSON. The Python side, in
//! `python/tollway`, makes tables and dictionaries of them.

#[path = "../../crates/cli/src/mathematics.rs"]
mod mathematics;

#[cfg(target_os = "linux")]
mod emulation;
mod laws;
mod papers;
mod routes;
mod shown;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{create_exception, wrap_pyfunction};
use tollway_report::runner::{Account, Runner, RunnerError};
use tollway_report::{Allocations, Overview};
use tollway_scenario::file;
use tollway_scenario::run::{self, DigestMode, EngineKind};
use tollway_scenario::tables::{RunResult, Table};

use laws::{Ending, Raised};

create_exception!(
    tollway,
    ScenarioError,
    PyValueError,
    "A scenario has mistakes; the text shows each with its line, a caret and what was probably meant."
);
create_exception!(tollway, RunError, PyRuntimeError, "A run gave no result.");
create_exception!(tollway, EmulationError, PyRuntimeError, "An emulated network cannot be set up or used.");
create_exception!(
    tollway,
    NotAllowedError,
    EmulationError,
    "This system does not allow emulated networks to the user; the text names the remedy."
);

/// A checked scenario.
#[pyclass(frozen, module = "tollway._native")]
struct Scenario {
    inner: file::Scenario,
}

#[pymethods]
impl Scenario {
    /// Checks the scenario `text`. `file` is its name in messages. Each of `sets` is `path=value`,
    /// as for `--set`. A non-empty `only` names the variants to keep.
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

    /// The key `name` of the file.
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

    /// The length of a run, simulated seconds.
    #[getter]
    fn duration(&self) -> f64 {
        self.inner.variants()[0].plan.duration.nearest_secs()
    }

    /// The names of the variants in the file's order, or one empty name if the file has no
    /// variants.
    #[getter]
    fn variants(&self) -> Vec<String> {
        self.inner.variants().iter().map(|variant| variant.name.clone()).collect()
    }

    /// Notes on values that were assumed or ignored when the file was read.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.inner.notes().to_vec()
    }

    /// The flows' ideal rates, as JSON of `tollway theory --json`.
    fn theory(&self, py: Python<'_>) -> PyResult<String> {
        let all = py.detach(|| {
            let all =
                self.inner.variants().iter().map(|variant| Allocations::of(variant).map(|all| all.to_json()));
            all.collect::<Result<Vec<serde_json::Value>, _>>().map_err(|why| why.to_string())
        });
        let variants = all.map_err(|why| {
            ScenarioError::new_err(format!(
                "{}: this scenario defines no allocation: {why}",
                self.inner.file()
            ))
        })?;
        Ok(serde_json::json!({ "scenario": self.name(), "variants": variants }).to_string())
    }

    /// Runs every variant, `jobs` in parallel (0: the number of processors). Calls `progress` about
    /// ten times per second with the completed fraction of each variant. Each of `laws` is a key, a
    /// name for tables, and the callable that creates the law. Returns the JSON of `tollway run
    /// --json`, the text of its tables, and for each variant its tables by name in Arrow's stream
    /// format.
    fn run<'py>(
        &self,
        py: Python<'py>,
        engine: &str,
        digest: &str,
        jobs: usize,
        progress: Option<Py<PyAny>>,
        laws: Vec<laws::Given>,
    ) -> PyResult<(String, String, Vec<Bound<'py, PyDict>>)> {
        let asks = !laws.is_empty();
        let ending = Arc::new(Ending::default());
        let scenario = match asks {
            true => &laws::with(&self.inner, laws, &ending)?,
            false => &self.inner,
        };
        let runner = Runner {
            // Only one law in Python can run at a time.
            jobs: if asks && jobs == 0 { 1 } else { jobs },
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
            ..Runner::default()
        };
        let shares: Vec<AtomicU64> = scenario.variants().iter().map(|_| AtomicU64::new(0)).collect();
        let tell = |variant: usize, share: f64| {
            shares[variant].store(share.to_bits(), Ordering::Relaxed);
            !ending.is_stopped()
        };
        let run = || runner.run(scenario, Some(&tell));
        let runs = py.detach(|| watched(&shares, progress.as_ref(), asks, &ending, run))?;
        let runs = runs.map_err(|error| failed(&error))?;
        let account = Account { scenario, runs: &runs, load_s: 0.0, peak_rss_bytes: None };
        let account =
            serde_json::to_string(&account).map_err(|error| RunError::new_err(error.to_string()))?;
        let results: Vec<RunResult> = runs.iter().map(|ran| ran.result.clone()).collect();
        let tables = runs.iter().map(|ran| tables(py, &ran.result)).collect::<PyResult<_>>()?;
        Ok((account, Overview::new(&results).to_text(WIDTH), tables))
    }
}

/// Runs `run` in a new thread. Meanwhile this thread, possibly Python's main thread, checks for
/// Ctrl-C and reports progress. If the run calls Python (`asks`), its thread is registered with the
/// interpreter once, not at each call.
fn watched<R: Send>(
    shares: &[AtomicU64],
    progress: Option<&Py<PyAny>>,
    asks: bool,
    ending: &Ending,
    run: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    let (done, ended) = mpsc::channel();
    thread::scope(|scope| {
        let run = move || done.send(run());
        let thread = scope.spawn(move || if asks { Python::attach(|py| py.detach(run)) } else { run() });
        let mut raised = None;
        let ran = loop {
            match ended.recv_timeout(LOOK) {
                Ok(ran) => break ran,
                Err(RecvTimeoutError::Disconnected) => {
                    // Without the join, the scope would panic in this thread, too.
                    drop(thread.join());
                    return Err(RunError::new_err(
                        "the run panicked; this is a bug in Tollway, please report it",
                    ));
                }
                Err(RecvTimeoutError::Timeout) if raised.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    let looked = Python::attach(|py| {
                        py.check_signals()?;
                        let now = shares.iter().map(|share| f64::from_bits(share.load(Ordering::Relaxed)));
                        let now: Vec<f64> = now.collect();
                        progress.map_or(Ok(()), |progress| progress.call1(py, (now,)).map(drop))
                    });
                    if let Err(error) = looked {
                        ending.stop();
                        raised = Some(error);
                    }
                }
            }
        };
        raised.map_or(Ok(ran), Err)
    })
}

/// Reads the text of a scenario file.
#[pyfunction]
fn read(path: PathBuf) -> PyResult<String> {
    file::Scenario::read(&path).map_err(|error| refused(&error))
}

/// Converts tables in JSON to TOML.
#[pyfunction]
fn toml_of(json: &str) -> PyResult<String> {
    let tables: serde_json::Value =
        serde_json::from_str(json).map_err(|error| ScenarioError::new_err(error.to_string()))?;
    toml::to_string_pretty(&tables)
        .map_err(|error| ScenarioError::new_err(format!("no TOML can say this: {error}")))
}

/// The six tables of a run, by name.
fn tables<'py>(py: Python<'py>, result: &RunResult) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for table in Table::ALL {
        let batches = match table {
            Table::Flows => &result.flows,
            Table::Links => &result.links,
            Table::Control => &result.control,
            Table::Hops => &result.hops,
            Table::Summary => &result.summary,
            Table::LinkSummary => &result.link_summary,
        };
        all.set_item(table.name(), PyBytes::new(py, &stream(table, batches)?))?;
    }
    Ok(all)
}

/// Encodes a table in Arrow's stream format.
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

/// The Python exception for a scenario's errors, each as the command shows it.
fn refused(error: &file::ScenarioError) -> PyErr {
    let shown = match error.related() {
        Some(mistakes) => mistakes.map(shown).collect::<Vec<_>>().concat(),
        None => shown(error),
    };
    ScenarioError::new_err(format!("\n{shown}"))
}

/// An error as the command shows it.
fn shown(error: &dyn Diagnostic) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(WIDTH);
    let mut text = String::new();
    if handler.render_report(&mut text, error).is_ok() { text } else { error.to_string() }
}

/// The Python exception for a failed run: `ScenarioError` for wrong input, `RunError` otherwise,
/// like the command's exit statuses.
fn failed(error: &RunnerError) -> PyErr {
    let text = error.to_string();
    let raised = match error {
        RunnerError::Run { error: run::RunError::Law { failure, .. }, .. } => {
            failure.downcast_ref::<Raised>()
        }
        _ => None,
    };
    if let Some(Raised { error: cause, .. }) = raised {
        return Python::attach(|py| {
            let cause = cause.clone_ref(py);
            // Ctrl-C and other exceptions that are not errors of the law are raised unchanged.
            if !cause.is_instance_of::<PyException>(py) {
                return cause;
            }
            let error = RunError::new_err(text);
            error.set_cause(py, Some(cause));
            error
        });
    }
    if error.is_input() { ScenarioError::new_err(text) } else { RunError::new_err(text) }
}

/// Interval of the checks for progress and Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);
/// Width of messages and tables, columns.
const WIDTH: usize = 100;

/// The column of a varied key: its name, and numbers if all `values` are numbers or quantities of
/// one kind.
#[pyfunction]
fn sweep_column(key: &str, values: Vec<String>) -> (String, Option<Vec<f64>>) {
    tollway_report::sweep::column(key, &values)
}

/// The module's classes and functions.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Scenario>()?;
    shown::add(module)?;
    routes::add(module)?;
    papers::add(module)?;
    #[cfg(target_os = "linux")]
    emulation::add(module)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(toml_of, module)?)?;
    module.add_function(wrap_pyfunction!(sweep_column, module)?)?;
    module.add("ScenarioError", module.py().get_type::<ScenarioError>())?;
    module.add("RunError", module.py().get_type::<RunError>())?;
    module.add("EmulationError", module.py().get_type::<EmulationError>())?;
    module.add("NotAllowedError", module.py().get_type::<NotAllowedError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
