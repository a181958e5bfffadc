//! Changes of a link while a run is on: one vocabulary for scenario files and both engines.

use tollway_law::{Rate, Time};

use crate::faults::{Impairments, Loss};
use crate::port::Limit;

/// A change of one link direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Another rate, also for the packet in transmission.
    Rate(Rate),
    /// Another one-way delay, for packets that depart from now on.
    Delay(Time),
    /// Another capacity, as configured for the law.
    Capacity(Rate),
    /// Another limit of the queue.
    Limit(Limit),
    /// Random losses, in place of those in effect.
    Losses(Vec<Loss>),
    /// Impairments of the wire, in place of those in effect.
    Wire(Impairments),
    /// Whether every packet is lost before the queue.
    Blackout(bool),
    /// A relative error of what the law states ([`LinkLaw::set_error`](tollway_law::link::LinkLaw::set_error)).
    LawError(f64),
}
