//! The disk on which messages wait for slow receivers: a file of `redb` and a thread.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use crate::broker::{SpoolAnswer, SpoolCommand};

/// A spool file in a folder, and the thread that writes to it. The file is removed on drop, since
/// its messages are for clients of this process.
#[derive(Debug)]
pub struct Disk {
    commands: Option<Sender<SpoolCommand>>,
    answers: Receiver<SpoolAnswer>,
    thread: Option<JoinHandle<()>>,
    file: PathBuf,
}

impl Disk {
    /// Opens `folder` for the site called `site`. The thread calls `wake` after every answer.
    ///
    /// # Errors
    /// The folder or its file can't be made.
    pub fn open(folder: &Path, site: &str, wake: impl Fn() + Send + 'static) -> io::Result<Disk> {
        fs::create_dir_all(folder)?;
        let file = folder.join(format!("{site}.spool"));
        // The file of a killed site is of no use: its clients are gone.
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let base = Database::builder().set_cache_size(CACHE).create(&file).map_err(io::Error::other)?;
        let (commands, work) = channel();
        let (done, answers) = channel();
        let serve = move || serve(&base, &work, &done, &wake);
        let thread = std::thread::Builder::new().name("spool".into()).spawn(serve)?;
        Ok(Disk { commands: Some(commands), answers, thread: Some(thread), file })
    }

    /// Sends a command to the thread.
    pub fn command(&self, command: SpoolCommand) {
        if let Some(commands) = &self.commands {
            // The thread ends only with this value.
            let _ = commands.send(command);
        }
    }

    /// Takes an answer, if one is ready.
    pub fn answer(&self) -> Option<SpoolAnswer> {
        self.answers.try_recv().ok()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.file);
    }
}

fn serve(base: &Database, work: &Receiver<SpoolCommand>, done: &Sender<SpoolAnswer>, wake: &impl Fn()) {
    let mut commits = 0u64;
    while let Ok(command) = work.recv() {
        commits += 1;
        let answer = match command {
            SpoolCommand::Store(number, bytes) => match change(base, commits, Some(&bytes), number) {
                Ok(()) => Some(SpoolAnswer::Stored(number)),
                Err(error) => Some(SpoolAnswer::Refused(number, bytes, error.to_string())),
            },
            SpoolCommand::Load(number) => Some(match load(base, number) {
                Ok(Some(bytes)) => {
                    // A failed removal only wastes room, so the message is still delivered.
                    let _ = change(base, commits, None, number);
                    SpoolAnswer::Loaded(number, bytes)
                }
                Ok(None) => SpoolAnswer::Lost(number, "it was not kept".into()),
                Err(error) => SpoolAnswer::Lost(number, error.to_string()),
            }),
            SpoolCommand::Forget(number) => {
                let _ = change(base, commits, None, number);
                None
            }
        };
        if let Some(answer) = answer {
            if done.send(answer).is_err() {
                return;
            }
            wake();
        }
    }
}

/// Stores `bytes` under `number`, or removes the entry if `None`.
fn change(base: &Database, commits: u64, bytes: Option<&Bytes>, number: u64) -> Result<(), redb::Error> {
    let mut transaction = base.begin_write()?;
    // Data need not outlast the process, but only a durable commit frees its room.
    if !commits.is_multiple_of(LASTING) {
        transaction.set_durability(Durability::None)?;
    }
    {
        let mut table = transaction.open_table(TABLE)?;
        match bytes {
            Some(bytes) => drop(table.insert(number, &bytes[..])?),
            None => drop(table.remove(number)?),
        }
    }
    transaction.commit()?;
    Ok(())
}

fn load(base: &Database, number: u64) -> Result<Option<Bytes>, redb::Error> {
    let transaction = base.begin_read()?;
    let table = transaction.open_table(TABLE)?;
    Ok(table.get(number)?.map(|bytes| Bytes::copy_from_slice(bytes.value())))
}

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("chunks");
/// Bytes of the file that are cached in memory.
const CACHE: usize = 4 << 20;
/// One of this many commits is durable.
const LASTING: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back_once() {
        let folder = std::env::temp_dir().join(format!("tollway-overlay-spool-{}", std::process::id()));
        let (woken, wakes) = channel();
        let disk = Disk::open(&folder, "a", move || {
            let _ = woken.send(());
        })
        .unwrap();
        let await_answer = || {
            wakes.recv().unwrap();
            disk.answer().unwrap()
        };
        for number in 0..200u64 {
            disk.command(SpoolCommand::Store(number, vec![number as u8; 1000].into()));
            assert_eq!(await_answer(), SpoolAnswer::Stored(number));
        }
        disk.command(SpoolCommand::Load(7));
        assert_eq!(await_answer(), SpoolAnswer::Loaded(7, vec![7; 1000].into()));
        disk.command(SpoolCommand::Forget(8));
        for gone in [7, 8, 1000] {
            disk.command(SpoolCommand::Load(gone));
            assert!(matches!(await_answer(), SpoolAnswer::Lost(number, _) if number == gone));
        }
        drop(disk);
        assert!(fs::read_dir(&folder).unwrap().next().is_none());
        fs::remove_dir_all(folder).unwrap();
    }
}
