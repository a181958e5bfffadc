//! The choice between two classes of traffic, by the utility of rate and delay (the FCP report, §
//! 4.2, "Network and end-point evolution", after Paris Metro Pricing).
//!
//! A class with priority costs more, and pays for senders that are sensitive to delay. Whether it
//! does depends on the load, which a sender can only measure inside the class. So a [`Chooser`]
//! keeps its class, tries the other one for a few round trips now and then, and moves if the trial
//! was better. A [`Utility`] makes the comparison; a new one is a type with one method:
//!
//! ```
//! use tollway_law::choice::{Chooser, Utility};
//! use tollway_law::{Rate, Time};
//!
//! /// A voice: a megabit is enough, and nothing may wait for more than 20 ms.
//! struct Voice;
//!
//! impl Utility for Voice {
//!     fn of(&self, rate: Rate, delay: Time) -> f64 {
//!         if rate.mbps() >= 1.0 && delay <= Time::from_millis(20) { 1.0 } else { 0.0 }
//!     }
//! }
//!
//! let rtt = Time::from_millis(40);
//! let mut chooser = Chooser::new(Voice);
//! let mut now = Time::ZERO;
//! // 5 Mb/s that wait for 30 ms here, 2 Mb/s that wait for nothing there.
//! while now < Time::from_secs(20) {
//!     let there = chooser.in_class();
//!     let (mbps, delay) = if there { (2.0, 0) } else { (5.0, 30) };
//!     chooser.look(now, Rate::from_mbps(mbps), Time::from_millis(delay), rtt);
//!     now = chooser.poll_timeout();
//! }
//! assert!(chooser.settled_in_class());
//! ```

use crate::{Rate, Time};

/// The utility of a rate and a delay to a sender; larger is better.
pub trait Utility {
    /// The utility of `rate` at a queueing delay of `delay`.
    fn of(&self, rate: Rate, delay: Time) -> f64;
}

/// The utility ln rate − delay/patience: a delay of `patience` is as bad as a rate e times smaller.
///
/// Suppose a class without queueing costs k times the price. It is better wherever the wait in the
/// other class exceeds patience · ln k.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience(pub Time);

impl Utility for Patience {
    fn of(&self, rate: Rate, delay: Time) -> f64 {
        let patience = self.0.as_secs_f64().max(1e-9);
        libm::log(rate.bytes_per_sec().max(1e-9)) - delay.as_secs_f64() / patience
    }
}

/// Chooses between the default class and one other class, by trial.
#[derive(Clone, Debug)]
pub struct Chooser<U> {
    utility: U,
    in_class: bool,
    /// The utility of its class, measured before a trial of the other one.
    here: Option<f64>,
    /// True once a round-trip time is known in the present stay.
    begun: bool,
    next: Time,
}

impl<U: Utility> Chooser<U> {
    /// A chooser in the default class.
    pub fn new(utility: U) -> Chooser<U> {
        Chooser { utility, in_class: false, here: None, begun: false, next: Time::ZERO }
    }

    /// True if its packets are in the other class now, trials included.
    pub fn in_class(&self) -> bool {
        self.in_class
    }

    /// True if the other class is its choice, trials not counted.
    pub fn settled_in_class(&self) -> bool {
        self.in_class != self.here.is_some()
    }

    /// The next time to call [`look`](Chooser::look).
    pub fn poll_timeout(&self) -> Time {
        self.next
    }

    /// Records a `rate` at a queueing delay of `delay` in the present class. `rtt` is the round
    /// trip, zero while unknown. Returns true if the class changes now.
    pub fn look(&mut self, now: Time, rate: Rate, delay: Time, rtt: Time) -> bool {
        if now < self.next {
            return false;
        }
        if rtt == Time::ZERO {
            self.next = now.saturating_add(UNKNOWN);
            return false;
        }
        if !self.begun {
            // A new stay has no measurements yet.
            self.begun = true;
            self.next = now.saturating_add(rtt * STAY);
            return false;
        }
        let worth = self.utility.of(rate, delay);
        let (moves, rounds) = match self.here {
            None => {
                self.here = Some(worth);
                (true, TRIAL)
            }
            Some(here) => {
                self.here = None;
                // NaN is not better.
                let better = worth > here + MARGIN;
                (!better, STAY)
            }
        };
        self.in_class ^= moves;
        self.next = now.saturating_add(rtt * rounds);
        moves
    }
}

/// Lengths of a stay and of a trial, in round trips. A new flow reaches its rate after four, and
/// the queue from its start is gone after about eight.
const STAY: u64 = 96;
const TRIAL: u64 = 16;
/// A gain below this is not worth a move.
const MARGIN: f64 = 0.05;
/// Time until the next look while the round-trip time is unknown.
const UNKNOWN: Time = Time::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// The class of a sender after 20 s, when the class costs `times` as much and standard traffic
    /// waits for `wait(t)` ms.
    fn settled(patience_ms: f64, times: f64, until: f64, wait: impl Fn(f64) -> f64) -> bool {
        let mut chooser = Chooser::new(Patience(Time::from_secs_f64(patience_ms * 1e-3)));
        let mut now = Time::ZERO;
        while now.as_secs_f64() < until {
            let (mbps, delay) = match chooser.in_class() {
                true => (30.0 / times, 0.0),
                false => (30.0, wait(now.as_secs_f64()) * 1e-3),
            };
            chooser.look(now, Rate::from_mbps(mbps), Time::from_secs_f64(delay), Time::from_millis(40));
            assert!(chooser.poll_timeout() > now);
            now = chooser.poll_timeout();
        }
        chooser.settled_in_class()
    }

    #[test]
    fn moves_where_the_wait_is_worth_more_than_the_rate() {
        for times in [2.0, 10.0] {
            let indifferent = 3.0 * libm::log(times);
            assert!(!settled(3.0, times, 20.0, |_| indifferent * 0.9));
            assert!(settled(3.0, times, 20.0, |_| indifferent * 1.1));
        }
    }

    #[test]
    fn moves_back_when_the_wait_is_over() {
        let wait = |t| if t < 10.0 { 20.0 } else { 1.0 };
        assert!(settled(3.0, 10.0, 10.0, wait));
        assert!(!settled(3.0, 10.0, 16.0, wait));
    }

    #[test]
    fn what_knows_nothing_yet_tries_nothing() {
        let mut chooser = Chooser::new(Patience(Time::from_millis(3)));
        let mut now = Time::ZERO;
        while now < Time::from_millis(200) {
            assert!(!chooser.look(now, Rate::ZERO, Time::ZERO, Time::ZERO));
            now = chooser.poll_timeout();
        }
        // From its first round trip on it stays for as long as ever.
        assert!(!chooser.look(now, Rate::from_mbps(1.0), Time::ZERO, Time::from_millis(10)));
        assert_eq!(chooser.poll_timeout(), now + Time::from_millis(960));
    }
}
