//! Services of the host inside an emulated network: what connects to a node's port there is connected to the host's.
//!
//! A relay ends a connection and opens another, over the host's own loopback. So what crosses the emulated links is the
//! kernel's TCP between the program and the relay, whose round trip is that of the links.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::SockRef;

use super::namespace::Namespace;

/// A port of a node that leads to a port of the host's loopback interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The node.
    pub node: u32,
    /// The port there.
    pub port: u16,
    /// The port at the host.
    pub host: u16,
    /// UDP; else TCP.
    pub udp: bool,
}

/// Listens on `port` of `address` in `namespace`, and relays from then on.
pub(crate) fn start(namespace: &Namespace, address: Ipv4Addr, publish: Publish) -> io::Result<()> {
    let at = (address, publish.port);
    let thread = std::thread::Builder::new().name("tollway-relay".into());
    if publish.udp {
        let socket = namespace.within(|| UdpSocket::bind(at))?;
        thread.spawn(move || {
            // A socket that fails for good has nobody left to serve.
            let _ = relay_datagrams(&socket, publish.host);
        })?;
    } else {
        let listener = namespace.within(|| TcpListener::bind(at))?;
        thread.spawn(move || accept(&listener, publish.host))?;
    }
    Ok(())
}

fn accept(listener: &TcpListener, host: u16) {
    loop {
        let Ok((inner, _)) = listener.accept() else {
            // Out of descriptors, or a connection that ended before it was taken: others may fare better.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let spawned = std::thread::Builder::new().spawn(move || match connect(host) {
            Ok(outer) => relay_stream(&inner, &outer),
            // Nobody there: whoever asked is to hear that at once.
            Err(_) => drop(SockRef::from(&inner).set_linger(Some(Duration::ZERO))),
        });
        drop(spawned);
    }
}

fn connect(host: u16) -> io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, host))
        .or_else(|_| TcpStream::connect((Ipv6Addr::LOCALHOST, host)))
}

/// Passes bytes both ways until both are done.
fn relay_stream(inner: &TcpStream, outer: &TcpStream) {
    let _ = (inner.set_nodelay(true), outer.set_nodelay(true));
    std::thread::scope(|scope| {
        scope.spawn(|| pass(inner, outer));
        pass(outer, inner);
    });
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0u8; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(len) if to.write_all(&buffer[..len]).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // One side broke off: so does the other.
            Ok(_) | Err(_) => {
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                return;
            }
        }
    }
}

/// Passes datagrams, with a socket towards the host for each peer, so that answers find back.
fn relay_datagrams(inner: &UdpSocket, host: u16) -> io::Result<()> {
    inner.set_nonblocking(true)?;
    let mut peers = Peers { host, list: Vec::new() };
    let mut buffer = vec![0u8; CHUNK];
    loop {
        let mut fds = vec![PollFd::new(inner, PollFlags::IN)];
        fds.extend(peers.list.iter().map(|peer| PollFd::new(&peer.socket, PollFlags::IN)));
        match rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (peer, _) in peers.list.iter_mut().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            while let Ok(len) = peer.socket.recv(&mut buffer) {
                peer.used = Instant::now();
                let _ = inner.send_to(&buffer[..len], peer.addr);
            }
        }
        while let Ok((len, addr)) = inner.recv_from(&mut buffer) {
            // A datagram may get lost, and the next one fare better.
            if let Ok(socket) = peers.socket(addr) {
                let _ = socket.send(&buffer[..len]);
            }
        }
        peers.list.retain(|peer| peer.used.elapsed() <= FORGOTTEN);
    }
}

/// Who has sent datagrams, and a socket towards the host for each.
struct Peers {
    host: u16,
    list: Vec<Peer>,
}

struct Peer {
    addr: SocketAddr,
    socket: UdpSocket,
    used: Instant,
}

impl Peers {
    /// The socket for what `addr` sends. Resolvers ask each question from another port: when there are too many, or no more
    /// descriptors, the peer that has been silent for longest gives its place.
    fn socket(&mut self, addr: SocketAddr) -> io::Result<&UdpSocket> {
        let at = match self.list.iter().position(|peer| peer.addr == addr) {
            Some(at) => at,
            None => {
                if self.list.len() >= PEERS {
                    self.forget_one();
                }
                let socket = self.open().or_else(|_| {
                    self.forget_one();
                    self.open()
                })?;
                self.list.push(Peer { addr, socket, used: Instant::now() });
                self.list.len() - 1
            }
        };
        self.list[at].used = Instant::now();
        Ok(&self.list[at].socket)
    }

    fn open(&self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, self.host))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    fn forget_one(&mut self) {
        if let Some((oldest, _)) = self.list.iter().enumerate().min_by_key(|(_, peer)| peer.used) {
            self.list.swap_remove(oldest);
        }
    }
}

/// Bytes passed on at a time; the largest datagram fits.
const CHUNK: usize = 1 << 16;
/// A peer that has been silent for so long gets another socket.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Peers with a socket at a time.
const PEERS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_few_and_who_asks_again_keeps_its_socket() {
        let mut peers = Peers { host: 9, list: Vec::new() };
        let mut port =
            |peer| peers.socket(([10, 77, 0, 1], peer).into()).unwrap().local_addr().unwrap().port();
        let first = port(1);
        for peer in 2..=2 * PEERS as u16 {
            port(peer);
            assert_eq!(port(1), first);
        }
        assert_eq!(peers.list.len(), PEERS);
    }
}
