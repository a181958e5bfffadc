//! A port's two queues, for L4S and for classic traffic (RFC 9332).

use tollway_law::Time;
use tollway_law::link::{Heads, LinkLaw};

use super::{Limit, Offered, Pool, obey, passing};
use crate::{Fifo, Packet, Stamp};

/// How a port with two queues takes turns between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualQueueConfig {
    /// Share of the capacity that the classic queue has for certain while both hold packets, 0 to 1. 0.1, as Linux has
    /// it: RFC 9332 (appendix A.1) wants L4S preferred without the other being starved, for instance by this weighted round
    /// robin.
    pub classic_share: f64,
}

impl Default for DualQueueConfig {
    fn default() -> DualQueueConfig {
        DualQueueConfig { classic_share: 0.1 }
    }
}

/// Two queues under one law and one limit; L4S goes first, up to its share.
#[derive(Clone, Debug)]
pub(super) struct DualQueue<H> {
    classic: Lane<H>,
    l4s: Lane<H>,
    /// Bytes, weighted, that the classic queue is owed; its turn while positive.
    owed: f64,
    classic_share: f64,
}

#[derive(Clone, Debug)]
struct Lane<H> {
    /// With when each entered.
    packets: Fifo<(H, Time)>,
    bytes: u64,
}

impl<H: Copy + Default> DualQueue<H> {
    pub(super) fn new(config: DualQueueConfig) -> DualQueue<H> {
        let lane = || Lane { packets: Fifo::new(), bytes: 0 };
        let share = config.classic_share;
        let classic_share = if share > 0.0 { share.min(1.0) } else { 0.0 };
        DualQueue { classic: lane(), l4s: lane(), owed: 0.0, classic_share }
    }

    pub(super) fn packets(&self) -> u32 {
        self.classic.packets.len() + self.l4s.packets.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.classic.bytes + self.l4s.bytes
    }

    /// Every packet, those of L4S first.
    pub(super) fn queued(&self) -> impl Iterator<Item = H> + '_ {
        self.l4s.packets.iter().chain(self.classic.packets.iter()).map(|(handle, _)| handle)
    }

    /// A.1, `dualpi2_enqueue`.
    pub(super) fn offer<L: LinkLaw, P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        handle: H,
        pool: &mut P,
        limit: Limit,
        law: &mut L,
    ) -> Offered {
        let class = pool.class(handle);
        let packet = pool.packet(handle);
        let size = u64::from(packet.size);
        let l4s = packet.flags.l4s();
        let lane = if l4s { &mut self.l4s } else { &mut self.classic };
        let seen = passing(packet, class, lane.packets.len(), lane.bytes, Time::ZERO);
        let verdict = law.on_arrival(now, seen, &packet.toll);
        let (packets, bytes) = (self.packets(), self.bytes());
        if packets >= limit.packets || bytes + size > limit.bytes {
            return Offered::Full;
        }
        let Some(marked) = obey(verdict, packet) else { return Offered::Dropped };
        packet.entered = Stamp::at(now);
        let lane = if l4s { &mut self.l4s } else { &mut self.classic };
        lane.packets.push_back((handle, now));
        lane.bytes += size;
        law.on_heads(self.heads());
        Offered::taken(marked)
    }

    /// A.1, `dualpi2_dequeue`: the next packet, and whether it was marked.
    pub(super) fn take<L: LinkLaw, P: Pool<Handle = H>>(
        &mut self,
        now: Time,
        pool: &mut P,
        law: &mut L,
        dropped: &mut impl FnMut(&mut P, H),
    ) -> Option<(H, bool)> {
        loop {
            let l4s = self.turn()?;
            let lane = if l4s { &mut self.l4s } else { &mut self.classic };
            let (handle, since) = lane.packets.front()?;
            let class = pool.class(handle);
            let packet: &mut Packet = pool.packet(handle);
            let seen = passing(packet, class, lane.packets.len(), lane.bytes, now.saturating_sub(since));
            // Its own mark must not make another kind of packet of it.
            let seen = tollway_law::link::Passing { l4s, ..seen };
            let verdict = law.on_departure(now, seen, &mut packet.toll);
            lane.packets.pop_front();
            lane.bytes -= u64::from(seen.size);
            let stays = obey(verdict, packet);
            if stays.is_some() {
                self.charge(l4s, seen.size);
            }
            law.on_heads(self.heads());
            match stays {
                Some(marked) => return Some((handle, marked)),
                None => dropped(pool, handle),
            }
        }
    }

    /// Whether L4S is next; `None` if both are empty.
    fn turn(&self) -> Option<bool> {
        match (self.l4s.packets.is_empty(), self.classic.packets.is_empty()) {
            (true, true) => None,
            (false, true) => Some(true),
            (true, false) => Some(false),
            (false, false) => Some(self.owed <= 0.0),
        }
    }

    /// A packet of `size` leaves. Who had the transmitter for himself neither owes nor is owed anything for it.
    fn charge(&mut self, l4s: bool, size: u32) {
        if self.l4s.packets.is_empty() || self.classic.packets.is_empty() {
            self.owed = 0.0;
            return;
        }
        let weight = if l4s { self.classic_share } else { self.classic_share - 1.0 };
        self.owed += weight * f64::from(size);
    }

    fn heads(&self) -> Heads {
        let since = |lane: &Lane<H>| lane.packets.front().map_or(Time::NEVER, |(_, since)| since);
        Heads { classic: since(&self.classic), l4s: since(&self.l4s) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::{AnyLink, DropTail, DualPi2Config};

    use super::super::{Port, Queues};
    use super::*;
    use crate::Flags;

    struct Packets(Vec<Packet>);

    impl Pool for Packets {
        type Handle = u32;
        fn packet(&mut self, handle: u32) -> &mut Packet {
            &mut self.0[handle as usize]
        }
    }

    impl Packets {
        fn add(&mut self, ecn: Flags, size: u16) -> u32 {
            self.0.push(Packet { size, flags: Flags::DATA.with(ecn), ..Packet::default() });
            self.0.len() as u32 - 1
        }
    }

    fn port(law: AnyLink, packets: u32, classic_share: f64) -> Port<AnyLink, u32> {
        let limit = Limit { packets, bytes: u64::MAX };
        Port::with_queues(law, limit, Queues::Dual(DualQueueConfig { classic_share }))
    }

    #[test]
    fn ect1_and_ce_go_before_all_others() {
        let (mut port, mut pool) = (port(AnyLink::DropTail(DropTail), 100, 0.0), Packets(Vec::new()));
        for ecn in [Flags::NONE, Flags::ECT, Flags::ECT1, Flags::CE] {
            let handle = pool.add(ecn, 1000);
            assert_eq!(port.offer(Time(1), handle, &mut pool, |_, _| {}), Offered::Queued);
        }
        let order: Vec<u32> = port.queued().collect();
        let taken: Vec<u32> = std::iter::from_fn(|| port.take(Time(2), &mut pool, |_, _| {}))
            .map(|(handle, _)| handle)
            .collect();
        assert_eq!((taken.as_slice(), order.as_slice()), (&[2, 3, 0, 1][..], &[2, 3, 0, 1][..]));
    }

    #[test]
    fn the_classic_queue_has_its_share_in_bytes() {
        let (mut port, mut pool) = (port(AnyLink::DropTail(DropTail), 1000, 0.1), Packets(Vec::new()));
        for _ in 0..200 {
            for (ecn, size) in [(Flags::NONE, 1500), (Flags::ECT1, 500), (Flags::ECT1, 500)] {
                let handle = pool.add(ecn, size);
                port.offer(Time(1), handle, &mut pool, |_, _| {});
            }
        }
        let mut bytes = [0; 2];
        for _ in 0..300 {
            let (handle, _) = port.take(Time(2), &mut pool, |_, _| {}).unwrap();
            let packet = &pool.0[handle as usize];
            bytes[usize::from(packet.flags.l4s())] += u32::from(packet.size);
        }
        let share = f64::from(bytes[0]) / f64::from(bytes[0] + bytes[1]);
        assert!((share - 0.1).abs() < 0.01, "{share}");
    }

    #[test]
    fn both_queues_share_one_limit() {
        let (mut port, mut pool) = (port(AnyLink::DropTail(DropTail), 3, 0.1), Packets(Vec::new()));
        let mut offered = Vec::new();
        for ecn in [Flags::ECT1, Flags::NONE, Flags::ECT1, Flags::ECT1, Flags::NONE] {
            let handle = pool.add(ecn, 1000);
            offered.push(port.offer(Time(1), handle, &mut pool, |_, _| {}));
        }
        assert_eq!(offered[2..], [Offered::Queued, Offered::Full, Offered::Full]);
        assert_eq!((port.packets(), port.bytes()), (3, 3000));
    }

    proptest! {
        /// What goes in comes out or is dropped, each queue in order, and only what can be marked is.
        #[test]
        fn packets_are_conserved(
            steps in prop::collection::vec((0u8..4, 40u16..1500, any::<bool>(), 0u64..5_000_000), 0..300),
            share in any::<f64>(),
        ) {
            let law = AnyLink::DualPi2(Box::new(DualPi2Config::default().build()));
            let (mut port, mut pool) = (port(law, 40, share), Packets(Vec::new()));
            let (mut now, mut held, mut last) = (Time::ZERO, 0, [None; 2]);
            for (kind, size, takes, gap) in steps {
                now += Time(gap);
                if takes {
                    let mut dropped = 0;
                    let taken = port.take(now, &mut pool, |_, _| dropped += 1);
                    held -= dropped + u32::from(taken.is_some());
                    if let Some((handle, marked)) = taken {
                        let packet = &pool.0[handle as usize];
                        prop_assert!(!marked || packet.flags.has(Flags::CE));
                        // A mark may have moved it to the other kind since it came: its number says which.
                        let lane = usize::from(packet.seq == 1);
                        prop_assert!(last[lane] < Some(handle));
                        last[lane] = Some(handle);
                    }
                } else {
                    let ecn = [Flags::NONE, Flags::ECT, Flags::ECT1, Flags::CE][usize::from(kind)];
                    let handle = pool.add(ecn, size);
                    pool.0[handle as usize].seq = u32::from(ecn.l4s());
                    let offered = port.offer(now, handle, &mut pool, |_, _| {});
                    held += u32::from(offered == Offered::Queued);
                }
                prop_assert_eq!(port.packets(), held);
                let bytes: u64 = port.queued().map(|h| u64::from(pool.0[h as usize].size)).sum();
                prop_assert_eq!(port.bytes(), bytes);
            }
        }
    }
}
