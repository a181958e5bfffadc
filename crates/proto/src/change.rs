//! Changes of a link during a run: one vocabulary for scenario files and both engines.

use tollway_law::{Rate, Time};

use crate::faults::{Impairments, Loss};
use crate::port::Limit;

/// A change of one link direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A new rate, also for the packet in transmission.
    Rate(Rate),
    /// A new one-way delay, for packets that depart from now on.
    Delay(Time),
    /// A new capacity, as configured for the law.
    Capacity(Rate),
    /// A new limit of the queue.
    Limit(Limit),
    /// Random losses, replacing those in effect.
    Losses(Vec<Loss>),
    /// Impairments of the wire, replacing those in effect.
    Wire(Impairments),
    /// True to lose every packet before the queue.
    Blackout(bool),
    /// A relative error of what the law states
    /// ([`LinkLaw::set_error`](tollway_law::link::LinkLaw::set_error)).
    LawError(f64),
}
