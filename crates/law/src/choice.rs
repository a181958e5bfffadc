//! Which of two classes of traffic a sender is better off in, by what it makes of rate and delay
//! (the FCP report, § 4.2, "Network and end-point evolution", after Paris Metro Pricing).
//!
//! A class that goes first and costs more is for those to whom the delay matters. Who that is
//! depends on the load, which a sender learns by being there: a [`Chooser`] stays where it is,
//! tries the other class for a few round trips now and then, and stays there if that was better.
//! What is better is its [`Utility`]'s affair; one's own is a type with one method:
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

/// What a sender makes of what it gets: more is better.
pub trait Utility {
    /// Of a `rate` at a queueing delay of `delay`.
    fn of(&self, rate: Rate, delay: Time) -> f64;
}

/// ln rate − delay/patience: waiting for so long is as bad as a rate e times smaller. At k times
/// the price, a class in which nothing waits is better for whom a wait of D in the other one is
/// more than patience · ln k.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience(pub Time);

impl Utility for Patience {
    fn of(&self, rate: Rate, delay: Time) -> f64 {
        let patience = self.0.as_secs_f64().max(1e-9);
        libm::log(rate.bytes_per_sec().max(1e-9)) - delay.as_secs_f64() / patience
    }
}

/// Chooses between no class of its own and one, by trial.
#[derive(Clone, Debug)]
pub struct Chooser<U> {
    utility: U,
    in_class: bool,
    /// What was made of where it stays, while it tries the other.
    here: Option<f64>,
    /// Whether its round-trip time is known since a stay began.
    begun: bool,
    next: Time,
}

impl<U: Utility> Chooser<U> {
    /// It begins outside the class.
    pub fn new(utility: U) -> Chooser<U> {
        Chooser { utility, in_class: false, here: None, begun: false, next: Time::ZERO }
    }

    /// Whether its packets are of the class.
    pub fn in_class(&self) -> bool {
        self.in_class
    }

    /// Whether the class is where it stays, trials left out.
    pub fn settled_in_class(&self) -> bool {
        self.in_class != self.here.is_some()
    }

    /// When to look next.
    pub fn poll_timeout(&self) -> Time {
        self.next
    }

    /// It gets `rate` at a queueing delay of `delay` where it is now, the round trip being `rtt`,
    /// zero while nothing is known of it. Answers whether it is in another class from now on.
    pub fn look(&mut self, now: Time, rate: Rate, delay: Time, rtt: Time) -> bool {
        if now < self.next {
            return false;
        }
        if rtt == Time::ZERO {
            self.next = now.saturating_add(UNKNOWN);
            return false;
        }
        if !self.begun {
            // What is new has not yet seen what it gets.
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
                // What is no number is not better.
                let better = worth > here + MARGIN;
                (!better, STAY)
            }
        };
        self.in_class ^= moves;
        self.next = now.saturating_add(rtt * rounds);
        moves
    }
}

/// How long it stays, and how long a trial takes, in round trips. A flow that comes has its rate
/// after four of them, and the queue that it makes by coming is gone after eight or so.
const STAY: u64 = 96;
const TRIAL: u64 = 16;
/// What is hardly better is not worth the move.
const MARGIN: f64 = 0.05;
/// When to look again at what has no round-trip time yet.
const UNKNOWN: Time = Time::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a sender is settled after 20 s, when the class costs `times` as much and standard
    /// traffic waits for `wait(t)` ms.
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
