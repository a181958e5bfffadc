//! The output folder of result tables, with a record of the tables in it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tollway_scenario::file::Scenario;
use tollway_scenario::tables::{Table, TableError};

use crate::runner::RunnerError;

/// A folder prepared for the tables of a run, and locked until it is dropped.
///
/// Tables of an earlier run that this run won't write are removed, since readers would take them
/// for this run's. The lock keeps other processes out, since tables are read back from the folder.
/// A run is one of `tollway run`, or of a program over a network (`tollway exec`).
#[derive(Debug)]
pub struct Folder {
    /// Tables that were removed.
    pub removed: Vec<PathBuf>,
    /// The record file, locked while open.
    _record: File,
}

impl Folder {
    /// Prepares `dir` for `tables`, with names as in [`tables_of`]. It removes only tables in the
    /// earlier run's record that this run does not overwrite.
    ///
    /// # Errors
    /// Another process holds the folder, it is a file, or a file cannot be created, written or
    /// removed.
    pub fn take(dir: &Path, tables: &BTreeSet<String>) -> Result<Folder, RunnerError> {
        let fail = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| TableError::Io { action, path, source }
        };
        let of_variants = tables.iter().filter_map(|table| table.rsplit_once('/'));
        let folders =
            of_variants.map(|(variant, _)| dir.join(variant)).chain(dir.ancestors().map(Path::to_path_buf));
        for path in folders {
            if std::fs::metadata(&path).is_ok_and(|there| !there.is_dir()) {
                return Err(RunnerError::NoFolder { path });
            }
        }
        std::fs::create_dir_all(dir).map_err(fail("create", dir))?;
        if std::fs::metadata(dir).is_ok_and(|meta| is_shared(&meta)) {
            return Err(RunnerError::Shared { path: dir.into() });
        }
        let path = dir.join(RECORD);
        let mut record = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail("create", &path))?;
        if is_taken(&record) {
            return Err(RunnerError::Taken { dir: dir.into() });
        }
        let mut earlier = Vec::new();
        record.read_to_end(&mut earlier).map_err(fail("read", &path))?;
        let mut removed = Vec::new();
        for line in String::from_utf8_lossy(&earlier).lines().filter(|line| is_table(line)) {
            let table = dir.join(line);
            // A folder with its own record has been filled by another run since.
            let others = line.contains('/') && table.with_file_name(RECORD).exists();
            if tables.contains(line) || others || !table.is_file() {
                continue;
            }
            std::fs::remove_file(&table).map_err(fail("remove", &table))?;
            // Removes a variant's folder if it is empty. `dir` itself contains the record, and
            // stays.
            let _ = table.parent().map(std::fs::remove_dir);
            removed.push(table);
        }
        let text: String = tables.iter().map(|table| format!("{table}\n")).collect();
        let write = |record: &mut File| {
            record.set_len(0)?;
            record.rewind()?;
            record.write_all(text.as_bytes())
        };
        write(&mut record).map_err(fail("write", &path))?;
        Ok(Folder { removed, _record: record })
    }

    /// The note on removed tables; `None` if none were removed.
    pub fn note(&self) -> Option<String> {
        let folders: BTreeSet<_> = self.removed.iter().filter_map(|table| table.parent()).collect();
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        (!folders.is_empty()).then(|| {
            format!(
                "note: removed {} tables of an earlier run from {}",
                self.removed.len(),
                folders.join(", ")
            )
        })
    }
}

/// True if other users may write to the folder, and could plant links there.
fn is_shared(folder: &std::fs::Metadata) -> bool {
    let owner = folder.uid();
    folder.mode() & 0o002 != 0 || (owner != 0 && owner != rustix::process::geteuid().as_raw())
}

/// Locks a file while it is open. Returns true if another process holds the lock. A file system
/// without locks gives no protection.
pub(crate) fn is_taken(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// The tables that a run of `scenario` writes, as paths in its folder.
pub fn tables_of(scenario: &Scenario, csv: bool, parquet: bool) -> BTreeSet<String> {
    let endings = || ["arrow"].into_iter().chain(csv.then_some("csv")).chain(parquet.then_some("parquet"));
    let variants = scenario.variants().iter();
    variants
        .flat_map(|variant| {
            tables(endings()).map(|table| match variant.name.as_str() {
                "" => table,
                name => format!("{name}/{table}"),
            })
        })
        .collect()
}

/// The file names of a run's tables.
fn tables(endings: impl Iterator<Item = &'static str>) -> impl Iterator<Item = String> {
    endings.flat_map(|ending| Table::ALL.map(|table| format!("{}.{ending}", table.name())))
}

/// True if a line of a record is the path of a table, in the folder or directly beneath it. The
/// record is untrusted input.
fn is_table(line: &str) -> bool {
    let (variant, file) = line.rsplit_once('/').unwrap_or((".", line));
    !["", ".."].contains(&variant)
        && !variant.contains(['/', '\\'])
        && tables(["arrow", "csv", "parquet"].into_iter()).any(|t| t == file)
}

/// The record: the tables of the last run, one per line.
const RECORD: &str = ".tollway-tables";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("tollway-shared-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        let taken = Folder::take(&dir, &BTreeSet::new());
        assert!(matches!(taken, Err(RunnerError::Shared { .. })));
        assert!(!dir.join(RECORD).exists());
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        Folder::take(&dir, &BTreeSet::new()).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_record_leads_nowhere_else() {
        for line in ["flows.csv", "xcp/summary.arrow", "a.b/links.parquet"] {
            assert!(is_table(line), "{line}");
        }
        for line in [
            "",
            "notes.txt",
            "flows.csv.bak",
            "../flows.csv",
            "/flows.csv",
            "a/b/flows.csv",
            "/tmp/flows.csv",
        ] {
            assert!(!is_table(line), "{line}");
        }
    }
}
