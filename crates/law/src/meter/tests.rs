//! Meters driven by hand: a sender of one window a round trip, evenly spaced, whose packets come back 100 ms later.

use std::collections::VecDeque;

use super::*;

const RTT: Time = Time::from_millis(100);

/// What a sender does and says; the truth is a round trip of 100 ms.
#[derive(Clone, Copy)]
struct Habit {
    /// Packets a round trip.
    window: u64,
    stated_window: f64,
    stated_rtt: f64,
    /// Feedback on each packet, bytes/s.
    echo: f32,
}

const HONEST: Habit = Habit { window: 20, stated_window: 20.0, stated_rtt: 0.1, echo: 0.0 };

struct Bench {
    meter: FlowMeter,
    now: Time,
    seq: u32,
    returning: VecDeque<(Time, u32, f32)>,
    passed: u64,
    last: Toll,
}

impl Bench {
    fn new(config: MeterConfig) -> Bench {
        Bench {
            meter: FlowMeter::new(config, 1500),
            now: Time::ZERO,
            seq: 0,
            returning: VecDeque::new(),
            passed: 0,
            last: Toll::default(),
        }
    }

    /// `rounds` round trips with a habit; the first ones open the window that it has.
    fn run(&mut self, habit: Habit, rounds: u64) {
        self.passed = 0;
        for _ in 0..rounds * habit.window {
            self.now += Time(RTT.0 / habit.window);
            while let Some((_, stamp, echo)) = self.returning.pop_front_if(|back| back.0 <= self.now) {
                self.meter.on_ack(self.now, &Ack { stamp: Some(stamp), echo: Some(echo) });
            }
            let stamp = (self.now.0 >> 6) as u32;
            let data = Data { size: 1500, seq: self.seq, stamp, sent: self.now, waited: Time::ZERO };
            let rtt = habit.stated_rtt as f32;
            let offer = (habit.stated_rtt / habit.stated_window) as f32;
            let mut toll = Toll { rtt, offer, ..Toll::default() };
            if self.meter.on_data(self.now, &data, Some(&mut toll)) != Passage::Dropped {
                self.last = toll;
                self.returning.push_back((self.now + RTT, stamp, habit.echo));
                self.passed += 1;
            }
            self.seq = self.seq.wrapping_add(1);
        }
    }

    /// A flow with a window of 20 packets that nothing is wrong with: ten at first, ten by feedback.
    fn settled(config: MeterConfig) -> Bench {
        let mut bench = Bench::new(config);
        bench.run(Habit { window: 10, stated_window: 10.0, ..HONEST }, 2);
        // 10 more packets over the 10 of a round trip: a packet a packet.
        bench.run(Habit { window: 10, stated_window: 10.0, echo: 15_000.0, ..HONEST }, 1);
        bench.run(Habit { window: 10, stated_window: 10.0, ..HONEST }, 1);
        bench.run(HONEST, 20);
        assert_eq!(bench.meter.accusation(), None);
        bench
    }

    /// Round trips until a habit is found out.
    fn rounds_to_find(config: MeterConfig, habit: Habit) -> (Offence, f64) {
        let mut bench = Bench::settled(config);
        let begun = bench.now;
        bench.run(habit, 20);
        let accusation = bench.meter.accusation().expect("it is found");
        (accusation.offence, (accusation.at - begun).as_secs_f64() / 0.1)
    }
}

/// Of a window's answers one comes back, three seconds late: its sender's smoothed round trip jumps, and takes some thirty samples to come back.
#[test]
fn who_learns_from_a_packet_between_two_probes_says_no_lie() {
    for survivor in 0..16 {
        let mut bench = Bench::settled(MeterConfig::default());
        let (_, stamp, echo) = bench.returning[survivor];
        bench.returning.clear();
        bench.now += Time::from_secs(3);
        bench.returning.push_back((bench.now, stamp, echo));
        let mut smoothed = 0.1 * 7.0 / 8.0 + 3.0 / 8.0;
        for _ in 0..40 {
            bench.run(Habit { window: 1, stated_window: 1.0, stated_rtt: smoothed, ..HONEST }, 1);
            smoothed += (0.1 - smoothed) / 8.0;
        }
        assert_eq!(bench.meter.accusation(), None, "{survivor}");
    }
}

#[test]
fn no_answer_came_sooner_than_the_least_round_trip() {
    let bench = Bench::settled(MeterConfig::default());
    let now = bench.now + Time::from_millis(5);
    for (at, stamp, _) in bench.returning.iter().skip(10) {
        let mut meter = bench.meter.clone();
        meter.on_ack(now, &Ack { stamp: Some(*stamp), echo: None });
        // Every third of its packets, which are 5 ms apart, is timed.
        let elapsed = (now + RTT).saturating_sub(*at).as_secs_f64();
        assert!(meter.least <= elapsed + 0.011, "{} after {elapsed}", meter.least);
    }
}

#[test]
fn it_measures_the_round_trip_and_reckons_the_window_itself() {
    let bench = Bench::settled(MeterConfig::default());
    assert!((bench.meter.rtt() - 0.1).abs() < 1e-6, "{}", bench.meter.rtt());
    // The first window is taken as seen, up to ten packets; feedback made the rest.
    assert!((bench.meter.allotment() - 20.0).abs() < 0.01, "{}", bench.meter.allotment());
}

#[test]
fn each_offence_is_found_within_fifteen_round_trips() {
    let config = MeterConfig::default();
    let cases = [
        (Habit { stated_window: 10.0, ..HONEST }, Offence::WindowUnderstated),
        (Habit { stated_rtt: 0.2, ..HONEST }, Offence::RttOverstated),
        (Habit { stated_rtt: 0.05, ..HONEST }, Offence::RttUnderstated),
        // Told to give back a tenth of its window in each round trip.
        (Habit { echo: -1_500.0, ..HONEST }, Offence::Overdrawn),
    ];
    for (habit, offence) in cases {
        let (found, rounds) = Bench::rounds_to_find(config, habit);
        assert_eq!(found, offence);
        assert!(rounds < 15.0, "{offence:?} after {rounds}");
    }
}

#[test]
fn small_lies_and_bursts_of_a_window_pass() {
    for habit in [
        Habit { stated_window: 18.0, ..HONEST },
        Habit { stated_rtt: 0.11, ..HONEST },
        Habit { stated_rtt: 0.09, ..HONEST },
        HONEST,
    ] {
        let mut bench = Bench::settled(MeterConfig::default());
        bench.run(habit, 200);
        assert_eq!(bench.meter.accusation(), None);
    }
    // A whole window at once, once a round trip.
    let mut bench = Bench::settled(MeterConfig::default());
    for round in 1..100 {
        let at = bench.now + Time(RTT.0 * round);
        for _ in 0..20 {
            bench.seq += 1;
            let data =
                Data { size: 1500, seq: bench.seq, stamp: (at.0 >> 6) as u32, sent: at, waited: Time::ZERO };
            let mut toll = Toll { rtt: 0.1, offer: 0.005, ..Toll::default() };
            bench.meter.on_data(at, &data, Some(&mut toll));
        }
        assert_eq!(bench.meter.accusation(), None);
    }
}

#[test]
fn who_is_held_gets_its_allotment_and_true_words() {
    let mut bench = Bench::settled(MeterConfig::default());
    // Twice its window, and half of that stated: overdrawn within a few round trips.
    let greedy = Habit { window: 40, stated_window: 40.0, ..HONEST };
    bench.run(greedy, 10);
    assert_eq!(bench.meter.accusation().map(|a| a.offence), Some(Offence::Overdrawn));
    bench.run(greedy, 50);
    let share = bench.passed as f64 / (50.0 * 20.0);
    // A packet more, and what it was forgiven before it was accused.
    assert!((0.9..1.15).contains(&share), "{share} of the allotment passed");
    // What leaves is what it is: 20 packets in 100 ms.
    assert!((bench.last.rtt - 0.1).abs() < 1e-3);
    assert!((bench.last.rtt / bench.last.offer - 20.0).abs() < 2.0, "{:?}", bench.last);
    // Held to less once feedback says so: some 20 packets · 300 B/s · 0.1 s are 0.4 packets a round trip.
    bench.run(Habit { echo: -300.0, ..greedy }, 10);
    assert!(bench.meter.allotment() < 19.0 && bench.meter.dropped() > 500);
}

#[test]
fn a_meter_that_only_reports_touches_nothing() {
    let mut bench = Bench::settled(MeterConfig { enforce: false, ..MeterConfig::default() });
    bench.run(Habit { window: 60, stated_window: 20.0, ..HONEST }, 30);
    assert!(bench.meter.accusation().is_some());
    assert_eq!((bench.passed, bench.meter.dropped()), (60 * 30, 0));
    assert_eq!((bench.last.rtt, bench.last.offer), (0.1, 0.005));
}

#[test]
fn wild_words_and_lost_timestamps_do_no_harm() {
    let mut bench = Bench::settled(MeterConfig::default());
    for word in [f32::NAN, f32::INFINITY, -1.0, 0.0, f32::MAX] {
        let mut toll = Toll { rtt: word, offer: word, ..Toll::default() };
        let data = Data { size: 1500, seq: bench.seq, stamp: 7, sent: bench.now, waited: Time::ZERO };
        bench.meter.on_data(bench.now, &data, Some(&mut toll));
        bench.meter.on_ack(bench.now, &Ack { stamp: Some(0xdead_beef), echo: Some(word) });
        assert!(bench.meter.allotment().is_finite() && bench.meter.rtt().is_finite());
    }
}

#[test]
fn who_is_held_and_leaves_its_allotment_unused_keeps_half_of_the_rest() {
    let mut bench = Bench::settled(MeterConfig::default());
    bench.run(Habit { window: 40, stated_window: 40.0, ..HONEST }, 30);
    let before = bench.meter.allotment();
    assert!(bench.meter.accusation().is_some() && before > 19.0);
    // Each round trip counts with the one before it: the first that ends still has the twenty.
    bench.run(Habit { window: 5, ..HONEST }, 3);
    let rest = before - 5.0;
    assert!((bench.meter.allotment() - (5.0 + rest / 2.0)).abs() < 1.0, "{}", bench.meter.allotment());
}

#[test]
fn larger_packets_than_announced_count_for_more_and_smaller_ones_for_one() {
    for (size, packets) in [(3000, 2.0), (1500, 1.0), (40, 1.0)] {
        let mut meter = FlowMeter::new(MeterConfig::default(), 1500);
        let data = Data { size, seq: 0, stamp: 1, sent: Time::ZERO, waited: Time::ZERO };
        meter.on_data(Time::ZERO, &data, None);
        assert_eq!(meter.allotment(), packets, "{size}");
        // The first flight counts as seen, up to ten.
        for seq in 1..20 {
            meter.on_data(Time::ZERO, &Data { seq, ..data }, None);
        }
        assert_eq!(meter.allotment(), 10.0);
    }
}

#[test]
fn the_first_flight_is_over_with_the_first_answer_to_it() {
    let mut meter = FlowMeter::new(MeterConfig::default(), 1500);
    let data = Data { size: 1500, seq: 0, stamp: 100, sent: Time::ZERO, waited: Time::ZERO };
    let send = |meter: &mut FlowMeter| {
        meter.on_data(Time::ZERO, &data, None);
        meter.allotment()
    };
    assert_eq!(send(&mut meter), 1.0);
    // An answer to what was sent before it says nothing.
    meter.on_ack(RTT, &Ack { stamp: Some(99), echo: None });
    assert_eq!(send(&mut meter), 2.0);
    meter.on_ack(RTT, &Ack { stamp: Some(100), echo: None });
    assert_eq!(send(&mut meter), 2.0);
}

#[test]
fn a_syn_s_round_trip_is_measured_too() {
    let mut meter = FlowMeter::new(MeterConfig::default(), 1500);
    let syn = Data { size: 40, seq: 0, stamp: 7, sent: Time::ZERO, waited: Time::ZERO };
    meter.on_opening(&syn);
    meter.on_ack(RTT, &Ack { stamp: Some(7), echo: None });
    assert!((meter.rtt() - 0.1).abs() < 1e-9, "{}", meter.rtt());
    assert_eq!(meter.allotment(), 0.0, "it is no part of the window");
}

#[test]
fn the_mean_round_trip_follows_a_path_that_grows_or_shrinks() {
    let mut meter = FlowMeter::new(MeterConfig::default(), 1500);
    let mut now = Time::ZERO;
    for (ms, seconds) in [(100, 0.1), (200, 0.2), (50, 0.05)] {
        let before = meter.rtt();
        for i in 0..200 {
            now += Time::from_millis(ms);
            let data = Data { size: 1500, seq: i, stamp: (now.0 >> 6) as u32, sent: now, waited: Time::ZERO };
            meter.on_data(now, &data, None);
            meter.on_ack(now + Time::from_millis(ms), &Ack { stamp: Some((now.0 >> 6) as u32), echo: None });
            if i == 1 && before > 0.0 {
                assert!(
                    (meter.rtt() - before).abs() < 0.3 * (seconds - before).abs(),
                    "not at once: {}",
                    meter.rtt()
                );
            }
        }
        assert!((meter.rtt() - seconds).abs() < 1e-3, "{} for {seconds}", meter.rtt());
    }
}

#[test]
fn a_wrong_word_now_and_then_is_forgiven() {
    // Every third packet states twice the round trip: never for long without a break.
    let mut bench = Bench::settled(MeterConfig::default());
    for i in 0..600 {
        let stated_rtt = if i % 3 == 0 { 0.2 } else { 0.1 };
        let habit = Habit { window: 1, stated_rtt, ..HONEST };
        bench.now = bench.now.saturating_sub(Time(RTT.0 - RTT.0 / 20));
        bench.run(habit, 1);
    }
    assert_eq!(bench.meter.accusation(), None);
}
