//! The machine's network namespaces, and its control groups.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::thread::LinkNameSpaceType;
use tollway_net::sys::sockopt;

/// Runs `work` in each network namespace that has a process, the caller's included. Skips
/// namespaces that it may not enter.
///
/// # Errors
/// The first error of `work`.
pub(crate) fn in_each(work: impl Fn() -> io::Result<()> + Sync) -> io::Result<()> {
    work()?;
    let mut met: HashSet<u64> = inode(Path::new("/proc/thread-self/ns/net")).into_iter().collect();
    let entries = fs::read_dir("/proc")?
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    for path in entries.map(|entry| entry.path().join("ns/net")) {
        if inode(&path).is_none_or(|inode| !met.insert(inode)) {
            continue;
        }
        let Ok(namespace) = File::open(&path) else { continue };
        // A thread that has entered a namespace does not come back, so each gets a new thread.
        let there = || {
            let kind = Some(LinkNameSpaceType::Network);
            let entered = rustix::thread::move_into_link_name_space(namespace.as_fd(), kind);
            entered.map_or(Ok(()), |()| work())
        };
        let done = std::thread::scope(|scope| scope.spawn(there).join());
        done.unwrap_or_else(|_| Err(io::Error::other("a thread in another namespace broke off")))?;
    }
    Ok(())
}

/// The number of this process's user namespace.
pub(crate) fn users() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self/ns/user")?.ino() as u32)
}

/// The kernel's number for this thread's network namespace; never zero, never used again.
pub(crate) fn cookie() -> io::Result<u64> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    let mut value = [0; 8];
    sockopt::get(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut value)?;
    Ok(u64::from_ne_bytes(value))
}

/// The numbers of a control group and of all its descendants, as sockets carry them.
pub(crate) fn groups_in(group: &Path) -> HashSet<u64> {
    let mut numbers = HashSet::new();
    let mut left = vec![group.to_owned()];
    while let Some(folder) = left.pop() {
        numbers.extend(inode(&folder));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        left.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    numbers
}

fn inode(path: &Path) -> Option<u64> {
    Some(fs::metadata(path).ok()?.ino())
}
