//! The output port: a link's end, in both engines: queue + link law + capacity.

mod classes;
mod control;
mod dual;
mod flows;

pub use classes::{ClassQueuesConfig, Waits};
pub use control::{ControlInterval, ControlLog};
pub use dual::DualQueueConfig;
pub use flows::FlowQueuesConfig;

use tollway_law::link::{LinkLaw, Passing, Verdict};
use tollway_law::{Rate, Time};

use crate::{Fifo, Flags, Packet, Stamp};
use classes::ClassQueues;
use dual::DualQueue;
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

    /// The class of traffic that the packet belongs to, for ports and laws that tell classes apart; 0 is none.
    #[inline]
    fn class(&self, _handle: Self::Handle) -> u8 {
        0
    }
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

impl Offered {
    /// Queued, and maybe marked.
    #[inline]
    fn taken(marked: bool) -> Offered {
        if marked { Offered::Marked } else { Offered::Queued }
    }
}

/// What queues a port has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Queues {
    /// One, first in, first out.
    #[default]
    One,
    /// One for each flow, or as good as, each under a copy of the port's law.
    ByFlow(FlowQueuesConfig),
    /// One for L4S and one for classic traffic, both under the port's law.
    Dual(DualQueueConfig),
    /// One for each class of traffic, or for several, by weight, all under the port's law and each under its limit.
    ByClass(ClassQueuesConfig),
}

/// An output port: a FIFO queue, or several, under a link law.
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
    many: Option<Box<Many<L, H>>>,
}

/// More queues than one.
#[derive(Clone, Debug)]
enum Many<L, H> {
    Flows(FlowQueues<L, H>),
    Dual(DualQueue<H>),
    Classes(Box<ClassQueues<H>>),
}

impl<L: LinkLaw + Clone, H: Copy + Default> Port<L, H> {
    /// An empty port with one queue.
    pub fn new(law: L, limit: Limit) -> Port<L, H> {
        Port { law, queue: Fifo::new(), bytes: 0, limit, many: None }
    }

    /// An empty port with these `queues`. What they hold together is under one `limit`.
    pub fn with_queues(law: L, limit: Limit, queues: Queues) -> Port<L, H> {
        let many = match queues {
            Queues::One => return Port::new(law, limit),
            Queues::ByFlow(config) => Many::Flows(FlowQueues::new(config)),
            Queues::Dual(config) => Many::Dual(DualQueue::new(config)),
            Queues::ByClass(config) => Many::Classes(Box::new(ClassQueues::new(config))),
        };
        Port { many: Some(Box::new(many)), ..Port::new(law, limit) }
    }

    /// Packets queued, the one in transmission not counted.
    #[inline]
    pub fn packets(&self) -> u32 {
        match &self.many {
            None => self.queue.len(),
            Some(many) => many.packets(),
        }
    }

    /// The capacity of the link, as configured for its law, changes.
    pub fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.law.set_capacity(now, capacity);
        if let Some(Many::Flows(flows)) = self.many.as_deref_mut() {
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

    /// Whether a packet that finds the queue empty and the transmitter free passes unchanged, whatever it is, so that
    /// the engine may do without [`pass`](Port::pass), and [`push`](Port::push) and [`pop`](Port::pop) do for the rest.
    pub fn is_silent(&self) -> bool {
        self.is_roomy() && self.law.is_silent()
    }

    /// Whether the same holds but for what the law reads in tolls and writes into them: who has [told](Port::tell) and
    /// [asked](Port::ask) it may do without [`offer`](Port::offer), [`pass`](Port::pass) and [`take`](Port::take).
    pub fn is_gentle(&self) -> bool {
        self.is_roomy() && self.law.is_gentle()
    }

    /// Whether there is one queue, and in it room for any packet that finds it empty.
    fn is_roomy(&self) -> bool {
        self.many.is_none() && self.limit.packets > 0 && self.limit.bytes >= u64::from(u16::MAX)
    }

    /// A packet comes to a [gentle](Port::is_gentle) port, and is not in the queue yet.
    #[inline]
    pub fn tell<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) {
        debug_assert!(self.is_gentle());
        let passing = self.simply(handle, pool);
        self.law.on_arrival(now, passing, &pool.packet(handle).toll);
    }

    /// A packet leaves a [gentle](Port::is_gentle) port, and is in the queue still.
    #[inline]
    pub fn ask<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) {
        debug_assert!(self.is_gentle());
        let passing = self.simply(handle, pool);
        self.law.on_departure(now, passing, &mut pool.packet(handle).toll);
    }

    /// A packet comes to a [gentle](Port::is_gentle) port and leaves it at once.
    #[inline]
    pub fn tell_and_ask<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) {
        debug_assert!(self.is_gentle() && self.packets() == 0);
        let passing = self.simply(handle, pool);
        self.law.on_passage(now, passing, &mut pool.packet(handle).toll);
    }

    /// What a gentle law looks at.
    #[inline]
    fn simply<P: Pool<Handle = H>>(&self, handle: H, pool: &mut P) -> Passing {
        let class = pool.class(handle);
        let packet = pool.packet(handle);
        Passing { class, ..Passing::of(packet.kind(), u32::from(packet.size), self.queue.len(), self.bytes) }
    }

    /// The next packet to leave a [silent](Port::is_silent) or a [gentle](Port::is_gentle) port, which stays.
    #[inline]
    pub fn front(&self) -> Option<H> {
        self.queue.front()
    }

    /// [`offer`](Port::offer) of a packet of `size` bytes to a [silent](Port::is_silent) port, or to a [gentle](Port::is_gentle) one that
    /// knows of it; answers whether there was room.
    #[inline]
    pub fn push(&mut self, handle: H, size: u16) -> bool {
        debug_assert!(self.is_silent() || self.is_gentle());
        let bytes = self.bytes + u64::from(size);
        if self.queue.len() >= self.limit.packets || bytes > self.limit.bytes {
            return false;
        }
        self.bytes = bytes;
        self.queue.push_back(handle);
        true
    }

    /// [`take`](Port::take) from such a port, the law of a gentle one being asked before: the packet, its size, and whether
    /// another waits.
    #[inline]
    pub fn pop<P: Pool<Handle = H>>(&mut self, pool: &mut P) -> Option<(H, u16, bool)> {
        debug_assert!(self.is_silent() || self.is_gentle());
        let handle = self.queue.pop_front()?;
        let size = pool.packet(handle).size;
        self.bytes -= u64::from(size);
        Some((handle, size, !self.queue.is_empty()))
    }

    /// How long packets have waited in each queue of a port with queues by class; nothing for others.
    pub fn waits(&self) -> impl Iterator<Item = Waits> + '_ {
        let classes = match self.many.as_deref() {
            Some(Many::Classes(classes)) => Some(classes.waits()),
            _ => None,
        };
        classes.into_iter().flatten()
    }

    /// The packets queued, next to leave first; with several queues, queue by queue.
    pub fn queued(&self) -> impl Iterator<Item = H> + '_ {
        let (flows, dual, classes) = match self.many.as_deref() {
            None => (None, None, None),
            Some(Many::Flows(flows)) => (Some(flows.queued()), None, None),
            Some(Many::Dual(dual)) => (None, Some(dual.queued()), None),
            Some(Many::Classes(classes)) => (None, None, Some(classes.queued())),
        };
        let (flows, dual) = (flows.into_iter().flatten(), dual.into_iter().flatten());
        self.queue.iter().chain(flows).chain(dual).chain(classes.into_iter().flatten())
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
        if let Some(many) = &mut self.many {
            let offered = many.offer(now, handle, pool, self.limit, &mut self.law, &mut dropped);
            self.bytes = many.bytes();
            return offered;
        }
        let class = pool.class(handle);
        let packet = pool.packet(handle);
        let size = u32::from(packet.size);
        let passing = passing(packet, class, self.queue.len(), self.bytes, Time::ZERO);
        let verdict = self.law.on_arrival(now, passing, &packet.toll);
        if passing.backlog_packets >= self.limit.packets || self.bytes + u64::from(size) > self.limit.bytes {
            return Offered::Full;
        }
        let Some(marked) = obey(verdict, packet) else { return Offered::Dropped };
        packet.entered = Stamp::at(now);
        self.bytes += u64::from(size);
        self.queue.push_back(handle);
        Offered::taken(marked)
    }

    /// A packet arrives while the queue is empty and the transmitter free: it passes at once, its toll written.
    ///
    /// The same as [`offer`](Port::offer) followed by [`take`](Port::take), without the way through the queue.
    #[inline]
    pub fn pass<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) -> Offered {
        debug_assert!(self.packets() == 0);
        if self.many.is_some() {
            return self.pass_many(now, handle, pool);
        }
        let class = pool.class(handle);
        let packet = pool.packet(handle);
        let size = u32::from(packet.size);
        let passing = passing(packet, class, 0, 0, Time::ZERO);
        if self.limit.packets == 0 || u64::from(size) > self.limit.bytes {
            self.law.on_arrival(now, passing, &packet.toll);
            return Offered::Full;
        }
        match self.law.on_passage(now, passing, &mut packet.toll) {
            Verdict::Drop => Offered::Dropped,
            Verdict::Signal => {
                packet.flags.set(Flags::CE);
                Offered::Marked
            }
            Verdict::Pass => Offered::Queued,
        }
    }

    /// [`pass`](Port::pass) through several queues, none of which holds anything.
    fn pass_many<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) -> Offered {
        let Some(many) = &mut self.many else { return Offered::Full };
        if let Many::Flows(flows) = &mut **many {
            flows.rest();
        }
        let offered = many.offer(now, handle, pool, self.limit, &mut self.law, &mut |_, _| {});
        if !matches!(offered, Offered::Queued | Offered::Marked) {
            return offered;
        }
        // The only packet there is: what is dropped is this one.
        let taken = many.take(now, pool, &mut self.law, &mut |_, _| {});
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
        if let Some(many) = &mut self.many {
            let taken = many.take(now, pool, &mut self.law, &mut dropped);
            self.bytes = many.bytes();
            return taken;
        }
        loop {
            let packets = self.queue.len();
            let handle = self.queue.pop_front()?;
            let class = pool.class(handle);
            let packet = pool.packet(handle);
            let waited = packet.entered.elapsed(now);
            let passing = passing(packet, class, packets, self.bytes, waited);
            let verdict = self.law.on_departure(now, passing, &mut packet.toll);
            self.bytes -= u64::from(passing.size);
            match obey(verdict, packet) {
                Some(marked) => return Some((handle, marked)),
                None => dropped(pool, handle),
            }
        }
    }
}

impl<L: LinkLaw + Clone, H: Copy + Default> Many<L, H> {
    fn packets(&self) -> u32 {
        match self {
            Many::Flows(flows) => flows.packets(),
            Many::Dual(dual) => dual.packets(),
            Many::Classes(classes) => classes.packets(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Many::Flows(flows) => flows.bytes(),
            Many::Dual(dual) => dual.bytes(),
            Many::Classes(classes) => classes.bytes(),
        }
    }

    fn offer<P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        handle: H,
        pool: &mut P,
        limit: Limit,
        law: &mut L,
        dropped: &mut impl FnMut(&mut P, H),
    ) -> Offered {
        match self {
            Many::Flows(flows) => flows.offer(now, handle, pool, limit, law, dropped),
            Many::Dual(dual) => dual.offer(now, handle, pool, limit, law),
            Many::Classes(classes) => classes.offer(now, handle, pool, limit, law),
        }
    }

    fn take<P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        pool: &mut P,
        law: &mut L,
        dropped: &mut impl FnMut(&mut P, H),
    ) -> Option<(H, bool)> {
        match self {
            Many::Flows(flows) => flows.take(now, pool, dropped),
            Many::Dual(dual) => dual.take(now, pool, law, dropped),
            Many::Classes(classes) => classes.take(now, pool, law, dropped),
        }
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
