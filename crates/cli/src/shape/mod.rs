//! `tollway shape`: this machine's connections, paced.

mod worker;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use miette::miette;
use tollway_law::Time;
use tollway_report::shape::Standing;
use tollway_scenario::shape::{
    self, Agent, AgentEnd, Control, Guardian, Item, Kernel, Needs, Pending, Policies, Reach, Reply, Request,
    Signals, SockDiag, Then, Turn, bpf,
};

use crate::args::{Backend, Shape, ShapeCommand};
use crate::audience::say_status;
use crate::fail::Failure;
use crate::features;
use crate::outlet::Outlet;
use crate::supervisor::Supervisor;
use crate::terminal;

pub(crate) fn shape(args: &Shape) -> Result<ExitCode, Failure> {
    match &args.command {
        None => run(args),
        Some(ShapeCommand::Status { json, socket }) => status(*json, socket.as_deref()),
        Some(ShapeCommand::Check { file }) => check(file),
        Some(ShapeCommand::Clear) => {
            // What programs in the kernel set first: it comes back for connections that call them.
            let programs = bpf::clear(&bpf::Config { everywhere: true, ..bpf::Config::default() });
            let (freed, left) = shape::clear().map_err(refused)?;
            let freed = freed + programs.map_or(0, |cleared| cleared.connections);
            terminal::say(format_args!("{freed} connections are free again\n"));
            if left > 0 {
                return Err(Failure::run(miette!(
                    help = "run it as root, or as the user whose they are",
                    "{left} connections still have a pace set: their owners cannot be reached"
                )));
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(ShapeCommand::Guard { bpf: true, everywhere, .. }) => {
            let config = bpf::Config { everywhere: *everywhere, ..bpf::Config::default() };
            let leases = bpf::Leases::find(&config).map_err(no_bpf)?;
            Guardian::wait(unbuffered().map_err(refused)?, || leases.renew()).map_err(refused)?;
            bpf::clear(&config).map_err(no_bpf)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(ShapeCommand::Guard { record, .. }) => {
            Guardian::keep(unbuffered().map_err(refused)?, record).map_err(refused)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Standard input as it is waited for: what has been read ahead could not be.
fn unbuffered() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

fn run(args: &Shape) -> Result<ExitCode, Failure> {
    features::if_not_built(args.watch, args.metrics.is_some(), false)?;
    let tick = args.tick.as_deref().map(tick).transpose()?;
    if args.worker {
        return worker::run(args, tick);
    }
    // Before any thread is started, as is what follows.
    let signals = Signals::hold();
    if args.dry_run {
        reach_note().into_iter().for_each(terminal::tell);
        return WorkerProcess::start(args, None).map_err(unable)?.end(&signals);
    }
    let control = control(args)?;
    let mut worker = WorkerProcess::start(args, Some(&control)).map_err(unable)?;
    if !worker.await_policies(&signals) {
        return worker.end(&signals);
    }
    let log = shape::unprivileged(Log::open).map_err(unable)?;
    let (kernel, _guardian) = kernel(args, &control, &log)?;
    // Nothing that it sends is read before this.
    let Some(mut link) = worker.channel.take().map(Link::start).transpose().map_err(unable)? else {
        return worker.end(&signals);
    };
    let regime = match link.end.wait() {
        Ok(Request::Policies(regime)) => *regime,
        Ok(Request::State) => return Err(unable(io::ErrorKind::InvalidData.into())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(unable(error)),
        Err(_) => return worker.end(&signals),
    };
    let mut agent = Agent::new(Time::ZERO, kernel, regime);
    let mut supervisor = Supervisor::find();
    let freed = shape::run(&mut agent, &signals, |agent, turn| {
        supervisor.tell();
        link.turn(agent, turn)
    })
    .map_err(refused)?;
    let broken = link.broken.take();
    // The worker gives the terminal back first.
    drop(link);
    let status = worker.end(&signals)?;
    if let Some(error) = broken {
        return Err(unable(error));
    }
    if !args.json {
        log.tell(format!("{freed} connections are free again"));
    }
    Ok(status)
}

/// Takes the agent's place.
fn control(args: &Shape) -> Result<Control, Failure> {
    let socket = args.socket.clone().unwrap_or_else(shape::default_path);
    Control::open(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::input(miette!(
            help = "end it, or give this one another `--socket`; two that pace the same connections undo each other's work",
            "an agent runs already: it answers at `{}`",
            socket.display()
        )),
        io::ErrorKind::TimedOut => Failure::run(miette!(
            help = "see what holds the process `tollway shape guard` up",
            "cannot take over at `{}`: {error}",
            socket.display()
        )),
        _ => Failure::run(miette!(
            help = "give a path in a folder of your own with `--socket`",
            "cannot open `{}`: {error}",
            socket.display()
        )),
    })
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
    fn start(channel: UnixStream) -> io::Result<Link> {
        Ok(Link { end: AgentEnd::start(channel)?, warned: None, wanted: false, broken: None })
    }

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

/// The process without rights that reads policies, speaks to stores and serves readers: see
/// [`worker`].
struct WorkerProcess {
    child: Child,
    /// The agent's end of the channel, until it is used.
    channel: Option<UnixStream>,
}

/// The number of an item that is handed to the worker.
#[derive(Clone, Copy)]
enum Number {
    Channel,
    Status,
    Policy,
    #[cfg(feature = "etcd")]
    Password,
    #[cfg(feature = "etcd")]
    Authority,
    #[cfg(feature = "etcd")]
    Certificate,
    #[cfg(feature = "etcd")]
    Key,
}

impl WorkerProcess {
    /// To be started while this process has all its rights, which the worker needs in order to give
    /// them up.
    fn start(args: &Shape, control: Option<&Control>) -> io::Result<WorkerProcess> {
        let (requests, theirs) = UnixStream::pair()?;
        let (channel, far) = UnixStream::pair()?;
        let status = control.map(Control::listener).transpose()?;
        let file = |path: &Option<PathBuf>| path.clone().map(Item::File);
        // In the order of `Number`.
        let items = [
            Some(Item::Open(far.into())),
            status.map(|listener| Item::Open(listener.into())),
            file(&args.policy),
            file(&args.store.store_password),
            file(&args.store.store_ca),
            file(&args.store.store_cert),
            file(&args.store.store_key),
        ];
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).arg("--worker").stdin(OwnedFd::from(theirs));
        let child = command.spawn()?;
        let serve = move || shape::hand_over(requests, &items);
        shape::reading_files(|| std::thread::Builder::new().name("handover".into()).spawn(serve))?;
        Ok(WorkerProcess { child, channel: Some(channel) })
    }

    /// Waits until there are policies to be read; false if the worker ends before that, or is to.
    fn await_policies(&mut self, signals: &Signals) -> bool {
        loop {
            match self.channel.as_ref().map_or(Pending::End, shape::pending) {
                Pending::Nothing => {}
                pending => return pending == Pending::Data,
            }
            if signals.sleep(LOOK) {
                self.channel = None;
                return false;
            }
        }
    }

    /// Waits for its end, and answers its exit status. It is to end once the channel is closed,
    /// which a signal does; one that does not is left.
    ///
    /// # Errors
    /// A signal has ended it.
    fn end(mut self, signals: &Signals) -> Result<ExitCode, Failure> {
        let patience = || Instant::now() + PATIENCE;
        let mut until = self.channel.is_none().then(patience);
        loop {
            if let Some(status) = self.child.try_wait().map_err(unable)? {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                let killed = || Failure::run(miette!("the agent's worker has ended: {status}"));
                return code.map(ExitCode::from).ok_or_else(killed);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(ExitCode::SUCCESS);
            }
            if signals.sleep(LOOK) && until.is_none() {
                self.channel = None;
                until = Some(patience());
            }
        }
    }
}

/// Lines for standard error, written by a thread of their own: one that is not read holds nothing
/// up.
struct Log(Outlet<String>);

impl Log {
    fn open() -> io::Result<Log> {
        let write = |line: String| {
            terminal::tell(line);
            true
        };
        Outlet::with_room(LINES, write).map(Log)
    }

    fn tell(&self, line: String) {
        self.0.show(line);
    }

    fn say(&self, quiet: bool, line: impl FnOnce() -> String) {
        if !quiet {
            self.tell(line());
        }
    }
}

/// Lines that may wait; more are lost.
const LINES: usize = 32;
/// Between two looks at the worker.
const LOOK: Duration = Duration::from_millis(5);
/// The longest wait for the worker's end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What sees and paces connections, and who frees them when we can't; all rights that neither needs
/// are given up.
fn kernel(
    args: &Shape,
    control: &Control,
    log: &Log,
) -> Result<(Box<dyn Kernel>, Option<Guardian>), Failure> {
    let record = control.record();
    let guard = |more: &[&str]| {
        let itself = std::env::current_exe()?;
        let words = ["shape", "guard"].iter().chain(more).map(Into::into);
        let named = ["--record".into(), record.clone().into_os_string()];
        let program: Vec<_> = std::iter::once(itself.into()).chain(words).chain(named).collect();
        Guardian::start(&program, control.claim(), &record)
    };
    // Both may have been killed: what was paced then is not what programs have set.
    let (freed, left) = shape::replay(&record).map_err(refused)?;
    if freed + left > 0 {
        log.tell(format!(
            "note: an agent before was killed, and left {freed} connections paced, which are free again"
        ));
    }
    let config = bpf::Config { everywhere: args.everywhere, ..bpf::Config::default() };
    match (args.backend != Backend::InetDiag).then(|| bpf::Bpf::start(&config)) {
        Some(Ok(kernel)) => {
            let everywhere = args.everywhere.then_some("--everywhere");
            let guardian = guard(&["--bpf"].into_iter().chain(everywhere).collect::<Vec<_>>());
            let guardian = guardian.map_err(refused)?;
            shape::settle_in(Needs::Programs).map_err(refused)?;
            return Ok((Box::new(kernel), Some(guardian)));
        }
        Some(Err(error)) if args.backend == Backend::Bpf => return Err(no_bpf(error)),
        Some(Err(error)) => log.tell(format!("note: {error}; inet_diag is used instead")),
        None => {}
    }
    if args.everywhere {
        return Err(Failure::input(miette!(
            help = "choose `--backend bpf`, or leave out `--everywhere`",
            "inet_diag sees the connections of this network namespace only"
        )));
    }
    let guardian = guard(&[]).map_err(refused)?;
    reach_note().into_iter().for_each(|note| log.tell(note.to_owned()));
    shape::settle_in(Needs::Sockets).map_err(refused)?;
    Ok((Box::new(SockDiag::new().map_err(refused)?.guarded(guardian)), None))
}

fn is_store(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("etcd://") || path.starts_with("etcds://"))
}

fn status(json: bool, socket: Option<&Path>) -> Result<ExitCode, Failure> {
    let path = socket.map_or_else(shape::default_path, PathBuf::from);
    let text = shape::ask(&path).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Failure::run(miette!(
            help = "see whether it is stopped (`T` in `ps`); what it has paced keeps its pace until it goes on, or ends",
            "the agent at `{}` does not answer: {error}",
            path.display()
        )),
        _ => Failure::run(miette!(
            help = "start one with `tollway shape --policy FILE`; `--socket` says where another user's, or another place's, is",
            "no agent answers at `{}`: {error}",
            path.display()
        )),
    })?;
    say_status(&text, json, "agent", |text| tollway_report::shape::told(text, terminal::width(), 40))
}

fn check(file: &Path) -> Result<ExitCode, Failure> {
    let policies = Policies::load(file)?;
    let regime = policies.regime();
    let names: Vec<&str> = regime.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    terminal::say(format_args!("policies {} are right{names}\n", regime.version));
    if regime.tenants.is_empty() {
        terminal::tell(paces_nothing(&regime.version));
    }
    Ok(ExitCode::SUCCESS)
}

/// A link alone paces nobody, which is seldom meant.
fn paces_nothing(version: &str) -> String {
    format!(
        "note: policies {version} have no `[aggregate.NAME]`, so that nothing is paced; an empty one means every connection"
    )
}

/// A note on the connections that are out of reach, and the remedy.
fn reach_note() -> Option<&'static str> {
    match Reach::find() {
        Reach::All => None,
        Reach::User => Some(
            "note: only connections of this user's processes can be paced; run as root, or give `tollway` CAP_SYS_PTRACE and \
             CAP_DAC_READ_SEARCH, for everybody's",
        ),
        Reach::Children => Some(
            "note: this system's Yama module lets no process reach another's sockets, so that nothing is paced; run as root, or \
             give `tollway` CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or set `sysctl kernel.yama.ptrace_scope=0`",
        ),
    }
}

fn tick(text: &str) -> Result<Time, Failure> {
    let wrong = |why: String| {
        Failure::input(miette!(
            help = "write it like `--tick 15ms`, from 1 ms to 10 s",
            "`--tick {text}`: {why}"
        ))
    };
    let tick: Time = text.parse().map_err(|error: tollway_law::UnitError| wrong(error.to_string()))?;
    match (Time::from_millis(1)..=Time::from_secs(10)).contains(&tick) {
        true => Ok(tick),
        false => Err(wrong("out of range".into())),
    }
}

fn refused(error: io::Error) -> Failure {
    Failure::run(miette!(
        help = "the kernel needs `inet_diag` for TCP (CONFIG_INET_TCP_DIAG), Linux 5.6 or later",
        "cannot see or pace this machine's connections: {error}"
    ))
}

fn unable(error: io::Error) -> Failure {
    Failure::run(miette!("the agent's worker cannot work: {error}"))
}

fn no_bpf(error: bpf::Unavailable) -> Failure {
    Failure::run(miette!(
        help = "run it as root on Linux 6.12 or later with BTF and cgroup2, or leave out `--backend bpf`",
        "{error}"
    ))
}
