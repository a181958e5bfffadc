//! The draft's example test cases (its appendix), and its pseudo-code where those don't reach: what
//! a law in a phase makes of single acknowledgements and losses.

mod looks;

use super::super::*;
use crate::sender::testing::flight;

const RTT: Time = Time::from_millis(100);
const NOW: Time = Time::from_secs(100);

/// A law that has found 1000 segments/s and 100 ms, a BDP of 100 segments, is in `phase` since
/// [`NOW`], and probes at 2.5 s.
fn settled(phase: Phase) -> Bbr {
    Bbr {
        phase,
        window: 200.0,
        pacing: 990.0,
        round_end: 950,
        loss_round_end: 950,
        full_bw: 1000.0,
        full_bw_reached: true,
        max_bw: [1000.0; 2],
        bw: 1000.0,
        min_rtt: RTT,
        min_rtt_at: NOW,
        probe_rtt_min: RTT,
        probe_rtt_min_at: NOW,
        probe_wait: Time::from_millis(2500),
        cycle_at: NOW,
        extra_from: NOW,
        begun: true,
        ..BbrConfig::default().build()
    }
}

/// As [`settled`], but the pipe is not known to be full yet.
fn starting() -> Bbr {
    Bbr { full_bw_reached: false, ..settled(Phase::Startup) }
}

/// One segment is acknowledged in the middle of a round.
const AMID: Delivery = Delivery {
    delivered: 1000,
    newly_acked: 1,
    newly_lost: 0,
    rtt: Some(RTT),
    rate: 1000.0,
    over: 100,
    before: 900,
    tx_in_flight: 100,
    lost: 0,
    app_limited: false,
    recovering: false,
};
/// One that begins a round.
const ROUND: Delivery = Delivery { before: 1000, ..AMID };

fn at(ms: u64, in_flight: u32) -> Flight {
    flight(NOW + Time::from_millis(ms), in_flight)
}

fn lost(lost: u64, tx_in_flight: u32) -> Lost {
    Lost { delivered: 1000, tx_in_flight, lost, app_limited: false }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

use Phase::*;

#[test]
fn gains_and_caps_are_those_of_the_table() {
    // § 5.6.1: pacing gain; window without bounds, under a long-term bound of 160, and under a
    // short-term one of 120.
    for (phase, gain, window, longterm, shortterm) in [
        (Startup, 2.77, 200.0, 200.0, 120.0),
        (Drain, 0.5, 200.0, 200.0, 120.0),
        (Down, 0.9, 200.0, 160.0, 120.0),
        (Cruise, 1.0, 200.0, 136.0, 120.0),
        (Refill, 1.0, 200.0, 160.0, 120.0),
        (Up, 1.25, 227.0, 160.0, 120.0),
        (ProbeRtt, 1.0, 50.0, 50.0, 50.0),
    ] {
        let mut law = settled(phase);
        law.set_pacing(phase.pacing_gain());
        assert!(near(law.pacing, gain * 990.0), "{phase:?}: {}", law.pacing);
        for (bounds, found) in [
            ((f64::INFINITY, f64::INFINITY), window),
            ((160.0, f64::INFINITY), longterm),
            ((f64::INFINITY, 120.0), shortterm),
            // Never under four segments.
            ((f64::INFINITY, 1.0), 4.0),
        ] {
            (law.inflight_longterm, law.inflight_shortterm) = bounds;
            law.window = 1000.0;
            law.set_window(&AMID);
            assert_eq!(law.window, found, "{phase:?} {bounds:?}");
        }
        assert_eq!(law.holds_back(), phase == ProbeRtt);
    }
    assert!(settled(Cruise).samples_delivery());
}

#[test]
fn headroom_is_a_seventh_part_but_a_segment_at_least() {
    let mut law = settled(Cruise);
    for (bound, with_headroom) in [(100.0, 85.0), (6.0, 5.0), (4.5, 4.0), (f64::INFINITY, f64::INFINITY)] {
        law.inflight_longterm = bound;
        assert_eq!(law.inflight_with_headroom(), with_headroom);
    }
}

#[test]
fn sub_packet_paths_keep_four_segments() {
    for (phase, window) in [(Cruise, 4.0), (Up, 6.0), (ProbeRtt, 4.0)] {
        let mut law = Bbr { bw: 5.0, window: 1.0, ..settled(phase) };
        law.set_window(&AMID);
        assert_eq!(law.window, 4.0, "{phase:?}, at once");
        for _ in 0..9 {
            law.set_window(&AMID);
        }
        assert_eq!(law.window, window, "{phase:?}");
    }
}

#[test]
fn the_window_grows_by_what_is_acknowledged_up_to_two_bdp() {
    let three = Delivery { newly_acked: 3, ..AMID };
    let mut law = Bbr { window: 100.0, ..settled(Cruise) };
    law.set_window(&three);
    assert_eq!(law.window, 103.0);
    // Until the pipe is full, also beyond; it is not cut, and nothing bounds it before an initial
    // window has come.
    for (window, delivered, then) in
        [(199.0, 1000, 202.0), (200.0, 10, 200.0), (250.0, 1000, 250.0), (250.0, 9, 253.0)]
    {
        let mut law = Bbr { window, ..starting() };
        law.set_window(&Delivery { delivered, ..three });
        assert_eq!(law.window, then, "{window} {delivered}");
    }
}

#[test]
fn until_the_pipe_is_full_the_pace_only_rises() {
    for (full, bw, pacing) in
        [(false, 500.0, 990.0), (true, 500.0, 495.0), (false, 2000.0, 1980.0), (true, 0.0, 990.0)]
    {
        let mut law = Bbr { bw, full_bw_reached: full, ..settled(Cruise) };
        law.set_pacing(1.0);
        assert!(near(law.pacing, pacing), "{full} {bw}: {}", law.pacing);
    }
}

#[test]
fn a_flow_begins_with_its_first_acknowledgement() {
    // The first delivery says little of the path: the pace is that of ten segments a round trip,
    // 2.77 times; and nothing is due.
    let mut law = BbrConfig::default().build();
    law.on_delivery(&at(0, 9), &Delivery { delivered: 1, over: 1, before: 0, rate: 10.0, ..AMID });
    assert_eq!(law.phase, Startup);
    assert!(near(law.pacing, 277.0), "{}", law.pacing);
    assert_eq!((law.min_rtt, law.min_rtt_at), (RTT, NOW));
    // No more than ten came at once, whatever the time before; and it begins once.
    assert_eq!(law.extra_acked.get(), 1.0);
    law.on_delivery(&at(5, 9), &Delivery { delivered: 2, over: 2, before: 0, rate: 20.0, ..AMID });
    assert_eq!(law.min_rtt_at, NOW);
    // Without a round trip, a millisecond.
    let law = BbrConfig::default().build();
    let rate = law.pacing_rate(&Flight { srtt: Time::ZERO, ..at(0, 0) }).unwrap();
    assert!((rate.bytes_per_sec() / 1500.0 - 27_700.0).abs() < 1e-3, "{rate:?}");
    assert_eq!(law.window(), 10.0);
}

#[test]
fn startup_ends_after_three_rounds_that_bring_less_than_a_quarter_more() {
    let round = |law: &mut Bbr, rate: f64, app_limited| {
        law.on_delivery(&at(0, 300), &Delivery { rate, app_limited, ..ROUND });
        law.on_delivery(&at(0, 300), &Delivery { rate, ..AMID });
    };
    let mut law = starting();
    for rate in [1249.0, 1100.0, 1250.0, 1562.0, 1500.0] {
        round(&mut law, rate, false);
        assert_eq!(law.phase, Startup, "{rate}");
    }
    assert_eq!(law.full_bw, 1250.0);
    // Application-limited rounds say nothing of the path, however many.
    for _ in 0..20 {
        round(&mut law, 100.0, true);
    }
    assert_eq!((law.phase, law.full_bw_reached), (Startup, false));
    round(&mut law, 1500.0, false);
    assert_eq!((law.phase, law.full_bw_reached), (Drain, true));
    assert!(near(law.pacing, 0.5 * 1562.0 * 0.99), "{}", law.pacing);
}

/// A round of recovery with `events` separate losses; the last acknowledgement reports `lost` since
/// its packet was sent.
fn lossy(law: &mut Bbr, events: u32, lost: u64, d: Delivery) {
    for i in 1..=events {
        let d = Delivery { newly_lost: 1, lost, before: if i == events { 1000 } else { 900 }, ..d };
        law.on_delivery(&at(0, 300), &d);
    }
}

#[test]
fn startup_ends_on_six_losses_and_over_two_percent_in_a_round_of_recovery() {
    let repairing = Delivery { recovering: true, app_limited: true, ..AMID };
    for (events, lost, d, phase) in [
        (6, 3, repairing, Drain),
        (5, 3, repairing, Startup),
        (6, 2, repairing, Startup),
        (6, 3, Delivery { recovering: false, ..repairing }, Startup),
    ] {
        let mut law = starting();
        // Those of the round before don't count.
        lossy(&mut law, 3, lost, d);
        lossy(&mut law, events, lost, d);
        assert_eq!(law.phase, phase, "{events} {lost} {}", d.recovering);
    }
    // Acknowledgements without losses are no events.
    let mut law = starting();
    (0..9).for_each(|_| law.on_delivery(&at(0, 300), &Delivery { lost: 3, ..repairing }));
    lossy(&mut law, 1, 3, repairing);
    assert_eq!(law.phase, Startup);
    // The safe volume in flight: a BDP, or the volume delivered in the round.
    for (over, bound) in [(80, 100.0), (130, 130.0)] {
        let mut law = starting();
        lossy(&mut law, 6, 3, Delivery { over, ..repairing });
        assert_eq!((law.inflight_longterm, law.full_bw_reached), (bound, true));
    }
    // Later it is for probes to find.
    let mut law = settled(Cruise);
    lossy(&mut law, 6, 3, repairing);
    assert_eq!(law.inflight_longterm, f64::INFINITY);
}

#[test]
fn drain_ends_with_a_bdp_in_flight_or_after_three_rounds() {
    for (in_flight, drained) in [(101, false), (100, true)] {
        let mut law = settled(Drain);
        law.on_delivery(&at(0, in_flight), &AMID);
        assert_eq!(law.phase != Drain, drained, "{in_flight}");
    }
    let mut law = Bbr { round: 7, drain_round: 7, ..settled(Drain) };
    for phase in [Drain, Drain, Drain, Down] {
        law.on_delivery(&at(0, 150), &ROUND);
        assert_eq!(law.phase, phase);
    }
}

#[test]
fn down_ends_with_room_for_others_and_no_more_than_a_bdp_in_flight() {
    for (bound, in_flight, phase) in [
        (100.0, 86, Down),
        (100.0, 85, Cruise),
        (200.0, 101, Down),
        (200.0, 100, Cruise),
        (f64::INFINITY, 101, Down),
    ] {
        let mut law = Bbr { inflight_longterm: bound, ..settled(Down) };
        law.on_delivery(&at(0, in_flight), &AMID);
        assert_eq!(law.phase, phase, "{bound} {in_flight}");
    }
}

#[test]
fn a_probe_begins_by_the_clock_or_where_reno_would_have_lost() {
    for phase in [Down, Cruise] {
        for (ms, then) in [(2500, phase), (2501, Refill)] {
            let mut law = settled(phase);
            law.on_delivery(&at(ms, 150), &AMID);
            assert_eq!(law.phase, then, "{ms} ms");
        }
    }
    // As many rounds as a BDP has segments, or the window if that is less, and 63 at most.
    for (bw, window, rounds) in [(1000.0, 200.0, 63), (400.0, 200.0, 40), (400.0, 30.0, 30)] {
        let mut law = Bbr { bw, window, max_bw: [bw; 2], ..settled(Cruise) };
        let d = Delivery { rate: bw, newly_acked: 0, ..ROUND };
        for round in 1..=rounds {
            assert_eq!(law.phase, Cruise, "{bw} {window} {round}");
            law.on_delivery(&at(0, 10), &d);
        }
        assert_eq!(law.phase, Refill, "{bw} {window}");
    }
    // So that flows don't probe together, the count begins at 0 or at 1, by chance.
    let mut law = settled(Up);
    let ones: u64 = (0..400)
        .map(|_| {
            law.go_down(&at(0, 100), 1000);
            law.rounds_since_probe
        })
        .sum();
    assert!((160..240).contains(&ones), "{ones}");
}

#[test]
fn refill_lasts_a_round_without_short_term_bounds_and_then_comes_up() {
    let mut law = Bbr { bw_shortterm: 500.0, inflight_shortterm: 60.0, bw: 500.0, ..settled(Cruise) };
    (law.probe_up_rounds, law.probe_up_acked, law.round_end) = (5, 7.0, 1450);
    law.on_delivery(&at(2501, 60), &Delivery { delivered: 1500, before: 1400, ..AMID });
    assert_eq!((law.phase, law.bw, law.inflight_shortterm), (Refill, 1000.0, f64::INFINITY));
    // Until what was sent in it comes back.
    law.on_delivery(&at(2502, 60), &Delivery { delivered: 1600, before: 1499, ..AMID });
    assert_eq!((law.phase, law.probe_sample), (Refill, false));
    let window = law.window;
    law.on_delivery(&at(2503, 60), &Delivery { delivered: 1700, before: 1500, rate: 900.0, ..AMID });
    assert_eq!((law.phase, law.probe_sample, law.full_bw), (Up, true, 900.0));
    assert_eq!((law.probe_up_rounds, law.probe_up_acked, law.probe_up_acked_per_inc), (1, 0.0, window));
    // Up starts a new round.
    assert_eq!(law.round_end, 1700);
}

#[test]
fn up_ends_on_a_plateau_of_three_rounds() {
    let rounds = |law: &mut Bbr, in_flight, d: &Delivery| {
        (1..=10).find(|_| {
            law.on_delivery(&at(0, in_flight), d);
            law.phase != Up
        })
    };
    let law = || Bbr { full_bw_rounds: 0, window: 150.0, probe_up_acked_per_inc: 1e9, ..settled(Up) };
    assert_eq!(rounds(&mut law(), 149, &ROUND), Some(3));
    assert_eq!(rounds(&mut law(), 149, &Delivery { app_limited: true, ..ROUND }), None);
    // If BBR's own bound limits the flow, a plateau says nothing: bounded in flight, and sending up
    // to the bound.
    for (in_flight, bound, found) in [(150, 150.0, None), (20, 150.0, Some(3)), (150, 300.0, Some(3))] {
        let mut law = Bbr { inflight_longterm: bound, window: 150.0, ..law() };
        let d = Delivery { newly_acked: 0, ..ROUND };
        assert_eq!(rounds(&mut law, in_flight, &d), found, "{in_flight} {bound}");
        if found.is_none() {
            law.inflight_longterm = f64::INFINITY;
            assert_eq!(rounds(&mut law, in_flight, &d), Some(3), "as from the beginning");
        }
    }
}

#[test]
fn the_long_term_bound_rises_in_doubling_steps_while_it_is_what_limits() {
    let mut law = Bbr { window: 100.0, inflight_longterm: 100.0, full_window: true, ..settled(Refill) };
    law.go_up(&ROUND);
    for step in [1.0, 2.0, 4.0, 8.0] {
        let before = law.inflight_longterm;
        for _ in 0..before as u32 {
            law.adapt_longterm(&AMID);
            law.window = law.inflight_longterm;
        }
        assert_eq!(law.inflight_longterm, before + step);
        law.round_start = true;
        law.adapt_longterm(&Delivery { newly_acked: 0, ..ROUND });
        law.round_start = false;
    }
    // Several steps may come with one acknowledgement, and what is over is kept for the next.
    let mut law = Bbr { probe_up_acked_per_inc: 10.0, ..law };
    law.probe_up_acked = 0.0;
    let before = law.inflight_longterm;
    law.adapt_longterm(&Delivery { newly_acked: 25, ..AMID });
    assert_eq!((law.inflight_longterm - before, law.probe_up_acked), (2.0, 5.0));
    // Not where something else limits, and not while too much is lost.
    for (full, window, lost, grown) in
        [(true, 102.0, 0, 2.0), (false, 102.0, 0, 0.0), (true, 99.0, 0, 0.0), (true, 102.0, 3, 0.0)]
    {
        let mut law = Bbr { window, inflight_longterm: 100.0, probe_up_acked_per_inc: 1.0, ..settled(Up) };
        law.full_window = full;
        law.adapt_longterm(&Delivery { newly_acked: 2, lost, ..AMID });
        assert_eq!(law.inflight_longterm, 100.0 + grown, "{full} {window} {lost}");
    }
    // The steps double thirty times, and one is never made without an acknowledgement.
    let mut law = Bbr { window: 4.0, probe_up_rounds: 29, ..settled(Up) };
    for _ in 0..3 {
        law.raise_slope();
        assert_eq!((law.probe_up_rounds, law.probe_up_acked_per_inc), (30, 1.0));
    }
}

#[test]
fn what_was_in_flight_without_loss_raises_the_long_term_bound() {
    for (bound, lost, then) in
        [(100.0, 2, 120.0), (100.0, 3, 100.0), (130.0, 0, 130.0), (f64::INFINITY, 0, f64::INFINITY)]
    {
        let mut law = Bbr { inflight_longterm: bound, ..settled(Cruise) };
        law.on_delivery(&at(0, 100), &Delivery { tx_in_flight: 120, lost, ..AMID });
        assert_eq!(law.inflight_longterm, then, "{bound} {lost}");
    }
}

#[test]
fn a_probe_that_loses_over_two_percent_bounds_what_is_in_flight_and_ends() {
    // The point at which losses crossed 2 %: after 99 segments 2 were lost, a fiftieth of a segment
    // too many (§ 5.5.10.2, InflightAtLoss). And no further down at once than to 0.7.
    for (phase, gone, bound, then) in [
        (Up, lost(3, 100), 99.0 - 0.02 / 0.98, Down),
        (Up, lost(3, 50), 70.0, Down),
        (Up, lost(2, 100), f64::INFINITY, Up),
        (Up, Lost { app_limited: true, ..lost(3, 100) }, f64::INFINITY, Down),
        (Refill, lost(3, 100), 99.0 - 0.02 / 0.98, Refill),
    ] {
        let mut law = Bbr { probe_sample: true, ..settled(phase) };
        law.on_lost(&at(0, 100), &gone);
        assert!(
            law.inflight_longterm == bound || near(law.inflight_longterm, bound),
            "{}",
            law.inflight_longterm
        );
        assert_eq!((law.phase, law.probe_too_high), (then, then == Down || phase == Refill));
        // Once a probe.
        if law.probe_too_high {
            let before = law.inflight_longterm;
            law.on_lost(&at(0, 100), &lost(30, 100));
            assert_eq!(law.inflight_longterm, before);
        }
    }
    // Outside of probes it is the short-term bounds' business.
    let mut law = settled(Cruise);
    law.on_lost(&at(0, 100), &lost(30, 100));
    assert_eq!((law.inflight_longterm, law.probe_too_high), (f64::INFINITY, false));
}

#[test]
fn after_a_probe_that_went_too_far_the_next_stops_at_the_bound_and_is_repeated_at_once() {
    let cautious =
        || Bbr { probe_too_high: true, inflight_longterm: 150.0, probe_sample: true, ..settled(Up) };
    let mut law = cautious();
    law.on_delivery(&at(0, 149), &AMID);
    assert_eq!(law.phase, Up);
    law.on_delivery(&at(0, 150), &Delivery { delivered: 1010, ..AMID });
    assert_eq!((law.phase, law.probe_too_high, law.probe_precautionary), (Down, false, true));
    // Nothing was lost in its round either: again, and this time further.
    law.on_delivery(&at(0, 150), &Delivery { delivered: 1100, before: 1009, ..AMID });
    assert_eq!(law.phase, Down);
    law.on_delivery(&at(0, 150), &Delivery { delivered: 1100, before: 1010, ..AMID });
    assert_eq!((law.phase, law.probe_precautionary), (Refill, false));
    // Something was: not again.
    let mut law = cautious();
    law.on_delivery(&at(0, 150), &Delivery { delivered: 1010, ..AMID });
    law.on_lost(&at(0, 150), &lost(4, 100));
    assert!(law.probe_too_high);
    law.on_delivery(&at(0, 150), &Delivery { delivered: 1100, before: 1010, ..AMID });
    assert_eq!((law.phase, law.probe_sample), (Down, false));
    // Nor after a probe that found a plateau.
    let mut law = Bbr { acks: Acks::Stopping, ..settled(Down) };
    law.on_delivery(&at(0, 150), &ROUND);
    assert_eq!(law.phase, Down);
}
