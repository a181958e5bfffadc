//! `tollway switch`: the terminal's side.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use miette::miette;
use tollway_law::Bytes;
use tollway_scenario::shape::Signals;
use tollway_switch::agent::{self, Agent, Teller};
use tollway_switch::config::{Config, ConfigError, Watched, Words};
use tollway_switch::status;

use crate::args::{Switch, SwitchCommand};
use crate::fail::Failure;
use crate::outlet::Outlet;
#[cfg(feature = "watch")]
use crate::shape::screen::Screen;
use crate::terminal;

pub(crate) fn switch(args: &Switch) -> Result<ExitCode, Failure> {
    match &args.command {
        None => run(args),
        Some(SwitchCommand::Status { json, socket }) => tell(*json, socket.as_deref()),
        Some(SwitchCommand::Check { file }) => check(file),
        Some(SwitchCommand::Drain { member, undo, socket }) => drain(member, *undo, socket.as_deref()),
    }
}

fn run(args: &Switch) -> Result<ExitCode, Failure> {
    lacking(args)?;
    // Before any thread is started.
    let signals = Signals::hold();
    let (mut watched, config) = match &args.config {
        Some(path) => {
            let (watched, config) = Watched::open(path)?;
            (Some(watched), config)
        }
        None => (None, Config::from_words(&words(args))?),
    };
    let source =
        args.config.as_ref().map_or_else(|| "the command line".into(), |path| path.display().to_string());
    let secret = secret(args.secret.as_deref())?;
    let version = config.version.clone();
    let switch = Agent::start(config, source, secret).map_err(|error| {
        Failure::run(miette!(help = "give an address of this machine and a free port", "{error}"))
    })?;
    let teller = switch.teller();
    let path = args.socket.clone().unwrap_or_else(agent::default_path);
    let _control = teller.answer_at(&path).map_err(|error| not_opened(&path, &error))?;
    let mut audience = Audience::open(args, &teller)?;
    if !args.json && !args.watch {
        let at: Vec<String> = switch.listen().iter().map(ToString::to_string).collect();
        terminal::tell(format_args!(
            "configuration {version} is in force at {}; `tollway switch status` says how it stands, Ctrl-C ends it",
            at.join(", ")
        ));
    }
    let quiet = args.json || args.watch;
    while !switch.is_over() && audience.show(&teller) {
        std::thread::sleep(LOOK);
        if signals.has_come().is_some() {
            break;
        }
        if let Some(news) = watched.as_mut().and_then(Watched::poll) {
            install(&switch, news, quiet);
        }
    }
    drop(audience);
    switch.end().map_err(|error| Failure::run(miette!("the switch has failed: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Puts a configuration that is new in force, or says why it cannot be.
fn install(switch: &Agent, news: Result<Config, ConfigError>, quiet: bool) {
    let said = match news {
        Ok(config) => {
            let version = config.version.clone();
            switch.install(config).map(|()| version)
        }
        Err(error) => {
            let said = error.to_string();
            if !quiet {
                Failure::from(error).report();
            }
            Err(said)
        }
    };
    let line = match &said {
        Ok(version) => format!("configuration {version} is in force"),
        Err(why) => format!("the last good configuration stays in force: {why}"),
    };
    if !quiet {
        terminal::tell(line);
    }
    switch.set_trouble(said.err());
}

fn words(args: &Switch) -> Words {
    Words {
        listen: args.listen.clone(),
        frames: args.frames.clone(),
        policy: args.policy.clone(),
        key: args.key.clone(),
        answers: args.answers.clone(),
        retry: args.retry.clone(),
        to: args.to.clone(),
    }
}

fn secret(path: Option<&Path>) -> Result<[u8; 16], Failure> {
    let Some(path) = path else {
        return agent::random().map_err(|error| Failure::run(miette!("no randomness to be had: {error}")));
    };
    let wrong = |why: String| {
        let help = "make one: `head -c 16 /dev/urandom > secret`; other users should not be able to read it";
        Failure::input(miette!(help = help, "`{}` is no secret: {why}", path.display()))
    };
    let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    <[u8; 16]>::try_from(bytes.as_slice()).map_err(|_| wrong(format!("it has {} bytes, not 16", bytes.len())))
}

fn check(file: &Path) -> Result<ExitCode, Failure> {
    let config = Config::load(file)?;
    let names: Vec<&str> = config.members.iter().map(|member| member.name.as_str()).collect();
    let session = config.limits.session_memory(names.len());
    terminal::say(format_args!(
        "configuration {} is right: {} by {} to {}\na session takes {} at most, {} sessions {}\n",
        config.version,
        config.framing,
        config.policy,
        names.join(", "),
        Bytes(session),
        config.limits.sessions,
        Bytes(session.saturating_mul(config.limits.sessions as u64)),
    ));
    Ok(ExitCode::SUCCESS)
}

fn ask(socket: Option<&Path>, what: &str) -> Result<String, Failure> {
    let path = socket.map_or_else(agent::default_path, PathBuf::from);
    agent::ask(&path, what).map_err(|error| {
        Failure::run(miette!(
            help = "start one with `tollway switch --config FILE`; `--socket` says where another's is",
            "no switch answers at `{}`: {error}",
            path.display()
        ))
    })
}

fn tell(json: bool, socket: Option<&Path>) -> Result<ExitCode, Failure> {
    let text = ask(socket, "status")?;
    if json {
        terminal::say(format_args!("{text}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let told = status::told(&text, terminal::width(), 40);
    terminal::say(told.ok_or_else(|| {
        Failure::run(miette!("the switch's answer makes no sense: is it of another version?"))
    })?);
    Ok(ExitCode::SUCCESS)
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

/// Those who look on: the terminal, a reader of JSON, Prometheus, a browser.
struct Audience {
    json: Option<Outlet<String>>,
    next: Instant,
    #[cfg(feature = "metrics")]
    _metrics: Option<tollway_report::watch::metrics::Metrics>,
    #[cfg(feature = "view")]
    _view: Option<tollway_switch::view::View>,
    #[cfg(feature = "watch")]
    screen: Option<Screen<status::Status>>,
}

impl Audience {
    fn open(args: &Switch, teller: &Teller) -> Result<Audience, Failure> {
        let _ = teller;
        Ok(Audience {
            json: args
                .json
                .then(crate::shape::open_json)
                .transpose()
                .map_err(|error| Failure::run(miette!("cannot write to standard output: {error}")))?,
            next: Instant::now(),
            #[cfg(feature = "metrics")]
            _metrics: match args.metrics {
                None => None,
                Some(address) => {
                    let served = tollway_switch::metrics::serve(teller.clone(), address)
                        .map_err(|error| Failure::input(miette!(help = crate::fail::ADDRESS, "{error}")))?;
                    terminal::tell(format_args!("metrics at http://{}/metrics", served.address()));
                    Some(served)
                }
            },
            #[cfg(feature = "view")]
            _view: match args.view {
                None => None,
                Some(address) => {
                    let help = "give a loopback address and a free port: `--view 127.0.0.1:0`";
                    let view = tollway_switch::view::View::serve(teller.clone(), address)
                        .map_err(|error| Failure::input(miette!(help = help, "{error}")))?;
                    terminal::tell(format_args!("view at {}", view.url()));
                    Some(view)
                }
            },
            #[cfg(feature = "watch")]
            screen: match args.watch {
                false => None,
                true => Some(Screen::open(tollway_switch::screen::draw)?),
            },
        })
    }

    /// Shows how the switch stands, once a second. Returns whether it is to go on.
    fn show(&mut self, teller: &Teller) -> bool {
        #[cfg(feature = "watch")]
        if self.screen.as_mut().is_some_and(Screen::wants_to_end) {
            return false;
        }
        #[cfg(feature = "watch")]
        let on_screen = self.screen.is_some();
        #[cfg(not(feature = "watch"))]
        let on_screen = false;
        let now = Instant::now();
        if now < self.next || (self.json.is_none() && !on_screen) {
            return true;
        }
        self.next = now + if on_screen { Duration::from_millis(200) } else { Duration::from_secs(1) };
        let Some(status) = teller.status() else { return true };
        #[cfg(feature = "watch")]
        if let Some(screen) = &self.screen {
            screen.draw(status.clone());
        }
        let line = || serde_json::to_string(&status).unwrap_or_default();
        self.json.as_ref().is_none_or(|json| json.show(line()))
    }
}

fn lacking(args: &Switch) -> Result<(), Failure> {
    for (feature, wanted, has) in [
        ("watch", args.watch, cfg!(feature = "watch")),
        ("metrics", args.metrics.is_some(), cfg!(feature = "metrics")),
        ("view", args.view.is_some(), cfg!(feature = "view")),
    ] {
        if wanted && !has {
            return Err(Failure::not_built(feature));
        }
    }
    #[cfg(feature = "watch")]
    if args.watch {
        terminal::can_be_drawn_on()?;
    }
    Ok(())
}

fn not_opened(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::input(miette!(
            help = "end it, or give this one another `--socket`",
            "a switch runs already: it answers at `{}`",
            path.display()
        )),
        _ => Failure::run(miette!(
            help = "give a path in a folder of your own with `--socket`",
            "cannot open `{}`: {error}",
            path.display()
        )),
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::input(error)
    }
}

/// How often the file, the signals and the screen are looked at.
const LOOK: Duration = Duration::from_millis(50);
