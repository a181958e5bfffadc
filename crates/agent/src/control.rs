//! The status socket of an agent: a Unix socket that only the agent's user may open.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The agent's end of a status socket.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    claim: File,
}

impl ControlSocket {
    /// Opens the socket at `path`. A missing folder is made, without access for other users.
    ///
    /// # Errors
    /// - [`io::ErrorKind::AddrInUse`]: another agent answers there.
    /// - [`io::ErrorKind::AlreadyExists`]: another kind of file is there, and stays.
    /// - [`io::ErrorKind::TimedOut`]: an agent has ended there, and its guardian has not.
    /// - Others: the folder belongs to another user, or can't be made.
    pub fn open(path: &Path) -> io::Result<ControlSocket> {
        own_folder(path)?;
        if fs::symlink_metadata(path).is_ok_and(|meta| !meta.file_type().is_socket()) {
            let text = format!("`{}` already exists, and is not a socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let claim = claim(path)?;
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // The socket of an agent that was killed.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(ControlSocket { listener, path: path.to_owned(), claim })
    }

    /// The path of a further file of the agent: the socket's with this ending.
    pub fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }

    /// The lock on this path. A process that inherits it reserves the agent's place until it ends.
    pub fn claim(&self) -> &File {
        &self.claim
    }

    /// Starts a thread that answers commands. The empty command requests the status.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(&self, answer: impl Fn(&str) -> String + Send + 'static) -> io::Result<()> {
        let listener = self.listener()?;
        listener.set_nonblocking(false)?;
        let serve = move || {
            for mut client in listener.incoming().flatten() {
                // A client that does not send its command is left.
                let mut command = String::new();
                let heard = client
                    .set_read_timeout(Some(Duration::from_secs(1)))
                    .and_then(|()| (&mut client).take(LONGEST_COMMAND).read_to_string(&mut command));
                if heard.is_ok() {
                    reply(client, answer(&command).into());
                }
            }
        };
        std::thread::Builder::new().name("control".into()).spawn(serve).map(drop)
    }

    /// Answers all waiting clients, without blocking.
    pub fn answer(&self, mut text: impl FnMut() -> String) {
        while let Ok((client, _)) = self.listener.accept() {
            reply(client, text().into());
        }
    }

    /// The socket, for another process that answers: see [`Answers`].
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

/// The clients of a status socket.
#[derive(Debug)]
pub struct Answers {
    listener: UnixListener,
    /// Clients that wait for an answer.
    clients: Vec<UnixStream>,
    /// Number of clients that waited when a state was requested.
    due: usize,
}

impl Answers {
    /// Serves the clients of the socket that a [`ControlSocket`] has opened.
    pub fn new(listener: UnixListener) -> Answers {
        Answers { listener, clients: Vec::new(), due: 0 }
    }

    /// Accepts waiting clients, without blocking. Returns true if a state must be requested for
    /// them.
    pub fn accept(&mut self) -> bool {
        while let Ok((client, _)) = self.listener.accept() {
            self.clients.push(client);
        }
        self.clients.len() > self.due
    }

    /// Notes that a state is requested for all clients that wait now.
    pub fn request(&mut self) {
        self.due = self.clients.len();
    }

    /// Sends the state to the clients for which it was requested.
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

/// Writes in another thread. Neither a client that does not read nor a lack of threads stops the
/// agent.
fn reply(mut client: UnixStream, text: Arc<str>) {
    let _ = std::thread::Builder::new().spawn(move || {
        let _ = client.set_nonblocking(false);
        let _ = client.set_write_timeout(Some(Duration::from_secs(5)));
        let _ = client.write_all(text.as_bytes());
    });
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates the parent folder of `path` if it does not exist, without access for other users.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`]: it belongs to another user, or others may write to it.
/// Other errors: it cannot be made.
pub fn own_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let meta = fs::metadata(folder)?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        let text = format!("other users can write to `{}`", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Locks `path`, as soon as no other process holds the lock.
///
/// Sockets that a killed agent had paced must be restored first. Otherwise the next agent would
/// take those paces for the programs' own, and keep them.
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
                let text = "the guardian of an ended agent is still running";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Time to wait for a guardian, which is longer than the guardian's own limit.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests the state of the agent at `path`.
///
/// # Errors
/// No agent answers there. [`io::ErrorKind::TimedOut`]: an agent is there, but does not answer.
pub fn ask(path: &Path) -> io::Result<String> {
    command(path, "")
}

/// Sends `command` to the agent at `path`, and returns its answer.
///
/// # Errors
/// As for [`ask`].
pub fn command(path: &Path, command: &str) -> io::Result<String> {
    ask_within(path, command, Duration::from_secs(15))
}

fn ask_within(path: &Path, command: &str, patience: Duration) -> io::Result<String> {
    let mut stream = connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(command.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    read_answer(stream).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", patience.as_secs_f64()))
        }
        _ => error,
    })
}

/// Connects to an agent of this user, or of root.
///
/// # Errors
/// No agent answers there, or [another user's](io::ErrorKind::PermissionDenied).
fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    tollway_net::sys::sockopt::require_own_peer(&stream)?;
    Ok(stream)
}

/// Reads an agent's answer, at most 256 MiB.
///
/// # Errors
/// The stream fails, or the answer is not UTF-8.
fn read_answer(stream: UnixStream) -> io::Result<String> {
    let mut text = String::new();
    stream.take(LONGEST_ANSWER).read_to_string(&mut text)?;
    Ok(text)
}

/// Limits of an answer and of a command, in bytes.
const LONGEST_ANSWER: u64 = 1 << 28;
const LONGEST_COMMAND: u64 = 4096;

/// Default folder for the sockets of this user's agents.
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
    fn a_command_is_answered_and_a_silent_client_is_left() {
        let folder = std::env::temp_dir().join(format!("tollway-commands-{}", std::process::id()));
        let path = folder.join("agent.sock");
        let control = ControlSocket::open(&path).unwrap();
        control.serve(|command| format!("heard `{command}`")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0);
        let _silent = UnixStream::connect(&path).unwrap();
        assert_eq!(command(&path, "drain a").unwrap(), "heard `drain a`");
        assert_eq!(ask(&path).unwrap(), "heard ``");
        drop(control);
        assert!(ask(&path).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn one_agent_answers_and_its_place_is_free_again() {
        let folder = std::env::temp_dir().join(format!("tollway-control-{}", std::process::id()));
        let path = folder.join("shape.sock");
        let control = ControlSocket::open(&path).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(ControlSocket::open(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
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
        // A killed agent leaves its socket.
        drop(UnixListener::bind(&path).unwrap());
        let control = ControlSocket::open(&path).unwrap();
        // The next agent waits until its guardian has ended, too.
        let guardian = control.claim().try_clone().unwrap();
        drop(control);
        let next = std::thread::spawn({
            let path = path.clone();
            move || ControlSocket::open(&path).unwrap()
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!next.is_finished());
        drop(guardian);
        drop(next.join().unwrap());
        // A stopped agent is there, but does not answer.
        let stopped = ControlSocket::open(&path).unwrap();
        let error = ask_within(&path, "", Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "no answer within 0.02 s");
        drop(stopped);
        // A file that is no socket must stay.
        fs::write(&path, "dear").unwrap();
        let error = ControlSocket::open(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("shape.sock` already exists, and is not a socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"dear");
        fs::remove_dir_all(folder).unwrap();
    }
}
