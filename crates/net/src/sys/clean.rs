//! Remains of a run that was killed: how they are found and removed.
//!
//! Namespaces, interfaces and mounts end with the processes that hold them, and a run's own
//! programs are killed with it. Only processes that those programs have started can remain. All of
//! them carry the run's mark in their environment.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use super::namespace::{self, Namespace};

/// The mark of this process's runs, which their programs carry: process number and start time.
pub fn mark() -> String {
    let me = std::process::id();
    format!("{me}.{}", started(me).unwrap_or(0))
}

/// A new path for a file of this process's runs; `what` makes its name readable.
pub fn file(what: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("{FILES}{}-{what}-{number}", std::process::id()))
}

/// Makes a folder of this process's runs that no other user may enter.
///
/// # Errors
/// The path exists already.
pub fn folder(what: &str) -> io::Result<PathBuf> {
    let path = file(what);
    fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// Kills every process of runs whose `tollway` has ended, and removes their files.
///
/// Returns number and name of each killed process.
pub fn clean() -> Vec<(u32, String)> {
    let mut ended = Vec::new();
    for pid in processes() {
        // Held first, so that the data read below are of this process, or of none.
        let held = Pid::from_raw(pid as i32)
            .and_then(|process| rustix::process::pidfd_open(process, PidfdFlags::empty()).ok());
        let Some(held) = held else { continue };
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if !mark_in(&environment).is_some_and(is_over) {
            continue;
        }
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if rustix::process::pidfd_send_signal(&held, Signal::KILL).is_ok() {
            ended.push((pid, name.trim().to_owned()));
        }
    }
    // Files that a killed run has left.
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(FILES));
        let owner = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let ours = entry.metadata().is_ok_and(|meta| meta.uid() == rustix::process::geteuid().as_raw());
        if ours && owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
    }
    ended
}

/// Ends the processes in these namespaces after a run.
///
/// A server or the program may have left them, in another process group. Processes that are about
/// to end get time for it.
pub fn empty(namespaces: &[Namespace]) {
    let homes: Vec<_> = namespaces.iter().filter_map(|namespace| namespace.identity().ok()).collect();
    for (signal, millis) in [(None, 200), (Some(Signal::TERM), 300), (Some(Signal::KILL), 1000)] {
        let (mut told, until) = (false, Instant::now() + Duration::from_millis(millis));
        loop {
            let inside = inside(&homes);
            if inside.is_empty() {
                return;
            }
            // One SIGTERM is enough. A killed process may meanwhile have started another.
            for process in inside.iter().filter(|_| !told || signal == Some(Signal::KILL)) {
                let _ = signal.map(|signal| rustix::process::pidfd_send_signal(process, signal));
            }
            told = true;
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The processes in these namespaces, except this one.
fn inside(homes: &[(u64, u64)]) -> Vec<OwnedFd> {
    let process = |pid: u32| {
        // Held first, so that the number cannot pass to another process. An ended process has no
        // namespace.
        let held = rustix::process::pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
        let home = namespace::identity(&fs::metadata(format!("/proc/{pid}/ns/net")).ok()?);
        homes.contains(&home).then_some(held)
    };
    processes().filter(|&pid| pid != std::process::id()).filter_map(process).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The run that a process's environment names.
fn mark_in(environment: &[u8]) -> Option<&str> {
    let prefix = format!("{MARK}=").into_bytes();
    let value = environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(&prefix[..]))?;
    std::str::from_utf8(value).ok()
}

/// Returns true if the process of a mark has ended.
pub fn is_over(mark: &str) -> bool {
    let parts = mark.split_once('.').and_then(|(pid, at)| Some((pid.parse().ok()?, at.parse().ok()?)));
    // Text that is no mark belongs to no run.
    parts.is_some_and(|(pid, at): (u32, u64)| started(pid) != Some(at))
}

/// Start of a process, in the kernel's ticks (proc_pid_stat(5), field 22).
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in front of it may have spaces and brackets.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Environment variable of the mark.
pub const MARK: &str = "TOLLWAY_RUN";
/// Prefix of the names of a run's files; the process's number follows.
const FILES: &str = "tollway-run-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_over_when_its_process_is() {
        assert!(!is_over(&mark()));
        let me = std::process::id();
        assert!(is_over(&format!("{me}.1")), "another process has had the number");
        assert!(!is_over("nonsense") && !is_over("7") && !is_over("x.y"));
    }

    #[test]
    fn a_folder_is_private_and_taken_over_from_nobody() {
        let path = folder("test").unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.uid()), (0o700, rustix::process::geteuid().as_raw()));
        assert_eq!(
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        fs::remove_dir(path).unwrap();
    }

    #[test]
    fn marks_are_found_in_environments() {
        assert_eq!(mark_in(b"A=1\0TOLLWAY_RUN=17.4\0B=2\0"), Some("17.4"));
        assert_eq!(mark_in(b"NOT_TOLLWAY_RUN=17.4\0"), None);
        assert_eq!(mark_in(b""), None);
    }
}
