//! Receiver laws: what of the tolls that arrived goes back to the sender, and how fast its buffer
//! drains ([`soft`]).

pub mod soft;

use crate::Toll;

/// Which of what arrived since the last packet back is echoed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echo {
    /// The sum, so that a delayed acknowledgement loses none: XCP's changes (draft-falk-xcp-spec-03
    /// § 4.2).
    #[default]
    Sum,
    /// The latest: FCP's price, RCP's rate.
    Latest,
}

/// A receiver's law: keeps what has to be echoed until a packet goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Feedback {
    echo: Echo,
    pending: bool,
    /// Routers that the other side's packets pass, as the time-to-live in IP's header tells.
    passed: u8,
    /// Of those that the last toll passed, some did not speak XCP.
    gap: bool,
    value: f64,
}

impl Feedback {
    /// A law that echoes so.
    pub fn new(echo: Echo) -> Feedback {
        Feedback { echo, ..Feedback::default() }
    }

    /// Each packet that comes has passed so many routers.
    pub fn set_passed(&mut self, routers: u8) {
        self.passed = routers;
    }

    /// A tolled packet arrived.
    #[inline]
    pub fn on_data(&mut self, toll: &Toll) {
        self.gap = toll.routers().is_some_and(|spoke| spoke < self.passed);
        self.value = match self.echo {
            Echo::Sum => self.value + toll.due,
            Echo::Latest => toll.due,
        };
        self.pending = true;
    }

    /// What the next packet back carries, and nothing if no tolled packet has arrived since the
    /// last one.
    #[inline]
    pub fn take(&mut self) -> Option<f32> {
        let value = std::mem::take(&mut self.value);
        std::mem::take(&mut self.pending).then_some(value as f32)
    }

    /// Whether a tolled packet has arrived since the last packet back.
    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// Whether the last toll, if it counted them, met fewer XCP routers than there are routers on
    /// the way.
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
