//! Storage of packets and their bytes: pooled buffers that keep packets where they were received.

use tollway_proto::link::Store;
use tollway_proto::port::HostTable;
use tollway_proto::{Encoding, Flags, Packet, Pool};

use crate::label::{CARRIED, CROSS, TREE};

/// Packets, each with the bytes from which it was loaded.
///
/// A handle names a packet and a piece of a chunk. Long trains that the kernel coalesced stay in
/// the chunk that received them, and each packet holds its piece. Single datagrams are copied into
/// small chunks, so that a queued packet does not hold 64 KiB.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    slots: Vec<Slot>,
    free: Vec<u32>,
    chunks: Vec<Chunk>,
    free_small: Vec<u32>,
    free_large: Vec<u32>,
    /// Chunks whose bytes are lent out to receive into.
    free_empty: Vec<u32>,
    /// By label, the encoding that quantises the toll; empty while every encoding is lossless.
    encodings: Vec<Encoding>,
    /// By flow, its class of traffic; empty while every class is 0.
    classes: Vec<u8>,
    /// Source and destination hosts, by label.
    hosts: HostTable,
    /// By number of an outlet of a middle, a label of the flow whose packets leave there.
    stretches: Vec<u32>,
    /// True if a packet may be a train of segments. Its number then counts the segments.
    trains: bool,
    /// By handle, the properties that other packets have by their label; empty if they do.
    notes: Vec<Note>,
}

/// Properties of a packet that belongs to no flow known beforehand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Note {
    /// Its source and destination, by number.
    pub(crate) hosts: [u32; 2],
    /// The encoding that quantises its toll.
    pub(crate) encoding: Encoding,
    /// Its class of traffic.
    pub(crate) class: u8,
    /// Conditions of tenants that hold, as bits.
    pub(crate) sights: u16,
}

#[derive(Debug)]
struct Slot {
    packet: Packet,
    chunk: u32,
    start: u32,
    len: u32,
}

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    users: u32,
}

impl Buffers {
    /// Allocates room for a datagram of `len` bytes. The bytes are not cleared.
    pub(crate) fn alloc(&mut self, packet: Packet, len: usize) -> u32 {
        let chunk = if len <= SMALL { self.chunk(SMALL) } else { self.chunk(LARGE) };
        self.chunks[chunk as usize].users = 1;
        self.slot(Slot { packet, chunk, start: 0, len: len as u32 })
    }

    /// Takes a whole chunk out of the pool to receive into; [`settle`](Buffers::settle) returns
    /// one.
    pub(crate) fn spare(&mut self) -> Box<[u8]> {
        match self.free_large.pop() {
            Some(chunk) => {
                self.free_empty.push(chunk);
                std::mem::take(&mut self.chunks[chunk as usize].bytes)
            }
            None => vec![0; LARGE].into_boxed_slice(),
        }
    }

    /// Reserves an entry for a chunk that has been received into.
    ///
    /// Packets can [`share`](Buffers::share) it at once. Its bytes follow with
    /// [`settle`](Buffers::settle).
    pub(crate) fn reserve(&mut self) -> u32 {
        match self.free_empty.pop() {
            Some(chunk) => {
                self.chunks[chunk as usize].users = 1;
                chunk
            }
            None => {
                self.chunks.push(Chunk { bytes: Box::default(), users: 1 });
                self.chunks.len() as u32 - 1
            }
        }
    }

    /// Adds a packet on a piece of a reserved chunk.
    pub(crate) fn share(&mut self, packet: Packet, chunk: u32, start: usize, len: usize) -> u32 {
        self.chunks[chunk as usize].users += 1;
        self.slot(Slot { packet, chunk, start: start as u32, len: len as u32 })
    }

    /// Adds the bytes of a reserved chunk. No more packets may share it afterwards.
    pub(crate) fn settle(&mut self, chunk: u32, bytes: Box<[u8]>) {
        self.chunks[chunk as usize].bytes = bytes;
        self.release(chunk);
    }

    pub(crate) fn bytes(&self, handle: u32) -> &[u8] {
        let slot = &self.slots[handle as usize];
        &self.chunks[slot.chunk as usize].bytes[slot.start as usize..(slot.start + slot.len) as usize]
    }

    pub(crate) fn bytes_mut(&mut self, handle: u32) -> &mut [u8] {
        let slot = &self.slots[handle as usize];
        &mut self.chunks[slot.chunk as usize].bytes[slot.start as usize..(slot.start + slot.len) as usize]
    }

    pub(crate) fn get(&self, handle: u32) -> &Packet {
        &self.slots[handle as usize].packet
    }

    pub(crate) fn packet_mut(&mut self, handle: u32) -> &mut Packet {
        &mut self.slots[handle as usize].packet
    }

    /// Returns true if `next` lies `gap` bytes behind `handle` in the same chunk.
    pub(crate) fn adjoins(&self, handle: u32, next: u32, gap: usize) -> bool {
        let (a, b) = (&self.slots[handle as usize], &self.slots[next as usize]);
        a.chunk == b.chunk && (a.start + a.len) as usize + gap == b.start as usize
    }

    /// Bytes from `front` before `first` to `behind` after `last`, which lie in one chunk.
    pub(crate) fn span(&self, first: u32, last: u32, (front, behind): (usize, usize)) -> &[u8] {
        let (a, b) = (&self.slots[first as usize], &self.slots[last as usize]);
        debug_assert_eq!(a.chunk, b.chunk);
        &self.chunks[a.chunk as usize].bytes[a.start as usize - front..(b.start + b.len) as usize + behind]
    }

    /// Returns true if the chunk has room around the packet, as for one received sealed.
    pub(crate) fn has_room(&self, handle: u32, (front, behind): (usize, usize)) -> bool {
        let slot = &self.slots[handle as usize];
        let len = self.chunks[slot.chunk as usize].bytes.len();
        slot.start as usize >= front && (slot.start + slot.len) as usize + behind <= len
    }

    /// The packet's bytes, with `front` bytes before and `behind` bytes after them.
    pub(crate) fn with_room_mut(&mut self, handle: u32, (front, behind): (usize, usize)) -> &mut [u8] {
        let slot = &self.slots[handle as usize];
        let (start, end) = (slot.start as usize, (slot.start + slot.len) as usize);
        &mut self.chunks[slot.chunk as usize].bytes[start - front..end + behind]
    }

    /// Frees a packet.
    pub(crate) fn free(&mut self, handle: u32) {
        let chunk = self.slots[handle as usize].chunk;
        self.free.push(handle);
        self.release(chunk);
    }

    /// Number of packets not yet freed.
    pub(crate) fn alive(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }

    /// Sets the encoding that quantises the toll in packets with this label.
    pub(crate) fn set_encoding(&mut self, label: u32, encoding: Encoding) {
        let label = label as usize;
        if encoding != Encoding::Acp && self.encodings.len() <= label {
            self.encodings.resize(label + 1, Encoding::Acp);
        }
        if let Some(known) = self.encodings.get_mut(label) {
            *known = encoding;
        }
    }

    /// The encoding that quantises the toll in packets with this label.
    pub(crate) fn encoding_of(&self, label: u32) -> Encoding {
        self.encodings.get(label as usize).copied().unwrap_or(Encoding::Acp)
    }

    /// Adds an outlet of a middle, for packets of the flow with this label.
    pub(crate) fn add_stretch(&mut self, label: u32) {
        self.stretches.push(label);
    }

    /// The packet's label; for an outlet's label, a label of its flow.
    #[inline]
    pub(crate) fn own_label(&self, handle: u32) -> u32 {
        self.own(self.slots[handle as usize].packet.flow)
    }

    /// The label itself; for an outlet's label, a label of its flow.
    #[inline]
    pub(crate) fn own(&self, label: u32) -> u32 {
        if label & (CROSS | TREE) != TREE {
            return label;
        }
        self.stretches.get((label ^ TREE) as usize).copied().unwrap_or(label)
    }

    /// Sets the class of traffic of `flow`.
    pub(crate) fn set_class(&mut self, flow: u32, class: u8) {
        let flow = flow as usize;
        if class != 0 && self.classes.len() <= flow {
            self.classes.resize(flow + 1, 0);
        }
        if let Some(known) = self.classes.get_mut(flow) {
            *known = class;
        }
    }

    /// Sets the hosts that send and receive packets with a label.
    pub(crate) fn set_hosts(&mut self, label: u32, hosts: [u32; 2]) {
        self.hosts.set(label & !CROSS, label & CROSS != 0, hosts);
    }

    /// Buffers of packets that may be trains of segments.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_trains() -> Buffers {
        Buffers { trains: true, ..Buffers::default() }
    }

    /// Sets the properties of a packet. Each packet then needs them.
    #[cfg(target_os = "linux")]
    pub(crate) fn note(&mut self, handle: u32, note: Note) {
        let handle = handle as usize;
        if self.notes.len() <= handle {
            self.notes.resize(handle + 1, Note::default());
        }
        self.notes[handle] = note;
    }

    /// The properties of a packet that has them.
    #[cfg(target_os = "linux")]
    pub(crate) fn noted(&self, handle: u32) -> Note {
        self.notes.get(handle as usize).copied().unwrap_or_default()
    }

    fn slot(&mut self, slot: Slot) -> u32 {
        match self.free.pop() {
            Some(handle) => {
                self.slots[handle as usize] = slot;
                handle
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    fn chunk(&mut self, size: usize) -> u32 {
        let free = if size == SMALL { &mut self.free_small } else { &mut self.free_large };
        free.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk { bytes: vec![0; size].into_boxed_slice(), users: 0 });
            self.chunks.len() as u32 - 1
        })
    }

    fn release(&mut self, chunk: u32) {
        let entry = &mut self.chunks[chunk as usize];
        entry.users -= 1;
        if entry.users == 0 {
            let small = entry.bytes.len() == SMALL;
            if small { self.free_small.push(chunk) } else { self.free_large.push(chunk) }
        }
    }
}

impl Store for Buffers {
    fn lose(&mut self, handle: u32) {
        self.free(handle);
    }

    fn copy(&mut self, handle: u32) -> u32 {
        let bytes = self.bytes(handle).to_vec();
        let copy = self.alloc(*self.get(handle), bytes.len());
        self.bytes_mut(copy).copy_from_slice(&bytes);
        copy
    }

    #[inline]
    fn quantise_link(&mut self, handle: u32) {
        if let Some(note) = self.notes.get(handle as usize) {
            let packet = &mut self.slots[handle as usize].packet;
            if packet.flags.has(Flags::TOLLED) {
                note.encoding.quantise_link(&mut packet.toll, u32::from(packet.size));
            }
            return;
        }
        if self.encodings.is_empty() {
            return;
        }
        let label = self.own_label(handle) & !CARRIED;
        let packet = &mut self.slots[handle as usize].packet;
        if packet.flags.has(Flags::TOLLED)
            && let Some(encoding) = self.encodings.get(label as usize)
        {
            encoding.quantise_link(&mut packet.toll, u32::from(packet.size));
        }
    }

    #[inline]
    fn segments(&self, handle: u32) -> u64 {
        if self.trains { u64::from(self.get(handle).seq) } else { 1 }
    }
}

impl Pool for Buffers {
    type Handle = u32;

    #[inline]
    fn packet(&mut self, handle: u32) -> &mut Packet {
        &mut self.slots[handle as usize].packet
    }

    #[inline]
    fn class(&self, handle: u32) -> u8 {
        if let Some(note) = self.notes.get(handle as usize) {
            return note.class;
        }
        if self.classes.is_empty() {
            return 0;
        }
        // Numbers of cross-traffic sources are far above those of flows.
        let flow = (self.own_label(handle) & !CARRIED) >> 1;
        self.classes.get(flow as usize).copied().unwrap_or(0)
    }

    fn hosts(&self, handle: u32) -> [u32; 2] {
        if let Some(note) = self.notes.get(handle as usize) {
            return note.hosts;
        }
        let label = self.own_label(handle) & !CARRIED;
        self.hosts.get(label & !CROSS, label & CROSS != 0)
    }
}

/// Bytes of a small chunk, which holds an Ethernet datagram.
const SMALL: usize = 2048;
/// Bytes of a large chunk: the largest datagram, and the longest train that the kernel coalesces.
pub(crate) const LARGE: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use tollway_law::Toll;
    use tollway_proto::encoding::Feedback;

    use super::*;

    #[test]
    fn feedback_of_the_kernels_packets_is_quantised_as_of_other_packets() {
        let mut buffers = Buffers::default();
        buffers.set_encoding(4, Encoding::TcpOption { feedback: Feedback::Integer });
        for flow in [4, 4 | CARRIED] {
            let toll = Toll { due: 52_500.0, rtt: 0.1, ..Toll::default() };
            let handle = buffers
                .alloc(Packet { flow, size: 1500, flags: Flags::TOLLED, toll, ..Packet::default() }, 0);
            buffers.quantise_link(handle);
            // Three packets and a half in a round trip.
            assert_eq!(buffers.get(handle).toll.due.round(), 45_000.0, "{flow:#x}");
        }
    }
}
