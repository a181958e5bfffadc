//! A network of namespaces whose packets a thread carries.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;

use super::MeshSpec;
use super::bridge::{Bridge, Record};
use super::capture::Tap;
use super::panel::Panel;
use crate::error::Error;
use crate::sys::namespace::{Namespace, SocketDrops};
use crate::sys::tun::{self, Tun, TunSpec};
use crate::sys::{address, address_v6, addresses, problem};

/// Packets that the kernel dropped at a node for lack of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeDrops {
    /// Sent by programs, and never read by the emulator.
    pub sent: u64,
    /// Handed back by the emulator, and never received.
    pub received: u64,
    /// At the programs' own sockets.
    pub sockets: SocketDrops,
}

/// A network during its emulation.
#[derive(Debug)]
pub struct Emulated {
    /// By node.
    namespaces: Vec<Namespace>,
    /// True if every node has its IPv6 address.
    v6: bool,
    /// The [`Bridge`]'s phases.
    phases: OwnedFd,
    emulator: JoinHandle<Result<(Record, Option<Tap>), Error>>,
}

/// The trigger that starts the record of an emulated network.
#[derive(Debug)]
pub struct Start {
    phases: OwnedFd,
    started: Receiver<()>,
}

impl Start {
    /// Starts the record, with idle links and the clock at zero. Waits until the emulator has
    /// begun.
    pub fn now(self) {
        advance(&self.phases, 1);
        // An emulator that failed reports its error in `finish`.
        let _ = self.started.recv();
    }
}

impl Emulated {
    /// Makes a namespace for each node, and starts to carry packets between them.
    ///
    /// It records, captures and shows nothing before [`Start::now`]. A train of TCP segments of up
    /// to `train` bytes crosses links as one packet; 0 forbids trains.
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

    /// Makes a network like [`Emulated::watched`], with the bridge that `with` returns.
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
        let v6 = tuns.iter().all(Tun::has_v6);
        let copy = || phases.try_clone().map_err(problem("copy a descriptor"));
        let (of_bridge, of_start) = (copy()?, copy()?);
        let (starts, started) = mpsc::channel();
        let bridge = with(Bridge::new(mesh, tuns, of_bridge, starts));
        let emulator = std::thread::Builder::new()
            .name("tollway-links".into())
            .spawn(move || bridge.run())
            .map_err(problem("start a thread"))?;
        Ok((Emulated { namespaces, v6, phases, emulator }, Start { phases: of_start, started }))
    }

    /// The namespaces, by node.
    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// The kernel's drops so far, by node.
    pub fn drops(&self) -> Vec<NodeDrops> {
        let drops = |namespace: &Namespace| {
            let table = namespace.interfaces().unwrap_or_default();
            let (sent, received) = tun::drops(&table, tun::NAME).unwrap_or_default();
            NodeDrops { sent, received, sockets: namespace.socket_drops().unwrap_or_default() }
        };
        self.namespaces.iter().map(drops).collect()
    }

    /// The addresses of a node: IPv4's, then IPv6's if the kernel has IPv6.
    pub fn addresses(&self, node: u32) -> impl Iterator<Item = IpAddr> + use<> {
        addresses(node).into_iter().take(if self.v6 { 2 } else { 1 })
    }

    /// Ends the record. Packets are still carried.
    pub fn wind_up(&self) {
        advance(&self.phases, 1);
    }

    /// Ends the network. Returns the record, the kernel's drops by node, and the capture.
    ///
    /// # Errors
    /// The emulator failed.
    pub fn finish(self) -> Result<(Record, Vec<NodeDrops>, Option<Tap>), Error> {
        // The interfaces end with the emulator, so their counters are read first.
        let drops = self.drops();
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

/// Makes a node's namespace and interface.
fn room(node: u32, train: u32) -> Result<(Namespace, Tun), Error> {
    let (mask, address_v6) = (Ipv4Addr::new(255, 255, 0, 0), Some(address_v6(node)));
    let spec = TunSpec { address: address(node), mask, address_v6, train };
    Namespace::new(spec).map_err(|source| Error::Namespace { action: "make a network namespace", source })
}
