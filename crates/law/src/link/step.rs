//! Step marking: the switch's side of DCTCP (Alizadeh et al., SIGCOMM 2010, § 3.1; RFC 8257 § 3.1).

use super::{LinkLaw, Passing, ThresholdUnit, Verdict};
use crate::{Time, Toll};

/// Marks every packet that finds more than the threshold queued. It looks at the queue of this instant, not at a
/// mean: the sender does the averaging.
///
/// Packets that can't be marked pass; what they do to the queue is the limit's business. (A switch that makes the
/// step out of RED drops them there, handshakes included: RFC 8257 § 5.1 says what comes of that.)
#[derive(Clone, Copy, Debug)]
pub struct Step {
    threshold: f64,
    unit: ThresholdUnit,
}

/// The constant of [`Step`], and its factory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepConfig {
    /// K: what may be queued, in `unit`. 20 packets (their choice at 1 Gb/s; 65 at 10).
    pub threshold: f64,
    /// What it counts. Packets.
    pub unit: ThresholdUnit,
}

impl Default for StepConfig {
    fn default() -> StepConfig {
        StepConfig { threshold: 20.0, unit: ThresholdUnit::Packets }
    }
}

impl StepConfig {
    /// The law.
    pub fn build(&self) -> Step {
        Step { threshold: self.threshold, unit: self.unit }
    }
}

impl LinkLaw for Step {
    #[inline]
    fn on_arrival(&mut self, _: Time, packet: Passing, _: &Toll) -> Verdict {
        let queued = match self.unit {
            ThresholdUnit::Packets => f64::from(packet.backlog_packets),
            ThresholdUnit::Bytes => packet.backlog_bytes as f64,
        };
        if packet.ect && queued > self.threshold { Verdict::Signal } else { Verdict::Pass }
    }

    #[inline]
    fn on_departure(&mut self, _: Time, _: Passing, _: &mut Toll) -> Verdict {
        Verdict::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn verdict(law: &mut Step, packets: u32, ect: bool) -> Verdict {
        let packet = Passing { ect, ..Passing::of(Kind::Plain, 1000, packets, u64::from(packets) * 1000) };
        law.on_arrival(Time::ZERO, packet, &Toll::default())
    }

    #[test]
    fn marks_what_finds_more_than_k() {
        let mut packets = StepConfig::default().build();
        let mut bytes = StepConfig { threshold: 20_000.0, unit: ThresholdUnit::Bytes }.build();
        for law in [&mut packets, &mut bytes] {
            assert_eq!(verdict(law, 20, true), Verdict::Pass);
            assert_eq!(verdict(law, 21, true), Verdict::Signal);
            assert_eq!(verdict(law, 21, false), Verdict::Pass);
        }
    }
}
