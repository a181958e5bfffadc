//! Where an agent can be asked how it stands: a Unix socket that only its own user may open.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The agent's end.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Opens the socket at `path`, in a folder that is made, and that nobody else may enter, if there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`]: another agent answers there. [`io::ErrorKind::AlreadyExists`]: something else is there, which stays. Or the
    /// folder is somebody else's, or can't be made.
    pub fn open(path: &Path) -> io::Result<Control> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let meta = fs::metadata(folder)?;
            if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
                let text = format!("others may write to `{}`", folder.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
        }
        if fs::symlink_metadata(path).is_ok_and(|meta| !meta.file_type().is_socket()) {
            let text = format!("`{}` is there already, and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // What an agent that was killed has left.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Control { listener, path: path.to_owned() })
    }

    /// Answers those that have asked; never waits.
    pub fn answer(&self, mut text: impl FnMut() -> String) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            let text = text();
            // Who asks and doesn't read must not hold the agent.
            std::thread::spawn(move || {
                let _ = stream.set_nonblocking(false);
                let _ = stream.set_write_timeout(Some(Duration::from_secs(5)));
                let _ = stream.write_all(text.as_bytes());
            });
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Asks the agent at `path`.
///
/// # Errors
/// Nobody answers there.
pub fn ask(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(Duration::from_secs(15)))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Where an agent of this user is asked unless somebody says otherwise.
pub fn default_path() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user == 0 => PathBuf::from("/run/tollway"),
        Some(folder) => PathBuf::from(folder).join("tollway"),
        None => std::env::temp_dir().join(format!("tollway-{user}")),
    };
    folder.join("shape.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_answers_and_its_place_is_free_again() {
        let folder = std::env::temp_dir().join(format!("tollway-control-{}", std::process::id()));
        let path = folder.join("shape.sock");
        let control = Control::open(&path).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(Control::open(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let asking = std::thread::spawn({
            let path = path.clone();
            move || ask(&path).unwrap()
        });
        while !asking.is_finished() {
            control.answer(|| "well".to_owned());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(asking.join().unwrap(), "well");
        drop(control);
        assert!(ask(&path).is_err());
        // One that was killed leaves its socket.
        drop(UnixListener::bind(&path).unwrap());
        drop(Control::open(&path).unwrap());
        // Somebody's file is not ours to take away.
        fs::write(&path, "dear").unwrap();
        let error = Control::open(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("shape.sock` is there already, and is no socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"dear");
        fs::remove_dir_all(folder).unwrap();
    }
}
