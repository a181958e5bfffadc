//! The output port of a link, in both engines: queue, link law and capacity.

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
pub use simply::SimplePort;
pub use tollway_law::link::Limit;

use tollway_law::link::{self, CodelConfig, DropTail, DualPi2Config, LinkLaw, Passing, Verdict};
use tollway_law::{Rate, Time};

use crate::{Flags, Packet};
use discipline::{disciplines, entry};

// To add a discipline: its file, and a line here.
disciplines! {
    /// One queue for each flow, or for several, each under a copy of the port's law.
    ByFlow(FlowQueues<L, H>): entry::<FlowQueuesConfig>(link::entry::<CodelConfig>()),
    /// One queue for L4S and one for classic traffic, coupled.
    Dual(DualQueue<H>): entry::<DualPi2Config>(DropTail::ENTRY),
    /// One queue for each flow, or for several, all under the port's law.
    Sfq(Sfq<H>): entry::<SfqConfig>(DropTail::ENTRY),
    /// One queue for each class of traffic, by weight, all under the port's law.
    ByClass(ClassQueues<H>): classes::ENTRY,
}

/// An engine's packet store; a port and its queue move only handles.
///
/// In the simulator a handle is an index into a slab. On real packets it refers to a receive buffer
/// and the packet loaded from it; the encoding stores the toll in place when the packet leaves.
pub trait Pool {
    /// The handle of a packet.
    type Handle: Copy;

    /// The packet of `handle`.
    fn packet(&mut self, handle: Self::Handle) -> &mut Packet;

    /// The packet's class of traffic, for ports and laws with classes; 0 is none.
    #[inline]
    fn class(&self, _handle: Self::Handle) -> u8 {
        0
    }

    /// The hosts that the packet's flow comes from and goes to, for queues that share among hosts.
    fn hosts(&self, _handle: Self::Handle) -> [u32; 2] {
        [0; 2]
    }
}

/// The fate of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is queued.
    Queued,
    /// It is queued and marked.
    Marked,
    /// The queue is full; the caller keeps the packet.
    Full,
    /// The law dropped it; the caller keeps the packet.
    Dropped,
}

impl Offered {
    /// The result for a queued packet, `marked` or not.
    #[inline]
    fn taken(marked: bool) -> Offered {
        if marked { Offered::Marked } else { Offered::Queued }
    }
}

/// An output port: a queue under a link law.
///
/// The engine enqueues packets as they arrive. It dequeues one whenever its transmitter is free,
/// even if the queue may be empty: only then do queues with turns learn that it was.
#[derive(Clone, Debug)]
pub struct Port<L, H> {
    /// The law, accessible to the engine.
    pub law: L,
    queue: AnyQueue<L, H>,
    limit: Limit,
}

impl<L: LinkLaw + Clone, H: Copy + Default> Port<L, H> {
    /// An empty port, whose `queue` holds at most `limit`.
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

    /// Changes the capacity of the link, as configured for its law.
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

    /// Waiting times by queue; empty for disciplines without these counters.
    pub fn waits(&self) -> &[Waits] {
        self.queue.waits()
    }

    /// The packets queued; with several queues, queue by queue.
    pub fn queued(&self) -> impl Iterator<Item = H> + '_ {
        self.queue.queued()
    }

    /// Enqueues an arriving packet. Queued packets that make room for it go to `dropped`; only
    /// queues by flow drop any.
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

    /// Dequeues the next packet for the transmitter, with its toll written. Returns it, and true if
    /// the law marked it just now; `None` if the queue is empty. Packets that the law drops at the
    /// head go to `dropped`.
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

/// The surroundings of a queue at an arrival or departure.
pub struct At<'a, L, P: Pool> {
    /// The present instant.
    pub now: Time,
    /// The engine's packets.
    pub pool: &'a mut P,
    /// The port's law.
    pub law: &'a mut L,
    /// The upper bound of the queue.
    pub limit: Limit,
    /// Receives queued packets that are dropped.
    pub dropped: &'a mut dyn FnMut(&mut P, P::Handle),
}

impl<L: LinkLaw, P: Pool> At<'_, L, P> {
    /// The law's verdict on an arriving packet, at a backlog of `packets` and `bytes`.
    #[inline]
    fn on_arrival(&mut self, handle: P::Handle, packets: u32, bytes: u64) -> Verdict {
        let class = self.pool.class(handle);
        let packet = self.pool.packet(handle);
        self.law.on_arrival(self.now, passing(packet, class, packets, bytes, Time::ZERO), &packet.toll)
    }

    /// The law's verdict on a departing packet, at the given backlog; the law also writes the toll.
    #[inline]
    fn on_departure(&mut self, handle: P::Handle, packets: u32, bytes: u64, waited: Time) -> Verdict {
        let class = self.pool.class(handle);
        let packet = self.pool.packet(handle);
        self.law.on_departure(self.now, passing(packet, class, packets, bytes, waited), &mut packet.toll)
    }
}

impl<L, P: Pool> At<'_, L, P> {
    /// The same surroundings under another law.
    fn under<'b>(&'b mut self, law: &'b mut L) -> At<'b, L, P> {
        At { now: self.now, pool: self.pool, law, limit: self.limit, dropped: self.dropped }
    }

    #[cold]
    fn drop(&mut self, handle: P::Handle) {
        (self.dropped)(self.pool, handle);
    }
}

/// Applies a law's verdict: marks the packet if that is called for and allowed. Returns true if it
/// was marked, `None` if it is to be dropped.
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

/// The view that a law gets of a packet at the given backlog.
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
