//! Clients' sockets.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Token};
use rustls::ServerConnection;
use socket2::SockRef;
use tollway_law::Time;

use super::channel::Channel;
use super::{FIRST_CLIENT, Server};
use crate::broker::Then;
use crate::tls::Names;

/// A client's socket.
#[derive(Debug)]
pub(super) struct Client {
    channel: Channel,
    /// Input that is incomplete, or that waits because its client is blocked.
    pending: Vec<u8>,
    /// Minimum length of the next operation, in bytes.
    need: usize,
    /// True while it is in the list of clients to read.
    queued: bool,
    /// True if the socket has no more input for now.
    drained: bool,
    /// True while its client is blocked: its input is not read.
    waiting: bool,
    /// The deadline of its closing, if it is being closed.
    until: Option<Time>,
    /// True once all output is sent and the sending direction is closed.
    finished: bool,
}

impl Server {
    /// Accepts new connections.
    pub(super) fn accept_clients(&mut self, now: Time) {
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok((stream, address)) => self.open_client(now, stream, address),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // No descriptor is left, or the connection has ended already. The tick tries again.
                Err(_) => {
                    self.accept_again = true;
                    return;
                }
            }
        }
    }

    fn open_client(&mut self, now: Time, stream: TcpStream, address: SocketAddr) {
        // Writes are whole batches, so Nagle's algorithm only adds delay.
        let _ = stream.set_nodelay(true);
        // A kernel with megabytes of unsent data reports room only after a third has gone. A
        // receiver at 100 kB/s would seem to make no progress for longer than `patience`.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        let key = self.broker.open(now, address.to_string(), &host, port);
        let client = Client {
            channel: Channel::new(stream, None),
            pending: Vec::new(),
            need: 0,
            queued: false,
            drained: true,
            waiting: false,
            until: None,
            finished: false,
        };
        if self.clients.len() <= key {
            self.clients.resize_with(key + 1, || None);
        }
        let client = self.clients[key].insert(client);
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(client.channel.stream(), Token(FIRST_CLIENT + key), both).is_err() {
            return self.close_client(key);
        }
        self.write_client(now, key);
        // TLS follows the INFO line.
        if let Some(tls) = self.client_tls.clone()
            && let Some(client) = &mut self.clients[key]
        {
            match ServerConnection::new(tls) {
                Ok(tls) if !self.broker.has_outgoing(key) => client.channel.upgrade(tls.into()),
                _ => self.close_client(key),
            }
        }
    }

    /// Handles readiness of a client's socket.
    pub(super) fn client_ready(&mut self, now: Time, key: usize, readable: bool, writable: bool) {
        if writable {
            self.write_client(now, key);
        }
        let Some(Some(client)) = self.clients.get_mut(key) else { return };
        if readable {
            client.drained = false;
            self.list_client(key);
        }
    }

    fn list_client(&mut self, key: usize) {
        if let Some(Some(client)) = self.clients.get_mut(key)
            && !client.queued
            && !client.waiting
        {
            client.queued = true;
            self.ready.push_back(key);
        }
    }

    /// Reads each client with input once.
    pub(super) fn read_clients(&mut self, now: Time) {
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else { break };
            let Some(client) = &mut self.clients[key] else { continue };
            client.queued = false;
            if client.until.is_some() {
                self.drain_client(key);
            } else if !client.waiting {
                self.read_client(now, key);
            }
        }
    }

    fn read_client(&mut self, now: Time, key: usize) {
        let Some(client) = &mut self.clients[key] else { return };
        let mut have = client.pending.len();
        // A long operation is gathered in its own buffer. Others are read into the shared buffer
        // and parsed there.
        let own = client.need.max(have) + LEAST_READ > self.buffer.len();
        let mut pending = std::mem::take(&mut client.pending);
        let buffer = if own {
            // The buffer at most doubles, so an announced length alone takes no memory.
            let len = client.need.min(2 * have).max(have + LEAST_READ);
            pending.resize(len, 0);
            &mut pending[..]
        } else {
            self.buffer[..have].copy_from_slice(&pending);
            pending.clear();
            &mut self.buffer[..]
        };
        let mut over = None;
        while have < buffer.len() && !client.drained {
            match client.channel.read(&mut buffer[have..]) {
                Ok(0) => over = Some(None),
                Ok(len) => have += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => client.drained = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => over = Some(Some(error)),
            }
            if over.is_some() {
                break;
            }
        }
        if let Some(certificate) = client.channel.certificate()
            && let Some(name) = Names::tenant_of(certificate, self.broker.rules())
        {
            self.broker.certify(key, name);
        }
        let received = self.broker.receive(now, key, &buffer[..have]);
        match own {
            true => {
                pending.truncate(have);
                pending.drain(..received.used);
            }
            false => pending.extend_from_slice(&self.buffer[received.used..have]),
        }
        // An idle client holds no buffer.
        if pending.is_empty() {
            pending = Vec::new();
        }
        client.pending = pending;
        if let Then::Read(need) = received.then {
            client.need = need;
        }
        client.waiting = received.then == Then::Wait;
        let again = received.then == Then::Again;
        let more = again || (!client.drained && !client.waiting);
        if let Some(error) = over {
            self.note_end(key, error);
            return self.close_client(key);
        }
        if more {
            self.list_client(key);
        }
    }

    /// Reads clients that are no longer blocked.
    pub(super) fn resume_clients(&mut self, now: Time) {
        while let Some(key) = self.broker.take_runnable() {
            let Some(Some(client)) = self.clients.get_mut(key) else { continue };
            client.waiting = false;
            self.read_client(now, key);
        }
    }

    /// Sends the output of clients, and begins to close doomed ones.
    pub(super) fn write_clients(&mut self, now: Time) {
        while let Some(key) = self.broker.take_dirty() {
            self.write_client(now, key);
        }
        while let Some(key) = self.broker.take_doomed() {
            if let Some(Some(client)) = self.clients.get_mut(key) {
                client.until = Some(now + self.broker.rules().patience.min(LINGER));
                client.pending = Vec::new();
                let why = self.broker.why(key).unwrap_or_default().to_owned();
                self.events.warn(
                    "client-closed",
                    format_args!("client {} is closed: {why}", self.broker.describe(key)),
                );
                self.write_client(now, key);
            }
        }
    }

    fn write_client(&mut self, now: Time, key: usize) {
        let Some(Some(client)) = self.clients.get_mut(key) else { return };
        let done = loop {
            if !self.broker.has_outgoing(key) {
                break client.channel.flush().map(|_| ());
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.broker.outgoing(key, &mut slices);
            match client.channel.write(&slices[..count]) {
                Ok(len) => self.broker.sent(now, key, len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = done {
            self.note_end(key, Some(error));
            return self.close_client(key);
        }
        if client.until.is_some() && !client.finished && !self.broker.has_outgoing(key) {
            client.finished = true;
            client.channel.finish();
            client.drained = false;
            client.waiting = false;
            self.list_client(key);
        }
    }

    /// Discards the input of a closing client. Unread input would reset the connection before the
    /// client receives the reason.
    fn drain_client(&mut self, key: usize) {
        let Some(client) = &mut self.clients[key] else { return };
        for _ in 0..DRAIN {
            match client.channel.read(&mut self.buffer) {
                Ok(0) => {
                    return if client.finished {
                        self.close_client(key)
                    };
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.close_client(key),
            }
        }
        self.list_client(key);
    }

    /// Closes clients whose grace period has ended.
    pub(super) fn end_clients(&mut self, now: Time) {
        for key in 0..self.clients.len() {
            if self.clients[key].as_ref().is_some_and(|client| client.until.is_some_and(|until| until <= now))
            {
                self.close_client(key);
            }
        }
    }

    fn close_client(&mut self, key: usize) {
        if let Some(mut client) = self.clients[key].take() {
            let _ = self.poll.registry().deregister(client.channel.stream());
            self.broker.remove(key);
        }
    }

    fn note_end(&mut self, key: usize, error: Option<io::Error>) {
        if let Some(error) =
            error.filter(|error| !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
        {
            let who = self.broker.describe(key);
            self.events.info("client-lost", format_args!("lost client {who}: {error}"));
        }
    }
}

/// Time for a closing client to receive the reason.
const LINGER: Time = Time::from_secs(1);
/// Limit of unsent bytes in a client's kernel buffer.
const UNSENT: u32 = 128 << 10;
/// Minimum room for one read, in bytes.
const LEAST_READ: usize = 1 << 14;
/// Limit of slices per write.
const SLICES: usize = 32;
/// Limit of reads per turn from a closing client.
const DRAIN: usize = 16;
