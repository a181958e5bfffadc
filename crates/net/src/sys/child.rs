//! Programs in namespaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};

use crate::error::Error;
use crate::sys::namespace::{self, Namespace};
use crate::sys::problem;
use crate::sys::signals::Signals;

/// A program that runs in a namespace.
#[derive(Debug)]
pub struct Running {
    /// Its process group's number, which equals its own if it was started with a group.
    pub pid: Pid,
    handle: OwnedFd,
    done: Receiver<io::Result<ExitStatus>>,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts `command`, called `name`, in `namespace`, and calls `at_start` just before.
    ///
    /// `names` resolve there, and other names through `resolver`. The kernel kills the program if
    /// this process dies first.
    pub fn start(
        namespace: &Namespace,
        names: &[(String, IpAddr)],
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
        // The thread lives as long as the program, because the kernel kills the program when the
        // thread dies.
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

    /// The exit status, if the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = match self.done.try_recv() {
                Ok(Ok(status)) => Some(status),
                // A program that can't be waited for counts as ended.
                Ok(Err(_)) | Err(mpsc::TryRecvError::Disconnected) => Some(ExitStatus::from_raw(0)),
                Err(mpsc::TryRecvError::Empty) => None,
            };
        }
        self.ended
    }

    /// Like [`ended`](Running::ended), but waits for at most `most`.
    pub fn await_end(&mut self, most: Duration) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Ok(status)) = self.done.recv_timeout(most)
        {
            self.ended = Some(status);
        }
        self.ended()
    }

    /// Sends a signal, unless the program has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.handle, signal);
    }

    /// Ends the program and its process group: with SIGTERM first, then with SIGKILL.
    pub fn end_group(&mut self) {
        if self.ended().is_none() {
            let _ = rustix::process::kill_process_group(self.pid, Signal::TERM);
            if self.await_end(Duration::from_millis(300)).is_none() {
                let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
                self.await_end(Duration::from_secs(1));
            }
        }
    }
}

/// Makes the kernel kill the program when the thread that starts it dies.
///
/// The program gets the signals that this process blocks, and the limit of descriptors from before
/// [`many_descriptors`].
#[expect(
    unsafe_code,
    reason = "the standard library has no safe way to make system calls between fork and exec"
)]
pub fn prepare(command: &mut Command, mask: libc::sigset_t) {
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

/// Raises this process's limit of descriptors to the maximum: each node and each relayed connection
/// needs some.
pub fn many_descriptors() {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let most = Rlimit { current: before.maximum, maximum: before.maximum };
    if before != most && rustix::process::setrlimit(Resource::Nofile, most).is_ok() {
        let _ = DESCRIPTORS.set(before);
    }
}

/// Limit of descriptors for programs, if it differs from this process's.
static DESCRIPTORS: OnceLock<Rlimit> = OnceLock::new();
