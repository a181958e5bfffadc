//! What goes wrong on a link.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_proto::{Flags, Gate, Packet};

use crate::network::MachineId;

/// Random loss on a link direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSpec {
    /// Before the port's law sees the packet, or after, on the wire.
    pub place: Place,
    /// Which packets.
    pub only: Direction,
    /// Probability for each packet, independently.
    pub probability: f64,
}

/// Where on a link packets get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On arrival, before queue and law.
    Before,
    /// On the wire, after the law has written.
    After,
}

/// Which packets get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Every packet.
    All,
    /// Packets that carry data.
    Data,
    /// Packets that carry none.
    Acks,
}

/// What goes wrong on a link, and who watches it.
#[derive(Debug)]
pub(crate) struct Faults {
    pub(crate) watch: Option<(MachineId, Gate)>,
    rng: Pcg64Mcg,
    pub(crate) losses: Vec<LossSpec>,
    pub(crate) blackout: bool,
}

impl Faults {
    pub(crate) fn new(seed: u64, link: u32) -> Faults {
        // A stream of its own for each link: losses here don't depend on traffic elsewhere.
        let seed = seed ^ (u64::from(link) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Faults { watch: None, rng: Pcg64Mcg::seed_from_u64(seed), losses: Vec::new(), blackout: false }
    }

    /// Whether `packet` is lost at `place`.
    pub(super) fn strike(&mut self, place: Place, packet: &Packet) -> bool {
        if place == Place::Before && self.blackout {
            return true;
        }
        let data = packet.flags.has(Flags::DATA);
        let mut lost = false;
        for loss in &self.losses {
            let meant = match loss.only {
                Direction::All => true,
                Direction::Data => data,
                Direction::Acks => !data,
            };
            lost |= loss.place == place && meant && self.rng.random::<f64>() < loss.probability;
        }
        lost
    }
}
