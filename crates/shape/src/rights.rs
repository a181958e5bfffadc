//! The rights of this process over other processes' sockets, and giving up the rest.

use std::ffi::c_long;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tollway_net::sys::seccomp;
use tollway_net::sys::set_policy;

/// The connections that this process can pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All connections of this machine.
    All,
    /// Connections of processes of the same user.
    User,
    /// Connections of child processes only: the system's Yama module allows no more.
    Children,
}

impl Reach {
    /// Finds the reach of this process.
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

/// Raises this thread's priority, where the system allows it, and gives up all rights that the
/// agent does not need.
///
/// An interrupted listing gives less exact rates, because bytes are divided by the time of the
/// listing.
///
/// # Errors
/// The kernel refuses to take rights away, for which there is no known reason.
pub fn settle_in(needs: Needs) -> io::Result<()> {
    // Threads and programs started by this one have ordinary priority.
    set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    give_up_rights(needs)?;
    // The agent may start programs: a new guardian is one.
    seccomp::deny(&DENIED)
}

/// The capabilities that a back-end needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// For other processes' sockets: `CAP_SYS_PTRACE` for pidfd_getfd(2), and `CAP_DAC_READ_SEARCH`
    /// for `/proc/PID/fd`.
    Sockets,
    /// For programs in the kernel: `CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`; and
    /// `CAP_SYS_ADMIN`, for the programs of a killed agent and for other namespaces.
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

/// Gives up all capabilities but those needed, and all ways to gain new ones. Must be called before
/// the first thread is started.
///
/// # Errors
/// The kernel refuses, for which there is no known reason.
pub(super) fn give_up_rights(needs: Needs) -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let kept = sets.permitted & needs.capabilities();
    // A later guardian inherits them from this process. They must be set while they are in the
    // bounding set.
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: kept, ..sets })?;
    empty_bounding_set();
    rustix::thread::set_no_new_privs(true)?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    rustix::thread::set_capabilities(None, sets)?;
    for each in kept.iter() {
        rustix::thread::configure_capability_in_ambient_set(each, true)?;
    }
    Ok(())
}

/// Removes all capabilities from programs that this thread starts, if it may (`CAP_SETPCAP`).
fn empty_bounding_set() {
    // The kernel may know fewer capabilities than this library.
    for each in CapabilitySet::all().iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(each);
    }
}

/// Gives up all rights that a guardian does not need. It starts no program.
///
/// # Errors
/// Those of [`give_up_rights`].
pub(super) fn settle_as_guardian(needs: Needs) -> io::Result<()> {
    give_up_rights(needs)?;
    seccomp::deny(&[&DENIED[..], &EXECUTION].concat())
}

/// Runs `work` in a thread without any capability or way to gain one. A filter refuses system calls
/// that only a compromised program would make. Threads that it starts have the same restrictions.
///
/// # Panics
/// If `work` panics.
pub fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    with_only(CapabilitySet::empty(), work)
}

/// As [`unprivileged`], but with the right to read all files, if this process has it.
///
/// # Panics
/// If `work` panics.
pub(crate) fn reading_files<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let has = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    with_only(has & CapabilitySet::DAC_READ_SEARCH, work)
}

fn with_only<T: Send>(kept: CapabilitySet, work: impl FnOnce() -> T + Send) -> T {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    let work = || {
        empty_bounding_set();
        // Dropping capabilities is always allowed. The ambient ones are dropped too.
        let _ = rustix::thread::set_capabilities(None, sets);
        let _ = rustix::thread::set_no_new_privs(true);
        let _ = seccomp::deny(&UNPRIVILEGED.concat());
        work()
    };
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Gives up every right of this process for good: capabilities, ways to gain new ones, and root as
/// user. Must be called before the first thread is started.
///
/// # Errors
/// The kernel refuses, for which there is no known reason.
pub fn give_up_all() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets = rustix::thread::capabilities(None)?;
    empty_bounding_set();
    if sets.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        let number = spare_user();
        let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
        // A user namespace may have no other user, and then no groups to give up.
        let changed = rustix::thread::set_thread_groups(&[])
            .and_then(|()| rustix::thread::set_thread_res_gid(group, group, group))
            .and_then(|()| rustix::thread::set_thread_res_uid(user, user, user));
        match changed {
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    rustix::thread::set_no_new_privs(true)?;
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    seccomp::deny(&UNPRIVILEGED.concat())
}

/// A user number that no process, account or service has, from those of systemd's dynamic users.
/// Other processes of the user `nobody` could stop this one.
fn spare_user() -> u32 {
    let mut taken: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.metadata().ok()?.uid()))
        .collect();
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    taken.extend(accounts.lines().filter_map(|line| line.split(':').nth(2)?.parse::<u32>().ok()));
    let is_free = |user: &u32| {
        !taken.contains(user) && !Path::new(&format!("/run/systemd/dynamic-uid/{user}")).exists()
    };
    let first = std::process::id() % DYNAMIC_USERS.len() as u32;
    let mut candidates = DYNAMIC_USERS.skip(first as usize).chain(DYNAMIC_USERS);
    candidates.find(is_free).unwrap_or(DYNAMIC_USERS.start)
}

/// The range of `DynamicUser=` in systemd.exec(5).
const DYNAMIC_USERS: std::ops::Range<u32> = 61_184..65_520;

/// System calls that no part of the agent makes.
const DENIED: [c_long; 17] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
];
/// System calls that start programs.
const EXECUTION: [c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];
/// System calls that only threads with capabilities make.
const PRIVILEGED: [c_long; 5] =
    [libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_setns, libc::SYS_unshare, libc::SYS_pidfd_getfd];
/// System calls refused to threads and processes without rights.
const UNPRIVILEGED: [&[c_long]; 3] = [&DENIED, &EXECUTION, &PRIVILEGED];
const NEEDED_BY_PROGRAMS: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_ADMIN);
const NEEDED: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `/proc` on a thread's privileges.
    fn privileges() -> Vec<String> {
        let text = fs::read_to_string("/proc/thread-self/status").unwrap();
        let lines = text.lines().filter(|line| line.starts_with("Cap") || line.starts_with("NoNewPrivs"));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn nothing_is_left_but_what_is_needed() {
        // Capabilities belong to a thread, so the test uses a new one.
        let left =
            std::thread::spawn(|| give_up_rights(Needs::Sockets).map(|()| privileges())).join().unwrap();
        let left = left.unwrap();
        let has =
            |name: &str| left.iter().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        assert_eq!(has("NoNewPrivs:"), "1");
        if rustix::process::geteuid().is_root() {
            assert_eq!(u64::from_str_radix(&has("CapBnd:"), 16), Ok(0), "{left:?}");
            assert_eq!(u64::from_str_radix(&has("CapEff:"), 16), Ok(NEEDED.bits()), "{left:?}");
        }
    }

    #[test]
    fn what_is_unprivileged_and_its_threads_have_no_capability() {
        let of_thread = || std::thread::spawn(privileges).join().unwrap();
        for line in unprivileged(|| [privileges(), of_thread()]).concat() {
            let none =
                line.starts_with("CapBnd") || line == "NoNewPrivs:\t1" || line.ends_with("0000000000000000");
            assert!(none, "{line}");
        }
    }

    /// The filter refuses a thread that starts a program, not its missing rights.
    #[test]
    fn calls_that_nothing_needs_are_refused() {
        let run = || std::process::Command::new("true").status().map_err(|error| error.kind());
        let modes = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().any(|line| line == "Seccomp:\t2")
        };
        assert!(run().is_ok());
        assert_eq!(unprivileged(|| (modes(), run().err())), (true, Some(io::ErrorKind::PermissionDenied)));
        let guardian = std::thread::spawn(move || {
            settle_as_guardian(Needs::Sockets).unwrap();
            (modes(), run().err())
        });
        assert_eq!(guardian.join().unwrap(), (true, Some(io::ErrorKind::PermissionDenied)));
        // The agent can start a new guardian.
        let agent = std::thread::spawn(move || {
            give_up_rights(Needs::Sockets).and_then(|()| seccomp::deny(&DENIED)).unwrap();
            (modes(), run().err())
        });
        assert_eq!(agent.join().unwrap(), (true, None));
    }
}
