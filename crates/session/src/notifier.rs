//! The way from sessions to the thread that moves their packets.

use std::sync::{Mutex, PoisonError};

use mio::Waker;

/// Wakes the thread of a node, with the sessions that it must continue.
#[derive(Debug)]
pub(crate) struct Notifier {
    waker: Waker,
    sessions: Mutex<Vec<usize>>,
}

impl Notifier {
    pub(crate) fn new(waker: Waker) -> Notifier {
        Notifier { waker, sessions: Mutex::default() }
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        // Without it, the thread looks by itself before long.
        let _ = self.waker.wake();
    }

    /// Makes the thread continue a session.
    pub(crate) fn continue_session(&self, key: usize) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.wake();
    }

    /// The sessions to continue.
    pub(crate) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
