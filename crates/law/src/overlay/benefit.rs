//! What a message is worth to its sender (§ IV-A, "Model of the user", and § IV-B.2).

use serde::{Deserialize, Serialize};

/// The benefit of a message. A sender pays a message's cost divided by its benefit, as one with so much more salary would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Benefit {
    /// One unit a message: the sum of sending rates is the goal (§ IV-B.2, the paper's choice).
    #[default]
    Messages,
    /// One unit a receiving daemon: senders to wide groups have an advantage.
    Receivers,
    /// The square root of the sender's rate is its utility, so that the benefit falls with it: no sender starves.
    Concave,
}

impl Benefit {
    /// The benefit of a message to `receivers` daemons, from a sender whose rate is the part `share` of its narrowest link's.
    ///
    /// At least 1. A concave benefit is share^(−½), at most 16.
    pub fn of(self, receivers: usize, share: f64) -> f64 {
        match self {
            Benefit::Messages => 1.0,
            Benefit::Receivers => receivers.max(1) as f64,
            Benefit::Concave if share > 0.0 => (1.0 / share.sqrt()).clamp(1.0, MOST_CONCAVE),
            Benefit::Concave => MOST_CONCAVE,
        }
    }
}

/// The benefit of a first message under a concave utility.
const MOST_CONCAVE: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_goal_weighs_what_it_names() {
        assert_eq!(Benefit::Messages.of(7, 0.1), 1.0);
        assert_eq!(Benefit::Receivers.of(7, 0.1), 7.0);
        assert_eq!(Benefit::Receivers.of(0, 0.1), 1.0);
        assert_eq!(Benefit::Concave.of(7, 0.25), 2.0);
        assert_eq!(Benefit::Concave.of(1, 4.0), 1.0);
        for share in [0.0, -1.0, f64::NAN, 1e-9] {
            assert_eq!(Benefit::Concave.of(1, share), 16.0);
        }
    }
}
