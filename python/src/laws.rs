//! Laws written in Python: their construction and the calls of their methods. Each call acquires
//! the interpreter's lock (GIL) and releases it.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use miette::Diagnostic;
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use tollway_law::link::{self, AnyLink, LinkLaw};
use tollway_law::sender::{self, AnySender, SenderLaw};
use tollway_law::{Aim, Rate, Time, Toll};
use tollway_scenario::file;
use tollway_scenario::plan::{self, Failure, MakeLink, MakeSender, OwnLink, OwnRoute, OwnSender};

use crate::ScenarioError;
use crate::shown::{Acked, Carrying, Delivery, Flight, Passing, Sending, Verdict};

/// A law from Python: its key, its class's name, and the callable that creates it.
pub(crate) type Given = (String, String, Py<PyAny>);

/// Returns `scenario` with the given laws. A failed law sets `ending`.
pub(crate) fn with(
    scenario: &file::Scenario,
    laws: Vec<Given>,
    ending: &Arc<Ending>,
) -> PyResult<file::Scenario> {
    laws.into_iter().try_fold(scenario.clone(), |scenario, (key, name, factory)| {
        let aim = Python::attach(|py| aim(factory.bind(py)))?;
        let trouble = Trouble { ending: Arc::clone(ending), raised: Arc::default() };
        let maker = Maker { factory, aim, trouble };
        let placed = match key.split('.').next().map(str::trim) {
            Some("link") => scenario.with_link(&key, &OwnLink::new(&name, maker)),
            Some("switch") => scenario.with_route(&key, &OwnRoute::new(&name, maker)),
            _ => scenario.with_sender(&key, &OwnSender::new(&name, maker)),
        };
        placed.map_err(|why| {
            let help = why.help().map_or(String::new(), |help| format!("\n  help: {help}"));
            ScenarioError::new_err(format!("{why}{help}"))
        })
    })
}

/// The aim of a class of laws: its attribute `aim`.
fn aim(factory: &Bound<'_, PyAny>) -> PyResult<Option<Aim>> {
    let given = factory.getattr_opt(intern!(factory.py(), "aim"))?.filter(|aim| !aim.is_none());
    let Some(given) = given else { return Ok(None) };
    let named = |aim: &Aim| given.extract::<&str>().is_ok_and(|name| name == aim.name());
    Aim::ALL.into_iter().find(named).map(Some).ok_or_else(|| {
        let names = Aim::ALL.map(|aim| format!("\"{}\"", aim.name())).join(", ");
        PyValueError::new_err(format!("`aim` is {given:?}; it is one of {names}, or None"))
    })
}

/// An exception in a law, with its place.
#[derive(Debug)]
pub(crate) struct Raised {
    /// The name of the flow, link or session.
    of: String,
    /// The method's name.
    hook: &'static str,
    pub(crate) error: PyErr,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`: {}", self.hook, self.of, self.error)
    }
}

impl Error for Raised {}

/// The end of a run, shared by all its laws.
#[derive(Default)]
pub(crate) struct Ending {
    /// True if a law has failed or the run must end. No law is called then.
    quiet: AtomicBool,
    /// True if the run must end.
    stopped: AtomicBool,
}

impl Ending {
    /// Ends the run: no law is called any more.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.quiet.store(true, Ordering::Relaxed);
    }

    /// True if the run must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// The first exception in the laws of one key.
#[derive(Clone)]
pub(crate) struct Trouble {
    ending: Arc<Ending>,
    raised: Arc<Mutex<Option<Raised>>>,
}

impl Trouble {
    /// Calls `ask` with the interpreter's lock. Returns `None` after an earlier exception. An
    /// exception in `ask` ends the run.
    pub(crate) fn ask<R>(
        &self,
        of: &str,
        hook: &'static str,
        ask: impl FnOnce(Python<'_>) -> PyResult<R>,
    ) -> Option<R> {
        if self.ending.quiet.load(Ordering::Relaxed) {
            return None;
        }
        // The interpreter may have ended before this thread.
        match Python::try_attach(ask)? {
            Ok(answer) => Some(answer),
            Err(error) => {
                let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
                raised.get_or_insert(Raised { of: of.to_owned(), hook, error });
                self.ending.quiet.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        match raised {
            Some(raised) => Some(Box::new(raised)),
            // This ends the run earlier than the progress call, which comes only 100 times a run.
            None => self.ending.is_stopped().then(|| "the run was ended".into()),
        }
    }
}

/// Creates a law for each flow, port or session, by calling a class or another callable.
pub(crate) struct Maker {
    pub(crate) factory: Py<PyAny>,
    aim: Option<Aim>,
    pub(crate) trouble: Trouble,
}

impl MakeSender for Maker {
    fn make(&self, of: &plan::Sending<'_>) -> AnySender {
        let made = self.trouble.ask(of.flow, "the making", |py| {
            let sending = Sending {
                flow: of.flow.to_owned(),
                section: of.section.to_owned(),
                backward: of.backward,
                segment: of.segment,
                initial_window: of.initial_window,
                seed: of.seed,
            };
            PySender::new(self.factory.bind(py).call1((sending,))?, of.flow, self.trouble.clone())
        });
        match made {
            Some(law) => AnySender::custom(law),
            None => sender::NewRenoConfig::default().build().into(),
        }
    }

    fn descriptor(&self) -> sender::Descriptor {
        sender::Descriptor { aim: self.aim, ..sender::Descriptor::default() }
    }

    fn failure(&self) -> Option<Failure> {
        self.trouble.failure()
    }
}

impl MakeLink for Maker {
    fn make(&self, of: &link::Placement<'_>) -> AnyLink {
        let made = self.trouble.ask(of.link, "the making", |py| {
            let carrying =
                Carrying { link: of.link.to_owned(), capacity_bps: of.capacity.bps(), seed: of.seed };
            PyLink::new(self.factory.bind(py).call1((carrying,))?, of.link, self.trouble.clone())
        });
        made.map_or(AnyLink::DropTail(link::DropTail), AnyLink::custom)
    }

    fn descriptor(&self) -> link::Descriptor {
        link::Descriptor { aim: self.aim, ..link::Descriptor::default() }
    }

    fn failure(&self) -> Option<Failure> {
        self.trouble.failure()
    }
}

/// A bound method, looked up once.
pub(crate) struct Hook {
    pub(crate) name: &'static str,
    pub(crate) method: Py<PyAny>,
}

impl Hook {
    /// Finds a required method.
    pub(crate) fn of(law: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Hook> {
        let method = law.getattr(name).map_err(|_| {
            PyTypeError::new_err(format!("a law has a method `{name}`; this {} has none", type_of(law)))
        })?;
        Ok(Hook { name, method: method.unbind() })
    }

    /// Finds an optional method. The methods of `tollway`'s own classes do nothing, and are not
    /// called.
    fn maybe(law: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Option<Hook>> {
        let Some(method) = law.getattr_opt(name)? else { return Ok(None) };
        let idle = method.getattr_opt(intern!(law.py(), "_does_nothing"))?.is_some();
        Ok((!idle).then(|| Hook { name, method: method.unbind() }))
    }
}

fn type_of(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or("object".into(), |name| name.to_string())
}

/// A sender's law in Python.
struct PySender {
    law: Py<PyAny>,
    flow: Arc<str>,
    trouble: Trouble,
    on_ack: Hook,
    on_loss: Hook,
    on_timeout: Hook,
    on_recovered: Option<Hook>,
    on_restart: Option<Hook>,
    on_delivery: Option<Hook>,
    /// The law's window after the last call, segments.
    window: f64,
    /// The law's pacing rate after the last call. `None` without pacing.
    pacing: Option<Rate>,
    /// True if the law has an attribute `pacing_bps`.
    paces: bool,
}

impl PySender {
    fn new(law: Bound<'_, PyAny>, flow: &str, trouble: Trouble) -> PyResult<PySender> {
        let mut made = PySender {
            on_ack: Hook::of(&law, "on_ack")?,
            on_loss: Hook::of(&law, "on_loss")?,
            on_timeout: Hook::of(&law, "on_timeout")?,
            on_recovered: Hook::maybe(&law, "on_recovered")?,
            on_restart: Hook::maybe(&law, "on_restart")?,
            on_delivery: Hook::maybe(&law, "on_delivery")?,
            paces: law.getattr_opt(intern!(law.py(), "pacing_bps"))?.is_some(),
            law: law.clone().unbind(),
            flow: flow.into(),
            trouble,
            window: 1.0,
            pacing: None,
        };
        (made.window, made.pacing) = made.said(law.py())?;
        Ok(made)
    }

    /// Reads the law's window, segments, and pacing rate.
    fn said(&self, py: Python<'_>) -> PyResult<(f64, Option<Rate>)> {
        let law = self.law.bind(py);
        let window = law.getattr(intern!(py, "window"))?;
        let segments = match window.extract::<f64>() {
            Ok(segments) if segments >= 0.0 => segments,
            Ok(_) => {
                return Err(PyValueError::new_err(format!(
                    "`window` is {window}; it is segments, 0 or more"
                )));
            }
            Err(_) => return Err(no_number("window", &window, "segments")),
        };
        if !self.paces {
            return Ok((segments, None));
        }
        let pacing = law.getattr(intern!(py, "pacing_bps"))?;
        if pacing.is_none() {
            return Ok((segments, None));
        }
        match pacing.extract::<f64>() {
            Ok(bps) if bps > 0.0 && bps.is_finite() => Ok((segments, Some(Rate::from_bps(bps)))),
            Ok(_) => Err(PyValueError::new_err(format!(
                "`pacing_bps` is {pacing}; it is bit/s, more than 0, or None to have acknowledgements clock packets"
            ))),
            Err(_) => Err(no_number("pacing_bps", &pacing, "bit/s, or None")),
        }
    }

    /// Calls a method of the law with the arguments `told`, then reads its window and pacing rate.
    fn tell(&mut self, hook: fn(&PySender) -> Option<&Hook>, told: impl for<'py> PyCallArgs<'py>) {
        let Some(hook) = hook(self) else { return };
        let said = self.trouble.ask(&self.flow, hook.name, |py| {
            let answer = hook.method.bind(py).call1(told)?;
            if !answer.is_none() {
                return Err(PyTypeError::new_err(format!(
                    "it returned {answer:?}; a law answers by setting `window` and `pacing_bps`"
                )));
            }
            self.said(py)
        });
        if let Some(said) = said {
            (self.window, self.pacing) = said;
        }
    }
}

fn no_number(what: &str, value: &Bound<'_, PyAny>, unit: &str) -> PyErr {
    PyTypeError::new_err(format!("`{what}` is {value:?}, a {}; it is a number: {unit}", type_of(value)))
}

impl SenderLaw for PySender {
    fn window(&self) -> f64 {
        self.window
    }

    fn pacing_rate(&self, _: &sender::Flight) -> Option<Rate> {
        self.pacing
    }

    fn samples_delivery(&self) -> bool {
        self.on_delivery.is_some()
    }

    fn on_delivery(&mut self, flight: &sender::Flight, delivery: &sender::Delivery) {
        self.tell(|law| law.on_delivery.as_ref(), (Flight(*flight), Delivery(*delivery)));
    }

    fn on_restart(&mut self, flight: &sender::Flight) {
        self.tell(|law| law.on_restart.as_ref(), (Flight(*flight),));
    }

    fn on_ack(&mut self, flight: &sender::Flight, acked: &sender::Acked) {
        self.tell(|law| Some(&law.on_ack), (Flight(*flight), Acked(*acked)));
    }

    fn on_loss(&mut self, flight: &sender::Flight) {
        self.tell(|law| Some(&law.on_loss), (Flight(*flight),));
    }

    fn on_recovered(&mut self, flight: &sender::Flight) {
        self.tell(|law| law.on_recovered.as_ref(), (Flight(*flight),));
    }

    fn on_timeout(&mut self, flight: &sender::Flight, first: bool) {
        self.tell(|law| Some(&law.on_timeout), (Flight(*flight), first));
    }
}

/// A link's law in Python.
#[derive(Clone)]
struct PyLink {
    link: Arc<str>,
    trouble: Trouble,
    // Clones share the Python object: only the port's clone is used, not its original.
    on_arrival: Arc<Hook>,
    on_departure: Option<Arc<Hook>>,
    on_capacity: Option<Arc<Hook>>,
}

impl PyLink {
    fn new(law: Bound<'_, PyAny>, link: &str, trouble: Trouble) -> PyResult<PyLink> {
        Ok(PyLink {
            link: link.into(),
            trouble,
            on_arrival: Hook::of(&law, "on_arrival")?.into(),
            on_departure: Hook::maybe(&law, "on_departure")?.map(Arc::new),
            on_capacity: Hook::maybe(&law, "on_capacity")?.map(Arc::new),
        })
    }

    /// Calls a method of the law with a packet, and returns its verdict.
    fn judge(&self, hook: &Hook, now: Time, packet: link::Passing) -> link::Verdict {
        let verdict = self.trouble.ask(&self.link, hook.name, |py| {
            let answer = hook.method.bind(py).call1((Passing { now, packet },))?;
            if answer.is_none() {
                return Ok(Verdict::PASS);
            }
            answer.extract::<Verdict>().map_err(|_| {
                PyTypeError::new_err(format!(
                    "it returned {answer:?}; a verdict is a `tollway.Verdict`, or None for PASS"
                ))
            })
        });
        match verdict {
            None | Some(Verdict::PASS) => link::Verdict::Pass,
            Some(Verdict::SIGNAL) => link::Verdict::Signal,
            Some(Verdict::DROP) => link::Verdict::Drop,
        }
    }
}

impl LinkLaw for PyLink {
    fn on_arrival(&mut self, now: Time, packet: link::Passing, _: &Toll) -> link::Verdict {
        self.judge(&self.on_arrival, now, packet)
    }

    fn on_departure(&mut self, now: Time, packet: link::Passing, _: &mut Toll) -> link::Verdict {
        self.on_departure.as_ref().map_or(link::Verdict::Pass, |hook| self.judge(hook, now, packet))
    }

    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        let Some(hook) = &self.on_capacity else { return };
        let told = (now.nearest_secs(), capacity.bps());
        self.trouble.ask(&self.link, hook.name, |py| hook.method.bind(py).call1(told).map(drop));
    }
}
