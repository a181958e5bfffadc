//! Nodes whose datagrams are sealed.

use std::net::SocketAddr;
use std::ops::Range;

use tollway_law::Time;

use super::{Driver, KEYS};
use crate::error::Error;
use crate::secure::{self, BEHIND, FRONT, Heard, OVERHEAD, Secure};

/// A node's sessions with its neighbours.
#[derive(Debug)]
pub(crate) struct Seals {
    pub(crate) secure: Secure,
    armed: Time,
}

impl Driver {
    /// Seals all later datagrams between a node and its neighbours.
    pub(crate) fn set_seals(&mut self, node: u32, mut secure: Secure) {
        secure.open_all(self.now);
        self.nodes[node as usize].seals = Some(Box::new(Seals { secure, armed: self.now }));
        self.set_timer(self.now, node as usize, KEYS);
    }

    pub(crate) fn secure(&self, node: u32) -> Option<&Secure> {
        self.nodes[node as usize].seals.as_ref().map(|seals| &seals.secure)
    }

    /// Bytes that the seal adds to each datagram of a node; 0 without keys.
    pub(super) fn sealing(&self, node: u32) -> usize {
        if self.nodes[node as usize].seals.is_some() { secure::OVERHEAD } else { 0 }
    }

    /// Opens a datagram from a neighbour in place. Returns the range of its packet, if it has one.
    pub(super) fn unseal(
        &mut self,
        node: usize,
        from: SocketAddr,
        datagram: &mut [u8],
    ) -> Option<Range<usize>> {
        let Some(seals) = &mut self.nodes[node].seals else { return Some(0..datagram.len()) };
        match seals.secure.handle_datagram(self.now, from, datagram) {
            Heard::Packet(len) => return Some(FRONT..FRONT + len),
            // It holds no packet.
            Heard::Handshake => self.counters.received -= 1,
            Heard::Refused => self.counters.senseless += 1,
        }
        None
    }

    /// Appends packets, sealed, to the train. Returns the number of those with keys.
    pub(super) fn seal(&mut self, node: u32, to: SocketAddr, packets: &[u32]) -> usize {
        let Some(seals) = &mut self.nodes[node as usize].seals else { return 0 };
        self.train.clear();
        let mut sealed = 0;
        for &handle in packets {
            let bytes = self.buffers.bytes(handle);
            sealed += usize::from(seals.secure.seal(self.now, to, bytes, &mut self.train));
        }
        self.counters.unkeyed += (packets.len() - sealed) as u64;
        sealed
    }

    /// Seals packets where they were received. Returns how many, from the first on, have keys.
    ///
    /// `None` if the packets do not lie as one train of sealed datagrams.
    pub(super) fn reseal(&mut self, node: u32, to: SocketAddr, packets: &[u32]) -> Option<usize> {
        let seals = self.nodes[node as usize].seals.as_mut()?;
        let room = (FRONT, BEHIND);
        let adjoin = packets.windows(2).all(|pair| self.buffers.adjoins(pair[0], pair[1], OVERHEAD));
        if !adjoin || !self.buffers.has_room(packets[0], room) {
            return None;
        }
        let mut sealed = 0;
        for &handle in packets {
            let datagram = self.buffers.with_room_mut(handle, room);
            sealed += usize::from(seals.secure.seal_in_place(self.now, to, datagram));
        }
        self.counters.unkeyed += (packets.len() - sealed) as u64;
        Some(sealed)
    }

    /// Sends unanswered hellos again.
    pub(super) fn renew_keys(&mut self, node: usize, at: Time) -> Result<(), Error> {
        let now = self.now;
        if let Some(seals) = self.nodes[node].seals.as_mut().filter(|seals| seals.armed == at) {
            seals.armed = Time::NEVER;
            seals.secure.handle_timeout(now);
        }
        self.shake_hands(node)
    }

    /// Sends the datagrams of handshakes, and sets their timer.
    pub(super) fn shake_hands(&mut self, node: usize) -> Result<(), Error> {
        let Some(seals) = &mut self.nodes[node].seals else { return Ok(()) };
        while let Some((to, datagram)) = seals.secure.poll_transmit() {
            // A packet that waited for keys.
            let waited = u64::from(secure::has_packet(&datagram));
            self.counters.unkeyed -= waited;
            match self.sockets[node].send(to, &datagram, datagram.len()) {
                Ok(()) => self.counters.sent += waited,
                Err(error) if crate::socket::is_loss(&error) || crate::socket::is_too_long(&error) => {
                    self.counters.unsent += waited;
                }
                Err(source) => {
                    let node = self.nodes[node].name.clone();
                    return Err(Error::Socket { node, action: "send", source });
                }
            }
        }
        let due = seals.secure.poll_timeout();
        if due < seals.armed {
            seals.armed = due;
            self.set_timer(due, node, KEYS);
        }
        Ok(())
    }
}
