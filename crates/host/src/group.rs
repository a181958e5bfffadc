//! Control groups (cgroups(7), version 2).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The mount point of the cgroup2 file system.
///
/// # Errors
/// None is mounted.
pub fn hierarchy() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let of_line = |line: &str| {
        let (head, tail) = line.split_once(" - ")?;
        tail.starts_with("cgroup2 ").then(|| head.split(' ').nth(4).map(PathBuf::from)).flatten()
    };
    let missing = "no cgroup2 is mounted: `mount -t cgroup2 none /sys/fs/cgroup`";
    mounts.lines().find_map(of_line).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, missing))
}

/// The folder of this process's group.
pub(crate) fn own_group() -> io::Result<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    Ok(hierarchy()?.join(own))
}

/// A control group of this process's own, removed when dropped.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    before: PathBuf,
}

impl Group {
    /// Makes a group `name` below this process's group, and moves this process into it, so that its
    /// children are in it.
    ///
    /// # Errors
    /// No cgroup2 is mounted, or this process may not change it.
    pub fn enter(name: &str) -> io::Result<Group> {
        let before = own_group()?;
        clean(&before, name);
        let path = before.join(name);
        fs::create_dir_all(&path)?;
        fs::write(path.join(MEMBERS), std::process::id().to_string())?;
        Ok(Group { path, before })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group with members cannot be removed: those that are left move up.
        let members = fs::read_to_string(self.path.join(MEMBERS)).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(self.before.join(MEMBERS), member);
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// Removes groups beside `name`, which ends in a process's number, whose processes were killed. The
/// kernel refuses those that programs are still in.
fn clean(folder: &Path, name: &str) {
    let Some((prefix, _)) = name.rsplit_once('-') else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let other = entry.file_name().to_string_lossy().into_owned();
        let Some(number) = other.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')) else {
            continue;
        };
        if number.parse::<u32>().is_ok() && !Path::new("/proc").join(number).exists() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The file with the processes of a group.
const MEMBERS: &str = "cgroup.procs";
