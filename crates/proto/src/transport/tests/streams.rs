//! Real bytes over a channel with faults.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use tollway_law::Time;
use tollway_law::sender::NewRenoConfig;

use super::super::stream::{Incoming, Outgoing};
use super::super::{Config, Connection};
use crate::{Flags, Packet, SackRanges};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20251123),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_bytes_read_are_the_bytes_written(
        writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5000), 1..8),
        // The fate of each data packet in turn: lost, late, or delivered.
        fates in prop::collection::vec(0..6u8, 40),
        wraps: bool,
    ) {
        let initial_segment = if wraps { u32::MAX - 2 } else { 0 };
        let config = Arc::new(Config { handshake: false, initial_segment, ..Config::default() });
        let law = || NewRenoConfig { initial_window: 4.0, ..Default::default() }.build().into();
        let mut sender = Connection::client(&config, law(), 0);
        let mut receiver = Connection::server(&config, law(), 0);
        let (mut outgoing, mut incoming) = (Outgoing::new(), Incoming::new());
        let mut now = Time::from_secs(1);
        sender.open(now);
        for bytes in &writes {
            outgoing.write(bytes);
            sender.write_stream(bytes.len() as u64);
        }
        sender.finish();
        let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
        let mut fates = fates.into_iter();
        let mut wire: VecDeque<(Packet, Vec<u8>)> = VecDeque::new();
        for _ in 0..2000 {
            now += Time::from_millis(10);
            if sender.poll_timeout() <= now {
                sender.handle_timeout(now);
            }
            while sender.poll_transmit(now, &mut packet, &mut sack) {
                let mut payload = Vec::new();
                if packet.flags.has(Flags::DATA) {
                    let (front, back) = outgoing.payload(&packet, config.header).expect("written");
                    payload = [front, back].concat();
                    prop_assert_eq!(payload.len(), usize::from(packet.size - config.header));
                }
                match fates.next() {
                    Some(0) => {}
                    Some(1) => wire.push_front((packet, payload)),
                    Some(2) => wire.extend([(packet, payload.clone()), (packet, payload)]),
                    _ => wire.push_back((packet, payload)),
                }
            }
            while let Some((packet, payload)) = wire.pop_front() {
                let (before, window) = (receiver.expected(), receiver.receive_window());
                receiver.handle_packet(now, &packet, &SackRanges::EMPTY);
                incoming.insert(&packet, before, receiver.expected(), window, &payload);
                let mut ack = Packet::default();
                while receiver.poll_transmit(now, &mut ack, &mut sack) {
                    sender.handle_packet(now, &ack, &sack);
                }
            }
            outgoing.acknowledge(sender.una());
        }
        let mut read = vec![0; incoming.len()];
        prop_assert_eq!(incoming.read(&mut read), read.len());
        prop_assert_eq!(read, writes.concat());
        prop_assert!(outgoing.is_empty());
    }
}
