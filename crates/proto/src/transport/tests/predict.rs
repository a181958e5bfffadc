//! The short way beside the long one: the same packets at the same instants.

use proptest::prelude::*;
use tollway_law::receiver::Echo;
use tollway_law::sender::{AnySender, CubicConfig, FcpConfig, NewRenoConfig, Rcp, XcpConfig};
use tollway_law::{Budget, Rate, Time};

use super::super::{Config, Detection, WindowGrowth};
use super::pair::{CLIENT, Faults, Pair, SERVER};

/// The data of a side.
#[derive(Clone, Copy, Debug)]
enum Written {
    Nothing,
    Unlimited,
    Stream(u64),
    /// A stream, then a FIN.
    Finite(u64),
    Frames(u64),
}

/// One case of the comparison.
#[derive(Clone, Debug)]
struct Case {
    config: Config,
    law: u8,
    written: [Written; 2],
    faults: Faults,
    stops: bool,
    seed: u64,
}

fn law(which: u8) -> AnySender {
    match which {
        0 => NewRenoConfig { initial_ssthresh: 12.0, ..Default::default() }.build().into(),
        1 => CubicConfig { initial_ssthresh: 12.0, ..Default::default() }.build().into(),
        2 => XcpConfig { initial_window: 6.0, ..Default::default() }.build().into(),
        3 => XcpConfig { initial_window: 6.0, every: 3, ..Default::default() }.build().into(),
        4 => FcpConfig { deadline: Some(Rate::from_mbps(1.0)), ..Default::default() }.build().into(),
        5 => FcpConfig { budget: Budget::per_sec(0.3), ..Default::default() }.build().into(),
        6 => Rcp::new().into(),
        7 => XcpConfig { initial_window: 6.0, pacing: true, ..Default::default() }.build().into(),
        _ => AnySender::custom(NewRenoConfig { initial_window: 4.0, ..Default::default() }.build()),
    }
}

/// The `due` that links write into the tolls of a law: prices per byte, or rates; none for a law
/// with requests, which are granted.
fn due(which: u8) -> f64 {
    match which {
        5 => 1e-6,
        6 => 2e5,
        _ => 0.0,
    }
}

/// Runs a case by the short way where there is one, or by the long way alone.
fn run(case: &Case, predicts: bool) -> Pair {
    play(Pair::with_laws(&case.config, law(case.law), law(case.law)), case, predicts)
}

/// Runs a case between the ends of a pair.
fn play(mut pair: Pair, case: &Case, predicts: bool) -> Pair {
    pair.seed(case.seed);
    (pair.faults, pair.predicts, pair.due) = (case.faults, predicts, due(case.law));
    pair.open();
    for (side, written) in case.written.into_iter().enumerate() {
        match written {
            Written::Nothing => {}
            Written::Unlimited => pair.ends[side].write_unlimited(),
            Written::Stream(bytes) => pair.ends[side].write_stream(bytes),
            Written::Finite(bytes) => {
                pair.ends[side].write_stream(bytes);
                pair.ends[side].finish();
            }
            Written::Frames(bytes) => (0..20).for_each(|_| pair.ends[side].write_frame(bytes)),
        }
    }
    pair.drive(Time::from_secs(4));
    if case.stops {
        pair.ends.iter_mut().for_each(|end| end.stop());
    } else {
        pair.ends[CLIENT].write_stream(50_000);
        pair.ends[SERVER].set_receive_buffer(8);
    }
    pair.drive(Time::from_secs(3));
    pair
}

fn cases() -> impl Strategy<Value = Case> {
    let written = || {
        prop_oneof![
            3 => Just(Written::Nothing),
            3 => Just(Written::Unlimited),
            2 => (1u64..400_000).prop_map(Written::Stream),
            2 => (1u64..400_000).prop_map(Written::Finite),
            1 => (0u64..9_000).prop_map(Written::Frames),
        ]
    };
    let share = || prop_oneof![4 => Just(0.0), 2 => 0.0..0.05, 1 => 0.1..0.3];
    let faults = (share(), share(), share()).prop_map(|(loss, duplicate, reorder)| Faults {
        loss,
        duplicate,
        reorder,
    });
    let room = (4u64..60, 1u8..5, any::<bool>());
    let config = (0u8..5, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), room).prop_map(
        |(detection, handshake, delays, grows, ecn, (buffer, sack_ranges, limited_transmit))| Config {
            handshake,
            sack_ranges,
            limited_transmit,
            sack: detection > 0,
            detection: if detection == 2 { Detection::Rack { tail_probe: true } } else { Detection::Rfc6675 },
            delayed_ack: delays.then_some(Time::from_millis(40)),
            window_growth: match grows {
                true => WindowGrowth::PerPacket { initial: 4, step: 2 },
                false => WindowGrowth::Whole,
            },
            receive_buffer: buffer * 1460,
            initial_segment: if ecn { u32::MAX - 20 } else { 0 },
            echo: if grows { Echo::Latest } else { Echo::Sum },
            ecn,
            ..Config::default()
        },
    );
    (config, 0u8..9, [written(), written()], faults, any::<bool>(), any::<u64>()).prop_map(
        |(config, law, written, faults, stops, seed)| Case { config, law, written, faults, stops, seed },
    )
}

/// One stream one way, clocked by acknowledgements, of which much is lost: what has a way of its
/// own.
fn lossy_streams() -> impl Strategy<Value = Case> {
    let config = (0u8..4, 1u8..5, any::<bool>(), any::<bool>(), 10u64..200, any::<bool>()).prop_map(
        |(detection, sack_ranges, limited_transmit, handshake, buffer, delays)| Config {
            sack: detection > 0,
            sack_ranges,
            limited_transmit,
            handshake,
            receive_buffer: buffer * 1460,
            delayed_ack: delays.then_some(Time::from_millis(40)),
            initial_segment: u32::MAX - 30,
            ..Config::default()
        },
    );
    let faults = (prop_oneof![0.0..0.03, 0.03..0.35], prop_oneof![2 => Just(0.0), 1 => 0.0..0.1], 0.0..0.1);
    let stream = prop_oneof![
        (20_000u64..2_000_000).prop_map(Written::Stream),
        (1u64..2_000_000).prop_map(Written::Finite)
    ];
    (config, 0u8..2, stream, faults, any::<bool>(), any::<u64>()).prop_map(
        |(config, law, stream, (loss, duplicate, reorder), stops, seed)| Case {
            config,
            law,
            written: [stream, Written::Nothing],
            faults: Faults { loss, duplicate, reorder },
            stops,
            seed,
        },
    )
}

/// Runs a case both ways, and compares the ends.
fn compare(case: &Case) -> Result<(), TestCaseError> {
    equal(&run(case, true), &run(case, false))
}

/// Compares all that left and all that is known in the end.
fn equal(short: &Pair, long: &Pair) -> Result<(), TestCaseError> {
    for (packet, expected) in short.sent.iter().zip(&long.sent) {
        prop_assert_eq!(packet, expected);
    }
    prop_assert_eq!(short.sent.len(), long.sent.len());
    prop_assert_eq!(&short.events, &long.events);
    for (end, expected) in short.ends.iter().zip(&long.ends) {
        prop_assert_eq!(end.stats(), expected.stats());
        prop_assert_eq!(
            (end.cwnd(), end.srtt(), end.rto(), end.poll_timeout(), end.state()),
            (expected.cwnd(), expected.srtt(), expected.rto(), expected.poll_timeout(), expected.state())
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: proptest::test_runner::RngSeed::Fixed(19900401),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_short_way_does_what_the_long_one_does(case in cases()) {
        compare(&case)?;
    }

    #[test]
    fn so_does_the_way_where_much_is_lost(case in lossy_streams()) {
        compare(&case)?;
    }

    // Of ends that have run, in whatever state they were left.
    #[test]
    fn renewed_ends_are_like_new_ones(before in cases(), case in cases(), same in any::<bool>()) {
        let mut ends = run(&before, true).ends;
        let case = if same { Case { config: before.config, ..case } } else { case };
        let mut pair = Pair::with_laws(&case.config, law(case.law), law(case.law));
        let config = if same { ends[CLIENT].config().clone() } else { pair.ends[CLIENT].config().clone() };
        ends[CLIENT].renew_client(&config, law(case.law), 7);
        ends[SERVER].renew_server(&config, law(case.law), 7);
        pair.ends = ends;
        equal(&play(pair, &case, true), &run(&case, true))?;
    }
}

#[test]
fn a_stream_may_end_while_losses_are_repaired() {
    let case = Case {
        config: Config {
            handshake: false,
            initial_segment: u32::MAX - 30,
            receive_buffer: 12 * 1460,
            sack: true,
            sack_ranges: 2,
            limited_transmit: false,
            delayed_ack: Some(Time::from_millis(40)),
            ..Config::default()
        },
        law: 0,
        written: [Written::Finite(39_421), Written::Nothing],
        faults: Faults { loss: 0.3105613423457436, ..Faults::NONE },
        stops: false,
        seed: 15706354611797280855,
    };
    compare(&case).unwrap();
}

#[test]
fn a_steady_flow_goes_the_short_way() {
    let endings = [Written::Unlimited, Written::Finite(2_000_000)];
    for (which, written) in [0, 1, 2, 5, 6].into_iter().flat_map(|law| endings.map(|end| (law, end))) {
        let case = Case {
            config: Config { receive_buffer: 40 * 1460, ..Config::default() },
            law: which,
            written: [written, Written::Nothing],
            faults: Faults::NONE,
            stops: true,
            seed: 1,
        };
        let pair = run(&case, true);
        let sent = pair.sent.len() as u64;
        assert!(pair.predicted * 10 > sent * 9, "{} of {sent} by law {which}", pair.predicted);
        if due(which) > 0.0 {
            assert!(pair.turns * 20 > sent * 9, "{} of {sent} paced by law {which}", pair.turns);
        }
    }
}

#[test]
fn where_much_is_lost_the_second_look_is_seldom_needed() {
    for loss in [0.03, 0.2] {
        let case = Case {
            config: Config { receive_buffer: 40 * 1460, ..Config::default() },
            law: 0,
            written: [Written::Unlimited, Written::Nothing],
            faults: Faults { loss, ..Faults::NONE },
            stops: false,
            seed: 1,
        };
        let pair = run(&case, true);
        let [client, server] = [0, 1].map(|side| (pair.settled[side], pair.ends[1 - side].stats()));
        let share = |(settled, sent): (u64, u64)| settled as f64 / (sent as f64 * (1.0 - loss));
        let (sender, receiver) =
            (share((client.0, client.1.acks_sent)), share((server.0, server.1.segments_sent)));
        assert!(
            sender > 0.5 && receiver > 0.8,
            "{sender} of the acknowledgements, {receiver} of the segments"
        );
    }
}
