//! Commands from other threads to an event loop.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::config::Config;
use crate::status::Status;

/// What other threads have an engine do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Another configuration is to be in force.
    Install(Arc<Config>, Sender<Result<(), String>>),
    /// A member is to get no new frames, or some again; unknown names are answered with those that
    /// are known.
    Drain(String, bool, Sender<Result<(), Vec<String>>>),
    /// How does it stand?
    Status(Sender<Status>),
    /// No more connections and frames; end once what is under way is done.
    End,
}

/// Where an engine finds what it is to do.
#[derive(Debug, Default)]
pub struct Mailbox {
    commands: Mutex<Vec<Command>>,
    waker: OnceLock<mio::Waker>,
}

impl Mailbox {
    pub(crate) fn attach(&self, waker: mio::Waker) {
        // An engine has one.
        let _ = self.waker.set(waker);
    }

    pub(crate) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn put(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        if let Some(waker) = self.waker.get() {
            // It looks by itself before long.
            let _ = waker.wake();
        }
    }
}
