//! The laws for flows of a scenario that run over the kernel's TCP.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollway_law::{Budget, Price};
use tollway_scenario::run::{KernelLaws, Program};

use crate::connection::{Cause, Connection};
use crate::group::own_group;
use crate::programs::{Law, Programs, Settings};
use crate::service::{Host, TICK};

/// Programs for sockets of this process that select them, loaded on demand.
#[derive(Debug, Default)]
pub struct Laws {
    hosts: Mutex<HashMap<Program, Host>>,
    known: Arc<Mutex<Known>>,
}

/// Connections by their own address.
#[derive(Debug, Default)]
struct Known {
    /// Prices of open connections, with the number of their programs.
    prices: HashMap<SocketAddr, (usize, Price)>,
    /// Budgets to set once the connection is open.
    waiting: HashMap<SocketAddr, Budget>,
    /// Cookies of connections of earlier runs. They may still be there, with the addresses of new
    /// ones.
    old: HashSet<u64>,
    /// Counts at the last question.
    fallen: [u64; Cause::ALL.len()],
}

impl KernelLaws for Laws {
    fn load(&self, program: &Program) -> Result<String, String> {
        let mut hosts = held(&self.hosts);
        if let Some(host) = hosts.get(program) {
            let connections = host.connections().map_err(|error| error.to_string())?;
            held(&self.known).old.extend(connections.iter().map(|connection| connection.cookie));
            return Ok(host.name().to_owned());
        }
        let law = if program.law == "xcp" { Law::Xcp } else { Law::Fcp };
        let mut settings = Settings::new(law);
        (settings.initial_window, settings.chosen) = (program.initial_window, true);
        if let Some(fallback) = program.fallback {
            fallback.clone_into(&mut settings.ordinary);
        }
        let mut programs = Programs::load(&settings).map_err(|error| error.to_string())?;
        let group = own_group().map_err(|error| error.to_string())?;
        programs.attach(&group).map_err(|error| error.to_string())?;
        let (known, number) = (Arc::clone(&self.known), hosts.len());
        let look = move |programs: &Programs, connections: &[Connection]| {
            let mut known = held(&known);
            known.prices.retain(|_, (of, _)| *of != number);
            for connection in connections {
                if !connection.active || known.old.contains(&connection.cookie) {
                    continue;
                }
                if let Some(price) = connection.price {
                    known.prices.insert(connection.local, (number, price));
                }
                if let Some(budget) = known.waiting.remove(&connection.local) {
                    // A connection may have ended.
                    let _ = programs.set_budget(connection.cookie, budget);
                }
            }
        };
        let host = Host::start_with(programs, TICK, look).map_err(|error| error.to_string())?;
        let name = host.name().to_owned();
        hosts.insert(program.clone(), host);
        Ok(name)
    }

    fn price(&self, local: SocketAddr) -> Option<Price> {
        Some(held(&self.known).prices.get(&local)?.1)
    }

    fn fallen(&self) -> Option<String> {
        let counts = held(&self.hosts)
            .values()
            .filter_map(|host| host.counts().ok())
            .fold([0; Cause::ALL.len()], |sum, counts| std::array::from_fn(|i| sum[i] + counts.fallen[i]));
        let before = std::mem::replace(&mut held(&self.known).fallen, counts);
        let causes =
            Cause::ALL.iter().zip(counts.iter().zip(before)).filter(|(_, (now, before))| *now > before);
        let causes: Vec<String> =
            causes.map(|(cause, (now, before))| format!("{} ({cause})", now - before)).collect();
        (!causes.is_empty()).then(|| causes.join(", "))
    }

    fn set_budget(&self, local: SocketAddr, budget: Budget) {
        held(&self.known).waiting.insert(local, budget);
    }
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
