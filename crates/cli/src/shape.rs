//! `tollway shape`: this machine's connections, paced.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use miette::miette;
use tollway_law::Time;
use tollway_report::shape::Standing;
#[cfg(feature = "metrics")]
use tollway_report::shape::metrics;
use tollway_scenario::shape::{
    self, Agent, Control, FileSource, Guardian, Kernel, LookOnly, Needs, Policies, Reach, Regime, Signals,
    SockDiag, Source, Then, Turn, bpf,
};

use crate::args::{Backend, Shape, ShapeCommand, StoreAccess};
use crate::audience::{Audience, say_status};
use crate::fail::Failure;
use crate::features;
use crate::loader::{Fresh, Loader};
use crate::outlet::Outlet;
use crate::supervisor::Supervisor;
use crate::terminal;
#[cfg(feature = "metrics")]
use crate::watch::say_served;

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
    let path = args.policy.clone().unwrap_or_default();
    let tick = args.tick.as_deref().map(tick).transpose()?;
    // Before any thread is started, as is what follows.
    let signals = Signals::hold();
    let open = || open(&path, &args.store, &signals);
    let opened = if is_store(&path) { None } else { open()? };
    if args.dry_run {
        let Some((source, policies)) = opened.map_or_else(open, |opened| Ok(Some(opened)))? else {
            return Ok(ExitCode::SUCCESS);
        };
        return dry_run(args, with_tick(policies, tick), &*source, &signals);
    }
    let socket = args.socket.clone().unwrap_or_else(shape::default_path);
    let control = Control::open(&socket).map_err(|error| match error.kind() {
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
    })?;
    let (kernel, _guardian) = kernel(args, &control)?;
    // A store is watched by a thread, which is to have no more rights than this one has left.
    let opened = opened.map_or_else(|| shape::unprivileged(open), |opened| Ok(Some(opened)))?;
    let Some((source, policies)) = opened else { return Ok(ExitCode::SUCCESS) };
    let mut agent = Agent::new(Time::ZERO, kernel, with_tick(policies, tick));
    let log = Log::open().map_err(refused)?;
    let loader = shape::unprivileged(|| Loader::start(source)).map_err(refused)?;
    let mut keeper = Keeper { loader, log: &log, tick, trouble: None, warned: false };
    let mut audience = Audience::open(args.json)?;
    #[cfg(feature = "metrics")]
    let _metrics = match args.metrics {
        None => None,
        Some(address) => {
            let latest = metrics::Latest::default();
            audience.keep_in(latest.clone());
            Some(say_served(shape::unprivileged(|| metrics::serve(latest, address)))?)
        }
    };
    #[cfg(feature = "watch")]
    if args.watch {
        audience.draw_with(tollway_report::shape::screen::draw)?;
    }
    say_if_empty(agent.regime());
    if !args.json && !args.watch {
        log.tell(format!(
            "policies {} of `{}` are in force; `tollway shape status` says how they stand, Ctrl-C ends them",
            agent.regime().version,
            path.display()
        ));
    }
    let mut supervisor = Supervisor::find();
    // The terminal is as it was before more is said.
    let freed = shape::run(&mut agent, &signals, move |agent, turn| {
        supervisor.tell();
        // Of what was divided at this tick: other policies are in force from the next one on, and so that is at once.
        control.answer(|| serde_json::to_string(&keeper.standing(agent, turn)).unwrap_or_default());
        let goes_on = audience.show(|| Some(keeper.standing(agent, turn)));
        match (goes_on, keeper.keep(agent, turn, audience.has_terminal())) {
            (false, _) => Then::Stop,
            (true, false) => Then::Go,
            (true, true) => Then::Hurry,
        }
    })
    .map_err(refused)?;
    if !args.json {
        log.tell(format!("{freed} connections are free again"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lines for standard error, written by a thread of their own: one that is not read holds no tick up.
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
}

/// Lines that may wait; more are lost.
const LINES: usize = 32;

/// What sees and paces connections, and who frees them when we can't; all rights that neither needs are given up.
fn kernel(args: &Shape, control: &Control) -> Result<(Box<dyn Kernel>, Option<Guardian>), Failure> {
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
        terminal::tell(format_args!(
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
        Some(Err(error)) => terminal::tell(format_args!("note: {error}; inet_diag is used instead")),
        None => {}
    }
    if args.everywhere {
        return Err(Failure::input(miette!(
            help = "choose `--backend bpf`, or leave out `--everywhere`",
            "inet_diag sees the connections of this network namespace only"
        )));
    }
    let guardian = guard(&[]).map_err(refused)?;
    say_reach(Reach::find());
    shape::settle_in(Needs::Sockets).map_err(refused)?;
    Ok((Box::new(SockDiag::new().map_err(refused)?.guarded(guardian)), None))
}

fn is_store(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("etcd://") || path.starts_with("etcds://"))
}

/// Policies, and where they come from.
type Opened = (Box<dyn Source + Send>, Policies);

/// Reads policies from a file, or from a store, and watches either. There are none if a signal ends the wait for a store.
fn open(path: &Path, access: &StoreAccess, signals: &Signals) -> Result<Option<Opened>, Failure> {
    if !is_store(path) {
        if access.is_given() {
            return Err(Failure::input(miette!(
                help =
                    "give the store as `--policy etcd://HOST:PORT/PREFIX`, or leave out what is said of one",
                "`{}` is a file, and needs no user and no certificate",
                path.display()
            )));
        }
        if let Some((scheme, rest)) = path.to_str().and_then(|path| path.split_once("://")) {
            let meant = if scheme == "https" { "etcds" } else { "etcd" };
            return Err(Failure::input(miette!(
                help =
                    format!("write `--policy {meant}://{rest}`: `etcd://` is without TLS, `etcds://` with"),
                "`{}` is neither a file nor a store",
                path.display()
            )));
        }
        let (source, policies) = FileSource::open(path)?;
        return Ok(Some((Box::new(source), policies)));
    }
    let tls = path.to_str().is_some_and(|path| path.starts_with("etcds://"));
    if tls != access.store_ca.is_some() {
        let path = path.display();
        return Err(match tls {
            true => Failure::input(miette!(
                help = "give the certificate of the authority that signed it with `--store-ca FILE`",
                "`{path}` has a certificate, and nothing says whose word is taken for it"
            )),
            false => Failure::input(miette!(
                help = "write `etcds://` for TLS, or leave out `--store-ca`",
                "`{path}` is a store without TLS, and has no certificate"
            )),
        });
    }
    #[cfg(feature = "etcd")]
    {
        let address = path.to_str().unwrap_or_default();
        let say = |why: &str| terminal::tell(why);
        let opened =
            shape::EtcdSource::open(address, read_access(access)?, say, || signals.has_come().is_some())?;
        Ok(opened.map(|(source, policies)| -> Opened { (Box::new(source), policies) }))
    }
    #[cfg(not(feature = "etcd"))]
    let _ = signals;
    #[cfg(not(feature = "etcd"))]
    Err(Failure::input(miette!(
        help = "build it with `--features etcd`, or give a file",
        "this build of tollway has no policies from a store"
    )))
}

/// Reads the files that it takes to be let into a store.
#[cfg(feature = "etcd")]
fn read_access(access: &StoreAccess) -> Result<shape::Access, Failure> {
    let read = |file: &Option<PathBuf>| -> Result<Option<Vec<u8>>, Failure> {
        let Some(file) = file else { return Ok(None) };
        let read = std::fs::read(file).map_err(|error| {
            let help = "give a file that this user may read, and others had better not";
            Failure::input(miette!(help = help, "cannot read `{}`: {error}", file.display()))
        });
        read.map(Some)
    };
    let password = read(&access.store_password)?
        .map(|password| String::from_utf8_lossy(&password).trim_end_matches(['\n', '\r']).to_owned());
    Ok(shape::Access {
        user: access.store_user.clone().zip(password),
        authorities: read(&access.store_ca)?,
        identity: read(&access.store_cert)?.zip(read(&access.store_key)?),
    })
}

/// Keeps an agent's policies what their source says.
struct Keeper<'a> {
    loader: Loader,
    log: &'a Log,
    tick: Option<Time>,
    trouble: Option<String>,
    /// The back-end's warning has been passed on.
    warned: bool,
}

impl Keeper<'_> {
    /// Answers whether there are others from now on.
    fn keep(&mut self, agent: &mut Agent, turn: Turn, quiet: bool) -> bool {
        let warning = agent.warning();
        if let Some(warning) = warning.as_ref().filter(|_| !quiet && !self.warned) {
            self.log.tell(format!("warning: {warning}"));
        }
        self.warned = warning.is_some();
        match self.loader.poll() {
            None => {}
            Some(Fresh::Policies(policies)) => {
                self.trouble = None;
                let regime = with_tick(*policies, self.tick);
                if !quiet {
                    self.log.tell(format!(
                        "policies {} are in force instead of {}",
                        regime.version,
                        agent.regime().version
                    ));
                }
                agent.install(turn.now, regime);
                return true;
            }
            Some(Fresh::Trouble { text, first }) => {
                if !quiet {
                    self.log.tell(format!("{text}\npolicies {} stay in force", agent.regime().version));
                }
                self.trouble = Some(first);
            }
        }
        false
    }

    fn standing(&self, agent: &Agent, turn: Turn) -> Standing {
        Standing {
            status: agent.status(),
            turn,
            source: self.loader.name().to_owned(),
            trouble: self.trouble.clone(),
        }
    }
}

/// Looks for a second and sets nothing.
fn dry_run(
    args: &Shape,
    regime: Regime,
    source: &dyn Source,
    signals: &Signals,
) -> Result<ExitCode, Failure> {
    say_reach(Reach::find());
    let kernel = LookOnly(SockDiag::new().map_err(refused)?);
    let mut agent = Agent::new(Time::ZERO, Box::new(kernel), regime);
    let mut last = None;
    shape::run(&mut agent, signals, |agent, turn| {
        if turn.now < Time::from_secs(1) {
            return Then::Go;
        }
        last = Some(Standing { status: agent.status(), turn, source: source.describe(), trouble: None });
        Then::Stop
    })
    .map_err(refused)?;
    if let Some(standing) = last {
        match args.json {
            true => terminal::say_json(&standing),
            false => terminal::say(standing.to_text(terminal::width(), usize::MAX)),
        }
    }
    Ok(ExitCode::SUCCESS)
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
    say_if_empty(regime);
    Ok(ExitCode::SUCCESS)
}

/// A link alone paces nobody, which is seldom meant.
fn say_if_empty(regime: &Regime) {
    if regime.tenants.is_empty() {
        terminal::tell(format_args!(
            "note: policies {} have no `[aggregate.NAME]`, so that nothing is paced; an empty one means every connection",
            regime.version
        ));
    }
}

fn say_reach(reach: Reach) {
    match reach {
        Reach::All => {}
        Reach::User => terminal::tell(
            "note: only connections of this user's processes can be paced; run as root, or give `tollway` CAP_SYS_PTRACE and \
             CAP_DAC_READ_SEARCH, for everybody's",
        ),
        Reach::Children => terminal::tell(
            "note: this system's Yama module lets no process reach another's sockets, so that nothing is paced; run as root, or \
             give `tollway` CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or set `sysctl kernel.yama.ptrace_scope=0`",
        ),
    }
}

fn with_tick(policies: Policies, tick: Option<Time>) -> Regime {
    let mut regime = policies.into_regime();
    regime.tick = tick.unwrap_or(regime.tick);
    regime
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

fn no_bpf(error: bpf::Unavailable) -> Failure {
    Failure::run(miette!(
        help = "run it as root on Linux 6.12 or later with BTF and cgroup2, or leave out `--backend bpf`",
        "{error}"
    ))
}
