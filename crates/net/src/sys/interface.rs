//! Interfaces of the calling thread's network namespace, by ioctl (netdevice(7)).

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// Use of ARP on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arp {
    /// The interface requests the hardware addresses of others.
    Yes,
    /// The interface has no ARP.
    No,
}

/// Sets the address of the interface `name` and brings it up.
pub fn bring_up(name: &str, address: Ipv4Addr, mask: Ipv4Addr, mtu: u16, arp: Arp) -> io::Result<()> {
    let socket = any_socket()?;
    let ask = |address, what| {
        let mut request = InterfaceRequest::new(name);
        request.set_address(address);
        request.ask(&socket, what)
    };
    ask(address, libc::SIOCSIFADDR)?;
    ask(mask, libc::SIOCSIFNETMASK)?;
    up(name, mtu, arp)
}

/// The addresses of this machine in the calling thread's network namespace.
pub fn addresses() -> Vec<IpAddr> {
    let table =
        |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let mut all = addresses_v4(&table("fib_trie"));
    let v6 = table("if_inet6");
    let digits = v6.lines().filter_map(|line| u128::from_str_radix(line.get(..32)?, 16).ok());
    all.extend(digits.map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits))));
    all
}

/// The local addresses in a text like `/proc/net/fib_trie`.
fn addresses_v4(table: &str) -> Vec<IpAddr> {
    let (mut last, mut all) = (None, Vec::new());
    for line in table.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            last = address.trim().parse().ok();
        } else if line.trim() == "/32 host LOCAL" {
            all.extend(last.filter(|address| !all.contains(address)));
        }
    }
    all
}

/// Brings the interface `name` up, for packets of up to `mtu` bytes.
pub fn up(name: &str, mtu: u16, arp: Arp) -> io::Result<()> {
    let socket = any_socket()?;
    let mut request = InterfaceRequest::new(name);
    request.set_int(c_int::from(mtu));
    request.ask(&socket, libc::SIOCSIFMTU)?;
    let mut request = InterfaceRequest::new(name);
    request.set_short(if arp == Arp::No { UP | libc::IFF_NOARP as i16 } else { UP });
    request.ask(&socket, libc::SIOCSIFFLAGS)
}

/// Brings the loopback interface up. The kernel gives it its address.
pub fn bring_up_loopback() -> io::Result<()> {
    let mut loopback = InterfaceRequest::new("lo");
    loopback.set_short(UP);
    loopback.ask(&any_socket()?, libc::SIOCSIFFLAGS)
}

/// The number of the interface `name`.
pub fn index(name: &str) -> io::Result<u32> {
    let mut request = InterfaceRequest::new(name);
    request.ask(&any_socket()?, libc::SIOCGIFINDEX)?;
    Ok(request.int() as u32)
}

/// The hardware address of the interface `name`.
pub fn hardware_address(name: &str) -> io::Result<[u8; 6]> {
    let [_, _, a, b, c, d, e, f, ..] = hardware(name)?;
    Ok([a, b, c, d, e, f])
}

/// True if frames of the interface `name` have Ethernet's header.
pub fn is_ethernet(name: &str) -> io::Result<bool> {
    let [low, high, ..] = hardware(name)?;
    Ok([libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&u16::from_ne_bytes([low, high])))
}

/// The `struct sockaddr` of an interface: its kind, then its address.
fn hardware(name: &str) -> io::Result<[u8; 24]> {
    let mut request = InterfaceRequest::new(name);
    request.ask(&any_socket()?, libc::SIOCGIFHWADDR)?;
    Ok(request.value)
}

/// Any socket of a namespace can query the interfaces there.
fn any_socket() -> io::Result<socket2::Socket> {
    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)
}

/// The `struct ifreq` of an ioctl: an interface's name and a value.
#[repr(C, align(8))]
pub struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

impl InterfaceRequest {
    /// Makes a request for the interface `name`.
    pub fn new(name: &str) -> InterfaceRequest {
        let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], value: [0; 24] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request
    }

    /// The interface's name, which the kernel may have completed.
    pub fn name(&self) -> String {
        let len = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..len]).into_owned()
    }

    /// Sets a 16-bit value.
    pub fn set_short(&mut self, value: i16) {
        self.value[..2].copy_from_slice(&value.to_ne_bytes());
    }

    fn set_int(&mut self, value: c_int) {
        self.value[..4].copy_from_slice(&value.to_ne_bytes());
    }

    fn int(&self) -> c_int {
        let [a, b, c, d, ..] = self.value;
        c_int::from_ne_bytes([a, b, c, d])
    }

    /// Sets a value that is a `struct sockaddr_in`.
    fn set_address(&mut self, address: Ipv4Addr) {
        self.value[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        self.value[4..8].copy_from_slice(&address.octets());
    }

    /// Makes the ioctl(2) request `what` for this interface on the socket `of`.
    ///
    /// The call is unsafe code because none of the crates here wraps these requests.
    #[expect(unsafe_code, reason = "no safe wrapper of these ioctl(2) requests among our dependencies")]
    pub fn ask(&mut self, of: &impl AsRawFd, what: libc::Ioctl) -> io::Result<()> {
        // SAFETY: each of the requests used reads and writes one `struct ifreq` of 40 bytes, which
        // `self` is, and keeps nothing.
        let done = unsafe { libc::ioctl(of.as_raw_fd(), what, std::ptr::from_mut(self)) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

const UP: i16 = (libc::IFF_UP | libc::IFF_RUNNING) as i16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_found_and_networks_are_not() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.0.0\n        /24 link UNICAST\nLocal:\n\
            \x20 +-- 10.1.0.0/24 2 0 2\n     |-- 10.1.0.7\n        /32 host LOCAL\n     |-- 10.1.0.255\n\
            \x20       /32 link BROADCAST\n     |-- 10.1.0.7\n        /32 host LOCAL\n";
        assert_eq!(addresses_v4(table), ["10.1.0.7".parse::<IpAddr>().unwrap()]);
        assert!(addresses_v4("").is_empty());
    }
}
