use proptest::prelude::*;

use super::super::testing::{acked, flight};
use super::*;

const RTT: Time = Time::from_millis(100);
const PRICE: f64 = 8e-8;

/// A flow over a path of a fixed price, its packets acknowledged a round trip after they leave, but
/// for those that `lose` says.
struct Path {
    law: Fcp,
    now: Time,
    /// When sent, and whether it will be heard of.
    wire: VecDeque<(Time, bool)>,
    next: Time,
    log: Vec<(f64, f64)>,
}

/// A first packet, of 40 bytes, before `unsent` bytes.
fn first(unsent: u64) -> Flight {
    Flight { srtt: Time::ZERO, size: 40, unsent, ..flight(Time::ZERO, 0) }
}

impl Path {
    fn open(config: FcpConfig) -> Path {
        let mut law = config.build();
        let mut toll = Toll::default();
        law.write_toll(&first(1_000_000), &mut toll);
        assert_eq!(toll.offer, 375.0);
        let mut path = Path { law, now: RTT, wire: VecDeque::new(), next: RTT, log: Vec::new() };
        path.ack(Time::ZERO);
        path
    }

    fn ack(&mut self, sent: Time) {
        let acked = Acked { rtt: Some(self.now - sent), echo: Some(PRICE as f32), ..acked(1) };
        self.law.on_ack(&flight(self.now, 0), &acked);
        self.log.push((self.now.as_secs_f64(), self.law.spending()));
    }

    fn run(&mut self, until: f64, mut lose: impl FnMut(f64) -> bool) {
        let until = Time::from_secs_f64(until);
        loop {
            let heard = self.wire.front().map_or(Time::NEVER, |p| p.0 + RTT);
            self.now = heard.min(self.next).min(until);
            if self.now == until {
                return;
            }
            if heard == self.now {
                let (sent, arrives) = self.wire.pop_front().unwrap();
                if arrives {
                    self.ack(sent);
                }
                continue;
            }
            let mut toll = Toll::default();
            self.law.write_toll(&flight(self.now, 0), &mut toll);
            assert!(toll.offer >= -1.0 && toll.offer.is_finite());
            let arrives = !lose(self.now.as_secs_f64());
            self.wire.push_back((self.now, arrives));
            let rate = self.law.pacing_rate(&flight(self.now, 0)).unwrap();
            self.next = self.now + rate.time_for(1500);
        }
    }

    fn peak(&self) -> f64 {
        self.log.iter().map(|l| l.1).fold(0.0, f64::max)
    }
}

#[test]
fn starts_with_ten_packets_a_round_trip() {
    let path = Path::open(FcpConfig::default());
    let rate = path.law.pacing_rate(&flight(RTT, 0)).unwrap();
    assert!((rate.bytes_per_sec() * 0.1 / 15_000.0 - 1.0).abs() < 1e-6);
}

/// As the program in the kernel: each of the first packets announces one for the next round trip.
#[test]
fn the_program_s_first_ten_packets_announce_ten() {
    let mut law = FcpConfig { initial_always: true, program: true, ..Default::default() }.build();
    assert!(!law.tolls_first());
    assert_eq!((law.window(), law.pacing_rate(&flight(RTT, 0))), (10.0, None));
    for _ in 0..10 {
        let mut toll = Toll::default();
        law.write_toll(&flight(RTT, 0), &mut toll);
        assert_eq!((toll.offer, toll.stake, toll.rtt), (1.0, 0.0, 0.0));
    }
    law.on_ack(&flight(RTT * 2, 10), &Acked { rtt: Some(RTT), echo: Some(PRICE as f32), ..acked(1) });
    let rate = law.pacing_rate(&flight(RTT * 2, 10)).unwrap().bytes_per_sec();
    assert!((rate / 150_000.0 - 1.0).abs() < 1e-6, "{rate}");
}

#[test]
fn a_commit_round_reaches_its_target_two_round_trips_later_and_not_beyond() {
    for budget in [0.1, 1.0, 10.0, 0.002] {
        let config = FcpConfig { budget: Budget::per_sec(budget), ..FcpConfig::default() };
        let mut path = Path::open(config);
        // The first packet leaves at one round trip; the round ends with the second, w is there
        // with the third.
        path.run(0.32, |_| false);
        assert!((path.law.spending() / budget - 1.0).abs() < 1e-6, "{budget}: {}", path.law.spending());
        assert!(path.peak() <= budget * 1.000001);
        path.law.set_budget(Budget::per_sec(budget * 3.0));
        path.run(0.56, |_| false);
        assert!((path.law.spending() / budget - 3.0).abs() < 1e-5, "{budget}: {}", path.law.spending());
        path.law.set_budget(Budget::per_sec(budget / 3.0));
        path.run(1.1, |_| false);
        assert!((path.law.spending() / budget - 1.0 / 3.0).abs() < 1e-5, "{}", path.law.spending());
        assert!(path.law.promises.is_empty());
    }
}

#[test]
fn a_flow_that_wants_no_more_than_its_rate_does_not_bid_while_prices_rise() {
    let mut law = FcpConfig::default().build();
    let mut waits = |round: u64, price: f64, target: f64| {
        law.waits(&flight(RTT * round, 0), Price::per_byte(price), target)
    };
    assert!(!waits(1, 1e-9, 0.1), "before it has said once what it wants");
    law.established = true;
    let mut waits = |round: u64, price: f64, target: f64| {
        law.waits(&flight(RTT * round, 0), Price::per_byte(price), target)
    };
    assert!(!waits(2, 1e-9, 0.1), "before it knows how prices go");
    assert!(waits(3, 2e-9, 0.1) && waits(3, 2e-9, 0.1) && waits(4, 3e-9, 0.1));
    assert!(!waits(5, 3.1e-9, 0.1), "they have come to rest");
    assert!(waits(6, 6e-9, 0.1) && !waits(7, 1e-9, 0.1), "they fall");
    assert!(!waits(8, 5e-9, 1.0), "what it wants is to spend its budget");
}

#[test]
fn the_least_rate_costs_no_more_than_the_budget() {
    // A packet each 0.4 s, of 1.2e-4 $: three times what it has.
    let mut path = Path::open(FcpConfig { budget: Budget::per_sec(1e-4), ..FcpConfig::default() });
    path.run(4.0, |_| false);
    let before = path.law.spent();
    path.run(12.0, |_| false);
    let spends = (path.law.spent() - before) / 8.0;
    assert!((spends / 1e-4 - 1.0).abs() < 0.06, "{spends}");
    // With nothing to spend it goes on, and comes back when there is something.
    path.law.set_budget(Budget::per_sec(0.0));
    path.run(16.0, |_| false);
    let before = path.law.spent();
    path.run(20.0, |_| false);
    assert!(path.law.spent() - before < 1e-12 && path.law.committed() == 0.0);
    path.law.set_budget(Budget::per_sec(1.0));
    path.run(22.0, |_| false);
    assert!((path.law.spending() - 1.0).abs() < 1e-5, "{}", path.law.spending());
}

#[test]
fn who_was_not_heard_of_begins_anew_with_the_next_price() {
    let mut path = Path::open(FcpConfig::default());
    path.run(1.0, |_| false);
    let law = &mut path.law;
    let flight = flight(Time::from_secs(2), 0);
    law.on_timeout(&flight, true);
    // Meanwhile no flow paid: the link has forgotten its price.
    let news = Acked { rtt: Some(RTT), echo: Some(1e-18), ..acked(1) };
    law.on_ack(&flight, &news);
    let rate = law.pacing_rate(&flight).unwrap().bytes_per_sec();
    assert!((rate * 0.1 / 15_000.0 - 1.0).abs() < 1e-6, "{rate}");
    // Spending beyond that is announced.
    let mut toll = Toll::default();
    law.write_toll(&flight, &mut toll);
    assert!(toll.offer > 1e6);
}

#[test]
fn a_price_that_fell_by_decades_unheard_is_trodden_carefully() {
    // At its least rate, and with five packets a round trip.
    for budget in [1e-4, 6e-3] {
        let mut path = Path::open(FcpConfig { budget: Budget::per_sec(budget), ..FcpConfig::default() });
        path.run(4.0, |_| false);
        let flight = flight(Time::from_secs(5), 0);
        path.law.on_ack(&flight, &Acked { rtt: Some(RTT), echo: Some(1e-18), ..acked(1) });
        let rate = path.law.pacing_rate(&flight).unwrap().bytes_per_sec();
        assert!((rate * 0.1 / (LEAP * 15_000.0) - 1.0).abs() < 1e-6, "{rate}");
    }
}

#[test]
fn a_price_that_falls_to_nothing_buys_no_more_than_the_interface_carries() {
    for line_rate in [Rate::from_mbps(3.0), Rate::from_mbps(400.0)] {
        let mut path = Path::open(FcpConfig { line_rate, ..FcpConfig::default() });
        path.run(2.0, |_| false);
        let flight = flight(Time::from_secs(5), 0);
        path.law.on_ack(&flight, &Acked { rtt: Some(RTT), echo: Some(1e-18), ..acked(1) });
        assert_eq!(path.law.pacing_rate(&flight), Some(line_rate));
        let mut toll = Toll::default();
        path.law.write_toll(&flight, &mut toll);
        assert!(toll.offer.is_finite());
    }
    let most = FcpConfig { line_rate: Rate::from_mbps(1e9), ..FcpConfig::default() }.build().line_rate;
    assert_eq!(most, MOST_RATE);
}

#[test]
fn spends_its_budget_and_no_more() {
    let mut path = Path::open(FcpConfig::default());
    path.run(1.0, |_| false);
    let before = path.law.spent();
    path.run(2.0, |_| false);
    assert!((path.law.spent() - before - 1.0).abs() < 1e-3, "{}", path.law.spent() - before);
}

#[test]
fn what_was_announced_by_lost_packets_is_announced_again() {
    let mut path = Path::open(FcpConfig::default());
    path.run(0.5, |_| false);
    path.law.set_budget(Budget::per_sec(2.0));
    // A fifth of the round's packets is lost.
    let mut n = 0;
    path.run(0.6, |_| {
        n += 1;
        n % 5 == 0
    });
    path.run(0.72, |_| false);
    assert!(path.law.spending() > 1.7 && path.law.spending() < 1.85, "{}", path.law.spending());
    path.run(1.2, |_| false);
    assert!((path.law.spending() - 2.0).abs() < 1e-4, "{}", path.law.spending());
}

#[test]
fn the_last_of_a_round_may_be_lost_too() {
    let mut path = Path::open(FcpConfig::default());
    path.run(0.5, |_| false);
    path.law.set_budget(Budget::per_sec(2.0));
    path.run(0.6, |at| at > 0.596);
    path.run(0.75, |_| false);
    assert!(path.law.spending() < 1.98, "{}", path.law.spending());
    path.run(1.2, |_| false);
    assert!((path.law.spending() - 2.0).abs() < 1e-4, "{}", path.law.spending());
}

/// A flow whose first packet has left.
fn opened() -> Fcp {
    let mut law = FcpConfig::default().build();
    law.write_toll(&first(1_000_000), &mut Toll::default());
    law
}

#[test]
fn a_first_packet_announces_no_more_than_there_is() {
    let mut law = FcpConfig::default().build();
    let mut toll = Toll::default();
    law.write_toll(&first(6000), &mut toll);
    assert_eq!(toll.offer, 150.0);
    law.on_ack(&flight(RTT, 0), &Acked { rtt: Some(RTT), echo: Some(PRICE as f32), ..acked(0) });
    assert!((law.spending() / (6000.0 * f64::from(PRICE as f32) / 0.1) - 1.0).abs() < 1e-9);
}

#[test]
fn a_first_packet_of_a_long_flow_announces_four() {
    for (config, unsent, packets) in [
        (FcpConfig::default(), 1_000_000, 10.0),
        (FcpConfig::default(), 1_000_001, 4.0),
        (FcpConfig::default(), u64::MAX, 4.0),
        (FcpConfig { initial_packets: 2.0, ..FcpConfig::default() }, u64::MAX, 2.0),
        (FcpConfig { initial_always: true, ..FcpConfig::default() }, u64::MAX, 10.0),
        (FcpConfig { initial_always: true, ..FcpConfig::default() }, 6000, 10.0),
    ] {
        let mut toll = Toll::default();
        config.build().write_toll(&first(unsent), &mut toll);
        assert_eq!(toll.offer, packets * 1500.0 / 40.0, "{unsent}");
    }
}

#[test]
fn a_short_flow_asks_for_what_it_needs_and_takes_its_leave() {
    let mut law = opened();
    let heard = |now| flight(Time::from_millis(now), 0);
    law.on_ack(&heard(100), &Acked { rtt: Some(RTT), echo: Some(PRICE as f32), ..acked(0) });
    // 30 packets left: three times the ten of a round trip that it has.
    let mut toll = Toll::default();
    law.write_toll(&Flight { unsent: 45_000, ..heard(100) }, &mut toll);
    assert!((toll.offer - 2.0).abs() < 1e-5, "{}", toll.offer);
    // The last seven: from the next round trip on nothing.
    let mut law = opened();
    law.on_ack(&heard(100), &Acked { rtt: Some(RTT), echo: Some(PRICE as f32), ..acked(0) });
    law.write_toll(&Flight { unsent: 10_500, ..heard(100) }, &mut toll);
    assert_eq!(toll.offer, -1.0);
}

#[test]
fn in_a_cheaper_class_the_rate_stays_until_links_expect_more() {
    let mut path = Path::open(FcpConfig::default());
    path.run(1.0, |_| false);
    let (law, now) = (&mut path.law, Time::from_secs(1));
    let rate = |law: &Fcp| law.pacing_rate(&flight(now, 0)).unwrap().bytes_per_sec();
    let (before, price) = (rate(law), law.price().unwrap().get());
    law.change_class(now, RTT);
    law.on_ack(&flight(now, 0), &Acked { rtt: Some(RTT), echo: Some((price * 0.1) as f32), ..acked(0) });
    assert!((rate(law) / before - 1.0).abs() < 1e-6 && (law.spending() - 0.1).abs() < 1e-6);
    // The other nine tenths are announced like any change.
    let mut toll = Toll::default();
    law.write_toll(&flight(now, 0), &mut toll);
    assert!((toll.offer - 9.0).abs() < 1e-3, "{}", toll.offer);
    // Without a change of class a price that falls is a price that falls.
    law.on_ack(&flight(now, 0), &Acked { rtt: Some(RTT), echo: Some((price * 0.01) as f32), ..acked(0) });
    assert!(rate(law) > 9.0 * before);
}

#[test]
fn a_short_flow_asks_for_its_size_a_longer_one_for_its_budget_and_both_leave_in_time() {
    let asks = |config: FcpConfig, price: f64, rate: f64, unsent: u64| {
        let mut law = config.build();
        law.spending = rate * price;
        law.committed = law.spending;
        law.target(&Flight { unsent, ..flight(RTT, 0) }, Price::per_byte(price), 0.1)
    };
    let open = |unsent| asks(FcpConfig::default(), PRICE, 0.0, unsent);
    assert!((open(40_000) - PRICE * 400_000.0).abs() < 1e-12);
    assert_eq!((open(60_000), open(u64::MAX)), (1.0, 1.0));
    // At 125 kB a round trip.
    let fast = |unsent| asks(FcpConfig::default(), PRICE, 1.25e6, unsent);
    assert_eq!((fast(180_000), fast(170_000)), (1.0, 0.0));
    let deadline = FcpConfig { deadline: Some(Rate::from_mbps(10.0)), ..FcpConfig::default() };
    let due = |unsent| asks(deadline, Price::MIN.get(), 1.25e6, unsent);
    assert!(due(130_000) > 0.0 && due(120_000) == 0.0);
}

/// Once in a quarter of a second, as a flow that waits for feedback, it would take seconds.
#[test]
fn what_is_left_when_all_is_taken_back_leaves_a_packet_a_round_trip() {
    let mut law = opened();
    let heard = |unsent| Flight { unsent, ..flight(RTT, 0) };
    law.on_ack(&heard(u64::MAX), &Acked { rtt: Some(RTT), echo: Some(PRICE as f32), ..acked(0) });
    (law.spending, law.committed) = (0.0, 0.0);
    law.pace = law.rate(law.price.unwrap(), &heard(u64::MAX));
    let rate = |law: &Fcp| law.pacing_rate(&heard(u64::MAX)).unwrap().bytes_per_sec();
    let mut toll = Toll::default();
    law.write_toll(&heard(3000), &mut toll);
    assert!(!law.is_ending() && rate(&law) < 1500.0 * 5.0, "there is more to be asked for: {}", rate(&law));
    law.write_toll(&heard(0), &mut toll);
    assert!(law.is_ending());
    assert!((rate(&law) - 15_000.0).abs() < 1.0, "{}", rate(&law));
}

#[test]
fn feedback_is_never_given_up() {
    let mut law = FcpConfig { budget: Budget::ZERO, ..FcpConfig::default() }.build();
    law.on_ack(&flight(RTT, 0), &Acked { rtt: Some(RTT), echo: Some(1.0), ..acked(0) });
    let rate = law.pacing_rate(&flight(RTT, 0)).unwrap();
    assert_eq!(rate.bytes_per_sec(), 1500.0 / 0.4);
    assert!(law.window() >= 4.0);
}

#[test]
fn a_deadline_is_asked_for_at_once_and_if_refused_its_flow_goes_by_its_budget() {
    let rate = Rate::from_mbps(30.0);
    let open = || {
        let mut law = FcpConfig { deadline: Some(rate), ..FcpConfig::default() }.build();
        let mut toll = Toll::default();
        law.write_toll(&first(1_000_000), &mut toll);
        assert_eq!(toll.offer, 9.375);
        law.on_ack(&flight(RTT, 0), &Acked { rtt: Some(RTT), echo: Some(1e-18), ..acked(0) });
        law.write_toll(&flight(RTT, 0), &mut toll);
        // All that is missing to 30 Mb/s, by one packet.
        let announced = f64::from(toll.offer) * 1500.0 / 0.1;
        assert!((announced / (rate.bytes_per_sec() - 3_750.0) - 1.0).abs() < 1e-6, "{announced}");
        let mut next = Toll::default();
        law.write_toll(&flight(RTT + Time::from_millis(1), 0), &mut next);
        assert_eq!(next.offer, 0.0);
        law
    };
    let answer = |law: &mut Fcp, ms, echo| {
        law.on_ack(
            &flight(Time::from_millis(ms), 0),
            &Acked { rtt: Some(RTT), echo: Some(echo), ..acked(1) },
        );
        law.pacing_rate(&flight(Time::from_millis(ms), 0)).unwrap().mbps()
    };
    let mut granted = open();
    assert!((answer(&mut granted, 200, 1e-18) - 30.0).abs() < 1e-3);
    assert_eq!(granted.refused(), None);
    let mut refused = open();
    assert!((answer(&mut refused, 200, PRICE as f32) - 0.12).abs() < 1e-6);
    // An older packet's answer does not make it think that all is for nothing again.
    assert!((answer(&mut refused, 201, 1e-18) - 0.12).abs() < 1e-6);
    let mut toll = Toll::default();
    refused.write_toll(&flight(Time::from_millis(202), 0), &mut toll);
    assert_eq!(toll.stake, PRICE as f32);
    assert!(toll.offer > 100.0, "{}", toll.offer);
}

proptest! {
    /// Whatever is echoed and whenever, budgets stay within what the owner allows and rates are
    /// rates.
    #[test]
    fn never_spends_more_than_it_may(
        steps in prop::collection::vec((1u64..50, any::<f32>(), 0u32..4, 0.0f64..100.0, 0u8..10), 1..300),
    ) {
        let mut law = FcpConfig::default().build();
        let (mut now, mut most) = (Time::from_secs(1), 1.0f64);
        for (gap, echo, segments, budget, what) in steps {
            now += Time::from_millis(gap);
            match what {
                0 => {
                    law.set_budget(Budget::per_sec(budget));
                    most = most.max(budget);
                }
                1 => law.on_timeout(&flight(now, 1), true),
                2..6 => {
                    let mut toll = Toll::default();
                    law.write_toll(&flight(now, 1), &mut toll);
                    prop_assert!(toll.offer.is_finite() && toll.stake.is_finite());
                }
                _ => {
                    let rtt = Some(Time::from_millis(gap * 3));
                    law.on_ack(&flight(now, 1), &Acked { rtt, echo: Some(echo), ..acked(segments) });
                }
            }
            prop_assert!(law.spending() >= 0.0 && law.spending() <= most * 1.0001, "{}", law.spending());
            if let Some(rate) = law.pacing_rate(&flight(now, 1)) {
                prop_assert!(rate.bytes_per_sec().is_finite() && rate.bytes_per_sec() > 0.0);
            }
        }
    }
}

#[test]
fn less_is_announced_four_times_as_fast_as_more() {
    for (budget, preload) in [(0.9, -0.4), (1.1, 0.1)] {
        let mut path = Path::open(FcpConfig::default());
        path.run(1.0, |_| false);
        path.law.set_budget(Budget::per_sec(budget));
        let mut toll = Toll::default();
        path.law.write_toll(&flight(path.now, 0), &mut toll);
        assert!((f64::from(toll.offer) / preload - 1.0).abs() < 1e-3, "{budget}: {}", toll.offer);
    }
}

#[test]
fn a_timeout_gives_nobody_more_than_it_spent() {
    let mut law = opened();
    law.on_ack(&flight(RTT, 0), &Acked { rtt: Some(RTT), echo: Some(PRICE as f32), ..acked(0) });
    // Of the ten packets a round trip that it announced it has taken back nine.
    law.spending /= 10.0;
    let before = law.spending();
    law.on_timeout(&flight(RTT * 5, 1), true);
    assert_eq!((law.spending(), law.committed()), (before, before));
}

#[test]
fn the_least_refusal_is_heard() {
    let mut law = FcpConfig { deadline: Some(Rate::from_mbps(30.0)), ..FcpConfig::default() }.build();
    law.write_toll(&first(1_000_000), &mut Toll::default());
    let told = |law: &mut Fcp, ms, echo| {
        let heard = flight(Time::from_millis(ms), 0);
        law.on_ack(&heard, &Acked { rtt: Some(RTT), echo: Some(echo), ..acked(1) });
        law.refused()
    };
    assert_eq!(told(&mut law, 100, 1e-18), None);
    // The price of a path on which only refusals cost: four times the least price.
    assert_eq!(told(&mut law, 200, 4e-18), Some(Time::from_millis(200)));
}
