//! `tollway shape`: paces this machine's connections.

mod worker;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use miette::miette;
use tollway_law::Time;
use tollway_shape::policies::Policies;
use tollway_shape::service::{self, BackendError, Service, WorkerProcess};
use tollway_shape::status::SHAPE;
use tollway_shape::{self as shape, ControlSocket, Events, Guardian, Kernel, Signals, bpf};

use crate::args::{Backend, Shape, ShapeCommand, StatusOptions};
use crate::audience::say_status;
use crate::fail::Failure;
use crate::features;
use crate::terminal;

pub(crate) fn shape(args: &Shape) -> Result<ExitCode, Failure> {
    match &args.command {
        None => run(args),
        Some(ShapeCommand::Status(options)) => status(options),
        Some(ShapeCommand::Check { file }) => check(file),
        Some(ShapeCommand::Clear) => {
            // Programs in the kernel first: a connection that calls one gets its pace again.
            let programs = bpf::clear(&bpf::Config { everywhere: true, ..bpf::Config::default() });
            let (freed, left) = shape::clear().map_err(refused)?;
            let freed = freed + programs.map_or(0, |cleared| cleared.connections);
            terminal::say(format_args!("removed the pace of {freed} connections\n"));
            if left > 0 {
                return Err(Failure::run(miette!(
                    help = "run it as root, or as their owner",
                    "{left} connections still have a pace: this user may not access their processes"
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

/// Standard input without a buffer: data in a buffer would not wake a wait on the descriptor.
fn unbuffered() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

fn run(args: &Shape) -> Result<ExitCode, Failure> {
    features::if_not_built(args.watch, args.metrics.is_some(), false)?;
    let tick = args.tick.as_deref().map(tick).transpose()?;
    if args.worker {
        return worker::run(args, tick);
    }
    // Must precede the first thread, as must the steps below.
    let signals = Signals::hold();
    tollway_agent::raise_file_limit();
    if args.dry_run {
        service::say_reach(note);
        return start_worker(args, None)?.end(&signals).map(ExitCode::from).map_err(unable);
    }
    let socket = args.socket.clone().unwrap_or_else(shape::default_path);
    let control = ControlSocket::open(&socket).map_err(|error| not_opened(&socket, &error))?;
    let mut worker = start_worker(args, Some(&control))?;
    if !worker.await_policies(&signals) {
        return worker.end(&signals).map(ExitCode::from).map_err(unable);
    }
    let events = shape::unprivileged(|| args.log.open()).map_err(unable)?;
    let kernel = kernel(args, &control, &events)?;
    let Some(service) = Service::start(kernel, &mut worker).map_err(unable)? else {
        return worker.end(&signals).map(ExitCode::from).map_err(unable);
    };
    let freed = service.run(&signals).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => unable(error),
        _ => refused(error),
    })?;
    // The worker restores the terminal first.
    let status = worker.end(&signals).map_err(unable)?;
    events.info("stop", format_args!("removed the pace of {freed} connections"));
    Ok(ExitCode::from(status))
}

/// Starts the worker, which reads policies and serves readers: see [`worker`].
fn start_worker(args: &Shape, control: Option<&ControlSocket>) -> Result<WorkerProcess, Failure> {
    let store = &args.store;
    let files = [&args.policy, &store.store_password, &store.store_ca, &store.store_cert, &store.store_key];
    let itself = std::env::current_exe().map_err(unable)?.into_os_string();
    let words = std::iter::once(itself).chain(std::env::args_os().skip(1)).chain(["--worker".into()]);
    let words: Vec<_> = words.collect();
    WorkerProcess::start(&words, control, files.map(Clone::clone)).map_err(unable)
}

fn not_opened(socket: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::input(miette!(
            help = "stop it, or give this one another `--socket`; two agents on the same connections overwrite \
                each other's paces",
            "an agent is already running: it answers at `{}`",
            socket.display()
        )),
        io::ErrorKind::TimedOut => Failure::run(miette!(
            help = "see what stops the process `tollway shape guard`",
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

/// Starts the back-end, and the guardian that frees connections when this process can't.
fn kernel(
    args: &Shape,
    control: &ControlSocket,
    events: &Events,
) -> Result<(Box<dyn Kernel>, Option<Guardian>), Failure> {
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
    let note = |text: &str| events.info("start", format_args!("note: {text}"));
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

fn status(options: &StatusOptions) -> Result<ExitCode, Failure> {
    let path = options.socket.clone().unwrap_or_else(shape::default_path);
    let text = shape::ask(&path).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Failure::run(miette!(
            help = "see whether it is stopped (`T` in `ps`); connections keep their paces until it continues or \
                ends",
            "the agent at `{}` does not answer: {error}",
            path.display()
        )),
        _ => Failure::run(miette!(
            help = "start one with `tollway shape --policy FILE`, or give another control socket with `--socket`",
            "no agent answers at `{}`: {error}",
            path.display()
        )),
    })?;
    say_status(&text, options.json, "agent", &SHAPE)
}

fn check(file: &Path) -> Result<ExitCode, Failure> {
    let policies = Policies::load(file)?;
    let regime = policies.regime();
    let names: Vec<&str> = regime.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    terminal::say(format_args!("policies {} are valid{names}\n", regime.version));
    if regime.tenants.is_empty() {
        terminal::tell(paces_nothing(&regime.version));
    }
    for name in policies.foreign() {
        note(&format!(
            "policy `{name}` is of addresses that this machine does not have: no socket here matches. For packets \
            that it forwards, write `[aggregate.{name}]` in a file of `tollway router --config FILE`"
        ));
    }
    if let Err(error) = bpf::usable(&bpf::Config::default()) {
        note(&format!("{error}; here {}", shape::status::NOT_CONTAINED));
    }
    Ok(ExitCode::SUCCESS)
}

/// The note on policies without tenants: they pace nothing, which is rarely intended.
fn paces_nothing(version: &str) -> String {
    format!(
        "note: policies {version} have no `[aggregate.NAME]`, so nothing is paced; an empty one matches \
        every connection"
    )
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
        "cannot list or pace this machine's connections: {error}"
    ))
}

fn unable(error: io::Error) -> Failure {
    Failure::run(miette!("the agent's worker failed: {error}"))
}

fn no_bpf(error: bpf::Unavailable) -> Failure {
    Failure::run(miette!(
        help = "run it as root on Linux 6.12 or later with BTF and cgroup2, or leave out `--backend bpf`",
        "{error}"
    ))
}
