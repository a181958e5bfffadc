//! The transport's measurements of delivery, for laws that request them (draft-ietf-ccwg-bbr, §
//! 4.1).

use crate::Time;

/// An acknowledgement that newly covers segments, with the delivery state of the one sent last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delivery {
    /// Segments delivered so far (C.delivered), these included.
    pub delivered: u64,
    /// Segments newly covered (RS.newly_acked).
    pub newly_acked: u32,
    /// Segments newly declared lost (RS.newly_lost).
    pub newly_lost: u32,
    /// The round-trip sample, if there is one (RS.rtt).
    pub rtt: Option<Time>,
    /// Delivery rate, segments per second (RS.delivery_rate); 0 if the interval gives no reliable
    /// sample.
    pub rate: f64,
    /// Segments delivered since the segment was sent (RS.delivered).
    pub over: u64,
    /// Segments that had been delivered when it was sent (RS.prior_delivered).
    pub before: u64,
    /// Segments in flight when it was sent, itself included (RS.tx_in_flight).
    pub tx_in_flight: u32,
    /// Segments declared lost since it was sent (RS.lost).
    pub lost: u64,
    /// True if the application, or the law by choice, limited the rate at that time
    /// (RS.is_app_limited).
    pub app_limited: bool,
    /// True while the transport repairs losses.
    pub recovering: bool,
}

/// A segment declared lost, and the state at its transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lost {
    /// Segments delivered so far (C.delivered).
    pub delivered: u64,
    /// Segments in flight when it was sent, itself included (P.tx_in_flight).
    pub tx_in_flight: u32,
    /// Segments declared lost since it was sent, itself included (C.lost − P.lost).
    pub lost: u64,
    /// True if the application limited the rate at that time.
    pub app_limited: bool,
}
