//! A wire with random delays, reordering and duplicates.
//!
//! On other wires a packet that departs arrives after all that are on the wire, so no event is
//! needed between two arrivals. Here it may arrive first, so the link is due at each departure as
//! well. [`Link::next_arrival`] then returns the time at which the transmitter is free, and
//! [`Link::arrive`] may return no packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollway_law::Time;

use super::{Link, Store};
use crate::faults::Impairments;

/// Packets on such a wire.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Their slots, by arrival, then by order of departure.
    flying: BinaryHeap<Reverse<(Time, u64, u32)>>,
    departed: u64,
    /// The first sequence number of the last departure.
    last: u64,
    /// The last arrival among packets that keep their order.
    in_order: Time,
}

impl Flight {
    pub(super) fn len(&self) -> usize {
        self.flying.len()
    }

    fn push(&mut self, at: Time, slot: u32) {
        self.flying.push(Reverse((at, self.departed, slot)));
        self.departed += 1;
    }

    fn next(&self) -> Time {
        self.flying.peek().map_or(Time::NEVER, |next| next.0.0)
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.flying.iter().map(|packet| packet.0.2)
    }
}

impl Link {
    pub(super) fn flight(&self) -> Option<&Flight> {
        self.faults.as_ref().and_then(|trouble| trouble.flight.as_ref())
    }

    /// True if packets on the wire may be delayed at random, overtake each other, or arrive twice.
    #[inline]
    pub fn is_shaken(&self) -> bool {
        !self.simple && self.flight().is_some()
    }

    /// Sets the wire's impairments; the link [has](Link::faults) faults.
    pub fn impair(&mut self, impairments: Impairments) {
        let Some(trouble) = &mut self.faults else { return };
        trouble.faults.impairments = impairments;
        if !impairments.moves_packets() || self.is_shaken() {
            return;
        }
        let mut flight = Flight::default();
        let first = (!self.is_idle()).then_some((self.first_at, self.first_slot));
        let behind = std::iter::from_fn(|| self.behind.pop_front()).map(|arrival| (arrival.at, arrival.slot));
        for (at, slot) in first.into_iter().chain(behind) {
            flight.push(at, slot);
            flight.in_order = at;
        }
        self.trailing = true;
        self.faults.iter_mut().for_each(|trouble| trouble.flight = Some(std::mem::take(&mut flight)));
        self.look();
    }

    /// Puts a packet on the wire whose transmission ends when the transmitter is free.
    pub(super) fn launch_shaken(&mut self, slot: u32, store: &mut impl Store) {
        let due = self.free_at + self.delay;
        let Some(trouble) = &mut self.faults else { return };
        let Some(flight) = &mut trouble.flight else { return };
        let crossing = trouble.faults.crossing();
        let mut at = due + crossing.extra;
        if crossing.in_order {
            at = at.max(flight.in_order);
            flight.in_order = at;
        }
        flight.last = flight.departed;
        flight.push(at, slot);
        if crossing.twice {
            let copy = store.copy(slot);
            flight.push(at, copy);
            self.rare.get_or_insert_default().copies += store.segments(copy);
        }
        self.look();
    }

    /// Runs the departures up to `now`, and returns the packet that arrives by then.
    #[cold]
    pub(super) fn arrive_shaken(&mut self, now: Time, store: &mut impl Store) -> Option<u32> {
        self.catch_up(now, store);
        let flight = self.faults.as_mut().and_then(|trouble| trouble.flight.as_mut())?;
        let due = flight.next() <= now;
        let arrived = if due { flight.flying.pop() } else { None };
        self.look();
        arrived.map(|packet| packet.0.2)
    }

    /// Computes the time at which the link is due, if packets may overtake each other on it.
    #[inline]
    pub(super) fn look(&mut self) {
        if let Some(flight) = self.flight() {
            let departs = if self.waiting && self.has_transmitter() { self.free_at } else { Time::NEVER };
            self.first_at = flight.next().min(departs);
        }
    }

    /// Moves the arrival of the packet in transmission: its remaining time changes from `left` to
    /// `now_left`.
    pub(super) fn postpone_last(&mut self, left: Time, now_left: Time) {
        let Some(flight) = self.faults.as_mut().and_then(|trouble| trouble.flight.as_mut()) else { return };
        let last = flight.last;
        let later = |Reverse((at, number, slot)): Reverse<(Time, u64, u32)>| {
            let at = if number >= last { Time(at.0 + now_left.0 - left.0) } else { at };
            Reverse((at, number, slot))
        };
        flight.flying = std::mem::take(&mut flight.flying).into_iter().map(later).collect();
        self.look();
    }
}

#[cfg(test)]
mod tests {
    use tollway_law::Rate;
    use tollway_law::link::{AnyLink, DropTail};

    use super::*;
    use crate::link::LinkSpec;
    use crate::port::Limit;
    use crate::{Change, Faults, Packet, Pool};

    #[derive(Default)]
    struct Packets(Vec<Packet>);

    impl Pool for Packets {
        type Handle = u32;

        fn packet(&mut self, handle: u32) -> &mut Packet {
            &mut self.0[handle as usize]
        }
    }

    impl Store for Packets {
        fn lose(&mut self, _: u32) {}

        fn quantise_link(&mut self, _: u32) {}

        fn copy(&mut self, handle: u32) -> u32 {
            self.0.push(self.0[handle as usize]);
            self.0.len() as u32 - 1
        }
    }

    /// The packets' numbers in order of arrival, each with its instant; 2000 packets of 1 ms, sent
    /// 100 at a time.
    fn cross(impairments: Impairments) -> (Vec<(Time, u32)>, Link) {
        let limit = Limit { packets: 1000, bytes: u64::MAX };
        let mut link = Link::new(LinkSpec {
            rate: Rate::from_mbps(8.0),
            delay: Time::from_millis(30),
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit,
            queue: Default::default(),
        });
        let mut packets = Packets::default();
        let faults = || Faults::new(3, 0);
        link.change(Time::ZERO, Change::Wire(impairments), &mut packets, faults);
        let mut arrived = Vec::new();
        for burst in 0..20 {
            let now = Time::from_millis(burst * 100);
            while let Some((at, slot)) = link.arrive_by(now, &mut packets) {
                arrived.push((at, packets.0[slot as usize].seq));
            }
            for i in 0..100 {
                packets.0.push(Packet { size: 1000, seq: burst as u32 * 100 + i, ..Packet::default() });
                let slot = packets.0.len() as u32 - 1;
                link.offer(now, slot, &mut packets);
            }
        }
        while let Some((at, slot)) = link.arrive_by(Time::from_secs(9), &mut packets) {
            arrived.push((at, packets.0[slot as usize].seq));
        }
        assert_eq!((link.in_flight(), link.next_arrival()), (0, Time::NEVER));
        (arrived, link)
    }

    fn overtakings(arrived: &[(Time, u32)]) -> usize {
        arrived.windows(2).filter(|pair| pair[1].1 < pair[0].1).count()
    }

    #[test]
    fn jitter_keeps_order_unless_it_is_to_overtake() {
        let jitter = Impairments { jitter: Time::from_millis(10), ..Impairments::default() };
        let (kept, link) = cross(jitter);
        assert_eq!((kept.len(), overtakings(&kept), link.handed_on()), (2000, 0, 2000));
        let late = |at: &(Time, u32)| at.0.as_millis_f64() - (f64::from(at.1) + 31.0);
        assert!(kept.iter().all(|at| (-1e-6..10.0).contains(&late(at))));
        let mean = |all: &[(Time, u32)]| all.iter().map(late).sum::<f64>() / all.len() as f64;
        let (free, _) = cross(Impairments { overtakes: true, ..jitter });
        assert!((mean(&free) - 5.0).abs() < 0.3 && mean(&kept) > 6.0, "{} {}", mean(&free), mean(&kept));
        assert!(overtakings(&free) > 500, "{}", overtakings(&free));
        assert!(free.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        // The same seed, the same crossings.
        assert_eq!(cross(jitter).0, kept);
    }

    #[test]
    fn packets_held_back_come_behind_those_that_depart_meanwhile() {
        let held =
            Impairments { reorder: 0.05, reorder_delay: Time::from_millis(7), ..Impairments::default() };
        let (arrived, _) = cross(held);
        let late = arrived.iter().filter(|at| at.0 == Time::from_millis(u64::from(at.1) + 38)).count();
        let punctual = arrived.iter().filter(|at| at.0 == Time::from_millis(u64::from(at.1) + 31)).count();
        assert!(late + punctual == 2000 && (70..130).contains(&late), "{late} {punctual}");
        assert!(overtakings(&arrived) > 60);
    }

    #[test]
    fn duplicates_follow_their_originals() {
        let (arrived, link) = cross(Impairments { duplicate: 0.1, ..Impairments::default() });
        let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(arrived.len() == 2000 + twice && (160..240).contains(&twice), "{twice}");
        assert_eq!((overtakings(&arrived), link.handed_on()), (0, arrived.len() as u64));
    }

    #[test]
    fn another_rate_moves_the_packet_in_transmission() {
        let (_, mut link) = cross(Impairments { jitter: Time(1), ..Impairments::default() });
        let mut packets = Packets(vec![Packet { size: 1000, ..Packet::default() }]);
        let start = Time::from_secs(20);
        link.offer(start, 0, &mut packets);
        let half = start + Time::from_micros(500);
        link.change(half, Change::Rate(Rate::from_mbps(4.0)), &mut packets, || Faults::new(3, 0));
        assert_eq!(link.next_arrival(), start + Time::from_micros(31_500));
    }
}
