//! Flow queues: FQ-CoDel (RFC 8290) without its CoDel.

use std::collections::VecDeque;

use tollway_law::link::{AnyLink, LinkLaw, Placement, Verdict};
use tollway_law::param::Kind;
use tollway_law::{Bytes, Rate, Time, config};

use super::hosts::Loads;
use super::{AnyQueue, At, Discipline, Isolation, Offered, Pool, QueueConfig, obey};
use crate::route::mix;
use crate::{Flags, Packet, Stamp};

config! {
    /// The division of a port's queue among flows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FlowQueuesConfig in "fq-codel", "The queues of FQ-CoDel (RFC 8290); `limit` is of all together." {
        /// Queues that flows are hashed into.
        queues: u32 = 1024, Kind::Count { least: 1, most: 65_536 }, from "RFC 8290, § 5.2.3";
        /// Bytes that a queue may send per turn.
        quantum: Bytes = Bytes(1514), Kind::Bytes { least: 1, most: 1 << 20 }, from "RFC 8290, § 5.2.4";
        /// Hosts that share the capacity before their flows do: the ones in the flows' `from`, in
        /// their `to`, or `both`. In `exec` the `from` of a connection is the host that opened it.
        hosts: Isolation = Isolation::None, Kind::Word(Isolation::WORDS), from "CAKE (Høiland-Jørgensen, Täht and Morton, LANMAN 2018)";
        fixed {
            /// A salt of the hash, so that different flows collide at different ports.
            salt: u64 = 0;
        }
    }
}

impl QueueConfig for FlowQueuesConfig {
    fn place(&self, at: &Placement<'_>) -> AnyQueue<AnyLink, u32> {
        FlowQueuesConfig { salt: at.seed, ..*self }.build().into()
    }

    fn memory(&self) -> usize {
        self.queues as usize * size_of::<Queue<AnyLink, u32>>()
    }
}

/// Queues served by deficit round robin. Those of new flows, and of flows that send little, go
/// first.
///
/// Each has a copy of the port's law, made when its first packet arrives.
#[derive(Clone, Debug)]
pub struct FlowQueues<L, H> {
    queues: Vec<Queue<L, H>>,
    /// Queues that became busy and have not used up a quantum.
    new: VecDeque<u32>,
    /// Other queues that are busy, or were when their last turn began.
    old: VecDeque<u32>,
    packets: u32,
    bytes: u64,
    quantum: i64,
    loads: Loads,
    salt: u64,
}

#[derive(Clone, Debug)]
struct Queue<L, H> {
    packets: VecDeque<H>,
    bytes: u64,
    /// Bytes it may still send in this turn.
    deficit: i64,
    /// True if the queue is in one of the lists.
    listed: bool,
    /// Counts among the busy flows of its hosts: it has used up a turn since it was last listed.
    busy: bool,
    /// The hosts of the flow that it was listed for.
    hosts: [u32; 2],
    law: Option<L>,
}

impl FlowQueuesConfig {
    /// Builds the queues, empty. Each count is at least one.
    pub fn build<L, H>(&self) -> FlowQueues<L, H> {
        let empty = || Queue {
            packets: VecDeque::new(),
            bytes: 0,
            deficit: 0,
            listed: false,
            busy: false,
            hosts: [0; 2],
            law: None,
        };
        FlowQueues {
            queues: std::iter::repeat_with(empty).take(self.queues.max(1) as usize).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
            quantum: self.quantum.0.clamp(1, 1 << 40) as i64,
            loads: Loads::new(self.hosts),
            salt: self.salt,
        }
    }
}

impl<L: LinkLaw + Clone, H: Copy> Discipline<L, H> for FlowQueues<L, H> {
    fn packets(&self) -> u32 {
        self.packets
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// RFC 8290 § 4.1.
    #[inline(never)]
    fn enqueue<P: Pool<Handle = H>>(&mut self, handle: H, at: &mut At<'_, L, P>) -> Offered {
        let packet = at.pool.packet(handle);
        let (n, size) = (queue_of(packet, self.salt, self.queues.len()), u64::from(packet.size));
        if at.limit.packets == 0 || size > at.limit.bytes {
            return Offered::Full;
        }
        let queue = &mut self.queues[n];
        let law = queue.law.get_or_insert_with(|| at.law.clone());
        let verdict = at.under(law).on_arrival(handle, queue.packets.len() as u32, queue.bytes);
        let packet = at.pool.packet(handle);
        let Some(marked) = obey(verdict, packet) else { return Offered::Dropped };
        packet.entered = Stamp::at(at.now);
        while self.packets >= at.limit.packets || self.bytes + size > at.limit.bytes {
            self.make_room(at);
        }
        let queue = &mut self.queues[n];
        queue.packets.push_back(handle);
        queue.bytes += size;
        self.packets += 1;
        self.bytes += size;
        if !queue.listed {
            queue.listed = true;
            queue.hosts = at.pool.hosts(handle);
            queue.deficit = self.loads.turn(self.quantum, queue.hosts);
            self.new.push_back(n as u32);
        }
        Offered::taken(marked)
    }

    /// § 4.2, by the law of the packet's queue.
    #[inline(never)]
    fn dequeue<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) -> Option<(H, bool)> {
        loop {
            let (young, n) = match (self.new.front(), self.old.front()) {
                (Some(&n), _) => (true, n),
                (None, Some(&n)) => (false, n),
                (None, None) => return None,
            };
            let queue = &mut self.queues[n as usize];
            if queue.deficit <= 0 {
                if !std::mem::replace(&mut queue.busy, true) {
                    self.loads.add(queue.hosts);
                }
                queue.deficit += self.loads.turn(self.quantum, queue.hosts);
                self.leave(young);
                self.old.push_back(n);
                continue;
            }
            let (packets, bytes) = (queue.packets.len(), queue.bytes);
            let taken = queue.take(at);
            self.packets -= (packets - queue.packets.len()) as u32;
            self.bytes -= bytes - queue.bytes;
            match taken {
                Some((handle, size, marked)) => {
                    queue.deficit -= i64::from(size);
                    return Some((handle, marked));
                }
                // A new queue has to wait for the old ones before it can be new again, or it would
                // starve them.
                None if young => {
                    self.leave(young);
                    self.old.push_back(n);
                }
                None => {
                    queue.listed = false;
                    if std::mem::take(&mut queue.busy) {
                        self.loads.remove(queue.hosts);
                    }
                    self.leave(young);
                }
            }
        }
    }

    fn queued(&self) -> Box<dyn Iterator<Item = H> + '_> {
        Box::new(self.queues.iter().flat_map(|queue| queue.packets.iter().copied()))
    }

    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        let laws = self.queues.iter_mut().filter_map(|queue| queue.law.as_mut());
        laws.for_each(|law| law.set_capacity(now, capacity));
    }
}

impl<L, H: Copy> FlowQueues<L, H> {
    fn leave(&mut self, young: bool) {
        if young {
            self.new.pop_front()
        } else {
            self.old.pop_front()
        };
    }

    /// § 4.1.2: drops from the head of the longest queue in bytes half of its packets, at most 64.
    #[cold]
    fn make_room<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) {
        // Of equals the first, so that it does not depend on anything else.
        let fattest = (0..self.queues.len())
            .rev()
            .max_by_key(|&i| (self.queues[i].bytes, self.queues[i].packets.len()))
            .unwrap_or(0);
        let queue = &mut self.queues[fattest];
        let n = queue.packets.len().div_ceil(2).min(BATCH);
        for handle in queue.packets.drain(..n) {
            let size = u64::from(at.pool.packet(handle).size);
            queue.bytes -= size;
            self.bytes -= size;
            at.drop(handle);
        }
        self.packets -= n as u32;
    }
}

impl<L: LinkLaw, H: Copy> Queue<L, H> {
    /// The next packet that the law releases, its size, and whether it was marked.
    fn take<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) -> Option<(H, u16, bool)> {
        while let Some(&handle) = self.packets.front() {
            let waited = at.pool.packet(handle).entered.elapsed(at.now);
            let verdict = match &mut self.law {
                Some(law) => {
                    at.under(law).on_departure(handle, self.packets.len() as u32, self.bytes, waited)
                }
                None => Verdict::Pass,
            };
            self.packets.pop_front();
            let packet = at.pool.packet(handle);
            let size = packet.size;
            self.bytes -= u64::from(size);
            match obey(verdict, packet) {
                Some(marked) => return Some((handle, size, marked)),
                None => at.drop(handle),
            }
        }
        None
    }
}

/// The queue of a packet's flow among `count`.
pub(super) fn queue_of(packet: &Packet, salt: u64, count: usize) -> usize {
    // Cross-traffic numbers its flows by itself; its flags tell it apart.
    let plain = packet.flags.0 & (Flags::DATA.0 | Flags::ACK.0) == 0 && packet.flags.has(Flags::RST);
    let key = u64::from(packet.flow) << 1 | u64::from(plain);
    // Small salts differ in low bits only: unmixed, they would permute the keys of few flows among
    // themselves, and the same number of flows would collide under each.
    (mix(key ^ mix(salt)) % count as u64) as usize
}

/// Upper bound on packets dropped at once when the limit is reached (§ 4.1.2).
const BATCH: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::{CodelConfig, DropTail};

    use super::super::testing::Packets;
    use super::super::{Limit, Port};
    use super::*;

    fn port(limit: u32, law: AnyLink) -> Port<AnyLink, u32> {
        let limit = Limit { packets: limit, bytes: u64::MAX };
        Port::new(law, limit, FlowQueuesConfig::default().build().into())
    }

    /// The flows of the next `n` packets.
    fn taken(port: &mut Port<AnyLink, u32>, pool: &mut Packets, n: usize) -> Vec<u32> {
        pool.drain(port, n).into_iter().map(|packet| packet.flow).collect()
    }

    /// The number of `flows` that share one of 1024 queues with another, for each of 400 small seeds
    /// at the port of index `port`, salted as the simulator salts its ports.
    fn sharing(flows: u32, port: u64) -> Vec<u32> {
        let salts = (1..=400u64).map(|seed| seed ^ (port + 1).wrapping_mul(0xa076_1d64_78bd_642f));
        let of = |salt| {
            let mut queues = [0u32; 1024];
            for flow in 0..flows {
                queues[queue_of(&Packet { flow, ..Packet::default() }, salt, 1024)] += 1;
            }
            queues.iter().filter(|&&held| held > 1).sum()
        };
        salts.map(of).collect()
    }

    #[test]
    fn collisions_over_seeds_follow_the_birthday_formula() {
        // With 1024 queues a flow shares its own with probability 1 - (1 - 1/1024)^(n-1), and none
        // shares with probability (1 - 1/1024) (1 - 2/1024) ... (1 - (n-1)/1024). Bounds are four
        // standard errors over 400 seeds.
        for port in 0..4 {
            for (flows, mean, error, none, spread) in [
                (32, 0.955, 0.26, 0.615, 0.10),
                (50, 2.34, 0.42, 0.299, 0.09),
                (100, 9.23, 0.9, 0.0069, 0.017),
            ] {
                let counts = sharing(flows, port);
                let found = f64::from(counts.iter().sum::<u32>()) / 400.0;
                assert!((found - mean).abs() < error, "{flows} flows at port {port}: {found} share");
                let without = counts.iter().filter(|&&shared| shared == 0).count() as f64 / 400.0;
                assert!((without - none).abs() < spread, "{flows} flows at port {port}: {without} without");
            }
        }
    }

    #[test]
    fn a_sparse_flow_overtakes_a_full_queue() {
        let (mut port, mut pool) = (port(1000, AnyLink::DropTail(DropTail)), Packets::default());
        pool.fill(&mut port, 1, 1500, 20);
        assert_eq!(taken(&mut port, &mut pool, 3), [1, 1, 1]);
        pool.fill(&mut port, 2, 200, 1);
        // The turn of flow 1 was over with its quantum.
        assert_eq!(taken(&mut port, &mut pool, 2), [2, 1]);
        // Having left the new list through the old one, it may be new again.
        taken(&mut port, &mut pool, 2);
        pool.fill(&mut port, 2, 200, 1);
        assert_eq!(taken(&mut port, &mut pool, 1), [2]);
    }

    #[test]
    fn flows_share_by_bytes_whatever_their_packets() {
        let (mut port, mut pool) = (port(10_000, AnyLink::DropTail(DropTail)), Packets::default());
        pool.fill(&mut port, 1, 1500, 1000);
        pool.fill(&mut port, 2, 300, 3000);
        let flows = taken(&mut port, &mut pool, 1200);
        let ones = flows.iter().filter(|&&f| f == 1).count() * 1500;
        let twos = flows.iter().filter(|&&f| f == 2).count() * 300;
        assert!(ones.abs_diff(twos) <= 2 * 1514, "{ones} {twos}");
    }

    #[test]
    fn hosts_share_before_their_flows() {
        // The flows of `testing`: flow 10·h + i comes from host h and goes to host 10.
        for (isolation, expected) in
            [(Isolation::None, 600), (Isolation::From, 1500), (Isolation::To, 600), (Isolation::Both, 600)]
        {
            let config = FlowQueuesConfig { hosts: isolation, ..FlowQueuesConfig::default() };
            let limit = Limit { packets: 100_000, bytes: u64::MAX };
            let law = AnyLink::DropTail(DropTail);
            let (mut port, mut pool) = (Port::new(law, limit, config.build().into()), Packets::default());
            for flow in [10, 11, 12, 13, 20] {
                pool.fill(&mut port, flow, 1000, 3000);
            }
            let ones = taken(&mut port, &mut pool, 3000).into_iter().filter(|&flow| flow == 20).count();
            assert!(ones.abs_diff(expected) <= 10, "{isolation:?}: {ones}");
        }
    }

    #[test]
    fn the_fattest_queue_makes_room_from_its_head() {
        // Half of its packets, the oldest, but 64 at most; by bytes, however many packets others
        // have.
        for (large, small, leave) in [(90, 10, 45), (30, 70, 15), (200, 10, 64)] {
            let law = AnyLink::DropTail(DropTail);
            let (mut port, mut pool) = (port(large + small, law), Packets::default());
            pool.fill(&mut port, 1, 1500, large);
            pool.fill(&mut port, 2, 100, small);
            let handle = pool.add(2, 100, Flags::NONE);
            let mut dropped = Vec::new();
            port.enqueue(Time(1), handle, &mut pool, |_, h| dropped.push(h));
            assert_eq!(dropped, (0..leave).collect::<Vec<_>>());
            let bytes = u64::from(large - leave) * 1500 + u64::from(small + 1) * 100;
            assert_eq!((port.packets(), port.bytes()), (large + small + 1 - leave, bytes));
        }
    }

    proptest! {
        /// Whatever comes and goes, packets and bytes are those that are there, a port that holds
        /// something yields something or drops it, and every packet ends once.
        #[test]
        fn nothing_is_lost_or_doubled(
            limit in 1u32..40,
            steps in prop::collection::vec((any::<bool>(), 0u32..6, 40u16..1500, 0u64..40), 0..300),
        ) {
            let law = AnyLink::Codel(Box::new(CodelConfig::default().build()));
            let (mut port, mut pool) = (port(limit, law), Packets::default());
            let (mut now, mut ended) = (0, Vec::new());
            for (comes, flow, size, gap) in steps {
                now += gap;
                let t = Time::from_millis(now);
                if comes {
                    let handle = pool.add(flow, size, Flags::NONE);
                    if port.packets() == 0 && size % 2 == 0 {
                        // The transmitter is free, and has asked before the packet came.
                        prop_assert_eq!(port.dequeue(t, &mut pool, |_, _| {}), None);
                    }
                    let offered = port.enqueue(t, handle, &mut pool, |_, h| ended.push(h));
                    prop_assert_eq!(offered, Offered::Queued);
                } else {
                    let before = port.packets();
                    let had = ended.len();
                    let taken = port.dequeue(t, &mut pool, |_, h| ended.push(h));
                    ended.extend(taken.map(|(h, _)| h));
                    prop_assert_eq!(before == 0, ended.len() == had);
                }
                prop_assert!(port.packets() <= limit);
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
