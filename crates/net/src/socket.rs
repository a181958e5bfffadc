//! A node's UDP socket: trains of datagrams in and out.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use crate::buffers::LARGE;

/// A UDP socket with segmentation offload in both directions, where the system has it.
#[derive(Debug)]
pub(crate) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    addr: SocketAddr,
}

/// Receive buffers, and the kernel's metadata of each.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) buffers: [Box<[u8]>; BATCH],
    pub(crate) metas: [RecvMeta; BATCH],
}

impl Socket {
    /// Opens a socket on any free port of the loopback interface.
    pub(crate) fn on_loopback() -> io::Result<Socket> {
        Socket::on((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Opens a socket on `addr`.
    pub(crate) fn on(addr: SocketAddr) -> io::Result<Socket> {
        let io = UdpSocket::bind(addr)?;
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        // The system's limit for ordinary users applies. A burst waits there while the thread does
        // other work.
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&io), BUFFER);
        let _ = state.set_send_buffer_size(UdpSockRef::from(&io), BUFFER);
        let addr = io.local_addr()?;
        Ok(Socket { io, state, addr })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Limit of datagrams in one [`send`](Socket::send).
    pub(crate) fn longest_train(&self) -> usize {
        self.state.max_gso_segments().min(64)
    }

    /// Sends `bytes` as datagrams of `segment` bytes each; the last may be shorter.
    pub(crate) fn send(&self, to: SocketAddr, bytes: &[u8], segment: usize) -> io::Result<()> {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: bytes,
            segment_size: (bytes.len() > segment).then_some(segment),
            src_ip: None,
        };
        loop {
            match self.state.try_send(UdpSockRef::from(&self.io), &transmit) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Limit of a packet to `to`, in bytes with its IP header: the path MTU that the kernel knows.
    ///
    /// `None` if there is no route, or the kernel does not state it.
    #[cfg(target_os = "linux")]
    pub(crate) fn most_to(&self, to: SocketAddr) -> Option<usize> {
        let probe = UdpSocket::bind((self.addr.ip(), 0)).ok()?;
        probe.connect(to).ok()?;
        let (level, name) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        usize::try_from(number(&probe, level, name)?).ok()
    }

    /// No other system states it.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn most_to(&self, _to: SocketAddr) -> Option<usize> {
        None
    }

    /// Receives waiting datagrams into `inbox`. Returns the number of buffers filled.
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        let mut slices = inbox.buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
        match self.state.recv(UdpSockRef::from(&self.io), &mut slices, &mut inbox.metas) {
            Ok(n) => Ok(n),
            // An error of an earlier send; nothing was received.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::Interrupted
                        | io::ErrorKind::ConnectionRefused
                        | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Datagrams dropped at this socket's full buffer; `None` if the kernel does not count them.
    pub(crate) fn kernel_drops(&self) -> Option<u64> {
        let table = std::fs::read_to_string("/proc/net/udp").ok()?;
        drops_of_port(&table, self.addr.port())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox {
            buffers: std::array::from_fn(|_| vec![0; LARGE].into_boxed_slice()),
            metas: [RecvMeta::default(); BATCH],
        }
    }
}

/// Returns true if an error of sending only means that a datagram is lost.
///
/// The cause is a full buffer, no receiver, no route at present, or a firewall that drops it.
pub(crate) fn is_loss(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    let no_buffers = error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error());
    let no_way =
        matches!(error.kind(), NetworkUnreachable | HostUnreachable | NetworkDown | PermissionDenied);
    no_buffers || no_way || matches!(error.kind(), WouldBlock | ConnectionRefused | ConnectionReset)
}

/// Returns true if an error of sending means that a datagram is longer than the interface's limit.
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

/// Returns true if a train may have been refused for being a train.
///
/// Its segments exceed the interface's limit, which older kernels call an invalid argument, or
/// there is no offload. Its datagrams may still pass one by one.
pub(crate) fn is_of_trains(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let known = [Errno::MSGSIZE, Errno::INVAL, Errno::IO];
    known.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// An integer option of a socket; `None` if the kernel does not state it.
#[cfg(target_os = "linux")]
fn number(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> Option<libc::c_int> {
    let mut value = [0; size_of::<libc::c_int>()];
    crate::sys::sockopt::get(socket, level, name, &mut value).ok()?;
    Some(libc::c_int::from_ne_bytes(value))
}

/// Packets that this machine's processors dropped before the socket look-up, of any traffic.
///
/// `None` if the kernel does not count them.
pub(crate) fn backlog_drops() -> Option<u64> {
    backlog_drops_in(&std::fs::read_to_string("/proc/net/softnet_stat").ok()?)
}

/// The sum of the second column of `/proc/net/softnet_stat`, which has a row for each processor.
fn backlog_drops_in(table: &str) -> Option<u64> {
    let dropped = |row: &str| u64::from_str_radix(row.split_whitespace().nth(1)?, 16).ok();
    table.lines().map(dropped).sum()
}

/// The last column of `/proc/net/udp` in the row of a local port.
pub(crate) fn drops_of_port(table: &str, port: u16) -> Option<u64> {
    let ending = format!(":{port:04X}");
    let row =
        table.lines().find(|row| row.split_whitespace().nth(1).is_some_and(|a| a.ends_with(&ending)))?;
    row.split_whitespace().last()?.parse().ok()
}

/// Limit of trains per receiving system call.
pub(crate) const BATCH: usize = 8;
/// Requested size of a socket's buffers, in bytes. The system may give less.
const BUFFER: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_drops_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
             11: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 9 2 0000 17\n";
        assert_eq!(drops_of_port(table, 8080), Some(17));
        assert_eq!(drops_of_port(table, 8081), None);
        assert_eq!(drops_of_port("", 1), None);
        let table = "0617f3c9 00006728 00000003 00000000\n04f517f8 00000010 00000002 00000000\n";
        assert_eq!(backlog_drops_in(table), Some(0x6738));
        assert_eq!(backlog_drops_in("0617f3c9\n"), None);
        assert_eq!(backlog_drops_in("0617f3c9 none\n"), None);
    }
}
