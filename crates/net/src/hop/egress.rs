//! Outgoing links to neighbours, with a rate and a law at the port.

use tollway_law::link::AnyLink;
use tollway_law::{Rate, Time};
use tollway_proto::Packet;
use tollway_proto::encoding::acp;
use tollway_proto::link::{Link, LinkSpec};
use tollway_proto::port::Limit;

use crate::buffers::Buffers;
use crate::emulator::{arrive, offer};
use crate::secure;

/// The links to those neighbours that have a rate, and the packets on them.
#[derive(Debug, Default)]
pub(super) struct Egress {
    /// By neighbour.
    links: Vec<Option<Link>>,
    buffers: Buffers,
}

impl Egress {
    /// Sets a link at `rate` under `law` for sealed packets to a neighbour.
    ///
    /// Its queue holds the bytes that leave in [`QUEUE`].
    pub(super) fn set(&mut self, neighbour: usize, rate: Rate, law: AnyLink) {
        let bytes = (rate.bytes_per_sec() * QUEUE.as_secs_f64()) as u64;
        let limit = Limit { packets: u32::MAX, bytes: bytes.max(LEAST) };
        let (delay, overhead, queue) = (Time::ZERO, secure::OVERHEAD as u32, Default::default());
        if self.links.len() <= neighbour {
            self.links.resize_with(neighbour + 1, || None);
        }
        self.links[neighbour] = Some(Link::new(LinkSpec { rate, delay, overhead, law, limit, queue }));
    }

    /// Removes the link to a neighbour that has had no packets for longer than [`QUEUE`].
    pub(super) fn remove(&mut self, neighbour: usize) {
        self.links.get_mut(neighbour).and_then(Option::take);
    }

    /// Returns true if packets to a neighbour leave by a link.
    pub(super) fn has(&self, neighbour: usize) -> bool {
        self.links.get(neighbour).is_some_and(Option::is_some)
    }

    /// Enqueues a packet at the port of the link to a neighbour.
    pub(super) fn offer(&mut self, now: Time, neighbour: usize, packet: Packet, datagram: &[u8]) {
        let Some(link) = self.links.get_mut(neighbour).and_then(Option::as_mut) else { return };
        let handle = self.buffers.alloc(packet, datagram.len());
        self.buffers.bytes_mut(handle).copy_from_slice(datagram);
        offer(link, now, handle, &mut self.buffers);
    }

    /// Copies the next packet that has left by `now` to `out`, with the toll that the law wrote.
    ///
    /// Returns its neighbour.
    pub(super) fn next(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        for (neighbour, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            if let Some((_, handle)) = arrive(link, now, &mut self.buffers) {
                let toll = self.buffers.get(handle).toll;
                out.clear();
                out.extend_from_slice(self.buffers.bytes(handle));
                self.buffers.free(handle);
                // `out` begins with the header that `offer` received.
                let _ = acp::store(out, &toll);
                return Some(neighbour);
            }
        }
        None
    }

    /// The time at which the next packet leaves.
    pub(super) fn due(&self) -> Time {
        self.links.iter().flatten().map(Link::next_arrival).min().unwrap_or(Time::NEVER)
    }

    /// Number of packets dropped at full queues.
    pub(super) fn dropped(&self) -> u64 {
        self.links.iter().flatten().map(|link| link.drops().total()).sum()
    }
}

/// The longest time that a packet waits in a queue, and the smallest queue in bytes.
const QUEUE: Time = Time::from_millis(100);
const LEAST: u64 = 30_000;
