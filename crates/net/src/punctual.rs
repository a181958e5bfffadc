//! Punctuality of threads: the system's support, and the threads' own waiting.

use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use tollway_law::Time;

use crate::clock::Clock;
use crate::error::Error;

/// A guard: until it drops, the calling thread sleeps precisely, with real-time priority if
/// possible.
///
/// Without it, Linux delays the end of a sleep by up to 50 µs. On a busy machine an ordinary thread
/// that wakes up also waits for others' time slices of 3 ms. Real-time priority (root, or
/// `CAP_SYS_NICE`) prevents that. Without this priority a busy machine makes the emulation late.
/// The lateness is measured in any case.
#[derive(Debug)]
pub(crate) struct Punctual {
    #[cfg(target_os = "linux")]
    real_time: bool,
}

impl Punctual {
    pub(crate) fn thread() -> Punctual {
        #[cfg(target_os = "linux")]
        {
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            Punctual { real_time: set_policy(libc::SCHED_FIFO, 1) }
        }
        #[cfg(not(target_os = "linux"))]
        Punctual {}
    }

    /// Returns true if the thread has real-time priority.
    pub(crate) fn is_real_time(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.real_time;
        #[cfg(not(target_os = "linux"))]
        false
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        {
            let _ = rustix::thread::set_current_timer_slack(None);
            if self.real_time {
                set_policy(libc::SCHED_OTHER, 0);
            }
        }
    }
}

/// Gives the calling thread a scheduling policy. Returns false if the system refuses.
///
/// It is unsafe because none of the crates here wraps the call. Its effect, measured on two cores
/// with eight other busy threads: 99 % of departures are at most 0.07 ms late instead of 7.9 ms. A
/// nice value of -20 changed nothing.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe wrapper of sched_setscheduler(2) among our dependencies; see above")]
pub fn set_policy(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads `parameters`, which outlives the call, and keeps nothing; 0 is the
    // calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// A wait for input that meets deadlines more precisely than a sleep.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// True if the thread has real-time priority.
    pub(crate) real_time: bool,
    /// True if it sleeps up to its deadlines, and so wakes some ten microseconds late. Threads that
    /// share a processor would otherwise take it from each other by polling.
    pub(crate) patient: bool,
    /// End of the last wait.
    woke: Time,
    /// Sleep still due, in ns: a part of the time awake, less the time slept.
    owed: u64,
    /// Usual delay of the poll's wake-ups, in ns. The thread stops sleeping that long before a
    /// deadline.
    overshoot: u64,
}

impl Default for Sleeper {
    fn default() -> Sleeper {
        Sleeper { real_time: false, patient: false, woke: Time::ZERO, owed: 0, overshoot: 50_000 }
    }
}

impl Sleeper {
    /// Waits for input, or until shortly before `deadline`. Returns how many of `fds` are ready.
    ///
    /// The caller polls for the rest of the time, since no sleep ends on the microsecond.
    pub(crate) fn wait(
        &mut self,
        clock: &Clock,
        fds: &mut [PollFd<'_>],
        deadline: Time,
    ) -> Result<usize, Error> {
        let mut before = clock.now();
        self.owed += before.saturating_sub(self.woke).0 / AWAKE;
        if self.real_time && self.owed > REST.as_nanos() as u64 {
            // The kernel stops a real-time thread that never sleeps for 50 ms in each second. Short
            // rests avoid that.
            std::thread::sleep(REST);
            self.owed = 0;
            before = clock.now();
        }
        let early = if self.patient { 0 } else { self.overshoot + self.overshoot / 2 };
        let span = deadline.saturating_sub(before).0.saturating_sub(early);
        let timeout =
            Timespec { tv_sec: (span / 1_000_000_000) as i64, tv_nsec: (span % 1_000_000_000) as _ };
        let ready = loop {
            match rustix::event::poll(fds, Some(&timeout)) {
                Ok(ready) => break ready,
                // The signal handler has run; the run's owner checks its flag.
                Err(rustix::io::Errno::INTR) => break 0,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(Error::Wait(error.into())),
            }
        };
        self.woke = clock.now();
        let slept = self.woke.saturating_sub(before).0;
        if span > 0 {
            // A call that does not wait takes some time too.
            self.owed = self.owed.saturating_sub(slept.saturating_sub(CALL));
        }
        if span > 0 && ready == 0 {
            let over = slept.saturating_sub(span).min(MOST_OVERSHOOT);
            self.overshoot = (self.overshoot * 15 + over) / 16;
            self.overshoot = self.overshoot.max(LEAST_OVERSHOOT);
        }
        Ok(ready)
    }
}

/// A real-time thread sleeps for 1/[`AWAKE`] of its time awake, in rests of at least [`REST`].
const AWAKE: u64 = 12;
const REST: Duration = Duration::from_micros(100);
/// Duration in ns of a system call that finds input at once.
const CALL: u64 = 2_000;
/// Bounds of the assumed delay of wake-ups, in ns.
const LEAST_OVERSHOOT: u64 = 5_000;
const MOST_OVERSHOOT: u64 = 150_000;
