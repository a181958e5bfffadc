//! A network whose nodes are network namespaces.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Network, Place};
use crate::driver::frames::KernelEnd;
use crate::driver::{Driver, Next, Out};
use crate::emulator::LinkSpec;
use crate::error::Error;
use crate::hosts::{Home, MTU, Namespaces, PORT};
use crate::socket::drops_of_port;
use crate::sys::namespace::Namespace;
use crate::sys::{address, tun};

/// The state of a network's namespaces.
#[derive(Debug)]
pub(super) struct Hosts {
    /// By node.
    homes: Vec<Home>,
    /// By link, the driver and interface at its far end.
    ends: Vec<Place>,
    /// Counts of the kernel at the run's end.
    wires: Vec<WireCount>,
}

/// The kernel's counters of a link, at its two interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireCount {
    /// The link's number.
    pub link: u32,
    /// Name in `ip netns` of the node at the near end; `None` if its namespace has no name.
    pub namespace: Option<String>,
    /// The interface at the near end.
    pub interface: String,
    /// Packets that left the link, as reported.
    pub reported: u64,
    /// Packets that the kernel counts as sent there.
    pub sent: u64,
    /// Packets that the kernel counts as received at the far end.
    pub received: u64,
    /// Packets dropped for lack of room between the two, or at the far end.
    pub dropped: u64,
}

/// An interface's counters: packets received, sent, and dropped instead of sent.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    received: u64,
    sent: u64,
    unsent: u64,
}

impl Network {
    /// Makes a network with a namespace for each node, and a veth pair for each two opposite
    /// `links`.
    ///
    /// Packets are raw frames between the interfaces there. Flows begin and end at sockets behind
    /// the kernels of their nodes. `largest` is the size of the largest packet, in bytes.
    ///
    /// The caller must call [`Privilege::acquire`](crate::sys::namespace::Privilege::acquire)
    /// before.
    ///
    /// # Errors
    /// The system refuses a namespace, an interface or a socket.
    pub fn in_namespaces(
        names: &[String],
        links: &[LinkSpec],
        seed: u64,
        threads: usize,
        largest: u16,
    ) -> Result<Network, Error> {
        let mtu = largest.max(MTU);
        let Namespaces { homes, sockets, nics, cables, links: places } = Namespaces::new(names, links, mtu)?;
        let (nodes, members) = Network::spread(names.len(), links, threads);
        let (mut sockets, mut nics) =
            (by_driver(sockets, &nodes, &members), by_driver(nics, &nodes, &members));
        // By driver, the interfaces to links at its nodes; and their indices, by cable and side.
        let mut plugs: Vec<Vec<_>> = members.iter().map(|_| Vec::new()).collect();
        let mut sides = Vec::new();
        for cable in cables {
            sides.push(cable.map(|(node, plug)| {
                let Place { driver, at } = nodes[node as usize];
                plugs[driver].push((at, plug));
                Place { driver, at: plugs[driver].len() as u32 - 1 }
            }));
        }
        let mut drivers = Vec::new();
        let mut numbers = Vec::new();
        for (driver, members) in members.iter().enumerate() {
            let names = members.iter().map(|&node| names[node].clone()).collect();
            let mut made = Driver::new(std::mem::take(&mut sockets[driver]), names);
            numbers.push(made.set_ground(
                std::mem::take(&mut nics[driver]),
                std::mem::take(&mut plugs[driver]),
                mtu,
            ));
            drivers.push(made);
        }
        let addrs: Vec<SocketAddr> =
            (0..names.len() as u32).map(|node| SocketAddr::from((address(node), PORT))).collect();
        let mut network = Network::lay(drivers, nodes, &addrs, links, seed);
        let mut ends = Vec::new();
        for (link, (cable, side)) in places.into_iter().enumerate() {
            let interface = |Place { driver, at }: Place| Place { driver, at: numbers[driver][at as usize] };
            let [near, far] = [side, 1 - side].map(|side| interface(sides[cable][side]));
            let hop = network.links[link];
            network.drivers[hop.driver].links[hop.at as usize].out = Out::Wire(near.at);
            ends.push(far);
        }
        network.hosts = Some(Hosts { homes, ends, wires: Vec::new() });
        Ok(network)
    }

    /// Names of the nodes in `ip netns`; nodes without a name are left out.
    pub fn namespaces(&self) -> Vec<&str> {
        self.hosts.iter().flat_map(|hosts| &hosts.homes).filter_map(Home::name).collect()
    }

    /// The kernel's counters of each link between namespaces; empty before
    /// [`settle`](Network::settle).
    pub fn wires(&self) -> &[WireCount] {
        self.hosts.as_ref().map_or(&[], |hosts| &hosts.wires)
    }

    /// Sets up both ends of the route of `label`.
    ///
    /// The first node gets the next step of its frames and the destination of its datagrams. The
    /// last node accepts datagrams from the first.
    pub(super) fn lead_in_namespaces(&mut self, label: u32, route: &[u32]) -> Result<(), Error> {
        if self.hosts.is_none() {
            return Ok(());
        }
        let (from, to) = (self.specs[route[0] as usize].0, self.specs[route[route.len() - 1] as usize].1);
        let (here, there) = (self.nodes[from as usize], self.nodes[to as usize]);
        let first = self.links[route[0] as usize].at;
        let to = self.drivers[there.driver].addr(there.at);
        let from = self.drivers[here.driver].addr(here.at);
        self.drivers[here.driver].set_label(here.at, label, Next::Link(first))?;
        self.drivers[here.driver].set_destination(label, here.at, to);
        self.drivers[there.driver].add_peer(there.at, from);
        Ok(())
    }

    /// The namespace of a node; `None` unless the nodes are namespaces.
    pub(crate) fn namespace(&self, node: u32) -> Option<&Namespace> {
        self.hosts.as_ref().map(|hosts| &hosts.homes[node as usize].namespace)
    }

    /// Makes a flow's segments known at every node; `number` counts the kernel's flows.
    pub(super) fn note_kernel(&mut self, number: usize, flow: u32, nodes: [u32; 2]) {
        let [client, server] = nodes;
        let ends =
            [KernelEnd::new(address(client), flow << 1), KernelEnd::new(address(server), flow << 1 | 1)];
        self.drivers.iter_mut().for_each(|driver| driver.note_kernel(number, ends));
    }

    /// Datagrams dropped at full sockets; `None` if the kernels do not count them.
    pub(super) fn drops_in_namespaces(&self) -> Option<u64> {
        let hosts = self.hosts.as_ref()?;
        let dropped = |home: &Home| {
            let table =
                home.namespace.within(|| std::fs::read_to_string("/proc/thread-self/net/udp")).ok()?;
            drops_of_port(&table, PORT)
        };
        hosts.homes.iter().map(dropped).sum()
    }

    /// Compares the reported counts of links and interfaces with the kernel's.
    ///
    /// Returns the number of packets that the kernel dropped for lack of room.
    pub(super) fn settle_wires(&mut self) -> Result<u64, Error> {
        let mut tries = 0;
        loop {
            self.drivers.iter_mut().for_each(Driver::drain);
            match self.count_wires() {
                // The kernel's TCP may have sent packets in between.
                Err(Error::Interface { .. }) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                counted => return counted,
            }
        }
    }

    fn count_wires(&mut self) -> Result<u64, Error> {
        let Some(hosts) = &self.hosts else { return Ok(0) };
        let mut counts: Vec<Vec<Count>> =
            self.drivers.iter().map(|driver| vec![Count::default(); driver.wires.len()]).collect();
        for (home, &Place { driver, at }) in hosts.homes.iter().zip(&self.nodes) {
            let problem = |source| Error::Namespace { action: "read the counters of interfaces", source };
            let table = home.namespace.interfaces().map_err(problem)?;
            let Some(ground) = &self.drivers[driver].ground else { continue };
            for (i, interface) in ground.interfaces.iter().enumerate().filter(|(_, i)| i.node == at) {
                let (sent, received) = tun::packets(&table, &interface.name).unwrap_or_default();
                let (unsent, _) = tun::drops(&table, &interface.name).unwrap_or_default();
                let count = Count { received, sent, unsent };
                counts[driver][i] = count;
                let agrees = (sent..=sent + unsent).contains(&interface.written)
                    && received == interface.read + interface.missed;
                if !agrees {
                    let handed = interface.written + interface.refused;
                    return Err(self.miscounted(Place { driver, at: i as u32 }, count, handed));
                }
            }
        }
        let mut wires = Vec::new();
        let mut dropped = 0;
        for (link, (&place, &far)) in self.links.iter().zip(&hosts.ends).enumerate() {
            let driver = &self.drivers[place.driver];
            let hop = &driver.links[place.at as usize];
            let (Out::Wire(at), Some(ground)) = (hop.out, &driver.ground) else { continue };
            let near = Place { driver: place.driver, at };
            let (here, there) = (counts[near.driver][at as usize], counts[far.driver][far.at as usize]);
            let interface = &ground.interfaces[at as usize];
            // Every packet that left the link is counted at the far end, or as dropped.
            let reported = hop.link.handed_on();
            let agrees = interface.written + interface.refused == reported
                && (here.sent..=here.sent + here.unsent + interface.refused).contains(&reported)
                && here.sent == there.received;
            if !agrees {
                return Err(self.miscounted(near, here, reported));
            }
            let lost = reported - here.sent + self.missed(far);
            dropped += lost;
            wires.push(WireCount {
                link: link as u32,
                namespace: hosts.homes[self.specs[link].0 as usize].name().map(str::to_owned),
                interface: interface.name.clone(),
                reported,
                sent: here.sent,
                received: there.received,
                dropped: lost,
            });
        }
        // The first interfaces lead to nodes' kernels.
        dropped += self.nodes.iter().map(|&place| self.missed(place)).sum::<u64>();
        if let Some(hosts) = &mut self.hosts {
            hosts.wires = wires;
        }
        Ok(dropped)
    }

    /// Packets for which the socket on an interface had no room.
    fn missed(&self, Place { driver, at }: Place) -> u64 {
        self.drivers[driver].ground.as_ref().map_or(0, |ground| ground.interfaces[at as usize].missed)
    }

    fn miscounted(&self, Place { driver, at }: Place, count: Count, handed: u64) -> Error {
        let driver = &self.drivers[driver];
        let interface = driver.ground.as_ref().map(|ground| &ground.interfaces[at as usize]);
        let (node, name, read) = interface.map_or((String::new(), String::new(), 0), |interface| {
            let node = driver.names().nth(interface.node as usize).unwrap_or_default();
            (node.to_owned(), interface.name.clone(), interface.read + interface.missed)
        });
        let Count { received, sent, unsent } = count;
        Error::Interface { node, interface: name, sent: sent + unsent, received, handed, read }
    }
}

/// Sorts the nodes' things by driver and index there.
fn by_driver<T>(things: Vec<T>, nodes: &[Place], members: &[Vec<usize>]) -> Vec<Vec<T>> {
    let mut sorted: Vec<Vec<Option<T>>> =
        members.iter().map(|members| members.iter().map(|_| None).collect()).collect();
    for (thing, place) in things.into_iter().zip(nodes) {
        sorted[place.driver][place.at as usize] = Some(thing);
    }
    sorted.into_iter().map(|things| things.into_iter().flatten().collect()).collect()
}

/// Limit of attempts to read consistent counters, and the pause between two attempts.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);
