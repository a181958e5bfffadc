//! Nodes that are network namespaces: frames between their interfaces and the links.
//!
//! A machine's datagrams leave by its node's UDP socket, and the kernel's TCP by the kernel; both come to the node's `nic` as frames,
//! whole packets with their headers. Such a frame is what a link carries, over a veth pair to the next node, and in the end
//! to the kernel of the node for which it is.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::Flags;

use super::{Driver, Next};
use crate::error::Error;
use crate::hosts::frame::{self, Content};
use crate::hosts::wire::{BATCH, Mail, Wire};
use crate::hosts::{PORT, Plug};
use crate::kernel_tcp::PORTS;
use crate::sys::ip::FiveTuple;

/// What a driver has besides, where its nodes are namespaces.
#[derive(Debug)]
pub(crate) struct Ground {
    /// By number of an interface, as the driver's sockets on them.
    pub(crate) interfaces: Vec<Interface>,
    /// By label, from which local node its datagrams come, and where they are to go.
    destinations: HashMap<u32, (u32, SocketAddr)>,
    /// By number of a flow of the kernel's, its two ends.
    kernels: Vec<Option<[KernelEnd; 2]>>,
    mail: Mail,
    /// Of the frames received last, those for the node's kernel, and whose segments they are.
    handed: Vec<(usize, Option<Segment>)>,
    /// Datagrams made here, which are to leave by their nodes' sockets.
    outgoing: Vec<u32>,
    /// Segments that nodes' kernels sent, and that were handed to them.
    pub(crate) segments: (u64, u64),
}

/// An interface. The first ones are those to nodes' kernels, by local node.
#[derive(Debug)]
pub(crate) struct Interface {
    /// Its local node.
    pub(crate) node: u32,
    pub(crate) name: String,
    /// Whether the node's kernel is at its far end.
    nic: bool,
    /// Frames read from it, and those for which the socket on it had no room; frames written to it, and refused.
    pub(crate) read: u64,
    pub(crate) missed: u64,
    pub(crate) written: u64,
    pub(crate) refused: u64,
}

/// One end of a flow of the kernel's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelEnd {
    address: Ipv4Addr,
    /// Of the segments from there.
    label: u32,
    /// Bytes of segments with data from there, and of all segments handed in there, by this driver.
    sent: u64,
    received: u64,
}

/// A segment of the kernel's TCP: its flow's number, the end from which it comes, its bytes.
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

    /// Notes what it took of so many frames.
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
    /// Whose segment it is, and its label.
    fn segment(&self, tuple: &FiveTuple, bytes: u16) -> Option<(Segment, u32)> {
        // Both ends of a flow have the port that numbers it.
        let number = usize::from(tuple.source_port.checked_sub(PORTS)?);
        let ends = self.kernels.get(number)?.as_ref()?;
        let from = ends.iter().position(|end| end.address == tuple.source)?;
        let known =
            ends[1 - from].address == tuple.destination && tuple.source_port == tuple.destination_port;
        known.then_some((Segment { number, from, bytes }, ends[from].label))
    }

    fn kernel_end(&mut self, number: usize, end: usize) -> Option<&mut KernelEnd> {
        self.kernels.get_mut(number)?.as_mut().map(|ends| &mut ends[end])
    }
}

impl Driver {
    /// Makes its nodes those of namespaces, with `nics` to their kernels and other interfaces, each at a local node; answers the numbers
    /// of the others. Packets have `mtu` bytes at most.
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

    /// Datagrams of this label go from `node` to the socket `to`.
    pub(crate) fn set_destination(&mut self, label: u32, node: u32, to: SocketAddr) {
        if let Some(ground) = &mut self.ground {
            ground.destinations.insert(label, (node, to));
        }
    }

    /// Tells of a flow of the kernel's.
    pub(crate) fn note_kernel(&mut self, number: usize, ends: [KernelEnd; 2]) {
        let Some(ground) = &mut self.ground else { return };
        if ground.kernels.len() <= number {
            ground.kernels.resize(number + 1, None);
        }
        ground.kernels[number] = Some(ends);
        // Should a segment carry XCP's option, that is what its toll goes through.
        ends.iter().for_each(|end| self.buffers.set_encoding(end.label, frame::ENCODING));
    }

    /// What of a flow of the kernel's passed here one way, back if `way` is 1: bytes of segments with data out of the kernel that sends,
    /// and of all segments into the one that receives.
    pub(crate) fn kernel_bytes(&self, number: usize, way: usize) -> (u64, u64) {
        let ends = self.ground.as_ref().and_then(|ground| ground.kernels.get(number).copied().flatten());
        ends.map_or((0, 0), |ends| (ends[way].sent, ends[1 - way].received))
    }

    /// Takes a datagram made here, to be handed to its node's kernel by [`flush`](Driver::flush); answers whether that is its way.
    pub(super) fn launch(&mut self, handle: u32) -> bool {
        let Some(ground) = &mut self.ground else { return false };
        ground.outgoing.push(handle);
        true
    }

    /// Hands nodes' kernels the datagrams made since.
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

    /// Reads what has come to an interface; answers whether there may be more.
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

    /// A frame has come to a node, from its own kernel if `nic`.
    fn accept_frame(&mut self, ground: &mut Ground, (node, nic): (u32, bool), now: Time, i: usize) {
        let known = match frame::load(ground.mail.frame(i), PORT) {
            Some(Content::Datagram(packet)) => Some((packet, None)),
            Some(Content::Segment(mut packet, tuple)) => {
                ground.segment(&tuple, packet.size).map(|(segment, label)| {
                    packet.flow = label;
                    (packet, Some(segment))
                })
            }
            None => None,
        };
        let next = known.map(|(packet, _)| self.nodes[node as usize].next(packet.flow));
        match (known, nic) {
            // Whatever else a kernel says by itself goes nowhere.
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

    /// Hands a node's kernel what has come for it.
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

    /// The run is over: counts what still waits at interfaces, and what had no room there.
    pub(super) fn drain_wires(&mut self) {
        let Some(ground) = &mut self.ground else { return };
        for (interface, wire) in ground.interfaces.iter_mut().zip(self.wires.iter()) {
            while let Ok(count @ 1..) = wire.receive(&mut ground.mail) {
                interface.read += count as u64;
                for i in 0..count {
                    match frame::load(ground.mail.frame(i), PORT) {
                        // What a kernel has sent and nobody taken was not there yet.
                        Some(Content::Segment(..)) if interface.nic => {}
                        None if interface.nic => self.counters.strangers += 1,
                        _ => self.counters.waiting += 1,
                    }
                }
            }
            // A socket that doesn't tell shows in what is not accounted for.
            interface.missed += wire.missed().unwrap_or(0);
        }
    }
}
