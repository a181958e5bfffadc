//! A network of namespaces whose packets a thread carries, from its making to its end.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;

use super::MeshSpec;
use super::bridge::{Bridge, Record};
use super::capture::Tap;
use super::panel::Panel;
use crate::error::Error;
use crate::sys::namespace::Namespace;
use crate::sys::tun::{self, Tun, TunSpec};
use crate::sys::{address, problem};

/// By node, packets that the kernel had no room for: sent by programs and never read, and handed back and never received.
pub type KernelDrops = Vec<(u64, u64)>;

/// A network that is being emulated.
#[derive(Debug)]
pub struct Emulated {
    /// By node.
    namespaces: Vec<Namespace>,
    /// The [`Bridge`]'s phases.
    phases: OwnedFd,
    emulator: JoinHandle<Result<(Record, Option<Tap>), Error>>,
}

/// Starts the time of a network that is being emulated.
#[derive(Debug)]
pub struct Start {
    phases: OwnedFd,
    started: Receiver<()>,
}

impl Start {
    /// Puts the links at rest and their clock at zero; from now on everything is recorded.
    pub fn now(self) {
        advance(&self.phases, 1);
        // An emulator that broke off says why at the end.
        let _ = self.started.recv();
    }
}

impl Emulated {
    /// Makes a namespace of each node, and carries packets between them from then on. Records nothing
    /// before [`Start::now`], and captures and shows nothing either. A train of TCP segments of up to `train` bytes crosses
    /// links as one packet; 0 is none.
    ///
    /// # Errors
    /// The network can't be set up ([`Error::Namespace`]).
    pub fn watched(
        mesh: &MeshSpec,
        train: u32,
        tap: Option<Tap>,
        panel: Option<Panel>,
    ) -> Result<(Emulated, Start), Error> {
        Emulated::new(mesh, train, |bridge| bridge.watched(tap, panel))
    }

    /// As [`Emulated::watched`], with another emulator.
    pub(super) fn new(
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

    /// The namespaces, by node.
    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Ends the record; packets are still carried.
    pub fn wind_up(&self) {
        advance(&self.phases, 1);
    }

    /// Ends the network. Returns what the emulator saw, and by node what the kernel had no room for.
    ///
    /// # Errors
    /// The emulator broke off.
    pub fn finish(self) -> Result<(Record, KernelDrops, Option<Tap>), Error> {
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

/// A node's namespace and interface.
fn room(node: u32, train: u32) -> Result<(Namespace, Tun), Error> {
    let spec = TunSpec { address: address(node), mask: Ipv4Addr::new(255, 255, 0, 0), train };
    Namespace::new(spec).map_err(|source| Error::Namespace { action: "make a network namespace", source })
}
