//! The agent's worker: its readers, and the source of its policies.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;

use miette::miette;
use serde_json::Value;
use tollway_agent::events::Level;
use tollway_agent::serve::Served;
use tollway_law::Time;
use tollway_scenario::file::ScenarioError;
use tollway_shape::policies::FileSource;
use tollway_shape::status::SHAPE;
use tollway_shape::worker::{self, Opened};
use tollway_shape::{self as shape, Events, Handover, Number, Signals, service};

use super::{paces_nothing, refused, unable};
use crate::args::{Shape, StoreAccess};
use crate::audience::Audience;
use crate::fail::Failure;
use crate::terminal;

/// Runs until the agent ends, or a reader ends it.
pub(super) fn run(args: &Shape, tick: Option<Time>) -> Result<ExitCode, Failure> {
    // Must precede the first thread, as must the steps below.
    let signals = Signals::hold();
    shape::give_up_all().map_err(unable)?;
    let handover = Handover::of_stdin().map_err(unable)?;
    let channel = UnixStream::from(handover.request(Number::Channel).map_err(unable)?);
    let path = args.policy.clone().unwrap_or_default();
    let ends = || signals.has_come().is_some() || worker::has_ended(&channel);
    let Some((source, mut policies)) = open(&path, &args.store, handover, ends)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(tick) = tick {
        policies.set_tick(tick);
    }
    if args.dry_run {
        let ends = || worker::has_ended(&channel);
        let standing = service::dry_run(policies, source.describe(), &signals, ends).map_err(refused)?;
        match standing {
            Some(standing) if args.json => terminal::say_json(&standing),
            Some(standing) => terminal::say(standing.to_text(terminal::width(), usize::MAX)),
            None => {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    let handover = Handover::of_stdin().map_err(unable)?;
    let listener = UnixListener::from(handover.request(Number::Status).map_err(unable)?);
    let mut audience = Audience::open(args.json)?;
    let events = args.log.open().map_err(unable)?;
    let _served = match args.metrics {
        None => Served::default(),
        address => SHAPE.serve(address, None, audience.latest(), &events)?,
    };
    let regime = policies.regime();
    let (version, is_empty) = (regime.version.clone(), regime.tenants.is_empty());
    let text = |error: ScenarioError| Failure::from(error).text();
    let started = worker::Worker::start(channel, listener, (source, policies), tick, text);
    let mut worker = started.map_err(unable)?;
    if !worker.await_agent(&signals) {
        return Ok(ExitCode::SUCCESS);
    }
    #[cfg(feature = "watch")]
    if args.watch {
        audience.watch(&SHAPE, " q remove all paces and quit   ↑ ↓ scroll ", &events)?;
    }
    if is_empty {
        events.warn("start", paces_nothing(&version));
    }
    events.info(
        "start",
        format_args!(
            "policies {version} of `{}` are in force; `tollway shape status` prints their state, Ctrl-C ends \
            them",
            path.display()
        ),
    );
    worker.run(&signals, Readers { audience, events });
    Ok(ExitCode::SUCCESS)
}

/// Shows the agent's state to its readers, and logs events.
struct Readers {
    audience: Audience,
    events: Events,
}

impl worker::Audience for Readers {
    fn show(&mut self, state: impl FnOnce() -> Option<Value>) -> bool {
        self.audience.show(state)
    }

    fn log(&mut self, level: Level, kind: &'static str, message: String) {
        self.events.log(level, kind, message);
    }
}

/// Reads policies from a file or a store, and watches it. Returns none if `ends` ends the wait for
/// a store.
fn open(
    path: &Path,
    access: &StoreAccess,
    handover: Handover,
    ends: impl FnMut() -> bool,
) -> Result<Option<Opened>, Failure> {
    if !super::is_store(path) {
        if access.is_given() {
            return Err(Failure::input(miette!(
                help = "give a store as `--policy etcd://HOST:PORT/PREFIX`, or leave out the `--store-…` options",
                "`{}` is a file, so it has no user and no certificate",
                path.display()
            )));
        }
        if let Some((scheme, rest)) = path.to_str().and_then(|path| path.split_once("://")) {
            let meant = if scheme == "https" { "etcds" } else { "etcd" };
            return Err(Failure::input(miette!(
                help = format!("write `--policy {meant}://{rest}`: `etcds://` uses TLS, `etcd://` does not"),
                "`{}` is neither a file nor a store",
                path.display()
            )));
        }
        let opener = Box::new(move || handover.file(Number::Policy));
        let (source, policies) = FileSource::open(path, opener)?;
        return Ok(Some((Box::new(source), policies)));
    }
    let tls = path.to_str().is_some_and(|path| path.starts_with("etcds://"));
    if tls != access.store_ca.is_some() {
        let path = path.display();
        return Err(match tls {
            true => Failure::input(miette!(
                help = "give the certificate of the authority that signed it with `--store-ca FILE`",
                "`{path}` uses TLS, and no authority is given to check its certificate"
            )),
            false => Failure::input(miette!(
                help = "write `etcds://` for TLS, or leave out `--store-ca`",
                "`{path}` is a store without TLS, so it has no certificate"
            )),
        });
    }
    #[cfg(feature = "etcd")]
    {
        let address = path.to_str().unwrap_or_default();
        let say = |why: &str| terminal::tell(why);
        let access = read_access(access, &handover)?;
        let opened = shape::policies::EtcdSource::open(address, access, say, ends)?;
        Ok(opened.map(|(source, policies)| -> Opened { (Box::new(source), policies) }))
    }
    #[cfg(not(feature = "etcd"))]
    let _ = ends;
    #[cfg(not(feature = "etcd"))]
    Err(Failure::input(miette!(
        help = "build it with `--features etcd`, or give a file",
        "this build of tollway cannot read policies from a store"
    )))
}

#[cfg(feature = "etcd")]
fn read_access(access: &StoreAccess, handover: &Handover) -> Result<shape::etcd::Access, Failure> {
    use std::io::Read;

    let read = |file: &Option<std::path::PathBuf>, number: Number| -> Result<Option<Vec<u8>>, Failure> {
        let Some(path) = file else { return Ok(None) };
        let mut bytes = Vec::new();
        let file = handover.file(number);
        let read = file.and_then(|file| file.take(MOST).read_to_end(&mut bytes));
        read.map_err(|error| {
            let help = "give a file that only this user can read";
            Failure::input(miette!(help = help, "cannot read `{}`: {error}", path.display()))
        })?;
        Ok(Some(bytes))
    };
    let password = read(&access.store_password, Number::Password)?
        .map(|password| String::from_utf8_lossy(&password).trim_end_matches(['\n', '\r']).to_owned());
    Ok(shape::etcd::Access {
        user: access.store_user.clone().zip(password),
        authorities: read(&access.store_ca, Number::Authority)?,
        identity: read(&access.store_cert, Number::Certificate)?.zip(read(&access.store_key, Number::Key)?),
    })
}

/// Upper bound of a certificate file, in bytes.
#[cfg(feature = "etcd")]
const MOST: u64 = 1 << 24;
