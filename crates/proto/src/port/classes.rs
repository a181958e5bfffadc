//! Queues by class of traffic, which share a port by weight.

use std::sync::Arc;

use tollway_law::Time;
use tollway_law::link::{AnyLink, LinkLaw, Placement, SharedConfig};
use tollway_law::param::{Entry, Tables};

use super::{AnyQueue, At, Discipline, Offered, Pool, QueueConfig, QueueEntry, obey};
use crate::{Fifo, Stamp};

/// The division of a port's capacity among classes of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassQueuesConfig {
    /// The queue of each class; classes from [`ClassQueuesConfig::MOST`] on use the first.
    pub queue_of: [u8; ClassQueuesConfig::MOST],
    /// The weight of each queue, above zero; infinite for a queue with strict priority.
    pub weights: [f64; ClassQueuesConfig::MOST],
    /// True if the law sees the backlog of the packet's own queue, on arrival without the packet at
    /// its head; otherwise it sees the backlog of all queues.
    pub apart: bool,
}

/// The registry entry of queues by class.
pub(super) const ENTRY: QueueEntry = QueueEntry {
    law: SharedConfig::ENTRY,
    queue: Entry {
        word: SharedConfig::ENTRY.word,
        tables: &[],
        read: |tables| Arc::new(ClassQueuesConfig::by_weight(tables)),
    },
};

impl QueueConfig for ClassQueuesConfig {
    fn place(&self, _: &Placement<'_>) -> AnyQueue<AnyLink, u32> {
        self.build().into()
    }
}

impl ClassQueuesConfig {
    /// A queue for each class by its weight, after one of weight 1 for traffic without a class.
    fn by_weight(tables: &dyn Tables) -> ClassQueuesConfig {
        let mut config = ClassQueuesConfig { apart: true, ..Default::default() };
        for (i, (_, weight)) in (1..ClassQueuesConfig::MOST).zip(tables.classes()) {
            (config.queue_of[i], config.weights[i]) = (i as u8, weight);
        }
        config
    }

    /// Two queues under one law: classes for which `first` is true have strict priority. `None` if
    /// there are no such classes.
    pub fn priority(first: impl Iterator<Item = bool>) -> Option<ClassQueuesConfig> {
        let mut config = ClassQueuesConfig::default();
        config.queue_of[1..].iter_mut().zip(first).for_each(|(queue, first)| *queue = first.into());
        config.weights[1] = f64::INFINITY;
        config.queue_of.contains(&1).then_some(config)
    }

    /// Upper bound on distinct classes, and on queues.
    pub const MOST: usize = 8;

    /// Builds the queues, empty.
    pub fn build<H: Copy + Default>(&self) -> ClassQueues<H> {
        ClassQueues {
            config: *self,
            queues: std::array::from_fn(|_| SubQueue { packets: Fifo::new(), bytes: 0, last: 0.0 }),
            waits: Default::default(),
            packets: 0,
            bytes: 0,
            now: 0.0,
        }
    }
}

impl Default for ClassQueuesConfig {
    /// A single queue.
    fn default() -> ClassQueuesConfig {
        ClassQueuesConfig {
            queue_of: [0; ClassQueuesConfig::MOST],
            weights: [1.0; ClassQueuesConfig::MOST],
            apart: false,
        }
    }
}

/// Queues under one law, served by self-clocked fair queueing (Golestani, INFOCOM 1994).
///
/// The next packet is the one that would finish first if each queue had its weight's part of the
/// link. Unused parts go to the other queues by weight. The limit applies to each queue, so no
/// queue takes another's room.
#[derive(Clone, Debug)]
pub struct ClassQueues<H> {
    config: ClassQueuesConfig,
    queues: [SubQueue<H>; ClassQueuesConfig::MOST],
    waits: [Waits; ClassQueuesConfig::MOST],
    packets: u32,
    bytes: u64,
    /// Virtual time: the tag of the packet that left last.
    now: f64,
}

#[derive(Clone, Debug)]
struct SubQueue<H> {
    /// Packets, each with its time of entry and its virtual finish time.
    packets: Fifo<(H, Time, f64)>,
    bytes: u64,
    /// The tag of the last packet enqueued.
    last: f64,
}

/// Waiting times of packets in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Sum of waiting times, ns.
    pub nanos: u64,
    /// Number of packets that left.
    pub packets: u64,
}

impl<H: Copy + Default> ClassQueues<H> {
    fn queue_of(&self, class: u8) -> usize {
        let queue = self.config.queue_of.get(usize::from(class)).copied().unwrap_or(0);
        usize::from(queue).min(ClassQueuesConfig::MOST - 1)
    }

    /// The backlog that a packet of queue `at` finds.
    fn backlog(&self, at: usize) -> (u32, u64) {
        match self.config.apart {
            true => (self.queues[at].packets.len(), self.queues[at].bytes),
            false => (self.packets, self.bytes),
        }
    }

    /// The queue to serve next: a queue with priority if any has packets, otherwise the one with
    /// the least finish time; ties go to the first.
    fn turn(&self) -> Option<usize> {
        let busy = (0..ClassQueuesConfig::MOST).filter_map(|at| {
            let (_, _, tag) = self.queues[at].packets.front()?;
            Some((at, if self.config.weights[at] == f64::INFINITY { f64::NEG_INFINITY } else { tag }))
        });
        busy.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
    }
}

impl<L: LinkLaw, H: Copy + Default> Discipline<L, H> for ClassQueues<H> {
    fn packets(&self) -> u32 {
        self.packets
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(never)]
    fn enqueue<P: Pool<Handle = H>>(&mut self, handle: H, at: &mut At<'_, L, P>) -> Offered {
        let n = self.queue_of(at.pool.class(handle));
        let mut backlog = self.backlog(n);
        if let (true, Some((head, ..))) = (self.config.apart, self.queues[n].packets.front()) {
            // Of a link that is the queue's own the packet at its head would be in the transmitter.
            backlog = (backlog.0 - 1, backlog.1 - u64::from(at.pool.packet(head).size));
        }
        let verdict = at.on_arrival(handle, backlog.0, backlog.1);
        let packet = at.pool.packet(handle);
        let size = u64::from(packet.size);
        let queue = &mut self.queues[n];
        if queue.packets.len() >= at.limit.packets || queue.bytes + size > at.limit.bytes {
            return Offered::Full;
        }
        let Some(marked) = obey(verdict, packet) else { return Offered::Dropped };
        packet.entered = Stamp::at(at.now);
        if self.packets == 0 {
            // A packet at an empty port starts a new busy period, without credit from before.
            self.now = 0.0;
            self.queues.iter_mut().for_each(|queue| queue.last = 0.0);
        }
        let queue = &mut self.queues[n];
        queue.last = queue.last.max(self.now) + size as f64 / self.config.weights[n];
        queue.packets.push_back((handle, at.now, queue.last));
        queue.bytes += size;
        self.packets += 1;
        self.bytes += size;
        Offered::taken(marked)
    }

    #[inline(never)]
    fn dequeue<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) -> Option<(H, bool)> {
        loop {
            let n = self.turn()?;
            let backlog = self.backlog(n);
            let (handle, since, tag) = self.queues[n].packets.pop_front()?;
            let waited = at.now.saturating_sub(since);
            let verdict = at.on_departure(handle, backlog.0, backlog.1, waited);
            let packet = at.pool.packet(handle);
            self.queues[n].bytes -= u64::from(packet.size);
            self.waits[n].nanos += waited.0;
            self.waits[n].packets += 1;
            self.packets -= 1;
            self.bytes -= u64::from(packet.size);
            self.now = self.now.max(tag);
            match obey(verdict, packet) {
                Some(marked) => return Some((handle, marked)),
                None => at.drop(handle),
            }
        }
    }

    fn queued(&self) -> Box<dyn Iterator<Item = H> + '_> {
        Box::new(self.queues.iter().flat_map(|queue| queue.packets.iter()).map(|(handle, ..)| handle))
    }

    fn waits(&self) -> &[Waits] {
        &self.waits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::{AnyLink, DropTail, StepConfig};
    use tollway_law::param::Threshold;

    use super::super::testing::Packets;
    use super::super::{Limit, Port};
    use super::*;
    use crate::Flags;

    fn port(weights: [f64; 3]) -> Port<AnyLink, u32> {
        let mut config = ClassQueuesConfig { apart: true, ..Default::default() };
        config.weights[..3].copy_from_slice(&weights);
        config.queue_of[..3].copy_from_slice(&[0, 1, 2]);
        let limit = Limit { packets: 1000, bytes: u64::MAX };
        Port::new(AnyLink::DropTail(DropTail), limit, config.build().into())
    }

    fn bytes_of(port: &mut Port<AnyLink, u32>, pool: &mut Packets, n: usize) -> [u64; 3] {
        let mut bytes = [0; 3];
        let taken = pool.drain(port, n);
        assert_eq!(taken.len(), n);
        taken.iter().for_each(|packet| bytes[packet.flow as usize] += u64::from(packet.size));
        bytes
    }

    #[test]
    fn busy_queues_share_by_weight_and_lend_what_they_leave() {
        let (mut port, mut pool) = (port([1.0, 2.0, 1.0]), Packets::default());
        pool.fill(&mut port, 0, 1500, 500);
        pool.fill(&mut port, 1, 300, 900);
        let [one, two, _] = bytes_of(&mut port, &mut pool, 900);
        assert!((two as f64 / one as f64 - 2.0).abs() < 0.05, "{one} {two}");
        // The second is done: the first has all.
        let left = port.packets() as usize;
        let [one, ..] = bytes_of(&mut port, &mut pool, left);
        assert!(one > 0 && port.packets() == 0);
    }

    #[test]
    fn a_queue_of_infinite_weight_goes_first() {
        let (mut port, mut pool) = (port([1.0, f64::INFINITY, 1.0]), Packets::default());
        pool.fill(&mut port, 0, 1500, 10);
        pool.fill(&mut port, 1, 1500, 5);
        assert_eq!(bytes_of(&mut port, &mut pool, 5), [0, 7500, 0]);
        assert_eq!(port.waits().iter().map(|waits| waits.packets).collect::<Vec<_>>()[..3], [0, 5, 0]);
    }

    proptest! {
        /// Whatever comes and goes, packets and bytes are those that are there, in order within a
        /// class.
        #[test]
        fn nothing_is_lost_or_doubled(
            steps in prop::collection::vec((any::<bool>(), 0u32..3, 40u16..1500), 0..300),
        ) {
            let (mut port, mut pool) = (port([1.0, 3.0, f64::INFINITY]), Packets::default());
            let mut ended: Vec<u32> = Vec::new();
            for (k, (comes, class, size)) in steps.into_iter().enumerate() {
                let t = Time(k as u64);
                if comes {
                    pool.fill(&mut port, class, size, 1);
                } else if let Some((handle, _)) = port.dequeue(t, &mut pool, |_, _| {}) {
                    let class = pool.0[handle as usize].flow;
                    let before = ended.iter().rev().find(|&&h| pool.0[h as usize].flow == class);
                    prop_assert!(before.is_none_or(|&before| before < handle));
                    ended.push(handle);
                }
                let here: Vec<u32> = port.queued().collect();
                prop_assert_eq!(here.len(), port.packets() as usize);
                prop_assert_eq!(pool.bytes_in(&port), port.bytes());
                prop_assert_eq!(here.len() + ended.len(), pool.0.len());
            }
        }
    }

    #[test]
    fn a_queue_that_had_nothing_is_owed_nothing() {
        let (mut port, mut pool) = (port([1.0, 1.0, 1.0]), Packets::default());
        pool.fill(&mut port, 0, 1000, 100);
        bytes_of(&mut port, &mut pool, 50);
        // The second comes when the first has had fifty turns: from now on they take turns.
        pool.fill(&mut port, 1, 1000, 50);
        assert_eq!(bytes_of(&mut port, &mut pool, 20), [10_000, 10_000, 0]);
    }

    #[test]
    fn how_long_packets_waited_is_known_by_queue() {
        let (mut port, mut pool) = (port([1.0, 1.0, 1.0]), Packets::default());
        pool.fill(&mut port, 0, 1000, 3);
        pool.fill(&mut port, 1, 1000, 2);
        bytes_of(&mut port, &mut pool, 5);
        let waits: Vec<_> = port.waits().iter().map(|waits| (waits.nanos, waits.packets)).collect();
        assert_eq!(waits[..3], [(3, 3), (2, 2), (0, 0)]);
    }

    #[test]
    fn a_law_is_told_of_a_queue_without_its_head_when_a_packet_comes() {
        let mut config = ClassQueuesConfig { apart: true, ..Default::default() };
        config.queue_of[1] = 1;
        let step = StepConfig { threshold: Threshold::Packets(1.0) };
        let law = AnyLink::Step(Box::new(step.build(Limit::NONE)));
        let limit = Limit { packets: 1000, bytes: u64::MAX };
        let mut port = Port::new(law, limit, config.build().into());
        let mut pool = Packets::default();
        let mut offer = |class| {
            let handle = pool.add(class, 1000, Flags::ECT);
            port.enqueue(Time(1), handle, &mut pool, |_, _| {}) == Offered::Marked
        };
        // Of the other queue it hears nothing.
        let marked = [0, 0, 0, 1, 1, 0].map(&mut offer);
        assert_eq!(marked, [false, false, false, false, false, true]);
    }
}
