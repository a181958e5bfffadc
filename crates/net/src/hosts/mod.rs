//! A topology of network namespaces: one for each node, a veth pair for each link.
//!
//! ```text
//!  node `a`                                        node `r`
//!  sockets ─ kernel ─ eth0 ══ nic ─[ports]─ to-r ══ to-a ─[ports]─ to-b ══ …
//! ```
//!
//! `══` is a veth pair, `─[ports]─` is the thread that runs the node. The thread reads raw frames
//! where they arrive. It forwards each frame by the label or the ports in it, through the emulated
//! port of the next link. A node's own kernel, with its UDP and TCP sockets, is behind `eth0`, and
//! is not involved in forwarding.
//!
//! As root, a namespace has a name, which `ip netns` lists during the run. Everything else ends
//! with the process that holds it. For other users the namespaces do too.

mod names;

#[cfg(test)]
mod tests;

pub(crate) mod frame;
pub(crate) mod wire;

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

pub use names::clean_names;

use crate::emulator::LinkSpec;
use crate::error::Error;
use crate::socket::Socket;
use crate::sys::interface::{self, Arp};
use crate::sys::namespace::Namespace;
use crate::sys::netlink::{self, Property};
use crate::sys::{address, tun};
use names::Name;
use wire::Wire;

/// A node's namespace.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) namespace: Namespace,
    /// Held for its destructor, which removes the name.
    name: Option<Name>,
}

impl Home {
    /// Its name in `ip netns`; `None` if the system denied one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_ref().map(Name::as_str)
    }
}

/// One side of a veth pair: the interface's name, and the socket on it.
#[derive(Debug)]
pub(crate) struct Plug {
    pub(crate) interface: String,
    pub(crate) wire: Wire,
}

/// The namespaces of a topology, and every socket in them.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// By node.
    pub(crate) homes: Vec<Home>,
    /// UDP sockets, by node.
    pub(crate) sockets: Vec<Socket>,
    /// Interfaces to nodes' own kernels, by node.
    pub(crate) nics: Vec<Plug>,
    /// Veth pairs, each with the nodes at its two sides.
    pub(crate) cables: Vec<[(u32, Plug); 2]>,
    /// By link, its cable, and the side at which it begins.
    pub(crate) links: Vec<(usize, usize)>,
}

impl Namespaces {
    /// Makes a namespace for each node, and a veth pair for each two opposite links.
    ///
    /// Packets have at most `mtu` bytes.
    pub(crate) fn new(names: &[String], links: &[LinkSpec], mtu: u16) -> Result<Namespaces, Error> {
        let mut site = Namespaces {
            homes: Vec::new(),
            sockets: Vec::new(),
            nics: Vec::new(),
            cables: Vec::new(),
            links: Vec::new(),
        };
        for (node, name) in (0..).zip(names) {
            let (namespace, (socket, wire)) = Namespace::with(|| settle(node, mtu))
                .map_err(|source| problem("make a namespace of node", name, source))?;
            let name = Name::give(&namespace, name);
            site.homes.push(Home { namespace, name });
            site.sockets.push(socket);
            site.nics.push(Plug { interface: NIC.into(), wire });
        }
        let mut taken: Vec<HashSet<String>> = vec![HashSet::new(); names.len()];
        for (i, [from, to]) in pairs(links, &mut site.links).into_iter().enumerate() {
            let mut interface =
                |here: u32, there: u32| name_of(&names[there as usize], i, &mut taken[here as usize]);
            let (near, far) = (interface(from, to), interface(to, from));
            let lay = || lay(&site.homes, (from, &near), (to, &far), mtu);
            let [a, b] =
                lay().map_err(|source| problem("lay a cable from node", &names[from as usize], source))?;
            site.cables
                .push([(from, Plug { interface: near, wire: a }), (to, Plug { interface: far, wire: b })]);
        }
        Ok(site)
    }
}

fn problem(action: &'static str, node: &str, source: io::Error) -> Error {
    Error::Node { action, node: node.to_owned(), source }
}

/// Sets up the calling thread's namespace, which belongs to `node`.
fn settle(node: u32, mtu: u16) -> io::Result<(Socket, Wire)> {
    interface::bring_up_loopback()?;
    // Frames for any node's kernel have the same hardware address, so they arrive unchanged. A
    // node's other interfaces have other addresses, so its kernel ignores frames that arrive there.
    netlink::add_veth(&netlink::Veth { name: ETH0, address: Some(HOST), peer: NIC, peer_in: None })?;
    // One packet per frame, since laws must see each.
    netlink::set(ETH0, &[(Property::LongestTrainPackets, 1)])?;
    interface::bring_up(ETH0, address(node), Ipv4Addr::new(255, 255, 0, 0), mtu, Arp::No)?;
    interface::up(NIC, mtu, Arp::Yes)?;
    Ok((Socket::on(SocketAddr::from((address(node), PORT)))?, Wire::open(NIC)?))
}

/// Makes a veth pair between two nodes, each given by its number and the interface's name there.
fn lay(homes: &[Home], from: (u32, &str), to: (u32, &str), mtu: u16) -> io::Result<[Wire; 2]> {
    let [here, there] = [from.0, to.0].map(|node| &homes[node as usize].namespace);
    let peer_in = Some(there.descriptor());
    here.within(|| {
        netlink::add_veth(&netlink::Veth { name: from.1, address: None, peer: to.1, peer_in })?;
        interface::up(from.1, mtu, Arp::No)
    })?;
    there.within(|| interface::up(to.1, mtu, Arp::No))?;
    Ok([here.within(|| Wire::open(from.1))?, there.within(|| Wire::open(to.1))?])
}

/// The pairs of nodes that need a cable. Two opposite links share one cable.
///
/// For each link, `places` receives its cable and the side at which it begins.
fn pairs(links: &[LinkSpec], places: &mut Vec<(usize, usize)>) -> Vec<[u32; 2]> {
    let mut cables: Vec<([u32; 2], bool)> = Vec::new();
    for link in links {
        let shared = cables.iter().position(|(ends, full)| !full && *ends == [link.to, link.from]);
        match shared {
            Some(cable) => {
                cables[cable].1 = true;
                places.push((cable, 1));
            }
            None => {
                cables.push(([link.from, link.to], false));
                places.push((cables.len() - 1, 0));
            }
        }
    }
    cables.into_iter().map(|(ends, _)| ends).collect()
}

/// The name of the interface to node `there`, different from those in `taken`.
///
/// It is the cable's number if the node's name makes no valid interface name.
fn name_of(there: &str, cable: usize, taken: &mut HashSet<String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let wanted = format!("to-{there}");
    let usable = wanted.len() < libc::IFNAMSIZ && there.chars().all(plain) && !taken.contains(&wanted);
    let name = if usable { wanted } else { format!("cable{cable}") };
    taken.insert(name.clone());
    name
}

/// The port of each node's UDP socket.
pub(crate) const PORT: u16 = 7000;
/// Largest packet in bytes, unless a scenario has larger ones.
pub(crate) const MTU: u16 = tun::MTU;
/// The interface of a node's kernel, and the other side of its cable.
const ETH0: &str = "eth0";
const NIC: &str = "nic";
/// The hardware address of every node's kernel: a locally administered one.
const HOST: [u8; 6] = [0x02, b'T', b'o', b'l', b'l', 0];
