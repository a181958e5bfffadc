//! What happens on the way.

use super::*;

/// Something that happens on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A link gets another rate.
    Rate(LinkId, Rate),
    /// A link gets another delay, for packets that leave from now on.
    Delay(LinkId, Time),
    /// A link gets another probability of loss.
    Loss(LinkId, f64),
    /// A link's law is told another capacity.
    Capacity(LinkId, Rate),
    /// A link's queue gets another limit.
    Limit(LinkId, Limit),
    /// Until the given instant everything put on this wire is lost.
    Blackout(LinkId, Time),
    /// The law of a link is wrong by this part of its price.
    PriceError(LinkId, f64),
    /// A flow without a host may spend so much, $/s.
    FlowBudget(FlowId, f64),
    /// A host, by its index, may spend so much, $/s.
    HostBudget(usize, f64),
    /// A host, by its index, divides its budget otherwise.
    HostStrategy(usize, Strategy),
    /// A flow's receiver gets another buffer, packets as in [`Flow::receive_buffer`].
    ReceiveBuffer(FlowId, u32),
}

/// Random loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Where.
    pub link: LinkId,
    /// How likely.
    pub probability: f64,
    /// On which side of the port.
    pub place: Place,
    /// From this instant.
    pub from: Time,
    /// Until this one; [`Time::NEVER`] for good.
    pub until: Time,
    /// Which packets.
    pub only: Only,
}

/// On which side of a port packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the queue and its law see them.
    Before,
    /// On the wire.
    After,
}

/// Which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Any.
    All,
    /// Those with data.
    Data,
    /// Those without.
    Ack,
}
