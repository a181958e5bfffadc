//! Ports of the host that lead into an emulated network: a connection from outside is relayed to
//! one that begins at a node and crosses the links.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollway_net::Error;
use tollway_net::sys::namespace::Namespace;
use tollway_net::sys::{addresses, problem};

use super::{Spec, relay};

/// A TCP port of the host that leads to a port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address and port at the host; port 0 is any free one.
    pub at: SocketAddr,
    /// Index of the node at which connections enter the network.
    pub from: u32,
    /// Index of the node to which they lead.
    pub node: u32,
    /// The port there.
    pub port: u16,
}

/// The connections that arrived at a port of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listened {
    /// The address and port at the host.
    pub at: SocketAddr,
    /// Number of connections.
    pub connections: u64,
    /// Number of those that the node did not accept.
    pub refused: u64,
}

/// The sockets of [`Spec::listen`], in its order.
#[derive(Debug)]
pub struct Listeners {
    open: Vec<(TcpListener, SocketAddr, Arc<Counts>)>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
}

impl Listeners {
    /// Opens the sockets. Connections wait there until the program of [`run`](super::run) starts.
    ///
    /// # Errors
    /// [`Error::Listen`]: an address is in use, or not this machine's, or reserved for root.
    pub fn open(spec: &Spec) -> Result<Listeners, Error> {
        let open = spec.listen.iter().map(|listen| {
            let opened = relay::listen(listen.at).and_then(|socket| {
                let at = socket.local_addr()?;
                Ok((socket, at, Arc::default()))
            });
            opened.map_err(|source| {
                let remedy = match source.kind() {
                    io::ErrorKind::AddrInUse => "give another port, or 0 for any free one",
                    io::ErrorKind::PermissionDenied => "give a port from 1024 on, or run it as root",
                    _ => "give an address of this machine, or 0.0.0.0 for all of them",
                };
                Error::Listen { at: listen.at, source, remedy }
            })
        });
        Ok(Listeners { open: open.collect::<Result<_, _>>()? })
    }

    /// The address and port of each socket.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.open.iter().map(|(_, at, _)| *at)
    }

    /// True if a connection to `port` of the host's loopback interface would arrive here.
    pub(super) fn take(&self, port: u16) -> bool {
        let local = |at: SocketAddr| at.ip().is_loopback() || at.ip().is_unspecified();
        self.addresses().any(|at| at.port() == port && local(at))
    }

    /// Relays connections from now on, each from its node's namespace.
    pub(super) fn start(&self, spec: &Spec, namespaces: &[Namespace]) -> Result<(), Error> {
        for (listen, (socket, _, counts)) in spec.listen.iter().zip(&self.open) {
            let socket = socket.try_clone().map_err(problem("copy a descriptor"))?;
            let from = namespaces[listen.from as usize].again().map_err(problem("copy a descriptor"))?;
            let (from, counts) = (Arc::new(from), Arc::clone(counts));
            let to = addresses(listen.node).map(|address| SocketAddr::from((address, listen.port)));
            let open = move || {
                counts.connections.fetch_add(1, Ordering::Relaxed);
                let opened = from.enter().and_then(|()| TcpStream::connect(&to[..]));
                counts.refused.fetch_add(u64::from(opened.is_err()), Ordering::Relaxed);
                opened
            };
            let thread = std::thread::Builder::new().name("tollway-listen".into());
            thread.spawn(move || relay::accept(&socket, &open)).map_err(problem("start a thread"))?;
        }
        Ok(())
    }

    /// The connections so far.
    pub(super) fn counts(&self) -> Vec<Listened> {
        let read = |(_, at, counts): &(TcpListener, SocketAddr, Arc<Counts>)| Listened {
            at: *at,
            connections: counts.connections.load(Ordering::Relaxed),
            refused: counts.refused.load(Ordering::Relaxed),
        };
        self.open.iter().map(read).collect()
    }
}
