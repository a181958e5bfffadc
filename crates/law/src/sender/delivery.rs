//! What a transport measures of delivery, for laws that want it (draft-ietf-ccwg-bbr, § 4.1).

use crate::Time;

/// An acknowledgement that covered segments newly, with what is known of the delivery of the one of
/// them sent last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delivery {
    /// Segments delivered so far (C.delivered), these included.
    pub delivered: u64,
    /// Segments newly covered (RS.newly_acked).
    pub newly_acked: u32,
    /// Segments newly taken for lost (RS.newly_lost).
    pub newly_lost: u32,
    /// The round-trip sample, if there is one (RS.rtt).
    pub rtt: Option<Time>,
    /// Segments a second (RS.delivery_rate); 0 if this interval tells nothing reliable.
    pub rate: f64,
    /// Segments delivered since the segment was sent (RS.delivered).
    pub over: u64,
    /// Segments that had been delivered when it was sent (RS.prior_delivered).
    pub before: u64,
    /// Segments in flight when it was sent, itself included (RS.tx_in_flight).
    pub tx_in_flight: u32,
    /// Segments taken for lost since it was sent (RS.lost).
    pub lost: u64,
    /// Whether the application, or the law by its own will, was what limited the rate then
    /// (RS.is_app_limited).
    pub app_limited: bool,
    /// Whether the transport is repairing losses.
    pub recovering: bool,
}

/// A segment taken for lost, and the state when it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lost {
    /// Segments delivered so far (C.delivered).
    pub delivered: u64,
    /// Segments in flight when it was sent, itself included (P.tx_in_flight).
    pub tx_in_flight: u32,
    /// Segments taken for lost since it was sent, itself included (C.lost − P.lost).
    pub lost: u64,
    /// Whether the application was what limited the rate then.
    pub app_limited: bool,
}
