//! Step marking: the switch's side of DCTCP (Alizadeh et al., SIGCOMM 2010, § 3.1; RFC 8257 § 3.1).

use super::{AnyLink, Limit, LinkConfig, LinkLaw, Misfit, Passing, Placement, ThresholdUnit, Verdict};
use crate::config;
use crate::param::{Kind, Tabled, Threshold};
use crate::{Time, Toll};

/// Marks every packet that finds more than the threshold queued. It uses the present queue, not an
/// average: the sender averages.
///
/// Packets that cannot be marked pass, up to the limit of the queue. (A switch that configures RED
/// as a step drops them there, handshakes included: RFC 8257 § 5.1 describes the effect.)
#[derive(Clone, Copy, Debug)]
pub struct Step {
    threshold: f64,
    unit: ThresholdUnit,
}

config! {
    /// The constant of [`Step`], and its factory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct StepConfig in "step", "The constant of step marking, the switch's side of DCTCP (RFC 8257 § 3.1). Packets that can't be marked pass." {
        /// K: packets that find more than this queued are marked. A fraction of the limit, or
        /// packets or bytes.
        threshold: Threshold = Threshold::Packets(20.0), Kind::Threshold,
            from "§ 3.1: their choice at 1 Gb/s; 65 at 10";
    }
}

impl StepConfig {
    /// Builds the law for a queue that holds `limit`.
    pub fn build(&self, limit: Limit) -> Step {
        let (threshold, unit) = self.threshold.under(limit);
        Step { threshold, unit }
    }
}

impl LinkConfig for StepConfig {
    fn word(&self) -> &str {
        Self::TABLE.word
    }

    fn check(&self, at: &Placement<'_>) -> Result<(), Misfit> {
        self.threshold.check("threshold", at.limit)
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        AnyLink::Step(Box::new(self.build(at.limit)))
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
        let mut packets = StepConfig::default().build(Limit::NONE);
        let mut bytes = StepConfig { threshold: Threshold::Bytes(20_000.0) }.build(Limit::NONE);
        for law in [&mut packets, &mut bytes] {
            assert_eq!(verdict(law, 20, true), Verdict::Pass);
            assert_eq!(verdict(law, 21, true), Verdict::Signal);
            assert_eq!(verdict(law, 21, false), Verdict::Pass);
        }
    }
}
