//! FCP senders that lie or do not obey (the FCP report, CMU-CS-12-125, § 5, § 6.1.3): what meters are there to find.

use super::{Acked, Fcp, Flight, SenderLaw};
use crate::{Budget, Rate, Time, Toll};

/// An FCP sender that cheats: FCP's, but for one thing.
#[derive(Clone, Debug)]
pub struct FcpCheat {
    law: Fcp,
    trick: FcpTrick,
    when: CheatTimes,
    /// What it may spend by right.
    budget: Budget,
    /// It has announced all it could and says nothing more.
    silent: bool,
}

/// What an FCP cheat does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FcpTrick {
    /// States a balance so many times smaller than it pays by.
    UnderstateBalance(f64),
    /// Spends so many times its budget, as if it had it.
    Overspend(f64),
    /// Announces with each packet this many times, less one, what it pays, and never spends it.
    OverPreload(f64),
    /// Takes back with each packet what it pays, less so many times less, and goes on paying.
    FalseLeave(f64),
    /// Announces its whole budget and falls silent (figure 13).
    Vanish,
}

/// When a cheat cheats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheatTimes {
    /// From then on,
    pub from: Time,
    /// for the first span, being honest for the second, and so on; `None` is always.
    pub on_off: Option<(Time, Time)>,
}

impl CheatTimes {
    fn is(&self, now: Time) -> bool {
        let Some((on, off)) = self.on_off else { return now >= self.from };
        now >= self.from && now.saturating_sub(self.from).0 % (on.0 + off.0).max(1) < on.0
    }
}

impl FcpCheat {
    /// `law`, which plays `trick` at such times.
    pub fn new(law: Fcp, trick: FcpTrick, when: CheatTimes) -> FcpCheat {
        FcpCheat { budget: law.budget(), law, trick, when, silent: false }
    }
}

impl SenderLaw for FcpCheat {
    fn window(&self) -> f64 {
        if self.silent { 0.0 } else { self.law.window() }
    }

    fn pacing_rate(&self, flight: &Flight) -> Option<Rate> {
        self.law.pacing_rate(flight)
    }

    fn tolled(&self) -> bool {
        self.law.tolled()
    }

    fn tolls_first(&self) -> bool {
        self.law.tolls_first()
    }

    fn write_toll(&mut self, flight: &Flight, toll: &mut Toll) {
        let cheats = self.when.is(flight.now);
        if let FcpTrick::Overspend(factor) = self.trick {
            let budget = self.budget.get() * if cheats { factor } else { 1.0 };
            if self.law.budget().get() != budget {
                self.law.set_budget(Budget::per_sec(budget));
            }
        }
        self.law.write_toll(flight, toll);
        if !cheats || toll.rtt == 0.0 {
            return;
        }
        match self.trick {
            FcpTrick::UnderstateBalance(factor) => {
                toll.stake = (f64::from(toll.stake) / factor) as f32;
                // What it announces is to be believed.
                toll.offer = (f64::from(toll.offer) * factor) as f32;
            }
            FcpTrick::Overspend(_) => {}
            FcpTrick::OverPreload(factor) => toll.offer = (f64::from(toll.offer) + factor - 1.0) as f32,
            FcpTrick::FalseLeave(factor) => {
                toll.offer = (f64::from(toll.offer) - 1.0 + 1.0 / factor).max(-1.0) as f32;
            }
            FcpTrick::Vanish => self.silent = self.law.committed() >= self.budget.get() * NEARLY,
        }
    }

    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        self.law.on_ack(flight, acked);
    }

    fn on_loss(&mut self, flight: &Flight) {
        self.law.on_loss(flight);
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        self.law.on_timeout(flight, first);
    }
}

/// What counts as the whole budget.
const NEARLY: f64 = 0.999;

#[cfg(test)]
mod tests {
    use super::super::FcpConfig;
    use super::super::testing::{acked, flight};
    use super::*;

    const RTT: Time = Time::from_millis(100);

    /// What the first packet of data says at `now`, of a flow that has all of its budget.
    fn says(trick: FcpTrick, now: Time, on_off: Option<(Time, Time)>) -> Toll {
        let mut law = FcpConfig::default().build();
        law.write_toll(&Flight { srtt: Time::ZERO, size: 40, ..flight(Time::ZERO, 0) }, &mut Toll::default());
        let heard = Acked { rtt: Some(RTT), echo: Some(1e-5), ..acked(0) };
        let mut law = FcpCheat::new(law, trick, CheatTimes { from: Time::from_secs(1), on_off });
        law.on_ack(&flight(RTT, 0), &heard);
        let mut toll = Toll::default();
        law.write_toll(&flight(now, 0), &mut toll);
        toll
    }

    #[test]
    fn tricks_are_what_they_say_and_when() {
        let (before, after) = (Time::from_millis(900), Time::from_millis(1100));
        for (trick, stake, offer) in [
            (FcpTrick::UnderstateBalance(4.0), 0.25, 0.0),
            (FcpTrick::OverPreload(3.0), 1.0, 2.0),
            (FcpTrick::FalseLeave(2.0), 1.0, -0.5),
        ] {
            let honest = says(trick, before, None);
            let lies = says(trick, after, None);
            assert!((f64::from(lies.stake / honest.stake) - stake).abs() < 1e-6, "{trick:?}");
            assert!(
                (f64::from(lies.offer - honest.offer) - offer).abs() < 1e-5,
                "{trick:?} {honest:?} {lies:?}"
            );
            // One that takes turns is honest in the second of them.
            let turns = Some((Time::from_millis(50), Time::from_millis(100)));
            assert_eq!(says(trick, after, turns), honest);
        }
        assert!(
            says(FcpTrick::Overspend(3.0), after, None).offer
                > says(FcpTrick::Overspend(3.0), before, None).offer
        );
    }

    #[test]
    fn one_that_vanishes_says_nothing_after_its_announcement() {
        let mut law = FcpConfig::default().build();
        law.write_toll(&Flight { srtt: Time::ZERO, size: 40, ..flight(Time::ZERO, 0) }, &mut Toll::default());
        let mut law = FcpCheat::new(law, FcpTrick::Vanish, CheatTimes { from: Time::ZERO, on_off: None });
        law.on_ack(&flight(RTT, 0), &Acked { rtt: Some(RTT), echo: Some(1e-7), ..acked(0) });
        let mut sent = 0;
        while law.window() > 0.0 {
            let now = RTT + Time::from_millis(10) * sent;
            law.write_toll(&flight(now, 0), &mut Toll::default());
            sent += 1;
            assert!(sent < 50);
        }
        assert!(sent > 5, "{sent}");
    }
}
