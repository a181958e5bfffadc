//! Services of the host inside an emulated network: connections to a port of a node are relayed to
//! the host. Connections in the opposite direction ([`listen`](super::listen)) use the same relay.
//!
//! A relay ends a connection and opens another, over the host's loopback. So the connection over
//! the emulated links is the kernel's TCP between the program and the relay, with the round trip of
//! the links.

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::{Domain, SockRef, Socket, Type};
use tollway_net::outqueue::unacknowledged;
use tollway_net::sys::namespace::Namespace;
use tollway_net::sys::sockopt::at_urgent;
use tollway_scenario::plan::Connections;

use super::ports::{Port, Ports};

/// A port of a node that leads to a port of the host's loopback interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Index of the node.
    pub node: u32,
    /// The port at the node.
    pub port: u16,
    /// The port at the host.
    pub host: u16,
    /// True for UDP, false for TCP.
    pub udp: bool,
}

/// Listens on the port at each of `addresses` in `namespace`, and relays from then on.
pub(super) fn start(
    namespace: &Namespace,
    addresses: impl Iterator<Item = IpAddr> + Send,
    publish: Publish,
    ports: &Ports,
) -> io::Result<()> {
    let ends = addresses.map(|address| SocketAddr::from((address, publish.port)));
    let thread = || std::thread::Builder::new().name("tollway-relay".into());
    // All sockets, or none.
    if publish.udp {
        let sockets = namespace.within(|| open_all(ends, UdpSocket::bind))?;
        for socket in sockets {
            thread().spawn(move || {
                // A socket that fails for good has no peers left.
                let _ = relay_datagrams(&socket, publish.host);
            })?;
        }
    } else {
        let listeners = namespace.within(|| open_all(ends, listen))?;
        let port = ports.relay(publish.node, publish.port, true);
        for listener in listeners {
            let port = port.clone();
            thread().spawn(move || accept(&listener, &port, &move || connect(publish.host)))?;
        }
    }
    Ok(())
}

/// Opens a socket at each of `ends`. Those of IPv6 are left out if the node has no IPv6, as after
/// `--sysctl net.ipv6.conf.all.disable_ipv6=1`.
pub(super) fn open_all<T>(
    ends: impl Iterator<Item = SocketAddr>,
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let opened = ends.map(|at| (at, open(at)));
    let kept = opened.filter(|(at, opened)| match opened {
        Err(error) => at.is_ipv4() || error.kind() == io::ErrorKind::AddrInUse,
        Ok(_) => true,
    });
    kept.map(|(_, opened)| opened).collect()
}

/// A listener with a long queue of new connections.
pub(super) fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    // The system caps the length (`net.core.somaxconn`).
    socket.listen(c_int::MAX)?;
    Ok(socket.into())
}

/// Relays each connection that `listener` accepts to a connection that `open` makes to `port`.
pub(super) fn accept(
    listener: &TcpListener,
    port: &Port,
    open: &(impl Fn() -> io::Result<TcpStream> + Clone + Send + 'static),
) {
    loop {
        let Ok((client, _)) = listener.accept() else {
            // Descriptors are used up, or a connection ended before it was accepted; later ones may
            // succeed.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        // Without a service or a thread, the client gets a reset at once.
        let _ = lingers_not(&client);
        if port.treatment().0.connections == Connections::Reset {
            continue;
        }
        let (open, port) = (open.clone(), port.clone());
        let spawned = std::thread::Builder::new().name("tollway-relay".into()).spawn(move || {
            if let Ok(server) = open() {
                // A connection that can't be relayed any further is reset.
                let _ = relay_stream(&[client, server], &port);
            }
        });
        drop(spawned);
    }
}

fn connect(host: u16) -> io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, host))
        .or_else(|_| TcpStream::connect((Ipv6Addr::LOCALHOST, host)))
}

/// Relays bytes both ways until both ends are closed. A reset of one stream resets the other, and
/// the end of this process resets both, so that no part passes for the whole.
fn relay_stream(streams: &[TcpStream; 2], port: &Port) -> io::Result<()> {
    for stream in streams {
        lingers_not(stream)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // Urgent data stays in its place in the stream; otherwise a read leaves it out.
        SockRef::from(stream).set_out_of_band_inline(true)?;
    }
    let mut ways = [Way::new(), Way::new()];
    let (mut treatment, mut changed) = port.treatment();
    loop {
        match treatment.connections {
            Connections::Carry => {}
            Connections::Reset => return Ok(()),
            Connections::Stall => {
                let _ = rustix::event::poll(&mut [PollFd::new(&changed, PollFlags::empty())], None);
                (treatment, changed) = port.treatment();
                continue;
            }
        }
        for from in [0, 1] {
            let way = &mut ways[from];
            let broken = match way.pass(&streams[from], &streams[1 - from], treatment.close_delay) {
                Ok(()) => continue,
                Err(Broken::Source) => from,
                Err(Broken::Sink) => 1 - from,
            };
            return ways[broken].break_off(&streams[broken], &streams[1 - broken]);
        }
        if ways.iter().all(|way| way.over) {
            return streams.iter().try_for_each(|stream| SockRef::from(stream).set_linger(None));
        }
        // A stream whose input has ended may still be reset.
        let waits = [0, 1].map(|at| ways[at].ends.is_some() && !ways[1 - at].over);
        let mut fds = vec![(2, PollFd::new(&changed, PollFlags::empty()))];
        for at in [0, 1] {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, ways[at].ends.is_none() && ways[at].left.is_empty());
            events.set(PollFlags::OUT, !ways[1 - at].left.is_empty());
            if waits[at] || !events.is_empty() {
                fds.push((at, PollFd::new(&streams[at], events)));
            }
        }
        let (of, mut fds): (Vec<usize>, Vec<PollFd<'_>>) = fds.into_iter().unzip();
        let next = ways.iter().filter(|way| !way.over).filter_map(|way| way.ends).min();
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let gone = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP);
        let lost = of.iter().zip(&fds).skip(1).find(|&(&at, fd)| waits[at] && gone(fd));
        if let Some((&at, _)) = lost {
            return ways[at].break_off(&streams[at], &streams[1 - at]);
        }
        let is_changed = gone(&fds[0]);
        drop(fds);
        if is_changed {
            (treatment, changed) = port.treatment();
        }
    }
}

/// The bytes on their way from one stream to the other.
struct Way {
    buffer: Vec<u8>,
    /// The part of the buffer that is still to be written.
    left: Range<usize>,
    /// `left` is one urgent byte (RFC 6093).
    urgent: bool,
    /// The end was read, and is to be passed on at this time.
    ends: Option<Instant>,
    /// The end was passed on.
    over: bool,
}

/// The end of a way that was reset.
enum Broken {
    Source,
    Sink,
}

impl Way {
    fn new() -> Way {
        Way { buffer: vec![0; CHUNK], left: 0..0, urgent: false, ends: None, over: false }
    }

    /// Passes on the bytes available, as far as there is room, and an end `close_delay` later.
    fn pass(
        &mut self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        close_delay: Duration,
    ) -> Result<(), Broken> {
        for _ in 0..TURN {
            if let Some(at) = self.ends {
                if !self.over && Instant::now() >= at {
                    // If `to` is broken, its next read or write shows it.
                    let _ = to.shutdown(Shutdown::Write);
                    self.over = true;
                }
                break;
            }
            if self.left.is_empty() {
                // A read ends before an urgent byte, and the next one must end after it.
                self.urgent = at_urgent(from).map_err(|_| Broken::Source)?;
                let room = if self.urgent { 1 } else { CHUNK };
                match from.read(&mut self.buffer[..room]) {
                    Ok(0) => self.ends = Some(Instant::now() + close_delay),
                    Ok(len) => self.left = 0..len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return Err(Broken::Source),
                }
                continue;
            }
            let left = &self.buffer[self.left.clone()];
            let written = match self.urgent {
                true => SockRef::from(to).send_out_of_band(left),
                false => to.write(left),
            };
            match written {
                Ok(len) => self.left.start += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken::Sink),
            }
        }
        Ok(())
    }

    /// Resets the stream `to`, as `from` was, once `to` has the bytes received before.
    fn break_off(&mut self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        to.set_nonblocking(false)?;
        loop {
            to.write_all(&self.buffer[self.left.clone()])?;
            match from.read(&mut self.buffer) {
                Ok(len @ 1..) => self.left = 0..len,
                _ => break,
            }
        }
        while unacknowledged(to)? > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        lingers_not(to)
    }
}

/// Makes the close of a stream a reset.
fn lingers_not(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

/// Relays datagrams, with one socket towards the host per peer, so that answers reach it.
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
            // A datagram may be lost; the next one may arrive.
            if let Ok(socket) = peers.socket(addr) {
                let _ = socket.send(&buffer[..len]);
            }
        }
        peers.list.retain(|peer| peer.used.elapsed() <= FORGOTTEN);
    }
}

/// The peers that have sent datagrams, each with a socket towards the host.
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
    /// Returns the socket for datagrams from `addr`. Resolvers use a new port for each question. If
    /// there are too many peers, or no descriptors left, the peer that was silent for longest is
    /// forgotten.
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
/// Reads and writes in one direction before the other direction continues.
const TURN: usize = 32;
/// Silence after which a peer is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Upper bound of peers with a socket.
const PEERS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// The two ends of a stream.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    /// Calls `talk` with a client and a server that are connected through a relay.
    fn relayed(talk: impl FnOnce(TcpStream, TcpStream)) {
        let ((client, inner), (server, outer)) = (pair(), pair());
        let port = Ports::new().unwrap().relay(0, 1, true);
        let relay = std::thread::spawn(move || drop(relay_stream(&[inner, outer], &port)));
        talk(client, server);
        relay.join().unwrap();
    }

    #[test]
    fn an_end_is_passed_on_as_an_end_and_the_answer_to_it_too() {
        relayed(|mut client, mut server| {
            // More than a relay and its sockets can hold.
            let request = vec![7; 20 << 20];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    client.write_all(&request).unwrap();
                    client.shutdown(Shutdown::Write).unwrap();
                });
                let mut read = Vec::new();
                server.read_to_end(&mut read).unwrap();
                assert!(read == request);
            });
            server.write_all(b"answer").unwrap();
            drop(server);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "answer");
        });
    }

    #[test]
    fn who_breaks_off_breaks_off_the_other_after_what_was_said() {
        for half_closed in [false, true] {
            relayed(|mut client, mut server| {
                if half_closed {
                    client.shutdown(Shutdown::Write).unwrap();
                    assert_eq!(server.read(&mut [0]).unwrap(), 0);
                }
                server.write_all(&[7; 5000]).unwrap();
                // Both halves of a connection are reset.
                std::thread::sleep(Duration::from_millis(50));
                lingers_not(&server).unwrap();
                drop(server);
                let (mut read, mut buffer) = (0, [0; 1000]);
                let error = loop {
                    match client.read(&mut buffer) {
                        Ok(0) => panic!("a part passes for the whole"),
                        Ok(len) => read += len,
                        Err(error) => break error,
                    }
                };
                assert_eq!((read, error.kind()), (5000, io::ErrorKind::ConnectionReset));
            });
        }
    }

    #[test]
    fn who_waits_for_an_answer_and_goes_is_not_waited_for() {
        relayed(|client, mut server| {
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(server.read(&mut [0]).unwrap(), 0);
            lingers_not(&client).unwrap();
            drop(client);
            // After an end of input only a later write shows a reset; the kernel knows it before.
            let mut fds = [PollFd::new(&server, PollFlags::empty())];
            let most = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut fds, Some(&most)).unwrap(), 1);
            assert!(server.write_all(b"more").is_err());
        });
    }

    /// Telnet's interrupt and FTP's abort: out of band if the receiver reads it so, otherwise in
    /// its place.
    #[test]
    fn an_urgent_byte_stays_in_its_place_and_urgent() {
        relayed(|mut client, mut server| {
            for inline in [false, true] {
                SockRef::from(&server).set_out_of_band_inline(inline).unwrap();
                client.write_all(b"before").unwrap();
                assert_eq!(SockRef::from(&client).send_out_of_band(b"!").unwrap(), 1);
                client.write_all(b"after").unwrap();
                let mut read = [0; 6];
                server.read_exact(&mut read).unwrap();
                assert_eq!(&read, b"before");
                let mut fds = [PollFd::new(&server, PollFlags::PRI)];
                let most = Timespec { tv_sec: 10, tv_nsec: 0 };
                assert_eq!(rustix::event::poll(&mut fds, Some(&most)).unwrap(), 1, "nothing is urgent");
                let mut read = Vec::new();
                if !inline {
                    let mut urgent = [std::mem::MaybeUninit::uninit()];
                    assert_eq!(SockRef::from(&server).recv_out_of_band(&mut urgent).unwrap(), 1);
                    read.push(b'!');
                }
                while read.len() < 6 {
                    let mut buffer = [0; 6];
                    let len = server.read(&mut buffer).unwrap();
                    assert!(len > 0);
                    read.extend(&buffer[..len]);
                }
                assert_eq!(read, b"!after");
            }
            drop((client, server));
        });
    }

    #[test]
    fn many_may_come_at_once() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let come = |_| TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
        assert_eq!((0..400).map_while(come).collect::<Vec<_>>().len(), 400);
    }

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
