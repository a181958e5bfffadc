//! AVQ: the adaptive virtual queue (Kunniyur and Srikant, *Analysis and design of an adaptive
//! virtual queue (AVQ) algorithm for active queue management*, SIGCOMM 2001).

use super::{AnyLink, Limit, LinkConfig, LinkLaw, Misfit, Passing, Placement, ThresholdUnit, Verdict};
use crate::param::{Kind, Tabled, Threshold};
use crate::{Bytes, Rate, Time, Toll, config};

/// Signals arriving packets that would not fit a virtual queue.
///
/// The virtual queue fills with arrivals and drains at a virtual capacity. That capacity adapts to
/// the load so that a share γ of the link is used. The real queue stays short: it holds only
/// momentary bursts.
#[derive(Clone, Debug)]
pub struct Avq {
    gamma: f64,
    alpha: f64,
    /// Link capacity, bytes/s.
    capacity: f64,
    virtual_capacity: f64,
    /// The virtual queue and its limit, bytes.
    queued: f64,
    buffer: f64,
    /// Arrival of the last packet.
    last: Time,
}

config! {
    /// The constants of [`Avq`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct AvqConfig in "avq",
        "The constants of the adaptive virtual queue (Kunniyur and Srikant, 2001)." {
        /// γ: fraction of the capacity to use.
        gamma: f64 = 0.98, Kind::Over { over: 0.0, most: 1.0 }, from "§ 4";
        /// α: gain of the virtual capacity, 1/s. Above the bound of the paper's theorem 1 the loop
        /// is unstable.
        alpha: f64 = 0.15, Kind::Over { over: 0.0, most: 10.0 }, from "§ 4";
        /// Limit of the virtual queue: a fraction of the port's limit, packets of 1500 B, or bytes.
        buffer: Threshold = Threshold::Part(1.0), Kind::Threshold, from "§ 2: that of the real one";
        fixed {
            /// Packet size that converts a limit in packets to bytes.
            packet_size: Bytes = Bytes(1500);
        }
    }
}

impl AvqConfig {
    /// Builds the law for a link of `capacity` whose queue holds `limit`.
    pub fn build(&self, capacity: Rate, limit: Limit) -> Avq {
        let buffer = match self.buffer.under(limit) {
            (packets, ThresholdUnit::Packets) => packets * self.packet_size.0 as f64,
            (bytes, ThresholdUnit::Bytes) => bytes,
        };
        let capacity = capacity.bytes_per_sec();
        Avq {
            gamma: self.gamma,
            alpha: self.alpha,
            capacity,
            virtual_capacity: capacity,
            queued: 0.0,
            buffer,
            last: Time::ZERO,
        }
    }
}

impl LinkConfig for AvqConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn check(&self, at: &Placement<'_>) -> Result<(), Misfit> {
        self.buffer.check("buffer", at.limit)
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        AnyLink::custom(self.build(at.capacity, at.limit))
    }
}

impl Avq {
    /// The capacity of the virtual queue.
    pub fn virtual_capacity(&self) -> Rate {
        Rate::from_bytes_per_sec(self.virtual_capacity)
    }
}

impl LinkLaw for Avq {
    /// The pseudo-code of § 2.
    fn on_arrival(&mut self, now: Time, packet: Passing, _: &Toll) -> Verdict {
        let elapsed = now.saturating_sub(self.last).as_secs_f64();
        let size = f64::from(packet.size);
        self.last = now;
        self.queued = (self.queued - self.virtual_capacity * elapsed).max(0.0);
        let full = self.queued + size > self.buffer;
        if !full {
            self.queued += size;
        }
        let grown = self.virtual_capacity + self.alpha * self.gamma * self.capacity * elapsed;
        self.virtual_capacity = (grown.min(self.capacity) - self.alpha * size).max(0.0);
        if full { Verdict::Signal } else { Verdict::Pass }
    }

    fn on_departure(&mut self, _: Time, _: Passing, _: &mut Toll) -> Verdict {
        Verdict::Pass
    }

    fn set_capacity(&mut self, _: Time, capacity: Rate) {
        self.capacity = capacity.bytes_per_sec();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A link of 1000 packets a second, with a virtual queue of 20.
    fn avq() -> Avq {
        AvqConfig::default().build(Rate::from_mbps(8.0), Limit { packets: u32::MAX, bytes: 20_000 })
    }

    /// Signals of `n` packets of 1000 bytes that come `gap` after each other from `start` on.
    fn signals(law: &mut Avq, start: Time, gap: Time, n: u64) -> u64 {
        let packet = Passing::of(crate::Kind::Plain, 1000, 0, 0);
        let arrivals = (0..n).map(|i| Time(start.0 + i * gap.0));
        arrivals.filter(|&now| law.on_arrival(now, packet, &Toll::default()) == Verdict::Signal).count()
            as u64
    }

    /// On a link of 1 MB/s, with a virtual queue of 3000 bytes.
    fn three_packets(gamma: f64, alpha: f64) -> Avq {
        let config = AvqConfig { gamma, alpha, buffer: Threshold::Bytes(3000.0), ..Default::default() };
        config.build(Rate::from_bytes_per_sec(1e6), Limit::NONE)
    }

    /// The verdict on a packet of 1000 bytes.
    fn arrival(law: &mut Avq, now: Time) -> Verdict {
        law.on_arrival(now, Passing::of(crate::Kind::Plain, 1000, 0, 0), &Toll::default())
    }

    #[test]
    fn what_the_virtual_queue_has_no_room_for_is_marked() {
        let mut law = three_packets(1.0, 0.0);
        let verdicts: Vec<Verdict> = (0..4).map(|_| arrival(&mut law, Time::ZERO)).collect();
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, Verdict::Pass, Verdict::Signal]);
        // A packet's worth has left by then.
        assert_eq!(arrival(&mut law, Time::from_millis(1)), Verdict::Pass);
    }

    #[test]
    fn the_virtual_capacity_rests_at_the_load_aimed_at() {
        let mut law = three_packets(0.8, 0.1);
        law.virtual_capacity = 5e5;
        // 0.8 MB/s, then 1 MB/s: it falls by α (1 − 0.8) C in a second.
        (1..=800).for_each(|i| _ = arrival(&mut law, Time::from_micros(1250 * i)));
        assert!((law.virtual_capacity - 5e5).abs() < 1.0, "{}", law.virtual_capacity);
        (1001..=2000).for_each(|i| _ = arrival(&mut law, Time::from_millis(i)));
        assert!((law.virtual_capacity - 4.8e5).abs() < 1.0, "{}", law.virtual_capacity);
    }

    #[test]
    fn a_load_under_gamma_is_left_alone() {
        let mut law = avq();
        assert_eq!(signals(&mut law, Time::ZERO, Time::from_micros(1030), 20_000), 0);
    }

    #[test]
    fn a_full_link_is_signalled_though_it_keeps_up() {
        let mut law = avq();
        let gap = Time::from_millis(1);
        // The virtual capacity falls by α·(1 − γ) of C a second: twenty packets are too many after
        // 3.7 s.
        assert_eq!(signals(&mut law, Time::ZERO, gap, 2_000), 0);
        assert!(signals(&mut law, Time::from_secs(2), gap, 100_000) > 1_000);
        assert!(law.virtual_capacity() < Rate::from_mbps(8.0));
    }

    #[test]
    fn a_bound_in_packets_is_one_of_so_many_full_ones() {
        let limit = Limit { packets: 10, bytes: u64::MAX };
        for (buffer, bytes) in [
            (Threshold::Part(0.5), 7_500.0),
            (Threshold::Packets(4.0), 6_000.0),
            (Threshold::Bytes(5_000.0), 5_000.0),
        ] {
            assert_eq!(AvqConfig { buffer, ..Default::default() }.build(Rate::ZERO, limit).buffer, bytes);
        }
        let parts = AvqConfig::default();
        let nowhere = Placement::of(Rate::from_mbps(1.0));
        assert_eq!(parts.check(&nowhere).unwrap_err().field, "buffer");
        assert!(parts.check(&Placement { limit, ..nowhere }).is_ok());
    }

    proptest! {
        /// Whatever comes, the virtual capacity is between nothing and the link's, and the virtual
        /// queue within its bound.
        #[test]
        fn the_virtual_queue_stays_in_bounds(
            steps in proptest::collection::vec((0_u64..50_000_000, 40_u32..9000), 1..300),
            alpha in 0.001_f64..10.0,
        ) {
            let mut law = AvqConfig { alpha, ..Default::default() }
                .build(Rate::from_mbps(8.0), Limit { packets: 20, bytes: u64::MAX });
            let mut now = Time::ZERO;
            for (gap, size) in steps {
                now = Time(now.0 + gap);
                law.on_arrival(now, Passing::of(crate::Kind::Plain, size, 0, 0), &Toll::default());
                prop_assert!((0.0..=law.capacity).contains(&law.virtual_capacity), "{law:?}");
                prop_assert!((0.0..=law.buffer).contains(&law.queued), "{law:?}");
            }
        }
    }
}
