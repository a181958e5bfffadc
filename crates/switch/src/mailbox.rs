//! Commands from other threads to an event loop.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::setup::Setup;
use crate::status::Status;

/// A command to an engine.
#[derive(Debug)]
pub(crate) enum EngineCommand {
    /// Put another configuration in force.
    Install(Setup, Sender<Result<(), String>>),
    /// Drain a member, or end its drain; an unknown name is answered with the known ones.
    Drain(String, bool, Sender<Result<(), Vec<String>>>),
    /// Report the status.
    Status(Sender<Status>),
    /// Accept no more connections and frames; end once the work under way is done.
    End,
}

/// The queue of commands to an engine.
#[derive(Debug, Default)]
pub struct Mailbox {
    commands: Mutex<Vec<EngineCommand>>,
    waker: OnceLock<mio::Waker>,
}

impl Mailbox {
    pub(crate) fn attach(&self, waker: mio::Waker) {
        // An engine has one.
        let _ = self.waker.set(waker);
    }

    pub(crate) fn take(&self) -> Vec<EngineCommand> {
        std::mem::take(&mut self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn put(&self, command: EngineCommand) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        if let Some(waker) = self.waker.get() {
            // It looks by itself before long.
            let _ = waker.wake();
        }
    }
}
