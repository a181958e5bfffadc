//! `tollway router`: the command line and the terminal.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use miette::miette;
use tollway_agent::control::ControlSocket;
use tollway_agent::file::Watch;
use tollway_agent::notify::Notifier;
use tollway_exec::Signals;
use tollway_router::{self as product, Agent, CommandLine, Config, ROUTER, StartError};

use crate::args::{Router, RouterCommand, StatusOptions};
use crate::audience::{Audience, not_opened, say_status};
use crate::fail::Failure;
use crate::features;
use crate::terminal;

pub(crate) fn router(args: &Router) -> Result<ExitCode, Failure> {
    match &args.command {
        None => run(args),
        Some(RouterCommand::Status(options)) => tell(options),
        Some(RouterCommand::Check { file }) => {
            let config = Config::load(file)?;
            terminal::say(format_args!("configuration {} is valid\n{}\n", config.version, config.summary()));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run(args: &Router) -> Result<ExitCode, Failure> {
    features::if_not_built(args.agent.watch, args.agent.metrics.is_some(), args.agent.view.is_some())?;
    // Must precede the first thread.
    let signals = Signals::hold();
    let mut watch = args.config.as_deref().map(|path| (path, Watch::of(path)));
    let config = configuration(args)?;
    let (version, summary) = (config.version.clone(), config.summary());
    let source = args.config.as_ref().map_or("the command line".into(), |path| path.display().to_string());
    let events = args.agent.log.open().map_err(|error| Failure::run(miette!("cannot log: {error}")))?;
    let path = args.agent.socket.clone().unwrap_or_else(product::default_path);
    let control = ControlSocket::open(&path).map_err(|error| not_opened("router", &path, &error))?;
    if args.dry_run {
        Agent::rehearse(&config).map_err(not_started)?;
        terminal::say(format_args!("configuration {version} would be in force\n{summary}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let agent = Agent::start(config, source, events.clone()).map_err(not_started)?;
    let agent = Arc::new(Mutex::new(agent));
    let shown = Arc::clone(&agent);
    let status = move || {
        let status = shown.lock().unwrap_or_else(PoisonError::into_inner).status();
        serde_json::to_value(status).ok()
    };
    let answer = status.clone();
    control
        .serve(move |_| answer().map_or_else(String::new, |status| status.to_string()))
        .map_err(|error| not_opened("router", &path, &error))?;
    let mut audience = Audience::open(args.agent.json)?;
    let _served = ROUTER.serve(args.agent.metrics, args.agent.view, status.clone(), &events)?;
    #[cfg(feature = "watch")]
    if args.agent.watch {
        audience.watch(&ROUTER, " q stop the router   ↑ ↓ scroll ", &events)?;
    }
    events.info(
        "start",
        format_args!(
            "configuration {version} is in force\n{summary}\n`tollway router status` prints its state, Ctrl-C ends it"
        ),
    );
    let mut notifier = Notifier::find();
    while audience.show(&status) {
        let mut agent = agent.lock().unwrap_or_else(PoisonError::into_inner);
        agent.tick();
        if agent.works() {
            notifier.works();
        }
        if let Some((path, watch)) = &mut watch
            && watch.has_changed(path)
        {
            reload(&mut agent, path, &events);
        }
        drop(agent);
        if signals.sleep(LOOK) {
            break;
        }
    }
    drop(audience);
    notifier.stops();
    agent.lock().unwrap_or_else(PoisonError::into_inner).stop();
    events.info("stop", "packets pass from now on");
    Ok(ExitCode::SUCCESS)
}

fn configuration(args: &Router) -> Result<Config, Failure> {
    if let Some(path) = &args.config {
        return Ok(Config::load(path)?);
    }
    let keys = [
        ("device", &args.dev),
        ("up", &args.up),
        ("down", &args.down),
        ("law", &args.law),
        ("overhead", &args.overhead),
        ("on-failure", &args.on_failure),
    ];
    let keys = keys.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect();
    Ok(Config::from_words(&CommandLine { keys })?)
}

/// Puts a changed file in force, or reports why it can't be.
fn reload(agent: &mut Agent, path: &Path, events: &tollway_agent::events::Events) {
    let done = match Config::load(path) {
        Ok(config) => {
            let version = config.version.clone();
            agent.install(config).map(|()| version).map_err(|error| error.to_string())
        }
        Err(error) => {
            let said = error.to_string();
            events.warn("reload", Failure::from(error).text());
            Err(said)
        }
    };
    // First, so that the status agrees with the line printed.
    agent.set_refusal(done.as_ref().err().map(|why| format!("the new version is not in force: {why}")));
    match done {
        Ok(version) => events.info("reload", format_args!("configuration {version} is in force")),
        Err(why) => events.warn("reload", format_args!("the last good configuration stays in force: {why}")),
    }
}

fn tell(options: &StatusOptions) -> Result<ExitCode, Failure> {
    let path = options.socket.clone().unwrap_or_else(product::default_path);
    let text = product::ask(&path).map_err(|error| {
        Failure::run(miette!(
            help = "start one with `tollway router --dev eth0 --up 95Mbps`, or give another control socket with \
                `--socket`",
            "no router answers at `{}`: {error}",
            path.display()
        ))
    })?;
    say_status(&text, options.json, "router", &ROUTER)
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::NoDevice { .. } | StartError::Taken(_) => Failure::input(miette!("{error}")),
        _ => Failure::run(miette!("{error}")),
    }
}

/// Interval between looks at the file, the interface and the screen.
const LOOK: Duration = Duration::from_millis(50);
