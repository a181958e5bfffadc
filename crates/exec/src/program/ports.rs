//! The ports to which connections are relayed, and faults of these connections: resets, stalls,
//! delayed ends.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tollway_net::Error;
use tollway_net::sys::problem;
use tollway_scenario::plan::{Connections, PortChange};

/// The treatment of the connections to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// The treatment of their bytes.
    pub connections: Connections,
    /// The delay of the end of each direction.
    pub close_delay: Duration,
}

/// The ports of nodes to which connections are relayed, each with its treatment.
#[derive(Clone, Debug)]
pub struct Ports(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// By node and port.
    ports: BTreeMap<(u32, u16), Entry>,
    /// Hangs up at the next change of a treatment.
    changed: Arc<PipeReader>,
    unchanged: PipeWriter,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    treatment: Treatment,
    /// A relay at the node itself leads to the host.
    published: bool,
}

/// A port as one of its relays sees it.
#[derive(Clone, Debug)]
pub(super) struct Port {
    ports: Ports,
    key: (u32, u16),
    /// The relay is the one at the node itself.
    published: bool,
}

impl Ports {
    pub(super) fn new() -> io::Result<Ports> {
        let (changed, unchanged) = io::pipe()?;
        let state = State { ports: BTreeMap::new(), changed: Arc::new(changed), unchanged };
        Ok(Ports(Arc::new(Mutex::new(state))))
    }

    /// Adds a relay to `port` of `node`; `published` if it is at the node itself.
    pub(super) fn relay(&self, node: u32, port: u16, published: bool) -> Port {
        let key = (node, port);
        self.state().ports.entry(key).or_default().published |= published;
        Port { ports: self.clone(), key, published }
    }

    /// The ports, by node and number.
    pub fn list(&self) -> Vec<((u32, u16), Treatment)> {
        self.state().ports.iter().map(|(&key, entry)| (key, entry.treatment)).collect()
    }

    /// Changes the treatment of the connections to a port. Returns false if none are relayed there.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn change(&self, change: PortChange) -> io::Result<bool> {
        let mut state = self.state();
        let Some(Entry { treatment, .. }) = state.ports.get_mut(&(change.node.0, change.port)) else {
            return Ok(false);
        };
        treatment.connections = change.connections.unwrap_or(treatment.connections);
        if let Some(delay) = change.close_delay {
            treatment.close_delay = Duration::from_nanos(delay.0);
        }
        let (changed, unchanged) = io::pipe()?;
        (state.changed, state.unchanged) = (Arc::new(changed), unchanged);
        Ok(true)
    }

    /// Checks that each of `changes` concerns a port here.
    ///
    /// # Errors
    /// [`Error::NotRelayed`].
    pub(super) fn have(&self, changes: &[PortChange], nodes: &[String]) -> Result<(), Error> {
        let state = self.state();
        match changes.iter().find(|change| !state.ports.contains_key(&(change.node.0, change.port))) {
            Some(change) => {
                Err(Error::NotRelayed { node: nodes[change.node.0 as usize].clone(), port: change.port })
            }
            None => Ok(()),
        }
    }

    /// Returns the start of `changes`, which are in order of time. Each is made at its time after
    /// the start.
    pub(super) fn follow(&self, changes: &[PortChange]) -> Result<impl FnOnce() + Send + use<>, Error> {
        let (start, started) = mpsc::channel();
        if !changes.is_empty() {
            let (ports, changes) = (self.clone(), changes.to_vec());
            let follow = move || {
                let Ok(start) = started.recv() else { return };
                for change in changes {
                    std::thread::sleep(
                        Duration::from_nanos(change.at.0).saturating_sub(Instant::elapsed(&start)),
                    );
                    // Without descriptors, open connections keep their treatment.
                    let _ = ports.change(change);
                }
            };
            let thread = std::thread::Builder::new().name("tollway-faults".into());
            thread.spawn(follow).map_err(problem("start a thread"))?;
        }
        Ok(move || {
            // Without changes, no thread waits.
            let _ = start.send(Instant::now());
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    /// The treatment of connections at this relay, and a pipe that hangs up when it may have
    /// changed.
    ///
    /// If a second relay is at the node itself, ends are delayed there only.
    pub(super) fn treatment(&self) -> (Treatment, Arc<PipeReader>) {
        let state = self.ports.state();
        let Entry { mut treatment, published } = state.ports.get(&self.key).copied().unwrap_or_default();
        if published && !self.published {
            treatment.close_delay = Duration::ZERO;
        }
        (treatment, Arc::clone(&state.changed))
    }
}
