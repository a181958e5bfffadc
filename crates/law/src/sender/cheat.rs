//! Senders that lie or do not obey: what a [meter](crate::meter) is there to find.

use super::{Acked, Delivery, Flight, Lost, SenderLaw};
use crate::{Rate, Time, Toll};

/// A sender that cheats: another law, but for one thing.
#[derive(Clone, Debug)]
pub struct Cheat<L> {
    law: L,
    trick: Trick,
    from: Time,
}

/// What a cheat does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trick {
    /// Takes what it is given, and gives back nothing.
    IgnoreNegative,
    /// States a window so many times smaller than it is, and so gets so many times the feedback.
    UnderstateWindow(f64),
    /// States a round trip so many times longer.
    OverstateRtt(f64),
    /// States a round trip so many times shorter, and so makes routers act faster than feedback takes.
    UnderstateRtt(f64),
}

impl<L: SenderLaw> Cheat<L> {
    /// `law`, which plays `trick` from then on.
    pub fn new(law: L, trick: Trick, from: Time) -> Cheat<L> {
        Cheat { law, trick, from }
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
        if flight.now < self.from {
            return;
        }
        match self.trick {
            Trick::IgnoreNegative => {}
            Trick::UnderstateWindow(factor) => toll.offer = (f64::from(toll.offer) * factor) as f32,
            Trick::OverstateRtt(factor) => {
                toll.rtt = (f64::from(toll.rtt) * factor) as f32;
                toll.offer = (f64::from(toll.offer) * factor) as f32;
            }
            Trick::UnderstateRtt(factor) => {
                toll.rtt = (f64::from(toll.rtt) / factor) as f32;
                toll.offer = (f64::from(toll.offer) / factor) as f32;
            }
        }
    }

    fn on_ack(&mut self, flight: &Flight, acked: &Acked) {
        let deaf = self.trick == Trick::IgnoreNegative && flight.now >= self.from;
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
    use super::super::XcpConfig;
    use super::super::testing::{acked, flight};
    use super::*;

    fn stated(trick: Trick, now: Time) -> (f32, f32) {
        let law = XcpConfig { initial_window: 4.0, ..Default::default() }.build();
        let mut toll = Toll::default();
        Cheat::new(law, trick, Time::from_secs(1)).write_toll(&flight(now, 4), &mut toll);
        (toll.rtt, toll.offer)
    }

    #[test]
    fn tricks_begin_when_they_are_to_and_say_what_they_are_to() {
        let (before, after) = (Time::from_millis(999), Time::from_secs(1));
        for trick in [Trick::UnderstateWindow(2.0), Trick::OverstateRtt(2.0), Trick::UnderstateRtt(2.0)] {
            assert_eq!(stated(trick, before), (0.1, 0.025));
        }
        assert_eq!(stated(Trick::UnderstateWindow(2.0), after), (0.1, 0.05));
        assert_eq!(stated(Trick::OverstateRtt(2.0), after), (0.2, 0.05));
        assert_eq!(stated(Trick::UnderstateRtt(2.0), after), (0.05, 0.0125));
    }

    #[test]
    fn a_deaf_sender_takes_and_does_not_give() {
        let law = XcpConfig { initial_window: 40.0, ..Default::default() }.build();
        let mut law = Cheat::new(law, Trick::IgnoreNegative, Time::from_secs(1));
        let mut echo = |now, echo| {
            law.on_ack(&flight(now, 4), &Acked { echo: Some(echo), ..acked(1) });
            law.window()
        };
        assert_eq!(echo(Time::ZERO, -150_000.0), 30.0);
        assert_eq!(echo(Time::from_secs(1), -150_000.0), 30.0);
        assert_eq!(echo(Time::from_secs(1), 150_000.0), 40.0);
    }
}
