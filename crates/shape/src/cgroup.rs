//! Paths of control groups by number.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::{Identity, Seen};

/// The paths of the unified hierarchy by number, read again when a number is new.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// The root of the hierarchy, if it can be read.
    root: Option<PathBuf>,
    paths: HashMap<u64, String>,
    /// Numbers without a path, with the number of searches. Old ones are forgotten.
    unknown: HashMap<u64, u32>,
}

impl Cgroups {
    /// Finds the root of the hierarchy.
    pub(super) fn find() -> Cgroups {
        Cgroups { root: root().ok(), ..Cgroups::default() }
    }

    /// Returns the identity of a connection, for the rules.
    pub(super) fn identity<'a>(&'a mut self, seen: &Seen) -> Identity<'a> {
        let cgroup = seen.cgroup.and_then(|id| self.resolve(id));
        Identity { local: seen.local, remote: seen.remote, uid: seen.uid, cgroup, stays: seen.stays }
    }

    /// Returns the path of a known group.
    pub(super) fn path(&self, id: u64) -> Option<&str> {
        self.paths.get(&id).map(String::as_str)
    }

    /// Reads all groups and returns them with their paths.
    pub(super) fn all(&mut self) -> Vec<(u64, String)> {
        if let Some(root) = self.root.clone() {
            self.read(&root);
        }
        self.paths.iter().map(|(&id, path)| (id, path.clone())).collect()
    }

    /// Returns the path of a group, after a search if the number is new.
    pub(super) fn resolve(&mut self, id: u64) -> Option<&str> {
        if !self.paths.contains_key(&id) {
            if self.unknown.len() >= GONE {
                self.unknown.clear();
            }
            // A removed group never has a path, so that the number of searches is limited.
            let asked = self.unknown.entry(id).or_default();
            *asked += 1;
            if *asked <= PATIENCE
                && let Some(root) = self.root.clone()
            {
                self.read(&root);
            }
        }
        self.paths.get(&id).map(String::as_str)
    }

    /// Reads all paths. A removed group keeps its path: connections made in it may still be open,
    /// and the kernel does not reuse the number.
    fn read(&mut self, root: &Path) {
        let mut paths = HashMap::new();
        read(root, &mut paths);
        if self.paths.len() <= 2 * paths.len() + GONE {
            self.paths.extend(paths);
        } else {
            self.paths = paths;
        }
    }

    /// True if a hierarchy is mounted.
    pub(super) fn are_mounted(&self) -> bool {
        self.root.is_some()
    }
}

/// Adds all groups below `root`. A group's number is the inode of its folder.
fn read(root: &Path, paths: &mut HashMap<u64, String>) {
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        let Ok(meta) = fs::metadata(&folder) else { continue };
        let name = folder.strip_prefix(root).map(|path| format!("/{}", path.display()));
        paths.insert(meta.ino(), name.unwrap_or_default());
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(folders.map(|entry| entry.path()));
    }
}

/// The root of control groups, version 2: where they are mounted, else in a mount that only this
/// process has. `ip netns exec` hides the system's mount.
///
/// # Errors
/// They are not mounted, and this process may not mount them.
pub(crate) fn root() -> io::Result<PathBuf> {
    static OWN: Mutex<Option<OwnedFd>> = Mutex::new(None);
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    if let Some(place) = mount_point(&mounts).filter(|place| is_hierarchy(place)) {
        return Ok(place);
    }
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mounted = match own.take() {
        Some(mounted) => mounted,
        None => mount().map_err(|error| {
            let what = format!(
                "no cgroup2 is mounted, nor can it be ({error}): run `mount -t cgroup2 none /sys/fs/cgroup`"
            );
            io::Error::new(error.kind(), what)
        })?,
    };
    let place = format!("/proc/self/fd/{}", mounted.as_raw_fd());
    *own = Some(mounted);
    Ok(place.into())
}

/// False for a folder over which another file system is mounted.
fn is_hierarchy(place: &Path) -> bool {
    rustix::fs::statfs(place).is_ok_and(|stat| stat.f_type as u64 == CGROUP2)
}

/// Mounts control groups, version 2, at no path.
fn mount() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Type of the file system in statfs(2).
const CGROUP2: u64 = 0x6367_7270;

/// The mount point of the first file system of type `cgroup2`, from `/proc/self/mountinfo`.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        tail.starts_with("cgroup2 ").then(|| head.split(' ').nth(4)).flatten().map(PathBuf::from)
    })
}

/// Upper bound of searches for one number.
const PATIENCE: u32 = 3;
/// Lower bound of remembered removed groups with a path, and upper bound of those without.
const GONE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_is_found_wherever_it_is_mounted() {
        let mounts = "29 22 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n\
                      30 29 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_point(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point("nonsense\n - cgroup2 x"), None);
    }

    #[test]
    fn groups_have_the_numbers_of_their_folders() {
        let root = std::env::temp_dir().join(format!("tollway-cgroups-{}", std::process::id()));
        fs::create_dir_all(root.join("a.slice/b.service")).unwrap();
        let mut groups = Cgroups { root: Some(root.clone()), ..Cgroups::default() };
        let id = fs::metadata(root.join("a.slice/b.service")).unwrap().ino();
        assert_eq!(groups.resolve(id), Some("/a.slice/b.service"));
        assert_eq!(groups.resolve(u64::MAX), None);
        // The group is removed while a connection made in it is open, and another is made.
        fs::create_dir(root.join("c.slice")).unwrap();
        let other = fs::metadata(root.join("c.slice")).unwrap().ino();
        fs::remove_dir_all(root.join("a.slice")).unwrap();
        assert_eq!(groups.resolve(other), Some("/c.slice"));
        assert_eq!(groups.resolve(id), Some("/a.slice/b.service"));
        fs::remove_dir_all(root).unwrap();
        // Many services start and stop, with connections that outlive them.
        assert!((0..10_000).all(|gone| groups.resolve(u64::MAX - gone).is_none()));
        assert!(groups.unknown.len() <= GONE);
    }
}
