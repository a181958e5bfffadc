//! Stochastic fair queueing (McKenney, INFOCOM 1990).

use std::collections::VecDeque;

use tollway_law::link::{AnyLink, LinkLaw, Placement};
use tollway_law::param::{Kind, TIME};
use tollway_law::{Bytes, Time, config};

use super::flows::queue_of;
use super::{AnyQueue, At, Discipline, Offered, Pool, QueueConfig, obey};
use crate::{Fifo, Stamp};

config! {
    /// The division of a port's queue among flows by a hash.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SfqConfig in "sfq", "Stochastic fair queueing (McKenney, INFOCOM 1990); `limit` is of all queues together, and a packet that finds it reached takes the place of the last one of the fullest queue." {
        /// Queues that flows are hashed into; several times as many as there are flows (§ 3).
        queues: u32 = 1024, Kind::Count { least: 1, most: 65_536 }, from "Linux";
        /// Bytes that a queue may send per turn.
        quantum: Bytes = Bytes(1514), Kind::Bytes { least: 1, most: 1 << 20 }, from "Linux";
        /// Time between changes of the hash function, which separates flows that share a queue; `0
        /// s` never changes it. A change may reorder a flow's packets.
        perturb: Time = Time::ZERO, TIME, from "§ 3.2";
        fixed {
            /// A salt of the hash, so that different flows collide at different ports.
            salt: u64 = 0;
        }
    }
}

impl QueueConfig for SfqConfig {
    fn place(&self, at: &Placement<'_>) -> AnyQueue<AnyLink, u32> {
        SfqConfig { salt: at.seed, ..*self }.build().into()
    }

    fn memory(&self) -> usize {
        self.queues as usize * size_of::<Queue<u32>>()
    }
}

impl SfqConfig {
    /// Builds the queues, empty.
    pub fn build<H: Copy + Default>(&self) -> Sfq<H> {
        let empty = || Queue { packets: Fifo::new(), bytes: 0, deficit: 0 };
        Sfq {
            config: *self,
            queues: std::iter::repeat_with(empty).take(self.queues.max(1) as usize).collect(),
            turns: VecDeque::new(),
            packets: 0,
            bytes: 0,
        }
    }
}

/// Queues by flow, served by deficit round robin. When the limit is reached, an arriving packet
/// replaces the last packet of the longest queue, unless its own queue is the longest.
#[derive(Clone, Debug)]
pub struct Sfq<H> {
    config: SfqConfig,
    queues: Vec<Queue<H>>,
    /// The queues that hold packets, in round-robin order; the first is being served.
    turns: VecDeque<u32>,
    packets: u32,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Queue<H> {
    packets: Fifo<H>,
    bytes: u64,
    /// Bytes it may still send in its turn.
    deficit: i64,
}

impl<H: Copy + Default> Sfq<H> {
    /// The salt of the hash function at `now`.
    fn salt(&self, now: Time) -> u64 {
        let epoch = now.0.checked_div(self.config.perturb.0).unwrap_or(0);
        self.config.salt ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn quantum(&self) -> i64 {
        self.config.quantum.0.clamp(1, 1 << 40) as i64
    }

    /// The longest queue, if it holds more than `bytes`; ties go to the first in turn.
    fn fuller_than(&self, bytes: u64) -> Option<usize> {
        let fuller =
            self.turns.iter().rev().map(|&at| at as usize).filter(|&at| self.queues[at].bytes > bytes);
        fuller.max_by_key(|&at| self.queues[at].bytes)
    }

    /// Removes the last packet of a queue.
    fn steal<P: Pool<Handle = H>>(&mut self, at: usize, pool: &mut P) -> Option<H> {
        let queue = &mut self.queues[at];
        let handle = queue.packets.pop_back()?;
        let size = u64::from(pool.packet(handle).size);
        queue.bytes -= size;
        self.packets -= 1;
        self.bytes -= size;
        if queue.packets.is_empty() {
            self.turns.retain(|&turn| turn as usize != at);
        }
        Some(handle)
    }
}

impl<L: LinkLaw, H: Copy + Default> Discipline<L, H> for Sfq<H> {
    fn packets(&self) -> u32 {
        self.packets
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(never)]
    fn enqueue<P: Pool<Handle = H>>(&mut self, handle: H, at: &mut At<'_, L, P>) -> Offered {
        let verdict = at.on_arrival(handle, self.packets, self.bytes);
        let packet = at.pool.packet(handle);
        let size = u64::from(packet.size);
        let n = queue_of(packet, self.salt(at.now), self.queues.len());
        if at.limit.packets == 0 || size > at.limit.bytes {
            return Offered::Full;
        }
        let Some(marked) = obey(verdict, packet) else { return Offered::Dropped };
        packet.entered = Stamp::at(at.now);
        while self.packets >= at.limit.packets || self.bytes + size > at.limit.bytes {
            let fuller = self.fuller_than(self.queues[n].bytes + size);
            match fuller.and_then(|fuller| self.steal(fuller, at.pool)) {
                Some(stolen) => at.drop(stolen),
                None => return Offered::Full,
            }
        }
        let quantum = self.quantum();
        let queue = &mut self.queues[n];
        if queue.packets.is_empty() {
            queue.deficit = quantum;
            self.turns.push_back(n as u32);
        }
        queue.packets.push_back(handle);
        queue.bytes += size;
        self.packets += 1;
        self.bytes += size;
        Offered::taken(marked)
    }

    #[inline(never)]
    fn dequeue<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) -> Option<(H, bool)> {
        let quantum = self.quantum();
        loop {
            let n = *self.turns.front()?;
            let queue = &mut self.queues[n as usize];
            if queue.deficit <= 0 {
                queue.deficit += quantum;
                self.turns.rotate_left(1);
                continue;
            }
            let handle = queue.packets.pop_front()?;
            let waited = at.pool.packet(handle).entered.elapsed(at.now);
            let verdict = at.on_departure(handle, self.packets, self.bytes, waited);
            let packet = at.pool.packet(handle);
            let size = packet.size;
            queue.bytes -= u64::from(size);
            self.packets -= 1;
            self.bytes -= u64::from(size);
            let stays = obey(verdict, packet);
            queue.deficit -= if stays.is_some() { i64::from(size) } else { 0 };
            if queue.packets.is_empty() {
                self.turns.pop_front();
            }
            match stays {
                Some(marked) => return Some((handle, marked)),
                None => at.drop(handle),
            }
        }
    }

    fn queued(&self) -> Box<dyn Iterator<Item = H> + '_> {
        Box::new(self.queues.iter().flat_map(|queue| queue.packets.iter()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::{CodelConfig, DropTail};

    use super::super::testing::Packets;
    use super::super::{Limit, Port};
    use super::*;
    use crate::Flags;

    fn port(packets: u32, config: SfqConfig) -> Port<AnyLink, u32> {
        let limit = Limit { packets, bytes: u64::MAX };
        Port::new(AnyLink::DropTail(DropTail), limit, config.build().into())
    }

    fn flows(port: &mut Port<AnyLink, u32>, pool: &mut Packets, n: usize) -> Vec<u32> {
        pool.drain(port, n).into_iter().map(|packet| packet.flow).collect()
    }

    #[test]
    fn flows_share_by_bytes_whatever_their_packets() {
        let (mut port, mut pool) = (port(10_000, SfqConfig::default()), Packets::default());
        pool.fill(&mut port, 1, 1500, 1000);
        pool.fill(&mut port, 2, 300, 3000);
        let flows = flows(&mut port, &mut pool, 1200);
        let ones = flows.iter().filter(|&&flow| flow == 1).count() * 1500;
        let twos = flows.iter().filter(|&&flow| flow == 2).count() * 300;
        assert!(ones.abs_diff(twos) <= 2 * 1514, "{ones} {twos}");
    }

    #[test]
    fn a_packet_takes_the_place_of_the_fullest_queues_last() {
        let (mut port, mut pool) = (port(10, SfqConfig::default()), Packets::default());
        pool.fill(&mut port, 1, 1000, 8);
        pool.fill(&mut port, 2, 1000, 2);
        let mut offer = |flow| {
            let (handle, mut dropped) = (pool.add(flow, 1000, Flags::NONE), Vec::new());
            let offered = port.enqueue(Time(1), handle, &mut pool, |_, lost| dropped.push(lost));
            (offered, dropped)
        };
        assert_eq!(offer(2), (Offered::Queued, vec![7]));
        assert_eq!(offer(1), (Offered::Full, vec![]));
        assert_eq!(offer(3), (Offered::Queued, vec![6]));
        assert_eq!((port.packets(), port.bytes()), (10, 10_000));
    }

    #[test]
    fn another_hash_function_parts_flows_that_shared_a_queue() {
        let config = SfqConfig { queues: 2, perturb: Time::from_secs(1), ..SfqConfig::default() };
        let sfq = config.build::<u32>();
        let together = |second: u64| {
            let of = |flow| {
                let packet = crate::Packet { flow, ..Default::default() };
                queue_of(&packet, sfq.salt(Time::from_secs(second)), 2)
            };
            of(1) == of(2)
        };
        let often = (0..100).filter(|&second| together(second)).count();
        assert!((30..70).contains(&often), "{often}");
        assert_eq!(sfq.salt(Time(1)), sfq.salt(Time(999_999_999)));
    }

    proptest! {
        /// Packets and bytes are those that are there, a port that holds something yields or drops
        /// something, and every packet ends once.
        #[test]
        fn nothing_is_lost_or_doubled(
            limit in 1u32..40,
            steps in prop::collection::vec((any::<bool>(), 0u32..6, 40u16..1500, 0u64..40), 0..300),
        ) {
            let law = AnyLink::Codel(Box::new(CodelConfig::default().build()));
            let config = SfqConfig { queues: 4, perturb: Time::from_millis(500), ..SfqConfig::default() };
            let bounds = Limit { packets: limit, bytes: 20_000 };
            let mut port = Port::new(law, bounds, config.build().into());
            let (mut pool, mut now, mut ended) = (Packets::default(), 0, Vec::new());
            for (comes, flow, size, gap) in steps {
                now += gap;
                let t = Time::from_millis(now);
                let (before, had) = (port.packets(), ended.len());
                if comes {
                    let handle = pool.add(flow, size, Flags::NONE);
                    let offered = port.enqueue(t, handle, &mut pool, |_, lost| ended.push(lost));
                    ended.extend((offered == Offered::Full).then_some(handle));
                } else {
                    let taken = port.dequeue(t, &mut pool, |_, lost| ended.push(lost));
                    ended.extend(taken.map(|(handle, _)| handle));
                    prop_assert_eq!(before == 0, ended.len() == had);
                }
                prop_assert!(port.packets() <= limit && port.bytes() <= 20_000);
                let here: Vec<u32> = port.queued().collect();
                prop_assert_eq!(here.len(), port.packets() as usize);
                prop_assert_eq!(pool.bytes_in(&port), port.bytes());
                let mut all: Vec<u32> = here.into_iter().chain(ended.iter().copied()).collect();
                all.sort_unstable();
                prop_assert!(all.into_iter().eq(0..pool.0.len() as u32));
            }
        }
    }
}
