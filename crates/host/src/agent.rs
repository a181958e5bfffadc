//! The agent of a machine: the programs in the kernel, and what they report.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use tollway_agent::control::ask;
use tollway_agent::control::{self, ControlSocket};
pub use tollway_agent::events::Events;
pub use tollway_net::sys::signals::Signals;

use crate::config::{Config, TenantOf};
use crate::programs::{Law, Programs};
use crate::service::Host;
use crate::status::{ConnectionStatus, Status, TenantStatus};

/// Programs with a heartbeat, and their status. When dropped, connections fall back.
#[derive(Debug)]
pub struct Agent {
    host: Arc<Host>,
    observer: Arc<Mutex<Observer>>,
    next: Instant,
    events: Events,
}

impl Agent {
    /// Starts the heartbeat of `programs`; `source` names the origin of the configuration, and
    /// `events` receives fallbacks.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(programs: Programs, config: &Config, source: String, events: Events) -> io::Result<Agent> {
        let host = Arc::new(Host::start(programs, config.budgets())?);
        let observer = Observer {
            host: Arc::clone(&host),
            tenant_of: config.tenant_of(),
            config: config.clone(),
            source,
            begun: Instant::now(),
            looked: Instant::now(),
            rates: HashMap::new(),
            fallen: HashSet::new(),
            forged: 0,
            trouble: None,
        };
        Ok(Agent { host, observer: Arc::new(Mutex::new(observer)), next: Instant::now(), events })
    }

    /// The programs.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A handle for status queries.
    pub fn teller(&self) -> Teller {
        Teller(Arc::clone(&self.observer))
    }

    /// Measures rates and logs fallbacks, once a second. To be called more often.
    pub fn tick(&mut self) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + SECOND;
            observer(&self.observer).look(now, &self.events);
        }
    }
}

/// A handle to an agent's status, for any thread.
#[derive(Clone, Debug)]
pub struct Teller(Arc<Mutex<Observer>>);

impl Teller {
    /// The present status as JSON.
    pub fn status_json(&self) -> Option<serde_json::Value> {
        serde_json::to_value(observer(&self.0).status()).ok()
    }

    /// Answers at the control socket until it is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn answer_at(&self, control: &ControlSocket) -> io::Result<()> {
        let teller = self.clone();
        control.serve(move |_| teller.status_json().map_or_else(String::new, |status| status.to_string()))
    }
}

fn observer(of: &Mutex<Observer>) -> std::sync::MutexGuard<'_, Observer> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of connections between two looks.
struct Observer {
    host: Arc<Host>,
    config: Config,
    tenant_of: TenantOf,
    source: String,
    begun: Instant,
    looked: Instant,
    /// By cookie: bytes acknowledged at the last look, and bytes/s in the second before.
    rates: HashMap<u64, (u64, f64)>,
    /// Connections whose fallback is in the log.
    fallen: HashSet<u64>,
    forged: u64,
    trouble: Option<String>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Observer {
    fn look(&mut self, now: Instant, events: &Events) {
        let connections = match self.host.connections() {
            Ok(connections) => connections,
            Err(error) => {
                events.error("connections", format_args!("cannot read connections: {error}"));
                self.trouble = Some(format!("connections cannot be read: {error}"));
                return;
            }
        };
        self.trouble = None;
        let elapsed = now.saturating_duration_since(self.looked).as_secs_f64().max(1e-3);
        self.looked = now;
        let before = std::mem::take(&mut self.rates);
        for connection in &connections {
            // A new connection's bytes are of this second.
            let last = before.get(&connection.cookie).map_or(0, |known| known.0);
            let rate = connection.acked.saturating_sub(last) as f64 / elapsed;
            self.rates.insert(connection.cookie, (connection.acked, rate));
            if let Some(cause) = connection.fallen
                && self.fallen.insert(connection.cookie)
            {
                events.info("fallback", format_args!("{connection} fell back: {cause}"));
            }
        }
        self.fallen.retain(|cookie| self.rates.contains_key(cookie));
        let forged = self.host.counts().map_or(self.forged, |counts| counts.forged);
        if forged > self.forged {
            events
                .warn("forged", format_args!("{} echoes exceeded what routers grant", forged - self.forged));
            self.forged = forged;
        }
    }

    fn status(&mut self) -> Status {
        let (connections, read) = match self.host.connections() {
            Ok(connections) => (connections, None),
            Err(error) => (Vec::new(), Some(format!("connections cannot be read: {error}"))),
        };
        let counts = self.host.counts().unwrap_or_default();
        let settings = &self.config.settings;
        let budgets = settings.law == Law::Fcp;
        let mut tenants: Vec<TenantStatus> = Vec::new();
        for tenant in &self.config.tenants {
            tenants.push(TenantStatus {
                tenant: tenant.name.clone(),
                budget: budgets.then(|| tenant.budget.get()),
                strategy: budgets.then(|| tenant.strategy.to_owned()),
                ..TenantStatus::default()
            });
        }
        let mut rows = Vec::new();
        for connection in &connections {
            let rate = self.rates.get(&connection.cookie).map_or(0.0, |known| known.1);
            let tenant = (self.tenant_of)(connection).map(|at| &mut tenants[at]);
            let name = tenant.as_ref().map(|tenant| tenant.tenant.clone());
            if let Some(tenant) = tenant {
                tenant.active += usize::from(connection.active);
                tenant.fallen += usize::from(connection.fallen.is_some());
                tenant.rate_mbps += rate * 8e-6;
            }
            rows.push(ConnectionStatus::new(connection, name, rate));
        }
        rows.sort_by(|a, b| {
            b.rate_mbps.total_cmp(&a.rate_mbps).then_with(|| a.connection.cmp(&b.connection))
        });
        let hung = self.host.is_late().then(|| "no heartbeat: connections fall back".to_owned());
        Status {
            law: settings.law.word().to_owned(),
            congestion: self.host.name().to_owned(),
            source: self.source.clone(),
            ordinary: settings.ordinary.clone(),
            up_s: self.begun.elapsed().as_secs_f64(),
            opened: counts.opened,
            active: connections.iter().filter(|connection| connection.active).count(),
            fallen: (&counts).into(),
            forged: counts.forged,
            trouble: hung.or(read).or_else(|| self.trouble.clone()),
            tenants,
            connections: rows,
        }
    }
}

/// The default control socket of this user.
pub fn default_path() -> PathBuf {
    control::folder().join("host.sock")
}

const SECOND: Duration = Duration::from_secs(1);
