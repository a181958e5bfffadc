//! When the packets of a law that spaces them leave.

use std::sync::Arc;

use tollway_law::sender::{Acked, AnySender, Flight, SenderLaw};
use tollway_law::{Rate, Time};

use super::super::{Config, Connection};
use crate::{Flags, Packet, SackRanges};

/// Sends at the rate that the last acknowledgement echoed, bytes/s.
struct Obedient(f64);

impl SenderLaw for Obedient {
    fn window(&self) -> f64 {
        100.0
    }
    fn pacing_rate(&self, _: &Flight) -> Option<Rate> {
        Some(Rate::from_bytes_per_sec(self.0))
    }
    fn on_ack(&mut self, _: &Flight, acked: &Acked) {
        self.0 = acked.echo.map_or(self.0, f64::from);
    }
    fn on_loss(&mut self, _: &Flight) {}
    fn on_timeout(&mut self, _: &Flight, _: bool) {}
}

/// The instants at which a sender of 1500-byte packets lets them go, told a rate at each of `news`.
fn departures(news: &[(Time, f64)], until: Time) -> Vec<Time> {
    let config = Arc::new(Config { handshake: false, ..Config::default() });
    let mut end = Connection::client(&config, AnySender::custom(Obedient(1500.0)), 0);
    end.open(Time::ZERO);
    end.write_unlimited();
    let (mut out, mut sack) = (Packet::default(), SackRanges::EMPTY);
    let (mut now, mut ack, mut left) = (Time::ZERO, 0, Vec::new());
    let mut news = news.iter().peekable();
    while now < until {
        if let Some((_, rate)) = news.next_if(|(at, _)| *at == now) {
            ack += 1;
            let flags = Flags::ACK.with(Flags::ECHO);
            let mut packet = Packet { flags, ack, window: 1000, size: 40, ..Packet::default() };
            packet.toll.echo = *rate as f32;
            end.handle_packet(now, &packet, &SackRanges::EMPTY);
        }
        end.handle_timeout(now);
        while end.poll_transmit(now, &mut out, &mut sack) {
            left.push(now);
        }
        let next = news.peek().map_or(until, |(at, _)| *at);
        now = end.poll_timeout().min(next).max(now + Time(1));
    }
    left
}

#[test]
fn a_slow_flow_that_is_granted_more_uses_it_at_once() {
    let (until, half) = (Time::from_secs(4), Time::from_millis(2500));
    let second = |n| Time::from_secs(n);
    assert_eq!(departures(&[], until), [0, 1, 2, 3].map(second));
    // The third packet has left half a second ago: at three times the rate the next one is late,
    // and the one after it comes a third of a second later.
    let more = departures(&[(half, 4500.0)], until);
    assert_eq!(more[3], half);
    assert!(more[4].0.abs_diff(half.0 + 333_333_333) < 10, "{more:?}");
}

#[test]
fn a_rate_that_has_hardly_changed_leaves_the_turn_as_it_is() {
    let at = Time::from_millis(500);
    let next = |rate: f64| departures(&[(at, rate)], Time::from_millis(2900));
    // The packet after that goes by the new rate.
    assert_eq!(next(1530.0)[1], Time::from_secs(1));
    assert_eq!(next(1530.0)[2], Time::from_secs(1) + Time::from_secs_f64(1.0 / 1.02));
    let sooner = Time::from_secs_f64(1.0 / 1.06);
    assert_eq!(next(1590.0)[..3], [Time::ZERO, sooner, sooner + sooner]);
}
