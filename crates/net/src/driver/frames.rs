//! Frames between the interfaces and the links of nodes that are network namespaces.
//!
//! A machine's datagrams leave by its node's UDP socket, and the kernel's TCP segments leave by the
//! kernel. Both reach the node's `nic` as frames: whole packets with their headers. A link carries
//! such a frame over a veth pair to the next node, and at last to the kernel of the destination.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::Flags;

use super::{Driver, Next};
use crate::error::Error;
use crate::hosts::frame::{self, FrameContent};
use crate::hosts::wire::{BATCH, Mail, Wire};
use crate::hosts::{PORT, Plug};
use crate::kernel_tcp::PORTS;
use crate::sys::ip::FiveTuple;

/// The part of a driver for nodes that are namespaces.
#[derive(Debug)]
pub(crate) struct Ground {
    /// Interfaces by number; the driver's sockets on them have the same numbers.
    pub(crate) interfaces: Vec<Interface>,
    /// By label, the local node that sends its datagrams, and their destination.
    destinations: HashMap<u32, (u32, SocketAddr)>,
    /// By number of a kernel flow, its two ends.
    kernels: Vec<Option<[KernelEnd; 2]>>,
    mail: Mail,
    /// Those of the last received frames that go to the node's kernel, with their segments.
    handed: Vec<(usize, Option<Segment>)>,
    /// Datagrams made here that must leave by their nodes' sockets.
    outgoing: Vec<u32>,
    /// Segments sent by nodes' kernels, and segments handed to them.
    pub(crate) segments: (u64, u64),
}

/// An interface. The first ones lead to nodes' kernels, in the order of local nodes.
#[derive(Debug)]
pub(crate) struct Interface {
    /// Its local node.
    pub(crate) node: u32,
    pub(crate) name: String,
    /// True if the node's kernel is at the far end.
    nic: bool,
    /// Frames read; frames for which its socket had no room; frames written; frames refused.
    pub(crate) read: u64,
    pub(crate) missed: u64,
    pub(crate) written: u64,
    pub(crate) refused: u64,
}

/// One end of a kernel flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelEnd {
    address: Ipv4Addr,
    /// Label of the segments sent there.
    label: u32,
    /// Bytes of segments with data sent there, and of all segments that this driver delivered
    /// there.
    sent: u64,
    received: u64,
}

/// A segment of the kernel's TCP: its flow's number, the sending end, its bytes.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: usize,
    from: usize,
    bytes: u16,
}

impl Interface {
    fn new(node: u32, name: String, nic: bool) -> Interface {
        Interface { node, name, nic, read: 0, missed: 0, written: 0, refused: 0 }
    }

    /// Counts how many of `frames` frames the interface took.
    fn tally(&mut self, frames: usize, sent: io::Result<usize>) -> io::Result<usize> {
        let sent = sent?;
        self.written += sent as u64;
        self.refused += (frames - sent) as u64;
        Ok(sent)
    }
}

impl KernelEnd {
    pub(crate) fn new(address: Ipv4Addr, label: u32) -> KernelEnd {
        KernelEnd { address, label, sent: 0, received: 0 }
    }
}

impl Ground {
    /// The segment's flow, direction and label; `None` if it belongs to no kernel flow.
    fn segment(&self, tuple: &FiveTuple, bytes: u16) -> Option<(Segment, u32)> {
        // Both ends of a flow have the port that states its number.
        let number = usize::from(tuple.source_port.checked_sub(PORTS)?);
        let ends = self.kernels.get(number)?.as_ref()?;
        let from = ends.iter().position(|end| tuple.source == end.address)?;
        let known =
            tuple.destination == ends[1 - from].address && tuple.source_port == tuple.destination_port;
        known.then_some((Segment { number, from, bytes }, ends[from].label))
    }

    fn kernel_end(&mut self, number: usize, end: usize) -> Option<&mut KernelEnd> {
        self.kernels.get_mut(number)?.as_mut().map(|ends| &mut ends[end])
    }
}

impl Driver {
    /// Makes this driver's nodes namespaces, with `nics` to their kernels and `others` at local
    /// nodes.
    ///
    /// Packets have at most `mtu` bytes. Returns the numbers of `others`.
    pub(crate) fn set_ground(&mut self, nics: Vec<Plug>, others: Vec<(u32, Plug)>, mtu: u16) -> Vec<u32> {
        let first = nics.len() as u32;
        let nics = (0..).zip(nics).map(|(node, plug)| (node, plug, true));
        let others = others.into_iter().map(|(node, plug)| (node, plug, false));
        let (interfaces, wires): (Vec<Interface>, Vec<Wire>) = nics
            .chain(others)
            .map(|(node, plug, nic)| (Interface::new(node, plug.interface, nic), plug.wire))
            .unzip();
        let numbers = (first..interfaces.len() as u32).collect();
        self.wires = wires.into();
        self.ground = Some(Box::new(Ground {
            interfaces,
            destinations: HashMap::new(),
            kernels: Vec::new(),
            mail: Mail::new(usize::from(mtu) + frame::PREFIX),
            handed: Vec::with_capacity(BATCH),
            outgoing: Vec::new(),
            segments: (0, 0),
        }));
        numbers
    }

    /// Sets the socket `to` to which `node` sends datagrams of this label.
    pub(crate) fn set_destination(&mut self, label: u32, node: u32, to: SocketAddr) {
        if let Some(ground) = &mut self.ground {
            ground.destinations.insert(label, (node, to));
        }
    }

    /// Registers a kernel flow.
    pub(crate) fn note_kernel(&mut self, number: usize, ends: [KernelEnd; 2]) {
        let Some(ground) = &mut self.ground else { return };
        if ground.kernels.len() <= number {
            ground.kernels.resize(number + 1, None);
        }
        ground.kernels[number] = Some(ends);
    }

    /// Bytes of a kernel flow that passed here in one direction, back if `way` is 1.
    ///
    /// The first count is that of segments with data that the sending kernel sent. The second is
    /// that of all segments delivered to the receiving kernel.
    pub(crate) fn kernel_bytes(&self, number: usize, way: usize) -> (u64, u64) {
        let ends = self.ground.as_ref().and_then(|ground| ground.kernels.get(number).copied().flatten());
        ends.map_or((0, 0), |ends| (ends[way].sent, ends[1 - way].received))
    }

    /// Takes a datagram made here; [`flush`](Driver::flush) hands it to its node's kernel.
    ///
    /// Returns false if nodes are no namespaces: the datagram then goes to its link directly.
    pub(super) fn launch(&mut self, handle: u32) -> bool {
        let Some(ground) = &mut self.ground else { return false };
        ground.outgoing.push(handle);
        true
    }

    /// Hands nodes' kernels the datagrams made since the last call.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let Some(ground) = self.ground.as_mut().filter(|ground| !ground.outgoing.is_empty()) else {
            return Ok(());
        };
        let mut outgoing = std::mem::take(&mut ground.outgoing);
        let mut done = Ok(());
        let mut rest = &outgoing[..];
        while let (Ok(()), [first, ..]) = (&done, rest) {
            let label = self.buffers.get(*first).flow;
            let alike = rest.iter().take_while(|&&handle| self.buffers.get(handle).flow == label).count();
            let (train, others) = rest.split_at(alike);
            let ways = self.ground.as_ref().map(|ground| &ground.destinations);
            let way = ways.and_then(|ways| ways.get(&label).copied());
            let (node, to) = way.expect("a label that is sent leads somewhere");
            done = self.send_trains(node, to, train);
            rest = others;
        }
        outgoing.drain(..).for_each(|handle| self.buffers.free(handle));
        if let Some(ground) = &mut self.ground {
            ground.outgoing = outgoing;
        }
        done
    }

    /// Sends frames out of an interface.
    pub(super) fn send_frames(&mut self, interface: u32, frames: &[u32]) -> Result<(), Error> {
        let buffers = &self.buffers;
        let sent = self.wires[interface as usize].send(frames.iter().map(|&handle| buffers.bytes(handle)));
        let Some(ground) = &mut self.ground else { return Ok(()) };
        let interface = &mut ground.interfaces[interface as usize];
        let node = interface.node;
        let sent = interface
            .tally(frames.len(), sent)
            .map_err(|source| self.refuses(node, "send from node", source))?;
        self.counters.sends += frames.len().div_ceil(BATCH) as u64;
        self.counters.sent += sent as u64;
        self.counters.unsent += (frames.len() - sent) as u64;
        Ok(())
    }

    fn refuses(&self, node: u32, action: &'static str, source: io::Error) -> Error {
        Error::Node { action, node: self.nodes[node as usize].name.clone(), source }
    }

    /// Reads the frames at an interface. Returns true if there may be more.
    pub(super) fn read_wire(&mut self, interface: usize, end: Time) -> Result<bool, Error> {
        let wires = Arc::clone(&self.wires);
        let now = self.tell_time(end);
        let Some(mut ground) = self.ground.take() else { return Ok(false) };
        let done = self.read_frames(&mut ground, &wires, interface, now);
        self.ground = Some(ground);
        done
    }

    fn read_frames(
        &mut self,
        ground: &mut Ground,
        wires: &[Wire],
        interface: usize,
        now: Time,
    ) -> Result<bool, Error> {
        let Interface { node, nic, .. } = ground.interfaces[interface];
        let received = wires[interface].receive(&mut ground.mail);
        let count = received.map_err(|source| self.refuses(node, "receive at node", source))?;
        self.counters.receives += u64::from(count > 0);
        ground.interfaces[interface].read += count as u64;
        for i in 0..count {
            self.accept_frame(ground, (node, nic), now, i);
        }
        if !ground.handed.is_empty() {
            self.hand_in(ground, wires, node)?;
        }
        Ok(count == BATCH)
    }

    /// Handles a frame at a node; it comes from the node's own kernel if `nic`.
    fn accept_frame(&mut self, ground: &mut Ground, (node, nic): (u32, bool), now: Time, i: usize) {
        let known = match frame::load(ground.mail.frame(i), PORT) {
            Some(FrameContent::Datagram(packet)) => Some((packet, None)),
            Some(FrameContent::Segment(mut packet, tuple)) => {
                ground.segment(&tuple, packet.size).map(|(segment, label)| {
                    packet.flow = label;
                    (packet, Some(segment))
                })
            }
            None => None,
        };
        let next = known.map(|(packet, _)| self.nodes[node as usize].next(packet.flow));
        match (known, nic) {
            // Other packets that a kernel sends are dropped.
            (None, true) => return self.counters.strangers += 1,
            (Some((packet, Some(segment))), true) => {
                self.counters.created += 1;
                ground.segments.0 += 1;
                if packet.flags.has(Flags::DATA)
                    && let Some(end) = ground.kernel_end(segment.number, segment.from)
                {
                    end.sent += u64::from(packet.size);
                }
            }
            _ => self.counters.received += 1,
        }
        match (known, next) {
            (Some((packet, _)), Some(Next::Link(link))) => {
                let bytes = ground.mail.frame(i);
                let handle = self.buffers.alloc(packet, bytes.len());
                self.buffers.bytes_mut(handle).copy_from_slice(bytes);
                self.offer(link, now, handle);
            }
            (Some((_, segment)), Some(Next::End(_) | Next::Sink(_) | Next::Gate(_))) if !nic => {
                ground.handed.push((i, segment));
            }
            _ => self.counters.senseless += 1,
        }
    }

    /// Delivers the frames for a node's kernel.
    fn hand_in(&mut self, ground: &mut Ground, wires: &[Wire], node: u32) -> Result<(), Error> {
        let mut handed = std::mem::take(&mut ground.handed);
        let sent = wires[node as usize].send(handed.iter().map(|&(i, _)| ground.mail.frame(i)));
        let sent = ground.interfaces[node as usize].tally(handed.len(), sent);
        let sent = sent.map_err(|source| self.refuses(node, "hand packets to node", source))?;
        self.counters.sends += 1;
        self.counters.unsent += (handed.len() - sent) as u64;
        for &(_, segment) in &handed[..sent] {
            let Some(Segment { number, from, bytes }) = segment else {
                self.counters.sent += 1;
                continue;
            };
            self.counters.delivered += 1;
            ground.segments.1 += 1;
            if let Some(end) = ground.kernel_end(number, 1 - from) {
                end.received += u64::from(bytes);
            }
        }
        handed.clear();
        ground.handed = handed;
        Ok(())
    }

    /// Counts, after the run, the frames that wait at interfaces, and those without room there.
    pub(super) fn drain_wires(&mut self) {
        let Some(ground) = &mut self.ground else { return };
        for (interface, wire) in ground.interfaces.iter_mut().zip(self.wires.iter()) {
            while let Ok(count @ 1..) = wire.receive(&mut ground.mail) {
                interface.read += count as u64;
                for i in 0..count {
                    match frame::load(ground.mail.frame(i), PORT) {
                        // A segment that the kernel sent and this driver has not read is not
                        // counted yet.
                        Some(FrameContent::Segment(..)) if interface.nic => {}
                        None if interface.nic => self.counters.strangers += 1,
                        _ => self.counters.waiting += 1,
                    }
                }
            }
            // If a socket has no such counter, these frames show up as unaccounted for.
            interface.missed += wire.missed().unwrap_or(0);
        }
    }
}
