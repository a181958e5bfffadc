//! A log of an explicit law's control intervals.

use tollway_law::Time;
use tollway_law::link::{AnyLink, LinkLaw};

use crate::{Flags, Packet};

/// A control interval of a link's law in which tolled packets left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControlInterval {
    /// Start of the interval.
    pub begins: Time,
    /// End of the interval.
    pub ends: Time,
    /// The aggregate feedback to give in the interval, bytes/s.
    pub feedback: f64,
    /// The mean round-trip time of the law, s.
    pub avg_rtt: f64,
    /// The law's persistent queue when the first packet left, bytes.
    pub persistent_queue: u64,
    /// Tolled packets that left.
    pub packets: u64,
    /// The sum over those packets of their feedback as a change of window: due · RTT / size,
    /// packets.
    pub packet_feedback: f64,
}

/// Collects [`ControlInterval`]s of one link until they are read; an engine records each departing
/// packet.
#[derive(Debug, Default)]
pub struct ControlLog {
    /// The number of the present interval.
    number: Option<u64>,
    now: ControlInterval,
    ended: Vec<ControlInterval>,
}

impl ControlLog {
    /// Records the departure of `packet`, after `law` wrote into its toll.
    #[inline]
    pub fn note(&mut self, law: &AnyLink, packet: &Packet) {
        if !packet.flags.has(Flags::TOLLED) {
            return;
        }
        let number = law.control_intervals();
        if self.number != Some(number) {
            self.turn(law, number);
        }
        let window_bytes = packet.toll.due * f64::from(packet.toll.rtt);
        self.now.packets += 1;
        self.now.packet_feedback += window_bytes / f64::from(packet.size.max(1));
    }

    #[cold]
    fn turn(&mut self, law: &AnyLink, number: u64) {
        if self.now.packets > 0 {
            self.ended.push(self.now);
        }
        self.number = Some(number);
        self.now = law.control().map_or(ControlInterval::default(), |control| ControlInterval {
            begins: control.begins,
            ends: control.ends,
            feedback: control.feedback,
            avg_rtt: control.avg_rtt,
            persistent_queue: control.persistent_queue,
            packets: 0,
            packet_feedback: 0.0,
        });
    }

    /// The intervals that ended since the last call. An interval counts as ended once a packet of a
    /// later one has left.
    pub fn take(&mut self) -> Vec<ControlInterval> {
        std::mem::take(&mut self.ended)
    }
}
