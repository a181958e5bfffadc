//! Linux plumbing: namespaces, netlink, TUN interfaces, packets of IP, socket options.

pub(crate) mod clean;
pub(crate) mod interface;
pub mod ip;
pub(crate) mod namespace;
pub(crate) mod netlink;
pub(crate) mod seccomp;
pub(crate) mod signals;
pub(crate) mod sockopt;
pub(crate) mod tcp_info;
pub(crate) mod tun;

use std::io;
use std::net::Ipv4Addr;

use crate::error::Error;

/// The address of a node in every network that programs run over: 10.77.0.1 is the first.
pub fn address(node: u32) -> Ipv4Addr {
    let number = node + 1;
    Ipv4Addr::new(10, 77, (number >> 8) as u8, number as u8)
}

/// The error of an action that failed in a namespace.
pub(crate) fn problem(action: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Namespace { action, source }
}
