//! The signals meant for the programs that this process runs.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgrp};

/// Signals that would end this process wait here instead, as long as this lives, to be handed on to the program of a
/// run. To be held before any thread is started: others would still be ended.
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Keeps interrupt, hang-up and termination from this thread and those it starts, and SIGCHLD for waking up. What is ignored, as under
    /// nohup(1), is left alone: the kernel would hand it over once it is waited for.
    #[expect(unsafe_code, reason = "no safe wrapper of the calls on signal sets among our dependencies")]
    pub fn hold() -> Signals {
        // SAFETY: a zeroed set is a valid argument of sigemptyset, which makes it empty; the calls write to these two only.
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
            // Where whoever started us has it ignored, the kernel keeps no child's exit status.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            Signals { set, before }
        }
    }

    /// A file that may grow no further (`ulimit -f`) is an error of what writes to it, as a full disk is, instead of this process's end. Programs that are
    /// started meet that limit as they would without us: an empty handler is not handed on to them, as ignoring the signal would be.
    #[expect(unsafe_code, reason = "no safe wrapper of sigaction(2) among our dependencies")]
    pub fn outlast_file_limit() {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing, which it may at any time; of both actions all bits zero are a valid value.
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

    /// Has `work` set up its handlers, and goes on to ignore those of hang-up, interrupt and quit that were ignored before.
    #[expect(unsafe_code, reason = "no safe wrapper of signal(2) among our dependencies")]
    pub fn keep_ignored<T>(work: impl FnOnce() -> T) -> T {
        let ignored = ignored();
        let done = work();
        for signal in ignored {
            // SAFETY: to ignore a signal runs no code of ours.
            unsafe {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        done
    }

    /// The signals that were held before, for programs.
    pub fn before(&self) -> libc::sigset_t {
        self.before
    }

    /// Waits for a signal for `program` for at most `most`. One that the terminal sent has reached a program in its foreground by itself, as which
    /// we are of its process group: such a one is not answered.
    pub fn wait(&self, program: Pid, most: Duration) -> Option<Signal> {
        let (number, code) = self.take(most)?;
        let with_us = || rustix::process::getpgid(Some(program)).is_ok_and(|group| group == getpgrp());
        if number == libc::SIGCHLD || (code == libc::SI_KERNEL && with_us()) {
            return None;
        }
        Signal::from_named_raw(number)
    }

    /// The signal that has come already and wants this process to end, if there is one; it is answered once.
    pub fn has_come(&self) -> Option<i32> {
        let taken = std::iter::from_fn(|| self.take(Duration::ZERO));
        taken.map(|(number, _)| number).find(|&number| number != libc::SIGCHLD)
    }

    /// Sleeps for `span`; answers whether somebody wants this process to end, and then at once.
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

    /// A signal's number and where it comes from.
    #[expect(unsafe_code, reason = "no safe wrapper of sigtimedwait(2) among our dependencies")]
    fn take(&self, most: Duration) -> Option<(i32, i32)> {
        let most = libc::timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
        // SAFETY: the kernel reads `set` and `most`, writes to `info`, and keeps nothing; all three outlive the call.
        let (number, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigtimedwait(&raw const self.set, &raw mut info, &raw const most), info)
        };
        (number > 0).then_some((number, info.si_code))
    }
}

/// Which of hang-up, interrupt and quit whoever started us has had ignored: it wants us to stay.
#[expect(unsafe_code, reason = "no safe wrapper of sigaction(2) among our dependencies")]
fn ignored() -> Vec<i32> {
    let is_ignored = |&signal: &i32| {
        // SAFETY: without a new action the call only writes to `old`, of which all bits zero are a valid value.
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
        // What came while the run ended was meant for its program; what the run leaves is still to be told and written.
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
