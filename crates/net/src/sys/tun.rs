//! A TUN interface in the calling thread's network namespace: the kernel's end of an emulated
//! network.
//!
//! Packets that programs send are read here as bare IP packets. Packets written here are received
//! by programs. A `virtio_net_hdr` precedes each packet. With it, the kernel may leave a checksum
//! to the receiving side, and a train of TCP segments can pass as one packet.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::Errno;

use super::interface::{self, Arp, InterfaceRequest};
use super::netlink::{self, Property};

/// An interface that exists until this value is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    v6: bool,
}

/// Parameters of an interface.
#[derive(Clone, Copy, Debug)]
pub struct TunSpec {
    /// Its address.
    pub address: Ipv4Addr,
    /// The mask of its network.
    pub mask: Ipv4Addr,
    /// Its IPv6 address, in a network of 64 bits, if the kernel has IPv6.
    pub address_v6: Option<Ipv6Addr>,
    /// Limit of a train of segments that passes as one, in bytes; below two packets, no trains
    /// pass.
    pub train: u32,
}

impl Tun {
    /// Makes the interface, and brings it and the loopback interface up.
    pub fn open(spec: TunSpec) -> io::Result<Tun> {
        let (file, _) = make(NAME, libc::IFF_TUN)?;
        let trains = spec.train >= 2 * u32::from(MTU);
        let offload = libc::TUN_F_CSUM | if trains { libc::TUN_F_TSO4 | libc::TUN_F_TSO6 } else { 0 };
        set_offload(&file, offload)?;
        // Before the interface is up: the kernel would send router solicitations from it.
        let v6 = spec.address_v6.filter(|_| netlink::have_no_link_local(NAME).is_ok());
        interface::bring_up(NAME, spec.address, spec.mask, MTU, Arp::No)?;
        interface::bring_up_loopback()?;
        let mut properties = vec![(Property::QueueLength, QUEUE)];
        properties.extend(trains.then_some((Property::LongestTrain, spec.train)));
        netlink::set(NAME, &properties)?;
        let v6 = v6.is_some_and(|address| {
            let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0");
            interface::index(NAME).and_then(|index| netlink::add_address_v6(index, address)).is_ok()
        });
        Ok(Tun { file, v6 })
    }

    /// True if it has the IPv6 address of its specification.
    pub fn has_v6(&self) -> bool {
        self.v6
    }

    /// Makes an interface without addresses, for packets that a program in the kernel redirects to
    /// it; frames have Ethernet's header if `ethernet`. Returns its name, too.
    ///
    /// The kernel sends nothing there by itself if the program refuses that.
    pub fn open_bare(ethernet: bool) -> io::Result<(Tun, String)> {
        let (file, name) = make("tollway%d", if ethernet { libc::IFF_TAP } else { libc::IFF_TUN })?;
        let trains = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        // Trains of UDP exist since Linux 6.2.
        set_offload(&file, trains | TUN_F_USO).or_else(|_| set_offload(&file, trains))?;
        // A kernel without IPv6 has no such setting.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        interface::up(&name, LONGEST, Arp::No)?;
        netlink::set(&name, &[(Property::QueueLength, QUEUE)])?;
        Ok((Tun { file, v6: false }, name))
    }

    /// Reads one packet with its header. Returns the length; `None` if no packet waits.
    pub fn read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.file, &mut *into) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes one packet with its header.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        loop {
            match rustix::io::write(&self.file, frame) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes an interface of the given kind, `name` with a number for `%d`. Returns its name, too.
fn make(name: &str, kind: libc::c_int) -> io::Result<(File, String)> {
    let file = device(libc::O_NONBLOCK)?;
    let mut request = InterfaceRequest::new(name);
    request.set_short((kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16);
    request.ask(&file, libc::TUNSETIFF)?;
    Ok((file, request.name()))
}

/// Opens the device that makes TUN interfaces.
pub fn device(flags: libc::c_int) -> io::Result<File> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(DEVICE);
    opened.map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "`chmod 666 /dev/net/tun`, as root, allows all users to open it"
            }
            _ => "load it with `modprobe tun`, or start a container with `--device /dev/net/tun`",
        };
        io::Error::new(error.kind(), format!("{DEVICE}: {error}; {remedy}"))
    })
}

/// Payload bytes of each segment in the train `frame`; zero for a single packet.
pub fn segment_of(frame: &[u8]) -> u16 {
    match frame.first_chunk::<VNET_LEN>() {
        Some(header) if header[1] != GSO_NONE => u16::from_ne_bytes([header[4], header[5]]),
        _ => 0,
    }
}

/// Returns true if the receiving side must fill in the checksum of the packet in `frame`.
pub fn is_unfinished(frame: &[u8]) -> bool {
    frame.first().is_some_and(|flags| flags & NEEDS_CSUM != 0)
}

/// Packets for which the interface `name` had no room, from the text of `/proc/net/dev`.
///
/// The first count is of packets that programs sent and nothing read here. The second is of packets
/// written here that programs did not receive.
pub fn drops(table: &str, name: &str) -> Option<(u64, u64)> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let mut fields = row.split_whitespace().map(str::parse::<u64>);
    let received = fields.nth(3)?.ok()?;
    // The interface sends what programs send, so the columns change places here.
    let sent = fields.nth(7)?.ok()?;
    Some((sent, received))
}

/// Packets that programs sent and received through the interface `name`, from the text of
/// `/proc/net/dev`.
pub fn packets(table: &str, name: &str) -> Option<(u64, u64)> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let mut fields = row.split_whitespace().map(str::parse::<u64>);
    let received = fields.nth(1)?.ok()?;
    let sent = fields.nth(7)?.ok()?;
    Some((sent, received))
}

/// Sets the offloads: work of the kernel that programs' packets may come without.
#[expect(unsafe_code, reason = "no safe wrapper of TUNSETOFFLOAD among our dependencies")]
fn set_offload(file: &File, what: libc::c_uint) -> io::Result<()> {
    // SAFETY: the request takes a number and no memory.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(what)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const DEVICE: &str = "/dev/net/tun";
/// The interface's name in every namespace.
pub const NAME: &str = "tollway";
/// Length of `struct virtio_net_hdr`, in bytes.
pub const VNET_LEN: usize = 10;
/// Size of the longest packet, in bytes.
pub const MTU: u16 = 1500;
/// Limit of packets that wait for the emulator: more than any allowed burst.
const QUEUE: u32 = 10_000;
/// Size of the longest packet of a bare interface, in bytes: what Ethernet's header leaves of 64 KiB.
const LONGEST: u16 = u16::MAX - 14;
/// `TUN_F_USO4` and `TUN_F_USO6`.
const TUN_F_USO: libc::c_uint = 0x60;
/// `VIRTIO_NET_HDR_GSO_NONE` and `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const GSO_NONE: u8 = 0;
const NEEDS_CSUM: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interfaces_drops_are_read() {
        let table = "Inter-|   Receive                                                |  Transmit\n\
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
             \x20   lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n\
             tollway:     100       2    0    3    0     0          0         0      200       4    0    5    0     0       0          0\n";
        assert_eq!((drops(table, NAME), packets(table, NAME)), (Some((5, 3)), Some((4, 2))));
        assert_eq!((drops("", NAME), packets("", NAME)), (None, None));
    }

    #[test]
    fn a_train_says_how_long_its_segments_are() {
        let mut frame = [0u8; 30];
        assert_eq!(segment_of(&frame), 0);
        frame[1] = 1;
        frame[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        assert_eq!(segment_of(&frame), 1448);
        assert_eq!(segment_of(&frame[..9]), 0);
    }
}
