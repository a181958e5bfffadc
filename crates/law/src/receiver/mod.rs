//! Receiver laws: the echo of received tolls to the sender, and the drain rate of the receive
//! buffer ([`soft`]).

pub mod soft;

use crate::Toll;

/// The rule that reduces all tolls since the last returned packet to one echo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echo {
    /// The sum, so that a delayed acknowledgement loses none: XCP's changes (draft-falk-xcp-spec-03
    /// § 4.2).
    #[default]
    Sum,
    /// The latest value: FCP's price, RCP's rate.
    Latest,
}

/// A receiver's law: holds the echo until a packet returns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Feedback {
    echo: Echo,
    pending: bool,
    /// Number of routers on the way from the other side, from the time-to-live in IP's header.
    passed: u8,
    /// True if some routers that the last toll passed did not speak XCP.
    gap: bool,
    value: f64,
}

impl Feedback {
    /// A law with this echo rule.
    pub fn new(echo: Echo) -> Feedback {
        Feedback { echo, ..Feedback::default() }
    }

    /// Sets the number of routers that each received packet has passed.
    pub fn set_passed(&mut self, routers: u8) {
        self.passed = routers;
    }

    /// Records a received tolled packet.
    #[inline]
    pub fn on_data(&mut self, toll: &Toll) {
        self.gap = toll.routers().is_some_and(|spoke| spoke < self.passed);
        self.value = match self.echo {
            Echo::Sum => self.value + toll.due,
            Echo::Latest => toll.due,
        };
        self.pending = true;
    }

    /// The echo of the next returned packet; `None` if no tolled packet has arrived since the last
    /// one.
    #[inline]
    pub fn take(&mut self) -> Option<f32> {
        let value = std::mem::take(&mut self.value);
        std::mem::take(&mut self.pending).then_some(value as f32)
    }

    /// True if a tolled packet has arrived since the last returned packet.
    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// True if the last toll counted routers, and fewer of them spoke XCP than are on the way.
    #[inline]
    pub fn gap(&self) -> bool {
        self.gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_the_sum_or_the_latest_once() {
        let toll = |due| Toll { due, ..Toll::default() };
        for (echo, expected) in [(Echo::Sum, 5.0), (Echo::Latest, 3.0)] {
            let mut law = Feedback::new(echo);
            assert_eq!(law.take(), None);
            law.on_data(&toll(2.0));
            law.on_data(&toll(3.0));
            assert_eq!(law.take(), Some(expected));
            assert_eq!(law.take(), None);
        }
    }

    #[test]
    fn a_gap_is_a_router_that_passed_and_did_not_speak() {
        let mut law = Feedback::default();
        law.set_passed(2);
        let mut toll = Toll::default();
        law.on_data(&toll);
        assert!(!law.gap(), "nothing was counted");
        toll.count_routers();
        for gap in [true, true, false, false] {
            law.on_data(&toll);
            assert_eq!(law.gap(), gap);
            toll.pass_router();
        }
    }
}
