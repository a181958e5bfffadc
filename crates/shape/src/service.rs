//! The agent as a process: the back-end, its worker, new policies, and the service manager.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tollway_agent::notify::Notifier;
use tollway_law::Time;

use crate::channel::{AgentEnd, Reply, WorkerMessage};
use crate::handover::{Item, Pending, hand_over, pending};
use crate::policies::Policies;
use crate::rights::reading_files;
use crate::status::State;
use crate::{
    Agent, Concern, ControlSocket, Guardian, Kernel, LookOnly, Needs, Reach, Signals, SockDiag, Then, Turn,
    bpf, joined, replay, run, settle_in,
};

/// An agent with the channel to its worker.
pub struct Service {
    agent: Agent,
    link: Link,
    /// Frees the connections if this process is killed.
    _guardian: Option<Guardian>,
}

impl Service {
    /// Waits for the worker's first policies, which are in force from the first tick on. Returns
    /// none if the worker has ended.
    ///
    /// Must be called once this process has only the rights that the agent needs: from here on it
    /// reads the worker's messages.
    ///
    /// # Errors
    /// No thread can be started. [`io::ErrorKind::InvalidData`]: the worker sends something else.
    pub fn start(
        (kernel, guardian): (Box<dyn Kernel>, Option<Guardian>),
        worker: &mut WorkerProcess,
    ) -> io::Result<Option<Service>> {
        let Some(channel) = worker.channel.take() else { return Ok(None) };
        let link = Link { end: AgentEnd::start(channel)?, warned: None, wanted: false, broken: None };
        let regime = match link.end.wait() {
            Ok(WorkerMessage::Policies(regime)) => *regime,
            Ok(WorkerMessage::State) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        let agent = Agent::new(Time::ZERO, kernel, regime);
        Ok(Some(Service { agent, link, _guardian: guardian }))
    }

    /// Paces connections until a signal comes or the worker ends. Frees them, and returns their
    /// number.
    ///
    /// # Errors
    /// The kernel can't list connections. [`io::ErrorKind::InvalidData`]: the worker sends
    /// something that is no request. Connections are freed all the same, as far as possible.
    pub fn run(self, signals: &Signals) -> io::Result<usize> {
        let Service { mut agent, mut link, _guardian } = self;
        let mut notifier = Notifier::find();
        let freed = run(&mut agent, signals, |agent, turn| {
            notifier.works();
            link.turn(agent, turn)
        })?;
        notifier.stops();
        link.broken.map_or(Ok(freed), Err)
    }
}

/// The channel to the worker, from tick to tick.
struct Link {
    end: AgentEnd,
    /// The causes told to the worker; none before the first reply, which says that the agent works.
    warned: Option<Vec<Concern>>,
    /// The worker waits for the agent's state.
    wanted: bool,
    /// The worker has sent something that is no request.
    broken: Option<io::Error>,
}

impl Link {
    /// Handles the worker's requests after a tick.
    fn turn(&mut self, agent: &mut Agent, turn: Turn) -> Then {
        let mut warnings = agent.warnings();
        let now = warnings.iter().map(|&(concern, _)| concern).collect();
        if let Some(warned) = &self.warned {
            warnings.retain(|(concern, _)| !warned.contains(concern));
        }
        let said = self.warned.is_some() && warnings.is_empty();
        if said || self.end.send(Reply::Warning(joined(warnings))) {
            self.warned = Some(now);
        }
        let mut newest = None;
        loop {
            match self.end.poll() {
                Ok(None) => break,
                Ok(Some(WorkerMessage::State)) => self.wanted = true,
                Ok(Some(WorkerMessage::Policies(regime))) => newest = Some(regime),
                Err(error) => {
                    self.broken = Some(error).filter(|error| error.kind() == io::ErrorKind::InvalidData);
                    return Then::Stop;
                }
            }
        }
        // The state of this tick. New policies are in force from the next tick on, which follows at
        // once.
        if self.wanted {
            self.wanted = !self.end.send(Reply::State(state(agent, turn, String::new()).to_json()));
        }
        let Some(regime) = newest else { return Then::Go };
        agent.install(turn.now, *regime);
        Then::Hurry
    }
}

fn state(agent: &Agent, turn: Turn, source: String) -> State {
    State {
        time_s: turn.now.nearest_secs(),
        source,
        tick_ms: turn.tick.as_millis_f64(),
        cpu_s: turn.cpu.as_secs_f64(),
        ..agent.status()
    }
}

/// A worker, as the agent's process sees it: see [`worker`](crate::worker).
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    /// The agent's end of the channel, until it is used.
    channel: Option<UnixStream>,
}

impl WorkerProcess {
    /// Starts `program`, which must call [`give_up_all`](crate::give_up_all) first. Hands it the
    /// channel, the status socket and `files`, in the order of [`Number`](crate::Number).
    ///
    /// Must be called while this process has all its rights: the worker needs them to give them up.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn start(
        program: &[OsString],
        control: Option<&ControlSocket>,
        files: [Option<PathBuf>; 5],
    ) -> io::Result<WorkerProcess> {
        let (requests, theirs) = UnixStream::pair()?;
        let (channel, far) = UnixStream::pair()?;
        let status = control.map(ControlSocket::listener).transpose()?;
        let mut items = vec![Some(Item::Open(far.into())), status.map(|socket| Item::Open(socket.into()))];
        items.extend(files.map(|file| file.map(Item::File)));
        let (name, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(name).args(arguments).stdin(OwnedFd::from(theirs)).spawn()?;
        let serve = move || hand_over(requests, &items);
        reading_files(|| std::thread::Builder::new().name("handover".into()).spawn(serve))?;
        Ok(WorkerProcess { child, channel: Some(channel) })
    }

    /// Waits until the worker sends its first policies. Returns false if the worker ends before, or
    /// a signal comes.
    pub fn await_policies(&mut self, signals: &Signals) -> bool {
        loop {
            match self.channel.as_ref().map_or(Pending::End, pending) {
                Pending::Nothing => {}
                pending => return pending == Pending::Data,
            }
            if signals.sleep(LOOK) {
                self.channel = None;
                return false;
            }
        }
    }

    /// Waits for the worker's end, and returns its exit status. The worker ends once the channel is
    /// closed, which a signal causes. A worker that does not is left running.
    ///
    /// # Errors
    /// A signal has ended the worker.
    pub fn end(mut self, signals: &Signals) -> io::Result<u8> {
        let patience = || Instant::now() + PATIENCE;
        let mut until = self.channel.is_none().then(patience);
        loop {
            if let Some(status) = self.child.try_wait()? {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return code.ok_or_else(|| io::Error::other(format!("it has ended: {status}")));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(0);
            }
            if signals.sleep(LOOK) && until.is_none() {
                self.channel = None;
                until = Some(patience());
            }
        }
    }
}

/// Interval between checks of the worker.
const LOOK: Duration = Duration::from_millis(5);
/// Longest wait for the worker's end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The choice of a back-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// [`SockDiag`].
    InetDiag,
    /// [`bpf::Bpf`].
    Bpf,
    /// [`bpf::Bpf`] if it can be started, else [`SockDiag`].
    Auto,
}

/// The reason why no back-end could be started.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// A system call fails, or the guardian can't be started.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The kernel takes no eBPF programs.
    #[error(transparent)]
    Bpf(#[from] bpf::Unavailable),
    /// Other network namespaces are requested, but `inet_diag` does not list their connections.
    #[error("inet_diag lists only the connections of this network namespace")]
    Everywhere,
}

/// Starts a back-end, and a guardian that frees connections when this process can't. `guardian`
/// makes the guardian's command line from the back-end's words. Gives up all rights that neither
/// needs. `note` prints notes for users.
///
/// # Errors
/// See [`BackendError`].
pub fn kernel(
    backend: Backend,
    everywhere: bool,
    control: &ControlSocket,
    guardian: impl Fn(&[&str]) -> io::Result<Vec<OsString>>,
    note: impl Fn(&str),
) -> Result<(Box<dyn Kernel>, Option<Guardian>), BackendError> {
    let record = control.beside(".paced");
    let guard = |more: &[&str]| {
        let mut program = guardian(more)?;
        program.extend(["--record".into(), record.clone().into_os_string()]);
        Guardian::start(&program, control.claim(), &record)
    };
    // An earlier agent may have been killed with its guardian. Then the paces in force are not
    // limits of programs.
    let (freed, left) = replay(&record)?;
    if freed + left > 0 {
        note(&format!("an earlier agent was killed; the paces of its {freed} connections are removed"));
    }
    // Control groups are mounted, if need be, while this process has the right.
    let _ = crate::cgroup::root();
    let config = bpf::Config { everywhere, ..bpf::Config::default() };
    match (backend != Backend::InetDiag).then(|| bpf::Bpf::start(&config)) {
        Some(Ok(kernel)) => {
            let everywhere = everywhere.then_some("--everywhere");
            let guardian = guard(&["--bpf"].into_iter().chain(everywhere).collect::<Vec<_>>())?;
            settle_in(Needs::Programs)?;
            return Ok((Box::new(kernel), Some(guardian)));
        }
        Some(Err(error)) if backend == Backend::Bpf => return Err(error.into()),
        Some(Err(error)) => {
            note(&format!("{error}; using inet_diag instead, so {}", crate::status::NOT_CONTAINED))
        }
        None => {}
    }
    if everywhere {
        return Err(BackendError::Everywhere);
    }
    let guardian = guard(&[])?;
    say_reach(note);
    settle_in(Needs::Sockets)?;
    Ok((Box::new(SockDiag::new()?.guarded(guardian)), None))
}

/// Lists connections for a second without setting paces, and returns the state then. Returns none
/// if a signal or `ends` comes first.
///
/// # Errors
/// The kernel can't list connections.
pub fn dry_run(
    policies: Policies,
    source: String,
    signals: &Signals,
    ends: impl Fn() -> bool,
) -> io::Result<Option<State>> {
    let kernel = LookOnly(SockDiag::new()?);
    let mut agent = Agent::new(Time::ZERO, Box::new(kernel), policies.into_regime());
    let mut last = None;
    run(&mut agent, signals, |agent, turn| {
        if turn.now < Time::from_secs(1) && !ends() {
            return Then::Go;
        }
        last = (turn.now >= Time::from_secs(1)).then(|| state(agent, turn, source.clone()));
        Then::Stop
    })?;
    Ok(last)
}

/// Notes the connections that can't be paced, and the remedy.
pub fn say_reach(note: impl Fn(&str)) {
    match Reach::find() {
        Reach::All => {}
        Reach::User => note(
            "only connections of this user's processes can be paced; for all users, run it as root, or give \
            `tollway` CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        ),
        Reach::Children => note(
            "this system's Yama module keeps processes from each other's sockets, so nothing is paced; run \
            it as root, give `tollway` CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or set `sysctl \
            kernel.yama.ptrace_scope=0`",
        ),
    }
}
