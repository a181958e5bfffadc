//! `tollway exec`, `tollway shell`, `tollway clean`: programs over emulated networks.

use std::ffi::OsString;
use std::process::ExitCode;

use miette::miette;
#[cfg(feature = "view")]
use tollway_exec::account::view::View;
use tollway_exec::account::{Account, TABLES};
use tollway_exec::options::{Options, RequestError};
use tollway_exec::{self as exec, Ended, Error, Listeners, Outcome, Privilege, Profile, Signals, Spec};
use tollway_report::folder::Folder;
use tollway_scenario::plan::Plan;

use crate::args::Over;
use crate::fail::Failure;
use crate::features;
use crate::host::{self, Under};
use crate::terminal;

pub(crate) fn exec(over: &Over, program: &[OsString]) -> Result<ExitCode, Failure> {
    let options = options(over);
    if let Some(Profile { name, down, up, source }) = options.measured().filter(|_| !over.quiet && !over.json)
    {
        terminal::tell(format_args!("note: `{name}` is `{down}`, and `{up}` from the program: {source}"));
    }
    let scenario = options.network()?;
    let plan = &options.variant(&scenario)?.plan;
    let mut spec = options.spec(plan, program)?;
    if over.tcp.is_some() {
        // Trains of two segments, the kernel's least, are a queue at a slow link.
        spec.sysctls.insert(0, ("net.ipv4.tcp_min_tso_segs".into(), "1".into()));
    }
    // Notes on a file concern `tollway run`: its duration, for example, is not the program's.
    if over.file.is_none() && !over.quiet && !over.json {
        scenario.notes().iter().for_each(|note| terminal::tell(format_args!("note: {note}")));
    }
    features::if_not_built(false, false, over.view.is_some())?;
    // Before any thread is started, such as that of the view.
    let signals = Signals::hold();
    let tcp = over.tcp.map(Under::start).transpose()?;
    let privilege = Privilege::acquire().map_err(not_set_up)?;
    // First, so that a program does not run in vain.
    let tables = TABLES.map(str::to_owned).into();
    let folder = over.out.as_ref().map(|out| Folder::take(out, &tables)).transpose();
    let folder = folder.map_err(|error| Failure::with_code(miette!("{error}"), FAILED))?;
    if let Some(note) = folder.as_ref().and_then(Folder::note)
        && !over.quiet
        && !over.json
    {
        terminal::tell(note);
    }
    let listeners = Listeners::open(&spec).map_err(not_set_up)?;
    for to in listeners.at_host() {
        let [from, node] = [to.from, to.node].map(|node| &spec.mesh.nodes[node as usize]);
        terminal::tell(format_args!("listening at {}: from `{from}` to port {} of `{node}`", to.at, to.port));
    }
    if let Some(path) = listeners.certificate().filter(|_| !over.quiet) {
        terminal::tell(format_args!("certificate authority of the run: {}", path.display()));
    }
    if program.is_empty() && !over.quiet {
        terminal::tell("Ctrl-C ends the run");
    }
    let outcome = run(over, plan, &spec, &signals, &listeners)?;
    let tcp = tcp.map(|under| under.counts());

    let account = Account::new(plan, &spec, &outcome, privilege);
    // A failed figure does not keep the other results from being written.
    let (drawn, undrawn) =
        match over.out.as_ref().map(|folder| account.draw(folder, &over.pictures.options())) {
            Some(Ok(drawn)) => (drawn, None),
            Some(Err(error)) => (Vec::new(), Some(error.to_string())),
            None => (Vec::new(), None),
        };
    drop(folder);
    if over.json {
        let mut account = serde_json::to_value(&account).unwrap_or_default();
        if let Some(counts) = &tcp {
            account["tcp"] = host::json(counts);
        }
        terminal::say_json(&account);
    } else if !over.quiet {
        // Standard output belongs to the program; the report goes to standard error.
        terminal::tell(format_args!("\n{}", account.to_text(terminal::width()).trim_end()));
        if let Some(counts) = &tcp {
            terminal::tell(host::told(counts));
        }
        drawn.iter().for_each(|path| terminal::tell(format_args!("wrote {}", path.display())));
        if over.out.is_none() {
            terminal::tell("`--out DIR` draws rates, queues and drops over time.");
        }
    }
    account.warnings().for_each(terminal::tell);
    let uncaptured =
        outcome.captured.as_ref().err().map(|error| format!("cannot write the capture: {error}"));
    match undrawn.or(uncaptured) {
        Some(unwritten) => Err(Failure::with_code(miette!("{unwritten}"), FAILED)),
        None => Ok(exit_code(&outcome)),
    }
}

/// Runs the program, with a page in the browser if requested.
fn run(
    over: &Over,
    plan: &Plan,
    spec: &Spec,
    signals: &Signals,
    listeners: &Listeners,
) -> Result<Outcome, Failure> {
    #[cfg(feature = "view")]
    if let Some(address) = over.view {
        let (panel, remote) = exec::panel().map_err(not_set_up)?;
        let view = View::serve(plan, spec, remote, listeners.ports(), address).map_err(|error| {
            let help = "leave out the address, or give one like `--view=127.0.0.1:8000`; reach it from another \
                machine with `ssh -L 8000:127.0.0.1:8000`";
            Failure::input(miette!(help = help, "{error}"))
        })?;
        terminal::tell(format_args!("view at {}", view.url()));
        return exec::run(spec, signals, Some(panel), listeners).map_err(not_set_up);
    }
    #[cfg(not(feature = "view"))]
    let _ = (over, plan);
    exec::run(spec, signals, None, listeners).map_err(not_set_up)
}

pub(crate) fn shell(over: &Over) -> Result<ExitCode, Failure> {
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    exec(over, &[shell])
}

pub(crate) fn clean() -> Result<ExitCode, Failure> {
    let (ended, names, limits) = (exec::clean(), exec::clean_names(), tollway_router::clean());
    if ended.is_empty() && names.is_empty() && limits.is_empty() {
        terminal::say("no run has left anything behind\n");
    }
    for (pid, name) in ended {
        terminal::say(format_args!("ended process {pid} ({name})\n"));
    }
    for name in names {
        terminal::say(format_args!("removed network namespace {name}\n"));
    }
    for limit in limits {
        terminal::say(format_args!("{limit}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The options in the form of `tollway-exec`.
fn options(over: &Over) -> Options {
    Options {
        file: over.file.clone(),
        text: None,
        link: over.link.clone(),
        link_up: over.link_up.clone(),
        mahimahi: over.mahimahi.clone(),
        profile: over.profile.clone(),
        node: over.node.clone(),
        variant: over.variant.clone(),
        sets: over.sets.clone(),
        seed: over.seed,
        names: over.names.clone(),
        serve: over.serve.clone(),
        publish: over.publish.clone(),
        listen: over.listen.clone(),
        localhost: over.localhost.clone(),
        tls: over.tls.clone(),
        outside: over.outside.clone(),
        sysctls: over.sysctls.clone(),
        timeout: over.timeout.clone(),
        aside: over.json,
        capture: over.pcap.clone(),
        view: over.view.is_some(),
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Failure {
        match error {
            RequestError::Option(error) => Failure::input(error),
            RequestError::Scenario(error) => error.into(),
        }
    }
}

fn not_set_up(error: Error) -> Failure {
    let code = match &error {
        Error::Program { source, .. } if source.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
        Error::Program { .. } => NOT_RUNNABLE,
        Error::Interrupted { signal } => by_signal(*signal),
        _ => FAILED,
    };
    Failure::with_code(miette!("{error}"), code)
}

/// The program's exit status, as from a shell or timeout(1).
fn exit_code(outcome: &Outcome) -> ExitCode {
    ExitCode::from(match outcome.ended {
        Ended::Exited(code) => code as u8,
        Ended::Signalled(signal) => by_signal(signal),
        Ended::TimedOut => TIMED_OUT,
    })
}

fn by_signal(signal: i32) -> u8 {
    128u8.wrapping_add(signal as u8)
}

/// Exit statuses as of timeout(1), env(1) and others.
const TIMED_OUT: u8 = 124;
const FAILED: u8 = 125;
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
