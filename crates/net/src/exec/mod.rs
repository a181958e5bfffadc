//! Unmodified programs over an emulated network, without root.
//!
//! Every node of the network is a network namespace with one interface, and every packet that a program sends there comes to
//! the emulator, which carries it over the links of its way ([`Mesh`]) and hands it to the kernel at its destination. Namespaces have
//! no name and die with the run; the interfaces are the emulator's own ends, and nothing reaches a network outside.
//!
//! | | |
//! |---|---|
//! | [`Privilege::acquire`] | the right to make namespaces: root's, or that of a user namespace |
//! | [`Spec`], [`run`] | a network, a program in it, servers and the host's services |
//! | [`run_kernel`] | the kernel's own TCP between nodes, without programs |
//! | [`panel()`] | links seen and changed meanwhile |
//! | [`clean()`] | what a run that was killed has left behind |
//! | [`Record`] | what the emulator saw: links, flows, lateness, every drop by its cause |

mod bridge;
mod capture;
mod child;
mod kernel_run;
mod mesh;
mod outside;
mod panel;
mod relay;
mod servers;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::process::Signal;

pub use bridge::{LinkRecord, Record};
pub use kernel_run::{KernelFlow, KernelOutcome, Sample, run_kernel};
pub use mesh::{FlowRecord, Mesh, MeshChange, MeshSpec, Setting, Strays};
pub use panel::{FlowMoment, LinkMoment, Moment, Panel, Remote, panel};
pub use relay::Publish;

pub use crate::sys::address;
pub use crate::sys::clean::clean;
pub use crate::sys::ip::FiveTuple;
pub use crate::sys::namespace::Privilege;
pub use crate::sys::signals::Signals;

use crate::error::Error;
use crate::sys::namespace::{self, Namespace};
use crate::sys::tun::{self, Tun, TunSpec};
use crate::sys::{clean, problem};
use bridge::{Bridge, PATIENCE};
use child::Running;
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
    child::many_descriptors();
    let named = spec.mesh.nodes.iter().cloned().zip(0..).chain(spec.aliases.iter().cloned());
    let names: Vec<(String, Ipv4Addr)> = named.map(|(name, node)| (name, address(node))).collect();
    let tap = spec.capture.as_deref().map(|path| capture::Tap::new(path, spec.node)).transpose();
    let tap = tap.map_err(problem("write the capture"))?;
    let (emulated, start) = Emulated::new(&spec.mesh, spec.train, |bridge| bridge.watched(tap, panel))?;
    let driven = drive(spec, &emulated, start, &names, signals);
    clean::empty(&emulated.namespaces);
    let recorded = emulated.finish();
    let Driven { ended, published, outside_lost, failed_servers } = driven?;
    let (record, kernel_drops, tap) = recorded?;
    let captured = tap.map_or(Ok(0), capture::Tap::finish).map_err(|error| error.to_string());
    Ok(Outcome { ended, record, kernel_drops, published, captured, outside_lost, failed_servers })
}

/// By node, packets that the kernel had no room for: sent by programs and never read, and handed back and never received.
type KernelDrops = Vec<(u64, u64)>;

/// A network that is being emulated.
struct Emulated {
    /// By node.
    namespaces: Vec<Namespace>,
    /// The [`Bridge`]'s phases.
    phases: OwnedFd,
    emulator: JoinHandle<Result<(Record, Option<capture::Tap>), Error>>,
}

/// Starts the time of a network that is being emulated.
struct Start {
    phases: OwnedFd,
    started: Receiver<()>,
}

impl Start {
    /// Puts the links at rest and their clock at zero; from now on everything is recorded.
    fn now(self) {
        advance(&self.phases, 1);
        // An emulator that broke off says why at the end.
        let _ = self.started.recv();
    }
}

impl Emulated {
    /// Makes a namespace of each node, and carries packets between them from then on. Records nothing
    /// before [`Start::now`].
    fn new(
        mesh: &MeshSpec,
        train: u32,
        with: impl FnOnce(Bridge) -> Bridge,
    ) -> Result<(Emulated, Start), Error> {
        let (mut namespaces, mut tuns) = (Vec::new(), Vec::new());
        for node in 0..mesh.nodes.len() as u32 {
            let (namespace, tun) = room(node, train)?;
            namespaces.push(namespace);
            tuns.push(tun);
        }
        let phases = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)
            .map_err(|error| problem("make an event descriptor")(error.into()))?;
        let copy = || phases.try_clone().map_err(problem("copy a descriptor"));
        let (of_bridge, of_start) = (copy()?, copy()?);
        let (starts, started) = mpsc::channel();
        let bridge = with(Bridge::new(mesh, tuns, of_bridge, starts));
        let emulator = std::thread::Builder::new()
            .name("tollway-links".into())
            .spawn(move || bridge.run())
            .map_err(problem("start a thread"))?;
        Ok((Emulated { namespaces, phases, emulator }, Start { phases: of_start, started }))
    }

    /// Ends the record with the program; servers may still reach each other.
    fn wind_up(&self) {
        advance(&self.phases, 1);
    }

    /// Ends it; answers what the emulator saw, and by node what the kernel had no room for.
    fn finish(self) -> Result<(Record, KernelDrops, Option<capture::Tap>), Error> {
        // The interfaces go with the emulator.
        let drops = |namespace: &Namespace| {
            namespace.interfaces().ok().and_then(|table| tun::drops(&table, tun::NAME))
        };
        let drops = self.namespaces.iter().map(|namespace| drops(namespace).unwrap_or_default()).collect();
        advance(&self.phases, Bridge::PHASES);
        let broke_off = |_| problem("emulate")(io::Error::other("the emulator broke off"));
        let (record, tap) = self.emulator.join().map_err(broke_off)??;
        Ok((record, drops, tap))
    }
}

/// Ends `n` phases of a [`Bridge`].
fn advance(phases: &OwnedFd, n: u64) {
    let _ = rustix::io::write(phases, &n.to_ne_bytes());
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
    let namespaces = &emulated.namespaces[..];
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

/// A node's namespace and interface.
fn room(node: u32, train: u32) -> Result<(Namespace, Tun), Error> {
    let spec = TunSpec { address: address(node), mask: Ipv4Addr::new(255, 255, 0, 0), train };
    Namespace::new(spec).map_err(|source| Error::Namespace { action: "make a network namespace", source })
}

/// Longest delay between the signal of a program's end and its exit status.
const BRIEF: Duration = Duration::from_millis(2);
/// How often what can't wake us is looked for.
const TICK: Duration = Duration::from_millis(100);
/// Nodes at which everything is published.
const MANY: usize = 16;
