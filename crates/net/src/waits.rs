//! Waits of threads for a processor.

use tollway_law::Time;

/// Waits for a processor of threads that could run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Sum of all waits, in ns.
    pub total: u64,
    /// Number of waits, also those without delay.
    pub count: u64,
}

impl Waited {
    /// Mean of a wait; zero if there was none, or the system does not count them.
    pub fn mean(&self) -> Time {
        Time(self.total.checked_div(self.count).unwrap_or(0))
    }
}

impl std::iter::Sum for Waited {
    fn sum<I: Iterator<Item = Waited>>(all: I) -> Waited {
        all.fold(Waited::default(), |sum, one| Waited {
            total: sum.total + one.total,
            count: sum.count + one.count,
        })
    }
}

#[cfg(target_os = "linux")]
pub(crate) use of_threads::Waits;

#[cfg(target_os = "linux")]
mod of_threads {
    use std::fs;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use rustix::thread::{Pid, gettid};

    use super::Waited;
    use crate::punctual::Punctual;

    /// Waits of a group of threads of this process, some of which may have ended.
    #[derive(Debug, Default)]
    pub(crate) struct Waits(Mutex<Vec<(Pid, Option<Waited>)>>);

    impl Waits {
        /// Runs the work of the calling thread, punctually, and counts its waits.
        pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
            let _punctual = Punctual::thread();
            let mut threads = self.threads();
            let at = threads.len();
            threads.push((gettid(), None));
            drop(threads);
            let done = work();
            self.threads()[at].1 = waited(gettid());
            done
        }

        /// The waits of all threads so far.
        pub(crate) fn sum(&self) -> Waited {
            self.threads().iter().filter_map(|&(thread, ended)| ended.or_else(|| waited(thread))).sum()
        }

        fn threads(&self) -> MutexGuard<'_, Vec<(Pid, Option<Waited>)>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// The kernel's count of a living thread's waits. A kernel built without it has no such file.
    fn waited(thread: Pid) -> Option<Waited> {
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        let mut figures = text.split_whitespace().skip(1).map(str::parse);
        Some(Waited { total: figures.next()?.ok()?, count: figures.next()?.ok()? })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn waits_of_living_and_ended_threads_are_counted() {
        let (waits, (end, ended)) = (&Waits::default(), channel::<()>());
        assert_eq!(waits.sum(), Waited::default());
        let sleep = || std::thread::sleep(Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(move || waits.during(|| assert!(ended.recv().is_err())));
            scope.spawn(|| waits.during(|| (0..5).for_each(|_| sleep()))).join().expect("sleeps");
            let while_one_lives = waits.sum();
            assert!(while_one_lives.count >= 6, "{while_one_lives:?}");
            drop(end);
        });
        assert!(waits.sum().count >= 6, "{:?}", waits.sum());
    }
}
