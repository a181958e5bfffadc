//! Signals that this process passes to the programs that it runs.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgrp};

/// A guard that blocks the signals that would end this process, and queues them for a run's
/// program.
///
/// Make it before any thread is started. Threads started before would still end the process.
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

/// An operator's order to an agent, by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the configuration again.
    Reload,
    /// End.
    End,
}

impl Signals {
    /// Blocks interrupt, hang-up, quit and termination for this thread and its children, and
    /// SIGCHLD for waking up.
    ///
    /// An ignored signal, as under nohup(1), is not blocked: the kernel would deliver it to a
    /// waiting thread.
    #[expect(unsafe_code, reason = "no safe wrapper of the calls on signal sets among our dependencies")]
    pub fn hold() -> Signals {
        // SAFETY: a zeroed set is a valid argument of sigemptyset, which makes it empty; the calls
        // write only to these two sets.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&raw mut set);
            let ignored = ignored();
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD] {
                if !ignored.contains(&signal) {
                    libc::sigaddset(&raw mut set, signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            // If the parent process has set SIGCHLD to ignored, the kernel keeps no child's exit
            // status.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            Signals { set, before }
        }
    }

    /// Makes the file size limit (`ulimit -f`) an error of the write, like a full disk, instead of
    /// a fatal signal.
    ///
    /// Programs started later still get the signal: exec resets a handler, but would keep an
    /// ignored signal.
    #[expect(unsafe_code, reason = "no safe wrapper of sigaction(2) among our dependencies")]
    pub fn outlast_file_limit() {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing, which is allowed at any time; for both actions all bits
        // zero are a valid value.
        unsafe {
            let (mut old, mut new): (libc::sigaction, libc::sigaction) =
                (std::mem::zeroed(), std::mem::zeroed());
            new.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            new.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut old);
            if old.sa_sigaction == libc::SIG_DFL {
                libc::sigaction(libc::SIGXFSZ, &raw const new, std::ptr::null_mut());
            }
        }
    }

    /// Calls `work`, which sets handlers, then ignores hang-up, interrupt and quit again if they
    /// were ignored.
    #[expect(unsafe_code, reason = "no safe wrapper of signal(2) among our dependencies")]
    pub fn keep_ignored<T>(work: impl FnOnce() -> T) -> T {
        let ignored = ignored();
        let done = work();
        for signal in ignored {
            // SAFETY: ignoring a signal runs no code of this process.
            unsafe {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        done
    }

    /// The signals blocked before, which programs must inherit.
    pub fn before(&self) -> libc::sigset_t {
        self.before
    }

    /// Waits at most `most` for a signal to pass to `program`.
    ///
    /// Signals from the terminal reach every program of its foreground process group directly. If
    /// `program` is in this process's group, such signals are not returned.
    pub fn wait(&self, program: Pid, most: Duration) -> Option<Signal> {
        let (number, code) = self.take(most)?;
        let with_us = || rustix::process::getpgid(Some(program)).is_ok_and(|group| group == getpgrp());
        if number == libc::SIGCHLD || (code == libc::SI_KERNEL && with_us()) {
            return None;
        }
        Signal::from_named_raw(number)
    }

    /// Takes the signal already received that asks this process to end, if any.
    pub fn has_come(&self) -> Option<i32> {
        let taken = std::iter::from_fn(|| self.take(Duration::ZERO));
        taken.map(|(number, _)| number).find(|&number| number != libc::SIGCHLD)
    }

    /// Takes the signals already received, and returns the order of an operator to an agent. A
    /// hang-up is an order to reload, unless the terminal has closed.
    pub fn order(&self) -> Option<Order> {
        let mut order = None;
        while let Some((number, code)) = self.take(Duration::ZERO) {
            match number {
                libc::SIGCHLD => {}
                libc::SIGHUP if code != libc::SI_KERNEL => order = order.or(Some(Order::Reload)),
                _ => order = Some(Order::End),
            }
        }
        order
    }

    /// Sleeps for `span`. Returns true at once if a signal asks this process to end.
    pub fn sleep(&self, span: Duration) -> bool {
        let until = Instant::now() + span;
        loop {
            match self.take(until.saturating_duration_since(Instant::now())) {
                Some((number, _)) if number != libc::SIGCHLD => return true,
                // A child has ended, or the call was interrupted.
                _ if Instant::now() < until => {}
                _ => return false,
            }
        }
    }

    /// Takes the next signal: its number and its origin (`si_code`).
    #[expect(unsafe_code, reason = "no safe wrapper of sigtimedwait(2) among our dependencies")]
    fn take(&self, most: Duration) -> Option<(i32, i32)> {
        let most = libc::timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
        // SAFETY: the kernel reads `set` and `most`, writes to `info`, and keeps nothing; all three
        // outlive the call.
        let (number, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigtimedwait(&raw const self.set, &raw mut info, &raw const most), info)
        };
        (number > 0).then_some((number, info.si_code))
    }
}

/// The signals among hang-up, interrupt and quit that the parent process has set to ignored.
#[expect(unsafe_code, reason = "no safe wrapper of sigaction(2) among our dependencies")]
fn ignored() -> Vec<i32> {
    let is_ignored = |&signal: &i32| {
        // SAFETY: without a new action the call only writes to `old`, of which all bits zero are a
        // valid value.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
        }
    };
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT].into_iter().filter(is_ignored).collect()
}

impl Drop for Signals {
    #[expect(unsafe_code, reason = "no safe wrapper of pthread_sigmask(3) among our dependencies")]
    fn drop(&mut self) {
        // Signals that arrived during the run's end were meant for its program. The results must
        // still be written.
        while self.take(Duration::ZERO).is_some() {}
        // SAFETY: `before` is what pthread_sigmask itself wrote.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "no safe wrapper of raise(3) among our dependencies")]
    fn what_comes_while_a_run_ends_ends_nobody() {
        let signals = Signals::hold();
        // SAFETY: the signal goes to this thread, which holds it.
        assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        drop(signals);
        assert_eq!(Signals::hold().has_come(), None);
    }

    #[test]
    #[expect(unsafe_code, reason = "no safe wrapper of raise(3) among our dependencies")]
    fn a_hang_up_is_an_order_to_reload() {
        let signals = Signals::hold();
        let raise = |signal| {
            // SAFETY: the signal goes to this thread, which holds it.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        };
        assert_eq!(signals.order(), None);
        raise(libc::SIGHUP);
        assert_eq!((signals.order(), signals.order()), (Some(Order::Reload), None));
        raise(libc::SIGHUP);
        raise(libc::SIGTERM);
        assert_eq!(signals.order(), Some(Order::End));
    }

    #[test]
    fn programs_meet_the_limit_on_files_as_they_would_without_us() {
        use std::os::unix::process::ExitStatusExt;
        Signals::outlast_file_limit();
        let path = std::env::temp_dir().join(format!("tollway-limit-{}", std::process::id()));
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -f 1; exec head -c 100000 /dev/zero > $0"]).arg(&path);
        assert_eq!(shell.status().unwrap().signal(), Some(libc::SIGXFSZ));
        std::fs::remove_file(path).unwrap();
    }
}
