//! The kernel's own TCP between nodes of an emulated network: connections that send until the run's
//! end.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use tollway_law::Time;

use super::MeshSpec;
use super::bridge::{Bridge, Record};
use super::emulated::{Emulated, NodeDrops};
use crate::error::Error;
use crate::sys::namespace::Namespace;
use crate::sys::tcp_info::tcp_info;
use crate::sys::{address, problem};

/// A connection that sends as much as its congestion control allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFlow {
    /// The node that sends.
    pub from: u32,
    /// The node that receives.
    pub to: u32,
    /// Start time, from the run's beginning.
    pub start: Time,
    /// The kernel's name of its congestion control: `reno`, `cubic`.
    pub law: String,
}

/// The state of a connection at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSample {
    /// Time of the sample.
    pub at: Time,
    /// Bytes that the receiver has read.
    pub read: u64,
    /// The sender's congestion window, in packets; 0 before it is connected.
    pub window: u32,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct KernelOutcome {
    /// The emulator's measurements.
    pub record: Record,
    /// By node, packets dropped by the kernel for lack of room: from programs, and to them.
    pub kernel_drops: Vec<NodeDrops>,
    /// Samples of each flow.
    pub flows: Vec<Vec<KernelSample>>,
}

/// Runs connections over a network for `duration`, and samples each of them every `every`.
///
/// It calls `go_on` with the time before each sample. The run ends early if `go_on` returns false.
///
/// # Errors
/// The network can't be set up ([`Error::Namespace`]), or the kernel has no such congestion control
/// ([`Error::Congestion`]).
pub fn run_kernel(
    mesh: &MeshSpec,
    flows: &[KernelFlow],
    duration: Time,
    every: Time,
    go_on: &dyn Fn(Time) -> bool,
) -> Result<KernelOutcome, Error> {
    let (emulated, start) = Emulated::new(mesh, 0, Bridge::patient)?;
    let sampled = open(emulated.namespaces(), flows).and_then(|connections| {
        start.now();
        sample(&connections, duration, every, go_on)
    });
    let (record, kernel_drops, _) = emulated.finish()?;
    Ok(KernelOutcome { record, kernel_drops, flows: sampled? })
}

/// A flow whose receiver listens and whose sender has its socket.
struct Connection<'a> {
    flow: &'a KernelFlow,
    listener: TcpListener,
    socket: Socket,
    connected: OnceLock<()>,
    read: AtomicU64,
}

/// Opens the sockets of both ends, each in its node's namespace.
fn open<'a>(namespaces: &[Namespace], flows: &'a [KernelFlow]) -> Result<Vec<Connection<'a>>, Error> {
    let open = |flow: &'a KernelFlow| {
        let listener = namespaces[flow.to as usize].within(|| TcpListener::bind((address(flow.to), 0)));
        let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let listener = listener.map_err(problem("listen at a node"))?;
        let socket = namespaces[flow.from as usize].within(|| Socket::new(Domain::IPV4, Type::STREAM, None));
        let socket = socket.map_err(problem("open a socket at a node"))?;
        let set = socket.set_tcp_congestion(flow.law.as_bytes());
        set.map_err(|source| Error::Congestion { name: flow.law.clone(), source })?;
        Ok(Connection { flow, listener, socket, connected: OnceLock::new(), read: AtomicU64::new(0) })
    };
    flows.iter().map(open).collect()
}

/// Runs the connections, and samples them.
fn sample(
    connections: &[Connection<'_>],
    duration: Time,
    every: Time,
    go_on: &dyn Fn(Time) -> bool,
) -> Result<Vec<Vec<KernelSample>>, Error> {
    let begin = Instant::now();
    let over = AtomicBool::new(false);
    let failed = Mutex::new(None);
    let mut samples = vec![Vec::new(); connections.len()];
    std::thread::scope(|scope| {
        for connection in connections {
            let (over, failed) = (&over, &failed);
            scope.spawn(move || connection.receive(over));
            scope.spawn(move || {
                if let Err(error) = connection.send(begin, over)
                    && !over.load(Ordering::Relaxed)
                    && let Ok(mut first) = failed.lock()
                {
                    first.get_or_insert(error);
                }
            });
        }
        let mut next = every;
        while next <= duration && go_on(next) {
            std::thread::sleep(Duration::from_nanos(next.0).saturating_sub(begin.elapsed()));
            let at = Time(begin.elapsed().as_nanos() as u64);
            for (connection, samples) in connections.iter().zip(&mut samples) {
                samples.push(connection.look(at));
            }
            next += every;
        }
        over.store(true, Ordering::Relaxed);
        for connection in connections {
            // Unblocks a sender.
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
    });
    match failed.into_inner() {
        Ok(Some(error)) => Err(problem("connect two nodes")(error)),
        _ => Ok(samples),
    }
}

impl Connection<'_> {
    fn receive(&self, over: &AtomicBool) {
        let mut buffer = vec![0; 1 << 18];
        let mut stream = None;
        while !over.load(Ordering::Relaxed) {
            match &mut stream {
                None => match self.listener.accept() {
                    Ok((accepted, _)) => {
                        // The sender may stop before it has sent anything.
                        let waits = accepted.set_nonblocking(false);
                        let _ = waits.and_then(|()| accepted.set_read_timeout(Some(PAUSE)));
                        stream = Some(accepted);
                    }
                    Err(_) => std::thread::sleep(PAUSE / 10),
                },
                Some(stream) => match stream.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(len) => drop(self.read.fetch_add(len as u64, Ordering::Relaxed)),
                    Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
                    Err(_) => return,
                },
            }
        }
    }

    fn send(&self, begin: Instant, over: &AtomicBool) -> io::Result<()> {
        std::thread::sleep(Duration::from_nanos(self.flow.start.0).saturating_sub(begin.elapsed()));
        if over.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.socket.connect(&SockAddr::from(self.listener.local_addr()?))?;
        let _ = self.connected.set(());
        let mut stream = TcpStream::from(self.socket.try_clone()?);
        let chunk = vec![0; 1 << 18];
        // The shutdown at the run's end breaks this loop.
        while !over.load(Ordering::Relaxed) && stream.write_all(&chunk).is_ok() {}
        Ok(())
    }

    fn look(&self, at: Time) -> KernelSample {
        let window =
            self.connected.get().and_then(|()| tcp_info(&self.socket).ok()).map_or(0, |info| info.cwnd);
        KernelSample { at, read: self.read.load(Ordering::Relaxed), window }
    }
}

/// Timeout after which a receiver checks for the run's end.
const PAUSE: Duration = Duration::from_millis(50);
