//! Bandwidth over cycles, looks at the round trip, losses, clumps and idle senders.

use super::*;

#[test]
fn the_bandwidth_is_the_most_of_two_cycles() {
    let mut law = Bbr { acks: Acks::Stopping, max_bw: [800.0, 1000.0], ..settled(Down) };
    let round = Delivery { rate: 900.0, ..ROUND };
    // A cycle ends a round after its probe, and once; not if the application limited that round.
    law.on_delivery(&at(0, 150), &Delivery { rate: 900.0, ..AMID });
    assert_eq!(law.max_bw, [800.0, 1000.0]);
    let mut limited = law.clone();
    law.on_delivery(&at(0, 150), &round);
    law.on_delivery(&at(0, 150), &round);
    assert_eq!((law.max_bw, law.bandwidth()), ([1000.0, 900.0], 1000.0));
    law.acks = Acks::Stopping;
    law.on_delivery(&at(0, 150), &round);
    assert_eq!((law.max_bw, law.bandwidth()), ([900.0, 0.0], 900.0));
    limited.on_delivery(&at(0, 150), &Delivery { app_limited: true, ..round });
    assert_eq!(limited.max_bw, [800.0, 1000.0]);
    // Nor by a look at the round trip.
    let mut looking = Bbr { phase: ProbeRtt, acks: Acks::Stopping, ..limited };
    looking.on_delivery(&at(0, 150), &round);
    assert_eq!(looking.max_bw, [800.0, 1000.0]);
    // An application-limited sample counts if it is at least the maximum.
    looking.max_bw = [900.0, 0.0];
    looking.on_delivery(&at(0, 150), &Delivery { app_limited: true, rate: 900.0, ..AMID });
    assert_eq!(looking.max_bw, [900.0, 900.0]);
    // A cycle that measured nothing leaves what is known.
    looking.max_bw = [900.0, 0.0];
    looking.advance_max_bw();
    assert_eq!(looking.max_bw, [900.0, 0.0]);
}

/// In ProbeRTT since 5 s after [`NOW`], with 200 segments of window before.
fn looking(full: bool) -> Bbr {
    let mut law = Bbr { probe_wait: Time::from_secs(60), full_bw_reached: full, ..settled(Cruise) };
    if !full {
        law.phase = Startup;
    }
    law.on_delivery(&at(5000, 150), &AMID);
    assert_ne!(law.phase, ProbeRtt, "after more than 5 s");
    law.window = 200.0;
    let d = Delivery { rtt: Some(Time::from_millis(130)), delivered: 1100, ..AMID };
    law.on_delivery(&at(5001, 150), &d);
    assert_eq!((law.phase, law.window), (ProbeRtt, 50.0));
    assert!(near(law.pacing, if full { 990.0 } else { 2742.3 }), "{}", law.pacing);
    law
}

#[test]
fn probe_rtt_holds_half_a_bdp_for_a_fifth_of_a_second_and_a_round() {
    // The transport marks samples as limited meanwhile, since the law holds back.
    let limited = Delivery { app_limited: true, ..AMID };
    for (full, then) in [(true, Cruise), (false, Startup)] {
        let mut law = looking(full);
        (law.bw_shortterm, law.inflight_shortterm) = (800.0, 90.0);
        // The time counts once no more than that is in flight, and so does the round.
        law.on_delivery(&at(5100, 51), &Delivery { delivered: 1200, before: 1150, ..limited });
        assert_eq!(law.probe_rtt_done, None);
        law.bw = 1000.0;
        law.on_delivery(&at(5200, 50), &Delivery { delivered: 1300, before: 1250, ..limited });
        assert_eq!(law.probe_rtt_done, Some(NOW + Time::from_millis(5400)));
        for (ms, before) in [(5401, 1299), (5400, 1300)] {
            law.on_delivery(&at(ms, 50), &Delivery { delivered: 1400, before, ..limited });
            assert_eq!(law.phase, ProbeRtt, "{ms} {before}");
        }
        law.on_delivery(&at(5401, 50), &Delivery { delivered: 1500, before: 1350, ..limited });
        assert_eq!(
            (law.phase, law.bw_shortterm, law.inflight_shortterm),
            (then, f64::INFINITY, f64::INFINITY)
        );
        assert!(law.window >= 200.0, "as before: {}", law.window);
        assert_eq!(law.probe_rtt_min_at, NOW + Time::from_millis(5401), "the next is due 5 s from now");
    }
}

#[test]
fn a_second_look_at_the_round_trip_waits_for_a_round_of_its_own() {
    let mut law = Bbr { probe_rtt_round_done: true, ..looking(true) };
    law.on_delivery(&at(5200, 50), &Delivery { delivered: 1300, before: 1250, ..AMID });
    law.on_delivery(&at(5500, 50), &Delivery { delivered: 1400, before: 1299, ..AMID });
    assert_eq!(law.phase, ProbeRtt);
}

#[test]
fn who_was_idle_is_paced_at_the_bandwidth_and_need_not_look() {
    let later = |ms, d: Delivery, law: &mut Bbr| {
        law.on_delivery(&at(ms, 10), &Delivery { rtt: Some(Time::from_millis(130)), ..d });
        law.phase
    };
    let mut law = Bbr { pacing: 891.0, probe_wait: Time::from_secs(60), ..settled(Cruise) };
    law.on_restart(&at(6000, 0));
    assert!(near(law.pacing, 990.0), "{}", law.pacing);
    // Extra acknowledged data count from now: nothing is expected of six seconds' silence.
    assert_eq!(law.extra_from, NOW + Time::from_secs(6));
    assert_eq!(later(6100, AMID, &mut law), Cruise);
    // The next is due as usual.
    assert_eq!(later(11_100, AMID, &mut law), Cruise);
    assert_eq!(later(11_101, AMID, &mut law), ProbeRtt);
    // Before the pipe is full the pace stays.
    let mut law = Bbr { pacing: 2742.0, ..starting() };
    law.on_restart(&at(1000, 0));
    assert_eq!((law.pacing, law.phase), (2742.0, Startup));
    // A flow that was idle during the probe has finished it.
    let mut law = looking(true);
    law.on_delivery(&at(5200, 50), &Delivery { delivered: 1300, before: 1250, ..AMID });
    let mut early = law.clone();
    early.on_restart(&at(5400, 0));
    law.on_restart(&at(5401, 0));
    assert_eq!((early.phase, law.phase, law.window), (ProbeRtt, Cruise, 200.0));
}

#[test]
fn losses_outside_of_probes_count_once_a_round() {
    let mut law = settled(Cruise);
    law.on_lost(&at(0, 100), &Lost { delivered: 1200, ..lost(1, 100) });
    // The round ends with what is sent now, whatever else is lost in it.
    law.on_lost(&at(0, 100), &Lost { delivered: 1230, ..lost(2, 100) });
    let mut deliver = |delivered, before, rate: f64, over| {
        law.on_delivery(&at(0, 300), &Delivery { delivered, before, rate, over, newly_acked: 0, ..AMID });
        (law.bw_shortterm, law.inflight_shortterm)
    };
    let none = (f64::INFINITY, f64::INFINITY);
    assert_eq!(deliver(1201, 1150, 600.0, 60), none);
    assert_eq!(deliver(1202, 1199, 650.0, 150), none);
    assert_eq!(deliver(1203, 1190, 620.0, 62), none);
    // The bandwidth comes down to 0.7, what is in flight to the most that was delivered in the
    // round.
    assert_eq!(deliver(1300, 1200, 500.0, 50), (700.0, 150.0));
    // A round without loss changes nothing.
    assert_eq!(deliver(1310, 1250, 480.0, 48), (700.0, 150.0));
    assert_eq!(deliver(1400, 1300, 450.0, 45), (700.0, 150.0));
    assert_eq!((law.bw_latest, law.inflight_latest), (450.0, 45.0));
    assert_eq!((law.bandwidth(), law.window), (700.0, 140.0));
    law.on_delivery(&at(0, 300), &Delivery { delivered: 1410, before: 1350, rate: 470.0, over: 40, ..AMID });
    assert_eq!((law.bw_latest, law.inflight_latest), (470.0, 45.0), "the most of the round so far");
    law.on_lost(&at(0, 100), &Lost { delivered: 1420, ..lost(1, 100) });
    law.on_delivery(&at(0, 300), &Delivery { delivered: 1500, before: 1420, rate: 400.0, over: 120, ..AMID });
    assert_eq!((law.bw_shortterm, law.inflight_shortterm), (0.7 * 700.0, 120.0));
    // A cycle begins with a clean slate.
    law.loss_in_round = true;
    law.go_down(&at(0, 300), 1500);
    assert_eq!((law.loss_in_round, law.bw_latest, law.inflight_latest), (false, 0.0, 0.0));
    assert_eq!(law.probe_up_acked_per_inc, f64::INFINITY);
    // While it probes, or starts, losses are what it looks for.
    for phase in [Startup, Refill, Up] {
        let mut law = Bbr { loss_in_round: true, ..settled(phase) };
        law.on_delivery(&at(0, 300), &ROUND);
        assert_eq!(law.bw_shortterm, f64::INFINITY, "{phase:?}");
    }
}

#[test]
fn what_comes_in_clumps_is_added_to_the_window() {
    let clump = |law: &mut Bbr, ms, newly_acked, round: u64| {
        law.round = round;
        law.note_aggregation(&at(ms, 100), &Delivery { newly_acked, ..AMID });
        law.extra_acked.get()
    };
    let mut law = settled(Cruise);
    assert_eq!(clump(&mut law, 0, 30, 0), 30.0);
    // 10 were due since, and 60 came.
    assert!(near(clump(&mut law, 10, 30, 0), 50.0));
    // All that was due has come: another stretch begins.
    assert!(near(clump(&mut law, 60, 25, 0), 50.0));
    assert!(near(clump(&mut law, 65, 70, 0), 90.0));
    law.set_window(&Delivery { newly_acked: 200, ..AMID });
    assert!(near(law.window, 290.0), "{}", law.window);
    // No more than a window, and for ten rounds; in Startup for one.
    assert_eq!(clump(&mut law, 1000, 500, 1), 290.0);
    for (full, rounds) in [(true, 10), (false, 1)] {
        let mut law = Bbr { full_bw_reached: full, ..settled(Cruise) };
        clump(&mut law, 0, 30, 0);
        let round = (1..20).find(|&round| clump(&mut law, 100 * round, 1, round) < 30.0);
        assert_eq!(round, Some(rounds + 1));
    }
    // Every acknowledgement is seen.
    let mut law = settled(Cruise);
    law.on_delivery(&at(0, 100), &Delivery { newly_acked: 40, ..AMID });
    assert_eq!(law.extra_acked.get(), 40.0);
}

#[test]
fn after_recovery_the_window_is_what_it_was() {
    let repairing = Delivery { recovering: true, newly_acked: 0, ..AMID };
    let mut law = Bbr { window: 150.0, ..settled(Cruise) };
    law.on_loss(&at(0, 100));
    law.window = 60.0;
    law.on_delivery(&at(0, 100), &repairing);
    assert_eq!(law.window, 60.0);
    // A timeout meanwhile does not make less of it.
    law.on_timeout(&at(0, 100), false);
    law.on_delivery(&at(0, 100), &Delivery { recovering: false, ..repairing });
    assert_eq!(law.window, 150.0);
    // Once.
    law.window = 60.0;
    law.on_delivery(&at(0, 100), &Delivery { recovering: false, ..repairing });
    assert_eq!(law.window, 60.0);
    // Of one that looked at the round trip meanwhile, what it was before it looked.
    let mut law = looking(true);
    law.on_loss(&at(5100, 40));
    law.on_recovered(&at(5150, 40));
    assert_eq!(law.window, 200.0);
}

#[test]
fn a_window_that_was_full_in_this_round_or_the_last_is_what_limits() {
    // 98 in flight, and the one that was acknowledged: a segment of 100 may leave. With one lost,
    // none could.
    for (in_flight, newly_lost, full) in [(98, 0, false), (99, 0, true), (98, 1, true)] {
        let mut law = Bbr { window: 100.0, ..settled(Cruise) };
        law.on_delivery(&at(0, in_flight), &Delivery { newly_lost, ..AMID });
        assert_eq!(law.window_limited(), full, "{in_flight} {newly_lost}");
        for limited in [full, false] {
            law.window = 1000.0;
            law.on_delivery(&at(0, 10), &ROUND);
            assert_eq!(law.window_limited(), limited);
        }
    }
}
