//! The fast path through a port with a FIFO queue, for laws that let every packet pass;
//! `docs/notes/fast-paths.md` has its gain.

use tollway_law::Time;
use tollway_law::link::{LinkLaw, Passing};

use super::{AnyQueue, FifoQueue, Pool, Port};

impl<L: LinkLaw + Clone, H: Copy + Default> Port<L, H> {
    /// True if any packet passes unchanged when the queue is empty and the transmitter free.
    ///
    /// The engine may then leave the port out, and use [`push`](Port::push) and [`pop`](Port::pop)
    /// otherwise.
    pub fn is_silent(&self) -> bool {
        self.is_roomy() && self.law.is_silent()
    }

    /// True if the same holds except that the law reads and writes tolls. An engine that calls
    /// [`tell`](Port::tell) and [`ask`](Port::ask) may push and pop.
    pub fn is_gentle(&self) -> bool {
        self.is_roomy() && self.law.is_gentle()
    }

    /// True if the queue is FIFO, with room for any packet that finds it empty.
    fn is_roomy(&self) -> bool {
        let roomy = self.limit.packets > 0 && self.limit.bytes >= u64::from(u16::MAX);
        roomy && matches!(self.queue, AnyQueue::Fifo(_))
    }

    /// Calls the law for a packet that arrives at a [gentle](Port::is_gentle) port and is not in
    /// the queue yet.
    #[inline]
    pub fn tell<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) {
        let AnyQueue::Fifo(queue) = &self.queue else { return };
        let seen = seen(queue, handle, pool);
        self.law.on_arrival(now, seen, &pool.packet(handle).toll);
    }

    /// Lets the law write into the toll of a packet that leaves a [gentle](Port::is_gentle) port
    /// and is still in the queue.
    #[inline]
    pub fn ask<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) {
        let AnyQueue::Fifo(queue) = &self.queue else { return };
        let seen = seen(queue, handle, pool);
        self.law.on_departure(now, seen, &mut pool.packet(handle).toll);
    }

    /// Both, for a packet that passes a [gentle](Port::is_gentle) port with an empty queue at once.
    #[inline]
    pub fn tell_and_ask<P: Pool<Handle = H>>(&mut self, now: Time, handle: H, pool: &mut P) {
        let AnyQueue::Fifo(queue) = &self.queue else { return };
        let seen = seen(queue, handle, pool);
        self.law.on_passage(now, seen, &mut pool.packet(handle).toll);
    }

    /// The next packet to leave a [silent](Port::is_silent) or [gentle](Port::is_gentle) port,
    /// without removal.
    #[inline]
    pub fn front(&self) -> Option<H> {
        let AnyQueue::Fifo(queue) = &self.queue else { return None };
        queue.packets.front()
    }

    /// Enqueues a packet of `size` bytes at such a port without its law. Returns true if there was
    /// room.
    #[inline]
    pub fn push(&mut self, handle: H, size: u16) -> bool {
        let AnyQueue::Fifo(queue) = &mut self.queue else { return false };
        let bytes = queue.bytes + u64::from(size);
        if queue.packets.len() >= self.limit.packets || bytes > self.limit.bytes {
            return false;
        }
        queue.bytes = bytes;
        queue.packets.push_back(handle);
        true
    }

    /// Dequeues from such a port without its law: the packet, its size, and whether another waits.
    #[inline]
    pub fn pop<P: Pool<Handle = H>>(&mut self, pool: &mut P) -> Option<(H, u16, bool)> {
        let AnyQueue::Fifo(queue) = &mut self.queue else { return None };
        let handle = queue.packets.pop_front()?;
        let size = pool.packet(handle).size;
        queue.bytes -= u64::from(size);
        Some((handle, size, !queue.packets.is_empty()))
    }
}

/// The view of a packet and its queue that a gentle law gets.
#[inline]
fn seen<P: Pool<Handle = H>, H: Copy + Default>(queue: &FifoQueue<H>, handle: H, pool: &mut P) -> Passing {
    let class = pool.class(handle);
    let packet = pool.packet(handle);
    Passing { class, ..Passing::of(packet.kind(), u32::from(packet.size), queue.packets.len(), queue.bytes) }
}
