//! `tollway host`, and `--tcp` of `tollway exec`: laws for the kernel's own TCP.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use miette::miette;
use tollway_agent::control::ControlSocket;
use tollway_agent::notify::Notifier;
use tollway_host::agent::{self, Agent, Signals};
use tollway_host::status::{Fallen, HOST};
use tollway_host::{
    self as product, Budgets, Cause, Config, Connection, Counts, Group, Law, LoadError, OptionKind, Owner,
    Programs, Settings, SingleSegments,
};
use tollway_law::Budget;
use tollway_law::budget::EqualBudget;

use crate::args::{Host, HostCommand, KernelLaw, StatusOptions};
use crate::audience::{Audience, not_opened, say_status};
use crate::fail::Failure;
use crate::features;
use crate::terminal;

pub(crate) fn host(args: &Host) -> Result<ExitCode, Failure> {
    match &args.command {
        Some(HostCommand::Check { file }) => check(file),
        Some(HostCommand::Status(options)) => status(options),
        None if args.program.is_empty() => run(args),
        None => run_program(args),
    }
}

fn check(file: &Path) -> Result<ExitCode, Failure> {
    let config = configuration(file)?;
    let names: Vec<&str> = config.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let names = if names.is_empty() { "no tenant".into() } else { names.join(", ") };
    terminal::say(format_args!("the configuration is valid: {names}\n"));
    Ok(ExitCode::SUCCESS)
}

fn status(options: &StatusOptions) -> Result<ExitCode, Failure> {
    let path = options.socket.clone().unwrap_or_else(agent::default_path);
    let text = agent::ask(&path).map_err(|error| {
        Failure::run(miette!(
            help =
                "start one with `tollway host --config FILE`, or give another control socket with `--socket`",
            "no `tollway host` answers at `{}`: {error}",
            path.display()
        ))
    })?;
    say_status(&text, options.json, "host", &HOST)
}

/// Runs the agent until a signal ends it.
fn run(args: &Host) -> Result<ExitCode, Failure> {
    features::if_not_built(args.agent.watch, args.agent.metrics.is_some(), args.agent.view.is_some())?;
    // Must precede the first thread.
    let signals = Signals::hold();
    tollway_agent::raise_file_limit();
    let log = args.agent.log.open().map_err(|error| Failure::run(miette!("cannot log: {error}")))?;
    let events = if args.quiet { agent::Events::default() } else { log };
    let (config, source) = in_force(args)?;
    let path = args.agent.socket.clone().unwrap_or_else(agent::default_path);
    // Before the programs: two agents would compete for connections.
    let control = ControlSocket::open(&path).map_err(|error| not_opened("host's agent", &path, &error))?;
    let mut programs = Programs::load(&config.settings).map_err(|error| unavailable(&error))?;
    config.admit(&programs).map_err(failed)?;
    let groups = if args.config.is_some() { config.groups().map_err(failed)? } else { args.cgroup.clone() };
    for group in &groups {
        programs.attach(group).map_err(|error| unavailable(&error))?;
    }
    let _trains =
        single_segments(&config).inspect_err(|error| events.warn("trains", format_args!("{PAIRS}: {error}")));
    let mut agent = Agent::start(programs, &config, source, events.clone()).map_err(failed)?;
    let teller = agent.teller();
    teller.answer_at(&control).map_err(failed)?;
    let mut audience = Audience::open(args.agent.json)?;
    let shown = teller.clone();
    let _served = HOST.serve(args.agent.metrics, args.agent.view, move || shown.status_json(), &events)?;
    #[cfg(feature = "watch")]
    if args.agent.watch {
        audience.watch(&HOST, " q end   ↑ ↓ scroll ", &events)?;
    }
    let names: Vec<String> = groups.iter().map(|path| path.display().to_string()).collect();
    events.info(
        "start",
        format_args!(
            "new connections of {} are under `{}`; `tollway host status` prints its state, Ctrl-C ends it",
            names.join(", "),
            agent.host().name()
        ),
    );
    let mut notifier = Notifier::find();
    while audience.show(|| teller.status_json()) {
        agent.tick();
        // A heartbeat that hangs is reported by silence.
        if !agent.host().is_late() {
            notifier.works();
        }
        if signals.sleep(LOOK) {
            break;
        }
    }
    drop(audience);
    notifier.stops();
    let counts = agent.host().counts().unwrap_or_default();
    events.info(
        "stop",
        format_args!("connections fall back to `{}`: {}", config.settings.ordinary, told(&counts)),
    );
    Ok(ExitCode::SUCCESS)
}

/// Runs one program in a new control group.
fn run_program(args: &Host) -> Result<ExitCode, Failure> {
    let (config, _) = in_force(args)?;
    let mut programs = Programs::load(&config.settings).map_err(|error| unavailable(&error))?;
    config.admit(&programs).map_err(failed)?;
    let group = enter(&mut programs, "host")?;
    let _trains = single_segments(&config)
        .inspect_err(|error| terminal::tell(format_args!("WARNING: {PAIRS}: {error}")));
    // Before signals are blocked, which a program would inherit.
    let name = args.program[0].to_string_lossy().into_owned();
    let child = Command::new(&args.program[0]).args(&args.program[1..]).spawn();
    let child = child.map_err(|error| {
        let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Failure::with_code(miette!("cannot start `{name}`: {error}"), code)
    })?;
    let signals = Signals::hold();
    let host = product::Host::start(programs, config.budgets()).map_err(failed)?;
    let status = wait(child, &signals).map_err(failed)?;
    if let Some(counts) = host.counts().ok().filter(|_| !args.quiet) {
        terminal::tell(told(&counts));
    }
    drop(group);
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(code as u8))
}

/// Under FCP, segments that need not leave in pairs.
fn single_segments(config: &Config) -> io::Result<Option<SingleSegments>> {
    (config.settings.law == Law::Fcp).then(SingleSegments::set).transpose()
}

/// The warning if they must.
const PAIRS: &str = "segments leave in pairs at least, which lengthens queues at slow links, since \
                     `net.ipv4.tcp_min_tso_segs` cannot be set to 1";

/// The configuration, and its origin.
fn in_force(args: &Host) -> Result<(Config, String), Failure> {
    Ok(match &args.config {
        Some(file) => (configuration(file)?, file.display().to_string()),
        None => (whole(args, args.law.unwrap_or(KernelLaw::Xcp)), "the command line".to_owned()),
    })
}

fn configuration(file: &Path) -> Result<Config, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::input(miette!(
            help = "give the path of a TOML file",
            "cannot read `{}`: {error}",
            file.display()
        ))
    })?;
    Ok(Config::parse(&file.display().to_string(), &text)?)
}

/// The configuration of a command line: one owner.
fn whole(args: &Host, of: KernelLaw) -> Config {
    let mut settings = Settings::new(law(of));
    settings.initial_window = args.initial_window;
    if args.experiment {
        settings.option = OptionKind::Experiment;
    }
    if let Some(name) = &args.ordinary {
        settings.ordinary.clone_from(name);
    }
    Config::whole(settings, Budget::per_sec(args.budget))
}

/// Programs in the kernel for the children of this process, until dropped.
pub(crate) struct Under {
    host: product::Host,
    // Left after the programs are gone.
    _group: Group,
}

impl Under {
    /// Puts the connections of children from now on under a law.
    pub(crate) fn start(tcp: KernelLaw) -> Result<Under, Failure> {
        let mut programs = Programs::load(&Settings::new(law(tcp))).map_err(|error| unavailable(&error))?;
        let group = enter(&mut programs, "exec")?;
        let budgets = matches!(tcp, KernelLaw::Fcp).then(|| Budgets::new(Vec::new(), Box::new(by_node)));
        Ok(Under { host: product::Host::start(programs, budgets).map_err(failed)?, _group: group })
    }

    /// Counts of connections and echoes.
    pub(crate) fn counts(&self) -> Counts {
        self.host.counts().unwrap_or_default()
    }
}

/// Each address is an owner with a budget of 1: nodes of a network have one address each.
fn by_node(connection: &Connection, owners: &mut Vec<Owner>) -> Option<usize> {
    let name = connection.local.ip().to_string();
    let known = owners.iter().position(|owner| owner.name == name);
    Some(known.unwrap_or_else(|| {
        owners.push(Owner::new(name, Budget::per_sec(1.0), Box::new(EqualBudget)));
        owners.len() - 1
    }))
}

/// Moves this process to a new group, and attaches the programs there.
fn enter(programs: &mut Programs, what: &str) -> Result<Group, Failure> {
    let group = Group::enter(&format!("tollway-{what}-{}", std::process::id())).map_err(|error| {
        Failure::run(miette!(
            help = "run it as root, where cgroup2 is mounted and may be written",
            "cannot make a control group for the program: {error}"
        ))
    })?;
    programs.attach(group.path()).map_err(|error| unavailable(&error))?;
    Ok(group)
}

fn wait(mut child: Child, signals: &Signals) -> io::Result<ExitStatus> {
    let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) else { return child.wait() };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(signal) = signals.wait(pid, Duration::from_millis(100)) {
            // The program may have ended meanwhile.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Counts as a sentence.
pub(crate) fn told(counts: &Counts) -> String {
    let mut text = format!("{} connections opened", counts.opened);
    for (cause, count) in Cause::ALL.iter().zip(counts.fallen).filter(|(_, count)| *count > 0) {
        text += &format!("; {count} fell back: {cause}");
    }
    if counts.forged > 0 {
        text += &format!("; {} echoes exceeded what routers grant", counts.forged);
    }
    text
}

/// Counts as a JSON object.
pub(crate) fn json(counts: &Counts) -> serde_json::Value {
    serde_json::json!({"opened": counts.opened, "fallen": Fallen::from(counts), "forged": counts.forged})
}

fn law(law: KernelLaw) -> Law {
    match law {
        KernelLaw::Xcp => Law::Xcp,
        KernelLaw::Fcp => Law::Fcp,
    }
}

fn unavailable(error: &LoadError) -> Failure {
    Failure::run(miette!("{error}"))
}

fn failed(error: io::Error) -> Failure {
    Failure::run(miette!("cannot run: {error}"))
}

/// Interval between checks of the signals and the screen.
const LOOK: Duration = Duration::from_millis(50);
