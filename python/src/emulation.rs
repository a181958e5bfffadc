//! Emulated networks for tests, by a helper process of the same interpreter.

use std::os::fd::IntoRawFd;
use std::process::Command;

use pyo3::prelude::*;
use tollway_exec::options::{Options, RequestError};
use tollway_exec::{EmulationError as Failed, LinkChange, MARK};

use crate::{EmulationError, NotAllowedError, ScenarioError, refused, shown};

/// A network held by a helper.
#[pyclass(frozen, module = "tollway._native")]
struct Emulation {
    inner: std::sync::RwLock<Option<tollway_exec::Emulation>>,
}

#[pymethods]
impl Emulation {
    /// `options` are those of `tollway exec` in JSON. `helper` is the command of a process that
    /// calls `emulation_helper`.
    #[new]
    fn new(py: Python<'_>, options: &str, helper: Vec<String>) -> PyResult<Emulation> {
        let options: Options =
            serde_json::from_str(options).map_err(|error| EmulationError::new_err(error.to_string()))?;
        let mut command = Command::new(&helper[0]);
        command.args(&helper[1..]);
        let made = py.detach(|| tollway_exec::Emulation::launch(&options, command));
        Ok(Emulation { inner: Some(made.map_err(failed)?).into() })
    }

    #[getter]
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |net| Ok(net.nodes().to_vec()))
    }

    fn address(&self, py: Python<'_>, node: &str) -> PyResult<String> {
        self.with(py, |net| net.address(node).map(|address| address.to_string()))
    }

    /// The descriptors of the namespaces that a program of `node` enters, which the caller closes,
    /// and the variable that marks it.
    fn join(&self, py: Python<'_>, node: &str, server: bool) -> PyResult<(Vec<i32>, String)> {
        self.with(py, |net| {
            let spaces = net.namespaces(node, server)?.into_iter().map(IntoRawFd::into_raw_fd);
            Ok((spaces.collect(), format!("{MARK}={}", net.mark())))
        })
    }

    fn await_server(&self, py: Python<'_>, node: &str, process: u32) -> PyResult<()> {
        self.with(py, |net| net.await_server(node, process))
    }

    /// The descriptor of a socket of `node`.
    fn socket(&self, py: Python<'_>, node: &str, family: i32, kind: i32) -> PyResult<i32> {
        self.with(py, |net| Ok(net.socket(node, family.into(), kind.into())?.into_raw_fd()))
    }

    fn change(
        &self,
        py: Python<'_>,
        link: String,
        rate_mbps: Option<f64>,
        delay_ms: Option<f64>,
        loss: Option<f64>,
    ) -> PyResult<()> {
        self.with(py, |net| net.change(&LinkChange { link, rate_mbps, delay_ms, loss }))
    }

    /// The report so far, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |net| net.report().map(|report| report.to_string()))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.inner.write().map(|mut inner| inner.take())));
    }
}

impl Emulation {
    /// Calls `work` without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&tollway_exec::Emulation) -> Result<T, Failed> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| self.inner.read().ok()?.as_ref().map(work));
        done.unwrap_or_else(|| Err(Failed::Network("the network is closed".into()))).map_err(failed)
    }
}

/// Holds a network for the process at the other end of standard input, and ends this process.
#[pyfunction]
fn emulation_helper() {
    tollway_exec::helper()
}

fn failed(error: Failed) -> PyErr {
    match error {
        Failed::Request(RequestError::Scenario(error)) => refused(&error),
        Failed::Request(RequestError::Option(error)) => {
            ScenarioError::new_err(format!("\n{}", shown(&error)))
        }
        Failed::NotAllowed(why) => NotAllowedError::new_err(why),
        error => EmulationError::new_err(error.to_string()),
    }
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Emulation>()?;
    module.add_function(wrap_pyfunction!(emulation_helper, module)?)
}
