//! What this process may do to others' sockets, and giving up what it need not.

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
    give_up_rights(needs)?;
    // A guardian in the place of another is a program that is started.
    seccomp::deny(&DENIED)
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

/// Gives up all capabilities but those that are needed, and all ways to new ones. To be called before the first thread is started.
///
/// # Errors
/// The kernel refuses, which it has no reason to.
pub(super) fn give_up_rights(needs: Needs) -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let kept = sets.permitted & needs.capabilities();
    // A guardian that takes another's place has them from us, however we have them: said while they are in the bounding set.
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

/// Has programs that are started get no capability, where this thread may say so (`CAP_SETPCAP`).
fn empty_bounding_set() {
    // The kernel may know fewer than this library.
    for each in CapabilitySet::all().iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(each);
    }
}

/// Gives up what a guardian need not have: it starts no program.
///
/// # Errors
/// Those of [`give_up_rights`].
pub(super) fn settle_as_guardian(needs: Needs) -> io::Result<()> {
    give_up_rights(needs)?;
    seccomp::deny(&[&DENIED[..], &EXECUTION].concat())
}

/// Does `work` in a thread without any capability, new privileges, and system calls that only a
/// program which was taken over would make. The threads that it starts have none either.
///
/// # Panics
/// `work` does.
pub fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    with_only(CapabilitySet::empty(), work)
}

/// The same with the right to read all files, as far as this process has it.
///
/// # Panics
/// `work` does.
pub(crate) fn reading_files<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let has = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    with_only(has & CapabilitySet::DAC_READ_SEARCH, work)
}

fn with_only<T: Send>(kept: CapabilitySet, work: impl FnOnce() -> T + Send) -> T {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    let work = || {
        empty_bounding_set();
        // To have fewer is always allowed. The ambient ones go with these.
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

/// Gives up every right of this process for good: capabilities, the ways to new ones, and, of root,
/// the user. To be called before the first thread is started.
///
/// # Errors
/// The kernel refuses, which it has no reason to.
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

/// A user's number that no process, account or service has, of those that systemd gives to services
/// while they run: processes of `nobody` could be stopped by others of that user.
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

/// `DynamicUser=` of systemd.exec(5).
const DYNAMIC_USERS: std::ops::Range<u32> = 61_184..65_520;

/// Calls that no part of the agent makes.
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
/// Calls that start programs.
const EXECUTION: [c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];
/// Calls that only the threads with capabilities make.
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

    /// All that `/proc` says of a thread's privileges.
    fn privileges() -> Vec<String> {
        let text = fs::read_to_string("/proc/thread-self/status").unwrap();
        let lines = text.lines().filter(|line| line.starts_with("Cap") || line.starts_with("NoNewPrivs"));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn nothing_is_left_but_what_is_needed() {
        // Rights are a thread's: this one has its own.
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

    /// A thread that starts a program is refused by the filter, not by its rights.
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
        // A new guardian can be started by the agent.
        let agent = std::thread::spawn(move || {
            give_up_rights(Needs::Sockets).and_then(|()| seccomp::deny(&DENIED)).unwrap();
            (modes(), run().err())
        });
        assert_eq!(agent.join().unwrap(), (true, None));
    }
}
