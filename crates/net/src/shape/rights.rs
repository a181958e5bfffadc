//! What this process may do to others' sockets, and giving up what it need not.

use std::fs;
use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::punctual::set_policy;

/// Whose connections can be paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everybody's on this machine.
    All,
    /// Those of processes of the same user.
    User,
    /// Those of processes that this one has started: the system's Yama module allows no more.
    Children,
}

impl Reach {
    /// What holds for this process.
    pub fn find() -> Reach {
        let has = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(NEEDED));
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        match scope.trim() {
            _ if has => Reach::All,
            "" | "0" => Reach::User,
            _ => Reach::Children,
        }
    }
}

/// Has other work step back for this thread, where the system allows it, and then gives up all rights that the agent need not have.
/// What was sent is counted against the time that a look takes, and a look that others interrupt says little.
///
/// # Errors
/// The kernel refuses to take rights away, which it has no reason to.
pub fn settle_in(needs: Needs) -> io::Result<()> {
    // Threads and programs that this one starts are ordinary again.
    set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    give_up_rights(needs)
}

/// What a back-end can't do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// To reach others' sockets: `CAP_SYS_PTRACE` for pidfd_getfd(2), and `CAP_DAC_READ_SEARCH` for `/proc/PID/fd`.
    Sockets,
    /// To run programs in the kernel: `CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`; and `CAP_SYS_ADMIN`, for those of an agent that was
    /// killed and for other namespaces.
    Programs,
}

impl Needs {
    fn capabilities(self) -> CapabilitySet {
        match self {
            Needs::Sockets => NEEDED,
            Needs::Programs => NEEDED_BY_PROGRAMS,
        }
    }
}

/// Gives up all capabilities but those that are needed. To be called before the first thread is started.
///
/// # Errors
/// The kernel refuses, which it has no reason to.
pub(super) fn give_up_rights(needs: Needs) -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let kept = sets.permitted & needs.capabilities();
    // A guardian that takes another's place has them from us, where they came with a service and not with the file.
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: sets.inheritable & kept };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

const NEEDED_BY_PROGRAMS: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_ADMIN);
const NEEDED: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);
