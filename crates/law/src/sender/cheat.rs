//! Senders that cheat, as test cases for [meters](crate::meter).

use std::sync::Arc;

use super::config::not_in_program;
use super::{
    Acked, AnySender, Delivery, Descriptor, Flight, Lost, SenderConfig, SenderLaw, Sending, XcpConfig,
};
use crate::link::Misfit;
use crate::param::{Config, Entry, Kind, TIME, Tabled};
use crate::{Rate, Time, Toll, config, words};

/// A sender that cheats: another law with one deviation.
#[derive(Clone, Debug)]
pub struct Cheat<L> {
    law: L,
    config: CheatConfig,
}

config! {
    /// The trick of a [`Cheat`], and its times.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct CheatConfig in "xcp.cheat", "A sender that cheats, for tests of meters." {
        /// Ignores negative feedback; or states a false window or round trip.
        trick: Option<Trick> = None, Kind::Word(Trick::WORDS);
        /// Factor by which the stated value is too small or too large.
        factor: f64 = 2.0, Kind::Over { over: 1.0, most: 1e6 };
        /// The time at which it begins.
        from: Time = Time::ZERO, TIME;
    }
}

words! {
    /// Tricks of XCP senders.
    pub enum Trick {
        /// Applies positive feedback, and ignores negative feedback.
        IgnoreNegative = "ignore-negative",
        /// States a window smaller by the factor, which multiplies its feedback by the same factor.
        UnderstateWindow = "understate-window",
        /// States a round trip longer by the factor.
        OverstateRtt = "overstate-rtt",
        /// States a round trip shorter by the factor, so that routers act faster than feedback
        /// returns.
        UnderstateRtt = "understate-rtt",
    }
}

/// The config of XCP's sender, honest or cheating.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct XcpSender {
    /// The config of the law.
    pub law: XcpConfig,
    /// The trick; none by default.
    pub cheat: CheatConfig,
}

impl XcpSender {
    pub(super) const ENTRY: Entry<dyn SenderConfig> = Entry {
        word: XcpConfig::TABLE.word,
        tables: &[XcpConfig::TABLE, CheatConfig::TABLE],
        read: |tables| {
            let [law, cheat] = [XcpConfig::TABLE, CheatConfig::TABLE].map(|one| tables.table(one.word));
            Arc::new(XcpSender { law: XcpConfig::read(law), cheat: CheatConfig::read(cheat) })
        },
    };
}

impl SenderConfig for XcpSender {
    fn word(&self) -> &str {
        self.law.word()
    }

    fn descriptor(&self) -> Descriptor {
        let cheats = self.cheat.trick.map(|_| self.cheat.from);
        Descriptor { cheats, ..self.law.descriptor() }
    }

    fn program(&self, given: &dyn Fn(&str) -> bool) -> Result<Option<Arc<dyn SenderConfig>>, Misfit> {
        not_in_program(&[("cheat", self.cheat.trick.is_some())])?;
        self.law.program(given)
    }

    fn check(&self, of: &Sending<'_>) -> Result<(), Misfit> {
        self.law.check(of)
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        let law = self.law.make(of);
        if self.cheat.trick.is_some() { AnySender::custom(Cheat::new(law, self.cheat)) } else { law }
    }
}

impl<L: SenderLaw> Cheat<L> {
    /// `law` with the trick of `config`.
    pub fn new(law: L, config: CheatConfig) -> Cheat<L> {
        Cheat { law, config }
    }

    /// The trick played at `now`.
    fn trick(&self, now: Time) -> Option<Trick> {
        self.config.trick.filter(|_| now >= self.config.from)
    }
}

impl<L: SenderLaw> SenderLaw for Cheat<L> {
    fn window(&self) -> f64 {
        self.law.window()
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

    fn spares_toll(&mut self) -> bool {
        self.law.spares_toll()
    }

    fn samples_delivery(&self) -> bool {
        self.law.samples_delivery()
    }

    fn holds_back(&self) -> bool {
        self.law.holds_back()
    }

    fn on_delivery(&mut self, flight: &Flight, delivery: &Delivery) {
        self.law.on_delivery(flight, delivery);
    }

    fn on_lost(&mut self, flight: &Flight, lost: &Lost) {
        self.law.on_lost(flight, lost);
    }

    fn on_restart(&mut self, flight: &Flight) {
        self.law.on_restart(flight);
    }

    fn write_toll(&mut self, flight: &Flight, toll: &mut Toll) {
        self.law.write_toll(flight, toll);
        let factor = self.config.factor;
        match self.trick(flight.now) {
            None | Some(Trick::IgnoreNegative) => {}
            Some(Trick::UnderstateWindow) => toll.offer = (f64::from(toll.offer) * factor) as f32,
            Some(Trick::OverstateRtt) => {
                toll.rtt = (f64::from(toll.rtt) * factor) as f32;
                toll.offer = (f64::from(toll.offer) * factor) as f32;
            }
            Some(Trick::UnderstateRtt) => {
                toll.rtt = (f64::from(toll.rtt) / factor) as f32;
                toll.offer = (f64::from(toll.offer) / factor) as f32;
            }
        }
    }

    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        let deaf = self.trick(flight.now) == Some(Trick::IgnoreNegative);
        let echo = acked.echo.map(|echo| if deaf { echo.max(0.0) } else { echo });
        self.law.on_ack(flight, &Acked { echo, ..*acked });
    }

    fn on_loss(&mut self, flight: &Flight) {
        self.law.on_loss(flight);
    }

    fn on_recovered(&mut self, flight: &Flight) {
        self.law.on_recovered(flight);
    }

    fn on_timeout(&mut self, flight: &Flight, first: bool) {
        self.law.on_timeout(flight, first);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Xcp;
    use super::super::testing::{acked, flight};
    use super::*;

    fn cheat(law: Xcp, trick: Trick) -> Cheat<Xcp> {
        Cheat::new(law, CheatConfig { trick: Some(trick), from: Time::from_secs(1), ..Default::default() })
    }

    fn stated(trick: Trick, now: Time) -> (f32, f32) {
        let law = XcpConfig { initial_window: 4.0, ..Default::default() }.build();
        let mut toll = Toll::default();
        cheat(law, trick).write_toll(&flight(now, 4), &mut toll);
        (toll.rtt, toll.offer)
    }

    #[test]
    fn tricks_begin_when_they_are_to_and_say_what_they_are_to() {
        let (before, after) = (Time::from_millis(999), Time::from_secs(1));
        for trick in [Trick::UnderstateWindow, Trick::OverstateRtt, Trick::UnderstateRtt] {
            assert_eq!(stated(trick, before), (0.1, 0.025));
        }
        assert_eq!(stated(Trick::UnderstateWindow, after), (0.1, 0.05));
        assert_eq!(stated(Trick::OverstateRtt, after), (0.2, 0.05));
        assert_eq!(stated(Trick::UnderstateRtt, after), (0.05, 0.0125));
    }

    #[test]
    fn a_deaf_sender_takes_and_does_not_give() {
        let law = XcpConfig { initial_window: 40.0, ..Default::default() }.build();
        let mut law = cheat(law, Trick::IgnoreNegative);
        let mut echo = |now, echo| {
            law.on_ack(&flight(now, 4), &Acked { echo: Some(echo), ..acked(1) });
            law.window()
        };
        assert_eq!(echo(Time::ZERO, -150_000.0), 30.0);
        assert_eq!(echo(Time::from_secs(1), -150_000.0), 30.0);
        assert_eq!(echo(Time::from_secs(1), 150_000.0), 40.0);
    }
}
