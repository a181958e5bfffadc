//! Receiver laws: what of the tolls that arrived goes back to the sender.

use crate::Toll;

/// Which of what arrived since the last packet back is echoed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echo {
    /// The sum, so that a delayed acknowledgement loses none: XCP's changes (draft-falk-xcp-spec-03 § 4.2).
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
    value: f64,
}

impl Feedback {
    /// A law that echoes so.
    pub fn new(echo: Echo) -> Feedback {
        Feedback { echo, ..Feedback::default() }
    }

    /// A tolled packet arrived.
    #[inline]
    pub fn on_data(&mut self, toll: &Toll) {
        self.value = match self.echo {
            Echo::Sum => self.value + toll.due,
            Echo::Latest => toll.due,
        };
        self.pending = true;
    }

    /// What the next packet back carries, and nothing if no tolled packet has arrived since the last one.
    #[inline]
    pub fn take(&mut self) -> Option<f32> {
        let value = std::mem::take(&mut self.value);
        std::mem::take(&mut self.pending).then_some(value as f32)
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
}
