//! Receiver laws: what of the tolls that arrived goes back to the sender.

use crate::Toll;

/// XCP's receiver (draft-falk-xcp-spec-03 § 4.2): the sum of the feedback that came since the last packet back,
/// so that a delayed acknowledgement loses none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FeedbackSum {
    sum: f64,
    pending: bool,
}

impl FeedbackSum {
    /// A tolled packet arrived.
    #[inline]
    pub fn on_data(&mut self, toll: &Toll) {
        self.sum += toll.due;
        self.pending = true;
    }

    /// What the next packet back carries, and nothing if no tolled packet has arrived since the last one.
    #[inline]
    pub fn take(&mut self) -> Option<f32> {
        let sum = std::mem::take(&mut self.sum);
        std::mem::take(&mut self.pending).then_some(sum as f32)
    }
}
