//! Programs in namespaces.

use std::io;
use std::net::Ipv4Addr;
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
    /// Its process group's number, which is its own if it was started with one.
    pub pid: Pid,
    handle: OwnedFd,
    done: Receiver<io::Result<ExitStatus>>,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts `command`, called `name`, in `namespace`, where `names` resolve, and others by `resolver`.
    /// Calls `at_start` just before. The kernel kills the program should this process die first.
    pub fn start(
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
    pub fn ended(&mut self) -> Option<ExitStatus> {
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
    pub fn await_end(&mut self, most: Duration) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Ok(Ok(status)) = self.done.recv_timeout(most)
        {
            self.ended = Some(status);
        }
        self.ended()
    }

    /// Sends it a signal; one that is gone already gets none.
    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.handle, signal);
    }

    /// Ends it and the rest of its process group, which is its own: gently at first.
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

/// Has the kernel kill the program when the thread that starts it dies, and gives it the signals that are held from us, and as many descriptors
/// as there were before [`many_descriptors`].
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

/// Lets this process have as many descriptors as the system lets it: each node has some, and each connection that is relayed.
pub fn many_descriptors() {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let most = Rlimit { current: before.maximum, maximum: before.maximum };
    if before != most && rustix::process::setrlimit(Resource::Nofile, most).is_ok() {
        let _ = DESCRIPTORS.set(before);
    }
}

/// How many descriptors programs are to have, if not as many as we.
static DESCRIPTORS: OnceLock<Rlimit> = OnceLock::new();
