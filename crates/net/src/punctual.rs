//! What the system can do for a thread that has to be on time, and what the thread does itself.

use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use tollway_law::Time;

use crate::clock::Clock;
use crate::error::Error;

/// While it lives, the calling thread's sleeps end on time and, where the system allows it, other work steps back.
///
/// Sleeps are otherwise bundled with others within 50 µs (Linux). And an ordinary thread that wakes up waits for
/// others' slices of time, 3 ms each, on a machine that has other work: real-time priority (root, or `CAP_SYS_NICE`) ends
/// that. Without it a busy machine makes the emulation late, which is measured either way.
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

    /// Whether other work steps back.
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

/// Gives the calling thread a scheduling policy; answers whether the system agreed.
///
/// Unsafe, since none of the crates here wraps the call. What it is worth, measured on two cores with eight other busy threads:
/// 99 % of departures at most 0.07 ms late instead of 7.9 ms, where a nice value of -20 changed nothing.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe wrapper of sched_setscheduler(2) among our dependencies; see above")]
pub fn set_policy(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads `parameters`, which outlives the call, and keeps nothing; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// Waits for something to read until deadlines that no sleep would meet.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// Other work steps back.
    pub(crate) real_time: bool,
    /// It sleeps up to its deadlines, and wakes some ten microseconds after them: where many such threads share a processor,
    /// those that look again and again would take it from each other.
    pub(crate) patient: bool,
    /// When the last wait ended.
    woke: Time,
    /// Sleep that it owes, ns: a part of the time for which it was awake, less what it has slept.
    owed: u64,
    /// What the poll's wake-ups usually overshoot, ns: so long before a deadline the thread stops sleeping.
    overshoot: u64,
}

impl Default for Sleeper {
    fn default() -> Sleeper {
        Sleeper { real_time: false, patient: false, woke: Time::ZERO, owed: 0, overshoot: 50_000 }
    }
}

impl Sleeper {
    /// Waits for something to read, or until shortly before `deadline`; the rest of the time the caller looks again and
    /// again, since no sleep ends on the microsecond. Answers how many of `fds` have something.
    pub(crate) fn wait(
        &mut self,
        clock: &Clock,
        fds: &mut [PollFd<'_>],
        deadline: Time,
    ) -> Result<usize, Error> {
        let mut before = clock.now();
        self.owed += before.saturating_sub(self.woke).0 / AWAKE;
        if self.real_time && self.owed > REST.as_nanos() as u64 {
            // A real-time thread that never sleeps is stopped by the kernel for 50 ms in each second: better short
            // rests than that.
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
                // The interrupt handler has done its work; the run's owner asks for its flag.
                Err(rustix::io::Errno::INTR) => break 0,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(Error::Wait(error.into())),
            }
        };
        self.woke = clock.now();
        let slept = self.woke.saturating_sub(before).0;
        if span > 0 {
            // A call that does not wait takes a moment too.
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

/// A real-time thread sleeps for one part in so many of the time for which it is awake, and for how long at least.
const AWAKE: u64 = 12;
const REST: Duration = Duration::from_micros(100);
/// What a system call takes that finds something at once, ns.
const CALL: u64 = 2_000;
/// Bounds of what sleeps are taken to overshoot, ns.
const LEAST_OVERSHOOT: u64 = 5_000;
const MOST_OVERSHOOT: u64 = 150_000;
