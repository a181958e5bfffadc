//! Meters driven by hand: a sender of one window a round trip, evenly spaced, whose packets come
//! back 100 ms later.

use std::collections::VecDeque;

use super::*;

const RTT: Time = Time::from_millis(100);

/// The behaviour and the statements of a sender; the true round trip is 100 ms.
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
            while let Some(&(at, stamp, echo)) = self.returning.front()
                && at <= self.now
            {
                self.returning.pop_front();
                self.meter.on_ack(self.now, &Ack { stamp: Some(stamp), echo: Some(echo) });
            }
            let stamp = (self.now.0 >> 6) as u32;
            let data = DataPacket { size: 1500, seq: self.seq, stamp, sent: self.now, waited: Time::ZERO };
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

    /// A flow with a window of 20 packets that nothing is wrong with: ten at first, ten by
    /// feedback.
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

/// Of a window's answers one comes back, three seconds late: its sender's smoothed round trip
/// jumps, and takes some thirty samples to come back.
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
            let data = DataPacket {
                size: 1500,
                seq: bench.seq,
                stamp: (at.0 >> 6) as u32,
                sent: at,
                waited: Time::ZERO,
            };
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
    // The corrected toll is right: 20 packets in 100 ms.
    assert!((bench.last.rtt - 0.1).abs() < 1e-3);
    assert!((bench.last.rtt / bench.last.offer - 20.0).abs() < 2.0, "{:?}", bench.last);
    // Held to less once feedback says so: some 20 packets · 300 B/s · 0.1 s are 0.4 packets a round
    // trip.
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
        let data = DataPacket { size: 1500, seq: bench.seq, stamp: 7, sent: bench.now, waited: Time::ZERO };
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
        let data = DataPacket { size, seq: 0, stamp: 1, sent: Time::ZERO, waited: Time::ZERO };
        meter.on_data(Time::ZERO, &data, None);
        assert_eq!(meter.allotment(), packets, "{size}");
        // The first flight counts as seen, up to ten.
        for seq in 1..20 {
            meter.on_data(Time::ZERO, &DataPacket { seq, ..data }, None);
        }
        assert_eq!(meter.allotment(), 10.0);
    }
}

#[test]
fn the_first_flight_is_over_with_the_first_answer_to_it() {
    let mut meter = FlowMeter::new(MeterConfig::default(), 1500);
    let data = DataPacket { size: 1500, seq: 0, stamp: 100, sent: Time::ZERO, waited: Time::ZERO };
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
    let syn = DataPacket { size: 40, seq: 0, stamp: 7, sent: Time::ZERO, waited: Time::ZERO };
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
            let data =
                DataPacket { size: 1500, seq: i, stamp: (now.0 >> 6) as u32, sent: now, waited: Time::ZERO };
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

/// A meter for which a round trip takes an eighth of a second, and which allots `window` packets; a
/// round has begun at 0.
fn seasoned(window: f64) -> FlowMeter {
    let mut meter = FlowMeter::new(MeterConfig::default(), 1500);
    (meter.least, meter.longest, meter.mean, meter.stated) = (0.125, 0.125, 0.125, 0.125);
    (meter.window, meter.opening) = (window, Opening::Over);
    meter.round = Round { ends: Time::from_millis(125), peak: window, ..Round::default() };
    meter
}

fn data(seq: u32) -> DataPacket {
    DataPacket { size: 1500, seq, stamp: seq, sent: Time::ZERO, waited: Time::ZERO }
}

fn words(rtt: f32) -> Toll {
    Toll { rtt, offer: rtt / 16.0, ..Toll::default() }
}

#[test]
fn feedback_counts_by_the_round_trip_stated_unless_that_is_out_of_the_question() {
    // 12 000 B/s over an eighth of a second are a packet of 1500 B. Between 0.8 and 1.25 of what
    // was measured a word is taken.
    for (stated, accused, more) in
        [(0.125, false, 1.0), (0.14, false, 1.12), (0.3, false, 1.25), (0.01, false, 0.8), (0.3, true, 1.0)]
    {
        let mut meter = seasoned(20.0);
        meter.check_words(Time::ZERO, &words(stated), false);
        if accused {
            meter.accuse(Time::ZERO, Offence::Overdrawn, 0.0, 0.0);
        }
        meter.on_ack(Time::ZERO, &Ack { stamp: None, echo: Some(12_000.0) });
        assert!((meter.allotment() - 20.0 - more).abs() < 1e-6, "{stated}: {}", meter.allotment());
    }
    let mut meter = seasoned(20.0);
    for (echo, window) in [(12_000.0, 21.0), (-60_000.0, 16.0), (-f32::MAX, 1.0), (f32::MAX, 1e12)] {
        meter.on_ack(Time::ZERO, &Ack { stamp: None, echo: Some(echo) });
        assert_eq!(meter.allotment(), window);
        // The use allowed in a round trip is the largest allotment in it.
        assert_eq!(meter.round.peak, window.max(21.0));
    }
}

#[test]
fn a_packet_uses_its_part_of_the_allotment_and_three_more() {
    for (peak, last_peak) in [(17.0, 5.0), (5.0, 17.0)] {
        let mut meter = seasoned(5.0);
        (meter.round.peak, meter.round.last_peak) = (peak, last_peak);
        for seq in 0..10 {
            meter.on_data(Time::ZERO, &data(seq), None);
        }
        assert!((meter.round.used - 0.5).abs() < 1e-9, "{}", meter.round.used);
        assert_eq!(meter.round.packets, 10.0);
    }
}

#[test]
fn a_packet_that_is_sent_for_the_first_time_claims_its_part_of_a_round_trip() {
    // Packets of an eighth's sixteenth apart: with the one that leaves, 17 in a round trip. Numbers
    // come round.
    let mut meter = seasoned(20.0);
    for (seq, claims) in
        [(u32::MAX - 1, 1.0), (u32::MAX - 1, 1.0), (u32::MAX, 2.0), (1, 3.0), (0, 3.0), (1, 3.0), (2, 4.0)]
    {
        meter.on_data(Time::ZERO, &data(seq), Some(&mut words(0.125)));
        assert!((meter.round.claimed - claims / 17.0).abs() < 1e-9, "{seq}: {}", meter.round.claimed);
    }
}

#[test]
fn a_round_trip_that_can_not_be_is_an_offence_after_four_more_and_four_answers() {
    // A fifth more, or as much less, than was measured is no lie, and a millisecond, in which
    // headers count.
    for (stated, doubt) in [
        (0.1509, None),
        (0.1511, Some(Offence::RttOverstated)),
        (0.1033, None),
        (0.1031, Some(Offence::RttUnderstated)),
        (f32::NAN, None),
        (f32::INFINITY, None),
        (-1.0, None),
    ] {
        let mut meter = seasoned(20.0);
        meter.check_words(Time::ZERO, &words(stated), false);
        assert_eq!(meter.doubt.map(|doubt| doubt.offence), doubt, "{stated}");
    }
    let begun = Time::from_secs(1);
    for (answers, ns, accused) in [(4, 500_000_001, true), (4, 500_000_000, false), (3, 9_000_000_000, false)]
    {
        let mut meter = seasoned(20.0);
        meter.check_words(begun, &words(0.25), true);
        for stamp in 0..answers {
            meter.on_data(begun, &data(stamp), None);
            meter.on_ack(begun, &Ack { stamp: Some(stamp), echo: None });
        }
        (meter.longest, meter.least) = (0.125, 0.125);
        meter.check_words(begun + Time(ns), &words(0.25), true);
        let found = meter.accusation().map(|found| (found.offence, found.stated, found.measured));
        assert_eq!(found, accused.then_some((Offence::RttOverstated, 0.25, 0.125)), "{answers} {ns}");
    }
    // A word that can be between them, or another lie, begins it anew.
    for between in [0.125, 0.0625] {
        let mut meter = seasoned(20.0);
        meter.check_words(begun, &words(0.25), true);
        meter.check_words(begun, &words(between), true);
        meter.check_words(Time::from_secs(9), &words(0.25), true);
        let doubt = meter.doubt.unwrap();
        assert_eq!(
            (doubt.offence, doubt.since, doubt.answers),
            (Offence::RttOverstated, Time::from_secs(9), 0)
        );
    }
}

#[test]
fn a_round_proves_little_and_four_prove_enough() {
    for (claimed, used, offence) in [(5.0, 0.0, Offence::WindowUnderstated), (0.0, 5.0, Offence::Overdrawn)] {
        let mut meter = seasoned(20.0);
        for round in 1..=4u32 {
            assert_eq!(meter.accusation(), None);
            (meter.round.claimed, meter.round.used, meter.round.packets) = (claimed, used, 20.0);
            meter.end_round(Time::from_millis(125) * u64::from(round));
            // No round counts for more than 0.6 round trips; what is left over is not lent.
            let sums = [claimed, used].map(|said| if said > 0.0 { 0.6 * f64::from(round) } else { 0.0 });
            assert!((meter.claimed - sums[0]).abs() < 1e-9 && (meter.used - sums[1]).abs() < 1e-9);
        }
        // The first offence is the one reported.
        meter.accuse(Time::from_secs(9), Offence::RttOverstated, 0.0, 0.0);
        let found = meter.accusation().unwrap();
        assert_eq!((found.offence, found.measured), (offence, 20.0));
        assert_eq!(found.stated, if claimed > 0.0 { 4.0 } else { 20.0 });
    }
    // Two round trips too many are no offence, more are.
    for (before, accused) in [(1.74, false), (1.76, true)] {
        let mut meter = seasoned(20.0);
        (meter.used, meter.round.used) = (before, 1.2 + 0.25);
        meter.end_round(Time::from_millis(125));
        assert_eq!(meter.accusation().is_some(), accused, "{before}");
    }
}

#[test]
fn the_allotment_follows_what_is_used_of_it() {
    // A flow that is not accused may use a hundredth more per round trip than its allotment.
    for (packets, window) in [(30.0, 20.2), (20.125, 20.125), (5.0, 20.0)] {
        let mut meter = FlowMeter { unopened: 0.0, ..seasoned(20.0) };
        meter.round.packets = packets;
        meter.end_round(Time::from_millis(125));
        assert!((meter.allotment() - window).abs() < 1e-9, "{packets}: {}", meter.allotment());
        let round = meter.round;
        assert_eq!(
            (round.last_packets, round.last_peak, round.peak, round.used),
            (packets, 20.0, meter.window, 0.0)
        );
        assert_eq!((round.begins, round.ends), (Time::from_millis(125), Time::from_millis(250)));
    }
    // One that began with a request, a packet of its first window, may still send the other nine.
    let mut meter = seasoned(20.0);
    meter.unopened = 9.0;
    for window in [25.0, 29.0, 29.29] {
        meter.round.packets = if window == 25.0 { 25.0 } else { 35.0 };
        meter.end_round(Time::from_millis(125));
        assert!((meter.allotment() - window).abs() < 0.3, "{window}: {}", meter.allotment());
    }
    assert_eq!(meter.unopened, 0.0);
    // An accused flow keeps half of its unused allotment, by the better of two rounds, and one
    // packet.
    for (window, last, packets, left) in
        [(21.0, 11.0, 5.0, 16.0), (21.0, 5.0, 11.0, 16.0), (1.5, 0.0, 0.0, 1.0), (5.0, 9.0, 0.0, 5.0)]
    {
        let mut meter = seasoned(window);
        meter.accuse(Time::ZERO, Offence::Overdrawn, 0.0, 0.0);
        (meter.round.packets, meter.round.last_packets) = (packets, last);
        meter.end_round(Time::from_millis(125));
        assert_eq!(meter.allotment(), left);
    }
}

#[test]
fn who_is_held_may_send_a_window_and_a_packet_at_once() {
    let mut meter = seasoned(3.6);
    meter.accuse(Time::ZERO, Offence::Overdrawn, 0.0, 0.0);
    let mut send = |ms: f64| {
        let mut toll = words(0.25);
        let passage = meter.on_data(Time::from_secs_f64(ms * 1e-3), &data(0), Some(&mut toll));
        (passage, toll.rtt, toll.offer)
    };
    for _ in 0..4 {
        assert_eq!(send(1.0), (Passage::Rewritten, 0.125, 0.125 / 3.6));
    }
    assert_eq!(send(1.0).0, Passage::Dropped);
    // A quarter of a round trip later there is room for one, and not for two.
    assert_eq!(send(33.0).0, Passage::Rewritten);
    assert_eq!(send(33.0).0, Passage::Dropped);
    assert_eq!(meter.dropped(), 2);
    // A toll without a round trip needs no correction.
    let mut toll = words(0.0);
    assert_eq!(meter.on_data(Time::from_millis(90), &data(0), Some(&mut toll)), Passage::Untouched);
    assert_eq!((toll.rtt, toll.offer), (0.0, 0.0));
}

#[test]
fn extremes_are_taken_at_once_and_left_by_sixteenths() {
    let ms = Time::from_millis;
    for (rtt, waited, least, longest, mean) in [
        (62, 0, 0.062, 0.125 - 0.063 / 16.0, 0.125 - 0.063 / 8.0),
        (250, 0, 0.125 + 0.125 / 16.0, 0.25, 0.125 + 0.125 / 8.0),
        // It may be longer for the sender, by what it waited before it came here.
        (125, 125, 0.125, 0.25, 0.125 + 0.125 / 8.0),
    ] {
        let mut meter = seasoned(20.0);
        meter.sample(Time::ZERO, ms(rtt), ms(waited));
        let found = [meter.least, meter.longest, meter.mean];
        assert!(found.iter().zip([least, longest, mean]).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
    }
    // With the first one the first round begins.
    let mut meter = FlowMeter::new(MeterConfig::default(), 1500);
    meter.window = 7.0;
    meter.sample(ms(500), ms(100), ms(25));
    assert_eq!((meter.least, meter.longest, meter.mean), (0.1, 0.125, 0.125));
    assert_eq!((meter.round.begins, meter.round.ends, meter.round.peak), (ms(500), ms(625), 7.0));
}
