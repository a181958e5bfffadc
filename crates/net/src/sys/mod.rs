//! Linux system interfaces: namespaces, netlink, TUN interfaces, IP packets, socket options.

pub mod child;
pub mod clean;
pub mod interface;
pub mod ip;
pub mod join;
pub mod namespace;
pub mod netlink;
pub mod prefix;
pub mod seccomp;
pub mod signals;
pub mod sockopt;
pub mod tcp_info;
pub mod tcx;
mod tos;
pub mod tun;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Error;
pub use crate::punctual::set_policy;

/// The address of a node in emulated networks; that of node 0 is 10.77.0.1.
pub fn address(node: u32) -> Ipv4Addr {
    let number = node + 1;
    Ipv4Addr::new(10, 77, (number >> 8) as u8, number as u8)
}

/// The IPv6 address of a node in emulated networks; that of node 0 is fd77::1.
pub fn address_v6(node: u32) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, (node + 1) as u16)
}

/// Both addresses of a node, first IPv4's.
pub fn addresses(node: u32) -> [IpAddr; 2] {
    [address(node).into(), address_v6(node).into()]
}

/// Makes the error of an action that failed in a namespace.
pub fn problem(action: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Namespace { action, source }
}
