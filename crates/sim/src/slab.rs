//! The memory of packets: a slab with a free list. The slot freed last is reused first, while it is
//! in cache.

use tollway_proto::cbr::PLAIN;
use tollway_proto::link::Store;
use tollway_proto::port::HostTable;
use tollway_proto::{Encoding, Flags, Packet, Pool, SackRanges};

use crate::pages::{in_large_pages, load_early};

/// All packets of a run, and the SACK ranges of some.
#[derive(Debug)]
pub(crate) struct Slab {
    packets: Vec<Packet>,
    /// The slot where the next packet is built.
    draft: u32,
    free: Vec<u32>,
    sacks: Vec<SackRanges>,
    free_sacks: Vec<u32>,
    created: u64,
    /// Packets of each flow that were lost after a queue had accepted them, less those that a wire
    /// duplicated; empty while there are none.
    lost: Vec<i64>,
    /// The same for each source of cross-traffic.
    lost_plain: Vec<i64>,
    /// The encoding of each flow's packets, with a full segment of the flow in bytes; empty while
    /// every flow's encoding is lossless.
    encodings: Vec<(Encoding, u32)>,
    /// The class of traffic of each flow; empty while no flow has one.
    classes: Vec<u8>,
    /// The hosts of flows and sources.
    pub(crate) hosts: HostTable,
}

impl Slab {
    /// Sets the class of all packets of `flow`, from now on.
    pub(crate) fn set_class(&mut self, flow: u32, class: u8) {
        let flow = flow as usize;
        if class != 0 && self.classes.len() <= flow {
            self.classes.resize(flow + 1, 0);
        }
        if let Some(known) = self.classes.get_mut(flow) {
            *known = class;
        }
    }

    /// Sets the encoding of `flow`: from now on its tolls lose the precision that the encoding
    /// lacks.
    pub(crate) fn set_encoding(&mut self, flow: u32, encoding: Encoding, segment: u32) {
        let flow = flow as usize;
        if encoding != Encoding::default() && self.encodings.len() <= flow {
            self.encodings.resize(flow + 1, (Encoding::default(), 0));
        }
        if let Some(known) = self.encodings.get_mut(flow) {
            *known = (encoding, segment);
        }
    }

    /// The encoding and full segment of `flow`; `None` if it is lossless.
    #[inline]
    pub(crate) fn encoding(&self, flow: u32) -> Option<(Encoding, u32)> {
        if self.encodings.is_empty() {
            return None;
        }
        self.encodings.get(flow as usize).copied().filter(|known| known.0 != Encoding::default())
    }

    #[inline(never)]
    fn quantise_toll(&mut self, slot: u32) {
        let packet = &self.packets[slot as usize];
        if packet.flags.has(Flags::TOLLED)
            && let Some((encoding, _)) = self.encoding(packet.flow)
        {
            let packet = &mut self.packets[slot as usize];
            encoding.quantise_link(&mut packet.toll, u32::from(packet.size));
        }
    }

    /// The slot for the next packet, with the content of an earlier one.
    #[inline]
    pub(crate) fn draft(&mut self) -> &mut Packet {
        &mut self.packets[self.draft as usize]
    }

    /// Makes a packet of the draft, and returns its slot.
    #[inline]
    pub(crate) fn launch(&mut self) -> u32 {
        self.created += 1;
        let slot = self.draft;
        self.draft = match self.free.pop() {
            Some(next) => next,
            None => self.grow(),
        };
        slot
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let room = self.packets.capacity();
        self.packets.push(Packet::default());
        if self.packets.capacity() > room {
            in_large_pages(&self.packets);
        }
        (self.packets.len() - 1) as u32
    }

    /// Counts a new packet in the slot of one that has ended, which had no SACK ranges.
    #[inline]
    pub(crate) fn renew(&mut self) {
        self.created += 1;
    }

    /// Counts a new packet in the slot of one that has ended. Frees the SACK ranges of the old one,
    /// at index `came`, and attaches those of the new one.
    #[inline]
    pub(crate) fn renew_with(&mut self, slot: u32, came: Option<u32>, ranges: &mut SackRanges) {
        self.created += 1;
        if let Some(came) = came {
            self.free_sacks.push(came);
        }
        if self.packets[slot as usize].flags.has(Flags::SACK) {
            self.attach(slot, *ranges);
            ranges.clear();
        }
    }

    /// Ends a packet, and frees its SACK ranges.
    #[inline]
    pub(crate) fn free(&mut self, slot: u32) {
        let packet = &self.packets[slot as usize];
        if packet.flags.has(Flags::SACK) {
            self.free_sacks.push(packet.sack);
        }
        self.free.push(slot);
    }

    fn lost_of(&mut self, flow: u32, plain: bool) -> &mut i64 {
        let lost = if plain { &mut self.lost_plain } else { &mut self.lost };
        let flow = flow as usize;
        if lost.len() <= flow {
            lost.resize(flow + 1, 0);
        }
        &mut lost[flow]
    }

    /// Packets of a source of cross-traffic lost so far, less those that a wire duplicated.
    pub(crate) fn lost_plain(&self, source: u32) -> i64 {
        self.lost_plain.get(source as usize).copied().unwrap_or(0)
    }

    /// Packets of `flow` lost so far after a queue had accepted them, less those that a wire
    /// duplicated.
    pub(crate) fn lost(&self, flow: u32) -> i64 {
        self.lost.get(flow as usize).copied().unwrap_or(0)
    }

    /// Resets the count for another flow with the number `flow`.
    pub(crate) fn forget_lost(&mut self, flow: u32) {
        if let Some(lost) = self.lost.get_mut(flow as usize) {
            *lost = 0;
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Packet {
        &self.packets[slot as usize]
    }

    /// Loads the packet in `slot` early.
    #[inline]
    pub(crate) fn load_early(&self, slot: u32) {
        load_early(&raw const self.packets[slot as usize]);
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Packet {
        &mut self.packets[slot as usize]
    }

    /// The SACK ranges of a packet; empty without any.
    #[inline]
    pub(crate) fn sack(&self, packet: &Packet) -> &SackRanges {
        if packet.flags.has(Flags::SACK) { &self.sacks[packet.sack as usize] } else { &SackRanges::EMPTY }
    }

    /// Mutable access to a packet, with its SACK ranges; empty without any.
    #[inline]
    pub(crate) fn with_sack(&mut self, slot: u32) -> (&mut Packet, &SackRanges) {
        let packet = &mut self.packets[slot as usize];
        let sack = match packet.flags.has(Flags::SACK) {
            true => &self.sacks[packet.sack as usize],
            false => &SackRanges::EMPTY,
        };
        (packet, sack)
    }

    /// Attaches `ranges` to the packet in `slot`.
    #[inline]
    pub(crate) fn attach(&mut self, slot: u32, ranges: SackRanges) {
        let at = match self.free_sacks.pop() {
            Some(at) => {
                self.sacks[at as usize] = ranges;
                at
            }
            None => {
                self.sacks.push(ranges);
                (self.sacks.len() - 1) as u32
            }
        };
        self.packets[slot as usize].sack = at;
    }

    /// Replaces the SACK ranges of the packet in `slot`, which are at index `came`, by `ranges`.
    pub(crate) fn set_sack(&mut self, slot: u32, came: Option<u32>, ranges: &SackRanges) {
        self.free_sacks.extend(came);
        let flags = &mut self.packets[slot as usize].flags;
        flags.0 &= !Flags::SACK.0;
        if !ranges.is_empty() {
            flags.set(Flags::SACK);
            self.attach(slot, *ranges);
        }
    }

    /// Packets created so far.
    pub(crate) fn created(&self) -> u64 {
        self.created
    }

    /// Packets alive.
    pub(crate) fn alive(&self) -> u64 {
        (self.packets.len() - self.free.len() - 1) as u64
    }
}

impl Default for Slab {
    fn default() -> Slab {
        Slab {
            packets: vec![Packet::default()],
            draft: 0,
            free: Vec::new(),
            sacks: Vec::new(),
            free_sacks: Vec::new(),
            created: 0,
            lost: Vec::new(),
            lost_plain: Vec::new(),
            encodings: Vec::new(),
            classes: Vec::new(),
            hosts: HostTable::default(),
        }
    }
}

impl Store for Slab {
    #[cold]
    fn lose(&mut self, slot: u32) {
        let packet = &self.packets[slot as usize];
        let (flow, plain) = (packet.flow, packet.flags.has(PLAIN));
        *self.lost_of(flow, plain) += 1;
        self.free(slot);
    }

    #[cold]
    fn copy(&mut self, slot: u32) -> u32 {
        let packet = self.packets[slot as usize];
        let sack = *self.sack(&packet);
        *self.draft() = packet;
        let copy = self.launch();
        if packet.flags.has(Flags::SACK) {
            self.attach(copy, sack);
        }
        *self.lost_of(packet.flow, packet.flags.has(PLAIN)) -= 1;
        copy
    }

    #[inline(always)]
    fn quantise_link(&mut self, slot: u32) {
        if !self.encodings.is_empty() {
            self.quantise_toll(slot);
        }
    }
}

impl Pool for Slab {
    type Handle = u32;

    #[inline]
    fn packet(&mut self, slot: u32) -> &mut Packet {
        &mut self.packets[slot as usize]
    }

    #[inline]
    fn class(&self, slot: u32) -> u8 {
        if self.classes.is_empty() {
            return 0;
        }
        let packet = &self.packets[slot as usize];
        let classed = !packet.flags.has(PLAIN);
        if classed { self.classes.get(packet.flow as usize).copied().unwrap_or(0) } else { 0 }
    }

    fn hosts(&self, slot: u32) -> [u32; 2] {
        let packet = &self.packets[slot as usize];
        self.hosts.get(packet.flow, packet.flags.has(PLAIN))
    }
}
