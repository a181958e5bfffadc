//! A run of a program over an emulated network, with servers, the host's services, and ways from
//! and to the outside.

mod listen;
mod outside;
mod ports;
mod refused;
mod relay;
mod servers;
mod shared;
mod tls;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tollway_net::Error;
use tollway_net::mesh::{Emulated, MeshSpec, NodeDrops, PATIENCE, Panel, Record, Start, Tap};
use tollway_net::sys::child::{Running, many_descriptors};
use tollway_net::sys::namespace::{self, Namespace};
use tollway_net::sys::signals::Signals;
use tollway_net::sys::{clean, problem};
use tollway_scenario::plan::PortChange;

pub use listen::{Listen, Listened, Listeners};
pub use ports::{Ports, Treatment};
pub use relay::Publish;
pub(crate) use shared::Shared;
pub use tls::Tls;

use outside::Outside;
use refused::Refusals;
use servers::Servers;
use tls::Authority;

/// A run: a program, its network, and its options.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The network.
    pub mesh: MeshSpec,
    /// Upper bound in bytes of a train of TCP segments that crosses the links as one packet. 0 is
    /// none: a link's law or its losses handle single packets, or a train takes too long to
    /// serialise.
    pub train: u32,
    /// Additional names for nodes.
    pub aliases: Vec<(String, u32)>,
    /// Kernel network settings at every node, as sysctl(8) names them; only `net.` belongs to a
    /// namespace.
    pub sysctls: Vec<(String, String)>,
    /// The program and its arguments. If empty, the run lasts until a signal or the timeout.
    pub program: Vec<OsString>,
    /// The program's node.
    pub node: u32,
    /// The node at the other end of the program's links, if there is only one.
    pub other: Option<u32>,
    /// Shell commands of servers at nodes, started before the program and ended after it.
    pub servers: Vec<(u32, String)>,
    /// The host's services at nodes.
    pub published: Vec<Publish>,
    /// Publishes every TCP port in use on the host's loopback interface, at every node but the
    /// program's.
    pub publish_all: bool,
    /// Ports of the host, and of nodes' own loopback interfaces, that lead into the network.
    pub listen: Vec<Listen>,
    /// Ports with TLS in front of servers.
    pub tls: Vec<Tls>,
    /// Changes of the connections to ports, in order of time.
    pub port_changes: Vec<PortChange>,
    /// The program is ended after this time.
    pub timeout: Option<Duration>,
    /// Sends the program's standard output to this process's standard error.
    pub stdout_aside: bool,
    /// The file for a capture of the packets at the program's node.
    pub capture: Option<PathBuf>,
}

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It ran too long and was ended.
    TimedOut,
}

/// Formats the predicate of a sentence.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exited(0) => f.write_str("ended"),
            Ended::Exited(code) => write!(f, "ended with exit status {code}"),
            Ended::Signalled(signal) => write!(f, "was ended by signal {signal}"),
            Ended::TimedOut => f.write_str("was ended by `--timeout`"),
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The end of the program.
    pub ended: Ended,
    /// The emulator's record.
    pub record: Record,
    /// By node, packets that the kernel dropped.
    pub kernel_drops: Vec<NodeDrops>,
    /// The ports published; with [`Spec::publish_all`], those found.
    pub published: Vec<Publish>,
    /// The connections at the ports of [`Spec::listen`], in its order.
    pub listened: Vec<Listened>,
    /// TCP ports of the program's own loopback interface that refused connections.
    pub refused: Vec<u16>,
    /// For each of [`Spec::tls`], the connections that its server did not accept.
    pub tls_refused: Vec<u64>,
    /// Packets missing from the capture, or the reason why it could not be written.
    pub captured: Result<u64, String>,
    /// The way to the outside ended during the run.
    pub outside_lost: bool,
    /// Servers that failed while the program ran: index in [`Spec::servers`], and their end.
    pub failed_servers: Vec<(usize, Ended)>,
}

/// Runs a program over a network until it ends. Connections from outside come by `listeners`, which
/// are those of `spec`. The other end of a `panel` observes and changes links meanwhile.
///
/// # Errors
/// The network can't be set up ([`Error::Namespace`]), or the program can't be started
/// ([`Error::Program`]).
pub fn run(
    spec: &Spec,
    signals: &Signals,
    panel: Option<Panel>,
    listeners: &Listeners,
) -> Result<Outcome, Error> {
    many_descriptors();
    let tap = spec.capture.as_deref().map(|path| Tap::new(path, spec.node)).transpose();
    let tap = tap.map_err(problem("write the capture"))?;
    let (emulated, start) = Emulated::watched(&spec.mesh, spec.train, tap, panel)?;
    let names = names(spec, &emulated);
    let driven = drive(spec, &emulated, start, &names, signals, listeners);
    clean::empty(emulated.namespaces());
    let recorded = emulated.finish();
    let Driven { ended, published, listened, refused, outside_lost, failed_servers } = driven?;
    let (record, kernel_drops, tap) = recorded?;
    let captured = tap.map_or(Ok(0), Tap::finish).map_err(|error| error.to_string());
    Ok(Outcome {
        ended,
        record,
        kernel_drops,
        published,
        listened,
        refused,
        tls_refused: listeners.authority().map(Authority::refused).unwrap_or_default(),
        captured,
        outside_lost,
        failed_servers,
    })
}

/// The end of a program, and the state of its servers and services.
struct Driven {
    ended: Ended,
    published: Vec<Publish>,
    listened: Vec<Listened>,
    refused: Vec<u16>,
    outside_lost: bool,
    failed_servers: Vec<(usize, Ended)>,
}

/// Sets sysctls, starts servers, publishes ports, starts the program and waits for its end.
fn drive(
    spec: &Spec,
    emulated: &Emulated,
    start: Start,
    names: &[(String, IpAddr)],
    signals: &Signals,
    listeners: &Listeners,
) -> Result<Driven, Error> {
    let namespaces = emulated.namespaces();
    let mut outside = prepare(spec, namespaces, signals)?;
    let resolver = outside.as_ref().map(|_| outside::RESOLVER);
    let interrupted = signals.has_come();
    let mut servers = Servers::default();
    servers.start(spec, namespaces, names, resolver, signals, listeners.authority())?;
    if let Some(authority) = listeners.authority() {
        let addresses = |node| emulated.addresses(node).collect();
        authority.start(spec, namespaces, addresses, |node, name, what| servers.in_use(node, name, what))?;
    }
    let published = publish(spec, emulated, &servers, listeners)?;
    listeners.start_inside(spec, namespaces, &servers)?;
    listeners.ports().have(&spec.port_changes, &spec.mesh.nodes)?;
    // Only the report needs them.
    let refusals = Refusals::watch(&namespaces[spec.node as usize]).ok();
    if let Some(signal) = interrupted.or_else(|| signals.has_come()) {
        return Err(Error::Interrupted { signal });
    }

    let follow = listeners.ports().follow(&spec.port_changes)?;
    let begin = move || {
        start.now();
        follow();
    };
    let ended = if spec.program.is_empty() {
        begin();
        listeners.start(namespaces)?;
        match signals.sleep(spec.timeout.unwrap_or(FOREVER)) {
            true => Ended::Exited(0),
            false => Ended::TimedOut,
        }
    } else {
        let name = spec.program[0].to_string_lossy().into_owned();
        let mut command = Command::new(&spec.program[0]);
        command.args(&spec.program[1..]).env(clean::MARK, clean::mark());
        if let Some(authority) = listeners.authority() {
            authority.export(&mut command);
        }
        if spec.stdout_aside {
            aside(&mut command)?;
        }
        let namespace = &namespaces[spec.node as usize];
        let mut program = Running::start(namespace, names, resolver, &name, command, signals, begin)?;
        listeners.start(namespaces)?;
        await_program(&mut program, spec.timeout, signals)
    };
    emulated.wind_up();
    let outside_lost = outside.as_mut().is_some_and(Outside::is_gone);
    let (listened, failed_servers) = (listeners.counts(), servers.failed());
    let refused = refusals.map(|refusals| refusals.ports()).unwrap_or_default();
    Ok(Driven { ended, published, listened, refused, outside_lost, failed_servers })
}

/// Sets sysctls, and opens the way to the outside.
fn prepare(spec: &Spec, namespaces: &[Namespace], signals: &Signals) -> Result<Option<Outside>, Error> {
    for namespace in namespaces {
        for (key, value) in &spec.sysctls {
            let failed = |error| {
                let congestion = key == "net.ipv4.tcp_congestion_control";
                let source = if congestion { namespace::congestion_refused(value, error) } else { error };
                Error::Sysctl { key: key.clone(), value: value.clone(), source }
            };
            namespace.set(key, value).map_err(failed)?;
        }
    }
    spec.mesh.outside.map(|gateway| Outside::open(namespaces, gateway, signals)).transpose()
}

/// The names of nodes with their addresses, those of IPv4 first.
fn names(spec: &Spec, emulated: &Emulated) -> Vec<(String, IpAddr)> {
    let named = spec.mesh.nodes.iter().zip(0..).chain(spec.aliases.iter().map(|(name, node)| (name, *node)));
    let mut names: Vec<(String, IpAddr)> = named
        .flat_map(|(name, node)| emulated.addresses(node).map(move |address| (name.clone(), address)))
        .collect();
    names.sort_by_key(|(_, address)| address.is_ipv6());
    names
}

/// Opens the published ports.
fn publish(
    spec: &Spec,
    emulated: &Emulated,
    servers: &Servers,
    listeners: &Listeners,
) -> Result<Vec<Publish>, Error> {
    let namespaces = emulated.namespaces();
    let start = |publish: &Publish| {
        let addresses = emulated.addresses(publish.node);
        relay::start(&namespaces[publish.node as usize], addresses, *publish, listeners.ports())
    };
    for publish in &spec.published {
        let node = &spec.mesh.nodes[publish.node as usize];
        start(publish).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => {
                servers.in_use(publish.node, node, format!("`--publish {}`", publish.port))
            }
            _ => Error::Publish { node: node.clone(), port: publish.port, source },
        })?;
    }
    let mut published = spec.published.clone();
    if spec.publish_all {
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let ports: std::collections::BTreeSet<u16> =
            tables.iter().flat_map(|table| namespace::listening(table)).collect();
        // A port that leads into the network would lead back to itself.
        let ports: Vec<u16> = ports.into_iter().filter(|&port| !listeners.take(port)).collect();
        for node in (0..namespaces.len() as u32).filter(|&node| node != spec.node).take(MANY) {
            for &port in &ports {
                let one = Publish { node, port, host: port, udp: false };
                // A server of the run may use the port; it has priority over the host's.
                if start(&one).is_ok() {
                    published.push(one);
                }
            }
        }
    }
    Ok(published)
}

/// Waits for the program. Forwards signals to it, and ends it after `timeout`.
fn await_program(program: &mut Running, timeout: Option<Duration>, signals: &Signals) -> Ended {
    let until = timeout.map(|span| Instant::now() + span);
    let mut timed_out = false;
    let mut patience = until;
    loop {
        // SIGCHLD wakes this thread and the thread with the exit status at the same instant.
        if let Some(status) = program.await_end(BRIEF) {
            return match timed_out {
                true => Ended::TimedOut,
                false => ended(status),
            };
        }
        if patience.is_some_and(|until| Instant::now() >= until) {
            program.signal(if timed_out { Signal::KILL } else { Signal::TERM });
            timed_out = true;
            patience = Some(Instant::now() + PATIENCE);
        }
        let left = patience.map_or(TICK, |until| until.saturating_duration_since(Instant::now()));
        if let Some(signal) = signals.wait(program.pid, left.min(TICK)) {
            program.signal(signal);
        }
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signalled(signal.unwrap_or(libc::SIGKILL)),
    }
}

/// Sends a program's standard output to this process's standard error.
fn aside(command: &mut Command) -> Result<(), Error> {
    let ours = std::io::stderr().as_fd().try_clone_to_owned().map_err(problem("copy a descriptor"))?;
    command.stdout(ours);
    Ok(())
}

/// Longest delay between the signal of a program's end and its exit status.
const BRIEF: Duration = Duration::from_millis(2);
/// Interval between checks of conditions that wake no thread.
const TICK: Duration = Duration::from_millis(100);
/// The length of a run without a program or a limit.
const FOREVER: Duration = Duration::from_secs(1 << 32);
/// Upper bound of nodes at which all ports are published.
const MANY: usize = 16;
