//! Whatever the channel does: every frame once, in order, both ways.

use proptest::prelude::*;
use tollway_law::Time;
use tollway_law::sender::{CubicConfig, NewRenoConfig, XcpConfig};

use super::super::{Config, Detection, Event};
use super::pair::{CLIENT, Faults, Pair, SERVER};

fn configs() -> impl Strategy<Value = Config> {
    let detection = prop_oneof![
        Just((false, Detection::NewReno)),
        Just((false, Detection::Ns2)),
        Just((true, Detection::Ns2)),
        Just((true, Detection::NewReno)),
        Just((true, Detection::Rfc6675)),
        Just((true, Detection::Rack { tail_probe: false })),
        Just((true, Detection::Rack { tail_probe: true })),
    ];
    let delay =
        prop_oneof![Just(None), Just(Some(Time::from_millis(40))), Just(Some(Time::from_millis(500)))];
    (detection, delay, any::<bool>(), any::<bool>(), 1u8..=4, any::<bool>()).prop_map(
        |((sack, detection), delayed_ack, handshake, limited_transmit, sack_ranges, wraps)| Config {
            sack,
            detection,
            delayed_ack,
            handshake,
            limited_transmit,
            sack_ranges,
            initial_segment: if wraps { u32::MAX - 9 } else { 0 },
            receive_buffer: 64 * 1460,
            ..Config::default()
        },
    )
}

fn faults() -> impl Strategy<Value = Faults> {
    (0.0..0.3f64, 0.0..0.2f64, 0.0..0.3f64).prop_map(|(loss, duplicate, reorder)| Faults {
        loss,
        duplicate,
        reorder,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20251121),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_frame_arrives_once_and_in_order_both_ways(
        config in configs(),
        faults in faults(),
        there in prop::collection::vec(0u64..20_000, 1..12),
        back in prop::collection::vec(0u64..20_000, 0..8),
        law in 0..3,
        seed: u64,
    ) {
        let laws = || match law {
            0 => NewRenoConfig::default().build().into(),
            1 => CubicConfig::default().build().into(),
            _ => XcpConfig::default().build().into(),
        };
        let mut pair = Pair::with_laws(&config, laws(), laws());
        pair.seed(seed);
        pair.faults = faults;
        pair.open();
        for &bytes in &there {
            pair.client().write_frame(bytes);
        }
        for &bytes in &back {
            pair.server().write_frame(bytes);
        }
        pair.client().finish();
        pair.server().finish();
        // Backed-off timers of a minute make long nights; it must come to rest all the same.
        prop_assert!(pair.drive(Time::from_secs(20_000)), "no rest: {:?}", pair.ends);
        prop_assert_eq!(pair.frames(SERVER), there);
        prop_assert_eq!(pair.frames(CLIENT), back);
        for side in [CLIENT, SERVER] {
            prop_assert_eq!(pair.events[side].last(), Some(&Event::Closed));
        }
    }
}
