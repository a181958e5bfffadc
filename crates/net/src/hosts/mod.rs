//! A topology of network namespaces: one for each node, a veth pair for each link.
//!
//! ```text
//!  node `a`                                        node `r`
//!  sockets ─ kernel ─ eth0 ══ nic ─[ports]─ to-r ══ to-a ─[ports]─ to-b ══ …
//! ```
//!
//! `══` is a veth pair, `─[ports]─` the thread that runs the node: it reads frames where they come in, raw, and hands them on where the
//! label or the ports of what is in them say, through the emulated port of the link that leaves there. A node's own kernel, with its
//! UDP and TCP sockets, is behind `eth0`, and knows nothing of the rest.
//!
//! As root a namespace has a name, which `ip netns` knows for as long as the run lasts. Everything else, and for others than root the
//! namespaces too, dies with the process that holds it.

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

/// A node.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) namespace: Namespace,
    /// Held for its end, with which the name is taken back.
    name: Option<Name>,
}

impl Home {
    /// What `ip netns` knows it by.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_ref().map(Name::as_str)
    }
}

/// One side of a veth pair, by the interface's name, with the socket that has it.
#[derive(Debug)]
pub(crate) struct Plug {
    pub(crate) interface: String,
    pub(crate) wire: Wire,
}

/// The namespaces of a topology, and every socket in them.
#[derive(Debug)]
pub(crate) struct Site {
    /// By node.
    pub(crate) homes: Vec<Home>,
    /// By node, its UDP socket.
    pub(crate) sockets: Vec<Socket>,
    /// By node, the way to its own kernel.
    pub(crate) nics: Vec<Plug>,
    /// Each with the nodes at its two sides.
    pub(crate) cables: Vec<[(u32, Plug); 2]>,
    /// By link, its cable, and the side at which it begins.
    pub(crate) links: Vec<(usize, usize)>,
}

impl Site {
    /// Makes a namespace of each node, and a veth pair of each two links that are each other's way back; packets have `mtu` bytes at most.
    pub(crate) fn new(names: &[String], links: &[LinkSpec], mtu: u16) -> Result<Site, Error> {
        let mut site = Site {
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

/// What is in the namespace of a node's own: the calling thread is there.
fn settle(node: u32, mtu: u16) -> io::Result<(Socket, Wire)> {
    interface::bring_up_loopback()?;
    // A frame for any node's kernel is for the same hardware address, so that it arrives as it was sent. No node's other interfaces have
    // that one: what comes there their kernel leaves to us.
    netlink::add_veth(&netlink::Veth { name: ETH0, address: Some(HOST), peer: NIC, peer_in: None })?;
    // Each packet by itself, since laws want to see each.
    netlink::set(ETH0, &[(Property::LongestTrainPackets, 1)])?;
    interface::bring_up(ETH0, address(node), Ipv4Addr::new(255, 255, 0, 0), mtu, Arp::No)?;
    interface::up(NIC, mtu, Arp::Yes)?;
    Ok((Socket::on(SocketAddr::from((address(node), PORT)))?, Wire::open(NIC)?))
}

/// A veth pair between two nodes, by number and name of the interface there.
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

/// The pairs of nodes that want a cable, with `places` saying of each link which it is and from which side it goes: a link shares that of
/// one the other way, if there is one.
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

/// The name of the interface to node `there`, unlike those `taken`; what makes no name gives way to the cable's number.
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
/// Bytes of the largest packet unless a scenario has larger ones.
pub(crate) const MTU: u16 = tun::MTU;
/// The interface of a node's kernel, and the other side of its cable.
const ETH0: &str = "eth0";
const NIC: &str = "nic";
/// The hardware address of every node's kernel, one of those that everybody may give away.
const HOST: [u8; 6] = [0x02, b'T', b'o', b'l', b'l', 0];
