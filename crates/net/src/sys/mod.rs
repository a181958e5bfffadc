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
use std::net::Ipv4Addr;

use crate::error::Error;
pub use crate::punctual::set_policy;

/// The address of a node in emulated networks; that of node 0 is 10.77.0.1.
pub fn address(node: u32) -> Ipv4Addr {
    let number = node + 1;
    Ipv4Addr::new(10, 77, (number >> 8) as u8, number as u8)
}

/// Makes the error of an action that failed in a namespace.
pub fn problem(action: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Namespace { action, source }
}
