//! The agent as a process: what sees and paces connections, its worker, policies put in force as
//! they come, service manager.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tollway_law::Time;

use crate::channel::{AgentEnd, Reply, Request};
use crate::handover::{Item, Pending, hand_over, pending};
use crate::policies::Policies;
use crate::rights::reading_files;
use crate::status::Standing;
use crate::supervisor::Supervisor;
use crate::{
    Agent, Control, Guardian, Kernel, LookOnly, Needs, Reach, Signals, SockDiag, Then, Turn, bpf, replay,
    run, settle_in,
};

/// An agent with its worker's channel.
pub struct Service {
    agent: Agent,
    link: Link,
    /// Frees what the agent has paced if this process is killed.
    _guardian: Option<Guardian>,
}

impl Service {
    /// Puts the first policies of the worker in force from the first tick on; none if it has ended.
    /// To be called once this process has no more rights than the agent needs: here begins what
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
            Ok(Request::Policies(regime)) => *regime,
            Ok(Request::State) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        let agent = Agent::new(Time::ZERO, kernel, regime);
        Ok(Some(Service { agent, link, _guardian: guardian }))
    }

    /// Paces connections until a signal or the worker ends it. Frees them, and returns how many.
    ///
    /// # Errors
    /// The kernel can't be asked; or, with [`io::ErrorKind::InvalidData`], the worker sends what is
    /// no request. What was paced is freed all the same, as far as that can be.
    pub fn run(self, signals: &Signals) -> io::Result<usize> {
        let Service { mut agent, mut link, _guardian } = self;
        let mut supervisor = Supervisor::find();
        let freed = run(&mut agent, signals, |agent, turn| {
            supervisor.tell();
            link.turn(agent, turn)
        })?;
        link.broken.map_or(Ok(freed), Err)
    }
}

/// The channel to the worker, from tick to tick.
struct Link {
    end: AgentEnd,
    /// The worker's knowledge of a warning; none before it knows that the agent works.
    warned: Option<bool>,
    /// The worker waits for the agent's state.
    wanted: bool,
    /// It has sent what is no request.
    broken: Option<io::Error>,
}

impl Link {
    /// Does what the worker requests.
    fn turn(&mut self, agent: &mut Agent, turn: Turn) -> Then {
        let warning = agent.warning();
        let is = Some(warning.is_some());
        if self.warned != is && self.end.send(Reply::Warning(warning)) {
            self.warned = is;
        }
        let mut newest = None;
        loop {
            match self.end.poll() {
                Ok(None) => break,
                Ok(Some(Request::State)) => self.wanted = true,
                Ok(Some(Request::Policies(regime))) => newest = Some(regime),
                Err(error) => {
                    self.broken = Some(error).filter(|error| error.kind() == io::ErrorKind::InvalidData);
                    return Then::Stop;
                }
            }
        }
        // Of what was divided at this tick: other policies are in force from the next one on, and
        // so that is at once.
        if self.wanted {
            self.wanted = !self.end.send(Reply::State(standing(agent, turn, String::new()).to_json()));
        }
        let Some(regime) = newest else { return Then::Go };
        agent.install(turn.now, *regime);
        Then::Hurry
    }
}

fn standing(agent: &Agent, turn: Turn, source: String) -> Standing {
    Standing { status: agent.status(), turn, source, trouble: None }
}

/// A worker as the agent's process has it: see [`worker`](crate::worker).
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    /// The agent's end of the channel, until it is used.
    channel: Option<UnixStream>,
}

impl WorkerProcess {
    /// Starts `program`, which has to call [`give_up_all`](crate::give_up_all) first, and hands it
    /// the channel, the status socket and `files`, in the order of [`Number`](crate::Number). To be
    /// called while this process has all its rights, which the worker needs in order to give them
    /// up.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(
        program: &[OsString],
        control: Option<&Control>,
        files: [Option<PathBuf>; 5],
    ) -> io::Result<WorkerProcess> {
        let (requests, theirs) = UnixStream::pair()?;
        let (channel, far) = UnixStream::pair()?;
        let status = control.map(Control::listener).transpose()?;
        let mut items = vec![Some(Item::Open(far.into())), status.map(|socket| Item::Open(socket.into()))];
        items.extend(files.map(|file| file.map(Item::File)));
        let (name, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(name).args(arguments).stdin(OwnedFd::from(theirs)).spawn()?;
        let serve = move || hand_over(requests, &items);
        reading_files(|| std::thread::Builder::new().name("handover".into()).spawn(serve))?;
        Ok(WorkerProcess { child, channel: Some(channel) })
    }

    /// Waits until there are policies to be read; false if the worker ends before that, or is to.
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

    /// Waits for its end, and returns its exit status. It is to end once the channel is closed,
    /// which a signal does; one that does not is left.
    ///
    /// # Errors
    /// A signal has ended it.
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

/// Between two looks at the worker.
const LOOK: Duration = Duration::from_millis(5);
/// The longest wait for the worker's end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way to see and pace connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// [`SockDiag`].
    InetDiag,
    /// [`bpf::Bpf`].
    Bpf,
    /// The latter, or the former where that can't be had.
    Auto,
}

/// Why there is no back-end.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The kernel can't be asked, or the guardian not be started.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The kernel takes no programs.
    #[error(transparent)]
    Bpf(#[from] bpf::Unavailable),
    /// Connections of other network namespaces are meant, and `inet_diag` sees none of them.
    #[error("inet_diag sees the connections of this network namespace only")]
    Everywhere,
}

/// Starts what sees and paces connections, and what frees them when this process can't, `guardian`, given the words for the
/// back-end; all rights that neither needs are given up. `note` shows what people may want to know of it.
///
/// # Errors
/// See [`BackendError`].
pub fn kernel(
    backend: Backend,
    everywhere: bool,
    control: &Control,
    guardian: impl Fn(&[&str]) -> io::Result<Vec<OsString>>,
    note: impl Fn(&str),
) -> Result<(Box<dyn Kernel>, Option<Guardian>), BackendError> {
    let record = control.record();
    let guard = |more: &[&str]| {
        let mut program = guardian(more)?;
        program.extend(["--record".into(), record.clone().into_os_string()]);
        Guardian::start(&program, control.claim(), &record)
    };
    // Both may have been killed: what was paced then is not what programs have set.
    let (freed, left) = replay(&record)?;
    if freed + left > 0 {
        note(&format!(
            "an agent before was killed, and left {freed} connections paced, which are free again"
        ));
    }
    let config = bpf::Config { everywhere, ..bpf::Config::default() };
    match (backend != Backend::InetDiag).then(|| bpf::Bpf::start(&config)) {
        Some(Ok(kernel)) => {
            let everywhere = everywhere.then_some("--everywhere");
            let guardian = guard(&["--bpf"].into_iter().chain(everywhere).collect::<Vec<_>>())?;
            settle_in(Needs::Programs)?;
            return Ok((Box::new(kernel), Some(guardian)));
        }
        Some(Err(error)) if backend == Backend::Bpf => return Err(error.into()),
        Some(Err(error)) => note(&format!("{error}; inet_diag is used instead")),
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

/// Looks for a second and sets nothing. Returns the state then; none if a signal or `ends` came
/// first.
///
/// # Errors
/// The kernel can't be asked.
pub fn dry_run(
    policies: Policies,
    source: String,
    signals: &Signals,
    ends: impl Fn() -> bool,
) -> io::Result<Option<Standing>> {
    let kernel = LookOnly(SockDiag::new()?);
    let mut agent = Agent::new(Time::ZERO, Box::new(kernel), policies.into_regime());
    let mut last = None;
    run(&mut agent, signals, |agent, turn| {
        if turn.now < Time::from_secs(1) && !ends() {
            return Then::Go;
        }
        last = (turn.now >= Time::from_secs(1)).then(|| standing(agent, turn, source.clone()));
        Then::Stop
    })?;
    Ok(last)
}

/// Notes which connections are out of reach, and the remedy.
pub fn say_reach(note: impl Fn(&str)) {
    match Reach::find() {
        Reach::All => {}
        Reach::User => note(
            "only connections of this user's processes can be paced; run as root, or give `tollway` CAP_SYS_PTRACE and \
             CAP_DAC_READ_SEARCH, for everybody's",
        ),
        Reach::Children => note(
            "this system's Yama module lets no process reach another's sockets, so that nothing is paced; run as root, or \
             give `tollway` CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or set `sysctl kernel.yama.ptrace_scope=0`",
        ),
    }
}
