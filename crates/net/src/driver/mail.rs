//! Datagrams between sockets: trains of them in and out.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use tollway_law::Time;
use tollway_proto::encoding::acp;
use tollway_proto::{Flags, Packet};

use super::{Counters, Driver, Next, Out};
use crate::error::Error;
#[cfg(target_os = "linux")]
use crate::hosts::frame;
use crate::label::{CARRIED, CARRIER};
use crate::secure::{BEHIND, FRONT};
use crate::socket::Socket;

impl Driver {
    /// Writes into what is held of a packet what links made of it.
    pub(super) fn store(&mut self, handle: u32) {
        let packet = *self.buffers.get(handle);
        let bytes = self.buffers.bytes_mut(handle);
        #[cfg(target_os = "linux")]
        if self.ground.is_some() {
            return frame::store(bytes, &packet);
        }
        // The header was checked when it came in, or written here.
        let _ = acp::store(bytes, &packet.toll);
        if packet.flags.has(Flags::CE) {
            let _ = acp::mark(bytes);
        }
    }

    /// The ACP datagram in what is held of a packet; empty if it is another's.
    pub(super) fn datagram(&self, handle: u32) -> &[u8] {
        let bytes = self.buffers.bytes(handle);
        #[cfg(target_os = "linux")]
        if self.ground.is_some() {
            return frame::datagram(bytes).and_then(|at| bytes.get(at)).unwrap_or_default();
        }
        bytes
    }

    /// Sends packets from a node's socket, as few system calls as it takes.
    pub(super) fn send_trains(&mut self, node: u32, to: SocketAddr, packets: &[u32]) -> Result<(), Error> {
        let mut from = 0;
        while from < packets.len() {
            let train = self.train_from(&packets[from..], node);
            self.send(node, to, &packets[from..from + train])?;
            from += train;
        }
        Ok(())
    }

    /// How many packets from the first on one system call can send: all as long as the first, the last maybe shorter.
    pub(super) fn train_from(&self, leaving: &[u32], node: u32) -> usize {
        let most = self.sockets[node as usize].longest_train();
        let sealing = self.sealing(node);
        let segment = self.buffers.bytes(leaving[0]).len();
        let mut total = segment + sealing;
        let mut count = 1;
        for &handle in leaving.iter().skip(1).take(most.saturating_sub(1)) {
            let len = self.buffers.bytes(handle).len();
            if len > segment || total + len + sealing > MOST_BYTES {
                break;
            }
            count += 1;
            total += len + sealing;
            if len < segment {
                break;
            }
        }
        count
    }

    /// Sends a train of packets in one system call, or none that there are no keys for.
    pub(super) fn send(&mut self, node: u32, to: SocketAddr, packets: &[u32]) -> Result<(), Error> {
        let sealing = self.sealing(node);
        let segment = self.buffers.bytes(packets[0]).len() + sealing;
        let (mut count, mut one_piece, mut room) = (packets.len(), false, (0, 0));
        if sealing > 0 {
            let resealed = self.reseal(node, to, packets);
            (one_piece, room) = (resealed.is_some(), (FRONT, BEHIND));
            count = resealed.unwrap_or_else(|| self.seal(node, to, packets));
            self.shake_hands(node as usize)?;
            if count == 0 {
                return Ok(());
            }
        } else if packets.windows(2).all(|pair| self.buffers.adjoins(pair[0], pair[1], 0)) {
            one_piece = true;
        } else {
            self.train.clear();
            for &handle in packets {
                self.train.extend_from_slice(self.buffers.bytes(handle));
            }
        }
        let bytes = match one_piece {
            true => self.buffers.span(packets[0], packets[count - 1], room),
            false => &self.train,
        };
        let socket = &self.sockets[node as usize];
        transmit(socket, to, bytes, segment, &mut self.counters).map_err(|source| {
            let node = self.nodes[node as usize].name.clone();
            Error::Socket { node, action: "send", source }
        })
    }

    /// Receives once from a node's socket; answers whether there may be more.
    pub(super) fn receive(&mut self, node: usize, end: Time) -> Result<bool, Error> {
        let sockets = Arc::clone(&self.sockets);
        let count = sockets[node].receive(&mut self.inbox).map_err(|source| Error::Socket {
            node: self.nodes[node].name.clone(),
            action: "receive",
            source,
        })?;
        self.counters.receives += u64::from(count > 0);
        let now = self.tell_time(end);
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut failed = Ok(());
        for i in 0..count {
            let meta = self.inbox.metas[i];
            let segments = meta.len.div_ceil(meta.stride.max(1)) as u64;
            if self.nodes[node].peers.binary_search(&meta.addr).is_err() {
                self.counters.strangers += segments;
                continue;
            }
            if let Some(waited) = meta.timestamp.and_then(|received| wall.checked_sub(received)) {
                self.waits.note(Time(waited.as_nanos() as u64), segments);
            }
            self.counters.received += segments;
            let mut bytes = std::mem::take(&mut self.inbox.buffers[i]);
            let long = meta.len >= LONG;
            let entries = &self.nodes[node].entries;
            let entry = entries.iter().find(|(peer, _)| *peer == meta.addr).map(|entry| entry.1);
            let chunk = long.then(|| self.buffers.reserve());
            let (mut start, mut wrong) = (0, None);
            while start < meta.len {
                let stop = (start + meta.stride.max(1)).min(meta.len);
                let Some(packet) = self.unseal(node, meta.addr, &mut bytes[start..stop]) else {
                    start = stop;
                    continue;
                };
                let place = chunk.map(|chunk| (chunk, start + packet.start));
                // One that ends the run does not end the others: whoever goes on all the same has lost nothing.
                let datagram = &mut bytes[start..stop][packet];
                let accepted = match entry {
                    None => self.accept(node, now, datagram, place),
                    Some(entry) => self.accept_watched(node, now, datagram, place, entry),
                };
                if let Err(error) = accepted {
                    wrong.get_or_insert(error);
                }
                start = stop;
            }
            self.inbox.buffers[i] = match chunk {
                None => bytes,
                Some(chunk) => {
                    self.buffers.settle(chunk, bytes);
                    self.buffers.spare()
                }
            };
            failed = failed.and(wrong.map_or(Ok(()), Err));
        }
        self.shake_hands(node)?;
        failed?;
        Ok(count == crate::socket::BATCH)
    }

    /// A datagram has come to a node; `place` says in which chunk it may stay.
    pub(crate) fn accept(
        &mut self,
        node: usize,
        now: Time,
        datagram: &mut [u8],
        place: Option<(u32, usize)>,
    ) -> Result<(), Error> {
        let Ok(mut packet) = acp::load_packet(datagram) else {
            self.counters.senseless += 1;
            return Ok(());
        };
        if packet.flow & CARRIED != 0 {
            packet.size = packet.size.saturating_sub(CARRIER);
        }
        self.go_on(self.nodes[node].next(packet.flow), packet, now, datagram, place)
    }

    /// A datagram goes where its node says.
    pub(super) fn go_on(
        &mut self,
        next: Next,
        packet: Packet,
        now: Time,
        datagram: &mut [u8],
        place: Option<(u32, usize)>,
    ) -> Result<(), Error> {
        match next {
            Next::Nowhere => self.counters.senseless += 1,
            Next::End(end) => return self.deliver(end as usize, now, datagram),
            Next::Sink(sink) => self.absorb(sink as usize, &packet),
            Next::Gate(opening) => return self.cross(opening, now, datagram, place),
            Next::Link(link) => {
                let handle = self.hold(packet, datagram, place);
                self.offer(link, now, handle);
            }
        }
        Ok(())
    }

    /// Keeps a datagram that goes on.
    pub(super) fn hold(&mut self, packet: Packet, datagram: &[u8], place: Option<(u32, usize)>) -> u32 {
        match place {
            Some((chunk, start)) => self.buffers.share(packet, chunk, start, datagram.len()),
            None => {
                let handle = self.buffers.alloc(packet, datagram.len());
                self.buffers.bytes_mut(handle).copy_from_slice(datagram);
                handle
            }
        }
    }

    /// Counts what still waits in sockets, and how much of it came from whom: the run is over.
    pub(crate) fn drain(&mut self) {
        #[cfg(target_os = "linux")]
        {
            // What cannot be sent any more is as lost as the rest of what is under way.
            let _ = self.flush();
            self.drain_wires();
        }
        let sockets = Arc::clone(&self.sockets);
        for (node, socket) in sockets.iter().enumerate() {
            while let Ok(count @ 1..) = socket.receive(&mut self.inbox) {
                for meta in &self.inbox.metas[..count] {
                    let segments = meta.len.div_ceil(meta.stride.max(1)) as u64;
                    match self.nodes[node].peers.binary_search(&meta.addr) {
                        Ok(_) => self.counters.waiting += segments,
                        Err(_) => self.counters.strangers += segments,
                    }
                }
            }
        }
    }

    /// Bytes of the longest packet that left a link for another socket, and of the longest that the way there takes, if the latter is less.
    pub(crate) fn exceeds(&self, link: usize) -> Option<(usize, usize)> {
        let hop = &self.links[link];
        let to = match hop.out {
            Out::Socket(to) => to,
            #[cfg(target_os = "linux")]
            Out::Wire(_) => return None,
        };
        let headers = if to.is_ipv6() { acp::OVERHEAD + LONGER_IPV6 } else { acp::OVERHEAD };
        let longest = Some(hop.longest).filter(|&longest| longest > 0)? + headers + self.sealing(hop.node);
        let most = self.sockets[hop.node as usize].most_to(to)?;
        (longest > most).then_some((longest, most))
    }

    /// Datagrams that the kernel had no room for, if it tells.
    pub(crate) fn kernel_drops(&self) -> Option<u64> {
        self.sockets.iter().map(Socket::kernel_drops).sum()
    }
}

/// Sends `bytes` as datagrams of `segment` bytes. Errors that a network may cause are counted as
/// losses.
fn transmit(
    socket: &Socket,
    to: SocketAddr,
    bytes: &[u8],
    segment: usize,
    counters: &mut Counters,
) -> io::Result<()> {
    let count = bytes.len().div_ceil(segment.max(1)) as u64;
    counters.sends += 1;
    match socket.send(to, bytes, segment) {
        Ok(()) => counters.sent += count,
        // No room, or no receiver: a network may lose any datagram.
        Err(error) if crate::socket::is_loss(&error) => counters.unsent += count,
        Err(error) if count > 1 && crate::socket::is_of_trains(&error) => {
            let mut each = bytes.chunks(segment);
            return each.try_for_each(|one| transmit(socket, to, one, segment, counters));
        }
        // A router would drop it for its length too. Shorter ones go on.
        Err(error) if crate::socket::is_too_long(&error) => {
            counters.unsent += count;
            counters.too_long += count;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Bytes that one system call sends at most: what IP can carry.
pub(super) const MOST_BYTES: usize = 65_000;
/// Bytes that IPv6's header has more than IPv4's.
const LONGER_IPV6: usize = 20;
/// A train from here on stays in the buffer it was received into.
const LONG: usize = 16_384;
