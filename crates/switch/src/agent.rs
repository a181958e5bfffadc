//! A switch as a process: the thread of the event loop, and the control socket.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

pub use tollway_agent::control::command;
use tollway_agent::control::{self, ControlSocket};
pub use tollway_agent::events::Events;
pub use tollway_net::random;
pub use tollway_net::sys::signals::{Order, Signals};

use crate::config::Config;
use crate::engine::Engine;
use crate::mailbox::{EngineCommand, Mailbox};
use crate::setup::{Edit, Setup};
use crate::sites::{self, Sites};
use crate::status::Status;

/// A switch that runs in a thread.
#[derive(Debug)]
pub struct Agent {
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<io::Result<()>>>,
    listen: Vec<SocketAddr>,
    told: Arc<Mutex<(String, Option<String>)>>,
    current: Arc<Current>,
}

/// The configuration in force, and the log. Threads that wait (for commands, for the next look at
/// names) hold neither, so that the log is written to its end.
#[derive(Debug)]
struct Current {
    setup: Mutex<Setup>,
    events: Events,
}

impl Agent {
    /// Opens the sockets of a switch or of a part between sites, and starts its event loop.
    /// `source` names the origin of the configuration. `events` receives what happens to members
    /// and clients.
    ///
    /// # Errors
    /// An address is in use or not local, or the thread cannot be created.
    pub fn start(setup: impl Into<Setup>, source: String, events: Events) -> io::Result<Agent> {
        match setup.into() {
            Setup::Switch(config) => Agent::start_switch(config, source, events),
            Setup::Site(config) => Agent::start_site(config, source, events),
        }
    }

    fn start_switch(config: Arc<Config>, source: String, events: Events) -> io::Result<Agent> {
        let mailbox = Arc::new(Mailbox::default());
        let mut engine = Engine::open(Arc::clone(&config), Arc::clone(&mailbox), events.clone())?;
        let listen = engine.addresses();
        let thread = std::thread::Builder::new().name("switch".into()).spawn(move || engine.run())?;
        let told = Arc::new(Mutex::new((source, None)));
        let current = Arc::new(Current { setup: Mutex::new(Setup::Switch(config)), events });
        let (followed, to) = (Arc::downgrade(&current), Arc::clone(&mailbox));
        std::thread::Builder::new().name("names".into()).spawn(move || {
            while let Some(current) = followed.upgrade() {
                current.follow_names(&to);
                drop(current);
                std::thread::sleep(RESOLVE);
            }
        })?;
        Ok(Agent { mailbox, thread: Some(thread), listen, told, current })
    }

    fn start_site(config: Arc<Sites>, source: String, events: Events) -> io::Result<Agent> {
        let mailbox = Arc::new(Mailbox::default());
        let setup = Mutex::new(Setup::Site(Arc::clone(&config)));
        let current = Arc::new(Current { setup, events: events.clone() });
        let (listen, run) = sites::start(config, Arc::clone(&mailbox), events)?;
        let thread = std::thread::Builder::new().name("site".into()).spawn(run)?;
        let told = Arc::new(Mutex::new((source, None)));
        Ok(Agent { mailbox, thread: Some(thread), listen, told, current })
    }

    /// The addresses for clients; for a part without clients, the address for its neighbours.
    pub fn listen(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// A handle for status queries and drain commands.
    pub fn teller(&self) -> Teller {
        let (mailbox, told) = (Arc::clone(&self.mailbox), Arc::clone(&self.told));
        Teller { mailbox, told, current: Arc::downgrade(&self.current) }
    }

    /// Puts another configuration in force.
    ///
    /// # Errors
    /// The reason it cannot be; the previous one stays in force.
    pub fn install(&self, setup: impl Into<Setup>) -> Result<(), String> {
        // Before the next look at names, which replaces what is in force.
        install(&mut self.current.lock(), setup.into(), &self.mailbox)
    }

    /// Records the reason a newer configuration is not in force; `None` clears it.
    pub fn set_trouble(&self, trouble: Option<String>) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).1 = trouble;
    }

    /// True if the event loop has ended without a command.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Accepts no more frames, and waits until those under way are done, or the configured grace is
    /// over.
    ///
    /// # Errors
    /// The error that ended the event loop before.
    pub fn end(mut self) -> io::Result<()> {
        self.mailbox.put(EngineCommand::End);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the event loop has failed")))
    }
}

/// A handle to a switch for status queries and changes of members, for any thread.
#[derive(Clone, Debug)]
pub struct Teller {
    mailbox: Arc<Mailbox>,
    told: Arc<Mutex<(String, Option<String>)>>,
    current: Weak<Current>,
}

impl Teller {
    /// The present status; `None` if the event loop does not answer.
    pub fn status(&self) -> Option<Status> {
        let (reply, answer) = channel();
        self.mailbox.put(EngineCommand::Status(reply));
        let mut status = answer.recv_timeout(PATIENCE).ok()?;
        (status.source, status.trouble) = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(status)
    }

    /// The present status as JSON.
    pub fn status_json(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self.status()?).ok()
    }

    /// Drains a member, so that it gets no new frames, or ends the drain.
    ///
    /// # Errors
    /// There is no such member; the error lists the members.
    pub fn drain(&self, member: &str, drain: bool) -> Result<(), Vec<String>> {
        let (reply, answer) = channel();
        self.mailbox.put(EngineCommand::Drain(member.to_owned(), drain, reply));
        answer.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(Vec::new()))
    }

    /// Changes the members in force. The next change of the file replaces them.
    ///
    /// # Errors
    /// The reason the change cannot be made.
    pub fn edit(&self, edit: &Edit) -> Result<(), String> {
        let current = self.current.upgrade().ok_or("it has ended")?;
        let mut current = current.lock();
        let setup = current.edited(edit)?;
        install(&mut current, setup, &self.mailbox)
    }

    /// Answers commands at the control socket `path`, with access for this user only, until the
    /// result is dropped: `drain NAME`, `undrain NAME`, an [`Edit`], and anything else for the
    /// status.
    ///
    /// # Errors
    /// As for [`ControlSocket::open`].
    pub fn answer_at(&self, path: &Path) -> io::Result<ControlSocket> {
        let control = ControlSocket::open(path)?;
        let teller = self.clone();
        control.serve(move |command| teller.answer(command))?;
        Ok(control)
    }

    fn answer(&self, command: &str) -> String {
        let drained = |name: &str, drain: bool| match self.drain(name, drain) {
            Ok(()) => "ok".to_owned(),
            Err(names) => format!("unknown {}", names.join(", ")),
        };
        if let Some(edit) = Edit::parse(command) {
            return self.edit(&edit).map_or_else(|why| format!("refused {why}"), |()| "ok".to_owned());
        }
        match command.split_once(' ') {
            Some(("drain", name)) => drained(name, true),
            Some(("undrain", name)) => drained(name, false),
            _ => self.status_json().map_or_else(String::new, |status| status.to_string()),
        }
    }
}

fn install(current: &mut Setup, setup: Setup, mailbox: &Mailbox) -> Result<(), String> {
    let (reply, answer) = channel();
    mailbox.put(EngineCommand::Install(setup.clone(), reply));
    answer.recv_timeout(PATIENCE).map_err(|_| "the event loop does not answer".to_owned())??;
    *current = setup;
    Ok(())
}

impl Current {
    fn lock(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves the names of members again. A member moves once its name no longer has its address.
    fn follow_names(&self, mailbox: &Mailbox) {
        let Setup::Switch(before) = self.lock().clone() else { return };
        let mut after = Config::clone(&before);
        for member in &mut after.members {
            let Some(Ok(found)) = member.host.as_ref().map(ToSocketAddrs::to_socket_addrs) else { continue };
            let found: Vec<SocketAddr> = found.collect();
            if let Some(&first) = found.first().filter(|_| !found.contains(&member.address)) {
                member.address = first;
                self.events.info("member-moved", format_args!("member {} is at {first} now", member.name));
            }
        }
        // The lookups take time, in which another file may have come into force.
        let mut current = self.lock();
        let same = matches!(&*current, Setup::Switch(now) if Arc::ptr_eq(&before, now));
        if before.members != after.members && same {
            // Without an answer the event loop ends, or hangs.
            let _ = install(&mut current, after.into(), mailbox);
        }
    }
}

/// The default control socket of this user.
pub fn default_path() -> PathBuf {
    control::folder().join("switch.sock")
}

/// Time between lookups of the names of members.
const RESOLVE: Duration = Duration::from_secs(5);
/// Timeout of a command to the event loop.
const PATIENCE: Duration = Duration::from_secs(5);
