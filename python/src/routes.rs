//! Routing modules written in Python: their arguments, and the calls of their methods.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tollway_proto::route::{self, Policy, Route};
use tollway_scenario::plan::{self, Failure, MakeRoute};

use crate::laws::{Hook, Maker, Trouble};

impl MakeRoute for Maker {
    fn make(&self, of: &plan::Spreading<'_>) -> Box<dyn Route + Send> {
        let made = self.trouble.ask(of.switch, "the making", |py| {
            let spreading = Spreading {
                switch: of.switch.to_owned(),
                session: of.session.to_owned(),
                members: of.members.iter().map(|&member| member.to_owned()).collect(),
                seed: of.seed,
            };
            let module = self.factory.bind(py).call1((spreading,))?;
            let pick = Hook::of(&module, "pick")?;
            Ok(PyRoute { switch: of.switch.into(), trouble: self.trouble.clone(), pick })
        });
        match made {
            Some(module) => Box::new(module),
            None => Policy::RoundRobin.module(0),
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.trouble.failure()
    }
}

/// A session's routing module in Python.
struct PyRoute {
    switch: Arc<str>,
    trouble: Trouble,
    pick: Hook,
}

impl Route for PyRoute {
    fn pick(&mut self, item: &route::Item, members: &[route::Candidate]) -> Option<usize> {
        let picked = self.trouble.ask(&self.switch, self.pick.name, |py| {
            let shown: Vec<Candidate> = members.iter().map(|&member| Candidate(member)).collect();
            place(&self.pick.method.bind(py).call1((Item::from(item), shown))?, members)
        });
        picked.flatten()
    }
}

/// The member's index that a module returned, checked.
fn place(answer: &Bound<'_, PyAny>, members: &[route::Candidate]) -> PyResult<Option<usize>> {
    if answer.is_none() {
        return Ok(None);
    }
    let at: usize = answer.extract().map_err(|_| {
        PyTypeError::new_err(format!("it returned {answer:?}; `pick` returns a place among members, or None"))
    })?;
    match members.get(at) {
        Some(member) if member.up => Ok(Some(at)),
        Some(_) => Err(PyValueError::new_err(format!("it returned {at}; that member is not `up`"))),
        None => {
            Err(PyValueError::new_err(format!("it returned {at}, and there are {} members", members.len())))
        }
    }
}

/// The session that a routing module is made for.
#[pyclass(frozen, get_all, module = "tollway")]
struct Spreading {
    switch: String,
    session: String,
    members: Vec<String>,
    seed: u64,
}

/// A frame, as a routing module sees it.
#[pyclass(frozen, get_all, module = "tollway", freelist = 16)]
struct Item {
    session: u64,
    key: u64,
    size: u32,
}

impl From<&route::Item<'_>> for Item {
    fn from(item: &route::Item<'_>) -> Item {
        Item { session: item.session, key: item.key, size: item.size }
    }
}

/// A member of a cluster, as a routing module sees it.
#[pyclass(frozen, module = "tollway", freelist = 16)]
struct Candidate(route::Candidate);

#[pymethods]
impl Candidate {
    #[getter]
    fn name(&self) -> u64 {
        self.0.name
    }

    #[getter]
    fn up(&self) -> bool {
        self.0.up
    }

    #[getter]
    fn outstanding(&self) -> u64 {
        self.0.outstanding
    }

    #[getter]
    fn window(&self) -> u64 {
        self.0.window
    }
}

/// Adds the classes of routing modules' arguments to the extension module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Spreading>()?;
    module.add_class::<Item>()?;
    module.add_class::<Candidate>()
}
