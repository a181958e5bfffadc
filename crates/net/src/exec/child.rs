//! Programs in namespaces, and the signals meant for them.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getpgrp};

use super::namespace::{self, Namespace};
use super::problem;
use crate::error::Error;

/// A program that runs in a namespace.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its process group's number, which is its own if it was started with one.
    pub(crate) pid: Pid,
    handle: OwnedFd,
    done: Receiver<io::Result<ExitStatus>>,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts `command`, called `name`, in `namespace`, where `names` resolve, and others by `resolver`.
    /// Calls `at_start` just before. The kernel kills the program should this process die first.
    pub(crate) fn start(
        namespace: &Namespace,
        names: &[(String, Ipv4Addr)],
        resolver: Option<Ipv4Addr>,
        name: &str,
        mut command: Command,
        signals: &Signals,
        at_start: impl FnOnce() + Send + 'static,
    ) -> Result<Running, Error> {
        let (started, starting) = mpsc::channel::<Result<(Pid, OwnedFd), Error>>();
        let (ended, done) = mpsc::channel();
        let namespace = namespace.again().map_err(problem("copy a descriptor"))?;
        let (names, program) = (names.to_vec(), name.to_owned());
        prepare(&mut command, signals.before());
        // The thread lives as long as the program: it is the thread's death that the kernel tells the program of.
        let keep = std::thread::Builder::new().name("tollway-program".into()).spawn(move || {
            let spawn = || {
                namespace.enter().map_err(problem("enter a network namespace"))?;
                namespace::resolve_names(&names, resolver).map_err(problem("give a program its names"))?;
                at_start();
                let child = command.spawn().map_err(|source| Error::Program { program, source })?;
                let pid = Pid::from_child(&child);
                let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty());
                Ok((child, pid, handle.map_err(|error| problem("hold a program")(error.into()))?))
            };
            match spawn() {
                Err(error) => drop(started.send(Err(error))),
                Ok((mut child, pid, handle)) => {
                    let _ = started.send(Ok((pid, handle)));
                    let _ = ended.send(child.wait());
                }
            }
        });
        keep.map_err(problem("start a thread"))?;
        let broke_off = |_| problem("start a thread")(io::Error::other("it broke off"));
        let (pid, handle) = starting.recv().map_err(broke_off)??;
        Ok(Running { pid, handle, done, ended: None })
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = match self.done.try_recv() {
                Ok(Ok(status)) => Some(status),
                // Whoever can't be waited for is gone.
                Ok(Err(_)) | Err(mpsc::TryRecvError::Disconnected) => Some(ExitStatus::from_raw(0)),
                Err(mpsc::TryRecvError::Empty) => None,
            };
        }
        self.ended
    }

    /// The same, waiting for it for a while.
    pub(crate) fn await_end(&mut self, most: Duration) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Ok(status)) = self.done.recv_timeout(most)
        {
            self.ended = Some(status);
        }
        self.ended()
    }

    /// Sends it a signal; one that is gone already gets none.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.handle, signal);
    }

    /// Ends it and the rest of its process group, which is its own: gently at first.
    pub(crate) fn end_group(&mut self) {
        if self.ended().is_none() {
            let _ = rustix::process::kill_process_group(self.pid, Signal::TERM);
            if self.await_end(Duration::from_millis(300)).is_none() {
                let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
                self.await_end(Duration::from_secs(1));
            }
        }
    }
}

/// Has the kernel kill the program when the thread that starts it dies, and gives it the signals that are held from us, and as many descriptors
/// as there were before [`many_descriptors`].
#[expect(
    unsafe_code,
    reason = "the standard library has no safe way to make system calls between fork and exec"
)]
pub(crate) fn prepare(command: &mut Command, mask: libc::sigset_t) {
    let descriptors = DESCRIPTORS.get();
    let ask = move || {
        if let Some(limit) = descriptors {
            rustix::process::setrlimit(Resource::Nofile, *limit)?;
        }
        // SAFETY: `mask` is what pthread_sigmask wrote, and the call may be made after fork.
        unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
        }
        Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
    };
    // SAFETY: the closure makes system calls, takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(ask);
    }
}

/// Lets this process have as many descriptors as the system lets it: each node has some, and each connection that is relayed.
pub(crate) fn many_descriptors() {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let most = Rlimit { current: before.maximum, maximum: before.maximum };
    if before != most && rustix::process::setrlimit(Resource::Nofile, most).is_ok() {
        let _ = DESCRIPTORS.set(before);
    }
}

/// How many descriptors programs are to have, if not as many as we.
static DESCRIPTORS: OnceLock<Rlimit> = OnceLock::new();

/// Signals that would end this process wait here instead, as long as this lives, to be handed on to the program of a
/// [run](super::run). To be held before any thread is started: others would still be ended.
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
    pub(crate) fn before(&self) -> libc::sigset_t {
        self.before
    }

    /// Waits for a signal for `program` for at most `most`. One that the terminal sent has reached a program in its foreground by itself, as which
    /// we are of its process group: such a one is not answered.
    pub(crate) fn wait(&self, program: &Running, most: Duration) -> Option<Signal> {
        let (number, code) = self.take(most)?;
        let with_us = || rustix::process::getpgid(Some(program.pid)).is_ok_and(|group| group == getpgrp());
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
