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
//! | [`panel()`] | links seen and changed meanwhile |
//! | [`clean()`] | what a run that was killed has left behind |
//! | [`Record`] | what the emulator saw: links, flows, lateness, every drop by its cause |

mod bridge;
mod capture;
mod child;
mod clean;
pub mod ip;
mod mesh;
pub(crate) mod namespace;
mod netlink;
mod panel;
mod relay;
pub(crate) mod tun;

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::process::Signal;

pub use bridge::{LinkRecord, Record};
pub use child::Signals;
pub use clean::clean;
pub use ip::FiveTuple;
pub use mesh::{Change, FlowRecord, LinkChange, Mesh, MeshSpec, Strays, address};
pub use namespace::Privilege;
pub use panel::{FlowMoment, LinkMoment, Moment, Panel, Remote, Setting, panel};
pub use relay::Publish;

use crate::error::Error;
use bridge::{Bridge, PATIENCE};
use child::Running;
use namespace::Namespace;
use tun::{Tun, TunSpec};

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
    /// Packets that the capture had no time for.
    pub capture_missed: u64,
}

/// Runs a program over a network, until it ends; a `panel`'s other end sees and changes its links meanwhile.
///
/// # Errors
/// The network can't be set up ([`Error::Namespace`]), or the program not be started ([`Error::Program`]).
pub fn run(spec: &Spec, signals: &Signals, panel: Option<Panel>) -> Result<Outcome, Error> {
    let nodes = spec.mesh.nodes.len() as u32;
    let (mut namespaces, mut tuns) = (Vec::new(), Vec::new());
    for node in 0..nodes {
        let (namespace, tun) = room(node, spec.train)?;
        namespaces.push(namespace);
        tuns.push(tun);
    }
    let named = spec.mesh.nodes.iter().cloned().zip(0..).chain(spec.aliases.iter().cloned());
    let names: Vec<(String, Ipv4Addr)> = named.map(|(name, node)| (name, address(node))).collect();

    let problem = |action| move |source| Error::Namespace { action, source };
    let tap = spec.capture.as_deref().map(|path| capture::Tap::new(path, spec.node)).transpose();
    let tap = tap.map_err(problem("write the capture"))?;
    let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
        .map_err(|error| problem("make an event descriptor")(error.into()))?;
    let stopper = stop.try_clone().map_err(problem("copy a descriptor"))?;
    let bridge = Bridge::new(&spec.mesh, tuns, stop, tap, panel);
    let emulator = std::thread::Builder::new()
        .name("tollway-links".into())
        .spawn(move || bridge.run())
        .map_err(problem("start a thread"))?;

    let driven = drive(spec, &namespaces, &names, signals);

    // The interfaces go with the emulator.
    let drops = |namespace: &Namespace| namespace.interfaces().ok().and_then(|table| tun::drops(&table));
    let kernel_drops = namespaces.iter().map(|namespace| drops(namespace).unwrap_or_default()).collect();
    let _ = rustix::io::write(&stopper, &1u64.to_ne_bytes());
    let recorded = emulator.join();
    let (ended, published) = driven?;
    let broke_off = |_| problem("emulate")(io::Error::other("the emulator broke off"));
    let (record, tap) = recorded.map_err(broke_off)??;
    let capture_missed = tap.map_or(Ok(0), capture::Tap::finish).map_err(problem("write the capture"))?;
    Ok(Outcome { ended, record, kernel_drops, published, capture_missed })
}

/// Serves, publishes, starts the program and waits for its end.
fn drive(
    spec: &Spec,
    namespaces: &[Namespace],
    names: &[(String, Ipv4Addr)],
    signals: &Signals,
) -> Result<(Ended, Vec<Publish>), Error> {
    let mut servers = Servers(Vec::new());
    for (node, text) in &spec.servers {
        let mut command = Command::new("sh");
        command.arg("-c").arg(text).env(clean::MARK, clean::mark()).stdin(Stdio::null()).process_group(0);
        aside(&mut command).map_err(|source| Error::Program { program: text.clone(), source })?;
        let namespace = &namespaces[*node as usize];
        let started = Running::start(namespace, names, command, signals);
        let mut server = started.map_err(|source| Error::Program { program: text.clone(), source })?;
        let _ = namespace.await_listener(PATIENCE, || server.ended().is_some());
        servers.0.push(server);
    }
    let published = publish(spec, namespaces)?;

    let name = spec.program[0].to_string_lossy().into_owned();
    let mut command = Command::new(&spec.program[0]);
    command.args(&spec.program[1..]).env(clean::MARK, clean::mark());
    let failed = |source| Error::Program { program: name.clone(), source };
    if spec.stdout_aside {
        aside(&mut command).map_err(failed)?;
    }
    let mut program =
        Running::start(&namespaces[spec.node as usize], names, command, signals).map_err(failed)?;
    Ok((await_program(&mut program, spec.timeout, signals), published))
}

/// Opens the ports that are to be published.
fn publish(spec: &Spec, namespaces: &[Namespace]) -> Result<Vec<Publish>, Error> {
    let start =
        |publish: &Publish| relay::start(&namespaces[publish.node as usize], address(publish.node), *publish);
    for publish in &spec.published {
        start(publish).map_err(|source| Error::Publish {
            node: spec.mesh.nodes[publish.node as usize].clone(),
            port: publish.port,
            source,
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
        if let Some(status) = program.ended() {
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
        if let Some(signal) = signals.wait(left.min(TICK)) {
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
fn aside(command: &mut Command) -> io::Result<()> {
    command.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
    Ok(())
}

/// Servers, ended with the run.
struct Servers(Vec<Running>);

impl Drop for Servers {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Running::end_group);
    }
}

/// A node's namespace and interface.
fn room(node: u32, train: u32) -> Result<(Namespace, Tun), Error> {
    let spec = TunSpec { address: address(node), mask: Ipv4Addr::new(255, 255, 0, 0), train };
    Namespace::new(spec).map_err(|source| Error::Namespace { action: "make a network namespace", source })
}

/// How often what can't wake us is looked for.
const TICK: Duration = Duration::from_millis(100);
/// Nodes at which everything is published.
const MANY: usize = 16;
