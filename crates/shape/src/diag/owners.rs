//! The processes that have a socket open, and their descriptor numbers.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Resource};
use socket2::SockRef;

use crate::{ByNumber, Seen};

/// A thread and a descriptor number there: the first thread of a process, or one with its own
/// descriptor table.
type Place = (i32, i32);

/// The places of sockets, searched when a socket is new and not at every tick.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Place by inode.
    places: ByNumber<u32, Place>,
    /// Inode by place: these numbers need not be read again.
    inodes: HashMap<Place, u32>,
    /// Handles of processes that had sockets, the last found last. The next socket most likely is
    /// there.
    processes: Vec<(i32, OwnedFd)>,
    /// Inodes whose owner was not found, and the time of the next search.
    missing: HashMap<u32, Instant>,
    /// Time of the next search that also reads known numbers again.
    thorough: Option<Instant>,
}

impl Owners {
    /// Finds the owners of new sockets, and forgets closed ones.
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

    /// Calls `work` with a connection's socket, which is borrowed for the call.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]: the owner is not found. [`io::ErrorKind::PermissionDenied`]:
    /// its descriptors are beyond our rights. Or the error of `work`.
    pub(super) fn with<T>(
        &mut self,
        seen: &Seen,
        work: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(&(pid, number)) = self.places.get(&seen.inode) else {
            // A process has it open, but this one may not read its descriptors.
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
            // There is no free descriptor to borrow it; the place may still be right.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Err(error),
            Err(error) => {
                // The socket may have another number or another owner now.
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
                // Policies and clients of the agent need descriptors too.
                let half = rustix::process::getrlimit(Resource::Nofile).current.map(|most| most / 2);
                let most = half.map_or(PROCESSES, |half| (half as usize).clamp(1, PROCESSES));
                self.processes.drain(..(self.processes.len() + 1).saturating_sub(most));
                // A handle of a thread that is not its process's first needs Linux 6.9.
                let handle = rustix::process::pidfd_open(process, PidfdFlags::empty()).or_else(|_| {
                    rustix::process::pidfd_open(process, PidfdFlags::from_bits_retain(THREAD))
                })?;
                self.processes.push((pid, handle));
                self.processes.len() - 1
            }
        };
        let got = rustix::process::pidfd_getfd(&self.processes[at].1, number, PidfdGetfdFlags::empty());
        if got.as_ref().is_err_and(|error| *error == rustix::io::Errno::SRCH) {
            // The process has ended; its number may be reused.
            self.processes.remove(at);
        }
        Ok(got?)
    }

    /// Searches all processes as [`Owners::look_into`] does.
    fn look_everywhere(&mut self, there: Option<&HashSet<u32>>, wanted: &mut HashSet<u32>) {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if wanted.is_empty() {
                break;
            }
            self.look_into(pid, there, wanted);
        }
    }

    /// Searches all threads but the first of each process. A first thread may have closed
    /// descriptors that others hold open, or may have ended.
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

    /// Reads the sockets that a process has open. With `there`, skips numbers whose socket is still
    /// listed.
    fn look_into(&mut self, pid: i32, there: Option<&HashSet<u32>>, wanted: &mut HashSet<u32>) {
        let folder = format!("/proc/{pid}/fd");
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let place = (pid, number);
            // A listed socket most likely still has this number. Other numbers may have been
            // reused.
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

/// The inode in a link such as `socket:[4711]`.
fn socket_inode(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Interval between searches for a socket without a known owner.
const AGAIN: Duration = Duration::from_secs(1);
/// `PIDFD_THREAD` of `linux/pidfd.h`.
const THREAD: u32 = libc::O_EXCL as u32;
/// Upper bound of open process handles.
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
