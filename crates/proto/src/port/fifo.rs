//! The FIFO queue.

use tollway_law::link::{LinkLaw, Verdict};

use super::{At, Discipline, Offered, Pool, obey};
use crate::{Fifo, Stamp};

/// First in, first out; a packet that exceeds the limit is refused.
#[derive(Clone, Debug)]
pub struct FifoQueue<H> {
    pub(super) packets: Fifo<H>,
    pub(super) bytes: u64,
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
    fn enqueue<P: Pool<Handle = H>>(&mut self, handle: H, at: &mut At<'_, L, P>) -> Offered {
        let verdict = if at.law.is_silent() {
            Verdict::Pass
        } else {
            at.on_arrival(handle, self.packets.len(), self.bytes)
        };
        let packet = at.pool.packet(handle);
        let bytes = self.bytes + u64::from(packet.size);
        if self.packets.len() >= at.limit.packets || bytes > at.limit.bytes {
            return Offered::Full;
        }
        let Some(marked) = obey(verdict, packet) else { return Offered::Dropped };
        packet.entered = Stamp::at(at.now);
        self.bytes = bytes;
        self.packets.push_back(handle);
        Offered::taken(marked)
    }

    #[inline]
    fn dequeue<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) -> Option<(H, bool)> {
        loop {
            let packets = self.packets.len();
            let handle = self.packets.pop_front()?;
            let verdict = if at.law.is_silent() {
                Verdict::Pass
            } else {
                let waited = at.pool.packet(handle).entered.elapsed(at.now);
                at.on_departure(handle, packets, self.bytes, waited)
            };
            let packet = at.pool.packet(handle);
            self.bytes -= u64::from(packet.size);
            match obey(verdict, packet) {
                Some(marked) => return Some((handle, marked)),
                None => at.drop(handle),
            }
        }
    }

    fn queued(&self) -> Box<dyn Iterator<Item = H> + '_> {
        Box::new(self.packets.iter())
    }
}
