//! `tollway switch`: the command line and the terminal.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use miette::miette;
use tollway_agent::notify::Notifier;
use tollway_law::Bytes;
use tollway_scenario::file::ScenarioError;
use tollway_switch::agent::{self, Agent, Events, Order, Signals};
use tollway_switch::config::{CommandLine, Config};
use tollway_switch::setup::{Edit, Setup, Watched};
use tollway_switch::sites::{self, Sites};
use tollway_switch::status::SWITCH;

use crate::args::{StatusOptions, Switch, SwitchCommand};
use crate::audience::{Audience, not_opened, say_status};
use crate::fail::Failure;
use crate::features;
use crate::terminal;

pub(crate) fn switch(args: &Switch) -> Result<ExitCode, Failure> {
    match &args.command {
        None => run(args),
        Some(SwitchCommand::Status(options)) => tell(options),
        Some(SwitchCommand::Keygen { names, out }) => crate::keys::make(names, out),
        Some(SwitchCommand::Check { file }) => check(file),
        Some(SwitchCommand::Drain { member, undo, socket }) => drain(member, *undo, socket.as_deref()),
        Some(SwitchCommand::Add { member, weight, socket }) => {
            let Some((name, address)) = member.split_once('=') else {
                return Err(Failure::input(miette!(
                    help = "write `NAME=ADDR`, as in `c=10.0.0.3:5000`",
                    "`{member}` is not a name and an address"
                )));
            };
            edit(&Edit::Add(name.into(), address.into(), *weight), socket.as_deref())
        }
        Some(SwitchCommand::Remove { member, socket }) => {
            edit(&Edit::Remove(member.clone()), socket.as_deref())
        }
        Some(SwitchCommand::Weight { member, weight, socket }) => {
            edit(&Edit::Weight(member.clone(), *weight), socket.as_deref())
        }
    }
}

fn run(args: &Switch) -> Result<ExitCode, Failure> {
    features::if_not_built(args.agent.watch, args.agent.metrics.is_some(), args.agent.view.is_some())?;
    // Must precede the first thread.
    let signals = Signals::hold();
    tollway_agent::raise_file_limit();
    let events = args.agent.log.open().map_err(|error| Failure::run(miette!("cannot log: {error}")))?;
    let log = events.clone();
    let source =
        args.config.as_ref().map_or_else(|| "the command line".into(), |path| path.display().to_string());
    let (mut watched, setup) = match &args.config {
        Some(path) => {
            let (watched, setup) = Watched::open(path)?;
            (Some(watched), setup)
        }
        None => (None, given(args)?),
    };
    let version = setup.version().to_owned();
    let switch = start(setup, source, log).map_err(|error| {
        Failure::run(miette!(help = "give an address of this machine and a free port", "{error}"))
    })?;
    let teller = switch.teller();
    let path = args.agent.socket.clone().unwrap_or_else(agent::default_path);
    let _control = teller.answer_at(&path).map_err(|error| not_opened("switch", &path, &error))?;
    let mut audience = Audience::open(args.agent.json)?;
    let shown = teller.clone();
    let _served = SWITCH.serve(args.agent.metrics, args.agent.view, move || shown.status_json(), &events)?;
    #[cfg(feature = "watch")]
    if args.agent.watch {
        audience.watch(&SWITCH, " q stop the switch   ↑ ↓ scroll ", &events)?;
    }
    let at: Vec<String> = switch.listen().iter().map(ToString::to_string).collect();
    events.info(
        "start",
        format_args!(
            "configuration {version} is in force at {}; `tollway switch status` prints its state, Ctrl-C \
            ends it",
            at.join(", ")
        ),
    );
    let mut notifier = Notifier::find();
    while !switch.is_over() && audience.show(|| teller.status_json()) {
        // A loop that hangs is reported by silence.
        if notifier.is_due() && teller.status().is_some() {
            notifier.works();
        }
        std::thread::sleep(LOOK);
        match (signals.order(), &mut watched) {
            (Some(Order::End), _) => break,
            (Some(Order::Reload), Some(watched)) => watched.again(),
            _ => {}
        }
        if let Some(news) = watched.as_mut().and_then(Watched::poll) {
            install(&switch, news, &events);
        }
    }
    drop(audience);
    notifier.stops();
    events.info("stop", "the switch accepts no more messages, and ends once those under way are done");
    switch.end().map_err(|error| Failure::run(miette!("the switch has failed: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn start(setup: Setup, source: String, events: Events) -> io::Result<Agent> {
    if let Setup::Switch(config) = &setup
        && config.secret_is_new
    {
        events.warn(
            "secret",
            "the secret of the hash is less than an hour old: keys that another secret placed are at other members",
        );
    }
    Agent::start(setup, source, events)
}

/// The configuration that options give.
fn given(args: &Switch) -> Result<Setup, Failure> {
    let Some(bind) = &args.bind else { return Ok(Config::from_words(&words(args))?.into()) };
    let given = [
        ("bind", Some(bind)),
        ("frames", args.frames.as_ref()),
        ("policy", args.policy.as_ref()),
        ("key", args.key.as_ref()),
        ("on-failure", args.on_failure.as_ref()),
        ("secret", args.secret.as_ref()),
        ("answers", args.answers.as_ref()),
        ("keys", args.keys.as_ref()),
        ("law", args.law.as_ref()),
    ];
    let given = given.into_iter().filter_map(|(key, word)| Some((key, word?.clone()))).collect();
    let (listen, peers) = (args.listen.clone(), args.peer.clone());
    let words =
        sites::CommandLine { listen, given, peers, members: args.member.clone(), to: args.to.clone() };
    Ok(Sites::from_words(&words)?.into())
}

/// Puts a new configuration in force, or reports why it can't be.
fn install(switch: &Agent, news: Result<Setup, ScenarioError>, events: &Events) {
    let said = match news {
        Ok(setup) => {
            let version = setup.version().to_owned();
            switch.install(setup).map(|()| version)
        }
        Err(error) => {
            let said = error.to_string();
            events.warn("reload", Failure::from(error).text());
            Err(said)
        }
    };
    // First, so that the status agrees with the line printed.
    switch.set_trouble(said.as_ref().err().cloned());
    match said {
        Ok(version) => events.info("reload", format_args!("configuration {version} is in force")),
        Err(why) => {
            events.warn("reload", format_args!("the last good configuration stays in force: {why}"));
        }
    }
}

fn words(args: &Switch) -> CommandLine {
    CommandLine {
        listen: args.listen.clone(),
        frames: args.frames.clone(),
        policy: args.policy.clone(),
        key: args.key.clone(),
        answers: args.answers.clone(),
        retry: args.retry.clone(),
        on_failure: args.on_failure.clone(),
        secret: args.secret.clone(),
        to: args.to.clone(),
    }
}

fn check(file: &Path) -> Result<ExitCode, Failure> {
    let config = match Setup::load(file)? {
        Setup::Switch(config) => config,
        Setup::Site(site) => {
            terminal::say(format_args!("configuration {} is valid: {site}\n", site.version));
            return Ok(ExitCode::SUCCESS);
        }
    };
    let names: Vec<&str> = config.members.iter().map(|member| member.name.as_str()).collect();
    let session = config.limits.session_memory(names.len());
    terminal::say(format_args!(
        "configuration {} is valid: {} by {} to {}\na session needs at most {}, {} sessions {}\n",
        config.version,
        config.framing,
        config.policy,
        names.join(", "),
        Bytes(session),
        config.limits.sessions,
        Bytes(config.limits.total_memory(names.len())),
    ));
    Ok(ExitCode::SUCCESS)
}

fn ask(socket: Option<&Path>, what: &str) -> Result<String, Failure> {
    let path = socket.map_or_else(agent::default_path, PathBuf::from);
    agent::command(&path, what).map_err(|error| {
        Failure::run(miette!(
            help = "start one with `tollway switch --config FILE`, or give another control socket with \
                `--socket`",
            "no switch answers at `{}`: {error}",
            path.display()
        ))
    })
}

fn tell(options: &StatusOptions) -> Result<ExitCode, Failure> {
    let text = ask(options.socket.as_deref(), "status")?;
    say_status(&text, options.json, "switch", &SWITCH)
}

fn drain(member: &str, undo: bool, socket: Option<&Path>) -> Result<ExitCode, Failure> {
    let answer = ask(socket, &format!("{} {member}", if undo { "undrain" } else { "drain" }))?;
    if let Some(names) = answer.strip_prefix("unknown ") {
        return Err(Failure::input(miette!(
            help = format!("its members are {names}"),
            "the switch has no member `{member}`"
        )));
    }
    let what = if undo { "gets messages again" } else { "gets no new messages" };
    terminal::say(format_args!("`{member}` {what}\n"));
    Ok(ExitCode::SUCCESS)
}

fn edit(edit: &Edit, socket: Option<&Path>) -> Result<ExitCode, Failure> {
    let answer = ask(socket, &edit.command())?;
    if let Some(why) = answer.strip_prefix("refused ") {
        return Err(Failure::input(miette!("{why}")));
    }
    let what = match edit {
        Edit::Add(name, address, _) => format!("`{name}` at {address} gets messages"),
        Edit::Remove(name) => format!("`{name}` gets no new messages, and leaves once it is done"),
        Edit::Weight(name, weight) => format!("`{name}` has weight {weight}"),
    };
    terminal::say(format_args!("{what}; the file is not changed\n"));
    Ok(ExitCode::SUCCESS)
}

/// Interval between checks of the file, the signals and the screen.
const LOOK: Duration = Duration::from_millis(50);
