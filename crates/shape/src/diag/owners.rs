//! Who has a socket open, and under what number.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Resource};
use socket2::SockRef;

use crate::{ByNumber, Seen};

/// A thread and the number of a descriptor there: the first of a process, or one with descriptors of its own.
type Place = (i32, i32);

/// The places of sockets, looked for once a socket is new and not at every tick.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// By inode.
    places: ByNumber<u32, Place>,
    /// The reverse: these numbers need not be read again.
    inodes: HashMap<Place, u32>,
    /// Of some processes that had any, the last found last: where the next one most likely is.
    processes: Vec<(i32, OwnedFd)>,
    /// Inodes that nobody seemed to have, and when to look again.
    missing: HashMap<u32, Instant>,
    /// When to look next at numbers that are known, too.
    thorough: Option<Instant>,
}

impl Owners {
    /// Finds the owners of sockets that are new, and forgets those that are gone.
    pub(super) fn learn(&mut self, seen: &[Seen]) {
        let now = Instant::now();
        let mut wanted: HashSet<u32> = seen
            .iter()
            .map(|seen| seen.inode)
            .filter(|inode| *inode != 0 && !self.places.contains_key(inode))
            .filter(|inode| self.missing.get(inode).is_none_or(|&again| again <= now))
            .collect();
        if self.places.len() + self.missing.len() > 2 * seen.len() + 64 {
            self.forget(seen);
        }
        if wanted.is_empty() {
            return;
        }
        let there: HashSet<u32> = seen.iter().map(|seen| seen.inode).collect();
        for known in self.processes.iter().rev().map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.look_into(known, Some(&there), &mut wanted);
        }
        self.look_everywhere(Some(&there), &mut wanted);
        if !wanted.is_empty() && self.thorough.is_none_or(|at| at <= now) {
            self.thorough = Some(now + AGAIN);
            wanted.extend(self.missing.keys().filter(|inode| there.contains(inode)));
            self.look_everywhere(None, &mut wanted);
            self.look_into_threads(&mut wanted);
        }
        for inode in wanted {
            self.missing.insert(inode, now + AGAIN);
        }
    }

    /// Does something with a connection's socket, which is borrowed for that long.
    pub(super) fn with<T>(
        &mut self,
        seen: &Seen,
        work: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(&(pid, number)) = self.places.get(&seen.inode) else {
            // Somebody has it, but nobody that we may look into.
            let kind = match self.missing.contains_key(&seen.inode) {
                true => io::ErrorKind::PermissionDenied,
                false => io::ErrorKind::NotFound,
            };
            return Err(kind.into());
        };
        let borrowed = self.borrow(pid, number).and_then(|socket| match SockRef::from(&socket).cookie() {
            Ok(cookie) if cookie == seen.cookie => Ok(socket),
            _ => Err(io::ErrorKind::NotFound.into()),
        });
        match borrowed {
            Ok(socket) => work(socket.as_fd()),
            // No descriptor is left for it, which says nothing of where it is.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Err(error),
            Err(error) => {
                // It may have it under another number, or somebody else may.
                self.places.remove(&seen.inode);
                self.inodes.remove(&(pid, number));
                let denied = error.kind() == io::ErrorKind::PermissionDenied;
                if denied {
                    self.missing.insert(seen.inode, Instant::now() + AGAIN);
                }
                Err(if denied { error } else { io::ErrorKind::NotFound.into() })
            }
        }
    }

    fn borrow(&mut self, pid: i32, number: i32) -> io::Result<OwnedFd> {
        let at = match self.processes.iter().rposition(|(known, _)| *known == pid) {
            Some(at) => at,
            None => {
                let process = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
                // Policies and those who ask need descriptors too.
                let half = rustix::process::getrlimit(Resource::Nofile).current.map(|most| most / 2);
                let most = half.map_or(PROCESSES, |half| (half as usize).clamp(1, PROCESSES));
                self.processes.drain(..(self.processes.len() + 1).saturating_sub(most));
                // A thread that is not its process's first takes Linux 6.9.
                let handle = rustix::process::pidfd_open(process, PidfdFlags::empty()).or_else(|_| {
                    rustix::process::pidfd_open(process, PidfdFlags::from_bits_retain(THREAD))
                })?;
                self.processes.push((pid, handle));
                self.processes.len() - 1
            }
        };
        let got = rustix::process::pidfd_getfd(&self.processes[at].1, number, PidfdGetfdFlags::empty());
        if got.as_ref().is_err_and(|error| *error == rustix::io::Errno::SRCH) {
            // The process is gone; its number may be another's.
            self.processes.remove(at);
        }
        Ok(got?)
    }

    /// The same of all processes.
    fn look_everywhere(&mut self, there: Option<&HashSet<u32>>, wanted: &mut HashSet<u32>) {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if wanted.is_empty() {
                break;
            }
            self.look_into(pid, there, wanted);
        }
    }

    /// The same of all threads but the first of each process: those may have closed what others have open, or have ended.
    fn look_into_threads(&mut self, wanted: &mut HashSet<u32>) {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for thread in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
                if wanted.is_empty() {
                    return;
                }
                if thread != pid {
                    self.look_into(thread, None, wanted);
                }
            }
        }
    }

    /// Reads which sockets a process has open: all, or those whose numbers were not those of sockets that are `there`.
    fn look_into(&mut self, pid: i32, there: Option<&HashSet<u32>>, wanted: &mut HashSet<u32>) {
        let folder = format!("/proc/{pid}/fd");
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let place = (pid, number);
            // One that is still listed most likely is where it was; what else had the number may be something else by now.
            if there.is_some_and(|there| self.inodes.get(&place).is_some_and(|inode| there.contains(inode))) {
                continue;
            }
            let Some(inode) = fs::read_link(entry.path()).ok().and_then(|link| socket_inode(link.to_str()?))
            else {
                continue;
            };
            if wanted.remove(&inode) {
                self.places.insert(inode, place);
                self.inodes.insert(place, inode);
                self.missing.remove(&inode);
            }
            if wanted.is_empty() {
                break;
            }
        }
    }

    fn forget(&mut self, seen: &[Seen]) {
        let there: HashSet<u32> = seen.iter().map(|seen| seen.inode).collect();
        self.places.retain(|inode, _| there.contains(inode));
        self.inodes.retain(|_, inode| there.contains(inode));
        self.missing.retain(|inode, _| there.contains(inode));
        let places = &self.places;
        let owning: HashSet<i32> = places.values().map(|place| place.0).collect();
        self.processes.retain(|(pid, _)| owning.contains(pid));
    }
}

/// `socket:[4711]`.
fn socket_inode(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// When to look again for a socket that nobody seemed to have.
const AGAIN: Duration = Duration::from_secs(1);
/// `PIDFD_THREAD` of `linux/pidfd.h`.
const THREAD: u32 = libc::O_EXCL as u32;
/// Processes that are kept at hand at most.
const PROCESSES: usize = 256;

#[cfg(test)]
mod tests {
    use super::socket_inode;

    #[test]
    fn links_to_sockets_are_told_from_others() {
        assert_eq!(socket_inode("socket:[4711]"), Some(4711));
        for link in ["pipe:[4711]", "/tmp/socket:[1]", "socket:[x]", ""] {
            assert_eq!(socket_inode(link), None);
        }
    }
}
