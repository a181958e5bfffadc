//! The agent of a site: configuration watch, control socket, HTTP pages.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tollway_law::Time;
pub use tollway_net::sys::control::ask;
use tollway_net::sys::control::{self, ControlSocket};
pub use tollway_net::sys::signals::Signals;

use crate::config::{ConfigError, Keys, Mark, Site, Watch};
use crate::server::Server;
use crate::status::Status;
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
    /// The site's file, or one of its keys, is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
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
}

/// The default control socket of a site.
pub fn default_socket(site: &str) -> PathBuf {
    control::folder().join(format!("overlay-{site}.sock"))
}

/// Runs the site of the file at `path` until a signal ends it. `tell` receives log lines.
///
/// # Errors
/// The file or a key is wrong, an address is taken, or the site runs already.
pub fn run(
    path: &Path,
    options: &Options,
    signals: &Signals,
    mut tell: impl FnMut(String),
) -> Result<(), AgentError> {
    let mut site = Site::load(path)?;
    let system = |what: String| move |source| AgentError::System { what, source };
    let socket = options.socket.clone().unwrap_or_else(|| default_socket(&site.rules.site));
    let control = ControlSocket::open(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => AgentError::Runs { site: site.rules.site.clone(), path: socket.clone() },
        _ => AgentError::System { what: format!("open `{}`", socket.display()), source: error },
    })?;
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let latest = Arc::new(Mutex::new(Status::default()));
    let _pages = pages(options, &latest, &mut tell)?;
    let mut watch = Watch::new(path);
    let mut key_marks = site.keys.as_ref().map(Keys::marks);
    if let Some(warning) = site.readable(path) {
        tell(format!("warning: {warning}"));
    }
    let mut trouble = None;
    let (mut epoch, mut again, mut over) = (start.as_millis() as u64, false, false);
    loop {
        let ends = site.keys.as_ref().map(|keys| Ends::load(keys, &site.rules)).transpose()?;
        let mut server =
            Server::open(&site, ends, epoch, start.as_nanos() as u64).map_err(system("listen".into()))?;
        tell(format!("site {} listens at {}", site.rules.site, server.address()));
        let (mut next, mut ends_at) = (Time::ZERO, None);
        server
            .run(|server, now| {
                server.take_notes().into_iter().for_each(&mut tell);
                if let Some(new) = watch.poll() {
                    trouble = follow(server, &mut site, new, path, &mut tell);
                }
                let status = |server: &Server| {
                    let status = server.status();
                    let twice = server.broker().later_start().map(|_| TWICE.to_owned());
                    Status { trouble: trouble.clone().or(twice).or(status.trouble.clone()), ..status }
                };
                control.answer(|| serde_json::to_string(&status(server)).unwrap_or_default());
                if now >= next {
                    next = now + Time::from_secs(1);
                    reload_keys(server, &site, &mut key_marks, &mut tell);
                    *latest.lock().unwrap_or_else(PoisonError::into_inner) = status(server);
                }
                if signals.has_come().is_some() && !std::mem::replace(&mut over, true) {
                    server.retire();
                    ends_at = Some((now + LEAST_END, now + LONGEST_END));
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
                tell(
                    "other sites have a later start time of this site; the clock was probably set back. The \
                    site starts again"
                        .into(),
                );
                (epoch, again) = (later.0 + 1, true);
            }
            _ => return Ok(()),
        }
    }
}

/// Loads the certificates again if their files have changed.
fn reload_keys(
    server: &mut Server,
    site: &Site,
    known: &mut Option<Vec<Option<Mark>>>,
    tell: &mut impl FnMut(String),
) {
    let Some(keys) = &site.keys else { return };
    let marks = Some(keys.marks());
    if *known == marks {
        return;
    }
    *known = marks;
    match Ends::load(keys, &site.rules) {
        Ok(ends) => {
            server.set_ends(ends);
            tell("new connections use the changed certificates".into());
        }
        Err(error) => tell(format!("the changed certificates are not in force: {error}; {}", error.help)),
    }
}

/// Applies a newer version of the file. Returns the reason if it cannot be applied.
fn follow(
    server: &mut Server,
    site: &mut Site,
    new: Result<Site, ConfigError>,
    path: &Path,
    tell: &mut impl FnMut(String),
) -> Option<String> {
    let (why, help) = match new {
        Err(error) => (error.message.clone(), format!("{error}; {}", error.help)),
        Ok(new) => match site.fixed(&new) {
            Some(key) => {
                let why = format!("`{key}` takes effect at a start: restart the site");
                (why.clone(), why)
            }
            None => {
                server.set_site(&new);
                *site = new;
                tell(format!("`{}` is in force", path.display()));
                return None;
            }
        },
    };
    tell(format!("the new configuration is not in force: {help}"));
    Some(format!("the new configuration is not in force: {why}"))
}

/// Bounds of the time between a signal and the end: messages in flight arrive, and clients and
/// other sites learn of the end.
const LEAST_END: Time = Time::from_millis(300);
const LONGEST_END: Time = Time::from_secs(2);
/// The trouble of two sites of one name.
const TWICE: &str = "another site with this name is running, and the other sites are connected to it";

/// The HTTP servers of a site, stopped on drop.
#[derive(Debug, Default)]
struct Pages {
    #[cfg(feature = "metrics")]
    _metrics: Option<tollway_report::watch::metrics::Metrics>,
    #[cfg(feature = "view")]
    _view: Option<crate::view::View>,
}

fn pages(
    options: &Options,
    latest: &Arc<Mutex<Status>>,
    tell: &mut impl FnMut(String),
) -> Result<Pages, AgentError> {
    let mut pages = Pages::default();
    let _ = (&mut pages, latest, &tell);
    if let Some(address) = options.metrics {
        #[cfg(feature = "metrics")]
        {
            let served =
                crate::metrics::serve(Arc::clone(latest), address).map_err(|error| AgentError::System {
                    what: "serve metrics".into(),
                    source: io::Error::other(error.to_string()),
                })?;
            tell(format!("metrics at http://{}/metrics", served.address()));
            pages._metrics = Some(served);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = address;
    }
    if let Some(address) = options.view {
        #[cfg(feature = "view")]
        {
            let view = crate::view::View::serve(Arc::clone(latest), address);
            let view = view.map_err(|source| AgentError::System { what: "serve the view".into(), source })?;
            tell(format!("view at {}", view.url()));
            pages._view = Some(view);
        }
        #[cfg(not(feature = "view"))]
        let _ = address;
    }
    Ok(pages)
}
