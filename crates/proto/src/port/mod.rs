//! The output port: a link's end, in both engines: queue + link law + capacity.

mod classes;
mod control;
mod discipline;
mod dual;
mod fifo;
mod flows;
mod hosts;
mod sfq;
mod simply;
#[cfg(test)]
mod testing;

pub use classes::{ClassQueues, ClassQueuesConfig, Waits};
pub use control::{ControlInterval, ControlLog};
pub use discipline::{Discipline, QueueConfig, QueueEntry};
pub use dual::DualQueue;
pub use fifo::FifoQueue;
pub use flows::{FlowQueues, FlowQueuesConfig};
pub use hosts::{HostTable, Isolation};
pub use sfq::{Sfq, SfqConfig};
pub use tollway_law::link::Limit;

use tollway_law::link::{LinkLaw, Passing, Verdict};
use tollway_law::{Rate, Time};

use crate::{Flags, Packet};
use discipline::disciplines;

// To add a discipline: its file, and a line here.
disciplines! {
    /// One queue for each flow, or for several, each under a copy of the port's law.
    ByFlow(FlowQueues<L, H>): flows::ENTRY,
    /// One queue for L4S and one for classic traffic, coupled.
    Dual(DualQueue<H>): dual::ENTRY,
    /// One queue for each flow, or for several, all under the port's law.
    Sfq(Sfq<H>): sfq::ENTRY,
    /// One queue for each class of traffic, by weight, all under the port's law.
    ByClass(ClassQueues<H>): classes::ENTRY,
}

/// Where an engine keeps its packets; a port and its queue move only handles.
///
/// In the simulator a handle is an index into a slab. Live it names a receive buffer and the packet loaded from it;
/// the encoding stores the toll back in place when the packet leaves.
pub trait Pool {
    /// Names a packet.
    type Handle: Copy;

    /// The packet of `handle`.
    fn packet(&mut self, handle: Self::Handle) -> &mut Packet;

    /// The class of traffic that the packet belongs to, for ports and laws that tell classes apart; 0 is none.
    #[inline]
    fn class(&self, _handle: Self::Handle) -> u8 {
        0
    }

    /// The hosts that the packet's flow comes from and goes to, for queues that share among hosts.
    fn hosts(&self, _handle: Self::Handle) -> [u32; 2] {
        [0; 2]
    }
}

/// What became of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Queued.
    Queued,
    /// Queued and marked.
    Marked,
    /// The queue is full; the packet stays the caller's.
    Full,
    /// The law dropped it; the packet stays the caller's.
    Dropped,
}

impl Offered {
    /// Queued, and maybe marked.
    #[inline]
    fn taken(marked: bool) -> Offered {
        if marked { Offered::Marked } else { Offered::Queued }
    }
}

/// An output port: a queue under a link law.
///
/// The engine enqueues packets as they arrive and dequeues one whenever its transmitter is free, also if the queue may be empty: only
/// then do queues that take turns see that it had nothing to send.
#[derive(Clone, Debug)]
pub struct Port<L, H> {
    /// The law, for the engine to set up and to look into.
    pub law: L,
    queue: AnyQueue<L, H>,
    limit: Limit,
}

impl<L: LinkLaw + Clone, H: Copy + Default> Port<L, H> {
    /// An empty port. What its `queue` holds is bounded by `limit`.
    pub fn new(law: L, limit: Limit, queue: AnyQueue<L, H>) -> Port<L, H> {
        Port { law, queue, limit }
    }

    /// Packets queued, the one in transmission not counted.
    #[inline]
    pub fn packets(&self) -> u32 {
        self.queue.packets()
    }

    /// Bytes queued.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// The capacity of the link, as configured for its law, changes.
    pub fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.law.set_capacity(now, capacity);
        self.queue.set_capacity(now, capacity);
    }

    /// The upper bound of the queue.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Changes the upper bound of the queue; packets already in it stay.
    pub fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// How long packets waited, by queue; empty for disciplines that do not count it.
    pub fn waits(&self) -> &[Waits] {
        self.queue.waits()
    }

    /// The packets queued; with several queues, queue by queue.
    pub fn queued(&self) -> impl Iterator<Item = H> + '_ {
        self.queue.queued()
    }

    /// Takes in a packet that arrives. Queued packets that make room for it go to `dropped`; only queues by flow drop any.
    #[inline]
    pub fn enqueue<P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        handle: H,
        pool: &mut P,
        mut dropped: impl FnMut(&mut P, H),
    ) -> Offered {
        let mut at = At { now, pool, law: &mut self.law, limit: self.limit, dropped: &mut dropped };
        self.queue.enqueue(handle, &mut at)
    }

    /// Takes out the next packet for the transmitter, its toll written, and answers whether the law marked it just now; `None` if none is
    /// left. Packets that the law drops at the head of the queue go to `dropped`.
    #[inline]
    pub fn dequeue<P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        pool: &mut P,
        mut dropped: impl FnMut(&mut P, H),
    ) -> Option<(H, bool)> {
        let mut at = At { now, pool, law: &mut self.law, limit: self.limit, dropped: &mut dropped };
        self.queue.dequeue(&mut at)
    }
}

/// The surroundings of a queue as a packet comes or leaves.
pub struct At<'a, L, P: Pool> {
    /// The instant.
    pub now: Time,
    /// The packets.
    pub pool: &'a mut P,
    /// The port's law.
    pub law: &'a mut L,
    /// The upper bound of the queue.
    pub limit: Limit,
    /// The taker of queued packets that are dropped.
    pub dropped: &'a mut dyn FnMut(&mut P, P::Handle),
}

impl<L: LinkLaw, P: Pool> At<'_, L, P> {
    /// Shows the law a packet that arrives where so much waits; answers its verdict.
    #[inline]
    fn on_arrival(&mut self, handle: P::Handle, packets: u32, bytes: u64) -> Verdict {
        let class = self.pool.class(handle);
        let packet = self.pool.packet(handle);
        self.law.on_arrival(self.now, passing(packet, class, packets, bytes, Time::ZERO), &packet.toll)
    }

    /// Shows the law a packet that leaves where so much waits, and has it write the toll; answers its verdict.
    #[inline]
    fn on_departure(&mut self, handle: P::Handle, packets: u32, bytes: u64, waited: Time) -> Verdict {
        let class = self.pool.class(handle);
        let packet = self.pool.packet(handle);
        self.law.on_departure(self.now, passing(packet, class, packets, bytes, waited), &mut packet.toll)
    }
}

impl<L, P: Pool> At<'_, L, P> {
    /// The same under another law.
    fn under<'b>(&'b mut self, law: &'b mut L) -> At<'b, L, P> {
        At { now: self.now, pool: self.pool, law, limit: self.limit, dropped: self.dropped }
    }

    #[cold]
    fn drop(&mut self, handle: P::Handle) {
        (self.dropped)(self.pool, handle);
    }
}

/// A law has spoken of a packet, which is marked if that is wanted and it may be; answers whether, or `None` if it is to be dropped.
///
/// What few laws ask for is looked at where it is needed, so that it needs not be at hand for all.
#[inline(always)]
fn obey(verdict: Verdict, packet: &mut Packet) -> Option<bool> {
    match verdict {
        Verdict::Pass => Some(false),
        Verdict::Signal if packet.flags.ecn_capable() => {
            packet.flags.set(Flags::CE);
            Some(true)
        }
        Verdict::Signal | Verdict::Drop => None,
    }
}

/// What a law sees of a packet with so much queued around it.
#[inline]
fn passing(packet: &Packet, class: u8, backlog_packets: u32, backlog_bytes: u64, waited: Time) -> Passing {
    Passing {
        size: u32::from(packet.size),
        kind: packet.kind(),
        class,
        ect: packet.flags.ecn_capable(),
        l4s: packet.flags.l4s(),
        in_profile: packet.in_profile(),
        backlog_packets,
        backlog_bytes,
        waited,
    }
}
