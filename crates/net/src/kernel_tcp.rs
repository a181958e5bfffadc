//! The kernel's own TCP on the links of a live network.
//!
//! A node where such a flow ends has a network namespace with a TUN interface, in addition to its
//! socket. Packets that the kernel sends are read there as bare IP packets. They cross the flow's
//! links as other packets do: in datagrams from node to node, behind an ACP header with the flow's
//! label. So routers need no special case. At its end the IP packet goes to the kernel of that
//! node's namespace.
//!
//! These namespaces have no name and end with the process.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tollway_law::Time;
use tollway_proto::encoding::acp;
use tollway_proto::{Flags, Packet, SackRanges};

use crate::buffers::Buffers;
use crate::error::Error;
use crate::label::CARRIER;
use crate::outqueue::unacknowledged;
use crate::sys::namespace::Namespace;
use crate::sys::sockopt::set_number;
use crate::sys::tcp_info::{TcpInfo, tcp_info};
use crate::sys::tun::{self, Tun, TunSpec};
use crate::sys::{address, ip};
use crate::waits::{Waited, Waits};
use crate::wire;

/// A data transfer from one node to another over the kernel's TCP.
#[derive(Clone, Debug)]
pub struct KernelSpec {
    /// The kernel's name of the congestion control: `reno`, `cubic`, `bbr`, …
    pub congestion: String,
    /// Bytes to send; unlimited if `None`.
    pub bytes: Option<u64>,
    /// True if the same number of bytes is sent back on the same connection.
    pub both_ways: bool,
    /// Limit of a receiver's window, in bytes; the kernel's default if `None`.
    pub receive_buffer: Option<u32>,
    /// True if this limit will change
    /// ([`Network::set_kernel_buffer`](crate::Network::set_kernel_buffer)). The opening then leaves
    /// room for any window.
    pub changes: bool,
    /// Size of a full packet with its IP header, in bytes; at most 1500.
    pub packet: u16,
}

/// The kernel's counters of one direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelStats {
    /// Bytes of IP packets with data handed to the receiver's kernel, headers included.
    pub received: u64,
    /// Payload that the receiver read and found correct, in bytes.
    pub delivered: u64,
    /// Bytes of IP packets with data that the sender's kernel sent.
    pub sent: u64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// The congestion window, in packets.
    pub cwnd: f64,
    /// The smoothed round-trip time.
    pub srtt: Time,
    /// Packets sent and not yet acknowledged.
    pub in_flight: u32,
    /// Time at which all data were acknowledged.
    pub done: Option<Time>,
}

/// A node's own kernel.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) namespace: Namespace,
    /// Index of the node in its driver.
    pub(crate) node: u32,
    /// By number of a kernel flow, the label of its packets from here, and its end here.
    flows: Vec<Option<(u32, u32)>>,
    /// Packets read from it and written to it.
    pub(crate) read: u64,
    pub(crate) written: u64,
}

impl Room {
    /// Makes the namespace and interface of a node, whose index in its driver is `at`.
    pub(crate) fn new(node: u32, at: u32) -> Result<(Room, Tun), Error> {
        let spec = TunSpec {
            address: address(node),
            mask: Ipv4Addr::new(255, 255, 0, 0),
            address_v6: None,
            train: 0,
        };
        let problem = |action| move |source| Error::Namespace { action, source };
        let (namespace, tun) = Namespace::new(spec).map_err(problem("make a network namespace"))?;
        // Single segments, as the simulator sends. Trains of two, the kernel's least, are a queue.
        namespace.set("net.ipv4.tcp_min_tso_segs", "1").map_err(problem("set a parameter of a namespace"))?;
        Ok((Room { namespace, node: at, flows: Vec::new(), read: 0, written: 0 }, tun))
    }

    /// Assigns the label and the end `at` to packets of flow `number`.
    pub(crate) fn assign(&mut self, number: usize, label: u32, at: u32) {
        if self.flows.len() <= number {
            self.flows.resize(number + 1, None);
        }
        self.flows[number] = Some((label, at));
    }

    /// Reads a packet that the kernel sent, and makes a datagram of it.
    ///
    /// Returns the datagram and its end here; `None` if no packet waits. Packets of no flow are
    /// counted in `strangers`.
    pub(crate) fn read(
        &mut self,
        tun: &Tun,
        frame: &mut [u8],
        buffers: &mut Buffers,
        strangers: &mut u64,
    ) -> io::Result<Option<(u32, u32)>> {
        loop {
            let Some(len) = tun.read(frame)? else { return Ok(None) };
            self.read += 1;
            let frame = &frame[..len];
            let known = frame.get(tun::VNET_LEN..).and_then(|bytes| self.packet_of(bytes));
            let Some((packet, at)) = known else {
                *strangers += 1;
                continue;
            };
            let handle = buffers.alloc(packet, acp::LEN + len);
            let bytes = buffers.bytes_mut(handle);
            let (head, rest) = bytes.split_at_mut(acp::LEN);
            rest.copy_from_slice(frame);
            // The buffer has room for a header without ranges.
            let _ = acp::encode(&packet, &SackRanges::EMPTY, head);
            return Ok(Some((handle, at)));
        }
    }

    /// Hands the packet in a datagram to the kernel.
    ///
    /// Returns its bytes if it has data, else 0; `None` if the kernel refuses it.
    pub(crate) fn write(&mut self, tun: &Tun, datagram: &mut [u8]) -> Option<u16> {
        let (flags, toll) = acp::load(datagram).unwrap_or_default();
        let frame = datagram.get_mut(acp::LEN..)?;
        let unfinished = tun::is_unfinished(frame);
        let packet = frame.get_mut(tun::VNET_LEN..)?;
        let header = ip::parse(packet).ok()?;
        ip::store(packet, &Packet { flags, toll, size: header.len, ..Packet::default() }, unfinished);
        tun.write(frame).ok()?;
        self.written += 1;
        Some(if header.payload() > 0 { header.len } else { 0 })
    }

    /// The kernel's counters of the interface: packets sent, packets received, packets dropped for
    /// lack of room.
    pub(crate) fn counted(&self) -> Option<(u64, u64, u64)> {
        let table = self.namespace.interfaces().ok()?;
        let (sent, received) = tun::packets(&table, tun::NAME)?;
        let (unsent, unreceived) = tun::drops(&table, tun::NAME)?;
        Some((sent, received, unsent + unreceived))
    }

    /// The packet that links see in an IP packet, and its end here; `None` if it belongs to no
    /// flow.
    fn packet_of(&self, bytes: &[u8]) -> Option<(Packet, u32)> {
        let header = ip::parse(bytes).ok()?;
        let tuple = header.flow;
        // Both ends of a flow have the port that states its number.
        let number = usize::from(tuple.source_port.checked_sub(PORTS)?);
        let (flow, at) = self.flows.get(number).copied().flatten()?;
        if tuple.protocol != TCP || tuple.source_port != tuple.destination_port {
            return None;
        }
        let data = if header.payload() > 0 { Flags::DATA } else { Flags::NONE };
        let mut packet = Packet { flow, size: header.len, flags: header.ecn.with(data), ..Packet::default() };
        if let Some((_, tolled)) = ip::toll_option(bytes, &header) {
            packet.flags.set(Flags::TOLLED);
            packet.toll = tolled.toll(u32::from(header.len));
        }
        Some((packet, at))
    }
}

const _: () = assert!(CARRIER as usize == acp::OVERHEAD + acp::LEN + tun::VNET_LEN);
/// The port of both ends of the first kernel flow.
pub(crate) const PORTS: u16 = 20_000;
/// Limit of kernel flows in one network.
pub(crate) const MOST: usize = 40_000;
const TCP: u8 = 6;

/// The programs at the two ends of a flow.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The addresses of the client and the server.
    pub(crate) addresses: [SocketAddr; 2],
    shared: Arc<Shared>,
    /// The client's socket, until the flow is complete.
    opener: Option<Socket>,
    threads: Vec<JoinHandle<()>>,
    /// Work of the threads, once the run begins.
    waiting: Option<(TcpListener, Errand)>,
    both_ways: bool,
    /// Last state of the kernel's socket, by direction.
    last: [TcpInfo; 2],
    /// True for each direction whose end was reported.
    told: [bool; 2],
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    /// Forward and back.
    ways: [Way; 2],
    /// The server's socket, once the connection is accepted.
    accepted: Mutex<Option<Socket>>,
    /// Limit of the connected receivers' windows, if it changes; 0 until it is set.
    window: AtomicU32,
    waits: Waits,
}

/// The progress of one direction at its receiver.
#[derive(Debug, Default)]
struct Way {
    delivered: AtomicU64,
    /// Acknowledgement of all data, in nanoseconds from the run's start; 0 until then.
    done: AtomicU64,
    /// One plus the position of a wrong byte; 0 if none.
    wrong: AtomicU64,
}

#[derive(Clone, Debug)]
struct Errand {
    to: SocketAddrV4,
    bytes: Option<u64>,
    both_ways: bool,
    start: Time,
    stop: Time,
}

impl Programs {
    /// Opens the sockets of kernel flow number `k` from `client` to `server`, given by node number.
    pub(crate) fn new(
        k: usize,
        spec: &KernelSpec,
        (client, server): ((u32, &Namespace), (u32, &Namespace)),
        (start, stop): (Time, Time),
    ) -> Result<Programs, Error> {
        let port = PORTS + k as u16;
        let segment = u32::from(spec.packet).saturating_sub(40).max(88);
        let open = |namespace: &Namespace, node: u32| {
            namespace.within(|| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
                socket.set_reuse_address(true)?;
                // The interface may allow larger packets.
                socket.set_tcp_mss(segment)?;
                // The opening fixes the window scale, so a window that may grow is limited after
                // the opening.
                if let Some(window) = spec.receive_buffer.filter(|_| !spec.changes) {
                    offer_at_most(&socket, window)?;
                }
                socket.bind(&SocketAddr::from((address(node), port)).into())?;
                Ok(socket)
            })
        };
        let problem = |action| move |source| Error::Namespace { action, source };
        let congested = |socket: Socket| match socket.set_tcp_congestion(spec.congestion.as_bytes()) {
            Ok(()) => Ok(socket),
            Err(source) => Err(Error::Congestion { name: spec.congestion.clone(), source }),
        };
        let opener = open(client.1, client.0).map_err(problem("open a TCP socket in a namespace"))?;
        // The accepted socket inherits the listener's options.
        let listener = open(server.1, server.0).map_err(problem("open a TCP socket in a namespace"))?;
        let (opener, listener) = (congested(opener)?, congested(listener)?);
        listener
            .listen(1)
            .and_then(|()| listener.set_nonblocking(true))
            .map_err(problem("listen in a namespace"))?;
        let errand = Errand {
            to: SocketAddrV4::new(address(server.0), port),
            bytes: spec.bytes,
            both_ways: spec.both_ways,
            start,
            stop,
        };
        let shared: Arc<Shared> = Arc::default();
        shared.window.store(spec.receive_buffer.filter(|_| spec.changes).unwrap_or(0), Ordering::SeqCst);
        Ok(Programs {
            addresses: [client.0, server.0].map(|node| SocketAddr::from((address(node), port))),
            shared,
            opener: Some(opener),
            threads: Vec::new(),
            waiting: Some((listener.into(), errand)),
            both_ways: spec.both_ways,
            last: [TcpInfo::default(); 2],
            told: [false; 2],
        })
    }

    /// Starts both threads; `begun` is the start of the run.
    pub(crate) fn begin(&mut self, begun: Instant) -> io::Result<()> {
        let (Some((listener, errand)), Some(opener)) = (self.waiting.take(), &self.opener) else {
            return Ok(());
        };
        let opener = opener.try_clone()?;
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(format!("tollway-{name}")).spawn(work)
        };
        // An error that ends the connection early shows in the bytes delivered.
        let (shared, task) = (Arc::clone(&self.shared), errand.clone());
        // A program that is late with its data would limit its connection.
        let answers = move || drop(shared.waits.during(|| answer(&listener, &task, &shared, begun)));
        self.threads.push(spawn("server", Box::new(answers))?);
        let shared = Arc::clone(&self.shared);
        let opens = move || drop(shared.waits.during(|| open(&opener, &errand, &shared, begun)));
        self.threads.push(spawn("client", Box::new(opens))?);
        Ok(())
    }

    /// Limits the receivers' windows to `window` bytes; no limit if `None`.
    pub(crate) fn set_receive_buffer(&self, window: Option<u32>) -> io::Result<()> {
        self.shared.window.store(window.unwrap_or(ANY_WINDOW), Ordering::SeqCst);
        if let Some(opener) = self.opener.as_ref().filter(|opener| opener.peer_addr().is_ok()) {
            self.shared.hold_down(opener)?;
        }
        held(&self.shared.accepted).as_ref().map_or(Ok(()), |accepted| self.shared.hold_down(accepted))
    }

    /// Counters of one direction. `sent` and `received` are bytes of packets at the two kernels.
    pub(crate) fn stats(&self, way: usize, sent: u64, received: u64) -> KernelStats {
        let info = self.info(way);
        KernelStats {
            received,
            delivered: self.shared.ways[way].delivered.load(Ordering::Relaxed),
            sent,
            retransmissions: info.retransmissions,
            cwnd: f64::from(info.cwnd),
            srtt: info.srtt,
            in_flight: info.in_flight,
            done: self.done(way),
        }
    }

    /// The kernel's state of the socket that sends in a direction.
    fn info(&self, way: usize) -> TcpInfo {
        let known = match way {
            0 => self.opener.as_ref().and_then(|socket| tcp_info(socket).ok()),
            _ => held(&self.shared.accepted).as_ref().and_then(|socket| tcp_info(socket).ok()),
        };
        known.unwrap_or(self.last[way])
    }

    /// Time at which all data of a direction were acknowledged.
    fn done(&self, way: usize) -> Option<Time> {
        let done = self.shared.ways[way].done.load(Ordering::Acquire);
        (done > 0).then_some(Time(done))
    }

    /// A direction that has completed since the last call, and its time.
    pub(crate) fn next_done(&mut self) -> Option<(usize, Time)> {
        let ways = 1 + usize::from(self.both_ways);
        let (way, at) =
            (0..ways).filter(|&way| !self.told[way]).find_map(|way| Some((way, self.done(way)?)))?;
        self.told[way] = true;
        if self.told[..ways].iter().all(|&told| told) {
            // One run may have many flows, so this flow's sockets and threads are freed.
            self.last = [0, 1].map(|way| self.info(way));
            self.opener = None;
            held(&self.shared.accepted).take();
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        Some((way, at))
    }

    /// The waits of the flow's threads for a processor.
    pub(crate) fn waited(&self) -> Waited {
        self.shared.waits.sum()
    }

    /// The position of a wrong byte, if any.
    pub(crate) fn wrong(&self) -> Option<u64> {
        self.shared.ways.iter().find_map(|way| way.wrong.load(Ordering::Relaxed).checked_sub(1))
    }
}

impl Shared {
    /// Applies the current window limit, if one is set, to a connected socket.
    fn hold_down(&self, socket: &Socket) -> io::Result<()> {
        match self.window.load(Ordering::SeqCst) {
            0 => Ok(()),
            // A smaller buffer than this is accepted.
            ANY_WINDOW => offer_at_most(socket, ANY_WINDOW).or(Ok(())),
            window => offer_at_most(socket, window),
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(socket) = &self.opener {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn held(socket: &Mutex<Option<Socket>>) -> MutexGuard<'_, Option<Socket>> {
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects at the start time, and sends until the end.
fn open(socket: &Socket, errand: &Errand, shared: &Shared, begun: Instant) -> io::Result<()> {
    let over = || shared.over.load(Ordering::Relaxed);
    while let Some(left) =
        instant(begun, errand.start).and_then(|start| start.checked_duration_since(Instant::now()))
    {
        if over() {
            return Ok(());
        }
        std::thread::sleep(left.min(TICK));
    }
    // The kernel repeats its SYNs without further calls.
    socket.set_nonblocking(true)?;
    let to = SocketAddr::from(errand.to).into();
    if let Err(error) = socket.connect(&to)
        && error.raw_os_error() != Some(libc::EINPROGRESS)
    {
        return Err(error);
    }
    while socket.peer_addr().is_err() {
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if over() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    make_patient(socket)?;
    shared.hold_down(socket)?;
    std::thread::scope(|scope| {
        if errand.both_ways {
            scope.spawn(|| shared.waits.during(|| read(socket, 1, errand.bytes, shared)));
        }
        write(socket, 0, errand, shared, begun)
    })
}

/// Accepts a connection, and reads to its end.
fn answer(listener: &TcpListener, errand: &Errand, shared: &Shared, begun: Instant) -> io::Result<()> {
    let stream: Socket = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream.into(),
            Err(_) if shared.over.load(Ordering::Relaxed) => return Ok(()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    make_patient(&stream)?;
    *held(&shared.accepted) = Some(stream.try_clone()?);
    shared.hold_down(&stream)?;
    std::thread::scope(|scope| {
        if errand.both_ways {
            scope.spawn(|| shared.waits.during(|| write(&stream, 1, errand, shared, begun)));
        }
        read(&stream, 0, errand.bytes, shared);
    });
    // A kernel delays its acknowledgement of a FIN, and of the data with it, for what its program
    // may have to say.
    if errand.both_ways { Ok(()) } else { stream.shutdown(std::net::Shutdown::Write) }
}

/// Makes the socket blocking with a timeout of [`TICK`], so that its thread sees the run's end.
fn make_patient(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_write_timeout(Some(TICK))?;
    socket.set_read_timeout(Some(TICK))
}

/// The instant of `time` in a run that began at `begun`; `None` for [`Time::NEVER`].
fn instant(begun: Instant, time: Time) -> Option<Instant> {
    (time < Time::NEVER).then(|| begun + Duration::from_nanos(time.0))
}

/// Sends in direction `way` until the end.
fn write(
    mut socket: &Socket,
    way: usize,
    errand: &Errand,
    shared: &Shared,
    begun: Instant,
) -> io::Result<()> {
    let stop = instant(begun, errand.stop);
    let (mut position, mut chunk) = (0u64, vec![0; CHUNK]);
    loop {
        let left = errand.bytes.map_or(CHUNK as u64, |bytes| bytes - position);
        let over = shared.over.load(Ordering::Relaxed);
        if left == 0 || over || stop.is_some_and(|stop| Instant::now() >= stop) {
            socket.shutdown(std::net::Shutdown::Write)?;
            // As in the simulator, data are through once acknowledged. The FIN, which counts as a
            // byte, may take a delayed acknowledgement more; it matters only to a reader that does
            // not know the number of bytes.
            while unacknowledged(socket)? > u32::from(left == 0) {
                if shared.over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                std::thread::sleep(LOOK);
            }
            let now = (begun.elapsed().as_nanos() as u64).max(1);
            shared.ways[way].done.store(now, Ordering::Release);
            return Ok(());
        }
        let within = position % CHUNK as u64;
        wire::fill(way as u32, (position / CHUNK as u64) as u32, &mut chunk);
        let end = CHUNK.min((within + left) as usize);
        match socket.write(&chunk[within as usize..end]) {
            Ok(count) => position += count as u64,
            Err(error) if is_no_end(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads and checks the data of direction `way` to their end.
fn read(mut socket: &Socket, way: usize, bytes: Option<u64>, shared: &Shared) {
    let Way { delivered, wrong, .. } = &shared.ways[way];
    let (mut position, mut chunk, mut right) = (0u64, vec![0; CHUNK], vec![0; CHUNK]);
    let mut block = None;
    while !shared.over.load(Ordering::Relaxed) && Some(position) != bytes {
        let within = (position % CHUNK as u64) as usize;
        match socket.read(&mut chunk[within..]) {
            Ok(0) => return,
            Ok(count) => {
                let number = (position / CHUNK as u64) as u32;
                if block.replace(number) != Some(number) {
                    wire::fill(way as u32, number, &mut right);
                }
                let (read, sent) = (&chunk[within..within + count], &right[within..within + count]);
                if let Some(at) = read.iter().zip(sent).position(|(read, sent)| read != sent) {
                    wrong.store(position + at as u64 + 1, Ordering::Relaxed);
                    return;
                }
                position += count as u64;
                delivered.store(position, Ordering::Relaxed);
            }
            Err(error) if is_no_end(&error) => {}
            Err(_) => return,
        }
    }
}

/// Returns true if an error only means that nothing happened before the timeout.
fn is_no_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Limits the window of a socket to `window` bytes (tcp(7), `TCP_WINDOW_CLAMP`), with a buffer of
/// that size.
fn offer_at_most(socket: &Socket, window: u32) -> io::Result<()> {
    let most = libc::c_int::try_from(window).unwrap_or(libc::c_int::MAX / 2).min(libc::c_int::MAX / 2);
    // The kernel doubles the requested size for its own overhead, and then does not grow the
    // buffer. Without privilege it gives at most the system's limit. The buffer does not shrink:
    // data sent for a larger window may still arrive.
    let before = if socket.peer_addr().is_ok() { socket.recv_buffer_size()? as libc::c_int / 2 } else { 0 };
    let room = most.max(before);
    if set_number(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, room).is_err() {
        set_number(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, room)?;
    }
    let have = socket.recv_buffer_size()? / 2;
    if have < window as usize && window < ANY_WINDOW {
        let message = format!(
            "a receive buffer of {window} B exceeds the system's limit of {have}: raise `sysctl \
            net.core.rmem_max`, or run it as root"
        );
        return Err(io::Error::other(message));
    }
    set_number(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, most)
}

/// Larger than any window that the kernel's receivers offer by default, and than the paths here, in
/// bytes.
const ANY_WINDOW: u32 = 64 << 20;
/// Timeout after which a program checks for the run's end.
const TICK: Duration = Duration::from_millis(100);
/// Between two looks at what is not acknowledged.
const LOOK: Duration = Duration::from_micros(200);
/// Bytes written and read at once; each chunk has its own pattern.
const CHUNK: usize = 1 << 16;
