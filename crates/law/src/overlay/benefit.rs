//! The worth of a message to its sender (§ IV-A, "Model of the user", and § IV-B.2).

use serde::{Deserialize, Serialize};

use crate::{Time, words};

words! {
    /// The benefit of a message. A sender pays the message's cost divided by its benefit, so a
    /// benefit acts like a higher salary.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Benefit {
        /// One unit a message: the sum of sending rates is the goal (§ IV-B.2, the paper's choice).
        #[default]
        Messages = "messages",
        /// One unit a receiving daemon: senders to wide groups have an advantage.
        Receivers = "receivers",
        /// The square root of the sender's rate is its utility, so that the benefit falls with it:
        /// no sender starves.
        Concave = "concave",
    }
}

impl Benefit {
    /// The benefit of a message to `receivers` daemons, from a sender whose rate is the part
    /// `share` of its narrowest link's.
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

/// A sender's rate, as a mean over its past with weights that fall by a factor e each second.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: f64,
    since: Time,
}

impl Pace {
    /// A sender that has sent nothing.
    pub fn new(now: Time) -> Pace {
        Pace { rate: 0.0, since: now }
    }

    /// The rate at `now`, bytes/s.
    pub fn at(&self, now: Time) -> f64 {
        self.rate * libm::exp(-now.saturating_sub(self.since).as_secs_f64())
    }

    /// Records that the sender sends `bytes`.
    pub fn add(&mut self, now: Time, bytes: f64) {
        self.rate = self.at(now) + bytes;
        self.since = now;
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
        let mut pace = Pace::new(Time::ZERO);
        (1..=1000).for_each(|step| pace.add(Time::from_millis(10 * step), 100.0));
        assert!((pace.at(Time::from_secs(10)) - 1e4).abs() < 100.0);
        assert!(pace.at(Time::from_secs(20)) < 1.0);
        for share in [0.0, -1.0, f64::NAN, 1e-9] {
            assert_eq!(Benefit::Concave.of(1, share), 16.0);
        }
    }
}
