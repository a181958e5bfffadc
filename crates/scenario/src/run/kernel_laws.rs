//! Laws that programs bring to the kernel's TCP, for flows of live runs.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tollway_law::{Budget, Price};

use super::RunError;
use super::engine::{Congestion, Program};
use crate::plan::{Plan, TransportId};

/// A loader of laws into the kernel's TCP. Connections are named by their own address.
pub trait KernelLaws: fmt::Debug + Send + Sync {
    /// Loads a law, once. Returns the kernel's name of its congestion control, which sockets of
    /// this process select.
    ///
    /// # Errors
    /// The kernel lacks a feature, or this process a right.
    fn load(&self, program: &Program) -> Result<String, String>;

    /// The price of a connection's path, once known.
    fn price(&self, local: SocketAddr) -> Option<Price>;

    /// Sets the budget of a connection, also before it is open.
    fn set_budget(&self, local: SocketAddr, budget: Budget);

    /// Connections that have left their law since the last call, with causes; `None` if there are
    /// none.
    fn fallen(&self) -> Option<String>;
}

/// The laws of a run, with the kernel's names of those loaded.
pub(super) struct Loaded {
    laws: Option<Arc<dyn KernelLaws>>,
    names: BTreeMap<Program, String>,
}

impl Loaded {
    /// Loads the laws that flows and workloads of `plan` need.
    pub(super) fn new(plan: &Plan, laws: Option<&Arc<dyn KernelLaws>>) -> Result<Loaded, RunError> {
        let flows = plan.flows.iter().map(|flow| (format!("flow.{}", flow.section), flow.transport));
        let workloads = plan.workloads.iter().map(|w| (format!("workload.{}", w.name), w.transport));
        let mut names = BTreeMap::new();
        for (section, TransportId(transport)) in flows.chain(workloads) {
            let transport = &plan.transports[transport as usize];
            let Congestion::Program(program) = Congestion::of(transport) else { continue };
            if !transport.kernel || names.contains_key(&program) {
                continue;
            }
            let law = program.law.clone();
            let failed = |message: String| RunError::KernelLaw { section, law, message };
            let Some(laws) = laws else { return Err(failed("use the command `tollway run`".into())) };
            let name = laws.load(&program).map_err(failed)?;
            names.insert(program, name);
        }
        Ok(Loaded { laws: laws.cloned(), names })
    }

    /// The kernel's name of a congestion control.
    pub(super) fn name(&self, of: Congestion) -> String {
        match of {
            Congestion::Linux(name) => name.to_owned(),
            Congestion::Program(program) => self.names.get(&program).cloned().unwrap_or_default(),
        }
    }

    pub(super) fn price(&self, local: SocketAddr) -> Option<Price> {
        self.laws.as_ref()?.price(local)
    }

    pub(super) fn fallen(&self) -> Option<String> {
        self.laws.as_ref()?.fallen()
    }

    pub(super) fn set_budget(&self, local: SocketAddr, budget: Budget) {
        if let Some(laws) = &self.laws {
            laws.set_budget(local, budget);
        }
    }
}
