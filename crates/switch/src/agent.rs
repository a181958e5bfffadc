//! A switch as a process: the event loop's thread, and the socket where it is asked.

use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use tollway_net::random;

use crate::config::Config;
use crate::engine::Engine;
use crate::mailbox::{Command, Mailbox};
use crate::sites::{self, Sites};
use crate::status::Status;

/// A switch that runs in a thread.
#[derive(Debug)]
pub struct Agent {
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<io::Result<()>>>,
    listen: Vec<std::net::SocketAddr>,
    told: Arc<Mutex<(String, Option<String>)>>,
}

impl Agent {
    /// Listens, and starts the event loop; `source` is what its configuration comes from.
    ///
    /// # Errors
    /// An address is taken, or not this machine's; there is no thread to be had.
    pub fn start(config: Config, source: String, key: [u8; 16]) -> io::Result<Agent> {
        let mailbox = Arc::new(Mailbox::default());
        let mut engine = Engine::open(Arc::new(config), Arc::clone(&mailbox), key)?;
        let listen = engine.addresses();
        let thread = std::thread::Builder::new().name("switch".into()).spawn(move || engine.run())?;
        let told = Arc::new(Mutex::new((source, None)));
        Ok(Agent { mailbox, thread: Some(thread), listen, told })
    }

    /// Opens the sockets of a part between sites, and starts its event loop.
    ///
    /// # Errors
    /// An address is taken, or not this machine's; there is no thread to be had.
    pub fn start_site(config: Sites, source: String) -> io::Result<Agent> {
        let mailbox = Arc::new(Mailbox::default());
        let (listen, run) = sites::start(config, Arc::clone(&mailbox))?;
        let thread = std::thread::Builder::new().name("site".into()).spawn(run)?;
        let told = Arc::new(Mutex::new((source, None)));
        Ok(Agent { mailbox, thread: Some(thread), listen, told })
    }

    /// The addresses for clients; of a part without, the one for its neighbours.
    pub fn listen(&self) -> &[std::net::SocketAddr] {
        &self.listen
    }

    /// What answers at a control socket.
    pub fn teller(&self) -> Teller {
        Teller { mailbox: Arc::clone(&self.mailbox), told: Arc::clone(&self.told) }
    }

    /// Puts another configuration in force.
    ///
    /// # Errors
    /// Why it cannot be: what was in force stays.
    pub fn install(&self, config: Config) -> Result<(), String> {
        let (reply, answer) = channel();
        self.mailbox.put(Command::Install(Arc::new(config), reply));
        answer.recv_timeout(PATIENCE).map_err(|_| "the event loop does not answer".to_owned())?
    }

    /// Records why what is newer is not in force.
    pub fn set_trouble(&self, trouble: Option<String>) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).1 = trouble;
    }

    /// Whether the event loop has ended by itself.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Takes no more frames, and waits until those under way are done, or the grace of the configuration is over.
    ///
    /// # Errors
    /// Why the event loop ended before.
    pub fn end(mut self) -> io::Result<()> {
        self.mailbox.put(Command::End);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the event loop has failed")))
    }
}

/// Tells how a switch stands, from any thread.
#[derive(Clone, Debug)]
pub struct Teller {
    mailbox: Arc<Mailbox>,
    told: Arc<Mutex<(String, Option<String>)>>,
}

impl Teller {
    /// How it stands now; `None` if the event loop does not answer.
    pub fn status(&self) -> Option<Status> {
        let (reply, answer) = channel();
        self.mailbox.put(Command::Status(reply));
        let mut status = answer.recv_timeout(PATIENCE).ok()?;
        (status.source, status.trouble) = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(status)
    }

    /// Has a member get no new frames, or some again.
    ///
    /// # Errors
    /// There is no such member; those that there are.
    pub fn drain(&self, member: &str, drain: bool) -> Result<(), Vec<String>> {
        let (reply, answer) = channel();
        self.mailbox.put(Command::Drain(member.to_owned(), drain, reply));
        answer.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(Vec::new()))
    }

    /// Answers at the socket `path`, which only this user may open, until the answer is dropped.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`]: another switch answers there. Or the folder cannot be made, or something else has the name.
    pub fn answer_at(&self, path: &Path) -> io::Result<Control> {
        tollway_net::shape::own_folder(path)?;
        if let Ok(meta) = std::fs::symlink_metadata(path) {
            if !meta.file_type().is_socket() {
                let text = format!("`{}` is there already, and is no socket", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            // What a switch that was killed has left.
            let _ = std::fs::remove_file(path);
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let teller = self.clone();
        std::thread::Builder::new().name("control".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // Who asks for nothing is not waited for long; who reads nothing, neither.
                let _ = teller.answer(stream);
            }
        })?;
        Ok(Control(path.to_owned()))
    }

    fn answer(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        let mut asked = String::new();
        (&mut stream).take(LONGEST).read_to_string(&mut asked)?;
        let drained = |name: &str, drain: bool| match self.drain(name, drain) {
            Ok(()) => "ok".to_owned(),
            Err(names) => format!("unknown {}", names.join(", ")),
        };
        let answer = match asked.split_once(' ') {
            Some(("drain", name)) => drained(name, true),
            Some(("undrain", name)) => drained(name, false),
            _ => self.status().and_then(|status| serde_json::to_string(&status).ok()).unwrap_or_default(),
        };
        stream.write_all(answer.as_bytes())
    }
}

/// A socket that answers; removed when dropped.
#[derive(Debug)]
pub struct Control(PathBuf);

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Asks the switch at `path`: `status`, `drain NAME` or `undrain NAME`.
///
/// # Errors
/// None answers there, or [another user's](io::ErrorKind::PermissionDenied).
pub fn ask(path: &Path, what: &str) -> io::Result<String> {
    let mut stream = tollway_net::shape::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(what.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    tollway_net::shape::read_answer(stream)
}

/// Where a switch of this user is asked unless it is said otherwise.
pub fn default_path() -> PathBuf {
    tollway_net::shape::default_path().with_file_name("switch.sock")
}

/// How long an event loop is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest question, bytes.
const LONGEST: u64 = 4096;
