//! The agent of a site: configuration watch, control socket, HTTP pages.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub use tollway_agent::control::ask;
use tollway_agent::control::{self, ControlSocket};
pub use tollway_agent::events::{Events, Form};
use tollway_agent::file;
use tollway_agent::notify::Notifier;
use tollway_agent::serve::ServeError;
use tollway_agent::tls::TlsError;
use tollway_law::Time;
pub use tollway_net::sys::signals::{Order, Signals};
use tollway_scenario::file::ScenarioError;

use crate::config::{Keys, Site, Watch};
use crate::server::Server;
use crate::status::{OVERLAY, Status};
use crate::tls::Ends;

/// Options of [`run`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The control socket; default: [`default_socket`].
    pub socket: Option<PathBuf>,
    /// The address of the Prometheus endpoint.
    pub metrics: Option<SocketAddr>,
    /// The address of the browser view.
    pub view: Option<SocketAddr>,
}

/// An error of [`run`].
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The site's file is wrong.
    #[error(transparent)]
    Config(#[from] ScenarioError),
    /// One of its keys is wrong.
    #[error(transparent)]
    Keys(#[from] TlsError),
    /// Another process answers at the site's control socket.
    #[error("site `{site}` is already running: it answers at `{}`", path.display())]
    Runs {
        /// The site.
        site: String,
        /// Its control socket.
        path: PathBuf,
    },
    /// An address or a path can't be used.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Metrics or the view can't be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The default control socket of a site.
pub fn default_socket(site: &str) -> PathBuf {
    control::folder().join(format!("overlay-{site}.sock"))
}

/// Runs the site of the file at `path` until a signal ends it, and logs in `events`.
///
/// # Errors
/// The file or a key is wrong, an address is taken, or the site runs already.
pub fn run(path: &Path, options: &Options, signals: &Signals, events: &Events) -> Result<(), AgentError> {
    tollway_agent::raise_file_limit();
    let mut site = Site::load(path)?;
    let system = |what: String| move |source| AgentError::System { what, source };
    let socket = options.socket.clone().unwrap_or_else(|| default_socket(&site.rules.site));
    let control = ControlSocket::open(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => AgentError::Runs { site: site.rules.site.clone(), path: socket.clone() },
        _ => AgentError::System { what: format!("open `{}`", socket.display()), source: error },
    })?;
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let latest = Arc::new(Mutex::new(Status::default()));
    let read = {
        let latest = Arc::clone(&latest);
        move || serde_json::to_value(&*latest.lock().unwrap_or_else(PoisonError::into_inner)).ok()
    };
    let _served = OVERLAY.serve(options.metrics, options.view, read, events)?;
    let mut notifier = Notifier::find();
    let mut watch = Watch::new(path);
    let mut keys = site.keys.as_ref().map(Keys::watch);
    if let Some(warning) = site.readable(path) {
        events.warn("secrets", warning);
    }
    let mut trouble = None;
    let (mut epoch, mut again, mut over) = (start.as_millis() as u64, false, false);
    loop {
        let ends = Ends::load(&site)?;
        let mut server =
            Server::open(&site, ends, epoch, start.as_nanos() as u64).map_err(system("listen".into()))?;
        server.log_to(events.clone());
        events.info("start", format_args!("site {} listens at {}", site.rules.site, server.address()));
        let (mut next, mut ends_at) = (Time::ZERO, None);
        server
            .run(|server, now| {
                notifier.works();
                if let Some(new) = watch.poll() {
                    trouble = follow(server, &mut site, new, path, events);
                }
                let status = |server: &Server| {
                    let status = server.status();
                    let twice = server.broker().later_start().map(|_| TWICE.to_owned());
                    Status { trouble: trouble.clone().or(twice).or(status.trouble.clone()), ..status }
                };
                control.answer(|| serde_json::to_string(&status(server)).unwrap_or_default());
                if now >= next {
                    next = now + Time::from_secs(1);
                    reload_keys(server, &site, &mut keys, events);
                    *latest.lock().unwrap_or_else(PoisonError::into_inner) = status(server);
                }
                match signals.order() {
                    Some(Order::Reload) => {
                        watch.again();
                        keys.iter_mut().flatten().for_each(|(_, watch)| watch.again());
                    }
                    Some(Order::End) if !std::mem::replace(&mut over, true) => {
                        server.retire();
                        ends_at = Some((now + LEAST_END, now + LONGEST_END));
                    }
                    _ => {}
                }
                let ended = ends_at.is_some_and(|(least, most)| {
                    now >= most || (now >= least && server.broker().is_drained())
                });
                ended || (!again && !over && server.broker().later_start().is_some())
            })
            .map_err(system("wait for sockets".into()))?;
        match server.broker().later_start() {
            // Only once. If there is a later start again, another site of this name runs.
            Some(later) if !over && !again => {
                events.warn(
                    "restart",
                    "other sites have a later start time of this site; the clock was probably set back. The \
                    site starts again",
                );
                (epoch, again) = (later.0 + 1, true);
            }
            _ => break,
        }
    }
    notifier.stops();
    events.info("stop", format_args!("site {} ends", site.rules.site));
    Ok(())
}

/// Loads the certificates again if their files have changed.
fn reload_keys(
    server: &mut Server,
    site: &Site,
    files: &mut Option<[(PathBuf, file::Watch); 3]>,
    events: &Events,
) {
    let Some(files) = files else { return };
    let changed = files.iter_mut().map(|(path, watch)| watch.has_changed(path));
    // All are looked at, so that one change is one reload.
    if !changed.fold(false, |any, one| any | one) {
        return;
    }
    match Ends::load(site) {
        Ok(ends) => {
            server.set_ends(ends);
            events.info("certificates", "new connections use the changed certificates");
        }
        Err(error) => events.warn(
            "certificates",
            format_args!("the changed certificates are not in force: {error}; {}", error.help),
        ),
    }
}

/// Applies a newer version of the file. Returns the reason if it cannot be applied.
fn follow(
    server: &mut Server,
    site: &mut Site,
    new: Result<Site, ScenarioError>,
    path: &Path,
    events: &Events,
) -> Option<String> {
    let why = match new {
        Err(error) => {
            for mistake in error.mistakes() {
                events.warn("reload", mistake.to_line());
            }
            error.mistakes().first().map_or_else(|| error.to_string(), |one| one.message.clone())
        }
        Ok(new) => match site.fixed(&new) {
            Some(key) => format!("`{key}` takes effect at a start: restart the site"),
            None => {
                server.set_site(&new);
                *site = new;
                events.info("reload", format_args!("`{}` is in force", path.display()));
                return None;
            }
        },
    };
    let why = format!("the new configuration is not in force: {why}");
    events.warn("reload", &why);
    Some(why)
}

/// Bounds of the time between a signal and the end: messages in flight arrive, and clients and
/// other sites learn of the end.
const LEAST_END: Time = Time::from_millis(300);
const LONGEST_END: Time = Time::from_secs(2);
/// The trouble of two sites of one name.
const TWICE: &str = "another site with this name is running, and the other sites are connected to it";
