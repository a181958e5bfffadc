mod cases;

use proptest::prelude::*;

use super::*;
use crate::sender::testing::flight;

/// A path of `rate` segments/s and 100 ms in lockstep: each millisecond it delivers what there is
/// to deliver, and BBR sends what pace and window allow. Losses are a share of what is delivered,
/// spread evenly.
struct Path {
    law: Bbr,
    now: Time,
    rate: f64,
    loss: f64,
    /// When each segment in flight left, with what the transport remembers.
    queue: std::collections::VecDeque<Sent>,
    credit: f64,
    served: f64,
    lost_sum: f64,
    delivered: u64,
    lost: u64,
    delivered_at: Time,
    first_sent: Time,
}

#[derive(Clone, Copy)]
struct Sent {
    at: Time,
    first: Time,
    delivered_at: Time,
    delivered: u64,
    lost: u64,
    tx: u32,
}

const RTT: Time = Time::from_millis(100);

impl Path {
    fn new(rate: f64, loss: f64) -> Path {
        Path {
            law: BbrConfig::default().build(),
            now: Time::from_secs(1),
            rate,
            loss,
            queue: std::collections::VecDeque::new(),
            credit: 0.0,
            served: 0.0,
            lost_sum: 0.0,
            delivered: 0,
            lost: 0,
            delivered_at: Time::from_secs(1),
            first_sent: Time::from_secs(1),
        }
    }

    fn flight(&self) -> Flight {
        Flight { srtt: RTT, min_rtt: RTT, ..flight(self.now, self.queue.len() as u32) }
    }

    /// One millisecond.
    fn step(&mut self) {
        self.now += Time::from_millis(1);
        self.served = (self.served + self.rate * 1e-3).min(self.rate * 1e-3 + 1.0);
        while self.served >= 1.0 && self.queue.front().is_some_and(|sent| sent.at + RTT <= self.now) {
            self.served -= 1.0;
            let Some(sent) = self.queue.pop_front() else { return };
            self.lost_sum += self.loss;
            if self.lost_sum >= 1.0 {
                self.lost_sum -= 1.0;
                self.lost += 1;
                let lost = Lost {
                    delivered: self.delivered,
                    tx_in_flight: sent.tx,
                    lost: self.lost - sent.lost,
                    app_limited: false,
                };
                let flight = self.flight();
                self.law.on_lost(&flight, &lost);
                continue;
            }
            self.delivered += 1;
            self.delivered_at = self.now;
            self.first_sent = sent.at;
            let interval = (sent.at - sent.first).max(self.now - sent.delivered_at).max(RTT);
            let over = self.delivered - sent.delivered;
            let delivery = Delivery {
                delivered: self.delivered,
                newly_acked: 1,
                newly_lost: 0,
                rtt: Some(self.now - sent.at),
                rate: over as f64 / interval.as_secs_f64(),
                over,
                before: sent.delivered,
                tx_in_flight: sent.tx,
                lost: self.lost - sent.lost,
                app_limited: false,
                recovering: false,
            };
            let flight = self.flight();
            self.law.on_delivery(&flight, &delivery);
        }
        let pace = self.law.pacing_rate(&self.flight()).unwrap().bytes_per_sec() / 1500.0;
        self.credit = (self.credit + pace * 1e-3).min(pace * 1e-3 + 1.0);
        while self.credit >= 1.0 && (self.queue.len() as f64) < self.law.window().floor() {
            self.credit -= 1.0;
            if self.queue.is_empty() {
                (self.first_sent, self.delivered_at) = (self.now, self.now);
            }
            self.queue.push_back(Sent {
                at: self.now,
                first: self.first_sent,
                delivered_at: self.delivered_at,
                delivered: self.delivered,
                lost: self.lost,
                tx: self.queue.len() as u32 + 1,
            });
        }
    }

    /// The phases gone through in `ms`, one after the other.
    fn run(&mut self, ms: u32) -> Vec<(Phase, Time)> {
        let mut phases = Vec::new();
        for _ in 0..ms {
            self.step();
            if phases.last().is_none_or(|&(phase, _)| phase != self.law.phase()) {
                phases.push((self.law.phase(), self.now));
            }
        }
        phases
    }
}

#[test]
fn goes_through_the_phases_in_order_and_finds_the_bandwidth() {
    let mut path = Path::new(1000.0, 0.0);
    let phases: Vec<Phase> = path.run(5000).iter().map(|p| p.0).collect();
    use Phase::*;
    // If Drain emptied the queue, Down has nothing to do.
    assert_eq!(phases[..6], [Startup, Drain, Cruise, Refill, Up, Down], "{phases:?}");
    assert!((path.law.bandwidth() / 1000.0 - 1.0).abs() < 0.03, "{}", path.law.bandwidth());
    assert!(path.law.min_rtt() >= RTT && path.law.min_rtt() <= RTT + Time::from_millis(2));
    assert_eq!(path.law.inflight_longterm(), f64::INFINITY, "nothing was lost");
}

#[test]
fn waits_two_to_three_seconds_between_probes_and_five_between_looks_at_the_round_trip() {
    let mut path = Path::new(1000.0, 0.0);
    let phases = path.run(60_000);
    let (mut waits, mut since) = (Vec::new(), None);
    for pair in phases.windows(2) {
        match (pair[0].0, pair[1]) {
            (Phase::Up, (Phase::Down, at)) | (Phase::ProbeRtt, (_, at)) => since = Some(at),
            (_, (Phase::Refill, at)) => waits.extend(since.take().map(|from| (at - from).as_secs_f64())),
            _ => {}
        }
    }
    let spread = waits.iter().fold((f64::MAX, 0f64), |(a, b), &w| (a.min(w), b.max(w)));
    assert!(waits.len() > 8 && spread.0 >= 2.0 && spread.1 < 3.01, "{waits:?}");
    assert!(spread.1 - spread.0 > 0.3, "by chance: {waits:?}");
    let looks: Vec<Time> = phases.iter().filter(|p| p.0 == Phase::ProbeRtt).map(|p| p.1).collect();
    let apart: Vec<f64> = looks.windows(2).map(|t| (t[1] - t[0]).as_secs_f64()).collect();
    // The 5 s count from the end of the last one, which took 0.2 s and a round trip.
    assert!(apart.len() >= 9 && apart.iter().all(|t| (5.0..5.6).contains(t)), "{apart:?}");
}

#[test]
fn a_lower_capacity_is_learned_within_two_cycles() {
    let mut path = Path::new(1000.0, 0.0);
    path.run(8000);
    path.rate = 400.0;
    path.run(12_000);
    assert!(path.law.bandwidth() < 440.0, "{}", path.law.bandwidth());
    path.rate = 1000.0;
    path.run(20_000);
    assert!(path.law.bandwidth() > 950.0, "{}", path.law.bandwidth());
}

#[test]
fn losses_over_two_percent_bound_what_is_in_flight() {
    let mut little = Path::new(1000.0, 0.005);
    little.run(20_000);
    assert_eq!(little.law.inflight_longterm(), f64::INFINITY);
    let mut much = Path::new(1000.0, 0.05);
    much.run(20_000);
    let bound = much.law.inflight_longterm();
    assert!(bound.is_finite() && bound >= MIN_WINDOW, "{bound}");
}

#[test]
fn a_timeout_leaves_one_segment_until_recovery_ends() {
    let mut path = Path::new(1000.0, 0.0);
    path.run(1500);
    let before = path.law.window();
    path.law.on_timeout(&path.flight(), true);
    assert_eq!(path.law.window(), 1.0);
    path.law.on_recovered(&path.flight());
    assert_eq!(path.law.window(), before);
}

#[test]
fn the_first_pace_is_that_of_the_initial_window() {
    let law = BbrConfig::default().build();
    let rate = law.pacing_rate(&Flight { srtt: RTT, ..flight(Time::ZERO, 0) }).unwrap();
    assert!((rate.bytes_per_sec() - 2.77 * 10.0 * 1500.0 / 0.1).abs() < 1.0);
}

/// An acknowledgement of one segment after which nothing else has changed.
const ONE: Delivery = Delivery {
    delivered: 1000,
    newly_acked: 1,
    newly_lost: 0,
    rtt: None,
    rate: 0.0,
    over: 1,
    before: 900,
    tx_in_flight: 10,
    lost: 0,
    app_limited: false,
    recovering: false,
};

#[test]
fn a_round_trip_that_has_grown_is_believed_after_ten_seconds() {
    let mut law = BbrConfig::default().build();
    // The shortest since 1 s is forgotten in favour of the shortest that was found when it was last
    // looked for, at 7 s.
    for (s, rtt, min) in [(1, 50, 50), (5, 80, 50), (7, 80, 50), (11, 90, 50), (12, 90, 80)] {
        let delivery = Delivery { rtt: Some(Time::from_millis(rtt)), ..ONE };
        law.update_min_rtt(&flight(Time::from_secs(s), 10), &delivery);
        assert_eq!(law.min_rtt, Time::from_millis(min), "at {s} s");
    }
}

#[test]
fn rates_that_the_application_limits_count_only_where_they_are_higher() {
    let mut law = BbrConfig::default().build();
    law.max_bw = [100.0, 0.0];
    for (rate, app_limited, newest) in [(60.0, true, 0.0), (60.0, false, 60.0), (120.0, true, 120.0)] {
        law.note_signals(&flight(Time::from_secs(1), 10), &Delivery { rate, app_limited, ..ONE });
        assert_eq!(law.max_bw[1], newest, "{rate} {app_limited}");
    }
}

#[test]
fn losses_lower_the_short_term_bounds_to_seven_tenths_a_round_or_to_what_came() {
    let mut law = BbrConfig::default().build();
    (law.phase, law.window, law.max_bw) = (Phase::Cruise, 100.0, [1000.0, 0.0]);
    for (came, rate, segments) in [(0.1, 700.0, 70.0), (0.1, 490.0, 49.0), (0.9, 900.0, 90.0)] {
        (law.bw_latest, law.inflight_latest, law.loss_in_round) = (came * 1000.0, came * 100.0, true);
        law.adapt_lower_bounds();
        assert!((law.bw_shortterm - rate).abs() < 1e-9 && (law.inflight_shortterm - segments).abs() < 1e-9);
    }
}

#[test]
fn cruising_leaves_others_headroom_and_probing_does_not() {
    let mut law = BbrConfig::default().build();
    (law.bw, law.min_rtt, law.full_bw_reached) = (1000.0, RTT, true);
    for (phase, window) in [(Phase::Cruise, 85.0), (Phase::Down, 100.0), (Phase::Refill, 100.0)] {
        (law.phase, law.window, law.inflight_longterm) = (phase, 150.0, 100.0);
        law.set_window(&ONE);
        assert_eq!(law.window, window, "{phase:?}");
    }
}

proptest! {
    /// Whatever a transport says, window and pace are numbers to go by.
    #[test]
    fn nothing_poisons_the_model(
        steps in prop::collection::vec(
            (0u64..1_000_000_000, any::<u32>(), 0f64..1e9, any::<u32>(), any::<u32>(), any::<bool>(), 0u8..8), 0..200),
    ) {
        let mut law = BbrConfig::default().build();
        let (mut now, mut delivered) = (Time::ZERO, 0u64);
        for (gap, newly, rate, tx, lost, recovering, kind) in steps {
            now += Time(gap);
            let flight = flight(now, tx % 10_000);
            match kind {
                0 => law.on_loss(&flight),
                1 => law.on_timeout(&flight, recovering),
                2 => law.on_restart(&flight),
                3 => law.on_lost(&flight, &Lost {
                    delivered, tx_in_flight: tx, lost: u64::from(lost), app_limited: recovering,
                }),
                _ => {
                    delivered += u64::from(newly % 1000);
                    law.on_delivery(&flight, &Delivery {
                        delivered,
                        newly_acked: newly % 1000,
                        newly_lost: lost % 3,
                        rtt: (kind > 5).then_some(Time(gap)),
                        rate,
                        over: u64::from(newly % 1000),
                        before: delivered.saturating_sub(u64::from(tx % 5000)),
                        tx_in_flight: tx % 10_000,
                        lost: u64::from(lost % 100),
                        app_limited: recovering,
                        recovering,
                    });
                }
            }
            prop_assert!(law.window() >= 1.0 && law.window().is_finite(), "{}", law.window());
            let rate = law.pacing_rate(&flight).unwrap().bytes_per_sec();
            prop_assert!(rate > 0.0 && rate.is_finite(), "{rate}");
        }
    }
}
