//! Who is shown something and may be slow to take it: a reader behind a pipe, a terminal at the end of a line that hangs.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Shows one thing after the other from a thread of its own. What is there to be shown while that is held up is left out: nobody waits for it.
pub(crate) struct Outlet<T> {
    next: Option<SyncSender<T>>,
    ended: Receiver<()>,
}

impl<T: Send + 'static> Outlet<T> {
    /// Has `show` called, until it answers that nobody looks any more.
    pub(crate) fn open(show: impl FnMut(T) -> bool + Send + 'static) -> io::Result<Outlet<T>> {
        Outlet::with_room(1, show)
    }

    /// Like [`Outlet::open`], with room for `room` things that wait.
    pub(crate) fn with_room(
        room: usize,
        mut show: impl FnMut(T) -> bool + Send + 'static,
    ) -> io::Result<Outlet<T>> {
        let (next, things) = sync_channel(room);
        let (end, ended) = sync_channel(0);
        std::thread::Builder::new().name("outlet".into()).spawn(move || {
            let _end: SyncSender<()> = end;
            while things.recv().is_ok_and(&mut show) {}
        })?;
        Ok(Outlet { next: Some(next), ended })
    }

    /// Shows something, or leaves it out; answers whether somebody looks on.
    pub(crate) fn show(&self, thing: T) -> bool {
        let next = self.next.as_ref();
        next.is_some_and(|next| !matches!(next.try_send(thing), Err(TrySendError::Disconnected(_))))
    }
}

impl<T> Outlet<T> {
    /// Lets the last one be shown to its end, if that is soon; answers whether it is.
    pub(crate) fn end(&mut self) -> bool {
        // It has been waited for once.
        let patience = self.next.take().map_or(Duration::ZERO, |_| PATIENCE);
        self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// For what is half shown.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_is_slow_holds_nobody_up_and_who_is_not_has_all() {
        let (shown, seen) = channel();
        let (go_on, wait) = channel::<()>();
        let mut outlet =
            Outlet::open(move |number: u32| wait.recv().is_ok() && shown.send(number).is_ok()).unwrap();
        assert!((0..1000).all(|number| outlet.show(number)), "nobody waits");
        assert!(!outlet.end(), "it is held up");
        drop(outlet);
        drop(go_on);
        assert!(seen.recv().is_err(), "nothing was taken");

        let (shown, seen) = channel();
        let mut outlet = Outlet::open(move |number: u32| shown.send(number).is_ok()).unwrap();
        assert!(outlet.show(7) && outlet.end());
        assert_eq!(seen.recv(), Ok(7));

        let outlet = Outlet::open(|()| false).unwrap();
        outlet.show(());
        while outlet.show(()) {
            std::thread::yield_now();
        }
    }
}
