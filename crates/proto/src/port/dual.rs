//! A port's two queues, for L4S and for classic traffic (RFC 9332).

use tollway_law::Time;
use tollway_law::link::{AnyLink, DualPi2, DualPi2Config, LinkLaw, Passing, Placement};

use super::{AnyQueue, At, Discipline, Offered, Pool, QueueConfig, obey, passing};
use crate::{Fifo, Stamp};

impl QueueConfig for DualPi2Config {
    fn place(&self, _: &Placement<'_>) -> AnyQueue<AnyLink, u32> {
        DualQueue::new(self).into()
    }
}

/// Two queues under one controller and one limit. L4S goes first, up to its share. The port's own
/// law is not called.
#[derive(Clone, Debug)]
pub struct DualQueue<H> {
    pi2: DualPi2,
    classic: SubQueue<H>,
    l4s: SubQueue<H>,
    /// Weighted bytes due to the classic queue, which goes first while this is positive.
    owed: f64,
    classic_share: f64,
}

#[derive(Clone, Debug)]
struct SubQueue<H> {
    /// Packets, each with its time of entry.
    packets: Fifo<(H, Time)>,
    bytes: u64,
}

impl<H: Copy + Default> DualQueue<H> {
    /// Builds the queues, empty. A share that is NaN counts as zero.
    pub fn new(config: &DualPi2Config) -> DualQueue<H> {
        let lane = || SubQueue { packets: Fifo::new(), bytes: 0 };
        let share = config.classic_share;
        let classic_share = if share > 0.0 { share.min(1.0) } else { 0.0 };
        DualQueue { pi2: config.build(), classic: lane(), l4s: lane(), owed: 0.0, classic_share }
    }

    /// True if L4S is next; `None` if both are empty.
    fn turn(&self) -> Option<bool> {
        match (self.l4s.packets.is_empty(), self.classic.packets.is_empty()) {
            (true, true) => None,
            (false, true) => Some(true),
            (true, false) => Some(false),
            (false, false) => Some(self.owed <= 0.0),
        }
    }

    /// Charges a departing packet of `size`. A queue that had the transmitter alone neither owes
    /// nor gains.
    fn charge(&mut self, l4s: bool, size: u32) {
        if self.l4s.packets.is_empty() || self.classic.packets.is_empty() {
            self.owed = 0.0;
            return;
        }
        let weight = if l4s { self.classic_share } else { self.classic_share - 1.0 };
        self.owed += weight * f64::from(size);
    }

    /// Time of entry of the older of the two heads, [`Time::NEVER`] if both queues are empty.
    fn oldest(&self) -> Time {
        let since = |lane: &SubQueue<H>| lane.packets.front().map_or(Time::NEVER, |(_, since)| since);
        since(&self.classic).min(since(&self.l4s))
    }
}

impl<L: LinkLaw, H: Copy + Default> Discipline<L, H> for DualQueue<H> {
    fn packets(&self) -> u32 {
        self.classic.packets.len() + self.l4s.packets.len()
    }

    fn bytes(&self) -> u64 {
        self.classic.bytes + self.l4s.bytes
    }

    /// A.1, `dualpi2_enqueue`.
    #[inline(never)]
    fn enqueue<P: Pool<Handle = H>>(&mut self, handle: H, at: &mut At<'_, L, P>) -> Offered {
        self.pi2.catch_up(at.now, self.oldest());
        let packet = at.pool.packet(handle);
        let size = u64::from(packet.size);
        let packets = self.classic.packets.len() + self.l4s.packets.len();
        if packets >= at.limit.packets || self.classic.bytes + self.l4s.bytes + size > at.limit.bytes {
            return Offered::Full;
        }
        packet.entered = Stamp::at(at.now);
        let lane = if packet.flags.l4s() { &mut self.l4s } else { &mut self.classic };
        lane.packets.push_back((handle, at.now));
        lane.bytes += size;
        Offered::Queued
    }

    /// A.1, `dualpi2_dequeue`.
    #[inline(never)]
    fn dequeue<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) -> Option<(H, bool)> {
        loop {
            let l4s = self.turn()?;
            self.pi2.catch_up(at.now, self.oldest());
            let lane = if l4s { &mut self.l4s } else { &mut self.classic };
            let (handle, since) = lane.packets.front()?;
            let class = at.pool.class(handle);
            let packet = at.pool.packet(handle);
            let seen = passing(packet, class, lane.packets.len(), lane.bytes, at.now.saturating_sub(since));
            // Its own mark must not make another kind of packet of it.
            let seen = Passing { l4s, ..seen };
            let verdict = self.pi2.on_departure(seen);
            lane.packets.pop_front();
            lane.bytes -= u64::from(seen.size);
            match obey(verdict, packet) {
                Some(marked) => {
                    self.charge(l4s, seen.size);
                    return Some((handle, marked));
                }
                None => at.drop(handle),
            }
        }
    }

    /// Every packet, those of L4S first.
    fn queued(&self) -> Box<dyn Iterator<Item = H> + '_> {
        Box::new(self.l4s.packets.iter().chain(self.classic.packets.iter()).map(|(handle, _)| handle))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::DropTail;

    use super::super::testing::Packets;
    use super::super::{Limit, Port};
    use super::*;
    use crate::Flags;

    fn port(config: DualPi2Config, packets: u32) -> Port<AnyLink, u32> {
        let limit = Limit { packets, bytes: u64::MAX };
        Port::new(AnyLink::DropTail(DropTail), limit, DualQueue::new(&config).into())
    }

    /// Two queues that take turns and mark nothing.
    fn turns(classic_share: f64) -> DualPi2Config {
        DualPi2Config { alpha: 0.0, beta: 0.0, step: Time::NEVER, classic_share, ..Default::default() }
    }

    #[test]
    fn ect1_and_ce_go_before_all_others() {
        let (mut port, mut pool) = (port(turns(0.0), 100), Packets::default());
        for ecn in [Flags::NONE, Flags::ECT, Flags::ECT1, Flags::CE] {
            let handle = pool.add(0, 1000, ecn);
            assert_eq!(port.enqueue(Time(1), handle, &mut pool, |_, _| {}), Offered::Queued);
        }
        let order: Vec<u32> = port.queued().collect();
        let taken: Vec<u32> = std::iter::from_fn(|| port.dequeue(Time(2), &mut pool, |_, _| {}))
            .map(|(handle, _)| handle)
            .collect();
        assert_eq!((taken.as_slice(), order.as_slice()), (&[2, 3, 0, 1][..], &[2, 3, 0, 1][..]));
    }

    #[test]
    fn the_classic_queue_has_its_share_in_bytes() {
        let (mut port, mut pool) = (port(turns(0.1), 1000), Packets::default());
        for _ in 0..200 {
            for (ecn, size) in [(Flags::NONE, 1500), (Flags::ECT1, 500), (Flags::ECT1, 500)] {
                let handle = pool.add(0, size, ecn);
                port.enqueue(Time(1), handle, &mut pool, |_, _| {});
            }
        }
        let mut bytes = [0; 2];
        for packet in pool.drain(&mut port, 300) {
            bytes[usize::from(packet.flags.l4s())] += u32::from(packet.size);
        }
        let share = f64::from(bytes[0]) / f64::from(bytes[0] + bytes[1]);
        assert!((share - 0.1).abs() < 0.01, "{share}");
    }

    #[test]
    fn the_older_head_drives_the_controller() {
        let (mut queue, mut pool) = (DualQueue::new(&DualPi2Config::default()), Packets::default());
        let (ms, limit, law) = (Time::from_millis, Limit::NONE, &mut DropTail);
        let dropped = &mut |_: &mut Packets, _| {};
        for (at, ecn) in [(0, Flags::NONE), (12, Flags::ECT1), (30, Flags::NONE)] {
            let handle = pool.add(0, 1000, ecn);
            queue.enqueue(handle, &mut At { now: ms(at), pool: &mut pool, law, limit, dropped });
        }
        // The classic head waits for 16 ms: 0.16 · 1 ms + 3.2 · 16 ms.
        assert!((queue.pi2.base_probability() - 0.05136).abs() < 1e-12);
        // Its queue's turn, since L4S has had too much; then the head of L4S, 20 ms old at 32 ms,
        // is the older one.
        queue.owed = 1.0;
        let taken = queue.dequeue(&mut At { now: ms(31), pool: &mut pool, law, limit, dropped });
        assert_eq!(taken, Some((0, false)));
        queue.dequeue(&mut At { now: ms(40), pool: &mut pool, law, limit, dropped });
        assert!((queue.pi2.base_probability() - 0.05136 - 0.0136).abs() < 1e-12);
    }

    #[test]
    fn both_queues_share_one_limit() {
        let (mut port, mut pool) = (port(turns(0.1), 3), Packets::default());
        let mut offered = Vec::new();
        for ecn in [Flags::ECT1, Flags::NONE, Flags::ECT1, Flags::ECT1, Flags::NONE] {
            let handle = pool.add(0, 1000, ecn);
            offered.push(port.enqueue(Time(1), handle, &mut pool, |_, _| {}));
        }
        assert_eq!(offered[2..], [Offered::Queued, Offered::Full, Offered::Full]);
        assert_eq!((port.packets(), port.bytes()), (3, 3000));
    }

    proptest! {
        /// Every packet is delivered or dropped, each queue in order, and only packets that may be
        /// marked are.
        #[test]
        fn packets_are_conserved(
            steps in prop::collection::vec((0u8..4, 40u16..1500, any::<bool>(), 0u64..5_000_000), 0..300),
            share in any::<f64>(),
        ) {
            let config = DualPi2Config { classic_share: share, ..Default::default() };
            let (mut port, mut pool) = (port(config, 40), Packets::default());
            let (mut now, mut held, mut last) = (Time::ZERO, 0, [None; 2]);
            for (kind, size, takes, gap) in steps {
                now += Time(gap);
                if takes {
                    let mut dropped = 0;
                    let taken = port.dequeue(now, &mut pool, |_, _| dropped += 1);
                    held -= dropped + u32::from(taken.is_some());
                    if let Some((handle, marked)) = taken {
                        let packet = &pool.0[handle as usize];
                        prop_assert!(!marked || packet.flags.has(Flags::CE));
                        // A mark may have moved it to the other kind since it came: its number says
                        // which.
                        let lane = usize::from(packet.seq == 1);
                        prop_assert!(last[lane] < Some(handle));
                        last[lane] = Some(handle);
                    }
                } else {
                    let ecn = [Flags::NONE, Flags::ECT, Flags::ECT1, Flags::CE][usize::from(kind)];
                    let handle = pool.add(0, size, ecn);
                    pool.0[handle as usize].seq = u32::from(ecn.l4s());
                    let offered = port.enqueue(now, handle, &mut pool, |_, _| {});
                    held += u32::from(offered == Offered::Queued);
                }
                prop_assert_eq!(port.packets(), held);
                prop_assert_eq!(port.bytes(), pool.bytes_in(&port));
            }
        }
    }
}
