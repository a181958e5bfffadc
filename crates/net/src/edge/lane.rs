//! A direction's link and the frames on it: a machine without I/O.

use std::net::IpAddr;

use tollway_law::link::AnyLink;
use tollway_law::{Time, Toll};
use tollway_proto::encoding::tcp_option::Tolled;
use tollway_proto::link::{Link, LinkStats};
use tollway_proto::route::Hash;
use tollway_proto::shaper::TenantFate;
use tollway_proto::{Encoding, Flags, Packet};

use super::frame::{self, Content};
use super::meters::{EdgeMeters, Metered};
use super::tenants::{Policies, TenantMoment, TenantSpec};
use super::trips::Trips;
use crate::buffers::{Buffers, Note};
use crate::emulator::{self, LinkSpec};
use crate::mesh::{FEEDBACK, is_explicit};
use crate::sys::ip::{self, FiveTuple};
use crate::sys::tun;

/// A link, and the frames that cross it.
#[derive(Debug)]
pub(crate) struct Lane {
    link: Link,
    policies: Option<Policies>,
    buffers: Buffers,
    /// True if frames have Ethernet's header.
    ethernet: bool,
    /// True if frames have a tag with the conditions that hold.
    labelled: bool,
    /// True if the link's law writes tolls.
    explicit: bool,
    /// Meters of senders and round trips of connections, which the other direction shares.
    meters: Option<EdgeMeters>,
    trips: Option<Trips>,
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
    /// Packets that wait now, and their bytes.
    pub queued: (u64, u64),
    /// The tenants, in order.
    pub tenants: Vec<TenantMoment>,
}

impl Lane {
    /// An idle link. `secret` keeps names of flows from being foreseen.
    pub(crate) fn new(spec: &LinkSpec, tenants: &[TenantSpec], ethernet: bool, secret: [u8; 16]) -> Lane {
        Lane {
            link: spec.build(),
            policies: Policies::new(Time::ZERO, tenants),
            buffers: Buffers::of_trains(),
            ethernet,
            labelled: false,
            explicit: is_explicit(&spec.law),
            meters: None,
            trips: None,
            hash: Hash::new(secret),
            past: LinkStats::default(),
        }
    }

    /// States whether frames have a tag with the conditions that hold, from now on.
    pub(crate) fn set_labelled(&mut self, labelled: bool) {
        self.labelled = labelled;
    }

    /// Meters senders, and follows round trips, from now on.
    pub(crate) fn set_shared(&mut self, meters: Option<EdgeMeters>, trips: Option<Trips>) {
        (self.meters, self.trips) = (meters, trips);
    }

    /// Room for any frame.
    pub(crate) fn spare(&mut self) -> Box<[u8]> {
        self.buffers.spare()
    }

    /// Offers the frame at the start of `bytes`, which comes from [`spare`](Lane::spare), to the
    /// link. Returns room for the next one. `now` must not decrease between calls.
    pub(crate) fn offer(&mut self, now: Time, mut bytes: Box<[u8]>, len: usize) -> Box<[u8]> {
        let tag = if self.labelled { frame::remove_tag(&mut bytes[..len]) } else { None };
        let (sights, start) = tag.unwrap_or_default();
        let len = len - start;
        let frame = &bytes[start..start + len];
        let Some(content) = frame::read(frame, self.ethernet) else { return bytes };
        let (mut packet, mut note) = self.admit(frame, &content);
        if let (Some(meters), Some(header)) = (&self.meters, &content.header) {
            let unfinished = tun::is_unfinished(frame);
            let whole = &mut bytes[start + content.at..start + len];
            match meters.on_arrival(now, whole, header, &mut packet, unfinished) {
                Metered::Passes => {}
                Metered::Ordinary => {
                    let flags = Flags(packet.flags.0 & !Flags::TOLLED.0);
                    (packet, note) = (
                        Packet { flags, toll: Toll::default(), ..packet },
                        Note { hosts: note.hosts, ..Note::default() },
                    );
                }
                Metered::Dropped => return bytes,
            }
        }
        let frame = &bytes[start..start + len];
        let rtt = match (&self.trips, &content.header) {
            (Some(trips), Some(header)) => trips.on_arrival(now, &frame[content.at..], header),
            _ => None,
        };
        let note = Note { sights, ..note };
        let (handle, rest) = if len > COPIED {
            let chunk = self.buffers.reserve();
            let handle = self.buffers.share(packet, chunk, start, len);
            self.buffers.settle(chunk, bytes);
            (handle, self.buffers.spare())
        } else {
            let handle = self.buffers.alloc(packet, len);
            self.buffers.bytes_mut(handle).copy_from_slice(frame);
            (handle, bytes)
        };
        self.buffers.note(handle, note);
        self.enter(now, handle, &content, rtt);
        rest
    }

    /// Offers a packet to its tenant, or directly to the link; `rtt` is a round trip of its
    /// connection that has just been measured.
    fn enter(&mut self, now: Time, handle: u32, content: &Content, rtt: Option<Time>) {
        let place = self.place(handle, content);
        let Lane { link, policies, buffers, .. } = self;
        if let (Some(policies), Some((tenant, key))) = (policies, place) {
            match policies.tenants.offer(now, tenant, key, handle, rtt, buffers) {
                TenantFate::Passes(conforms) => {
                    policies.labels(tenant).write(conforms, handle, content.at, buffers);
                    emulator::offer(link, now, handle, buffers);
                }
                TenantFate::Waits => {}
                TenantFate::Lost => buffers.free(handle),
            }
            self.release(now);
        } else {
            emulator::offer(link, now, handle, buffers);
        }
    }

    /// The tenant of a packet, and its member's key there.
    fn place(&self, handle: u32, content: &Content) -> Option<(usize, u32)> {
        let (policies, header) = (self.policies.as_ref()?, content.header.as_ref()?);
        let sights = self.buffers.noted(handle).sights;
        let tenant = policies.tenant_of(header, &self.buffers.bytes(handle)[content.at..], sights)?;
        let key = match policies.host_of(tenant, header) {
            Some(host) => self.hash.of(&octets(host)) as u32,
            None => self.buffers.get(handle).flow,
        };
        Some((tenant, key))
    }

    /// Offers to the link what tenants' tokens release by `now`.
    fn release(&mut self, now: Time) {
        let Some(policies) = &mut self.policies else { return };
        while let Some((tenant, handle)) = policies.tenants.poll(now, &mut self.buffers) {
            let labels = policies.labels(tenant);
            if labels.conforming.is_some()
                && let Some(content) = frame::read(self.buffers.bytes(handle), self.ethernet)
            {
                labels.write(true, handle, content.at, &mut self.buffers);
            }
            emulator::offer(&mut self.link, now, handle, &mut self.buffers);
        }
    }

    /// The frame as a packet on the link.
    fn admit(&self, frame: &[u8], content: &Content) -> (Packet, Note) {
        let (mut packet, mut note) = (content.packet, Note::default());
        let Some(header) = content.header else { return (packet, note) };
        packet.flow = self.name(&header.flow, header.fragment);
        note.hosts = [header.flow.source, header.flow.destination].map(|host| self.number(host));
        if self.explicit
            && let Some((_, tolled)) = ip::toll_option(&frame[content.at..], &header)
        {
            packet.flags.set(Flags::TOLLED);
            packet.toll = tolled.toll(u32::from(packet.size));
            note.class = TOLLED_CLASS;
            if let Tolled::Xcp(_) = tolled {
                note.encoding = Encoding::TcpOption { feedback: FEEDBACK };
            }
        }
        (packet, note)
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
        if self.policies.as_ref().is_some_and(|policies| policies.tenants.poll_timeout() <= now) {
            self.release(now);
        }
        let (at, handle) = emulator::arrive(&mut self.link, now, &mut self.buffers)?;
        let packet = *self.buffers.get(handle);
        if packet.flags.has(Flags::CE) || packet.flags.has(Flags::TOLLED) || self.meters.is_some() {
            let ethernet = self.ethernet;
            let bytes = self.buffers.bytes_mut(handle);
            if let Some(content) = frame::read(bytes, ethernet) {
                let unfinished = tun::is_unfinished(bytes);
                ip::store(&mut bytes[content.at..], &packet, unfinished);
                if let (Some(meters), Some(header)) = (&self.meters, &content.header) {
                    meters.on_departure(at, &mut bytes[content.at..], header, &packet, unfinished);
                }
            }
        }
        Some((at, handle))
    }

    /// The time of the next [`poll`](Lane::poll).
    pub(crate) fn poll_timeout(&self) -> Time {
        let tenants = self.policies.as_ref().map_or(Time::NEVER, |policies| policies.tenants.poll_timeout());
        self.link.next_arrival().min(tenants)
    }

    /// The bytes of a frame.
    pub(crate) fn frame(&self, handle: u32) -> &[u8] {
        self.buffers.bytes(handle)
    }

    pub(crate) fn free(&mut self, handle: u32) {
        self.buffers.free(handle);
    }

    /// Replaces the link and the tenants. Packets on them are offered to the new ones.
    pub(crate) fn replace(&mut self, now: Time, spec: &LinkSpec, tenants: &[TenantSpec]) {
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
        let Some(old) = std::mem::replace(&mut self.policies, Policies::new(now, tenants)) else { return };
        for handle in old.tenants.held() {
            match frame::read(self.buffers.bytes(handle), self.ethernet) {
                Some(content) => self.enter(now, handle, &content, None),
                None => self.buffers.free(handle),
            }
        }
    }

    /// The counters at `now`.
    pub(crate) fn moment(&mut self, now: Time) -> LaneMoment {
        let stats = self.link.read_stats(now, &mut self.buffers);
        let tenants = self.policies.as_ref().map(Policies::moments).unwrap_or_default();
        let waiting = self.policies.iter().flat_map(|policies| policies.tenants.held());
        let held = self.link.held().chain(waiting).map(|handle| self.buffers.get(handle));
        let queued = held.fold((0, 0), |(packets, bytes), packet| {
            (packets + u64::from(packet.seq), bytes + u64::from(packet.size))
        });
        LaneMoment { stats: sum(&self.past, &stats), waited: self.link.waited(), queued, tenants }
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
pub fn sees_packets(law: &AnyLink) -> bool {
    is_explicit(law)
}

/// The class of packets with a toll, for links that keep other traffic in a queue beside theirs.
pub const TOLLED_CLASS: u8 = 1;
/// Length in bytes up to which a frame is copied, so that it does not occupy a train's buffer.
const COPIED: usize = 2048;
/// Limit of hosts that a queue tells apart.
const HOSTS: u32 = 1 << 16;
