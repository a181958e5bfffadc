//! Datagrams between sockets: trains in and out.

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
    /// Writes a packet's toll and mark, as its links set them, into its bytes.
    pub(super) fn store(&mut self, handle: u32) {
        let packet = *self.buffers.get(handle);
        let bytes = self.buffers.bytes_mut(handle);
        #[cfg(target_os = "linux")]
        if self.ground.is_some() {
            return frame::store(bytes, &packet);
        }
        // The header was checked on arrival, or written here.
        let _ = acp::store(bytes, &packet.toll);
        if packet.flags.has(Flags::CE) {
            let _ = acp::mark(bytes);
        }
    }

    /// The ACP datagram in the bytes of a packet; empty for another protocol.
    pub(super) fn datagram(&self, handle: u32) -> &[u8] {
        let bytes = self.buffers.bytes(handle);
        #[cfg(target_os = "linux")]
        if self.ground.is_some() {
            return frame::datagram(bytes).and_then(|at| bytes.get(at)).unwrap_or_default();
        }
        bytes
    }

    /// Sends packets from a node's socket, in as few system calls as possible.
    pub(super) fn send_trains(&mut self, node: u32, to: SocketAddr, packets: &[u32]) -> Result<(), Error> {
        let mut from = 0;
        while from < packets.len() {
            let train = self.train_from(&packets[from..], node);
            self.send(node, to, &packets[from..from + train])?;
            from += train;
        }
        Ok(())
    }

    /// Number of packets from the first on that one system call can send.
    ///
    /// All have the size of the first. The last may be shorter.
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

    /// Sends a train of packets in one system call. Packets without keys are not sent.
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

    /// Receives once from a node's socket. Returns true if there may be more.
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
                // An error of one datagram ends the run, but the others are still handled, so a
                // caller that continues loses nothing.
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

    /// Handles a datagram at a node; `place` is the chunk and offset where it may stay.
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

    /// Takes a datagram to its next step at this node.
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
            Next::Sink(sink) => self.absorb(sink as usize, &packet, now),
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

    /// Counts the datagrams that wait in sockets after the run, by kind of sender.
    pub(crate) fn drain(&mut self) {
        #[cfg(target_os = "linux")]
        {
            // Unsent datagrams are lost, like all others in flight.
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

    /// Bytes of the longest packet that left a link for another socket, and the path's limit.
    ///
    /// `None` unless the first exceeds the second.
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

    /// Datagrams for which the kernel had no room; `None` if it does not count them.
    pub(crate) fn kernel_drops(&self) -> Option<u64> {
        self.sockets.iter().map(Socket::kernel_drops).sum()
    }
}

/// Sends `bytes` as datagrams of `segment` bytes. Errors that a network may cause count as losses.
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
        // A router would also drop it for its length. Shorter datagrams still pass.
        Err(error) if crate::socket::is_too_long(&error) => {
            counters.unsent += count;
            counters.too_long += count;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Limit of one system call, in bytes: almost the largest IP packet.
pub(super) const MOST_BYTES: usize = 65_000;
/// Bytes by which an IPv6 header is longer than an IPv4 header.
const LONGER_IPV6: usize = 20;
/// Length in bytes from which a train stays in the buffer that received it.
const LONG: usize = 16_384;
