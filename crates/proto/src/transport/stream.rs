//! A byte stream over segments: the bytes of each packet, and their reassembly.
//!
//! A [`Connection`](super::Connection) only handles lengths and numbers. An engine with real bytes
//! stores them here. An [`Outgoing`] returns the payload of each data packet, the same bytes for
//! each transmission of a segment. An [`Incoming`] puts received payloads in order. Both carry
//! frames as well, as runs of bytes between flags.

use std::collections::{BTreeMap, VecDeque};

use crate::{Flags, Packet};

use super::serial::before;

/// Bytes written and not acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    /// Bytes from the first unacknowledged segment on.
    bytes: VecDeque<u8>,
    /// Length of each segment cut so far, the first of them numbered `first`.
    lengths: VecDeque<u16>,
    first: u32,
    /// Number of bytes already cut into segments.
    cut: usize,
}

impl Outgoing {
    /// An empty buffer.
    pub fn new() -> Outgoing {
        Outgoing::default()
    }

    /// Appends `bytes`. The caller also reports their number to the connection:
    /// [`write_stream`](super::Connection::write_stream) or
    /// [`write_frame`](super::Connection::write_frame).
    pub fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Bytes held: written and not acknowledged.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if no byte is held.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The payload of a packet that the connection has just built, in two slices; its length is the
    /// packet's size less `header`. `None` if it carries none, or if the connection was told of
    /// more bytes than were written here.
    pub fn payload(&mut self, packet: &Packet, header: u16) -> Option<(&[u8], &[u8])> {
        if !packet.flags.has(Flags::DATA) {
            return None;
        }
        if self.lengths.is_empty() {
            self.first = packet.seq;
        }
        let length = packet.size.saturating_sub(header);
        let index = packet.seq.wrapping_sub(self.first) as usize;
        let mut fresh = None;
        if index == self.lengths.len() {
            if self.bytes.len() - self.cut < usize::from(length) {
                return None;
            }
            self.lengths.push_back(length);
            fresh = Some(self.cut);
            self.cut += usize::from(length);
        }
        let length = usize::from(*self.lengths.get(index)?);
        let before = || self.lengths.iter().take(index).map(|&length| usize::from(length)).sum();
        let start = fresh.unwrap_or_else(before);
        let (front, back) = self.bytes.as_slices();
        let split = front.len();
        Some((
            &front[start.min(split)..(start + length).min(split)],
            &back[start.saturating_sub(split)..(start + length).saturating_sub(split)],
        ))
    }

    /// Drops all bytes before segment `ack`, which are acknowledged (the connection's
    /// [`una`](super::Connection::una)).
    pub fn acknowledge(&mut self, ack: u32) {
        while before(self.first, ack) {
            let Some(length) = self.lengths.pop_front() else { return };
            self.bytes.drain(..usize::from(length));
            self.cut -= usize::from(length);
            self.first = self.first.wrapping_add(1);
        }
    }
}

/// Received payloads, until they are in order and read.
#[derive(Clone, Debug, Default)]
pub struct Incoming {
    /// Bytes ready to be read.
    ready: VecDeque<u8>,
    /// Payload of segments after a gap, by their number since the first, so that the order survives
    /// a wrap.
    early: BTreeMap<u64, Box<[u8]>>,
    /// The next segment, counted since the first.
    next: u64,
}

impl Incoming {
    /// An empty buffer.
    pub fn new() -> Incoming {
        Incoming::default()
    }

    /// Inserts the payload of a data packet. `before` and `after` are the connection's
    /// [`expected`](super::Connection::expected) before and after it handled the packet, and
    /// `window` its window in segments. Payload that the connection did not keep is dropped.
    pub fn insert(&mut self, packet: &Packet, before: u32, after: u32, window: u32, payload: &[u8]) {
        let offset = packet.seq.wrapping_sub(before);
        if packet.flags.has(Flags::DATA) && offset < window {
            self.early.entry(self.next + u64::from(offset)).or_insert_with(|| payload.into());
        }
        self.next += u64::from(after.wrapping_sub(before));
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() >= self.next {
                return;
            }
            self.ready.extend(entry.remove().iter());
        }
    }

    /// Moves bytes in order into `out`, up to its length. Returns their number.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let n = out.len().min(self.ready.len());
        out.iter_mut().zip(self.ready.drain(..n)).for_each(|(to, byte)| *to = byte);
        n
    }

    /// Bytes that can be read.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// True if no byte can be read.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }
}
