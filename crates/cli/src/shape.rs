//! `tollway shape`: this machine's connections, paced.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use miette::miette;
use tollway_law::Time;
use tollway_scenario::file::ScenarioError;
#[cfg(feature = "metrics")]
use tollway_shape::metrics;
use tollway_shape::policies::{FileSource, Policies};
use tollway_shape::service::{self, BackendError, Opened, Service};
use tollway_shape::status::Standing;
use tollway_shape::{self as shape, Control, Guardian, Kernel, Regime, Signals, bpf};

use crate::args::{Backend, Shape, ShapeCommand, StoreAccess};
use crate::audience::{Audience, say_status};
use crate::fail::Failure;
use crate::features;
use crate::outlet::Outlet;
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
        let Some(opened) = opened.map_or_else(open, |opened| Ok(Some(opened)))? else {
            return Ok(ExitCode::SUCCESS);
        };
        return dry_run(args, opened, tick, &signals);
    }
    let socket = args.socket.clone().unwrap_or_else(shape::default_path);
    let control = Control::open(&socket).map_err(|error| not_opened(&socket, &error))?;
    let kernel = kernel(args, &control)?;
    // A store is watched by a thread, which is to have no more rights than this one has left.
    let opened = opened.map_or_else(|| shape::unprivileged(open), |opened| Ok(Some(opened)))?;
    let Some(opened) = opened else { return Ok(ExitCode::SUCCESS) };
    let text = |error: ScenarioError| Failure::from(error).text();
    let service = Service::start(kernel, control, opened, tick, text).map_err(refused)?;
    let log = Log::open().map_err(refused)?;
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
        audience.draw_with(shape::screen::draw)?;
    }
    say_if_empty(service.regime());
    if !args.json && !args.watch {
        log.tell(format!(
            "policies {} of `{}` are in force; `tollway shape status` says how they stand, Ctrl-C ends them",
            service.regime().version,
            path.display()
        ));
    }
    let freed = service.run(&signals, Readers { audience, log: &log }).map_err(refused)?;
    if !args.json {
        log.tell(format!("{freed} connections are free again"));
    }
    Ok(ExitCode::SUCCESS)
}

fn not_opened(socket: &Path, error: &io::Error) -> Failure {
    match error.kind() {
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
    }
}

/// The agent's state for its readers, and lines while the terminal is free.
struct Readers<'a> {
    audience: Audience<Standing>,
    log: &'a Log,
}

impl service::Audience for Readers<'_> {
    fn show(&mut self, standing: impl FnOnce() -> Option<Standing>) -> bool {
        self.audience.show(standing)
    }

    fn tell(&mut self, line: String) {
        if !self.audience.has_terminal() {
            self.log.tell(line);
        }
    }
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

/// Starts the back-end, and the process that frees connections when this one can't.
fn kernel(args: &Shape, control: &Control) -> Result<(Box<dyn Kernel>, Option<Guardian>), Failure> {
    let guardian = |more: &[&str]| {
        let itself = std::env::current_exe()?;
        let words = ["shape", "guard"].iter().chain(more).map(Into::into);
        Ok(std::iter::once(itself.into()).chain(words).collect())
    };
    let backend = match args.backend {
        Backend::InetDiag => service::Backend::InetDiag,
        Backend::Bpf => service::Backend::Bpf,
        Backend::Auto => service::Backend::Auto,
    };
    service::kernel(backend, args.everywhere, control, guardian, note).map_err(|error| match error {
        BackendError::System(error) => refused(error),
        BackendError::Bpf(error) => no_bpf(error),
        BackendError::Everywhere => {
            Failure::input(miette!(help = "choose `--backend bpf`, or leave out `--everywhere`", "{error}"))
        }
    })
}

fn note(text: &str) {
    terminal::tell(format_args!("note: {text}"));
}

fn is_store(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("etcd://") || path.starts_with("etcds://"))
}

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
        let opened = shape::policies::EtcdSource::open(address, read_access(access)?, say, || {
            signals.has_come().is_some()
        })?;
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
fn read_access(access: &StoreAccess) -> Result<shape::etcd::Access, Failure> {
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
    Ok(shape::etcd::Access {
        user: access.store_user.clone().zip(password),
        authorities: read(&access.store_ca)?,
        identity: read(&access.store_cert)?.zip(read(&access.store_key)?),
    })
}

/// Looks for a second and sets nothing.
fn dry_run(args: &Shape, opened: Opened, tick: Option<Time>, signals: &Signals) -> Result<ExitCode, Failure> {
    if let Some(standing) = service::dry_run(opened, tick, signals, note).map_err(refused)? {
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
    say_status(&text, json, "agent", |text| shape::status::told(text, terminal::width(), 40))
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
