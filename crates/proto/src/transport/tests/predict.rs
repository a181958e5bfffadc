//! The short way beside the long one: the same packets at the same instants.

use proptest::prelude::*;
use tollway_law::receiver::Echo;
use tollway_law::sender::{AnySender, CubicConfig, FcpConfig, NewRenoConfig, XcpConfig};
use tollway_law::{Rate, Time};

use super::super::{Config, Detection, WindowGrowth};
use super::pair::{CLIENT, Faults, Pair, SERVER};

/// What a side writes.
#[derive(Clone, Copy, Debug)]
enum Written {
    Nothing,
    Unlimited,
    Stream(u64),
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
        _ => AnySender::custom(NewRenoConfig { initial_window: 4.0, ..Default::default() }.build()),
    }
}

/// Runs a case by the short way where there is one, or by the long way alone.
fn run(case: &Case, predicts: bool) -> Pair {
    let mut pair = Pair::with_laws(&case.config, law(case.law), law(case.law));
    pair.seed(case.seed);
    (pair.faults, pair.predicts) = (case.faults, predicts);
    pair.open();
    for (side, written) in case.written.into_iter().enumerate() {
        match written {
            Written::Nothing => {}
            Written::Unlimited => pair.ends[side].write_unlimited(),
            Written::Stream(bytes) => pair.ends[side].write_stream(bytes),
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
            1 => (0u64..9_000).prop_map(Written::Frames),
        ]
    };
    let share = || prop_oneof![2 => Just(0.0), 1 => 0.0..0.05];
    let faults = (share(), share(), share()).prop_map(|(loss, duplicate, reorder)| Faults {
        loss,
        duplicate,
        reorder,
    });
    let config = (0u8..4, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 4u64..60).prop_map(
        |(detection, handshake, delays, grows, ecn, buffer)| Config {
            handshake,
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
    (config, 0u8..6, [written(), written()], faults, any::<bool>(), any::<u64>()).prop_map(
        |(config, law, written, faults, stops, seed)| Case { config, law, written, faults, stops, seed },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        rng_seed: proptest::test_runner::RngSeed::Fixed(19900401),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_short_way_does_what_the_long_one_does(case in cases()) {
        let (short, long) = (run(&case, true), run(&case, false));
        prop_assert_eq!(short.sent.len(), long.sent.len());
        for (packet, expected) in short.sent.iter().zip(&long.sent) {
            prop_assert_eq!(packet, expected);
        }
        prop_assert_eq!(&short.events, &long.events);
        for (end, expected) in short.ends.iter().zip(&long.ends) {
            prop_assert_eq!(end.stats(), expected.stats());
            prop_assert_eq!(
                (end.cwnd(), end.srtt(), end.rto(), end.poll_timeout(), end.state()),
                (expected.cwnd(), expected.srtt(), expected.rto(), expected.poll_timeout(), expected.state())
            );
        }
    }
}

#[test]
fn a_steady_flow_goes_the_short_way() {
    for which in 0..3 {
        let case = Case {
            config: Config { receive_buffer: 40 * 1460, ..Config::default() },
            law: which,
            written: [Written::Unlimited, Written::Nothing],
            faults: Faults::NONE,
            stops: true,
            seed: 1,
        };
        let pair = run(&case, true);
        let sent = pair.sent.len() as u64;
        assert!(pair.predicted * 10 > sent * 9, "{} of {sent} by law {which}", pair.predicted);
    }
}
