//! The short paths through a link's code against the long one. A link with a possible fault that
//! never strikes takes the long path, and all results must be equal. So must those of a network
//! whose packets are traced, where each arrival is a pending event first.

use std::sync::Arc;

use proptest::prelude::*;
use tollway_law::link::{AnyLink, DropTail, FcpConfig, Unpaid, xcp};
use tollway_law::receiver::Echo;
use tollway_law::sender::{AnySender, FcpConfig as FcpSender, NewRenoConfig, XcpConfig as XcpSender};
use tollway_law::{Budget, Rate, Time};
use tollway_proto::faults::{Loss, LossPlace, Only};
use tollway_proto::middle::Counter;
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Change, Gate, NodeMachine};
use tollway_sim::{FlowId, FlowSpec, LinkId, LinkSpec, Network, RouteEnd};

/// The laws of a network.
#[derive(Clone, Copy, Debug)]
enum Law {
    NewReno,
    Xcp(xcp::Arithmetic),
    Fcp { unpaid: Unpaid },
}

impl Law {
    fn link(self, rate: Rate) -> AnyLink {
        match self {
            Law::NewReno => AnyLink::DropTail(DropTail),
            Law::Xcp(arithmetic) => xcp::XcpConfig { arithmetic, ..Default::default() }.build(rate),
            Law::Fcp { unpaid } => {
                AnyLink::Fcp(Box::new(FcpConfig { unpaid, ..Default::default() }.build(rate)))
            }
        }
    }

    fn sender(self, budget: f64) -> AnySender {
        match self {
            Law::NewReno => NewRenoConfig::default().build().into(),
            Law::Xcp(_) => XcpSender::default().build().into(),
            Law::Fcp { .. } => {
                FcpSender { budget: Budget::per_sec(budget), ..Default::default() }.build().into()
            }
        }
    }

    fn echo(self) -> Echo {
        if matches!(self, Law::Fcp { .. }) { Echo::Latest } else { Echo::Sum }
    }
}

fn law() -> impl Strategy<Value = Law> {
    use xcp::Arithmetic::{Fixed32, Fixed128, Float};
    prop_oneof![
        Just(Law::NewReno),
        prop_oneof![Just(Float), Just(Fixed32), Just(Fixed128)].prop_map(Law::Xcp),
        any::<bool>()
            .prop_map(|counts| Law::Fcp { unpaid: if counts { Unpaid::Counts } else { Unpaid::Queues } }),
    ]
}

/// A change of the link during a run.
fn change() -> impl Strategy<Value = (u64, Change)> {
    let change = prop_oneof![
        (1u32..40).prop_map(|mbps| Change::Rate(Rate::from_mbps(f64::from(mbps)))),
        (1u64..30).prop_map(|ms| Change::Delay(Time::from_millis(ms))),
        (0u32..60).prop_map(|packets| Change::Limit(Limit { packets, bytes: u64::MAX })),
        // With less than the longest packet the short path is closed, with more it opens again.
        (1u64..200_000).prop_map(|bytes| Change::Limit(Limit { packets: u32::MAX, bytes })),
        (1u32..40).prop_map(|mbps| Change::Capacity(Rate::from_mbps(f64::from(mbps)))),
    ];
    (1u64..500, change)
}

fn build(
    law: Law,
    limit: u32,
    middle: bool,
    delays: &[u64],
    sizes: &[u64],
) -> (Network<Connection>, LinkId, Vec<FlowId>) {
    let rate = Rate::from_mbps(10.0);
    let limit = Limit { packets: limit, bytes: u64::MAX };
    let delay = Time::from_millis(3);
    let link = LinkSpec { rate, delay, overhead: 0, law: law.link(rate), limit, queue: Default::default() };
    let mut network = Network::new(1);
    let shared = network.add_link(link.clone());
    network.with_link(shared, |link, now| link.measure(now, true));
    if middle {
        let counter = network.add(NodeMachine::middle(Counter::default()));
        network.pass_by(shared, counter, Gate(0));
    }
    let back = network.add_link(LinkSpec { law: AnyLink::DropTail(DropTail), limit: Limit::NONE, ..link });
    let reverse = network.add_route(&[back], RouteEnd::Client);
    let config = Arc::new(Config { echo: law.echo(), ..Config::default() });
    let flows = delays.iter().zip(sizes).enumerate().map(|(i, (&ms, &bytes))| {
        let access = network.add_link(LinkSpec {
            rate: Rate::from_mbps(100.0),
            delay: Time::from_millis(ms),
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit: Limit::NONE,
            queue: Default::default(),
        });
        let forward = network.add_route(&[access, shared], RouteEnd::Server);
        let mut client = Connection::client(&config, law.sender(1.0 + i as f64), 0);
        client.write_stream(bytes);
        network.add_flow(FlowSpec {
            client,
            server: Connection::server(&config, law.sender(1.0), 0),
            forward,
            back: reverse,
            start: Time::from_millis(7 * i as u64),
            stop: Time::NEVER,
            encoding: Default::default(),
            segment: 1500,
        })
    });
    let flows = flows.collect();
    (network, shared, flows)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_short_way_is_the_long_one(
        law in law(),
        limit in 0u32..60,
        delays in prop::collection::vec(0u64..40, 1..6),
        sizes in prop::collection::vec(1u64..3_000_000, 6),
        changes in prop::collection::vec(change(), 0..8),
    ) {
        let run = |short: bool| {
            let (mut network, shared, _) = build(law, limit, false, &delays, &sizes);
            network.trace_packets();
            if !short {
                let never = Loss { place: LossPlace::Before, only: Only::All, probability: 0.0 };
                network.change(shared, Change::Losses(vec![never]));
            }
            let mut now = Time::ZERO;
            for (after, change) in &changes {
                now += Time::from_millis(*after);
                network.run_until(now);
                network.change(shared, change.clone());
            }
            network.run_until(now + Time::from_secs(3));
            let stats = network.read_link(shared);
            (network.trace_digest(), network.packet_hops(), network.census(), stats)
        };
        let (short, long) = (run(true), run(false));
        prop_assert!(short.1 > 0);
        prop_assert_eq!(short, long);
    }

    #[test]
    fn an_arrival_that_is_the_next_event_need_not_be_pending(
        law in law(),
        limit in 0u32..60,
        middle: bool,
        delays in prop::collection::vec(0u64..10, 1..6),
        sizes in prop::collection::vec(1u64..300_000, 6),
        pauses in prop::collection::vec(1u64..300_000, 1..50),
    ) {
        let run = |traced: bool| {
            let (mut network, shared, flows) = build(law, limit, middle, &delays, &sizes);
            if traced {
                network.trace_packets();
            }
            let mut states = Vec::new();
            let mut now = Time::ZERO;
            for micros in pauses.iter().copied().chain([1_000_000]) {
                now += Time::from_micros(micros);
                network.run_until(now);
                let counts = (network.now(), network.events(), network.packet_hops(), network.census());
                states.push((counts, network.read_link(shared)));
            }
            let ends = flows.iter().flat_map(|&flow| [network.client(flow), network.server(flow)]);
            (states, ends.map(|end| format!("{end:?}")).collect::<Vec<_>>())
        };
        prop_assert_eq!(run(false), run(true));
    }
}
