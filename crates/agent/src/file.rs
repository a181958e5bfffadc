//! The watch on a configuration file.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Properties that change with a file: time of modification, length and inode. The clock may be
/// coarse, and editors write a new file.
pub type Mark = (SystemTime, u64, u64);

/// The mark of a file.
///
/// # Errors
/// The file system has no times.
pub fn mark(meta: &Metadata) -> io::Result<Mark> {
    Ok((meta.modified()?, meta.len(), meta.ino()))
}

/// A file under watch: it is due once it has changed and then stayed the same for 25 ms, since
/// editors write in several steps.
#[derive(Debug)]
pub struct Watch {
    /// The version that was read last.
    read: Option<Mark>,
    /// The current version, and the time since which it holds.
    now: (Option<Mark>, Instant),
}

impl Watch {
    /// Watches a file that has been read at this mark.
    pub fn new(read: Option<Mark>) -> Watch {
        Watch { read, now: (read, Instant::now()) }
    }

    /// Watches `path`, which is about to be read.
    pub fn of(path: &Path) -> Watch {
        Watch::new(at(path))
    }

    /// Returns true if `found`, the file's present mark, is to be read: it is new and settled.
    /// With `again`, also an old one.
    pub fn is_due(&mut self, found: Option<Mark>, again: bool) -> bool {
        let now = Instant::now();
        if found != self.now.0 {
            self.now = (found, now);
        }
        let due = (found != self.read || again) && now >= self.now.1 + SETTLED;
        if due {
            self.read = found;
        }
        due
    }

    /// Makes the file due even if it has not changed.
    pub fn again(&mut self) {
        self.read = None;
    }

    /// Returns true if the file at `path` has changed and is to be read.
    pub fn has_changed(&mut self, path: &Path) -> bool {
        self.is_due(at(path), false)
    }
}

fn at(path: &Path) -> Option<Mark> {
    mark(&std::fs::metadata(path).ok()?).ok()
}

/// Time for which a file must be unchanged.
const SETTLED: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_due_once_it_has_settled() {
        let path = std::env::temp_dir().join(format!("tollway-watch-{}", std::process::id()));
        std::fs::write(&path, "a").unwrap();
        let mut watch = Watch::of(&path);
        assert!(!watch.has_changed(&path));
        std::fs::write(&path, "longer").unwrap();
        let changed = Instant::now();
        while !watch.has_changed(&path) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(changed.elapsed() >= SETTLED);
        assert!(!watch.has_changed(&path), "it is due once");
        watch.again();
        assert!(watch.has_changed(&path) && !watch.has_changed(&path));
        std::fs::remove_file(&path).unwrap();
        while !watch.has_changed(&path) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(watch.is_due(None, true), "on request it is due again");
    }
}
