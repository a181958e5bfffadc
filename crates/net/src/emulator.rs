//! The links of the live engine: the simulator's links, with datagrams in [`Buffers`] as packets.
//!
//! The instant at which a datagram really leaves cannot be exact. The [driver](crate::network)
//! measures its lateness.

use tollway_law::link::AnyLink;
use tollway_law::{Rate, Time};
use tollway_proto::link::{self, Link, PacketFate, Store};
use tollway_proto::port::{AnyQueue, Limit};
use tollway_proto::trace::Trace;

use crate::buffers::Buffers;

/// Parameters of a link direction.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Index of the node at its near end, which has the output port.
    pub from: u32,
    /// Index of the node at the far end.
    pub to: u32,
    /// Rate on the wire, framing included.
    pub rate: Rate,
    /// Delivery instants that replace `rate`.
    pub trace: Option<Trace>,
    /// One-way propagation delay.
    pub delay: Time,
    /// Framing bytes added to each packet on this wire.
    pub overhead: u32,
    /// The law that marks packets at the port.
    pub law: AnyLink,
    /// Limit of the port's queue.
    pub limit: Limit,
    /// The port's queue.
    pub queue: AnyQueue<AnyLink, u32>,
}

impl LinkSpec {
    /// Builds the link, idle, with its queue measured from time zero.
    pub(crate) fn build(&self) -> Link {
        let LinkSpec { rate, delay, overhead, limit, .. } = *self;
        let (law, queue) = (self.law.clone(), self.queue.clone());
        let mut link = Link::new(link::LinkSpec { rate, delay, overhead, law, limit, queue });
        if let Some(trace) = &self.trace {
            link.set_trace(trace.clone());
        }
        link.measure(Time::ZERO, true);
        link
    }
}

/// Enqueues a packet at the port of a link.
pub(crate) fn offer(link: &mut Link, now: Time, handle: u32, buffers: &mut Buffers) {
    if link.offer(now, handle, buffers) == PacketFate::Lost {
        buffers.free(handle);
    }
}

/// The next packet that left the wire by `now`, and its instant.
pub(crate) fn arrive(link: &mut Link, now: Time, buffers: &mut Buffers) -> Option<(Time, u32)> {
    loop {
        let (at, handle) = link.arrive_by(now, buffers)?;
        if !is_lost(link, handle, buffers) {
            return Some((at, handle));
        }
    }
}

/// Draws random loss for a packet on the wire, and frees a lost packet. Returns true if it is lost.
pub(crate) fn is_lost(link: &mut Link, handle: u32, buffers: &mut Buffers) -> bool {
    let lost = link.lost_on_wire(buffers.get(handle), buffers.segments(handle));
    if lost {
        buffers.free(handle);
    }
    lost
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::link::DropTail;

    use tollway_proto::faults::{Faults, Loss, LossPlace, Only};
    use tollway_proto::{Flags, Packet};

    use super::*;

    fn link(limit: u32) -> (Link, Buffers) {
        let spec = LinkSpec {
            from: 0,
            to: 1,
            rate: Rate::from_mbps(8.0),
            trace: None,
            delay: Time::from_millis(5),
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit: Limit { packets: limit, bytes: u64::MAX },
            queue: Default::default(),
        };
        (spec.build(), Buffers::default())
    }

    fn send(link: &mut Link, buffers: &mut Buffers, now: Time, size: u16) {
        let handle =
            buffers.alloc(Packet { size, flags: Flags::DATA, ..Packet::default() }, usize::from(size));
        offer(link, now, handle, buffers);
    }

    #[test]
    fn packets_arrive_at_the_instants_that_rate_and_delay_give() {
        let (mut link, mut buffers) = link(2);
        for _ in 0..4 {
            send(&mut link, &mut buffers, Time::from_millis(1), 1000);
        }
        // 1000 bytes take 1 ms: one packet is transmitted, two wait, one is dropped.
        let arrivals: Vec<_> =
            std::iter::from_fn(|| arrive(&mut link, Time::from_secs(1), &mut buffers)).collect();
        let at: Vec<f64> = arrivals.iter().map(|arrival| arrival.0.as_millis_f64()).collect();
        assert_eq!(at, [7.0, 8.0, 9.0]);
        let stats = link.read_stats(Time::from_millis(9), &mut buffers);
        assert_eq!((stats.drops.full, stats.sent_packets, stats.busy_ns), (1, 3, 3_000_000));
        // Two packets waited 1 ms, then one waited another.
        assert_eq!(stats.queue_packet_ns, 3_000_000);
        arrivals.iter().for_each(|arrival| buffers.free(arrival.1));
        assert_eq!(buffers.alive(), 0);
    }

    #[test]
    fn a_transmitter_read_late_is_never_less_busy_than_it_was() {
        let (mut link, mut buffers) = link(2);
        // 1 ms each, from 1 ms and from 10 ms on. The reading at 5 ms follows the second enqueue.
        send(&mut link, &mut buffers, Time::from_millis(1), 1000);
        let busy = |link: &mut Link, buffers: &mut Buffers, ms| {
            link.read_stats(Time::from_millis(ms), buffers).busy_ns
        };
        assert_eq!(busy(&mut link, &mut buffers, 0), 0);
        assert_eq!(busy(&mut link, &mut buffers, 3), 1_000_000);
        send(&mut link, &mut buffers, Time::from_millis(10), 1000);
        assert_eq!(busy(&mut link, &mut buffers, 5), 1_000_000);
        assert_eq!(busy(&mut link, &mut buffers, 12), 2_000_000);
        while let Some(arrival) = arrive(&mut link, Time::from_secs(1), &mut buffers) {
            buffers.free(arrival.1);
        }
    }

    #[test]
    fn a_trace_delivers_when_it_says() {
        let (mut link, mut buffers) = link(10);
        link.set_trace(Trace::new(&[2, 4, 4, 10]).unwrap());
        for _ in 0..4 {
            send(&mut link, &mut buffers, Time::from_millis(1), 1500);
        }
        // One opportunity each, and 5 ms of delay. The fifth packet uses the first of the next
        // period.
        send(&mut link, &mut buffers, Time::from_millis(11), 100);
        let arrivals: Vec<_> =
            std::iter::from_fn(|| arrive(&mut link, Time::from_secs(1), &mut buffers)).collect();
        let at: Vec<f64> = arrivals.iter().map(|arrival| arrival.0.as_millis_f64()).collect();
        assert_eq!(at, [7.0, 9.0, 9.0, 15.0, 17.0]);
        arrivals.iter().for_each(|arrival| buffers.free(arrival.1));
    }

    #[test]
    fn a_blackout_takes_everything_and_losses_what_they_are_meant_for() {
        let (mut link, mut buffers) = link(100);
        let faults = || Faults::new(7, 0);
        link.faults(faults).blackout = true;
        send(&mut link, &mut buffers, Time(1), 1000);
        link.faults(faults).blackout = false;
        link.faults(faults).losses =
            vec![Loss { place: LossPlace::After, only: Only::Data, probability: 1.0 }];
        send(&mut link, &mut buffers, Time(2), 1000);
        assert_eq!(arrive(&mut link, Time::from_secs(1), &mut buffers), None);
        let stats = link.read_stats(Time::from_secs(1), &mut buffers);
        assert_eq!((stats.drops.before, stats.drops.after, buffers.alive()), (1, 1, 0));
    }

    proptest! {
        /// Late calls change no instant and no order, and lose or double no packet.
        #[test]
        fn lateness_changes_no_instant(
            sizes in prop::collection::vec((40u16..1500, 0u64..3_000_000), 1..60),
            looks in prop::collection::vec(0u64..20_000_000, 1..20),
        ) {
            let (mut punctual, mut a) = link(1000);
            let (mut late, mut b) = link(1000);
            let (mut now, mut seen, mut late_seen) = (Time::ZERO, Vec::new(), Vec::new());
            for &(size, gap) in &sizes {
                now += Time(gap);
                while punctual.next_arrival() <= now {
                    let at = punctual.next_arrival();
                    seen.extend(arrive(&mut punctual, at, &mut a).map(|arrival| arrival.0));
                }
                send(&mut punctual, &mut a, now, size);
                send(&mut late, &mut b, now, size);
            }
            for look in looks {
                now += Time(look);
                late_seen.extend(std::iter::from_fn(|| arrive(&mut late, now, &mut b)).map(|arrival| arrival.0));
            }
            let end = now + Time::from_secs(10);
            seen.extend(std::iter::from_fn(|| arrive(&mut punctual, end, &mut a)).map(|arrival| arrival.0));
            late_seen.extend(std::iter::from_fn(|| arrive(&mut late, end, &mut b)).map(|arrival| arrival.0));
            prop_assert_eq!(seen.len(), sizes.len());
            prop_assert_eq!(seen, late_seen);
        }
    }
}
