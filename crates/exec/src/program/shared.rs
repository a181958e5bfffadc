//! A network in whose nodes other processes start programs.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use tollway_net::Error;
use tollway_net::mesh::{Emulated, Panel, Record, Start, Tap};
use tollway_net::sys::child::many_descriptors;
use tollway_net::sys::namespace::{self, Namespace, Privilege};
use tollway_net::sys::signals::Signals;
use tollway_net::sys::{clean, problem};
use tollway_scenario::plan::PortChange;

use super::outside::{Outside, RESOLVER};
use super::servers::{SERVING, Servers};
use super::{Ended, Listeners, Outcome, Publish, Spec, names, prepare, publish};

/// A network whose record starts with [`Shared::start`].
pub(crate) struct Shared {
    emulated: Emulated,
    start: Option<Start>,
    /// The user namespace of the nodes, unless they are root's.
    user: Option<File>,
    /// A mount namespace in which the nodes' names resolve.
    names: File,
    outside: Option<Outside>,
    published: Vec<Publish>,
    listeners: Listeners,
    port_changes: Vec<PortChange>,
}

impl Shared {
    /// Sets up the network of `spec`, of which it ignores the program and the servers.
    pub(crate) fn open(
        spec: &Spec,
        privilege: Privilege,
        signals: &Signals,
        panel: Panel,
    ) -> Result<Shared, Error> {
        many_descriptors();
        let tap = spec.capture.as_deref().map(|path| Tap::new(path, spec.node)).transpose();
        let tap = tap.map_err(problem("write the capture"))?;
        let (emulated, start) = Emulated::watched(&spec.mesh, spec.train, tap, Some(panel))?;
        let outside = prepare(spec, emulated.namespaces(), signals)?;
        let listeners = Listeners::open(spec)?;
        let servers = Servers::default();
        let published = publish(spec, &emulated, &servers, &listeners)?;
        listeners.start_inside(spec, emulated.namespaces(), &servers)?;
        listeners.ports().have(&spec.port_changes, &spec.mesh.nodes)?;
        listeners.start(emulated.namespaces())?;
        let user = (privilege == Privilege::User).then(|| File::open("/proc/self/ns/user")).transpose();
        let user = user.map_err(problem("open the user namespace"))?;
        let (named, resolver) = (names(spec, &emulated), outside.as_ref().map(|_| RESOLVER));
        let mounts = std::thread::spawn(move || {
            namespace::resolve_names(&named, resolver)?;
            File::open("/proc/thread-self/ns/mnt")
        });
        let broke_off = |_| Err(io::Error::other("the thread broke off"));
        let names = mounts.join().unwrap_or_else(broke_off).map_err(problem("give programs their names"))?;
        let port_changes = spec.port_changes.clone();
        Ok(Shared { emulated, start: Some(start), user, names, outside, published, listeners, port_changes })
    }

    /// Starts the record, unless it has started, and the changes of connections.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let Some(start) = self.start.take() else { return Ok(()) };
        start.now();
        self.listeners.ports().follow(&self.port_changes)?();
        Ok(())
    }

    /// Returns true if the record has started.
    pub(crate) fn has_started(&self) -> bool {
        self.start.is_none()
    }

    /// The namespace of a node.
    pub(crate) fn node(&self, node: u32) -> io::Result<&Namespace> {
        let missing = || io::Error::other("the network has no such node");
        self.emulated.namespaces().get(node as usize).ok_or_else(missing)
    }

    /// The namespaces that a program of `node` enters, in this order.
    pub(crate) fn spaces(&self, node: u32) -> io::Result<Vec<OwnedFd>> {
        let user = self.user.iter().map(AsFd::as_fd);
        let spaces = user.chain([self.node(node)?.descriptor(), self.names.as_fd()]);
        spaces.map(|space| space.try_clone_to_owned()).collect()
    }

    /// Waits until more ports of `node` serve than `before`, until `process` has ended, or for
    /// [`SERVING`].
    pub(crate) fn await_server(&self, node: u32, before: (usize, usize), process: i32) -> io::Result<()> {
        let process = Pid::from_raw(process).ok_or(io::ErrorKind::InvalidInput)?;
        let held = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
        let ended = || {
            let mut fds = [PollFd::new(&held, PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        };
        self.node(node)?.await_server(before, process, SERVING, ended).map(drop)
    }

    /// The outcome so far, with the emulator's `record`.
    pub(crate) fn outcome(&mut self, record: Record) -> Outcome {
        Outcome {
            ended: Ended::Exited(0),
            record,
            kernel_drops: self.emulated.drops(),
            published: self.published.clone(),
            listened: self.listeners.counts(),
            refused: Vec::new(),
            tls_refused: Vec::new(),
            captured: Ok(0),
            outside_lost: self.outside.as_mut().is_some_and(Outside::is_gone),
            failed_servers: Vec::new(),
        }
    }

    /// Ends the programs in all nodes, and the network.
    ///
    /// # Errors
    /// The emulator failed, or the capture could not be written.
    pub(crate) fn close(self) -> Result<(), Error> {
        clean::empty(self.emulated.namespaces());
        let (_, _, tap) = self.emulated.finish()?;
        tap.map_or(Ok(0), Tap::finish).map(drop).map_err(problem("write the capture"))
    }
}
