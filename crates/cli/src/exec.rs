//! `tollway exec`, `tollway shell`, `tollway clean`: programs over emulated networks.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use miette::miette;
use tollway_law::Time;
#[cfg(feature = "view")]
use tollway_report::exec::view::View;
use tollway_report::exec::{Account, TABLES};
use tollway_report::folder::Folder;
use tollway_scenario::exec::{self, Ended, Error, Outcome, Privilege, Profile, Publish, Signals, Spec};
use tollway_scenario::file::Scenario;
use tollway_scenario::plan::Plan;

use crate::args::Over;
use crate::fail::Failure;
use crate::features;
use crate::terminal;

pub(crate) fn exec(over: &Over, program: &[OsString]) -> Result<ExitCode, Failure> {
    let scenario = network(over)?;
    let variant = match &over.variant {
        None => &scenario.variants()[0],
        Some(name) => scenario.variant(name).ok_or_else(|| {
            let known: Vec<&str> = scenario.variants().iter().map(|v| v.name.as_str()).collect();
            Failure::input(miette!(
                help = format!("it has {}", known.join(", ")),
                "the file has no variant `{name}`"
            ))
        })?,
    };
    let plan = &variant.plan;
    let spec = spec(over, plan, program)?;
    // Those of a file are `tollway run`'s: its duration, for one, is not the program's.
    if over.file.is_none() && !over.quiet && !over.json {
        scenario.notes().iter().for_each(|note| terminal::tell(format_args!("note: {note}")));
    }
    features::if_not_built(false, false, over.view.is_some())?;
    let privilege = Privilege::acquire().map_err(not_set_up)?;
    // Before the program runs: it should not have run for nothing.
    let tables = TABLES.map(str::to_owned).into();
    let folder = over.out.as_ref().map(|out| Folder::take(out, &tables)).transpose();
    let folder = folder.map_err(|error| Failure::with_code(miette!("{error}"), FAILED))?;
    if let Some(note) = folder.as_ref().and_then(Folder::note)
        && !over.quiet
        && !over.json
    {
        terminal::tell(note);
    }
    let outcome = run(over, plan, &spec)?;

    let account = Account::new(plan, &spec, &outcome, privilege);
    // What can't be written takes nothing else with it.
    let (drawn, undrawn) =
        match over.out.as_ref().map(|folder| account.draw(folder, &over.pictures.formats())) {
            Some(Ok(drawn)) => (drawn, None),
            Some(Err(error)) => (Vec::new(), Some(error.to_string())),
            None => (Vec::new(), None),
        };
    drop(folder);
    if over.json {
        terminal::say_json(&account);
    } else if !over.quiet {
        // The program's output is its own: what is said of it goes to standard error.
        terminal::tell(format_args!("\n{}", account.to_text(terminal::width()).trim_end()));
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

/// Runs the program, and shows it to whoever asked for that.
fn run(over: &Over, plan: &Plan, spec: &Spec) -> Result<Outcome, Failure> {
    // Before any thread is started, that of the view among them.
    let signals = Signals::hold();
    #[cfg(feature = "view")]
    if let Some(address) = over.view {
        let (panel, remote) = exec::panel().map_err(not_set_up)?;
        let view = View::serve(plan, spec, remote, address).map_err(|error| {
            let help = "leave the address out, or give one like `--view=127.0.0.1:8000`; from another machine, \
                        `ssh -L 8000:127.0.0.1:8000` leads there";
            Failure::input(miette!(help = help, "{error}"))
        })?;
        terminal::tell(format_args!("view at {}", view.url()));
        return exec::run(spec, &signals, Some(panel)).map_err(not_set_up);
    }
    #[cfg(not(feature = "view"))]
    let _ = (over, plan);
    exec::run(spec, &signals, None).map_err(not_set_up)
}

pub(crate) fn shell(over: &Over) -> Result<ExitCode, Failure> {
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    exec(over, &[shell])
}

pub(crate) fn clean() -> Result<ExitCode, Failure> {
    let (ended, names) = (exec::clean(), exec::clean_names());
    if ended.is_empty() && names.is_empty() {
        terminal::say("nothing is left of any run\n");
    }
    for (pid, name) in ended {
        terminal::say(format_args!("ended process {pid} ({name})\n"));
    }
    for name in names {
        terminal::say(format_args!("removed network namespace {name}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The scenario: a file, or what a few words say.
fn network(over: &Over) -> Result<Scenario, Failure> {
    let mut sets = over.sets.clone();
    sets.extend(over.seed.map(|seed| format!("seed={seed}")));
    if let Some(file) = &over.file {
        return Ok(Scenario::load(file, &sets)?);
    }
    if let Some(profile) = over.profile.as_deref().and_then(Profile::named) {
        if !over.quiet && !over.json {
            let exec::Profile { name, down, up, source } = profile;
            terminal::tell(format_args!("note: `{name}` is `{down}`, and `{up}` from the program: {source}"));
        }
        let text = exec::two_nodes(profile.down, Some(profile.up), 1);
        let text = text.map_err(|error| Failure::input(miette!("{error}")))?;
        return Ok(Scenario::parse("--profile", &text, &sets)?);
    }
    let (link, up) = (over.link.as_deref().unwrap_or_default(), over.link_up.as_deref());
    let (words, text) = match &over.mahimahi {
        Some(shells) => (vec![("--mahimahi", shells.as_str())], exec::chain(shells, 1)),
        None => {
            let words = [("--link", link)].into_iter().chain(up.map(|up| ("--link-up", up)));
            (words.collect(), exec::two_nodes(link, up, 1))
        }
    };
    let text = text.map_err(|error| Failure::input(miette!(help = error.help(), "{error}")))?;
    let (option, _) = words[0];
    Ok(Scenario::parse(option, &text, &sets).map_err(|error| error.in_words(option, &words))?)
}

/// What to run over `plan`.
fn spec(over: &Over, plan: &Plan, program: &[OsString]) -> Result<Spec, Failure> {
    let mut mesh = exec::mesh(plan).map_err(|error| Failure::input(miette!("{error}")))?;
    let find = |name: &str| {
        let at = mesh.nodes.iter().position(|node| node == name).map(|at| at as u32);
        let known = mesh.nodes.join(", ");
        at.ok_or_else(|| {
            Failure::input(miette!(help = format!("there are {known}"), "there is no node `{name}`"))
        })
    };
    let node = over.node.as_deref().map_or(Ok(0), find)?;
    let in_words = over.file.is_none();
    // In words, the far end is the last node; a file says itself.
    let other = if in_words { mesh.nodes.len() as u32 - 1 } else { u32::from(node == 0) };
    let mut servers = Vec::new();
    for text in &over.serve {
        let named = text.split_once('=').and_then(|(name, command)| Some((find(name).ok()?, command)));
        servers.push(match named {
            Some((node, command)) => (node, command.to_owned()),
            None if in_words || mesh.nodes.len() == 2 => (other, text.clone()),
            None => {
                let help = "write it like `--serve NODE='iperf3 -s'`";
                return Err(Failure::input(miette!(
                    help = help,
                    "`--serve {text}` names no node of the file"
                )));
            }
        });
    }
    let mut published = Vec::new();
    let mut publish_all = over.publish.is_empty() && over.serve.is_empty();
    for text in &over.publish {
        match text.as_str() {
            "none" => {}
            "all" => publish_all = true,
            text => published.push(publish(text, other, &find)?),
        }
    }
    let outside = match over.outside.as_deref() {
        None => None,
        Some("") if in_words || mesh.nodes.len() == 2 => Some(other),
        Some("") => {
            return Err(Failure::input(miette!(
                help = "write it like `--outside=NODE`",
                "`--outside` does not say behind which node of the file the world is"
            )));
        }
        Some(name) => Some(find(name)?),
    };
    if outside == Some(node) {
        return Err(Failure::input(miette!(
            help = "name another node; without a network between, `tollway` is not needed",
            "`--outside` is at the program's own node"
        )));
    }
    let sysctl = |text: &String| {
        let (key, value) =
            text.split_once('=').filter(|(key, _)| key.starts_with("net.")).ok_or_else(|| {
                let help = "write it like `--sysctl net.ipv4.tcp_ecn=1`; only `net.` is a node's own";
                Failure::input(miette!(help = help, "`--sysctl {text}` names no setting of a network"))
            })?;
        Ok((key.to_owned(), value.to_owned()))
    };
    let sysctls = over.sysctls.iter().map(sysctl).collect::<Result<_, Failure>>()?;
    let timeout = over.timeout.as_deref().map(span).transpose()?;
    let aliases =
        if in_words { vec![("client".to_owned(), 0), ("host".to_owned(), other)] } else { Vec::new() };
    mesh.outside = outside;
    Ok(Spec {
        mesh,
        // Somebody may want to lose single packets, or slow a link down.
        train: if over.view.is_some() { 0 } else { exec::longest_train(plan) },
        aliases,
        sysctls,
        program: program.to_vec(),
        node,
        servers,
        published,
        publish_all,
        timeout,
        stdout_aside: over.json,
        capture: over.pcap.clone(),
    })
}

/// `[NODE:]PORT[:PORT HERE][/udp]`.
fn publish(text: &str, other: u32, find: &dyn Fn(&str) -> Result<u32, Failure>) -> Result<Publish, Failure> {
    let wrong = || {
        let help = "write it like `--publish 80`, `--publish 80:8080`, `--publish hq:53:5353/udp`";
        Failure::input(miette!(help = help, "`--publish {text}` names no port"))
    };
    let (ports, udp) = match text.rsplit_once('/') {
        Some((ports, "udp")) => (ports, true),
        Some((ports, "tcp")) => (ports, false),
        Some(_) => return Err(wrong()),
        None => (text, false),
    };
    let mut parts: Vec<&str> = ports.split(':').collect();
    let node = match parts[0].parse::<u16>() {
        Err(_) if parts.len() > 1 => find(parts.remove(0))?,
        _ => other,
    };
    let number = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0).ok_or_else(wrong);
    let (port, host) = match parts[..] {
        [port] => (number(port)?, number(port)?),
        [port, host] => (number(port)?, number(host)?),
        _ => return Err(wrong()),
    };
    Ok(Publish { node, port, host, udp })
}

/// A time, or a number of seconds.
fn span(text: &str) -> Result<Duration, Failure> {
    let span = text.parse::<Time>().or_else(|error| match text.parse::<f64>() {
        Ok(seconds) if (0.0..1e9).contains(&seconds) => Ok(Time::from_secs_f64(seconds)),
        _ => Err(Failure::input(miette!("`--timeout`: {error}"))),
    })?;
    Ok(Duration::from_nanos(span.0))
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

/// The program's exit status, as a shell and `timeout` would tell it.
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

/// As with `timeout`, `env` and their like.
const TIMED_OUT: u8 = 124;
const FAILED: u8 = 125;
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
