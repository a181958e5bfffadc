//! Ports that lead into an emulated network: a connection there, at the host or at a node's own
//! loopback interface, is relayed to one that begins at a node and crosses the links.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollway_net::Error;
use tollway_net::sys::namespace::Namespace;
use tollway_net::sys::{addresses, problem};

use super::ports::Ports;
use super::servers::Servers;
use super::tls::Authority;
use super::{Spec, relay};

/// A TCP port of the host, or of a node's own loopback interface, that leads to a port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address and port; port 0 is any free one.
    pub at: SocketAddr,
    /// True if the address is of the loopback interface of [`Listen::from`], IPv4's and IPv6's;
    /// false if it is the host's.
    pub inside: bool,
    /// Index of the node at which connections enter the network.
    pub from: u32,
    /// Index of the node to which they lead.
    pub node: u32,
    /// The port there.
    pub port: u16,
}

/// The connections that arrived at a port of [`Spec::listen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listened {
    /// The address and port.
    pub at: SocketAddr,
    /// Number of connections.
    pub connections: u64,
    /// Number of those that the node did not accept.
    pub refused: u64,
}

/// The ports of [`Spec::listen`], in its order. Those of the host are open.
#[derive(Debug)]
pub struct Listeners {
    doors: Vec<Door>,
    ports: Ports,
    /// The certificate authority of the run, if a port has TLS.
    authority: Option<Authority>,
}

/// A port with its connections. `listen` has its actual number.
#[derive(Debug)]
struct Door {
    listen: Listen,
    /// The socket of a port of the host.
    socket: Option<TcpListener>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
}

impl Listeners {
    /// Opens the sockets at the host. Connections wait there until the program of
    /// [`run`](super::run) starts.
    ///
    /// # Errors
    /// [`Error::Listen`]: an address is in use, or not this machine's, or reserved for root.
    pub fn open(spec: &Spec) -> Result<Listeners, Error> {
        let open = spec.listen.iter().map(|&listen| {
            if listen.inside {
                return Ok(Door { listen, socket: None, counts: Arc::default() });
            }
            let opened = relay::listen(listen.at).and_then(|socket| {
                let listen = Listen { at: socket.local_addr()?, ..listen };
                Ok(Door { listen, socket: Some(socket), counts: Arc::default() })
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
        let doors: Vec<Door> = open.collect::<Result<_, _>>()?;
        let ports = Ports::new().map_err(problem("make a pipe"))?;
        doors.iter().for_each(|door| drop(ports.relay(door.listen.node, door.listen.port, false)));
        let authority = (!spec.tls.is_empty()).then(|| Authority::new(spec.tls.len())).transpose();
        let authority = authority.map_err(problem("make a certificate authority"))?;
        Ok(Listeners { doors, ports, authority })
    }

    /// The file of the certificate authority that signs the certificates of [`Spec::tls`].
    pub fn certificate(&self) -> Option<PathBuf> {
        self.authority.as_ref().map(Authority::certificate)
    }

    pub(super) fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// The ports to which connections are relayed.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// The ports of the host.
    pub fn at_host(&self) -> impl Iterator<Item = Listen> {
        self.doors.iter().map(|door| door.listen).filter(|listen| !listen.inside)
    }

    /// True if a connection to `port` of the host's loopback interface would arrive here.
    pub(super) fn take(&self, port: u16) -> bool {
        let local = |at: SocketAddr| at.ip().is_loopback() || at.ip().is_unspecified();
        self.at_host().any(|listen| listen.at.port() == port && local(listen.at))
    }

    /// Relays connections at the ports of the host from now on.
    pub(super) fn start(&self, namespaces: &[Namespace]) -> Result<(), Error> {
        for door in &self.doors {
            if let Some(socket) = &door.socket {
                let socket = socket.try_clone().map_err(problem("copy a descriptor"))?;
                door.relay(vec![socket], namespaces, &self.ports)?;
            }
        }
        Ok(())
    }

    /// Opens the ports at nodes' own loopback interfaces, and relays their connections.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
    pub(super) fn start_inside(
        &self,
        spec: &Spec,
        namespaces: &[Namespace],
        servers: &Servers,
    ) -> Result<(), Error> {
        for door in self.doors.iter().filter(|door| door.listen.inside) {
            let Listen { at, from, .. } = door.listen;
            let ends = [at, (Ipv6Addr::LOCALHOST, at.port()).into()];
            let open = || relay::open_all(ends.into_iter(), relay::listen);
            let sockets = namespaces[from as usize].within(open);
            let sockets = sockets.map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => {
                    let name = &spec.mesh.nodes[from as usize];
                    servers.in_use(from, name, format!("`--localhost {}`", at.port()))
                }
                _ => problem("listen at a node's loopback interface")(source),
            })?;
            door.relay(sockets, namespaces, &self.ports)?;
        }
        Ok(())
    }

    /// The connections so far.
    pub(super) fn counts(&self) -> Vec<Listened> {
        let read = |door: &Door| Listened {
            at: door.listen.at,
            connections: door.counts.connections.load(Ordering::Relaxed),
            refused: door.counts.refused.load(Ordering::Relaxed),
        };
        self.doors.iter().map(read).collect()
    }
}

impl Door {
    /// Relays each connection at `sockets` to one from the node's namespace.
    fn relay(&self, sockets: Vec<TcpListener>, namespaces: &[Namespace], ports: &Ports) -> Result<(), Error> {
        let Listen { from, node, port, .. } = self.listen;
        let from = namespaces[from as usize].again().map_err(problem("copy a descriptor"))?;
        let (from, counts) = (Arc::new(from), Arc::clone(&self.counts));
        let to = addresses(node).map(|address| SocketAddr::from((address, port)));
        let open = move || {
            counts.connections.fetch_add(1, Ordering::Relaxed);
            let opened = from.enter().and_then(|()| TcpStream::connect(&to[..]));
            counts.refused.fetch_add(u64::from(opened.is_err()), Ordering::Relaxed);
            opened
        };
        for socket in sockets {
            let (open, port) = (open.clone(), ports.relay(node, port, false));
            let thread = std::thread::Builder::new().name("tollway-listen".into());
            thread.spawn(move || relay::accept(&socket, &port, &open)).map_err(problem("start a thread"))?;
        }
        Ok(())
    }
}
