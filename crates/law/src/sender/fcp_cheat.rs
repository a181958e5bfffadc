//! FCP senders that cheat (the FCP report, CMU-CS-12-125, § 5, § 6.1.3), as test cases for meters.

use super::{Acked, Fcp, Flight, SenderLaw, Spender};
use crate::link::Misfit;
use crate::param::{Kind, SPAN, TIME};
use crate::{Budget, Price, Rate, Time, Toll, config, words};

/// An FCP sender that cheats: FCP's law with one deviation.
#[derive(Clone, Debug)]
pub struct FcpCheat {
    law: Fcp,
    config: FcpCheatConfig,
    /// The budget that it is entitled to.
    budget: Budget,
    /// True if it has announced its whole budget and sends no more.
    silent: bool,
}

config! {
    /// The trick of an [`FcpCheat`], and its times.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct FcpCheatConfig in "fcp.cheat",
        "A sender that cheats, for tests of meters. It has its own budget, and belongs to no host."
    {
        /// States less than it pays; spends more than its budget; announces spending with each
        /// packet that does not follow; takes back spending and continues it; or announces its
        /// whole budget and falls silent.
        trick: Option<FcpTrick> = None, Kind::Word(FcpTrick::WORDS);
        /// Factor of the understatement or overspending. It announces `factor` − 1 times its
        /// payments, or takes back 1 − 1/`factor` times them.
        factor: f64 = 2.0, Kind::Over { over: 1.0, most: 1e6 };
        /// The time at which it begins.
        from: Time = Time::ZERO, TIME;
        /// Length of a cheating period, followed by an honest one.
        on: Option<Time> = None, SPAN, else "always";
        /// Length of an honest period, followed by a cheating one.
        off: Option<Time> = None, SPAN, else "never";
    }
}

words! {
    /// Tricks of FCP senders.
    pub enum FcpTrick {
        /// States a balance smaller than its payments by the factor.
        UnderstateBalance = "understate-balance",
        /// Spends its budget times the factor.
        Overspend = "overspend",
        /// Announces (factor − 1) times its payments with each packet, and never spends it.
        OverPreload = "over-preload",
        /// Takes back (1 − 1/factor) times its payments with each packet, and continues to pay.
        FalseLeave = "false-leave",
        /// Announces its whole budget and falls silent (figure 13).
        Vanish = "vanish",
    }
}

impl FcpCheatConfig {
    /// Checks the config.
    ///
    /// # Errors
    /// Only one of the two spans is given.
    pub(super) fn check(&self) -> Result<(), Misfit> {
        let (field, have, lack, label) = match (self.on, self.off) {
            (Some(_), None) => ("cheat.on", "on", "off", "without `off`"),
            (None, Some(_)) => ("cheat.off", "off", "on", "without `on`"),
            _ => return Ok(()),
        };
        Err(Misfit { field, message: format!("`{have}` needs `{lack}`"), label, help: "" })
    }

    /// The trick played at `now`.
    fn trick(&self, now: Time) -> Option<FcpTrick> {
        let since = now.saturating_sub(self.from).0;
        let honest = match (self.on, self.off) {
            (Some(on), Some(off)) => since % (on.0 + off.0).max(1) >= on.0,
            _ => false,
        };
        self.trick.filter(|_| now >= self.from && !honest)
    }
}

impl FcpCheat {
    /// `law` with the trick of `config`.
    pub fn new(law: Fcp, config: FcpCheatConfig) -> FcpCheat {
        FcpCheat { budget: law.budget(), law, config, silent: false }
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
        let (trick, factor) = (self.config.trick(flight.now), self.config.factor);
        if self.config.trick == Some(FcpTrick::Overspend) {
            let budget = self.budget.get() * if trick.is_some() { factor } else { 1.0 };
            if self.law.budget().get() != budget {
                self.law.set_budget(Budget::per_sec(budget));
            }
        }
        self.law.write_toll(flight, toll);
        let Some(trick) = trick.filter(|_| toll.rtt != 0.0) else { return };
        match trick {
            FcpTrick::UnderstateBalance => {
                toll.stake = (f64::from(toll.stake) / factor) as f32;
                // The announcement is to be plausible.
                toll.offer = (f64::from(toll.offer) * factor) as f32;
            }
            FcpTrick::Overspend => {}
            FcpTrick::OverPreload => toll.offer = (f64::from(toll.offer) + factor - 1.0) as f32,
            FcpTrick::FalseLeave => {
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

    fn spender(&self) -> Option<&dyn Spender> {
        Some(self)
    }

    fn spender_mut(&mut self) -> Option<&mut dyn Spender> {
        Some(self)
    }
}

/// The budget is the one that it is entitled to; the rest is the law's.
impl Spender for FcpCheat {
    fn budget(&self) -> Budget {
        self.budget
    }

    fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
        self.law.set_budget(budget);
    }

    fn spending(&self) -> f64 {
        self.law.spending()
    }

    fn spent(&self) -> f64 {
        self.law.spent()
    }

    fn price(&self) -> Option<Price> {
        Spender::price(&self.law)
    }

    fn is_ending(&self) -> bool {
        self.law.is_ending()
    }

    fn refused(&self) -> Option<Time> {
        self.law.refused()
    }

    fn change_class(&mut self, now: Time, rtt: Time) {
        self.law.change_class(now, rtt);
    }
}

/// The fraction that counts as the whole budget.
const NEARLY: f64 = 0.999;

#[cfg(test)]
mod tests {
    use super::super::FcpConfig;
    use super::super::testing::{acked, flight};
    use super::*;

    const RTT: Time = Time::from_millis(100);

    /// The toll of the first data packet at `now`, of a flow that has its whole budget.
    fn says(trick: FcpTrick, factor: f64, now: Time, on_off: Option<(Time, Time)>) -> Toll {
        let mut law = FcpConfig::default().build();
        let first = Flight { srtt: Time::ZERO, size: 40, unsent: 1_000_000, ..flight(Time::ZERO, 0) };
        law.write_toll(&first, &mut Toll::default());
        let heard = Acked { rtt: Some(RTT), echo: Some(1e-5), ..acked(0) };
        let (on, off) = on_off.unzip();
        let config = FcpCheatConfig { trick: Some(trick), factor, from: Time::from_secs(1), on, off };
        let mut law = FcpCheat::new(law, config);
        law.on_ack(&flight(RTT, 0), &heard);
        let mut toll = Toll::default();
        law.write_toll(&flight(now, 0), &mut toll);
        toll
    }

    #[test]
    fn tricks_are_what_they_say_and_when() {
        let (before, after) = (Time::from_millis(900), Time::from_millis(1100));
        for (trick, factor, stake, offer) in [
            (FcpTrick::UnderstateBalance, 4.0, 0.25, 0.0),
            (FcpTrick::OverPreload, 3.0, 1.0, 2.0),
            (FcpTrick::FalseLeave, 2.0, 1.0, -0.5),
        ] {
            let honest = says(trick, factor, before, None);
            let lies = says(trick, factor, after, None);
            assert!((f64::from(lies.stake / honest.stake) - stake).abs() < 1e-6, "{trick:?}");
            assert!(
                (f64::from(lies.offer - honest.offer) - offer).abs() < 1e-5,
                "{trick:?} {honest:?} {lies:?}"
            );
            // One that takes turns is honest in the second of them.
            let turns = Some((Time::from_millis(50), Time::from_millis(100)));
            assert_eq!(says(trick, factor, after, turns), honest);
        }
        assert!(
            says(FcpTrick::Overspend, 3.0, after, None).offer
                > says(FcpTrick::Overspend, 3.0, before, None).offer
        );
    }

    #[test]
    fn one_that_vanishes_says_nothing_after_its_announcement() {
        let mut law = FcpConfig::default().build();
        let first = Flight { srtt: Time::ZERO, size: 40, unsent: 1_000_000, ..flight(Time::ZERO, 0) };
        law.write_toll(&first, &mut Toll::default());
        let vanishes = FcpCheatConfig { trick: Some(FcpTrick::Vanish), ..Default::default() };
        let mut law = FcpCheat::new(law, vanishes);
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
