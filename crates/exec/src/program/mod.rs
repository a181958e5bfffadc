//! A program over an emulated network: its servers, the host's services, the world outside, and its end.

mod outside;
mod relay;
mod servers;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tollway_net::Error;
use tollway_net::mesh::{Emulated, MeshSpec, PATIENCE, Panel, Record, Start, Tap};
use tollway_net::sys::child::{Running, many_descriptors};
use tollway_net::sys::namespace::{self, Namespace};
use tollway_net::sys::signals::Signals;
use tollway_net::sys::{address, clean, problem};

pub use relay::Publish;

use outside::Outside;
use servers::Servers;

/// What to run, and over what.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The network.
    pub mesh: MeshSpec,
    /// Bytes of the longest train of TCP segments that may cross the links as one; 0 is none, since a link's law or its
    /// chance wants to see each packet, or a train takes too long to serialise.
    pub train: u32,
    /// Names for nodes beside their own.
    pub aliases: Vec<(String, u32)>,
    /// Settings of the kernel's network at every node, as sysctl(8) names them; only `net.` is a namespace's own.
    pub sysctls: Vec<(String, String)>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// The node where it runs.
    pub node: u32,
    /// Shell commands that serve at nodes, started before the program and ended after it.
    pub servers: Vec<(u32, String)>,
    /// The host's services at nodes.
    pub published: Vec<Publish>,
    /// Every TCP port on which somebody listens on the host's loopback interface, at every node but the program's.
    pub publish_all: bool,
    /// The program is ended after so long.
    pub timeout: Option<Duration>,
    /// What the program writes to its standard output goes to our standard error.
    pub stdout_aside: bool,
    /// Where to write what enters and leaves the program's node.
    pub capture: Option<PathBuf>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an exit status.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// It took too long and was ended.
    TimedOut,
}

/// As the rest of a sentence.
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

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the program ended.
    pub ended: Ended,
    /// What the emulator saw.
    pub record: Record,
    /// By node, packets that the kernel had no room for: sent by programs and never read, and handed back and never received.
    pub kernel_drops: Vec<(u64, u64)>,
    /// What was published: with [`Spec::publish_all`], what was found.
    pub published: Vec<Publish>,
    /// Packets that the capture had no time for, or why it could not be written.
    pub captured: Result<u64, String>,
    /// What led to the world outside broke off on the way.
    pub outside_lost: bool,
    /// Servers that failed while the program ran: which of [`Spec::servers`], and how.
    pub failed_servers: Vec<(usize, Ended)>,
}

/// Runs a program over a network, until it ends; a `panel`'s other end sees and changes its links meanwhile.
///
/// # Errors
/// The network can't be set up ([`Error::Namespace`]), or the program not be started ([`Error::Program`]).
pub fn run(spec: &Spec, signals: &Signals, panel: Option<Panel>) -> Result<Outcome, Error> {
    many_descriptors();
    let named = spec.mesh.nodes.iter().cloned().zip(0..).chain(spec.aliases.iter().cloned());
    let names: Vec<(String, Ipv4Addr)> = named.map(|(name, node)| (name, address(node))).collect();
    let tap = spec.capture.as_deref().map(|path| Tap::new(path, spec.node)).transpose();
    let tap = tap.map_err(problem("write the capture"))?;
    let (emulated, start) = Emulated::watched(&spec.mesh, spec.train, tap, panel)?;
    let driven = drive(spec, &emulated, start, &names, signals);
    clean::empty(emulated.namespaces());
    let recorded = emulated.finish();
    let Driven { ended, published, outside_lost, failed_servers } = driven?;
    let (record, kernel_drops, tap) = recorded?;
    let captured = tap.map_or(Ok(0), Tap::finish).map_err(|error| error.to_string());
    Ok(Outcome { ended, record, kernel_drops, published, captured, outside_lost, failed_servers })
}

/// How a program ended, and what was there for it.
struct Driven {
    ended: Ended,
    published: Vec<Publish>,
    outside_lost: bool,
    failed_servers: Vec<(usize, Ended)>,
}

/// Sets, serves, publishes, starts the program and waits for its end.
fn drive(
    spec: &Spec,
    emulated: &Emulated,
    start: Start,
    names: &[(String, Ipv4Addr)],
    signals: &Signals,
) -> Result<Driven, Error> {
    let namespaces = emulated.namespaces();
    for namespace in namespaces {
        for (key, value) in &spec.sysctls {
            let failed = |source| Error::Sysctl { key: key.clone(), value: value.clone(), source };
            namespace.set(key, value).map_err(failed)?;
        }
    }
    let mut outside =
        spec.mesh.outside.map(|gateway| Outside::open(namespaces, gateway, signals)).transpose()?;
    let resolver = outside.as_ref().map(|_| outside::RESOLVER);
    let interrupted = signals.has_come();
    let mut servers = Servers::default();
    servers.start(spec, namespaces, names, resolver, signals)?;
    let published = publish(spec, namespaces, &servers)?;
    if let Some(signal) = interrupted.or_else(|| signals.has_come()) {
        return Err(Error::Interrupted { signal });
    }

    let name = spec.program[0].to_string_lossy().into_owned();
    let mut command = Command::new(&spec.program[0]);
    command.args(&spec.program[1..]).env(clean::MARK, clean::mark());
    if spec.stdout_aside {
        aside(&mut command)?;
    }
    let namespace = &namespaces[spec.node as usize];
    let mut program = Running::start(namespace, names, resolver, &name, command, signals, || start.now())?;
    let ended = await_program(&mut program, spec.timeout, signals);
    emulated.wind_up();
    let outside_lost = outside.as_mut().is_some_and(Outside::is_gone);
    Ok(Driven { ended, published, outside_lost, failed_servers: servers.failed() })
}

/// Opens the ports that are to be published.
fn publish(spec: &Spec, namespaces: &[Namespace], servers: &Servers) -> Result<Vec<Publish>, Error> {
    let start =
        |publish: &Publish| relay::start(&namespaces[publish.node as usize], address(publish.node), *publish);
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
        for node in (0..namespaces.len() as u32).filter(|&node| node != spec.node).take(MANY) {
            for &port in &ports {
                let one = Publish { node, port, host: port, udp: false };
                // A server of the run may have the port; then it is not the host's that is wanted.
                if start(&one).is_ok() {
                    published.push(one);
                }
            }
        }
    }
    Ok(published)
}

/// Waits for the program, hands signals on to it, and ends it when its time is over.
fn await_program(program: &mut Running, timeout: Option<Duration>, signals: &Signals) -> Ended {
    let until = timeout.map(|span| Instant::now() + span);
    let mut timed_out = false;
    let mut patience = until;
    loop {
        // SIGCHLD wakes this thread and the one that has the exit status at the same instant.
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

/// Lets a program write to our standard error instead of our standard output.
fn aside(command: &mut Command) -> Result<(), Error> {
    let ours = std::io::stderr().as_fd().try_clone_to_owned().map_err(problem("copy a descriptor"))?;
    command.stdout(ours);
    Ok(())
}

/// Longest delay between the signal of a program's end and its exit status.
const BRIEF: Duration = Duration::from_millis(2);
/// How often what can't wake us is looked for.
const TICK: Duration = Duration::from_millis(100);
/// Nodes at which everything is published.
const MANY: usize = 16;
