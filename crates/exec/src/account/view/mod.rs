//! A page in the browser while a program runs: current rates, queues and round trips, and controls
//! for links.
//!
//! | request | answer |
//! |---|---|
//! | `GET /TOKEN/` | the page |
//! | `GET /TOKEN/data?after=N` | the moments after number N, as JSON |
//! | `POST /TOKEN/link` | `{"link": "down", "rate_mbps": 5, "delay_ms": 40, "loss": 0.01}` |
//! | `POST /TOKEN/port` | `{"port": "server:80", "connections": "reset", "close_delay_ms": 5}` |
//!
//! The last two change a link, and the connections to a port. All keys but the first are optional.
//! `docs/src/notes/exec.md` documents the interface, which is stable.
//!
//! Links can be changed only with the address, which contains a random token. The server listens on
//! loopback only, and accepts no other host name, so that a page from elsewhere cannot reach it
//! through the browser (DNS rebinding).

#[cfg(any(test, fuzzing))]
#[path = "tests/fuzzing.rs"]
pub(crate) mod fuzzing;
mod port;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollway_law::{Rate, Time};
use tollway_report::http::{Request, Response, Server};
use tollway_scenario::plan::Plan;

use crate::change::{LinkFace, changes};
use crate::{FlowMoment, LinkMoment, Moment, Ports, Remote, Spec};
use serde_json::{Value, json};

use super::{command, name};
use port::{port_change, port_name};

/// The reason why the page can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The address is not a loopback one: others on the network could change links.
    #[error("{0} is not a loopback address, and the view is for this machine only")]
    NotLoopback(SocketAddr),
    /// The address is in use, or a system resource is missing.
    #[error("cannot serve the view at {address}: {message}")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// The system's message.
        message: String,
    },
}

/// Serves the page from background threads until it is dropped.
pub struct View {
    _server: Server,
    /// The thread that stores moments between requests ends once this is dropped.
    _keeper: Sender<()>,
    url: String,
}

impl View {
    /// Starts a server at `address`, on a loopback interface; port 0 is any free one. Its threads
    /// inherit the caller's signal mask, so signals must be [held](crate::Signals) before.
    ///
    /// # Errors
    /// The address is not a loopback one, or in use.
    pub fn serve(
        plan: &Plan,
        spec: &Spec,
        remote: Remote,
        ports: &Ports,
        address: SocketAddr,
    ) -> Result<View, ViewError> {
        if !address.ip().is_loopback() {
            return Err(ViewError::NotLoopback(address));
        }
        let refused = |error: io::Error| ViewError::Serve { address, message: error.to_string() };
        let token = token().map_err(refused)?;
        let desk = Arc::new(Mutex::new(Desk::new(plan, spec, remote, ports.clone(), token.clone())));
        let asked = Arc::clone(&desk);
        let server = Server::serve(address, "view", move |request| {
            let mut desk = asked.lock().unwrap_or_else(PoisonError::into_inner);
            desk.keep();
            desk.answer(request)
        })
        .map_err(refused)?;
        let (keeper, ends) = mpsc::channel();
        let keep = move || {
            while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(TICK) {
                desk.lock().unwrap_or_else(PoisonError::into_inner).keep();
            }
        };
        std::thread::Builder::new().name("view".into()).spawn(keep).map_err(refused)?;
        let url = format!("http://{}/{token}/", server.address());
        Ok(View { _server: server, _keeper: keeper, url })
    }

    /// The address of the page. It allows changes of links.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

/// The state behind the page, and the answers to requests.
struct Desk {
    token: String,
    title: String,
    nodes: Vec<String>,
    links: Vec<LinkFace>,
    /// The nodes at both ends of each link.
    ends: Vec<[String; 2]>,
    remote: Remote,
    ports: Ports,
    /// The moments of the last minutes, and the number of the first.
    moments: VecDeque<Moment>,
    first: u64,
}

impl Desk {
    fn new(plan: &Plan, spec: &Spec, remote: Remote, ports: Ports, token: String) -> Desk {
        let node = |id: u32| spec.mesh.nodes[id as usize].clone();
        Desk {
            token,
            title: command(spec),
            nodes: spec.mesh.nodes.clone(),
            links: LinkFace::all(plan),
            ends: plan.links.iter().map(|link| [node(link.from.0), node(link.to.0)]).collect(),
            remote,
            ports,
            moments: VecDeque::new(),
            first: 0,
        }
    }

    /// Stores new moments, and drops the oldest.
    fn keep(&mut self) {
        self.moments.extend(self.remote.moments());
        while self.moments.len() > KEPT {
            self.moments.pop_front();
            self.first += 1;
        }
    }

    fn answer(&self, request: &Request) -> Response {
        let inside = request.path.strip_prefix('/').and_then(|path| path.strip_prefix(self.token.as_str()));
        match (request.method.as_str(), inside) {
            ("GET", Some("/")) => {
                let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                              connect-src 'self'; frame-ancestors 'none'";
                let page = typed(200, "text/html; charset=utf-8", PAGE.to_owned());
                page.with("Content-Security-Policy", policy)
            }
            ("GET", Some("/data")) => match after(&request.query) {
                Some(after) => typed(200, "application/json", self.data(after).to_string()),
                None => words(400, "request `data` or `data?after=N`, with N the number of an interval\n"),
            },
            ("POST", Some("/link")) => match self.change(&request.body) {
                Ok(()) => typed(200, "application/json", "{}".into()),
                Err(why) => words(400, &format!("{why}\n")),
            },
            ("POST", Some("/port")) => match self.change_port(&request.body) {
                Ok(()) => typed(200, "application/json", "{}".into()),
                Err(why) => words(400, &format!("{why}\n")),
            },
            _ => words(404, "use the address that `tollway exec --view` has printed\n"),
        }
    }

    /// The moments after the number `after`, as JSON.
    fn data(&self, after: u64) -> Value {
        let skipped = after.saturating_sub(self.first).min(self.moments.len() as u64) as usize;
        let last = self.moments.back();
        let faces = self.links.iter().enumerate().map(|(i, face)| {
            let setting = last.map(|moment| moment.links[i].setting);
            json!({
                "name": face.name, "from": self.ends[i][0], "to": self.ends[i][1],
                "rate_mbps": setting.and_then(|setting| setting.rate).map(Rate::mbps),
                "delay_ms": setting.map(|setting| setting.delay.as_millis_f64()),
                "loss": setting.map(|setting| setting.loss),
            })
        });
        let ports = self.ports.list().into_iter().map(|(key, treatment)| {
            json!({
                "name": port_name(&self.nodes, key),
                "connections": treatment.connections.word(),
                "close_delay_ms": treatment.close_delay.as_secs_f64() * 1e3,
            })
        });
        let moment = |moment: &Moment| {
            json!({
                "t": moment.until.nearest_secs(),
                "links": moment.links.iter().map(link_json).collect::<Vec<_>>(),
                "flows": moment.flows.iter().map(|flow| self.flow_json(flow)).collect::<Vec<_>>(),
            })
        };
        json!({
            "title": self.title,
            "last": self.first + self.moments.len() as u64,
            "links": faces.collect::<Vec<_>>(),
            "ports": ports.collect::<Vec<_>>(),
            "moments": self.moments.iter().skip(skipped).map(moment).collect::<Vec<_>>(),
        })
    }

    fn flow_json(&self, flow: &FlowMoment) -> Value {
        json!({
            "flow": name(&self.nodes, &flow.tuple),
            "mbps": flow.rate.mbps(), "rtt_ms": flow.rtt.map(Time::as_millis_f64),
        })
    }

    /// Applies a request: all its changes, or none.
    fn change(&self, text: &str) -> Result<(), String> {
        let (link, changes) = changes(&self.links, text)?;
        changes.into_iter().for_each(|change| self.remote.change(link, change));
        Ok(())
    }

    /// Applies a request for a change of connections.
    fn change_port(&self, text: &str) -> Result<(), String> {
        let change = port_change(&self.ports, &self.nodes, text)?;
        self.ports.change(change).map(drop).map_err(|error| error.to_string())
    }
}

fn link_json(link: &LinkMoment) -> Value {
    json!({"mbps": link.rate.mbps(), "queue_ms": link.wait.map(Time::as_millis_f64), "drops": link.drops})
}

/// The number in `after=N`; zero for an empty query.
fn after(query: &str) -> Option<u64> {
    if query.is_empty() { Some(0) } else { query.strip_prefix("after=")?.parse().ok() }
}

/// 128 random bits from the system, in hexadecimal digits.
fn token() -> io::Result<String> {
    Ok(tollway_net::random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn words(status: u16, text: &str) -> Response {
    typed(status, "text/plain; charset=utf-8", text.to_owned())
}

fn typed(status: u16, kind: &'static str, text: String) -> Response {
    Response::new(status, kind, text)
        .with("Cache-Control", "no-store")
        .with("Referrer-Policy", "no-referrer")
        .with("X-Content-Type-Options", "nosniff")
}

/// The page, without other files or servers.
const PAGE: &str = include_str!("page.html");
/// The interval between looks for new moments.
const TICK: Duration = Duration::from_secs(1);
/// Upper bound of stored moments: two minutes.
const KEPT: usize = 1200;

#[cfg(test)]
mod tests;
