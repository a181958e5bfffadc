//! Where an agent can be asked how it stands: a Unix socket that only its own user may open.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The agent's end.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    claim: File,
}

impl Control {
    /// Opens the socket at `path`, in a folder that is made, and that nobody else may enter, if there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`]: another agent answers there. [`io::ErrorKind::AlreadyExists`]: something else is there, which stays.
    /// [`io::ErrorKind::TimedOut`]: an agent has ended there, and its guardian has not. Or the folder is somebody else's, or can't be made.
    pub fn open(path: &Path) -> io::Result<Control> {
        own_folder(path)?;
        if fs::symlink_metadata(path).is_ok_and(|meta| !meta.file_type().is_socket()) {
            let text = format!("`{}` is there already, and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let claim = claim(path)?;
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // What an agent that was killed has left.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Control { listener, path: path.to_owned(), claim })
    }

    /// Where its guardian keeps what has to be undone.
    pub fn record(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".paced");
        name.into()
    }

    /// The lock that keeps others from this place until the last process that has it open has ended: the agent, or its guardian.
    pub fn claim(&self) -> &File {
        &self.claim
    }

    /// Answers those that have asked; never waits.
    pub fn answer(&self, mut text: impl FnMut() -> String) {
        while let Ok((client, _)) = self.listener.accept() {
            reply(client, text().into());
        }
    }

    /// The socket, for another process that answers: see [`Answers`].
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

/// The clients of a status socket.
#[derive(Debug)]
pub struct Answers {
    listener: UnixListener,
    /// Those that wait.
    clients: Vec<UnixStream>,
    /// Clients that waited when a state was requested.
    due: usize,
}

impl Answers {
    /// Those of the socket that a [`Control`] has opened.
    pub fn new(listener: UnixListener) -> Answers {
        Answers { listener, clients: Vec::new(), due: 0 }
    }

    /// Accepts those that have come, without waiting; returns whether a state is to be requested
    /// for them.
    pub fn accept(&mut self) -> bool {
        while let Ok((client, _)) = self.listener.accept() {
            self.clients.push(client);
        }
        self.clients.len() > self.due
    }

    /// Notes that a state is requested: it is for all that wait now.
    pub fn request(&mut self) {
        self.due = self.clients.len();
    }

    /// Sends the state that was requested.
    pub fn answer(&mut self, text: impl FnOnce() -> String) {
        if self.due == 0 {
            return;
        }
        let text: Arc<str> = text().into();
        for client in self.clients.drain(..std::mem::take(&mut self.due)) {
            reply(client, Arc::clone(&text));
        }
    }
}

/// Writes in another thread: a client that reads nothing must not stop the agent, nor must a lack
/// of threads.
fn reply(mut client: UnixStream, text: Arc<str>) {
    let _ = std::thread::Builder::new().spawn(move || {
        let _ = client.set_nonblocking(false);
        let _ = client.set_write_timeout(Some(Duration::from_secs(5)));
        let _ = client.write_all(text.as_bytes());
    });
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates the parent folder of `path` if it does not exist, without access for other users.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`]: another user's, or others may write to it. Or it cannot be
/// made.
pub fn own_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let meta = fs::metadata(folder)?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        let text = format!("others may write to `{}`", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Takes the place at `path`, as soon as nobody has it any more. What an agent that was killed had paced has to be free before another looks: it would take
/// those paces for the programs' own, and keep to them for good.
fn claim(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(name)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if UnixStream::connect(path).is_ok() => {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::WOULDBLOCK) => {
                let text = "the guardian of an agent that has ended is still at work";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// For so long a guardian is waited for: longer than it tries.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the agent at `path`.
///
/// # Errors
/// Nobody answers there. [`io::ErrorKind::TimedOut`]: an agent is there, and says nothing.
pub fn ask(path: &Path) -> io::Result<String> {
    ask_within(path, Duration::from_secs(15))
}

fn ask_within(path: &Path, patience: Duration) -> io::Result<String> {
    let stream = connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    read_answer(stream).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("it has said nothing for {} s", patience.as_secs_f64()),
        ),
        _ => error,
    })
}

/// Connects to an agent of this user's, or root's.
///
/// # Errors
/// None answers there, or [another user's](io::ErrorKind::PermissionDenied).
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    crate::sys::sockopt::require_own_peer(&stream)?;
    Ok(stream)
}

/// Reads an agent's answer, up to a bound.
///
/// # Errors
/// The stream fails, or the answer is no text.
pub fn read_answer(stream: UnixStream) -> io::Result<String> {
    let mut text = String::new();
    stream.take(LONGEST_ANSWER).read_to_string(&mut text)?;
    Ok(text)
}

/// Bytes of an answer.
const LONGEST_ANSWER: u64 = 1 << 28;

/// The folder of the sockets of this user's agents, unless an option names another.
pub fn folder() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user == 0 => PathBuf::from("/run/tollway"),
        Some(folder) => PathBuf::from(folder).join("tollway"),
        None => std::env::temp_dir().join(format!("tollway-{user}")),
    }
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
        let mut answers = Answers::new(control.listener().unwrap());
        while !asking.is_finished() {
            if answers.accept() {
                answers.answer(|| unreachable!("none was requested"));
                answers.request();
                answers.answer(|| "well".to_owned());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(answers);
        assert_eq!(asking.join().unwrap(), "well");
        drop(control);
        assert!(ask(&path).is_err());
        // One that was killed leaves its socket.
        drop(UnixListener::bind(&path).unwrap());
        let control = Control::open(&path).unwrap();
        // Another waits until its guardian has ended, too.
        let guardian = control.claim().try_clone().unwrap();
        drop(control);
        let next = std::thread::spawn({
            let path = path.clone();
            move || Control::open(&path).unwrap()
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!next.is_finished());
        drop(guardian);
        drop(next.join().unwrap());
        // One that was stopped is there, and says nothing.
        let stopped = Control::open(&path).unwrap();
        let error = ask_within(&path, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "it has said nothing for 0.02 s");
        drop(stopped);
        // Somebody's file is not ours to take away.
        fs::write(&path, "dear").unwrap();
        let error = Control::open(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("shape.sock` is there already, and is no socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"dear");
        fs::remove_dir_all(folder).unwrap();
    }
}
