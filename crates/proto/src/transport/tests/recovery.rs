//! Losses, one by one: their detection and their cost.

use tollway_law::Time;
use tollway_law::sender::NewRenoConfig;

use super::super::sender::Phase;
use super::super::{Config, Detection, Rto};
use super::pair::{CLIENT, Pair, SERVER};
use crate::{Flags, Packet};

const LONG: Time = Time::from_secs(600);
const RACK: Detection = Detection::Rack { tail_probe: false };

/// A bulk transfer of `segments` with a fixed window, whose channel loses the data segments that
/// `lost` names, each as often as it is named.
fn transfer(config: &Config, window: f64, segments: u64, lost: &[u32]) -> Pair {
    let law = || {
        NewRenoConfig { initial_window: window, initial_ssthresh: 2.0, ..NewRenoConfig::default() }
            .build()
            .into()
    };
    let mut pair = Pair::with_laws(&Config { handshake: false, ..config.clone() }, law(), law());
    let mut lost = lost.to_vec();
    pair.lose = Box::new(move |side, packet: &Packet| {
        let hit = lost.iter().position(|&seq| seq == packet.seq);
        match hit {
            Some(i) if side == CLIENT && packet.flags.has(Flags::DATA) => {
                lost.swap_remove(i);
                true
            }
            _ => false,
        }
    });
    pair.open();
    pair.client().write_frame(segments * 1460);
    assert!(pair.drive(LONG));
    assert_eq!(pair.frames(SERVER), [segments * 1460]);
    pair
}

fn all_detections() -> [Config; 3] {
    [
        Config { sack: false, ..Config::default() },
        Config { detection: Detection::Rfc6675, ..Config::default() },
        Config { detection: RACK, ..Config::default() },
    ]
}

#[test]
fn one_loss_costs_one_retransmission_and_half_the_window() {
    for config in all_detections() {
        let mut pair = transfer(&config, 20.0, 200, &[30]);
        let stats = pair.client().stats();
        let found = (stats.retransmissions, stats.fast_recoveries, stats.timeouts);
        assert_eq!(found, (1, 1, 0), "{:?}", config.detection);
        assert_eq!(pair.server().stats().duplicates, 0);
    }
}

#[test]
fn several_losses_of_a_window_are_one_episode() {
    for config in all_detections() {
        let mut pair = transfer(&config, 20.0, 200, &[30, 33, 34, 39]);
        let stats = pair.client().stats();
        assert_eq!((stats.retransmissions, stats.fast_recoveries, stats.timeouts), (4, 1, 0));
    }
}

#[test]
fn without_sack_a_partial_acknowledgement_shows_the_next_hole() {
    let config = Config { sack: false, ..Config::default() };
    let pair = transfer(&config, 20.0, 200, &[30, 33, 39]);
    let again: Vec<_> = pair
        .sent
        .iter()
        .filter(|s| s.2.flags.has(Flags::RETRANSMIT))
        .map(|s| (s.2.seq, s.0.0 / 1_000_000))
        .collect();
    // One hole a round trip of 100 ms.
    assert_eq!(again.iter().map(|a| a.0).collect::<Vec<_>>(), [30, 33, 39]);
    assert_eq!((again[1].1 - again[0].1, again[2].1 - again[1].1), (100, 100));
}

#[test]
fn without_sack_recovery_sends_no_more_than_the_halved_window_a_round_trip() {
    let config = Config { sack: false, ..Config::default() };
    let pair = transfer(&config, 20.0, 400, &[60, 62, 64, 66, 68]);
    let again = |s: &&(Time, usize, Packet)| s.2.flags.has(Flags::RETRANSMIT);
    let first = pair.sent.iter().find(again).map_or(Time::NEVER, |s| s.0);
    // A flight of 22 at the loss; halved, 11. Each round trip of 100 ms starts with the next hole.
    for round in 1..5 {
        let from = first + Time::from_millis(100) * round;
        let within = |at: Time| at >= from && at < from + Time::from_millis(100);
        let count = pair.sent.iter().filter(|s| s.1 == CLIENT && within(s.0)).count();
        assert!((7..=12).contains(&count), "{count} in round {round}");
    }
}

#[test]
fn with_sack_all_holes_are_repaired_within_a_round_trip() {
    let config = Config { detection: Detection::Rfc6675, ..Config::default() };
    let pair = transfer(&config, 40.0, 300, &[50, 55, 60]);
    let times: Vec<_> = pair.sent.iter().filter(|s| s.2.flags.has(Flags::RETRANSMIT)).map(|s| s.0).collect();
    assert_eq!(times.len(), 3);
    assert!(times[2].saturating_sub(times[0]) < Time::from_millis(100));
}

#[test]
fn rack_finds_a_lost_retransmission_where_counting_needs_a_timeout() {
    let lost = [30, 30];
    let mut counting = transfer(&Config::default(), 20.0, 300, &lost);
    assert_eq!(counting.client().stats().timeouts, 1);
    let mut timing = transfer(&Config { detection: RACK, ..Config::default() }, 20.0, 300, &lost);
    let stats = timing.client().stats();
    assert_eq!((stats.timeouts, stats.lost_retransmissions, stats.retransmissions), (0, 1, 2));
}

/// When each repair of `seq` left.
fn repairs(pair: &Pair, seq: u32) -> Vec<Time> {
    let again = |s: &&(Time, usize, Packet)| s.2.flags.has(Flags::RETRANSMIT) && s.2.seq == seq;
    pair.sent.iter().filter(again).map(|s| s.0).collect()
}

#[test]
fn reno_repairs_one_hole_and_leaves_the_others_to_the_timer() {
    for sack in [false, true] {
        let config = Config { detection: Detection::Reno, sack, ..Config::default() };
        let found = |lost: &[u32]| {
            let stats = transfer(&config, 20.0, 200, lost).client().stats();
            (stats.fast_recoveries, stats.timeouts)
        };
        assert_eq!(found(&[30]), (1, 0));
        assert_eq!(found(&[30, 80]), (2, 0));
        assert_eq!(found(&[30, 33, 39]), (1, 1));
    }
}

#[test]
fn the_fast_retransmit_can_restart_the_timer() {
    // Two packets behind the holes arrive a round trip of 100 ms before the third.
    let lost = [30, 31, 32, 33, 34, 35, 36, 37, 30];
    let wait = |at_repair| {
        let rto = Rto { at_repair, ..Rto::default() };
        let mut pair = transfer(&Config { rto, ..Config::default() }, 20.0, 300, &lost);
        assert_eq!(pair.client().stats().timeouts, 1);
        let again = repairs(&pair, 30);
        again[1].saturating_sub(again[0]).0 / 1_000_000
    };
    // The timer is set to 300 ms; the last new acknowledgement came with the first two.
    assert_eq!((wait(true), wait(false)), (300, 200));
}

#[test]
fn impatient_recovery_ends_with_the_timer_and_steady_recovery_without() {
    let holes = [60, 62, 64, 66, 68, 70, 72, 74];
    let timeouts = |impatient| {
        let rto = Rto { impatient, ..Rto::default() };
        let config = Config { sack: false, rto, ..Config::default() };
        transfer(&config, 40.0, 400, &holes).client().stats().timeouts
    };
    // A hole a round trip of 100 ms, and a timer of 300 ms that the first of them restarts.
    assert_eq!((timeouts(false), timeouts(true)), (0, 1));
}

#[test]
fn with_rack_the_timer_counts_from_the_last_try() {
    // Lost three times: nothing new is acknowledged for four round trips of 100 ms, and the timer
    // is set to 300 ms.
    let mut pair = transfer(&Config { detection: RACK, ..Config::default() }, 20.0, 300, &[30, 30, 30]);
    let stats = pair.client().stats();
    assert_eq!((stats.timeouts, stats.lost_retransmissions, stats.retransmissions), (0, 2, 3));
}

#[test]
fn a_tail_probe_repairs_the_last_segment_before_the_timeout() {
    let plain = transfer(&Config { detection: RACK, ..Config::default() }, 20.0, 10, &[9]);
    assert_eq!(plain.ends[CLIENT].stats().timeouts, 1);
    let config = Config { detection: Detection::Rack { tail_probe: true }, ..Config::default() };
    let probed = transfer(&config, 20.0, 10, &[9]);
    let stats = probed.ends[CLIENT].stats();
    assert_eq!((stats.timeouts, stats.tail_probes, stats.retransmissions), (0, 1, 1));
    assert!(probed.now < plain.now);
    // The loss that the probe hid still counts: the window was halved.
    assert!(probed.ends[CLIENT].cwnd() < 12.0, "{}", probed.ends[CLIENT].cwnd());
}

#[test]
fn limited_transmit_makes_the_third_duplicate_of_a_small_window() {
    // Three in flight, the first lost: two duplicates at most, unless they let new segments leave.
    for (limited_transmit, timeouts) in [(true, 0), (false, 1)] {
        let config = Config { limited_transmit, sack: false, ..Config::default() };
        let law = || {
            NewRenoConfig { initial_window: 3.0, initial_ssthresh: 2.0, ..NewRenoConfig::default() }
                .build()
                .into()
        };
        let mut pair = Pair::with_laws(&Config { handshake: false, ..config }, law(), law());
        let mut first = true;
        pair.lose = Box::new(move |side, _| side == CLIENT && std::mem::take(&mut first));
        pair.open();
        pair.client().write_frame(20 * 1460);
        assert!(pair.drive(LONG));
        assert_eq!(pair.client().stats().timeouts, timeouts);
    }
}

#[test]
fn duplicates_of_needless_retransmissions_release_two_segments_at_most() {
    let config = Config { sack: false, handshake: false, ..Config::default() };
    let law = || NewRenoConfig { initial_window: 60.0, ..NewRenoConfig::default() }.build().into();
    let mut pair = Pair::with_laws(&config, law(), law());
    pair.open();
    // Every other segment is lost, and the first one again: after its timeout what had arrived is
    // sent a second time.
    let mut sent = std::collections::HashMap::new();
    pair.lose = Box::new(move |side, packet| {
        let times = sent.entry(packet.seq).or_insert(0);
        *times += u32::from(side == CLIENT);
        side == CLIENT && packet.seq < 60 && packet.seq % 2 == 0 && *times <= 1 + u32::from(packet.seq == 0)
    });
    pair.check = Box::new(|pair| {
        let send = &pair.ends[CLIENT].send;
        let timed_out = pair.ends[CLIENT].stats().timeouts > 0 && send.phase == Phase::Open;
        assert!(
            !timed_out || send.board.outstanding() <= send.window + 2,
            "{} of {}",
            send.board.outstanding(),
            send.window
        );
    });
    pair.client().write_frame(400 * 1460);
    assert!(pair.drive(LONG));
    let stats = pair.client().stats();
    assert!(stats.timeouts == 1 && stats.retransmissions > 60, "{stats:?}");
}

#[test]
fn timeouts_in_a_row_retransmit_the_first_segment_or_more_of_those_that_follow() {
    for widens in [false, true] {
        let config = Config { rto: Rto { widens, ..Rto::default() }, handshake: false, ..Config::default() };
        let law = || NewRenoConfig { initial_window: 20.0, ..NewRenoConfig::default() }.build().into();
        let mut pair = Pair::with_laws(&config, law(), law());
        pair.open();
        pair.lose = Box::new(|_, _| true);
        pair.client().write_frame(20 * 1460);
        while pair.client().stats().timeouts < 5 {
            assert!(pair.step());
        }
        let again: Vec<u32> =
            pair.sent.iter().filter(|s| s.2.flags.has(Flags::RETRANSMIT)).map(|s| s.2.seq).collect();
        // 1, 1, 2, 4 and 8: the first each time, and those that follow.
        let wide = vec![0, 0, 0, 1, 0, 2, 3, 4, 0, 5, 6, 7, 8, 9, 10, 11];
        assert_eq!(again, if widens { wide } else { vec![0; 5] });
    }
}

#[test]
fn timeouts_double_until_something_gets_through_or_stay_when_fixed() {
    for (backoff, gaps) in [(true, [600, 1200, 2400, 4800]), (false, [300, 300, 300, 300])] {
        let config = Config { rto: Rto { backoff, ..Rto::default() }, handshake: false, ..Config::default() };
        let law = || {
            NewRenoConfig { initial_window: 4.0, initial_ssthresh: 2.0, ..NewRenoConfig::default() }
                .build()
                .into()
        };
        let mut pair = Pair::with_laws(&config, law(), law());
        pair.open();
        pair.client().write_unlimited();
        pair.drive(Time::from_secs(5));
        // A steady round trip of 100 ms: the timeout is that and the least margin.
        assert_eq!(pair.client().rto(), Time::from_millis(300));
        pair.lose = Box::new(|_, _| true);
        let from = pair.sent.len();
        while pair.client().stats().timeouts < 5 {
            assert!(pair.step());
        }
        let again: Vec<_> =
            pair.sent[from..].iter().filter(|s| s.2.flags.has(Flags::RETRANSMIT)).map(|s| s.0).collect();
        let measured: Vec<_> = again.windows(2).map(|w| w[1].saturating_sub(w[0]).0 / 1_000_000).collect();
        assert_eq!(measured, gaps);
        assert_eq!(pair.client().cwnd(), 1.0);
        // The blackout ends: the doubling with it.
        pair.lose = Box::new(|_, _| false);
        pair.drive(Time::from_secs(10));
        assert_eq!(pair.client().rto(), Time::from_millis(300));
        assert!(pair.client().cwnd() > 2.0);
    }
}

#[test]
fn a_timeout_keeps_what_was_reported_received() {
    // All but the first of the window arrives; the retransmission is lost as well.
    let pair = transfer(&Config::default(), 20.0, 60, &[20, 20]);
    let stats = pair.ends[CLIENT].stats();
    assert_eq!(stats.timeouts, 1);
    assert!(stats.retransmissions <= 4, "{}", stats.retransmissions);
    assert!(pair.ends[SERVER].stats().duplicates <= 1);
}

#[test]
fn a_timeout_that_was_too_early_is_recognised() {
    let law = || {
        NewRenoConfig { initial_window: 4.0, initial_ssthresh: 2.0, ..NewRenoConfig::default() }
            .build()
            .into()
    };
    let config = Config { handshake: false, ..Config::default() };
    let mut pair = Pair::with_laws(&config, law(), law());
    pair.open();
    pair.client().write_unlimited();
    pair.drive(Time::from_secs(3));
    // The path grows longer by a second at once.
    pair.latency = Time::from_secs(1);
    pair.drive(Time::from_secs(6));
    let stats = pair.client().stats();
    assert!(stats.timeouts >= 1);
    assert_eq!(stats.spurious_timeouts, 1);
}

#[test]
fn a_little_reordering_is_no_loss_to_rack() {
    let run = |detection| {
        let law = || {
            NewRenoConfig { initial_window: 20.0, initial_ssthresh: 2.0, ..NewRenoConfig::default() }
                .build()
                .into()
        };
        let config = Config { detection, handshake: false, ..Config::default() };
        let mut pair = Pair::with_laws(&config, law(), law());
        pair.faults.reorder = 0.05;
        // Under a quarter of the round trip, which is what is allowed for.
        pair.disorder = Time::from_millis(20);
        pair.open();
        pair.client().write_frame(1460 * 2000);
        assert!(pair.drive(LONG));
        pair.client().stats().fast_recoveries
    };
    // Until it has seen reordering, three received beyond count for a loss here too (RFC 8985 §
    // 6.2, step 4).
    assert!(run(RACK) <= 3, "{}", run(RACK));
    assert!(run(Detection::Rfc6675) >= 20, "{}", run(Detection::Rfc6675));
}

#[test]
fn copies_of_a_repair_leave_only_where_the_window_would_not_last() {
    let run = |receive_buffer, repair_copies| {
        let config = Config { detection: RACK, receive_buffer, repair_copies, ..Config::default() };
        let mut pair = transfer(&config, 20.0, 200, &[30, 30]);
        let stats = pair.client().stats();
        assert_eq!(stats.timeouts, 0);
        (stats.retransmissions, stats.lost_retransmissions, pair.server().stats().duplicates, pair.now)
    };
    let (small, ample) = (30 * 1460, 1 << 30);
    let (slow, fast) = (run(small, 0), run(small, 2));
    assert_eq!((slow.0, slow.1, slow.2), (2, 1, 0));
    assert_eq!((fast.0, fast.1, fast.2), (3, 0, 1));
    assert!(fast.3 < slow.3, "{fast:?} {slow:?}");
    assert_eq!(run(ample, 2), run(ample, 0));
}

/// A stamp can be told from a later one for 137 s: what was heard of before a darkness longer than
/// that says nothing of what leaves after it.
#[test]
fn what_rack_takes_for_lost_does_not_depend_on_how_long_it_was_dark() {
    let duplicates = [100u64, 150, 200].map(|dark| {
        let law = || {
            NewRenoConfig { initial_window: 60.0, initial_ssthresh: 60.0, ..NewRenoConfig::default() }
                .build()
                .into()
        };
        let config = Config { handshake: false, detection: RACK, ..Config::default() };
        let mut pair = Pair::with_laws(&config, law(), law());
        let start = crate::Stamp::at(pair.now).0;
        let mut lost = false;
        pair.lose = Box::new(move |side, packet: &Packet| {
            let at = u64::from(packet.sent.0.wrapping_sub(start)) * 64;
            let hit = side == CLIENT && packet.flags.has(Flags::DATA) && packet.seq == 300 && !lost;
            lost |= hit;
            // From when it is known that 300 is lost, all is lost.
            hit || (lost && side == CLIENT && (550_000_000..dark * 1_000_000_000).contains(&at))
        });
        pair.open();
        pair.client().write_frame(2000 * 1460);
        assert!(pair.drive(LONG));
        pair.server().stats().duplicates
    });
    assert_eq!(duplicates, [0; 3]);
}

/// Numbers wrap: the last recovery's end, if it lies 2^31 segments back, is not ahead.
#[test]
fn duplicates_are_heeded_however_long_nothing_was_lost() {
    for sent in [5u32, 1 << 30, (1 << 31) + 5] {
        let law = || {
            NewRenoConfig { initial_window: 20.0, initial_ssthresh: 2.0, ..NewRenoConfig::default() }
                .build()
                .into()
        };
        let config = Config { handshake: false, sack: false, initial_segment: sent, ..Config::default() };
        let mut pair = Pair::with_laws(&config, law(), law());
        pair.client().send.recover = 0;
        let mut lost = false;
        pair.lose = Box::new(move |side, packet: &Packet| {
            let hit = side == CLIENT && packet.flags.has(Flags::DATA) && packet.seq == sent + 50 && !lost;
            lost |= hit;
            hit
        });
        pair.open();
        pair.client().write_frame(200 * 1460);
        assert!(pair.drive(LONG));
        let stats = pair.client().stats();
        assert_eq!((stats.retransmissions, stats.fast_recoveries, stats.timeouts), (1, 1, 0), "{sent}");
    }
}

#[test]
fn a_timeout_that_was_due_is_not_taken_for_one_too_early() {
    let pair = transfer(&Config::default(), 20.0, 60, &[20, 20]);
    let stats = pair.ends[CLIENT].stats();
    assert_eq!((stats.timeouts, stats.spurious_timeouts), (1, 0));
}

#[test]
fn a_tail_probe_leaves_a_lone_segment_the_time_that_its_acknowledgement_may_wait() {
    let config = Config {
        detection: Detection::Rack { tail_probe: true },
        delayed_ack: Some(Time::from_millis(150)),
        handshake: false,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    pair.open();
    // Two at a time are acknowledged at once, after 100 ms; a single one 150 ms later, past two
    // round trips.
    pair.client().write_frame(2 * 1460);
    pair.drive(Time::from_secs(1));
    pair.client().write_frame(100);
    assert!(pair.drive(LONG));
    assert_eq!(pair.client().srtt(), Time::from_micros(118_750));
    let stats = pair.client().stats();
    assert_eq!((stats.tail_probes, stats.retransmissions), (0, 0));
}
