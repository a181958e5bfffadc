//! Names of namespaces, where `ip netns` finds them: `tollway-PID.STARTED-NODE`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

use crate::sys::clean::{is_over, mark};
use crate::sys::namespace::Namespace;

/// A name, removed on drop.
#[derive(Debug)]
pub(crate) struct Name {
    path: PathBuf,
    name: String,
}

impl Name {
    /// Gives a node's namespace a name, if the system allows it. Only people use this name.
    pub(crate) fn give(namespace: &Namespace, node: &str) -> Option<Name> {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name = format!("{PREFIX}{}-{}", mark(), node.chars().map(plain).collect::<String>());
        let path = Path::new(FOLDER).join(&name);
        let give = || -> io::Result<()> {
            fs::create_dir_all(FOLDER)?;
            File::options().write(true).create_new(true).open(&path)?;
            let source = format!("/proc/self/fd/{}", namespace.descriptor().as_raw_fd());
            Ok(rustix::mount::mount_bind(source, &path)?)
        };
        match give() {
            Ok(()) => Some(Name { path, name }),
            Err(error) => {
                // A file of another owner stays.
                if error.kind() != io::ErrorKind::AlreadyExists {
                    take_back(&path);
                }
                None
            }
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        take_back(&self.path);
    }
}

fn take_back(path: &Path) {
    let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
    let _ = fs::remove_file(path);
}

/// Removes the names of runs whose `tollway` has ended, and so their namespaces. Returns these
/// names.
pub fn clean_names() -> Vec<String> {
    let mut taken = Vec::new();
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(is_over) {
            take_back(&entry.path());
            if !entry.path().exists() {
                taken.push(name);
            }
        }
    }
    taken
}

/// The mark of the run to which a name belongs.
fn owner(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?.split('-').next()
}

/// The folder of ip-netns(8).
const FOLDER: &str = "/run/netns";
const PREFIX: &str = "tollway-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_they_are() {
        let name = format!("{PREFIX}{}-core-1", mark());
        assert_eq!(owner(&name), Some(mark().as_str()));
        assert!(!is_over(owner(&name).unwrap()));
        assert_eq!(owner("blue"), None);
        // Not a name of Tollway's format, in spite of its prefix.
        assert!(!is_over(owner("tollway-blue").unwrap()));
    }
}
