//! The programs with their heartbeat.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollway_agent::programs::now;
use tollway_law::{Budget, Time};

use crate::budgets::Budgets;
use crate::connection::Connection;
use crate::programs::Programs;

/// Programs whose heartbeat a thread sends, until it is dropped. Connections then fall back.
#[derive(Debug)]
pub struct Host {
    programs: Arc<Programs>,
    /// Time of the last heartbeat, in ns of the monotonic clock.
    beaten: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts the heartbeat, and the division of budgets under FCP.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(programs: Programs, budgets: Option<Budgets>) -> io::Result<Host> {
        let Some(mut budgets) = budgets else { return Host::start_with(programs, BEAT, |_, _| {}) };
        Host::start_with(programs, TICK, move |programs, connections| {
            budgets.divide(Time::from_nanos(now()), connections, |cookie, budget| {
                // A connection may have ended, and beyond the table's room it keeps its first
                // spending.
                let _ = match budget == Budget::ZERO {
                    true => programs.remove_budget(cookie),
                    false => programs.set_budget(cookie, budget),
                };
            });
        })
    }

    /// Starts the heartbeat; every `pause`, `work` receives the connections.
    pub(crate) fn start_with(
        programs: Programs,
        pause: Duration,
        mut work: impl FnMut(&Programs, &[Connection]) + Send + 'static,
    ) -> io::Result<Host> {
        let programs = Arc::new(programs);
        let (stop, stopped) = channel();
        let beaten = Arc::new(AtomicU64::new(now()));
        let (beating, last) = (Arc::clone(&programs), Arc::clone(&beaten));
        let beat = move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                beating.beat();
                last.store(now(), Ordering::Relaxed);
                if pause < BEAT
                    && let Ok(connections) = beating.connections()
                {
                    work(&beating, &connections);
                }
            }
        };
        let thread = thread::Builder::new().name("tollway-beat".into()).spawn(beat)?;
        Ok(Host { programs, beaten, stop: Some(stop), thread: Some(thread) })
    }

    /// True if a heartbeat is overdue: the thread hangs, or has ended.
    pub fn is_late(&self) -> bool {
        now().saturating_sub(self.beaten.load(Ordering::Relaxed)) > 4 * BEAT.as_nanos() as u64
    }
}

impl Deref for Host {
    type Target = Programs;

    fn deref(&self) -> &Programs {
        &self.programs
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has no reason to panic, and holds nothing that others need.
            let _ = thread.join();
        }
    }
}

/// Interval of divisions.
pub(crate) const TICK: Duration = Duration::from_millis(5);
/// Interval of heartbeats, an eighth of the default lease.
const BEAT: Duration = Duration::from_millis(250);
