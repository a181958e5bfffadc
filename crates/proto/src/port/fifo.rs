//! The FIFO queue.

use tollway_law::Time;
use tollway_law::link::{LinkLaw, Verdict};

use super::{Discipline, Limit, Offered, Pool, obey, passing};
use crate::{Fifo, Stamp};

/// First in, first out; what does not fit under the limit is refused.
#[derive(Clone, Debug)]
pub struct FifoQueue<H> {
    packets: Fifo<H>,
    bytes: u64,
}

impl<H: Copy + Default> Default for FifoQueue<H> {
    fn default() -> FifoQueue<H> {
        FifoQueue { packets: Fifo::new(), bytes: 0 }
    }
}

impl<L: LinkLaw, H: Copy + Default> Discipline<L, H> for FifoQueue<H> {
    #[inline]
    fn packets(&self) -> u32 {
        self.packets.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn enqueue<P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        handle: H,
        pool: &mut P,
        law: &mut L,
        limit: Limit,
        _: &mut impl FnMut(&mut P, H),
    ) -> Offered {
        let verdict = if law.is_silent() {
            Verdict::Pass
        } else {
            let class = pool.class(handle);
            let packet = pool.packet(handle);
            let seen = passing(packet, class, self.packets.len(), self.bytes, Time::ZERO);
            law.on_arrival(now, seen, &packet.toll)
        };
        let packet = pool.packet(handle);
        let bytes = self.bytes + u64::from(packet.size);
        if self.packets.len() >= limit.packets || bytes > limit.bytes {
            return Offered::Full;
        }
        let Some(marked) = obey(verdict, packet) else { return Offered::Dropped };
        packet.entered = Stamp::at(now);
        self.bytes = bytes;
        self.packets.push_back(handle);
        Offered::taken(marked)
    }

    #[inline]
    fn dequeue<P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        pool: &mut P,
        law: &mut L,
        dropped: &mut impl FnMut(&mut P, H),
    ) -> Option<(H, bool)> {
        loop {
            let packets = self.packets.len();
            let handle = self.packets.pop_front()?;
            let verdict = if law.is_silent() {
                Verdict::Pass
            } else {
                let class = pool.class(handle);
                let packet = pool.packet(handle);
                let seen = passing(packet, class, packets, self.bytes, packet.entered.elapsed(now));
                law.on_departure(now, seen, &mut packet.toll)
            };
            let packet = pool.packet(handle);
            self.bytes -= u64::from(packet.size);
            match obey(verdict, packet) {
                Some(marked) => return Some((handle, marked)),
                None => dropped(pool, handle),
            }
        }
    }

    fn queued(&self) -> Box<dyn Iterator<Item = H> + '_> {
        Box::new(self.packets.iter())
    }
}
