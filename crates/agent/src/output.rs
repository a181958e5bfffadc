//! Output to readers that may be slow: a pipe, or a terminal on a connection that hangs.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Shows values in turn from a background thread. Values that come while it is busy are dropped, so
/// that the caller never waits.
pub struct LossyOutput<T> {
    next: Option<SyncSender<T>>,
    ended: Receiver<()>,
}

impl<T: Send + 'static> LossyOutput<T> {
    /// Starts a thread that calls `show` with each value, until it returns false.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(show: impl FnMut(T) -> bool + Send + 'static) -> io::Result<LossyOutput<T>> {
        LossyOutput::with_room(1, show)
    }

    /// As [`LossyOutput::open`], with a queue of `room` values.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn with_room(
        room: usize,
        mut show: impl FnMut(T) -> bool + Send + 'static,
    ) -> io::Result<LossyOutput<T>> {
        let (next, things) = sync_channel(room);
        let (end, ended) = sync_channel(0);
        std::thread::Builder::new().name("outlet".into()).spawn(move || {
            let _end: SyncSender<()> = end;
            while things.recv().is_ok_and(&mut show) {}
        })?;
        Ok(LossyOutput { next: Some(next), ended })
    }

    /// Queues a value, or drops it if the queue is full. Returns false if the thread has ended.
    pub fn show(&self, thing: T) -> bool {
        !matches!(self.offer(thing), Err(TrySendError::Disconnected(_)))
    }

    /// Queues a value.
    pub(crate) fn offer(&self, thing: T) -> Result<(), TrySendError<T>> {
        match &self.next {
            Some(next) => next.try_send(thing),
            None => Err(TrySendError::Disconnected(thing)),
        }
    }
}

impl<T> LossyOutput<T> {
    /// Waits up to a second for the last value to be shown. Returns true if the thread has
    /// ended.
    pub fn end(&mut self) -> bool {
        // A second call does not wait again.
        let patience = self.next.take().map_or(Duration::ZERO, |_| PATIENCE);
        self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

impl<T> std::fmt::Debug for LossyOutput<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LossyOutput").finish_non_exhaustive()
    }
}

impl<T> Drop for LossyOutput<T> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Longest wait for a value that is being shown.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_slow_reader_delays_no_caller_and_a_fast_one_gets_each_value() {
        let (shown, seen) = channel();
        let (go_on, wait) = channel::<()>();
        let mut output =
            LossyOutput::open(move |number: u32| wait.recv().is_ok() && shown.send(number).is_ok()).unwrap();
        assert!((0..1000).all(|number| output.show(number)), "no call waits");
        assert!(!output.end(), "the reader is slow");
        drop(output);
        drop(go_on);
        assert!(seen.recv().is_err(), "no value was shown");

        let (shown, seen) = channel();
        let mut output = LossyOutput::open(move |number: u32| shown.send(number).is_ok()).unwrap();
        assert!(output.show(7) && output.end());
        assert_eq!(seen.recv(), Ok(7));

        let output = LossyOutput::open(|()| false).unwrap();
        output.show(());
        while output.show(()) {
            std::thread::yield_now();
        }
    }
}
