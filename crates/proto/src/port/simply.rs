//! The fast path through a port with a FIFO queue, for laws that let every packet pass;
//! `docs/src/notes/fast-paths.md` has its gain.

use tollway_law::Time;
use tollway_law::link::{LinkLaw, Passing};

use super::{AnyQueue, FifoQueue, Limit, Pool, Port};

impl<L: LinkLaw + Clone, H: Copy + Default> Port<L, H> {
    /// True if any packet passes unchanged when the queue is empty and the transmitter free.
    ///
    /// The engine may then leave the port out, and use [`push`](SimplePort::push) and
    /// [`pop`](SimplePort::pop) otherwise.
    pub fn is_silent(&self) -> bool {
        self.is_roomy() && self.law.is_silent()
    }

    /// True if the same holds except that the law reads and writes tolls. An engine that calls
    /// [`tell`](SimplePort::tell) and [`ask`](SimplePort::ask) may push and pop.
    pub fn is_gentle(&self) -> bool {
        self.is_roomy() && self.law.is_gentle()
    }

    /// True if the queue is FIFO, with room for any packet that finds it empty.
    fn is_roomy(&self) -> bool {
        let roomy = self.limit.packets > 0 && self.limit.bytes >= u64::from(u16::MAX);
        roomy && matches!(self.queue, AnyQueue::Fifo(_))
    }

    /// The fast path; `None` with another queue than FIFO.
    #[inline]
    pub fn simply(&mut self) -> Option<SimplePort<'_, L, H>> {
        let AnyQueue::Fifo(queue) = &mut self.queue else { return None };
        Some(SimplePort { law: &mut self.law, queue, limit: self.limit })
    }
}

/// A port that is [silent](Port::is_silent) or [gentle](Port::is_gentle).
#[derive(Debug)]
pub struct SimplePort<'a, L, H> {
    law: &'a mut L,
    queue: &'a mut FifoQueue<H>,
    limit: Limit,
}

impl<L: LinkLaw, H: Copy + Default> SimplePort<'_, L, H> {
    /// Packets and bytes queued.
    #[inline]
    pub fn backlog(&self) -> (u32, u64) {
        (self.queue.packets.len(), self.queue.bytes)
    }

    /// Calls the law of a gentle port for a packet that arrives and is not in the queue yet.
    #[inline]
    pub fn tell<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) {
        let seen = seen(self.queue, handle, pool);
        self.law.on_arrival(now, seen, &pool.packet(handle).toll);
    }

    /// Lets the law of a gentle port write into the toll of the packet that leaves next.
    #[inline]
    pub fn ask<P: Pool<Handle = H>>(&mut self, now: Time, pool: &mut P) {
        let Some(handle) = self.queue.packets.front() else { return };
        let seen = seen(self.queue, handle, pool);
        self.law.on_departure(now, seen, &mut pool.packet(handle).toll);
    }

    /// Both, for a packet that passes a gentle port with an empty queue at once.
    #[inline]
    pub fn tell_and_ask<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) {
        let seen = seen(self.queue, handle, pool);
        self.law.on_passage(now, seen, &mut pool.packet(handle).toll);
    }

    /// Enqueues a packet of `size` bytes without the law. Returns true if there was room.
    #[inline]
    pub fn push(&mut self, handle: H, size: u16) -> bool {
        let bytes = self.queue.bytes + u64::from(size);
        if self.queue.packets.len() >= self.limit.packets || bytes > self.limit.bytes {
            return false;
        }
        self.queue.bytes = bytes;
        self.queue.packets.push_back(handle);
        true
    }

    /// Dequeues without the law: the packet, its size, and whether another waits.
    #[inline]
    pub fn pop<P: Pool<Handle = H>>(&mut self, pool: &mut P) -> Option<(H, u16, bool)> {
        let handle = self.queue.packets.pop_front()?;
        let size = pool.packet(handle).size;
        self.queue.bytes -= u64::from(size);
        Some((handle, size, !self.queue.packets.is_empty()))
    }
}

/// The view of a packet and its queue that a gentle law gets.
#[inline]
fn seen<P: Pool<Handle = H>, H: Copy + Default>(queue: &FifoQueue<H>, handle: H, pool: &mut P) -> Passing {
    let class = pool.class(handle);
    let packet = pool.packet(handle);
    Passing { class, ..Passing::of(packet.kind(), u32::from(packet.size), queue.packets.len(), queue.bytes) }
}
