//! Settings of interfaces by netlink, for those that ioctl lacks or denies to a user namespace.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

/// A property of an interface, by its number in `linux/if_link.h`.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub enum Property {
    /// Size of the largest packet, in bytes.
    LargestPacket = 4,
    /// Limit of packets in its queue.
    QueueLength = 13,
    /// Limit of packets in a train of segments that passes as one.
    LongestTrainPackets = 40,
    /// Limit of bytes in a train of segments that passes as one packet.
    LongestTrain = 41,
}

/// Sets properties of the interface `name` in this thread's network namespace.
pub fn set(name: &str, properties: &[(Property, u32)]) -> io::Result<()> {
    ask(&property_request(name, properties))
}

/// A pair of interfaces that are connected with each other (veth(4)).
#[derive(Clone, Copy, Debug)]
pub struct Veth<'a> {
    /// Name of the interface in this thread's namespace.
    pub name: &'a str,
    /// Its hardware address; random if `None`.
    pub address: Option<[u8; 6]>,
    /// Name of the other interface.
    pub peer: &'a str,
    /// The other interface's namespace; `None` for this thread's.
    pub peer_in: Option<BorrowedFd<'a>>,
}

/// Makes a pair of interfaces.
pub fn add_veth(veth: &Veth<'_>) -> io::Result<()> {
    ask(&veth_request(veth))
}

/// Sets the default route of IPv4, or of IPv6 with `v6`: through this interface, to a router there,
/// or directly to each address.
pub fn route_everything(interface: u32, v6: bool, router: Option<IpAddr>) -> io::Result<()> {
    ask(&route_request(interface, v6, router))
}

/// Gives an interface an IPv6 address, in a network of 64 bits.
///
/// The address is deprecated (RFC 4862 § 5.5.4), so that resolvers sort it behind IPv4 addresses.
/// It is usable at once.
pub fn add_address_v6(interface: u32, address: Ipv6Addr) -> io::Result<()> {
    ask(&address_request(interface, address))
}

/// Prevents a link-local IPv6 address of the interface `name`, which must be down.
pub fn have_no_link_local(name: &str) -> io::Result<()> {
    ask(&link_local_request(name))
}

fn ask(request: &[u8]) -> io::Result<()> {
    let socket = Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::from(libc::SOCK_RAW | libc::SOCK_CLOEXEC),
        Some(Protocol::from(libc::NETLINK_ROUTE)),
    )?;
    // A netlink socket that is neither bound nor connected communicates with the kernel.
    let mut file = std::fs::File::from(OwnedFd::from(socket));
    file.write_all(request)?;
    let mut answer = [0u8; 512];
    let len = file.read(&mut answer)?;
    match error_of(&answer[..len]) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("netlink gave no answer")),
    }
}

/// Builds `RTM_NEWLINK` with the interface's name and its new properties (rtnetlink(7)).
fn property_request(name: &str, properties: &[(Property, u32)]) -> Vec<u8> {
    let mut message = vec![0u8; HEADER + LINK];
    attribute(&mut message, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    for (property, value) in properties {
        attribute(&mut message, *property as u16, &value.to_ne_bytes());
    }
    finish(message, libc::RTM_NEWLINK, 0)
}

/// Builds `RTM_NEWLINK` for a pair of interfaces (rtnetlink(7)).
fn veth_request(veth: &Veth<'_>) -> Vec<u8> {
    let named = |name: &str| [name.as_bytes(), &[0]].concat();
    let mut peer = vec![0u8; LINK];
    attribute(&mut peer, libc::IFLA_IFNAME, &named(veth.peer));
    if let Some(namespace) = veth.peer_in {
        attribute(&mut peer, libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
    }
    let (mut data, mut info) = (Vec::new(), Vec::new());
    attribute(&mut data, VETH_PEER, &peer);
    attribute(&mut info, libc::IFLA_INFO_KIND, b"veth");
    attribute(&mut info, libc::IFLA_INFO_DATA, &data);
    let mut message = vec![0u8; HEADER + LINK];
    attribute(&mut message, libc::IFLA_IFNAME, &named(veth.name));
    if let Some(address) = veth.address {
        attribute(&mut message, libc::IFLA_ADDRESS, &address);
    }
    attribute(&mut message, libc::IFLA_LINKINFO, &info);
    finish(message, libc::RTM_NEWLINK, (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16)
}

/// Builds `RTM_NEWROUTE` for the default route (rtnetlink(7)).
fn route_request(interface: u32, v6: bool, router: Option<IpAddr>) -> Vec<u8> {
    let mut message = vec![0u8; HEADER + ROUTE];
    let scope = if router.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
    message[HEADER] = if v6 { libc::AF_INET6 } else { libc::AF_INET } as u8;
    message[HEADER + 4..HEADER + 8].copy_from_slice(&[
        libc::RT_TABLE_MAIN,
        libc::RTPROT_BOOT,
        scope,
        libc::RTN_UNICAST,
    ]);
    attribute(&mut message, libc::RTA_OIF, &interface.to_ne_bytes());
    match router {
        Some(IpAddr::V4(router)) => attribute(&mut message, libc::RTA_GATEWAY, &router.octets()),
        Some(IpAddr::V6(router)) => attribute(&mut message, libc::RTA_GATEWAY, &router.octets()),
        None => {}
    }
    finish(message, libc::RTM_NEWROUTE, (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16)
}

/// Builds `RTM_NEWADDR` for an IPv6 address that is deprecated and never expires (rtnetlink(7)).
fn address_request(interface: u32, address: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![0u8; HEADER + ADDRESS];
    message[HEADER..HEADER + 2].copy_from_slice(&[libc::AF_INET6 as u8, 64]);
    message[HEADER + 4..].copy_from_slice(&interface.to_ne_bytes());
    attribute(&mut message, libc::IFA_LOCAL, &address.octets());
    attribute(&mut message, libc::IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes());
    // Preferred and valid lifetime in seconds, and two times of the kernel's own.
    let lifetimes = [0u32, u32::MAX, 0, 0].map(u32::to_ne_bytes).concat();
    attribute(&mut message, libc::IFA_CACHEINFO, &lifetimes);
    finish(message, libc::RTM_NEWADDR, (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16)
}

/// Builds `RTM_NEWLINK` that sets `IN6_ADDR_GEN_MODE_NONE`.
fn link_local_request(name: &str) -> Vec<u8> {
    let (mut family, mut families) = (Vec::new(), Vec::new());
    attribute(&mut family, ADDRESS_MODE, &[ADDRESS_MODE_NONE]);
    attribute(&mut families, libc::AF_INET6 as u16, &family);
    let mut message = vec![0u8; HEADER + LINK];
    attribute(&mut message, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    attribute(&mut message, libc::IFLA_AF_SPEC, &families);
    finish(message, libc::RTM_NEWLINK, 0)
}

/// Fills in the header: length, kind, and flags that request an acknowledgement.
fn finish(mut message: Vec<u8>, kind: u16, flags: u16) -> Vec<u8> {
    let len = message.len() as u32;
    message[0..4].copy_from_slice(&len.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = 4 + value.len() as u16;
    message.extend_from_slice(&len.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// The error in the kernel's acknowledgement: zero, or a negative number.
fn error_of(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let error = i32::from_ne_bytes(*answer.get(HEADER..)?.first_chunk()?);
    (i32::from(kind) == libc::NLMSG_ERROR).then_some(error)
}

/// Lengths in bytes of `struct nlmsghdr`, `struct ifinfomsg`, `struct rtmsg` and
/// `struct ifaddrmsg`.
const HEADER: usize = 16;
const LINK: usize = 16;
const ROUTE: usize = 12;
const ADDRESS: usize = 8;
/// `IFLA_INET6_ADDR_GEN_MODE` and `IN6_ADDR_GEN_MODE_NONE` (linux/if_link.h).
const ADDRESS_MODE: u16 = 8;
const ADDRESS_MODE_NONE: u8 = 1;
/// `VETH_INFO_PEER` (linux/veth.h).
const VETH_PEER: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_whole_words_and_answers_are_read() {
        let request =
            property_request("tollway", &[(Property::LongestTrain, 60_000), (Property::QueueLength, 9)]);
        assert_eq!(request.len(), 16 + 16 + 12 + 8 + 8);
        assert_eq!(u32::from_ne_bytes(request[..4].try_into().unwrap()) as usize, request.len());
        assert_eq!(route_request(3, false, None).len(), 16 + 12 + 8);
        let router = Some(IpAddr::from([10, 78, 0, 2]));
        assert_eq!(route_request(3, false, router).len(), 16 + 12 + 8 + 8);
        assert_eq!(route_request(3, true, Some(Ipv6Addr::LOCALHOST.into())).len(), 16 + 12 + 8 + 20);
        assert_eq!(address_request(3, Ipv6Addr::LOCALHOST).len(), 16 + 8 + 20 + 8 + 20);
        assert_eq!(link_local_request("tollway").len(), 16 + 16 + 12 + 4 + 4 + 8);
        let veth = Veth { name: "a", address: Some([2; 6]), peer: "b", peer_in: None };
        // The attribute of the kind contains the attribute of the peer.
        let (peer, kind) = (4 + 16 + 8, 8);
        assert_eq!(veth_request(&veth).len(), 16 + 16 + 8 + 12 + 4 + kind + 4 + 4 + peer - 4);
        let mut answer = [0u8; 36];
        assert_eq!(error_of(&answer), None);
        answer[4] = 2;
        assert_eq!(error_of(&answer), Some(0));
        answer[16..20].copy_from_slice(&(-1i32).to_ne_bytes());
        assert_eq!((error_of(&answer), error_of(&answer[..12])), (Some(-1), None));
    }
}
