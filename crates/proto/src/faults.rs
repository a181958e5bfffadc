//! Faults of a link: random loss and blackouts, the same in both engines.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{Flags, Packet};

/// Random loss on a link direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The side of the port.
    pub place: Place,
    /// The packets concerned.
    pub only: Only,
    /// Probability for each packet, independently.
    pub probability: f64,
}

impl Loss {
    /// Loss of any packet on the wire; `None` if it never happens.
    pub fn on_wire(probability: f64) -> Option<Loss> {
        (probability > 0.0).then_some(Loss { place: Place::After, only: Only::All, probability })
    }
}

/// The side of a port where packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On arrival, before queue and law.
    Before,
    /// On the wire, after the law has written.
    After,
}

/// The packets that a [`Loss`] concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Every packet.
    All,
    /// Packets that carry data.
    Data,
    /// Packets that carry none.
    Ack,
}

/// The faults of one link direction, with a random stream of its own.
#[derive(Clone, Debug)]
pub struct Faults {
    rng: Pcg64Mcg,
    /// Losses in effect.
    pub losses: Vec<Loss>,
    /// Every packet is lost before the queue.
    pub blackout: bool,
}

impl Faults {
    /// No faults yet, on link number `link` of a network with this seed. Losses here do not depend on traffic elsewhere.
    pub fn new(seed: u64, link: u32) -> Faults {
        let seed = seed ^ (u64::from(link) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Faults { rng: Pcg64Mcg::seed_from_u64(seed), losses: Vec::new(), blackout: false }
    }

    /// Whether `packet` is lost at `place`.
    pub fn strike(&mut self, place: Place, packet: &Packet) -> bool {
        if place == Place::Before && self.blackout {
            return true;
        }
        let data = packet.flags.has(Flags::DATA);
        let mut lost = false;
        for loss in &self.losses {
            let meant = match loss.only {
                Only::All => true,
                Only::Data => data,
                Only::Ack => !data,
            };
            lost |= loss.place == place && meant && self.rng.random::<f64>() < loss.probability;
        }
        lost
    }
}
