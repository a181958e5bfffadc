//! A node that receives arbitrary datagrams from its neighbour.

use std::sync::Arc;

use tollway_law::link::{AnyLink, XcpConfig};
use tollway_law::sender::XcpConfig as XcpSender;
use tollway_law::{Rate, Time};
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Cbr, Encoding};

use super::{FlowSpec, Network};
use crate::emulator::LinkSpec;
use crate::error::Error;

/// Datagrams from a neighbour, whose target node and length come from the fuzzer's bytes.
///
/// Nothing may panic, and every accepted packet must be accounted for. A wrong payload may end a
/// run, and no other datagram may.
pub fn node(data: &[u8]) {
    let rate = Rate::from_mbps(20.0);
    let link = |(from, to)| LinkSpec {
        from,
        to,
        rate,
        trace: None,
        delay: Time::from_millis(2),
        overhead: 0,
        law: if from == 1 {
            XcpConfig::default().build(rate)
        } else {
            AnyLink::DropTail(tollway_law::link::DropTail)
        },
        limit: Limit { packets: 8, bytes: u64::MAX },
        queue: Default::default(),
    };
    let names = ["a", "r", "b"].map(String::from);
    let links = [(0, 1), (1, 2), (2, 1), (1, 0)].map(link);
    let mut network = Network::new(&names, &links, 1, 1).expect("sockets on loopback");
    let config = Arc::new(Config { segment: 1200, header: 80, ack_size: 112, ..Config::default() });
    let law = || XcpSender::default().build().into();
    let mut client = Connection::client(&config, law(), 0);
    client.write_stream(u64::MAX / 2);
    let flow = FlowSpec {
        client,
        server: Connection::server(&config, law(), 0),
        forward: vec![0, 1],
        back: vec![2, 3],
        start: Time::ZERO,
        stop: Time::NEVER,
        encoding: Encoding::Acp,
        fingerprint: 0,
    };
    network.add_flow(flow).expect("a path without loops");
    let cross = Cbr::new(Rate::from_mbps(1.0), 400, Time::ZERO, Time::NEVER, None);
    network.add_source(cross, 400, &[0, 1]).expect("a path without loops");
    network.with_flow(0, |client, _| client.open(Time::ZERO)).expect("nothing has come yet");
    let (mut rest, mut now) = (data, Time::ZERO);
    while let [node, len, tail @ ..] = rest {
        let (datagram, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        now += Time::from_micros(300);
        let driver = &mut network.drivers[0];
        driver.now = now;
        match driver.accept(usize::from(node % 3), now, &mut datagram.to_vec(), None) {
            Ok(()) | Err(Error::Corrupt { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(network.held(), network.queued() + network.in_flight());
        assert!(network.queued() <= 4 * 8, "four queues of eight");
    }
}
