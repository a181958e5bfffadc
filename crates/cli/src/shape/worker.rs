//! The agent's worker: a process without rights that reads policies, speaks to stores and serves
//! readers.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use miette::miette;
use serde_json::Value;
use tollway_law::Time;
#[cfg(feature = "metrics")]
use tollway_report::shape::metrics;
use tollway_scenario::shape::{
    self, Agent, Answers, FileSource, Handover, LookOnly, News, Pending, Policies, Reply, Signals, SockDiag,
    Source, Then, WorkerEnd,
};

use super::{Log, Number, refused, standing, unable};
use crate::args::{Shape, StoreAccess};
use crate::audience::Audience;
use crate::fail::Failure;
use crate::terminal;
#[cfg(feature = "metrics")]
use crate::watch::say_served;

/// Policies, and where they come from.
type Opened = (Box<dyn Source>, Policies);

/// Works until the agent ends, or a reader means the end.
pub(super) fn run(args: &Shape, tick: Option<Time>) -> Result<ExitCode, Failure> {
    // Before any thread is started, as is what follows.
    let signals = Signals::hold();
    shape::give_up_all().map_err(unable)?;
    let handover = Handover::of_stdin().map_err(unable)?;
    let channel = UnixStream::from(handover.request(Number::Channel as u8).map_err(unable)?);
    let path = args.policy.clone().unwrap_or_default();
    let ends = || signals.has_come().is_some() || shape::pending(&channel) == Pending::End;
    let Some((source, mut policies)) = open(&path, &args.store, handover, ends)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(tick) = tick {
        policies.set_tick(tick);
    }
    if args.dry_run {
        return dry_run(args, policies, &*source, &signals, &channel);
    }
    let handover = Handover::of_stdin().map_err(unable)?;
    let listener = UnixListener::from(handover.request(Number::Status as u8).map_err(unable)?);
    let mut channel = WorkerEnd::start(channel).map_err(unable)?;
    #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "metrics keep the latest state"))]
    let mut audience = Audience::open(args.json)?;
    #[cfg(feature = "metrics")]
    let _metrics = match args.metrics {
        None => None,
        Some(address) => {
            let latest = metrics::Latest::default();
            audience.keep_in(latest.clone());
            Some(say_served(metrics::serve(latest, address))?)
        }
    };
    channel.send(&policies).map_err(unable)?;
    let mut worker = Worker {
        channel,
        answers: Answers::new(listener),
        audience,
        log: Log::open().map_err(unable)?,
        quiet: args.json || args.watch,
        version: policies.regime().version.clone(),
        source,
        tick,
        trouble: None,
        requested: false,
    };
    let Some(warning) = worker.begin(&signals) else { return Ok(ExitCode::SUCCESS) };
    #[cfg(feature = "watch")]
    if args.watch {
        worker.audience.draw_with(tollway_report::shape::screen::draw)?;
    }
    if policies.regime().tenants.is_empty() {
        worker.log.tell(super::paces_nothing(&worker.version));
    }
    worker.log.say(worker.quiet, || {
        format!(
            "policies {} of `{}` are in force; `tollway shape status` says how they stand, Ctrl-C ends them",
            worker.version,
            path.display()
        )
    });
    worker.warn(warning);
    while worker.turn() && !signals.sleep(PAUSE) {}
    Ok(ExitCode::SUCCESS)
}

struct Worker {
    channel: WorkerEnd,
    answers: Answers,
    audience: Audience<Value>,
    log: Log,
    /// Standard error is for a screen, or standard output for a program.
    quiet: bool,
    /// The policies that were sent last.
    version: String,
    source: Box<dyn Source>,
    tick: Option<Time>,
    trouble: Option<String>,
    /// The agent's state is on its way.
    requested: bool,
}

impl Worker {
    /// Waits until the agent works; answers its warning. There is none if it ends before that.
    fn begin(&mut self, signals: &Signals) -> Option<Option<String>> {
        loop {
            if let Some(Reply::Warning(warning)) = self.channel.poll().ok()? {
                return Some(warning);
            }
            if signals.sleep(PAUSE) {
                return None;
            }
        }
    }

    /// Does what is due; returns whether to go on.
    fn turn(&mut self) -> bool {
        let mut shown = None;
        loop {
            match self.channel.poll() {
                Ok(None) => break,
                Ok(Some(Reply::Warning(warning))) => self.warn(warning),
                Ok(Some(Reply::State(mut state))) => {
                    state["source"] = self.source.describe().into();
                    state["trouble"] = self.trouble.clone().into();
                    self.answers.answer(|| state.to_string());
                    (shown, self.requested) = (Some(state), false);
                }
                Err(_) => return false,
            }
        }
        let mut wanted = self.answers.accept();
        let goes_on = self.audience.show(|| {
            wanted |= shown.is_none();
            shown
        });
        if wanted && !self.requested {
            self.answers.request();
            self.requested = true;
            if self.channel.request_state().is_err() {
                return false;
            }
        }
        goes_on && self.keep()
    }

    /// Keeps the agent's policies what their source says.
    fn keep(&mut self) -> bool {
        let (text, first) = match self.source.poll() {
            News::None => return true,
            News::Policies(mut policies) => {
                if let Some(tick) = self.tick {
                    policies.set_tick(tick);
                }
                match self.channel.send(&policies) {
                    Ok(()) => {
                        let new = policies.regime().version.clone();
                        let old = std::mem::replace(&mut self.version, new);
                        self.trouble = None;
                        let quiet = self.audience.has_terminal();
                        self.log.say(quiet, || {
                            format!("policies {} are in force instead of {old}", self.version)
                        });
                        return true;
                    }
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        (error.to_string(), error.to_string())
                    }
                    Err(_) => return false,
                }
            }
            News::Away(why) => (why.clone(), why),
            News::Wrong(error) => {
                let first = error.mistakes().first();
                let first = first.map_or_else(|| error.to_string(), |one| one.message.clone());
                (Failure::from(*error).text(), first)
            }
        };
        let quiet = self.audience.has_terminal();
        self.log.say(quiet, || format!("{text}\npolicies {} stay in force", self.version));
        self.trouble = Some(first);
        true
    }

    fn warn(&self, warning: Option<String>) {
        if let Some(warning) = warning {
            self.log.say(self.audience.has_terminal(), || format!("warning: {warning}"));
        }
    }
}

/// Between two turns.
const PAUSE: Duration = Duration::from_millis(10);

/// Reads policies from a file, or from a store, and watches either. There are none if `ends` ends
/// the wait for a store.
fn open(
    path: &Path,
    access: &StoreAccess,
    handover: Handover,
    ends: impl FnMut() -> bool,
) -> Result<Option<Opened>, Failure> {
    if !super::is_store(path) {
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
        let opener = Box::new(move || handover.file(Number::Policy as u8));
        let (source, policies) = FileSource::open(path, opener)?;
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
        let access = read_access(access, &handover)?;
        let opened = shape::EtcdSource::open(address, access, say, ends)?;
        Ok(opened.map(|(source, policies)| -> Opened { (Box::new(source), policies) }))
    }
    #[cfg(not(feature = "etcd"))]
    let _ = ends;
    #[cfg(not(feature = "etcd"))]
    Err(Failure::input(miette!(
        help = "build it with `--features etcd`, or give a file",
        "this build of tollway has no policies from a store"
    )))
}

#[cfg(feature = "etcd")]
fn read_access(access: &StoreAccess, handover: &Handover) -> Result<shape::Access, Failure> {
    let read = |file: &Option<std::path::PathBuf>, number: Number| -> Result<Option<Vec<u8>>, Failure> {
        let Some(path) = file else { return Ok(None) };
        let mut bytes = Vec::new();
        let file = handover.file(number as u8);
        let read = file.and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, MOST), &mut bytes));
        read.map_err(|error| {
            let help = "give a file that this user may read, and others had better not";
            Failure::input(miette!(help = help, "cannot read `{}`: {error}", path.display()))
        })?;
        Ok(Some(bytes))
    };
    let password = read(&access.store_password, Number::Password)?
        .map(|password| String::from_utf8_lossy(&password).trim_end_matches(['\n', '\r']).to_owned());
    Ok(shape::Access {
        user: access.store_user.clone().zip(password),
        authorities: read(&access.store_ca, Number::Authority)?,
        identity: read(&access.store_cert, Number::Certificate)?.zip(read(&access.store_key, Number::Key)?),
    })
}

/// Bytes of a certificate's file.
#[cfg(feature = "etcd")]
const MOST: u64 = 1 << 24;

/// Looks for a second and sets nothing.
fn dry_run(
    args: &Shape,
    policies: Policies,
    source: &dyn Source,
    signals: &Signals,
    channel: &UnixStream,
) -> Result<ExitCode, Failure> {
    let kernel = LookOnly(SockDiag::new().map_err(refused)?);
    let mut agent = Agent::new(Time::ZERO, Box::new(kernel), policies.into_regime());
    let mut last = None;
    shape::run(&mut agent, signals, |agent, turn| {
        if shape::pending(channel) == Pending::End {
            return Then::Stop;
        }
        if turn.now < Time::from_secs(1) {
            return Then::Go;
        }
        last = Some(standing(agent, turn, source.describe()));
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
