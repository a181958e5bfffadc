//! The output port: a link's end, in both engines: queue + link law + capacity.

mod control;
mod flows;

pub use control::{ControlInterval, ControlLog};
pub use flows::FlowQueuesConfig;

use tollway_law::link::{LinkLaw, Passing, Verdict};
use tollway_law::{Rate, Time};

use crate::{Fifo, Flags, Packet, Stamp};
use flows::FlowQueues;

/// Where an engine keeps its packets; a port and its queue move only handles.
///
/// In the simulator a handle is an index into a slab. Live it names a receive buffer and the packet loaded from it;
/// the encoding stores the toll back in place when the packet leaves.
pub trait Pool {
    /// Names a packet.
    type Handle: Copy;

    /// The packet of `handle`.
    fn packet(&mut self, handle: Self::Handle) -> &mut Packet;
}

/// How much a port's queue holds: both bounds apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets, the one in transmission not counted.
    pub packets: u32,
    /// Bytes on the wire, the packet in transmission not counted.
    pub bytes: u64,
}

impl Limit {
    /// As good as none.
    pub const NONE: Limit = Limit { packets: u32::MAX, bytes: u64::MAX };
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

/// An output port: a FIFO queue, or queues by flow, under a link law.
///
/// The engine offers packets as they arrive and takes the next whenever its transmitter is free. The law sees an
/// arriving packet before it is known whether there is room for it.
#[derive(Clone, Debug)]
pub struct Port<L, H> {
    /// The law, for the engine to set up and to look into.
    pub law: L,
    queue: Fifo<H>,
    bytes: u64,
    limit: Limit,
    /// What stands in for `queue`; `bytes` is of both.
    flows: Option<Box<FlowQueues<L, H>>>,
}

impl<L: LinkLaw + Clone, H: Copy + Default> Port<L, H> {
    /// An empty port with one queue.
    pub fn new(law: L, limit: Limit) -> Port<L, H> {
        Port { law, queue: Fifo::new(), bytes: 0, limit, flows: None }
    }

    /// An empty port with a queue for each flow, or as good as, each under a `law` of its own. What they hold
    /// together is under one `limit`.
    pub fn with_flow_queues(law: L, limit: Limit, config: FlowQueuesConfig) -> Port<L, H> {
        Port { flows: Some(Box::new(FlowQueues::new(config))), ..Port::new(law, limit) }
    }

    /// Packets queued, the one in transmission not counted.
    #[inline]
    pub fn packets(&self) -> u32 {
        match &self.flows {
            None => self.queue.len(),
            Some(flows) => flows.packets(),
        }
    }

    /// The capacity of the link, as configured for its law, changes.
    pub fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.law.set_capacity(now, capacity);
        if let Some(flows) = &mut self.flows {
            flows.laws().for_each(|law| law.set_capacity(now, capacity));
        }
    }

    /// Bytes queued.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the queue holds at most.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Changes what the queue holds at most; packets already in it stay.
    pub fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// The packets queued, next to leave first; with queues by flow, queue by queue.
    pub fn queued(&self) -> impl Iterator<Item = H> + '_ {
        self.queue.iter().chain(self.flows.iter().flat_map(|flows| flows.queued()))
    }

    /// A packet arrives. Others that have to make room for it are handed to `dropped`: only queues by flow do that.
    #[inline]
    pub fn offer<P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        handle: H,
        pool: &mut P,
        mut dropped: impl FnMut(&mut P, H),
    ) -> Offered {
        if let Some(flows) = &mut self.flows {
            let offered = flows.offer(now, handle, pool, self.limit, &self.law, &mut dropped);
            self.bytes = flows.bytes();
            return offered;
        }
        let packet = pool.packet(handle);
        let size = u32::from(packet.size);
        let passing = Passing {
            size,
            kind: packet.kind(),
            ect: packet.flags.has(Flags::ECT),
            backlog_packets: self.queue.len(),
            backlog_bytes: self.bytes,
            waited: Time::ZERO,
        };
        let verdict = self.law.on_arrival(now, passing, &packet.toll);
        if passing.backlog_packets >= self.limit.packets || self.bytes + u64::from(size) > self.limit.bytes {
            return Offered::Full;
        }
        let mut offered = Offered::Queued;
        if verdict != Verdict::Pass {
            if verdict == Verdict::Drop || !passing.ect {
                return Offered::Dropped;
            }
            packet.flags.set(Flags::CE);
            offered = Offered::Marked;
        }
        packet.entered = Stamp::at(now);
        self.bytes += u64::from(size);
        self.queue.push_back(handle);
        offered
    }

    /// A packet arrives while the queue is empty and the transmitter free: it passes at once, its toll written.
    ///
    /// The same as [`offer`](Port::offer) followed by [`take`](Port::take), without the way through the queue.
    #[inline]
    pub fn pass<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) -> Offered {
        debug_assert!(self.packets() == 0);
        if self.flows.is_some() {
            return self.pass_flows(now, handle, pool);
        }
        let packet = pool.packet(handle);
        let size = u32::from(packet.size);
        let mut passing = Passing {
            size,
            kind: packet.kind(),
            ect: packet.flags.has(Flags::ECT),
            backlog_packets: 0,
            backlog_bytes: 0,
            waited: Time::ZERO,
        };
        let arrival = self.law.on_arrival(now, passing, &packet.toll);
        if self.limit.packets == 0 || u64::from(size) > self.limit.bytes {
            return Offered::Full;
        }
        if arrival == Verdict::Drop || arrival == Verdict::Signal && !passing.ect {
            return Offered::Dropped;
        }
        passing.backlog_packets = 1;
        passing.backlog_bytes = u64::from(size);
        let departure = self.law.on_departure(now, passing, &mut packet.toll);
        if departure == Verdict::Drop || departure == Verdict::Signal && !passing.ect {
            return Offered::Dropped;
        }
        if arrival == Verdict::Signal || departure == Verdict::Signal {
            packet.flags.set(Flags::CE);
            return Offered::Marked;
        }
        Offered::Queued
    }

    /// [`pass`](Port::pass) through the queues by flow, none of which holds anything.
    fn pass_flows<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) -> Offered {
        let Some(flows) = &mut self.flows else { return Offered::Full };
        flows.rest();
        let offered = flows.offer(now, handle, pool, self.limit, &self.law, &mut |_, _| {});
        if !matches!(offered, Offered::Queued | Offered::Marked) {
            return offered;
        }
        // The only packet there is: what is dropped is this one.
        let taken = flows.take(now, pool, &mut |_, _| {});
        match taken {
            None => Offered::Dropped,
            Some((_, true)) => Offered::Marked,
            Some((_, false)) => offered,
        }
    }

    /// The transmitter is free: the next packet, its toll written, and whether it was marked as it left; `None` if
    /// none is left. Packets that the law drops at the head of the queue are handed to `dropped`.
    #[inline]
    pub fn take<P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        pool: &mut P,
        mut dropped: impl FnMut(&mut P, H),
    ) -> Option<(H, bool)> {
        if let Some(flows) = &mut self.flows {
            let taken = flows.take(now, pool, &mut dropped);
            self.bytes = flows.bytes();
            return taken;
        }
        loop {
            let handle = self.queue.front()?;
            let packet = pool.packet(handle);
            let passing = Passing {
                size: u32::from(packet.size),
                kind: packet.kind(),
                ect: packet.flags.has(Flags::ECT),
                backlog_packets: self.queue.len(),
                backlog_bytes: self.bytes,
                waited: packet.entered.elapsed(now),
            };
            let verdict = self.law.on_departure(now, passing, &mut packet.toll);
            self.queue.pop_front();
            self.bytes -= u64::from(passing.size);
            match verdict {
                Verdict::Pass => return Some((handle, false)),
                Verdict::Signal if passing.ect => {
                    packet.flags.set(Flags::CE);
                    return Some((handle, true));
                }
                Verdict::Signal | Verdict::Drop => dropped(pool, handle),
            }
        }
    }
}
