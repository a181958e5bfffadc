//! The disk on which messages wait for slow receivers: a file for each chunk, and a thread.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use tollway_agent::control::own_folder;

use crate::broker::{SpoolAnswer, SpoolCommand};

/// The files of a site in a folder, and the thread that writes them. They are removed on drop,
/// since their messages are for clients of this process.
#[derive(Debug)]
pub struct Disk {
    commands: Option<Sender<SpoolCommand>>,
    answers: Receiver<SpoolAnswer>,
    thread: Option<JoinHandle<()>>,
    files: Files,
}

impl Disk {
    /// Opens `folder` for the site called `site`. The thread calls `wake` after every answer.
    ///
    /// # Errors
    /// The folder can't be made, or others may write to it.
    pub fn open(folder: &Path, site: &str, wake: impl Fn() + Send + 'static) -> io::Result<Disk> {
        let files = Files { prefix: folder.join(format!("{site}.spool.")) };
        own_folder(&files.prefix)?;
        // The files of a killed site are of no use: its clients are gone.
        files.remove_all()?;
        let (commands, work) = channel();
        let (done, answers) = channel();
        let mine = files.clone();
        let serve = move || serve(&mine, &work, &done, &wake);
        let thread = std::thread::Builder::new().name("spool".into()).spawn(serve)?;
        Ok(Disk { commands: Some(commands), answers, thread: Some(thread), files })
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
        let _ = self.files.remove_all();
    }
}

/// The files of a site.
#[derive(Clone, Debug)]
struct Files {
    /// Their path before the number.
    prefix: PathBuf,
}

impl Files {
    fn path(&self, number: u64) -> PathBuf {
        let mut path = self.prefix.clone().into_os_string();
        path.push(number.to_string());
        path.into()
    }

    fn store(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(number);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(bytes).inspect_err(|_| drop(fs::remove_file(&path)))
    }

    fn take(&self, number: u64) -> io::Result<Vec<u8>> {
        let bytes = fs::read(self.path(number))?;
        // A failed removal only wastes room, so the messages are still delivered.
        let _ = fs::remove_file(self.path(number));
        Ok(bytes)
    }

    fn remove_all(&self) -> io::Result<()> {
        let (Some(folder), Some(name)) = (self.prefix.parent(), self.prefix.file_name()) else {
            return Ok(());
        };
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(name.as_encoded_bytes()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn serve(files: &Files, work: &Receiver<SpoolCommand>, done: &Sender<SpoolAnswer>, wake: &impl Fn()) {
    while let Ok(command) = work.recv() {
        let why = |what: &str, number: u64, error: &io::Error| {
            format!("cannot {what} `{}`: {error}", files.path(number).display())
        };
        let answer = match command {
            SpoolCommand::Store(number, bytes) => match files.store(number, &bytes) {
                Ok(()) => SpoolAnswer::Stored(number),
                Err(error) => SpoolAnswer::Refused(number, bytes, why("write", number, &error)),
            },
            SpoolCommand::Load(number) => match files.take(number) {
                Ok(bytes) => SpoolAnswer::Loaded(number, bytes.into()),
                Err(error) => SpoolAnswer::Lost(number, why("read", number, &error)),
            },
            SpoolCommand::Forget(number) => {
                let _ = fs::remove_file(files.path(number));
                continue;
            }
        };
        if done.send(answer).is_err() {
            return;
        }
        wake();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tollway-overlay-{name}-{}", std::process::id()))
    }

    #[test]
    fn stored_chunks_return_once_from_private_files() {
        let folder = folder("spool");
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
        for (path, mode) in [(folder.clone(), 0o700), (folder.join("a.spool.9"), 0o600)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
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

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_and_links_in_it_are_not_followed() {
        let folder = folder("shared-spool");
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let error = Disk::open(&folder, "a", || ()).unwrap_err();
        assert!(error.to_string().contains("other users can write"), "{error}");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let files = Files { prefix: folder.join("a.spool.") };
        let victim = folder.join("victim");
        std::os::unix::fs::symlink(&victim, files.path(1)).unwrap();
        assert!(files.store(1, b"x").is_err() && !victim.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
