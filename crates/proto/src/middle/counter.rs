//! The frame counter: the smallest middle, on ordinary routes.

use tollway_law::Time;

use super::{Gate, Middle, Passed};
use crate::{Flags, Packet, SackRanges};

/// Counts the packets and the whole frames that pass its node. It changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Packets seen.
    pub packets: u64,
    /// Frames whose last segment was seen, retransmissions left out.
    pub frames: u64,
}

impl Middle for Counter {
    fn pass(&mut self, _: Time, _: Gate, packet: &mut Packet, _: &mut SackRanges) -> Passed {
        self.packets += 1;
        let fresh = packet.flags.has(Flags::DATA.with(Flags::LAST)) && !packet.flags.has(Flags::RETRANSMIT);
        self.frames += u64::from(fresh);
        Passed::Onward
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_counts_once_at_its_last_segment() {
        let mut counter = Counter::default();
        let last = Flags::DATA.with(Flags::LAST);
        for flags in [Flags::ACK, Flags::DATA.with(Flags::FIRST), last, last.with(Flags::RETRANSMIT)] {
            let mut packet = Packet { flags, seq: 3, ..Packet::default() };
            let before = packet;
            let passed = counter.pass(Time::ZERO, Gate(0), &mut packet, &mut SackRanges::EMPTY.clone());
            assert_eq!((passed, packet), (Passed::Onward, before));
        }
        assert_eq!(counter, Counter { packets: 4, frames: 1 });
    }
}
