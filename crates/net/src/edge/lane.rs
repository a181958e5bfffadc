//! A direction's link and the frames on it: a machine without I/O.

use std::net::IpAddr;

use tollway_law::Time;
use tollway_law::link::AnyLink;
use tollway_proto::encoding::tcp_option::Tolled;
use tollway_proto::link::{Link, LinkStats};
use tollway_proto::route::Hash;
use tollway_proto::{Encoding, Flags, Packet};

use super::frame;
use crate::buffers::{Buffers, Note};
use crate::emulator::{self, LinkSpec};
use crate::mesh::{FEEDBACK, is_explicit};
use crate::sys::ip::{self, FiveTuple};
use crate::sys::tun;

/// A link, and the frames that cross it.
#[derive(Debug)]
pub(crate) struct Lane {
    link: Link,
    buffers: Buffers,
    /// True if frames have Ethernet's header.
    ethernet: bool,
    /// True if the link's law writes tolls.
    explicit: bool,
    /// Names flows, in a way that their senders cannot foresee.
    hash: Hash,
    /// Counters of links that were replaced.
    past: LinkStats,
}

/// The counters of a direction's link since the start, and its queue now.
#[derive(Clone, Debug, Default)]
pub struct LaneMoment {
    /// Totals; figures of the queue are those since the last reading.
    pub stats: LinkStats,
    /// Sum of waiting times at the port, and the number of packets, since the link's last change.
    pub waited: (Time, u64),
    /// Packets on the link now, and their bytes.
    pub queued: (u64, u64),
}

impl Lane {
    /// An idle link. `secret` keeps names of flows from being foreseen.
    pub(crate) fn new(spec: &LinkSpec, ethernet: bool, secret: [u8; 16]) -> Lane {
        Lane {
            link: spec.build(),
            buffers: Buffers::of_trains(),
            ethernet,
            explicit: is_explicit(&spec.law),
            hash: Hash::new(secret),
            past: LinkStats::default(),
        }
    }

    /// Room for any frame.
    pub(crate) fn spare(&mut self) -> Box<[u8]> {
        self.buffers.spare()
    }

    /// Offers the frame at the start of `bytes`, which comes from [`spare`](Lane::spare), to the
    /// link. Returns room for the next one. `now` must not decrease between calls.
    pub(crate) fn offer(&mut self, now: Time, bytes: Box<[u8]>, len: usize) -> Box<[u8]> {
        let Some((packet, note)) = self.admit(&bytes[..len]) else { return bytes };
        let (handle, rest) = if len > COPIED {
            let chunk = self.buffers.reserve();
            let handle = self.buffers.share(packet, chunk, 0, len);
            self.buffers.settle(chunk, bytes);
            (handle, self.buffers.spare())
        } else {
            let handle = self.buffers.alloc(packet, len);
            self.buffers.bytes_mut(handle).copy_from_slice(&bytes[..len]);
            (handle, bytes)
        };
        self.buffers.note(handle, note);
        emulator::offer(&mut self.link, now, handle, &mut self.buffers);
        rest
    }

    /// The frame as a packet on the link; `None` if it has no content.
    fn admit(&self, frame: &[u8]) -> Option<(Packet, Note)> {
        let content = frame::read(frame, self.ethernet)?;
        let (mut packet, mut note) = (content.packet, Note::default());
        let Some(header) = content.header else { return Some((packet, note)) };
        packet.flow = self.name(&header.flow, header.fragment);
        note.hosts = [header.flow.source, header.flow.destination].map(|host| self.number(host));
        if self.explicit
            && let Some((_, tolled)) = ip::toll_option(&frame[content.at..], &header)
        {
            packet.flags.set(Flags::TOLLED);
            packet.toll = tolled.toll(u32::from(packet.size));
            if let Tolled::Xcp(_) = tolled {
                note.encoding = Encoding::TcpOption { feedback: FEEDBACK };
            }
        }
        Some((packet, note))
    }

    /// The number of a flow. All fragments of a packet have the same one.
    fn name(&self, flow: &FiveTuple, fragment: bool) -> u32 {
        let mut bytes = [0; 37];
        bytes[..16].copy_from_slice(&octets(flow.source));
        bytes[16..32].copy_from_slice(&octets(flow.destination));
        bytes[32] = flow.protocol;
        if !fragment {
            bytes[33..35].copy_from_slice(&flow.source_port.to_be_bytes());
            bytes[35..].copy_from_slice(&flow.destination_port.to_be_bytes());
        }
        self.hash.of(&bytes) as u32
    }

    /// The number of a host: small, since queues count by it.
    fn number(&self, host: IpAddr) -> u32 {
        self.hash.of(&octets(host)) as u32 % HOSTS
    }

    /// The next frame that has left the link by `now`, and the instant. [`free`](Lane::free) it.
    pub(crate) fn poll(&mut self, now: Time) -> Option<(Time, u32)> {
        let (at, handle) = emulator::arrive(&mut self.link, now, &mut self.buffers)?;
        let packet = *self.buffers.get(handle);
        if packet.flags.has(Flags::CE) || packet.flags.has(Flags::TOLLED) {
            let ethernet = self.ethernet;
            let bytes = self.buffers.bytes_mut(handle);
            if let Some(content) = frame::read(bytes, ethernet) {
                let unfinished = tun::is_unfinished(bytes);
                ip::store(&mut bytes[content.at..], &packet, unfinished);
            }
        }
        Some((at, handle))
    }

    /// The time of the next [`poll`](Lane::poll).
    pub(crate) fn poll_timeout(&self) -> Time {
        self.link.next_arrival()
    }

    /// The bytes of a frame.
    pub(crate) fn frame(&self, handle: u32) -> &[u8] {
        self.buffers.bytes(handle)
    }

    pub(crate) fn free(&mut self, handle: u32) {
        self.buffers.free(handle);
    }

    /// Replaces the link. Packets on it are offered to the new one.
    pub(crate) fn replace(&mut self, now: Time, spec: &LinkSpec) {
        let stats = self.link.read_stats(now, &mut self.buffers);
        self.past = sum(&self.past, &stats);
        let old = std::mem::replace(&mut self.link, spec.build());
        self.link.measure(now, true);
        self.explicit = is_explicit(&spec.law);
        // Those in transmission come first; they have not left.
        let queued = old.port.queued().count();
        let mut held: Vec<u32> = old.held().collect();
        held.rotate_left(queued);
        for handle in held {
            emulator::offer(&mut self.link, now, handle, &mut self.buffers);
        }
    }

    /// The counters at `now`.
    pub(crate) fn moment(&mut self, now: Time) -> LaneMoment {
        let stats = self.link.read_stats(now, &mut self.buffers);
        let held = self.link.held().map(|handle| self.buffers.get(handle));
        let queued = held.fold((0, 0), |(packets, bytes), packet| {
            (packets + u64::from(packet.seq), bytes + u64::from(packet.size))
        });
        LaneMoment { stats: sum(&self.past, &stats), waited: self.link.waited(), queued }
    }
}

/// `new` with the counters of `old` added.
fn sum(old: &LinkStats, new: &LinkStats) -> LinkStats {
    let mut sum = *new;
    sum.sent_packets += old.sent_packets;
    sum.sent_bytes += old.sent_bytes;
    sum.busy_ns += old.busy_ns;
    sum.marks += old.marks;
    sum.drops.full += old.drops.full;
    sum.drops.law += old.drops.law;
    sum
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// True if a link's law sees each packet by itself: trains are then not for it.
pub(super) fn sees_packets(law: &AnyLink) -> bool {
    is_explicit(law)
}

/// Length in bytes up to which a frame is copied, so that it does not occupy a train's buffer.
const COPIED: usize = 2048;
/// Limit of hosts that a queue tells apart.
const HOSTS: u32 = 1 << 16;
